"""Tests that AVIF and HEIC are decoded like in Pillow and pillow-heif, and that both formats are disabled by
default.
"""

import io
import struct
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageOps, features

import pixprep as pp
from pixprep.engine.decoders import FORMATS, USUAL, Limits
from pixprep.engine.decoders import heif as container
from pixprep.engine.decoders.clips.bitstreams import av1
from pixprep.engine.decoders.header import sniff
from pixprep.errors import ImageError
from support import heif
from support.compare import EQUAL, assert_close
from support.decoding import decode
from support.images import expected_pixels, heif_library, jpeg, read, save, scene, stills

HEIF = heif_library()
INSTALLED = (*USUAL, *(["avif"] if features.check("avif") else []), *(["heic"] if HEIF else []))
BOTH_ENABLED = Limits(formats=INSTALLED)
STILLS = stills()
needs_avif = pytest.mark.skipif("avif" not in INSTALLED, reason="NO AVIF: this Pillow does not support it")
needs_heic = pytest.mark.skipif(HEIF is None, reason="NO PILLOW-HEIF: HEIC was not tested")
BOTH = [pytest.param("avif", marks=needs_avif), pytest.param("heic", marks=needs_heic)]


def with_container_rotation(name, orientation):
    """Return a file whose container rotates the picture.

    Both encoders write such a rotation if they receive EXIF data with an orientation.
    """
    image, exif = Image.fromarray(scene(37, 53)), Image.Exif()
    exif[0x0112] = orientation
    if name == "avif":
        return save(image, "AVIF", exif=exif)
    file = io.BytesIO()
    HEIF.from_bytes("RGB", image.size, image.tobytes()).save(file, exif=exif.tobytes())
    return file.getvalue()


def original(encoded, *, gray=False):
    """Decode with the original library. Return pixels (height, width, 3 or 1) with the orientation applied."""
    if sniff(encoded) == "avif":
        return expected_pixels(encoded, gray=gray)
    image = HEIF.open_heif(encoded).to_pillow()
    return np.atleast_3d(np.asarray(image.convert("L" if gray else "RGB")))


def replaced(encoded, old, new):
    assert old in encoded
    assert len(old) == len(new)
    return encoded.replace(old, new)


@needs_avif
@needs_heic
def test_there_are_two_photos_of_each_format():
    assert {"avif china", "avif flower", "heic china", "heic flower"} <= set(STILLS)


@pytest.mark.parametrize("name", STILLS)
def test_pixels_equal_the_librarys_in_colour_and_gray(name):
    encoded = STILLS[name]
    assert sniff(encoded) == name.split()[0]
    assert_close(decode(encoded, limits=BOTH_ENABLED), original(encoded), EQUAL)
    assert_close(decode(encoded, limits=BOTH_ENABLED, is_gray=True), original(encoded, gray=True), EQUAL)


@needs_avif
@pytest.mark.parametrize(("height", "width"), [(128, 192), (100, 160), (66, 130)])
def test_an_avif_of_tiles_equals_pillow(height, width):
    """The test joins six pictures as tiles, because no installed encoder writes such a file.

    The last tiles may be cropped.
    """
    tiles = [save(Image.fromarray(scene(64, 64, seed)), "AVIF") for seed in range(6)]
    begin = tiles[0].index(b"av1C") - 4
    configuration = tiles[0][begin : begin + int.from_bytes(tiles[0][begin : begin + 4], "big")]
    items = [(b"grid", heif.grid(2, 3, height, width), [heif.ispe(height, width)])]
    for each in tiles:
        data = container.read(memoryview(each), "avif", BOTH_ENABLED).encoded.partition(b"mdat")[2]
        items.append((b"av01", data, [configuration, heif.ispe(64, 64)]))
    encoded = heif.file(items, references=[(b"dimg", 1, range(2, 8))])
    assert read(encoded).size == (width, height)
    assert_close(decode(encoded, limits=BOTH_ENABLED), expected_pixels(encoded), EQUAL)


@pytest.mark.parametrize("name", BOTH)
def test_alpha_is_dropped_or_blended_with_white(name):
    encoded = STILLS[f"{name} alpha"]
    image = read(encoded) if name == "avif" else HEIF.open_heif(encoded).to_pillow()
    assert image.mode == "RGBA"
    white = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image).convert("RGB")
    assert_close(decode(encoded, limits=BOTH_ENABLED, alpha="white"), np.asarray(white), EQUAL)
    assert_close(decode(encoded, limits=BOTH_ENABLED), np.asarray(image)[:, :, :3], EQUAL)


