"""Tests masks against torchvision v2's ``tv_tensors.Mask`` with the same parameters: every label for every geometric
op.
"""

import msgspec
import numpy as np
import pytest

import pixprep as pp
from pixprep.engine.annotations import annotated
from pixprep.engine.kernels.elastic import displacement
from pixprep.pipeline.ops import changed
from pixprep.plan.draws.motions import coefficients
from pixprep.plan.steps.warps import Elastic

torch = pytest.importorskip("torch", reason="NO PYTORCH: its masks were not compared")
pytest.importorskip("torchvision", reason="NO TORCHVISION: its masks were not compared")

from PIL import Image  # noqa: E402
from torchvision import tv_tensors  # noqa: E402 - needs what conftest.py defines
from torchvision.transforms import v2  # noqa: E402
from torchvision.transforms.v2 import functional as F  # noqa: E402, N812

from parity.torchvision_images import flipped, padded, shortest, window  # noqa: E402

torch.set_num_threads(1)  # two threads would wait for each other on a busy machine
DRAWS = 300
SIZES = ((60, 80), (97, 51), (33, 120), (128, 128), (20, 31))
IGNORE = 250
NEAREST = v2.InterpolationMode.NEAREST
BOXES = np.float32([[2, 3, 12, 15], [9, 1, 30, 18]])


def warped(mask, words):
    return F.affine(mask, **words["random_affine#0"], fill=[IGNORE])


def tilted(mask, corners, **how):
    found = corners and coefficients(*F.get_size(mask), corners)
    return F.perspective(mask, None, None, fill=[IGNORE], coefficients=list(found), **how) if found else mask


def field(mask, seed):
    found = displacement(Elastic((90.0, 60.0), (2.0, 3.0), seed), *F.get_size(mask))
    return torch.from_numpy(np.moveaxis(found, 0, -1).copy())[None]


CASES = {
    "resize": ([pp.resize(height=37, width=41)], lambda mask, _: F.resize(mask, [37, 41])),
    "resize to the shorter side, and a crop": (
        [pp.resize(29), pp.center_crop(24)],
        lambda mask, _: F.center_crop(F.resize(mask, [29]), [24, 24]),
    ),
    "center_crop, flip": (
        [pp.center_crop(20, 19), pp.flip("vertical")],
        lambda mask, _: F.vertical_flip(F.center_crop(mask, [20, 19])),
    ),
    "flip before a resize": (
        [pp.flip(), pp.resize(height=50, width=90)],
        lambda mask, _: F.resize(F.horizontal_flip(mask), [50, 90]),
    ),
    "random_resized_crop, random_flip": (
        [pp.random_resized_crop(40, 36), pp.random_flip()],
        lambda mask, words: flipped(
            F.resized_crop(mask, *window(words["random_resized_crop#0"]), size=[40, 36]), words["random_flip#0"]
        ),
    ),
    "random_crop with a margin, resized": (
        [pp.random_crop(36, 40, padding=4, pad_if_needed=True), pp.resize(height=24, width=50)],
        lambda mask, words: F.resize(padded(mask, words["random_crop#0"], fill=IGNORE), [24, 50]),
    ),
    **{
        f"random_crop, {mode}": (
            [pp.random_crop(36, 40, padding=4, pad_if_needed=True, padding_mode=mode), pp.random_flip()],
            lambda mask, words, mode=mode: flipped(
                padded(mask, words["random_crop#0"], padding_mode=mode), words["random_flip#0"]
            ),
        )
        for mode in ("edge", "reflect", "symmetric")
    },
    "random_perspective": (
        [pp.random_perspective(0.6, 0.9)],
        lambda mask, words: tilted(mask, words["random_perspective#0"]["corners"]),
    ),
    "elastic, random_flip": (
        [pp.elastic((90, 60), (2, 3), filter="bilinear"), pp.random_flip()],
        lambda mask, words: flipped(
            F.elastic(mask, field(mask, words["elastic#0"]["seed"]), fill=[IGNORE]), words["random_flip#0"]
        ),
    ),
    "random_zoom_out, random_iou_crop, random_flip": (
        [pp.random_flip(), pp.random_zoom_out(), pp.random_iou_crop(), pp.resize(height=40, width=36)],
        lambda mask, words: F.resize(
            F.crop(
                padded(flipped(mask, words["random_flip#0"]), words["random_zoom_out#0"], fill=IGNORE),
                *window(words["random_iou_crop#0"]),
            ),
            [40, 36],
        ),
    ),
    "random_shortest_size, random_flip": (
        [pp.random_shortest_size((24, 33, 57), 60), pp.random_flip()],
        lambda mask, words: flipped(
            F.resize(mask, shortest(mask, words["random_shortest_size#0"], 60)), words["random_flip#0"]
        ),
    ),
    "scale_jitter, random_crop": (
        [pp.scale_jitter(48, 40), pp.random_crop(32, 40, pad_if_needed=True)],
        lambda mask, words: padded(
            F.resize(mask, list(words["scale_jitter#0"].values())), words["random_crop#0"], fill=IGNORE
        ),
    ),
    "random_rotate": (
        [pp.random_rotate(200, filter="bilinear")],
        lambda mask, words: F.rotate(mask, words["random_rotate#0"]["angle"], fill=[IGNORE]),
    ),
    "random_rotate that expands, a crop, a flip": (
        [pp.random_rotate(180, expand=True), pp.center_crop(19, 14), pp.random_flip()],
        lambda mask, words: flipped(
            F.center_crop(F.rotate(mask, words["random_rotate#0"]["angle"], expand=True, fill=[IGNORE]), [19, 14]),
            words["random_flip#0"],
        ),
    ),
    "random_affine after a jitter": (
        [
            pp.resize(40),
            pp.color_jitter(0.5, 0.5, 0.5, 0.5),
            pp.random_affine(90, translate=(0.2, 0.3), scale=(0.4, 2.5), shear=(-20, 20, -10, 30)),
        ],
        lambda mask, words: warped(F.resize(mask, [40]), words),
    ),
    "rotate by quarters": ([pp.rotate(270, expand=True)], lambda mask, _: F.rotate(mask, 270, expand=True)),
}


