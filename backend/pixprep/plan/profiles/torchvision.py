"""torchvision's resize of uint8 tensors on a CPU: PyTorch's native uint8 kernels (aten/src/ATen/native/cpu).

The windows are Pillow's, with coefficients of 16 bits whose precision each axis determines. The horizontal pass is
first, and its results are rounded to uint8 before the vertical pass; an axis that keeps its length has no pass. Without
antialias the filter is not widened, a position beyond the border adds its weight to the border pixel, and bicubic is
sharper (a = -0.75). The source is UpSampleKernel.cpp.

PyTorch uses these kernels for bilinear if ``torch.backends.cpu.get_cpu_capability()`` is AVX2 or AVX512, and on ARM; it
uses them for bicubic, and since torchvision 0.27 for lanczos, on every CPU. The results were measured as equal with
AVX2 and AVX512 (PyTorch 2.13). With DEFAULT (plain x86) they are equal for bicubic and lanczos unless the result is one
pixel wide, which PyTorch computes wrongly. Bilinear with DEFAULT, and everything on CUDA, is computed in float32, which
differs by 1 in 11 % of the values. The results do not depend on the memory layout of the tensor, (3, height, width)
or channels last.
"""

from __future__ import annotations

from math import cos, radians, sin, tan
from typing import Any, cast

import numpy as np

from pixprep.plan.profiles.colours import EVERY, Blur, Colours, Values
from pixprep.plan.profiles.profile import Method, Original, Profile, Size, always_fixed, never_vertical_first
from pixprep.plan.profiles.warps import Computed, Pair, Warps
from pixprep.plan.profiles.windows import Axis, Curve, Formula, Passes, Windows, multiply_add, single
from pixprep.spec import Matrix, WarpFilter

UNFUSED_SIDES = 128
"""Maximum sum of height and width for which PyTorch uses its other kernel for ``nearest``."""


def formula(method: Method, passes: Passes) -> Formula | None:
    """Return Pillow's formula with antialias, and the formula of the nearest two or four positions without.

    The precision depends on the axis.
    """
    del passes
    if method.filter in ("nearest", "nearest_exact"):
        return None
    if method.antialias:
        return Formula(cast("Curve", method.filter), is_widened=True, bits=None)
    return Formula("four" if method.filter == "bicubic" else "two", is_widened=False, bits=None)


def windows(method: Method, passes: Passes, axis: Axis) -> Windows:
    """Return the positions ``i * ratio``, or ``(i + 0.5) * ratio`` for ``nearest_exact``, in float32.

    For larger results PyTorch computes ``nearest_exact`` as ``(i + 0.5) * ratio - 0.5`` in one fused operation, and
    adds 0.5 again, which moves some points that are midway between two positions.
    """
    del passes
    ratio = np.float32(axis.length) / np.float32(axis.out_length)
    positions = np.arange(axis.begin, axis.end, dtype=np.float32)
    if method.filter == "nearest":
        positions = positions * ratio
    elif axis.out_length + axis.across <= UNFUSED_SIDES:
        positions = (positions + np.float32(0.5)) * ratio
    else:
        middles = np.maximum(multiply_add(positions + np.float32(0.5), ratio, np.float32(-0.5)), 0)
        positions = (middles.astype(np.float64) + 0.5).astype(np.float32)
    return single(np.minimum(np.floor(positions), np.float32(axis.length - 1)))


def original(functional: Any, planes: Any, op: Any, size: Size) -> Any:
    """Call ``resize`` with a tensor; torchvision computes the other side if the op has the same rule for it."""
    has_rule = getattr(op, "side", None) == "shorter" and op.rounding == "down"
    mode = functional.InterpolationMode[op.filter.upper()]
    return functional.resize(
        planes, [min(size)] if has_rule else list(size), interpolation=mode, antialias=op.antialias
    )


