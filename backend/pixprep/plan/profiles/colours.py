"""Steps on colours and blurs of one library: what ops check, and the numbers that kernels need."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Values = npt.NDArray[Any]


class Blur(NamedTuple):
    """One library's Gaussian blur.

    Attributes:
        sigma: Deviation that follows from the number of taps; None: it has to be given.
        taps: Number of taps that follows from the deviation; None: it has to be given.
        is_mirrored_again: Whether the image is mirrored repeatedly where the kernel reaches across its mirror image;
            else such an image is refused.
        is_hosts: Whether a GPU has no kernel for it.
    """

    sigma: Callable[[int], float] | None = None
    taps: Callable[[float], int] | None = None
    is_mirrored_again: bool = False
    is_hosts: bool = False


def none_here(*numbers: float) -> Values:
    """A function of ``Colours`` that no op asks of the library."""
    raise AssertionError(numbers)


@dataclass(frozen=True, kw_only=True)
class Colours:
    """One library's arithmetic on the levels of colours, which ``like`` names.

    Attributes:
        mean: Gray with which a contrast blends, by the sum of the luma of so many pixels.
        contrast: Levels of a contrast, by that mean and the factor; None: it is the blend of the kernels.
        turn: Number by which the kernels turn a hue, by its fraction of the circle; None: a hue is that of HSV of
            uint8, with 180 hues.
        gamma: Levels 0 to 255 by an exponent and a gain.
        autocontrast: Levels 0 to 255 by the lowest level and the highest one, which differ.
        threshold: Number with which levels are compared.
    """

    mean: Callable[[int, int], float]
    contrast: Callable[[float, float], Values] | None = None
    turn: Callable[[float], float] | None = None
    gamma: Callable[[float, float], Values] = none_here
    autocontrast: Callable[[int, int], Values] = none_here
    threshold: Callable[[float], float] = float


EVERY = np.arange(256)
"""All levels."""
