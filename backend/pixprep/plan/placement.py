"""Placement: the position in an image of one size that each output pixel of a pipeline samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor
from typing import NamedTuple

import numpy as np

from pixprep.plan.draws.philox import F64
from pixprep.plan.steps import levels
from pixprep.plan.steps.levels import Erase, LevelStep


@dataclass(frozen=True)
class Reduction:
    """Position of an image in pixels that were decoded to a fraction of its size.

    Each pixel represents ``denominator`` x ``denominator`` pixels of the image. The last row and column may extend
    beyond the image; in an image whose EXIF orientation was applied, they may have become the first.

    Attributes:
        denominator: Denominator of the fraction: 2, 4 or 8.
        origin: Position (y, x) of the image's upper left corner in these pixels, at least 0 and below 1.
    """

    denominator: int
    origin: tuple[float, float]

    def position(self, axis: int, position: float) -> float:
        """Map a position of the image to these pixels, on axis 0 (y) or 1 (x)."""
        return position / self.denominator + self.origin[axis]


NO_MARGINS = (0, 0, 0, 0)
Part = tuple[int, int, int, int]
"""Part (top, left, bottom, right) of an image in integer pixels; the last two are exclusive."""


class Placement(NamedTuple):
    """A geometry applied to an image of one size. Rows come before columns; windows are in integer pixels.

    The image is cropped to ``box``, mirrored, padded by ``margins`` with the fill, and resized to ``resized``. The
    ``region`` of the result is flipped and placed on the canvas with its first pixel at ``at``. The fill covers the
    rest of the canvas. A mirror before the resize and a flip after it are different, because ``nearest`` and ``box`` do
    not resolve ties symmetrically.

    Attributes:
        ratio: Pixels (y, x) of the box with its margins per resized pixel.
        begin: Position (y, x) where the first resized pixel begins, in pixels of the box with its margins; 0 unless a
            part is resized, or the resize is ``subpixel``.
        swaps: Whether ``flips`` mirrors a part, (vertical, horizontal); DALI counts from its end.
        box, region: Windows (top, left, bottom, right); the last two are exclusive.
        resized, at, canvas: Sizes and position as (rows, columns). An empty region may be outside of the canvas; ``at``
            is then the position that the image would have. If there are margins, the region excludes pixels of the fill
            color.
        mirrors, flips: Mirrors before and after the resize, (vertical, horizontal).
        reduction: Position in the decoded pixels; None: These are the image's pixels. All other numbers are in pixels
            of the image itself.
        margins: Padding (top, left, bottom, right) of the mirrored box before the resize.
        levels: Steps that then change the pixel values of the canvas, including the fill.
        fill: Value of the margins and the canvas for each channel of the tensor, if an input specifies it.
        erasures: Steps that then change the tensor; their values are those of its channels.
        photo: Steps that change the pixel values of the whole image before all others.
        leaf: Number of the plan, if a choice selects one of several.
        thumbnail: Position of the thumbnail that follows or precedes the tiles of the image.
    """

    box: tuple[int, int, int, int]
    mirrors: tuple[bool, bool]
    resized: tuple[int, int]
    ratio: tuple[float, float]
    region: tuple[int, int, int, int]
    flips: tuple[bool, bool]
    at: tuple[int, int]
    canvas: tuple[int, int]
    reduction: Reduction | None = None
    margins: tuple[int, int, int, int] = NO_MARGINS
    fill: tuple[int, ...] | None = None
    levels: tuple[LevelStep, ...] = ()
    erasures: tuple[Erase, ...] = ()
    photo: tuple[LevelStep, ...] = ()
    leaf: int = 0
    begin: tuple[float, float] = (0.0, 0.0)
    swaps: tuple[bool, bool] = (False, False)
    thumbnail: Placement | None = None

    @property
    def is_kept(self) -> bool:
        """Tell whether each resized pixel equals one pixel of the box with its margins."""
        return self.resized == self.laid and self.ratio == (1.0, 1.0) and self.begin == (0.0, 0.0)

    @property
    def size(self) -> tuple[int, int]:
        """Size (rows, columns) of the tensor."""
        return levels.size_after(self.levels, *self.canvas) if self.levels else self.canvas

    @property
    def matrix(self) -> F64:
        """Coordinate transform from the image to the tensor (see ``levels.motions``)."""
        scale_y, scale_x, offset_y, offset_x = self.transform
        whole = np.array([[scale_x, 0.0, offset_x], [0.0, scale_y, offset_y], [0.0, 0.0, 1.0]])
        for forward, _ in levels.motions(self.levels, *self.canvas):
            whole = forward @ whole
        return whole

    @property
    def laid(self) -> tuple[int, int]:
        """Size (rows, columns) of the box with its margins, which is the input of the resize."""
        top, left, bottom, right = self.box
        above, before, below, behind = self.margins
        return above + bottom - top + below, before + right - left + behind

    @property
    def read(self) -> tuple[int, int, int, int]:
        """Window (top, left, bottom, right) of the decoded pixels that show any part of the box."""
        if self.reduction is None:
            return self.box
        top, left, bottom, right = (self.reduction.position(index % 2, edge) for index, edge in enumerate(self.box))
        return floor(top), floor(left), ceil(bottom), ceil(right)

    def reduced(self, reduction: Reduction) -> Placement:
        """Return the same placement in pixels that were decoded to a fraction of the image's size."""
        thumbnail = self.thumbnail and self.thumbnail.reduced(reduction)
        return self._replace(reduction=reduction, thumbnail=thumbnail)

    def part(self, reach: int) -> Part | None:
        """Return the part of the image that the region reads; None if the region is empty.

        Args:
            reach: Reach of the filter from the center of an output pixel (``Resize.reach``).
        """
        if self.thumbnail is not None:
            return self.box
        parts = []
        for axis in (0, 1):
            begin, end = self.region[axis::2]
            first, last = self.box[axis::2]
            if begin == end or first == last:
                return None
            ratio, is_mirrored = self.ratio[axis], self.mirrors[axis]
            scale, offset = stretch((first, last), self.margins[axis], self.begin[axis], ratio, is_mirrored=is_mirrored)
            centers = (begin + 0.5 - offset) / scale, (end - 0.5 - offset) / scale
            around = reach * max(ratio, 1.0) + 1
            begin, end = floor(min(centers) - around), ceil(max(centers) + around)
            parts.append((min(max(begin, first), last - 1), max(min(end, last), first + 1)))
        if self.resized[1] == 1:  # PyTorch makes every row from the first input rows
            return self.box
        (top, bottom), (left, right) = parts
        return top, left, bottom, right

    @property
    def offset(self) -> tuple[float, float]:
        """Position (y, x) of the mirrored box in the pixels of ``read``; 0 unless the decode was reduced."""
        if self.reduction is None:
            return 0.0, 0.0
        offsets, read = [], self.read
        for axis in (0, 1):
            if self.mirrors[axis]:
                offsets.append(read[axis + 2] - self.reduction.position(axis, self.box[axis + 2]))
            else:
                offsets.append(self.reduction.position(axis, self.box[axis]) - read[axis])
        return offsets[0], offsets[1]

    @property
    def transform(self) -> tuple[float, float, float, float]:
        """(scale_y, scale_x, offset_y, offset_x): canvas = image * scale + offset, in continuous pixel coordinates."""
        scales, offsets = [], []
        for axis, (begin, ratio, is_mirrored) in enumerate(zip(self.begin, self.ratio, self.mirrors, strict=True)):
            scale, offset = stretch(self.box[axis::2], self.margins[axis], begin, ratio, is_mirrored=is_mirrored)
            offset -= self.region[axis]
            if self.flips[axis]:
                scale, offset = -scale, self.region[axis + 2] - self.region[axis] - offset
            scales.append(scale)
            offsets.append(offset + self.at[axis])
        return (*scales, *offsets)  # type: ignore[return-value]


