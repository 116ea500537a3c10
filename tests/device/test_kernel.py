"""The kernel against Pillow and the float64 oracle, through the engine: one table of pipelines x awkward images."""

import numpy as np
import pytest
from PIL import Image

import pixprep as pp
import reference
from compare import EQUAL, FLOAT16, FLOAT32, ONE_LEVEL, ORACLE, assert_close
from images import checkerboard, expected_pixels, gradient, noise, photo, png, scene

PILLOW = {
    "nearest": Image.Resampling.NEAREST,
    "box": Image.Resampling.BOX,
    "bilinear": Image.Resampling.BILINEAR,
    "hamming": Image.Resampling.HAMMING,
    "bicubic": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS,
}
IMAGES = {
    "scene": scene(75, 112),
    "portrait": scene(131, 58, 1),
    "noise": noise(64, 97),
    "checkerboard": checkerboard(51, 80),
    "gradient": gradient(90, 60),
    "square": noise(40, 40, seed=2),
    "odd": scene(37, 53),
    "one row": noise(1, 60),
    "one column": noise(77, 1),
    "1x1": noise(1, 1),
    "2x2": checkerboard(2, 2),
    "long": noise(6, 700),
    "tall": noise(900, 5),
}

VERY_LONG = ("one row", "one column", "long", "tall")  # whose shorter side is not enlarged: the whole becomes huge


def run(pixels, *ops, color="rgb", dtype="uint8", layout="hwc"):
    """The tensor of lossless pixels after the ops."""
    pipeline = pp.Pipeline([pp.decode(color=color), *ops, pp.tensor(dtype=dtype, layout=layout)])
    with pp.Engine(pipeline, threads=1) as engine:
        (tensor,) = engine.run([png(pixels)])
    assert isinstance(tensor, np.ndarray), tensor
    return tensor


def pillow(pixels, height, width, filter_name):
    image = Image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels)
    return np.asarray(image.resize((width, height), PILLOW[filter_name])).reshape(height, width, -1)


@pytest.mark.parametrize("filter_name", PILLOW)
@pytest.mark.parametrize("size", [(32, 48), (200, 150), (7, 300), (90, 3), (1, 1), (75, 56)])
@pytest.mark.parametrize("image", IMAGES)
def test_resize_to_both_sides_equals_pillow(image, size, filter_name):
    pixels = IMAGES[image]
    expected = pillow(pixels, *size, filter_name)
    assert_close(run(pixels, pp.resize(height=size[0], width=size[1], filter=filter_name)), expected, EQUAL)


@pytest.mark.parametrize("filter_name", PILLOW)
@pytest.mark.parametrize(
    ("image", "size"),
    [(image, size) for image in IMAGES for size in (16, 33, 64, 150) if size < 64 or image not in VERY_LONG],
)
def test_resize_of_the_shorter_side_and_centre_crop_equal_pillow(image, size, filter_name):
    pixels = IMAGES[image]
    resized = reference.resized_size(*pixels.shape[:2], size=size)
    crop = max(1, size - 5)
    expected = reference.center_crop(pillow(pixels, *resized, filter_name), crop, crop)
    ops = (pp.resize(size, filter=filter_name), pp.center_crop(crop))
    assert_close(run(pixels, *ops), expected, EQUAL)


@pytest.mark.parametrize("filter_name", PILLOW)
@pytest.mark.parametrize("name", ["china", "flower"])
def test_the_imagenet_preset_of_a_photo_equals_pillow(name, filter_name):
    pixels = expected_pixels(photo(name))
    expected = reference.center_crop(pillow(pixels, 256, 383, filter_name), 224, 224)
    ops = [pp.resize(256, filter=filter_name), pp.center_crop(224)]
    with pp.Engine(pp.Pipeline([pp.decode(), *ops, pp.tensor(dtype="uint8", layout="hwc")])) as engine:
        (tensor,) = engine.run([photo(name)])
    assert_close(tensor, expected, EQUAL)


@pytest.mark.parametrize("filter_name", PILLOW)
@pytest.mark.parametrize("image", ["scene", "portrait", "odd", "1x1", "one row"])
def test_resize_of_the_longer_side_pads_what_a_centre_crop_lacks(image, filter_name):
    pixels = IMAGES[image]
    resized = reference.resized_size(*pixels.shape[:2], size=50, side="longer")
    expected = reference.center_crop(pillow(pixels, *resized, filter_name), 41, 60)
    ops = (pp.resize(50, side="longer", filter=filter_name), pp.center_crop(41, 60))
    assert_close(run(pixels, *ops), expected, EQUAL)


@pytest.mark.parametrize("filter_name", PILLOW)
@pytest.mark.parametrize("fraction", [0.875, 0.5, 0.01, 1.0])
@pytest.mark.parametrize("image", ["scene", "portrait", "odd", "tall", "1x1"])
def test_a_crop_before_the_resize_cuts_first(image, fraction, filter_name):
    cut = np.ascontiguousarray(reference.fraction_crop(IMAGES[image], fraction))
    expected = pillow(cut, 24, 30, filter_name)
    resize = pp.resize(height=24, width=30, filter=filter_name)
    assert_close(run(IMAGES[image], pp.center_crop(fraction=fraction), resize), expected, EQUAL)


