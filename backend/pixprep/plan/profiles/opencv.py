"""OpenCV's ``cv2.resize`` of uint8 images (modules/imgproc/src/resize.cpp), as built for x86-64, without Intel IPP.

The horizontal pass is first. Only ``area`` antialiases, and it has three forms: the mean of whole pixels if both
factors are integers, the mean of pixels clipped at the edges of the window if both axes shrink, and, if an axis grows,
a linear interpolation that repeats each pixel as long as possible. IPP computes only ``bicubic``, and rounds 2 % of its
values differently; ``cv2.ipp.setUseIPP(False)`` restores the formula.
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
    """Return the arithmetic of the filter; for ``area`` it depends on the ratios of both axes.

    A reduction by 2 in both axes is the linear interpolation between the two middle pixels, bit for bit.
    """
    if method.filter != "area":
        return _PASSES[method.filter]
    ratios = [_ratio(axis) for axis in (rows, columns)]
    if min(ratios) < 1 or ratios == [2, 2]:
        return "opencv_linear"
    is_whole = all(abs(ratio - round(ratio)) < np.finfo(np.float64).eps for ratio in ratios)
    return "area" if is_whole else "float_even"


def formula(method: Method, passes: Passes) -> Formula | None:
    """Return the rule of the filter; for ``area`` it depends on the arithmetic."""
    if method.filter == "nearest":
        return None
    if method.filter != "area":
        return Formula(_RULES[method.filter])
    if passes == "area":
        return Formula("opencv_area")
    return Formula("opencv_cut" if passes == "float_even" else "opencv_repeated")


def windows(method: Method, passes: Passes, axis: Axis) -> Windows:
    """Return the positions ``i * ratio``."""
    del method, passes
    positions = np.floor(np.arange(axis.begin, axis.end) * _ratio(axis))
    return single(np.minimum(positions, axis.length - 1))


def _ratio(axis: Axis) -> float:
    """Return the input positions per output position, divided twice as in OpenCV, so an integer may be off by a bit."""
    is_by_scale = axis.ratio != axis.length / axis.out_length
    return axis.ratio if is_by_scale else 1.0 / (axis.out_length / axis.length)


def original(cv2: Any, pixels: Any, op: Any, size: Size) -> Any:
    """Call ``cv2.resize``."""
    has_ipp, scale = cv2.ipp.useIPP(), None
    if getattr(op, "subpixel", False):
        shortest, longest = sorted(pixels.shape[:2])
        scale = op.size / (shortest if op.side == "shorter" else longest)
        scale = scale if (op.shrink, op.enlarge)[scale > 1] else 1.0
        if op.max_size and np.round(scale * longest) > op.max_size:
            scale = op.max_size / longest
    if op.filter == "bicubic":  # Intel IPP, in the wheels for x86, differs by one in 2 % of the bicubic values
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
    """Return the weights of OpenCV's bicubic, int16 (1024, 16).

    Each fraction 32 dy + dx has 4 x 4 weights, row by row, whose sum is 32,768. The weights of dx / 32 are those of the
    cubic with A = -0.75 in float32; the last one is 1 minus the other three. The product of two weights, times 32,768,
    is rounded half to even and limited to 32,767. The difference between the sum and 32,768 is added to the largest of
    the last two by two weights, or subtracted from the smallest; among equal weights, the first one changes.
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
    """Return the arithmetic of OpenCV 4's ``warpAffine`` and ``warpPerspective``; that of OpenCV 5 differs.

    **An affine map**: ``X = P + round(a * x' * 1024)`` in 32 bits, with ``P = round((b * y' + c) * 1024) + 512`` for
    nearest and ``+ 16`` for the other filters; Y likewise with d, e, f. Every operation is rounded in float64.
    ``round`` rounds half to even, and returns -2^31 if the result does not fit into 32 bits. The position in 32nds of a
    pixel is ``X >> 5``; for nearest, the pixel is ``X >> 10``.

    **A perspective**: k is the first column of the block that contains x'. ``w = (g * k + h * y' + i) + g * (x' - k)``
    and ``x = ((a * k + b * y' + c) + a * (x' - k)) * (32 / w)``, rounded half to even, is the position in 32nds of a
    pixel; y likewise. Nearest uses 1 in place of 32. The position is 0 if w is 0. A block has ``1024 // min(16, h)``
    columns, where h is the number of rows of the whole result.

    The position in 32nds is split into the pixel i, reduced to 16 bits, and the rest dx; y likewise into j and dy.
    **bilinear**: ``(((p00 * (32 - dx) + p01 * dx) * (32 - dy) + (p10 * (32 - dx) + p11 * dx) * dy) + 512) >> 10``.
    **bicubic**: the sum of each pixel value of columns i - 1 to i + 2 and rows j - 1 to j + 2 times its weight
    (``warp_weights``), ``(sum + 16384) >> 15``, clipped. The padding mode determines the values outside of the image.
    """
    del whole, size
    return Computed(f"opencv_{filter_}", matrix, warp_weights() if filter_ == "bicubic" else None)


def _contrast(mean: float, factor: float) -> Values:
    """Return ``level * factor + mean * (1 - factor)``, as Albumentations computes it with OpenCV's gray.

    The arithmetic is float32; each constant and each operation is rounded, and the result is clipped and truncated. A
    factor of 0 returns ``int(mean + 0.5)``.
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
