"""Tests that unusual images are decoded like Pillow decodes them, and tests the message of every rejection."""

import io
import struct
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageOps
from PIL.PngImagePlugin import PngInfo

from pixprep.engine.decoders import USUAL, Limits
from pixprep.engine.decoders.header import declared_pixels, read_jpeg_header, sniff
from pixprep.engine.decoders.images import CpuDecoder
from pixprep.errors import REASONS, ImageError
from support.compare import EQUAL, assert_close
from support.decoding import PLAN, decode
from support.images import (
    JUNK,
    NO_IMAGE,
    expected_pixels,
    jpeg,
    jpegs,
    noise,
    others,
    photo,
    png,
    read,
    save,
    scene,
    with_exif,
)
from support.sampled import SAMPLINGS, repeated, sampled

ALL = {**jpegs(), **others()}


def luma(encoded):
    """Return Pillow's gray image of the luma plane, with the orientation applied."""
    image = Image.open(io.BytesIO(encoded))
    image.draft("L", image.size)
    return np.atleast_3d(np.asarray(ImageOps.exif_transpose(image).convert("L")))


def imagemagick(orientation):
    """Return a PNG that contains EXIF data as hexadecimal text, like ImageMagick writes them."""
    exif = Image.Exif()
    exif[0x0112] = orientation
    digits = (b"Exif\0\0" + exif.tobytes().removeprefix(b"Exif\0\0")).hex()
    return with_text(f"\nexif\n{len(digits) // 2:8}\n{digits[:72]}\n{digits[72:]}\n")


def with_text(words):
    text = PngInfo()
    text.add_text("Raw profile type exif", words, zip=True)
    return save(Image.fromarray(scene(24, 40)), "PNG", pnginfo=text)


TURNED = {
    f"{orientation}, {order}, {size}": (orientation, with_exif(orientation, order=order, size=size))
    for orientation in range(1, 9)
    for order in ("little", "big")
    for size in ((24, 40), (1, 9), (9, 1), (1, 1))
}
TURNED |= {
    f"{orientation}, {format_name}": (orientation, with_exif(orientation, format_name=format_name))
    for orientation in (1, 3, 6, 8)
    for format_name in ("PNG", "WEBP", "TIFF")
}
TURNED |= {f"{orientation} makes no sense": (1, with_exif(orientation)) for orientation in (0, 9, 255, 65535)}
TURNED |= {f"{orientation}, by ImageMagick": (orientation, imagemagick(orientation)) for orientation in (1, 6)}


@pytest.mark.parametrize("name", ALL)
def test_pixels_equal_pillow_in_colour_and_gray(name):
    encoded = ALL[name]
    assert_close(decode(encoded), expected_pixels(encoded), EQUAL)
    gray = luma(encoded) if name in jpegs() else expected_pixels(encoded, gray=True)
    assert_close(decode(encoded, is_gray=True), gray, EQUAL)


@pytest.mark.parametrize("name", TURNED)
def test_the_exif_orientation_is_applied(name):
    orientation, encoded = TURNED[name]
    # Pillow has already rotated this image
    stored = read(encoded) if "TIFF" not in name else ImageOps.exif_transpose(read(encoded))
    height, width = stored.height, stored.width
    pixels = decode(encoded)
    assert_close(pixels, expected_pixels(encoded), EQUAL)
    assert pixels.shape[:2] == ((width, height) if orientation > 4 and "TIFF" not in name else (height, width))
    assert_close(decode(encoded, apply_exif_orientation=False), expected_pixels(encoded, upright=False), EQUAL)
    if sniff(encoded) == "jpeg":
        assert_close(decode(encoded, is_gray=True), luma(encoded), EQUAL)
        assert read_jpeg_header(encoded).orientation == orientation


def test_chroma_of_every_sampling_is_repeated_or_rejected_if_pillow_would_interpolate():
    found = Counter()
    for factors in SAMPLINGS:
        encoded, expected = sampled(factors), repeated(factors)
        fast = decode(encoded, chroma="fast")
        if expected is None:
            assert isinstance(fast, ImageError)
            assert decode(encoded).reason == "CORRUPT"
            found["not read"] += 1
        elif isinstance(fast, ImageError):
            words = ", ".join(f"{h} x {v}" for h, v in factors)
            assert str(fast) == (
                f'[UNSUPPORTED] a JPEG with the sampling factors {words} is not supported with "chroma": "fast"'
            )
            assert not np.array_equal(expected_pixels(encoded), expected), factors
            assert_close(decode(encoded), expected_pixels(encoded), EQUAL)
            assert_close(decode(encoded, chroma="fast", is_gray=True), luma(encoded), EQUAL)
            found["refused"] += 1
        else:
            assert_close(fast, expected, EQUAL)
            found["repeated"] += 1
    assert found == {"not read": 122, "refused": 79, "repeated": 85}