@pytest.mark.parametrize("filter_name", PILLOW)
@pytest.mark.parametrize("image", ["scene", "odd", "square", "checkerboard", "one row", "one column", "1x1"])
def test_flips_before_and_after_the_resize_equal_pillow_in_that_order(image, filter_name):
    pixels = IMAGES[image]
    vertical, horizontal = pp.flip("vertical"), pp.flip("horizontal")
    resize = pp.resize(height=25, width=40, filter=filter_name)

    def resized(source):
        return pillow(np.ascontiguousarray(source), 25, 40, filter_name)

    assert_close(run(pixels, horizontal, resize), resized(pixels[:, ::-1]), EQUAL)
    assert_close(run(pixels, vertical, resize), resized(pixels[::-1]), EQUAL)
    assert_close(run(pixels, resize, horizontal), resized(pixels)[:, ::-1], EQUAL)
    assert_close(run(pixels, vertical, resize, vertical, horizontal), resized(pixels[::-1])[::-1, ::-1], EQUAL)


@pytest.mark.parametrize("filter_name", PILLOW)
@pytest.mark.parametrize("anchor", ["center", "top_left"])
@pytest.mark.parametrize("enlarge", [True, False])
@pytest.mark.parametrize("image", ["scene", "portrait", "odd", "1x1", "long", "tall"])
def test_letterbox_fits_and_fills(image, enlarge, anchor, filter_name):
    pixels = IMAGES[image]
    resized = reference.letterbox_size(*pixels.shape[:2], canvas=(64, 81), enlarge=enlarge)
    expected = reference.pad(pillow(pixels, *resized, filter_name), 64, 81, fill=(114, 3, 250), anchor=anchor)
    options = {"fill": (114, 3, 250), "enlarge": enlarge, "anchor": anchor, "filter": filter_name}
    assert_close(run(pixels, pp.letterbox(64, 81, **options)), expected, EQUAL)


@pytest.mark.parametrize("anchor", ["center", "top_left"])
def test_pad_fills_the_margin(anchor):
    cut = IMAGES["scene"][3:33, 5:46]
    expected = reference.pad(cut, 47, 64, fill=9, anchor=anchor)
    assert_close(run(IMAGES["scene"], pp.crop(3, 5, 30, 41), pp.pad(47, 64, fill=9, anchor=anchor)), expected, EQUAL)


@pytest.mark.parametrize("filter_name", ["box", "bilinear", "hamming", "bicubic", "lanczos"])
@pytest.mark.parametrize("size", [(32, 48), (200, 150), (7, 300), (90, 3), (1, 1)])
@pytest.mark.parametrize("image", ["scene", "noise", "checkerboard", "odd", "1x1", "one row", "tall"])
def test_resize_without_antialias_equals_the_oracle(image, size, filter_name):
    pixels = IMAGES[image]
    expected = reference.resize(pixels, *size, filter_name, antialias=False)
    resize = pp.resize(height=size[0], width=size[1], filter=filter_name, antialias=False)
    assert_close(run(pixels, resize), expected, ORACLE)


def test_resize_without_antialias_of_a_part_equals_that_part():
    ops = (pp.resize(30, antialias=False, filter="bicubic"), pp.center_crop(20, 31))
    whole = reference.resize(IMAGES["scene"], 30, 44, "bicubic", antialias=False)
    assert_close(run(IMAGES["scene"], *ops), reference.center_crop(whole, 20, 31), ORACLE)


@pytest.mark.parametrize("filter_name", ["bilinear", "bicubic", "lanczos"])
@pytest.mark.parametrize("size", [(32, 48), (200, 150), (64, 300)])
def test_resize_with_antialias_equals_the_oracle(size, filter_name):
    """The oracle agrees with Pillow, so that a change of Pillow's arithmetic is seen here."""
    expected = reference.resize(IMAGES["scene"], *size, filter_name)
    assert_close(pillow(IMAGES["scene"], *size, filter_name), expected, ORACLE)


@pytest.mark.parametrize("filter_name", PILLOW)
def test_a_region_equals_pillows_at_random_sizes(filter_name):
    rng = np.random.default_rng(11)
    for _ in range(60):
        height, width, out_height, out_width = (int(n) for n in np.exp(rng.uniform(0, np.log(200), 4)))
        top, left = int(rng.integers(0, out_height)), int(rng.integers(0, out_width))
        size = int(rng.integers(1, out_height - top + 1)), int(rng.integers(1, out_width - left + 1))
        pixels = noise(height, width)
        expected = pillow(pixels, out_height, out_width, filter_name)[top : top + size[0], left : left + size[1]]
        ops = (pp.resize(height=out_height, width=out_width, filter=filter_name), pp.crop(top, left, *size))
        assert_close(run(pixels, *ops), expected, EQUAL)


