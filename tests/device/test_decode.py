"""Decoding against Pillow, for every awkward image."""

import io
import struct
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageOps
from PIL.PngImagePlugin import PngInfo

from compare import EQUAL, assert_close
from images import JUNK, expected_pixels, jpeg, jpegs, noise, others, photo, png, read, save, scene, with_exif
from pixprep.decoders import FORMATS, Limits
from pixprep.decoders.header import read_jpeg_header, sniff
from pixprep.devices import device_for
from pixprep.errors import REASONS, ImageError, SetupError
from pixprep.plan import Plan

ALL = {**jpegs(), **others()}


def decode(encoded, *, gray=False, upright=True, limits=None):
    plan = Plan(is_gray=gray, apply_exif_orientation=upright, chroma="fancy", decoder="consistent", outputs={})
    (decoded,) = device_for("cpu").decoder(plan, limits or Limits()).decode([encoded])
    if isinstance(decoded, ImageError):
        return decoded
    pixels = decoded.pixels
    assert pixels.dtype == np.uint8
    assert pixels.flags.c_contiguous
    assert pixels.shape[2] == (1 if gray else 4)
    return pixels[:, :, :3].copy()


def refusal(encoded, **options):
    error = decode(encoded, **options)
    assert isinstance(error, ImageError)
    return str(error)


@pytest.mark.parametrize("name", ALL)
def test_colour_pixels_equal_pillows(name):
    assert_close(decode(ALL[name]), expected_pixels(ALL[name]), EQUAL)


@pytest.mark.parametrize("name", others())
def test_gray_of_other_formats_equals_pillows_conversion(name):
    assert_close(decode(ALL[name], gray=True), expected_pixels(ALL[name], gray=True), EQUAL)


@pytest.mark.parametrize("name", jpegs())
def test_gray_of_a_jpeg_is_its_luma_plane(name):
    expected = np.atleast_3d(np.asarray(_drafted(ALL[name]).convert("L")))
    assert_close(decode(ALL[name], gray=True), expected, EQUAL)


@pytest.mark.parametrize("order", ["little", "big"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation_turns_the_image_upright(orientation, order):
    encoded = with_exif(orientation, order=order)
    upright = expected_pixels(encoded)
    assert upright.shape[:2] == ((40, 24) if orientation > 4 else (24, 40))
    assert_close(decode(encoded), upright, EQUAL)
    assert_close(decode(encoded, gray=True)[:, :, 0], np.asarray(ImageOps.exif_transpose(_drafted(encoded))), EQUAL)
    assert_close(decode(encoded, upright=False), expected_pixels(encoded, upright=False), EQUAL)


def _drafted(encoded):
    """Pillow's image of the luma plane alone."""
    image = Image.open(io.BytesIO(encoded))
    image.draft("L", image.size)
    return image


@pytest.mark.parametrize("size", [(1, 9), (9, 1), (1, 1)])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation_turns_a_single_row_or_column(orientation, size):
    encoded = with_exif(orientation, size=size)
    assert_close(decode(encoded), expected_pixels(encoded), EQUAL)
    assert_close(decode(encoded, gray=True)[:, :, 0], np.asarray(ImageOps.exif_transpose(_drafted(encoded))), EQUAL)


@pytest.mark.parametrize("kind", ["PNG", "WEBP", "TIFF"])
@pytest.mark.parametrize("orientation", [1, 3, 6, 8])
def test_exif_orientation_counts_in_other_formats_too(orientation, kind):
    encoded = with_exif(orientation, kind=kind)
    assert_close(decode(encoded), expected_pixels(encoded), EQUAL)
    assert_close(decode(encoded, upright=False), expected_pixels(encoded, upright=False), EQUAL)


@pytest.mark.parametrize("orientation", [1, 6])
def test_exif_orientation_counts_where_imagemagick_writes_it_into_a_png(orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    digits = (b"Exif\0\0" + exif.tobytes().removeprefix(b"Exif\0\0")).hex()
    text = PngInfo()
    text.add_text("Raw profile type exif", f"\nexif\n{len(digits) // 2:8}\n{digits[:72]}\n{digits[72:]}\n", zip=True)
    encoded = save(Image.fromarray(scene(24, 40)), "PNG", pnginfo=text)
    assert_close(decode(encoded), expected_pixels(encoded), EQUAL)
    assert decode(encoded).shape[:2] == ((40, 24) if orientation == 6 else (24, 40))


def test_text_that_is_no_exif_data_is_ignored():
    text = PngInfo()
    text.add_text("Raw profile type exif", "\nexif\n 4\nnot hexadecimal")
    assert decode(save(Image.fromarray(scene(24, 40)), "PNG", pnginfo=text)).shape == (24, 40, 3)


@pytest.mark.parametrize("orientation", [0, 9, 255, 65535])
def test_a_senseless_exif_orientation_is_ignored(orientation):
    encoded = with_exif(orientation)
    assert_close(decode(encoded), expected_pixels(encoded, upright=False), EQUAL)


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview, lambda b: memoryview(bytearray(b))])
def test_any_buffer_of_bytes_is_read(kind):
    for name in ("baseline", "cmyk", "png"):
        assert_close(decode(kind(ALL[name])), expected_pixels(ALL[name]), EQUAL)


@pytest.mark.parametrize("name", [name for name in jpegs() if name != "comment"])
def test_the_header_of_a_jpeg_says_what_pillow_says(name):
    header, image = read_jpeg_header(ALL[name]), read(ALL[name])
    assert (header.height, header.width) == (image.height, image.width)
    assert header.components == len(image.getbands())
    assert (header.frame == 0xC2) == ("progressive" in image.info)
    assert header.orientation == 1
    assert sniff(ALL[name]) == "jpeg"


@pytest.mark.parametrize("orientation", range(1, 9))
def test_the_header_of_a_jpeg_says_its_orientation(orientation):
    assert read_jpeg_header(with_exif(orientation)).orientation == orientation


def test_a_marker_inside_a_comment_is_no_marker():
    header = read_jpeg_header(ALL["comment"])
    assert (header.height, header.width, header.frame) == (37, 53, 0xC0)


@pytest.mark.parametrize("name", others())
def test_the_first_bytes_name_the_format(name):
    assert sniff(ALL[name]) == name.split()[0]


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"max_image_bytes": 1000}, "[TOO_LARGE_BYTES] 196,653 bytes; the limit is 1,000 (parameter max_image_bytes)"),
        ({"max_side": 639}, "[BAD_DIMENSIONS] 427 x 640 pixels; a side has 1 to 639 (parameter max_side)"),
        ({"max_pixels": 273_279}, "[TOO_MANY_PIXELS] 427 x 640 pixels; the limit is 273,279 (parameter max_pixels)"),
    ],
)
def test_limits_are_checked_before_decoding(limits, message):
    assert refusal(photo(), limits=Limits(**limits)) == message