@needs_avif
@pytest.mark.parametrize("orientation", range(1, 9))
def test_the_rotation_of_an_avif_container_is_applied_once(orientation):
    encoded = with_container_rotation("avif", orientation)
    pixels = decode(encoded, limits=BOTH_ENABLED)
    assert_close(pixels, np.asarray(ImageOps.exif_transpose(read(encoded))), EQUAL)
    assert pixels.shape[:2] == ((53, 37) if orientation > 4 else (37, 53))
    stored = decode(encoded, limits=BOTH_ENABLED, apply_exif_orientation=False)
    assert_close(stored, np.asarray(read(encoded)), EQUAL)


@needs_heic
@pytest.mark.parametrize("orientation", range(1, 9))
def test_the_rotation_of_a_heic_container_is_applied_once_with_any_option(orientation):
    encoded = with_container_rotation("heic", orientation)
    upright = original(encoded)
    assert upright.shape[:2] == ((53, 37) if orientation > 4 else (37, 53))
    for apply in (True, False):  # libheif always applies the rotation
        assert_close(decode(encoded, limits=BOTH_ENABLED, apply_exif_orientation=apply), upright, EQUAL)


@needs_avif
def test_exif_data_that_contradict_the_container_are_ignored():
    encoded = with_container_rotation("avif", 3)
    assert b"irot\2" in encoded
    unturned = replaced(encoded, b"irot\2", b"irot\0")  # the EXIF data still contain orientation 3
    assert_close(decode(unturned, limits=BOTH_ENABLED), decode(encoded, limits=BOTH_ENABLED)[::-1, ::-1], EQUAL)


@contextmanager
def counted():
    """Yield a list that records the number of additional threads repeatedly until the block ends.

    With the default settings of Pillow and pillow-heif, the numbers reach 2 and 8 on two cores.
    """
    found, is_over = [], threading.Event()
    tasks = Path("/proc/self/task")
    before = len(list(tasks.iterdir())) + 1

    def look():
        while not is_over.wait(0.0002):
            found.append(len(list(tasks.iterdir())) - before)

    thread = threading.Thread(target=look)
    thread.start()
    yield found
    is_over.set()
    thread.join()


@pytest.mark.parametrize("name", BOTH)
def test_a_worker_decodes_without_threads_except_one_of_libde265(name):
    encoded = STILLS[f"{name} china"]
    decode(encoded, limits=BOTH_ENABLED)
    deadline = time.monotonic() + 20
    with counted() as found:
        while len(found) < 50 and time.monotonic() < deadline:
            decode(encoded, limits=BOTH_ENABLED)
    assert found
    assert max(found) <= (0 if name == "avif" else 1)


# disabled formats and missing libraries


@pytest.mark.parametrize("name", BOTH)
def test_both_formats_are_rejected_by_default(name):
    error = decode(STILLS[name])
    assert str(error) == (
        f"[UNSUPPORTED] {'an AVIF' if name == 'avif' else 'a HEIC'} is not accepted (parameter formats: "
        "jpeg, png, webp, bmp, tiff, gif): convert the image"
    )


def test_an_engine_reports_how_to_install_pillow_heif(tmp_path):
    (tmp_path / "pillow_heif.py").write_text("raise ImportError")
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "import pixprep as pp\n"
        "try:\n    pp.Engine(pp.Pipeline([pp.decode(), pp.resize(9), pp.center_crop(9), pp.tensor()]), "
        "limits=pp.Limits(formats=('heic',)))\n"
        "except pp.SetupError as error:\n    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "the image format heic needs pillow-heif: pip install pillow-heif\n"


@pytest.mark.parametrize("name", BOTH)
def test_a_broken_file_fails_alone(name):
    encoded = STILLS[f"{name} odd"]
    pipeline = pp.Pipeline([pp.decode(), pp.resize(16), pp.center_crop(16), pp.tensor(dtype="uint8")])
    with pp.Engine(pipeline, limits=BOTH_ENABLED) as engine:
        good, first, broken, second = engine.run([jpeg(scene(30, 40)), encoded, encoded[:500], encoded])
    assert good.shape == (3, 16, 16)
    assert np.array_equal(first, second)
    assert broken.reason == "TRUNCATED"


# limits and damage


