"""Attack: AVIF and HEIC files have malicious containers: small pictures with large data around them, grids of a
thousand tiles, grids that contain other grids or themselves, overlapping items, and endless tables.

Defence: The container is parsed in few steps. The sizes of its bitstreams are compared with the container's size and
with the limits. The library then receives a file that contains only the primary picture.

Outcome: The file is rejected quickly, and the memory used is at most that of the data that was read. Both formats are
disabled by default.
"""

import struct

import pytest
from PIL import features

from support.heif import AV1C, box, file, full, grid, ispe, obu, sequence
from support.images import heif_library, noise, stills

needs_avif = pytest.mark.skipif(not features.check("avif"), reason="NO AVIF: this Pillow does not support it")
needs_heic = pytest.mark.skipif(heif_library() is None, reason="NO PILLOW-HEIF: HEIC was not attacked")
FRAME = obu(6, noise(16, 16).tobytes())
SMALL = sequence(64, 64) + FRAME
ALPHA = full(b"auxC", b"urn:mpeg:mpegB:cicp:systems:auxiliary:alpha\0")


def item(height, width, data=SMALL, **options):
    return file([(b"av01", data, [AV1C, ispe(height, width)])], **options)


def tiles(rows, columns, *, side=64, data=SMALL):
    """Return a grid in which all tiles are the same picture."""
    count, height, width = rows * columns, rows * side, columns * side
    items = [(b"grid", grid(rows, columns, height, width), [ispe(height, width)])]
    items += [(b"av01", data if index == 0 else 2, [AV1C, ispe(side, side)]) for index in range(count)]
    properties = struct.pack(">I", count + 1) + b"\0\1\1\x81"
    properties += b"".join(struct.pack(">HBBB", number, 2, 0x82, 0x83) for number in range(2, count + 2))
    return file(items, references=[(b"dimg", 1, range(2, count + 2))], ipma=full(b"ipma", properties))


def items_of(count, size):
    return full(b"iloc", struct.pack(">HH", 0, count), (struct.pack(">HHH", 1, 0, 65535)) * size)


AVIF = {
    "of no pixels": (item(0, 0), "BAD_DIMENSIONS"),
    "of 2^32 pixels a side": (item(2**32 - 1, 2**32 - 1), "BAD_DIMENSIONS"),
    "over the limit": (item(7072, 7072), "TOO_MANY_PIXELS"),
    "of 7071 pixels around 64": (item(7071, 7071), "CORRUPT"),
    "of 16 pixels around 65536": (item(16, 16, sequence(65536, 65536) + FRAME), "CORRUPT"),
    "of 16 pixels whose second header says 65536": (
        item(16, 16, sequence(16, 16) + FRAME + sequence(65536, 65536) + FRAME),
        "CORRUPT",
    ),
    "of 16 pixels whose frames may say 65536": (
        item(16, 16, sequence(16, 16, own_size_bits=16) + FRAME),
        "TOO_MANY_PIXELS",
    ),
    "of a million units": (item(64, 64, sequence(64, 64) + obu(15, b"") * 1_000_000), "CORRUPT"),
    "of a thousand frames": (item(64, 64, sequence(64, 64) + FRAME * 1000), "CORRUPT"),
    "without a sequence header": (item(64, 64, FRAME), "CORRUPT"),
    "with a unit over its end": (item(64, 64, sequence(64, 64) + b"\x32\xff\xff\xff\xff\xff\xff\xff\x7f"), "CORRUPT"),
    "of 65,536 tiles": (tiles(4, 4).replace(grid(4, 4, 256, 256), grid(256, 256, 256, 256)), "UNSUPPORTED"),
    "of 1,000 tiles of one megabyte": (
        tiles(25, 40, data=sequence(64, 64) + obu(15, bytes(1 << 20)) + FRAME),
        "TOO_LARGE_BYTES",
    ),
    "of tiles over the limit": (
        tiles(4, 4, side=4000, data=sequence(4000, 4000) + FRAME).replace(ispe(16000, 16000), ispe(7000, 7000))
        .replace(grid(4, 4, 16000, 16000), grid(4, 4, 7000, 7000)),
        "TOO_MANY_PIXELS",
    ),
    "of tiles whose frames may say 65536": (
        tiles(4, 4, data=sequence(64, 64, own_size_bits=12) + FRAME),
        "TOO_MANY_PIXELS",
    ),
    "of 64 pixels whose alpha has 8000": (
        file(
            [
                (b"av01", SMALL, [AV1C, ispe(64, 64)]),
                (b"av01", sequence(8000, 8000) + FRAME, [AV1C, ispe(8000, 8000), ALPHA]),
            ],
            references=[(b"auxl", 2, [1])],
        ),
        "TOO_MANY_PIXELS",
    ),
    "that is a tile of itself": (
        file([(b"grid", grid(1, 1, 64, 64), [ispe(64, 64)])], references=[(b"dimg", 1, [1])]),
        "UNSUPPORTED",
    ),
    "whose tiles are grids": (
        file(
            [(b"grid", grid(1, 1, 64, 64), [ispe(64, 64)]), (b"grid", grid(1, 1, 64, 64), [ispe(64, 64)])],
            references=[(b"dimg", 1, [2]), (b"dimg", 2, [1])],
        ),
        "UNSUPPORTED",
    ),
    "of a grid without tiles": (file([(b"grid", grid(2, 2, 64, 64), [ispe(64, 64)])]), "CORRUPT"),
    "with 65,535 items of 65,535 extents without a size": (item(64, 64, iloc=items_of(65535, 1)), "CORRUPT"),
    "with a million extents": (item(64, 64, iloc=items_of(4000, 4000)), "CORRUPT"),
    "with 2^32 properties": (item(64, 64, ipma=full(b"ipma", b"\xff" * 4, bytes(1 << 20))), "CORRUPT"),
    "with a million names": (
        item(64, 64, iinf=full(b"iinf", b"\xff\xff", full(b"infe", bytes(8)) * 1_000_000)),
        "CORRUPT",
    ),
    "with a million references": (
        item(64, 64, iref=full(b"iref", box(b"auxl", b"\0\1\x10\0", b"\0\1" * 4096) * 250)),
        "CORRUPT",
    ),
    "of two million boxes": (item(64, 64, behind=box(b"free") * 2_000_000), "CORRUPT"),
    "of boxes of no size": (item(64, 64)[:24] + b"\0\0\0\1meta" + bytes(8) + item(64, 64)[24:], "CORRUPT"),
    "that begins with a box to the end": (b"\0\0\0\0ftypavif", "UNKNOWN_FORMAT"),
}  # fmt: skip


