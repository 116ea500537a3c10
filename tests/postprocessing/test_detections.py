"""Tests of detections computed from a detector's outputs: the remaining boxes match OpenCV's, and no output format is
mistaken for a different one.
"""

import cv2
import numpy as np
import pytest

import pixprep as pp
from pixprep.boxes import boxes_to_original, convert
from pixprep.errors import PixprepError

# transform of a letterbox to 320 x 320
LETTERBOX = {"transform": np.float32([0.5, 0.5, 40, 0]), "original_size": np.int32([480, 640])}


def found(*arrays, task=None, **options):
    return pp.detections({f"output{index}": array for index, array in enumerate(arrays)} | LETTERBOX, task, **options)


def export(*rows, more=0):
    """Return a detector output of shape [4 + 2 classes + more, 9]: the given rows, followed by candidates with a score
    of 0.
    """
    output = np.zeros((6 + more, 9), np.float32)
    output[2:4] = 10
    for column, row in enumerate(rows):
        output[: len(row), column] = row
    return output


@pytest.mark.parametrize("seed", range(20))
def test_the_kept_boxes_equal_opencvs(seed):
    numbers = np.random.default_rng(seed)
    middles, sizes = numbers.uniform(60, 260, (2, 60)), numbers.uniform(30, 120, (2, 60))
    scores = numbers.uniform(0, 1, (3, 60)).astype(np.float32) ** 2
    ours = found(np.concatenate([middles, sizes, scores]), task="detect")
    corners = convert(np.concatenate([middles, sizes]).T.astype(np.float32), "cxcywh", "xyxy")
    best, classes = scores.max(axis=0), scores.argmax(axis=0)
    sides = convert(corners, "xyxy", "xywh").tolist()
    kept = cv2.dnn.NMSBoxesBatched(sides, best.tolist(), classes.tolist(), 0.25, 0.45)
    kept = sorted(kept, key=lambda row: -best[row])
    assert 1 < len(kept) < (best > 0.25).sum()
    assert np.array_equal(ours.classes, classes[kept])
    assert np.allclose(ours.scores, best[kept])
    assert np.allclose(ours.boxes, boxes_to_original(corners[kept], *LETTERBOX.values()), atol=1e-3)


AFTER_NMS = np.float32([[65, 85, 145, 205, 0.9, 3], [0, 0, 0, 0, 0, 0]])
PLACE = [130, 90, 290, 330]


def test_rows_after_suppression_are_not_suppressed_again():
    assert len(found(np.float32([AFTER_NMS[0], AFTER_NMS[0] + [1, 1, 1, 1, -0.1, 0]])).boxes) == 2
    ours = found(AFTER_NMS)
    assert (ours.classes.tolist(), ours.scores.tolist(), ours.boxes.tolist()) == ([3], [pytest.approx(0.9)], [PLACE])
    assert len(found(np.zeros((300, 6))).boxes) == 0


def test_masks_are_mapped_back_within_their_boxes_one_per_object():
    prototypes = np.full((2, 80, 80), -1, np.float32)
    prototypes[0, 20:30, 30:50] = 1  # rows 80 to 120 and columns 120 to 200 of the tensor
    output = export([160, 120, 80, 80, 0.9, 0, 1, 0], [162, 120, 80, 80, 0.5, 0, 0, 1], more=2)
    ours = found(output, prototypes)
    (mask,) = ours.masks()  # the other box overlaps and is suppressed
    expected = np.zeros((480, 640), bool)
    expected[80:160, 240:400] = True
    assert (mask != expected).mean() < 0.002  # tolerance: one row of the prototypes
    (small,) = ours.masks(64)
    assert (small != expected[5::10, 5::10]).mean() < 0.03


@pytest.mark.parametrize("is_finished", [False, True])
@pytest.mark.parametrize("keypoints", [None, (2, 3), (3, 2)])
def test_keypoints_are_the_remaining_values_of_a_row(keypoints, is_finished):
    row = [105, 145, 80, 120, 0.9, *([0] * is_finished), 100, 120, 0.8, 140, 160, 0.2]
    output = np.zeros((len(row), 60), np.float32)
    output[2:4] = 1
    output[:, 0] = row
    if is_finished:
        output[:4] = 0
        output[:4, 0] = AFTER_NMS[0, :4]
    ours = found(output.T if is_finished else output, task="pose", keypoints=keypoints)
    assert ours.boxes.tolist() == [PLACE]
    if keypoints == (3, 2):
        expected = [[200, 160, 1], [1.6, 200, 1], [320, -79.6, 1]]
    else:
        expected = [[200, 160, 0.8], [280, 240, 0.2]]
    assert ours.keypoints[0] == pytest.approx(np.array(expected), abs=1e-3)