@pytest.mark.parametrize("name", ["baseline", *others()])
def test_a_format_that_may_not_come_is_refused(name):
    kind = sniff(ALL[name])
    only = tuple(other for other in FORMATS if other != kind)
    assert refusal(ALL[name], limits=Limits(formats=only)).startswith("[UNSUPPORTED] a ")
    assert decode(ALL[name], limits=Limits(formats=(kind,))).shape == decode(ALL[name]).shape


def test_the_refusal_of_a_format_names_those_that_may_come():
    message = "[UNSUPPORTED] a WebP; only jpeg, png may come here (parameter formats)"
    assert refusal(ALL["webp"], limits=Limits(formats=("jpeg", "png"))) == message


@pytest.mark.parametrize("name", ["baseline", "png", "webp", "gif", "tiff lzw"])
def test_few_bytes_may_be_kept_from_becoming_many_pixels(name):
    encoded = ALL[name]
    height, width, _ = decode(encoded).shape
    times = 3 * height * width // len(encoded)
    assert decode(encoded, limits=Limits(max_expansion=times + 1)).shape == (height, width, 3)
    message = (
        f"[TOO_MANY_PIXELS] {height} x {width} pixels in {len(encoded):,} bytes, {times:,} times as many; the limit is "
    )
    if times > 1:
        assert refusal(encoded, limits=Limits(max_expansion=times - 1)).startswith(message)


def test_a_flat_image_expands_a_thousandfold_and_is_honest():
    """The reason why no limit of that kind is a default."""
    blank = save(Image.new("1", (4960, 7016), 1), "PNG")
    assert len(blank) < 20_000
    assert decode(blank).shape == (7016, 4960, 3)
    assert refusal(blank, limits=Limits(max_expansion=1000)).endswith("the limit is 1,000 (parameter max_expansion)")


@pytest.mark.parametrize("kind", ["GIF", "WEBP", "PNG", "TIFF"])
def test_animations_may_be_refused(kind):
    frames = [Image.fromarray(scene(20, 31, seed)) for seed in range(3)]
    encoded = save(frames[0], kind, save_all=True, append_images=frames[1:])
    for most, is_read in ((0, True), (1, False), (2, False), (3, True)):
        pixels = decode(encoded, limits=Limits(max_frames=most))
        assert isinstance(pixels, np.ndarray) == is_read, (most, pixels)
    assert refusal(encoded, limits=Limits(max_frames=2)) == "[UNSUPPORTED] over 2 frames (parameter max_frames)"
    assert decode(save(frames[0], kind), limits=Limits(max_frames=1)).shape == (20, 31, 3)


