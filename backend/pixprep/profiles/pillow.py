"""Pillow's 8-bit resize.

One output value is ``clip8((2**21 + sum(level * coefficient)) >> 22)`` over a window of levels, along one axis, rounded
to uint8, and then along the other (Pillow, src/libImaging/Resample.c). Horizontal comes first; since Pillow 13.0
vertical does where the height shrinks and ``height - out_height > 2 * (width - out_width)``. An axis that keeps its
length has no pass.
"""

from __future__ import annotations

from importlib.metadata import version

import numpy as np
import numpy.typing as npt

from pixprep.plan import Resize
from pixprep.profiles.taps import Axis, Kind, Taps, single
from pixprep.spec import Filter

PRECISION_BITS = 22  # 32 bits less 8 for the level and 2 for the sum of negative lobes

_IS_PILLOW_13 = int(version("pillow").partition(".")[0]) >= 13

SUPPORT: dict[Filter, float] = {"box": 0.5, "bilinear": 1.0, "hamming": 1.0, "bicubic": 2.0, "lanczos": 3.0}


def kind(resize: Resize, size: tuple[int, int], resized: tuple[int, int]) -> Kind:
    """Always fixed-point."""
    del resize, size, resized
    return "fixed"


def is_vertical_first(resize: Resize | None, size: tuple[int, int], resized: tuple[int, int]) -> bool:
    """Whether the installed Pillow resizes (height, width) to ``resized`` vertically first, which rounds otherwise."""
    del resize
    (height, width), (out_height, out_width) = size, resized
    return _IS_PILLOW_13 and out_height < height and height - out_height > 2 * (width - out_width)


def taps(resize: Resize, kind: Kind, axis: Axis) -> Taps:
    """The windows of one axis; an axis that keeps its length has no pass."""
    del kind
    if axis.out_length == axis.length:
        return single(np.arange(axis.begin, axis.end))
    if resize.filter == "nearest":
        return single(nearest(axis.length, axis.out_length, begin=axis.begin, end=axis.end))
    first, count, weights = windows(axis, resize.filter, antialias=resize.antialias)
    fixed = np.trunc(weights * (1 << PRECISION_BITS) + np.where(weights < 0, -0.5, 0.5))
    return Taps(first, count, fixed.astype(np.int32), PRECISION_BITS)


def windows(
    axis: Axis, filter_name: Filter, *, antialias: bool
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32], npt.NDArray[np.float64]]:
    """First position, count and float64 weights (out, taps) of each window.

    The centre of output position i lies at ``offset + (i + 0.5) * scale``. The window is cut off at the border and its
    weights are normalized to 1: the border is not repeated. Computed in float64, as Pillow does.
    """
    stretch = max(axis.scale, 1.0) if antialias else 1.0
    support = SUPPORT[filter_name] * stretch
    centers = axis.offset + (np.arange(axis.begin, axis.end) + 0.5) * axis.scale
    first = np.maximum((centers - support + 0.5).astype(np.int64), 0)
    last = np.minimum((centers + support + 0.5).astype(np.int64), axis.length)
    positions = np.arange(int((last - first).max()))
    weights = _filter(filter_name, (positions + first[:, None] - centers[:, None] + 0.5) * (1 / stretch))
    weights[positions >= (last - first)[:, None]] = 0.0
    weights /= weights.sum(axis=1, keepdims=True)
    return first.astype(np.int32), (last - first).astype(np.int32), weights


def nearest(length: int, out_length: int, *, begin: int, end: int) -> npt.NDArray[np.int64]:
    """For output positions ``begin`` to ``end`` the input position that Pillow's NEAREST takes.

    Pillow adds up ``scale`` in float64, so that ties fall where they do; a product would move 5 % of them.
    """
    scale = length / out_length
    steps = np.full(end, scale)
    steps[0] = scale * 0.5
    return np.minimum(np.add.accumulate(steps).astype(np.int64), length - 1)[begin:]


def _filter(name: Filter, x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    a = np.abs(x)
    if name == "box":
        return ((x > -0.5) & (x <= 0.5)).astype(np.float64)
    if name == "bilinear":
        return np.maximum(1.0 - a, 0.0)
    if name == "hamming":  # Pillow's constants are float32
        window = float(np.float32(0.54)) + float(np.float32(0.46)) * np.cos(np.pi * x)
        return np.where(a < 1, np.sinc(x) * window, 0.0)
    if name == "bicubic":  # Keys 1981, a = -0.5
        near = (1.5 * a - 2.5) * a * a + 1.0
        far = ((-0.5 * a + 2.5) * a - 4.0) * a + 2.0
        return np.where(a < 1, near, np.where(a < 2, far, 0.0))
    return np.where((x >= -3) & (x < 3), np.sinc(x) * np.sinc(x / 3), 0.0)
