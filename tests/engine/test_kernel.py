"""Tests that the kernels match Pillow and the float64 reference in the engine, for a table of pipelines and unusual
images.
"""

import pickle
import sys
from typing import get_args

import numpy as np
import pytest
from PIL import Image

import pixprep as pp
from pixprep.engine.kernels import levels
from pixprep.engine.kernels.kernel import CpuKernel
from pixprep.plan.profiles import PROFILES
from pixprep.plan.steps.levels import Take
from pixprep.spec import Like
from support import reference
from support.compare import EQUAL, FLOAT16, FLOAT32, ORACLE, assert_close
from support.images import checkerboard, gradient, noise, png, scene
from support.resize_cases import INSTALLED, by_pillow

FILTERS = PROFILES["pillow"].antialiased
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
LARGEST = 1_000_000
"""Maximum number of values of a result. Images with a side of one pixel become huge if that side is enlarged."""


def run_all(images, *ops, color="rgb", dtype="uint8", layout="hwc"):
    """Return the tensors that the ops produce, from pixels or from files that contain these pixels."""
    pipeline = pp.Pipeline([pp.decode(color=color), *ops, pp.tensor(dtype=dtype, layout=layout)])
    with pp.Engine(pipeline, threads=1) as engine:
        tensors = engine.run([each if isinstance(each, bytes) else png(each) for each in images])
    assert all(isinstance(tensor, np.ndarray) for tensor in tensors), tensors
    return tensors


def run(pixels, *ops, **options):
    (tensor,) = run_all([pixels], *ops, **options)
    return tensor


# Each case contains a function and a list of ops. The function is called with an image and ``by_pillow(pixels, height,
# width)``, and returns the expected result, or None if the case does not apply to the image. A dict in the list
# contains the options of a letterbox if it has the key ``fill``, and the options of a resize if it does not.


def both(height, width):
    return lambda pixels, by_pillow: by_pillow(pixels, height, width), [{"height": height, "width": width}]


def cropped(size, side, height, width):
    def expected(pixels, by_pillow):
        resized = reference.resized_size(*pixels.shape[:2], size=size, side=side)
        if resized[0] * resized[1] <= LARGEST // 3:
            return reference.center_crop(by_pillow(pixels, *resized), height, width)
        return None

    return expected, [{"size": size, "side": side}, pp.center_crop(height, width)]


def cut_first(fraction):
    def expected(pixels, by_pillow):
        return by_pillow(reference.fraction_crop(pixels, fraction), 24, 30)

    return expected, [pp.center_crop(fraction=fraction), {"height": 24, "width": 30}]


def flipped(*before, after=()):
    """Run the ops with a flip before or after the resize, or with two flips, which cancel out."""

    def turn(pixels, axes):
        for axis in axes:
            pixels = pixels[::-1] if axis == "vertical" else pixels[:, ::-1]
        return pixels

    ops = [*map(pp.flip, before), {"height": 25, "width": 40}, *map(pp.flip, after)]
    return lambda pixels, by_pillow: turn(by_pillow(turn(pixels, before), 25, 40), after), ops


def letterboxed(*, enlarge, anchor):
    def expected(pixels, by_pillow):
        resized = reference.letterbox_size(*pixels.shape[:2], canvas=(64, 81), enlarge=enlarge)
        return reference.pad(by_pillow(pixels, *resized), 64, 81, fill=(114, 3, 250), anchor=anchor)

    return expected, [{"fill": (114, 3, 250), "enlarge": enlarge, "anchor": anchor}]


