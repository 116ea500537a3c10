"""Pillow's resize, rotation and color arithmetic for 8-bit images.

The resize is separable, and the result of the first pass is rounded to uint8. A pass computes
``clip8((2**21 + sum(value * coefficient)) >> 22)`` over a window of pixel values (src/libImaging/Resample.c). Before
Pillow 13, the horizontal pass comes first (``pillow12``). Since Pillow 13 (``pillow``), the vertical pass comes first
if the height shrinks and ``height - out_height > 2 * (width - out_width)``. If the length of an axis does not change,
the pass of this axis is skipped.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from math import ceil, cos, floor, radians, sin
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from pixprep.plan.profiles.profile import (
    PIXEL_VALUES,
    Colours,
    Computed,
    Method,
    Original,
    Pair,
    Profile,
    Size,
    Warps,
    always_fixed,
)
from pixprep.plan.profiles.windows import Axis, Curve, Formula, Passes, Windows, single
from pixprep.spec import Matrix, WarpFilter

Pixels = npt.NDArray[Any]
PRECISION_BITS = 22
"""Number of fractional bits of the coefficients: 32, minus 8 for the pixel value and 2 for negative coefficients."""


def is_vertical_first(method: Method, rows: Axis, columns: Axis) -> bool:
    """Return whether the vertical pass comes first, as in Pillow 13.

    This is the case if the height shrinks by more than twice as many pixels as the width. The size of the whole image
    counts, even if only a region (``box``) is resized.
    """
    del method
    lost = rows.length - rows.out_length
    return lost > 0 and lost > 2 * (columns.length - columns.out_length)


@cache
def formula(method: Method, passes: Passes) -> Formula | None:
    """Return the formula of the filter. Windows are clipped at the border, and weights have 22 fractional bits."""
    del passes
    if method.filter == "nearest":
        return None
    return Formula(cast("Curve", method.filter), method.antialias, PRECISION_BITS)


def windows(method: Method, passes: Passes, axis: Axis) -> Windows:
    """Return windows with the single positions that Pillow's NEAREST selects.

    As in Pillow, the positions are computed by adding the ratio repeatedly in float64. A multiplication would break 5 %
    of the ties differently.
    """
    del method, passes
    ratios = np.full(axis.end, axis.ratio)
    ratios[0] = axis.offset + axis.ratio * 0.5
    return single(np.minimum(np.add.accumulate(ratios).astype(np.int64), axis.length - 1)[axis.begin :])


def original(pil: Any, pixels: Pixels, op: Any, size: Size, *, order: int) -> Pixels:
    """Resize an image with Pillow itself. The order of the passes is that of Pillow's major version ``order``.

    If the installed version of Pillow uses a different order, each pass is performed by a separate call.
    """
    installed = 13 if int(pil.__version__.partition(".")[0]) >= 13 else 12
    is_formula = not op.antialias and op.filter != "nearest"
    box = op.box(*pixels.shape[:2]) if hasattr(op, "box") else None
    if not is_formula and (order == installed or box):
        return _by_pillow(pil, pixels, op, size, box)
    lost = [before - after for before, after in zip(pixels.shape, size, strict=False)]
    is_vertical_first = order >= 13 and lost[0] > 0 and lost[0] > 2 * lost[1]
    for axis in (0, 1) if is_vertical_first else (1, 0):
        between = (size[0], pixels.shape[1]) if axis == 0 else (pixels.shape[0], size[1])
        pixels = _pillow_formula(pixels, op, between) if is_formula else _by_pillow(pil, pixels, op, between)
    return pixels


def _by_pillow(pil: Any, pixels: Pixels, op: Any, size: Size, box: tuple[float, ...] | None = None) -> Pixels:
    image = pil.Image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else np.ascontiguousarray(pixels))
    resized = image.resize(size[::-1], pil.Image.Resampling[op.filter.upper()], box)
    return np.asarray(resized).reshape(*size, -1)


_FILTERS: dict[str, tuple[float, Callable[[Pixels], Pixels]]] = {
    "box": (0.5, lambda x: ((x > -0.5) & (x <= 0.5)).astype(float)),
    "bilinear": (1.0, lambda x: np.maximum(1 - abs(x), 0)),
    "hamming": (  # Pillow's constants are float32, and their sum is not 1. At 0, Pillow returns 1.
        1.0,
        lambda x: np.select(
            [x == 0, abs(x) < 1],
            [1.0, np.sinc(x) * (float(np.float32(0.54)) + float(np.float32(0.46)) * np.cos(np.pi * x))],
        ),
    ),
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
    """Compute one pass of Pillow's filters without antialiasing, by a dense matrix of 22-bit weights.

    Pillow has no such resize, so this is a second implementation of its formula.
    """
    if size == pixels.shape[:2]:
        return pixels
    axis = int(size[0] == pixels.shape[0])
    length, out_length = pixels.shape[axis], size[axis]
    support, function = _FILTERS[op.filter]
    centers = (np.arange(out_length)[:, None] + 0.5) * (length / out_length)
    positions = np.arange(length)
    is_inside = (positions >= np.trunc(centers - support + 0.5)) & (positions < np.trunc(centers + support + 0.5))
    weights = np.where(is_inside, function(positions - centers + 0.5), 0.0)
    weights /= weights.sum(axis=1, keepdims=True)
    whole = np.trunc(weights * (1 << 22) + np.where(weights < 0, -0.5, 0.5))
    # All sums are integers below 2^53, so they are exact in float64.
    sums = np.tensordot(whole, pixels.astype(np.float64), (1, axis))
    return np.moveaxis(np.clip(np.floor((sums + (1 << 21)) / (1 << 22)), 0, 255).astype(np.uint8), 0, axis)


def rotation(height: int, width: int, angle: float, center: Pair | None, *, expand: bool) -> tuple[Matrix, Size]:
    """Return the matrix of ``Image.rotate``, rounded to 15 decimal places, and the size of the result."""
    x, y = (width / 2, height / 2) if center is None else center
    angle = -radians(angle % 360.0)
    a, b, d, e = round(cos(angle), 15), round(sin(angle), 15), round(-sin(angle), 15), round(cos(angle), 15)
    c, f = a * -x + b * -y + x, d * -x + e * -y + y
    if not expand:
        return (a, b, c, d, e, f), (height, width)
    corners = [(a * x + b * y + c, d * x + e * y + f) for x, y in ((0, 0), (width, 0), (width, height), (0, height))]
    columns, rows = (ceil(max(ends)) - floor(min(ends)) for ends in zip(*corners, strict=True))
    left, top = -(columns - width) / 2.0, -(rows - height) / 2.0
    return (a, b, a * left + b * top + c, d, e, d * left + e * top + f), (rows, columns)


def compute(filter_: WarpFilter, matrix: Matrix, whole: Size, size: Size) -> Computed:
    """Return the arithmetic of ``Image.transform``.

    **bilinear**: The coordinates are computed in float64, ``x = (a * (x' + 0.5) + b * (y' + 0.5)) + c``, and y in the
    same way from d, e and f. Unless ``0 <= x < W and 0 <= y < H``, the result is the fill. With ``u = x - 0.5``,
    ``i = floor(u)`` and ``dx = u - i`` (and v, j and dy from y in the same way), the pixels are those in the columns i
    and i + 1 of the rows j and j + 1, clamped to the image. The result is ``upper + (lower - upper) * dy``, truncated,
    with ``upper = p00 + (p01 - p00) * dx`` and ``lower = p10 + (p11 - p10) * dx``.

    **bicubic**: The pixels are those in the columns i - 1 to i + 2 of the rows j - 1 to j + 2. Instead of linearly
    between two pixel values, the filter interpolates between four pixel values a, b, c and d with
    ``b + t * (c - a + t * (2 * (a - b) + c - d + t * (b - a - c + d)))``. The result is clipped to 0 to 255.

    **nearest**: If ``_fixed`` returns six integers, the coordinates are computed in fixed point,
    ``x = (A x' + B y' + C) >> 16`` and ``y = (D x' + E y' + F) >> 16``. Otherwise, they are computed in float64: x
    begins with ``(c + b * 0.5) + a * 0.5``, b is added for each further row, and then a for each further column. y
    begins with ``(f + e * 0.5) + d * 0.5`` and continues in the same way. Both are truncated, and negative numbers are
    outside of the image. Perspectives use the coordinates of bilinear. The result is the pixel value at (x, y), or the
    fill outside of the image.

    **Perspectives** divide x and y by ``(g * (x' + 0.5) + h * (y' + 0.5)) + 1``.
    """
    del size
    if filter_ == "nearest" and len(matrix) == 6:
        fixed = _fixed(matrix, whole)
        return Computed("pillow_walk", matrix) if fixed is None else Computed("pillow_fixed", fixed)
    return Computed(f"pillow_{filter_}", matrix)


def _fixed(matrix: Matrix, whole: Size) -> Matrix | None:
    """Return Pillow's fixed-point matrix (A, B, C, D, E, F) for ``nearest``, in 1/65,536 pixel.

    The result is None if Pillow does not use fixed-point arithmetic for this matrix.
    """
    (a, b, c, d, e, f), (height, width) = matrix, whole
    corners = ((0, 0), (width, height), (0, height), (width, 0))
    is_far = any(max(abs(x * a + y * b + c), abs(x * d + y * e + f)) >= 32768 for x, y in corners)
    if is_far or (b == 0 and d == 0):
        return None
    numbers = (a, b, c + a * 0.5 + b * 0.5, d, e, f + d * 0.5 + e * 0.5)
    return tuple(floor(number * 65536.0 + 0.5) for number in numbers)


def _gamma(exponent: float, gain: float) -> Pixels:
    """Return ``255.999 * gain * (value / 255) ** exponent``, computed in float64, truncated and clipped."""
    values: Pixels = np.trunc((255 + 1 - 1e-3) * gain * (PIXEL_VALUES / 255.0) ** exponent)
    return values.clip(0, 255)


def _autocontrast(low: int, high: int) -> Pixels:
    """Return ``value * scale - low * scale`` with ``scale = 255 / (high - low)``, computed in float64 and clipped."""
    scale = 255.0 / (high - low)
    return (PIXEL_VALUES * scale + -low * scale).clip(0, 255)


PROFILE = Profile(
    title="Pillow",
    original=Original("pillow", "PIL", "pillow", "PIL", partial(original, order=13), order=13),
    filters=("nearest", "box", "bilinear", "hamming", "bicubic", "lanczos"),
    antialiased=("nearest", "box", "bilinear", "hamming", "bicubic", "lanczos"),
    antialias=True,
    reducible=("bilinear", "hamming", "bicubic", "lanczos"),
    roi="inside",
    passes=always_fixed,
    is_vertical_first=is_vertical_first,
    formula=formula,
    windows=windows,
    alpha="premultiplied",
)
WARPS = Warps(
    title="Pillow", filters=("nearest", "bilinear", "bicubic"), compute=compute, origin="corner", rotation=rotation
)
COLOURS = Colours(
    mean=lambda total, count: int(total / count + 0.5),
    turn=lambda shift: int(shift * 255) % 256,
    gamma=_gamma,
    autocontrast=_autocontrast,
)
