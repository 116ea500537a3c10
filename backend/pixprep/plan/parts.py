"""Parts of an image of which a resize makes its result; they may begin and end at fractions of a pixel."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pixprep.errors import ImageError
from pixprep.plan.draws.philox import Words
from pixprep.spec import Filter

EDGES = ("top", "left", "bottom", "right")


class Extent(NamedTuple):
    """The part of an axis that becomes the resized one, in positions; if swapped, from the end to the begin.

    ``step``: of OpenCV's ``fx``, positions for each resized one.
    """

    begin: float
    end: float
    is_swapped: bool = False
    step: float | None = None

    @property
    def length(self) -> float:
        """Positions, a float32, as of DALI."""
        return float(np.float32(self.end - self.begin))

    def ratio(self, resized: int) -> float:
        """Positions for each resized one."""
        return self.step or (self.end - self.begin) / resized

    def grown(self, resized: int, side: float) -> Extent:
        """The same about its middle, as much larger as the side is by its rounding; tenfold at most, as in DALI."""
        middle, growth = float(np.float32(self.begin + self.end)) / 2, resized / max(side, resized / 10)
        begin, end = (float(np.float32(middle + (edge - middle) * growth)) for edge in self[:2])
        return Extent(begin, end, self.is_swapped)


class Roi(NamedTuple):
    """A part of an image of any size: its ``EDGES``, in pixels or shares; mirrored if it ends before it begins."""

    edges: tuple[float, ...]
    is_share: bool

    def of(self, words: Words) -> Roi:
        """The part of one image, of which some edges came with it."""
        return Roi(tuple(words.get(name, edge) for name, edge in zip(EDGES, self.edges, strict=True)), self.is_share)

    def extents(self, height: int, width: int, filter_: Filter) -> tuple[Extent, Extent]:
        """The part of an image of this size, with float32 ends, as DALI finds them (resize_attr.cc).

        Raises:
            ImageError: DOES_NOT_FIT: it is outside, or nearly empty; or partly outside, with the filter ``nearest``.
        """
        found = []
        units = (height, width, height, width) if self.is_share else 1
        ends = (np.asarray(self.edges, np.float32).astype(np.float64) * units).astype(np.float32).tolist()
        for first, last, side in zip(ends[:2], ends[2:], (height, width), strict=True):
            begin, end = sorted((first, last))
            is_inside = begin >= 0 and end <= side if filter_ == "nearest" else begin < side and end > 0
            if not is_inside or end - begin < 1e-3:  # which DALI makes so large
                what = "under a thousandth of a pixel" if is_inside else "not inside"
                raise ImageError("DOES_NOT_FIT", f"{self} of {height} x {width} pixels is {what}")
            found.append(Extent(begin, end, last < first))
        return found[0], found[1]

    def __str__(self) -> str:
        top, left, bottom, right = (f"{edge:.6g}" for edge in self.edges)
        return f"the part from {top}, {left} to {bottom}, {right}{' of the sides' * self.is_share}"
