"""Warps: the formulas of ``steps.warps.Warp``, operation by operation, in C (``warp.c``) or in NumPy."""

from __future__ import annotations

from ctypes import byref
from typing import Any

import numpy as np
import numpy.typing as npt

from pixprep.draws.elastic import looked_at
from pixprep.kernels import native
from pixprep.spec import ColorLike
from pixprep.steps.warps import Warp

U8 = npt.NDArray[np.uint8]
F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]
Index = npt.NDArray[np.int64]


KINDS = ("pillow", "torchvision", "nearest", "fixed", "pillow_nearest", "bicubic")
"""Of warps in C: bilinear of both libraries, nearest of torchvision, and of Pillow nearest in 65,536ths, nearest of a
perspective, and bicubic."""
_SPARE = 8
"""Pixels behind the result that are written, too."""


def warped(step: Warp, image: U8) -> U8:
    """The window of the result, by the kernels in C where there are any.

    Args:
        step: says which.
        image: uint8 (height, width, channels), 1 or 3 channels, any strides; of a step that takes the nearest, whole
            numbers of any type, and any number of channels.

    Returns:
        As the image, (step.height, step.width, channels).
    """
    if step.elastic is not None and not any(step.elastic.alpha):
        return image[step.top : step.top + step.height, step.left : step.left + step.width]
    loaded = native.library()
    if loaded is None or image.dtype != np.uint8 or image.shape[2] not in (1, 3):
        return by_formula(step, image)
    height, width, channels = image.shape
    kind: str = step.like
    matrix, below = step.matrix[:6], step.matrix[6:]
    numbers = (0.0, 0.0, 0.0, 0.0)
    places = None
    if step.elastic is not None:
        places = np.zeros((2, step.height * step.width + _SPARE), np.float32)
        places[:, :-_SPARE] = _displaced(step).reshape(2, -1)
    if step.like == "torchvision":
        kind = "torchvision" if step.filter == "bilinear" else "nearest"
        matrix = tuple(step.grid(height, width).ravel().tolist())
        numbers = width / 2, height / 2, *_middle(step)
    elif step.filter == "nearest" and below:
        kind = "pillow_nearest"
    elif step.filter == "nearest":
        fixed = step.fixed
        if fixed is None:
            return by_formula(step, image)
        kind, matrix = "fixed", fixed
    elif step.filter == "bicubic":
        kind = "bicubic"
    image = _readable(image, step.like)
    size = 1 if channels == 1 else 4
    memory = np.empty((step.height * step.width + _SPARE) * size, np.uint8)
    fill = sum(level << 8 * channel for channel, level in enumerate(step.fill or ()))
    told = native.Warp(
        image.ctypes.data, image.strides[0], height, width, channels, image.strides[1],
        memory.ctypes.data, step.height, step.width, step.left, step.top, KINDS.index(kind),
        *matrix, *numbers, fill, step.fill is not None, *(below or (0, 0)), bool(below),
        *(places.ctypes.data + each * places.strides[0] if places is not None else None for each in (0, 1)),
    )  # fmt: skip
    loaded.warp(byref(told))
    return memory[: -_SPARE * size].reshape(step.height, step.width, size)[:, :, :channels]


def _readable(image: U8, like: ColorLike) -> U8:
    """The pixels of a row side by side, colours perhaps in words; at least two columns and 8 bytes."""
    height, width, channels = image.shape
    pitch, apart, _ = image.strides
    is_mapped = image.strides[2] == 1 and apart in ((1,) if channels == 1 else (3, 4)) and pitch >= width * apart
    if is_mapped and width > 1 and (height - 1) * pitch + (width - 1) * apart + channels >= 8:
        return image
    size = height * max(width, 2) * channels
    copy = np.zeros(max(size, 8), np.uint8)[:size].reshape(height, -1, channels)
    copy[:, :width] = image
    if width == 1 and like == "pillow":
        copy[:, 1:] = image
    return copy


