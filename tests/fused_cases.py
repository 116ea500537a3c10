"""Plans and images that the CUDA kernels must get right: every filter, odd sizes, both orders of the passes."""

import numpy as np

import pixprep as pp
from pixprep.compiler import compile_pipeline

FILTERS = ("nearest", "box", "bilinear", "bicubic", "lanczos")
SIZES = [(1, 1), (1, 90), (77, 1), (40, 40), (64, 97), (131, 58), (37, 53), (200, 33), (6, 300), (290, 9)]


def plan_of(*ops, color="rgb"):
    pipeline = pp.Pipeline([pp.decode(color=color), *ops])
    (plan,) = compile_pipeline(pipeline).outputs.values()
    return plan


def images(seed, channels=3):
    rng = np.random.default_rng(seed)
    return [rng.integers(0, 256, (*size, channels), dtype=np.uint8) for size in SIZES]


def cases(*, every=1):
    """(plan, images): every filter with every geometry, each ``every``-th of them."""
    made = [*_geometries(), *_types()]
    yield from ((plan, images(index, len(plan.channels))) for index, plan in enumerate(made[::every]))


def _geometries():
    u8 = pp.tensor(dtype="uint8")
    for name in FILTERS:
        for antialias in (True, False):
            kind = {"filter": name, "exact": True, "antialias": antialias}
            yield plan_of(pp.resize(41, **kind), pp.center_crop(33, 37), u8)
            yield plan_of(pp.resize(height=23, width=150, **kind), u8)
            yield plan_of(pp.resize(height=90, width=31, **kind), pp.flip(), u8)
            yield plan_of(
                pp.flip("vertical"), pp.flip(), pp.resize(height=50, width=70, **kind), pp.crop(7, 9, 40, 3), u8
            )
            yield plan_of(pp.letterbox(61, 83, fill=(1, 2, 3), **kind), pp.flip("vertical"), u8)
            yield plan_of(pp.center_crop(fraction=0.7), pp.resize(height=32, width=32, **kind), u8)
    yield plan_of(pp.center_crop(50, 70), u8)
    yield plan_of(pp.letterbox(20, 30, anchor="top_left", exact=True), pp.pad(40, 50, fill=114), u8)


def _types():
    resize = pp.resize(30, filter="bicubic", exact=True)
    normalize = pp.normalize(mean=(0.1, 0.5, 0.9), std=(0.2, 0.3, 0.4))
    for dtype in ("float32", "float16"):
        for layout in ("chw", "hwc"):
            yield plan_of(resize, pp.center_crop(28), normalize, pp.tensor(dtype=dtype, layout=layout), color="bgr")
    yield plan_of(resize, pp.center_crop(28), pp.normalize(mean=0.3), pp.tensor(layout="hwc"), color="gray")
    yield plan_of(resize, pp.center_crop(28), pp.tensor(dtype="uint8"), color="gray")
