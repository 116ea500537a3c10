"""Tests that the kernels of colour ops match Pillow and torchvision, and that steps are folded only if the result is
exact.
"""

import numpy as np
import pytest
from PIL import Image, ImageEnhance, ImageOps

import pixprep as pp
from pixprep.engine.kernels import levels as kernel
from pixprep.plan.profiles import COLOURS
from pixprep.plan.steps import curves, levels
from support.images import checkerboard, noise, png, scene

LIKES = ["pillow", "torchvision"]
STEPS = {
    "brightness": lambda u, _: curves.brightness(2.5 * u, "pillow"),
    "contrast": lambda u, like: levels.Blend("mean", 2.5 * u, like),
    "saturation": lambda u, like: levels.Blend("own", 2.5 * u, like),
    "hue": lambda u, like: levels.Hue(u - 0.5, like),
    "autocontrast": lambda _, like: levels.Tone("autocontrast", like),
    "equalize": lambda _, like: levels.Tone("equalize", like),
    "posterize": lambda u, _: curves.posterize(1 + int(8 * u)),
    "solarize": lambda u, _: curves.solarize(255 * u),
    "inverted": lambda *_: curves.inverted(),
    "gamma": lambda u, like: curves.gamma(0.3 + 3 * u, 1.0, like),
    "matrix": lambda u, _: levels.ColorMatrix((u, 0.5, -0.2, 9.0, 0.1, 1.2, -u, 3.0, 0.3, 0.3, 0.3, -20.0)),
    "grayscale": lambda _, like: levels.Blend("own", 0.0, like),
}


def awkward(index):
    """Return an image with unusual strides: it is rotated and cropped, and has three or four bytes per pixel."""
    height, width = 1 + index * 7 % 45, 1 + index * 13 % 39
    pixels = noise(height + 1, width + 1, 4 if index % 3 else 3, seed=index)
    if index % 4 == 1:
        pixels = pixels // 5 + 100
    return pixels[1:, 1:, :3][:: -1 if index % 2 else 1, :: -1 if index % 5 < 2 else 1]


@pytest.mark.parametrize("like", LIKES)
@pytest.mark.parametrize("name", STEPS)
def test_strides_do_not_change_pixels_and_the_image_is_only_read(name, like):
    generator = np.random.default_rng(1)
    for index in range(60):
        image, steps = awkward(index), [STEPS[name](generator.random(), like)]
        before = image.copy()
        made = kernel.apply_color_steps(steps, image)
        assert np.array_equal(made, kernel.apply_color_steps(steps, before)), (index, steps)
        assert np.array_equal(image, before)


@pytest.mark.parametrize("channels", [1, 3])
def test_a_matrix_mixes_the_channels_in_float32(channels):
    generator = np.random.default_rng(1)
    for index in range(60):
        image = awkward(index)[:, :, :channels]
        numbers = generator.normal(0.3, 1, 12).astype(np.float32)
        step = levels.ColorMatrix(tuple(numbers.tolist()))
        red, green, blue = np.broadcast_to(image, (*image.shape[:2], 3)).transpose(2, 0, 1).astype(np.float32)
        expected = np.stack([red * a + green * b + blue * c + d for a, b, c, d in numbers.reshape(3, 4)], axis=2)
        expected = np.floor(expected.clip(0, 255) + np.float32(0.5)).astype(np.uint8)[:, :, :channels]
        assert np.array_equal(kernel.apply_color_steps([step], image), expected)
        wrong = step.changed(numbers=(*step.numbers[4:], *step.numbers[:4]))
        assert (
            channels == 1 or image.size < 30 or not np.array_equal(kernel.apply_color_steps([wrong], image), expected)
        )


def test_steps_that_round_the_last_columns_differently_are_not_moved_across_a_mirror():
    step = curves.shifted_hsv(20, 5, 5)
    assert not step.is_pointwise
    assert not step.keeps_places
    jitters = [pp.color_jitter(0.1, hue=hue, like=like) for hue in (0.1, None) for like in ("opencv", "pillow")]
    assert [(op.is_pointwise, op.keeps_places) for op in jitters] == [(False, False), *[(True, True)] * 3]


def test_a_chain_equals_its_steps_one_after_the_other():
    generator = np.random.default_rng(2)
    changed = 0
    for index in range(100):
        chosen = generator.choice(list(STEPS), generator.integers(2, 6))
        steps = [STEPS[name](generator.random(), LIKES[generator.integers(2)]) for name in chosen]
        image = expected = awkward(index)
        for step in steps:
            expected = kernel.apply_color_steps([step], expected)
        made = kernel.apply_color_steps(steps, image)
        assert np.array_equal(made, expected), (index, steps)
        changed += not np.array_equal(made, image)
    assert changed > 60


