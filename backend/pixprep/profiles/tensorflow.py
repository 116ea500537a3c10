"""TensorFlow 2's ``tf.image.resize`` of uint8 images on a CPU: float32 values, which nothing rounds.

Bilinear without antialias is two interpolations a value, horizontally first (resize_bilinear_op.cc). With antialias it
is a triangle as wide as the ratio, cut off at the border and normalized (scale_and_translate_op.cc); vertically first.
Both find positions and weights in float32 with no fused operations, and so does this module, in the same order: the
values are TensorFlow's to the last bit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from pixprep.profiles.profile import Method, Original, Profile, Size
from pixprep.profiles.windows import Axis, Passes, Windows, single

F32 = npt.NDArray[np.float32]

_HALF = np.float32(0.5)


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


def windows(method: Method, passes: Passes, axis: Axis) -> Windows:
    """The windows of one axis; also of one that keeps its length, whose weights come out as 1 and 0."""
    if passes == "real":
        return _widened(axis)
    centers = (_positions(axis) + _HALF) * (np.float32(axis.length) / np.float32(axis.out_length))
    if method.filter == "nearest":
        return single(np.minimum(np.floor(centers), axis.length - 1))
    positions = centers - _HALF
    first = np.floor(positions)
    t = positions - first
    return Windows(first.astype(np.int32), np.full(len(first), 2, np.int32), np.stack([1 - t, t], axis=1))


def _positions(axis: Axis) -> F32:
    return np.arange(axis.begin, axis.end, dtype=np.float32)


def _widened(axis: Axis) -> Windows:
    """The triangle of radius ``max(ratio, 1)`` about ``(i + 0.5) * ratio``."""
    # TensorFlow is given the inverse ratio in float32, and divides 1 by it in float64.
    ratio = np.float32(1 / np.float64(np.float32(axis.out_length) / np.float32(axis.length)))
    radius = max(ratio, np.float32(1))
    centers = (_positions(axis) + _HALF) * ratio
    last = axis.length - 1
    first = np.clip(np.ceil(centers - radius - _HALF), 0, last).astype(np.int32)
    count = np.clip(np.floor(centers + radius - _HALF), 0, last).astype(np.int32) + 1 - first
    offsets = np.arange(int(count.max()))
    positions = (first[:, None] + offsets).astype(np.float32)
    distances = np.abs((positions + _HALF - centers[:, None]) * (np.float32(1) / radius))
    weights = np.where(offsets < count[:, None], np.maximum(1 - distances, np.float32(0)), np.float32(0))
    sums = np.add.accumulate(weights, axis=1)[:, -1:]  # one after the other: ``sum`` adds in pairs
    return Windows(first, count, weights * (np.float32(1) / sums))


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
    windows=windows,
)
