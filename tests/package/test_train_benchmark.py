"""Tests of the benchmark of the training input: invalid options are rejected, and the page contains the measured
numbers.
"""

import json
import sys
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from support.serving import wait_until

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "benchmarks"


@pytest.fixture(scope="module")
def folder(benchmark, tmp_path_factory):
    train, workloads = benchmark("train"), benchmark("workloads")
    own = sorted((ROOT / "client_examples" / "images").glob("*.jpg"))
    small = workloads.Workload("small", [(120, 160), (160, 120)], 8, 4)
    folder = tmp_path_factory.mktemp("photos")
    train.write_photos(workloads.make(small, own)[0], folder)
    train.write_annotations(folder)
    return folder


def test_the_photos_are_files_of_two_classes_and_a_shard(benchmark, folder):
    count = benchmark("train").PHOTOS
    assert len(list((folder / "files").glob("class?/*.jpg"))) == count
    assert (folder / "shard.tar").stat().st_size > sum(path.stat().st_size for path in folder.glob("files/*/*"))


@pytest.mark.slow(reason="measures in separate processes; only a change of benchmarks/ breaks it")
@pytest.mark.parametrize(
    "name",
    ["pixprep_loader", "pixprep_cached", "pixprep_engine", "colour_pixprep", "masks_pixprep", "boxes_pixprep"],
)
def test_a_contender_runs_only_in_its_turn(benchmark, folder, name):
    train = benchmark("train")
    with ExitStack() as stack:
        group = train.best(Path(sys.executable), name, folder, 1, stack)
        stack.callback(group.stop)
        found = group.take(2)
        assert len(found["taken"]) == 2
        assert found["cpu_s"] > 0
        train.check(name, found, None)
        assert ("fit" in found) == name.startswith(("masks_", "boxes_"))
        process = Path(f"/proc/{group._process.pid}/stat")
        wait_until(lambda: process.read_text().rpartition(")")[2].split()[0] == "T", "not stopped")


def test_a_contender_that_skips_work_is_not_timed(benchmark):
    train = benchmark("train")
    whole = {"shape": [64, 3, 224, 224], "labels": 64, "dtype": "float32", "mean": -0.1, "std": 1.1}
    train.check("x", whole, whole)
    whole |= {"fit": 0.9}
    train.check("x", whole | {"fit": 0.75}, whole)
    for change, words in [
        ({"fit": 0.7}, "the masks or boxes of x do not match its images \\(0.70\\)"),
        ({"shape": [32, 3, 224, 224]}, "shape \\(32, 3, 224, 224\\)"),
        ({"labels": 1}, "with 1 labels"),
        ({"dtype": "uint8"}, "returns uint8"),
        ({"mean": 110.0, "std": 60.0}, "mean is 110.00 and the standard deviation 60.00"),
    ]:
        with pytest.raises(train.AbsentError, match=words):
            train.check("x", whole | change, whole)


@pytest.mark.parametrize("name", ["masks_pixprep", "boxes_pixprep"])
def test_masks_and_boxes_of_different_windows_or_flips_do_not_fit(benchmark, folder, name):
    fit, least = benchmark("train_worker").fit, benchmark("train").MIN_FIT
    images, targets = next(benchmark(f"loaders.{name}").prepare(folder, 1, 0))
    found = fit(images, targets)
    others, half_flipped = fit(np.roll(images, 1, axis=0), targets), (found + fit(images[..., ::-1], targets)) / 2
    assert max(others, half_flipped) < least * found


def test_every_contender_has_a_name_in_the_report(benchmark):
    assert set(benchmark("train").CONTENDERS) == set(benchmark("train_report").WHAT)
    assert set(benchmark("video").CONTENDERS) == set(benchmark("video_report").WHAT)


@pytest.mark.slow(reason="measures in separate processes; only a change of benchmarks/ breaks it")
def test_a_contender_for_clips_performs_the_requested_task(benchmark, tmp_path):
    pytest.importorskip("av")
    video = benchmark("video")
    kind = video.Kind("small", "libx264", 72, 128, 40, 12, {})
    assert video.write_clip(tmp_path / "small.mp4", kind) == (tmp_path / "small.mp4").stat().st_size
    with ExitStack() as stack:
        contender = video.Contender("pixprep", Path(sys.executable), tmp_path, stack)
        assert list(contender.trials(2)) == [("", 1)]
        for cell in (video.Cell("small.mp4", 1, 2, 16), video.Cell("small.mp4", 1, 1, 1)):
            _, found = video.best("pixprep", contender, cell, None)
            assert found["shape"] == [cell.clips, cell.frames, 3, 224, 224]
            with pytest.raises(
                video.AbsentError, match=r"pixprep returns tensors with mean .* and standard deviation "
            ):
                video.check("pixprep", found, cell, found | {"mean": found["mean"] + 0.1})
            with pytest.raises(video.AbsentError, match="not timed: pixprep returns float32"):
                video.check("pixprep", found, video.Cell("small.mp4", 1, 3), None)
        results = video.run_cell({"pixprep": contender}, video.Cell("small.mp4", 1, 2, 4), 2, {})
    ours = results["contenders"]["pixprep"]
    assert len(ours["images_per_s_of_rounds"]) == 2
    assert ours["cpu_ms_per_clip"] > 0


@pytest.mark.skipif(not list((FOLDER / "results").glob("train-*.json")), reason="NOT MEASURED: make benchmark-training")
def test_every_committed_result_has_its_cells():
    for path in (FOLDER / "results").glob("train-*.json"):
        assert json.loads(path.read_text())["cells"]