def sampled_masks(ops, like, op):
    """Yield (mask, random parameters, our mask) for each sample."""
    ops = [msgspec.structs.replace(each, like=like) if hasattr(each, "like") else each for each in ops]
    pipeline = pp.Pipeline(
        [pp.decode(), *ops, op, pp.center_crop(8), changed(op, name="cropped"), pp.tensor(only="training")]
    )
    plan = pipeline.for_training().plan
    generator = np.random.default_rng(3)
    for index, numbers in enumerate(plan.draw(seed=3, epoch=5, indices=range(DRAWS))):
        height, width = SIZES[index % len(SIZES)]
        mask = generator.integers(0, 200, (height, width), np.uint8)
        sample = {"boxes": BOXES, "mask": mask, "masks": np.stack([mask, mask[::-1]]).astype(np.int32)}
        placed = plan.placing(numbers, sample)(height, width)
        yield sample, placed.draws, annotated(plan, placed, sample)


def differing(name, like="torchvision", op=None):
    """Return the number of labels that differ, and the total number of labels."""
    ops, expected_of = CASES[name]
    op = op or pp.mask(ignore=IGNORE)
    wrong = of = 0
    for sample, words, fields in sampled_masks(ops, like, op):
        theirs = expected_of(tv_tensors.Mask(torch.from_numpy(sample["mask"].copy())), words).numpy()
        assert fields["mask"].shape == theirs.shape
        wrong, of = wrong + np.count_nonzero(fields["mask"] != theirs), of + theirs.size
    return wrong, of


@pytest.mark.parametrize("dtype", ["uint8", "int64"])
@pytest.mark.parametrize("name", CASES)
def test_every_label_equals_that_of_a_torchvision_mask(name, dtype):
    wrong, of = differing(name, op=pp.mask(ignore=IGNORE, dtype=dtype))
    print(f"{name}, {dtype}: {wrong} of {of:,} labels differ")
    assert of > 25_000
    assert wrong == 0


WARPS = ["random_rotate", "random_affine after a jitter", "random_perspective"]


@pytest.mark.parametrize("name", [name for name in CASES if "rotate" not in name and name not in WARPS])
def test_a_resize_and_its_crops_are_equal_for_a_pillow_image(name):
    assert differing(name, "pillow")[0] == 0


@pytest.mark.parametrize("name", WARPS)
def test_a_warp_like_pillow_equals_pillow_for_a_mask(name):
    ops, expected_of = CASES[name]
    others = 0
    for sample, words, fields in sampled_masks(ops, "pillow", pp.mask(ignore=IGNORE)):
        image = tv_tensors.Mask(torch.from_numpy(sample["mask"]))
        theirs = expected_of(image, words).numpy()
        others += np.count_nonzero(fields["mask"] != theirs)
        if "affine" in name:
            image = Image.fromarray(F.resize(image, [40]).numpy())
            expected = F.affine(image, **words["random_affine#0"], fill=[IGNORE])
        elif "perspective" in name:
            expected = tilted(Image.fromarray(sample["mask"]), words[f"{name}#0"]["corners"], interpolation=NEAREST)
        else:
            expected = F.rotate(Image.fromarray(sample["mask"]), words["random_rotate#0"]["angle"], fill=[IGNORE])
        assert np.array_equal(fields["mask"], np.asarray(expected))
    print(f"{name}: {others} labels differ from those of a tensor's rotation")


@pytest.mark.parametrize("name", ["random_resized_crop, random_flip", "random_crop, reflect", *WARPS])
def test_each_mask_of_objects_equals_that_of_a_torchvision_mask(name):
    ops, expected_of = CASES[name]
    for sample, words, fields in sampled_masks(ops, "torchvision", pp.masks()):
        theirs = expected_of(tv_tensors.Mask(torch.from_numpy(sample["masks"]).byte()), words).numpy()
        theirs[theirs == IGNORE] = 0
        assert np.array_equal(fields["masks"], theirs)
