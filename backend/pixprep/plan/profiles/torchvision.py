"""torchvision's resize of uint8 tensors on a CPU: PyTorch's native uint8 kernels (aten/src/ATen/native/cpu).

Pillow's windows, with coefficients of 16 bits in a precision of each axis' own; horizontally first, rounded to uint8,
then vertically; an axis that keeps its length has no pass. Without antialias the filter is not widened, a position
beyond the border gives its weight to the border's, and bicubic is sharper (a = -0.75). See UpSampleKernel.cpp.

PyTorch uses these kernels for bilinear where ``torch.backends.cpu.get_cpu_capability()`` says AVX2 or AVX512, and on
ARM; for bicubic, and for lanczos since torchvision 0.27, on every CPU. Measured equal with AVX2 and AVX512 (PyTorch
2.13); with DEFAULT, plain x86, for bicubic and lanczos unless the result is one pixel wide, where PyTorch goes wrong.
Bilinear there, and everything on CUDA, is computed in float32, which differs by 1 level in 11 % of the values. Whether
the tensor lies as (3, height, width) or channels last makes no difference.
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
"""Up to this sum of height and width PyTorch takes its other kernel for ``nearest``."""


def formula(method: Method, passes: Passes) -> Formula | None:
    """Pillow's with antialias; else the nearest two or four positions. The precision is the axis' own."""
    del passes
    if method.filter in ("nearest", "nearest_exact"):
        return None
    if method.antialias:
        return Formula(cast("Curve", method.filter), is_widened=True, bits=None)
    return Formula("four" if method.filter == "bicubic" else "two", is_widened=False, bits=None)


def windows(method: Method, passes: Passes, axis: Axis) -> Windows:
    """The position at ``i * ratio`` or, exact, at ``(i + 0.5) * ratio``, in float32.

    For larger results PyTorch computes the exact one as ``(i + 0.5) * ratio - 0.5`` in one fused operation, and adds
    0.5 again, which moves some that lie between two positions.
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
    """``resize`` of a tensor, by its own rule for the other side where that is the op's."""
    has_rule = getattr(op, "side", None) == "shorter" and op.rounding == "down"
    mode = functional.InterpolationMode[op.filter.upper()]
    return functional.resize(
        planes, [min(size)] if has_rule else list(size), interpolation=mode, antialias=op.antialias
    )


def inverse_affine(
    x: float, y: float, angle: float, *, translate: Pair = (0.0, 0.0), scale: float = 1.0, shear: Pair = (0.0, 0.0)
) -> Matrix:
    """Inverse about (x, y), as torchvision's ``_get_inverse_affine_matrix``, operation by operation."""
    turn, shear_x, shear_y = radians(angle), radians(shear[0]), radians(shear[1])
    a = cos(turn - shear_y) / cos(shear_y)
    b = -(a * tan(shear_x) + sin(turn))
    c = sin(turn - shear_y) / cos(shear_y)
    d = cos(turn) - c * tan(shear_x)
    to_x, to_y = x + translate[0], y + translate[1]
    m0, m1, m3, m4 = d / scale, -b / scale, -c / scale, a / scale
    return m0, m1, x - m0 * to_x - m1 * to_y, m3, m4, y - m3 * to_x - m4 * to_y


def rotation(height: int, width: int, angle: float, center: Pair | None, *, expand: bool) -> tuple[Matrix, Size]:
    """Rotation as ``rotate_image`` makes it; the size of the result is worked out in float32."""
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
    """Arithmetic of v2's ``grid_sample`` of uint8 tensors, in float32.

    The six numbers are divided by half the side of the image: (A, B, C), (D, E, F). ``gx = ((x' - (w - 1) / 2) * A +
    (y' - (h - 1) / 2) * B) + C``, where h x w is the size of the ``whole`` result; ``x = fused (gx + 1) * (W / 2) -
    0.5``; y likewise. **nearest**: the level at x and y, rounded half to even, or the fill. **bilinear**: ``i =
    floor(x)``, ``r = x - i``, ``l = 1 - r``, of y likewise ``j``, ``t``, ``s``: ``v = p00 * (s * l)``, ``v = fused p01
    * (s * r) + v``, ``v = fused p10 * (t * l) + v``, ``v = fused p11 * (t * r) + v``, with 0 for a level outside. ``m``
    is made likewise of ones in place of the levels. The result is ``(v - fill) * m + fill``, and v where the fill is
    None, rounded half to even.

    **A perspective** has ``((x' + 0.5) * A + (y' + 0.5) * B) + C``, divided by ``(g * (x' + 0.5) + h * (y' + 0.5)) +
    1``, less 1.

    **elastic**: gx is the displacement and ``fused step * x' - last`` in the left half of the image, ``fused last -
    step * (W - 1 - x')`` in the right one; ``last = (W - 1) / W``, ``step = 2 * last / (W - 1)``.
    """
    del whole
    halves = np.array([[0.5 * size[1]], [0.5 * size[0]]], np.float32)
    scaled = np.array(matrix[:6], np.float32).reshape(2, 3) / halves
    return Computed(f"torchvision_{filter_}", (*scaled.ravel().tolist(), *matrix[6:]))


def _mean(total: int, count: int) -> float:
    """``total / count``, both and the quotient in float32.

    PyTorch adds in float32, which is exact below 2^24, that is up to 65,793 white pixels; beyond, it depends on its
    threads.
    """
    return float(np.float32(total) / np.float32(count))


def single_precision(number: float) -> float:
    """A number of float32, as which PyTorch has it."""
    return float(np.float32(number))


def _gamma(exponent: float, gain: float) -> Values:
    """In float32: ``level * (1 / 255)``, its power, times the gain, clipped to 1, times 255.999, cut off.

    Only the power, of float32 with an error of up to 1 ulp, is here a rounded float64.
    """
    values = EVERY.astype(np.float32) * np.float32(1 / 255)
    values = (values.astype(np.float64) ** exponent).astype(np.float32)
    if gain != 1:
        values = (values * np.float32(gain)).clip(0, 1)
    return (values * np.float32(255.999)).clip(0, 255)


def _autocontrast(low: int, high: int) -> Values:
    """``(level - low) / ((high - low) * (1/255f))`` in float32, cut off."""
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