@pytest.mark.parametrize("buffer", [bytes, bytearray, memoryview, lambda b: memoryview(bytearray(b))])
def test_any_bytes_like_buffer_is_accepted(buffer):
    for name in ("baseline", "cmyk", "png"):
        assert_close(decode(buffer(ALL[name])), expected_pixels(ALL[name]), EQUAL)


def test_a_bmp_with_zero_alpha_everywhere_is_opaque():
    header = struct.pack("<IiiHHIIiiII", 108, 9, 6, 1, 32, 3, 0, 0, 0, 0, 0)
    header += struct.pack("<4I", 0xFF0000, 0xFF00, 0xFF, 0xFF000000) + bytes(52)
    pixels = scene(6, 9)
    for alpha in (0, 255):
        rows = np.dstack([pixels[::-1, :, ::-1], np.full((6, 9), alpha, np.uint8)]).tobytes()
        encoded = b"BM" + struct.pack("<IHHI", 14 + len(header) + len(rows), 0, 0, 14 + len(header)) + header + rows
        assert read(encoded).mode == "RGBA"
        assert_close(decode(encoded, alpha="white"), pixels, EQUAL)
    some = bytearray(encoded)
    some[-1] = 0  # alpha of the top right pixel
    assert decode(bytes(some), alpha="white")[0, 8].tolist() == [255, 255, 255]
    assert decode(bytes(some), alpha="checkerboard")[0, 8].tolist() == [153, 153, 153]


def test_images_never_share_a_buffer():
    encoded = jpeg(noise(24, 24))
    decoder = CpuDecoder(PLAN, Limits())
    with decoder.decoded(encoded):
        pass
    with decoder.decoded(encoded) as one, decoder.decoded(encoded) as other:
        assert not np.shares_memory(one.pixels, other.pixels)


@pytest.mark.parametrize("name", [name for name in jpegs() if name != "comment"])
def test_the_parsed_jpeg_header_agrees_with_pillow(name):
    header, image = read_jpeg_header(ALL[name]), read(ALL[name])
    assert (header.height, header.width) == (image.height, image.width)
    assert header.components == len(image.getbands())
    assert (header.frame == 0xC2) == ("progressive" in image.info)


def test_a_marker_inside_a_comment_is_ignored():
    header = read_jpeg_header(ALL["comment"])
    assert (header.height, header.width, header.frame) == (37, 53, 0xC0)


# rejected files


def reframed(start, new):
    """Return a JPEG of 48 x 64 pixels with changed bytes in its frame header."""
    encoded = jpeg(scene(48, 64))
    frame = encoded.index(b"\xff\xc0")
    return encoded[: frame + start] + new + encoded[frame + start + len(new) :]


def scans(count, between=b""):
    """Return a progressive JPEG of 10 scans in which the last scan is repeated."""
    encoded = save(Image.fromarray(scene(48, 64)), "JPEG", progressive=True)
    start, end = encoded.rindex(b"\xff\xda"), encoded.rindex(b"\xff\xd9")
    return encoded[:end] + (between + encoded[start:end]) * (count - 10) + b"\xff\xd9"


def tiff(*directories):
    """Return a little-endian TIFF that consists only of directories. Each entry is (tag, type, count, value)."""
    encoded = b"II*\0" + struct.pack("<I", 8)
    for entries in directories:
        packed = b"".join(struct.pack("<HHII", *entry) for entry in entries)
        encoded += struct.pack("<H", len(entries)) + packed + bytes(4)
    return encoded + bytes(1000)


def animated(format_name):
    frames = [Image.fromarray(scene(20, 31, seed)) for seed in range(3)]
    return save(frames[0], format_name, save_all=True, append_images=frames[1:])


def with_segments(*segments):
    """Return a CMYK JPEG, which Pillow decodes, with the given segments before its own."""
    return ALL["cmyk"][:2] + b"".join(segments) + ALL["cmyk"][2:]


OVERLAPPING = [(1000 + index, 1, 600, 8) for index in range(2)]
SIZES = [(256, 3, 1, 16), (257, 3, 1, 16), (258, 3, 1, 8), (259, 3, 1, 8), (262, 3, 1, 1), (277, 3, 1, 1)]
TILE = [(322, 4, 1, 16000), (323, 4, 1, 4000), (324, 4, 1, 200), (325, 4, 1, 10)]
EXIF = b"\xff\xe1\0\x0aExif\0\0II"
ONLY_LOSSY = "only lossy JPEGs with 8 bits per sample are supported"
# this file is valid, and is the reason why ``max_expansion`` has no default
BLANK = save(Image.new("1", (1240, 1754), 1), "PNG")

