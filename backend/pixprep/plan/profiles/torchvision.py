"""torchvision's resize, warps and color arithmetic for uint8 tensors on the CPU.

The resize is that of PyTorch's uint8 kernels (UpSampleKernel.cpp in aten/src/ATen/native/cpu). The filters are
Pillow's, with 16-bit coefficients whose precision depends on the axis. The horizontal pass comes first, and its result
is rounded to uint8. If an axis keeps its length, its pass is skipped. Without antialiasing, the filter is not widened,
the weights of taps beyond the border are added to the pixel at the border, and bicubic is sharper (a = -0.75).

PyTorch uses these kernels for bilinear if ``torch.backends.cpu.get_cpu_capability()`` is AVX2 or AVX512, and on ARM. It
uses them for bicubic, and since torchvision 0.27 for lanczos, on every CPU. With AVX2 and AVX512, no difference was
found in measurements (PyTorch 2.13). With DEFAULT (plain x86), bicubic and lanczos are equal, except for results of one
pixel width, which PyTorch computes incorrectly. Bilinear with DEFAULT, and all filters on CUDA, are computed in
float32, so 11 % of the values differ by 1. The results do not depend on the memory format of the tensor (contiguous or
channels last).
"""

from __future__ import annotations

from math import cos, radians, sin, tan
from typing import Any, cast

import numpy as np

from pixprep.plan.profiles.profile import (
    PIXEL_VALUES,
    Blur,
    Colours,
    Computed,
    Method,
    Original,
    Pair,
    Profile,
    Size,
    Values,
    Warps,
    always_fixed,
    never_vertical_first,
)
from pixprep.plan.profiles.windows import Axis, Curve, Formula, Passes, Windows, multiply_add, single
from pixprep.spec import Matrix, WarpFilter

UNFUSED_SIDES = 128
"""Maximum sum of the result's height and width for which PyTorch uses a different kernel for ``nearest_exact``."""


def formula(method: Method, passes: Passes) -> Formula | None:
    """Return the formula of the filter: Pillow's with antialiasing, or an interpolation of two or four pixels without.

    The precision of the weights depends on the axis.
    """
    del passes
    if method.filter in ("nearest", "nearest_exact"):
        return None
    if method.antialias:
        return Formula(cast("Curve", method.filter), is_widened=True, bits=None)
    return Formula("four" if method.filter == "bicubic" else "two", is_widened=False, bits=None)


def windows(method: Method, passes: Passes, axis: Axis) -> Windows:
    """Return the positions ``i * ratio`` for ``nearest``, or ``(i + 0.5) * ratio`` for ``nearest_exact``, in float32.

    For results larger than ``UNFUSED_SIDES``, PyTorch computes ``nearest_exact`` as ``(i + 0.5) * ratio - 0.5`` with a
    fused multiply-add, and then adds 0.5. This breaks some ties between two positions differently.
    """
    del passes
    ratio = np.float32(axis.length) / np.float32(axis.out_length)
    positions = np.arange(axis.begin, axis.end, dtype=np.float32)
    if method.filter == "nearest":
        positions = positions * ratio
    elif axis.out_length + axis.across <= UNFUSED_SIDES:
        positions = (positions + np.float32(0.5)) * ratio
    else:
        centers = np.maximum(multiply_add(positions + np.float32(0.5), ratio, np.float32(-0.5)), 0)
        positions = (centers.astype(np.float64) + 0.5).astype(np.float32)
    return single(np.minimum(positions, np.float32(axis.length - 1)))


def original(functional: Any, planes: Any, op: Any, size: Size) -> Any:
    """Resize a tensor with torchvision's ``resize``.

    If the op has torchvision's own rule for the other side, torchvision computes that side.
    """
    has_rule = getattr(op, "side", None) == "shorter" and op.rounding == "down"
    mode = functional.InterpolationMode[op.filter.upper()]
    return functional.resize(
        planes, [min(size)] if has_rule else list(size), interpolation=mode, antialias=op.antialias
    )


def inverse_affine(
    x: float, y: float, angle: float, *, translate: Pair = (0.0, 0.0), scale: float = 1.0, shear: Pair = (0.0, 0.0)
) -> Matrix:
    """Return the inverse of an affine map about the center (x, y), as in ``_get_inverse_affine_matrix``.

    Args:
        x: x coordinate of the center.
        y: y coordinate of the center.
        angle: Angle of the rotation in degrees, clockwise.
        translate: Translation (x, y) in pixels.
        scale: Scale factor.
        shear: Shear angles (x, y) in degrees.
    """
    turn, shear_x, shear_y = radians(angle), radians(shear[0]), radians(shear[1])
    a = cos(turn - shear_y) / cos(shear_y)
    b = -(a * tan(shear_x) + sin(turn))
    c = sin(turn - shear_y) / cos(shear_y)
    d = cos(turn) - c * tan(shear_x)
    to_x, to_y = x + translate[0], y + translate[1]
    m0, m1, m3, m4 = d / scale, -b / scale, -c / scale, a / scale
    return m0, m1, x - m0 * to_x - m1 * to_y, m3, m4, y - m3 * to_x - m4 * to_y