def by_formula(step: Warp, image: U8) -> U8:
    """``warped`` in NumPy."""
    if step.like == "torchvision":
        x, y = _grid(step, *image.shape[:2])
        if step.filter == "bilinear":
            return _blended(step, image, x, y)
        return _picked(step, image, np.rint(x).astype(np.int64), np.rint(y).astype(np.int64))
    if step.filter != "nearest":
        return _interpolated(step, image)
    if step.is_perspective:
        x, y = (np.where(place < 0, -1, np.fmin(place, 1 << 31)) for place in _seen_from(step))
        return _picked(step, image, x.astype(np.int64), y.astype(np.int64))
    return _picked(step, image, *(_walked(step) if step.fixed is None else _stepped(step, step.fixed)))


def _picked(step: Warp, image: U8, x: Index, y: Index) -> U8:
    """The level at each place, or the fill outside."""
    height, width, channels = image.shape
    inside = (x >= 0) & (x < width) & (y >= 0) & (y < height)
    out = np.empty((step.height, step.width, channels), image.dtype)
    out[...] = step.fill or (0,)
    out[inside] = image[y[inside], x[inside]]
    return out


def _stepped(step: Warp, fixed: tuple[int, ...]) -> tuple[Index, Index]:
    """Pillow's nearest places, in whole numbers."""
    columns, rows = _places(step)
    a, b, c, d, e, f = fixed
    return (columns * a + rows[:, None] * b + c) >> 16, (columns * d + rows[:, None] * e + f) >> 16


def _walked(step: Warp) -> tuple[Index, Index]:
    """Pillow's nearest places in float64: each is the sum of all steps to it."""
    a, b, c, d, e, f = step.matrix
    found = []
    for along, down, begin in ((a, b, (c + b * 0.5) + a * 0.5), (d, e, (f + e * 0.5) + d * 0.5)):
        bottom, right = step.top + step.height, step.left + step.width
        first = np.add.accumulate(np.array([begin, *[down] * (bottom - 1)]))[step.top :]
        steps = np.full((len(first), right), along)
        steps[:, 0] = first
        places = np.add.accumulate(steps, axis=1)[:, step.left :]
        found.append(np.where(places < 0, -1, places.clip(-1, 1 << 31)).astype(np.int64))
    return found[0], found[1]


def _interpolated(step: Warp, image: U8) -> U8:
    """Pillow's bilinear and bicubic, in float64."""
    height, width, channels = image.shape
    x, y = _seen_from(step)
    inside = (x >= 0) & (x < width) & (y >= 0) & (y < height)
    x, y = x[inside] - 0.5, y[inside] - 0.5
    left, top = np.floor(x).astype(np.int64), np.floor(y).astype(np.int64)
    dx, dy = (x - left)[:, None], (y - top)[:, None]
    taps, between = ((0, 1), _line) if step.filter == "bilinear" else ((-1, 0, 1, 2), _cubic)
    across, down = (
        [np.clip(begin + tap, 0, side - 1) for tap in taps] for begin, side in ((left, width), (top, height))
    )
    sums = [between(dx, *(image[row, column].astype(np.float64) for column in across)) for row in down]
    out = np.empty((step.height, step.width, channels), np.uint8)
    out[...] = step.fill or (0,)
    out[inside] = between(dy, *sums).clip(0, 255).astype(np.uint8)
    return out


def _line(share: F64, first: F64, second: F64) -> F64:
    return first + (second - first) * share


def _cubic(share: F64, a: F64, b: F64, c: F64, d: F64) -> F64:
    slope, bend, twist = c - a, (a - b) * 2 + c - d, b - a - c + d
    return b + share * (slope + share * (bend + share * twist))