@pytest.mark.parametrize("filter_name", PILLOW)
def test_gray_is_resized_like_colour(filter_name):
    pixels = noise(60, 91, 1)
    expected = pillow(pixels, 24, 40, filter_name)
    resize = pp.resize(height=24, width=40, filter=filter_name)
    assert_close(run(pixels, resize, color="gray"), expected, EQUAL)
    assert_close(run(pixels, resize, color="gray", layout="chw"), expected.transpose(2, 0, 1), EQUAL)


def test_bgr_is_rgb_backwards():
    ops = (pp.resize(40), pp.center_crop(40, 40), pp.pad(50, 60, fill=(1, 2, 3)))
    backwards = (*ops[:2], pp.pad(50, 60, fill=(3, 2, 1)))
    assert_close(run(IMAGES["scene"], *ops, color="bgr"), run(IMAGES["scene"], *backwards)[:, :, ::-1], EQUAL)


@pytest.mark.parametrize("layout", ["chw", "hwc"])
@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", FLOAT32), ("float16", FLOAT16)])
def test_normalize_equals_float64_rounded(dtype, layout, tolerance):
    mean, std = pp.presets.IMAGENET_MEAN, pp.presets.IMAGENET_STD
    crop = pp.center_crop(30, 41)
    levels = run(IMAGES["scene"], crop)
    expected = reference.normalize(levels, mean, std)
    expected = expected if layout == "hwc" else expected.transpose(2, 0, 1)
    tensor = run(IMAGES["scene"], crop, pp.normalize(mean=mean, std=std), dtype=dtype, layout=layout)
    assert tensor.dtype == dtype
    assert_close(tensor, expected.astype(dtype), tolerance)


def test_every_level_of_every_dtype_is_what_float64_says():
    levels = np.arange(256, dtype=np.uint8).reshape(16, 16, 1)
    for dtype in ("float32", "float16"):
        for mean, std, scale in ((0.0, 1.0, 1 / 255), (0.485, 0.229, 1 / 255), (127, 128, 1), (0.5, 0.5, 1 / 127.5)):
            normalize = pp.normalize(mean=mean, std=std, scale=scale)
            tensor = run(levels, pp.center_crop(16), normalize, color="gray", dtype=dtype)
            expected = reference.normalize(levels, mean, std, scale)
            bound = float(np.finfo(dtype).eps) * np.maximum(np.abs(expected), 2.0**-10)
            assert (np.abs(tensor.astype(float) - expected) <= bound).all()


def test_without_normalize_a_float_tensor_holds_the_levels():
    levels = run(IMAGES["scene"], pp.center_crop(30))
    for dtype in ("float32", "float16"):
        assert_close(run(IMAGES["scene"], pp.center_crop(30), dtype=dtype), levels.astype(dtype), EQUAL)


def test_the_margin_is_normalized_like_any_pixel():
    ops = (pp.letterbox(40, 60, fill=114), pp.normalize())
    tensor = run(IMAGES["portrait"], *ops, dtype="float32")
    assert tensor[0, 0].tolist() == [np.float32(114 / 255)] * 3


# A comparison that cannot fail proves nothing: each of these mistakes must be seen.
@pytest.mark.parametrize("tolerance", [ONE_LEVEL, ORACLE])
@pytest.mark.parametrize("mistake", ["no antialias", "bgr", "half a pixel", "x and y", "flip", "filter", "crop by one"])
def test_a_mistake_fails_the_comparison(mistake, tolerance):
    pixels = expected_pixels(photo())
    right = reference.center_crop(pillow(pixels, 256, 383, "bilinear"), 224, 224)
    shifted = Image.fromarray(pixels).resize((383, 256), PILLOW["bilinear"], box=(0.5, 0.5, 639.5, 426.5))
    wrong = {
        "no antialias": reference.center_crop(
            reference.resize(pixels, 256, 383, "bilinear", antialias=False), 224, 224
        ),
        "bgr": right[:, :, ::-1],
        "half a pixel": reference.center_crop(np.asarray(shifted), 224, 224),
        "x and y": right.transpose(1, 0, 2),
        "flip": right[:, ::-1],
        "filter": reference.center_crop(pillow(pixels, 256, 383, "bicubic"), 224, 224),
        "crop by one": pillow(pixels, 256, 383, "bilinear")[16:240, 79:303],
    }[mistake]
    assert_close(right, right, tolerance)
    with pytest.raises(AssertionError, match="worst at"):
        assert_close(wrong, right, tolerance)


def test_nearest_and_antialias_off_are_not_the_same():
    ops = {"height": 20, "width": 30}
    with pytest.raises(AssertionError, match="worst at"):
        assert_close(
            run(IMAGES["noise"], pp.resize(**ops, antialias=False)),
            run(IMAGES["noise"], pp.resize(**ops, filter="nearest")),
            ORACLE,
        )
