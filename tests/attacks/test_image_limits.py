"""Attack: An image is as large as the limits allow, or exceeds them by one byte or pixel.

Defence: Images are limited to 20 MiB of encoded data, 16,384 pixels per side and 50 megapixels. Each limit can be
lowered per model.

Outcome: Larger images are rejected when their header is read. Decoding 50 megapixels takes up to 950 MiB per thread
(950 MiB for WebP, 340 MiB for JPEG), no matter how small the file is. Choose ``max_pixels`` accordingly.
"""

import numpy as np
import pytest
from PIL import Image

from support.forged import bmp, chunk, png, vp8l, zeros
from support.images import jpeg, noise, save

SMALL = jpeg(noise(16, 16))
LARGEST = {
    "JPEG": lambda: jpeg(np.zeros((7071, 7071, 3), np.uint8)),
    "progressive JPEG": lambda: jpeg(np.zeros((7071, 7071, 3), np.uint8), progressive=True),
    "PNG": lambda: png(7071, 7071, chunk(b"IDAT", zeros(7071 * (7071 * 3 + 1)))),
    "BMP of run lengths": lambda: bmp(7071, 7071, bits=8, compression=1, data=b"\0\2\xff\xff" * 200_000 + b"\0\1"),
    "GIF": lambda: save(Image.new("P", (7071, 7071)), "GIF"),
    "WebP of 34 bytes": lambda: vp8l(7071, 7071),
}


@pytest.mark.parametrize("name", LARGEST)
def test_50_megapixels_cost_less_than_a_gigabyte(measure, name):
    cost = measure(LARGEST[name]())
    assert cost.text == "ok", cost
    assert 150 < cost.mib < 1024
    assert cost.seconds < 4


def test_one_pixel_more_is_rejected_at_no_cost(measure):
    for encoded in (jpeg(np.zeros((7072, 7072, 3), np.uint8)), save(Image.new("L", (7072, 7072)), "PNG")):
        measure(encoded).within("TOO_MANY_PIXELS", mib=4)


@pytest.mark.parametrize(("n_bytes", "reason"), [(20 << 20, "ok"), ((20 << 20) + 1, "TOO_LARGE_BYTES")])
def test_the_limit_of_20_mebibytes_is_exact(measure, n_bytes, reason):
    assert measure(SMALL + bytes(n_bytes - len(SMALL))).reason == reason


@pytest.mark.parametrize(("side", "reason"), [(16384, "ok"), (16385, "BAD_DIMENSIONS")])
def test_the_limit_of_16384_pixels_per_side_is_exact(measure, side, reason):
    assert measure(jpeg(np.zeros((1, side, 3), np.uint8))).reason == reason
    assert measure(save(Image.new("L", (1, side)), "PNG")).reason == reason
