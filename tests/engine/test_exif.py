"""Tests that the EXIF orientation is read like Pillow reads it, for every type, position and damage of the tag."""

import struct
import warnings

import numpy as np
import pytest
from PIL import Image, ImageOps

from pixprep.engine.decoders.exif import exif_orientation, with_plain_exif
from pixprep.engine.decoders.header import read_jpeg_header, read_whole_header
from pixprep.engine.decoders.structure import structures
from support.compare import EQUAL, assert_close
from support.decoding import decode
from support.images import cmyk, jpeg, read, save, scene

ORIENTATION = 0x0112
TYPES = {1: "B", 2: "B", 3: "H", 4: "I", 5: "II", 6: "b", 7: "B", 8: "h", 9: "i", 10: "ii", 11: "f", 12: "d", 13: "I"}
TYPES |= {16: "Q"}  # only in BigTIFF
NAME = b"Exif\0\0"


def block(*entries, order="<", mark=None, at=8, declared=None, behind=b""):
    """Return EXIF data with one directory of entries (tag, type, count, value).

    A value of more than 4 bytes is stored after the directory.
    """
    head = (mark or {"<": b"II*\0", ">": b"MM\0*"}[order]) + struct.pack(order + "I", at)
    packed, values = b"", behind
    end = at + 2 + 12 * len(entries) + 4
    for tag, type_, count, value in entries:
        if len(value) > 4:
            field, values = struct.pack(order + "I", end + len(values)), values + value
        else:
            field = value.ljust(4, b"\0")
        packed += struct.pack(order + "HHI", tag, type_, count) + field
    directory = struct.pack(order + "H", len(entries) if declared is None else declared) + packed + bytes(4)
    return NAME + head + bytes(at - 8) + directory + values


def tag(type_, *numbers, order="<", count=None):
    """Return a directory entry that contains an orientation."""
    fields = TYPES[type_]
    numbers = [number for each in numbers for number in ((each, 1) if len(fields) == 2 else (each,))]
    value = struct.pack(order + fields[0] * len(numbers), *numbers)
    return ORIENTATION, type_, len(numbers) // len(fields) if count is None else count, value


def short(value):
    return tag(3, value)


def other(count, offset=None, type_=1):
    """Return an entry with a different tag, whose values are stored at ``offset``."""
    value = b"" if offset is None else struct.pack("<I", offset)
    return 0x0110, type_, count, value


BLOCKS = {
    **{
        f"type {type_}, {value}, {order}": block(tag(type_, value, order=order), order=order)
        for type_ in TYPES
        for value in (1, 3, 6, 8, 9, 100)
        for order in "<>"
    },
    **{f"type {type_}, two numbers": block(tag(type_, 6, 3)) for type_ in TYPES},
    **{f"type {type_}, three numbers": block(tag(type_, 8, 1, 6), order="<") for type_ in TYPES},
    **{f"type {type_}, count 0": block(tag(type_, 6, count=0)) for type_ in TYPES},
    **{f"type {type_}, count 0, then 3": block(tag(type_, 6, count=0), short(3)) for type_ in TYPES},
    **{f"type {type_}, count 2^31": block(tag(type_, 6, count=1 << 31), short(3)) for type_ in TYPES},
    **{f"type {type_}, then 3": block(tag(type_, 6), short(3)) for type_ in TYPES},
    "types that there are not": block(*((ORIENTATION, type_, 1, b"\6") for type_ in (0, 14, 99))),
    "a type that there is not, then 6": block((ORIENTATION, 14, 1, b"\3"), short(6)),
    **{f"{mark}": block(short(6), order="<" if mark[:1] == b"I" else ">", mark=mark)
       for mark in (b"II*\0", b"II\0*", b"MM\0*", b"MM*\0", b"II+\0", b"MM\0+", b"XX*\0", b"II\0\0", bytes(4))},
    "big endian": block(tag(3, 6, order=">"), order=">"),
    "twice": block(short(6), short(3)),
    "negative": block(tag(9, -6)),
    "a half": block(tag(11, 6.5)),
    "not a number": block(tag(12, float("nan"))),
    "infinite": block(tag(12, float("inf"))),
    "a fraction that is whole": block((ORIENTATION, 5, 1, struct.pack("<II", 12, 2))),
    "a fraction that is not": block((ORIENTATION, 5, 1, struct.pack("<II", 13, 2))),
    "a fraction nearly whole": block((ORIENTATION, 5, 1, struct.pack("<II", 0xFFFFFFFF, 0x2AAAAAAA))),
    "a fraction over 0": block((ORIENTATION, 5, 1, struct.pack("<II", 6, 0))),
    "a negative fraction": block((ORIENTATION, 10, 1, struct.pack("<ii", -12, -2))),
    "behind 600 others": block(*((1000 + i, 3, 1, b"\1\0") for i in range(600)), short(6)),
    "behind 600 of the same": block(*[other(1)] * 600, short(6)),
    "behind a value that lies outside": block(other(8, 1 << 20), short(6)),
    "behind a value that ends outside": block(other(20, 30), short(6)),
    "behind a value longer than the data": block(other(5000, 8), short(6)),
    "behind values longer than the data together": block(
        other(20, 8), (0x0131, 2, 20, struct.pack("<I", 8)), (0x013B, 2, 20, struct.pack("<I", 8)), short(6)
    ),
    "itself longer than the data, behind another": block((0x0131, 2, 50, struct.pack("<I", 8)), tag(12, 6)),
    "as long as the data allows": block((0x0131, 2, 20, bytes(20)), tag(12, 6)),
    "values at 0": block((ORIENTATION, 3, 3, b"\0")),
    "before the directory ends early": block(short(6), declared=9),
    "behind where the directory ends": block(other(1), short(6), declared=1),
    "in a later place": block(short(6), at=100),
    "in no place": NAME + b"II*\0\xff\xff\xff\xff" + bytes(40),
    "the directory is cut": block(other(1), short(6))[:-12],
    "the count is cut": block(short(6))[:15],
    "the head is cut": block(short(6))[:12],
    "named twice": NAME + block(short(6)),
    "named three times": 2 * NAME + block(short(6)),
    "nothing": NAME,
}  # fmt: skip
FORMATS = {
    "JPEG": lambda image, exif: save(image, "JPEG", exif=exif, quality=95, subsampling=0),
    "PNG": lambda image, exif: save(image, "PNG", exif=exif),
    "WEBP": lambda image, exif: save(image, "WEBP", exif=exif, lossless=True),
}


