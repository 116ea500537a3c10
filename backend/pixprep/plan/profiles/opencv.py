"""OpenCV's ``cv2.resize`` of uint8 images (modules/imgproc/src/resize.cpp), as built for x86-64, without Intel IPP.

Horizontally first. Nothing is antialiased but ``area``, which is three things: the mean of whole pixels where both
factors are whole, the mean of pixels cut at the edges of the window where both axes shrink, and where one grows, a
linear interpolation that repeats each pixel as long as it can. IPP computes only ``bicubic``, and there rounds another
way in 2 % of the values; ``cv2.ipp.setUseIPP(False)`` restores the formula.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pixprep.plan.profiles.profile import Method, Original, Profile, Size, never_vertical_first
from pixprep.plan.profiles.windows import Axis, Formula, Passes, Rule, Windows, single
from pixprep.spec import Filter

_PASSES: dict[Filter, Passes] = {
    "nearest": "fixed",
    "bilinear": "opencv_linear",
    "bicubic": "opencv_cubic",
    "lanczos4": "opencv_lanczos",
}
_RULES: dict[Filter, Rule] = {"bilinear": "opencv_linear", "bicubic": "opencv_cubic", "lanczos4": "opencv_lanczos4"}


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


def formula(method: Method, passes: Passes) -> Formula | None:
    """The filter's rule; of ``area``, by its arithmetic."""
    if method.filter == "nearest":
        return None
    if method.filter != "area":
        return Formula(_RULES[method.filter])
    if passes == "area":
        return Formula("opencv_area")
    return Formula("opencv_cut" if passes == "float_even" else "opencv_repeated")


def windows(method: Method, passes: Passes, axis: Axis) -> Windows:
    """Positions at ``i * ratio``."""
    del method, passes
    positions = np.floor(np.arange(axis.begin, axis.end) * _ratio(axis))
    return single(np.minimum(positions, axis.length - 1))


def _ratio(axis: Axis) -> float:
    """Input positions for each output position, divided twice as in OpenCV, which may miss a whole number by a bit."""
    is_by_scale = axis.ratio != axis.length / axis.out_length
    return axis.ratio if is_by_scale else 1.0 / (axis.out_length / axis.length)


def original(cv2: Any, pixels: Any, op: Any, size: Size) -> Any:
    """``cv2.resize``."""
    has_ipp, scale = cv2.ipp.useIPP(), None
    if getattr(op, "subpixel", False):
        shortest, longest = sorted(pixels.shape[:2])
        scale = op.size / (shortest if op.side == "shorter" else longest)
        scale = scale if (op.shrink, op.enlarge)[scale > 1] else 1.0
        if op.max_size and np.round(scale * longest) > op.max_size:
            scale = op.max_size / longest
    if op.filter == "bicubic":  # Intel IPP, in the wheels for x86, has its own bicubic: 2 % of values off by one
        cv2.ipp.setUseIPP(False)
    try:
        to = size[::-1] if scale is None else None
        how = getattr(cv2, MODES[op.filter])
        resized = cv2.resize(np.ascontiguousarray(pixels), to, fx=scale, fy=scale, interpolation=how)
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
    takes_scale=True,
    passes=passes,
    is_vertical_first=never_vertical_first,
    formula=formula,
    windows=windows,
)
