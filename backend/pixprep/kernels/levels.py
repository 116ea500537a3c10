"""The level steps of a plan on the CPU, in NumPy: what ``pixprep.levels`` says, as Pillow or torchvision rounds it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from pixprep.errors import unreachable
from pixprep.kernels.filters import filtered
from pixprep.kernels.warp import warped
from pixprep.levels import Blend, Curve, Erase, Filter, Hue, LevelStep, Take, Tone, Warp
from pixprep.spec import ColorLike

U8 = npt.NDArray[np.uint8]


def done(steps: Sequence[LevelStep], image: U8) -> U8:
    """The image after its steps.

    Args:
        steps: of a ``Placement``.
        image: uint8 (height, width, channels), 1 or 3 channels, any strides; it is not written to.

    Returns:
        uint8, of the size after the steps.
    """
    for step in steps:
        image = _done(step, image)
    return image


def _done(step: LevelStep, image: U8) -> U8:
    match step:
        case Curve():
            return step.of(image)
        case Blend():
            return _blended(step, image)
        case Take():
            return _taken(step, image)
        case Erase():
            erased = image.copy()
            erased[step.top : step.top + step.height, step.left : step.left + step.width] = step.values
            return erased
        case Warp():
            return warped(step, image)
        case Filter():
            return filtered(step, image)
        case Hue():
            return image if image.shape[2] == 1 else _TURNED[step.like](image, step.shift)
        case Tone():
            tables = np.stack([tone(step, histogram(image[:, :, channel])) for channel in range(image.shape[2])])
            toned: U8 = tables[np.arange(image.shape[2]), image]
            return toned
        case _ as never:
            return unreachable(never)


def luma(image: U8, like: ColorLike) -> U8:
    """(height, width): the gray of each pixel; of a gray image itself.

    pillow: ``(19595 red + 38470 green + 7471 blue + 32768) >> 16``, in whole numbers.
    torchvision: ``floor(fma(blue, 0.114f, fma(green, 0.587f, red * 0.2989f)))`` in float32.
    """
    if image.shape[2] == 1:
        return image[:, :, 0]
    red, green, blue = (image[:, :, channel] for channel in range(3))
    if like == "pillow":
        weighted = np.full(red.shape, 0x8000, np.uint32)
        for part, share in ((red, 19595), (green, 38470), (blue, 7471)):
            weighted += np.multiply(part, share, dtype=np.uint32)
        return (weighted >> 16).astype(np.uint8)
    gray = red.astype(np.float32) * np.float32(0.2989)
    for part, weight in ((green, 0.587), (blue, 0.114)):
        gray = _fused(part, np.float32(weight), gray)
    return gray.astype(np.uint8)


def mean_gray(total: int, count: int, like: ColorLike) -> float:
    """What ``contrast`` blends with, by the sum of the luma of so many pixels.

    pillow: ``int(total / count + 0.5)``, in float64. torchvision: ``total / count``, both and the quotient in float32.
    PyTorch adds in float32, which is exact below 2^24, that is up to 65,793 white pixels; beyond it depends on its
    threads.
    """
    if like == "pillow":
        return int(total / count + 0.5)
    return float(np.float32(total) / np.float32(count))


def blended(values: npt.NDArray[np.uint8], gray: npt.NDArray[Any], factor: float, like: ColorLike) -> U8:
    """Levels blended with gray, all in float32; then cut off to whole levels from 0 to 255.

    pillow: ``gray + factor * (level - gray)``, every operation rounded.
    torchvision: ``fma(gray, float(1 - factor), level * factor)``, where ``1 - factor`` is of float64.
    """
    if like == "pillow":
        base = gray.astype(np.float32)
        result = base + np.float32(factor) * (values.astype(np.float32) - base)
    else:
        result = _fused(gray, np.float32(1 - factor), values.astype(np.float32) * np.float32(factor))
    return result.clip(0, 255).astype(np.uint8)


def mean_curve(mean: float, factor: float, like: ColorLike) -> Curve:
    """The blend with the mean gray of an image, which is the same for all of its pixels."""
    return Curve(blended(np.arange(256, dtype=np.uint8), np.array(mean), factor, like).tobytes())


def _fused(a: npt.NDArray[Any], b: np.float32, c: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """``fma(a, b, c)`` of float32.

    Float64 holds the product, and the sum too unless b, or what c was multiplied by, is below 1/4096.
    """
    sums = a.astype(np.float64) * np.float64(b) + c.astype(np.float64)
    return sums.astype(np.float32)


def _blended(step: Blend, image: U8) -> U8:
    if step.gray == "mean":
        gray = luma(image, step.like)
        return mean_curve(mean_gray(int(gray.sum(dtype=np.int64)), gray.size, step.like), step.factor, step.like).of(
            image
        )
    if image.shape[2] == 1:
        return image
    return blended(image, luma(image, step.like)[:, :, None], step.factor, step.like)


def _turned_pillow(image: U8, shift: float) -> U8:
    """Pillow's RGB to HSV of bytes, ``int(shift * 255)`` added to the hue, modulo 256, and back.

    With ``top``, ``low`` the largest and smallest level and ``range = top - low``, in float32 unless it says (64):
    ``r = (top - red) / range``, also g and b;
    ``h = b - g`` if top is red, ``2 + r - b`` (64) if it is green, else ``4 + g - r`` (64), rounded to float32;
    ``h = (h / 6 + 1) mod 1`` (64), rounded to float32; ``hue = int(h * 255)`` (64);
    ``saturation = int(range / top * 255)``, the product (64). Both are 0 where the range is.

    Back: ``x = hue * 6 / 255`` (64), ``i = floor(x)``, ``f = x - i`` (64), rounded to float32, ``s = saturation / 255``
    (64), rounded to float32; and ``p = top * (1 - s)``, ``q = top * (1 - s * f)``, where ``s * f`` is of float32 and
    the rest (64), ``t = top * (1 - s * (1 - f))`` (64), each rounded half up. The pixel is (top, t, p), (q, top, p),
    (p, top, t), (p, q, top), (t, p, top), (top, p, q) by ``i`` modulo 6; without saturation (top, top, top).
    """
    f32, f64 = np.float32, np.float64
    top, span = image.max(axis=2), np.ptp(image, axis=2)
    divisor = np.maximum(span, 1).astype(f32)
    r, g, b = ((top - image[:, :, channel]).astype(f32) / divisor for channel in range(3))
    red_is_top, green_is_top = image[:, :, 0] == top, image[:, :, 1] == top
    second, third = ((f64(base) + x - y).astype(f32) for base, x, y in ((2, r.astype(f64), b), (4, g.astype(f64), r)))
    h = np.where(red_is_top, b - g, np.where(green_is_top, second, third))
    h = np.fmod(h.astype(f64) / 6 + 1, 1).astype(f32)
    hue = np.where(span == 0, 0, (h.astype(f64) * 255).astype(np.int64)).clip(0, 255)
    saturation = (span.astype(f32) / np.maximum(top, 1).astype(f32)).astype(f64) * 255
    x = ((hue + int(shift * 255)) % 256) * 6.0 / 255.0
    sector = np.floor(x)
    f = (x - sector).astype(f32)
    s = (np.floor(saturation) / 255).astype(f32)
    v = top.astype(f64)
    parts = (1 - s.astype(f64), 1 - (s * f).astype(f64), 1 - s.astype(f64) * (1 - f.astype(f64)))
    p, q, t = (np.floor(v * part + 0.5).astype(np.uint8) for part in parts)
    return _by_sector(sector.astype(np.int64) % 6, top, p, q, t)


def _turned_torchvision(image: U8, shift: float) -> U8:
    """Torchvision's RGB to HSV of float32, the shift added to the hue, modulo 1, and back; every operation is rounded.

    Levels times ``1/255f``; with ``top``, ``low`` the largest and smallest and ``range = top - low``:
    ``s = range / top``, ``r = (top - red) / range``, also g and b, each divisor 1 where the range is 0;
    ``h = b - g`` if top is red, ``r + 2 - b`` if it is green, else ``g + 4 - r``;
    ``h = (h * (1/6f) + 1) mod 1``; ``h = (h + shift) mod 1``: ``fmod(h + shift, 1)``, plus 1 if that is negative.

    Back: ``x = h * 6``, ``i = floor(x)``, ``f = x - i``; ``p = (1 - s) * top``, ``q = (1 - s * f) * top``,
    ``t = (s * f + (1 - s)) * top``, each clipped to 0 to 1; the pixel as in Pillow's; each times ``255.999f``, cut off.
    """
    one = np.float32(1)
    red, green, blue = (image[:, :, channel].astype(np.float32) * np.float32(1 / 255) for channel in range(3))
    top, low = np.maximum(np.maximum(red, green), blue), np.minimum(np.minimum(red, green), blue)
    span, is_gray = top - low, top == low
    s, divisor = span / np.where(is_gray, one, top), np.where(is_gray, one, span)
    r, g, b = ((top - channel) / divisor for channel in (red, green, blue))
    h = np.where(red == top, b - g, np.where(green == top, r + np.float32(2) - b, g + np.float32(4) - r))
    h = np.fmod(h * np.float32(1 / 6) + one, one)
    h = np.fmod(h + np.float32(shift), one)
    h = np.where(h < 0, h + one, h)
    x = h * np.float32(6)
    sector = np.floor(x)
    product, rest = s * (x - sector), one - s
    parts = (top, *((factor * top).clip(0, 1) for factor in (rest, one - product, product + rest)))
    v, p, q, t = ((part * np.float32(255.999)).astype(np.uint8) for part in parts)
    return _by_sector(sector.astype(np.int64) % 6, v, p, q, t)


def _by_sector(sector: npt.NDArray[np.int64], v: U8, p: U8, q: U8, t: U8) -> U8:
    """(height, width, 3): what each sixth of the circle makes of HSV's four levels."""
    channels = ((v, q, p, p, t, v), (t, v, v, q, p, p), (p, p, t, v, v, q))
    return np.stack([np.choose(sector, each) for each in channels], axis=2)


