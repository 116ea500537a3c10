"""Tests properties that every library's resize profile must have: its row, the shape and sums of its filter taps, and
its regions.
"""

from typing import get_args

import numpy as np
import pytest

from pixprep.engine.kernels import resampling
from pixprep.plan.profiles import PROFILES
from pixprep.plan.profiles.profile import Method
from pixprep.plan.profiles.windows import Axis, Windows
from pixprep.spec import Like
from support import reference
from support.images import noise
from support.resize_cases import by_pillow, resampling_of, resized

LIKES = [like for like in get_args(Like) if not PROFILES[like].reads_all]  # all others have no list of taps
RESIZES = [(like, *method) for like in LIKES for method in PROFILES[like].methods]
SIZES = [
    ((1, 1), (1, 9)), ((1, 9), (9, 1)), ((2, 3), (3, 2)), ((7, 7), (7, 5)), ((64, 48), (32, 24)),
    ((64, 48), (16, 48)), ((60, 90), (20, 30)), ((60, 90), (37, 31)), ((60, 90), (20, 91)),
    ((33, 20), (100, 71)), ((98, 1), (2, 1)), ((5, 600), (2, 3)),
]  # fmt: skip
LARGE = (700, 500), (650, 450)
INTEGERS = ("fixed", "opencv_linear", "opencv_cubic", "opencv_lanczos", "area")


def test_every_library_has_a_row():
    assert set(get_args(Like)) == set(PROFILES)
    assert len({PROFILES[like].title for like in get_args(Like)}) == len(get_args(Like))


@pytest.mark.parametrize("like", get_args(Like))
def test_a_row_contains_only_its_own_filters_and_its_default(like):
    profile = PROFILES[like]
    names = {name for name, _ in profile.methods}
    assert names >= {*profile.real}
    assert set(profile.reducible) <= set(profile.antialiased)
    assert profile.antialiased if profile.antialias else profile.filters


@pytest.mark.parametrize(("like", "filter_name", "antialias"), RESIZES)
def test_taps_of_a_formula_are_suitable_for_the_fast_kernels(like, filter_name, antialias):
    """Such taps are ``fixed``, have weights of three signed bytes, stay inside the axis, and are monotonic.

    Taps without a formula need not have these properties.
    """
    formula = PROFILES[like].formula(Method(filter_name, antialias), "fixed")
    is_fast = formula is not None and not formula.is_rule
    fit = []
    for size, resized_size in SIZES:
        found = resampling_of(like, filter_name, size, resized_size, antialias=antialias)
        for each, length, out_length in zip(resampling.windows(found), size, resized_size, strict=True):
            last = each.first + each.count
            is_inside = each.first.min() >= 0 and last.max() <= length
            is_rising = (np.diff(each.first) >= 0).all() and (np.diff(last) >= 0).all()
            fit.append(found.passes == "fixed" and is_inside and is_rising and np.abs(each.weights).max() < 1 << 23)
            if is_fast and length != out_length:
                assert each.bits == formula.bits or (formula.bits is None and each.weights.max() < 1 << 15)
    assert all(fit) if is_fast else not all(fit) or filter_name.startswith("nearest")


