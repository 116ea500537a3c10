"""Creates plans and images for tests of the CUDA kernels. They cover every filter of every library, unusual sizes and
every arithmetic.

``synthetic`` is a resize library for tests. Its filter taps are random, begin before the image and end after it. The
library covers every arithmetic except ``fixed``, which the taps of the real libraries cover.
"""

from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import get_args

import numpy as np

import pixprep as pp
from pixprep.plan import geometry_steps
from pixprep.plan.profiles import PROFILES, Profile
from pixprep.plan.profiles.windows import Passes, Windows
from pixprep.spec import Like

PASSES = [passes for passes in get_args(Passes) if passes not in ("fixed", "float_pairs", "smoothed")]
"""Passes of resizes of pixel values. ``value_plans`` covers ``float_pairs``, which resizes float32 values."""
REAL = ("real", "lerp")
"""Passes whose results are not rounded to pixel values."""
SIZES = [(1, 1), (1, 90), (77, 1), (40, 40), (64, 97), (131, 58), (37, 53), (200, 33), (6, 300), (290, 9), (40, 1300)]
WIDTHS = {"opencv_linear": 2, "lerp": 2, "opencv_cubic": 4}
"""Number of positions per window, for passes in which all windows have the same number of positions."""
SCALES = {"opencv_linear": 1462, "opencv_cubic": 1 << 11, "opencv_lanczos": 1 << 11}
"""Factor by which the weights of a window become integers, for passes with a fixed scale.

The weights of a window sum to at most 1.4 times this factor: the first pass of ``opencv_linear`` keeps 16 bits, for
sums up to 2^11.
"""


def plan_of(*ops, color="rgb"):
    pipeline = pp.Pipeline([pp.decode(color=color), *ops])
    (plan,) = pipeline.plan.outputs.values()
    return plan


def images(seed, channels=3):
    rng = np.random.default_rng(seed)
    return [rng.integers(0, 256, (*size, channels), dtype=np.uint8) for size in SIZES]


def cases(*, every=1):
    """Yield pairs of (plan, images). Only one of ``every`` pairs is included."""
    made = [*_libraries(), *_without_resize(), *_types(), *_synthetic(), *_real(), *value_plans()]
    yield from ((plan, images(index, len(plan.channels))) for index, plan in enumerate(made[::every]))


def resizes():
    """Yield the options of every resize of pixel values."""
    for like in (like for like in get_args(Like) if not PROFILES[like].takes_real):
        for name, antialias in PROFILES[like].methods:
            yield {"like": like, "filter": name, "antialias": antialias}


def is_real(options):
    return bool(options) and options["filter"] in PROFILES[options["like"]].real


def _libraries():
    for options in resizes():
        yield from _geometries(options, pp.tensor(dtype="float32" if is_real(options) else "uint8"))


def _geometries(options, tensor):
    yield plan_of(pp.resize(41, **options), pp.center_crop(33, 37), tensor)
    yield plan_of(pp.resize(height=23, width=150, **options), tensor)
    yield plan_of(pp.resize(height=90, width=31, **options), pp.flip(), tensor)
    mirrors = (pp.flip("vertical"), pp.flip())
    yield plan_of(*mirrors, pp.resize(height=50, width=70, **options), pp.crop(7, 9, 40, 3), tensor)
    yield plan_of(pp.letterbox(61, 83, fill=(1, 2, 3), **options), pp.flip("vertical"), tensor)
    yield plan_of(pp.center_crop(fraction=0.7), pp.resize(height=20, width=20, **options), tensor)
    if options.get("like") == "dali":
        share = {"roi": (0.9, 0.1, 0.15, 0.83), "roi_unit": "share"}
        yield plan_of(pp.flip(), pp.resize(height=50, width=37, **share, **options), pp.crop(9, 3, 30, 31), tensor)
    if options.get("like") == "opencv" and options["filter"] != "area":
        by_scale = pp.resize(41, mode="scale", max_size=99, subpixel=True, **options)
        yield plan_of(by_scale, pp.flip(), pp.center_crop(33, 37), tensor)
    if not is_real(options):
        yield from _padded_first(options, tensor)


def _padded_first(options, tensor):
    square = pp.pad(square=True, fill=(1, 200, 3))
    yield plan_of(square, pp.resize(height=29, width=40, **options), tensor)
    corner = pp.pad(square=True, anchor="top_left", fill=99)
    yield plan_of(corner, pp.flip(), pp.flip("vertical"), pp.resize(41, **options), pp.crop(9, 3, 30, 38), tensor)
    yield plan_of(pp.pad(300, 1400, fill=7), pp.resize(60, **options), pp.center_crop(50, 60), pp.flip(), tensor)


def _without_resize():
    u8 = pp.tensor(dtype="uint8")
    yield plan_of(pp.center_crop(50, 70), u8)
    yield plan_of(pp.letterbox(20, 30, anchor="top_left"), pp.pad(40, 50, fill=114), u8)
    for lying in ((20, 300), (300, 20)):  # for most images, this crop contains only padding
        yield plan_of(pp.letterbox(*lying, anchor="top_left"), pp.flip(), pp.crop(4, 9, 15, 10), u8)
        yield plan_of(pp.letterbox(*lying, anchor="top_left"), pp.crop(lying[0] - 12, lying[1] - 9, 11, 9), u8)


