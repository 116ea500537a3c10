"""PyTorch's ``interpolate`` of float32 tensors with antialias, rounded to uint8 (UpSampleKernel.cpp).

So torchvision's v1 transforms resize uint8 tensors, and with them every ``weights.transforms()``; v2 does where PyTorch
has no uint8 kernel. Pillow's windows, but computed in float32, and nothing is rounded to levels between the passes;
horizontally first. PyTorch's build for AVX2 and AVX-512 fuses products with sums (see ``float_fused``), and that of the
bicubic filter too, which is repeated here.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from pixprep.plan import Resize
from pixprep.profiles.taps import Axis, Kind, Taps, fused, single

F32 = npt.NDArray[np.float32]

SUPPORT = {"bilinear": 1.0, "bicubic": 2.0}


def kind(resize: Resize, size: tuple[int, int], resized: tuple[int, int]) -> Kind:
    """Always float32."""
    del resize, size, resized
    return "float_fused"


def is_vertical_first(resize: Resize, size: tuple[int, int], resized: tuple[int, int]) -> bool:
    """Never."""
    del resize, size, resized
    return False


def taps(resize: Resize, kind: Kind, axis: Axis) -> Taps:
    """The windows of one axis, rounded to float32 where PyTorch does; an axis that keeps its length has no pass."""
    positions = np.arange(axis.begin, axis.end)
    if axis.out_length == axis.length:
        return single(positions, kind)
    scale = float(np.float32(axis.length) / np.float32(axis.out_length))
    stretch = max(scale, 1.0)
    support = np.float32(SUPPORT[resize.filter] * stretch)
    centers = ((positions + 0.5) * scale).astype(np.float32)
    first = np.maximum(((centers - support).astype(np.float64) + 0.5).astype(np.int64), 0)
    last = np.minimum(((centers + support).astype(np.float64) + 0.5).astype(np.int64), axis.length)
    count = np.minimum(last - first, int(np.ceil(support)) * 2 + 1)
    index = np.arange(int(count.max()))
    offsets = (index + first[:, None]).astype(np.float32) - centers[:, None]
    x = np.abs(((offsets.astype(np.float64) + 0.5) * float(np.float32(1 / stretch))).astype(np.float32))
    weights = _bilinear(x) if resize.filter == "bilinear" else _bicubic(x)
    weights[index >= count[:, None]] = 0
    total = np.zeros(len(weights), np.float32)
    for tap in index:
        total += weights[:, tap]
    return Taps(first.astype(np.int32), count.astype(np.int32), weights / total[:, None])


def _bilinear(x: F32) -> F32:
    return np.maximum(np.float32(1) - x, np.float32(0))


def _bicubic(x: F32) -> F32:
    """Keys 1981, a = -0.5: ((1.5 x - 2.5) x) x + 1 below 1, ((-0.5 x + 2.5) x - 4) x + 2 below 2."""
    near = fused(fused(_f(1.5), x, _f(-2.5)) * x, x, _f(1))
    far = fused(fused(fused(_f(-0.5), x, _f(2.5)), x, _f(-4)), x, _f(2))
    return np.where(x < 1, near, np.where(x < 2, far, _f(0)))


def _f(value: float) -> Any:
    return np.float32(value)
