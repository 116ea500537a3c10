"""Tests that masks and rotated boxes equal those of Ultralytics and torchvision, except for differences due to the
order of float32 sums.
"""

import numpy as np
import pytest

cv2 = pytest.importorskip("cv2")
torch = pytest.importorskip("torch")
ops = pytest.importorskip("ultralytics.utils.ops")
functional = pytest.importorskip("torchvision.transforms.v2.functional")

import pixprep as pp  # noqa: E402
from support.images import png, scene  # noqa: E402

SIZES = [(480, 640), (427, 641), (641, 427), (333, 500), (70, 640)]


def transform_of(*ops_, size):
    pipeline = pp.Pipeline([pp.decode(), *ops_, pp.transform(), pp.tensor(dtype="uint8")])
    with pp.Engine(pipeline) as engine:
        return engine.run_batch([png(scene(*size))]).outputs["transform"][0]


@pytest.mark.parametrize("size", SIZES)
def test_a_mask_in_a_letterbox_equals_ultralytics(size):
    transform = transform_of(pp.letterbox(height=640, width=640, like="opencv"), size=size)
    mask = np.random.default_rng(0).random((2, 640, 640)).astype(np.float32)
    theirs = ops.scale_masks(torch.from_numpy(mask)[None], size)[0].numpy()
    ours = pp.mask_to_original(mask, transform, size)
    assert np.abs(ours - theirs).max() < 1e-4
    assert np.abs(pp.mask_to_original(mask, transform + np.float32([0, 0, 0.5, 0.5]), size) - theirs).max() > 0.01


@pytest.mark.parametrize("size", SIZES)
def test_a_map_and_classes_after_a_resize_equal_torchvision(size):
    transform = transform_of(pp.resize(height=160, width=96), size=size)
    values = np.random.default_rng(1).random((3, 160, 96)).astype(np.float32)
    theirs = torch.nn.functional.interpolate(torch.from_numpy(values)[None], size, mode="bilinear")[0].numpy()
    assert np.abs(pp.mask_to_original(values, transform, size) - theirs).max() < 1e-4
    classes = np.random.default_rng(2).integers(0, 21, (160, 96), np.uint8)
    nearest = functional.resize(torch.from_numpy(classes)[None], size, functional.InterpolationMode.NEAREST_EXACT)[
        0
    ].numpy()
    assert (
        pp.mask_to_original(classes, transform, size) == nearest
    ).mean() > 0.99  # except for centres that are on an edge in float32


@pytest.mark.parametrize("size", SIZES)
def test_rotated_boxes_equal_ultralytics(size):
    transform = transform_of(pp.letterbox(height=640, width=640, like="opencv"), size=size)
    draw = np.random.default_rng(3)
    boxes = np.concatenate(
        [draw.uniform(100, 500, (50, 2)), draw.uniform(10, 90, (50, 2)), draw.uniform(-1.5, 1.5, (50, 1))], 1
    )
    boxes = boxes.astype(np.float32)
    assert np.abs(pp.quads_of(boxes) - ops.xywhr2xyxyxyxy(torch.from_numpy(boxes)).numpy()).max() < 1e-3
    theirs = boxes.copy()
    theirs[:, :4] = ops.scale_boxes((640, 640), torch.from_numpy(boxes[:, :4].copy()), size, xywh=True).numpy()
    ours = pp.rotated_to_original(boxes, transform)
    scale = max(size) / 640
    # the letterbox rounds the lengths of its sides
    assert np.abs(ours[:, 2:4] - theirs[:, 2:4]).max() < 0.01 * 90 * scale
    assert np.abs(ours[:, 4] - theirs[:, 4]).max() < 0.01


def drawn_matrix(rng, *, is_perspective):
    """Return a random matrix that maps a photo of 90 x 120 to a tensor of 100 x 100.

    The horizon of some perspectives is inside the photo.
    """
    turn, scale = rng.uniform(-np.pi, np.pi), rng.uniform(0.5, 2, 2)
    matrix = np.eye(3)
    matrix[:2, :2] = [[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]] * scale[:, None]
    matrix[:2, 2] = 50 - matrix[:2, :2] @ rng.uniform((30, 30), (90, 60))
    matrix[2, :2] = rng.uniform(-0.02, 0.02, 2) * is_perspective
    return matrix * rng.choice([-3, 1]) if is_perspective else matrix


@pytest.mark.parametrize("is_perspective", [False, True])
def test_masks_and_points_are_mapped_back_through_matrices_like_opencv(is_perspective):
    rng = np.random.default_rng(4)
    half = np.array([[1, 0, 0.5], [0, 1, 0.5], [0, 0, 1]])
    across = 0
    for _ in range(200):
        matrix = drawn_matrix(rng, is_perspective=is_perspective)
        centres = np.linalg.inv(half) @ matrix @ half
        y, x = np.mgrid[0:90, 0:120]
        depth = np.tensordot(centres[2], np.stack([x, y, np.ones_like(x)]), 1)
        across += depth.min() < 0 < depth.max()
        place = np.tensordot(centres[:2], np.stack([x, y, np.ones_like(x)]), 1) / depth
        is_inside = ((place > 1) & (place < 98)).all(axis=0) & (np.abs(depth) > 0.05)
        draw = np.random.default_rng(5)
        smooth = cv2.resize(draw.random((12, 12), np.float32), (100, 100), interpolation=cv2.INTER_CUBIC)
        classes = draw.integers(0, 9, (100, 100), np.uint8)
        size = 90, 120
        for mask, flag in ((smooth, cv2.INTER_LINEAR), (classes, cv2.INTER_NEAREST)):
            theirs = cv2.warpPerspective(mask, centres, size[::-1], flags=flag | cv2.WARP_INVERSE_MAP)
            ours = pp.mask_to_original(mask, matrix, size)
            if flag == cv2.INTER_LINEAR:  # OpenCV may round positions to 1/32
                assert np.abs(ours - theirs)[is_inside].max(initial=0) < 0.02
            else:  # positions on an edge may differ
                assert (ours != theirs)[is_inside].sum() <= 0.005 * is_inside.sum() + 3
        points = rng.uniform(0, 100, (50, 2))
        expected = cv2.perspectiveTransform(points[None], np.linalg.inv(matrix))[0]
        assert np.allclose(pp.points_to_original(points, matrix), expected, rtol=1e-5, atol=1e-3)
    assert across > 20 or not is_perspective
