"""The CPU benchmarks: that what they compare is comparable, and that the page says what the numbers say."""

import ast
import copy
import importlib
import json
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from PIL import Image

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "benchmarks"
CELL = ("500x375", "bilinear", 1)


@pytest.fixture(scope="module")
def benchmark():
    """The modules by name, as a script beside them would import them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(FOLDER))
        yield importlib.import_module


@pytest.fixture(scope="module")
def photos(benchmark, tmp_path_factory):
    workloads = benchmark("workloads")
    folder = tmp_path_factory.mktemp("photos") / "500x375"
    own = sorted((ROOT / "client_examples" / "images").glob("*.jpg"))
    facts = workloads.make(workloads.Workload("500x375", ("500x375",), 4, 2), folder, own)
    return folder, facts


@pytest.fixture(scope="module")
def cell(benchmark, photos):
    """One cell, timed hastily."""
    names = {name: Path(sys.executable) for name in ("pixprep_full", "pixprep_reduced", "pillow", "libjpeg_turbo")}
    return benchmark("run").run_cell(names, CELL, photos[0], rounds=2, seconds=0.001)


@pytest.fixture
def result(cell, photos):
    """A whole result, with numbers of serving that nobody measured."""
    loads = [
        {"model": "preprocess", "protocol": "grpc", "batch": 1, "load": load, "images_per_s": rate, "mean_batch": 2.0}
        | {"shared_memory": False, "cpu_ms_per_image": {"triton": 0.5, "models": 2.25, "client": 0.75}}
        | {f"p{share}_ms": float(share) for share in (50, 90, 95, 99)}
        for load, rate in (("concurrency 1", 100.0), ("concurrency 4", 300.0), ("poisson 50/s", 48.0))
    ]
    names = ("queue", "compute_input", "decode", "transform", "backend", "compute_output", "requests")
    serving = {"engine": {"images_per_s": 400.0}, "loads": loads, "overhead_ms": dict.fromkeys(names, 0.125)}
    serving["engine_cpu_ms_per_image"] = 2.0
    kernel = {"500x375": [{"filter": "bilinear", "decode_ms": 1.25, "kernel_ms": 0.5, "pillow_ms": 2.0}]}
    return {
        **dict.fromkeys(("date", "commit", "processor", "cores", "python", "rounds"), "x"),
        "load_average": 0.1,
        "missing": {"dali": "No module named 'nvidia.dali'"},
        "photos": {"500x375": photos[1]},
        "kernel": kernel,
        "cells": [copy.deepcopy(cell)],
        "serving": serving,
    }


@pytest.mark.parametrize("path", sorted((FOLDER / "contenders").glob("[!_]*.py")), ids=lambda path: path.stem)
def test_every_contender_has_the_three_names_and_a_name_in_the_report(benchmark, path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assigned = {target.id for node in tree.body if isinstance(node, ast.Assign) for target in node.targets}
    (prepare,) = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "prepare"]
    assert {"PACKAGES", "MEAN_LEVELS"} <= assigned
    assert [argument.arg for argument in prepare.args.args] == ["filter_name", "threads"]
    assert path.stem in benchmark("report").WHAT


def test_a_difference_is_in_levels_and_knows_a_shift_from_other_pixels(benchmark, photos):
    pixels, contenders = benchmark("pixels"), benchmark("contenders")
    encoded = min(photos[0].glob("*.jpg")).read_bytes()
    canvas = pixels.reference(encoded, "bilinear")
    assert canvas.shape == (256, 341, 3)

    def tensor(levels, top=16, left=58):  # 117 free columns: half of them, rounded to even
        crop = levels[top : top + 224, left : left + 224].astype(np.float64) / 255
        return ((crop - contenders.MEAN) / contenders.STD).transpose(2, 0, 1)[None].astype(np.float32)

    def compared(values):
        return pixels.difference(values, [canvas])

    assert compared(tensor(canvas)) == {"max": 0.0, "mean": 0.0, "shift": [0, 0]}
    assert compared(tensor(canvas, left=59)) == {"max": 0.0, "mean": 0.0, "shift": [0, 1]}
    assert compared(tensor(canvas // 2 + 64))["mean"] > 5
    assert compared(tensor(canvas[:, :, ::-1]))["mean"] > 5
    assert compared(tensor(canvas, left=61))["mean"] > 1
    brighter = compared(tensor(np.minimum(canvas, 254) + 1))
    assert brighter["max"] == 1
    assert 0.9 < brighter["mean"] <= 1


def test_the_photos_are_different_full_of_detail_and_the_same_for_a_seed(benchmark, photos, tmp_path):
    folder, facts = photos
    files = [path.read_bytes() for path in sorted(folder.glob("*.jpg"))]
    assert len(set(files)) == 4
    assert facts["bits_per_pixel"] > 1.5
    workloads = benchmark("workloads")
    own = sorted((ROOT / "client_examples" / "images").glob("*.jpg"))
    again = workloads.make(workloads.Workload("x", ("500x375",), 4, 2), tmp_path / "again", own)
    other = workloads.make(workloads.Workload("x", ("500x375",), 4, 2), tmp_path / "other", own, seed=1)
    assert again["sha256"] == facts["sha256"] != other["sha256"]


@pytest.mark.parametrize(("subsampling", "factors"), [("4:2:0", (2, 2)), ("4:4:4", (1, 1))])
@pytest.mark.parametrize("progressive", [False, True])
def test_a_workload_is_of_its_kind(benchmark, tmp_path, subsampling, factors, progressive):
    workloads = benchmark("workloads")
    own = sorted((ROOT / "client_examples" / "images").glob("*.jpg"))
    kind = workloads.Workload("x", ("500x375", "1920x1080"), 2, 1, subsampling, progressive)
    workloads.make(kind, tmp_path / "x", own)
    for path, size in zip(sorted((tmp_path / "x").glob("*.jpg")), [(500, 375), (1920, 1080)], strict=True):
        with Image.open(path) as image:
            assert image.size == size
            assert image.layer[0][1:3] == factors
            assert bool(image.info.get("progressive")) is progressive


def test_every_cell_names_a_workload_and_no_cell_is_there_twice(benchmark):
    run, known = benchmark("run"), benchmark("workloads").WORKLOADS
    assert len(set(run.FULL)) == len(run.FULL)
    assert {name for name, _, _ in run.FULL} == set(known)
    for workload in known.values():
        assert workload.batch <= workload.count


def test_contenders_of_a_cell_ran_the_same_rounds_on_right_pixels(cell):
    assert not cell["refused"]
    contenders = cell["contenders"]
    assert set(contenders) == {"pixprep_full", "pixprep_reduced", "pillow", "libjpeg_turbo"}
    assert contenders["pixprep_full"]["difference"]["max"] == contenders["pillow"]["difference"]["max"] == 0
    assert contenders["libjpeg_turbo"]["difference"] is None
    for numbers in contenders.values():
        assert len(numbers["images_per_s_of_rounds"]) == 2
        assert numbers["batch_ms"]["count"] == contenders["pillow"]["batch_ms"]["count"]
        assert min(numbers["cpu_s_per_1000"], numbers["peak_mib"], numbers["import_ms"]) > 0
    assert cell["versions"]["pillow"]["numpy"] == np.__version__


def test_the_kernels_layer_has_a_row_for_each_filter_with_times_of_both(benchmark, photos):
    rows = benchmark("run").split(photos[0])
    assert [row.pop("filter") for row in rows] == ["bilinear", "bicubic", "lanczos"]
    for row in rows:
        assert list(row) == ["decode_ms", "kernel_ms", "pillow_ms"]
        assert min(row.values()) > 0


def test_a_contender_with_other_pixels_is_not_timed(benchmark, photos, monkeypatch, capsys):
    run = benchmark("run")
    monkeypatch.setattr(run, "reference", lambda *_: np.zeros((256, 341, 3), np.uint8))
    names = {"pillow": Path(sys.executable), "libjpeg_turbo": Path(sys.executable)}
    found = run.run_cell(names, CELL, photos[0], rounds=1, seconds=0.001)
    assert set(found["contenders"]) == {"libjpeg_turbo"}
    assert "levels off on average" in found["refused"]["pillow"]
    assert "MISSING pillow" in capsys.readouterr().err


def test_a_contender_that_cannot_be_imported_is_missing_with_its_reason(benchmark):
    assert benchmark("run").find("no_such") == (None, "ModuleNotFoundError: No module named 'contenders.no_such'")
    assert benchmark("run").find("pillow") == (Path(sys.executable), "")


def test_a_contender_that_ends_is_refused_with_its_last_words(benchmark, photos):
    run, refused = benchmark("run"), {}
    with run.workers({"no_such": Path(sys.executable)}, CELL, photos[0], refused) as ready:
        assert not ready
    assert "No module named 'contenders.no_such'" in refused["no_such"]


def test_a_contender_without_a_filter_takes_no_part(benchmark, photos):
    refused = {}
    cell = ("500x375", "lanczos", 1)
    with benchmark("run").workers({"libjpeg_turbo": Path(sys.executable)}, cell, photos[0], refused) as ready:
        assert not ready
    assert not refused


def test_the_page_says_what_the_result_says(benchmark, result):
    report = benchmark("report")
    page = report.page(result)
    fast = result["cells"][0]["contenders"]["pixprep_full"]
    assert f"| pixprep | {fast['images_per_s']:.1f} |" in page
    result["cells"][0]["refused"]["opencv"] = "it is Tuesday"
    assert "500x375, bilinear: it is Tuesday" in report.page(result)
    assert "- DALI, idiomatic: No module named 'nvidia.dali'" in page
    assert "not quiet" not in page
    assert "| preprocess | grpc | 1 | concurrency 4 | 300.0 | 0.75 |" in page
    assert "| bilinear | 1.25 + 0.50 (2.00) |" in page
    fast["images_per_s"] = 12345.6
    assert "| pixprep | 12345.6 |" in report.page(result)
    assert "not quiet" in report.page(result | {"load_average": 2.0})


def test_the_page_names_who_is_faster(benchmark, result):
    report = benchmark("report")
    contenders = result["cells"][0]["contenders"]
    rates = contenders["pixprep_full"]["images_per_s_of_rounds"]
    contenders["pillow"]["images_per_s_of_rounds"] = [2 * rate for rate in rates]
    contenders["libjpeg_turbo"]["images_per_s_of_rounds"] = [9 * rate for rate in rates]  # no rival: it makes no tensor
    assert list(report.losses(result["cells"])) == ["- 500x375, bilinear, one thread: 0.50 x Pillow + NumPy"]
    contenders["pillow"]["images_per_s_of_rounds"] = [rate / 2 for rate in rates]
    assert list(report.losses(result["cells"])) == ["Nowhere in this run."]


def test_plots_are_xml_with_a_line_for_each_series(benchmark, result):
    plots = benchmark("report").plots(result)
    assert set(plots) == {"performance-throughput.svg", "performance-latency.svg"}
    lines = {
        name: len(ET.fromstring(text).findall("{http://www.w3.org/2000/svg}polyline"))  # noqa: S314  (our own)
        for name, text in plots.items()
    }
    assert lines == {"performance-throughput.svg": 2, "performance-latency.svg": 1}  # the engine's own line too


def test_the_readmes_table_is_written_between_its_marks_only(benchmark, result):
    result["cells"][0]["threads"] = 2
    files = benchmark("report").files(result, "a\n<!-- benchmark -->\nold\n<!-- /benchmark -->\nb\n")
    assert files["README.md"].startswith("a\n<!-- benchmark -->\n| images/s (x DALI) | 500x375 |\n")
    assert files["README.md"].endswith("<!-- /benchmark -->\nb\n")
    assert "old" not in files["README.md"]
    assert benchmark("report").files(result, "no marks\n")["README.md"] == "no marks\n"


def test_what_is_committed_is_what_the_newest_full_result_gives(benchmark):
    report = benchmark("report")
    newest = report.newest()
    page = ROOT / "docs" / "performance.md"
    assert page.exists() is (newest is not None)
    if newest is not None:
        readme = (ROOT / "README.md").read_text(encoding="utf-8")
        for name, text in report.files(json.loads(newest.read_text(encoding="utf-8")), readme).items():
            assert (ROOT / name).read_text(encoding="utf-8") == text, name


def test_the_time_of_a_request_is_split_by_differences(benchmark, monkeypatch):
    served = benchmark("served")
    stages = ("queue", "compute_input", "compute_infer", "compute_output")
    statistics = iter(
        [{**dict.fromkeys(stages, 5e6), "success": 10.0}, {**dict.fromkeys(stages, 45e6), "success": 20.0}]
    )
    names = ("decode_seconds_sum", "decode_seconds_count", "transform_seconds_sum", "transform_seconds_count")
    metrics = iter([{}, dict(zip(names, (0.01, 5.0, 0.005, 5.0), strict=True))])
    monkeypatch.setattr(served, "_statistics", lambda _: next(statistics))
    monkeypatch.setattr(served, "_metrics", lambda _: next(metrics))
    parts = served.between(None, lambda: None)
    assert (parts["compute_infer"], parts["decode"], parts["transform"], parts["backend"]) == (4.0, 2.0, 1.0, 1.0)
    assert (parts["requests"], parts["sampled"]) == (10.0, 5.0)
