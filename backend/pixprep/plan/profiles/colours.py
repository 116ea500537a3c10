"""Color steps and blurs of one library: the properties that ops check, and the numbers that kernels need."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Values = npt.NDArray[Any]


class Blur(NamedTuple):
    """Gaussian blur of one library.

    Attributes:
        sigma: Function from the number of taps to the standard deviation; None: The op must specify it.
        taps: Function from the standard deviation to the number of taps; None: The op must specify it.
        is_mirrored_again: Whether the image is mirrored repeatedly if the kernel is larger than its mirror image; if
            False, such an image is rejected.
        is_hosts: Whether the GPU lacks a kernel for the blur.
    """

    sigma: Callable[[int], float] | None = None
    taps: Callable[[float], int] | None = None
    is_mirrored_again: bool = False
    is_hosts: bool = False


def none_here(*numbers: float) -> Values:
    """Stand in for a function of ``Colours`` that no op requests from the library."""
    raise AssertionError(numbers)


@dataclass(frozen=True, kw_only=True)
class Colours:
    """Color arithmetic of the library that ``like`` names.

    Attributes:
        mean: Function from the sum of the luma and the number of pixels to the gray that a contrast blends with.
        contrast: Function from that mean and the factor to the curve of a contrast; None: The kernels blend.
        turn: Function from a fraction of the circle to the number by which the kernels rotate a hue; None: The hue is
            that of HSV of uint8, with 180 values.
        gamma: Function from an exponent and a gain to the curve of 256 pixel values.
        autocontrast: Function from the minimum and the maximum pixel value, which differ, to the curve of 256 pixel
            values.
        threshold: Function to the number with which pixel values are compared.
    """

    mean: Callable[[int, int], float]
    contrast: Callable[[float, float], Values] | None = None
    turn: Callable[[float], float] | None = None
    gamma: Callable[[float, float], Values] = none_here
    autocontrast: Callable[[int, int], Values] = none_here
    threshold: Callable[[float], float] = float


EVERY = np.arange(256)
"""All pixel values."""
