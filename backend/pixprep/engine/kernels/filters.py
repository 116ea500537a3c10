"""Filters by the kernels in C (``filters.c``): the formulas of ``levels.Filter``, operation by operation."""

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
    """The image after it.

    Args:
        step: says how.
        image: uint8 (height, width, channels), 1 or 3 channels, any strides.
    """
    height, width, channels = image.shape
    if step.kind == "sharpness" and min(height, width) < 3:
        return image
    if image.strides[1:] not in ((channels, 1), (4, 1)) or image.strides[0] < 0:
        image = copied(image)
    apart = image.strides[1]
    made = np.empty((height, width, apart), np.uint8)
    rows, columns = (np.array(weights, np.float32) for weights in (step.rows, step.columns))
    arguments = STRUCTS["convolution"](
        image.ctypes.data, image.strides[0], height, (width - 1) * apart + channels, apart,
        made.ctypes.data, made.strides[0], LIKES.index(step.like), rest_of(step.factor),
        rows.ctypes.data, columns.ctypes.data, rows.size, columns.size, step.factor,
    )  # fmt: skip
    if step.kind == "sharpness":
        library().sharpen(byref(arguments))
    else:
        checked(library().blur(byref(arguments)))
    return made[:, :, :channels]
