"""The ``tensorflow`` profile against ``tf.image.resize``: frozen vectors, and TensorFlow where it is installed."""

from importlib.util import find_spec

import numpy as np
import pytest

import originals
import pixprep as pp
from compare import EQUAL, assert_close
from images import png
from vectors import SIZES, cases, load, ours, pictures

MODES = (("nearest", False), ("bilinear", False), ("bilinear", True))
live = pytest.mark.skipif(find_spec("tensorflow") is None, reason="NO TENSORFLOW: its resize was compared frozen only")


def tensorflow(pixels, size, filter_name, *, antialias):
    return ours(pixels, "both", size, filter_name, like="tensorflow", antialias=antialias)


def frozen(name, filter_name, *, antialias):
    arrays, _ = load("tensorflow")
    return arrays[f"{name}, {filter_name}{', antialias' * antialias}"]


def same_bits(actual, expected):
    """The same values and the same dtype; an unchanged image is uint8 in TensorFlow too."""
    assert actual.dtype == expected.dtype
    assert_close(actual, expected, EQUAL)


@pytest.mark.parametrize(("name", "pixels", "size"), cases(), ids=[name for name, *_ in cases()])
def test_the_values_are_tensorflows_to_the_last_bit(name, pixels, size):
    for filter_name, antialias in MODES:
        same_bits(
            tensorflow(pixels, size, filter_name, antialias=antialias), frozen(name, filter_name, antialias=antialias)
        )


@live
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_the_values_are_those_of_the_installed_tensorflow(size):
    for pixels in pictures():
        for filter_name, antialias in MODES:
            theirs = originals.tensorflow(pixels, size, filter_name, antialias=antialias)
            same_bits(tensorflow(pixels, size, filter_name, antialias=antialias), theirs)


@live
def test_the_frozen_vectors_are_those_of_the_installed_tensorflow():
    for name, pixels, size in cases():
        for filter_name, antialias in MODES:
            theirs = originals.tensorflow(pixels, size, filter_name, antialias=antialias)
            same_bits(frozen(name, filter_name, antialias=antialias), theirs)


def test_a_region_is_the_same_part_of_the_whole():
    """What a crop leaves is computed alone, with windows of its own."""
    pixels = cases()[0][1]
    for antialias in (False, True):
        resize = pp.resize(height=40, width=51, like="tensorflow", antialias=antialias)
        with pp.Engine(pp.Pipeline([pp.decode(), resize, pp.crop(9, 20, 17, 23), pp.tensor(layout="hwc")])) as engine:
            (part,) = engine.run([png(pixels)])
        whole = tensorflow(pixels, (40, 51), "bilinear", antialias=antialias)
        same_bits(part, whole[9:26, 20:43])


NEIGHBOURS = {
    "antialias for none": ("tensorflow", "bilinear", False, True),
    "none for antialias": ("tensorflow", "bilinear", True, False),
    "pillow's bilinear for antialias": ("pillow", "bilinear", True, True),
    "torchvision's bilinear for antialias": ("torchvision", "bilinear", True, True),
    "torchvision's bilinear for none": ("torchvision", "bilinear", False, False),
    "dali's bilinear for none": ("dali", "bilinear", False, False),
    "pillow's nearest": ("pillow", "nearest", False, False),
    "torchvision's nearest": ("torchvision", "nearest", False, False),
}


@pytest.mark.parametrize("neighbour", NEIGHBOURS)
def test_a_neighbours_values_are_not_tensorflows(neighbour):
    like, filter_name, antialias, ours_antialias = NEIGHBOURS[neighbour]
    mine, theirs = [], []
    for name, pixels, size in cases():
        mine.append(ours(pixels, "both", size, filter_name, like=like, antialias=ours_antialias).ravel())
        theirs.append(frozen(name, filter_name, antialias=antialias).ravel())
    with pytest.raises(AssertionError):
        assert_close(np.concatenate(mine), np.concatenate(theirs), EQUAL)
