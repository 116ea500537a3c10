"""Tests pixprep's version of DALI's size rules against ``fn.resize`` on the CPU. The reference is frozen results, and
DALI itself if it is installed.

test_profiles.py compares each filter for given sizes.
"""

from hashlib import sha256
from importlib.util import find_spec

import msgspec
import numpy as np
import pytest

from pixprep.engine.kernels import resize
from pixprep.engine.kernels.resampling import resampling
from pixprep.importers.verify import Originals, verify
from pixprep.pipeline import ops
from pixprep.pipeline.pipeline import Pipeline
from pixprep.plan.folding import Geometry
from pixprep.plan.profiles import PROFILES
from support.images import noise, png
from support.resize_cases import assert_equal

MODES = [method for method in PROFILES["dali"].methods if method != ("nearest", True)]  # equal in both cases
HAS_DALI = find_spec("nvidia") is not None and find_spec("nvidia.dali") is not None
live = pytest.mark.skipif(not HAS_DALI, reason="NO DALI: its resize was only compared with frozen results")


def op_of(height=1, width=1, **fields):
    return ops.Resize(height=height, width=width, like="dali", **fields)


def resized(pixels, op):
    """Return the image that pixprep has resized."""
    pipeline = Pipeline([ops.Decode(), op, ops.CenterCrop(1, 1), ops.Tensor()])
    step = pipeline.plan.outputs["tensor"].geometry.resize
    placement = Geometry((), step, ()).place(*pixels.shape[:2])
    top, left, bottom, right = placement.read
    return resize.resize(pixels[top:bottom, left:right], resampling(step, placement), flips=placement.flips)


def equals_the_installed(pairs):
    """Assert that pixprep's result equals that of the installed DALI for each pair (pixels, op)."""
    assert_equal((str(op), resized(pixels, op), Originals().resizer(op).run(pixels)) for pixels, op in pairs)


RULES = {
    "shorter": ops.Resize(9, like="dali"),
    "longer": ops.Resize(9, like="dali", side="longer"),
    "fit": op_of(9, 12, mode="fit"),
    "cover": op_of(9, 12, mode="cover"),
    "at most": ops.Resize(9, like="dali", mode="scale", max_size=13, subpixel=True),
}
SHAPES = [
    (30, 21), (21, 30), (17, 13), (33, 35), (40, 15), (15, 40), (24, 32), (1, 2), (60, 2), (9, 13), (61, 45), (7, 7),
]  # fmt: skip
"""Sizes of images for which the computed size is rounded up, is rounded down, is a tie, or is almost 0."""
DIGESTS = {
    ("shorter", False): "6aeccc48ca73acb3",
    ("shorter", True): "98e7194ec2c9a3aa",
    ("longer", False): "f13fa0f111b49f14",
    ("longer", True): "5981185bb90091b7",
    ("fit", False): "b7bd24ef9b736b74",
    ("fit", True): "b3842098fbf3c4b0",
    ("cover", False): "5b975fa2ff412ac7",
    ("cover", True): "ad28ec974902e801",
    ("at most", False): "8267cdd2429aa934",
    ("at most", True): "f18c2fa017849998",
}
"""SHA-256 of DALI 2.4's results for noise of ``SHAPES`` with nearest neighbour, which has no ties, by rule."""


def by_rule(rule, *, subpixel, filter_name="nearest"):
    """Yield (pixels, op) for every shape."""
    op = msgspec.structs.replace(RULES[rule], subpixel=subpixel, filter=filter_name)
    return [(noise(*shape), op) for shape in [*SHAPES, *[(400, 1)] * (rule in ("longer", "fit"))]]


def digest(results):
    return sha256(b"".join(str(levels.shape).encode() + levels.tobytes() for levels in results)).hexdigest()[:16]


@pytest.mark.parametrize(("rule", "subpixel"), DIGESTS)
def test_a_rule_equals_dalis_sizes_and_values(rule, subpixel):
    pairs = by_rule(rule, subpixel=subpixel)
    assert digest(resized(*pair) for pair in pairs) == DIGESTS[rule, subpixel]


