"""The margin around an image before its resize, on the CPU: only what of it the windows read is ever made."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pixprep.plan.output_plans import TensorPlan
from pixprep.plan.placement import Placement

Array = npt.NDArray[Any]
U8 = npt.NDArray[np.uint8]


class Margins(NamedTuple):
    """Margins around pixels before they are resampled.

    Attributes:
        before: (rows above, columns on the left).
        laid: (rows, columns) of the pixels and all that is around them: the axes of the windows.
        fill: (channels,) uint8, in the order of the pixels' channels.
    """

    before: tuple[int, int]
    laid: tuple[int, int]
    fill: U8


def margins(plan: TensorPlan, placement: Placement, channels: int) -> Margins | None:
    """Those of a placement, for pixels of so many channels; None: there are none."""
    if not any(placement.margins):
        return None
    fill = np.zeros(channels, np.uint8)
    fill[list(plan.channels)] = placement.fill or plan.fill
    return Margins(placement.margins[:2], placement.laid, fill)


def taken(pixels: U8, axis: int, read: slice | npt.NDArray[np.intp], around: Margins) -> U8:
    """Positions of an axis of ``around.laid``: a view of the pixels where these are all, else a copy."""
    length, before = pixels.shape[axis], around.before[axis]
    if isinstance(read, slice):
        first, last = (min(max(edge - before, 0), length) for edge in (read.start, read.stop))
        missing = (read.stop - read.start) - (last - first)
        inside = pixels[:, first:last] if axis else pixels[first:last]
        above = min(before, read.stop) - read.start
        return surrounded(inside, axis, (max(above, 0), missing - max(above, 0)), around.fill)
    positions = read - before
    copy: U8 = pixels.take(positions, axis, mode="clip") if length else _filled(pixels, axis, len(read), around.fill)
    outside = (positions < 0) | (positions >= length)
    if axis:
        copy[:, outside] = around.fill
    else:
        copy[outside] = around.fill
    return copy


def surrounded(pixels: U8, axis: int, missing: tuple[int, int], fill: U8) -> U8:
    """The pixels with this many positions of the fill before and behind them on an axis."""
    if missing == (0, 0):
        return pixels
    length = pixels.shape[axis]
    copy = _filled(pixels, axis, missing[0] + length + missing[1], fill)
    inside = slice(missing[0], missing[0] + length)
    if axis:
        copy[:, inside] = pixels
    else:
        copy[inside] = pixels
    return copy


def _filled(pixels: U8, axis: int, length: int, fill: U8) -> U8:
    shape = [*pixels.shape]
    shape[axis] = length
    return np.full(shape, fill, np.uint8)