def stretch(box: Sequence[int], margin: int, begin: float, ratio: float, *, is_mirrored: bool) -> tuple[float, float]:
    """Return (scale, offset) of one axis, where ``resized = image * scale + offset``.

    The transform includes the crop, the mirror and the padding.

    Args:
        box: Begin and end of the box.
        margin: Padding before the box.
        begin: Position of the first resized pixel, see ``Placement``.
        ratio: Pixels per resized pixel, see ``Placement``.
        is_mirrored: Whether the box is mirrored before the padding is added.
    """
    if is_mirrored:
        return -1 / ratio, (box[1] + margin - begin) / ratio
    return 1 / ratio, (margin - box[0] - begin) / ratio


class Span:
    """Part of one axis that a canvas shows during folding: ``length`` pixels from ``begin``, at the position ``at``.

    If the canvas shows none, ``at`` may be outside of it.
    """

    __slots__ = ("at", "begin", "canvas", "is_flipped", "length", "stretch")

    def __init__(self, canvas: int, begin: int = 0, end: int | None = None) -> None:
        self.begin = self.at = begin
        self.length = (canvas if end is None else end) - begin
        self.canvas = canvas
        self.stretch = (1.0, 0.0)
        self.is_flipped = False

    def window(self, start: int, length: int) -> None:
        """Replace the canvas by one of ``length`` that begins at ``start``; a negative start pads before it."""
        first, last = max(self.at, start), min(self.at + self.length, start + length)
        if last <= first:  # an empty range keeps the begin of the image, which the transform needs
            first = last = self.at
        cut_before, cut_after = first - self.at, self.at + self.length - last
        self.begin += cut_after if self.is_flipped else cut_before
        self.length -= cut_before + cut_after
        self.at = first - start
        self.canvas = length

    @property
    def transform(self) -> tuple[float, float]:
        """Transform (scale, offset) from the decoded image to the canvas."""
        scale, offset = self.stretch
        if self.is_flipped:
            return -scale, self.at + self.length + self.begin - offset
        return scale, offset - self.begin + self.at

    def flip(self) -> None:
        """Mirror the contents of the canvas."""
        self.at = self.canvas - self.at - self.length
        self.is_flipped = not self.is_flipped


def moved(boxes: F64, transform: tuple[float, float, float, float]) -> F64:
    """Return boxes after a ``Placement.transform``, float64 (n, 4) xyxy; a mirror swaps the ends."""
    scale_y, scale_x, offset_y, offset_x = transform
    ends = boxes * (scale_x, scale_y, scale_x, scale_y) + (offset_x, offset_y, offset_x, offset_y)
    if scale_x < 0:
        ends[:, [0, 2]] = ends[:, [2, 0]]
    if scale_y < 0:
        ends[:, [1, 3]] = ends[:, [3, 1]]
    return ends
