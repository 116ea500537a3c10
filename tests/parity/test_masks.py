"""Tests masks against torchvision v2's ``tv_tensors.Mask``, and warps of masks against Pillow.

``test_import_torchvision`` compares the masks of imported transforms.
"""

import numpy as np
import pytest

import pixprep as pp
from pixprep.engine.annotations import annotated
from pixprep.importers.torchvision import from_torchvision
from pixprep.pipeline.ops import changed

torch = pytest.importorskip("torch", reason="NO PYTORCH: its masks were not compared")
pytest.importorskip("torchvision", reason="NO TORCHVISION: its masks were not compared")

from PIL import Image  # noqa: E402
from torchvision import tv_tensors  # noqa: E402 - needs what conftest.py defines
from torchvision.transforms import v2  # noqa: E402
from torchvision.transforms.v2 import functional as F  # noqa: E402, N812

from parity.torchvision_replay import replayed  # noqa: E402

torch.set_num_threads(1)  # two threads would wait for each other on a busy machine
DRAWS = 300
SIZES = ((60, 80), (97, 51), (33, 120), (128, 128), (20, 31))
IGNORE = 250
NEAREST = v2.InterpolationMode.NEAREST
CASES = {
    "resize to the shorter side, and a crop": (
        [pp.resize(29), pp.center_crop(24)],
        lambda mask: F.center_crop(F.resize(mask, [29]), [24, 24]),
    ),
    "center_crop, flip": (
        [pp.center_crop(20, 19), pp.flip("vertical")],
        lambda mask: F.vertical_flip(F.center_crop(mask, [20, 19])),
    ),
    "flip before a resize": (
        [pp.flip(), pp.resize(height=50, width=90)],
        lambda mask: F.resize(F.horizontal_flip(mask), [50, 90]),
    ),
    "rotate by quarters": ([pp.rotate(270, expand=True)], lambda mask: F.rotate(mask, 270, expand=True)),
}


def sampled_masks(ops, dtype="uint8"):
    """Yield (mask, random parameters, our mask) for each sample."""
    op = pp.mask(ignore=IGNORE, dtype=dtype)
    ops = [*ops, op, pp.center_crop(8), changed(op, name="cropped"), pp.tensor(only="training")]
    plan = pp.Pipeline([pp.decode(), *ops]).for_training().plan
    generator = np.random.default_rng(3)
    for index, numbers in enumerate(plan.draw(seed=3, epoch=5, indices=range(DRAWS))):
        sample = {"mask": generator.integers(0, 200, SIZES[index % len(SIZES)], np.uint8)}
        placed = plan.placing(numbers, sample)(*sample["mask"].shape)
        yield sample["mask"], placed.draws, annotated(plan, placed, sample)["mask"]


@pytest.mark.parametrize("dtype", ["uint8", "int64"])
@pytest.mark.parametrize("name", CASES)
def test_every_label_after_fixed_ops_equals_that_of_a_torchvision_mask(name, dtype):
    ops, expected_of = CASES[name]
    for mask, _, ours in sampled_masks(ops, dtype):
        assert ours.dtype == dtype
        assert np.array_equal(ours, expected_of(tv_tensors.Mask(torch.from_numpy(mask))).numpy())


WARPS = [
    v2.RandomRotation(200, NEAREST, fill=IGNORE),
    v2.RandomAffine(90, (0.2, 0.3), (0.4, 2.5), (-20, 20, -10, 30), NEAREST, fill=IGNORE),
    v2.RandomPerspective(0.6, 0.9, NEAREST, fill=IGNORE),
]


@pytest.mark.parametrize("warp", WARPS, ids=lambda warp: type(warp).__name__)
def test_a_warp_like_pillow_equals_pillow_for_a_mask(warp):
    chain = v2.Compose([v2.Resize((40, 44)), warp])
    ops = from_torchvision(training=v2.Compose([chain, v2.ToImage()])).ops[1:-1]
    resized = v2.Resize((40, 44), NEAREST)
    others = 0
    for mask, draws, ours in sampled_masks(ops):
        small = resized(tv_tensors.Mask(torch.from_numpy(mask)))
        expected, tensors = (replayed(warp, draws)(form) for form in (Image.fromarray(small.numpy()), small))
        others += np.count_nonzero(ours != tensors.numpy())
        assert np.array_equal(ours, np.asarray(expected))
    assert others > 0
