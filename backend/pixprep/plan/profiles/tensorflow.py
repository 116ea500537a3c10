"""TensorFlow 2's ``tf.image.resize`` of uint8 images on a CPU: float32 values that are not rounded.

Bilinear without antialias interpolates each value twice, first horizontally (resize_bilinear_op.cc). With antialias the
filter is a triangle as wide as the ratio, clipped at the border and normalized (scale_and_translate_op.cc), and the
vertical pass is first. Both compute positions and weights in float32 without fused operations. This module does the
same in the same order, so the values equal TensorFlow's to the last bit.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pixprep.plan.profiles.profile import Method, Original, Profile, Size
from pixprep.plan.profiles.windows import Axis, Formula, Passes, Windows, single


def passes(method: Method, rows: Axis, columns: Axis) -> Passes:
    """Return integer arithmetic for ``nearest``, and real values for the other filters."""
    del rows, columns
    if method.filter == "nearest":
        return "fixed"
    return "real" if method.antialias else "lerp"


def is_vertical_first(method: Method, rows: Axis, columns: Axis) -> bool:
    """Tell whether the method antialiases."""
    del rows, columns
    return method.antialias


def formula(method: Method, passes: Passes) -> Formula | None:
    """Return the formula; it applies also to an axis that keeps its length, whose weights are 1 and 0."""
    if method.filter == "nearest":
        return None
    return Formula("tensorflow_triangle" if passes == "real" else "tensorflow_linear")


def windows(method: Method, passes: Passes, axis: Axis) -> Windows:
    """Return the positions ``(i + 0.5) * ratio``, in float32."""
    del method, passes
    middles = np.arange(axis.begin, axis.end, dtype=np.float32) + np.float32(0.5)
    ratio = np.float32(axis.length) / np.float32(axis.out_length)
    return single(np.minimum(np.floor(middles * ratio), axis.length - 1))


def original(tensorflow: Any, pixels: Any, op: Any, size: Size) -> Any:
    """Call ``tf.image.resize``, which returns an image that keeps its size as uint8."""
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
