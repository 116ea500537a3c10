"""The step on levels that shifts hue, saturation and value, in OpenCV's HSV of uint8."""

from __future__ import annotations

import numpy as np

from pixprep.plan.steps.step import Step


class Hsv(Step, frozen=True):
    """Hue, saturation and value shifted, as OpenCV's ``cvtColor`` of uint8 has them; of 180, 256 and 256 numbers.

    On the way back each level is cut off, but in the last columns of the image, which fill no vector of 32 pixels, it
    is rounded: so OpenCV does it on a processor with AVX2. A gray image stays.

    Attributes:
        hues: 256 bytes: what each hue becomes, 0 to 180.
        saturation, value: what is added; a saturation of 0 stays.
    """

    hues: bytes
    saturation: int = 0
    value: int = 0

    def __str__(self) -> str:
        return f"turn the hue by {2 * self.hues[0]} degrees, add {self.saturation} and {self.value} to the others"


def shifted(hue: float, saturation: float, value: float) -> Hsv:
    """Shifts of numbers that Albumentations takes: the hue modulo 180, in float64, and all cut off."""
    hues = np.mod(np.arange(256) + hue, 180).astype(np.uint8)
    return Hsv(hues.tobytes(), int(saturation), int(value))
