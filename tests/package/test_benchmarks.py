"""Tests of the benchmarks: all contenders do the same work, and the page contains the measured numbers."""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from functools import partial
from io import BytesIO
from math import prod
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "benchmarks"
SMALL = ("500x375", "bilinear", 1)
SINGLE = ("500x375 one by one", "bilinear", 1)


@pytest.fixture(scope="module")
def own():
    return sorted((ROOT / "client_examples" / "images").glob("*.jpg"))


@pytest.fixture(scope="module")
def folder(benchmark, own, tmp_path_factory):
    workloads = benchmark("workloads")
    folder = tmp_path_factory.mktemp("photos")
    for index, photo in enumerate(workloads.make(workloads.Workload("x", [(375, 500)], 4, 2), own)[0]):
        (folder / f"{index}.jpg").write_bytes(photo)
    return folder


@pytest.fixture(scope="module")
def cells(benchmark, folder):
    """Measure two cells concurrently, with few rounds."""
    names = dict.fromkeys(("pixprep_full", "pillow", "libjpeg_turbo"), Path(sys.executable))
    return benchmark("run").run_cells(names, {SMALL: folder, SINGLE: folder}, rounds=2, seconds=0.0)


@pytest.mark.parametrize("path", sorted((FOLDER / "contenders").glob("[!_]*.py")), ids=lambda path: path.stem)
def test_every_contender_defines_three_names_and_has_a_name_in_the_report(benchmark, path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assigned = {target.id for node in tree.body if isinstance(node, ast.Assign) for target in node.targets}
    (prepare,) = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "prepare"]
    assert {"PACKAGES", "MEAN_LEVELS"} <= assigned
    assert [argument.arg for argument in prepare.args.args] == ["filter_name", "threads"]
    assert path.stem in benchmark("report").WHAT


def test_a_difference_is_in_pixel_values_and_a_shift_is_distinguished(benchmark, folder):
    pixels, contenders = benchmark("pixels"), benchmark("contenders")
    canvas = pixels.reference(min(folder.glob("*.jpg")).read_bytes(), "bilinear")
    assert canvas.shape == (256, 341, 3)

    def compared(levels, left=58):  # half of the 117 free columns, rounded to even
        crop = levels[16:240, left : left + 224].astype(np.float64) / 255
        tensor = ((crop - contenders.MEAN) / contenders.STD).transpose(2, 0, 1)[None].astype(np.float32)
        return pixels.difference(tensor, [canvas])

    assert compared(canvas) == {"max": 0.0, "mean": 0.0, "shifted": 0}
    assert compared(canvas, left=59) == {"max": 0.0, "mean": 0.0, "shifted": 1}
    assert compared(canvas[:, :, ::-1])["mean"] > 5
    assert compared(canvas, left=61)["mean"] > 1
    brighter = compared(np.minimum(canvas, 254) + 1)
    assert brighter["max"] == 1
    assert 0.9 < brighter["mean"] <= 1


def test_the_minimum_bytes_are_the_filtered_region_and_the_tensor(benchmark):
    least = benchmark("pixels").least_bytes
    tensor = 3 * 224 * 224
    assert least([(256, 256)], support=1, dtype="uint8") == 3 * 225 * 225 + tensor
    assert least([(512, 512)] * 2, support=1, dtype="float32") == 2 * (3 * 450 * 450 + 4 * tensor)
    # the image is enlarged, so the filter's support does not grow
    assert least([(128, 100)], support=2, dtype="float16") == 3 * 91 * 91 + 2 * tensor


@pytest.mark.parametrize(("subsampling", "progressive"), [("4:2:0", False), ("4:4:4", True)])
def test_photos_match_their_workload_have_detail_and_depend_only_on_the_seed(benchmark, own, subsampling, progressive):
    workloads = benchmark("workloads")
    workload = workloads.Workload("x", [(75, 100), (700, 90)], 4, 2, subsampling, progressive)
    photos, facts = workloads.make(workload, own)
    assert len(set(photos)) == 4
    assert facts["bits_per_pixel"] > 1.5
    assert facts["megapixels"] == 2 * (75 * 100 + 700 * 90) / 1e6
    assert workloads.make(workload, own)[0] == photos
    assert not set(workloads.make(workload, own, seed=1)[0]) & set(photos)
    with Image.open(BytesIO(photos[1])) as image:
        assert image.size == (90, 700)
        assert image.layer[0][1:3] == {"4:2:0": (2, 2), "4:4:4": (1, 1)}[subsampling]
        assert bool(image.info.get("progressive")) is progressive


