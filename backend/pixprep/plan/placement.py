"""Placement: where each output pixel of a pipeline looks, in an image of one size."""

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

    Each pixel stands for ``denominator`` x ``denominator`` pixels of the image. The last row and column may reach over
    the image's end; in an image that was turned upright they may have become the first.

    Attributes:
        denominator: 2, 4 or 8.
        origin: (y, x), where the image begins, in these pixels: at least 0, and below 1.
    """

    denominator: int
    origin: tuple[float, float]

    def position(self, axis: int, position: float) -> float:
        """Map a position of the image to these pixels, on axis 0 (y) or 1 (x)."""
        return position / self.denominator + self.origin[axis]


NO_MARGINS = (0, 0, 0, 0)
Part = tuple[int, int, int, int]
"""(top, left, bottom, right) of an image, in whole pixels, the last two exclusive."""


class Placement(NamedTuple):
    """A geometry applied to an image of one size. Rows before columns; every number is in whole pixels.

    The image is cropped to ``box``, mirrored, surrounded by ``margins`` of the fill, and resized to ``resized``. The
    ``region`` of the result is flipped and laid on the canvas with its first pixel at ``at``. The fill covers the rest
    of the canvas. A mirror before the resize and a flip after it differ: the ties of ``nearest`` and ``box`` do not
    fall alike from both sides.

    Attributes:
        ratio: (y, x), pixels of the box and its margins for each resized pixel.
        begin: (y, x), where the first resized pixel begins, in pixels of the box with its margins; 0 unless a part is
            resized, or the resize is ``subpixel``.
        swaps: (vertical, horizontal), where ``flips`` has mirrored a part; DALI counts from its end.
        box, region: (top, left, bottom, right), the last two exclusive.
        resized, at, canvas: (rows, columns). An empty region may lie outside the canvas: then ``at`` only says where
            the image would be. Where there are margins, the region leaves out what is of their colour.
        mirrors, flips: (vertical, horizontal), before and after the resize.
        reduction: of the decoded pixels; None: they are the image's. Every other number is of the image itself.
        margins: (top, left, bottom, right) of the mirrored box, before the resize.
        levels: what is then done to the canvas, fill and all.
        fill: their level, and that of the canvas, for each channel of the tensor, where an input says it.
        erasures: what is then done to the tensor; the values are those of its channels.
        photo: what is done to the levels of the whole image, before all else.
        leaf: number of the plan that it is of, where a choice gives an image one of several.
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

    @property
    def is_kept(self) -> bool:
        """Tell whether each resized pixel is one of the box with its margins."""
        return self.resized == self.laid and self.ratio == (1.0, 1.0) and self.begin == (0.0, 0.0)

    @property
    def size(self) -> tuple[int, int]:
        """(rows, columns) of the tensor."""
        return levels.size_after(self.levels, *self.canvas) if self.levels else self.canvas

    @property
    def matrix(self) -> F64:
        """Motion from a point of the image to the tensor: see ``levels.motions``."""
        scale_y, scale_x, offset_y, offset_x = self.transform
        whole = np.array([[scale_x, 0.0, offset_x], [0.0, scale_y, offset_y], [0.0, 0.0, 1.0]])
        for forward, _ in levels.motions(self.levels, *self.canvas):
            whole = forward @ whole
        return whole

    @property
    def laid(self) -> tuple[int, int]:
        """(rows, columns) of the box with its margins: what is resized."""
        top, left, bottom, right = self.box
        above, before, below, behind = self.margins
        return above + bottom - top + below, before + right - left + behind

    @property
    def read(self) -> tuple[int, int, int, int]:
        """(top, left, bottom, right) of the decoded pixels that show any of the box."""
        if self.reduction is None:
            return self.box
        top, left, bottom, right = (self.reduction.position(index % 2, edge) for index, edge in enumerate(self.box))
        return floor(top), floor(left), ceil(bottom), ceil(right)

    def part(self, reach: int) -> Part | None:
        """The part of the image that the region is made of; None: there is no region.

        Args:
            reach: how far the filter looks from an output's centre (``Resize.reach``).
        """
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
        if self.resized[1] == 1:  # PyTorch makes each row of the first ones
            return self.box
        (top, bottom), (left, right) = parts
        return top, left, bottom, right

    @property
    def offset(self) -> tuple[float, float]:
        """(y, x), where the box begins in the pixels of ``read``, mirrored; 0 unless the decode was reduced."""
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
    """(scale, offset) of one axis: ``resized = image * scale + offset`` of what is cropped, mirrored and surrounded.

    Args:
        box: its begin and its end.
        margin: before it.
        begin: see ``Placement``.
        ratio: see ``Placement``.
        is_mirrored: before the margin is added.
    """
    if is_mirrored:
        return -1 / ratio, (box[1] + margin - begin) / ratio
    return 1 / ratio, (margin - box[0] - begin) / ratio


class Span:
    """Part of one axis that a canvas shows while steps are folded: ``length`` pixels from ``begin``, seen at ``at``.

    Where it shows none, ``at`` may lie outside it.
    """

    __slots__ = ("at", "begin", "canvas", "is_flipped", "length", "stretch")

    def __init__(self, canvas: int, begin: int = 0, end: int | None = None) -> None:
        self.begin = self.at = begin
        self.length = (canvas if end is None else end) - begin
        self.canvas = canvas
        self.stretch = (1.0, 0.0)
        self.is_flipped = False

    def window(self, start: int, length: int) -> None:
        """Lay a canvas of ``length`` over this one, beginning at ``start`` (negative: a margin before)."""
        first, last = max(self.at, start), min(self.at + self.length, start + length)
        if last <= first:  # nothing is seen, and an empty range stays where the image begins, for the transform
            first = last = self.at
        cut_before, cut_after = first - self.at, self.at + self.length - last
        self.begin += cut_after if self.is_flipped else cut_before
        self.length -= cut_before + cut_after
        self.at = first - start
        self.canvas = length

    @property
    def transform(self) -> tuple[float, float]:
        """(scale, offset) from the decoded image to the canvas."""
        scale, offset = self.stretch
        if self.is_flipped:
            return -scale, self.at + self.length + self.begin - offset
        return scale, offset - self.begin + self.at

    def flip(self) -> None:
        """Mirror what lies on the canvas."""
        self.at = self.canvas - self.at - self.length
        self.is_flipped = not self.is_flipped


def moved(boxes: F64, transform: tuple[float, float, float, float]) -> F64:
    """Boxes after a ``Placement.transform``: float64 (n, 4) xyxy; a mirror swaps the ends."""
    scale_y, scale_x, offset_y, offset_x = transform
    ends = boxes * (scale_x, scale_y, scale_x, scale_y) + (offset_x, offset_y, offset_x, offset_y)
    if scale_x < 0:
        ends[:, [0, 2]] = ends[:, [2, 0]]
    if scale_y < 0:
        ends[:, [1, 3]] = ends[:, [3, 1]]
    return ends
