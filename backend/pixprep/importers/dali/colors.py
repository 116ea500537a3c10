"""Operators of DALI on colours: sums of the channels, blurs and filled rectangles, with fixed arguments.

The matrices are DALI's (color_twist.h): hue and saturation turn and scale the two colour components of YIQ.
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil
from typing import Any

import numpy as np
import numpy.typing as npt

from pixprep.errors import PipelineError
from pixprep.importers.dali.values import Image, lowered
from pixprep.importers.dali.windows import axes_of, colour
from pixprep.importers.fields import Fields, finite
from pixprep.pipeline.ops import ColorMatrix, Erase, GaussianBlur

F32 = npt.NDArray[np.float32]
_TO_YIQ = np.array([[0.299, 0.587, 0.114], [0.596, -0.274, -0.321], [0.211, -0.523, 0.311]], np.float32)
_FROM_YIQ = np.linalg.inv(_TO_YIQ.astype(np.float64)).astype(np.float32)
_WHITE, _MIDDLE = np.float32(255), 128.0


def _mixed(image: Image, fields: Fields) -> Image:
    """An operator that is a matrix: each reads the arguments that it has."""
    image.check_levels(fields)
    hue, saturation, value, brightness, contrast = (
        np.float32(fields.number(name, default))
        for name, default in (("hue", 0.0), ("saturation", 1.0), ("value", 1.0), ("brightness", 1.0), ("contrast", 1.0))
    )
    middle, shift = (
        np.float32(fields.number(*pair)) for pair in (("contrast_center", _MIDDLE), ("brightness_shift", 0.0))
    )
    factors = np.eye(3, dtype=np.float32)
    if hue != 0 or saturation != 1:
        if image.channels == 1:
            raise PipelineError("is understood of three channels")
        angle = np.deg2rad(hue)
        turn = np.array([[1, 0, 0], [0, np.cos(angle), np.sin(angle)], [0, -np.sin(angle), np.cos(angle)]], np.float32)
        factors = _FROM_YIQ @ turn @ np.diag(np.array([1, saturation, saturation], np.float32)) @ _TO_YIQ
    factors = factors * value * brightness * contrast
    offset = _WHITE * shift + brightness * (middle - contrast * middle)
    if getattr(image.chain[0], "color", "rgb") == "bgr":  # DALI takes the first channel for red
        factors = factors[::-1, ::-1]
    rows = [(*row, float(offset)) for row in factors.tolist()]
    return image.then(ColorMatrix(matrix=tuple(rows)))


def _gaussian_blur(image: Image, fields: Fields) -> Image:
    """``gaussian_blur``, of one window and one deviation for both axes; each follows from the other."""
    image.check_levels(fields)
    size, sigma = (finite(fields.take(name, [0.0])) for name in ("window_size", "sigma"))
    if len({*size}) != 1 or len({*sigma}) != 1:
        raise PipelineError('needs one "window_size" and one "sigma", the same for both axes')
    taps, deviation = int(size[0]), sigma[0]
    if not taps and not deviation:
        raise PipelineError('needs "window_size" or "sigma"')
    taps = taps or 2 * ceil(deviation * 3) + 1
    return image.then(GaussianBlur(kernel_size=taps, sigma=deviation or ((taps - 1) / 2 - 1) * 0.3 + 0.8))


def _erase(image: Image, fields: Fields) -> Image:
    """``erase`` of rectangles: pairs of ``anchor`` and ``shape``, in DALI's float32; of height and width by default."""
    image.check_levels(fields)
    axes = axes_of(image, fields, [0, 1])
    spec, fill = lowered(image.chain)[1], colour(fields, "fill_value")
    sides = [spec.height, spec.width]
    shapes = np.array(finite(fields.take("shape")) or fields.refuse("shape", "must be numbers"), np.float32)
    corners = np.array(finite(fields.take("anchor", [0.0] * len(shapes))), np.float32)
    if len(corners) != len(shapes) or len(corners) % len(axes):
        fields.refuse("shape", "must have a number for each axis of each rectangle, as anchor has")
    is_shared = {
        name: fields.flag(f"normalized_{name}", default=fields.flag("normalized")) for name in ("anchor", "shape")
    }
    is_middle = fields.flag("centered_anchor")
    if (any(is_shared.values()) or len(axes) == 1) and None in sides:
        raise PipelineError("is understood where the size of the image is known: give the resize a height and a width")
    for begin in range(0, len(corners), len(axes)):
        window: dict[str, Any] = {"top": 0, "left": 0, "height": spec.height, "width": spec.width}
        for index, axis in enumerate(axes):
            at, length = corners[begin + index], shapes[begin + index]
            at *= np.float32(sides[axis] if is_shared["anchor"] else 1)
            length *= np.float32(sides[axis] if is_shared["shape"] else 1)
            at -= length / np.float32(2) if is_middle else np.float32(0)
            first, last = max(0, int(at)), int(at + length)
            window[("top", "left")[axis]], window[("height", "width")[axis]] = first, last - first
        if min(window["height"], window["width"]) > 0:
            image = image.then(Erase(fill=fill, **window))
    return image


COLORS: dict[str, Callable[[Image, Fields], Image]] = {
    **dict.fromkeys(("Brightness", "Contrast", "BrightnessContrast", "Hue", "Saturation", "Hsv", "ColorTwist"), _mixed),
    "GaussianBlur": _gaussian_blur,
    "Erase": _erase,
}
"""Operators on the levels of one image."""
