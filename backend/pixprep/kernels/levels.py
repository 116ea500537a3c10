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
        case Hue() | Tone():
            raise NotImplementedError(type(step).__name__)
        case _ as never:
            return unreachable(never)


def luma(image: U8, like: ColorLike) -> npt.NDArray[Any]:
    """(height, width) of an image, gray as it is: Pillow's of 16 bits, rounded; torchvision's of float32, cut off."""
    if image.shape[2] == 1:
        return image[:, :, 0]
    if like == "pillow":
        weighted: npt.NDArray[np.uint32] = image.astype(np.uint32) @ np.array([19595, 38470, 7471], np.uint32)
        return (weighted + 0x8000 >> 16).astype(np.uint8)
    red, green, blue = (image[:, :, channel].astype(np.float32) for channel in range(3))
    weighted = red * np.float32(0.2989) + green * np.float32(0.587) + blue * np.float32(0.114)
    return np.floor(weighted).astype(np.uint8)


def _blended(step: Blend, image: U8) -> U8:
    gray = luma(image, step.like)
    factor = np.float32(step.factor)
    values = image.astype(np.float32)
    if step.like == "pillow":
        if step.gray == "mean":
            gray = np.full_like(gray, int(gray.mean(dtype=np.float64) + 0.5))
        base = gray.astype(np.float32)[:, :, None]
        return (base + factor * (values - base)).clip(0, 255).astype(np.uint8)
    if step.gray == "mean":
        gray = np.full(gray.shape, gray.astype(np.float32).mean(dtype=np.float32))
    base = gray.astype(np.float32)[:, :, None] * np.float32(1 - step.factor)
    return (values * factor + base).clip(0, 255).astype(np.uint8)


def _taken(step: Take, image: U8) -> U8:
    height, width, channels = image.shape
    first, last = (
        (max(step.top, 0), max(step.left, 0)),
        (
            min(step.top + step.height, height),
            min(step.left + step.width, width),
        ),
    )
    seen = image[first[0] : last[0], first[1] : last[1]]
    if seen.shape[:2] != (step.height, step.width):
        canvas = np.empty((step.height, step.width, channels), np.uint8)
        canvas[...] = step.fill
        top, left = first[0] - step.top, first[1] - step.left
        canvas[top : top + seen.shape[0], left : left + seen.shape[1]] = seen
        seen = canvas
    return seen[:: -1 if step.flips[0] else 1, :: -1 if step.flips[1] else 1]
