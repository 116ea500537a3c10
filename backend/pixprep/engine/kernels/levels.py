"""Run the steps of ``pixprep.plan.steps.levels`` on the CPU, rounded as in the library that each step reproduces."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from ctypes import byref
from itertools import groupby
from math import sqrt
from typing import Any, cast

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import as_strided

from pixprep.engine.kernels.colours import ColorPixels, GrayPixels, filtered
from pixprep.engine.kernels.native import STRUCTS, library
from pixprep.engine.kernels.neighborhoods import compressed, equalized, filtered_by_neighborhood, noisy
from pixprep.engine.kernels.resampling import resampled
from pixprep.engine.kernels.resize import blank, copied, move
from pixprep.engine.kernels.warp import warped
from pixprep.errors import unreachable
from pixprep.plan.profiles import COLOURS
from pixprep.plan.profiles.windows import multiply_add
from pixprep.plan.steps.arithmetic import Statistic
from pixprep.plan.steps.curves import Curve, Hsv
from pixprep.plan.steps.levels import (
    Blend,
    ColorMatrix,
    Erase,
    Filter,
    Hue,
    LevelStep,
    Mix,
    Permute,
    Resample,
    Take,
    Tone,
    Trim,
)
from pixprep.plan.steps.neighborhoods import Clahe, Compress, Neighborhood, Noise
from pixprep.plan.steps.warps import Warp
from pixprep.spec import Luma, Own, PaddingMode

U8 = npt.NDArray[np.uint8]
ColourStep = Curve | Blend | Hue | Hsv | ColorMatrix | Tone


def apply_steps(steps: Sequence[LevelStep], image: U8) -> U8:
    """Apply steps to an image.

    Args:
        steps: Steps of a ``Placement``.
        image: Array of uint8 (height, width, channels) with 1 or 3 channels and any strides; not modified.

    Returns:
        Array of uint8 with the size after the steps.
    """
    for is_colour, group in groupby(steps, lambda step: step.is_color):
        if is_colour:
            image = apply_color_steps(cast("Iterable[ColourStep]", group), image)
        else:
            for kind, steps_of_kind in groupby(group, type):
                if kind is Erase:
                    image = _erased(cast("Iterable[Erase]", steps_of_kind), image)
                else:
                    for step in steps_of_kind:
                        image = _KERNELS[kind](step, image)
    return image


def _erased(steps: Iterable[Erase], image: U8) -> U8:
    erased = copied(image)
    for step in steps:
        erased[step.top : step.top + step.height, step.left : step.left + step.width] = step.values
    return erased


def apply_color_steps(steps: Iterable[ColourStep], image: U8) -> U8:
    """Apply steps that change colors but do not move pixels; see ``apply_steps``."""
    if not image.size:
        return image
    pixels = GrayPixels(image) if image.shape[2] == 1 else ColorPixels(image)
    for step in steps:
        match step:
            case Curve() if step.factor is not None:
                pixels.fade(0, step.factor, "pillow")  # both libraries multiply pixel values by the factor in float32
            case Curve():
                pixels.look_up(np.tile(np.frombuffer(step.table, np.uint8), (3, 1)))
            case Blend(gray="mean"):
                profile = COLOURS[step.like]
                mean = profile.mean(pixels.total(step.like), pixels.count)
                if profile.contrast is None:
                    pixels.fade(mean, step.factor, step.like)
                else:
                    pixels.look_up(np.tile(profile.contrast(mean, step.factor).astype(np.uint8), (3, 1)))
            case Tone():
                pixels.look_up(np.stack([tone_table(step, counts) for counts in pixels.histograms()]))
            case Blend():
                pixels.blend(step.factor, step.like)
            case Hue():
                pixels.rotate_hue(step.shift, step.like)
            case ColorMatrix():
                pixels.mix(step.numbers)
            case Hsv():
                pixels.shift(np.frombuffer(step.hues, np.uint8), step.saturation, step.value)
            case _ as never:
                unreachable(never)
    return pixels.image


def statistic(number: Own, image: U8) -> Statistic:
    """Return a statistic of all pixel values of an image (height, width, channels).

    For ``max`` and ``mean``, the statistic is one number, and 0 is replaced by 1. For ``standardize``, it is the mean
    and the standard deviation. A standard deviation below ``1 / sqrt(n)`` for n values is replaced by this limit. The
    mean and the standard deviation are computed in float32 with NumPy's pairwise summation.
    """
    if number == "standardize":
        pixels = np.ascontiguousarray(image)
        mean = _pairwise_mean(pixels)
        least = np.float32(1 / sqrt(pixels.size))
        return float(mean), float(max(np.sqrt(_pairwise_mean(pixels, mean)), least))
    counts = (GrayPixels(image) if image.shape[2] == 1 else ColorPixels(image)).histograms().sum(axis=0, dtype=np.int64)
    levels = np.arange(256)
    value = levels[counts > 0][-1] if number == "max" else (counts * levels).sum() / counts.sum()
    return (float(value) or 1.0,)


def _pairwise_mean(pixels: U8, mean: np.float32 | None = None) -> np.float32:
    """Return the mean of the values of a contiguous array, or the mean of their squared differences from ``mean``."""
    is_variance = mean is not None
    sums = STRUCTS["pairwise_sum"](pixels.ctypes.data, pixels.size, mean if is_variance else 0.0, is_variance)
    library().add_pairwise(byref(sums))
    return np.float32(sums.sum / pixels.size)


def to_luma(values: npt.NDArray[np.float32], channels: Sequence[int], like: Luma) -> npt.NDArray[np.float32]:
    """Return an image whose channels are the luma of the values, or the values themselves if their channels are equal.

    Args:
        values: Array of float32 (3, height, width).
        channels: Decoded channel (0 red, 1 green, 2 blue) that each channel contains.
        like: Library whose rounding is reproduced; see the field ``luma`` of the op ``normalize``.
    """
    if (values == values[:1]).all():
        return values
    red, green, blue = (values[channels.index(channel)] for channel in range(3))
    factors = np.array([0.2989, 0.587, 0.114], np.float32)
    luma = red * factors[0]
    for plane, factor in ((green, factors[1]), (blue, factors[2])):
        luma = multiply_add(plane, factor, luma) if like == "torchvision" else luma + plane * factor
    return np.broadcast_to(luma, values.shape)


def tone_table(step: Tone, counts: npt.NDArray[Any]) -> U8:
    """Return the look-up table (256,) of a channel, computed from its histogram.

    ``autocontrast`` maps the minimum and the maximum pixel value to 0 and 255. A constant channel does not change.

    ``equalize`` maps a value to ``(step // 2 + n) // step``, at most 255, where ``n`` is the number of pixels with
    lower values, and ``step`` is the number of pixels below the maximum value divided by 255, rounded down. If ``step``
    is 0, the channel does not change. Pillow and torchvision compute the same table.
    """
    every = np.arange(256)
    present = counts.nonzero()[0]
    low, high = int(present[0]), int(present[-1])
    if step.kind == "equalize":
        size = int(counts.sum() - counts[high]) // 255
        values = (size // 2 + counts.cumsum() - counts) // size if size else every
    else:
        values = every if low == high else COLOURS[step.like].autocontrast(low, high)
    return values.clip(0, 255).astype(np.uint8)


def _mixed(step: Mix, image: U8) -> U8:
    own, *weights = np.array(step.weights, np.float32)
    whole, channels = _with_fourth_byte(image), image.shape[2]
    total = np.multiply(whole, own, dtype=np.float32)
    for weight, chain in zip(weights, step.chains, strict=True):
        total += np.multiply(_with_fourth_byte(apply_steps(chain, whole[:, :, :channels])), weight, dtype=np.float32)
    return total.astype(np.uint8)[:, :, :channels]


def _with_fourth_byte(image: U8) -> U8:
    """Return a view of an image that includes the unused fourth byte of each pixel.

    If the image does not have this byte, it is copied to ``blank`` memory. A gray image is returned unchanged. NumPy
    adds four images of 224 x 224 in 0.26 ms if it processes all four bytes per pixel, and in 1.8 ms for three bytes.
    """
    if image.shape[2] == 1:
        return image
    if image.strides[1:] != (4, 1) or image.ctypes.data % 4:
        image = copied(image)
    return as_strided(image, (*image.shape[:2], 4), writeable=False)


def trimmed(step: Trim, image: U8) -> U8:
    """Crop an image (height, width, channels) as ``Trim`` specifies, and return a view of it."""
    luma = apply_color_steps((Blend("own", 0.0, step.like),), image)[:, :, 0]
    low, high = int(luma.min()), int(luma.max())
    if low == high:
        return image
    dtype: Any = np.float32 if step.like == "torchvision" else np.float64
    stretched = (np.arange(256) - low).astype(dtype) / dtype(high - low) * dtype(255)
    is_dark = (stretched < step.threshold)[luma]
    (rows,), (columns,) = is_dark.any(axis=1).nonzero(), is_dark.any(axis=0).nonzero()
    return image[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]


def _permuted(step: Permute, image: U8) -> U8:
    if image.shape[2] == 1:
        return image
    permuted = blank(*image.shape)
    for target, source in enumerate(step.order):
        move(image[:, :, source : source + 1], permuted[:, :, target : target + 1])
    return permuted


def inside(positions: npt.NDArray[np.int64], length: int, mode: PaddingMode) -> npt.NDArray[np.int64]:
    """Map positions outside an axis to 0 … ``length`` - 1 with any padding mode except ``constant``."""
    if mode == "edge" or length == 1:
        return positions.clip(0, length - 1)
    period = 2 * length - (2 if mode == "reflect" else 0)
    positions = positions % period
    return np.where(positions < length, positions, (period if mode == "reflect" else period - 1) - positions)


def _taken(step: Take, image: U8) -> U8:
    if step.mode == "first_pixel":
        step = step.changed(fill=tuple(image[0, 0].tolist()))
    elif step.mode != "constant" and not step.is_inside(*image.shape[:2]):
        for axis, (first, length) in enumerate(((step.top, step.height), (step.left, step.width))):
            image = image.take(inside(np.arange(first, first + length), image.shape[axis], step.mode), axis)
        step = step.changed(top=0, left=0)
    channels = image.shape[2]
    top, left = max(step.top, 0), max(step.left, 0)
    seen = image[top : max(step.top + step.height, 0), left : max(step.left + step.width, 0)]
    if seen.shape[:2] != (step.height, step.width):
        canvas = np.empty((step.height, step.width, channels), image.dtype)
        canvas[...] = step.fill
        if seen.size:
            top, left = top - step.top, left - step.left
            canvas[top : top + seen.shape[0], left : left + seen.shape[1]] = seen
        seen = canvas
    return seen[:: -1 if step.flips[0] else 1, :: -1 if step.flips[1] else 1]


_KERNELS: Mapping[type[LevelStep], Callable[[Any, U8], U8]] = {
    Clahe: equalized,
    Compress: compressed,
    Filter: filtered,
    Mix: _mixed,
    Neighborhood: filtered_by_neighborhood,
    Noise: noisy,
    Permute: _permuted,
    Resample: resampled,
    Take: _taken,
    Warp: warped,
}
"""Functions that run the steps that ``apply_steps`` does not run itself. ``kernels.staged`` calls custom operators."""
