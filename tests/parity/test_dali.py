"""The ``dali`` profile against DALI's CPU ``fn.resize``: frozen vectors, and DALI itself where it is installed."""

from importlib.util import find_spec

import numpy as np
import pytest

import originals
from compare import EQUAL, Tolerance, assert_close
from images import noise
from vectors import ASPECT, FILTERS, RULES, SIZES, cases, load, ours, pictures, shapes

DALI = Tolerance(1, 0.97, "ties, of which checkerboards and small factors have many: see the profile")
TIE = 1e-4
"""How far from a half a float32 value below 256 may be for its rounding to depend on the last bits."""
MODES = tuple((name, aa) for name in FILTERS for aa in (False, True) if name != "nearest" or not aa)
HAS_DALI = find_spec("nvidia") is not None and find_spec("nvidia.dali") is not None
live = pytest.mark.skipif(not HAS_DALI, reason="NO DALI: its resize was compared frozen only")


def dali(pixels, rule, size, filter_name, *, like="dali", antialias=True, subpixel=True):
    """Levels, and the values that they are rounded from."""
    how = {"like": like, "antialias": antialias, "subpixel": subpixel}
    levels = ours(pixels, rule, size, filter_name, **how)
    kind = {"kind": "real"} if like == "dali" and filter_name != "nearest" else {}
    return levels, ours(pixels, rule, size, filter_name, **how, **kind)


def frozen(name, what, flag):
    """``flag``: "" or "antialias" or "subpixel"."""
    arrays, _ = load("dali")
    return arrays[f"{name}, {what}{flag and ', '}{flag}"]


def near(mine, expected):
    """The same sizes; levels that differ by one, and only where the value lies at a half."""
    assert [levels.shape for levels, _ in mine] == [levels.shape for levels in expected]
    levels, values = (np.concatenate([pair[index].ravel() for pair in mine]) for index in (0, 1))
    theirs = np.concatenate([one.ravel() for one in expected])
    assert_close(levels, theirs, DALI)
    differing = values[levels != theirs]
    assert np.all(np.abs(differing - np.floor(differing) - 0.5) < TIE)


@pytest.mark.parametrize(("filter_name", "antialias"), MODES)
def test_a_filter_gives_dalis_levels(filter_name, antialias):
    mine = [dali(pixels, "both", size, filter_name, antialias=antialias) for _, pixels, size in cases()]
    theirs = [frozen(name, filter_name, "antialias" * antialias) for name, *_ in cases()]
    near(mine, theirs)


@pytest.mark.parametrize("subpixel", [False, True])
@pytest.mark.parametrize("rule", RULES)
def test_a_rule_gives_dalis_sizes_and_levels(rule, subpixel):
    wanted = [(name, pixels) for name, pixels, rules in shapes() if rule in rules]
    theirs = [frozen(name, rule, "subpixel" * subpixel) for name, _ in wanted]
    near([dali(pixels, rule, ASPECT, "bilinear", subpixel=subpixel) for _, pixels in wanted], theirs)


@live
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_the_levels_are_those_of_the_installed_dali(size):
    for filter_name, antialias in MODES:
        theirs = originals.dali(pictures(), "both", size, filter_name, antialias=antialias)
        near([dali(pixels, "both", size, filter_name, antialias=antialias) for pixels in pictures()], theirs)


@live
@pytest.mark.parametrize("subpixel", [False, True])
@pytest.mark.parametrize("rule", RULES)
def test_the_sizes_are_those_of_the_installed_dali(rule, subpixel):
    slim = [pixels for pixels in pictures() if max(pixels.shape[:2]) < 12 * min(pixels.shape[:2])]
    for size in SIZES:
        for filter_name in FILTERS:
            theirs = originals.dali(slim, rule, size, filter_name, antialias=True, subpixel=subpixel)
            near([dali(pixels, rule, size, filter_name, subpixel=subpixel) for pixels in slim], theirs)


@live
def test_the_frozen_vectors_are_those_of_the_installed_dali():
    for name, pixels, size in cases():
        for filter_name, antialias in MODES:
            (theirs,) = originals.dali([pixels], "both", size, filter_name, antialias=antialias)
            assert_close(frozen(name, filter_name, "antialias" * antialias), theirs, EQUAL)


NEIGHBOURS = {
    "no antialias": {"antialias": False},
    "another filter": {"filter_name": "bicubic"},
    "pillow's": {"like": "pillow"},
    "torchvision's": {"like": "torchvision"},
    "torchvision's, no antialias": {"like": "torchvision", "antialias": False},
}


@pytest.mark.parametrize("neighbour", NEIGHBOURS)
def test_a_neighbours_levels_are_not_dalis(neighbour):
    how = {"filter_name": "bilinear"} | NEIGHBOURS[neighbour]
    mine = [dali(pixels, "both", size, **how) for _, pixels, size in cases()]
    theirs = [frozen(name, "bilinear", "antialias") for name, *_ in cases()]
    with pytest.raises(AssertionError):
        near(mine, theirs)


@pytest.mark.parametrize("rule", RULES)
def test_the_scale_of_whole_sides_is_not_the_subpixel_one(rule):
    wanted = [(name, pixels) for name, pixels, rules in shapes() if rule in rules]
    theirs = [frozen(name, rule, "subpixel") for name, _ in wanted]
    with pytest.raises(AssertionError):
        near([dali(pixels, rule, ASPECT, "bilinear", subpixel=False) for _, pixels in wanted], theirs)


def test_a_swap_of_rows_and_columns_is_seen_in_nearest():
    """DALI adds the scale up from row to row: a product puts some rows elsewhere."""
    pixels = noise(14, 115)
    turned, _ = dali(pixels.swapaxes(0, 1), "both", (45, 21), "nearest")
    assert not np.array_equal(dali(pixels, "both", (21, 45), "nearest")[0], turned.swapaxes(0, 1))
