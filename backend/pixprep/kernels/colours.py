"""Steps on colours: in place by the kernels in C, ``Words``, or in NumPy, ``Planes``; formulas.h has the formulas, too.

In NumPy levels are int32, 0 to 255. Every operation rounds to the type of its operands: ``_real`` is float32,
``_double`` float64; ``_whole`` cuts off. The results are those of Pillow's and torchvision's own formulas, which the
docstrings give where ours is another.
"""

from __future__ import annotations

from ctypes import byref
from typing import Any, get_args

import numpy as np
import numpy.typing as npt

from pixprep.kernels import native
from pixprep.spec import ColorLike

U8 = npt.NDArray[np.uint8]
Value = Any
"""Numbers of one type: an array."""
Pixel = tuple[Value, Value, Value]
"""Red, green, blue."""
_LIKES = get_args(ColorLike)


class Planes:
    """An image on whose colours steps are done, in NumPy. Every channel is an array of whole numbers.

    Args:
        image: uint8 (height, width, channels), 1 or 3 channels, any strides; it is not written to.

    Attributes:
        count: of its pixels.
    """

    def __init__(self, image: U8) -> None:
        self._planes = [_whole(image[:, :, channel]) for channel in range(image.shape[2])]
        self.count = self._planes[0].size

    @property
    def image(self) -> U8:
        """After the steps so far."""
        image: U8 = np.stack(self._planes, axis=2).astype(np.uint8)
        return image

    def look_up(self, tables: U8) -> None:
        """Replace levels by those of a table, (channels, 256)."""
        self._planes = [_whole(table[plane]) for table, plane in zip(tables, self._planes, strict=True)]

    def histograms(self) -> npt.NDArray[Any]:
        """(channels, 256): how often each level is there."""
        return np.stack([np.bincount(plane.ravel(), minlength=256) for plane in self._planes])

    def total(self, like: ColorLike) -> int:
        """The sum of the luma of every pixel."""
        return int(self._luma(like).sum(dtype=np.int64))

    def fade(self, gray: float, factor: float, like: ColorLike) -> None:
        """Blend with one gray."""
        self._blend(np.array(gray), factor, like)

    def blend(self, factor: float, like: ColorLike) -> None:
        """Blend with the gray of each pixel."""
        self._blend(self._luma(like), factor, like)

    def turn(self, shift: float, like: ColorLike) -> None:
        """Turn the hue."""
        turn = (_whole if like == "pillow" else _real)(np.array(turn_of(shift, like)))
        self._planes = list(turned(self._pixel, turn, like))

    def _blend(self, gray: Value, factor: float, like: ColorLike) -> None:
        by = np.float32(factor), rest_of(factor)
        self._planes = [blended(plane, gray, by, like) for plane in self._planes]

    def _luma(self, like: ColorLike) -> Value:
        return self._planes[0] if len(self._planes) == 1 else luma(self._pixel, like)

    @property
    def _pixel(self) -> Pixel:
        red, green, blue = self._planes
        return red, green, blue


