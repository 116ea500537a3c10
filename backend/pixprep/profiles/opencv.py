"""OpenCV's ``cv2.resize`` of uint8 images (modules/imgproc/src/resize.cpp), as built for x86-64, without Intel IPP.

Horizontally first. Nothing is antialiased but ``area``, which is three things: the mean of whole pixels where both
factors are whole, the mean of pixels cut at the edges of the window where both axes shrink, and where one grows, a
linear interpolation that repeats each pixel as long as it can. IPP computes only ``bicubic``, and there rounds another
way in 2 % of the values; ``cv2.ipp.setUseIPP(False)`` restores the formula.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from pixprep.profiles.profile import Method, Original, Profile, Size, never_vertical_first
from pixprep.profiles.windows import Axis, Passes, Windows, single
from pixprep.spec import Filter

COEFFICIENT_BITS = 11
CUT = 1e-3
"""``area`` leaves out a piece of a pixel that is not wider."""
_S = math.sqrt(0.5)
_TURNS = ((1.0, 0.0), (-_S, -_S), (0.0, 1.0), (_S, -_S), (-1.0, 0.0), (_S, _S), (0.0, -1.0), (-_S, _S))
"""``lanczos4`` of tap k: sin(a + 45 k degrees), with the sign of sin(x pi), as so much of sin(a) and of cos(a)."""
_ALL = np.float32(1e30)
"""The weight of a position that is met exactly, before the division by the sum: the others become 0."""

_PASSES: dict[Filter, Passes] = {
    "nearest": "fixed",
    "bilinear": "opencv_linear",
    "bicubic": "opencv_cubic",
    "lanczos4": "opencv_lanczos",
}


def passes(method: Method, rows: Axis, columns: Axis) -> Passes:
    """The arithmetic of the filter; of ``area``, by the ratios of both axes.

    Half in both axes is the linear interpolation between the two middle pixels, bit for bit.
    """
    if method.filter != "area":
        return _PASSES[method.filter]
    ratios = [_ratio(axis) for axis in (rows, columns)]
    if min(ratios) < 1 or ratios == [2, 2]:
        return "opencv_linear"
    is_whole = all(abs(ratio - round(ratio)) < np.finfo(np.float64).eps for ratio in ratios)
    return "area" if is_whole else "float_even"


def windows(method: Method, passes: Passes, axis: Axis) -> Windows:
    """The windows of one axis; positions beyond the border repeat it."""
    ratio = _ratio(axis)
    positions = np.arange(axis.begin, axis.end)
    if method.filter == "nearest":
        return single(np.minimum(np.floor(positions * ratio), axis.length - 1))
    if passes == "area":
        factor = round(ratio)
        return _uniform(positions * factor, np.ones((len(positions), factor), np.int32))
    if passes == "float_even":
        return _cut(positions, ratio, axis.length)
    if method.filter == "area":
        first = np.floor(positions * ratio)
        t = ((positions + 1) - (first + 1) * (axis.out_length / axis.length)).astype(np.float32)
        t = np.where(t <= 0, np.float32(0), t - np.floor(t))
    else:
        middles = ((positions + 0.5) * ratio - 0.5).astype(np.float32)
        first = np.floor(middles)
        t = middles - first
    if method.filter == "bicubic":
        return _uniform(first - 1, _fixed(_cubic(t)))
    if method.filter == "lanczos4":
        return _uniform(first - 3, _fixed(_lanczos4(t)))
    return _uniform(first, _fixed(np.stack([1 - t, t], axis=1)))


def _ratio(axis: Axis) -> float:
    """Input positions for each output position, divided twice as in OpenCV, which may miss a whole number by a bit."""
    return 1.0 / (axis.out_length / axis.length)


def _fixed(weights: npt.NDArray[np.float32]) -> npt.NDArray[np.int32]:
    """Round to 11 bits; ties to even."""
    fixed: npt.NDArray[np.int32] = np.rint(weights * np.float32(1 << COEFFICIENT_BITS)).astype(np.int32)
    return fixed


def _uniform(first: npt.NDArray[Any], weights: npt.NDArray[np.int32]) -> Windows:
    return Windows(first.astype(np.int32), np.full(len(first), weights.shape[1], np.int32), weights)


def _cubic(t: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """(out, 4) of Keys 1981, a = -0.75, each operation in float32; the last is what is missing to 1."""
    a = np.float32(-0.75)
    one, far, rest = np.float32(1), t + np.float32(1), np.float32(1) - t
    first = ((a * far - 5 * a) * far + 8 * a) * far - 4 * a
    second = ((a + 2) * t - (a + 3)) * t * t + one
    third = ((a + 2) * rest - (a + 3)) * rest * rest + one
    return np.stack([first, second, third, one - first - second - third], axis=1)


def _lanczos4(t: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """(out, 8) of sinc(x) sinc(x / 4), over their sum; float64 up to the quotient, then float32.

    The sine of x pi is the same for all taps but for its sign, so the division by the sum takes it away.
    """
    far = t + np.float32(3)
    angles = -far.astype(np.float64) * math.pi * 0.25
    sines, cosines = (np.array([of(angle) for angle in angles.tolist()]) for of in (math.sin, math.cos))
    weights = np.empty((len(t), len(_TURNS)), np.float32)
    total = np.zeros(len(t), np.float32)
    for tap, (of_sine, of_cosine) in enumerate(_TURNS):
        x = far - np.float32(tap)
        is_middle = np.abs(x) < np.float32(1e-6)
        y = np.where(is_middle, 1.0, -x.astype(np.float64) * math.pi * 0.25)
        weights[:, tap] = np.where(is_middle, _ALL, (of_sine * sines + of_cosine * cosines) / (y * y))
        total += weights[:, tap]
    return weights * (np.float32(1) / total)[:, None]


def _cut(positions: npt.NDArray[np.int64], ratio: float, length: int) -> Windows:
    """Windows of ``ratio`` pixels, the pixels at their edges weighted by the part that is inside."""
    begin = positions * ratio
    end = begin + ratio
    width = np.minimum(ratio, length - begin)
    last = np.minimum(np.floor(end), length - 1)
    first = np.minimum(np.ceil(begin), last)
    has_head, has_tail = first - begin > CUT, end - last > CUT
    count = (has_head + (last - first) + has_tail).astype(np.int32)
    taps = np.arange(int(count.max()))
    weights = np.where(taps < count[:, None], (1 / width)[:, None], 0)
    weights[has_head, 0] = ((first - begin) / width)[has_head]
    tail = np.minimum(np.minimum(end - last, 1), width) / width
    weights[has_tail, count[has_tail] - 1] = tail[has_tail]
    return Windows((first - has_head).astype(np.int32), count, weights.astype(np.float32))


def original(cv2: Any, pixels: Any, op: Any, size: Size) -> Any:
    """``cv2.resize``."""
    has_ipp = cv2.ipp.useIPP()
    if op.filter == "bicubic":  # Intel IPP, in the wheels for x86, has its own bicubic: 2 % of values off by one
        cv2.ipp.setUseIPP(False)
    try:
        resized = cv2.resize(np.ascontiguousarray(pixels), size[::-1], interpolation=getattr(cv2, MODES[op.filter]))
    finally:
        cv2.ipp.setUseIPP(has_ipp)
    return np.asarray(resized).reshape(*size, -1)


MODES = {
    "nearest": "INTER_NEAREST",
    "bilinear": "INTER_LINEAR",
    "bicubic": "INTER_CUBIC",
    "lanczos4": "INTER_LANCZOS4",
    "area": "INTER_AREA",
}
PROFILE = Profile(
    title="OpenCV",
    original=Original("opencv", "cv2", "opencv-python-headless", "cv2", original),
    filters=("nearest", "bilinear", "bicubic", "lanczos4", "area"),
    antialiased=(),
    antialias=False,
    passes=passes,
    is_vertical_first=never_vertical_first,
    windows=windows,
)
