"""PyTorch's ``interpolate`` of float32 tensors with antialias, rounded to uint8 (UpSampleKernel.cpp).

So torchvision's v1 transforms resize uint8 tensors, and with them every ``weights.transforms()``; v2 does where PyTorch
has no uint8 kernel. Pillow's windows, but computed in float32, and nothing is rounded to levels between the passes;
horizontally first. PyTorch's build for AVX2 and AVX-512 fuses products with sums (see ``float_fused``), and that of the
bicubic filter too, which is repeated here. So is a mistake of PyTorch 2.13: where the result has one column, and its
rows are resized, each of them is the first.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from pixprep.profiles.profile import Method, Profile, never_vertical_first
from pixprep.profiles.torchvision import LIBRARY
from pixprep.profiles.windows import Axis, Passes, Windows, multiply_add, single

F32 = npt.NDArray[np.float32]

SUPPORT = {"bilinear": 1.0, "bicubic": 2.0}


def passes(method: Method, rows: Axis, columns: Axis) -> Passes:
    """Always float32."""
    del method, rows, columns
    return "float_fused"


def windows(method: Method, passes: Passes, axis: Axis) -> Windows:
    """The windows of one axis, rounded to float32 where PyTorch does; an axis that keeps its length has no pass."""
    positions = np.arange(axis.begin, axis.end)
    if axis.out_length == axis.length:
        return single(positions, passes)
    if axis.is_vertical and axis.across == 1:
        positions = np.zeros_like(positions)
    ratio = float(np.float32(axis.length) / np.float32(axis.out_length))
    stretch = max(ratio, 1.0)
    support = np.float32(SUPPORT[method.filter] * stretch)
    centers = ((positions + 0.5) * ratio).astype(np.float32)
    first = np.maximum(((centers - support).astype(np.float64) + 0.5).astype(np.int64), 0)
    last = np.minimum(((centers + support).astype(np.float64) + 0.5).astype(np.int64), axis.length)
    count = np.minimum(last - first, int(np.ceil(support)) * 2 + 1)
    index = np.arange(int(count.max()))
    offsets = (index + first[:, None]).astype(np.float32) - centers[:, None]
    x = np.abs(((offsets.astype(np.float64) + 0.5) * float(np.float32(1 / stretch))).astype(np.float32))
    weights = _bilinear(x) if method.filter == "bilinear" else _bicubic(x)
    weights[index >= count[:, None]] = 0
    total = np.zeros(len(weights), np.float32)
    for tap in index:
        total += weights[:, tap]
    return Windows(first.astype(np.int32), count.astype(np.int32), weights / total[:, None])


def _bilinear(x: F32) -> F32:
    return np.maximum(np.float32(1) - x, np.float32(0))


def _bicubic(x: F32) -> F32:
    """Keys 1981, a = -0.5: ((1.5 x - 2.5) x) x + 1 below 1, ((-0.5 x + 2.5) x - 4) x + 2 below 2."""
    near = multiply_add(multiply_add(_f(1.5), x, _f(-2.5)) * x, x, _f(1))
    far = multiply_add(multiply_add(multiply_add(_f(-0.5), x, _f(2.5)), x, _f(-4)), x, _f(2))
    return np.where(x < 1, near, np.where(x < 2, far, _f(0)))


def _f(value: float) -> Any:
    return np.float32(value)


PROFILE = Profile(
    title="PyTorch",
    original=LIBRARY._replace(functions="torchvision.transforms.functional"),  # float32
    filters=(),
    antialiased=("bilinear", "bicubic"),
    antialias=True,
    across=("bilinear", "bicubic"),
    passes=passes,
    is_vertical_first=never_vertical_first,
    windows=windows,
)
