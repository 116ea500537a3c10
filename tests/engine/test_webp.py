"""Tests that WebP images, which libwebp decodes directly, have the same pixels and rejections as in Pillow."""

import io

import numpy as np
import pytest
from PIL import Image

import pixprep as pp
from pixprep.engine.decoders import webp
from pixprep.errors import ImageError
from pixprep.files import PHOTOS

KINDS = {
    "lossy": {"quality": 80},
    "coarse": {"quality": 5},
    "sharp": {"quality": 90, "use_sharp_yuv": True},
    "lossless": {"lossless": True},
    "exact": {"lossless": True, "exact": True},
    "profile": {"quality": 80, "icc_profile": b"none", "exif": b"Exif\0\0MM\0*\0\0\0\x08\0\0", "xmp": b"<x/>"},
}
RANDOM = np.random.default_rng(8)


def files(count):
    """Yield (kind, whether it has alpha, bytes) for crops of a photo with odd and even sizes, and for noise. Every
    second image has alpha.
    """
    photo = np.asarray(Image.open(PHOTOS / "china.jpg").convert("RGB"))
    for index in range(count):
        height, width = RANDOM.integers(1, 120, 2)
        top, left = (RANDOM.integers(0, side) for side in (photo.shape[0] - height, photo.shape[1] - width))
        pixels = photo[top : top + height, left : left + width]
        if index % 5 == 0:
            pixels = RANDOM.integers(0, 256, pixels.shape, dtype=np.uint8)
        if index % 2:
            pixels = np.dstack([pixels, RANDOM.choice([0, 1, 128, 255], (height, width)).astype(np.uint8)])
        kind = [*KINDS][index % len(KINDS)]
        file = io.BytesIO()
        Image.fromarray(pixels).save(file, "WEBP", method=int(RANDOM.integers(0, 5)), **KINDS[kind])
        yield kind, bool(index % 2), file.getvalue()


def pillow(encoded):
    """Return Pillow's pixels, or None if Pillow rejects the file."""
    try:
        with Image.open(io.BytesIO(encoded), formats=["WEBP"]) as image:
            return np.asarray(image.convert("RGB"))
    except (OSError, ValueError, Image.DecompressionBombError):
        return None


def libwebp_pixels(encoded):
    """Return libwebp's pixels, decoded into memory that has contained a different image."""
    with Image.open(io.BytesIO(encoded)) as image:
        return webp.decoded(encoded, np.full((image.height, image.width, 4), 77, np.uint8))


@pytest.fixture(scope="module")
def engine():
    pipeline = pp.Pipeline([pp.decode(), pp.crop(height=1, width=1, top=0, left=0), pp.tensor(dtype="uint8")])
    with pp.Engine(pipeline, threads=1) as found:
        yield found


def test_pillows_own_library_is_found():
    assert webp.library() is not None, "this Pillow is linked with libwebp statically, or with another ABI"


def test_pixels_equal_pillow():
    direct = 0
    for kind, has_alpha, encoded in files(120):
        pixels = libwebp_pixels(encoded)
        assert (pixels is None) == (has_alpha and "ALPH" in str(encoded[:64])), kind
        if pixels is not None:
            direct += 1
            np.testing.assert_array_equal(pixels[:, :, :3], pillow(encoded), err_msg=kind)
    assert direct > 60


def test_files_that_pillow_rejects_are_rejected(engine):
    refused = 0
    for _, _, encoded in files(60):
        for _ in range(4):
            damaged = bytearray(encoded)
            for place in RANDOM.integers(12, len(damaged), 3):
                damaged[place] = RANDOM.integers(0, 256)
            damaged = bytes(damaged[: RANDOM.integers(12, len(damaged))] if RANDOM.random() < 0.3 else damaged)
            expected = pillow(damaged)
            (result,) = engine.run_batch([damaged]).errors
            refused += expected is None
            assert isinstance(result, ImageError) == (expected is None)
            if expected is not None and (pixels := libwebp_pixels(damaged)) is not None:
                np.testing.assert_array_equal(pixels[:, :, :3], expected)
    assert refused > 40


def test_animations_and_images_of_unexpected_size_are_left_to_pillow():
    frames = [Image.new("RGB", (8, 6), color) for color in ("red", "blue")]
    file = io.BytesIO()
    frames[0].save(file, "WEBP", save_all=True, append_images=frames[1:])
    assert libwebp_pixels(file.getvalue()) is None
    ((_, _, encoded),) = files(1)
    assert webp.decoded(encoded, np.zeros((500, 500, 4), np.uint8)) is None