@pytest.mark.parametrize("name", BOTH)
def test_limits_are_checked_before_decoding(name):
    encoded = STILLS[f"{name} china"]
    height = 427 if name == "avif" else 428  # libheif encodes an even number of rows, and crops one row
    for limits, words in (
        ({"max_pixels": 640 * height - 1}, f"[TOO_MANY_PIXELS] {height} x 640 pixels; the limit is "),
        (
            {"max_side": 639},
            f"[BAD_DIMENSIONS] {height} x 640 pixels; height and width must be 1 to 639 (parameter max_side)",
        ),
        ({"max_expansion": 2}, f"[TOO_MANY_PIXELS] {height} x 640 pixels in {len(encoded):,} bytes"),
        ({"max_image_bytes": 999}, f"[TOO_LARGE_BYTES] {len(encoded):,} bytes; the limit is 999"),
    ):
        assert str(decode(encoded, limits=Limits(formats=INSTALLED, **limits))).startswith(words)
    assert decode(encoded, limits=Limits(formats=INSTALLED, max_pixels=640 * 432, max_side=640)).shape == (427, 640, 3)


@pytest.mark.parametrize("name", BOTH)
@pytest.mark.parametrize("change", [(-100, -100), (-1, 0), (0, -1), (1, 0), (0, 6), (6000, 6000)])
def test_a_container_that_contradicts_its_data_about_the_size_is_rejected(name, change):
    encoded = STILLS[f"{name} china"]
    begin = encoded.index(b"ispe") + 8
    width, height = struct.unpack_from(">II", encoded, begin)
    sizes = struct.pack(">II", width + change[1], height + change[0])
    error = decode(encoded[:begin] + sizes + encoded[begin + 8 :], limits=BOTH_ENABLED)
    coded = f"{height} x {width}"
    assert str(error) == (
        f"[CORRUPT] the {name.upper()} is damaged: {height + change[0]} x {width + change[1]} pixels in its container, "
        f"and {coded} in its bitstream"
    )


@pytest.mark.parametrize("name", BOTH)
def test_an_item_that_is_not_a_picture_or_grid_is_rejected(name):
    kind = {"avif": b"av01", "heic": b"hvc1"}[name]
    begin = STILLS[name].index(b"infe")
    other = STILLS[name][:begin] + replaced(STILLS[name][begin:], kind, b"iov\n")
    called = "an AVIF" if name == "avif" else "a HEIC"
    assert str(decode(other, limits=BOTH_ENABLED)) == (
        rf'[UNSUPPORTED] {called} with an item of the type "iov\n"; only a single image or a grid of images can be '
        "decoded"
    )
    essential = replaced(with_container_rotation(name, 6), b"irot", b"lsel")
    assert str(decode(essential, limits=BOTH_ENABLED)) == (
        f'[UNSUPPORTED] {called} with the property "lsel"; only a single image or a grid of images can be decoded'
    )


@needs_avif
def test_av1_sizes_are_found_after_timing_and_decoder_model_info():
    coded = av1(memoryview(heif.timed_sequence(77, 1234) + b"\x32\0"))
    assert (coded.height, coded.width) == (77, 1234)


def test_an_image_sequence_is_rejected():
    encoded = replaced(STILLS["avif animated"], b"meta", b"free")
    assert (
        str(decode(encoded, limits=BOTH_ENABLED))
        == "[UNSUPPORTED] an AVIF with an image sequence; only still images can be decoded"
    )


@pytest.mark.parametrize("name", [name for name in STILLS if name.split()[-1] not in ("china", "flower")])
def test_a_truncated_file_is_an_image_error(name):
    encoded = STILLS[name]
    whole = decode(encoded, limits=BOTH_ENABLED)
    for cut in [*range(12, len(encoded) - 1, max(1, len(encoded) // 60)), len(encoded) - 1]:
        result = decode(encoded[:cut], limits=BOTH_ENABLED)
        if name in ("avif animated", "heic with a thumbnail") and not isinstance(result, ImageError):
            assert_close(result, whole, EQUAL)  # the missing bytes do not belong to the picture
        else:
            assert result.reason in ("TRUNCATED", "UNKNOWN_FORMAT"), (cut, result)


@pytest.mark.parametrize("name", BOTH)
def test_a_box_smaller_than_its_header_is_an_error(name):
    assert decode(STILLS[f"{name} odd"] + b"\0\0\0\3junkjunk", limits=BOTH_ENABLED).reason == "CORRUPT"


@pytest.mark.parametrize("name", STILLS)
def test_the_library_receives_only_the_picture(name):
    encoded = STILLS[name]
    still = container.read(memoryview(encoded), name.split()[0], BOTH_ENABLED)
    assert len(still.encoded) < len(encoded) + 8
    assert not any(kind in still.encoded for kind in (b"Exif", b"thmb", b"moov", b"mime", b"cdsc"))
    assert sniff(still.encoded) == name.split()[0]
    again = container.read(memoryview(still.encoded), name.split()[0], BOTH_ENABLED)
    assert again == still


def test_the_default_formats_are_all_but_these_two():
    assert {*FORMATS} - {*USUAL} == {"avif", "heic"}
    assert Limits().formats == USUAL
