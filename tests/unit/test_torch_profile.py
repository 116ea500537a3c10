"""``"like": "torch"`` without PyTorch: against its frozen results, and what the op says."""

from hashlib import sha256

import numpy as np
import pytest

import pixprep as pp
from images import noise
from pixprep import PipelineError
from pixprep.kernels.resample import resample
from pixprep.plan import Geometry, Resize
from pixprep.profiles import resampling
from torch_vectors import FROZEN


def resized(pixels, size, filter_name):
    rule = {"rule": "both", "height": size[0], "width": size[1], "antialias": True}
    resize = Resize(**rule, filter=filter_name, like="torch")
    placement = Geometry((), resize, ()).place(*pixels.shape[:2])
    return resample(pixels, resampling(resize, placement)).transpose(2, 0, 1)


@pytest.mark.parametrize("case", FROZEN, ids=str)
def test_a_resize_gives_the_very_bytes_that_pytorch_gave(case):
    filter_name, size, result = case
    assert sha256(resized(noise(*size), result, filter_name).tobytes()).hexdigest() == FROZEN[case]


def test_one_level_of_one_value_changes_the_digest():
    """A negative control."""
    case = ("bilinear", (61, 97), (224, 224))
    pixels = resized(noise(*case[1]), case[2], case[0])
    pixels[1, 100, 100] ^= 1
    assert sha256(pixels.tobytes()).hexdigest() != FROZEN[case]


def test_a_flat_image_stays_flat():
    for level in (0, 1, 127, 254, 255):
        pixels = np.full((33, 47, 3), level, np.uint8)
        for filter_name in ("bilinear", "bicubic"):
            assert (resized(pixels, (20, 80), filter_name) == level).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"antialias": False}, '"antialias" must be true with "like": "torch"'),
        (
            {"filter": "lanczos"},
            '"lanczos" with antialias true is not for "like": "torch", which has bilinear, bicubic',
        ),
    ],
)
def test_what_the_profile_does_not_have_is_refused(options, message):
    with pytest.raises(PipelineError) as error:
        pp.resize(9, like="torch", **options)
    assert message in str(error.value)
