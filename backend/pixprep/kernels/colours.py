"""The formulas of the level steps on colours, each written once: NumPy evaluates them, and LLVM compiles them.

Levels are whole numbers of 32 bits, 0 to 255. Every operation rounds to the type of its operands: ``real`` is float32,
``double`` float64; a Python number takes the type of the other operand; ``whole`` cuts off. The results are those of
Pillow's and torchvision's own formulas, which the docstrings give where ours is another.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from pixprep.spec import ColorLike

Value = Any
"""Numbers of one type: an array, or a vector of LLVM's."""
Pixel = tuple[Value, Value, Value]
"""Red, green, blue."""


class Maths(Protocol):
    """What a formula needs besides operators."""

    def whole(self, values: Value) -> Value:
        """As int32, cut off."""

    def real(self, values: Value) -> Value:
        """As float32."""

    def double(self, values: Value) -> Value:
        """As float64."""

    def where(self, condition: Value, one: Value, other: Value) -> Value:
        """One or the other; a Python number is of the type of what is none."""


class Arrays:
    """The maths of NumPy."""

    def whole(self, values: Value) -> Value:
        """See ``Maths.whole``."""
        return np.asarray(values).astype(np.int32)

    def real(self, values: Value) -> Value:
        """See ``Maths.real``."""
        return np.asarray(values).astype(np.float32)

    def double(self, values: Value) -> Value:
        """See ``Maths.double``."""
        return np.asarray(values).astype(np.float64)

    def where(self, condition: Value, one: Value, other: Value) -> Value:
        """See ``Maths.where``."""
        if isinstance(one, int | float):
            one = other.dtype.type(one)
        if isinstance(other, int | float):
            other = one.dtype.type(other)
        return np.where(condition, one, other)


def luma(m: Maths, pixel: Pixel, like: ColorLike) -> Value:
    """The gray of a pixel, a level.

    pillow: ``(19595 red + 38470 green + 7471 blue + 32768) >> 16``.
    torchvision: ``floor(fma(blue, 0.114f, fma(green, 0.587f, red * 0.2989f)))`` in float32.
    """
    red, green, blue = pixel
    if like == "pillow":
        return (red * 19595 + green * 38470 + blue * 7471 + 32768) >> 16
    gray = m.real(red) * 0.2989
    return m.whole(_fused(m, blue, 0.114, _fused(m, green, 0.587, gray)))


def blended(m: Maths, level: Value, gray: Value, by: tuple[Value, Value], like: ColorLike) -> Value:
    """A level blended with gray, all in float32, cut off to whole levels from 0 to 255.

    pillow: ``gray + factor * (level - gray)``. torchvision: ``fma(gray, rest, level * factor)``.

    Args:
        m: the maths.
        level: whole.
        gray: whole, or double where it is the mean of an image.
        by: the factor, real, and for torchvision ``rest_of`` it, double.
        like: whose rounding.
    """
    factor, rest = by
    if like == "pillow":
        base = m.real(gray)
        value = base + factor * (m.real(level) - base)
    else:
        value = _fused(m, gray, rest, m.real(level) * factor)
    return m.whole(_clipped(m, value, 255))


def turned(m: Maths, pixel: Pixel, turn: Value, like: ColorLike) -> Pixel:
    """A pixel whose hue is turned.

    Args:
        m: the maths.
        pixel: whole.
        turn: ``turn_of`` the shift, for Pillow whole, else real.
        like: whose rounding.
    """
    red, green, blue = pixel
    top, low = _most(m, _most(m, red, green), blue), _least(m, _least(m, red, green), blue)
    middle = red + green + blue - top - low
    is_red, is_green = red == top, green == top
    # Of (top - channel) / (top - low), which both libraries form of each channel, two are 0 and 1. What is left is x.
    is_falling = m.where(is_red, blue == low, m.where(is_green, red == low, green == low))
    base = m.where(is_red, 0, m.where(is_green, 2, top * 0 + 4))
    hues = _turned_pillow if like == "pillow" else _turned_torchvision
    sector, p, other = hues(m, (top, middle, low), (base, is_falling), turn)
    sector = m.where(sector == 6, 0, sector)
    sixth = [sector == index for index in range(6)]
    return (
        m.where(sixth[0] | sixth[5], top, m.where(sixth[1] | sixth[4], other, p)),
        m.where(sixth[1] | sixth[2], top, m.where(sixth[0] | sixth[3], other, p)),
        m.where(sixth[3] | sixth[4], top, m.where(sixth[2] | sixth[5], other, p)),
    )


def rest_of(factor: float) -> float:
    """``float32(1 - factor)``, where ``1 - factor`` is of float64."""
    return float(np.float32(1 - factor))


