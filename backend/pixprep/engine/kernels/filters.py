"""Apply blur and sharpness filters with the C kernels (``filters.c``); see ``levels.Filter`` for the formulas."""

from __future__ import annotations

from ctypes import byref

import numpy as np
import numpy.typing as npt

from pixprep.engine.kernels.colours import LIKES, rest_of
from pixprep.engine.kernels.native import STRUCTS, checked, library
from pixprep.engine.kernels.resize import copied
from pixprep.plan.steps.levels import Filter

U8 = npt.NDArray[np.uint8]


def filtered(step: Filter, image: U8) -> U8:
    """Apply a filter to an image.

    Args:
        step: Filter step of a placement.
        image: Array of uint8 (height, width, channels) with 1 or 3 channels and any strides.
    """
    height, width, channels = image.shape
    if step.kind == "sharpness" and min(height, width) < 3:
        return image
    if image.strides[1:] not in ((channels, 1), (4, 1)) or image.strides[0] < 0:
        image = copied(image)
    pixel_stride = image.strides[1]
    result = np.empty((height, width, pixel_stride), np.uint8)
    rows, columns = (np.array(weights, np.float32) for weights in (step.rows, step.columns))
    arguments = STRUCTS["convolution"](
        image.ctypes.data, image.strides[0], height, (width - 1) * pixel_stride + channels, pixel_stride,
        result.ctypes.data, result.strides[0], LIKES.index(step.like), rest_of(step.factor),
        rows.ctypes.data, columns.ctypes.data, rows.size, columns.size, step.factor,
    )  # fmt: skip
    if step.kind == "sharpness":
        library().sharpen(byref(arguments))
    else:
        checked(library().blur(byref(arguments)))
    return result[:, :, :channels]