def test_rotated_boxes_are_suppressed_by_their_rotated_overlap():
    crossed = [[160, 160, 200, 20, 0.9, 0, 0.0], [160, 160, 200, 20, 0.8, 0, np.pi / 2 - 0.01]]
    same = [160, 161, 200, 20, 0.7, 0, 0.0]
    ours = found(export(*crossed, same, more=1), task="obb")
    assert ours.scores.tolist() == pytest.approx([0.9, 0.8])
    assert sorted(map(tuple, ours.quads[0].tolist())) == [(120, 220), (120, 260), (520, 220), (520, 260)]
    assert ours.boxes[0].tolist() == [120, 220, 520, 260]
    finished = np.float32([[160, 160, 200, 20, 0.9, 0, 0.0]])
    assert np.array_equal(found(finished, task="obb").quads, ours.quads[:1])


def test_angles_are_never_mistaken_for_scores_of_a_class():
    one = [160, 160, 200, 20, 0.9]
    # like the output of an untrained model
    angles = np.concatenate([np.tile(np.float32([one]).T, 9), [np.linspace(0.2, 0.9, 9)]])
    with pytest.raises(PixprepError, match=r'last row of \[6, 9\] may contain .* pass task="detect" or task="obb"'):
        found(angles)
    assert found(angles, task="obb").quads is not None
    assert found(angles, task="detect").quads is None
    # Few candidates have a high score for the last class.
    assert found(export([105, 145, 80, 120, 0, 0.9])).boxes.tolist() == [PLACE]


def test_boxes_completely_inside_padding_are_omitted():
    inside, above = [105, 145, 80, 120, 0.8, 0], [160, 20, 80, 40, 0, 0.9]  # The photo begins at row 40 of the tensor.
    assert found(export(above, inside)).boxes.tolist() == [PLACE]
    assert found(export([160, 20, 80, 42, 0, 0.9], inside)).classes.tolist() == [1, 0]  # one row of the box is visible
    (mask,) = found(export([*above, 1], [*inside, 1], more=1), np.ones((1, 80, 80), np.float32)).masks()
    assert mask.sum() == 160 * 240
    posed = np.float32([[*above[:4], 0.9, *[9] * 6], [*inside[:4], 0.8, *[7] * 6], *[[0] * 11] * 20]).T
    assert found(posed, task="pose").keypoints[:, 0].tolist() == [[14, -66, 7]]
    turned = found(export(above, inside, more=1), task="obb")
    assert (turned.quads.shape, turned.boxes.tolist(), turned.classes.tolist()) == ((1, 4, 2), [PLACE], [0])
    named = {"boxes": np.float32([[120, 0, 200, 39], [65, 85, 145, 205]]), "scores": np.float32([0.9, 0.5])}
    assert pp.detections(named | LETTERBOX).boxes.tolist() == [PLACE]


def test_rows_of_class_minus_one_are_padding():
    padded = np.float32([[0, 90, 50, 99, 0.99, -1], *AFTER_NMS])
    assert found(padded).classes.tolist() == [3]
    named = {"boxes": padded[:, :4], "scores": padded[:, 4], "labels": padded[:, 5].astype(int)}
    assert pp.detections(named | LETTERBOX).classes.tolist() == [3]


NAMED = {
    "boxes": np.float32([[65, 85, 145, 205], [66, 85, 145, 205]]),
    "scores": np.float32([0.9, 0.8]),
    "labels": np.int64([3, 3]),
    "keypoints": np.float32([[[100, 120]], [[90, 90]]]),
    "masks": np.zeros((2, 1, 320, 320), np.float32),
}


def test_arrays_with_torchvisions_names_are_used_by_name():
    NAMED["masks"][0, 0, 100:120, 70:80] = 1
    ours = pp.detections(NAMED | LETTERBOX)
    assert ours.boxes[0].tolist() == PLACE
    assert (ours.scores.tolist(), ours.classes.tolist()) == (pytest.approx([0.9, 0.8]), [3, 3])
    assert ours.keypoints[:, 0].tolist() == [[200, 160, 1], [180, 100, 1]]
    first, second = ours.masks()
    rows, columns = np.nonzero(first)
    assert (rows.min(), rows.max() + 1, columns.min(), columns.max() + 1) == (120, 160, 140, 160)
    assert not second.any()