@needs_avif
@pytest.mark.parametrize("name", AVIF)
def test_a_lying_avif_is_rejected(measure, name):
    encoded, reason = AVIF[name]
    measure(encoded).within(reason, mib=64, seconds=0.5)


@needs_avif
@pytest.mark.parametrize("encoded", [item(64, 64), tiles(10, 10)], ids=["one", "100 tiles"])
def test_noise_costs_as_much_as_its_pixels(measure, encoded):
    """AV1 has no checksum, so most random bits decode to a picture."""
    measure(encoded).within("ok", "CORRUPT", mib=64, seconds=0.5)


def hvcc(*units, count=None):
    arrays = b"".join(b"\x21" + struct.pack(">HH", 1, len(unit)) + unit for unit in units)
    return box(b"hvcC", b"\1" + bytes(20) + b"\3", bytes([len(units) if count is None else count]), arrays)


def heic(height, width, configuration, data=b"\0\0\0\4\x26\1\xaf\0"):
    return file([(b"hvc1", data, [configuration, ispe(height, width)])], brand=b"heic")


def configuration():
    """Return the configuration box of a real file of 48 x 64 pixels, without its last block."""
    encoded = stills()["heic china"]
    begin = encoded.index(b"hvcC") - 4
    return encoded[begin : begin + int.from_bytes(encoded[begin : begin + 4], "big")]


HEIC = {
    "of noise": (lambda: heic(428, 640, configuration()), "CORRUPT"),
    "of 7071 pixels around 428": (lambda: heic(7071, 7071, configuration()), "CORRUPT"),
    "of 16 pixels around 640": (lambda: heic(16, 16, configuration()), "CORRUPT"),
    "of two pictures": (lambda: heic(428, 640, configuration(), b"\0\0\0\4\x26\1\xaf\0" * 2), "CORRUPT"),
    "of a million slices": (lambda: heic(428, 640, configuration(), b"\0\0\0\3\x26\1\x2f" * 1_000_000), "CORRUPT"),
    "without parameters": (lambda: heic(64, 64, hvcc()), "CORRUPT"),
    "of 65,535 parameters": (
        lambda: heic(64, 64, box(b"hvcC", bytes(22), b"\1\x21\xff\xff", bytes(1 << 20))),
        "CORRUPT",
    ),
    "of parameters of zeros": (lambda: heic(64, 64, hvcc(b"\x42\1" + bytes(100))), "CORRUPT"),
    "of parameters that end early": (lambda: heic(64, 64, hvcc(b"\x42\1\1\1", count=255)), "CORRUPT"),
}  # fmt: skip


@needs_heic
@pytest.mark.parametrize("name", HEIC)
def test_a_lying_heic_is_rejected(measure, name):
    encoded, reason = HEIC[name]
    measure(encoded()).within(reason, mib=64, seconds=0.5)


@pytest.mark.parametrize(
    "name", [name for name in stills() if name.split()[-1] in ("china", "alpha", "animated", "tiles")]
)
def test_unmodified_files_of_both_formats_are_decoded(measure, name):
    measure(stills()[name]).within("ok", mib=32)
