"""Defines tone curves and shifts in HSV, which look up values in tables of 256 bytes, and computes these tables."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from pixprep.plan.profiles import COLOURS
from pixprep.plan.steps.step import Step
from pixprep.spec import BlendLike

U8 = npt.NDArray[np.uint8]


class Curve(Step, frozen=True):
    """Maps pixel values by a look-up table.

    Attributes:
        table: Look-up table with one byte for each of the 256 pixel values. All channels use the same table.
        factor: Float32 number, if the table multiplies pixel values by this number, and clips and truncates the
            results. A kernel may then multiply instead of using the table, which can be faster. None means that the
            table has other values.
    """

    table: bytes
    factor: float | None = None
    is_pointwise = keeps_places = keeps_gray = is_color = True

    def __str__(self) -> str:
        if self.factor is not None:
            return f"multiply the pixel values by {self.factor:.4g}"
        return f"map the pixel values 0, 128, 255 to {self.table[0]}, {self.table[128]}, {self.table[255]}"

    def of(self, levels: U8) -> U8:
        """Apply the curve to pixel values."""
        return np.frombuffer(self.table, np.uint8)[levels]


_REAL = np.arange(256, dtype=np.float32)


def brightness(factor: float, like: BlendLike) -> Curve:
    """Return the curve that multiplies by ``factor`` in float32, clips and truncates, as in all libraries."""
    del like
    levels = np.minimum(_REAL * np.float32(factor), 255)
    return Curve(levels.astype(np.uint8).tobytes(), factor)


def scaled_and_shifted(factor: float, offset: float) -> Curve:
    """Return the curve ``value * factor + offset``, clipped and truncated.

    Both constants and the result of each operation are rounded to float32.
    """
    levels = _REAL * np.float32(factor) + np.float32(offset)
    return Curve(levels.clip(0, 255).astype(np.uint8).tobytes())


def gamma(exponent: float, gain: float, like: BlendLike) -> Curve:
    """Return the gamma curve ``255.999 * gain * (value / 255) ** exponent``, clipped, with the rounding of ``like``."""
    return _curve(lambda _: COLOURS[like].gamma(exponent, gain))


@lru_cache
def posterize(bits: int) -> Curve:
    """Return the curve that keeps the upper ``bits`` bits of each pixel value and clears the others."""
    return _curve(lambda levels: levels & (0xFF << (8 - bits) & 0xFF))


@lru_cache
def solarize(threshold: float) -> Curve:
    """Return the curve that inverts all pixel values greater than or equal to ``threshold``."""
    return _curve(lambda levels: np.where(levels >= threshold, 255 - levels, levels))


@lru_cache
def solarize_add(add: int, threshold: float) -> Curve:
    """Return the curve that adds ``add`` to all pixel values below ``threshold``, clipped to 255."""
    return _curve(lambda levels: np.where(levels < threshold, np.minimum(levels + add, 255), levels))


@lru_cache
def inverted() -> Curve:
    """Return the curve that inverts each pixel value: ``255 - value``."""
    return _curve(lambda levels: 255 - levels)


def _curve(of: Callable[[npt.NDArray[np.int64]], npt.NDArray[np.generic]]) -> Curve:
    return Curve(of(np.arange(256)).astype(np.uint8).tobytes())


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


def shifted_hsv(hue: float, saturation: float, value: float) -> Hsv:
    """Return the step for the shifts of Albumentations' ``HueSaturationValue``.

    The shifted hue is computed modulo 180 in float64, and all results are truncated to integers.
    """
    hues = np.mod(np.arange(256) + hue, 180).astype(np.uint8)
    return Hsv(hues.tobytes(), int(saturation), int(value))
