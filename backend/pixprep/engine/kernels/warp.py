"""Warps: the formulas of ``plan.steps.warps.Warp``, by the kernels in C (``warp.c``, ``remap.c``)."""

from __future__ import annotations

from ctypes import byref
from typing import get_args

import numpy as np
import numpy.typing as npt

from pixprep.engine.kernels.elastic import looked_at
from pixprep.engine.kernels.native import STRUCTS, library
from pixprep.engine.kernels.resize import move
from pixprep.plan.steps.warps import Warp, WarpFilter, opencv_weights
from pixprep.spec import PaddingMode, WarpLike

U8 = npt.NDArray[np.uint8]
KINDS = ("pillow", "torchvision", "nearest", "fixed", "pillow_nearest", "bicubic", "walk", "dali", "dali_nearest")
"""Kinds of warps in C: bilinear of both libraries, nearest of torchvision, and of Pillow nearest in 65,536ths, nearest
of a perspective, bicubic, and nearest that adds up its way; both of DALI."""
_SPARE = 8
"""Pixels behind the result that are written, too."""
_OUTSIDE = 0xFFFFFFFF
_FILTERS, _MODES = get_args(WarpFilter), get_args(PaddingMode)


def warped(step: Warp, image: U8) -> U8:
    """The window of the result.

    Args:
        step: says which.
        image: uint8 (height, width, channels), 1 or 3 channels, any strides; of a step that takes the nearest, whole
            numbers of any type, and any number of channels.

    Returns:
        As the image, (step.height, step.width, channels).
    """
    if step.elastic is not None and not any(step.elastic.alpha):
        return image[step.top : step.top + step.height, step.left : step.left + step.width]
    height, width, channels = image.shape
    if image.dtype == np.uint8 and channels in (1, 3):
        fill = sum(level << 8 * channel for channel, level in enumerate(step.fill or ()))
        return _made(step, _readable(image, step.like), (height, width), fill)
    assert step.filter == "nearest", step
    numbers = np.arange(height * max(width, 2), dtype=np.uint32).view(np.uint8).reshape(height, -1, 4)
    found = _made(step, numbers, (height, width), _OUTSIDE).view(np.uint32)[:, :, 0]
    is_inside = found != _OUTSIDE
    made = np.empty((*found.shape, channels), image.dtype)
    made[...] = step.fill or (0,)
    made[is_inside] = image[np.divmod(found[is_inside], max(width, 2))]
    return made


def _made(step: Warp, image: U8, size: tuple[int, int], fill: int) -> U8:
    """The result of an image of a size that C can read: one of one column has a second."""
    (height, width), channels = size, image.shape[2]
    kind: str = step.like
    matrix, below = step.matrix[:6], step.matrix[6:]
    is_opencv = step.like == "opencv"
    numbers = (0.0, 0.0, 0.0, 0.0)
    places = None
    if step.elastic is not None:
        places = np.zeros((2, step.height * step.width + _SPARE), np.float32)
        looked_at(step, places)
    if step.like == "torchvision":
        kind = "torchvision" if step.filter == "bilinear" else "nearest"
        matrix = tuple(step.grid(height, width).ravel().tolist())
        middle = (-0.5, -0.5) if step.is_perspective else ((step.whole[1] - 1) / 2, (step.whole[0] - 1) / 2)
        numbers = width / 2, height / 2, *middle
    elif is_opencv:
        pass
    elif step.like == "dali":
        kind = "dali" if step.filter == "bilinear" else "dali_nearest"
    elif step.filter == "bicubic":
        kind = "bicubic"
    elif step.filter == "nearest" and below:
        kind = "pillow_nearest"
    elif step.filter == "nearest":
        kind, matrix = ("walk", matrix) if step.fixed is None else ("fixed", step.fixed)
    number = _FILTERS.index(step.filter) if is_opencv else KINDS.index(kind)
    bytes_ = 1 if channels == 1 else 4
    memory = np.empty((step.height * step.width + _SPARE) * bytes_, np.uint8)
    arguments = STRUCTS["warp"](
        image.ctypes.data, image.strides[0], height, width, channels, image.strides[1],
        memory.ctypes.data, step.height, step.width, step.left, step.top, number,
        *matrix, *numbers, fill, step.fill is not None, *(below[:2] or (0, 0)), bool(below),
        *(places.ctypes.data + each * places.strides[0] if places is not None else None for each in (0, 1)),
        *below[2:] or (0.0,), step.block, _MODES.index(step.padding_mode),
        opencv_weights().ctypes.data if is_opencv and step.filter == "bicubic" else None,
    )  # fmt: skip
    (library().remap if is_opencv else library().warp)(byref(arguments))
    return memory[: -_SPARE * bytes_].reshape(step.height, step.width, bytes_)[:, :, :channels]


def _readable(image: U8, like: WarpLike) -> U8:
    """The pixels of a row side by side, colours perhaps in words; at least two columns and 8 bytes."""
    height, width, channels = image.shape
    pitch, apart, _ = image.strides
    is_mapped = image.strides[2] == 1 and apart in ((1,) if channels == 1 else (3, 4)) and pitch >= width * apart
    if is_mapped and width > 1 and (height - 1) * pitch + (width - 1) * apart + channels >= 8:
        return image
    size = height * max(width, 2) * channels
    copy = np.zeros(max(size, 8), np.uint8)[:size].reshape(height, -1, channels)
    move(image, copy[:, :width])
    if width == 1 and like != "torchvision":
        move(image, copy[:, 1:])
    return copy