def some_colours():
    """Return every fifth value of each channel and all nearly gray colours, as an array (rows, 256, 3)."""
    axis = [*range(0, 256, 5), 254]
    cube = np.stack(np.meshgrid(axis, axis, axis, indexing="ij"), axis=-1).reshape(-1, 3)
    gray = np.arange(256)[:, None] + np.array([[0, 0, 0], [0, 1, 2], [1, 0, 3], [2, 2, 0]])[:, None]
    every = np.concatenate([cube, gray.reshape(-1, 3).clip(0, 255)])
    return np.resize(every, (-(-len(every) // 256), 256, 3)).astype(np.uint8)


@pytest.mark.parametrize("shift", [0.0, 0.004, -0.004, 0.13, -0.37, 0.5, -0.5])
def test_hue_equals_pillow(shift):
    pixels = some_colours()
    hue, *others = Image.fromarray(pixels).convert("HSV").split()
    turned = ((np.asarray(hue).astype(int) + int(shift * 255)) % 256).astype(np.uint8)
    expected = np.asarray(Image.merge("HSV", (Image.fromarray(turned), *others)).convert("RGB"))
    assert np.array_equal(kernel.apply_steps([levels.Hue(shift, "pillow")], pixels), expected)


def test_hsv_conversion_equals_pillow_for_every_saturation_and_value():
    """The hues are those at both ends of each sixth of the circle, including the last sixth, which wraps around to the
    first.
    """
    hues = [0, 1, 42, 43, 85, 86, 127, 128, 170, 171, 213, 254, 255]
    every = np.stack(np.meshgrid(hues, np.arange(256), np.arange(256), indexing="ij"), axis=-1).astype(np.uint8)
    rgb = np.asarray(Image.fromarray(every.reshape(-1, 256, 3), "HSV").convert("RGB"))
    found = np.asarray(Image.fromarray(rgb).convert("HSV").convert("RGB"))
    assert np.array_equal(kernel.apply_steps([levels.Hue(0.0, "pillow")], rgb), found)


@pytest.mark.parametrize("factor", [0.0, 0.3, 1.0, 1.7, 40.0])
def test_blends_equal_pillow(factor):
    pixels = some_colours()
    image = Image.fromarray(pixels)
    for step, enhance in (
        (curves.brightness(factor, "pillow"), ImageEnhance.Brightness),
        (levels.Blend("mean", factor, "pillow"), ImageEnhance.Contrast),
        (levels.Blend("own", factor, "pillow"), ImageEnhance.Color),
    ):
        assert np.array_equal(kernel.apply_steps([step], pixels), np.asarray(enhance(image).enhance(factor))), step


def test_contrast_uses_the_mean_of_the_whole_image_for_each_image():
    image = np.zeros((4, 5, 3), np.uint8)
    image[2:] = 200
    assert np.unique(kernel.apply_steps([levels.Blend("mean", 0.0, "pillow")], image)).tolist() == [100]
    assert np.unique(kernel.apply_steps([levels.Blend("mean", 0.0, "pillow")], image[2:])).tolist() == [200]


def test_means_and_hue_shifts_are_rounded_as_in_each_library():
    assert COLOURS["pillow"].mean(5, 2) == 3
    assert COLOURS["torchvision"].mean(5, 2) == 2.5
    assert COLOURS["torchvision"].mean(1, 3) == float(np.float32(1) / np.float32(3))
    assert [COLOURS["pillow"].turn(shift) for shift in (0.0, 0.004, -0.004, 0.5, -0.5)] == [0, 1, 255, 127, 129]
    assert COLOURS["torchvision"].turn(0.1) == float(np.float32(0.1))


@pytest.mark.parametrize("function", [ImageOps.autocontrast, ImageOps.equalize])
def test_tone_ops_equal_pillow_in_each_channel(function):
    step = levels.Tone(function.__name__, "pillow")
    for index in range(40):
        image = np.ascontiguousarray(awkward(index))
        assert np.array_equal(kernel.apply_steps([step], image), np.asarray(function(Image.fromarray(image)))), index
    flat = np.full((20, 20, 3), 7, np.uint8)
    assert np.array_equal(kernel.apply_steps([step], flat), flat)


def test_equalized_values_end_at_255():
    """Without a limit, Pillow's formula would yield up to 509 for images with few pixels."""
    counts = np.zeros(256, int)
    counts[[3, 9, 200]] = 200, 300, 5
    assert kernel.tone_table(levels.Tone("equalize", "pillow"), counts)[[3, 9, 200]].tolist() == [0, 200, 255]


@pytest.mark.parametrize("like", LIKES)
def test_gray_images_have_no_hue_or_saturation_and_otherwise_equal_gray_photos(like):
    gray = noise(9, 7, 1)
    for step in (levels.Hue(0.3, like), levels.Blend("own", 3.0, like), levels.Blend("own", 0.0, like)):
        assert np.array_equal(kernel.apply_steps([step], gray), gray)
    whole = np.dstack([gray] * 3)
    steps = [
        levels.Tone("equalize", like),
        curves.brightness(1.3, like),
        curves.inverted(),
        levels.Tone("autocontrast", like),
    ]
    if like == "pillow":  # the luma of a gray pixel in torchvision does not always equal its value
        steps.insert(2, levels.Blend("mean", 0.4, like))
    for these in ([steps], [[step] for step in steps]):
        for chain in these:
            assert np.array_equal(np.dstack([kernel.apply_steps(chain, gray)] * 3), kernel.apply_steps(chain, whole))


# --------------------------------------------------------------------------------------------------------- folding


def test_only_adjacent_lookup_tables_are_combined():
    bright, dark = curves.brightness(1.5, "pillow"), curves.brightness(0.4, "pillow")
    hue, own = levels.Hue(0.1, "pillow"), levels.Blend("own", 1.2, "pillow")
    (one,) = levels.folded([bright, curves.posterize(3), dark])
    image = scene(20, 30)
    assert isinstance(one, curves.Curve)
    assert np.array_equal(
        kernel.apply_steps([one], image), kernel.apply_steps([bright, curves.posterize(3), dark], image)
    )
    for kept in ([bright, own, dark], [hue, hue], [own, own], [bright, hue, dark], [levels.Hue(0.0, "pillow")]):
        assert levels.folded(kept) == tuple(kept)


def test_steps_without_effect_are_omitted():
    nothing = [curves.brightness(1.0, "pillow"), curves.posterize(8), levels.Blend("own", 1.0, "torchvision")]
    assert levels.folded([*nothing, levels.Blend("mean", 1.0, "pillow")]) == ()
    assert levels.folded([curves.inverted(), curves.inverted()]) == ()
    assert len(levels.folded([curves.brightness(0.5, "pillow"), levels.Hue(0.0, "torchvision")])) == 2


def test_folding_does_not_change_pixels():
    generator = np.random.default_rng(3)
    shorter = 0
    for index in range(100):
        names = generator.choice([*STEPS, "brightness", "posterize"], 5)
        steps = [STEPS[name](generator.random(), LIKES[index % 2]) for name in names]
        folded = levels.folded(steps)
        assert np.array_equal(kernel.apply_steps(steps, awkward(index)), kernel.apply_steps(folded, awkward(index))), (
            steps
        )
        shorter += len(folded) < len(steps)
    assert shorter > 30


# ------------------------------------------------------------------------------------------------------------- ops


def test_black_padding_after_whole_image_colour_ops_keeps_its_own_colour():
    colour, boxes = pp.contrast(factor=1.5), [[5, 5, 30, 30]]
    chain = [pp.center_crop(80), pp.random_iou_crop(), pp.pad(200, 200, fill=114)]
    for front in ([], [colour]):
        with pytest.raises(pp.PipelineError, match="its padding has a different colour than that of an earlier op"):
            pp.apply([*front, *chain], scene(40, 40), boxes=boxes, seed=0)
    black = pp.apply(
        [colour, chain[0], chain[1], pp.pad(200, 200, fill=0)], np.full((40, 40, 3), 200, np.uint8), boxes=boxes, seed=0
    )
    assert set(np.unique(black)) == {0, 200}


def served(*chain, color="rgb", image=None):
    """Return the pixels, uint8 (height, width, channels), that serving computes."""
    chain = [pp.decode(color=color), pp.crop(0, 0, 30, 40), *chain, pp.tensor(dtype="uint8", layout="hwc")]
    with pp.Engine(pp.Pipeline(chain), threads=1) as engine:
        (tensor,) = engine.run([png(scene(30, 40) if image is None else image)])
    return tensor


@pytest.mark.parametrize(
    ("op", "expected"),
    [
        (pp.grayscale(), lambda x: x.convert("L").convert("RGB")),
        (pp.posterize(bits=2), lambda x: ImageOps.posterize(x, 2)),
        (pp.solarize(threshold=90), lambda x: ImageOps.solarize(x, 90)),
        (pp.solarize_add(add=100), lambda x: x.point([min(255, v + 100) if v < 128 else v for v in range(256)] * 3)),
        (pp.invert(), ImageOps.invert),
        (pp.equalize(), ImageOps.equalize),
        (pp.gamma(gamma=2.2), lambda x: x.point([int(255.999 * (v / 255) ** 2.2) for v in range(256)] * 3)),
    ],
)
def test_served_pixels_equal_pillow(op, expected):
    rgb = np.asarray(expected(Image.fromarray(scene(30, 40))))
    assert np.array_equal(served(op), rgb)
    assert np.array_equal(served(op, color="bgr"), rgb[:, :, ::-1])


def test_a_flip_gives_the_same_result_anywhere_after_colours_and_a_crop():
    jitter = [pp.brightness(factor=1.3), pp.hue(factor=0.1), pp.saturation(factor=0.2)]
    board = checkerboard(30, 40) // 2 + 60
    assert np.array_equal(served(*jitter, pp.flip(), image=board), served(pp.flip(), *jitter, image=board))
    first, last = pp.crop(2, 3, 20, 21), pp.crop(2, 3, 20, 21)
    assert np.array_equal(served(first, *jitter), served(*jitter, last))
    assert not np.array_equal(served(first, pp.contrast(factor=2)), served(pp.contrast(factor=2), last))
