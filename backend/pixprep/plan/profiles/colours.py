"""Defines the profiles of color changes and blurs, which describe the properties and the arithmetic of one library."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Values = npt.NDArray[Any]


class Blur(NamedTuple):
    """Profile of one library's Gaussian blur.

    Attributes:
        sigma: Function that returns the default standard deviation for a number of taps. None means that the op must
            specify the standard deviation.
        taps: Function that returns the default number of taps for a standard deviation. None means that the op must
            specify the number of taps.
        is_mirrored_again: Whether the image is reflected repeatedly if the kernel extends beyond the first reflection.
            If False, such images are rejected.
        is_hosts: Whether the blur runs on the host even if the device is a GPU, because it has no CUDA kernel.
    """

    sigma: Callable[[int], float] | None = None
    taps: Callable[[float], int] | None = None
    is_mirrored_again: bool = False
    is_hosts: bool = False


def unsupported(*numbers: float) -> Values:
    """Stand in for a function of ``Colours`` that the library does not support. This function is never called."""
    raise AssertionError(numbers)


@dataclass(frozen=True, kw_only=True)
class Colours:
    """Profile of one library's color changes.

    Attributes:
        mean: Function ``(total, count)`` that returns the mean luma, with which a change of contrast blends the image.
            ``total`` is the sum of the luma of ``count`` pixels.
        contrast: Function ``(mean, factor)`` that returns the look-up table of a change of contrast. None means that
            the kernels compute the blend without a table.
        turn: Function that converts a rotation of the hue, as a fraction of the circle, to the number that the kernels
            use. None means that the library's hue has 180 values (HSV of uint8).
        gamma: Function ``(exponent, gain)`` that returns the look-up table of a gamma curve, with 256 values.
        autocontrast: Function ``(low, high)`` that returns a look-up table with 256 values for a channel, whose minimum
            and maximum pixel values are ``low`` and ``high``. They must differ.
        threshold: Function that converts the threshold of ``solarize`` to the number that pixel values are compared
            with.
    """

    mean: Callable[[int, int], float]
    contrast: Callable[[float, float], Values] | None = None
    turn: Callable[[float], float] | None = None
    gamma: Callable[[float, float], Values] = unsupported
    autocontrast: Callable[[int, int], Values] = unsupported
    threshold: Callable[[float], float] = float


PIXEL_VALUES = np.arange(256)
"""All pixel values of uint8."""
