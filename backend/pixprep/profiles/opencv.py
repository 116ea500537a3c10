"""OpenCV's ``cv2.resize`` of uint8 images (modules/imgproc/src/resize.cpp), as built for x86-64, without Intel IPP.

Horizontally first. Nothing is antialiased but ``area``, which is three things: the mean of whole pixels where both
factors are whole, the mean of pixels cut at the edges of the window where both axes shrink, and where one grows, a
linear interpolation that repeats each pixel as long as it can. IPP computes only ``bicubic``, and there rounds another
way in 2 % of the values; ``cv2.ipp.setUseIPP(False)`` restores the formula.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from pixprep.plan import Resize
from pixprep.profiles.taps import Axis, Kind, Taps, single
from pixprep.spec import Filter

COEFFICIENT_BITS = 11
CUT = 1e-3
"""``area`` leaves out a piece of a pixel that is not wider."""

_KINDS: dict[Filter, Kind] = {"nearest": "fixed", "bilinear": "opencv_linear", "bicubic": "opencv_cubic"}


def kind(resize: Resize, size: tuple[int, int], resized: tuple[int, int]) -> Kind:
    """The arithmetic of the filter; of ``area``, by the scales of both axes.

    Half in both axes is the linear interpolation between the two middle pixels, bit for bit.
    """
    if resize.filter != "area":
        return _KINDS[resize.filter]
    scales = [_scale(length, out_length) for length, out_length in zip(size, resized, strict=True)]
    if min(scales) < 1 or scales == [2, 2]:
        return "opencv_linear"
    is_whole = all(abs(scale - round(scale)) < np.finfo(np.float64).eps for scale in scales)
    return "area" if is_whole else "float_even"


def is_vertical_first(resize: Resize, size: tuple[int, int], resized: tuple[int, int]) -> bool:
    """Never."""
    del resize, size, resized
    return False


def taps(resize: Resize, kind: Kind, axis: Axis) -> Taps:
    """The windows of one axis; positions beyond the border repeat it."""
    scale = _scale(axis.length, axis.out_length)
    positions = np.arange(axis.begin, axis.end)
    if resize.filter == "nearest":
        return single(np.minimum(np.floor(positions * scale), axis.length - 1))
    if kind == "area":
        factor = round(scale)
        return _uniform(positions * factor, np.ones((len(positions), factor), np.int32))
    if kind == "float_even":
        return _cut(positions, scale, axis.length)
    if resize.filter == "area":
        first = np.floor(positions * scale)
        t = ((positions + 1) - (first + 1) * (axis.out_length / axis.length)).astype(np.float32)
        t = np.where(t <= 0, np.float32(0), t - np.floor(t))
    else:
        middles = ((positions + 0.5) * scale - 0.5).astype(np.float32)
        first = np.floor(middles)
        t = middles - first
    if resize.filter == "bicubic":
        return _uniform(first - 1, _fixed(_cubic(t)))
    return _uniform(first, _fixed(np.stack([1 - t, t], axis=1)))


def _scale(length: int, out_length: int) -> float:
    """Input positions for each output position, divided twice as in OpenCV, which may miss a whole number by a bit."""
    return 1.0 / (out_length / length)


def _fixed(weights: npt.NDArray[np.float32]) -> npt.NDArray[np.int32]:
    """Of 11 bits; ties to even."""
    fixed: npt.NDArray[np.int32] = np.rint(weights * np.float32(1 << COEFFICIENT_BITS)).astype(np.int32)
    return fixed


def _uniform(first: npt.NDArray[Any], weights: npt.NDArray[np.int32]) -> Taps:
    return Taps(first.astype(np.int32), np.full(len(first), weights.shape[1], np.int32), weights)


def _cubic(t: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """(out, 4) of Keys 1981, a = -0.75, each step in float32; the last is what is missing to 1."""
    a = np.float32(-0.75)
    one, far, rest = np.float32(1), t + np.float32(1), np.float32(1) - t
    first = ((a * far - 5 * a) * far + 8 * a) * far - 4 * a
    second = ((a + 2) * t - (a + 3)) * t * t + one
    third = ((a + 2) * rest - (a + 3)) * rest * rest + one
    return np.stack([first, second, third, one - first - second - third], axis=1)


def _cut(positions: npt.NDArray[np.int64], scale: float, length: int) -> Taps:
    """Windows of ``scale`` pixels, the pixels at their edges weighted by the part that is inside."""
    begin = positions * scale
    end = begin + scale
    width = np.minimum(scale, length - begin)
    last = np.minimum(np.floor(end), length - 1)
    first = np.minimum(np.ceil(begin), last)
    has_head, has_tail = first - begin > CUT, end - last > CUT
    count = (has_head + (last - first) + has_tail).astype(np.int32)
    taps = np.arange(int(count.max()))
    weights = np.where(taps < count[:, None], (1 / width)[:, None], 0)
    weights[has_head, 0] = ((first - begin) / width)[has_head]
    tail = np.minimum(np.minimum(end - last, 1), width) / width
    weights[has_tail, count[has_tail] - 1] = tail[has_tail]
    return Taps((first - has_head).astype(np.int32), count, weights.astype(np.float32))
