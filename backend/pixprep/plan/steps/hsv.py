"""Defines the step that shifts hue, saturation and value in OpenCV's HSV color space for uint8."""

from __future__ import annotations

import numpy as np

from pixprep.plan.steps.step import Step


class Hsv(Step, frozen=True):
    """Shifts hue, saturation and value in the HSV color space of OpenCV's ``cvtColor`` for uint8.

    In this color space, the hue has 180 values, and saturation and value have 256 values each. As in OpenCV on
    processors with AVX2, the conversion back to RGB truncates each value, except in the last columns of each row that
    do not fill a vector of 32 pixels; there, values are rounded. A gray image does not change.

    Attributes:
        hues: Look-up table of 256 bytes from each hue to the new hue, 0 to 180.
        saturation, value: Integers that are added to the saturation and the value. A saturation of 0 stays 0.
    """

    hues: bytes
    saturation: int = 0
    value: int = 0
    is_color = keeps_gray_values = True

    def __str__(self) -> str:
        shift = 2 * self.hues[0]
        return f"rotate the hue by {shift} degrees, add {self.saturation} to saturation and {self.value} to value"


def shifted(hue: float, saturation: float, value: float) -> Hsv:
    """Return the step for the shifts of Albumentations' ``HueSaturationValue``.

    The shifted hue is computed modulo 180 in float64, and all results are truncated to integers.
    """
    hues = np.mod(np.arange(256) + hue, 180).astype(np.uint8)
    return Hsv(hues.tobytes(), int(saturation), int(value))