def pillow_orientation(exif):
    """Return the orientation that Pillow reads. If Pillow rejects the EXIF data, return the orientation of an image
    without EXIF data.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            read_ = Image.Exif()
            read_.load(exif)
            value = read_.get(ORIENTATION, 1)
            return next((turn for turn in range(2, 9) if value == turn), 1)
        except (SyntaxError, struct.error):
            return 1


def oriented_pixels(encoded):
    """Return Pillow's pixels, rotated by ``exif_transpose`` unless it rejects the EXIF data."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        image = read(encoded)
        try:
            image = ImageOps.exif_transpose(image)
        except (SyntaxError, struct.error):
            image = read(encoded)
    return np.asarray(image.convert("RGB"))


@pytest.mark.parametrize("name", BLOCKS)
def test_the_orientation_equals_pillows(name):
    assert exif_orientation(BLOCKS[name]) == pillow_orientation(BLOCKS[name])


def test_the_table_contains_every_kind_of_rotation():
    """The table detects a parser that finds no orientation, or that returns the first number that it encounters."""
    turns = [pillow_orientation(each) for each in BLOCKS.values()]
    assert {1, 3, 6, 8} <= set(turns)
    assert 60 < sum(turn > 1 for turn in turns) < len(turns) - 60


@pytest.mark.parametrize("format_name", FORMATS)
def test_oriented_pixels_equal_pillow_in_each_format(format_name):
    image = Image.fromarray(scene(9, 14))
    turned = 0
    for exif in BLOCKS.values():
        encoded = FORMATS[format_name](image, exif)
        expected = oriented_pixels(encoded)
        assert_close(decode(encoded), expected, EQUAL)
        turned += expected.shape != (9, 14, 3)
    assert turned > 40


@pytest.mark.parametrize("type_", [3, 4, 8, 9, 1])
def test_an_oriented_tiff_equals_pillow(type_):
    encoded = save(Image.fromarray(scene(9, 14)), "TIFF", exif=block(short(6))[6:])
    packed = struct.pack("<HHI", ORIENTATION, 3, 1)
    assert encoded.count(packed) == 1
    encoded = encoded.replace(packed, struct.pack("<HHI", ORIENTATION, type_, 1))
    assert_close(decode(encoded), oriented_pixels(encoded), EQUAL)


def with_segments(encoded, *exif):
    """Return a JPEG that begins with the given EXIF segments."""
    return encoded[:2] + b"".join(b"\xff\xe1" + struct.pack(">H", len(e) + 2) + e for e in exif) + encoded[2:]


