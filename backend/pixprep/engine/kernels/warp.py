"""Compute warps with the C kernels (``warp.c``, ``remap.c``) and the arithmetic of their profiles."""

from __future__ import annotations

from ctypes import byref
from typing import get_args

import numpy as np
import numpy.typing as npt

from pixprep.engine.kernels.distortions import positions
from pixprep.engine.kernels.elastic import sampling_positions
from pixprep.engine.kernels.native import STRUCTS, library
from pixprep.engine.kernels.resize import move
from pixprep.plan.profiles.profile import ARITHMETICS
from pixprep.plan.steps.warps import Elastic, Warp
from pixprep.spec import PaddingMode

U8 = npt.NDArray[np.uint8]
_SPARE = 8
"""Number of pixels beyond the end of the result that the kernels may write."""
_OUTSIDE = 0xFFFFFFFF
_NUMBERS, _MODES = {name: number for number, name in enumerate(ARITHMETICS)}, get_args(PaddingMode)


def warped(step: Warp, image: U8) -> U8:
    """Compute the requested region of the result of a warp.

    Args:
        step: Warp, which also specifies the region.
        image: Array of uint8 (height, width, channels) with 1 or 3 channels and any strides. If the filter is
            ``nearest``, any integer dtype and any number of channels are also supported.

    Returns:
        Array (step.height, step.width, channels) with the dtype of the image.
    """
    if step.elastic is not None and not step.is_displaced:
        return image[step.top : step.top + step.height, step.left : step.left + step.width]
    height, width, channels = image.shape
    if image.dtype == np.uint8 and channels in (1, 3):
        fill = sum(value << 8 * channel for channel, value in enumerate(step.fill or ()))
        return _warp(step, _readable(image), (height, width), fill)
    assert step.filter == "nearest", step
    indices = np.arange(height * max(width, 2), dtype=np.uint32).view(np.uint8).reshape(height, -1, 4)
    found = _warp(step, indices, (height, width), _OUTSIDE).view(np.uint32)[:, :, 0]
    is_inside = found != _OUTSIDE
    result = np.empty((*found.shape, channels), image.dtype)
    result[...] = step.fill or (0,)
    result[is_inside] = image[np.divmod(found[is_inside], max(width, 2))]
    return result


def _warp(step: Warp, image: U8, size: tuple[int, int], fill: int) -> U8:
    """Warp an image in a layout that C can read; see ``_readable``. ``size`` is the (height, width) of the image."""
    channels, computed = image.shape[2], step.computed(*size)
    places = None
    if step.elastic is not None:
        places = np.zeros((2, step.height * step.width + _SPARE), np.float32)
        if isinstance(step.elastic, Elastic):
            sampling_positions(step, places)
        else:
            places[:, :-_SPARE] = positions(step).reshape(2, -1)
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
    """Return an image in a layout that C can read, and copy it if necessary.

    The pixels of a row are contiguous, with 1, 3 or 4 bytes per pixel. The memory contains at least two columns and at
    least 8 bytes.
    """
    height, width, channels = image.shape
    row, pixel, _ = image.strides
    is_readable = image.strides[2] == 1 and pixel in ((1,) if channels == 1 else (3, 4)) and row >= width * pixel
    if is_readable and width > 1 and (height - 1) * row + (width - 1) * pixel + channels >= 8:
        return image
    size = height * max(width, 2) * channels
    copy = np.zeros(max(size, 8), np.uint8)[:size].reshape(height, -1, channels)
    move(image, copy[:, :width])
    if width == 1:
        move(image, copy[:, 1:])
    return copy
