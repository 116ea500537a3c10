"""Attack: The frame header of a JPEG of one kilobyte declares 65500 x 65500 pixels, no rows, 16 components, or unusual
sampling factors. Other JPEGs have several frames, a scan before the frame, or a height after the scan (DNL). Yet others
have a large number of items that a parser must skip: scans, segments, markers, fill bytes or restart markers.

Defence: The header is parsed without decoding, and the last frame header before the first scan is used. Limits are
checked first. There may be at most 4,096 segments before the first scan, and at most 100 scans. The search for markers
is written in C.

Outcome: The JPEG is rejected before any allocation. A JPEG within the limits costs as much as a valid image of the same
size, plus the time to read its bytes. Missing data is an error, and is never returned as gray pixels.
"""

import pytest

from support.forged import frame, parts, reframed, segment
from support.images import cmyk, jpeg, noise

SMALL = jpeg(noise(16, 16), subsampling=0)
BEFORE, FRAME, AFTER = parts(SMALL)
SCAN = AFTER[AFTER.index(b"\xff\xda") :]
TOO_LARGE = {
    "65500 x 65500": (65500, 65500, "BAD_DIMENSIONS"),
    "20000 x 20000": (20000, 20000, "BAD_DIMENSIONS"),
    "65535 x 1": (65535, 1, "BAD_DIMENSIONS"),
    "16385 x 16": (16385, 16, "BAD_DIMENSIONS"),
    "16384 x 16384": (16384, 16384, "TOO_MANY_PIXELS"),
    "7072 x 7072": (7072, 7072, "TOO_MANY_PIXELS"),
    "0 x 16": (0, 16, "BAD_DIMENSIONS"),
    "16 x 0": (16, 0, "BAD_DIMENSIONS"),
}


@pytest.mark.parametrize("size", TOO_LARGE)
@pytest.mark.parametrize("marker", [0xC0, 0xC1, 0xC2, 0xC9, 0xCA], ids=hex)
@pytest.mark.parametrize("components", [1, 3, 4])
def test_a_size_above_the_limits_is_rejected_from_the_header(measure, size, marker, components):
    height, width, reason = TOO_LARGE[size]
    measure(reframed(frame(height, width, components, marker=marker), progressive=marker in (0xC2, 0xCA))).within(
        reason, mib=2, seconds=0.05
    )


BROKEN = {
    **{f"{count} components": reframed(frame(16, 16, count)) for count in (0, 1, 2, 5, 16, 255)},
    **{f"sampling {s:02x}": reframed(frame(7071, 7071, sampling=s)) for s in (0x00, 0x10, 0x01, 0x44, 0xFF, 0x33)},
    "a larger frame after": BEFORE + FRAME + frame(65500, 65500) + AFTER,
    "a larger frame before": BEFORE + frame(65500, 65500) + FRAME + AFTER,
    "a frame after the scan": BEFORE + FRAME + AFTER[:-2] + frame(65500, 65500) + SCAN,
    "a scan before the frame": BEFORE + SCAN[:-2] + FRAME + AFTER,
    "no frame": BEFORE + AFTER,
    "no scan": BEFORE + FRAME + b"\xff\xd9",
    "no tables": b"\xff\xd8" + FRAME + SCAN,
    "a height after the scan": BEFORE + frame(0, 16) + AFTER[:-2] + segment(0xDC, b"\0\x10") + b"\xff\xd9",
    "a short frame": BEFORE + segment(0xC0, FRAME[4:10]) + AFTER,
    "a frame of two bytes": BEFORE + b"\xff\xc0\0\x02" + AFTER,
    "a frame of no bytes": BEFORE + b"\xff\xc0\0\0" + AFTER,
    "a frame beyond the file": BEFORE + b"\xff\xc0\xff\xff",
    "Huffman tables of 4,000 codes": b"\xff\xd8" + segment(0xC4, bytes([0] + [255] * 16) + bytes(4080)) + SMALL[2:],
    "12 bits": reframed(frame(16, 16, precision=12)),
    "no bits": reframed(frame(16, 16, precision=0)),
    "lossless": reframed(frame(16, 16, marker=0xC3)),
    "arithmetic": reframed(frame(16, 16, marker=0xC9)),
    "hierarchical": reframed(frame(16, 16, marker=0xC5)),
    "CMYK of 50 megapixels": parts(cmyk())[0] + frame(7071, 7071, 4) + parts(cmyk())[2],
}