def test_every_workload_is_run_and_no_cell_occurs_twice(benchmark):
    workloads, cells = benchmark("workloads"), [cell for group in benchmark("run").FULL for cell in group]
    cells += (families := benchmark("families")).CELLS
    assert len(set(cells)) == len(cells)
    assert {name for name, _, _ in cells} == set(workloads.WORKLOADS)
    assert {row for _, row, _ in families.CELLS} == set(families.ROWS)
    for workload in workloads.WORKLOADS.values():
        assert workload.count % workload.batch == 0
    mixed, equal = (workloads.WORKLOADS[name] for name in (workloads.MIXED, workloads.EQUAL))
    assert len(set(mixed.sizes)) == mixed.count == equal.count == 300
    assert 0.95 < sum(map(prod, mixed.sizes)) / (300 * prod(equal.sizes[0])) < 1.05


def test_every_row_of_the_families_has_our_pipeline_and_libraries_with_names_in_the_report(benchmark):
    rows, ours, names = benchmark("families").ROWS, benchmark("families.pixprep"), benchmark("report").LIBRARIES
    assert not set(ours.PIPELINES) & set(ours.OPS)
    assert set(ours.PIPELINES) | set(ours.OPS) == set(rows)
    files = {path.stem for path in (FOLDER / "families").glob("[!_]*.py")}
    assert {"pixprep", *(name for row in rows.values() for name in row.libraries)} == files == set(names)
    assert set(benchmark("report").FEATURED) < {(workload, row) for workload, row, _ in benchmark("families").CELLS}


def test_tensors_of_a_family_are_compared_with_ours_in_pixel_values(benchmark):
    families = benchmark("families")
    pixels = np.random.default_rng(0).integers(0, 255, (2, 5, 7, 3), np.uint8)
    compare = families.comparison(families.ROWS["flip"])
    assert compare(pixels) == compare(pixels.transpose(0, 3, 1, 2)) == {"max": 0.0, "mean": 0.0}
    assert compare(pixels + (pixels > 99)) == {"max": 1.0, "mean": round(float((pixels > 99).mean()), 6)}
    for other in (pixels.astype(np.float32), pixels[:, :4]):
        with pytest.raises(ValueError, match="cannot be compared with uint8"):
            compare(other)
    compare = families.comparison(families.ROWS["yolo"])
    compare(np.zeros((1, 3, 2, 2), np.float32))
    assert compare(np.full((1, 3, 2, 2), 2 / 255, np.float32)) == {"max": 2.0, "mean": 2.0}


def test_a_library_is_timed_only_if_its_tensor_equals_ours_and_none_without_ours(benchmark, folder, monkeypatch):
    pytest.importorskip("cv2", reason="NO OPENCV: pip install opencv-python-headless")
    run = benchmark("run")
    names = dict.fromkeys(("pixprep", "opencv"), Path(sys.executable))

    def ready(row, refused):
        with run.workers(names, ("500x375", row, 1), folder, refused) as found:
            return {name: worker.facts["difference"] for name, worker in found.items()}

    refused = {}
    equal = {"max": 0.0, "mean": 0.0}
    assert ready("yolo", refused) == {"pixprep": equal, "opencv": equal}
    assert not refused
    bicubic = benchmark("families").ROWS["opencv bicubic"]
    monkeypatch.setitem(run.ROWS, "yolo", bicubic._replace(level=1 / 255, max_difference=-1.0))
    assert not ready("yolo", refused)
    assert set(refused) == {"pixprep"}


@pytest.mark.slow(reason="measures in separate processes; only a change of benchmarks/ breaks it")
def test_contenders_of_simultaneous_cells_ran_the_same_rounds_on_right_pixels(cells):
    assert [cell["workload"] for cell in cells] == [SMALL[0], SINGLE[0]]
    for cell, batches in zip(cells, (2 * 2, 2 * 64), strict=True):  # the cells run two rounds over all photos
        assert not cell["refused"]
        contenders = cell["contenders"]
        assert set(contenders) == {"pixprep_full", "pillow", "libjpeg_turbo"}
        assert contenders["pixprep_full"]["difference"]["max"] == contenders["pillow"]["difference"]["max"] == 0
        assert contenders["libjpeg_turbo"]["difference"] is None
        for numbers in contenders.values():
            assert len(numbers["images_per_s_of_rounds"]) == 2
            assert numbers["batch_ms"]["count"] == batches
            assert min(numbers["cpu_s_per_1000"], numbers["peak_mib"], numbers["import_ms"]) > 0
        assert cell["versions"]["pillow"]["numpy"] == np.__version__


def test_a_contender_with_different_pixels_is_not_timed(benchmark, folder, tmp_path):
    run, refused = benchmark("run"), {}
    black = partial(benchmark("pixels").difference, references=[np.zeros((256, 341, 3), np.uint8)] * run.CHECKED)
    with (
        run.workers({"pillow": Path(sys.executable)}, SMALL, folder, refused) as ready,
        pytest.raises(
            run.ContenderError, match=r"not timed: its pixels differ by \d+\.\d+ on average, which is more than 0"
        ),
    ):
        ready["pillow"].check(black, 0.0, tmp_path)