def _seen_from(step: Warp) -> tuple[F64, F64]:
    """Pillow's places, in float64: x and y of each pixel; not a number where a perspective divides 0 by 0."""
    columns, rows = _places(step)
    along, down = columns + 0.5, (rows + 0.5)[:, None]
    a, b, c, d, e, f, *below = step.matrix
    x, y = along * a + down * b + c, along * d + down * e + f
    if not below:
        return x, y
    depth = along * below[0] + down * below[1] + 1
    with np.errstate(divide="ignore", invalid="ignore"):
        return x / depth, y / depth


def _middle(step: Warp) -> tuple[float, float]:
    """(x, y) from which torchvision counts the pixels of the result."""
    return (-0.5, -0.5) if step.is_perspective else ((step.whole[1] - 1) / 2, (step.whole[0] - 1) / 2)


def _grid(step: Warp, height: int, width: int) -> tuple[F32, F32]:
    """The places of torchvision, in float32: x and y, in which the middle of the first pixel is 0."""
    one = np.float32(1)
    if step.elastic is not None:
        x, y = _displaced(step)
        return _fused(x + one, np.float64(width / 2), -0.5), _fused(y + one, np.float64(height / 2), -0.5)
    columns, rows = _places(step)
    middle = _middle(step)
    along = (columns - middle[0]).astype(np.float32)
    down = (rows - middle[1]).astype(np.float32)[:, None]
    (a, b, c), (d, e, f) = step.grid(height, width)
    x, y = along * a + down * b + c, along * d + down * e + f
    if step.is_perspective:
        g, h = np.array(step.matrix[6:], np.float32)
        depth = along * g + down * h + one
        with np.errstate(divide="ignore", invalid="ignore"):
            x, y = (np.nan_to_num(place / depth - one, nan=-9, posinf=1e9, neginf=-1e9) for place in (x, y))
    return _fused(x + one, np.float64(width / 2), -0.5), _fused(y + one, np.float64(height / 2), -0.5)


def _displaced(step: Warp) -> F32:
    """float32 (2, height, width): x and y of an elastic step, -1 to 1 in the image."""
    assert step.elastic is not None
    rows, columns = slice(step.top, step.top + step.height), slice(step.left, step.left + step.width)
    return looked_at(step.elastic, *step.whole)[:, rows, columns]


def _blended(step: Warp, image: U8, x: F32, y: F32) -> U8:
    """The bilinear of torchvision, in float32."""
    height, width, channels = image.shape
    left, top = np.floor(x), np.floor(y)
    right_share, lower_share = x - left, y - top
    left_share, upper_share = np.float32(1) - right_share, np.float32(1) - lower_share
    columns, rows = left.astype(np.int64), top.astype(np.int64)
    # Ones beside the levels, which become the share of the image; around both a frame of zeros.
    framed = np.zeros((height + 2, width + 2, channels + 1), np.float32)
    framed[1:-1, 1:-1, :channels] = image
    framed[1:-1, 1:-1, channels] = 1
    total: Any = None
    for row, column, share in (
        (rows, columns, upper_share * left_share),
        (rows, columns + 1, upper_share * right_share),
        (rows + 1, columns, lower_share * left_share),
        (rows + 1, columns + 1, lower_share * right_share),
    ):
        those = framed[np.clip(row + 1, 0, height + 1), np.clip(column + 1, 0, width + 1)]
        total = those * share[:, :, None] if total is None else _fused(those, share[:, :, None], total)
    values, mask = total[:, :, :channels], total[:, :, channels:]
    if step.fill is not None:
        fill = np.array(step.fill, np.float32)
        values = (values - fill) * mask + fill
    result: U8 = np.rint(values).astype(np.uint8)
    return result


def _fused(a: Any, b: Any, c: Any) -> F32:
    """``a * b + c`` of float32, rounded once: their product is exact in float64."""
    total: F64 = np.asarray(a, np.float64) * b + c
    return total.astype(np.float32)


def _places(step: Warp) -> tuple[Index, Index]:
    """The x' and y' of the window: int64 (width,) and (height,)."""
    return np.arange(step.left, step.left + step.width), np.arange(step.top, step.top + step.height)
