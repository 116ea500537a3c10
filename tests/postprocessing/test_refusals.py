"""Tests the messages about outputs whose format is not that of the task, and about wrong arguments of coordinates."""

import numpy as np

import pixprep as pp
from pixprep.boxes import convert
from support.refusals import refusal, refusals

ROWS = np.tile(np.float32([[65, 85, 145, 205, 0.9, 3]]), (5, 1))
NAMED = {
    "boxes": ROWS[:2, :4],
    "scores": np.float32([0.9, 0.8]),
    "labels": np.int64([3, 3]),
    "keypoints": np.float32([[[100, 120]], [[90, 90]]]),
    "masks": np.zeros((2, 1, 320, 320), np.float32),
}
NORMALIZED = np.tile(np.float32([[0.05, 0.05, 0.02, 0.02, 0.9, 0]]).T, 9)
LETTERBOX = {"transform": np.float32([0.5, 0.5, 40, 0]), "original_size": np.int32([480, 640])}  # to 320 x 320


def found(*arrays, task=None):
    """Return the detections in outputs of a letterbox to 320 x 320."""
    outputs = {f"output{index}": array for index, array in enumerate(arrays)}
    return pp.detections(outputs | LETTERBOX, task)


def named(**arrays):
    """Return the detections in outputs with torchvision's names, some of them replaced."""
    return pp.detections(NAMED | arrays | LETTERBOX)


NAMES = {**globals(), "convert": convert}


@refusals("postprocessing")
def test_a_mistake_raises_the_expected_message(call, words):
    assert refusal(call, **NAMES) == words
