"""Computes random crops with the formulas of torchvision v2."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from pixprep.plan.draws.augments import Drawing, RandomStep, Uniforms
from pixprep.plan.draws.philox import F64, Numbers, Words


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


class ByBoxes(Drawing):
    """Base class of ops whose random window depends on the boxes of the sample."""

    __slots__ = ()

    def draw_by(self, boxes: F64, height: int, width: int, uniforms: Uniforms) -> Words:
        """Sample the window for an image of this size with boxes, float64 (n, 4) xyxy in pixels, at least one."""
        raise NotImplementedError


@dataclass(frozen=True)
class IouCrop(RandomStep):
    """Random window that depends on the boxes of the sample. Without boxes, it is the whole image."""

    needs_boxes: ClassVar[bool] = True
    early: ClassVar[str] = "it selects its window by the annotated boxes"
    op: ByBoxes

    def words(self, height: int, width: int, numbers: Numbers, boxes: F64 | None = None) -> Words:
        """Sample the window; ``boxes`` are float64 (n, 4) xyxy in pixels of the image."""
        if boxes is None or not len(boxes):
            return window(0, 0, height, width)
        return self.op.draw_by(boxes, height, width, partial(numbers.blocks, self.key))


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
