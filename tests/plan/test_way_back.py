"""Masks and rotated boxes from a tensor back to the photo, in NumPy."""

import numpy as np
import pytest

from pixprep.boxes import boxes_to_tensor, points_to_original, points_to_tensor, quads_of, rotated_to_original
from pixprep.errors import PixprepError
from pixprep.way_back import mask_to_original

LETTERBOX = [0.5, 0.5, 80, 0]  # a photo of 960 x 1280 in 640 x 640
SIZE = [960, 1280]


def test_a_box_drawn_as_a_mask_comes_back_as_the_box_and_the_margins_take_no_part():
    mask = np.zeros((640, 640), bool)
    mask[:80] = mask[560:] = True  # margins
    left, top, right, bottom = boxes_to_tensor([[100, 200, 500, 600]], LETTERBOX)[0].astype(int)
    mask[top:bottom, left:right] = True
    back = mask_to_original(mask, LETTERBOX, SIZE)
    expected = np.zeros(SIZE, bool)
    expected[200:600, 100:500] = True
    assert np.array_equal(back, expected)
    values = np.where(mask[None], 1, 0).astype(np.float32)
    smooth = mask_to_original(values, LETTERBOX, SIZE)
    assert smooth.shape == (1, *SIZE)
    assert smooth[0, 0].max() == 0  # nothing of the upper margin
    assert np.array_equal(smooth[0] > 0.5, expected)


def test_what_a_crop_or_a_turn_does_not_show_is_zero():
    ones = np.ones((32, 32), np.uint8)
    back = mask_to_original(ones, [1, 1, -8, -4], [48, 40])  # the middle of the photo
    expected = np.zeros((48, 40), np.uint8)
    expected[8:40, 4:36] = 1
    assert np.array_equal(back, expected)
    quarter = [[0, -1, 40], [1, 0, 0], [0, 0, 1]]  # a turn by 90 degrees
    ramp = np.arange(48 * 40).reshape(48, 40)
    turned = mask_to_original(np.rot90(ramp, -1), [[0, -1, 48], [1, 0, 0], [0, 0, 1]], [48, 40])
    assert np.array_equal(turned, ramp)
    assert mask_to_original(np.ones((9, 9), np.float32), quarter, [9, 9]).sum() < 81


def test_a_mask_of_another_stride_lies_where_the_one_of_the_tensor_lies():
    coarse = np.random.default_rng(0).random((160, 160)).astype(np.float32)
    back = mask_to_original(coarse, LETTERBOX, SIZE, stride=4)
    expected = mask_to_original(coarse, [0.125, 0.125, 20, 0], SIZE)
    assert np.abs(back - expected).max() < 1e-6


def test_rotated_boxes_come_back_with_their_corners():
    boxes = np.array([[320, 300, 100, 40, 0.3], [100, 200, 30, 60, -1.2]], np.float32)
    for transform in (LETTERBOX, [-0.5, 0.5, 560, 0]):  # and upside down
        back = rotated_to_original(boxes, transform)
        corners = points_to_original(quads_of(boxes), transform)
        for ours, theirs in zip(quads_of(back), corners, strict=True):
            apart = np.abs(ours[:, None] - theirs[None]).max(axis=-1)
            assert apart.min(axis=0).max() < 1e-3
        assert np.allclose(back[:, 2:4], boxes[:, 2:4] * 2, atol=1e-3)
    assert np.allclose(points_to_tensor(points_to_original(boxes[:, :2], LETTERBOX), LETTERBOX), boxes[:, :2])


@pytest.mark.parametrize(
    ("act", "said"),
    [
        (lambda: rotated_to_original([[1, 1, 2, 2, 0]], [1, 0.5, 0, 0]), "the transform stretches the image"),
        (lambda: rotated_to_original([[1, 1, 2, 2]], LETTERBOX), "the last dimension must be 5"),
        (lambda: mask_to_original(np.ones(3), LETTERBOX, SIZE), "a mask is"),
        (lambda: mask_to_original(np.ones((3, 3)), [LETTERBOX] * 2, SIZE), "the transform of one image"),
        (lambda: mask_to_original(np.ones((3, 3)), LETTERBOX, [0, 9]), "a mask is"),
    ],
)
def test_what_has_no_way_back_is_refused(act, said):
    with pytest.raises(PixprepError, match=said):
        act()