def rotation(height: int, width: int, angle: float, center: Pair | None, *, expand: bool) -> tuple[Matrix, Size]:
    """Return the matrix of torchvision's ``rotate_image``, and the size of its result, computed in float32."""
    x, y = (0.0, 0.0) if center is None else (center[0] - width * 0.5, center[1] - height * 0.5)
    matrix = inverse_affine(x, y, -(angle % 360.0))
    if not expand:
        return matrix, (height, width)
    half = np.array([0.5 * width, 0.5 * height], np.float32)
    corners = np.array([(-1, -1), (-1, 1), (1, 1), (1, -1)], np.float32) * half
    factors = np.array(matrix, np.float32).reshape(2, 3)
    found = corners[:, :1] * factors[:, 0] + corners[:, 1:] * factors[:, 1] + factors[:, 2]
    first, last = (
        np.trunc((ends + half) * np.float32(1e4)) * np.float32(1e-4) for ends in (found.min(axis=0), found.max(axis=0))
    )
    columns, rows = (int(each) for each in np.ceil(last) - np.floor(first))
    return matrix, (rows, columns)


def compute(filter_: WarpFilter, matrix: Matrix, whole: Size, size: Size) -> Computed:
    """Return the arithmetic of torchvision v2's warps of uint8 tensors, which call ``grid_sample`` in float32.

    The first three numbers of the matrix are divided by W / 2, which results in (A, B, C), and the next three by H / 2,
    which results in (D, E, F). With the size h x w of the ``whole`` result, the coordinates are
    ``gx = ((x' - (w - 1) / 2) * A + (y' - (h - 1) / 2) * B) + C`` and ``x = fused (gx + 1) * (W / 2) - 0.5``, and y in
    the same way from D, E and F.

    **nearest**: Both coordinates are rounded half to even. The result is the pixel value at this position, or the fill
    outside of the image.

    **bilinear**: With ``i = floor(x)``, ``r = x - i`` and ``l = 1 - r``, and j, t and s in the same way from y, the
    interpolated value is computed as ``v = p00 * (s * l)``, ``v = fused p01 * (s * r) + v``,
    ``v = fused p10 * (t * l) + v``, ``v = fused p11 * (t * r) + v``. Pixel values outside of the image are 0. ``m`` is
    computed in the same way, with 1 instead of each pixel value inside of the image. The result is
    ``(v - fill) * m + fill``, or v if the fill is None, rounded half to even.

    **Perspectives**: ``gx = (((x' + 0.5) * A + (y' + 0.5) * B) + C) / ((g * (x' + 0.5) + h * (y' + 0.5)) + 1) - 1``.

    **elastic**: In the left half of the image, gx is the displacement plus ``fused step * x' - last``. In the right
    half, it is the displacement plus ``fused last - step * (W - 1 - x')``. Here, ``last = (W - 1) / W`` and
    ``step = 2 * last / (W - 1)``.
    """
    del whole
    halves = np.array([[0.5 * size[1]], [0.5 * size[0]]], np.float32)
    scaled = np.array(matrix[:6], np.float32).reshape(2, 3) / halves
    return Computed(f"torchvision_{filter_}", (*scaled.ravel().tolist(), *matrix[6:]))


def _mean(total: int, count: int) -> float:
    """Return ``total / count``, with both numbers and the quotient rounded to float32.

    PyTorch computes the total in float32, which is exact below 2^24 (65,793 white pixels). For larger totals, PyTorch's
    result depends on its number of threads.
    """
    return float(np.float32(total) / np.float32(count))


def single_precision(number: float) -> float:
    """Round a number to float32."""
    return float(np.float32(number))


def _gamma(exponent: float, gain: float) -> Values:
    """Return ``(value * (1 / 255)) ** exponent * gain``, clipped to 0 to 1, and multiplied by 255.999.

    All operations are in float32, except for the power, which is computed in float64 and rounded. PyTorch's power has
    an error of up to 1 ulp.
    """
    values = PIXEL_VALUES.astype(np.float32) * np.float32(1 / 255)
    values = (values.astype(np.float64) ** exponent).astype(np.float32)
    if gain != 1:
        values = (values * np.float32(gain)).clip(0, 1)
    return (values * np.float32(255.999)).clip(0, 255)


def _autocontrast(low: int, high: int) -> Values:
    """Return ``(value - low) / ((high - low) * (1 / 255))``, computed in float32."""
    return (PIXEL_VALUES - low).astype(np.float32) / (np.float32(high - low) * np.float32(1 / 255))


LIBRARY = Original(
    "torchvision",
    "torchvision",
    "torchvision",
    "torchvision.transforms.v2.functional",  # kernels for uint8
    original,
    takes_planes=True,
)
PROFILE = Profile(
    title="torchvision",
    original=LIBRARY,
    filters=("nearest", "nearest_exact", "bilinear", "bicubic"),
    antialiased=("nearest", "nearest_exact", "bilinear", "bicubic", "lanczos"),
    antialias=True,
    across=("nearest_exact",),
    passes=always_fixed,
    is_vertical_first=never_vertical_first,
    formula=formula,
    windows=windows,
)
WARPS = Warps(
    title="torchvision",
    filters=("nearest", "bilinear"),
    compute=compute,
    origin="middle",
    rotation=rotation,
    mixes_fill=("bilinear",),
)
COLOURS = Colours(
    mean=_mean, turn=single_precision, gamma=_gamma, autocontrast=_autocontrast, threshold=single_precision
)
BLUR = Blur(sigma=lambda taps: taps * 0.15 + 0.35)