_TURNED = {"pillow": _turned_pillow, "torchvision": _turned_torchvision}


def histogram(levels: U8) -> npt.NDArray[np.int64]:
    """How often each of the 256 levels is there."""
    return np.bincount(levels.ravel(), minlength=256)


def tone(step: Tone, counts: npt.NDArray[np.int64]) -> U8:
    """(256,): the curve of a channel, by its histogram.

    autocontrast: lowest and highest level become 0 and 255, and one level alone stays. pillow: ``int(level * scale -
    low * scale)`` with ``scale = 255 / (high - low)``, in float64. torchvision: ``(level - low) / ((high - low) *
    (1/255f))`` in float32, cut off.
    equalize: ``(step // 2 + the pixels below the level) // step``, at most 255, where ``step`` is 1/255 of the pixels
    below the highest level, rounded down; no change where it is 0. Both libraries agree.
    """
    every = np.arange(256)
    values: npt.NDArray[Any]
    present = counts.nonzero()[0]
    low, high = int(present[0]), int(present[-1])
    if step.kind == "equalize":
        size = int(counts.sum() - counts[high]) // 255
        values = (size // 2 + counts.cumsum() - counts) // size if size else every
    elif low == high:
        values = every
    elif step.like == "pillow":
        scale = 255.0 / (high - low)
        values = (every * scale + -low * scale).clip(0, 255)
    else:
        values = (every - low).astype(np.float32) / (np.float32(high - low) * np.float32(1 / 255))
    return values.clip(0, 255).astype(np.uint8)


def _taken(step: Take, image: U8) -> U8:
    channels = image.shape[2]
    top, left = max(step.top, 0), max(step.left, 0)
    seen = image[top : max(step.top + step.height, 0), left : max(step.left + step.width, 0)]
    if seen.shape[:2] != (step.height, step.width):
        canvas = np.empty((step.height, step.width, channels), np.uint8)
        canvas[...] = step.fill
        if seen.size:
            top, left = top - step.top, left - step.left
            canvas[top : top + seen.shape[0], left : left + seen.shape[1]] = seen
        seen = canvas
    return seen[:: -1 if step.flips[0] else 1, :: -1 if step.flips[1] else 1]
