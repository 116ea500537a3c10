"""Random windows with the formulas of torchvision v2."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from pixprep.plan.draws.philox import F64, Numbers, Words, span_words

_ROUNDED_DOWN = 1 - 1e-9
"""Factor that subtracts more than the rounding error."""
_CHOICES, _FIRST_CHOICES = 20, 4
"""Maximum number of overlaps that ``random_iou_crop`` chooses, and the number that is drawn with the batch.

torchvision continues until it finds a window, or chooses the overlap 1.0. After 20 choices, 95 % of the images in which
no window fits have reached 1.0; for the others the whole image is kept here. The numbers of the first choices are made
together with those of the batch, which takes a fiftieth of the time; the numbers of the rest are made all at once.
"""


def fitting(height: int, width: int, share: float, ratio: float) -> tuple[int, int] | None:
    """Return the (height, width) of the window with this fraction of the area and this ratio, or None if too large."""
    area = height * width * share
    columns, rows = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
    return (rows, columns) if 0 < columns <= width and 0 < rows <= height else None


def fallback(height: int, width: int, ratio: tuple[float, float]) -> tuple[int, int]:
    """Return the (height, width) of the largest window in the center whose aspect ratio is allowed."""
    if width / height < min(ratio):
        return round(width / min(ratio)), width
    if width / height > max(ratio):
        return height, round(height * max(ratio))
    return height, width


@dataclass(frozen=True, kw_only=True)
class IouCrop:
    """The window of torchvision's ``RandomIoUCrop``.

    Attributes:
        key: Key of the step's random numbers.
        scale: Minimum and maximum of the window's side divided by the image's side.
        ratio: Minimum and maximum of width divided by height.
        overlaps: Minimum IoU of the window with one of the boxes whose centers it contains. A value of 1 or more keeps
            the whole image.
        trials: Number of windows for each choice of an overlap.
    """

    key: str
    scale: tuple[float, float]
    ratio: tuple[float, float]
    overlaps: tuple[float, ...]
    trials: int
    is_inside: ClassVar[bool] = True
    axis: ClassVar[None] = None

    @property
    def blocks(self) -> int:
        """Number of blocks for the first choices of an overlap, which are enough for nearly every image."""
        return _FIRST_CHOICES * self._each

    @property
    def _each(self) -> int:
        """Number of blocks of one choice: one for the overlap, and one per trial (width, height, left, top)."""
        return 1 + self.trials

    def words(self, height: int, width: int, numbers: Numbers, boxes: F64 | None = None) -> Words:
        """Draw a window.

        Args:
            height: Height of the image.
            width: Width of the image.
            numbers: Random numbers of the sample.
            boxes: Boxes, float64 (n, 4) xyxy in the image's pixels.
        """
        if boxes is None or not len(boxes):
            return window(0, 0, height, width)
        each = [
            ((x1 + x2) * 0.5, (y1 + y2) * 0.5, x1, y1, x2, y2, (x2 - x1) * (y2 - y1))
            for x1, y1, x2, y2 in boxes.tolist()
        ]
        # An IoU is at most the box's area divided by the window's area, and no window is smaller than this.
        least = int(width * self.scale[0]) * int(height * self.scale[0]) * _ROUNDED_DOWN
        for choice, count in ((0, _FIRST_CHOICES), (_FIRST_CHOICES, _CHOICES - _FIRST_CHOICES)):
            several = numbers.blocks(self.key, choice * self._each, count * self._each).reshape(count, self._each, 4)
            for uniform, trials in zip(several[:, 0, 0].tolist(), several[:, 1:], strict=True):
                overlap = self.overlaps[int(uniform * len(self.overlaps))]
                if overlap >= 1:
                    return window(0, 0, height, width)
                able = [box for box in each if box[-1] >= overlap * least]
                found = self._first(height, width, trials, able, overlap) if able else None
                if found is not None:
                    return found
        return window(0, 0, height, width)

    def _first(
        self, height: int, width: int, trials: F64, boxes: Sequence[tuple[float, ...]], overlap: float
    ) -> Words | None:
        """Return the first trial whose IoU with one of the boxes reaches the overlap, or None.

        Each box has its center, upper left corner, lower right corner and area.
        """
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
                        return window(top, left, rows, columns)
        return None

    def __str__(self) -> str:
        return f"take a random window around boxes, {span_words(self.scale)} of each side"


def within(window: Words, boxes: F64) -> npt.NDArray[np.bool_]:
    """Find the boxes whose center is inside a window: float64 (n, 4) xyxy to bool (n,)."""
    first, sides = np.array([[window["left"], window["top"]], [window["width"], window["height"]]])
    middles = (boxes[:, :2] + boxes[:, 2:]) / 2
    inside = (middles > first) & (middles < first + sides)
    kept: npt.NDArray[np.bool_] = inside[:, 0] & inside[:, 1]
    return kept


def window(top: int, left: int, height: int, width: int) -> Words:
    """Return a window in the form of a draw."""
    return {"top": top, "left": left, "height": height, "width": width}
