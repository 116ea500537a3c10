"""Defines the filter coefficients of a resize: input positions and weights for each output position of an axis."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt

Passes = Literal[
    "fixed", "opencv_linear", "opencv_cubic", "opencv_lanczos", "area", "float_even", "dali", "float_fused", "real",
    "lerp", "float_pairs", "smoothed",
]  # fmt: skip
"""Arithmetic of the two passes. The first pass filters the pixel values p, and the second pass filters the results m of
the first pass. The weights are w.

==============  =====================================  =====================================================
passes          first                                  second
==============  =====================================  =====================================================
fixed           clip8((2^(bits-1) + sum(p w)) >> bits) the same
opencv_linear   sum(p w) >> 4                          clip8((sum((m w) >> 16) + 2) >> 2)
opencv_cubic    sum(p w), int32                        clip8(rint(float32 sum of m (w / 2^22), last tap first))
opencv_lanczos  sum(p w), int32                        clip8((2^(bits-1) + sum(m w)) >> bits)
area            sum(p), int32                          clip8(rint(float32(sum(m)) factor))
float_even      float32 sum(p w)                       clip8(rint(float32 sum(m w)))
dali            float32 sum(p w)                       the same, but some values round ties away from 0
float_fused     float32 sum(p w), partly fused         clip8(rint(the same with m))
real            float32 sum(p w)                       float32 sum(m w)
lerp            p0 + (p1 - p0) w1, float32             the same
float_pairs     float32 sum(p w), fused                the same with m
smoothed        a Gaussian, then linear interpolation  float64 sums; see ``engine/kernels/smoothing.c``
==============  =====================================  =====================================================

float32 sums are computed from the first tap to the last, and every product and every sum is rounded to float32. rint
rounds ties to even. ``float_fused`` adds the last ``(count - 1) % 4`` of ``count`` taps by fused multiply-adds, which
round once. These are the taps that remain when the compiler vectorizes all taps except for the first in groups of four.
``float_pairs`` first rounds the product of the second tap, and adds all other taps, in ascending order, by fused
multiply-adds.
``find_ties`` in ``engine/kernels/library_filters.c`` determines which values ``dali`` rounds away from 0.
"""

Curve = Literal["box", "bilinear", "hamming", "bicubic", "lanczos", "two", "four"]
Rule = Literal[
    "opencv_linear", "opencv_repeated", "opencv_cubic", "opencv_lanczos4", "opencv_area", "opencv_cut",
    "torch_bilinear", "torch_bicubic", "torch_two", "torch_four", "torch_corners_two", "torch_corners_four",
    "torch_linear", "dali_bilinear", "dali_bicubic", "dali_lanczos", "tensorflow_linear", "tensorflow_triangle",
]  # fmt: skip
"""The libraries' own filters. ``engine/kernels/library_filters.c`` implements each in the library's number types."""
Order = IntEnum("Order", ["AS_DECODED", "BACKWARDS", "ONE"], start=0)
"""Channel order in which a library receives an image: RGB, BGR, or one channel instead of three equal channels."""
IDENTITY_BITS = 22
"""Precision of ``fixed`` windows with a single tap. The weight of this tap is 2^22, so that the pixel value does not
change."""


class Formula(NamedTuple):
    """Formula from which ``engine/kernels/coefficients.c`` computes the filter coefficients of an axis.

    The center of output position i is ``offset + (i + 0.5) * ratio``. The weight of an input position is the filter
    kernel ``curve`` at its distance from this center, normalized so that the sum of all weights is constant.

    Attributes:
        curve: Filter kernel, whose taps beyond the border are dropped. ``two`` and ``four`` interpolate between the two
            or four nearest positions, linearly or cubically (a = -0.75); the weight of a tap beyond the border is added
            to the pixel at the border. A ``Rule`` is a library's own filter. Its taps may be beyond the border, where
            they read the nearest pixel inside.
        is_widened: Whether the kernel is widened by the ratio if the axis shrinks (antialiasing).
        bits: Binary logarithm of the sum of the weights. None means the largest number, up to 22, for which all weights
            of the axis are below 2^15. For a ``Rule``, ``bits`` is ignored.
    """

    curve: Curve | Rule
    is_widened: bool = False
    bits: int | None = None

    @property
    def is_rule(self) -> bool:
        """Whether ``curve`` is a library's own filter."""
        return self.curve in get_args(Rule)


