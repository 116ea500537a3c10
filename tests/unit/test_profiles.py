"""What every profile must keep to, whatever its library: the shape of the windows, their sums, parts of the whole."""

import numpy as np
import pytest

from images import noise
from pixprep.kernels.resample import resample
from pixprep.ops import FILTERS
from pixprep.profiles import resampling
from pixprep.profiles.taps import IDENTITY_BITS, Resampling, Taps, single
from resize_cases import assert_equal, placement, resize, resized

RESIZES = [(like, name, antialias) for (like, antialias), names in FILTERS.items() for name in names]
SIZES = [
    ((1, 1), (1, 9)),
    ((1, 9), (9, 1)),
    ((2, 3), (3, 2)),
    ((7, 7), (7, 5)),
    ((64, 48), (32, 24)),
    ((64, 48), (16, 48)),
    ((60, 90), (20, 30)),
    ((60, 90), (37, 31)),
    ((60, 90), (20, 91)),
    ((33, 20), (100, 71)),
    ((98, 1), (2, 1)),
    ((5, 600), (2, 3)),
]
INTEGERS = ("fixed", "opencv_linear", "opencv_cubic", "area")


def windows(like, filter_name, size, resized_size, *, antialias, region=None):
    return resampling(
        resize(like, filter_name, resized_size, antialias=antialias), placement(size, resized_size, region)
    )


@pytest.mark.parametrize(("size", "resized_size"), SIZES)
@pytest.mark.parametrize(("like", "filter_name", "antialias"), RESIZES)
def test_each_window_touches_the_axis_and_its_weights_make_a_mean(like, filter_name, antialias, size, resized_size):
    found = windows(like, filter_name, size, resized_size, antialias=antialias)
    for taps, length, out_length in zip((found.rows, found.columns), size, resized_size, strict=True):
        assert taps.first.dtype == taps.count.dtype == np.int32
        assert taps.weights.dtype == (np.int32 if found.kind in INTEGERS else np.float32)
        assert taps.first.shape == taps.count.shape == (out_length,)
        assert taps.weights.shape == (out_length, taps.count.max())
        assert (taps.count > 0).all()
        assert (taps.first < length).all()
        assert (taps.first + taps.count > 0).all()
        assert not taps.weights[np.arange(taps.weights.shape[1]) >= taps.count[:, None]].any()
        sums = taps.weights.sum(axis=1, dtype=np.float64)
        if found.kind == "area":
            assert (taps.weights[:, : length // out_length] == 1).all()
            continue
        one = {"fixed": 1 << taps.bits, "opencv_linear": 1 << 11, "opencv_cubic": 1 << 11}.get(found.kind, 1)
        # Each integer is rounded by itself; ``area`` leaves out up to a thousandth of a pixel at either end.
        slack = taps.weights.shape[1] if one > 1 else 2e-3 if filter_name == "area" else 1e-5
        assert np.abs(sums - one).max() <= slack


@pytest.mark.parametrize(("size", "resized_size"), [((60, 90), (37, 31)), ((60, 90), (20, 30)), ((33, 20), (100, 71))])
@pytest.mark.parametrize(("like", "filter_name", "antialias"), RESIZES)
def test_a_region_is_a_part_of_the_whole(like, filter_name, antialias, size, resized_size):
    pixels = noise(*size)
    whole = resized(pixels, resized_size, like, filter_name, antialias=antialias)
    height, width = resized_size
    for region in [(0, 0, 1, 1), (height // 3, 1, height - 2, width // 2), (height - 1, 0, height, width)]:
        top, left, bottom, right = region
        part = resized(pixels, resized_size, like, filter_name, antialias=antialias, region=region)
        assert part.shape == (bottom - top, right - left, 3)
        assert (part == whole[top:bottom, left:right]).all()


@pytest.mark.parametrize(("like", "filter_name", "antialias"), RESIZES)
def test_no_region_is_no_pixels(like, filter_name, antialias):
    part = resized(noise(9, 8), (5, 4), like, filter_name, antialias=antialias, region=(2, 1, 2, 4))
    assert part.shape == (0, 3, 3)
    assert part.dtype == (np.float32 if like == "tensorflow" and filter_name != "nearest" else np.uint8)


@pytest.mark.parametrize(("like", "filter_name", "antialias"), RESIZES)
def test_one_level_stays_that_level(like, filter_name, antialias):
    for level in (0, 1, 128, 255):
        pixels = np.full((23, 17, 1), level, np.uint8)
        for size in ((9, 9), (46, 34), (11, 40)):
            result = resized(pixels, size, like, filter_name, antialias=antialias)
            assert np.abs(result.astype(np.float64) - level).max() <= (1e-4 if result.dtype == np.float32 else 0)


@pytest.mark.parametrize(("like", "filter_name", "antialias"), RESIZES)
def test_an_unchanged_size_keeps_every_level(like, filter_name, antialias):
    pixels = noise(12, 7)
    assert (resized(pixels, (12, 7), like, filter_name, antialias=antialias) == pixels).all()


@pytest.mark.parametrize(("like", "filter_name", "antialias"), RESIZES)
def test_strides_of_the_source_make_no_difference(like, filter_name, antialias):
    pixels = noise(40, 31)
    views = [np.asfortranarray(pixels), pixels[::-1, ::-1].copy()[::-1, ::-1]]
    expected = resized(pixels, (17, 45), like, filter_name, antialias=antialias)
    for view in views:
        assert (resized(view, (17, 45), like, filter_name, antialias=antialias) == expected).all()


def test_positions_beyond_the_border_repeat_it():
    """Windows of any place, against an image that really is wider."""
    pixels = noise(6, 5)
    rng = np.random.default_rng(0)
    padded = np.pad(pixels, ((0, 0), (9, 9), (0, 0)), mode="edge")
    rows = single(np.arange(6))
    for _ in range(20):
        first = rng.integers(-6, 8, 11).astype(np.int32)
        weights = rng.integers(0, 1 << 20, (11, 4)).astype(np.int32)
        count = np.full(11, 4, np.int32)
        over = Resampling("fixed", rows, Taps(first, count, weights), vertical_first=False)
        inside = Resampling("fixed", rows, Taps(first + np.int32(9), count, weights), vertical_first=False)
        assert_equal([(first.tolist(), resample(pixels, over), resample(padded, inside))])


def test_windows_of_several_lengths_read_only_their_own_positions():
    pixels = np.array([[[10], [20], [250]]], np.uint8)
    half = 1 << IDENTITY_BITS - 1
    taps = Taps(
        np.array([0, 2], np.int32), np.array([2, 1], np.int32), np.array([[half, half], [2 * half, 0]], np.int32)
    )
    result = resample(pixels, Resampling("fixed", single(np.arange(1)), taps, vertical_first=False))
    assert result[0, :, 0].tolist() == [15, 250]


@pytest.mark.parametrize(("like", "filter_name", "antialias"), RESIZES)
def test_chunks_make_no_difference(like, filter_name, antialias, monkeypatch):
    pixels = noise(40, 31)
    expected = resized(pixels, (17, 45), like, filter_name, antialias=antialias)
    monkeypatch.setattr("pixprep.kernels.resample.CHUNK", 1000)
    assert (resized(pixels, (17, 45), like, filter_name, antialias=antialias) == expected).all()
