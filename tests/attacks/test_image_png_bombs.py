"""Attack: a small PNG that becomes gigabytes: a header that lies, a zlib stream that never ends, compressed text and
profiles, hundreds of thousands of chunks, a second header.

Defence: the size in the header is checked first; only as many rows are inflated as the header says; Pillow inflates at
most 1 MiB of a text or profile, and 64 MiB of them together; a PNG with more is decoded without them.
Outcome: memory follows the pixels, never the stream.
"""

import struct
import zlib

import pytest

import pixprep as pp
from attacks.forged import chunk, png, zeros
from pixprep.engine.decoders import Limits

PIXELS = chunk(b"IDAT", zlib.compress(bytes(4 * 13)))
HUGE = struct.pack(">IIBBBBB", 30_000, 30_000, 8, 2, 0, 0, 0)

REFUSED = {
    "2^31 pixels a side": png(2**31 - 1, 2**31 - 1, PIXELS),
    "16384 x 16384": png(16384, 16384, chunk(b"IDAT", zeros(1 << 20))),
    "50 megapixels of one row": png(7071, 7071, PIXELS),
    "no pixels": png(0, 0),
    "a second, larger header": png(4, 4, chunk(b"IHDR", HUGE), chunk(b"IDAT", zeros(1 << 27))),
    "a chunk of 2 GB": png(4, 4)[:-12] + b"\x7f\xff\xff\xffIDAT",
    "a chunk of -1 bytes": png(4, 4)[:-12] + b"\xff\xff\xff\xffIDAT",
}
HARMLESS = {
    "a text of 1 GB": png(4, 4, chunk(b"zTXt", b"a\0\0" + zeros(1 << 30)), PIXELS),
    "an international text of 1 GB": png(4, 4, chunk(b"iTXt", b"a\0\1\0\0\0" + zeros(1 << 30)), PIXELS),
    "300 texts of 1 MB": png(4, 4, *[chunk(b"zTXt", b"a\0\0" + zeros(1 << 20))] * 300, PIXELS),
    "300 texts after the pixels": png(4, 4, PIXELS, *[chunk(b"zTXt", b"a\0\0" + zeros(1 << 20))] * 300),
    "a profile of 1 GB": png(4, 4, chunk(b"iCCP", b"a\0\0" + zeros(1 << 30)), PIXELS),
    "1 GB of rows that nobody asked for": png(4, 4, chunk(b"IDAT", zeros(1 << 30))),
    "a hundred streams of 64 MB": png(4, 4, *[chunk(b"IDAT", zeros(1 << 26))] * 100),
    "100,000 empty chunks": png(4, 4, *[chunk(b"IDAT", b"")] * 100_000, PIXELS),
    "100,000 texts": png(4, 4, *[chunk(b"tEXt", b"a\0b")] * 100_000, PIXELS),
    "an animation of 2^31 frames": png(4, 4, chunk(b"acTL", struct.pack(">II", 2**31 - 1, 0)), PIXELS),
    "an honest one": png(4, 4, PIXELS),
}


@pytest.mark.parametrize("bomb", REFUSED)
def test_a_bomb_is_refused_in_little_memory(measure, bomb):
    cost = measure(REFUSED[bomb])
    assert cost.text.startswith("["), cost
    assert cost.seconds < 1
    assert cost.mib < 24


@pytest.mark.parametrize("bomb", HARMLESS)
def test_what_is_more_than_the_header_says_is_not_inflated(measure, bomb):
    measure(HARMLESS[bomb]).within("ok", mib=24, seconds=1)


def test_pillows_refusal_names_the_pixels_and_the_setting():
    """Pillow refuses 20,000 x 20,000 before its header can be read for our own limits."""
    pipeline = pp.Pipeline([pp.decode(), pp.resize(height=4, width=4), pp.tensor()])
    said = []
    for limits in (Limits(), Limits(max_side=30_000, max_pixels=900_000_000)):
        with pp.Engine(pipeline, limits=limits, threads=1) as engine:
            (error,) = engine.run_batch([png(20_000, 20_000)]).errors
        said.append(str(error))
    assert said == [
        "[TOO_MANY_PIXELS] 400,000,000 pixels; the limit is 50,000,000 (parameter max_pixels)",
        "[TOO_MANY_PIXELS] 400,000,000 pixels; the limit is 178,956,970 "
        "(Pillow's own, of all formats but JPEG: twice PIL.Image.MAX_IMAGE_PIXELS)",
    ]
