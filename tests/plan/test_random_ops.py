"""Tests the parameters of random ops, with one row per op: their range and frequency, and that they do not depend on
``p``.
"""

import json
from functools import reduce

import numpy as np
import pytest

import pixprep as pp
from pixprep.engine.annotations import mask_of
from pixprep.pipeline.ops import OPS, op_name
from pixprep.pipeline.ops.ranged import Ranged
from plan.frozen_draws import OPTIONS
from support.images import scene

SIZE = (60, 80)
SAMPLE = {
    "boxes": np.array([[10, 10, 50, 60], [30, 5, 80, 40]], np.float32),
    "points": np.random.default_rng(1).uniform(5, 60, (2, 12, 2)).astype(np.float32),
    "visible": np.ones((2, 12), int),
}
"""Annotations of an image, without its mask."""


def random_parameters(op, count=800):
    """Return the random parameters of an op for many images of the same size."""
    chain = [pp.decode(), pp.crop(0, 0, *SIZE), op, pp.center_crop(8), pp.tensor(only="training")]
    plan = pp.Pipeline(chain).for_training().plan
    sample = {**SAMPLE, "mask": np.arange(SIZE[0] * SIZE[1]).reshape(SIZE) // 900}
    drawn = plan.draw(seed=1, epoch=0, indices=range(count))
    found = [plan.placing(numbers, sample, mask_of(plan, sample))(*SIZE).draws for numbers in drawn]
    assert json.loads(json.dumps(found)) == found
    return found


RANGES = [
    (pp.color_jitter(0.4, (0.5, 3), 2, 0.1), {"brightness": (0.6, 1.4), "contrast": (0.5, 3), "saturation": (0, 3)}),
    (pp.color_jitter(hue=0.1), {"hue": (-0.1, 0.1)}),
    (pp.random_hue_saturation_value(20, 30, (0, 9), 1.0), {"hue": (-20, 20), "saturation": (-30, 30), "value": (0, 9)}),
    (pp.random_brightness_contrast(0.2, (0, 3), 1.0), {"brightness": (-51, 51), "contrast": (1, 4)}),
    (pp.random_gaussian_blur(5, (0.5, 1.5)), {"sigma.0": (0.5, 1.5), "sigma.1": (0.5, 1.5)}),
    (pp.random_rotate(15), {"angle": (-15, 15)}),
    (pp.random_affine((0, 9), (0.25, 0.1)), {"angle": (0, 9), "translate.0": (-20, 20), "translate.1": (-6, 6)}),
    (pp.random_affine(0, scale=(1, 2), shear=(-9, 9, 0, 4)), {"scale": (1, 2), "shear.0": (-9, 9), "shear.1": (0, 4)}),
    (pp.random_perspective(1.0, 1.0), {"corners.0.0": (0, 40), "corners.0.1": (0, 30), "corners.1.0": (39, 79)}),
    (pp.random_perspective(1.0, 1.0), {"corners.2.0": (39, 79), "corners.2.1": (29, 59), "corners.3.1": (29, 59)}),
    (pp.random_crop(20), {"top": (0, 40), "left": (0, 60)}),
    (pp.random_crop(20, padding=(2, 3)), {"top": (-3, 43), "left": (-2, 62)}),
    (pp.random_size_crop(10, 70), {"height": (10, 60), "width": (10, 70)}),
    (pp.random_zoom_out(side_range=(1, 2), p=1.0), {"height": (60, 120), "width": (80, 160)}),
    (pp.random_resize(32, 81), {"size": (32, 80)}),
    (pp.scale_jitter(60, 80, (0.5, 1.5)), {"height": (30, 90), "width": (40, 120)}),
    (pp.motion_blur((3, 9), (0, 90), shift_y=(-1, 0)), {"kernel": (3, 9), "angle": (0, 90), "shift_y": (-1, 0)}),
    (pp.compression((50, 90)), {"quality": (50, 90)}),
    (pp.tone_curve(0.5, 0.5, 0.5), {"low": (0, 1), "high": (0, 1)}),
    (pp.grid_distortion(2, (-0.5, 0.5)), {"columns.2": (0.5, 1.5), "rows.0": (0.5, 1.5)}),
    (pp.grid_dropout(0.5, cells=(2, 2), p=1.0), {"holes.0.0": (0, 15), "holes.3.1": (40, 60)}),
    (pp.grid_dropout(0.5, (9, 11), p=1.0), {"holes.0.2": (4, 6), "holes.0.1": (0, 6)}),
    (pp.random_sized_crop(8, (10, 40), ratio=2), {"height": (10, 40), "width": (20, 80), "top": (0, 50)}),
    (pp.coarse_dropout(hole_width=(9, 9), hole_height=(0, 5), p=1.0), {"holes.0.2": (0, 5), "holes.0.1": (0, 71)}),
]
"""Each op, and the limits of its numeric random parameters in order."""


@pytest.mark.parametrize(("op", "ends"), RANGES, ids=lambda each: "" if isinstance(each, dict) else op_name(each))
def test_parameters_are_within_their_limits_and_reach_both(op, ends):
    words = [each[f"{op_name(op)}#0"] for each in random_parameters(op)]
    for place, (least, most) in ends.items():
        keys = [int(key) if key.isdecimal() else key for key in place.split(".")]
        found = [reduce(lambda inner, key: inner[key], keys, each) for each in words]
        near = max((most - least) / 50, 1.0 if isinstance(found[0], int) else 0.0)
        assert least <= min(found) <= least + near, place
        assert most - near <= max(found) <= most, place


WITHOUT_EFFECT = {
    "random_flip": {"flip": False},
    "random_zoom_out": {"top": 0, "left": 0, "height": SIZE[0], "width": SIZE[1]},
    "random_perspective": {"corners": None},
    "random_gaussian_blur": {"sigma": None},
    "elastic": {"seed": None},
    **{name: {"holes": []} for name in ("coarse_dropout", "grid_dropout")},
    "random_erasing": {"rectangles": []},
    **{name: {} for name in ("color_jitter", "random_hue_saturation_value", "random_brightness_contrast")},
    **{name: {} for name, op in OPS.items() if issubclass(op, Ranged)},
}
"""Parameters with which an op does not change the image, in addition to ``{"apply": False}`` and ``{"chosen": []}``."""
OPS_WITHOUT_P = [
    "random_photometric_distort",
    "timm_rand_augment",
    "random_iou_crop",
    "random_order",
    "random_box_warp",
]
OPS_WITH_P = [name for name in OPTIONS if name not in (*OPS_WITHOUT_P, "decode_video")]
"""Ops whose ``p`` is the probability that the whole op is applied. In other ops, ``p`` applies to each part, or boxes
are required.
"""


@pytest.mark.parametrize("name", OPS_WITH_P)
def test_an_op_is_applied_with_probability_p_and_the_same_parameters_as_without_p(name):
    key, (*_, fields) = f"{name}#0", (each for each in OPTIONS[name] if not isinstance(each.get("value"), str))
    always, sometimes, never = (random_parameters(OPS[name](**{**fields, "p": p}), 200) for p in (1.0, 0.3, 0.0))
    nothing = [WITHOUT_EFFECT.get(name, {"apply": False}), {"chosen": []}]
    done = [each.get(f"{key}.p", each.get(key)) not in nothing for each in sometimes]
    assert abs(np.mean(done) - 0.3) < 0.1
    assert all(each.get(f"{key}.p", each.get(key)) in nothing for each in never)
    for some, every, is_done in zip(sometimes, always, done, strict=True):
        assert not is_done or some[key] == every[key]


@pytest.mark.parametrize("name", OPS_WITH_P + OPS_WITHOUT_P)
def test_recorded_parameters_are_replayed_with_any_number_of_threads(name):
    photos, found = [scene(72, 90) // 2 + 40] * 10, set()
    sample = {**SAMPLE, "mask": np.arange(72 * 90).reshape(72, 90) // 900}
    for fields in OPTIONS[name]:
        ops = [OPS[name](**fields), pp.center_crop(24)]
        if isinstance(fields.get("value"), str):
            ops = [ops[1], pp.normalize(), ops[0]]
        pipeline = pp.Pipeline([pp.pixels(), *ops, pp.tensor(only="training")]).for_training()
        numbers = pipeline.plan.draw(seed=1, epoch=2, indices=range(len(photos)))
        with pp.Engine(pipeline, threads=1) as engine, pp.Engine(pipeline, threads=3) as other:
            mask = mask_of(pipeline.plan, sample)
            places = [pipeline.plan.placing(each, sample, mask) for each in numbers]
            first = engine.run_batch(photos, places=places)
            words = [json.loads(json.dumps(placed.draws)) for placed in first.placed]
            again = other.run_batch(photos, places=[pipeline.plan.replaying(each, sample) for each in words])
        assert first.errors == [None] * len(photos)
        assert np.array_equal(first["tensor"], again["tensor"])
        for one, other in zip(first.placed, again.placed, strict=True):
            assert one.draws == other.draws
            np.testing.assert_equal(one.kept, other.kept)
        found |= {tensor.tobytes() for tensor in first["tensor"]}
    assert len(found) > 1
