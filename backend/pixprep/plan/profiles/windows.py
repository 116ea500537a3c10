"""Windows: for each output position of one axis of a resize, the input positions it is made of, and their weights."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt

Passes = Literal[
    "fixed", "opencv_linear", "opencv_cubic", "opencv_lanczos", "area", "float_even", "dali", "float_fused", "real",
    "lerp",
]  # fmt: skip
"""The arithmetic of both passes; p: the levels of a window, m: the values between the passes, w: the weights.

==============  =====================================  =====================================================
passes          first                                  second
==============  =====================================  =====================================================
fixed           clip8((2^(bits-1) + sum(p w)) >> bits) the same
opencv_linear   sum(p w) >> 4                          clip8((sum((m w) >> 16) + 2) >> 2)
opencv_cubic    sum(p w), int32                        clip8(rint(float32 sum of m (w / 2^22), last tap first))
opencv_lanczos  sum(p w), int32                        clip8((2^(bits-1) + sum(m w)) >> bits)
area            sum(p), int32                          clip8(rint(float32(sum(m)) factor))
float_even      float32 sum(p w)                       clip8(rint(float32 sum(m w)))
dali            float32 sum(p w)                       the same, of some values with ties away from 0
float_fused     float32 sum(p w), partly fused         clip8(rint(the same of m))
real            float32 sum(p w)                       float32 sum(m w)
lerp            p0 + (p1 - p0) w1, float32             the same
==============  =====================================  =====================================================

Every float32 product and sum is rounded by itself, tap by tap, the first one first; rint rounds ties to even.
Of a ``float_fused`` window of ``count`` taps the last ``(count - 1) % 4`` are each added by a fused multiply-add,
rounded once: what is left when a compiler has made vectors of four of all taps but the first. Which values ``dali``
rounds away from 0, ``find_ties`` of ``engine/kernels/rules.c`` says.
"""

Curve = Literal["box", "bilinear", "hamming", "bicubic", "lanczos", "two", "four"]
Rule = Literal[
    "opencv_linear", "opencv_repeated", "opencv_cubic", "opencv_lanczos4", "opencv_area", "opencv_cut",
    "torch_bilinear", "torch_bicubic", "dali_bilinear", "dali_bicubic", "dali_lanczos",
    "tensorflow_linear", "tensorflow_triangle",
]  # fmt: skip
"""Ways of libraries to make windows: ``engine/kernels/rules.c`` has each, in the numbers of its library."""
Order = IntEnum("Order", ["AS_DECODED", "BACKWARDS", "ONE"], start=0)
"""Order of a library's channels; of one in place of three that are the same, no order matters."""
IDENTITY_BITS = 22
"""A ``fixed`` window of one position with weight 2^22 gives its level."""


class Formula(NamedTuple):
    """Formula of an axis: ``engine/kernels/windows.c`` makes its windows and weights of its lengths.

    Output position i lies at ``offset + (i + 0.5) * ratio``. Each weight of a window is the curve at the distance from
    there, over the sum of the window's values.

    Attributes:
        curve: of the distance. A window is cut off at the border. ``two``, ``four``: the nearest so many positions, by
            linear or cubic (a = -0.75) interpolation; one beyond the border gives its weight to the border's. Or a
            library's own rule, whose windows may reach over the border: a position there means the nearest inside.
        is_widened: the curve is as wide as the ratio where the axis shrinks.
        bits: the windows' weights sum up to 2^bits; None: the most bits, to 22, that keep each weight of the axis below
            2^15. A rule has its own.
    """

    curve: Curve | Rule
    is_widened: bool = False
    bits: int | None = None

    @property
    def is_rule(self) -> bool:
        """Tell whether it is a library's own."""
        return self.curve in get_args(Rule)


class Axis(NamedTuple):
    """One axis of one resize of an image of known size.

    Attributes:
        length, out_length: before and after, in positions.
        ratio: input positions for each output position; below 0, of DALI alone, if these are counted from the last one.
        begin, end: which output positions are wanted.
        offset: where output position 0 begins, in input positions: not 0 in an image that was decoded to a fraction of
            its size, for which only Pillow's windows are made, and of a part and of ``subpixel``, which DALI has.
        is_vertical: from row to row; only DALI's ``nearest`` and PyTorch care.
        across: how long the other axis becomes, where that matters (``Profile.across``); else 0.
    """

    length: int
    out_length: int
    ratio: float
    begin: int
    end: int
    offset: float = 0.0
    is_vertical: bool = False
    across: int = 0


@dataclass(frozen=True, eq=False)
class Windows:
    """Windows of the input, one for each wanted output position.

    Attributes:
        first: (out,) int32: the first input position; a position outside the axis means the nearest one inside.
        count: (out,) int32: how many positions.
        weights: (out, taps) int32 or float32, by the passes; 0 beyond ``count``.
        bits: of ``fixed``: the weights of a window sum up to about 2^bits; of ``opencv_lanczos`` those of both axes,
            multiplied, do.
    """

    first: npt.NDArray[np.int32]
    count: npt.NDArray[np.int32]
    weights: npt.NDArray[Any]
    bits: int = IDENTITY_BITS

    def span(self, length: int) -> tuple[int, int]:
        """The first position of an axis of ``length`` that they read, and the one behind the last."""
        if len(self.first) == 0:
            return 0, 0
        begin, end = int(self.first.min()), int((self.first + self.count).max())
        return min(max(begin, 0), length - 1), max(min(end, length), 1)


class Resampling(NamedTuple):
    """One resize of an image of known size, for the region that is wanted.

    Attributes:
        passes: their arithmetic.
        rows, columns: the axes.
        formula: of their windows; None: these are ``windows``.
        windows: of the rows and of the columns.
        vertical_first: the first pass is along the columns of the image, from row to row.
        factor: of ``area``: one over the pixels of a window.
        order: of the library's channels, as ``find_ties`` wants to know.
    """

    passes: Passes
    rows: Axis
    columns: Axis
    formula: Formula | None
    windows: tuple[Windows, Windows] | None = None
    vertical_first: bool = False
    factor: float = 1.0
    order: Order = Order.AS_DECODED


def single(positions: npt.NDArray[Any], passes: Passes = "fixed") -> Windows:
    """Windows of one position each, which give its level."""
    count = np.ones(len(positions), np.int32)
    is_whole = passes == "fixed"
    weights = np.full((len(positions), 1), 1 << IDENTITY_BITS if is_whole else 1, np.int32 if is_whole else np.float32)
    return Windows(positions.astype(np.int32), count, weights)


def multiply_add(a: Any, b: Any, c: Any) -> npt.NDArray[np.float32]:
    """``a * b + c`` of float32 values, rounded once to float32.

    The product is exact in float64. The sum is rounded there first, which shows in about one of 2^29 results.
    """
    product = np.asarray(a, np.float64) * np.asarray(b, np.float64)
    return (product + np.asarray(c, np.float64)).astype(np.float32)