def _types():
    resize = pp.resize(30, filter="bicubic")
    crop, normalize = pp.center_crop(28), pp.normalize(mean=(0.1, 0.5, 0.9), std=(0.2, 0.3, 0.4))
    for dtype, layout in (
        ("float32", "chw"),
        ("float16", "hwc"),
        ("float32", "whc"),
        ("uint8", "c1wh"),
        ("float16", "hcw"),
        ("bfloat16", "chw"),
    ):
        levels = [] if dtype == "uint8" else [normalize]
        yield plan_of(resize, crop, *levels, pp.tensor(dtype=dtype, layout=layout), color="bgr")
    yield plan_of(resize, crop, pp.normalize(mean=0.3), pp.tensor(layout="hwc"), color="gray")


def special_tensors():
    """Yield plans whose tensors have four channels, one channel of a color image, or padding with any value.

    The plans with one channel omit the conversion to gray. The kernels must then write the first of three different
    channels.
    """
    for like, dtype in (("pillow", "float16"), ("opencv", "float32"), ("tensorflow", "float32")):
        padded = pp.pad(45, 50, value=(-1, 0.3, 300))
        constants = pp.normalize(mean=(0.1, 0.5, 0.9), arithmetic="fused")
        tensor = pp.tensor(dtype=dtype, layout="hwc")
        yield plan_of(pp.resize(height=30, width=33, like=like), padded, pp.flip(), constants, tensor, color="bgr")
    for like, dtype, layout in (("pillow", "uint8", "hwc"), ("opencv", "float16", "chw"), ("pillow", "float32", "hwc")):
        for ops in ([pp.resize(height=30, width=33, like=like)], [pp.letterbox(40, 44, like=like)]):
            levels = [] if dtype == "uint8" else [pp.normalize(mean=(0.1, 0.5, 0.9))]
            tensor = pp.tensor(dtype=dtype, layout=layout, channels=4, pad_value=200)
            yield plan_of(*ops, *levels, tensor, color="bgr")
            gray = plan_of(pp.grayscale(), *ops, pp.tensor(dtype=dtype, layout=layout, channels=1), color="bgr")
            yield replace(gray, geometry=replace(gray.geometry, photo=()))


def _real():
    """Yield plans whose values no lookup table contains, for each arithmetic and its special cases."""
    resize = {"like": "tensorflow"}
    half, gray = pp.tensor(dtype="float16", layout="hwc"), pp.tensor(layout="hwc")
    constants = {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}
    for arithmetic in ("float64", "divide", "multiply", "fused", "fused_multiply"):
        normalize = pp.normalize(**constants, arithmetic=arithmetic)
        box = pp.letterbox(50, 60, fill=(0, 114, 255), **resize)
        for tensor in (pp.tensor(), half):
            yield plan_of(box, pp.flip(), normalize, tensor, color="bgr")
    small = pp.normalize(mean=0, std=1000, scale=2.0**-9)  # these values are subnormal in float16
    yield plan_of(pp.resize(45, **resize), pp.center_crop(43, 41), small, half)
    chain = [pp.normalize(mean=0.5, std=0.25), pp.normalize(scale=3, arithmetic="multiply"), pp.normalize(scale=1 / 7)]
    yield plan_of(pp.resize(45, **resize, antialias=True), pp.center_crop(43, 41), *chain, gray, color="gray")
    yield plan_of(pp.resize(height=40, width=40, **resize), half)  # one of the images already has this size


def patch_cases():
    """Yield pairs of (plan, images) for patches, tiles and slices. Images that the plan rejects are omitted."""
    for index, plan in enumerate(_patched()):
        batch = []
        for image in images(index, len(plan.channels)):
            with suppress(pp.ImageError):  # the aspect ratio of some images is too extreme
                plan.geometry.place(*image.shape[:2])
                batch.append(image)
        yield plan, batch


