"""TensorFlow 2's ``tf.image.resize`` of uint8 images on the CPU, which returns unrounded float32 values.

Without antialiasing, the filter ``bilinear`` interpolates linearly on each axis, first horizontally
(resize_bilinear_op.cc). With antialiasing, the filter is a triangle that is widened by the ratio, clipped at the border
and normalized, and the vertical pass comes first (scale_and_translate_op.cc). Positions and weights are computed in
float32 without fused operations. This module performs the same operations in the same order, so that the results match
TensorFlow's bit for bit.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pixprep.plan.profiles.profile import Method, Original, Profile, Size
from pixprep.plan.profiles.windows import Axis, Formula, Passes, Windows, single


def passes(method: Method, rows: Axis, columns: Axis) -> Passes:
    """Return fixed-point arithmetic for ``nearest``, and float32 arithmetic for bilinear."""
    del rows, columns
    if method.filter == "nearest":
        return "fixed"
    return "real" if method.antialias else "lerp"


def is_vertical_first(method: Method, rows: Axis, columns: Axis) -> bool:
    """Return whether the vertical pass comes first, which is the case if the resize is antialiased."""
    del rows, columns
    return method.antialias


def formula(method: Method, passes: Passes) -> Formula | None:
    """Return the formula of the filter. The filter is applied even to an axis whose length does not change."""
    if method.filter == "nearest":
        return None
    return Formula("tensorflow_triangle" if passes == "real" else "tensorflow_linear")


def windows(method: Method, passes: Passes, axis: Axis) -> Windows:
    """Return the windows of ``nearest``, whose positions are ``floor((i + 0.5) * ratio)``, computed in float32."""
    del method, passes
    centers = np.arange(axis.begin, axis.end, dtype=np.float32) + np.float32(0.5)
    ratio = np.float32(axis.length) / np.float32(axis.out_length)
    return single(np.minimum(np.floor(centers * ratio), axis.length - 1))


def original(tensorflow: Any, pixels: Any, op: Any, size: Size) -> Any:
    """Resize an image with ``tf.image.resize``."""
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
