"""What the benchmarks compute, without timing anything."""

import importlib.util
import io
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import pixprep as pp
from fused_cases import plan_of
from pixprep.decoders.header import read_jpeg_header

FOLDER = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def measure():
    spec = importlib.util.spec_from_file_location("measure", FOLDER / "measure.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_photos_are_different_and_the_same_for_a_seed(measure):
    photos = measure.photos(75, 100, 6)
    assert len(set(photos)) == 6
    assert measure.photos(75, 100, 8)[:6] == photos
    assert not set(photos) & set(measure.photos(75, 100, 6, seed=1))


@pytest.mark.parametrize("size", [(375, 500), (1080, 1920)])
def test_photos_are_baseline_jpegs_of_420_and_quality_90(measure, size):
    (photo,) = measure.photos(*size, 1)
    header = read_jpeg_header(photo)
    assert (header.height, header.width, header.components, header.frame) == (*size, 3, 0xC0)
    file = io.BytesIO()
    Image.new("RGB", (8, 8)).save(file, "JPEG", quality=90)
    with Image.open(io.BytesIO(photo)) as image, Image.open(file) as other:
        assert [layer[1:3] for layer in image.layer] == [(2, 2), (1, 1), (1, 1)]
        assert image.quantization == other.quantization
        assert np.asarray(image).std() > 20  # a photo, and no gray plane


def test_batches_follow_on_from_each_other_and_go_round(measure):
    source = measure.batches([b"a", b"b", b"c"], 2)
    assert [next(source) for _ in range(4)] == [[b"a", b"b"], [b"c", b"a"], [b"b", b"c"], [b"a", b"b"]]
    assert next(measure.batches([b"a", b"b"], 5)) == [b"a", b"b", b"a", b"b", b"a"]


def test_a_round_has_one_batch_at_least_and_ends_when_its_time_is_over(measure):
    ran = []
    assert len(measure.time_round(ran.append, iter([[b"a"], [b"b"]]), 0.0)) == 1
    assert ran == [[b"a"]]
    taken = measure.time_round(lambda _: None, iter(lambda: [b"a"], None), 0.001)
    assert sum(taken) >= 0.001 > sum(taken[:-1])


def test_the_summary_has_the_median_of_the_rounds_and_the_99th_percentile_of_the_batches(measure):
    summary = measure.summary([[0.1, 0.1], [0.05], [0.4]], 8)
    assert summary == {
        "images_per_s": 80.0,
        "images_per_s_of_rounds": [80.0, 160.0, 20.0],
        "batch_ms": {"median": 100.0, "p99": 391.0, "count": 4},
    }


def test_a_ratio_is_of_rounds_that_ran_side_by_side(measure):
    ours, theirs = ({"images_per_s_of_rounds": rates} for rates in ([90, 9, 95, 100, 80], [100, 10, 100, 100, 100]))
    assert measure.ratio(ours, theirs) == 0.9


U8 = pp.tensor(dtype="uint8")


@pytest.mark.parametrize(
    ("ops", "size", "expected"),
    [
        pytest.param((pp.center_crop(10, 20), U8), (50, 60), 2 * 10 * 20 * 3, id="what a crop drops is not read"),
        pytest.param((pp.center_crop(10, 20), pp.tensor()), (50, 60), (1 + 4) * 600, id="float32 is four bytes"),
        # rows 1 and 2 of 4, made of 8: centres 3 and 5, support 2: source rows 1 to 6
        pytest.param(
            (pp.resize(height=4, width=8), pp.center_crop(2, 8), U8), (8, 8), (6 * 8 + 2 * 8) * 3, id="windows overlap"
        ),
        pytest.param((pp.pad(40, 50), U8), (10, 20), (10 * 20 + 40 * 50) * 3, id="a margin is written, not read"),
    ],
)
def test_the_least_bytes_are_the_windows_source_and_the_tensor(measure, ops, size, expected):
    plan = plan_of(*ops)
    assert measure.least_bytes(plan, [size]) == expected
    assert measure.least_bytes(plan, [size] * 3) == 3 * expected


def test_the_least_bytes_of_gray_are_of_one_channel(measure):
    assert measure.least_bytes(plan_of(pp.center_crop(10), U8, color="gray"), [(50, 60)]) == 200


def test_a_result_says_where_it_comes_from(measure, monkeypatch):
    monkeypatch.setenv("PIXPREP_COMMIT", "0123abc")
    found = measure.surroundings(["numpy", "no-such-package"])
    assert found["commit"] == "0123abc"
    assert found["versions"] == {"numpy": np.__version__}
    assert found["cores"] >= 1


@pytest.mark.parametrize("file", ["gpu.py", "served_gpu.py"])
def test_without_cupy_a_gpu_benchmark_says_so_in_one_line(file):
    code = f"import sys, runpy; sys.modules['cupy'] = None; runpy.run_path({str(FOLDER / file)!r}, run_name='__main__')"
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(FOLDER)!r}); {code}"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == 'gpu: NO CUPY: pip install "pixprep[gpu-cuda12]" (or gpu-cuda13)'
    assert "Traceback" not in done.stderr