@live
@pytest.mark.parametrize(("rule", "subpixel"), DIGESTS)
def test_a_rule_equals_the_installed_dali(rule, subpixel):
    for filter_name in PROFILES["dali"].filters:
        equals_the_installed(by_rule(rule, subpixel=subpixel, filter_name=filter_name))
    theirs = (Originals().resizer(op).run(pixels) for pixels, op in by_rule(rule, subpixel=subpixel))
    assert digest(theirs) == DIGESTS[rule, subpixel]


def parts(filter_name, antialias):
    """Yield (pixels, op) for regions with random edges, and for all size rules. Some regions are reversed, and some are
    outside the image.
    """
    rng = np.random.default_rng(len(filter_name))
    for index in range(60):
        height, width = map(int, rng.integers(2, (6, 200)[index % 5 > 0], 2))
        beyond = 0.3 * (filter_name != "nearest" and index % 4 == 0)
        ends = rng.uniform((-beyond, -beyond, 0.5, 0.5), (0.45, 0.45, 1 + beyond, 1 + beyond))
        ends = ends[[[0, 1, 2, 3], [2, 1, 0, 3], [0, 3, 2, 1], [2, 3, 0, 1]][index % 7 % 4]]
        is_share = index % 3 == 1
        ends = np.float32(ends if is_share else ends * (height, width, height, width))
        how = {"filter": filter_name, "antialias": antialias, "roi": tuple(map(float, ends))}
        how |= {"roi_unit": "share" if is_share else "pixels"}
        size = [{"height": int(rng.integers(1, 99)), "width": int(rng.integers(1, 99))}, *RULES.values()][index % 5]
        op = op_of(**size, **how) if isinstance(size, dict) else msgspec.structs.replace(size, **how)
        yield noise(height, width), op


@live
@pytest.mark.parametrize(("filter_name", "antialias"), MODES)
def test_a_region_is_resized_like_the_installed_dali(filter_name, antialias):
    equals_the_installed(parts(filter_name, antialias))


@live
def test_sizes_of_one_scale_equal_the_given_ones():
    """The images are square, or have the requested aspect ratio. Some sampling positions are exactly halfway between
    two pixels.
    """
    for size in (31, 59, 75, 113, 115):
        rules = [ops.Resize(size, like="dali"), ops.Resize(size, side="longer", like="dali")]
        rules += [op_of(size, 2 * size, mode=mode) for mode in ("fit", "cover")] + [op_of(size, size, mode="fit")]
        for side in (56, 88, 100, 146):
            shapes = [(side, side)] * 2 + [(side, 2 * side)] * 2 + [(side, side)]
            equals_the_installed(
                (noise(*shape), msgspec.structs.replace(op, filter="nearest"))
                for op, shape in zip(rules, shapes, strict=True)
            )


def test_a_swap_of_rows_and_columns_is_visible_in_nearest():
    """DALI adds the ratio from row to row. If DALI multiplied the ratio by the number of the row, it would select
    different rows in some places.
    """
    pixels = noise(14, 115)
    turned = resized(pixels.swapaxes(0, 1), op_of(45, 21, filter="nearest"))
    assert not np.array_equal(resized(pixels, op_of(21, 45, filter="nearest")), turned.swapaxes(0, 1))


@live
def test_verify_gives_dali_one_channel_after_gray():
    """With three channels, DALI would round ties at the end of a row differently, and the verification of a correct
    pipeline would fail.
    """
    gray = ops.ColorMatrix(((0.299, 0.587, 0.114, 0.0),) * 3)
    tensor = ops.Tensor(dtype="uint8", layout="hwc", channels=1)
    pipeline = Pipeline([ops.Decode(), gray, op_of(192, 86, antialias=False), tensor])
    image = png(np.repeat(noise(96, 86)[:, :, :1], 3, 2))
    assert verify(pipeline, images=[("gray", image)], generate=False).is_exact