REJECTED = [
    # limits
    (photo(), {"max_image_bytes": 1000}, "TOO_LARGE_BYTES", "196,653 bytes; the limit is 1,000"),
    (
        photo(),
        {"max_side": 639},
        "BAD_DIMENSIONS",
        "427 x 640 pixels; height and width must be 1 to 639 (parameter max_side)",
    ),
    (photo(), {"max_pixels": 273_279}, "TOO_MANY_PIXELS", "427 x 640 pixels; the limit is 273,279"),
    (
        ALL["webp"],
        {"formats": ("jpeg", "png")},
        "UNSUPPORTED",
        "a WebP is not accepted (parameter formats: jpeg, png)",
    ),
    (BLANK, {"max_expansion": 1000}, "TOO_MANY_PIXELS", "1754 x 1240 pixels in "),
    (animated("GIF"), {"max_frames": 2}, "UNSUPPORTED", "more than 2 frames (parameter max_frames)"),
    (scans(10), {"max_scans": 9}, "TOO_MANY_SCANS", "a JPEG with more than 9 scans (parameter max_scans)"),
    (scans(110), {}, "TOO_MANY_SCANS", "a JPEG with more than 100 scans"),
    (
        scans(110, b"\xff\xfe\0\4\xff\xd9"),
        {},
        "TOO_MANY_SCANS",
        "a JPEG with more than 100 scans",
    ),  # an end marker inside a comment
    # junk
    (JUNK["no bytes"], {}, "EMPTY", "the image is empty"),
    (JUNK["text"], {}, "UNKNOWN_FORMAT", NO_IMAGE),
    (JUNK["jpeg magic only"], {}, "TRUNCATED", "the JPEG ends after 3 bytes, inside its header"),
    (JUNK["jpeg markers only"], {}, "CORRUPT", "the JPEG ends before its first scan"),
    (JUNK["jpeg and zeros"], {}, "TRUNCATED", "the JPEG ends after 4,099 bytes, inside its header"),
    (JUNK["png magic only"], {}, "CORRUPT", "the PNG is damaged, or of a kind that Pillow does not support"),
    (photo()[:100_000], {}, "TRUNCATED", "the JPEG ends after 100,000 bytes, before its last row (parameter damage)"),
    (photo()[:300], {}, "TRUNCATED", "the JPEG ends after 300 bytes, inside its header"),
    (png(noise(64, 64))[:5000], {}, "TRUNCATED", "the PNG ends after 5,000 bytes"),
    # formats that no decoder supports
    (reframed(1, b"\xc1\x00\x11\x0c"), {}, "UNSUPPORTED", f"a JPEG with 12 bits per sample; {ONLY_LOSSY}"),
    (reframed(1, b"\xc3"), {}, "UNSUPPORTED", f"a lossless JPEG; {ONLY_LOSSY}"),
    *(
        (reframed(9, bytes([n])), {}, "UNSUPPORTED", f"a JPEG with {n} components; only 1, 3 and 4 are supported")
        for n in (0, 2, 5, 16, 255)
    ),
    (
        reframed(5, b"\0\0"),
        {},
        "BAD_DIMENSIONS",
        "0 x 64 pixels; height and width must be 1 to 16384 (parameter max_side)",
    ),
    *((save(Image.new(mode, (5, 4)), "TIFF"), {}, "UNSUPPORTED", "32 bits per sample; at most 16") for mode in "IF"),
    # files whose decoding costs more than their size suggests
    (tiff(OVERLAPPING), {}, "CORRUPT", "the tags of the TIFF declare 1,200 bytes of values, but the file has 1,038"),
    (tiff([(34665, 4, 1, 26)], OVERLAPPING), {}, "CORRUPT", "the tags of the TIFF declare 1,204 bytes"),
    (tiff([(34665, 4, 1, 26 + n) for n in range(7)]), {}, "CORRUPT", "the TIFF is damaged"),
    (tiff([(34665, 4, 1, 26 + n) for n in range(8)]), {}, "CORRUPT", "the TIFF has 8 or more directories of EXIF tags"),
    (tiff(SIZES + TILE), {}, "TOO_MANY_PIXELS", "4000 x 16000 pixels; the limit is 50,000,000 (parameter max_pixels)"),
]


@pytest.mark.parametrize(("encoded", "limits", "reason", "words"), REJECTED, ids=[words for *_, words in REJECTED])
def test_rejections_have_the_expected_messages(encoded, limits, reason, words):
    error = decode(encoded, limits=Limits(**limits))
    assert isinstance(error, ImageError)
    assert str(error).startswith(f"[{reason}] {words}")


