"""Tests of augmentation policies: their tables, random parameters, steps and replays. Frozen results replace
torchvision and timm.
"""

import json
from functools import partial

import numpy as np
import pytest

import pixprep as pp
from pixprep.engine.kernels.levels import apply_steps
from pixprep.plan.draws.kinds import KINDS, spaced
from pixprep.plan.draws.philox import EXAMPLE, Numbers
from pixprep.plan.draws.policies import gammas
from pixprep.plan.steps import curves
from pixprep.plan.steps.curves import Curve
from pixprep.plan.steps.levels import Blend, Filter, Mix, Tone
from pixprep.plan.steps.warps import Warp
from support.images import noise
from support.policy_cases import FROZEN, OPS, digest, frozen_draws, pipeline_of


def step_of(op):
    (step,) = pipeline_of(op).plan.random_steps
    return step


def drawn_by(op, rows, size=(24, 40)):
    """Return the random parameters that result from the given random numbers, which have one row per block."""
    step = step_of(op)
    return step.words(*size, Numbers(0, 0, 0, 0, {step.key: np.array(rows)}))


def words_of(op, *blocks, size=(24, 40)):
    """Return (kind, bin, sign) of each step that results from the given random numbers."""
    return drawn_by(op, [[*block, 0.0] for block in blocks] or np.empty((0, 4)), size)["ops"]


def kind(name):
    """Return a random number for which the policy selects the operation with this name."""
    return (list(KINDS["rand"]).index(name) + 0.5) / 14


# The middle bins of torchvision's tables of 31 values, as torchvision prints them. test_augment compares every bin.
TABLE = {
    "ShearX": (0.15000000596046448, 0.4950000047683716),
    "TranslateX": (150.0 / 331.0 * 400 / 2, 16.0),
    "TranslateY": (150.0 / 331.0 * 200 / 2, 16.0),
    "Rotate": (15.0, 67.5),
    "Color": (0.44999998807907104, 0.4950000047683716),
    "Posterize": (6, 5),
    "Solarize": (0.5, 0.5),
}


@pytest.mark.parametrize("name", TABLE)
def test_the_middle_of_each_table_equals_torchvision(name):
    for table, expected in zip(("rand", "trivial"), TABLE[name], strict=True):
        assert KINDS[table][name].magnitude(15, 31, 200, 400) == pytest.approx(expected, rel=1e-7)


def test_elements_are_computed_from_the_nearer_end():
    """``torch.linspace(0, 0.3, 10)`` computes its elements in the same way."""
    theirs = [0.0, 0.03333333507180214, 0.06666667014360428, 0.10000000894069672, 0.13333334028720856]
    theirs += [0.1666666716337204, 0.20000000298023224, 0.23333334922790527, 0.2666666805744171, 0.30000001192092896]
    assert [spaced(0.0, 0.3, 10, index) for index in range(10)] == theirs


def test_posterize_rounds_ties_to_even():
    """torchvision's ``(8 - arange(9) / 2).round()`` rounds in the same way."""
    assert [KINDS["rand"]["Posterize"].magnitude(index, 9, 1, 1) for index in range(9)] == [8, 8, 7, 6, 6, 6, 5, 4, 4]


@pytest.mark.parametrize("name", KINDS["rand"])
@pytest.mark.parametrize("sign", [0.49, 0.5])
def test_half_of_the_signed_magnitudes_are_negative(name, sign):
    (each,) = words_of(pp.rand_augment(1), (kind(name), 0.0, sign))
    assert each["op"] == name
    if KINDS["rand"][name].magnitude is None:
        assert set(each) == {"op"}
    else:
        is_negative = name not in ("Posterize", "Solarize") and sign < 0.5
        assert (each["magnitude"] < 0) == is_negative


def test_numbers_select_kind_bin_and_sign():
    assert words_of(pp.trivial_augment(), (0.999, 0.0, 0.0)) == [{"op": "Equalize"}]
    assert words_of(pp.trivial_augment(), (kind("Rotate"), 0.999, 0.0)) == [{"op": "Rotate", "magnitude": -135.0}]
    assert words_of(pp.trivial_augment(num_magnitude_bins=4), (kind("Rotate"), 0.5, 0.9)) == [
        {"op": "Rotate", "magnitude": 90.0}
    ]
    first, second = words_of(pp.rand_augment(2, 0), (kind("Solarize"), 0.9, 0.9), (0.0, 0.0, 0.0))
    assert (first, second) == ({"op": "Solarize", "magnitude": 1.0}, {"op": "Identity"})
    assert words_of(pp.rand_augment(0)) == []


def test_a_magnitude_of_zero_has_no_sign():
    (each,) = words_of(pp.rand_augment(1, 0), (kind("ShearX"), 0.0, 0.0))
    assert json.dumps(each) == '{"op": "ShearX", "magnitude": 0.0}'


def timm(**fields):
    return pp.timm_rand_augment(1, 9, p=1.0, increasing=True, **fields)


