"""Tests that pipelines reproduce calls to OpenCV: gray images of every format, and CLAHE before a resize."""

import io

import cv2
import numpy as np
import pytest
from PIL import Image

import pixprep as pp
from pixprep.errors import PipelineError
from support.images import scene

COLORS = np.random.default_rng(0).integers(0, 256, (300, 130, 3), np.uint8)
ALPHA = np.random.default_rng(1).integers(1, 256, (300, 130), np.uint8)
IMAGES = {
    "rgb": Image.fromarray(COLORS),
    "rgba": Image.fromarray(np.dstack([COLORS, ALPHA])),
    "palette": Image.fromarray(scene(300, 130)).quantize(64),
    "gray": Image.fromarray(COLORS[:, :, 0]),
    "gray and alpha": Image.fromarray(np.dstack([COLORS[:, :, 0], ALPHA]), "LA"),
    "one bit": Image.fromarray(COLORS[:, :, 0] > 99),
}
ROWS = [
    *(("PNG", kind, {}) for kind in IMAGES),
    *(("WEBP", kind, {"lossless": True, "exact": True}) for kind in ("rgb", "rgba")),
    ("WEBP", "rgb", {"quality": 80}),
    *(("BMP", kind, {}) for kind in ("rgb", "palette", "gray", "one bit")),
    *(("TIFF", kind, {"compression": how}) for kind in ("rgb", "gray") for how in (None, "tiff_lzw", "tiff_deflate")),
    ("JPEG", "rgb", {}),
    ("JPEG", "gray", {}),
]


def stored(image, kind, **options):
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def gray(content, **fields):
    ops = [pp.decode(color="gray", **fields), pp.tensor(dtype="uint8", layout="hwc", max_size=4096)]
    with pp.Engine(pp.Pipeline(ops), threads=1) as engine:
        batch = engine.run_batch([content])
    return batch.errors[0] or batch["tensor"][0][:, :, 0]


@pytest.mark.parametrize(("kind", "mode", "options"), ROWS, ids=str)
def test_gray_values_are_those_of_opencv(kind, mode, options):
    content = stored(IMAGES[mode], kind, **options)
    expected = cv2.imdecode(np.frombuffer(content, np.uint8), cv2.IMREAD_GRAYSCALE)
    np.testing.assert_array_equal(gray(content, gray_like="opencv"), expected)


def test_the_default_is_the_formula_of_pillow_which_differs():
    content = stored(IMAGES["rgb"], "PNG")
    np.testing.assert_array_equal(gray(content), np.asarray(IMAGES["rgb"].convert("L")))
    assert (gray(content) != gray(content, gray_like="opencv")).mean() > 0.4


@pytest.mark.parametrize(
    ("kind", "image", "what"),
    [("GIF", IMAGES["palette"], "GIF with 8"), ("PNG", Image.fromarray(np.zeros((9, 9), np.uint16)), "PNG with 16")],
)
def test_other_formats_and_more_bits_are_rejected(kind, image, what):
    error = gray(stored(image, kind), gray_like="opencv")
    assert str(error).endswith(f'"gray_like": "opencv" of decode does not support a {what} bits per sample')


def test_the_field_requires_gray_images():
    with pytest.raises(PipelineError, match='"gray_like" requires "color": "gray"'):
        pp.Pipeline([pp.decode(gray_like="opencv"), pp.tensor()])


@pytest.mark.parametrize("color", ["gray", "rgb"])
def test_clahe_may_precede_a_resize(color):
    content = stored(Image.fromarray(scene(150, 211)), "PNG")
    ops = [pp.clahe(clip_limit=2.0), pp.resize(height=50, width=90, like="opencv"), pp.flip()]
    decode = pp.decode(color=color, gray_like="opencv" if color == "gray" else None)
    with pp.Engine(pp.Pipeline([decode, *ops, pp.tensor(dtype="uint8", layout="hwc")]), threads=1) as engine:
        found = engine.run([content])[0]
    clahe, pixels = cv2.createCLAHE(2.0, (8, 8)), cv2.imdecode(np.frombuffer(content, np.uint8), int(color == "rgb"))
    if color == "gray":
        expected = clahe.apply(pixels)[:, :, None]
    else:
        lab = cv2.cvtColor(pixels, cv2.COLOR_BGR2LAB)
        lab[:, :, 0] = clahe.apply(lab[:, :, 0])
        expected = cv2.cvtColor(lab, cv2.COLOR_LAB2RGB)
    np.testing.assert_array_equal(found, cv2.resize(expected, (90, 50)).reshape(50, 90, -1)[:, ::-1])
