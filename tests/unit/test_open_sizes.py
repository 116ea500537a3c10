"""Sizes that follow the image: the formulas of other packages, the bounds, and tensors with open sides.

Each formula is written here as its package has it (rapidocr 3.10, PaddleX 3.7, ddddocr 1.6, torchvision 0.28).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pixprep as pp
from pixprep.ops import Resize
from pixprep.spec import ImageSpec
from pixprep.verify.originals import size_of

Size = tuple[int, int]
NUMBERS = np.random.default_rng(27)
SIZES: list[Size] = [
    *((1, 1), (1, 5000), (5000, 1), (48, 320), (320, 48), (31, 480), (800, 1333), (1333, 800), (799, 800), (640, 640)),
    *((int(h), int(w)) for h, w in NUMBERS.integers(1, 2500, (1500, 2))),
    *((int(h), int(w)) for h, w in NUMBERS.integers(1, 100, (500, 2))),
]


def rapidocr_recognizer(h: int, w: int, most: int = 10**6) -> Size:
    """``resize_norm_img``, of a batch of one; ``most`` is PaddleX's."""
    width = int(48 * max(320 / 48, w * 1.0 / h))
    if width > most:
        return 48, most
    ratio = w / float(h)
    return 48, width if math.ceil(48 * ratio) > width else math.ceil(48 * ratio)


def ddddocr(h: int, w: int) -> Size:
    """``_preprocess_image`` of its recognizer."""
    return 64, int(w * (64 / h))


def rapidocr_detector(h: int, w: int) -> Size:
    """``DetPreProcess.resize`` with ``limit_type`` min and ``limit_side_len`` 736; it detects nothing at 0."""
    ratio = 1.0
    if min(h, w) < 736:
        ratio = float(736) / h if h < w else float(736) / w
    return tuple(max(int(round(int(side * ratio) / 32) * 32), 32) for side in (h, w))  # type: ignore[return-value]


def paddle_detector(h: int, w: int, *, kind: str, limit: int, most: int = 4000) -> Size:
    """``resize_image_type0``."""
    ratio = 1.0
    if kind == "resize_long":
        ratio = float(limit) / max(h, w)
    elif kind == "max" and max(h, w) > limit:
        ratio = float(limit) / h if h > w else float(limit) / w
    elif kind == "min" and min(h, w) < limit:
        ratio = float(limit) / h if h < w else float(limit) / w
    rows, columns = int(h * ratio), int(w * ratio)
    if max(rows, columns) > most:
        ratio = float(most) / max(rows, columns)
        rows, columns = int(rows * ratio), int(columns * ratio)
    return max(int(round(rows / 32) * 32), 32), max(int(round(columns / 32) * 32), 32)


def torchvision_detector(h: int, w: int) -> Size:
    """``_resize_image_and_masks`` and ``interpolate`` with ``recompute_scale_factor``."""
    scale = min(800 / min(h, w), 1333 / max(h, w))
    return max(1, math.floor(float(h) * scale)), max(1, math.floor(float(w) * scale))


def torchvision_resize(h: int, w: int) -> Size:
    """``_compute_resized_output_size`` of 256 with ``max_size`` 400."""
    short, long = (w, h) if w <= h else (h, w)
    new_short, new_long = 256, int(256 * long / short)
    if new_long > 400:
        new_short, new_long = int(400 * new_short / new_long), 400
    return (max(1, new_long), max(1, new_short)) if w <= h else (max(1, new_short), max(1, new_long))


FORMULAS: dict[str, tuple[dict[str, Any], Callable[[int, int], Size]]] = {
    "rapidocr, recognizer": ({"height": 48, "rounding": "up", "up_to": 320}, rapidocr_recognizer),
    "PaddleOCR, recognizer": (
        {"height": 48, "rounding": "up", "up_to": 320, "max_size": 3200},
        lambda h, w: rapidocr_recognizer(h, w, 3200),
    ),
    "ddddocr": ({"height": 64}, lambda h, w: (64, max(1, ddddocr(h, w)[1]))),
    "a width alone": ({"width": 64}, lambda h, w: (max(1, ddddocr(w, h)[1]), 64)),
    "rapidocr, detector": (
        {"size": 736, "mode": "scale", "shrink": False, "multiple": 32, "rounding": "half_even"},
        rapidocr_detector,
    ),
    "PaddleOCR, min": (
        {"size": 64, "mode": "scale", "shrink": False, "multiple": 32, "rounding": "half_even", "max_size": 4000},
        lambda h, w: paddle_detector(h, w, kind="min", limit=64),
    ),
    "PaddleOCR, max": (
        {"size": 960, "side": "longer", "mode": "scale", "enlarge": False, "multiple": 32, "rounding": "half_even"},
        lambda h, w: paddle_detector(h, w, kind="max", limit=960),
    ),
    "PaddleOCR, resize_long": (
        {"size": 960, "side": "longer", "mode": "scale", "multiple": 32, "rounding": "half_even"},
        lambda h, w: paddle_detector(h, w, kind="resize_long", limit=960),
    ),
    "torchvision, detectors": ({"size": 800, "mode": "scale", "max_size": 1333}, torchvision_detector),
    "torchvision, max_size": ({"size": 256, "max_size": 400}, torchvision_resize),
    "a height, up to multiples": (
        {"height": 48, "multiple": 16, "rounding": "up", "max_size": 320},
        lambda h, w: (48, max(1, math.ceil(min(48 * (w / h), 320) / 16)) * 16),
    ),
}


@pytest.mark.parametrize("name", FORMULAS)
def test_a_resize_has_the_size_of_the_package_that_it_is_the_twin_of(name: str) -> None:
    fields, formula = FORMULAS[name]
    op = Resize(**fields)
    found = {size: op._step.size(*size) for size in SIZES}
    assert found == {size: formula(*size) for size in SIZES}
    blank = {size: np.broadcast_to(np.uint8(0), (*size, 3)) for size in SIZES}
    assert found == {size: size_of(op, pixels) for size, pixels in blank.items()}, "verify has another formula"


@pytest.mark.parametrize("name", FORMULAS)
def test_no_image_leaves_the_bounds_of_a_resize(name: str) -> None:
    op = Resize(**FORMULAS[name][0])
    image = op.infer(ImageSpec())
    for size in SIZES:
        for side, least, most in zip(
            op._step.size(*size),
            (image.min_height, image.min_width),
            (image.max_height, image.max_width),
            strict=True,
        ):
            assert least <= side <= (most or side), (size, image)