def test_a_contender_that_cannot_take_part_is_listed_with_the_reason(benchmark, folder):
    run, measure, refused = benchmark("run"), benchmark("measure"), {}
    missing = measure.find("contenders.no_such", run.ENVIRONMENTS)
    assert missing == (None, "ModuleNotFoundError: No module named 'contenders.no_such'")
    assert measure.find("contenders.pillow", run.ENVIRONMENTS) == (Path(sys.executable), "")
    names = dict.fromkeys(("no_such", "libjpeg_turbo"), Path(sys.executable))
    with run.workers(names, ("500x375", "lanczos", 1), folder, refused) as ready:
        assert not ready
    assert set(refused) == {"no_such"}  # OpenCV does not support this filter, so its result is not missing
    assert "No module named 'contenders.no_such'" in refused["no_such"]


def test_batches_rounds_and_their_statistics(benchmark):
    measure = benchmark("measure")
    endless = measure.batches([b"a", b"b", b"c"], 2)
    assert [next(endless) for _ in range(3)] == [[b"a", b"b"], [b"c", b"a"], [b"b", b"c"]]
    assert len(measure.time_round(lambda _: None, endless, 0.0)) == 1
    taken = measure.time_round(lambda _: None, endless, 0.001)
    assert sum(taken) >= 0.001 > sum(taken[:-1])
    assert measure.summary([[0.1, 0.1], [0.05], [0.4]], 8) == {
        "images_per_s": 80.0,
        "images_per_s_of_rounds": [80.0, 160.0, 20.0],
        "batch_ms": {"median": 100.0, "p99": 391.0, "count": 4},
    }
    ours, theirs = ({"images_per_s_of_rounds": rates} for rates in ([90, 9, 95, 100, 80], [100, 10, 100, 100, 100]))
    assert measure.ratio(ours, theirs) == 0.9  # the ratio is computed per round, because the rounds ran concurrently


@pytest.fixture
def result(benchmark):
    return json.loads(benchmark("report").newest().read_text(encoding="utf-8"))


def test_the_page_shows_the_numbers_of_the_result(benchmark, result):
    report = benchmark("report")
    cell = report.contender_cells(result, "bilinear", 2)[0]
    ours, pillow = (cell["contenders"][name] for name in ("pixprep_full", "pillow"))
    ours["images_per_s"] = 12345.6
    cell["refused"] = {"opencv": "it is Tuesday"}
    pillow["images_per_s_of_rounds"] = [2 * rate for rate in ours["images_per_s_of_rounds"]]
    page = report.page(result | {"load_average": 2.0})
    assert "| pixprep | 12,346 (" in page
    assert "**The machine was not quiet: load average 2.00 before the first round.**" in page
    assert "- OpenCV, no antialias: 500x375, bilinear: it is Tuesday" in page
    assert "- 500x375, bilinear, two threads: 0.50 x the speed of Pillow + NumPy" in page
    assert "| 500x375 | 12,346 |" in report.readme(result)


def family(workload, row, ours, difference=None, **theirs):
    rates = {"pixprep": ours, **theirs}
    contenders = {
        name: {"images_per_s": rate, "images_per_s_of_rounds": [rate] * 3, "difference": difference or GAP}
        for name, rate in rates.items()
    }
    return {"workload": workload, "filter": row, "threads": 1, "contenders": contenders, "refused": {}}


GAP = {"max": 1.0, "mean": 0.03}


def test_the_families_are_on_the_page_in_the_readme_and_among_the_slower_cases(benchmark, result):
    report = benchmark("report")
    cells = [
        family("500x375 by 8", "yolo", 500.0, opencv=250.0),
        family("500x375", "dali", 1000.0, dali=400.0),
        family("500x375 arrays", "flip", 2000.0, torchvision=8000.0, albumentations=1000.0),
    ]
    cells[0]["refused"] = {"tensorflow": "it is Tuesday"}
    about = {key: result[key] for key in ("date", "commit", "processor")} | {"load_average": 2.0, "rounds": 3}
    families = about | {"benchmark": "families", "missing": {"albumentations": "no such module"}, "cells": cells}
    page = report.page(result, families)
    assert "## Compared with your library's own code" not in report.page(result)
    assert "| YOLO, letterbox 640 | 500x375 by 8 | 2.00 | OpenCV: 4.00 (2.00 x), 1 / 0.03 |" in page
    assert "| `flip` | 0.50 | 0.12 (0.25 x), 1 / 0.03 | 1.00 (2.00 x), 1 / 0.03 |" in page
    assert "- 500x375 arrays, flip, one thread: 0.25 x the speed of torchvision" in page
    assert "x the speed of albumentations\n" not in page
    assert "- TensorFlow: 500x375 by 8, yolo: it is Tuesday" in page
    assert "- albumentations: no such module" in page
    assert "**The machine was not quiet: load average 2.00 before the first round.**" in page
    readme = report.readme(result, families)
    assert readme.startswith(report.readme(result))
    assert "| YOLO, letterbox 640 | 2.00 | OpenCV: 4.00 (2.0 x) |" in readme
    assert "| an imported DALI graph | 1.00 | DALI: 2.50 (2.5 x) |" in readme


