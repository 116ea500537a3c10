"""Implements the rules by which vision-language models cut a large image into slices of variable size."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import ceil, floor, inf, log, sqrt
from typing import Literal

from pixprep.errors import ImageError
from pixprep.plan.sizes import MAX_SIDE, Bounds, Size, Sizer, checked

SliceRule = Literal["minicpm", "lfm2"]


@dataclass(frozen=True)
class SliceGrid(Sizer):
    """Rule that cuts a large image into a grid of slices of equal size, and computes the size of the whole image.

    Attributes:
        rule: Image processor of transformers whose formulas are used, see the op ``resize_to_slices``.
        slice: Edge length of a slice in pixels. With ``minicpm``, a slice need not be square, and has about the same
            number of pixels as a square of this edge length.
        multiple: All sides are multiples of this number.
        max_slices, min_slices: Maximum and minimum number of slices. An image is not cut if the maximum is 1.
        min_pixels, max_pixels: Minimum and maximum number of pixels of the whole image, for ``lfm2``.
        tolerance: An image is cut if it has more than this number times ``max_pixels`` pixels, for ``lfm2``.
        patch: Edge length of a patch in pixels, which ``lfm2`` uses as the minimum length of a rounded side.
        enlarges: Whether an image that is not cut is enlarged, for ``minicpm``.
        has_whole: Whether the whole image is added to the slices.
    """

    rule: SliceRule
    slice: int
    multiple: int
    max_slices: int
    min_slices: int = 1
    min_pixels: int = 1
    max_pixels: int = 1
    tolerance: float = 1.0
    patch: int = 1
    enlarges: bool = True
    has_whole: bool = True

    def grid(self, height: int, width: int) -> Size | None:
        """Return the number of rows and columns of slices, or None if an image of this size is not cut."""
        return _grid(self, height, width)

    def size(self, height: int, width: int) -> Size:
        """Return the size of the grid of slices in pixels, or the size of the whole image if it is not cut.

        Raises:
            ImageError: DOES_NOT_FIT: A side would be too long.
        """
        grid = self.grid(height, width)
        if grid is None:
            return self.whole(height, width)
        rows, columns = grid
        if self.rule == "lfm2":
            return checked(self, rows * self.slice, columns * self.slice)
        high, wide = (_nearest(side, count) / count for side, count in zip((height, width), grid, strict=True))
        high, wide = self._like_slice(high, wide, is_enlarged=True)
        return checked(self, int(high) * rows, int(wide) * columns)

    def cuts(self, height: int, width: int) -> Size:
        """See ``Sizer``."""
        return self.grid(height, width) or (1, 1)

    def has_thumbnail(self, height: int, width: int) -> bool:
        """See ``Sizer``. A grid with a single slice does not have a thumbnail."""
        return self.has_whole and self.cuts(height, width) != (1, 1)

    def whole(self, height: int, width: int) -> Size:
        """Return the size of the whole image.

        Raises:
            ImageError: DOES_NOT_FIT: A side would be too long.
        """
        if self.rule == "minicpm":
            is_enlarged = self.enlarges and self.grid(height, width) is None
            return checked(self, *self._like_slice(height, width, is_enlarged=is_enlarged))
        multiple, product = self.multiple, height * width
        rows, columns = (max(multiple, round(side / multiple) * multiple) for side in (height, width))
        if rows * columns > self.max_pixels:
            scale = sqrt(product / self.max_pixels)
            rows, columns = (max(multiple, floor(side / scale / multiple) * multiple) for side in (height, width))
        elif rows * columns < self.min_pixels:
            scale = sqrt(self.min_pixels / product)
            rows, columns = (ceil(side * scale / multiple) * multiple for side in (height, width))
        if rows * columns > self.max_view:
            raise ImageError(
                "DOES_NOT_FIT",
                f"the aspect ratio of {height} x {width} pixels is too extreme for {self.max_view:,} pixels",
            )
        return checked(self, rows, columns)

    @property
    def max_view(self) -> int:
        """Maximum number of pixels of a slice and of the whole image, for ``lfm2``."""
        return max(self.max_pixels, self.slice**2)

    def _like_slice(self, height: float, width: float, *, is_enlarged: bool) -> Size:
        """Return the size that MiniCPM-V's class computes, which has about as many pixels as a slice."""
        if is_enlarged or height * width > self.slice * self.slice:
            ratio = width / height
            height = int(self.slice / sqrt(ratio))
            width = int(height * ratio)
        return _nearest(height, self.multiple), _nearest(width, self.multiple)

    @property
    def bounds(self) -> Bounds:
        """See ``Sizer``."""
        multiple, longest = self.multiple, MAX_SIDE // self.multiple * self.multiple
        if self.rule == "lfm2":
            pixels = max(self.max_view, self.max_slices * self.slice**2)
            return Bounds((self.patch, self.patch), (longest, longest), pixels)
        # The shorter side of a narrow slice is one multiple. Rounding adds at most half a multiple to each side.
        pixels = (self.slice + multiple) ** 2 + multiple * (longest + self.slice)
        return Bounds((multiple, multiple), (longest, longest), pixels * self.max_slices)

    def __str__(self) -> str:
        return f"to at most {self.max_slices} slices of about {self.slice} x {self.slice} pixels ({self.rule})"


