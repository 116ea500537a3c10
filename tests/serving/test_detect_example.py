"""The example detect.py on outputs of each kind of YOLO export, without a server."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

spec = importlib.util.spec_from_file_location(
    "detect_example", Path(__file__).parents[2] / "client_examples" / "detect.py"
)
detect = importlib.util.module_from_spec(spec)
spec.loader.exec_module(detect)

BACK = {"transform": np.float32([0.5, 0.5, 80, 0]), "original_size": np.int32([960, 1280])}


def export(*rows, more=0):
    """An output of [4 + 2 classes + more, 9]: the rows, then candidates without a score."""
    output = np.zeros((6 + more, 9), np.float32)
    output[2:4] = 10
    for column, row in enumerate(rows):
        output[: len(row), column] = row
    return output


def test_masks_come_back_within_their_boxes():
    output = export([320, 320, 160, 160, 0.9, 0, 1, 0], [322, 320, 160, 160, 0.5, 0, 0, 1], more=2)
    prototypes = np.full((2, 160, 160), -1, np.float32)
    prototypes[0, 60:80, 60:100] = 1  # the upper half of the box, in a quarter of its pixels
    flat, found = detect.outputs_of({"output0": output, "output1": prototypes, **BACK})
    every = detect.candidates(flat, "segment", len(found))
    kept = detect.kept_of(every, "segment", 0.25, 0.45)
    assert kept.tolist() == [0]  # the other overlaps
    every = detect.Found(*(each[kept] for each in every))
    boxes = np.array([[480, 320, 800, 640]], np.float32)
    (mask,) = detect.masks_of(every, prototypes, BACK, boxes)
    expected = np.zeros((960, 1280), bool)
    expected[320:480, 480:800] = True
    assert mask.shape == (960, 1280)
    assert (mask != expected).mean() < 0.002  # a row of the prototypes


def test_rotated_boxes_are_suppressed_as_they_lie():
    crossed = [[320, 320, 200, 20, 0.9, 0, 0.0], [320, 320, 200, 20, 0.8, 0, np.pi / 2 - 0.01]]
    same = [320, 321, 200, 20, 0.7, 0, 0.0]
    every = detect.candidates(export(*crossed, same, more=1), "obb")
    assert detect.kept_of(every, "obb", 0.25, 0.45).tolist() == [0, 1]
    assert detect.kept_of(every, "detect", 0.25, 0.45).tolist() == [0]  # upright, all three are one box


def test_keypoints_are_the_rest_of_a_row():
    output = np.zeros((4 + 1 + 3 * 17, 60), np.float32)
    output[4, 0], output[5:8, 0] = 0.9, (100, 200, 0.8)
    every = detect.candidates(output, "pose")
    assert every.rest.shape == (60, 51)
    assert every.rest[0, :3].tolist() == pytest.approx([100, 200, 0.8])


@pytest.mark.parametrize(
    ("output", "task", "said"),
    [
        (np.full((56, 60), 7, np.float32), "detect", "YOLO-pose has keypoints (--task pose)"),
        (np.zeros((5, 9), np.float32), "obb", "is not boxes and scores of 0 to 1 of --task obb"),
        (np.zeros((7, 9), np.float32), "pose", "of --task pose"),
    ],
)
def test_another_kind_of_output_is_said_with_its_task(output, task, said):
    with pytest.raises(SystemExit, match=r"^detect\.py: ") as caught:
        detect.candidates(output, task)
    assert said in str(caught.value)
