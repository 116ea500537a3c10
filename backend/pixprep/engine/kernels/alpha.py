"""Multiply colors by alpha before a resize, and divide by it afterwards, as Pillow's ``Image.resize`` does for RGBA.

The integer arithmetic is that of Pillow's conversions between the modes RGBA and RGBa (libImaging/Convert.c).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

U8 = npt.NDArray[np.uint8]
_ROWS = 16
"""Number of rows that are converted together, so that the intermediate values stay in the cache."""


def premultiplied(pixels: U8) -> U8:
    """Return the pixels with their colors multiplied by alpha.

    With ``t = color * alpha + 128``, a color becomes ``(t + (t >> 8)) >> 8``, which is ``color * alpha / 255`` rounded
    to the nearest integer.

    Args:
        pixels: uint8 RGBA pixels (height, width, 4) with any strides.
    """
    result = np.empty(pixels.shape, np.uint8)
    for top in range(0, len(pixels), _ROWS):
        rows = pixels[top : top + _ROWS]
        factors = np.repeat(rows[:, :, 3], 4, axis=1).reshape(rows.shape)
        factors[:, :, 3] = 255  # with this factor, a value does not change
        products = rows.astype(np.uint16)
        products *= factors
        products += 128
        result[top : top + _ROWS] = (products + (products >> 8)) >> 8
    return result


def divide_by_alpha(pixels: U8) -> None:
    """Divide the colors by alpha, in place: ``min(color * 255 // alpha, 255)``.

    Colors whose alpha is 0 do not change. With an alpha of 255, the formula does not change them either.

    Args:
        pixels: uint8 pixels (height, width, 4) whose colors are multiplied by alpha.
    """
    for top in range(0, len(pixels), _ROWS):
        rows = pixels[top : top + _ROWS]
        alpha = rows[:, :, 3:].astype(np.uint16)
        alpha[alpha == 0] = 255
        rows[:, :, :3] = np.minimum(rows[:, :, :3].astype(np.uint16) * 255 // alpha, 255)