@pytest.mark.parametrize("name", BROKEN)
def test_an_invalid_header_is_rejected(measure, name):
    measure(BROKEN[name]).within("CORRUPT", "UNSUPPORTED", "BAD_DIMENSIONS", "TRUNCATED", mib=16, seconds=0.5)


@pytest.mark.parametrize("size", [(7071, 7071), (16384, 3051)], ids=str)
@pytest.mark.parametrize("is_progressive", [False, True])
def test_a_header_within_the_limits_with_little_data_is_rejected_in_the_memory_of_its_size(
    measure, size, is_progressive
):
    marker = 0xC2 if is_progressive else 0xC0
    measure(reframed(frame(*size, marker=marker), progressive=is_progressive)).within(
        "CORRUPT", "TRUNCATED", mib=600, seconds=1.5
    )


def test_the_unmodified_image_is_decoded(measure):
    assert measure(SMALL).text == "ok"
    assert measure(BEFORE + frame(16, 16) + AFTER).text == "ok"


TABLES, _, REST = parts(jpeg(noise(16, 16), progressive=True))
SCANS = REST[: REST.index(b"\xff\xda")] + segment(0xDA, b"\3\1\0\2\0\3\0\0\0\1") + bytes(10)
REFINEMENT = segment(0xDA, b"\1\1\0\1\x3f\1") + b"\0"
PROGRESSIVE = TABLES + frame(7071, 7071, marker=0xC2) + SCANS

FLOODS = {
    "101 scans": PROGRESSIVE + REFINEMENT * 101,
    "2,000 scans": PROGRESSIVE + REFINEMENT * 2_000,
    "200,000 scans": PROGRESSIVE + REFINEMENT * 200_000,
    "5,000 segments": b"\xff\xd8" + segment(0xE2, b"x") * 5_000 + SMALL[2:],
    "20 MB of empty segments": b"\xff\xd8" + segment(0xFE, b"") * 5_000_000 + SMALL[2:],
    **{
        f"20 MB of {filler.hex(' ')}": b"\xff\xd8\xff\xe0\0\2" + filler * (20_000_000 // len(filler))
        for filler in (b"\0", b"\xff", b"\xff\xd0", b"\xff\x00", b"\xff\xe0\0\2", b"\xff\xd8")
    },
}
HARMLESS = {
    "20 MB of fill bytes": b"\xff\xd8" + b"\xff" * 20_000_000 + SMALL[2:],
    "18 MB of restart markers": BEFORE + FRAME + AFTER[:-2] + b"\xff\xd0" * 9_000_000 + b"\xff\xd9",
    "16 MB of comments": b"\xff\xd8" + segment(0xFE, bytes(65_000)) * 250 + SMALL[2:],
    "an honest progressive one": jpeg(noise(16, 16), progressive=True),
}


@pytest.mark.parametrize("flood", FLOODS)
def test_a_flood_of_markers_is_rejected_quickly(measure, flood):
    measure(FLOODS[flood]).within("TOO_MANY_SCANS", "UNSUPPORTED", "CORRUPT", "TRUNCATED", mib=8, seconds=0.5)


@pytest.mark.parametrize("flood", HARMLESS)
def test_data_that_libjpeg_skips_costs_only_reading(measure, flood):
    measure(HARMLESS[flood]).within("ok", mib=16, seconds=1)
