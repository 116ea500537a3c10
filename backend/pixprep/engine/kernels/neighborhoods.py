"""Run the steps of ``plan.steps.neighborhoods``; the kernels are ``neighborhoods.c`` and ``clahe.c``."""

from __future__ import annotations

from ctypes import byref
from functools import cache
from typing import Any, get_args

import numpy as np
import numpy.typing as npt

from pixprep.engine.kernels.native import LANES, STRUCTS, checked, library
from pixprep.engine.kernels.noise import noise
from pixprep.plan.steps.neighborhoods import Clahe, Compress, Neighborhood, NeighborhoodKind, Noise

U8 = npt.NDArray[np.uint8]
_KINDS = get_args(NeighborhoodKind)
_BASE = 1 << 14
"""Integer that represents 1.0 in the fixed-point arithmetic of OpenCV's conversion from CIELAB to RGB."""


def filtered_by_neighborhood(step: Neighborhood, image: U8) -> U8:
    """Apply a filter to an image (height, width, channels) with any strides."""
    height, width, channels = image.shape
    radius = step.size // 2
    margins = ((radius, radius), (radius, radius), (0, 0))
    padded = np.pad(image, margins, "edge" if step.kind == "median" else "reflect")
    stride = padded.shape[1] * channels
    memory = np.concatenate([padded.ravel(), np.zeros(LANES, np.uint8)])
    result = np.empty((height, width, channels), np.uint8)
    weights = np.array(step.weights, np.float32).reshape(-1, step.size)
    rows, columns = weights.nonzero()
    offsets, taps = rows * stride + columns * channels, weights[rows, columns]
    arguments = STRUCTS["neighborhood"](
        memory.ctypes.data, stride, channels, height, width * channels, result.ctypes.data, width * channels,
        _KINDS.index(step.kind), step.size, offsets.ctypes.data, taps.ctypes.data, taps.size,
    )  # fmt: skip
    checked(library().filter_neighborhoods(byref(arguments)))
    return result


def equalized(step: Clahe, image: U8) -> U8:
    """Apply CLAHE to an image (height, width, channels) with any strides."""
    height, width, channels = image.shape
    columns, rows = step.grid
    is_whole = not (height % rows or width % columns)
    lengths = ((height, rows), (width, columns))
    tile = [(side + (0 if is_whole else count - side % count)) // count for side, count in lengths]
    limit = max(1, int(step.clip_limit * tile[0] * tile[1] / 256))
    image, result = np.ascontiguousarray(image), np.empty(image.shape, np.uint8)
    tables = np.empty((rows * columns, 256), np.uint8)
    arguments = STRUCTS["clahe"](
        image.ctypes.data, result.ctypes.data, height, width, channels, limit, rows, columns, *tile,
        tables.ctypes.data, *(each.ctypes.data for each in _lab_tables()),
    )  # fmt: skip
    library().equalize_adaptively(byref(arguments))
    return result


@cache
def _lab_tables() -> tuple[npt.NDArray[Any], ...]:
    """Return the tables of OpenCV's conversions between RGB and CIELAB, in the order of ``struct clahe``.

    OpenCV computes them in float32. Because its cube root is approximate, one entry is lower by one than the exact
    value.
    """
    f32 = np.float32
    levels, steps = np.arange(256), np.arange(4096)
    srgb = (levels.astype(f32) / f32(255)).astype(np.float64)
    linear = np.where(srgb <= 0.04045, srgb / 12.92, ((srgb + 0.055) / 1.055) ** 2.4).astype(f32)
    gamma = np.rint(f32(255 * 8) * linear).astype(np.uint16)
    share = steps / 4096
    encoded = np.where(share <= 0.0031308, share * 12.92, share ** (1 / 2.4) * 1.055 - 0.055).astype(f32)
    inverse_gamma = np.rint(f32(255) * encoded).astype(np.uint8)
    ratio = (np.arange(3072, dtype=f32) * (f32(1) / f32(2040))).astype(np.float64)
    roots = np.where(ratio < 216 / 24389, ratio * f32(841 / 108) + f32(16 / 116), np.cbrt(ratio)).astype(f32)
    cube_roots = np.rint(f32(1 << 15) * roots).astype(np.uint16)
    cube_roots[324] -= 1
    white = np.array([0.950456, 1.0, 1.088754])
    to_xyz = [[0.412453, 0.357580, 0.180423], [0.212671, 0.715160, 0.072169], [0.019334, 0.119193, 0.950227]]
    to_rgb = [[3.240479, -1.53715, -0.498535], [-0.969256, 1.875991, 0.041556], [0.055648, -0.204043, 1.057311]]
    rgb_to_xyz = np.rint(4096 * np.array(to_xyz) / white[:, None]).astype(np.int32)
    xyz_to_rgb = np.rint(4096 * np.array(to_rgb) * white).astype(np.int32)
    root = (levels * 100 * _BASE).astype(f32) / f32(255 * 116) + f32(16 * _BASE) / f32(116)
    y = root * root * root / f32(_BASE * _BASE)
    dark_y = (levels * _BASE * 180).astype(f32) / f32(17 * 29**3)
    dark_root = f32(_BASE) * (f32(16) / f32(116) + (levels * 5).astype(f32) / f32(3 * 17 * 29))
    is_dark = levels <= 20
    pairs = np.stack([np.where(is_dark, dark_y, y), np.where(is_dark, dark_root, root)], 1)
    lightness_to_y = np.rint(pairs).astype(np.uint16)
    f = np.arange(-8145, _BASE * 9 // 4 - 8145)
    low = np.trunc(f * 108 / 841).astype(np.int64) - _BASE * 16 // 116 * 108 // 841
    root_to_xz = np.where(f <= 3390, low, f * f // _BASE * f // _BASE).astype(np.int32)
    return gamma, cube_roots, rgb_to_xyz, lightness_to_y, root_to_xz, xyz_to_rgb, inverse_gamma


def noise_of(step: Noise, shape: tuple[int, ...]) -> npt.NDArray[np.float32]:
    """Return the noise that a step adds to an image of this shape (height, width, channels)."""
    found = noise((*step.seed, 0), (*shape[:2], 1 if step.is_shared else shape[2]))
    return (found * np.float32(step.std) + np.float32(step.mean)) * np.float32(255)


def noisy(step: Noise, image: U8) -> U8:
    """Add noise to an image."""
    return (image + noise_of(step, image.shape).astype(np.int16)).clip(0, 255).astype(np.uint8)


def compressed(step: Compress, image: U8) -> U8:
    """Compress an image with Pillow's encoder, and decode it."""
    from pixprep.engine.decoders.pillow import recompressed  # noqa: PLC0415  (imports Pillow, which few steps need)

    return recompressed(np.ascontiguousarray(image[:, :, ::-1]), step.format, step.quality)[:, :, ::-1]
