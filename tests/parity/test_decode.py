"""Tests options of ``decode``: the fast IDCT against TensorFlow's decoder, and alpha against transformers'
conversion.
"""

import io
import warnings
from collections import Counter
from importlib.util import find_spec

import numpy as np
import pytest
import simplejpeg
from PIL import Image

from pixprep.importers.verify import Originals
from pixprep.pipeline import ops
from support.compare import EQUAL, Tolerance, assert_close
from support.decoding import decode
from support.images import jpeg, jpegs, noise, others, photo, read, save, scene
from support.sampled import SAMPLINGS, sampled

MANY = {name: encoded for name, encoded in jpegs().items() if name not in ("cmyk", "ycck")} | {
    f"{height} x {width}, {quality}, {sampling}": simplejpeg.encode_jpeg(
        scene(height, width, quality), quality, colorsubsampling=sampling
    )
    for height, width in ((8, 8), (15, 17), (64, 48), (121, 99))
    for quality in (30, 75, 97)
    for sampling in ("444", "422", "420")
}
MANY |= {f"progressive {quality}": jpeg(scene(70, 91), progressive=True, quality=quality) for quality in (20, 60, 95)}


@pytest.mark.skipif(
    find_spec("tensorflow") is None, reason="NO TENSORFLOW: its JPEG decoder was only compared with frozen results"
)
def test_the_fast_idct_equals_the_installed_tensorflow():
    assert len(MANY) >= 40
    for encoded in (*MANY.values(), photo("flower")):
        for idct, chroma, color in (
            ("fast", "fancy", "rgb"), ("fast", "fancy", "gray"), ("fast", "fast", "rgb"), ("accurate", "fast", "rgb"),
        ):  # fmt: skip
            op = ops.Decode(idct=idct, chroma=chroma, color=color, apply_exif_orientation=False)
            pixels = decode(encoded, idct=idct, chroma=chroma, is_gray=color == "gray", apply_exif_orientation=False)
            assert_close(pixels, Originals().decoder(op).run(encoded), EQUAL)


@pytest.mark.skipif(
    find_spec("tensorflow") is None, reason="NO TENSORFLOW: its JPEG decoder was only compared with frozen results"
)
def test_chroma_of_every_sampling_equals_the_installed_tensorflow_or_is_rejected():
    found = Counter()
    for factors in SAMPLINGS:
        encoded = sampled(factors)
        for idct, chroma in (("accurate", "fancy"), ("accurate", "fast"), ("fast", "fancy"), ("fast", "fast")):
            pixels = decode(encoded, idct=idct, chroma=chroma)
            found[idct, chroma, isinstance(pixels, np.ndarray)] += 1
            if isinstance(pixels, np.ndarray):
                op = ops.Decode(idct=idct, chroma=chroma, apply_exif_orientation=False)
                assert_close(pixels, Originals().decoder(op).run(encoded), EQUAL)
    print(found)
    assert found["accurate", "fancy", True] > found["accurate", "fast", True] > found["fast", "fast", True] > 10


def odd_sampling():
    """Return a JPEG whose chroma planes have different sampling factors. TurboJPEG has no name for this subsampling,
    but Pillow decodes the JPEG.
    """
    encoded = bytearray(jpeg(scene(48, 64)))
    frame = encoded.index(b"\xff\xc0")
    # the JPEG has as many blocks as with 4:2:0
    encoded[frame + 11], encoded[frame + 14], encoded[frame + 17] = 0x12, 0x21, 0x12
    return bytes(encoded)


@pytest.mark.parametrize("encoded", [jpegs()["cmyk"], jpegs()["ycck"], odd_sampling()], ids=["cmyk", "ycck", "odd"])
def test_a_jpeg_that_only_pillow_decodes_is_rejected_with_the_fast_idct(encoded):
    """With Pillow, the IDCT cannot be selected, and an error is better than wrong pixels."""
    assert str(decode(encoded, idct="fast")) == (
        '[UNSUPPORTED] this kind of JPEG, such as CMYK, is not supported with "idct": "fast"'
    )
    assert_close(decode(encoded), np.asarray(read(encoded).convert("RGB")), EQUAL)