def test_limits_hold_for_every_format():
    for name in others():
        assert refusal(ALL[name], limits=Limits(max_pixels=0)).startswith("[TOO_MANY_PIXELS]"), name
        assert refusal(ALL[name], limits=Limits(max_side=0)).startswith("[BAD_DIMENSIONS]"), name


def test_an_image_at_its_limit_is_read():
    limits = Limits(max_image_bytes=len(photo()), max_side=640, max_pixels=427 * 640)
    assert decode(photo(), limits=limits).shape == (427, 640, 3)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("no bytes", "[EMPTY] no bytes"),
        ("text", "[UNKNOWN_FORMAT] not a JPEG, PNG, WebP, BMP, TIFF or GIF file"),
        ("jpeg magic only", "[TRUNCATED] the JPEG ends after 3 bytes, inside its header"),
        ("jpeg markers only", "[CORRUPT] the JPEG ends before its first scan"),
        ("jpeg and zeros", "[TRUNCATED] the JPEG ends after 4,099 bytes, inside its header"),
        ("png magic only", "[CORRUPT] a damaged PNG, or a kind that Pillow does not read"),
    ],
)
def test_junk_is_refused_in_words(name, message):
    assert refusal(JUNK[name]) == message


@pytest.mark.parametrize("name", JUNK)
def test_junk_is_refused(name):
    assert decode(JUNK[name]).reason in REASONS


def test_a_jpeg_cut_in_its_data_is_truncated():
    assert refusal(photo()[:100_000]) == "[TRUNCATED] the JPEG ends after 100,000 bytes, before its last row"
    assert refusal(photo()[:300]) == "[TRUNCATED] the JPEG ends after 300 bytes, inside its header"


def test_a_png_cut_in_its_data_is_truncated():
    encoded = png(noise(64, 64))
    assert refusal(encoded[:5000]) == "[TRUNCATED] the PNG ends after 5,000 bytes"


def test_a_jpeg_with_damaged_data_is_corrupt():
    encoded = jpeg(scene(48, 64))
    middle = encoded.index(b"\xff\xda") + 60
    assert refusal(encoded[:middle] + b"\xff\xd9" + encoded[middle:]).split("]")[0] in ("[CORRUPT", "[TRUNCATED")


def test_a_jpeg_with_twelve_bits_a_sample_is_unsupported():
    encoded = jpeg(scene(48, 64)).replace(b"\xff\xc0\x00\x11\x08", b"\xff\xc1\x00\x11\x0c")
    assert refusal(encoded) == "[UNSUPPORTED] a JPEG of 12 bits a sample; pixprep reads lossy ones of 8 bits a sample"


@pytest.mark.parametrize("components", [0, 2, 5, 16, 255])
def test_a_jpeg_of_a_strange_number_of_components_is_unsupported(components):
    encoded = bytearray(jpeg(scene(48, 64)))
    encoded[encoded.index(b"\xff\xc0") + 9] = components
    assert refusal(bytes(encoded)) == (f"[UNSUPPORTED] a JPEG of {components} components; pixprep reads 1, 3 and 4")


def test_a_lossless_jpeg_is_unsupported():
    encoded = jpeg(scene(48, 64)).replace(b"\xff\xc0\x00\x11\x08", b"\xff\xc3\x00\x11\x08")
    assert refusal(encoded) == "[UNSUPPORTED] a lossless JPEG; pixprep reads lossy ones of 8 bits a sample"


@pytest.mark.parametrize("mode", ["I", "F"])
def test_32_bits_a_sample_are_unsupported(mode):
    assert refusal(save(Image.new(mode, (5, 4)), "TIFF")) == "[UNSUPPORTED] 32 bits a sample; pixprep reads 8 and 16"


def test_a_jpeg_of_zero_rows_is_refused():
    encoded = jpeg(scene(48, 64)).replace(b"\x00\x11\x08\x00\x30", b"\x00\x11\x08\x00\x00")
    assert refusal(encoded) == "[BAD_DIMENSIONS] 0 x 64 pixels; a side has 1 to 16384 (parameter max_side)"


