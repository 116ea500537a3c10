"""Tests a resize, or a crop with a resize, after a warp of the image: its pixels, masks, boxes and points."""

import numpy as np
import pytest
from PIL import Image

import pixprep as pp
from pixprep.engine.annotations import annotated
from support.images import noise, png

PHOTO = noise(90, 120)
WARPS = [
    pp.rotate(30, filter="bilinear", fill=9),
    pp.rotate(-75.5, expand=True),
    pp.affine(12, translate=(3, -2), scale=1.3, shear=(8, -5), filter="bicubic"),
    pp.perspective(((5, 0), (110, 9), (119, 80), (2, 89))),
    pp.perspective(((5, 0), (110, 9), (119, 80), (2, 89)), like="torchvision"),
    pp.warp(quad=((5, 0), (110, 9), (119, 80), (2, 89)), height=64, width=99),
    pp.affine(90, like="torchvision"),
]
RESIZES = [
    pp.resize(50),
    pp.resize(height=33, width=77, filter="bicubic"),
    pp.resize(height=33, width=77, like="opencv", filter="area"),
    pp.resize(height=70, width=31, like="torchvision"),
    pp.resize(height=70, width=31, like="dali", filter="bilinear"),
    pp.resize(64, side="longer", filter="nearest"),
]


def made(*ops, photo=PHOTO):
    with pp.Engine(pp.Pipeline([pp.decode(), *ops, pp.tensor(dtype="uint8", layout="hwc")])) as engine:
        return engine.run([png(photo)])[0]


@pytest.mark.parametrize("warp", WARPS, ids=str)
def test_a_resize_after_a_warp_equals_a_resize_of_the_warped_image(warp):
    """The reference warps the image in one pipeline and passes the result to a second pipeline as a photo."""
    whole = pp.apply(warp, PHOTO)
    height, width = whole.shape[:2]
    crop = pp.crop(5, 3, height - 9, width - 6)
    for resize in RESIZES:
        assert np.array_equal(made(warp, resize, pp.center_crop(30)), made(resize, pp.center_crop(30), photo=whole))
        assert np.array_equal(
            made(warp, crop, resize, pp.center_crop(30)), made(crop, resize, pp.center_crop(30), photo=whole)
        )


def test_resizes_before_and_after_a_warp_are_both_applied():
    photo = Image.fromarray(PHOTO).resize((85, 64), Image.Resampling.BILINEAR).rotate(20).crop((6, 5, 66, 55))
    ours = made(pp.resize(64), pp.rotate(20), pp.crop(5, 6, 50, 60), pp.resize(height=24, width=32))
    assert np.array_equal(ours, np.asarray(photo.resize((32, 24), Image.Resampling.BILINEAR)))


CHAINS = [
    [pp.random_rotate(40, filter="bilinear"), pp.random_resized_crop(48, scale=(0.3, 1.0))],
    [pp.random_affine(25, translate=(0.1, 0.1), scale=(0.8, 1.2)), pp.random_shortest_size((40, 60), 90)],
    [pp.random_perspective(0.3, p=1.0), pp.scale_jitter(60), pp.random_crop(50, pad_if_needed=True), pp.random_flip()],
    [
        pp.resize(70),
        pp.random_rotate((10, 20), expand=True),
        pp.random_resized_crop(40, scale=(0.4, 1.0), filter="bicubic"),
    ],
]


@pytest.mark.parametrize("chain", CHAINS, ids=lambda chain: " ".join(type(op).__name__ for op in chain))
def test_an_object_matches_its_box_its_mask_and_its_points(chain):
    """A rectangle is drawn into a black photo for 40 random samples. Its bright pixels must match the annotations."""
    top, left, bottom, right = 30, 40, 62, 88
    photo, mask = np.zeros((90, 120, 3), np.uint8), np.zeros((90, 120), np.uint8)
    photo[top:bottom, left:right], mask[top:bottom, left:right] = 255, 1
    sample = {
        "boxes": np.array([[left, top, right, bottom]], np.float32),
        "points": np.array([[[left, top], [right, top], [right, bottom], [left, bottom]]], np.float32),
        "mask": mask,
    }
    ops = [pp.boxes(), pp.points(), pp.mask(ignore=0), pp.tensor(dtype="uint8", layout="hwc", only="training")]
    with pp.Engine(pp.Pipeline([pp.decode(), *chain, *ops]).for_training()) as engine:
        seen = 0
        for numbers in engine.plan.draw(seed=3, epoch=1, indices=range(40)):
            place = engine.plan.placing(numbers, sample)
            (image,) = engine.run_batch([png(photo)], places=[place])["tensor"]
            found = annotated(engine.plan, place(90, 120), sample)
            bright = image[:, :, 0] > 127
            assert found["mask"].shape == bright.shape
            assert (found["mask"].astype(bool) != bright).mean() < 0.06
            points = found["points"].reshape(-1, 2)
            if not len(points) or not ((points > 1) & (points < np.subtract(bright.shape[::-1], 1))).all():
                continue  # the box of a cut-off object encloses the whole object
            seen += 1
            ys, xs = np.nonzero(bright)
            around = np.array([xs.min(), ys.min(), xs.max() + 1, ys.max() + 1])
            assert np.abs(found["boxes"][0] - around).max() < 3, (found["boxes"], around)
            assert np.abs(np.concatenate([points.min(0), points.max(0)]) - around).max() < 3
    assert seen > 3


def test_a_chain_with_a_warp_is_sampled_once_and_replayed():
    plan = pp.Pipeline([pp.decode(), *CHAINS[0], pp.tensor(only="training")]).for_training().plan
    (numbers,) = plan.draw(seed=1, epoch=1, indices=[4])
    placed = plan.placing(numbers)(90, 120)
    assert [*placed.draws] == ["random_rotate#0", "random_resized_crop#0"]
    assert plan.replaying(placed.draws)(90, 120).placements == placed.placements
