"""Tests of mapping masks and rotated boxes from a tensor back to the photo, in NumPy."""

import numpy as np
import pytest

import pixprep as pp
from pixprep.boxes import boxes_to_original, boxes_to_tensor, points_to_original, points_to_tensor
from pixprep.errors import PixprepError
from pixprep.postprocessing.coordinates import mask_to_original, quads_of, rotated_to_original
from support.images import png

LETTERBOX = [0.5, 0.5, 80, 0]  # a photo of 960 x 1280, letterboxed to 640 x 640
SIZE = [960, 1280]
# horizon at y = 10 of a photo; both sides of it are visible
HORIZON = np.array([[3, -8, 80], [0, -5, 80], [0, -0.1, 1]])


def test_a_box_drawn_as_a_mask_is_mapped_back_to_the_box_without_padding():
    mask = np.zeros((640, 640), bool)
    mask[:80] = mask[560:] = True  # mark the padding
    left, top, right, bottom = boxes_to_tensor([[100, 200, 500, 600]], LETTERBOX)[0].astype(int)
    mask[top:bottom, left:right] = True
    back = mask_to_original(mask, LETTERBOX, SIZE)
    expected = np.zeros(SIZE, bool)
    expected[200:600, 100:500] = True
    assert np.array_equal(back, expected)
    values = np.where(mask[None], 1, 0).astype(np.float32)
    smooth = mask_to_original(values, LETTERBOX, SIZE)
    assert smooth.shape == (1, *SIZE)
    assert smooth[0, 0].max() == 0  # the upper padding does not leak into the photo
    assert np.array_equal(smooth[0] > 0.5, expected)


def test_areas_outside_a_crop_or_a_rotation_are_zero():
    filled_mask = np.ones((32, 32), np.uint8)
    back = mask_to_original(filled_mask, [1, 1, -8, -4], [48, 40])  # the tensor shows the centre of the photo
    expected = np.zeros((48, 40), np.uint8)
    expected[8:40, 4:36] = 1
    assert np.array_equal(back, expected)
    quarter_turn = [[0, -1, 40], [1, 0, 0], [0, 0, 1]]  # a rotation by 90 degrees
    ramp = np.arange(48 * 40).reshape(48, 40)
    turned = mask_to_original(np.rot90(ramp, -1), [[0, -1, 48], [1, 0, 0], [0, 0, 1]], [48, 40])
    assert np.array_equal(turned, ramp)
    assert mask_to_original(np.ones((9, 9), np.float32), quarter_turn, [9, 9]).sum() < 81


@pytest.mark.parametrize("sign", [1, -2])
def test_both_sides_of_a_horizon_are_mapped_back_from_their_positions_in_the_tensor(sign):
    y, x = np.mgrid[0:40, 0:60]
    photo = np.stack([4 * x, 6 * y, np.full_like(x, 255)], axis=-1).astype(np.uint8)
    warp = pp.warp(homography=(sign * HORIZON).tolist(), height=160, width=160, filter="nearest")
    pipeline = pp.Pipeline([pp.decode(), warp, pp.transform(matrix=True), pp.tensor(dtype="uint8", layout="chw")])
    with pp.Engine(pipeline) as engine:
        outputs = engine.run_batch([png(photo)]).outputs
    back = mask_to_original(outputs["tensor"][0], outputs["transform"][0], [40, 60]).transpose(1, 2, 0)
    for rows in (slice(0, 5), slice(14, 30)):  # rows above and below the horizon
        seen = back[rows, :, 2] == 255
        assert seen.mean() > 0.3
        # nearest-neighbour sampling is applied twice
        assert np.abs(back[rows].astype(int) - photo[rows])[seen].max() <= 6


def test_a_box_across_a_horizon_encloses_the_part_in_front_of_it():
    (box,) = boxes_to_tensor([[0, 5, 30, 20]], -HORIZON)
    assert box[2:] == pytest.approx([80, 20])
    assert box[:2].max() < -1e4  # the box extends to the horizon
    motions, boxes = np.stack([np.linalg.inv(-HORIZON), HORIZON]), np.array([[[10, 20, 30, 50]], [[20, 10, 50, 60]]])
    batch = boxes_to_original(boxes, motions)
    assert [np.array_equal(*each) for each in zip(batch, map(boxes_to_original, boxes, motions), strict=True)] == [1, 1]


def test_rotated_boxes_are_mapped_back_with_their_corners():
    boxes = np.array([[320, 300, 100, 40, 0.3], [100, 200, 30, 60, -1.2]], np.float32)
    turned = [[0.3, -0.4, 50], [0.4, 0.3, 9], [0, 0, 1]]
    for transform in (LETTERBOX, [-0.5, 0.5, 560, 0], turned):  # not rotated, upside down, and rotated
        back = rotated_to_original(boxes, transform)
        corners = points_to_original(quads_of(boxes), transform)
        for ours, theirs in zip(quads_of(back), corners, strict=True):
            apart = np.abs(ours[:, None] - theirs[None]).max(axis=-1)
            assert apart.min(axis=0).max() < 1e-3
        assert np.allclose(back[:, 2:4], boxes[:, 2:4] * 2, atol=1e-3)
    assert np.allclose(points_to_tensor(points_to_original(boxes[:, :2], LETTERBOX), LETTERBOX), boxes[:, :2])


FLAT = [
    np.zeros((3, 3)),
    np.float32([[0.1, 0.2, 5], [0.3, 0.6, 7], [0, 0, 1]]),  # nearly singular: rounding leaves a determinant of 1e-9
    [[1, 2, 3], [4, 5, 6], [5, 7, 9]],
    np.diag([1, 1, np.nan]),
    np.full((3, 3), 1e300),
    np.diag([1e-200, 1e-200, 1]),
]


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda: rotated_to_original([[1, 1, 2, 2, 0]], [1, 0.5, 0, 0]), "the transform stretches the image"),
        (lambda: rotated_to_original([[1, 1, 2, 2]], LETTERBOX), "the last dimension of rotated boxes must be 5"),
        (lambda: mask_to_original(np.ones(3), LETTERBOX, SIZE), "the mask must have"),
        (lambda: mask_to_original(np.ones((3, 3)), [LETTERBOX] * 2, SIZE), "transform must have shape"),
        (lambda: mask_to_original(np.ones((3, 3)), LETTERBOX, [0, 9]), "the mask must have"),
        (lambda: rotated_to_original([[1, 1, 2, 2, 0]], HORIZON), "the transform stretches the image"),
        *(
            (lambda flat=flat: mask_to_original(np.ones((3, 3)), flat, SIZE), "is singular or not finite")
            for flat in FLAT
        ),
        *((lambda flat=flat: points_to_original([[1, 1]], flat), "skip this image") for flat in FLAT),
    ],
)
def test_coordinates_that_cannot_be_mapped_back_are_rejected(act, message):
    with pytest.raises(PixprepError, match=message):
        act()