CASES = {
    **{f"{h} x {w}": both(h, w) for h, w in [(32, 48), (200, 150), (7, 300), (90, 3), (1, 1), (75, 56)]},
    **{f"shorter {size}": cropped(size, "shorter", size - 5, size - 5) for size in (16, 33, 64, 150)},
    "longer 50, which a crop pads": cropped(50, "longer", 41, 60),
    **{f"crop of {fraction} first": cut_first(fraction) for fraction in (0.875, 0.5, 0.01, 1.0)},
    "mirrored first": flipped("horizontal"),
    "upside down first": flipped("vertical"),
    "mirrored last": flipped(after=("horizontal",)),
    "upside down first and last, and mirrored": flipped("vertical", after=("vertical", "horizontal")),
    **{
        f"letterbox, enlarge {enlarge}, {anchor}": letterboxed(enlarge=enlarge, anchor=anchor)
        for enlarge in (True, False)
        for anchor in ("center", "top_left")
    },
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(
    ("like", "filter_name"),
    [("pillow", name) for name in FILTERS] + [("pillow12", "bilinear"), ("pillow12", "lanczos")],
)
def test_a_pipeline_equals_pillow(like, filter_name, case):
    expected, ops = CASES[case]

    def pillow(pixels, height, width):
        return by_pillow(pixels, (height, width), filter_name, like)

    def op(options):
        if not isinstance(options, dict):
            return options
        resize = {"like": like, "filter": filter_name} | options
        return pp.letterbox(64, 81, **resize) if "fill" in options else pp.resize(**resize)

    wanted = {name: expected(pixels, pillow) for name, pixels in IMAGES.items()}
    wanted = {name: pixels for name, pixels in wanted.items() if pixels is not None}
    assert len(wanted) >= 9
    for name, tensor in zip(wanted, run_all([IMAGES[name] for name in wanted], *map(op, ops)), strict=True):
        try:
            assert_close(tensor, wanted[name], EQUAL)
        except AssertionError as error:
            raise AssertionError(f"{name}: {error}") from None


def test_the_installed_pillow_resizes_in_the_order_of_its_profile():
    """The table of pipelines runs one pass at a time. The image in this test shows the order, because the orders give
    different results.
    """
    pixels = noise(300, 100)
    found = np.asarray(Image.fromarray(pixels).resize((90, 40), Image.Resampling.BICUBIC))
    other = {"pillow": "pillow12", "pillow12": "pillow"}[INSTALLED]
    assert_close(by_pillow(pixels, (40, 90), "bicubic", INSTALLED), found, EQUAL)
    with pytest.raises(AssertionError, match="worst at"):
        assert_close(by_pillow(pixels, (40, 90), "bicubic", other), found, EQUAL)


@pytest.mark.parametrize(("like", "anchor"), [*((like, "center") for like in get_args(Like)), ("pillow", "top_left")])
def test_padding_before_the_resize_is_resampled_like_other_pixels(like, anchor):
    """The reference is a pipeline without ``pad`` that receives the padded image."""
    fill = (12, 250, 99)
    names = [name for name in IMAGES if max(IMAGES[name].shape) <= 131]  # a 900 x 900 image takes a second
    files, canvases = [], []
    for name in names:
        pixels = np.broadcast_to(IMAGES[name], (*IMAGES[name].shape[:2], 3))
        files.append(png(pixels))
        canvases.append(png(reference.pad(pixels, *(max(pixels.shape[:2]),) * 2, fill=fill, anchor=anchor)))
    count = 0
    for method in PROFILES[like].methods:
        if method.filter in PROFILES[like].real:
            continue
        how = {"like": like, **method._asdict()}
        for ops in (
            [pp.resize(height=30, width=41, **how)],
            [pp.resize(40, **how), pp.center_crop(33, 36)],
            [
                pp.resize(height=30, width=1, **how),
                pp.crop(7, 0, 20, 1),
            ],  # in PyTorch, a bug makes all rows equal to the first row
            [pp.flip(), pp.flip("vertical"), pp.resize(height=140, width=150, **how), pp.crop(70, 3, 20, 140)],
        ):
            ours = run_all(files, pp.pad(square=True, fill=fill, anchor=anchor), *ops)
            theirs = run_all(canvases, *ops)
            for name, our, their in zip(names, ours, theirs, strict=True):
                assert np.array_equal(our, their), (name, how, ops)
                count += 1
    assert count >= 4 * len(names) or PROFILES[like].real


@pytest.mark.parametrize("anchor", ["center", "top_left"])
def test_pad_uses_the_fill_colour(anchor):
    cut = IMAGES["scene"][3:33, 5:46]
    expected = reference.pad(cut, 47, 64, fill=9, anchor=anchor)
    assert_close(run(IMAGES["scene"], pp.crop(3, 5, 30, 41), pp.pad(47, 64, fill=9, anchor=anchor)), expected, EQUAL)
    expected = reference.pad(cut, 32, 48, fill=(9, 8, 7), anchor=anchor)
    multiples = pp.pad(multiple=16, fill=(9, 8, 7), anchor=anchor)
    assert_close(run(IMAGES["scene"], pp.crop(3, 5, 30, 41), multiples), expected, EQUAL)


@pytest.mark.parametrize("color", ["rgb", "bgr", "gray"])
@pytest.mark.parametrize("number", ["max", "mean"])
def test_an_image_can_be_scaled_by_its_own_maximum(number, color):
    """The images cover every maximum, including 0. rembg's U2-Net uses this order of float64 operations."""
    mean, std = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)) if color != "gray" else ((0.4,), (0.3,))
    ramp = np.arange(256, dtype=np.uint8).reshape(16, 16, 1)
    dim = [np.minimum(np.dstack([ramp, ramp[::-1], ramp // 2]), most).astype(np.uint8) for most in range(256)]
    order = {"rgb": [0, 1, 2], "bgr": [2, 1, 0], "gray": [0]}[color]
    dim = [np.repeat(pixels[:, :, :1], 3, axis=2) for pixels in dim] if color == "gray" else dim
    normalize = pp.normalize(mean=mean, std=std, scale=number)
    ops = [pp.crop(0, 0, 16, 16), pp.brightness(1.5), normalize, pp.flip(), pp.tensor(layout="hwc")]
    with pp.Engine(pp.Pipeline([pp.decode(color=color), *ops])) as engine:
        tensors = engine.run([png(pixels) for pixels in dim])
    for pixels, tensor in zip(dim, tensors, strict=True):
        levels = np.minimum(pixels[:, ::-1, order].astype(np.float32) * np.float32(1.5), 255).astype(np.uint8)
        own = getattr(np, number)(levels) or 1
        assert np.array_equal(tensor, ((levels / own - mean) / std).astype(np.float32))
    assert len({tensor.tobytes() for tensor in tensors}) > 170


def pairwise_sum(values):
    """Return the float32 sum of a flat array in the order of NumPy 2's pairwise summation."""
    if len(values) > 128:
        half = len(values) // 16 * 8
        return np.float32(pairwise_sum(values[:half]) + pairwise_sum(values[half:]))
    whole = len(values) // 8 * 8
    sums = np.zeros(8, np.float32)
    for row in values[:whole].reshape(-1, 8):
        sums += row
    while len(sums) > 1:
        sums = sums[::2] + sums[1::2]
    total = sums[0]
    for value in values[whole:]:
        total += value
    return total


def standardized(pixels):
    """Return the pixel values minus their mean, divided by their standard deviation, in float32."""
    values = pixels.astype(np.float32)
    differences = values - np.float32(np.float64(pairwise_sum(values.ravel())) / values.size)
    variance = np.float32(np.float64(pairwise_sum((differences * differences).ravel())) / values.size)
    return differences / max(np.sqrt(variance), np.float32(1 / np.sqrt(values.size)))


@pytest.mark.parametrize("color", ["rgb", "gray"])
def test_an_image_can_be_standardized(color):
    """The sum of one image exceeds the integers that float32 represents exactly, and one image is uniform."""
    images = [noise(300, 400), scene(301, 259), noise(1, 1), noise(5, 3), np.full((9, 20, 3), 77, np.uint8)]
    images[2:2] = [noise(height, width) for height, width in ((1, 43), (33, 57), (64, 64))]
    images = [np.repeat(pixels[:, :, :1], 3, axis=2) if color == "gray" else pixels for pixels in images]
    shared = [pp.decode(color=color), pp.normalize(scale="standardize")]
    with pp.Engine(pp.Pipeline([pp.decode(color=color), pp.crop(3, 5, 200, 180), *shared[1:], pp.tensor()])) as engine:
        (cropped,) = engine.run([png(images[1])])
    channels = 1 if color == "gray" else 3
    assert np.array_equal(cropped.transpose(1, 2, 0), standardized(images[1][3:203, 5:185, :channels]))
    for pixels in images:
        expected = standardized(pixels[:, :, :channels])
        kept = pp.resize(height=len(pixels), width=len(pixels[0]), like="torch_float")  # keeps the size
        crop = pp.center_crop(min(30, len(pixels)), min(40, len(pixels[0])), rounding="down")
        with pp.Engine(pp.Pipeline([*shared, kept, crop, pp.tensor(layout="hwc")])) as engine:
            (found,) = engine.run([png(pixels)])
        top, left = (len(pixels) - len(found)) // 2, (len(pixels[0]) - len(found[0])) // 2
        assert np.array_equal(found, expected[top : top + len(found), left : left + len(found[0])])


@pytest.mark.parametrize("filter_name", ["box", "bilinear", "hamming", "bicubic", "lanczos"])
@pytest.mark.parametrize("size", [(32, 48), (200, 150), (7, 300), (90, 3), (1, 1)])
def test_resize_without_antialias_equals_the_reference(size, filter_name):
    images = [IMAGES[name] for name in ("scene", "noise", "checkerboard", "odd", "1x1", "one row", "tall")]
    resize = pp.resize(height=size[0], width=size[1], filter=filter_name, antialias=False)
    for pixels, tensor in zip(images, run_all(images, resize), strict=True):
        assert_close(tensor, reference.resize(pixels, *size, filter_name, antialias=False), ORACLE)


@pytest.mark.parametrize("like", ["pillow", "pillow12"])
@pytest.mark.parametrize("filter_name", ["bilinear", "bicubic", "lanczos"])
def test_pillow_with_antialias_equals_the_reference(filter_name, like):
    """This test detects a change of Pillow's arithmetic."""
    for size in ((32, 48), (200, 150), (64, 300), (9, 100)):
        expected = reference.resize(IMAGES["scene"], *size, filter_name, like=like)
        assert_close(by_pillow(IMAGES["scene"], size, filter_name, like), expected, ORACLE)


@pytest.mark.parametrize("filter_name", FILTERS)
def test_a_region_equals_pillow_at_random_sizes(filter_name):
    rng = np.random.default_rng(11)
    for _ in range(60):
        height, width, out_height, out_width = (int(n) for n in np.exp(rng.uniform(0, np.log(200), 4)))
        top, left = int(rng.integers(0, out_height)), int(rng.integers(0, out_width))
        size = int(rng.integers(1, out_height - top + 1)), int(rng.integers(1, out_width - left + 1))
        pixels = noise(height, width)
        expected = by_pillow(pixels, (out_height, out_width), filter_name)[top : top + size[0], left : left + size[1]]
        ops = (pp.resize(height=out_height, width=out_width, filter=filter_name), pp.crop(top, left, *size))
        assert_close(run(pixels, *ops), expected, EQUAL)


@pytest.mark.parametrize("filter_name", FILTERS)
def test_gray_is_resized_like_colour(filter_name):
    pixels = noise(60, 91, 1)
    expected = by_pillow(pixels, (24, 40), filter_name)
    resize = pp.resize(height=24, width=40, filter=filter_name)
    assert_close(run(pixels, resize, color="gray"), expected, EQUAL)
    assert_close(run(pixels, resize, color="gray", layout="chw"), expected.transpose(2, 0, 1), EQUAL)


def test_bgr_is_rgb_reversed():
    ops = (pp.resize(40), pp.center_crop(40, 40), pp.pad(50, 60, fill=(1, 2, 3)))
    backwards = (*ops[:2], pp.pad(50, 60, fill=(3, 2, 1)))
    assert_close(run(IMAGES["scene"], *ops, color="bgr"), run(IMAGES["scene"], *backwards)[:, :, ::-1], EQUAL)


@pytest.mark.parametrize("layout", ["chw", "hwc"])
@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", FLOAT32), ("float16", FLOAT16)])
def test_normalize_equals_rounded_float64(dtype, layout, tolerance):
    mean, std = pp.presets.IMAGENET_MEAN, pp.presets.IMAGENET_STD
    crop = pp.center_crop(30, 41)
    levels = run(IMAGES["scene"], crop)
    expected = reference.normalize(levels, mean, std)
    expected = expected if layout == "hwc" else expected.transpose(2, 0, 1)
    tensor = run(IMAGES["scene"], crop, pp.normalize(mean=mean, std=std), dtype=dtype, layout=layout)
    assert tensor.dtype == dtype
    assert_close(tensor, expected.astype(dtype), tolerance)


def test_every_pixel_value_of_every_dtype_equals_float64():
    levels = np.arange(256, dtype=np.uint8).reshape(16, 16, 1)
    for dtype in ("float32", "float16"):
        for mean, std, scale in ((0.0, 1.0, 1 / 255), (0.485, 0.229, 1 / 255), (127, 128, 1), (0.5, 0.5, 1 / 127.5)):
            normalize = pp.normalize(mean=mean, std=std, scale=scale)
            tensor = run(levels, pp.center_crop(16), normalize, color="gray", dtype=dtype)
            expected = reference.normalize(levels, mean, std, scale)
            bound = float(np.finfo(dtype).eps) * np.maximum(np.abs(expected), 2.0**-10)
            assert (np.abs(tensor.astype(float) - expected) <= bound).all()


def test_without_normalize_a_float_tensor_contains_the_pixel_values():
    levels = run(IMAGES["scene"], pp.center_crop(30))
    for dtype in ("float32", "float16"):
        assert_close(run(IMAGES["scene"], pp.center_crop(30), dtype=dtype), levels.astype(dtype), EQUAL)


def test_padding_is_normalized_like_other_pixels():
    ops = (pp.letterbox(40, 60, fill=114), pp.normalize())
    tensor = run(IMAGES["portrait"], *ops, dtype="float32")
    assert tensor[0, 0].tolist() == [np.float32(114 / 255)] * 3


@pytest.mark.parametrize("top", [-30, -7, 40])
@pytest.mark.parametrize("left", [-30, 3, 40])
def test_a_crop_outside_its_image_contains_only_the_fill(top, left):
    """This happens with a random crop of a wide padding, after a step on the whole image."""
    image = noise(12, 13)
    (found,) = np.unique(
        levels.apply_steps([Take(top, left, 5, 6, (True, False), (7, 8, 9))], image).reshape(-1, 3), axis=0
    )
    assert found.tolist() == [7, 8, 9]


@pytest.mark.parametrize("like", ["pillow", "torchvision"])
def test_trim_crops_to_the_dark_pixels_before_the_other_ops(like):
    page = noise(90, 110) // 16 + np.uint8(230)
    page[20:61, 33:90] = scene(41, 57)
    page[20, 40] = page[60, 50] = page[30, 33] = page[31, 89] = 0
    tail = (pp.resize(height=24, width=30), pp.flip())
    assert np.array_equal(pp.apply([pp.trim(like=like), *tail], page), run(page, pp.trim(like=like), *tail))
    for image, window in ((page, page[20:61, 33:90]), (page[:5, :7] * 0 + 9, page[:5, :7] * 0 + 9)):
        assert np.array_equal(run(image, pp.trim(like=like), *tail), run(window, *tail))
    assert not np.array_equal(run(page, pp.trim(threshold=255, like=like), *tail), run(page[20:61, 33:90], *tail))


@pytest.mark.parametrize("arithmetic", ["float32", "float64"])
def test_color_ids_are_the_indices_of_the_nearest_colors(arithmetic):
    colors = [(0, 0, 0), (255, 255, 255), (200, 30, 40), (20, 30, 200), (200, 30, 40)]
    ops = [pp.decode(), pp.resize(height=30, width=41), pp.color_ids(colors=colors, arithmetic=arithmetic)]
    pipeline = pickle.loads(pickle.dumps(pp.Pipeline(ops)))  # noqa: S301  (its own bytes)
    assert pipeline.plan == pp.Pipeline(ops).plan
    with pp.Engine(pipeline, threads=1) as engine:
        (ids,) = engine.run([png(IMAGES["scene"])])
    pixels = run(IMAGES["scene"], ops[1]).reshape(-1, 1, 3).astype(int)
    assert ids.dtype == np.int64
    assert np.array_equal(ids, ((pixels - np.array(colors)) ** 2).sum(2).argmin(1))
    assert len({*ids.tolist()}) >= 3


LAYOUT_CASES = {
    "resized": [pp.resize(31, filter="bicubic"), pp.center_crop(29, 40)],
    "as it is": [pp.center_crop(75, 112), pp.flip()],
    "margins": [pp.letterbox(50, 61, fill=(9, 200, 7))],
    "levels": [pp.resize(height=40, width=33), pp.contrast(0.5), pp.rotate(20)],
    "real values": [pp.resize(height=40, width=33, like="tensorflow")],
}


@pytest.mark.parametrize("layout", ["chw", "cwh", "whc", "wch", "hcw", "1chw", "c1hw", "w1hc1"])
@pytest.mark.parametrize("case", LAYOUT_CASES)
def test_each_layout_has_the_same_values(case, layout):
    for dtype in ("float32", "float16", "uint8")[: 2 if case == "real values" else 3]:
        expected = run(scene(75, 112), *LAYOUT_CASES[case], dtype=dtype)
        axes = ["hwc".index(axis) for axis in layout if axis != "1"]
        ones = tuple(place for place, axis in enumerate(layout) if axis == "1")
        found = run(scene(75, 112), *LAYOUT_CASES[case], dtype=dtype, layout=layout)
        np.testing.assert_array_equal(found, np.expand_dims(expected.transpose(axes), ones))
        assert found.flags.c_contiguous


def test_a_curve_that_another_thread_uses_meanwhile_does_not_change_the_result():
    """Between any two lines of the kernel, another thread may process an image with a different curve."""
    plan = pp.Pipeline([pp.decode(), pp.resize(height=9, width=9), pp.brightness(0.5), pp.tensor()]).plan
    output, curves = plan.outputs["tensor"], [bytes(range(256))[::step] for step in (1, -1)]
    kernel = CpuKernel(output)

    def interrupt(*_):
        kernel._after_curve(curves[1])
        return interrupt

    before, found = sys.gettrace(), []
    for _ in range(2):
        sys.settrace(interrupt)
        try:
            found.append(kernel._after_curve(curves[0])[0])
        finally:
            sys.settrace(before)
    for table in found:
        np.testing.assert_array_equal(table, CpuKernel(output)._after_curve(curves[0])[0])