@pytest.mark.parametrize("filler", [b"\0", b"\xff", b"\xff\xd0", b"\xff\x00", b"\xff\xe0\0\2", b"\xff\xd8"])
def test_a_header_of_20_mb_of_nothing_is_refused_at_once(filler):
    encoded = b"\xff\xd8\xff\xe0\0\2" + filler * ((20 << 20) // len(filler) - 10)
    start = time.process_time()
    assert decode(encoded).reason in ("TRUNCATED", "CORRUPT")
    assert time.process_time() - start < 1


@pytest.mark.parametrize("between", [b"", b"\xff\xfe\0\4\xff\xd9"], ids=["", "a comment that holds an end"])
def test_a_jpeg_of_hundreds_of_scans_is_refused_at_once(between):
    encoded = save(Image.fromarray(scene(48, 64)), "JPEG", progressive=True)
    start, end = encoded.rindex(b"\xff\xda"), encoded.rindex(b"\xff\xd9")
    assert refusal(encoded[:end] + (between + encoded[start:end]) * 100) == (
        "[TOO_MANY_SCANS] a JPEG of over 100 scans (parameter max_scans)"
    )
    assert encoded.count(b"\xff\xda") == 10
    assert (
        refusal(encoded, limits=Limits(max_scans=9)) == "[TOO_MANY_SCANS] a JPEG of over 9 scans (parameter max_scans)"
    )
    assert decode(encoded, limits=Limits(max_scans=10)).shape == (48, 64, 3)
    assert decode(encoded + encoded[start:end] * 100).shape == (48, 64, 3)


def tiff(*directories):
    """A little-endian TIFF of nothing but directories, one after the other; entries (tag, type, count, value)."""
    encoded = b"II*\0" + struct.pack("<I", 8)
    for entries in directories:
        packed = b"".join(struct.pack("<HHII", *entry) for entry in entries)
        encoded += struct.pack("<H", len(entries)) + packed + bytes(4)
    return encoded + bytes(1000)


def test_tags_of_a_tiff_that_lie_on_top_of_each_other_are_refused():
    tags = [(1000 + index, 1, 600, 8) for index in range(2)]
    assert refusal(tiff(tags)) == "[CORRUPT] the tags of the TIFF claim 1,200 bytes of a file of 1,038"
    exif = [(34665, 4, 1, 26)]
    assert refusal(tiff(exif, tags)) == "[CORRUPT] the tags of the TIFF claim 1,204 bytes of a file of 1,056"
    pointers = [(34665, 4, 1, 26 + index) for index in range(8)]
    assert refusal(tiff(pointers)) == "[CORRUPT] over 8 directories of tags in the TIFF"


def test_exif_data_whose_values_lie_on_top_of_each_other_is_not_copied():
    exif = tiff([(1000 + index, 1, 1000, 8) for index in range(1000)], [(1, 1, 1, 1)])
    start = time.process_time()
    assert decode(save(Image.fromarray(scene(24, 33)), "PNG", exif=exif)).shape == (24, 33, 3)
    assert time.process_time() - start < 1


def test_exif_data_in_several_segments_is_refused_where_pillow_would_join_them():
    cmyk = ALL["cmyk"]
    segment = b"\xff\xe1\0\x0aExif\0\0II"
    assert decode(cmyk[:2] + segment + cmyk[2:]).shape == decode(cmyk).shape
    assert refusal(cmyk[:2] + 2 * segment + cmyk[2:]) == (
        "[UNSUPPORTED] EXIF data in several segments of a rare kind of JPEG"
    )


def test_a_tile_of_a_tiff_counts_as_pixels():
    sizes = [(256, 3, 1, 16), (257, 3, 1, 16), (258, 3, 1, 8), (259, 3, 1, 8), (262, 3, 1, 1), (277, 3, 1, 1)]
    tile = [(322, 4, 1, 16000), (323, 4, 1, 4000), (324, 4, 1, 200), (325, 4, 1, 10)]
    assert (
        refusal(tiff(sizes + tile))
        == "[TOO_MANY_PIXELS] 4000 x 16000 pixels; the limit is 50,000,000 (parameter max_pixels)"
    )


@pytest.mark.parametrize("name", ["sampling 420", "progressive", "gray", "cmyk", "restart markers", "trailing junk"])
def test_a_truncated_jpeg_is_an_image_error_or_whole(name):
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
def test_a_truncated_file_is_an_image_error_or_pixels(name):
    encoded = ALL[name]
    for cut in range(0, len(encoded), max(1, len(encoded) // 40)):
        pixels = decode(encoded[:cut])
        assert isinstance(pixels, ImageError) or pixels.shape == decode(encoded).shape


@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.sampled_from(sorted(set(ALL) - {"photo", "icc profile"})), st.data())
def test_flipped_bytes_give_pixels_or_an_image_error(name, data):
    encoded = bytearray(ALL[name])
    for _ in range(data.draw(st.integers(1, 6))):
        encoded[data.draw(st.integers(0, len(encoded) - 1))] = data.draw(st.integers(0, 255))
    pixels = decode(bytes(encoded), gray=data.draw(st.booleans()), limits=Limits(max_pixels=10_000_000))
    assert isinstance(pixels, ImageError | np.ndarray)


def test_a_device_that_is_not_there_is_a_setup_error():
    with pytest.raises(SetupError) as caught:
        device_for("tpu")
    assert str(caught.value) == 'device "tpu": there are "cpu", "gpu" and "gpu:1", "gpu:2", …'
