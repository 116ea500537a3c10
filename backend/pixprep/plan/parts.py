"""Regions of interest: parts of an image, with edges at subpixel positions, that a resize reads."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pixprep.errors import ImageError
from pixprep.plan.draws.philox import Words

EDGES = ("top", "left", "bottom", "right")


class Extent(NamedTuple):
    """Range of an axis that is resized, in pixels.

    Attributes:
        begin, end: Begin and end of the range, with ``begin < end``.
        is_swapped: Whether the result is flipped, because the end was requested before the begin.
        step: Number of pixels per resized pixel, if the library receives a scale (OpenCV's ``fx`` and ``fy``). None
            means that this number is computed from the lengths of the range and of the result.
    """

    begin: float
    end: float
    is_swapped: bool = False
    step: float | None = None

    @property
    def length(self) -> float:
        """Length of the range in pixels, rounded to float32 as in DALI."""
        return float(np.float32(self.end - self.begin))

    def ratio(self, resized: int) -> float:
        """Return the number of pixels per resized pixel.

        Args:
            resized: Length of the result in pixels.
        """
        return self.step or (self.end - self.begin) / resized

    def grown(self, resized: int, side: float) -> Extent:
        """Scale the range about its center by ``resized / side``, but at most by a factor of 10, as in DALI.

        Args:
            resized: Length of the result in pixels after rounding.
            side: Length of the result in pixels before rounding.
        """
        middle, growth = float(np.float32(self.begin + self.end)) / 2, resized / max(side, resized / 10)
        begin, end = (float(np.float32(middle + (edge - middle) * growth)) for edge in self[:2])
        return Extent(begin, end, self.is_swapped)


class Fitted(NamedTuple):
    """Largest centered region with a given aspect ratio, whose edges need not be integers, as in Pillow's ``fit``.

    Attributes:
        height, width: Numbers whose quotient is the aspect ratio.
    """

    height: int
    width: int

    def of(self, words: Words) -> Fitted:
        """Return the region for one image. It does not depend on per-image inputs."""
        del words
        return self

    def extents(self, height: int, width: int, *, is_inside: bool, is_ordered: bool) -> tuple[Extent, Extent]:
        """Return the region's ranges of rows and columns in an image of this size.

        The order of the operations is that of ``ImageOps.fit``. Pillow's resize rounds the edges to float32.
        """
        del is_inside, is_ordered
        rows, columns = float(height), float(width)
        ratio, target = width / height, self.width / self.height
        if ratio > target:
            columns = target * height
        elif ratio < target:
            rows = width / target
        return self._axis(height, rows), self._axis(width, columns)

    @staticmethod
    def _axis(length: int, size: float) -> Extent:
        begin = (length - size) * 0.5
        return Extent(float(np.float32(begin)), float(np.float32(begin + size)))

    def __str__(self) -> str:
        return f"the largest centered region with the aspect ratio {self.width}:{self.height}"


class Roi(NamedTuple):
    """Region of interest in images of any size.

    If the end of the region on an axis is before the begin, the result is flipped along this axis.

    Attributes:
        edges: Top, left, bottom and right of the region.
        is_share: Whether the edges are fractions of the image's height and width instead of pixels.
    """

    edges: tuple[float, ...]
    is_share: bool

    def of(self, words: Words) -> Roi:
        """Return the region for one image. ``words`` contains the values of edges that are per-image inputs."""
        return Roi(tuple(words.get(name, edge) for name, edge in zip(EDGES, self.edges, strict=True)), self.is_share)

    def extents(self, height: int, width: int, *, is_inside: bool, is_ordered: bool) -> tuple[Extent, Extent]:
        """Return the region's ranges of rows and columns in an image of this size.

        The ranges are computed in float32, as in DALI's resize_attr.cc and in Pillow.

        Args:
            height: Height of the image in pixels.
            width: Width of the image in pixels.
            is_inside: Whether the whole region must be inside the image.
            is_ordered: Whether the end must follow the beginning on each axis.

        Raises:
            ImageError: DOES_NOT_FIT: The region is outside of the image, is nearly empty, or violates ``is_inside`` or
                ``is_ordered``.
        """
        found = []
        units = (height, width, height, width) if self.is_share else 1
        ends = (np.asarray(self.edges, np.float32).astype(np.float64) * units).astype(np.float32).tolist()
        for first, last, side in zip(ends[:2], ends[2:], (height, width), strict=True):
            begin, end = sorted((first, last))
            fits = begin >= 0 and end <= side if is_inside else begin < side and end > 0
            is_reversed = is_ordered and last < first
            if not fits or is_reversed or end - begin < 1e-3:  # DALI enlarges a smaller region to this size
                what = "is smaller than a thousandth of a pixel" if fits else "is outside"
                what = "is reversed" if is_reversed else what
                raise ImageError("DOES_NOT_FIT", f"{self} of {height} x {width} pixels {what}")
            found.append(Extent(begin, end, last < first))
        return found[0], found[1]

    def __str__(self) -> str:
        top, left, bottom, right = (f"{edge:.6g}" for edge in self.edges)
        return f"the region from {top}, {left} to {bottom}, {right}{' (fractions of the size)' * self.is_share}"
