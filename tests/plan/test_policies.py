"""Tests of augmentation policies: their steps and their pixels. Frozen results replace torchvision and timm.

``test_frozen_draws`` tests the random parameters, and the parity tests compare the tables with the libraries.
"""

import numpy as np
import pytest

import pixprep as pp
from pixprep.engine.kernels.levels import apply_steps
from pixprep.plan.draws.policies import KINDS
from pixprep.plan.steps import curves
from pixprep.plan.steps.curves import Curve
from pixprep.plan.steps.levels import Blend, Filter, Mix, Tone
from pixprep.plan.steps.warps import Warp
from support.images import noise
from support.policy_cases import FROZEN, digest, frozen_draws, pipeline_of


def step_of(op):
    (step,) = pipeline_of(op).plan.random_steps
    return step


def steps_of(op, *words, size=(24, 40)):
    return step_of(op).steps({"ops": list(words)}, *size)


def test_a_step_equals_torchvision():
    op = pp.rand_augment(fill=(1, 2, 3), like="torchvision")
    assert steps_of(op, {"op": "Identity"}) == ()
    assert steps_of(op, {"op": "Color", "magnitude": -0.5}) == (Blend("own", 0.5, "torchvision"),)
    assert steps_of(op, {"op": "Contrast", "magnitude": 0.5}) == (Blend("mean", 1.5, "torchvision"),)
    assert steps_of(op, {"op": "Sharpness", "magnitude": 0.5}) == (Filter("sharpness", "torchvision", 1.5),)
    assert steps_of(op, {"op": "AutoContrast"}) == (Tone("autocontrast", "torchvision"),)
    assert steps_of(op, {"op": "Posterize", "magnitude": 5}) == (curves.posterize(5),)
    (warp,) = steps_of(op, {"op": "TranslateX", "magnitude": -3.9})
    assert (warp.matrix, warp.fill, warp.like) == ((1.0, 0.0, 3.0, 0.0, 1.0, 0.0), (1, 2, 3), "torchvision")
    (shear,) = steps_of(pp.rand_augment(), {"op": "ShearX", "magnitude": 0.3})
    assert shear.matrix == pytest.approx((1, 0.3, 0, 0, 1, 0))  # the first pixel stays in place
    assert isinstance(steps_of(op, {"op": "Rotate", "magnitude": 3.0})[0], Warp)


def test_a_threshold_of_tensors_is_a_float32():
    """As a float32, 0.8 is slightly too large, and 255 times this number exceeds 204. In float32, the product is
    rounded to 204.
    """
    magnitude = KINDS["trivial"]["Solarize"].magnitude(6, 31, 1, 1)
    inverted = {}
    for like in ("pillow", "torchvision"):
        (curve,) = steps_of(pp.trivial_augment(like=like), {"op": "Solarize", "magnitude": magnitude})
        assert isinstance(curve, Curve)
        inverted[like] = min(level for level in range(256) if curve.table[level] != level)
    assert inverted == {"pillow": 205, "torchvision": 204}


@pytest.mark.parametrize("kind", ["three bytes", "four", "four, one of them in front", "mirrored", "gray", "none"])
def test_a_weighted_sum_is_rounded_after_each_product_and_truncated(kind):
    four = noise(31, 17, channels=4)
    image = {
        "three bytes": np.ascontiguousarray(four[:, :, :3]),
        "four": four[:, :, :3],
        "four, one of them in front": four[:, :, 1:],
        "mirrored": four[::-1, ::-1, :3],
        "gray": four[:, :, :1],
        "none": four[:0, :, :3],
    }[kind]
    weights = tuple(np.float32([0.3, 0.45, 0.25]).tolist())
    result = apply_steps([Mix(weights, ((curves.inverted(), curves.solarize(99)), ()))], image)
    others = [image, np.where(255 - image >= 99, image, 255 - image), image]
    total = np.zeros(image.shape, np.float32)
    for weight, other in zip(weights, others, strict=True):
        total += np.float32(weight) * other.astype(np.float32)
    assert result.dtype == np.uint8
    assert np.array_equal(result, np.floor(total))


@pytest.mark.parametrize("after", [pp.transform(), pp.boxes(), pp.points(), pp.mask(), pp.masks()])
def test_ops_that_need_pixel_positions_are_rejected_after_a_mix(after):
    head, tail = [pp.decode(), pp.resize(height=8, width=8)], pp.tensor(only="training")
    with pytest.raises(pp.PipelineError, match="pixels have no unique source position after aug_mix"):
        pp.Pipeline([*head, pp.aug_mix(), after, tail])
    pp.Pipeline([*head, after, pp.aug_mix(), tail])


def test_an_unknown_recorded_step_is_rejected():
    with pytest.raises(
        pp.PipelineError,
        match='unknown operation "Invert" in the recorded parameters: the policy supports Identity, ShearX, ',
    ):
        steps_of(pp.rand_augment(), {"op": "Invert"})


@pytest.mark.parametrize("case", FROZEN, ids=" ".join)
def test_pixels_equal_the_frozen_results_of_torchvision(case):
    assert digest(frozen_draws(*case)[-1]) == FROZEN[case]


def test_gray_and_bgr_images_have_the_fill_of_their_channels():
    ops = [pp.resize(height=8, width=8), pp.rand_augment(fill=(1, 2, 3)), pp.tensor()]
    (step,) = pp.Pipeline([pp.decode(color="bgr"), *ops]).for_training().plan.random_steps
    (warp,) = step.steps({"ops": [{"op": "Rotate", "magnitude": 3.0}]}, 8, 8)
    assert warp.fill == (3, 2, 1)


@pytest.mark.parametrize(("threshold", "count"), [(255, 1), (256, 0)])
def test_an_unreachable_threshold_of_timm_has_no_fixed_op(threshold, count):
    words = {"ops": [{"op": "Solarize", "magnitude": threshold}]}
    assert len(pp.timm_rand_augment().fixed_ops(words)) == count
