"""Padding around an image before its resize on the CPU. Only the padding that the filter reads is computed."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pixprep.plan.output_plans import TensorPlan
from pixprep.plan.placement import Placement

U8 = npt.NDArray[np.uint8]


class Margins(NamedTuple):
    """Padding around pixels before they are resampled.

    Attributes:
        before: Padding (above, on the left) in pixels.
        laid: Size (rows, columns) of the pixels including all padding, which is the input size of the resize.
        fill: Color of the padding, uint8 (channels,), in the channel order of the pixels.
    """

    before: tuple[int, int]
    laid: tuple[int, int]
    fill: U8

    @property
    def struct(self) -> tuple[int, int, int]:
        """Padding in the layout of the C kernels: (above, left, fill color with one byte per channel)."""
        return *self.before, sum(value << 8 * channel for channel, value in enumerate(self.fill.tolist()))


def margins(plan: TensorPlan, placement: Placement, channels: int) -> Margins:
    """Return the padding of a placement that has padding, for pixels with the given number of channels."""
    fill = np.zeros(channels, np.uint8)
    fill[list(plan.channels)] = placement.fill or plan.fill
    return Margins(placement.margins[:2], placement.laid, fill)