def turn_of(shift: float, like: ColorLike) -> float:
    """How far a hue is turned. pillow: ``int(shift * 255) mod 256`` of 256; torchvision: ``float32(shift)``."""
    return int(shift * 255) % 256 if like == "pillow" else float(np.float32(shift))


def _turned_pillow(m: Maths, ordered: Pixel, corner: tuple[Value, Value], turn: Value) -> Pixel:
    """The sixth of the circle, and of HSV's levels p, and t in an even sixth, q in an odd one.

    Pillow, with float32 unless it says (64): ``h = base + 1 - x`` where the hue falls, else ``base - 1 + x``;
    ``h = (h / 6 + 1) mod 1`` (64), rounded to float32; ``hue = int(h * 255)`` (64), plus the turn, modulo 256;
    ``saturation = int((top - low) / top * 255)``, the product (64).
    Back: ``y = hue * 6 / 255`` (64), ``sector = floor(y)``, ``f = y - sector`` (64), ``s = saturation / 255`` (64),
    both rounded to float32; ``p = top * (1 - s)`` (64), ``q = top * (1 - s * f)`` (64), but ``s * f`` in float32,
    ``t = top * (1 - s * (1 - f))`` (64), each rounded half up. Without saturation every pixel is (top, top, top).

    Here all is whole or float32, and the same for every colour and hue. The exact q is that of ``65025 - saturation *
    phi`` 65025ths of top, with ``phi = hue * 6 mod 255``; t has ``255 - phi`` and p 255 in its place.
    """
    top, middle, low = ordered
    base, is_falling = corner
    span = top - low
    x = m.real(top - middle) / m.real(_positive(m, span))
    h = m.where(is_falling, m.real(base + 1) - x, m.real(base - 1) + x) / 6
    hue = (m.whole(m.where(h < 0, h + 1, h) * 255) + turn) & 255
    saturation = m.whole(m.real(span) / m.real(_positive(m, top)) * 255)
    sector = ((hue * 6 + 1) * 257) >> 16
    phi = hue * 6 - sector * 255
    phi = m.where((sector & 1) == 1, phi, 255 - phi)

    def part(phi: Value) -> Value:
        return m.whole(m.real(top * (65025 - saturation * phi)) * (1 / 65025) + 0.5)

    return sector, part(255), part(phi)


def _turned_torchvision(m: Maths, ordered: Pixel, corner: tuple[Value, Value], turn: Value) -> Pixel:
    """As ``_turned_pillow``, all in float32.

    Levels times ``1/255f``; ``s = (top - low) / top``; ``h = base + 1 - x`` where the hue falls, else
    ``(x + base) - 1``; ``h = (h * (1/6f) + 1) mod 1``; ``h = (h + turn) mod 1``, where 1 is added to what is negative.
    Back: ``y = h * 6``, ``sector = floor(y)``, ``f = y - sector``; ``p = (1 - s) * top``, ``q = (1 - s * f) * top``,
    ``t = (s * f + (1 - s)) * top``, each clipped to 0 to 1, times ``255.999f``, cut off. For top that gives top again.
    """
    one = m.real(_positive(m, ordered[0])) * (1 / 255)
    top, middle, low = (m.real(level) * (1 / 255) for level in ordered)
    base, is_falling = corner
    span = top - low
    x = (top - middle) / m.where(span > 0, span, one)
    s = span / one
    h = m.where(is_falling, m.real(base + 1) - x, (x + m.real(base)) - 1)
    h = h * (1 / 6) + 1
    h = m.where(h < 1, h, h - 1) + turn
    h = m.where(h < 1, m.where(h < 0, h + 1, h), h - 1)
    y = h * 6
    sector = m.whole(y)
    product, rest = s * (y - m.real(sector)), 1 - s
    share = m.where((sector & 1) == 1, 1 - product, product + rest)
    return sector, _level(m, rest * top), _level(m, share * top)


def _level(m: Maths, value: Value) -> Value:
    return m.whole(_clipped(m, value, 1) * 255.999)


def _clipped(m: Maths, value: Value, most: int) -> Value:
    """From 0 to ``most``."""
    value = m.where(value > 0, value, 0)
    return m.where(value < most, value, most)


def _fused(m: Maths, a: Value, b: Value, c: Value) -> Value:
    """``fma(a, b, c)`` of float32, where b is a number or double.

    Float64 holds the product, and the sum too unless b, or what c was multiplied by, is below 1/4096.
    """
    if isinstance(b, float):
        b = float(np.float32(b))
    return m.real(m.double(a) * b + m.double(c))


def _positive(m: Maths, level: Value) -> Value:
    """1 in place of 0."""
    return m.where(level > 0, level, 1)


def _most(m: Maths, a: Value, b: Value) -> Value:
    return m.where(a > b, a, b)


def _least(m: Maths, a: Value, b: Value) -> Value:
    return m.where(a < b, a, b)
