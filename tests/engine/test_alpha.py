"""Tests ``"alpha": "keep"`` of ``decode``: files of many formats, resizes against Pillow and OpenCV, crops, flips,
padding and normalization.
"""

import io
import zlib

import cv2
import numpy as np
import pytest
from PIL import Image

import pixprep as pp
from pixprep.engine.kernels import alpha
from pixprep.importers.verify import verify
from pixprep.show.drawing import true_colours
from pixprep.show.pictures import stages
from pixprep.show.preview import preview
from support import forged
from support.compare import EQUAL, assert_close
from support.images import noise, photo, png, save, scene
from support.loading import loader

RANDOM = np.random.default_rng(5)
KEPT = pp.decode(alpha="keep")
PIXELS = pp.tensor(dtype="uint8", layout="hwc", max_size=4096)
COLORS = noise(37, 53)
ALPHA = noise(37, 53, 1)[:, :, 0]
RGBA = Image.fromarray(np.dstack([COLORS, ALPHA]))
GRAY = Image.fromarray(COLORS[:, :, 0])
PALETTE = Image.fromarray(scene(37, 53)).quantize(64)
OPACITIES = bytes(RANDOM.integers(0, 256, 64).tolist())


def tensor(encoded, *ops, last=PIXELS):
    with pp.Engine(pp.Pipeline([KEPT, *ops, last]), threads=1) as engine:
        batch = engine.run_batch([encoded])
    assert batch.errors[0] is None, batch.errors[0]
    return batch["tensor"][0].copy()


def deep_png(samples, color_type, transparent=None, bits=16):
    """Encode samples (height, width, channels) as a PNG with ``bits`` per sample, and a tRNS chunk if requested."""
    height, width = samples.shape[:2]
    if bits == 16:
        rows = [row.astype(">u2").tobytes() for row in samples]
    else:
        each = (samples[:, :, 0, None] >> np.arange(bits - 1, -1, -1)) & 1
        rows = [np.packbits(row.reshape(-1)).tobytes() for row in each]
    extra = b"" if transparent is None else forged.chunk(b"tRNS", np.array(transparent, ">u2").tobytes())
    data = forged.chunk(b"IDAT", zlib.compress(b"".join(b"\0" + row for row in rows)))
    return forged.png(height, width, extra, data, depth=bits, color=color_type)