def inverse_affine(
    x: float, y: float, angle: float, *, translate: Pair = (0.0, 0.0), scale: float = 1.0, shear: Pair = (0.0, 0.0)
) -> Matrix:
    """Return the inverse about (x, y), as torchvision's ``_get_inverse_affine_matrix`` computes it step by step."""
    turn, shear_x, shear_y = radians(angle), radians(shear[0]), radians(shear[1])
    a = cos(turn - shear_y) / cos(shear_y)
    b = -(a * tan(shear_x) + sin(turn))
    c = sin(turn - shear_y) / cos(shear_y)
    d = cos(turn) - c * tan(shear_x)
    to_x, to_y = x + translate[0], y + translate[1]
    m0, m1, m3, m4 = d / scale, -b / scale, -c / scale, a / scale
    return m0, m1, x - m0 * to_x - m1 * to_y, m3, m4, y - m3 * to_x - m4 * to_y


def rotation(height: int, width: int, angle: float, center: Pair | None, *, expand: bool) -> tuple[Matrix, Size]:
    """Return the rotation of ``rotate_image``; the size of the result is computed in float32."""
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
    """Return the arithmetic of v2's ``grid_sample`` of uint8 tensors, in float32.

    The six numbers are divided by half the side of the image; the quotients are (A, B, C) and (D, E, F).
    ``gx = ((x' - (w - 1) / 2) * A + (y' - (h - 1) / 2) * B) + C``, where h x w is the size of the ``whole`` result, and
    ``x = fused (gx + 1) * (W / 2) - 0.5``; y likewise.

    **nearest** returns the pixel value at x and y, rounded half to even, or the fill.

    **bilinear**: ``i = floor(x)``, ``r = x - i``, ``l = 1 - r``; ``j``, ``t`` and ``s`` follow likewise from y.
    ``v = p00 * (s * l)``, ``v = fused p01 * (s * r) + v``, ``v = fused p10 * (t * l) + v``,
    ``v = fused p11 * (t * r) + v``, where a pixel value outside of the image is 0. ``m`` is computed likewise with ones
    for the pixel values. The result is ``(v - fill) * m + fill``, or v if the fill is None, rounded half to even.

    **A perspective** has ``((x' + 0.5) * A + (y' + 0.5) * B) + C``, divided by
    ``(g * (x' + 0.5) + h * (y' + 0.5)) + 1``, minus 1.

    **elastic**: gx is the displacement plus ``fused step * x' - last`` in the left half of the image, and plus
    ``fused last - step * (W - 1 - x')`` in the right half, with ``last = (W - 1) / W`` and
    ``step = 2 * last / (W - 1)``.
    """
    del whole
    halves = np.array([[0.5 * size[1]], [0.5 * size[0]]], np.float32)
    scaled = np.array(matrix[:6], np.float32).reshape(2, 3) / halves
    return Computed(f"torchvision_{filter_}", (*scaled.ravel().tolist(), *matrix[6:]))


def _mean(total: int, count: int) -> float:
    """Return ``total / count``; both numbers and the quotient are float32.

    PyTorch adds in float32, which is exact below 2^24, that is, up to 65,793 white pixels. Beyond that, its result
    depends on its threads.
    """
    return float(np.float32(total) / np.float32(count))


def single_precision(number: float) -> float:
    """Round a number to float32, as PyTorch stores it."""
    return float(np.float32(number))


def _gamma(exponent: float, gain: float) -> Values:
    """Return ``level * (1 / 255)``, raised to the power, times the gain, clipped to 1, times 255.999, and truncated.

    All numbers are float32. The only difference is the power: PyTorch's has an error of up to 1 ulp, and this one is a
    rounded float64 number.
    """
    values = EVERY.astype(np.float32) * np.float32(1 / 255)
    values = (values.astype(np.float64) ** exponent).astype(np.float32)
    if gain != 1:
        values = (values * np.float32(gain)).clip(0, 1)
    return (values * np.float32(255.999)).clip(0, 255)


def _autocontrast(low: int, high: int) -> Values:
    """Return ``(level - low) / ((high - low) * (1/255f))``, computed in float32 and truncated."""
    return (EVERY - low).astype(np.float32) / (np.float32(high - low) * np.float32(1 / 255))


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
