"""Computes elastic displacement fields with ``elastic.c``; see ``plan.steps.warps.Elastic``."""

from __future__ import annotations

from ctypes import byref

import numpy as np
import numpy.typing as npt

from pixprep.engine.kernels.native import STRUCTS, checked, library
from pixprep.plan.steps.warps import Elastic, Warp, taps

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]


def looked_at(step: Warp, out: F32) -> None:
    """Write the x and y at which each pixel of a warp's window looks, -1 to 1 in the image.

    Args:
        step: has an ``elastic``.
        out: (2, height * width or more) of the window, each row C-contiguous.
    """
    assert step.elastic is not None
    _make(step.elastic, step.whole, (step.top, step.left, step.height, step.width), out, is_place=True)


def displacement(elastic: Elastic, height: int, width: int) -> F32:
    """float32 (2, height, width): how far from its own place, along x and along y; see ``Elastic``."""
    made = np.empty((2, height, width), np.float32)
    _make(elastic, (height, width), (0, 0, height, width), made, is_place=False)
    return made


def _make(
    elastic: Elastic, whole: tuple[int, int], window: tuple[int, int, int, int], out: F32, *, is_place: bool
) -> None:
    for axis, side in enumerate(whole[::-1]):
        count = taps(elastic.sigma[axis]) if elastic.sigma[axis] else 1
        across, down = (_weights(count, sigma) for sigma in elastic.sigma)
        places = identity(side) if is_place else None
        arguments = STRUCTS["displacement"](
            out[axis].ctypes.data, None if places is None else places.ctypes.data, axis,
            across.ctypes.data, down.ctypes.data, count, *whole, *window,
            (elastic.seed >> 32, elastic.seed & 0xFFFFFFFF), axis, elastic.alpha[axis], side,
        )  # fmt: skip
        checked(library().displace(byref(arguments)))


def identity(side: int) -> F32:
    """float32 (side,): the middle of each pixel: PyTorch's ``linspace``, reckoned from the nearer end, rounded once."""
    last = np.float32((side - 1) / side)
    step = float((last + last) / np.float32(max(side - 1, 1)))
    first, second = np.arange(side // 2), np.arange(side - side // 2)[::-1]
    places: F32 = np.concatenate([step * first - float(last), float(last) - step * second]).astype(np.float32)
    return places


def _weights(count: int, sigma: float) -> F64:
    """A bell curve, in integers: 2^28 is 1."""
    if count == 1:
        return np.array([2.0**28])
    curve = np.exp(-((np.arange(count) - count // 2) ** 2) / (2.0 * sigma**2))
    weights: F64 = np.rint(curve / curve.sum() * 2.0**28)
    return weights