def test_the_committed_pages_match_the_newest_full_result(benchmark, result):
    report = benchmark("report")
    marked = {name: (ROOT / name).read_text(encoding="utf-8") for name in report.MARKED}
    assert all(report.MARKS.search(text) for text in marked.values())
    for name, text in report.texts(result, marked).items():
        assert (ROOT / name).read_text(encoding="utf-8") == text, name
    for chart in re.findall(r"\((performance-\w+\.svg)\)", report.page(result)):
        assert f"<dc:title>{report.newest().name}</dc:title>" in (ROOT / "docs" / chart).read_text(encoding="utf-8")


def test_the_page_of_training_matches_the_newest_results(benchmark):
    report = benchmark("train_report")
    text = report.page(report.newest(), report.newest("memory"))
    assert report.PAGE.read_text(encoding="utf-8") == text


def test_the_part_about_clips_matches_the_newest_result(benchmark):
    report = benchmark("video_report")
    page = report.PAGE.read_text(encoding="utf-8")
    assert report.page(report.newest("video"), page) == page


@pytest.mark.slow(reason="measures in separate processes; only a change of benchmarks/ breaks it")
def test_memory_is_measured_over_complete_epochs_and_an_abandoned_one(benchmark, own, tmp_path):
    benchmark("train").write_photos([own[0].read_bytes()], tmp_path)
    found = benchmark("memory").measured(tmp_path, images=640, dropped_at=64, again=1)
    assert found["images"] == 640
    assert len(found["parts_mib"]) == 10
    assert found["max_mib"] >= max(found["parts_mib"]) > found["batch_mib"]
    assert found["dropped_mib"] < found["max_mib"]


def test_a_chart_has_a_line_and_a_label_for_each_series_and_both_schemes(benchmark, result):
    pytest.importorskip("matplotlib", reason="NO MATPLOTLIB: pip install matplotlib")
    charts = benchmark("plots").draw(result, "a.json")
    assert set(charts) == {f"performance-{name}.svg" for name in ("engine", "parts", "serving", "latency")}
    for text in charts.values():
        assert "prefers-color-scheme:dark" in text
        assert "<dc:title>a.json</dc:title>" in text
    assert [charts["performance-engine.svg"].count(f">{name}</text>") for name in ("pixprep", "DALI")] == [3, 3]
    assert charts["performance-engine.svg"] == benchmark("plots").draw(result, "a.json")["performance-engine.svg"]


@pytest.mark.slow(reason="measures in separate processes; only a change of benchmarks/ breaks it")
def test_the_host_benchmark_runs_with_a_gpu_that_takes_no_time(tmp_path):
    if shutil.which("g++") is None and shutil.which("clang++") is None:
        pytest.skip("NO C++ COMPILER, which the stand-in of the GPU needs")
    pytest.importorskip("nvidia.nvimgcodec", reason="NO NVIMGCODEC: pip install nvidia-nvimgcodec-cu12")
    options = ["--out", tmp_path, "--date", "2026-01-01", "--cores", 1, "--lanes", 1, "--batches", 1, 3, "--rounds", 1]
    done = subprocess.run(
        [sys.executable, *map(str, [FOLDER / "host.py", *options, "--seconds", 0.2])],
        env=os.environ | {"PYTHONPATH": str(ROOT / "tests")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "host-2026-01-01.json").read_text(encoding="utf-8"))
    assert "absent" in result["objects_us"] or min(result["objects_us"][name] for name in ("nvImageCodec", "CuPy")) > 0
    assert [(cell["sizes"], cell["batch"]) for cell in result["cells"]] == [
        (sizes, batch) for sizes in ("equal", "300 sizes", "never twice") for batch in (1, 3)
    ]
    for cell in result["cells"]:
        parts = cell["parts_us"]
        assert sum(parts.values()) == pytest.approx(cell["python_us"], rel=0.01)
        assert cell["interpreter_us"] == pytest.approx(cell["python_us"] - parts["stand-ins"], rel=0.01)
        assert cell["ceiling_images_per_s"] == pytest.approx(1e6 / cell["interpreter_us"], rel=0.01)
        assert min(cell["machine_code_us"], parts["header"], parts["answer"], cell["measured_images_per_s"]) > 0
