"""OpenCV's resize, warps and color arithmetic for uint8 images, as built for x86-64 without Intel IPP.

In ``cv2.resize`` (modules/imgproc/src/resize.cpp), the horizontal pass comes first. Only the filter ``area``
antialiases. It has three variants: the mean of complete pixels if both scale factors are integers, the mean of pixels
weighted by their overlap with the window if both axes shrink, and a modified linear interpolation if an axis grows.
Intel IPP is used for ``bicubic`` only, and rounds 2 % of the values differently. ``cv2.ipp.setUseIPP(False)`` disables
it.
"""

from __future__ import annotations

from functools import lru_cache
from operator import truediv
from typing import Any, get_args

import numpy as np
import numpy.typing as npt

from pixprep.plan.profiles.profile import (
    PIXEL_VALUES,
    Blur,
    Colours,
    Computed,
    Method,
    Original,
    Profile,
    Size,
    Values,
    Warps,
    never_vertical_first,
)
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
    """Return the arithmetic of the filter. For ``area``, the arithmetic depends on the ratios of both axes.

    With a ratio of 2 on both axes, ``area`` matches, bit for bit, a linear interpolation halfway between two pixels.
    """
    if method.filter != "area":
        return _PASSES[method.filter]
    ratios = [_ratio(axis) for axis in (rows, columns)]
    if min(ratios) < 1 or ratios == [2, 2]:
        return "opencv_linear"
    is_whole = all(abs(ratio - round(ratio)) < np.finfo(np.float64).eps for ratio in ratios)
    return "area" if is_whole else "float_even"


def formula(method: Method, passes: Passes) -> Formula | None:
    """Return the formula of the filter. For ``area``, the formula depends on the arithmetic ``passes``."""
    if method.filter == "nearest":
        return None
    if method.filter != "area":
        return Formula(_RULES[method.filter])
    if passes == "area":
        return Formula("opencv_area")
    return Formula("opencv_cut" if passes == "float_even" else "opencv_repeated")


def windows(method: Method, passes: Passes, axis: Axis) -> Windows:
    """Return the windows of ``nearest``, whose positions are ``floor(i * ratio)``."""
    del method, passes
    positions = np.floor(np.arange(axis.begin, axis.end) * _ratio(axis))
    return single(np.minimum(positions, axis.length - 1))


def _ratio(axis: Axis) -> float:
    """Return the number of input pixels per output pixel.

    OpenCV computes this number with two divisions. Even for an integer scale, it may have a rounding error of 1 ulp.
    """
    is_by_scale = axis.ratio != axis.length / axis.out_length
    return axis.ratio if is_by_scale else 1.0 / (axis.out_length / axis.length)


def original(cv2: Any, pixels: Any, op: Any, size: Size) -> Any:
    """Resize an image with ``cv2.resize``."""
    has_ipp, scale = cv2.ipp.useIPP(), None
    if getattr(op, "subpixel", False):
        shortest, longest = sorted(pixels.shape[:2])
        scale = op.size / (shortest if op.side == "shorter" else longest)
        scale = scale if (op.shrink, op.enlarge)[scale > 1] else 1.0
        if op.max_size and np.round(scale * longest) > op.max_size:
            scale = op.max_size / longest
    if op.filter == "bicubic":  # with Intel IPP (in the wheels for x86), 2 % of the bicubic values differ by one
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
    """Return OpenCV's table of weights for bicubic warps, int16 (1024, 16).

    The row ``32 * dy + dx`` contains the 4 x 4 weights, in row-major order, for a position that is dx / 32 of a pixel
    to the right of a pixel and dy / 32 of a pixel below it. The weights of one axis are those of the cubic kernel with
    A = -0.75 in float32; the last one is 1 minus the other three. The product of the weights of both axes is multiplied
    by 32,768, rounded half to even and limited to 32,767. The sum of the 16 weights is then corrected to 32,768: the
    difference is added to the largest of the four weights in rows 2 and 3, columns 2 and 3 (counted from 0), if the sum
    is too small, and to the smallest if it is too large. Among equal weights, the first one is changed.
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
    """Return the arithmetic of ``warpAffine`` and ``warpPerspective`` in OpenCV 4, which differs from that in OpenCV 5.

    **Affine maps**: ``X = P + round(a * x' * 1024)`` in 32-bit integers, with ``P = round((b * y' + c) * 1024) + 512``
    for nearest, and ``+ 16`` for the other filters. Y is computed in the same way from d, e and f. The products and
    sums are computed in float64. ``round`` rounds half to even, and returns -2^31 if the result does not fit into 32
    bits. The position in 1/32 pixel is ``X >> 5``. For nearest, the pixel is ``X >> 10``.

    **Perspectives**: The columns are processed in blocks of ``1024 // min(16, h)`` columns, where h is the number of
    rows of the whole result. With k as the first column of the block that contains x', the position in 1/32 pixel is
    ``x = ((a * k + b * y' + c) + a * (x' - k)) * (32 / w)``, rounded half to even, with
    ``w = (g * k + h * y' + i) + g * (x' - k)``, and y is computed in the same way. For nearest, 1 replaces 32. If w is
    0, the position is 0.

    The position in 1/32 pixel is then split into the pixel i, which is reduced to 16 bits, and the remainder dx; y is
    split into j and dy. The padding mode determines the pixel values outside of the image.

    **bilinear**: ``(((p00 * (32 - dx) + p01 * dx) * (32 - dy) + (p10 * (32 - dx) + p11 * dx) * dy) + 512) >> 10``.

    **bicubic**: ``(sum + 16384) >> 15``, clipped, where ``sum`` is the weighted sum (``warp_weights``) of the pixels in
    the columns i - 1 to i + 2 and the rows j - 1 to j + 2.
    """
    del whole, size
    return Computed(f"opencv_{filter_}", matrix, warp_weights() if filter_ == "bicubic" else None)


def _contrast(mean: float, factor: float) -> Values:
    """Return ``value * factor + mean * (1 - factor)`` for all pixel values, as Albumentations changes the contrast.

    The values are computed in float32 and clipped. Both constants and the result of each operation are rounded to
    float32. With a factor of 0, all values are ``int(mean + 0.5)``.
    """
    if factor == 0:
        return np.full(256, int(mean + 0.5))
    return (PIXEL_VALUES.astype(np.float32) * np.float32(factor) + np.float32(mean * (1 - factor))).clip(0, 255)


def _gamma(exponent: float, gain: float) -> Values:
    """Return Albumentations' gamma curve, which truncates ``(value / 255) ** exponent * 255``."""
    del gain
    return np.arange(0, 256.0 / 255, 1.0 / 255) ** exponent * 255


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
    alpha="separate",
)
WARPS = Warps(
    title="OpenCV 4",
    filters=("nearest", "bilinear", "bicubic"),
    compute=compute,
    origin="pixel",
    padding_modes=get_args(PaddingMode),
    box_formats=("xyxy",),
    max_side=32766,
)
COLOURS = Colours(mean=truediv, contrast=_contrast, gamma=_gamma)
BLUR = Blur(taps=lambda sigma: 2 * int(3.5 * sigma) + 1, is_mirrored_again=True)
