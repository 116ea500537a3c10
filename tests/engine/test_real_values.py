"""Tests pipelines whose resize does not round its values, against TensorFlow's resize followed by NumPy."""

import numpy as np
import pytest

import pixprep as pp
from pixprep.importers.verify import frozen
from pixprep.pipeline import ops
from support.asking import ask
from support.compare import EQUAL, assert_close
from support.images import png, read, scene

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
CASES = {case.name: case for case in frozen.cases(ops.Resize(1, like="tensorflow"))}
NOISE = "61x47 to 23x19"


def pixels_of(name):
    return np.asarray(read(CASES[name].encoded))


def resized(name, *, antialias):
    """Return TensorFlow's resized values as float32 (height, width, channels)."""
    _, outputs = frozen.outputs(ops.Resize(1, like="tensorflow", filter="bilinear", antialias=antialias))
    return dict(zip(CASES, outputs, strict=True))[name]


def run(name, *after, antialias=False, color="rgb", before=(), **tensor):
    height, width, _ = CASES[name].shape
    pixels = pixels_of(name)[:, :, : 1 if color == "gray" else 3]
    resize = pp.resize(height=height, width=width, like="tensorflow", antialias=antialias)
    ops = [pp.decode(color=color), *before, resize, *after, pp.tensor(**{"layout": "hwc"} | tensor)]
    with pp.Engine(pp.Pipeline(ops)) as engine:
        (result,) = engine.run([png(pixels)])
    return result


