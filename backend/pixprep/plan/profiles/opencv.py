"""OpenCV's ``cv2.resize`` of uint8 images (modules/imgproc/src/resize.cpp), as built for x86-64, without Intel IPP.

Horizontally first. Nothing is antialiased but ``area``, which is three things: the mean of whole pixels where both
factors are whole, the mean of pixels cut at the edges of the window where both axes shrink, and where one grows, a
linear interpolation that repeats each pixel as long as it can. IPP computes only ``bicubic``, and there rounds another
way in 2 % of the values; ``cv2.ipp.setUseIPP(False)`` restores the formula.
"""

from __future__ import annotations

from functools import lru_cache
from operator import truediv
from typing import Any, get_args

import numpy as np
import numpy.typing as npt

from pixprep.plan.profiles.colours import EVERY, Blur, Colours, Values
from pixprep.plan.profiles.profile import Method, Original, Profile, Size, never_vertical_first
from pixprep.plan.profiles.warps import Computed, Warps
from pixprep.plan.profiles.windows import Axis, Formula, Passes, Rule, Windows, single
from pixprep.spec import Filter, Matrix, PaddingMode, WarpFilter

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
    """Input positions for each output position, divided twice as in OpenCV, which may miss an integer by a bit."""
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


@lru_cache
def warp_weights() -> npt.NDArray[np.int16]:
    """int16 (1024, 16): for each place, 32 dy + dx, the weights of OpenCV's bicubic, row by row, whose sum is 32,768.

    In float32, of dx / 32: the cubic with A = -0.75, its last weight 1 less the others. A product of two, times 32,768,
    is rounded half to even, at most 32,767. The rest to the sum is added to the largest of the last two by two, or
    taken from the smallest: the first of these.
    """
    x, a, one = np.arange(32, dtype=np.float32) / np.float32(32), np.float32(-0.75), np.float32(1)
    first = ((a * (x + one) - 5 * a) * (x + one) + 8 * a) * (x + one) - 4 * a
    second, third = (((a + 2) * t - (a + 3)) * t * t + one for t in (x, one - x))
    taps = np.stack([first, second, third, one - first - second - third], 1)
    products = taps[:, None, :, None] * taps[None, :, None, :] * np.float32(32768)
    weights = np.rint(products).clip(-32768, 32767).astype(np.int32).reshape(1024, 4, 4)
    missing = 32768 - weights.sum((1, 2))
    corners = weights[:, 2:4, 2:4].reshape(1024, 4)
    which = np.where(missing > 0, corners.argmax(1), corners.argmin(1))
    rows, columns = 2 + which // 2, 2 + which % 2
    weights[np.arange(1024), rows, columns] += missing
    made: npt.NDArray[np.int16] = weights.reshape(1024, 16).astype(np.int16)
    return made


def compute(filter_: WarpFilter, matrix: Matrix, whole: Size, size: Size) -> Computed:
    """Arithmetic of OpenCV 4's ``warpAffine`` and ``warpPerspective``; OpenCV 5 has others.

    **An affine map**: ``X = P + round(a * x' * 1024)`` in 32 bits, with ``P = round((b * y' + c) * 1024) + 512`` for
    nearest, 16 for the others; Y likewise of d, e, f. Every operation is rounded in float64; ``round`` is half to even,
    and gives -2^31 where 32 bits do not hold the result. The place in 32nds of a pixel is ``X >> 5``; of nearest the
    pixel is ``X >> 10``.

    **A perspective**: with k the first column of the block that has x', ``w = (g * k + h * y' + i) + g * (x' - k)``,
    ``x = ((a * k + b * y' + c) + a * (x' - k)) * (32 / w)``, y likewise, rounded half to even: the place in 32nds of a
    pixel. Nearest has 1 in place of 32. 0 where w is 0. A block has ``1024 // min(16, h)`` columns, h the rows of the
    whole result.

    Of the place in 32nds the whole pixel i, cut to 16 bits, and the rest dx; of y likewise j and dy. **bilinear**:
    ``(((p00 * (32 - dx) + p01 * dx) * (32 - dy) + (p10 * (32 - dx) + p11 * dx) * dy) + 512) >> 10``. **bicubic**: of
    columns i - 1 to i + 2 of rows j - 1 to j + 2 the sum of each level times its weight (``warp_weights``), ``(sum +
    16384) >> 15``, clipped. Outside is what the padding mode says.
    """
    del whole, size
    return Computed(f"opencv_{filter_}", matrix, warp_weights() if filter_ == "bicubic" else None)


def _contrast(mean: float, factor: float) -> Values:
    """``level * factor + mean * (1 - factor)`` as Albumentations has it for OpenCV's gray.

    In float32, each constant and each step rounded, and cut off; by 0 ``int(mean + 0.5)``.
    """
    if factor == 0:
        return np.full(256, int(mean + 0.5))
    return (EVERY.astype(np.float32) * np.float32(factor) + np.float32(mean * (1 - factor))).clip(0, 255)


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
    labels="opencv",
    passes=passes,
    is_vertical_first=never_vertical_first,
    formula=formula,
    windows=windows,
)
WARPS = Warps(
    title="OpenCV 4",
    filters=("nearest", "bilinear", "bicubic"),
    compute=compute,
    origin="pixel",
    padding_modes=get_args(PaddingMode),
    max_side=32766,
)
COLOURS = Colours(mean=truediv, contrast=_contrast)
BLUR = Blur(taps=lambda sigma: 2 * int(3.5 * sigma) + 1, is_mirrored_again=True, is_hosts=True)
