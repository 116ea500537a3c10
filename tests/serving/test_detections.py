"""Boxes for the page: the same as OpenCV's suppression by class keeps, and none of a form that may be another."""

import cv2
import numpy as np
import pytest

from pixprep.boxes import boxes_to_original, convert
from pixprep.serving.page.answer import heat_map
from pixprep.serving.page.detections import detections

TRANSFORM, SIZE = np.array([0.5, 0.5, 40, 0], np.float32), np.array([480, 640], np.int32)


def outputs(array):
    return {"output0": np.asarray(array, np.float32), "transform": TRANSFORM, "original_size": SIZE}


@pytest.mark.parametrize("seed", range(20))
def test_the_boxes_that_stay_are_those_of_opencv(seed):
    numbers = np.random.default_rng(seed)
    middles = numbers.uniform(60, 260, (2, 60))
    sizes = numbers.uniform(30, 120, (2, 60))
    scores = numbers.uniform(0, 1, (3, 60)) ** 2
    found = detections(outputs(np.concatenate([middles, sizes, scores])))
    corners = convert(np.concatenate([middles, sizes]).T.astype(np.float32), "cxcywh", "xyxy")
    boxes = boxes_to_original(corners, TRANSFORM, SIZE)
    best, classes = scores.astype(np.float32).max(axis=0), scores.argmax(axis=0)
    theirs = convert(boxes, "xyxy", "xywh").tolist()
    kept = cv2.dnn.NMSBoxesBatched(theirs, best.tolist(), classes.tolist(), 0.25, 0.45)
    assert 1 < len(kept) < (best > 0.25).sum()
    assert sorted((box["class"], round(box["score"], 5)) for box in found) == sorted(
        (int(classes[row]), round(float(best[row]), 5)) for row in kept
    )
    assert [box["score"] for box in found] == sorted((box["score"] for box in found), reverse=True)


def test_rows_that_are_suppressed_already_are_taken_as_they_are():
    (box,) = detections(outputs([[65, 85, 145, 205, 0.9, 3], [0, 0, 0, 0, 0, 0]]))
    assert (box["class"], box["score"]) == (3, pytest.approx(0.9))
    assert box["box"] == pytest.approx([130 / 640, 90 / 480, 160 / 640, 240 / 480])
    assert detections(outputs(np.zeros((300, 6)))) == []


ROWS = np.tile(np.array([[65, 85, 145, 205, 0.9, 3]]), (5, 1))


@pytest.mark.parametrize(
    "array",
    [
        ROWS * [1, 1, 1, 1, 2, 1],  # no scores
        ROWS[:, [2, 1, 0, 3, 4, 5]],  # right before left
        np.add(ROWS, [0, 0, 0, 0, 0, 0.5]),  # no classes
        ROWS * np.nan,
        np.zeros((3549, 85)),
        np.zeros(1000),
    ],
)
def test_of_other_forms_there_are_no_boxes(array):
    assert detections(outputs(array)) is None


def test_without_the_way_back_there_are_no_boxes():
    given = outputs(ROWS)
    assert detections({"output0": given["output0"]}) is None
    assert detections(given | {"masks": given["output0"]}) is None


def test_a_map_becomes_a_picture_and_a_list_of_boxes_does_not():
    ramp = np.linspace(-3, 5, 40 * 30, dtype=np.float32).reshape(1, 30, 40)
    picture = heat_map(ramp)
    assert (picture.shape, picture.dtype) == ((30, 40, 3), np.uint8)
    light = picture.astype(int).sum(axis=2).ravel()
    assert light[0] == light.min()
    assert light[-1] == light.max()
    assert (np.diff(light.reshape(-1, 40).mean(axis=1)) > 0).all()
    assert heat_map(np.zeros((16, 16), np.int64)).max() == 60
    for shape in ((84, 8400), (3, 30, 40), (1000,), (7, 7), (5000, 5000)):
        assert heat_map(np.zeros(shape, np.float32)) is None
    assert heat_map(np.full((16, 16), np.nan)) is None
