"""Computes random crops with the formulas of torchvision v2."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from pixprep.plan.draws.philox import F64, Numbers, Words, span_words

_SAFETY = 1 - 1e-9
"""Factor slightly below 1 that makes a bound safe against rounding errors."""
_CHOICES, _FIRST_CHOICES = 20, 4
"""Maximum number of times that ``random_iou_crop`` chooses an overlap, and number of choices sampled in advance.

torchvision repeats the choice until it finds a window or chooses the overlap 1.0, which keeps the whole image. If no
window fits, 95 % of the images have reached 1.0 after 20 choices; pixprep then also keeps the whole image for the
remaining 5 %. The random numbers of the first choices are generated for the whole batch at once, which takes 2 % of the
time of separate calls. The random numbers of the other choices are generated only if they are needed.
"""


def fitting(height: int, width: int, share: float, ratio: float) -> tuple[int, int] | None:
    """Return the size (height, width) of a window with this fraction of the area and this aspect ratio.

    Args:
        height: Height of the image in pixels.
        width: Width of the image in pixels.
        share: Area of the window divided by the area of the image.
        ratio: Width divided by height of the window.

    Returns:
        Size of the window, or None if it does not fit into the image.
    """
    area = height * width * share
    columns, rows = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
    return (rows, columns) if 0 < columns <= width and 0 < rows <= height else None


def fallback(height: int, width: int, ratio: tuple[float, float]) -> tuple[int, int]:
    """Return the size (height, width) of the largest window whose aspect ratio is in the range ``ratio``."""
    if width / height < min(ratio):
        return round(width / min(ratio)), width
    if width / height > max(ratio):
        return height, round(height * max(ratio))
    return height, width


@dataclass(frozen=True, kw_only=True)
class IouCrop:
    """Random crop of torchvision's ``RandomIoUCrop``.

    Attributes:
        key: Key that identifies the step's random numbers.
        scale: Range of the window's height and width, as fractions of those of the image.
        ratio: Range of the window's width divided by its height.
        overlaps: Minimum IoU values to choose from. The window must have this IoU with at least one of the boxes whose
            centers are inside. A value of 1 or more keeps the whole image.
        trials: Number of windows to try for each choice of an overlap.
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
        """Number of blocks of random numbers for the first choices of an overlap. They suffice for most images."""
        return _FIRST_CHOICES * self._blocks_per_choice

    @property
    def _blocks_per_choice(self) -> int:
        """Number of blocks per choice: one for the overlap, and one per trial for its width, height, left and top."""
        return 1 + self.trials

    def words(self, height: int, width: int, numbers: Numbers, boxes: F64 | None = None) -> Words:
        """Sample a window.

        Args:
            height: Height of the image in pixels.
            width: Width of the image in pixels.
            numbers: Random numbers of the sample.
            boxes: Boxes of the sample, float64 (n, 4) xyxy in pixels of the image.
        """
        if boxes is None or not len(boxes):
            return window(0, 0, height, width)
        each = [
            ((x1 + x2) * 0.5, (y1 + y2) * 0.5, x1, y1, x2, y2, (x2 - x1) * (y2 - y1))
            for x1, y1, x2, y2 in boxes.tolist()
        ]
        # The IoU is at most the area of the box divided by the area of the window, so that small boxes can be skipped.
        min_area = int(width * self.scale[0]) * int(height * self.scale[0]) * _SAFETY
        for choice, count in ((0, _FIRST_CHOICES), (_FIRST_CHOICES, _CHOICES - _FIRST_CHOICES)):
            several = numbers.blocks(
                self.key, choice * self._blocks_per_choice, count * self._blocks_per_choice
            ).reshape(count, self._blocks_per_choice, 4)
            for uniform, trials in zip(several[:, 0, 0].tolist(), several[:, 1:], strict=True):
                overlap = self.overlaps[int(uniform * len(self.overlaps))]
                if overlap >= 1:
                    return window(0, 0, height, width)
                candidates = [box for box in each if box[-1] >= overlap * min_area]
                found = self._first_fitting(height, width, trials, candidates, overlap) if candidates else None
                if found is not None:
                    return found
        return window(0, 0, height, width)

    def _first_fitting(
        self, height: int, width: int, trials: F64, boxes: Sequence[tuple[float, ...]], overlap: float
    ) -> Words | None:
        """Return the first of several windows that has the required IoU with one of the boxes, or None.

        Args:
            height: Height of the image in pixels.
            width: Width of the image in pixels.
            trials: Uniform random numbers of each window, (trials, 4).
            boxes: For each box, x and y of the center, left, top, right, bottom, and the area.
            overlap: Minimum IoU.
        """
        min_scale, scale_range = self.scale[0], self.scale[1] - self.scale[0]
        (min_ratio, max_ratio), max_area = self.ratio, max(box[-1] for box in boxes) / _SAFETY
        for u_width, u_height, u_left, u_top in trials.tolist():
            columns = int(width * (min_scale + scale_range * u_width))
            rows = int(height * (min_scale + scale_range * u_height))
            area = columns * rows
            if not min_ratio * rows <= columns <= max_ratio * rows or not (area > 0 and area * overlap <= max_area):
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
        return f"crop to a random window around boxes, {span_words(self.scale)} of the height and width"


def within(window: Words, boxes: F64) -> npt.NDArray[np.bool_]:
    """Return a mask, bool (n,), that selects the boxes whose centers are inside a window.

    Args:
        window: Window, as the parameters of a random op.
        boxes: Boxes, float64 (n, 4) xyxy.
    """
    first, sides = np.array([[window["left"], window["top"]], [window["width"], window["height"]]])
    centers = (boxes[:, :2] + boxes[:, 2:]) / 2
    inside = (centers > first) & (centers < first + sides)
    kept: npt.NDArray[np.bool_] = inside[:, 0] & inside[:, 1]
    return kept


def window(top: int, left: int, height: int, width: int) -> Words:
    """Return a window as the parameters of a random op."""
    return {"top": top, "left": left, "height": height, "width": width}
