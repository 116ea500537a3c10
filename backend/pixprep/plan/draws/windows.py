"""Window, flip or canvas that the random numbers of a sample make of a random op, by torchvision v2's formulas."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt

from pixprep.errors import ImageError
from pixprep.plan.draws.philox import F64, Numbers, Words, between, span_words

_ROUNDED_DOWN = 1 - 1e-9
"""By more than what is lost to rounding."""
_CHOICES, _FIRST_CHOICES = 20, 4
"""How often ``random_iou_crop`` chooses an overlap; torchvision goes on until a window is found, or the choice is 1.0.
After 20 choices that is the case in 95 % of the images in which no window fits, and here the whole image is kept.
The numbers of the first choices are made with the batch's others, at a fiftieth of the time; those of the rest at
once."""


@dataclass(frozen=True, kw_only=True)
class ClipFrames:
    """Numbers that choose the frames of a clip.

    Attributes:
        key: names them.
        count: how many.
    """

    key: str
    count: int

    @property
    def blocks(self) -> int:
        """Number of blocks, each of four numbers."""
        return -(-self.count // 4)

    def words(self, height: int, width: int, numbers: Numbers, boxes: F64 | None = None) -> Words:
        """Give the numbers as they are; their choice depends on the times of the frames."""
        del height, width, boxes
        return {"uniforms": numbers.blocks(self.key, 0, self.blocks).ravel()[: self.count].tolist()}


@dataclass(frozen=True, kw_only=True)
class ResizedCrop:
    """The window of torchvision's ``RandomResizedCrop``.

    Attributes:
        key: names its numbers.
        scale: of the window's area to the image's, from and to.
        ratio: width to height, from and to.
    """

    key: str
    scale: tuple[float, float]
    ratio: tuple[float, float]
    blocks: ClassVar[int] = 10  # one a try: area, ratio, top, left
    is_inside: ClassVar[bool] = True

    def words(self, height: int, width: int, numbers: Numbers, boxes: F64 | None = None) -> Words:
        """The first of ten tries whose window fits, or ``fallback``.

        Raises:
            ImageError: DOES_NOT_FIT: the fallback has no pixel; torchvision raises there, or makes a PIL image black.
        """
        del boxes
        lowest, highest = math.log(self.ratio[0]), math.log(self.ratio[1])
        for area, ratio, top, left in numbers.blocks(self.key, 0, self.blocks).tolist():
            share = between(self.scale, area)
            size = fitting(height, width, share, math.exp(lowest + ratio * (highest - lowest)))
            if size is not None:
                return _window(int(top * (height - size[0] + 1)), int(left * (width - size[1] + 1)), *size)
        rows, columns = fallback(height, width, self.ratio)
        if not (rows and columns):
            ratios = " to ".join(f"{end:g}" for end in self.ratio)
            raise ImageError("DOES_NOT_FIT", f"{height} x {width} pixels have no window of the ratio {ratios}")
        return _window((height - rows) // 2, (width - columns) // 2, rows, columns)

    def __str__(self) -> str:
        return f"take a random window of {span_words(self.scale)} of the area, {span_words(self.ratio)} as wide as high"


def fitting(height: int, width: int, share: float, ratio: float) -> tuple[int, int] | None:
    """(height, width) of the window of a share of the area and a ratio of the sides; None if it does not fit inside."""
    area = height * width * share
    columns, rows = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
    return (rows, columns) if 0 < columns <= width and 0 < rows <= height else None


def fallback(height: int, width: int, ratio: tuple[float, float]) -> tuple[int, int]:
    """(height, width) of the largest window in the middle whose ratio is allowed."""
    if width / height < min(ratio):
        return round(width / min(ratio)), width
    if width / height > max(ratio):
        return height, round(height * max(ratio))
    return height, width


@dataclass(frozen=True, kw_only=True)
class Crop:
    """The window of torchvision's ``RandomCrop``, which may reach into a margin.

    Attributes:
        key: names its numbers.
        height, width: of the window.
        padding: (top, left, bottom, right), added before.
        pad_if_needed: an image that is still too small gets what it lacks on both sides.
    """

    key: str
    height: int
    width: int
    padding: tuple[int, int, int, int]
    pad_if_needed: bool
    blocks: ClassVar[int] = 1  # top, left

    @property
    def is_inside(self) -> bool:
        """Tell whether every window lies inside the image."""
        return not any(self.padding) and not self.pad_if_needed

    def words(self, height: int, width: int, numbers: Numbers, boxes: F64 | None = None) -> Words:
        """A window, each place as likely as another.

        Raises:
            ImageError: DOES_NOT_FIT.
        """
        del boxes
        u_top, u_left = numbers.blocks(self.key, 0, 1)[0, :2].tolist()
        top = self._start(u_top, height, self.height, self.padding[0], self.padding[2])
        left = self._start(u_left, width, self.width, self.padding[1], self.padding[3])
        if top is None or left is None:
            raise ImageError(
                "DOES_NOT_FIT",
                f"{height} x {width} pixels are too small for the window of {self.height} x {self.width}",
            )
        return _window(top, left, self.height, self.width)

    def _start(self, uniform: float, length: int, window: int, before: int, after: int) -> int | None:
        padded = before + length + after
        if padded < window:
            if not self.pad_if_needed:
                return None
            before += window - padded
            padded += 2 * (window - padded)
        return int(uniform * (padded - window + 1)) - before

    def __str__(self) -> str:
        padded = f", after margins of {', '.join(map(str, self.padding))}" if any(self.padding) else ""
        return f"take a random {self.height} x {self.width}{padded}"


@dataclass(frozen=True, kw_only=True)
class Flip:
    """A mirror, or none.

    Attributes:
        key: names its numbers.
        axis: as in the plan's ``Flip``.
        p: how often.
    """

    key: str
    axis: Literal["horizontal", "vertical"]
    p: float
    blocks: ClassVar[int] = 1  # whether
    is_inside: ClassVar[bool] = True

    def words(self, height: int, width: int, numbers: Numbers, boxes: F64 | None = None) -> Words:
        """Draw whether to mirror."""
        del height, width, boxes
        return {"flip": bool(numbers.blocks(self.key, 0, 1)[0, 0] < self.p)}

    def __str__(self) -> str:
        return f"mirror {self.p:g} of the images, {self.axis}"


@dataclass(frozen=True, kw_only=True)
class ZoomOut:
    """The canvas of torchvision's ``RandomZoomOut``.

    Attributes:
        key: names its numbers.
        p: how often.
        side_range: the canvas's sides to the image's, from and to.
    """

    key: str
    p: float
    side_range: tuple[float, float]
    blocks: ClassVar[int] = 1  # whether, side, left, top
    is_inside: ClassVar[bool] = False

    def words(self, height: int, width: int, numbers: Numbers, boxes: F64 | None = None) -> Words:
        """The canvas as a window around the image; the image itself where it is left as it is."""
        del boxes
        whether, side, left, top = numbers.blocks(self.key, 0, 1)[0].tolist()
        if whether >= self.p:
            return _window(0, 0, height, width)
        factor = between(self.side_range, side)
        rows, columns = int(height * factor), int(width * factor)
        return _window(-int((rows - height) * top), -int((columns - width) * left), rows, columns)

    def __str__(self) -> str:
        return f"lay {self.p:g} of the images at random on a canvas of {span_words(self.side_range)} times the sides"


@dataclass(frozen=True, kw_only=True)
class IouCrop:
    """The window of torchvision's ``RandomIoUCrop``.

    Attributes:
        key: names its numbers.
        scale: of each side of the window to the image's, from and to.
        ratio: width to height, from and to.
        overlaps: the least IoU of the window with some box whose middle it has; 1 and more: the whole image.
        trials: windows for each choice of an overlap.
    """

    key: str
    scale: tuple[float, float]
    ratio: tuple[float, float]
    overlaps: tuple[float, ...]
    trials: int
    is_inside: ClassVar[bool] = True

    @property
    def blocks(self) -> int:
        """Number of blocks of the first choices of an overlap, which do for nearly every image."""
        return _FIRST_CHOICES * self._each

    @property
    def _each(self) -> int:
        """Blocks of one choice: the overlap, and one a trial: width, height, left, top."""
        return 1 + self.trials

    def words(self, height: int, width: int, numbers: Numbers, boxes: F64 | None = None) -> Words:
        """A window.

        Args:
            height: of the image.
            width: of the image.
            numbers: of the sample.
            boxes: float64 (n, 4) xyxy in the image's pixels.
        """
        if boxes is None or not len(boxes):
            return _window(0, 0, height, width)
        each = [
            ((x1 + x2) * 0.5, (y1 + y2) * 0.5, x1, y1, x2, y2, (x2 - x1) * (y2 - y1))
            for x1, y1, x2, y2 in boxes.tolist()
        ]
        # An IoU is at most the box's share of the window, and no window is smaller than this.
        least = int(width * self.scale[0]) * int(height * self.scale[0]) * _ROUNDED_DOWN
        for choice, count in ((0, _FIRST_CHOICES), (_FIRST_CHOICES, _CHOICES - _FIRST_CHOICES)):
            several = numbers.blocks(self.key, choice * self._each, count * self._each).reshape(count, self._each, 4)
            for uniform, trials in zip(several[:, 0, 0].tolist(), several[:, 1:], strict=True):
                overlap = self.overlaps[int(uniform * len(self.overlaps))]
                if overlap >= 1:
                    return _window(0, 0, height, width)
                able = [box for box in each if box[-1] >= overlap * least]
                window = self._first(height, width, trials, able, overlap) if able else None
                if window is not None:
                    return window
        return _window(0, 0, height, width)

    def _first(
        self, height: int, width: int, trials: F64, boxes: Sequence[tuple[float, ...]], overlap: float
    ) -> Words | None:
        """The first of the trials that has the overlap with one of the boxes: (middle, begin, end, area) each."""
        least, more = self.scale[0], self.scale[1] - self.scale[0]
        (narrowest, widest), largest = self.ratio, max(box[-1] for box in boxes) / _ROUNDED_DOWN
        for across, down, u_left, u_top in trials.tolist():
            columns, rows = int(width * (least + more * across)), int(height * (least + more * down))
            area = columns * rows
            if not narrowest * rows <= columns <= widest * rows or not (area > 0 and area * overlap <= largest):
                continue
            left, top = int((width - columns) * u_left), int((height - rows) * u_top)
            right, bottom = left + columns, top + rows
            for x, y, x1, y1, x2, y2, own in boxes:
                if left < x < right and top < y < bottom:
                    shared = max(min(x2, right) - max(x1, left), 0) * max(min(y2, bottom) - max(y1, top), 0)
                    if shared >= overlap * (own + area - shared):
                        return _window(top, left, rows, columns)
        return None

    def __str__(self) -> str:
        return f"take a random window around boxes, {span_words(self.scale)} of each side"


RandomStep = ResizedCrop | Crop | Flip | ZoomOut | IouCrop


def within(window: Words, boxes: F64) -> npt.NDArray[np.bool_]:
    """Find the boxes whose middle is inside a window: bool (n,) of float64 (n, 4) xyxy."""
    first, sides = np.array([[window["left"], window["top"]], [window["width"], window["height"]]])
    middles = (boxes[:, :2] + boxes[:, 2:]) / 2
    inside = (middles > first) & (middles < first + sides)
    kept: npt.NDArray[np.bool_] = inside[:, 0] & inside[:, 1]
    return kept


def _window(top: int, left: int, height: int, width: int) -> Words:
    return {"top": top, "left": left, "height": height, "width": width}
