"""The ``pillow`` and ``pillow12`` profiles against the installed Pillow: every filter, bit for bit, in NumPy.

engine/test_kernels.py says that the kernels in C do what NumPy does, engine/test_kernel.py what whole pipelines give.
"""

import pytest

from pixprep.plan.profiles import PROFILES
from resize_cases import assert_equal, by_pillow, cases, compare, factors, photo_pixels, resized

FILTERS = PROFILES["pillow"].antialiased


@pytest.mark.parametrize("like", ["pillow", "pillow12"])
@pytest.mark.parametrize("filter_name", FILTERS)
def test_every_value_equals_pillow(filter_name, like):
    assert_equal(
        (
            f"{pixels.shape} to {size}",
            resized(pixels, size, like, filter_name, antialias=True),
            by_pillow(pixels, size, filter_name, like),
        )
        for pixels, size in cases()
    )


WHOLE = pytest.mark.slow(reason="half a second of each further filter, by the same formula")


@pytest.mark.parametrize("filter_name", ["lanczos", *(pytest.param(n, marks=WHOLE) for n in FILTERS if n != "lanczos")])
def test_every_factor_equals_pillow(filter_name):
    assert_equal(
        (
            f"{pixels.shape} to {size}",
            resized(pixels, size, "pillow", filter_name, antialias=True),
            by_pillow(pixels, size, filter_name),
        )
        for row, (_, out) in factors((1, 2, 3, 7, 64, 224))
        for pixels, size in ((row, (1, out)), (row.swapaxes(0, 1), (out, 1)))
    )


@pytest.mark.parametrize("filter_name", ["bilinear", "bicubic", "lanczos"])
def test_torchvision_is_told_apart_by_a_few_values(filter_name):
    pixels = photo_pixels()
    size = (224, 336)
    wrong = resized(pixels, size, "torchvision", filter_name, antialias=True)
    values, differing, largest, _ = compare([(size, wrong, by_pillow(pixels, size, filter_name))])
    assert largest == 1
    assert 0 < differing < values * 0.01