ACROSS = block(other(1), short(6))
SEGMENTS = {
    "the first says it": [block(short(6)), block(short(3))],
    "the second says it": [block(other(1)), block(short(3))],
    "the directory lies in both": [ACROSS[:30], NAME + ACROSS[30:]],
    "the directory lies in the third": [ACROSS[:14], NAME, NAME + ACROSS[14:]],
    "its value lies in the second": [block(tag(12, 6))[:-8], NAME + struct.pack("<d", 8)],
    "the first is no EXIF data": [NAME + b"junk", block(short(3))],
    "the first is only a name": [NAME, block(short(3))],
    "300 of them": [block(short(8))] * 300,
}


@pytest.mark.parametrize("name", SEGMENTS)
@pytest.mark.parametrize("encoded", [jpeg(scene(9, 14), subsampling=0), cmyk()], ids=["RGB", "CMYK"])
def test_several_exif_segments_of_a_jpeg_are_joined_as_in_pillow(name, encoded):
    encoded = with_segments(encoded, *SEGMENTS[name])
    assert_close(decode(encoded), oriented_pixels(encoded), EQUAL)


def test_the_header_and_the_pixels_of_a_jpeg_agree():
    turns = {read_jpeg_header(with_segments(cmyk(), *exif)).orientation for exif in SEGMENTS.values()}
    assert turns == {1, 3, 6, 8}


@pytest.mark.parametrize("encoded", [jpeg(scene(9, 14), subsampling=0), cmyk()], ids=["RGB", "CMYK"])
def test_other_decoders_receive_the_orientation_as_a_plain_exif_segment(encoded):
    for exif in ([], *SEGMENTS.values()):
        odd = with_segments(encoded, *exif)
        header = read_jpeg_header(odd)
        plain = with_plain_exif(odd, orientation=header.orientation, scan=header.scan)
        assert plain.count(NAME) == 1
        assert read_jpeg_header(plain).orientation == read_jpeg_header(odd).orientation
        assert_close(oriented_pixels(plain), oriented_pixels(odd), EQUAL)
        assert plain.endswith(encoded[2:])


def test_a_gpu_decodes_no_jpeg_that_its_decoder_would_rotate_differently():
    """nvImageCodec 0.9 interprets 125 of the EXIF blocks differently than Pillow.

    The files that pixprep passes to nvImageCodec are rotated as in Pillow.
    """
    nvimgcodec = pytest.importorskip("nvidia.nvimgcodec", reason="NO NVIMGCODEC: pip install nvidia-nvimgcodec-cu12")
    decoder = nvimgcodec.Decoder(
        device_id=nvimgcodec.NVIMGCODEC_DEVICE_CPU_ONLY, backends=[nvimgcodec.Backend(nvimgcodec.CPU_ONLY)]
    )
    images = [FORMATS["JPEG"](Image.fromarray(scene(9, 14)), exif) for exif in BLOCKS.values()]
    given = 0
    for encoded in images:
        (structure,) = structures([np.frombuffer(encoded, np.uint8)])
        if structure is None or read_whole_header(memoryview(encoded), structure) is None:
            continue
        given += 1
        theirs = np.asarray(decoder.decode(nvimgcodec.CodeStream(encoded)).cpu())
        ours = oriented_pixels(encoded)
        assert theirs.shape == ours.shape
        assert np.abs(theirs.astype(int) - ours).max() < 3  # the two decoders round differently
    assert 15 < given < len(images)


def test_random_exif_directories_are_parsed_like_pillow():
    """About 200 of the 2,000 directories contain a rotation."""
    numbers = np.random.default_rng(0)
    found = []
    for _ in range(2000):
        order = "<>"[numbers.integers(2)]
        entries = []
        for _ in range(numbers.integers(1, 6)):
            known = numbers.random() < 0.9
            type_ = int(numbers.choice(list(TYPES)) if known else numbers.integers(0, 20))
            count = int(numbers.choice([0, 1, 1, 1, 1, 2, 3, 5, 40, 1 << 30]))
            value = struct.pack(order + TYPES.get(type_, "I")[0], int(numbers.integers(0, 10)))
            if numbers.random() < 0.3:
                value = struct.pack(order + "I", int(numbers.integers(0, 120)))
            entries.append((int(numbers.choice([ORIENTATION, 0x0110, 0x0111])), type_, count, value))
        exif = block(*entries, order=order, behind=bytes(numbers.integers(0, 9, numbers.integers(0, 80), np.uint8)))
        found.append((exif_orientation(exif), pillow_orientation(exif), exif))
    assert [exif for ours, theirs, exif in found if ours != theirs] == []
    assert sum(theirs > 1 for _, theirs, _ in found) > 150
