"""Attack: the same with the containers that only Pillow reads: BMP, GIF, WebP and TIFF headers that promise too much,
run lengths, tiles and strips that lie, tags that claim more than the file.

Defence: the sizes of screen, frame and tile are checked before pixels are; a TIFF's tags are counted before Pillow
reads them.
Outcome: refused in the memory of what was read.
"""

import struct

import pytest

from attacks.forged import bmp, gif, tags, tiff, vp8l, webp, zeros

REFUSED = {
    "BMP 2^31": bmp(2**31 - 1, 2**31 - 1),
    "BMP -2^31": bmp(4, -(2**31)),
    "BMP of no data": bmp(7071, 7071),
    "BMP run lengths without an end": bmp(7071, 7071, bits=8, compression=1, data=b"\xff\0" * 100_000),
    "BMP 2^31 colours": bmp(4, 4, bits=8, data=bytes(64), colours=2**31 - 1),
    "GIF 65535": gif(65535, 65535),
    "GIF of no data": gif(7071, 7071),
    "GIF with a frame over its screen": gif(4, 4, frame=(65535, 65535)),
    "WebP 2^24": webp(1 << 24, 1 << 24),
    "WebP 16383": webp(16383, 16383, vp8l(16, 16)),
    "WebP lossless 16384": vp8l(16384, 16384),
    "TIFF 2^31": tiff(tags(2**31, 2**31)),
    "TIFF of no pixels": tiff(tags(0, 0)),
    "TIFF of no data": tiff(tags(7071, 7071)),
    "TIFF with a tile of 16384": tiff(
        {**tags(4, 4, compression=8), 322: 16384, 323: 16384, 324: 134, 325: 100}, zeros(1 << 20)
    ),
    "TIFF with directories in a circle": tiff({34665: 8}),
    "TIFF with 65,535 samples": tiff({**tags(7071, 7071), 277: 65535}),
    "TIFF with 2^31 bits": tiff({**tags(7071, 7071), 258: 2**31}),
    "TIFF with tags of 281 TB": b"II*\0"
    + struct.pack("<IH", 8, 65535)
    + struct.pack("<HHII", 33432, 2, 2**32 - 1, 8) * 65535,
    "BigTIFF": b"II+\0\x08\0\0\0" + bytes(100),
    **{
        f"TIFF of compression {number} and no data": tiff(
            tags(7071, 7071, compression=number, n_bytes=50_000), bytes(99)
        )
        for number in (2, 3, 4, 5, 7, 8, 32773, 32946, 34712, 34925, 50000)
    },
}


@pytest.mark.parametrize("bomb", REFUSED)
def test_a_header_that_promises_too_much_is_refused(measure, bomb):
    cost = measure(REFUSED[bomb])
    assert cost.text.startswith("["), cost
    assert cost.seconds < 0.5
    assert cost.mib < 64


def test_a_strip_that_inflates_to_a_gigabyte_is_read_as_far_as_the_header_says(measure):
    measure(tiff(tags(4, 4, compression=8, n_bytes=1_100_000), zeros(1 << 30))).within("ok", mib=24)


def test_the_same_containers_unspoiled_are_decoded(measure):
    for image in (bmp(4, 4, data=bytes(64)), tiff(tags(4, 4), bytes(16)), vp8l(16, 16), webp(16, 16, vp8l(16, 16))):
        assert measure(image).text == "ok"