class Words:
    """``Planes`` by the kernels in C, of images of three channels: a copy, of four bytes a pixel."""

    def __init__(self, image: U8) -> None:
        height, width, _ = image.shape
        self.count = height * width
        self._memory = np.empty(-(-self.count // native.LANES) * native.LANES, np.uint32)
        self._address = self._memory.ctypes.data
        self._pixels = self._memory[: self.count].reshape(height, width)
        self._bytes = self._pixels.view(np.uint8).reshape(height, width, 4)[:, :, :3]
        row, column, channel = image.strides
        self._directions = slice(None, None, -1 if row < 0 else 1), slice(None, None, -1 if column < 0 else 1)
        image = image[self._directions]
        if abs(column) == 4 and channel == 1 and row % 4 == 0 and image.ctypes.data % 4 == 0:
            words = np.lib.stride_tricks.as_strided(image, (height, width, 4))
            self._pixels[...] = words.view(np.uint32)[:, :, 0]
        else:
            self._bytes[...] = image

    @property
    def image(self) -> U8:
        """See ``Planes``."""
        return self._bytes[self._directions]

    def look_up(self, tables: U8) -> None:
        """See ``Planes``."""
        tables = np.ascontiguousarray(tables)
        told = native.Colours(self._address, self.count, curves=tables.ctypes.data)
        native.kernels().look_up_colours(byref(told))

    def histograms(self) -> npt.NDArray[np.uint32]:
        """See ``Planes``."""
        counts = np.zeros((3, 256), np.uint32)
        native.kernels().count_levels(byref(native.Colours(self._address, self.count, counts=counts.ctypes.data)))
        return counts

    def total(self, like: ColorLike) -> int:
        """See ``Planes``."""
        self._memory[self.count :] = 0
        told = native.Colours(self._address, self.count, like=_LIKES.index(like))
        native.kernels().add_luma(byref(told))
        return int(told.total)

    def fade(self, gray: float, factor: float, like: ColorLike) -> None:
        """See ``Planes``."""
        told = native.Colours(self._address, self.count, 0, gray, factor, rest_of(factor), _LIKES.index(like))
        native.kernels().fade(byref(told))

    def blend(self, factor: float, like: ColorLike) -> None:
        """See ``Planes``."""
        told = native.Colours(self._address, self.count, 0, 0, factor, rest_of(factor), _LIKES.index(like))
        native.kernels().blend(byref(told))

    def turn(self, shift: float, like: ColorLike) -> None:
        """See ``Planes``."""
        told = native.Colours(self._address, self.count, turn_of(shift, like), like=_LIKES.index(like))
        native.kernels().turn(byref(told))


def luma(pixel: Pixel, like: ColorLike) -> Value:
    """The gray of a pixel, a level.

    pillow: ``(19595 red + 38470 green + 7471 blue + 32768) >> 16``.
    torchvision: ``floor(fma(blue, 0.114f, fma(green, 0.587f, red * 0.2989f)))`` in float32.
    """
    red, green, blue = pixel
    if like == "pillow":
        return (red * 19595 + green * 38470 + blue * 7471 + 32768) >> 16
    gray = _real(red) * 0.2989
    return _whole(_fused(blue, 0.114, _fused(green, 0.587, gray)))


def blended(level: Value, gray: Value, by: tuple[Value, Value], like: ColorLike) -> Value:
    """A level blended with gray, all in float32, cut off to whole levels from 0 to 255.

    pillow: ``gray + factor * (level - gray)``. torchvision: ``fma(gray, rest, level * factor)``.

    Args:
        level: whole.
        gray: whole, or double where it is the mean of an image.
        by: the factor, real, and for torchvision ``rest_of`` it, double.
        like: whose rounding.
    """
    factor, rest = by
    if like == "pillow":
        base = _real(gray)
        value = base + factor * (_real(level) - base)
    else:
        value = _fused(gray, rest, _real(level) * factor)
    return _whole(_clipped(value, 255))


def turned(pixel: Pixel, turn: Value, like: ColorLike) -> Pixel:
    """A pixel whose hue is turned.

    Args:
        pixel: whole.
        turn: ``turn_of`` the shift, for Pillow whole, else real.
        like: whose rounding.
    """
    red, green, blue = pixel
    top, low = _most(_most(red, green), blue), _least(_least(red, green), blue)
    middle = red + green + blue - top - low
    is_red, is_green = red == top, green == top
    # Of (top - channel) / (top - low), which both libraries form of each channel, two are 0 and 1. What is left is x.
    is_falling = _where(is_red, blue == low, _where(is_green, red == low, green == low))
    base = _where(is_red, 0, _where(is_green, 2, top * 0 + 4))
    hues = _turned_pillow if like == "pillow" else _turned_torchvision
    sector, p, other = hues((top, middle, low), (base, is_falling), turn)
    sector = _where(sector == 6, 0, sector)
    sixth = [sector == index for index in range(6)]
    return (
        _where(sixth[0] | sixth[5], top, _where(sixth[1] | sixth[4], other, p)),
        _where(sixth[1] | sixth[2], top, _where(sixth[0] | sixth[3], other, p)),
        _where(sixth[3] | sixth[4], top, _where(sixth[2] | sixth[5], other, p)),
    )


def rest_of(factor: float) -> float:
    """``float32(1 - factor)``, where ``1 - factor`` is of float64."""
    return float(np.float32(1 - factor))


def turn_of(shift: float, like: ColorLike) -> float:
    """Turn of a hue. pillow: ``int(shift * 255) mod 256`` of 256; torchvision: ``float32(shift)``."""
    return int(shift * 255) % 256 if like == "pillow" else float(np.float32(shift))


def _turned_pillow(ordered: Pixel, corner: tuple[Value, Value], turn: Value) -> Pixel:
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
    x = _real(top - middle) / _real(_positive(span))
    h = _where(is_falling, _real(base + 1) - x, _real(base - 1) + x) / 6
    hue = (_whole(_where(h < 0, h + 1, h) * 255) + turn) & 255
    saturation = _whole(_real(span) / _real(_positive(top)) * 255)
    sector = ((hue * 6 + 1) * 257) >> 16
    phi = hue * 6 - sector * 255
    phi = _where((sector & 1) == 1, phi, 255 - phi)

    def part(phi: Value) -> Value:
        return _whole(_real(top * (65025 - saturation * phi)) * (1 / 65025) + 0.5)

    return sector, part(255), part(phi)


def _turned_torchvision(ordered: Pixel, corner: tuple[Value, Value], turn: Value) -> Pixel:
    """Turn the hue as ``_turned_pillow`` does, all in float32.

    Levels times ``1/255f``; ``s = (top - low) / top``; ``h = base + 1 - x`` where the hue falls, else
    ``(x + base) - 1``; ``h = (h * (1/6f) + 1) mod 1``; ``h = (h + turn) mod 1``, where 1 is added to what is negative.
    Back: ``y = h * 6``, ``sector = floor(y)``, ``f = y - sector``; ``p = (1 - s) * top``, ``q = (1 - s * f) * top``,
    ``t = (s * f + (1 - s)) * top``, each clipped to 0 to 1, times ``255.999f``, cut off. For top that gives top again.
    """
    one = _real(_positive(ordered[0])) * (1 / 255)
    top, middle, low = (_real(level) * (1 / 255) for level in ordered)
    base, is_falling = corner
    span = top - low
    x = (top - middle) / _where(span > 0, span, one)
    s = span / one
    h = _where(is_falling, _real(base + 1) - x, (x + _real(base)) - 1)
    h = h * (1 / 6) + 1
    h = _where(h < 1, h, h - 1) + turn
    h = _where(h < 1, _where(h < 0, h + 1, h), h - 1)
    y = h * 6
    sector = _whole(y)
    product, rest = s * (y - _real(sector)), 1 - s
    share = _where((sector & 1) == 1, 1 - product, product + rest)
    return sector, _level(rest * top), _level(share * top)


def _level(value: Value) -> Value:
    return _whole(_clipped(value, 1) * 255.999)


def _clipped(value: Value, most: int) -> Value:
    """From 0 to ``most``."""
    value = _where(value > 0, value, 0)
    return _where(value < most, value, most)


def _fused(a: Value, b: Value, c: Value) -> Value:
    """``fma(a, b, c)`` of float32, where b is a number or double.

    Float64 holds the product, and the sum too unless b, or what c was multiplied by, is below 1/4096.
    """
    if isinstance(b, float):
        b = float(np.float32(b))
    return _real(_double(a) * b + _double(c))


def _positive(level: Value) -> Value:
    """1 in place of 0."""
    return _where(level > 0, level, 1)


def _most(a: Value, b: Value) -> Value:
    return _where(a > b, a, b)


def _least(a: Value, b: Value) -> Value:
    return _where(a < b, a, b)


def _where(condition: Value, one: Value | int, other: Value | int) -> Value:
    """One or the other; a Python number is of the type of what is none."""
    if isinstance(one, int):
        one = other.dtype.type(one)  # type: ignore[union-attr]
    if isinstance(other, int):
        other = one.dtype.type(other)
    return np.where(condition, one, other)


def _whole(values: Value) -> Value:
    """Convert to int32, cut off."""
    return values.astype(np.int32)


def _real(values: Value) -> Value:
    """Convert to float32."""
    return values.astype(np.float32)


def _double(values: Value) -> Value:
    """Convert to float64."""
    return values.astype(np.float64)