class Axis(NamedTuple):
    """Axis of a resize, for an image of known size.

    Attributes:
        length: Length of the input in pixels.
        out_length: Length of the output in pixels.
        ratio: Input pixels per output pixel. It is negative if the axis is flipped, which only DALI supports.
        begin, end: Range of the output pixels to compute.
        offset: Input position at which output pixel 0 begins. It differs from 0 only if a JPEG was decoded at a reduced
            size (with Pillow's arithmetic), or if the resize has a ``roi`` or is ``subpixel`` (with DALI's arithmetic).
        is_vertical: Whether this is the vertical axis. Only DALI's ``nearest`` and PyTorch treat the axes differently.
        across: Output length of the other axis if the coefficients depend on this length (see ``Profile.across``), and
            0 if they do not.
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
    """Filter coefficients of one axis.

    Each output position has a window, which consists of consecutive input positions (taps) and their weights.

    Attributes:
        first: First input position of each window, int32 (out,). Positions outside of the axis mean the nearest
            position inside.
        count: Number of taps of each window, int32 (out,).
        weights: Weights of the taps, (out, taps), int32 or float32 depending on the passes. The weights of a window are
            0 from the index ``count`` on.
        bits: Precision of integer weights. For the passes ``fixed``, the sum of the weights of a window is about
            2^bits. For ``opencv_lanczos``, the product of the sums of both axes is about 2^bits.
    """

    first: npt.NDArray[np.int32]
    count: npt.NDArray[np.int32]
    weights: npt.NDArray[Any]
    bits: int = IDENTITY_BITS

    def span(self, length: int) -> tuple[int, int]:
        """Return the range (begin, end) of input positions that the windows read, on an axis of this length."""
        if len(self.first) == 0:
            return 0, 0
        begin, end = int(self.first.min()), int((self.first + self.count).max())
        return min(max(begin, 0), length - 1), max(min(end, length), 1)


class Resampling(NamedTuple):
    """Resize of an image of known size, restricted to the required region of the output.

    Attributes:
        passes: Arithmetic of the two passes.
        rows, columns: The vertical and the horizontal axis.
        formula: Formula of the filter coefficients. None means that ``windows`` contains them.
        windows: Filter coefficients of the vertical and the horizontal axis.
        vertical_first: Whether the vertical pass comes before the horizontal pass.
        factor: Reciprocal of the number of pixels in a window, for the passes ``area``.
        order: Channel order in which the library receives the image. ``find_ties`` depends on it.
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
    """Return windows with a single tap each, which copy the pixel values at the given positions, rounded down.

    The positions must not be negative.
    """
    return Windows(positions.astype(np.int32), *_single_taps(len(positions), passes == "fixed"))


@lru_cache(16)
def _single_taps(count: int, is_fixed: bool) -> tuple[npt.NDArray[np.int32], npt.NDArray[Any]]:
    """Return the read-only numbers of taps and weights of ``single``."""
    weight = np.int32(1 << IDENTITY_BITS) if is_fixed else np.float32(1)
    taps, weights = np.ones(count, np.int32), np.full((count, 1), weight)
    taps.flags.writeable = weights.flags.writeable = False
    return taps, weights


def multiply_add(a: Any, b: Any, c: Any) -> npt.NDArray[np.float32]:
    """Emulate a fused multiply-add: return ``a * b + c`` for float32 values, rounded to float32 only once.

    The product is exact in float64. The sum is first rounded to float64 and then to float32, so that about one result
    in 2^29 differs from the result of a true fused multiply-add.
    """
    product = np.asarray(a, np.float64) * np.asarray(b, np.float64)
    return (product + np.asarray(c, np.float64)).astype(np.float32)
