"""A resize whose values nothing rounds, end to end: what TensorFlow made of an image, and NumPy did next."""

import numpy as np
import pytest

import pixprep as pp
from compare import EQUAL, assert_close
from images import png
from vectors import cases, load

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
CASES = {name: (pixels, size) for name, pixels, size in cases()}


def resized(name, *, antialias):
    """TensorFlow's values, float32 (height, width, channels)."""
    arrays, _ = load("tensorflow")
    return arrays[f"{name}, bilinear{', antialias' * antialias}"]


def run(name, *after, antialias=False, color="rgb", before=(), **tensor):
    pixels, (height, width) = CASES[name]
    resize = pp.resize(height=height, width=width, like="tensorflow", antialias=antialias)
    ops = [pp.decode(color=color), *before, resize, *after, pp.tensor(**{"layout": "hwc"} | tensor)]
    with pp.Engine(pp.Pipeline(ops)) as engine:
        (result,) = engine.run([png(pixels)])
    return result


@pytest.mark.parametrize("antialias", [False, True])
@pytest.mark.parametrize("name", [name for name in CASES if name != "gray"])
def test_values_are_not_rounded(name, antialias):
    expected = resized(name, antialias=antialias)
    actual = run(name, antialias=antialias)
    assert actual.dtype == np.float32
    assert_close(actual, expected, EQUAL)
    assert_close(run(name, antialias=antialias, layout="chw"), expected.transpose(2, 0, 1), EQUAL)
    assert_close(run(name, antialias=antialias, color="bgr"), expected[:, :, ::-1], EQUAL)


@pytest.mark.parametrize("antialias", [False, True])
def test_a_gray_image_has_real_values_too(antialias):
    assert_close(run("gray", antialias=antialias, color="gray"), resized("gray", antialias=antialias), EQUAL)


def test_float16_is_the_nearest_to_the_real_value():
    actual = run("photo shrinks", dtype="float16")
    assert actual.dtype == np.float16
    assert_close(actual, resized("photo shrinks", antialias=False).astype(np.float16), EQUAL)


def test_levels_would_be_something_else():
    """The negative control: rounded values fail every comparison here."""
    expected = resized("photo shrinks", antialias=False)
    with pytest.raises(AssertionError):
        assert_close(np.rint(expected), expected, EQUAL)


def test_a_centre_crop_takes_the_middle():
    expected = resized("photo shrinks", antialias=True)[2:19, 2:17]  # margins of 4: 2; of 4: 2
    assert_close(run("photo shrinks", pp.center_crop(17, 15), antialias=True), expected, EQUAL)


def test_a_centre_crop_that_is_larger_pads_with_zeros():
    expected = np.pad(resized("photo shrinks", antialias=False), ((2, 2), (3, 4), (0, 0)))
    assert_close(run("photo shrinks", pp.center_crop(25, 26)), expected, EQUAL)


@pytest.mark.parametrize("color", ["rgb", "bgr"])
def test_a_margin_has_its_colour(color):
    values = resized("photo shrinks", antialias=False)[:, :, :: -1 if color == "bgr" else 1]
    expected = np.empty((24, 31, 3), np.float32)
    expected[...] = 7, 80, 201
    expected[1:22, 6:25] = values
    assert_close(run("photo shrinks", pp.pad(24, 31, fill=(7, 80, 201)), color=color), expected, EQUAL)


@pytest.mark.parametrize(("axis", "steps"), [("horizontal", (1, -1)), ("vertical", (-1, 1))])
def test_a_flip_mirrors_what_was_resized(axis, steps):
    expected = resized("photo shrinks", antialias=False)[:: steps[0], :: steps[1]]
    assert_close(run("photo shrinks", pp.flip(axis)), expected, EQUAL)


def test_a_letterbox_fits_and_fills():
    pixels, _ = CASES["scene by 3"]
    letterbox = pp.letterbox(15, 40, like="tensorflow")
    with pp.Engine(pp.Pipeline([pp.decode(), letterbox, pp.tensor(layout="hwc")])) as engine:
        (actual,) = engine.run([png(pixels)])
    expected = np.full((15, 40, 3), 114, np.float32)
    expected[:, 9:30] = resized("scene by 3", antialias=False)
    assert_close(actual, expected, EQUAL)


def normalized(values, arithmetic):
    """By the formulas of ``normalize``: every constant and every step in float32, or all in float64."""
    mean, std, scale = np.array(MEAN), np.array(STD), 1 / 255
    if arithmetic == "float64":
        return (values.astype(np.float64) * (scale / std) + -mean / std).astype(np.float32)
    single = {
        "divide": lambda x, f: (x / f(255) - f(mean)) / f(std),
        "multiply": lambda x, f: (x * f(scale) - f(mean)) / f(std),
        "fused": lambda x, f: (x - f(mean) * f(255)) / (f(std) * f(255)),
        "fused_multiply": lambda x, f: (x - f(mean / scale)) * f(scale / std),
    }[arithmetic](values, np.float32)
    assert single.dtype == np.float32
    return single


ARITHMETICS = ("float64", "divide", "multiply", "fused", "fused_multiply")


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("arithmetic", ARITHMETICS)
def test_every_arithmetic_works_on_real_values(arithmetic, dtype):
    values = np.pad(resized("photo shrinks", antialias=False), ((1, 1), (2, 2), (0, 0)), constant_values=114)
    steps = (pp.pad(23, 23, fill=114), pp.normalize(MEAN, STD, arithmetic=arithmetic))
    actual = run("photo shrinks", *steps, dtype=dtype)
    if arithmetic == "float64" and dtype == "float16":
        scale, offset = 1 / 255 / np.array(STD), -np.array(MEAN) / STD
        expected = (values.astype(np.float64) * scale + offset).astype(np.float16)
    else:
        expected = normalized(values, arithmetic).astype(dtype)
    assert_close(actual, expected, EQUAL)


def test_the_arithmetics_differ_from_each_other():
    values = resized("photo shrinks", antialias=False)
    kinds = {normalized(values, arithmetic).tobytes() for arithmetic in ARITHMETICS}
    assert len(kinds) == len(ARITHMETICS)


def test_an_unchanged_size_gives_the_levels():
    pixels, _ = CASES["photo shrinks"]
    resize = pp.resize(height=pixels.shape[0], width=pixels.shape[1], like="tensorflow")
    with pp.Engine(pp.Pipeline([pp.decode(), resize, pp.tensor(layout="hwc")])) as engine:
        (actual,) = engine.run([png(pixels)])
    assert_close(actual, pixels.astype(np.float32), EQUAL)


def test_uint8_is_refused():
    with pytest.raises(pp.PipelineError, match="uint8 cannot hold what TensorFlow's resize gives"):
        run("photo shrinks", dtype="uint8")
