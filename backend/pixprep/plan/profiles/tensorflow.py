"""TensorFlow 2's ``tf.image.resize`` of uint8 images on a CPU: float32 values, which nothing rounds.

Bilinear without antialias is two interpolations a value, horizontally first (resize_bilinear_op.cc). With antialias it
is a triangle as wide as the ratio, cut off at the border and normalized (scale_and_translate_op.cc); vertically first.
Both find positions and weights in float32 with no fused operations, and so does this module, in the same order: the
values are TensorFlow's to the last bit.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pixprep.plan.profiles.profile import Method, Original, Profile, Size
from pixprep.plan.profiles.windows import Axis, Formula, Passes, Windows, single


def passes(method: Method, rows: Axis, columns: Axis) -> Passes:
    """Levels for ``nearest``, else real values."""
    del rows, columns
    if method.filter == "nearest":
        return "fixed"
    return "real" if method.antialias else "lerp"


def is_vertical_first(method: Method, rows: Axis, columns: Axis) -> bool:
    """With antialias."""
    del rows, columns
    return method.antialias


def formula(method: Method, passes: Passes) -> Formula | None:
    """Also of an axis that keeps its length, whose weights come out as 1 and 0."""
    if method.filter == "nearest":
        return None
    return Formula("tensorflow_triangle" if passes == "real" else "tensorflow_linear")


def windows(method: Method, passes: Passes, axis: Axis) -> Windows:
    """The position at ``(i + 0.5) * ratio``, in float32."""
    del method, passes
    middles = np.arange(axis.begin, axis.end, dtype=np.float32) + np.float32(0.5)
    ratio = np.float32(axis.length) / np.float32(axis.out_length)
    return single(np.minimum(np.floor(middles * ratio), axis.length - 1))


def original(tensorflow: Any, pixels: Any, op: Any, size: Size) -> Any:
    """``tf.image.resize``, which gives an image that keeps its size back as levels."""
    resize, pixels = tensorflow.image.resize, np.ascontiguousarray(pixels)
    resized = resize(pixels, size, method=op.filter, antialias=bool(op.antialias)).numpy()
    return np.asarray(resized, np.uint8 if op.filter == "nearest" else np.float32)


PROFILE = Profile(
    title="TensorFlow",
    original=Original("tensorflow", "tensorflow", "tensorflow-cpu", "tensorflow", original),
    filters=("nearest", "bilinear"),
    antialiased=("bilinear",),
    antialias=False,
    real=("bilinear",),
    passes=passes,
    is_vertical_first=is_vertical_first,
    formula=formula,
    windows=windows,
)
