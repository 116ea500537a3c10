"""The margin around an image before its resize, on the CPU: only what of it the windows read is ever made."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pixprep.plan.output_plans import TensorPlan
from pixprep.plan.placement import Placement

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

    @property
    def struct(self) -> tuple[int, int, int]:
        """Margins as the kernels in C read them: of the fill a byte a channel."""
        return *self.before, sum(level << 8 * channel for channel, level in enumerate(self.fill.tolist()))


def margins(plan: TensorPlan, placement: Placement, channels: int) -> Margins:
    """Margins of a placement that has some, for pixels of so many channels."""
    fill = np.zeros(channels, np.uint8)
    fill[list(plan.channels)] = placement.fill or plan.fill
    return Margins(placement.margins[:2], placement.laid, fill)
