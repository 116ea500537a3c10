"""The ``tensorflow`` profile against ``tf.image.resize`` where it is installed; importers/test_verify.py has it frozen."""

from importlib.util import find_spec

import numpy as np
import pytest

import pixprep as pp
from compare import EQUAL, assert_close
from images import png
from pixprep.importers.verify import Originals
from pixprep.pipeline import ops
from pixprep.plan.profiles import PROFILES
from resize_cases import cases, photo_pixels, resized


def same_bits(actual, expected):
    assert actual.dtype == expected.dtype
    assert_close(actual, expected, EQUAL)


@pytest.mark.skipif(find_spec("tensorflow") is None, reason="NO TENSORFLOW: its resize was compared frozen only")
@pytest.mark.parametrize(("filter_name", "antialias"), PROFILES["tensorflow"].methods)
def test_the_values_are_those_of_the_installed_tensorflow(filter_name, antialias):
    for pixels, size in cases():
        op = ops.Resize(height=size[0], width=size[1], like="tensorflow", filter=filter_name, antialias=antialias)
        same_bits(resized(pixels, size, op.like, filter_name, antialias=antialias), Originals().resizer(op).run(pixels))


@pytest.mark.parametrize("antialias", [False, True])
def test_a_region_is_the_same_part_of_the_whole(antialias):
    """What a crop leaves is computed alone, with windows of its own."""
    pixels = photo_pixels()[150:300, 200:347]
    resize = pp.resize(height=40, width=51, like="tensorflow", antialias=antialias)
    with pp.Engine(pp.Pipeline([pp.decode(), resize, pp.crop(9, 20, 17, 23), pp.tensor(layout="hwc")])) as engine:
        (part,) = engine.run([png(pixels)])
    whole = resized(pixels, (40, 51), "tensorflow", "bilinear", antialias=antialias)
    assert np.ptp(part) > 50
    same_bits(part, whole[9:26, 20:43])
