"""Fixed-point windows by a formula, as Pillow and PyTorch's uint8 kernels make them: here in NumPy.

``kernels/windows.c`` makes the same windows from the same ``Formula``, number for number. Both follow
the C code of the libraries: float64, one operation after the other, nothing fused.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from pixprep.profiles.windows import Axis, Windows

Int32 = npt.NDArray[np.int32]
F64 = npt.NDArray[np.float64]
Curve = Literal["box", "bilinear", "hamming", "bicubic", "lanczos", "two", "four"]

RADIUS: dict[Curve, float] = {
    "box": 0.5, "bilinear": 1.0, "hamming": 1.0, "bicubic": 2.0, "lanczos": 3.0, "two": 1.0, "four": 2.0
}  # fmt: skip
MOST_BITS = 22
"""32 bits less 8 of the level and 2 for the sum of negative weights."""
NARROW_BITS = 15
"""Of a weight where its precision is its axis' own."""


class Formula(NamedTuple):
    """Formula of an axis: its windows and weights follow from its lengths.

    Output position i lies at ``offset + (i + 0.5) * ratio``. Each weight of a window is the curve at the distance from
    there, over the sum of the window's values.

    Attributes:
        curve: of the distance. A window is cut off at the border. ``two``, ``four``: the nearest so many positions, by
            linear or cubic (a = -0.75) interpolation; one beyond the border gives its weight to the border's.
        is_widened: the curve is as wide as the ratio where the axis shrinks.
        bits: the windows' weights sum up to 2^bits; None: the most bits that keep each weight of the axis below 2^15.
    """

    curve: Curve
    is_widened: bool
    bits: int | None


def windows(formula: Formula, axis: Axis) -> Windows:
    """The windows of one axis that changes its length."""
    # A precision of the axis' own follows from all of its windows, whichever are wanted.
    whole = axis if formula.bits else axis._replace(begin=0, end=axis.out_length)
    first, count, weights, largest = (_nearest if formula.curve in ("two", "four") else _cut)(formula, whole)
    bits = formula.bits or _precision(largest)
    fixed = np.trunc(weights * (1 << bits) + np.where(weights < 0, -0.5, 0.5)).astype(np.int32)
    wanted = slice(axis.begin - whole.begin, axis.end - whole.begin)
    return Windows(first[wanted], count[wanted], fixed[wanted, : count[wanted].max()], bits)


def _cut(formula: Formula, axis: Axis) -> tuple[Int32, Int32, F64, float]:
    """First position, count and weights (out, taps) of each window, and the largest weight."""
    stretch = max(axis.ratio, 1.0) if formula.is_widened else 1.0
    support = RADIUS[formula.curve] * stretch
    middles = axis.offset + (np.arange(axis.begin, axis.end) + 0.5) * axis.ratio
    first = np.maximum((middles - support + 0.5).astype(np.int64), 0)
    last = np.minimum((middles + support + 0.5).astype(np.int64), axis.length)
    taps = np.arange(int((last - first).max()))
    weights = _value(formula.curve, (taps + first[:, None] - middles[:, None] + 0.5) * (1 / stretch))
    weights[taps >= (last - first)[:, None]] = 0.0
    weights /= np.add.accumulate(weights, axis=1)[:, -1:]  # one after the other: ``sum`` adds in pairs
    return first.astype(np.int32), (last - first).astype(np.int32), weights, float(weights.max())


def _value(curve: Curve, x: F64) -> F64:
    a = np.abs(x)
    if curve == "box":
        return ((x > -0.5) & (x <= 0.5)).astype(np.float64)
    if curve == "bilinear":
        return np.maximum(1.0 - a, 0.0)
    if curve == "hamming":  # Pillow's constants are float32
        window = float(np.float32(0.54)) + float(np.float32(0.46)) * np.cos(np.pi * x)
        return np.where(a < 1, np.sinc(x) * window, 0.0)
    if curve == "bicubic":  # Keys 1981, a = -0.5
        near = (1.5 * a - 2.5) * a * a + 1.0
        far = ((-0.5 * a + 2.5) * a - 4.0) * a + 2.0
        return np.where(a < 1, near, np.where(a < 2, far, 0.0))
    return np.where((x >= -3) & (x < 3), np.sinc(x) * np.sinc(x / 3), 0.0)


def _nearest(formula: Formula, axis: Axis) -> tuple[Int32, Int32, F64, float]:
    """Cut as ``_cut`` does; the largest is that of any sum on the way, which PyTorch notes at the border."""
    middles = (np.arange(axis.begin, axis.end) + 0.5) * axis.ratio - 0.5
    if formula.curve == "two":
        middles = np.maximum(middles, 0.0)
    floor = np.minimum(np.floor(middles.astype(np.float32)).astype(np.int64), axis.length - 1)
    t = np.clip(middles - floor, 0.0, 1.0)
    shares = [1 - t, t] if formula.curve == "two" else [_far(1 + t), _near(t), _near(1 - t), _far(2 - t)]
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


def _precision(largest: float) -> int:
    bits = 0
    while bits < MOST_BITS and int(0.5 + largest * (1 << (bits + 1))) < 1 << NARROW_BITS:
        bits += 1
    return bits