FILES = {
    "PNG, RGBA": save(RGBA, "PNG"),
    "PNG, gray and alpha": save(Image.merge("LA", [GRAY, RGBA.getchannel("A")]), "PNG"),
    "PNG, palette with alpha": save(PALETTE, "PNG", transparency=OPACITIES),
    "PNG, palette with a transparent entry": save(PALETTE, "PNG", transparency=7),
    "PNG, gray with a transparent value": save(GRAY, "PNG", transparency=int(COLORS[3, 4, 0])),
    "PNG, RGB with a transparent color": save(
        Image.fromarray(COLORS), "PNG", transparency=tuple(COLORS[3, 4].tolist())
    ),
    "PNG, RGB": save(Image.fromarray(COLORS), "PNG"),
    "WebP, lossless": save(RGBA, "WEBP", lossless=True, exact=True),
    "WebP, lossy": save(RGBA, "WEBP", quality=70),
    "WebP, RGB": save(Image.fromarray(COLORS), "WEBP", quality=70),
    "TIFF, RGBA": save(RGBA, "TIFF"),
    "TIFF, gray and alpha": save(Image.merge("LA", [GRAY, RGBA.getchannel("A")]), "TIFF"),
    "GIF": save(PALETTE, "GIF"),
    "GIF with a transparent entry": save(PALETTE, "GIF", transparency=7),
    "BMP": save(Image.fromarray(COLORS), "BMP"),
    "JPEG": save(Image.fromarray(COLORS), "JPEG"),
    "JPEG, gray": save(GRAY, "JPEG"),
    "JPEG, CMYK": save(Image.fromarray(COLORS).convert("CMYK"), "JPEG"),
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_has_the_colors_and_the_alpha_of_pillow(name):
    expected = np.asarray(Image.open(io.BytesIO(FILES[name])).convert("RGBA"))
    assert_close(tensor(FILES[name]), expected, EQUAL)
    is_opaque = name.endswith("RGB") or name in ("GIF", "BMP") or "JPEG" in name
    assert (expected[:, :, 3] == 255).all() == is_opaque


DEEP = RANDOM.integers(0, 1 << 16, (9, 11, 4), np.uint16)
SMALL = {bits: RANDOM.integers(0, 1 << bits, (9, 16, 1), np.uint16) for bits in (1, 2, 4)}


@pytest.mark.parametrize(
    ("encoded", "colors", "opacity"),
    [
        (deep_png(DEEP, 6), DEEP[:, :, :3] >> 8, DEEP[:, :, 3] >> 8),
        (deep_png(DEEP[:, :, :2], 4), DEEP[:, :, :1] >> 8, DEEP[:, :, 1] >> 8),
        (deep_png(DEEP[:, :, :3], 2, DEEP[2, 3, :3]), DEEP[:, :, :3] >> 8,
         np.where((DEEP[:, :, :3] == DEEP[2, 3, :3]).all(2), 0, 255)),
        (deep_png(DEEP[:, :, :1], 0, DEEP[2, 3, :1]), DEEP[:, :, :1] >> 8,
         np.where(DEEP[:, :, 0] == DEEP[2, 3, 0], 0, 255)),
        *((deep_png(gray, 0, [1], bits), gray * (255 // ((1 << bits) - 1)), np.where(gray[:, :, 0] == 1, 0, 255))
          for bits, gray in SMALL.items()),
    ],
    ids=["RGBA", "gray, alpha", "RGB, transparent color", "gray, transparent value", "1 bit", "2 bits", "4 bits"],
)  # fmt: skip
def test_a_png_with_more_or_fewer_than_8_bits_keeps_its_alpha(encoded, colors, opacity):
    expected = np.dstack([np.broadcast_to(colors, (*opacity.shape, 3)), opacity])
    assert_close(tensor(encoded), expected, EQUAL)
    assert (opacity < 255).any()


def test_the_exif_orientation_also_applies_to_alpha():
    exif = Image.Exif()
    exif[0x112] = 6
    expected = np.asarray(RGBA.transpose(Image.Transpose.ROTATE_270))
    assert_close(tensor(save(RGBA, "PNG", exif=exif)), expected, EQUAL)


FILTERS = ("nearest", "box", "bilinear", "hamming", "bicubic", "lanczos")
SIZES = [(1, 1, 9, 7), (2, 3, 2, 40), (37, 53, 37, 53), (37, 53, 37, 20), (64, 48, 16, 12), (31, 90, 77, 33)]
SIZES += [tuple(map(int, row)) for row in RANDOM.integers(1, 100, (14, 4))] + [(500, 20, 30, 31), (17, 400, 40, 21)]


def transparent(height, width):
    """Return RGBA noise. If the width is odd, each alpha value is 0, 1, 2, 128 or 255."""
    pixels = noise(height, width, 4)
    if width % 2:
        pixels[:, :, 3] = RANDOM.choice([0, 1, 2, 128, 255], (height, width))
    return pixels


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_a_resize_is_that_of_pillow(size):
    height, width, *new = size
    pixels = transparent(height, width)
    for name in FILTERS:
        expected = Image.fromarray(pixels).resize(new[::-1], Image.Resampling[name.upper()])
        found = tensor(png(pixels), pp.resize(height=new[0], width=new[1], filter=name))
        assert_close(found, np.asarray(expected), EQUAL)


CV2 = {"nearest": cv2.INTER_NEAREST, "bilinear": cv2.INTER_LINEAR, "bicubic": cv2.INTER_CUBIC}
CV2 |= {"lanczos4": cv2.INTER_LANCZOS4, "area": cv2.INTER_AREA}


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_a_resize_is_that_of_opencv(size):
    height, width, *new = size
    pixels, has_ipp = transparent(height, width), cv2.ipp.useIPP()
    cv2.ipp.setUseIPP(False)  # as in the profile
    try:
        for name, how in CV2.items():
            found = tensor(png(pixels), pp.resize(height=new[0], width=new[1], filter=name, like="opencv"))
            assert_close(found, cv2.resize(pixels, new[::-1], interpolation=how), EQUAL)
    finally:
        cv2.ipp.setUseIPP(has_ipp)


def test_a_bicubic_resize_of_opencv_differs_by_at_most_1_in_the_last_column():
    """OpenCV processes vectors of eight values. With four channels and an odd width, one column remains, which it
    computes with integers.
    """
    has_ipp, differs = cv2.ipp.useIPP(), 0
    cv2.ipp.setUseIPP(False)
    try:
        for seed in range(20):
            pixels = noise(36, 111, 4, seed)
            found = tensor(png(pixels), pp.resize(height=18, width=111, filter="bicubic", like="opencv")).astype(int)
            expected = cv2.resize(pixels, (111, 18), interpolation=cv2.INTER_CUBIC)
            assert_close(found[:, :-1], expected[:, :-1], EQUAL)
            assert abs(found - expected).max() <= 1
            differs += (found != expected).sum()
    finally:
        cv2.ipp.setUseIPP(has_ipp)
    assert differs < 20 * 18 * 4 * 0.05


def test_pillow_multiplies_by_alpha_and_a_resize_of_the_channels_alone_differs():
    """A negative control for the two tests above: the treatment of alpha changes most values."""
    pixels = noise(64, 48, 4)
    alone = [np.asarray(Image.fromarray(pixels[:, :, index]).resize((20, 30))) for index in range(4)]
    found = tensor(png(pixels), pp.resize(height=30, width=20, filter="bicubic"))
    assert_close(found[:, :, 3], alone[3], EQUAL)
    assert (found[:, :, :3] != np.dstack(alone[:3])).mean() > 0.5


def test_all_colors_with_every_alpha_are_converted_as_in_pillow():
    values = np.arange(256, dtype=np.uint8)
    color, opacity = np.meshgrid(values, values)
    every = np.dstack([color, color[:, ::-1], color, opacity])
    multiplied = np.frombuffer(Image.fromarray(every).convert("RGBa").tobytes(), np.uint8).reshape(every.shape)
    assert_close(alpha.premultiplied(every), multiplied, EQUAL)
    back = every.copy()
    alpha.divide_by_alpha(back)
    image = Image.frombytes("RGBa", (256, 256), every.tobytes())
    assert_close(back, np.asarray(image.convert("RGBA")), EQUAL)


FILL = (10, 200, 30, 40)


@pytest.mark.parametrize("like", ["pillow", "opencv"])
def test_crops_flips_and_padding_move_all_four_channels(like):
    pixels = noise(60, 80, 4)
    ops = [
        pp.crop(top=3, left=5, height=50, width=70), pp.flip(), pp.resize(height=30, width=40, like=like),
        pp.center_crop(height=24, width=20), pp.flip(axis="vertical"), pp.pad(height=31, width=27, fill=FILL),
    ]  # fmt: skip
    part = np.ascontiguousarray(pixels[3:53, 5:75][:, ::-1])
    if like == "pillow":
        resized = np.asarray(Image.fromarray(part).resize((40, 30), Image.Resampling.BILINEAR))
    else:
        resized = cv2.resize(part, (40, 30))
    expected = np.full((31, 27, 4), FILL, np.uint8)
    expected[3:27, 3:23] = resized[3:27, 10:30][::-1]
    assert_close(tensor(png(pixels), *ops), expected, EQUAL)


def test_a_letterbox_has_a_fill_of_four_values():
    pixels = noise(40, 80, 4)
    expected = np.full((32, 32, 4), FILL, np.uint8)
    expected[8:24] = np.asarray(Image.fromarray(pixels).resize((32, 16), Image.Resampling.BILINEAR))
    assert_close(tensor(png(pixels), pp.letterbox(height=32, width=32, fill=FILL)), expected, EQUAL)


@pytest.mark.parametrize("like", ["pillow", "opencv"])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("layout", ["chw", "hwc"])
def test_normalize_has_four_means_and_standard_deviations(like, dtype, layout):
    means, stds = (0.485, 0.456, 0.406, 0.0), (0.229, 0.224, 0.225, 1.0)
    pixels, resize = noise(60, 80, 4), pp.resize(height=30, width=41, like=like)
    last = pp.tensor(dtype=dtype, layout=layout)
    levels = tensor(png(pixels), resize).astype(np.float64)
    expected = ((levels / 255 - means) / stds).astype(np.float64)
    expected = expected if layout == "hwc" else expected.transpose(2, 0, 1)
    found = tensor(png(pixels), resize, pp.normalize(mean=means, std=stds), last=last)
    assert found.shape == ((30, 41, 4) if layout == "hwc" else (4, 30, 41))
    np.testing.assert_allclose(found, expected, rtol=2e-3 if dtype == "float16" else 2e-6, atol=1e-6)


@pytest.mark.parametrize("like", ["pillow", "opencv"])
def test_a_photo_is_opaque_and_its_colors_are_those_without_alpha(like):
    """The crop makes the decoder read only a part of the JPEG."""
    ops = [pp.crop(top=100, left=150, height=200, width=220), pp.resize(height=64, width=64, like=like)]
    found = tensor(photo(), *ops)
    assert (found[:, :, 3] == 255).all()
    with pp.Engine(pp.Pipeline([pp.decode(), *ops, PIXELS]), threads=1) as engine:
        assert_close(found[:, :, :3], engine.run_batch([photo()])["tensor"][0], EQUAL)


SMALL_RGBA = pp.Pipeline([KEPT, pp.resize(height=24, width=30), pp.tensor(dtype="uint8", layout="hwc")])


def test_a_loader_returns_and_caches_alpha_but_does_not_mix_it():
    source = [{"image": png(noise(20 + index, 31, 4)), "label": 0} for index in range(8)]
    with pp.Engine(SMALL_RGBA) as engine:
        expected = engine.run_batch([sample["image"] for sample in source])["tensor"]
    with loader(source, SMALL_RGBA, cache="pixels") as ours:
        for _ in range(2):
            (batch,) = ours
            assert_close(batch["tensor"], expected, EQUAL)
        assert ours.stats().cached == 8
    for mix in (pp.Mix(classes=2, mixup=1.0), [pp.flip(), pp.MixUp(p=0.5)]):
        with pytest.raises(pp.PipelineError, match='mix does not support "alpha": "keep" of decode'):
            loader(source, SMALL_RGBA, mix=mix)


def test_previews_show_the_colors_and_verify_rejects_alpha():
    (shown,) = preview(SMALL_RGBA, FILES["PNG, RGBA"]).tensors
    assert shown.channels == ["red", "green", "blue", "alpha"]
    assert stages(SMALL_RGBA, FILES["PNG, RGBA"]).width > 0
    tensor = SMALL_RGBA.plan.tensors["tensor"], shown.tensor
    assert_close(true_colours(*tensor), shown.tensor[:, :, :3], EQUAL)
    with pytest.raises(pp.PipelineError, match='"alpha": "keep" cannot be verified'):
        verify(SMALL_RGBA)
