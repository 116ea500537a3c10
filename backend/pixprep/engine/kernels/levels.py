"""Runs the steps of ``pixprep.plan.steps.levels`` on pixel values, rounded as in Pillow or torchvision, on the CPU."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any, cast

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import as_strided

from pixprep.engine.kernels.colours import Gray, Words
from pixprep.engine.kernels.filters import filtered
from pixprep.engine.kernels.resampling import resampled
from pixprep.engine.kernels.resize import blank, copied, move
from pixprep.engine.kernels.warp import warped
from pixprep.errors import unreachable
from pixprep.plan.profiles import COLOURS
from pixprep.plan.steps.curves import Curve
from pixprep.plan.steps.hsv import Hsv
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
)
from pixprep.plan.steps.warps import Warp
from pixprep.spec import Own, PaddingMode

U8 = npt.NDArray[np.uint8]
ColourStep = Curve | Blend | Hue | Hsv | ColorMatrix | Tone


def done(steps: Sequence[LevelStep], image: U8) -> U8:
    """Apply steps to an image.

    Args:
        steps: Steps of a ``Placement``.
        image: Array of uint8 (height, width, channels) with 1 or 3 channels and any strides; not modified.

    Returns:
        Array of uint8 with the size after the steps.
    """
    for is_colour, these in groupby(steps, lambda step: isinstance(step, ColourStep)):
        if is_colour:
            image = coloured(cast("Iterable[ColourStep]", these), image)
        else:
            for step in these:
                image = _KERNELS[type(step)](step, image)
    return image


def _erased(step: Erase, image: U8) -> U8:
    erased = copied(image)
    erased[step.top : step.top + step.height, step.left : step.left + step.width] = step.values
    return erased


def coloured(steps: Iterable[ColourStep], image: U8) -> U8:
    """Apply steps that do not move pixels; see ``done``."""
    if not image.size:
        return image
    pixels = Gray(image) if image.shape[2] == 1 else Words(image)
    for step in steps:
        match step:
            case Curve() if step.factor is not None:
                pixels.fade(0, step.factor, "pillow")  # both libraries: levels times the factor, in float32
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
                pixels.look_up(np.stack([tone(step, counts) for counts in pixels.histograms()]))
            case Blend():
                pixels.blend(step.factor, step.like)
            case Hue():
                pixels.turn(step.shift, step.like)
            case ColorMatrix():
                pixels.mix(step.numbers)
            case Hsv():
                pixels.shift(np.frombuffer(step.hues, np.uint8), step.saturation, step.value)
            case _ as never:
                unreachable(never)
    return pixels.image


def measured(number: Own, image: U8) -> float:
    """Return the maximum or the mean of an image's pixel values, (height, width, channels); 1 instead of 0."""
    counts = (Gray(image) if image.shape[2] == 1 else Words(image)).histograms().sum(axis=0, dtype=np.int64)
    levels = np.arange(256)
    value = levels[counts > 0][-1] if number == "max" else (counts * levels).sum() / counts.sum()
    return float(value) or 1.0


def tone(step: Tone, counts: npt.NDArray[Any]) -> U8:
    """Return the look-up table (256,) of a channel, computed from its histogram.

    autocontrast: The minimum and maximum pixel values become 0 and 255. A constant channel does not change.
    equalize: ``(step // 2 + number of pixels below the value) // step``, at most 255, where ``step`` is 1/255 of the
    number of pixels below the maximum value, rounded down. If ``step`` is 0, the channel does not change. Pillow and
    torchvision agree.
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
    words, channels = _words(image), image.shape[2]
    total = np.multiply(words, own, dtype=np.float32)
    for weight, chain in zip(weights, step.chains, strict=True):
        total += np.multiply(_words(done(chain, words[:, :, :channels])), weight, dtype=np.float32)
    return total.astype(np.uint8)[:, :, :channels]


def _words(image: U8) -> U8:
    """Return an image with the unused fourth byte of each pixel, copied to ``blank`` memory if necessary.

    A gray image is returned unchanged. NumPy adds four images of 224 x 224 in 0.26 ms with all four bytes per pixel,
    and in 1.8 ms with three of four bytes.
    """
    if image.shape[2] == 1:
        return image
    if image.strides[1:] != (4, 1) or image.ctypes.data % 4:
        image = copied(image)
    return as_strided(image, (*image.shape[:2], 4), writeable=False)


def _permuted(step: Permute, image: U8) -> U8:
    if image.shape[2] == 1:
        return image
    permuted = blank(*image.shape)
    for target, source in enumerate(step.order):
        move(image[:, :, source : source + 1], permuted[:, :, target : target + 1])
    return permuted


def beyond(positions: npt.NDArray[np.int64], length: int, mode: PaddingMode) -> npt.NDArray[np.int64]:
    """Map positions on an axis to 0 to ``length`` - 1, by any padding mode other than ``constant``."""
    if mode == "edge" or length == 1:
        return positions.clip(0, length - 1)
    period = 2 * length - (2 if mode == "reflect" else 0)
    positions = positions % period
    return np.where(positions < length, positions, (period if mode == "reflect" else period - 1) - positions)


def _taken(step: Take, image: U8) -> U8:
    if step.mode != "constant" and not step.is_inside(*image.shape[:2]):
        for axis, (first, length) in enumerate(((step.top, step.height), (step.left, step.width))):
            image = image.take(beyond(np.arange(first, first + length), image.shape[axis], step.mode), axis)
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
    Erase: _erased,
    Filter: filtered,
    Mix: _mixed,
    Permute: _permuted,
    Resample: resampled,
    Take: _taken,
    Warp: warped,
}
"""Kernels of the steps that ``coloured`` does not handle; ``kernels.staged`` calls custom operators."""
