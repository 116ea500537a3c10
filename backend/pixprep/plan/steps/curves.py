"""Curves: each level looked up in a table of 256, and the tables of the ops that are one."""

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
    """Each level looked up.

    Attributes:
        table: 256 levels, for every channel the same.
        factor: where the table is each level times this number of float32, cut off: what may be quicker to compute.
    """

    table: bytes
    factor: float | None = None
    is_pointwise = keeps_places = keeps_gray = True

    def __str__(self) -> str:
        if self.factor is not None:
            return f"multiply the levels by {self.factor:.4g}"
        return f"look levels up: 0, 128, 255 become {self.table[0]}, {self.table[128]}, {self.table[255]}"

    def of(self, levels: U8) -> U8:
        """The levels after it."""
        return np.frombuffer(self.table, np.uint8)[levels]


_REAL = np.arange(256, dtype=np.float32)


def brightness(factor: float, like: BlendLike) -> Curve:
    """Levels times ``factor``, in float32 and cut off, as all libraries do it."""
    del like
    levels = np.minimum(_REAL * np.float32(factor), 255)
    return Curve(levels.astype(np.uint8).tobytes(), factor)


def scaled_and_shifted(factor: float, offset: float) -> Curve:
    """``level * factor + offset``, in float32, each constant and each step rounded, and cut off."""
    levels = _REAL * np.float32(factor) + np.float32(offset)
    return Curve(levels.clip(0, 255).astype(np.uint8).tobytes())


def gamma(exponent: float, gain: float, like: ColorLike) -> Curve:
    """``255.999 * gain * (level / 255) ** exponent``, cut off, as ``like`` rounds it."""
    return _curve(lambda _: COLOURS[like].gamma(exponent, gain))


@lru_cache
def posterize(bits: int) -> Curve:
    """The upper ``bits`` of each level, 1 to 8."""
    return _curve(lambda levels: levels & (0xFF << (8 - bits) & 0xFF))


@lru_cache
def solarize(threshold: float) -> Curve:
    """Levels of at least ``threshold`` inverted."""
    return _curve(lambda levels: np.where(levels >= threshold, 255 - levels, levels))


@lru_cache
def solarize_add(add: int, threshold: float) -> Curve:
    """Levels below ``threshold`` that much higher, at most 255."""
    return _curve(lambda levels: np.where(levels < threshold, np.minimum(levels + add, 255), levels))


@lru_cache
def inverted() -> Curve:
    """Each level's complement."""
    return _curve(lambda levels: 255 - levels)


def _curve(of: Callable[[npt.NDArray[np.int64]], npt.NDArray[np.generic]]) -> Curve:
    return Curve(of(np.arange(256)).astype(np.uint8).tobytes())
