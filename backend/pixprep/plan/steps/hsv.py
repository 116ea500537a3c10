"""The step that shifts hue, saturation and value in OpenCV's HSV color space of uint8."""

from __future__ import annotations

import numpy as np

from pixprep.plan.steps.step import Step


class Hsv(Step, frozen=True):
    """Shifts hue, saturation and value as OpenCV's ``cvtColor`` of uint8 defines them, with 180, 256 and 256 values.

    The conversion back to RGB truncates each value. The last columns of the image, which do not fill a vector of 32
    pixels, are rounded instead, because OpenCV does so on a processor with AVX2. A gray image does not change.

    Attributes:
        hues: 256 bytes: The new hue of each hue, 0 to 180.
        saturation, value: Integers that are added to the saturation and the value; a saturation of 0 stays 0.
    """

    hues: bytes
    saturation: int = 0
    value: int = 0

    def __str__(self) -> str:
        return f"turn the hue by {2 * self.hues[0]} degrees, add {self.saturation} and {self.value} to the others"


def shifted(hue: float, saturation: float, value: float) -> Hsv:
    """Return the step for shifts as Albumentations accepts them.

    The hue is taken modulo 180 in float64, and all results are truncated.
    """
    hues = np.mod(np.arange(256) + hue, 180).astype(np.uint8)
    return Hsv(hues.tobytes(), int(saturation), int(value))
