"""Computes warps in C (``warp.c``, ``remap.c``) with the arithmetic of their profiles."""

from __future__ import annotations

from ctypes import byref
from typing import get_args

import numpy as np
import numpy.typing as npt

from pixprep.engine.kernels.elastic import looked_at
from pixprep.engine.kernels.native import STRUCTS, library
from pixprep.engine.kernels.resize import move
from pixprep.plan.profiles.warps import ARITHMETICS
from pixprep.plan.steps.warps import Warp
from pixprep.spec import PaddingMode

U8 = npt.NDArray[np.uint8]
_SPARE = 8
"""Number of pixels after the end of the result that the kernels may also write."""
_OUTSIDE = 0xFFFFFFFF
_NUMBERS, _MODES = {name: number for number, name in enumerate(ARITHMETICS)}, get_args(PaddingMode)


def warped(step: Warp, image: U8) -> U8:
    """Compute the requested region of a warp's result.

    Args:
        step: Warp, which specifies the region.
        image: Array of uint8 (height, width, channels) with 1 or 3 channels and any strides. A warp with the filter
            ``nearest`` also supports any integer dtype and any number of channels.

    Returns:
        Array (step.height, step.width, channels) of the image's dtype.
    """
    if step.elastic is not None and not any(step.elastic.alpha):
        return image[step.top : step.top + step.height, step.left : step.left + step.width]
    height, width, channels = image.shape
    if image.dtype == np.uint8 and channels in (1, 3):
        fill = sum(level << 8 * channel for channel, level in enumerate(step.fill or ()))
        return _made(step, _readable(image), (height, width), fill)
    assert step.filter == "nearest", step
    numbers = np.arange(height * max(width, 2), dtype=np.uint32).view(np.uint8).reshape(height, -1, 4)
    found = _made(step, numbers, (height, width), _OUTSIDE).view(np.uint32)[:, :, 0]
    is_inside = found != _OUTSIDE
    made = np.empty((*found.shape, channels), image.dtype)
    made[...] = step.fill or (0,)
    made[is_inside] = image[np.divmod(found[is_inside], max(width, 2))]
    return made


def _made(step: Warp, image: U8, size: tuple[int, int], fill: int) -> U8:
    """Warp an image that C can read: an image of width 1 has a second column in memory."""
    channels, computed = image.shape[2], step.computed(*size)
    places = None
    if step.elastic is not None:
        places = np.zeros((2, step.height * step.width + _SPARE), np.float32)
        looked_at(step, places)
    bytes_ = 1 if channels == 1 else 4
    memory = np.empty((step.height * step.width + _SPARE) * bytes_, np.uint8)
    arguments = STRUCTS["warp"](
        image.ctypes.data, image.strides[0], *size, channels, image.strides[1],
        memory.ctypes.data, step.height, step.width, step.left, step.top, *step.whole,
        _NUMBERS[computed.arithmetic], computed.matrix, step.is_perspective,
        fill, step.fill is not None, _MODES.index(step.padding_mode),
        *(places.ctypes.data + each * places.strides[0] if places is not None else None for each in (0, 1)),
        None if computed.weights is None else computed.weights.ctypes.data,
    )  # fmt: skip
    library().warp(byref(arguments))
    return memory[: -_SPARE * bytes_].reshape(step.height, step.width, bytes_)[:, :, :channels]


def _readable(image: U8) -> U8:
    """Return an image with contiguous rows of at least two columns and 8 bytes; color pixels may have 4 bytes."""
    height, width, channels = image.shape
    pitch, apart, _ = image.strides
    is_mapped = image.strides[2] == 1 and apart in ((1,) if channels == 1 else (3, 4)) and pitch >= width * apart
    if is_mapped and width > 1 and (height - 1) * pitch + (width - 1) * apart + channels >= 8:
        return image
    size = height * max(width, 2) * channels
    copy = np.zeros(max(size, 8), np.uint8)[:size].reshape(height, -1, channels)
    move(image, copy[:, :width])
    if width == 1:
        move(image, copy[:, 1:])
    return copy
