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

from typing import Any, cast

import numpy as np

from pixprep.plan.profiles.profile import Method, Original, Profile, Size, always_fixed, never_vertical_first
from pixprep.plan.profiles.windows import Axis, Curve, Formula, Passes, Windows, multiply_add, single

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