@dataclass(frozen=True)
class Whole(Sizer):
    """Rule that determines the size of the resized copy of the whole image that is added to the slices."""

    slices: SliceGrid

    def size(self, height: int, width: int) -> Size:
        """See ``Sizer``."""
        return self.slices.whole(height, width)

    @property
    def bounds(self) -> Bounds:
        """See ``Sizer``."""
        return self.slices.bounds

    def __str__(self) -> str:
        return "to the size of the whole image"


def _nearest(length: float, multiple: int) -> int:
    """Round a length to the nearest positive multiple, with ties to even."""
    return max(round(length / multiple) * multiple, multiple)


@lru_cache(512)
def _grid(rule: SliceGrid, height: int, width: int) -> Size | None:
    return _by_lfm2(rule, height, width) if rule.rule == "lfm2" else _by_minicpm(rule, height, width)


def _by_minicpm(rule: SliceGrid, height: int, width: int) -> Size | None:
    """Return the grid that ``get_sliced_grid`` of transformers' MiniCPM-V 4.6 chooses."""
    count = min(ceil(width * height / (rule.slice * rule.slice)), rule.max_slices)
    if count <= 1:
        return None
    best, min_error, ratio = (1, 1), inf, log(width / height)
    for slices in (count - 1, count, count + 1):
        if not 1 < slices <= rule.max_slices:
            continue
        for rows in (each for each in range(1, slices + 1) if slices % each == 0):
            error = abs(ratio - log(slices // rows / rows))
            if error < min_error or (error == min_error and rows > best[0]):
                best, min_error = (rows, slices // rows), error
    return best


def _by_lfm2(rule: SliceGrid, height: int, width: int) -> Size | None:
    """Return the grid that transformers' LFM2-VL chooses for an image that is too large for one slice."""
    if rule.max_slices == 1:
        return None
    high, wide = (max(rule.patch, round(side / rule.multiple) * rule.multiple) for side in (height, width))
    if high * wide <= rule.max_pixels * rule.tolerance:
        return None
    best, min_difference, ratio = (1, 1), inf, width / height
    for columns, rows in _ratios(rule.min_slices, rule.max_slices):
        difference = abs(ratio - columns / rows)
        is_tie = difference == min_difference and width * height > 0.5 * (rule.slice * rule.slice * columns * rows)
        if difference < min_difference or is_tie:
            best, min_difference = (rows, columns), difference
    return best


@lru_cache(64)
def _ratios(fewest: int, most: int) -> tuple[Size, ...]:
    """Return all grids with ``fewest`` to ``most`` slices as (columns, rows).

    Grids with the same number of slices are in the iteration order of a Python set, as in transformers.
    """
    sides = range(1, most + 1)
    found = [
        (columns, rows)
        for count in range(fewest, most + 1)
        for columns in sides[:count]
        for rows in sides[:count]
        if fewest <= columns * rows <= most
    ]
    return tuple(sorted(set(found), key=lambda grid: grid[0] * grid[1]))
