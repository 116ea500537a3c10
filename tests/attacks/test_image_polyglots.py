"""Attack: a file that is an image to one reader and something else to another: HTML, PDF, ZIP, two images in one.

Defence: the first bytes decide, and decide once; what decodes is what they announced.
Outcome: one format or none.
"""

import zlib

import pytest

from attacks.forged import chunk, gif, png
from support.images import jpeg, noise

JPEG = jpeg(noise(16, 16))
PNG = png(4, 4, chunk(b"IDAT", zlib.compress(bytes(52))))
FILES = {
    "HTML before": (b"<html>" + JPEG, "UNKNOWN_FORMAT"),
    "a PDF before": (b"%PDF-1.7\n" + JPEG, "UNKNOWN_FORMAT"),
    "a script before": (b"#!/bin/sh\n" + JPEG, "UNKNOWN_FORMAT"),
    "a GIF's first bytes": (b"GIF89a" + JPEG, "CORRUPT"),
    "a BMP's first bytes": (b"BM" + JPEG, "TRUNCATED"),
    "a TIFF's first bytes": (b"II*\0" + JPEG, "CORRUPT"),
    "a ZIP behind": (JPEG + b"PK\3\4" + bytes(999), "ok"),
    "a PNG behind": (JPEG + PNG, "ok"),
    "a JPEG behind": (PNG + JPEG, "ok"),
    "a GIF behind": (PNG + gif(65535, 65535), "ok"),
}


@pytest.mark.parametrize("name", FILES)
def test_the_first_bytes_decide(measure, name):
    encoded, reason = FILES[name]
    measure(encoded).within(reason, mib=8)