@pytest.mark.parametrize(("like", "filter_name", "antialias"), RESIZES)
def test_each_window_overlaps_the_axis_and_its_weights_sum_to_one(like, filter_name, antialias):
    made = (
        (found, *each)
        for sizes in SIZES
        for found in [resampling_of(like, filter_name, *sizes, antialias=antialias)]
        for each in zip(resampling.windows(found), *sizes, strict=True)
    )
    for found, each, length, out_length in made:
        assert each.first.dtype == each.count.dtype == np.int32
        assert each.weights.dtype == (np.int32 if found.passes in INTEGERS else np.float32)
        assert each.first.shape == each.count.shape == (out_length,)
        assert each.weights.shape == (out_length, each.count.max())
        assert (each.count > 0).all()
        assert (each.first < length).all()
        assert (each.first + each.count > 0).all()
        assert not each.weights[np.arange(each.weights.shape[1]) >= each.count[:, None]].any()
        sums = each.weights.sum(axis=1, dtype=np.float64)
        if found.passes == "area":
            assert (each.weights[:, : length // out_length] == 1).all()
            continue
        one = 1 << each.bits if found.passes == "fixed" else 1 << 11 if found.passes in INTEGERS else 1
        # Each integer is rounded separately. ``area`` omits up to a thousandth of a pixel at either end.
        slack = each.weights.shape[1] if one > 1 else 2e-3 if filter_name == "area" else 1e-5
        assert np.abs(sums - one).max() <= slack


# Filter, antialias, (rows, columns) before and after, and whether DALI 2.4's float32 arithmetic runs the vertical pass
# first
ORDERS = [
    ("bilinear", True, (141, 121), (25, 7), False),
    ("bicubic", True, (32, 9), (131, 98), False),
    ("bicubic", True, (27, 23), (11, 6), True),
    ("bilinear", False, (9, 13), (36, 118), True),
    ("lanczos", True, (56, 62), (5, 6), True),
]


@pytest.mark.parametrize(("filter_name", "antialias", "size", "became", "expected"), ORDERS)
def test_dalis_order_of_passes_is_the_one_with_the_lower_cost(filter_name, antialias, size, became, expected):
    """If two weights of DALI's cost function were slightly different, the order would change for one of these sizes."""
    axes = [Axis(before, after, before / after, 0, after) for before, after in zip(size, became, strict=True)]
    assert PROFILES["dali"].is_vertical_first(Method(filter_name, antialias), *axes) == expected


def test_the_span_of_taps_ends_after_the_last_position():
    windows = Windows(np.array([-2, 1, 3], np.int32), np.array([3, 4, 2], np.int32), np.ones((3, 4)))
    assert [windows.span(length) for length in (9, 5, 4)] == [(0, 5), (0, 5), (0, 4)]
    assert Windows(*(each[1:] for each in (windows.first, windows.count, windows.weights))).span(9) == (1, 5)


def test_the_largest_sums_of_lanczos4_fit_into_32_bits():
    """The second pass of lanczos4 adds up unrounded results of the first pass.

    An image whose stripes follow the signs of the taps is the worst case.
    """
    largest = 0
    for length, out_length in [(7, 5), (16, 64), (33, 100), (64, 32), (100, 999), (600, 7), (999, 1000)]:
        how = resampling_of("opencv", "lanczos4", (1, length), (2, out_length), antialias=False)
        weights = resampling.windows(how)[1].weights
        above = np.where(weights > 0, weights, 0).sum(axis=1).max()
        below = np.where(weights < 0, -weights, 0).sum(axis=1).max()
        largest = max(largest, 255 * int(above**2 + below**2) + (1 << 21))
    assert 0.97 * 2**31 < largest < 2**31


@pytest.mark.parametrize(("like", "filter_name", "antialias"), RESIZES)
def test_a_region_equals_that_of_the_whole(like, filter_name, antialias):
    """The images include large ones."""
    for size, (height, width) in [((60, 90), (37, 31)), ((60, 90), (20, 30)), ((33, 20), (100, 71)), LARGE]:
        pixels = noise(*size)
        whole = resized(pixels, (height, width), like, filter_name, antialias=antialias)
        for region in [(0, 0, 1, 1), (height // 3, 1, height - 2, width // 2), (height - 1, 0, height, width)]:
            top, left, bottom, right = region
            part = resized(pixels, (height, width), like, filter_name, antialias=antialias, region=region)
            assert part.shape == (bottom - top, right - left, 3)
            assert (part == whole[top:bottom, left:right]).all()


@pytest.mark.parametrize(("like", "filter_name", "antialias"), RESIZES)
def test_a_uniform_image_keeps_its_value(like, filter_name, antialias):
    for level in (0, 1, 128, 255):
        pixels = np.full((23, 17, 1), level, np.uint8)
        for size in ((9, 9), (46, 34), (11, 40)):
            result = resized(pixels, size, like, filter_name, antialias=antialias)
            assert np.abs(result.astype(np.float64) - level).max() <= (3e-4 if result.dtype == np.float32 else 0)


@pytest.mark.parametrize(("like", "filter_name", "antialias"), RESIZES)
def test_an_unchanged_size_keeps_every_pixel_value(like, filter_name, antialias):
    pixels = noise(12, 7)
    assert (resized(pixels, (12, 7), like, filter_name, antialias=antialias) == pixels).all()


@pytest.mark.parametrize(("like", "filter_name", "antialias"), RESIZES)
def test_strides_of_the_image_do_not_change_results(like, filter_name, antialias):
    pixels = noise(40, 31)
    views = [np.asfortranarray(pixels), pixels[::-1, ::-1].copy()[::-1, ::-1]]
    expected = resized(pixels, (17, 45), like, filter_name, antialias=antialias)
    assert expected.dtype == (np.float32 if filter_name in PROFILES[like].real else np.uint8)
    for view in views:
        assert (resized(view, (17, 45), like, filter_name, antialias=antialias) == expected).all()


def test_the_hamming_filter_is_1_at_its_center():
    """Pillow's float32 constants 0.54 and 0.46 do not add up to 1. The center of output pixel 3 is that of input pixel
    7, and a difference of 2**-22 in the weight of this pixel changes the result of these five values.
    """
    row = np.zeros((1, 15, 1), np.uint8)
    row[0, 5:10, 0] = (194, 52, 240, 142, 148)
    for pixels, size in ((row, (1, 7)), (row.reshape(15, 1, 1), (7, 1))):
        found = resized(pixels, size, "pillow", "hamming", antialias=True)
        assert found.ravel()[3] == 176
        assert (found == by_pillow(pixels, size, "hamming")).all()


@pytest.mark.parametrize("filter_name", ["box", "bilinear", "hamming", "bicubic", "lanczos"])
@pytest.mark.parametrize("antialias", [True, False])
@pytest.mark.parametrize(("length", "out_length"), [(1, 9), (9, 1), (2, 3), (100, 37), (37, 100), (427, 256), (500, 3)])
def test_pillows_weights_equal_the_definition(length, out_length, antialias, filter_name):
    how = resampling_of("pillow", filter_name, (2, length), (3, out_length), antialias=antialias)
    _, found = resampling.windows(how)
    dense = np.zeros((out_length, length))
    for row, first, count, weights in zip(dense, found.first, found.count, found.weights, strict=True):
        row[first : first + count] = weights[:count] / 2**22
    expected = reference.matrix(length, out_length, filter_name, antialias=antialias)
    assert np.abs(dense - expected).max() < 2**-21
    assert np.abs(dense.sum(axis=1) - 1).max() < 1e-4