def test_the_header_determines_the_number_of_pixels():
    pixels = Image.fromarray(scene(41, 300))
    files = {name: save(pixels, name.upper()) for name in ("png", "gif", "bmp", "webp")}
    assert {name: declared_pixels(memoryview(file), name) for name, file in files.items()} == dict.fromkeys(
        files, 12300
    )
    for options in ({"lossless": True}, {"exif": b"Exif\0\0"}):
        assert declared_pixels(memoryview(save(pixels, "WEBP", **options)), "webp") == 12300
    assert declared_pixels(memoryview(save(pixels, "TIFF")), "tiff") is None


ACCEPTED = [
    (photo(), {"max_image_bytes": len(photo()), "max_side": 640, "max_pixels": 427 * 640}),
    (BLANK, {}),
    (scans(10), {"max_scans": 10}),
    (scans(10) + scans(10) * 10, {"max_scans": 10}),  # data after the image are not counted
    (with_segments(EXIF), {}),
    (with_segments(EXIF, EXIF), {}),
    (with_text("\nexif\n 4\nnot hexadecimal"), {}),
]


@pytest.mark.parametrize(("encoded", "limits"), ACCEPTED)
def test_an_image_at_its_limit_is_decoded(encoded, limits):
    assert_close(decode(encoded, limits=Limits(**limits)), expected_pixels(encoded, upright=False), EQUAL)


@pytest.mark.parametrize("name", JUNK)
def test_junk_is_rejected(name):
    assert decode(JUNK[name]).reason in REASONS


@pytest.mark.parametrize("name", ["baseline", *others()])
def test_limits_apply_to_every_format(name):
    encoded, format_name = ALL[name], "jpeg" if name == "baseline" else name.split()[0]
    assert sniff(encoded) == format_name
    others_only = tuple(other for other in USUAL if other != format_name)
    for limits, reason in (
        ({"max_pixels": 0}, "TOO_MANY_PIXELS"),
        ({"max_side": 0}, "BAD_DIMENSIONS"),
        ({"formats": others_only}, "UNSUPPORTED"),
    ):
        assert decode(encoded, limits=Limits(**limits)).reason == reason
    pixels = decode(encoded, limits=Limits(formats=(format_name,)))
    times = pixels.size // len(encoded)
    assert decode(encoded, limits=Limits(max_expansion=times + 1)).shape == pixels.shape
    if times > 1:
        assert decode(encoded, limits=Limits(max_expansion=times - 1)).reason == "TOO_MANY_PIXELS"


@pytest.mark.parametrize("format_name", ["GIF", "WEBP", "PNG", "TIFF"])
def test_animations_can_be_rejected(format_name):
    encoded = animated(format_name)
    for most, is_read in ((0, True), (1, False), (2, False), (3, True)):
        pixels = decode(encoded, limits=Limits(max_frames=most))
        assert isinstance(pixels, np.ndarray) == is_read, (most, pixels)
    one = save(Image.fromarray(scene(20, 31)), format_name)
    assert decode(one, limits=Limits(max_frames=1)).shape == (20, 31, 3)


# arbitrary damage


@pytest.mark.parametrize("name", ["sampling 420", "progressive", "gray", "cmyk", "restart markers", "trailing junk"])
def test_a_truncated_jpeg_is_an_image_error_or_complete(name):
    encoded = ALL[name]
    whole = decode(encoded)
    end = encoded.rindex(b"\xff\xd9") if name != "trailing junk" else encoded.index(b"\xff\xd9")
    for cut in range(0, len(encoded), 7):
        pixels = decode(encoded[:cut])
        if cut < end:
            assert isinstance(pixels, ImageError), cut
        if not isinstance(pixels, ImageError):
            assert_close(pixels, whole, EQUAL)


@pytest.mark.parametrize("name", [name for name in others() if name != "png 1x1"])
def test_a_truncated_file_is_an_image_error_or_decoded(name):
    encoded = ALL[name]
    for cut in range(0, len(encoded), max(1, len(encoded) // 40)):
        pixels = decode(encoded[:cut])
        assert isinstance(pixels, ImageError) or pixels.shape == decode(encoded).shape


@settings(max_examples=150, derandomize=True)
@given(st.sampled_from(sorted(set(ALL) - {"photo", "icc profile"})), st.data())
def test_flipped_bytes_give_pixels_or_an_image_error(name, data):
    encoded = bytearray(ALL[name])
    for _ in range(data.draw(st.integers(1, 6))):
        encoded[data.draw(st.integers(0, len(encoded) - 1))] = data.draw(st.integers(0, 255))
    pixels = decode(bytes(encoded), is_gray=data.draw(st.booleans()), limits=Limits(max_pixels=10_000_000))
    assert isinstance(pixels, ImageError | np.ndarray)
