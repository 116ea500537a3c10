"""Tests pixprep's versions of timm's RandAugment and AutoAugment against timm: tables, pixels, and frequencies of the
random parameters.
"""

import random

import numpy as np
import pytest
from PIL import Image

import pixprep as pp
from pixprep.importers.timm import from_timm
from pixprep.plan.draws.policies import KINDS, POLICIES, WEIGHTS
from support.policy_cases import FROZEN, chi_square, differing, digest, frozen_draws, sampled

theirs = pytest.importorskip("timm.data.auto_augment", reason="NO TIMM: its policies were not compared")

FILL = (123, 117, 104)
LISTS = {
    "timm": theirs.rand_augment_choices("", increasing=False),
    "timm_increasing": theirs.rand_augment_choices("", increasing=True),
    "timm_weighted": list(theirs.rand_augment_choices("weights")),
}
AUTO = ("original", "originalr", "v0", "v0r")
FACTORS = ("Color", "Contrast", "Brightness", "Sharpness")
WIDTH, HEIGHT = 41, 23


def name_of(name):
    """Return pixprep's name for an op of timm."""
    for ending in ("Increasing", "Original", "Rel"):
        name = name.removesuffix(ending)
    return name


def magnitude_of(name, arguments):
    """Return pixprep's magnitude for timm's arguments of an op."""
    if not arguments:
        return None
    factor = 1 if name_of(name) in FACTORS else 0
    return arguments[0] * {"TranslateXRel": WIDTH, "TranslateYRel": HEIGHT}.get(name, 1) - factor


# ------------------------------------------------------------------------------------------------------- the tables


def kinds_of(table):
    """Return timm's names of the operations in a table."""
    if table in LISTS:
        return LISTS[table]
    return {op.name for pair in theirs.auto_augment_policy(table) for op in pair}


@pytest.mark.parametrize("table", [*LISTS, *AUTO])
def test_every_magnitude_of_every_table_equals_timm(table, monkeypatch):
    compared = 0
    for sign in (0.0, 1.0):  # a random number above one half means a negative sign
        monkeypatch.setattr(theirs.random, "random", lambda sign=sign: sign)
        for name in kinds_of(table):
            kind = KINDS[table][name_of(name)]
            level_of = theirs.LEVEL_TO_ARG[name]
            assert (kind.magnitude is None) == (level_of is None)
            for level in np.arange(0, 31, 0.25).tolist() if level_of and table in LISTS else range(11):
                expected = magnitude_of(name, level_of(level, {}) if level_of else ())
                ours = kind.magnitude(level, 11, HEIGHT, WIDTH) if level_of else None
                if kind.is_signed and sign:
                    ours = max(kind.least, -ours)
                assert ours == pytest.approx(expected, abs=1e-15), (name, level)
                compared += ours is not None
    assert compared > 100


@pytest.mark.parametrize("table", AUTO)
def test_the_pairs_of_every_policy_equal_timm(table):
    expected = theirs.auto_augment_policy(table)
    assert len(POLICIES[table]) == len(expected)
    for ours, pair in zip(POLICIES[table], expected, strict=True):
        for (kind, p, level), op in zip(ours, pair, strict=True):
            assert (kind, p) == (name_of(op.name), op.prob)
            assert level == op.magnitude or KINDS[table][kind].magnitude is None


def test_the_kinds_and_their_weights_equal_timm():
    for table, names in LISTS.items():
        assert sorted(KINDS[table]) == sorted(map(name_of, names))
    weights = theirs.rand_augment_choices("weights")
    assert {name_of(name): weight for name, weight in weights.items()} == WEIGHTS


# ------------------------------------------------------------------------------------------------------- the pixels


def expected_of(pixels, steps, op):
    """Return the image after timm's own function with the sampled operation and magnitude."""
    image = Image.fromarray(pixels)
    how = {"fillcolor": op.fill, "resample": Image.Resampling[op.filter.upper()]}
    for each in steps:
        arguments = [each["magnitude"] + (each["op"] in FACTORS)] if "magnitude" in each else []
        # the result is black; Pillow 13 raises an error, and earlier versions did not
        if each["op"] == "Posterize" and each["magnitude"] < 1:
            image = image.point(lambda _: 0)
            continue
        image = theirs.NAME_TO_OP[each["op"]](image, *arguments, **how)
    return np.asarray(image)


