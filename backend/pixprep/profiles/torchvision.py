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

import numpy as np
import numpy.typing as npt

from pixprep.plan import Resize
from pixprep.profiles import pillow
from pixprep.profiles.taps import Axis, Kind, Taps, fused, single

Int32 = npt.NDArray[np.int32]
F64 = npt.NDArray[np.float64]

UNFUSED_SIDES = 128
"""Up to this sum of height and width PyTorch takes its other kernel for ``nearest``."""


def kind(resize: Resize, size: tuple[int, int], resized: tuple[int, int]) -> Kind:
    """Always fixed-point."""
    del resize, size, resized
    return "fixed"


def is_vertical_first(resize: Resize, size: tuple[int, int], resized: tuple[int, int]) -> bool:
    """Never."""
    del resize, size, resized
    return False


def taps(resize: Resize, kind: Kind, axis: Axis) -> Taps:
    """The windows of one axis; an axis that keeps its length has no pass."""
    del kind
    wanted = slice(axis.begin, axis.end)
    positions = np.arange(axis.out_length)
    if axis.out_length == axis.length:
        return single(positions[wanted])
    if resize.filter in ("nearest", "nearest_exact"):
        return single(_nearest(axis, is_exact=resize.filter == "nearest_exact")[wanted])
    # The precision is the whole axis', so the windows of the whole axis are needed for any part of it.
    whole = Axis(length=axis.length, out_length=axis.out_length, scale=axis.scale, begin=0, end=axis.out_length)
    if resize.antialias:
        first, count, weights = pillow.windows(whole, resize.filter, antialias=True)
        largest = float(weights.max())
    else:
        first, count, weights, largest = _unwidened(whole, is_cubic=resize.filter == "bicubic")
    bits = _precision(largest)
    fixed = np.trunc(weights * (1 << bits) + np.where(weights < 0, -0.5, 0.5)).astype(np.int32)
    return Taps(first[wanted], count[wanted], fixed[wanted, : count[wanted].max()], bits)


def _nearest(axis: Axis, *, is_exact: bool) -> npt.NDArray[np.float32]:
    """The position at ``i * scale`` or, exact, at ``(i + 0.5) * scale``, in float32.

    Of larger results PyTorch computes the exact one as ``(i + 0.5) * scale - 0.5`` in one fused operation, and adds 0.5
    again, which moves some that lie between two positions.
    """
    scale = np.float32(axis.length) / np.float32(axis.out_length)
    positions = np.arange(axis.out_length, dtype=np.float32)
    if not is_exact:
        positions = positions * scale
    elif axis.out_length + axis.across <= UNFUSED_SIDES:
        positions = (positions + np.float32(0.5)) * scale
    else:
        middles = np.maximum(fused(positions + np.float32(0.5), scale, np.float32(-0.5)), 0)
        positions = (middles.astype(np.float64) + 0.5).astype(np.float32)
    return np.minimum(np.floor(positions), np.float32(axis.length - 1))


def _precision(largest: float) -> int:
    """The most bits, up to 22, with which the largest weight stays below 2^15."""
    bits = 0
    while bits < 22 and int(0.5 + largest * (1 << (bits + 1))) < 1 << 15:
        bits += 1
    return bits


def _unwidened(axis: Axis, *, is_cubic: bool) -> tuple[Int32, Int32, F64, float]:
    """Two or four taps about ``(i + 0.5) * scale - 0.5``: first, count, weights, and the largest sum on the way to one.

    A position beyond the border gives its weight to the border's, one after the other; PyTorch notes the largest weight
    while it adds them up, which with negative ones among them is larger than any in the end.
    """
    middles = (np.arange(axis.out_length) + 0.5) * (axis.length / axis.out_length) - 0.5
    if not is_cubic:
        middles = np.maximum(middles, 0.0)
    floor = np.minimum(np.floor(middles.astype(np.float32)).astype(np.int64), axis.length - 1)
    t = np.clip(middles - floor, 0.0, 1.0)
    shares = [_far(1 + t), _near(t), _near(1 - t), _far(2 - t)] if is_cubic else [1 - t, t]
    begin = floor - (len(shares) // 2 - 1)
    first = np.maximum(begin, 0)
    count = np.minimum(begin + len(shares), axis.length) - first
    weights = np.zeros((len(floor), len(shares)))
    largest = 0.0
    rows = np.arange(len(floor))
    for tap, share in enumerate(shares):
        slot = np.clip(begin + tap, 0, axis.length - 1) - first
        weights[rows, slot] += share
        largest = max(largest, float(weights[rows, slot].max()))
    return first.astype(np.int32), count.astype(np.int32), weights, largest


def _near(x: F64) -> F64:
    """Keys 1981, a = -0.75, for 0 <= x <= 1."""
    return (1.25 * x - 2.25) * x * x + 1


def _far(x: F64) -> F64:
    """Keys 1981, a = -0.75, for 1 <= x <= 2."""
    return ((-0.75 * x + 3.75) * x - 6) * x + 3
