"""Curves: tone curves as tables of 256 entries, and the functions that make the table of each op that is a curve."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from pixprep.plan.profiles import COLOURS
from pixprep.plan.steps.step import Step
from pixprep.spec import BlendLike, ColorLike

U8 = npt.NDArray[np.uint8]


class Curve(Step, frozen=True):
    """Looks up each pixel value in a table.

    Attributes:
        table: 256 pixel values, one for each input value; all channels use the same table.
        factor: Float32 factor, if the table is each pixel value times this factor, clipped and truncated; a kernel may
            compute the product faster than it looks the value up. None: The table is not such a product.
    """

    table: bytes
    factor: float | None = None
    is_pointwise = keeps_places = keeps_gray = True

    def __str__(self) -> str:
        if self.factor is not None:
            return f"multiply the levels by {self.factor:.4g}"
        return f"look levels up: 0, 128, 255 become {self.table[0]}, {self.table[128]}, {self.table[255]}"

    def of(self, levels: U8) -> U8:
        """Return the pixel values after the curve."""
        return np.frombuffer(self.table, np.uint8)[levels]


_REAL = np.arange(256, dtype=np.float32)


def brightness(factor: float, like: BlendLike) -> Curve:
    """Return the curve that multiplies by ``factor`` in float32, clips and truncates, as all supported libraries do."""
    del like
    levels = np.minimum(_REAL * np.float32(factor), 255)
    return Curve(levels.astype(np.uint8).tobytes(), factor)


def scaled_and_shifted(factor: float, offset: float) -> Curve:
    """Return the curve ``level * factor + offset``, clipped and truncated.

    The arithmetic is float32; each constant and each operation is rounded.
    """
    levels = _REAL * np.float32(factor) + np.float32(offset)
    return Curve(levels.clip(0, 255).astype(np.uint8).tobytes())


def gamma(exponent: float, gain: float, like: ColorLike) -> Curve:
    """Return the curve ``255.999 * gain * (level / 255) ** exponent``, clipped, as ``like`` rounds it."""
    return _curve(lambda _: COLOURS[like].gamma(exponent, gain))


@lru_cache
def posterize(bits: int) -> Curve:
    """Return the curve that keeps the upper ``bits`` bits of each pixel value, 1 to 8."""
    return _curve(lambda levels: levels & (0xFF << (8 - bits) & 0xFF))


@lru_cache
def solarize(threshold: float) -> Curve:
    """Return the curve that inverts the pixel values of at least ``threshold``."""
    return _curve(lambda levels: np.where(levels >= threshold, 255 - levels, levels))


@lru_cache
def solarize_add(add: int, threshold: float) -> Curve:
    """Return the curve that adds ``add`` to the pixel values below ``threshold``; the sum is at most 255."""
    return _curve(lambda levels: np.where(levels < threshold, np.minimum(levels + add, 255), levels))


@lru_cache
def inverted() -> Curve:
    """Return the curve that replaces each pixel value by 255 minus the value."""
    return _curve(lambda levels: 255 - levels)


def _curve(of: Callable[[npt.NDArray[np.int64]], npt.NDArray[np.generic]]) -> Curve:
    return Curve(of(np.arange(256)).astype(np.uint8).tobytes())