OPS = {
    "bicubic, increasing": pp.timm_rand_augment(3, 9, 0.5, p=1.0, increasing=True, fill=FILL),
    "bilinear, uniform, to 30": pp.timm_rand_augment(3, 30, "uniform", 30, 1.0, filter="bilinear", fill=FILL),
    "increasing to 30": pp.timm_rand_augment(3, 20, 9.0, 30, 1.0, increasing=True, filter="nearest", fill=FILL),
    "weighted": pp.timm_rand_augment(12, 9, 0.5, p=0.7, increasing=True, weighted=True, fill=FILL),
    **{policy: pp.auto_augment(policy, 0.5, filter="bicubic", fill=FILL) for policy in AUTO},
}


@pytest.mark.parametrize("case", OPS)
def test_every_value_of_a_policy_equals_timm(case):
    found = differing(OPS[case], 1200, expected_of)
    for kind, total in sorted(found.items()):
        print(f"{case}, {kind}: {total['draws']} draws, {total['differing']} of {total['values']:,}")
    assert len(found) == 15 if case not in AUTO else len(found) > 8
    assert {kind: total["differing"] for kind, total in found.items() if total["differing"]} == {}


def test_the_frozen_results_still_equal_timm():
    case = ("timm_rand_augment", "bicubic", "pillow")
    pixels, op, draws, _ = frozen_draws(*case)
    assert digest(np.stack([expected_of(pixels, steps, op) for steps in draws])) == FROZEN[case]


# ------------------------------------------------------------------------------------------------------ the numbers

MEAN = (0.485, 0.456, 0.406)
RECIPES = [
    ("rand-m9-mstd0.5-inc1", pp.timm_rand_augment(magnitude=9, magnitude_std=0.8, increasing=True)),
    ("rand-m7-n3-mstd0.5-p0.7", pp.timm_rand_augment(3, 7, 0.5)),
    ("rand-m9-mstd101-mmax15", pp.timm_rand_augment(magnitude=9)),
    ("rand-m15-mstd2-mmax20-inc1-n1", pp.timm_rand_augment(1, 15, 2.0, increasing=True)),
    ("rand-tweights-n4-mstd1-p0.9", pp.timm_rand_augment(4, 10, 1, p=0.9, increasing=True)),
    ("original-mstd0.5", pp.auto_augment("originalr", 0.5)),
    ("originalr", pp.auto_augment("original")),
    ("v0", pp.auto_augment("v0r")),
    ("v0r-mstd0.5", pp.auto_augment("v0r", 0.9)),
]


def theirs_drawn(text, count):
    """Return the steps that timm's own generators sample, in pixprep's notation."""
    random.seed(1)
    np.random.seed(2)  # noqa: NPY002 - timm's
    make = theirs.rand_augment_transform if text.startswith("rand") else theirs.auto_augment_transform
    policy, steps = make(text, {"img_mean": FILL, "interpolation": Image.Resampling.BICUBIC}), []
    for op in policy.ops if text.startswith("rand") else {each for pair in policy.policy for each in pair}:

        def note(image, *arguments, name=op.name, **_):
            steps.append((name_of(name), magnitude_of(name, arguments)))
            return image

        op.aug_fn = note
    samples = []
    for _ in range(count):
        policy(None)
        samples.append(steps[:])
        steps.clear()
    return samples


@pytest.mark.parametrize(("text", "another"), RECIPES, ids=lambda value: value if isinstance(value, str) else "")
def test_steps_and_magnitudes_have_timms_frequencies(text, another):
    config = {"input_size": (3, 64, 80), "interpolation": "bicubic", "mean": MEAN, "std": (0.2, 0.3, 0.4)}
    op = from_timm(config, training={"auto_augment": text}).for_training().side_ops[3]
    assert (op.filter, op.fill) == ("bicubic", (124, 116, 104))
    expected = theirs_drawn(text, 6000)
    assert chi_square(sampled(op, 6000, (HEIGHT, WIDTH)), expected) < 3.3
    assert chi_square(sampled(another, 6000, (HEIGHT, WIDTH)), expected) > 6
