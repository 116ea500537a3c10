"""Pillow's 8-bit resize.

One output value is ``clip8((2**21 + sum(level * coefficient)) >> 22)`` over a window of levels, along one axis, rounded
to uint8, and then along the other (Pillow, src/libImaging/Resample.c). Before Pillow 13 the horizontal pass comes
first: ``pillow12``. Since then the vertical one does where the height shrinks and ``height - out_height > 2 * (width -
out_width)``: ``pillow``. An axis that keeps its length has no pass.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from pixprep.plan.profiles.profile import Method, Original, Profile, Size, always_fixed
from pixprep.plan.profiles.windows import Axis, Curve, Formula, Passes, Windows, single

Pixels = npt.NDArray[Any]
PRECISION_BITS = 22
"""32 bits less 8 of the level and 2 for the sum of negative weights."""


def is_vertical_first(method: Method, rows: Axis, columns: Axis) -> bool:
    """Since Pillow 13: whether the height shrinks, and by more than twice what the width does."""
    del method
    lost = rows.length - rows.out_length
    return lost > 0 and lost > 2 * (columns.length - columns.out_length)


def formula(method: Method, passes: Passes) -> Formula | None:
    """Windows that are cut off at the border, with weights of 22 bits."""
    del passes
    if method.filter == "nearest":
        return None
    return Formula(cast("Curve", method.filter), method.antialias, PRECISION_BITS)


def windows(method: Method, passes: Passes, axis: Axis) -> Windows:
    """The positions that Pillow's NEAREST takes.

    Pillow adds up the ratio in float64, so that ties fall where they do; a product would move 5 % of them.
    """
    del method, passes
    ratios = np.full(axis.end, axis.length / axis.out_length)
    ratios[0] *= 0.5
    return single(np.minimum(np.add.accumulate(ratios).astype(np.int64), axis.length - 1)[axis.begin :])


def original(pil: Any, pixels: Pixels, op: Any, size: Size, *, order: int) -> Pixels:
    """``Image.resize``; one pass at a time where the installed Pillow has another order than Pillow ``order``."""
    installed = 13 if int(pil.__version__.partition(".")[0]) >= 13 else 12
    is_formula = not op.antialias and op.filter != "nearest"
    if order == installed and not is_formula:
        return _by_pillow(pil, pixels, op, size)
    lost = [before - after for before, after in zip(pixels.shape, size, strict=False)]
    is_vertical_first = order >= 13 and lost[0] > 0 and lost[0] > 2 * lost[1]
    for axis in (0, 1) if is_vertical_first else (1, 0):
        between = (size[0], pixels.shape[1]) if axis == 0 else (pixels.shape[0], size[1])
        pixels = _pillow_formula(pixels, op, between) if is_formula else _by_pillow(pil, pixels, op, between)
    return pixels


def _by_pillow(pil: Any, pixels: Pixels, op: Any, size: Size) -> Pixels:
    image = pil.Image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else np.ascontiguousarray(pixels))
    resized = image.resize(size[::-1], pil.Image.Resampling[op.filter.upper()])
    return np.asarray(resized).reshape(*size, -1)


_UNWIDENED: dict[str, tuple[float, Callable[[Pixels], Pixels]]] = {
    "box": (0.5, lambda x: ((x > -0.5) & (x <= 0.5)).astype(float)),
    "bilinear": (1.0, lambda x: np.maximum(1 - abs(x), 0)),
    "hamming": (1.0, lambda x: np.where(abs(x) < 1, np.sinc(x) * (0.54 + 0.46 * np.cos(np.pi * x)), 0)),
    "bicubic": (
        2.0,
        lambda x: np.select(
            [abs(x) < 1, abs(x) < 2],
            [(1.5 * abs(x) - 2.5) * x * x + 1, ((-0.5 * abs(x) + 2.5) * abs(x) - 4) * abs(x) + 2],
        ),
    ),
    "lanczos": (3.0, lambda x: np.where((x >= -3) & (x < 3), np.sinc(x) * np.sinc(x / 3), 0)),
}


def _pillow_formula(pixels: Pixels, op: Any, size: Size) -> Pixels:
    """One pass of Pillow's formula without the widening: a dense matrix of 22-bit weights."""
    if size == pixels.shape[:2]:
        return pixels
    axis = int(size[0] == pixels.shape[0])
    length, out_length = pixels.shape[axis], size[axis]
    support, function = _UNWIDENED[op.filter]
    centers = (np.arange(out_length)[:, None] + 0.5) * (length / out_length)
    positions = np.arange(length)
    is_inside = (positions >= np.trunc(centers - support + 0.5)) & (positions < np.trunc(centers + support + 0.5))
    weights = np.where(is_inside, function(positions - centers + 0.5), 0.0)
    weights /= weights.sum(axis=1, keepdims=True)
    whole = np.trunc(weights * (1 << 22) + np.where(weights < 0, -0.5, 0.5))
    # Sums of whole numbers below 2^53: float64 is exact.
    sums = np.tensordot(whole, pixels.astype(np.float64), (1, axis))
    return np.moveaxis(np.clip(np.floor((sums + (1 << 21)) / (1 << 22)), 0, 255).astype(np.uint8), 0, axis)


PROFILE = Profile(
    title="Pillow",
    original=Original("pillow", "PIL", "pillow", "PIL", partial(original, order=13), order=13),
    filters=("nearest", "box", "bilinear", "hamming", "bicubic", "lanczos"),
    antialiased=("nearest", "box", "bilinear", "hamming", "bicubic", "lanczos"),
    antialias=True,
    reducible=("bilinear", "hamming", "bicubic", "lanczos"),
    passes=always_fixed,
    is_vertical_first=is_vertical_first,
    formula=formula,
    windows=windows,
)
