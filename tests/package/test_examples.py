"""Computations of the client examples, without a server."""

import json
import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

EXAMPLES = Path(__file__).parents[2] / "client_examples"


@pytest.fixture(scope="module")
def candidates():
    """The function of ``detect.py`` that reads a detector's output."""
    return runpy.run_path(str(EXAMPLES / "detect.py"))["candidates"]


FINISHED = np.array([[10, 20, 30, 40, 0.9, 2], [0, 0, 0, 0, 0, 0]], np.float32)


def test_rows_of_a_finished_suppression_are_read_as_they_are(candidates):
    boxes, scores, classes, rest = candidates(FINISHED)
    assert rest.shape == (2, 0)
    np.testing.assert_array_equal(boxes, FINISHED[:, :4])
    assert (scores.tolist(), classes.tolist()) == ([pytest.approx(0.9), 0], [2, 0])


@pytest.mark.parametrize(
    ("column", "value"),
    [(2, 9), (3, 19), (4, 1.2), (4, -0.1), (4, np.nan), (5, 0.5)],  # YOLOX: middle, size, objectness, score
)
def test_rows_that_are_none_of_a_finished_suppression_are_refused(candidates, column, value):
    output = FINISHED.copy()
    output[0, column] = value
    with pytest.raises(SystemExit) as caught:
        candidates(output)
    assert str(caught.value) == (
        "detect.py: the rows of [2, 6] are not left, top, right, bottom, a score of 0 to 1 and a class: they need the "
        "model's own decoding, as its package does it"
    )


def of_form(*shape, scores=0.5):
    output = np.full(shape, 10, np.float32)
    output[4:] = scores
    return output


BESIDE = {"transform": np.ones(4), "original_size": np.ones(2)}


@pytest.mark.parametrize(
    ("outputs", "said"),
    [
        (
            {"output0": of_form(116, 8400), "output1": np.zeros((32, 160))},
            "the model gives output0, output1, transform, original_size: not boxes, transform and original_size; of "
            "YOLO-seg two outputs are known",
        ),
        ({"output0": of_form(300, 38)}, "an output of [300, 38] is neither [4 + classes, n] nor [n, 6]"),
        (
            {"output0": of_form(56, 8400, scores=320)},
            "[56, 8400] is not boxes and scores of 0 to 1 of --task detect; YOLO-pose has keypoints (--task pose), "
            "YOLO-obb an angle (--task obb), YOLO-seg a second output (--task segment)",
        ),
    ],
    ids=["two lists", "seg, suppressed", "pose"],
)
def test_yolos_that_find_more_than_boxes_are_refused_in_words(outputs, said):
    example = runpy.run_path(str(EXAMPLES / "detect.py"))
    with pytest.raises(SystemExit) as caught:
        example["candidates"](example["outputs_of"](outputs | BESIDE)[0])
    assert str(caught.value) == f"detect.py: {said}"


SCRIPTS = sorted(EXAMPLES.glob("*.py"))
MODULES = {"tritonclient": "tritonclient", "pixprep": ".", "pytriton": "server", "cv2": "flow"} | {
    name: name for name in ("pyspark", "pandas")
}


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_an_example_says_above_all_what_to_install(path):
    line, imported = installs(path), set(re.findall(r"^(?:import|from) (\w+)", path.read_text(), re.MULTILINE))
    for module in imported & MODULES.keys():
        assert module in line or MODULES[module] in line or ("[client" in line and module == "tritonclient")
    assert "opencv" not in line  # the newest asks for NumPy 2, under which the embedded Triton does not start


def test_what_the_examples_install_changes_nothing_beside_the_embedded_triton():
    """Not spark_batch.py: its page has an environment of its own."""
    words = [word for path in SCRIPTS if path.stem != "spark_batch" for word in shlex.split(installs(path))]
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--no-index", "--quiet", "--report", "-"]
    command.append("--no-build-isolation")
    done = subprocess.run([*command, *words], capture_output=True, text=True, check=False, cwd=EXAMPLES.parent)
    assert done.returncode == 0, done.stderr
    assert [each["metadata"]["name"] for each in json.loads(done.stdout)["install"]] == ["pixprep"]  # this checkout


def installs(path):
    """Arguments that an example's line gives to pip."""
    (line,) = re.findall(r"^pip install (.+)$", path.read_text(), re.MULTILINE)
    return line


def test_a_folder_stands_for_its_photos_in_grpc_async_many(tmp_path):
    files = runpy.run_path(str(EXAMPLES / "grpc_async_many.py"))["files"]
    (tmp_path / "deep").mkdir()
    photos = [tmp_path / "a.jpg", tmp_path / "deep" / "b.jpeg"]
    for path in [*photos, tmp_path / "notes.txt"]:
        path.touch()
    assert files([tmp_path]) == photos
    assert files([tmp_path / "x", tmp_path / "deep"]) == [tmp_path / "x", photos[1]]
    with pytest.raises(SystemExit) as caught:
        files([])
    assert str(caught.value) == "grpc_async_many.py: no photo: name JPEG files, or folders of them"
