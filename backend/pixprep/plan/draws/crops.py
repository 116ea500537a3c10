"""Computes random crops with the formulas of torchvision v2."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from pixprep.plan.draws.philox import F64, Words


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