def test_a_magnitude_has_normal_noise_and_is_clipped_to_the_maximum():
    """The random numbers 0.49 and 0.9 correspond to the quantiles -0.025 and 1.28 of the normal distribution."""
    rotate = (3.5 / 15, 0.9, 0.9)
    assert words_of(timm(), rotate) == [{"op": "Rotate", "magnitude": 27.0}]
    (each,) = words_of(timm(magnitude_std=0.5), rotate)
    assert each["magnitude"] == pytest.approx(3 * (9 + 0.5 * 1.2816), abs=1e-3)
    assert words_of(timm(magnitude_std=2.0), rotate)[0]["magnitude"] == 30.0
    assert words_of(timm(magnitude_std=2.0, magnitude_max=9.5), rotate)[0]["magnitude"] == 28.5
    assert words_of(timm(magnitude_std="uniform"), rotate)[0]["magnitude"] == pytest.approx(0.9 * 27)
    assert words_of(timm(magnitude_std=50), (3.5 / 15, 0.3, 0.9))[0]["magnitude"] == 0.0


def test_no_kind_is_selected_twice_by_weight():
    names = [each["op"] for each in words_of(pp.timm_rand_augment(15, p=1.0, weighted=True),
                                             *[(0.0, 0.5, 0.5)] * 15)]  # fmt: skip
    assert sorted(names) == sorted(KINDS["timm_weighted"])


def test_the_first_number_selects_a_pair_and_others_whether_each_step_is_applied():
    step = step_of(pp.auto_augment())
    for whether, expected in ((0.39, ["Posterize", "Rotate"]), (0.5, ["Rotate"]), (0.61, [])):
        rows = np.array([[0.0, 0.5, 0.5, whether], [0.9, 0.5, 0.5, whether]])
        words = step.words(24, 40, Numbers(0, 0, 0, 0, {step.key: rows}))["ops"]
        assert [each["op"] for each in words] == expected


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


MIXED = ("ShearX", "ShearY", "TranslateX", "TranslateY", "Rotate", "Posterize", "Solarize", "AutoContrast", "Equalize")


def test_numbers_select_the_depth_of_a_chain_its_steps_and_the_weights():
    """If the normal number is 0, a gamma number of shape 1 is 5/3 of 1 minus its last uniform number."""
    op = pp.aug_mix(mixture_width=2, all_ops=False, severity=4)
    steps = [[(MIXED.index(name) + 0.5) / 9, place, 0.0, depth] for name, place, depth in (
        ("Rotate", 0.99, 0.4), ("Equalize", 0.0, 0.0), ("ShearX", 0.0, 0.0), ("Posterize", 0.5, 0.3)
    )]  # fmt: skip
    parts = [[0.0, 0.0, 0.5, 1 - part] for part in (0.5, 0.25, 1.0, 0.5)]
    drawn = {
        "weights": [float(np.float32(2 / 3)), *np.multiply(np.float32([2 / 3, 1 / 3]), np.float32(1 / 3)).tolist()],
        "chains": [[{"op": "Rotate", "magnitude": -10.0}, {"op": "Equalize"}], [{"op": "Posterize", "magnitude": 3}]],
    }
    unread = [[0.0] * 4] * 2
    assert drawn_by(op, [*steps, *unread, *parts]) == drawn
    # the logarithm's argument is never 0, and accepted random parameters do not change
    refused = [[0.0, 0.0, 1 - 1e-9, 0.0]] * 4
    first = [refused[0] if place == 1 else part for place, part in enumerate(parts)]
    first[1] = [0.0, 0.0, 0.0, 0.0]
    assert drawn_by(op, [*steps, *unread, *first, *[parts[1]] * 4]) == drawn
    said = "mix the image and 2 chains of 1 to 3 of AugMix's 9 operations, with any of the 4 weakest of 10 magnitudes"
    assert str(step_of(op)).startswith(said)


@pytest.mark.parametrize("alpha", [0.05, 1.0, 3.0, 100.0])
def test_gamma_numbers_have_the_moments_of_the_distribution(alpha):
    """Both the mean and the variance of the distribution are alpha.

    The logarithm of an exponentially distributed number has the mean -0.5772 (Euler's constant) and the variance
    pi^2/6.
    """
    made = np.array(
        [gammas(alpha, partial(Numbers(1, 0, index, 0, {}).blocks, "x"), 0, 8) for index in range(2500)]
    ).reshape(-1)
    assert made.min() > 0
    assert made.mean() == pytest.approx(alpha, abs=5 * (alpha / made.size) ** 0.5)
    assert made.var() == pytest.approx(alpha, rel=5 * ((2 + 6 / alpha) / made.size) ** 0.5)
    if alpha == 1:
        logs = np.log(made)
        assert logs.mean() == pytest.approx(-np.euler_gamma, abs=0.05)
        assert logs.var() == pytest.approx(np.pi**2 / 6, rel=0.06)
    uniforms = partial(EXAMPLE.blocks, "x")
    assert gammas(alpha, uniforms, 0, 3) == [pytest.approx(gammas(alpha, uniforms, 0, 1)[0])] * 3


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


@pytest.mark.parametrize("name", ["rand_augment", "trivial_augment"])
def test_all_kinds_have_equal_probability(name):
    step = step_of(OPS[name]())
    drawn = pipeline_of(OPS[name]()).plan.draw(seed=5, epoch=0, indices=range(2800))
    names = [each["op"] for numbers in drawn for each in step.words(24, 40, numbers)["ops"]]
    counts = [names.count(each) for each in KINDS["rand"]]
    assert min(counts) > 0.7 * len(names) / 14
    assert max(counts) < 1.3 * len(names) / 14


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
