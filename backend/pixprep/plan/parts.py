"""Parts of an image that a resize reads; their edges may be at fractions of a pixel."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pixprep.errors import ImageError
from pixprep.plan.draws.philox import Words
from pixprep.spec import Filter

EDGES = ("top", "left", "bottom", "right")


class Extent(NamedTuple):
    """The part of an axis that is resized, in positions; if it is swapped, it runs from the end to the begin.

    ``step`` is the number of positions per resized position with OpenCV's ``fx``.
    """

    begin: float
    end: float
    is_swapped: bool = False
    step: float | None = None

    @property
    def length(self) -> float:
        """Number of positions, rounded to float32 as in DALI."""
        return float(np.float32(self.end - self.begin))

    def ratio(self, resized: int) -> float:
        """Return the number of positions per resized position."""
        return self.step or (self.end - self.begin) / resized

    def grown(self, resized: int, side: float) -> Extent:
        """Return the part enlarged about its center, at most tenfold as in DALI.

        The factor is the ratio of the rounded side to ``side``.
        """
        middle, growth = float(np.float32(self.begin + self.end)) / 2, resized / max(side, resized / 10)
        begin, end = (float(np.float32(middle + (edge - middle) * growth)) for edge in self[:2])
        return Extent(begin, end, self.is_swapped)


class Roi(NamedTuple):
    """Region of interest of an image of any size: its ``EDGES`` in pixels or fractions.

    The region is mirrored if its end is before its begin.
    """

    edges: tuple[float, ...]
    is_share: bool

    def of(self, words: Words) -> Roi:
        """Return the region of one image, with the edges that are inputs."""
        return Roi(tuple(words.get(name, edge) for name, edge in zip(EDGES, self.edges, strict=True)), self.is_share)

    def extents(self, height: int, width: int, filter_: Filter) -> tuple[Extent, Extent]:
        """Return the region in an image of this size, with float32 ends, as DALI computes it (resize_attr.cc).

        Raises:
            ImageError: DOES_NOT_FIT: The region is outside or nearly empty; or, with the filter ``nearest``, it is
                partly outside.
        """
        found = []
        units = (height, width, height, width) if self.is_share else 1
        ends = (np.asarray(self.edges, np.float32).astype(np.float64) * units).astype(np.float32).tolist()
        for first, last, side in zip(ends[:2], ends[2:], (height, width), strict=True):
            begin, end = sorted((first, last))
            is_inside = begin >= 0 and end <= side if filter_ == "nearest" else begin < side and end > 0
            if not is_inside or end - begin < 1e-3:  # DALI enlarges a smaller region to this size
                what = "under a thousandth of a pixel" if is_inside else "not inside"
                raise ImageError("DOES_NOT_FIT", f"{self} of {height} x {width} pixels is {what}")
            found.append(Extent(begin, end, last < first))
        return found[0], found[1]

    def __str__(self) -> str:
        top, left, bottom, right = (f"{edge:.6g}" for edge in self.edges)
        return f"the part from {top}, {left} to {bottom}, {right}{' of the sides' * self.is_share}"