@pytest.mark.parametrize("antialias", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_values_are_not_rounded(name, antialias):
    expected = resized(name, antialias=antialias)
    actual = run(name, antialias=antialias)
    assert actual.dtype == np.float32
    assert_close(actual, expected, EQUAL)
    assert_close(run(name, antialias=antialias, layout="chw"), expected.transpose(2, 0, 1), EQUAL)
    assert_close(run(name, antialias=antialias, color="bgr"), expected[:, :, ::-1], EQUAL)


@pytest.mark.parametrize("antialias", [False, True])
def test_a_gray_image_has_unrounded_values(antialias):
    expected = resized(NOISE, antialias=antialias)[:, :, :1]
    assert_close(run(NOISE, antialias=antialias, color="gray"), expected, EQUAL)


def test_float16_is_the_nearest_to_the_unrounded_value():
    actual = run(NOISE, dtype="float16")
    assert actual.dtype == np.float16
    assert_close(actual, resized(NOISE, antialias=False).astype(np.float16), EQUAL)


def test_a_centre_crop_takes_the_centre():
    # 3 of 6 rows are cut off above, and 2 of 4 columns on the left
    expected = resized(NOISE, antialias=True)[3:20, 2:17]
    assert_close(run(NOISE, pp.center_crop(17, 15), antialias=True), expected, EQUAL)


def test_a_larger_centre_crop_pads_with_zeros():
    expected = np.pad(resized(NOISE, antialias=False), ((1, 1), (3, 4), (0, 0)))
    assert_close(run(NOISE, pp.center_crop(25, 26)), expected, EQUAL)


@pytest.mark.parametrize("color", ["rgb", "bgr"])
def test_padding_has_its_colour(color):
    values = resized(NOISE, antialias=False)[:, :, :: -1 if color == "bgr" else 1]
    expected = np.empty((25, 31, 3), np.float32)
    expected[...] = 7, 80, 201
    expected[1:24, 6:25] = values
    assert_close(run(NOISE, pp.pad(25, 31, fill=(7, 80, 201)), color=color), expected, EQUAL)


@pytest.mark.parametrize(("axis", "steps"), [("horizontal", (1, -1)), ("vertical", (-1, 1))])
def test_a_flip_mirrors_the_resized_image(axis, steps):
    expected = resized(NOISE, antialias=False)[:: steps[0], :: steps[1]]
    assert_close(run(NOISE, pp.flip(axis)), expected, EQUAL)


def test_a_letterbox_fits_and_fills():
    pixels = pixels_of("36x27 to 12x9")
    letterbox = pp.letterbox(12, 40, like="tensorflow")
    with pp.Engine(pp.Pipeline([pp.decode(), letterbox, pp.tensor(layout="hwc")])) as engine:
        (actual,) = engine.run([png(pixels)])
    expected = np.full((12, 40, 3), 114, np.float32)
    expected[:, 15:24] = resized("36x27 to 12x9", antialias=False)
    assert_close(actual, expected, EQUAL)


def normalized(values, arithmetic):
    """Return values by the formulas of ``normalize``. Constants and steps are all float32, or all float64."""
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
def test_every_arithmetic_works_on_unrounded_values(arithmetic, dtype):
    values = np.pad(resized(NOISE, antialias=False), ((1, 1), (2, 2), (0, 0)), constant_values=114)
    steps = (pp.pad(25, 23, fill=114), pp.normalize(MEAN, STD, arithmetic=arithmetic))
    actual = run(NOISE, *steps, dtype=dtype)
    if arithmetic == "float64" and dtype == "float16":
        scale, offset = 1 / 255 / np.array(STD), -np.array(MEAN) / STD
        expected = (values.astype(np.float64) * scale + offset).astype(np.float16)
    else:
        expected = normalized(values, arithmetic).astype(dtype)
    assert_close(actual, expected, EQUAL)


def test_the_arithmetics_differ_from_each_other():
    values = resized(NOISE, antialias=False)
    results = {normalized(values, arithmetic).tobytes() for arithmetic in ARITHMETICS}
    assert len(results) == len(ARITHMETICS)


def test_an_unchanged_size_gives_the_pixel_values():
    pixels = pixels_of(NOISE)
    resize = pp.resize(height=pixels.shape[0], width=pixels.shape[1], like="tensorflow")
    with pp.Engine(pp.Pipeline([pp.decode(), resize, pp.tensor(layout="hwc")])) as engine:
        (actual,) = engine.run([png(pixels)])
    assert_close(actual, pixels.astype(np.float32), EQUAL)


@pytest.mark.parametrize("like", ["torchvision", "numpy"])
@pytest.mark.parametrize("color", ["rgb", "bgr"])
def test_values_become_luma_unless_the_image_is_gray(color, like):
    ops = [pp.decode(color=color), pp.resize(height=20, width=30), pp.normalize(arithmetic="multiply", luma=like)]
    colored, gray = scene(40, 50), np.repeat(scene(40, 50)[:, :, :1], 3, 2)
    plain = [*ops[:2], pp.normalize(arithmetic="multiply"), pp.tensor()]
    found = ask([*ops, pp.tensor()], png(colored))["tensor"]
    red, green, blue = ask(plain, png(colored))["tensor"][:: 1 if color == "rgb" else -1]
    first, second, third = np.float32(0.2989), np.float32(0.587), np.float32(0.114)
    if like == "numpy":
        expected = red * first + green * second + blue * third
    else:
        expected = (np.float64(green) * second + red * first).astype(np.float32)
        expected = (np.float64(blue) * third + expected).astype(np.float32)
    assert all(np.array_equal(plane, expected) for plane in found)
    assert np.array_equal(ask([*ops, pp.tensor()], png(gray))["tensor"], ask(plain, png(gray))["tensor"])
    patches = ask([*ops, pp.patches(10)], png(colored))["patches"]
    assert np.array_equal(patches[0].reshape(3, 10, 10)[0], expected[:10, :10])
    assert pp.Pipeline([*ops, pp.tensor()]).plan.outputs["tensor"].is_hosts


@pytest.mark.parametrize(
    ("after", "message"),
    [
        ([pp.normalize(), pp.tensor()], 'must come before a normalize with "luma"'),
        ([pp.center_crop(9), pp.tensor()], "depends on all pixels"),
        ([pp.resize(height=99, width=99, like="torch_float"), pp.tensor()], "depends on all pixels"),
        ([pp.tensor(dtype="float16")], '"luma" requires "dtype": "float32"'),
    ],
)
def test_no_op_may_change_values_after_luma(after, message):
    with pytest.raises(pp.PipelineError, match=message):
        pp.Pipeline([pp.decode(), pp.resize(height=20, width=30), pp.normalize(luma="numpy"), *after])
