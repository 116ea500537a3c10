"""TensorFlow 2's ``tf.image.resize`` of uint8 images on a CPU: float32 values, which nothing rounds.

Bilinear without antialias is two interpolations a value, horizontally first (resize_bilinear_op.cc). With antialias it
is a triangle as wide as the scale, cut off at the border and normalized (scale_and_translate_op.cc); vertically first.
Both find positions and weights in float32 with no fused operations, and so does this module, step by step: the values
are TensorFlow's to the last bit.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pixprep.plan import Resize
from pixprep.profiles.taps import Axis, Kind, Taps, single

F32 = npt.NDArray[np.float32]

_HALF = np.float32(0.5)


def kind(resize: Resize, size: tuple[int, int], resized: tuple[int, int]) -> Kind:
    """Levels for ``nearest``, else real values."""
    del size, resized
    if resize.filter == "nearest":
        return "fixed"
    return "real" if resize.antialias else "lerp"


def is_vertical_first(resize: Resize, size: tuple[int, int], resized: tuple[int, int]) -> bool:
    """With antialias."""
    del size, resized
    return resize.antialias


def taps(resize: Resize, kind: Kind, axis: Axis) -> Taps:
    """The windows of one axis; also of one that keeps its length, whose weights come out as 1 and 0."""
    if kind == "real":
        return _widened(axis)
    centers = (_positions(axis) + _HALF) * (np.float32(axis.length) / np.float32(axis.out_length))
    if resize.filter == "nearest":
        return single(np.minimum(np.floor(centers), axis.length - 1))
    positions = centers - _HALF
    first = np.floor(positions)
    t = positions - first
    return Taps(first.astype(np.int32), np.full(len(first), 2, np.int32), np.stack([1 - t, t], axis=1))


def _positions(axis: Axis) -> F32:
    return np.arange(axis.begin, axis.end, dtype=np.float32)


def _widened(axis: Axis) -> Taps:
    """The triangle of radius ``max(scale, 1)`` about ``(i + 0.5) * scale``."""
    # TensorFlow is given the inverse scale in float32, and divides 1 by it in float64.
    scale = np.float32(1 / np.float64(np.float32(axis.out_length) / np.float32(axis.length)))
    radius = max(scale, np.float32(1))
    centers = (_positions(axis) + _HALF) * scale
    last = axis.length - 1
    first = np.clip(np.ceil(centers - radius - _HALF), 0, last).astype(np.int32)
    count = np.clip(np.floor(centers + radius - _HALF), 0, last).astype(np.int32) + 1 - first
    offsets = np.arange(int(count.max()))
    positions = (first[:, None] + offsets).astype(np.float32)
    distances = np.abs((positions + _HALF - centers[:, None]) * (np.float32(1) / radius))
    weights = np.where(offsets < count[:, None], np.maximum(1 - distances, np.float32(0)), np.float32(0))
    sums = np.add.accumulate(weights, axis=1)[:, -1:]  # one after the other: ``sum`` adds in pairs
    return Taps(first, count, weights * (np.float32(1) / sums))
