"""Masks and rotated boxes against Ultralytics and torchvision, bit for bit but for float32's order of sums."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")
ops = pytest.importorskip("ultralytics.utils.ops")
functional = pytest.importorskip("torchvision.transforms.v2.functional")

import pixprep as pp  # noqa: E402
from images import png, scene  # noqa: E402

SIZES = [(480, 640), (427, 641), (641, 427), (333, 500), (70, 640)]


def transform_of(*ops_, size):
    pipeline = pp.Pipeline([pp.decode(), *ops_, pp.transform(), pp.tensor(dtype="uint8")])
    with pp.Engine(pipeline) as engine:
        return engine.run_batch([png(scene(*size))]).outputs["transform"][0]


@pytest.mark.parametrize("size", SIZES)
def test_a_mask_in_a_letterbox_is_ultralytics_own(size):
    transform = transform_of(pp.letterbox(height=640, width=640, like="opencv"), size=size)
    mask = np.random.default_rng(0).random((2, 640, 640)).astype(np.float32)
    theirs = ops.scale_masks(torch.from_numpy(mask)[None], size)[0].numpy()
    ours = pp.mask_to_original(mask, transform, size)
    assert np.abs(ours - theirs).max() < 1e-4
    assert np.abs(pp.mask_to_original(mask, transform + np.float32([0, 0, 0.5, 0.5]), size) - theirs).max() > 0.01


@pytest.mark.parametrize("size", SIZES)
def test_a_map_and_classes_after_a_resize_are_torchvisions(size):
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
    ).mean() > 0.99  # but for centres on an edge, in float32


@pytest.mark.parametrize("size", SIZES)
def test_rotated_boxes_are_ultralytics_own(size):
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
    assert np.abs(ours[:, 2:4] - theirs[:, 2:4]).max() < 0.01 * 90 * scale  # the sides of a letterbox are rounded
    assert np.abs(ours[:, 4] - theirs[:, 4]).max() < 0.01
