"""Pillow's profile against Pillow, value for value."""

import numpy as np
import pytest
from PIL import Image

import reference
from images import noise
from pixprep.plan import Resize
from pixprep.profiles import pillow
from pixprep.profiles.taps import Axis

FILTERS = {
    "box": Image.Resampling.BOX,
    "bilinear": Image.Resampling.BILINEAR,
    "hamming": Image.Resampling.HAMMING,
    "bicubic": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS,
}
LENGTHS = [
    (1, 1),
    (1, 9),
    (9, 1),
    (2, 3),
    (3, 2),
    (7, 7),
    (100, 37),
    (37, 100),
    (640, 383),
    (427, 256),
    (500, 3),
    (3, 500),
]


def taps(length, out_length, filter_name, begin=0, end=None, *, antialias=True):
    resize = Resize(rule="both", height=1, width=1, filter=filter_name, antialias=antialias)
    last = out_length if end is None else end
    axis = Axis(length=length, out_length=out_length, scale=length / out_length, begin=begin, end=last)
    return pillow.taps(resize, "fixed", axis)


def resized(levels, out_length, filter_name, begin=0, end=None):
    """One axis of levels (rows, length) by the integers of ``taps``."""
    table = taps(levels.shape[1], out_length, filter_name, begin, end)
    columns = []
    for first, count, weights in zip(table.first, table.count, table.weights, strict=True):
        assert not weights[count:].any()
        sums = levels[:, first : first + count].astype(np.int64) @ weights[:count]
        columns.append(np.clip((sums + (1 << 21)) >> 22, 0, 255))
    return np.stack(columns, axis=1)


@pytest.mark.parametrize("filter_name", FILTERS)
@pytest.mark.parametrize(("length", "out_length"), [pair for pair in LENGTHS if pair[0] != pair[1]])
def test_one_axis_equals_pillow_bit_for_bit(length, out_length, filter_name):
    levels = noise(16, length, 1)[:, :, 0]
    expected = np.asarray(Image.fromarray(levels).resize((out_length, 16), FILTERS[filter_name]))
    assert (resized(levels, out_length, filter_name) == expected).all()


@pytest.mark.parametrize("filter_name", FILTERS)
def test_the_windows_of_a_part_are_those_of_the_whole(filter_name):
    levels = noise(4, 90, 1)[:, :, 0]
    assert (resized(levels, 41, filter_name, 7, 30) == resized(levels, 41, filter_name)[:, 7:30]).all()


@pytest.mark.parametrize("filter_name", FILTERS)
@pytest.mark.parametrize("antialias", [True, False])
@pytest.mark.parametrize(("length", "out_length"), [pair for pair in LENGTHS if pair[0] != pair[1]])
def test_coefficients_are_those_of_the_definition(length, out_length, antialias, filter_name):
    table = taps(length, out_length, filter_name, antialias=antialias)
    dense = np.zeros((out_length, length))
    for row, first, count, weights in zip(dense, table.first, table.count, table.weights, strict=True):
        row[first : first + count] = weights[:count] / 2**22
    expected = reference.matrix(length, out_length, filter_name, antialias=antialias)
    assert np.abs(dense - expected).max() < 2**-21
    assert np.abs(dense.sum(axis=1) - 1).max() < 1e-4


@pytest.mark.parametrize(("length", "out_length"), [*LENGTHS, (1000, 999), (999, 1000), (6, 4), (4, 6), (16384, 224)])
def test_nearest_takes_the_pixels_that_pillow_takes(length, out_length):
    positions = np.arange(length, dtype=np.int32)[None]
    expected = np.asarray(Image.fromarray(positions).resize((out_length, 1), Image.Resampling.NEAREST))[0]
    assert (pillow.nearest(length, out_length, begin=0, end=out_length) == expected).all()
    middle = slice(out_length // 3, out_length // 3 + 1)
    assert (pillow.nearest(length, out_length, begin=middle.start, end=middle.stop) == expected[middle]).all()
