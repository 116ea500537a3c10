"""Windows: the input positions and weights of each output position along one axis of a resize."""

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
"""Arithmetic of both passes: p are the pixel values of a window, m the values between the passes, w the weights.

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
In a ``float_fused`` window of ``count`` taps, the last ``(count - 1) % 4`` are each added by a fused multiply-add,
rounded once. These taps remain after the compiler has vectorized all taps but the first by four. ``find_ties`` in
``engine/kernels/library_filters.c`` computes which values ``dali`` rounds away from 0.
"""

Curve = Literal["box", "bilinear", "hamming", "bicubic", "lanczos", "two", "four"]
Rule = Literal[
    "opencv_linear", "opencv_repeated", "opencv_cubic", "opencv_lanczos4", "opencv_area", "opencv_cut",
    "torch_bilinear", "torch_bicubic", "dali_bilinear", "dali_bicubic", "dali_lanczos",
    "tensorflow_linear", "tensorflow_triangle",
]  # fmt: skip
"""Filters of libraries; ``engine/kernels/library_filters.c`` implements each, in the library's number types."""
Order = IntEnum("Order", ["AS_DECODED", "BACKWARDS", "ONE"], start=0)
"""Channel order of a library; it does not matter for one channel that replaces three equal ones."""
IDENTITY_BITS = 22
"""A ``fixed`` window of one position with the weight 2^22 returns its pixel value."""


class Formula(NamedTuple):
    """Formula of an axis, from whose lengths ``engine/kernels/coefficients.c`` makes windows and weights.

    The center of output position i is ``offset + (i + 0.5) * ratio``. Each weight of a window is the curve at the
    distance from this center, divided by the sum of the window's values.

    Attributes:
        curve: Function of the distance. A window is clipped at the border. ``two`` and ``four`` use that many nearest
            positions, with linear or cubic (a = -0.75) interpolation; a position beyond the border adds its weight to
            the border position. A library's own rule may also make windows that extend beyond the border, where a
            position means the nearest one inside.
        is_widened: Whether the curve is as wide as the ratio if the axis shrinks.
        bits: Binary logarithm of the sum of a window's weights; None: The maximum, up to 22, for which each weight of
            the axis is below 2^15. A rule has its own value.
    """

    curve: Curve | Rule
    is_widened: bool = False
    bits: int | None = None

    @property
    def is_rule(self) -> bool:
        """Tell whether the curve is a library's own rule."""
        return self.curve in get_args(Rule)


class Axis(NamedTuple):
    """One axis of one resize of an image of known size.

    Attributes:
        length, out_length: Lengths of the input and the output, in positions.
        ratio: Input positions per output position; negative, for DALI only, if output is counted from the last one.
        begin, end: Range of the requested output positions.
        offset: Input position at which output position 0 begins. It may differ from 0 for an image that was decoded to
            a fraction of its size, for which only Pillow's windows are made, and for a part and ``subpixel``, which
            DALI supports.
        is_vertical: Whether the axis runs from row to row; only DALI's ``nearest`` and PyTorch depend on it.
        across: Output length of the other axis if the windows depend on it (``Profile.across``), else 0.
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
    """Windows of the input, one for each requested output position.

    Attributes:
        first: First input position, int32 (out,); a position outside of the axis means the nearest one inside.
        count: Number of positions, int32 (out,).
        weights: Weights, (out, taps), int32 or float32 depending on the passes; 0 beyond ``count``.
        bits: Precision. With the passes ``fixed``, the weights of a window have a sum of about 2^bits; with
            ``opencv_lanczos``, the products of the weights of both axes have this sum.
    """

    first: npt.NDArray[np.int32]
    count: npt.NDArray[np.int32]
    weights: npt.NDArray[Any]
    bits: int = IDENTITY_BITS

    def span(self, length: int) -> tuple[int, int]:
        """Return the begin and the end of the positions that the windows read on an axis of ``length``."""
        if len(self.first) == 0:
            return 0, 0
        begin, end = int(self.first.min()), int((self.first + self.count).max())
        return min(max(begin, 0), length - 1), max(min(end, length), 1)


class Resampling(NamedTuple):
    """One resize of an image of known size, for the requested region.

    Attributes:
        passes: Arithmetic of the passes.
        rows, columns: The axes.
        formula: Formula of the windows; None: ``windows`` contains them.
        windows: Windows of the rows and the columns.
        vertical_first: Whether the vertical pass, from row to row, comes first.
        factor: Factor of the passes ``area``: one divided by the number of pixels in a window.
        order: Channel order of the library, which ``find_ties`` reads.
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
    """Return windows of one position each, which return its pixel value."""
    count = np.ones(len(positions), np.int32)
    is_whole = passes == "fixed"
    weights = np.full((len(positions), 1), 1 << IDENTITY_BITS if is_whole else 1, np.int32 if is_whole else np.float32)
    return Windows(positions.astype(np.int32), count, weights)


def multiply_add(a: Any, b: Any, c: Any) -> npt.NDArray[np.float32]:
    """Return ``a * b + c`` for float32 values, rounded once to float32.

    The product is exact in float64. The sum is rounded to float64 first, which changes about one of 2^29 results.
    """
    product = np.asarray(a, np.float64) * np.asarray(b, np.float64)
    return (product + np.asarray(c, np.float64)).astype(np.float32)
