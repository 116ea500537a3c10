"""Compute elastic displacement fields with ``elastic.c``; see ``plan.steps.warps.Elastic``."""

from __future__ import annotations

from ctypes import byref

import numpy as np
import numpy.typing as npt

from pixprep.engine.kernels.native import STRUCTS, checked, library
from pixprep.plan.steps.warps import Elastic, Warp, taps

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]


def sampling_positions(step: Warp, out: F32) -> None:
    """Write the image position (x, y), from -1 to 1, that each pixel of an elastic warp samples.

    Args:
        step: Warp with an ``elastic`` displacement.
        out: Array (2, n) with contiguous rows for the x and y of the pixels of the warp's region, where n is at least
            ``step.height * step.width``.
    """
    assert isinstance(step.elastic, Elastic)
    _displace(step.elastic, step.whole, (step.top, step.left, step.height, step.width), out, is_position=True)


def displacement(elastic: Elastic, height: int, width: int) -> F32:
    """Return the displacement of each pixel along x and y, float32 (2, height, width); see ``Elastic``."""
    result = np.empty((2, height, width), np.float32)
    _displace(elastic, (height, width), (0, 0, height, width), result, is_position=False)
    return result


def _displace(
    elastic: Elastic, whole: tuple[int, int], window: tuple[int, int, int, int], out: F32, *, is_position: bool
) -> None:
    """Write displacements, or with ``is_position`` the displaced positions, of a window (top, left, height, width)."""
    for axis, side in enumerate(whole[::-1]):
        count = taps(elastic.sigma[axis]) if elastic.sigma[axis] else 1
        across, down = (_weights(count, sigma) for sigma in elastic.sigma)
        places = identity(side) if is_position else None
        arguments = STRUCTS["displacement"](
            out[axis].ctypes.data, None if places is None else places.ctypes.data, axis,
            across.ctypes.data, down.ctypes.data, count, *whole, *window,
            (elastic.seed >> 32, elastic.seed & 0xFFFFFFFF), axis, elastic.alpha[axis], side,
        )  # fmt: skip
        checked(library().displace(byref(arguments)))


def identity(side: int) -> F32:
    """Return the center of each pixel of an axis, from -1 to 1, float32 (side,).

    As in PyTorch's ``linspace``, each value is computed from the nearer end of the axis, and rounded once.
    """
    last = np.float32((side - 1) / side)
    step = float((last + last) / np.float32(max(side - 1, 1)))
    first, second = np.arange(side // 2), np.arange(side - side // 2)[::-1]
    places: F32 = np.concatenate([step * first - float(last), float(last) - step * second]).astype(np.float32)
    return places


def _weights(count: int, sigma: float) -> F64:
    """Return the weights of a Gaussian kernel with ``count`` taps as integers, where 2^28 represents 1."""
    if count == 1:
        return np.array([2.0**28])
    kernel = np.exp(-((np.arange(count) - count // 2) ** 2) / (2.0 * sigma**2))
    weights: F64 = np.rint(kernel / kernel.sum() * 2.0**28)
    return weights