def _patched():
    """Yield plans with patches, tiles and slices in every layout, for each kernel that writes them."""
    multiple = {"min_pixels": 56 * 56, "max_pixels": 28 * 28 * 9, "multiple": 28}
    for like, name in (("pillow", "bicubic"), ("opencv", "bicubic"), ("tensorflow", "bilinear")):
        sized = pp.resize_to_pixels(**multiple, like=like, filter=name)
        merged = pp.patches(14, merge_size=2, temporal_patch_size=2)
        yield plan_of(sized, pp.normalize(mean=(0.1, 0.5, 0.9)), merged, color="bgr")
    frames = pp.patches(14, temporal_patch_size=3, layout="tchw", dtype="uint8")
    changes = [pp.contrast(1.4), pp.hue(0.1), pp.rotate(20)]
    yield plan_of(pp.resize_to_pixels(**multiple), *changes, frames)
    for dtype, layout in (("float16", "hwc"), ("uint8", "chw")):
        within = pp.patches(16, max_patches=30, layout=layout, dtype=dtype, flat=False)
        yield plan_of(pp.resize_to_patches(patch_size=16, max_patches=30), within)
    gray = pp.patches(12, merge_size=3, layout="hwc", temporal_patch_size=2)
    yield plan_of(pp.pad(square=True, fill=9), pp.resize(height=72, width=108), pp.flip(), gray, color="gray")
    grids = {"tile_size": 28, "grids": [(1, 2), (2, 1), (2, 2), (1, 3), (3, 1)]}
    for fit, tiles in (
        ("center", {"thumbnail": "first", "thumbnail_of_one": True}),
        ("stretch", {"thumbnail": "last"}),
        ("stretch", {"omit_one": True}),
        ("top_left", {"max_tiles": 4}),
    ):
        resize = pp.resize_to_tiles(**grids, choose="resolution", fit=fit)
        yield plan_of(resize, pp.normalize(mean=(0.1, 0.5, 0.9)), pp.tiles(28, **tiles), color="bgr")
    yield plan_of(
        pp.flip(), pp.resize_to_slices(rule="minicpm", slice_size=42, multiple=28, max_slices=9), pp.slice_patches(14)
    )
    cut = {"slice_size": 32, "multiple": 32, "min_slices": 2, "max_slices": 6, "patch_size": 16, "tolerance": 2.0}
    lfm2 = pp.resize_to_slices(rule="lfm2", min_pixels=1024, max_pixels=2048, **cut)
    yield plan_of(lfm2, pp.slice_patches(16, max_patches=8))


def value_plans():
    """Yield plans that resize normalized values, or that clip the values after the resize."""
    constants = {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}
    fused, half = pp.normalize(**constants, arithmetic="fused"), pp.tensor(dtype="float16", layout="hwc")
    for like in (like for like in get_args(Like) if PROFILES[like].takes_real and not PROFILES[like].reads_all):
        for name, antialias in PROFILES[like].methods:
            options = {"like": like, "filter": name, "antialias": antialias}
            yield plan_of(
                fused, pp.resize(height=90, width=41, **options), pp.center_crop(70, 39), pp.tensor(), color="bgr"
            )
            yield plan_of(fused, pp.resize(height=40, width=1300, **options), pp.flip("vertical"), half)
            yield plan_of(pp.normalize(), pp.resize(height=97, width=64, **options), pp.tensor(), color="gray")
    before = pp.normalize(arithmetic="multiply")
    sharp = pp.resize(height=90, width=100, filter="bicubic", antialias=False, like="torch_float")
    clipped = pp.normalize(**constants, scale=1.0, arithmetic="divide", clip=True)
    for tensor in (pp.tensor(), half):
        yield plan_of(before, sharp, clipped, tensor)
        yield plan_of(pp.resize(height=20, width=30), before, clipped, tensor, color="bgr")


def _windows(method, passes, axis):  # noqa: ARG001
    rng = np.random.default_rng((PASSES.index(passes), axis.length, axis.out_length, axis.begin))
    count = axis.end - axis.begin
    widths = np.full(count, WIDTHS[passes]) if passes in WIDTHS else rng.integers(1, 12, count)
    first = np.sort(rng.integers(-4, axis.length + 3, count))
    weights = rng.uniform(-0.4, 0.8, (count, max(2, widths.max())))
    weights[np.arange(weights.shape[1]) >= widths[:, None]] = 0
    weights *= 1.4 / np.abs(weights).sum(axis=1, keepdims=True)
    bits = int(rng.integers(6, 23))
    if passes == "area":
        weights = (weights != 0).astype(np.int32)  # the filter "area" sums all pixels with equal weights
    elif passes in SCALES:
        weights = np.rint(weights * SCALES[passes]).astype(np.int32)
    else:
        weights = weights.astype(np.float32)
    return Windows(first.astype(np.int32), widths.astype(np.int32), weights, bits)


SYNTHETIC = Profile(
    title="synthetic",
    original=PROFILES["pillow"].original,  # tests never request the original
    filters=PASSES,  # each filter has the same name as its passes
    antialiased=PASSES,
    antialias=True,
    real=REAL,
    passes=lambda method, rows, columns: method.filter,  # noqa: ARG005
    is_vertical_first=lambda method, rows, _: method.filter in ("float_even", "real") and rows.length % 2 == 0,
    windows=_windows,
    formula=lambda method, passes: None,  # noqa: ARG005
)


@contextmanager
def synthetic_library():
    """Register the library ``synthetic`` inside the context only, so that no other test uses it."""
    PROFILES["synthetic"] = SYNTHETIC
    yield
    del PROFILES["synthetic"]


def synthetic(plan, passes):
    """Return a plan whose resize uses the given synthetic passes."""
    resize = geometry_steps.Resize(**vars(plan.geometry.resize) | {"like": "synthetic", "filter": passes})
    return replace(plan, geometry=replace(plan.geometry, resize=resize))


def _synthetic():
    for passes in PASSES:
        for plan in _geometries({}, pp.tensor(dtype="float32" if passes in REAL else "uint8")):
            yield synthetic(plan, passes)