@pytest.mark.parametrize("name", others())
def test_the_idct_does_not_affect_other_formats(name):
    assert_close(decode(others()[name], idct="fast"), decode(others()[name]), EQUAL)


def transparent():
    """Return one image for each kind of transparency that Pillow reads from a file, by name."""
    pixels, alpha = scene(24, 33), Image.fromarray(noise(24, 33, 1)[:, :, 0])
    rgb = Image.fromarray(pixels)
    rgba, la = rgb.copy(), rgb.convert("L")
    rgba.putalpha(alpha)
    la.putalpha(alpha)
    palette = rgb.quantize(32)
    key = tuple(int(level) for level in pixels[3, 4])
    return {
        "rgba": save(rgba, "PNG"),
        "gray alpha": save(la, "PNG"),
        "rgb key": save(rgb, "PNG", transparency=key),
        "gray key": save(rgb.convert("L"), "PNG", transparency=int(np.asarray(rgb.convert("L"))[3, 4])),
        "1 bit key": save(rgb.convert("1"), "PNG", transparency=0),
        "palette": save(palette, "PNG", transparency=bytes(range(0, 256, 8))),
        "palette key": save(palette, "PNG", transparency=5),
        "webp": save(rgba, "WEBP", lossless=True),
        "tiff": save(rgba, "TIFF"),
        "gif": save(palette, "GIF", transparency=5),
    }


TRANSPARENT = transparent()
OPAQUE = {name: encoded for name, encoded in others().items() if "alpha" not in name} | {"photo": photo()}
ROUNDED = Tolerance(1, 0.9, "Pillow divides by 255 in integers")


def on_white(encoded):
    """Return the expected pixels, float64 (height, width, 3): the image on a white background, without rounding."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        rgba = np.asarray(read(encoded).convert("RGBA")).astype(np.float64)
    share = rgba[:, :, 3:] / 255
    return rgba[:, :, :3] * share + 255 * (1 - share)


@pytest.mark.parametrize("name", TRANSPARENT)
def test_transparent_pixels_are_blended_with_white(name):
    encoded = TRANSPARENT[name]
    assert_close(decode(encoded, alpha="white"), np.rint(on_white(encoded)), ROUNDED)
    with pytest.raises(AssertionError):
        assert_close(decode(encoded, alpha="drop"), np.rint(on_white(encoded)), ROUNDED)


@pytest.mark.parametrize("name", OPAQUE)
def test_an_opaque_image_is_unchanged_on_white(name):
    assert_close(decode(OPAQUE[name], alpha="white"), decode(OPAQUE[name]), EQUAL)


@pytest.mark.parametrize("name", TRANSPARENT)
def test_gray_is_computed_from_the_image_on_white(name):
    colour = Image.fromarray(decode(TRANSPARENT[name], alpha="white"))
    gray = decode(TRANSPARENT[name], alpha="white", is_gray=True)
    assert_close(gray[:, :, 0], np.asarray(colour.convert("L")), EQUAL)


@pytest.mark.skipif(find_spec("transformers") is None, reason="NO TRANSFORMERS: alpha was not compared")
def test_white_equals_transformers_convert_to_rgb():
    from transformers.image_transforms import convert_to_rgb  # noqa: PLC0415  (this import takes seconds)

    for encoded in (*TRANSPARENT.values(), *OPAQUE.values()):
        image = Image.open(io.BytesIO(encoded))
        if image.mode.startswith("I;16"):  # transformers does not convert these images to 8 bits
            continue
        theirs = convert_to_rgb(image, return_numpy=True)
        assert_close(decode(encoded, alpha="white"), theirs, EQUAL)
        if encoded in TRANSPARENT.values():
            assert not np.array_equal(decode(encoded), theirs)
