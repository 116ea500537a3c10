"""Attack: A small image expands to gigabytes. It has false headers, endless streams, compressed texts and profiles,
hundreds of thousands of chunks, a second header, false run lengths, false tiles and strips, or tags that claim more
data than the file contains.

Defence: The sizes in the headers of the image, screen, frame and tiles are checked before any pixels are decoded. Only
as many rows as the header declares are decompressed. Pillow decompresses at most 1 MiB of each text or profile of a
PNG, and 64 MiB in total. If a PNG exceeds these limits, it is decoded without its texts and profiles. A TIFF's tags are
counted before Pillow reads them.

Outcome: The memory used depends on the number of pixels, never on the stream.
"""

import struct
import zlib

import pytest

import pixprep as pp
from pixprep.engine.decoders import Limits
from pixprep.errors import REASONS
from support.forged import bmp, chunk, gif, png, tags, tiff, vp8l, webp, zeros

PIXELS = chunk(b"IDAT", zlib.compress(bytes(4 * 13)))
HUGE = struct.pack(">IIBBBBB", 30_000, 30_000, 8, 2, 0, 0, 0)
REFUSED = {
    "PNG: 2^31 pixels a side": png(2**31 - 1, 2**31 - 1, PIXELS),
    "PNG: 16384 x 16384": png(16384, 16384, chunk(b"IDAT", zeros(1 << 20))),
    "PNG: 50 megapixels of one row": png(7071, 7071, PIXELS),
    "PNG: no pixels": png(0, 0),
    "PNG: a second, larger header": png(4, 4, chunk(b"IHDR", HUGE), chunk(b"IDAT", zeros(1 << 27))),
    "PNG: a chunk of 2 GB": png(4, 4)[:-12] + b"\x7f\xff\xff\xffIDAT",
    "PNG: a chunk of -1 bytes": png(4, 4)[:-12] + b"\xff\xff\xff\xffIDAT",
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
HARMLESS = {
    "PNG: a text of 1 GB": png(4, 4, chunk(b"zTXt", b"a\0\0" + zeros(1 << 30)), PIXELS),
    "PNG: an international text of 1 GB": png(4, 4, chunk(b"iTXt", b"a\0\1\0\0\0" + zeros(1 << 30)), PIXELS),
    "PNG: 300 texts of 1 MB": png(4, 4, *[chunk(b"zTXt", b"a\0\0" + zeros(1 << 20))] * 300, PIXELS),
    "PNG: 300 texts after the pixels": png(4, 4, PIXELS, *[chunk(b"zTXt", b"a\0\0" + zeros(1 << 20))] * 300),
    "PNG: a profile of 1 GB": png(4, 4, chunk(b"iCCP", b"a\0\0" + zeros(1 << 30)), PIXELS),
    "PNG: 1 GB of rows that nobody asked for": png(4, 4, chunk(b"IDAT", zeros(1 << 30))),
    "PNG: a hundred streams of 64 MB": png(4, 4, *[chunk(b"IDAT", zeros(1 << 26))] * 100),
    "PNG: 100,000 empty chunks": png(4, 4, *[chunk(b"IDAT", b"")] * 100_000, PIXELS),
    "PNG: 100,000 texts": png(4, 4, *[chunk(b"tEXt", b"a\0b")] * 100_000, PIXELS),
    "PNG: an animation of 2^31 frames": png(4, 4, chunk(b"acTL", struct.pack(">II", 2**31 - 1, 0)), PIXELS),
    "PNG: an honest one": png(4, 4, PIXELS),
    "TIFF with a strip that inflates to a gigabyte": tiff(tags(4, 4, compression=8, n_bytes=1_100_000), zeros(1 << 30)),
    "an honest BMP": bmp(4, 4, data=bytes(64)),
    "an honest TIFF": tiff(tags(4, 4), bytes(16)),
    "an honest lossless WebP": vp8l(16, 16),
    "an honest WebP": webp(16, 16, vp8l(16, 16)),
}


@pytest.mark.parametrize("bomb", REFUSED)
def test_a_header_that_declares_too_much_is_rejected(measure, bomb):
    measure(REFUSED[bomb]).within(
        *REASONS, mib=24 if bomb.startswith("PNG") else 64, seconds=1 if bomb.startswith("PNG") else 0.5
    )


@pytest.mark.parametrize("bomb", HARMLESS)
def test_data_beyond_the_declared_size_is_not_inflated(measure, bomb):
    measure(HARMLESS[bomb]).within("ok", mib=24, seconds=1)


def test_pillows_error_names_the_pixels_and_the_setting():
    """Pillow rejects 20,000 x 20,000 pixels before pixprep can compare the header with its own limits."""
    pipeline = pp.Pipeline([pp.decode(), pp.resize(height=4, width=4), pp.tensor()])
    message = []
    for limits in (Limits(), Limits(max_side=30_000, max_pixels=900_000_000)):
        with pp.Engine(pipeline, limits=limits, threads=1) as engine:
            (error,) = engine.run_batch([png(20_000, 20_000)]).errors
        message.append(str(error))
    assert message == [
        "[TOO_MANY_PIXELS] 400,000,000 pixels; the limit is 50,000,000 (parameter max_pixels)",
        "[TOO_MANY_PIXELS] 400,000,000 pixels; the limit is 178,956,970 "
        "(Pillow's limit for all formats except JPEG, twice PIL.Image.MAX_IMAGE_PIXELS)",
    ]
