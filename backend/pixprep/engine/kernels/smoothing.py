"""Resize images with ``smoothing.c``, for profiles that smooth the image before they interpolate."""

from __future__ import annotations

from ctypes import byref
from typing import Any

import numpy as np
import numpy.typing as npt

from pixprep.engine.kernels.native import STRUCTS, checked, library
from pixprep.plan.profiles.scipy import weights
from pixprep.plan.profiles.windows import Axis

F32 = npt.NDArray[np.float32]


def resize_smoothed(
    pixels: npt.NDArray[np.uint8],
    rows: Axis,
    columns: Axis,
    values: F32,
    flips: tuple[bool, bool],
    *,
    is_smoothed: bool,
) -> F32:
    """Return the region of a resized image, float32 (rows, columns, channels).

    Args:
        pixels: Array of uint8 (height, width, channels) with 1, 3 or 4 channels and any strides.
        rows: Vertical axis of the resize.
        columns: Horizontal axis of the resize.
        values: Values that are resized instead of the pixel values, float32 (4, 256), one row per channel.
        flips: Whether to flip the region (vertically, horizontally).
        is_smoothed: Whether an axis that shrinks is smoothed. If false, the image is only interpolated.

    Raises:
        MemoryError: The memory of the intermediate results cannot be allocated.
    """
    channels = pixels.shape[2]
    size = rows.end - rows.begin, columns.end - columns.begin
    out = np.empty((*size, 1 if channels == 1 else 4), np.float32)
    values = np.ascontiguousarray(values)
    taps = [weights(axis.length, axis.out_length) if is_smoothed else weights(1, 1) for axis in (rows, columns)]
    arguments: Any = STRUCTS["smoothed_resize"](
        pixels.ctypes.data, *pixels.strides, *pixels.shape, values.ctypes.data,
        *(each.ctypes.data for each in taps), *(len(each) - 1 for each in taps),
        rows.out_length, columns.out_length, rows.begin, columns.begin, rows.end, columns.end, *flips, out.ctypes.data,
    )  # fmt: skip
    checked(library().resize_smoothed(byref(arguments)))
    return out[:, :, :channels]
