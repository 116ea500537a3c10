"""Defines placements. A placement is the geometry of a pipeline for an image of known size."""

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
class ReducingGap:
    """Reduction of the decoded image by integer factors before its resize, as Pillow's ``reducing_gap`` specifies.

    Attributes:
        gap: Minimum ratio of the reduced size to the size of the result.
        requested: Size (height, width) that ``Image.thumbnail`` receives, if a JPEG is also decoded at a reduced size
            (``Image.draft``), or None.
        resized: Size (height, width) of the result.
    """

    gap: float
    requested: tuple[int, int] | None
    resized: tuple[int, int] = (1, 1)

    def __str__(self) -> str:
        draft = "and JPEGs are decoded at 1/2, 1/4 or 1/8" * (self.requested is not None)
        return f"first reduced by integer factors to at least {self.gap:g} times the size{', ' * bool(draft)}{draft}"

    @property
    def draft(self) -> tuple[int, int] | None:
        """Minimum size (height, width) at which a JPEG is decoded, or None."""
        return (
            None if self.requested is None else (int(self.requested[0] * self.gap), int(self.requested[1] * self.gap))
        )

    def denominator(self, height: int, width: int) -> int:
        """Return the denominator of the scale at which a JPEG of this size is decoded: 1, 2, 4 or 8."""
        if self.draft is None:
            return 1
        scale = min(height // self.draft[0], width // self.draft[1])
        return next((each for each in (8, 4, 2) if scale >= each), 1)

    def factors(self, height: int, width: int, denominator: int) -> tuple[int, int]:
        """Return the factors (y, x) by which ``Image.reduce`` divides the size of the decoded image."""
        y, x = (
            int(side / denominator / resized / self.gap) or 1
            for side, resized in zip((height, width), self.resized, strict=True)
        )
        return y, x


@dataclass(frozen=True)
class Reduction:
    """Map from the coordinates of an image to its decoded pixels, for an image that is decoded at a reduced size.

    Each decoded pixel represents ``denominator`` x ``denominator`` pixels of the image. If the size of the image is not
    a multiple of the denominator, the last decoded row and column extend beyond the image. With some EXIF orientations,
    they are the first row and column.

    Attributes:
        denominator: Number 2, 4 or 8. The JPEG was decoded at 1/``denominator`` of its size.
        origin: Position (y, x) of the image's upper left corner in decoded pixels. Both numbers are at least 0 and
            below 1.
        factors: Integers (y, x) by which the decoded pixels were reduced further; see ``ReducingGap``.
    """

    denominator: int
    origin: tuple[float, float]
    factors: tuple[int, int] = (1, 1)

    def position(self, axis: int, position: float) -> float:
        """Convert a coordinate from pixels of the image to decoded pixels.

        Args:
            axis: 0 for y, 1 for x.
            position: Coordinate in pixels of the image.
        """
        return position / (self.denominator * self.factors[axis]) + self.origin[axis]

    def ratio(self, axis: int, ratio: float, resized: int) -> float:
        """Return the number of decoded pixels per resized pixel.

        Args:
            axis: 0 for y, 1 for x.
            ratio: Number of pixels of the image per resized pixel.
            resized: Length of the result in pixels.
        """
        if self.factors == (1, 1):
            return ratio / self.denominator
        length = round(ratio * resized) / (self.denominator * self.factors[axis])
        return float(np.float32(length)) / resized  # Pillow stores the edges of its box as float32


NO_MARGINS = (0, 0, 0, 0)
Part = tuple[int, int, int, int]
"""Region (top, left, bottom, right) of an image in integer pixels; bottom and right are exclusive."""


class Placement(NamedTuple):
    """Geometry of an output for an image of known size.

    The image is cropped to ``box``, flipped by ``mirrors``, padded by ``margins``, and resized to ``resized``. The
    ``region`` of the result is flipped by ``flips`` and pasted on the canvas at ``at``. The rest of the canvas has the
    fill color. Flips before and after the resize are separate, because the filters ``nearest`` and ``box`` do not break
    ties symmetrically.

    Pairs of numbers are in the order (rows, columns) or (vertical, horizontal). Coordinates in the image are in pixels
    of the full size, even if the image was decoded at a reduced size.

    Attributes:
        box: Crop (top, left, bottom, right) of the image; bottom and right are exclusive.
        mirrors: Whether the box is flipped before the resize, on each axis.
        resized: Size of the result of the resize.
        ratio: Number of pixels of the padded box per resized pixel, on each axis.
        region: Crop (top, left, bottom, right) of the result of the resize. If there are ``margins``, the region does
            not include pixels that have the fill color.
        flips: Whether the region is flipped after the resize, on each axis.
        at: Position of the region on the canvas. If the region is empty, ``at`` is the position of the image, which may
            be outside of the canvas.
        canvas: Size of the canvas.
        reduction: Map to the decoded pixels. None means that the image was decoded at full size.
        margins: Padding (top, left, bottom, right) that is added to the box before the resize.
        fill: Fill color for each channel of the tensor, if the color is a per-image input. None means that the fill
            color is in the plan.
        levels: Steps that change the pixel values of the canvas after the geometry.
        erasures: Steps that erase rectangles of the finished tensor.
        photo: Steps that change the pixel values of the whole image before the geometry.
        leaf: Index of the plan in ``Plan.leaves``, if a random choice selects one of several plans.
        begin: Position in the padded box at which the first resized pixel begins. It is 0 unless the resize has a
            ``roi`` or is ``subpixel``.
        swaps: Whether each axis is flipped because the end of the ``roi`` is before its beginning. DALI then resizes
            the axis from the end.
        thumbnail: Placement of the thumbnail that is added to the tiles of the image, or None.
        cuts: Numbers of rows and columns of the grid of slices into which the canvas is divided.
        frames: Number of frames of the clip. It is 1 for an image.
        frame: Index of the frame that the pixels contain.
        rate: Number of selected frames per second of the clip. It is 0 for an image.
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
    cuts: tuple[int, int] = (1, 1)
    frames: int = 1
    frame: int = 0
    rate: float = 0.0

    @property
    def is_kept(self) -> bool:
        """Whether the resize is the identity: each resized pixel equals one pixel of the padded box."""
        return self.resized == self.laid and self.ratio == (1.0, 1.0) and self.begin == (0.0, 0.0)

    @property
    def size(self) -> tuple[int, int]:
        """Size (rows, columns) of the output, after all steps."""
        return levels.size_after(self.levels, *self.canvas) if self.levels else self.canvas

    @property
    def matrix(self) -> F64:
        """Coordinate transform from the image to the output as a 3 x 3 matrix (see ``levels.motions``)."""
        scale_y, scale_x, offset_y, offset_x = self.transform
        whole = np.array([[scale_x, 0.0, offset_x], [0.0, scale_y, offset_y], [0.0, 0.0, 1.0]])
        for forward, _ in levels.motions(self.levels, *self.canvas):
            whole = forward @ whole
        return whole

    @property
    def laid(self) -> tuple[int, int]:
        """Size (rows, columns) of the padded box, which is the input of the resize."""
        top, left, bottom, right = self.box
        pad_top, pad_left, pad_bottom, pad_right = self.margins
        return pad_top + bottom - top + pad_bottom, pad_left + right - left + pad_right

    @property
    def read(self) -> tuple[int, int, int, int]:
        """Region (top, left, bottom, right) of the decoded pixels that overlap the box."""
        if self.reduction is None:
            return self.box
        top, left, bottom, right = (self.reduction.position(index % 2, edge) for index, edge in enumerate(self.box))
        return floor(top), floor(left), ceil(bottom), ceil(right)

    def reduced(self, reduction: Reduction) -> Placement:
        """Return this placement for a JPEG that was decoded at a reduced size."""
        thumbnail = self.thumbnail and self.thumbnail.reduced(reduction)
        return self._replace(reduction=reduction, thumbnail=thumbnail)

    def part(self, reach: int) -> Part | None:
        """Return the part of the image that the ``region`` is computed from, or None if the region is empty.

        Args:
            reach: Radius of the resize filter (``Resize.reach``).
        """
        if self.thumbnail is not None:
            return self.box
        parts = []
        for axis, ratio in enumerate(self.ratio):
            begin, end = self.region[axis], self.region[axis + 2]
            first, last = self.box[axis], self.box[axis + 2]
            if begin == end or first == last:
                return None
            is_mirrored = self.mirrors[axis]
            scale, offset = stretch((first, last), self.margins[axis], self.begin[axis], ratio, is_mirrored=is_mirrored)
            left, right = (begin + 0.5 - offset) / scale, (end - 0.5 - offset) / scale
            around = reach * (ratio if ratio > 1 else 1.0) + 1
            begin, end = (
                floor((right if is_mirrored else left) - around),
                ceil((left if is_mirrored else right) + around),
            )
            parts.append((min(max(begin, first), last - 1), max(min(end, last), first + 1)))
        if self.resized[1] == 1:  # PyTorch computes every row from the first rows of the image
            return self.box
        (top, bottom), (left, right) = parts
        return top, left, bottom, right

    @property
    def offset(self) -> tuple[float, float]:
        """Position (y, x) of the flipped box in the region ``read``. It is (0, 0) unless there is a ``reduction``."""
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
    def views(self) -> tuple[int, int, int, tuple[int, int], tuple[int, int] | None]:
        """Arguments of ``TensorSpec.shape_of``."""
        return *self.size, self.frames, self.cuts, None if self.thumbnail is None else self.thumbnail.size

    @property
    def transform(self) -> tuple[float, float, float, float]:
        """Transform (scale_y, scale_x, offset_y, offset_x) from the image to the canvas.

        In continuous pixel coordinates, ``canvas = image * scale + offset``.
        """
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
    """Return the transform (scale, offset) from the image to the result of the resize, on one axis.

    The transform ``resized = image * scale + offset`` includes the crop, the flip, the padding and the resize.

    Args:
        box: Begin and end of the box on this axis.
        margin: Padding before the box.
        begin: Position at which the first resized pixel begins (``Placement.begin``).
        ratio: Number of pixels per resized pixel (``Placement.ratio``).
        is_mirrored: Whether the box is flipped before the padding is added.
    """
    if is_mirrored:
        return -1 / ratio, (box[1] + margin - begin) / ratio
    return 1 / ratio, (margin - box[0] - begin) / ratio


class Span:
    """State of one axis while the geometric steps are combined: the part of the source that is visible on a canvas.

    The visible part consists of ``length`` source pixels, beginning with the pixel ``begin``. It is at the position
    ``at`` on a canvas of ``canvas`` pixels. For steps before the resize, the source is the image; for steps after the
    resize, the source is the resized image. If no pixel is visible, ``at`` may be outside of the canvas.
    """

    __slots__ = ("at", "begin", "canvas", "is_flipped", "length", "stretch")

    def __init__(self, canvas: int, begin: int = 0, end: int | None = None) -> None:
        self.begin = self.at = begin
        self.length = (canvas if end is None else end) - begin
        self.canvas = canvas
        self.stretch = (1.0, 0.0)
        self.is_flipped = False

    def window(self, start: int, length: int) -> None:
        """Replace the canvas by a window of ``length`` pixels from ``start``, which may extend beyond the canvas."""
        first, last = max(self.at, start), min(self.at + self.length, start + length)
        if last <= first:  # nothing is visible; the transform still needs the position of the source
            first = last = self.at
        cut_before, cut_after = first - self.at, self.at + self.length - last
        self.begin += cut_after if self.is_flipped else cut_before
        self.length -= cut_before + cut_after
        self.at = first - start
        self.canvas = length

    @property
    def transform(self) -> tuple[float, float]:
        """Transform (scale, offset) from the decoded image to the canvas, on this axis."""
        scale, offset = self.stretch
        if self.is_flipped:
            return -scale, self.at + self.length + self.begin - offset
        return scale, offset - self.begin + self.at

    def flip(self) -> None:
        """Flip the canvas."""
        self.at = self.canvas - self.at - self.length
        self.is_flipped = not self.is_flipped


def moved(boxes: F64, transform: tuple[float, float, float, float]) -> F64:
    """Apply a ``Placement.transform`` to boxes, float64 (n, 4) xyxy.

    If the transform flips an axis, the ends of each box are swapped, so that left < right and top < bottom remain true.
    """
    scale_y, scale_x, offset_y, offset_x = transform
    ends = boxes * (scale_x, scale_y, scale_x, scale_y) + (offset_x, offset_y, offset_x, offset_y)
    if scale_x < 0:
        ends[:, [0, 2]] = ends[:, [2, 0]]
    if scale_y < 0:
        ends[:, [1, 3]] = ends[:, [3, 1]]
    return ends
