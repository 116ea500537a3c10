"""Tests pipelines whose resize does not round its values, against TensorFlow's resize followed by NumPy."""

import numpy as np
import pytest

import pixprep as pp
from pixprep.importers.verify import frozen
from pixprep.pipeline import ops
from pixprep.plan.profiles.windows import multiply_add
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
    assert pp.Pipeline([*ops, pp.tensor()]).plan.outputs["tensor"].unsupported_by_cuda


@pytest.mark.parametrize(
    ("after", "message"),
    [
        ([pp.normalize(), pp.tensor()], 'must come before a normalize with "luma"'),
        ([pp.center_crop(9), pp.tensor()], "depends on all pixels"),
        ([pp.resize(height=99, width=99, like="torch_float"), pp.tensor()], "depends on all pixels"),
        ([pp.tensor(dtype="float16")], '"luma" requires a tensor with "dtype": "float32"'),
    ],
)
def test_no_op_may_change_values_after_luma(after, message):
    with pytest.raises(pp.PipelineError, match=message):
        pp.Pipeline([pp.decode(), pp.resize(height=20, width=30), pp.normalize(luma="numpy"), *after])


def interpolated(values, axis, out, *, is_cubic, has_corners):
    """Interpolate values along an axis as PyTorch does, with products and sums in float32."""
    length, f = values.shape[axis], np.float32
    at = np.arange(out, dtype=f)
    if has_corners:
        centers = at * (f(length - 1) / f(out - 1) if out > 1 else f(0))
    else:
        centers = multiply_add(f(length) / f(out), at + f(0.5), f(-0.5))
    centers = centers if is_cubic else np.maximum(centers, 0)
    first = np.minimum(np.floor(centers).astype(int), length - 1)
    t = np.clip(centers - first.astype(f), 0, 1).astype(f)
    if is_cubic:
        near = [multiply_add(f(1.25), x, f(-2.25)) * x * x + f(1) for x in (t, f(1) - t)]
        far = [
            multiply_add(multiply_add(f(-0.75), x, f(3.75)), x, f(-6)) * x + f(3) for x in (t + f(1), f(1) - t + f(1))
        ]
        weights, first = (far[0], near[0], near[1], far[1]), first - 1
    else:
        weights = f(1) - t, t
    taps = [values.take((first + tap).clip(0, length - 1), axis) for tap in range(len(weights))]
    shaped = [np.expand_dims(weight, tuple(other for other in range(3) if other != axis)) for weight in weights]
    total = multiply_add(taps[0], shaped[0], taps[1] * shaped[1])
    for tap, weight in zip(taps[2:], shaped[2:], strict=True):
        total = multiply_add(tap, weight, total)
    return total


@pytest.mark.parametrize("size", [(90, 41), (20, 150), (47, 100), (200, 61)])
@pytest.mark.parametrize("filter_", ["bilinear", "bicubic"])
@pytest.mark.parametrize("like", ["torch_float", "torch_corners"])
def test_interpolated_values_equal_those_of_numpy(like, filter_, size):
    resize = pp.resize(height=size[0], width=size[1], filter=filter_, antialias=False, like=like)
    ops = [pp.decode(), pp.normalize(MEAN, STD, arithmetic="fused"), resize, pp.tensor()]
    values = ask([pp.decode(), ops[1], pp.tensor(max_size=99)], png(scene(47, 61)))["tensor"]
    how = {"is_cubic": filter_ == "bicubic", "has_corners": like == "torch_corners"}
    expected = interpolated(interpolated(values, 2, size[1], **how), 1, size[0], **how)
    found = ask(ops, png(scene(47, 61)))["tensor"]
    assert np.array_equal(found, expected)


def test_resized_values_are_clipped_to_the_range_of_the_pixel_values():
    resize = pp.resize(height=90, width=100, filter="bicubic", antialias=False, like="torch_float")
    before = [pp.decode(), pp.normalize(arithmetic="multiply"), resize]
    image = png(np.where(scene(47, 61) > 90, 255, 0).astype(np.uint8))
    values = ask([*before, pp.tensor()], image)["tensor"]
    assert values.min() < -0.01
    assert values.max() > 1.01
    clipped = pp.normalize(MEAN, STD, scale=1.0, arithmetic="divide", clip=True)
    mean, std = (np.array(each, np.float32).reshape(3, 1, 1) for each in (MEAN, STD))
    assert np.array_equal(ask([*before, clipped, pp.tensor()], image)["tensor"], (values.clip(0, 1) - mean) / std)


def test_a_small_result_of_bilinear_without_antialiasing_is_rejected():
    how = {"antialias": False, "like": "torch_float"}
    pp.resize(height=64, width=65, **how)
    with pytest.raises(pp.PipelineError, match='"height" and "width" must add up to at least 129'):
        pp.resize(height=64, width=64, **how)
    by_shorter = pp.Pipeline([pp.decode(), pp.resize(60, max_size=90, **how), pp.tensor()])
    with pp.Engine(by_shorter) as engine:
        batch = engine.run_batch([png(scene(47, 47)), png(scene(40, 60))])
    assert "60 x 60, whose sum must be at least 129" in batch.errors[0].detail
    assert batch.errors[1] is None


def test_slanext_interpolates_with_weights_of_eleven_bits():
    image, size = scene(47, 61), (70, 33)
    firsts, weights = [], []
    for length, out in zip(image.shape, size, strict=False):
        centers = (np.arange(out, dtype=np.float32) + np.float32(0.5)) * np.float32(length / out) - np.float32(0.5)
        firsts.append(np.floor(centers).astype(int))
        right = np.floor((centers - np.floor(centers)) * np.float32(2048) + np.float32(0.5)).astype(int)
        weights.append((2048 - right, right))
    total = np.zeros((*size, 3), int)
    for down in (0, 1):
        for across in (0, 1):
            rows, columns = (
                (first + step).clip(0, length - 1)
                for first, step, length in zip(firsts, (down, across), image.shape, strict=False)
            )
            weight = weights[0][down][:, None, None] * weights[1][across][:, None]
            total += weight * image[rows][:, columns].astype(int)
    ops = [
        pp.decode(),
        pp.resize(height=size[0], width=size[1], like="slanext"),
        pp.tensor(dtype="uint8", layout="hwc"),
    ]
    assert np.array_equal(ask(ops, png(image))["tensor"], (total + (1 << 21)) >> 22)
