"""Elastic displacements by torchvision v2's rules: the draw, and the field that its seed makes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from pixprep.draws.augments import Augment
from pixprep.draws.philox import F64, Numbers, Words, philox
from pixprep.errors import ImageError
from pixprep.steps.warps import Elastic, Warp, WarpFilter, taps

F32 = npt.NDArray[np.float32]
Pair = tuple[float, float]
_BLOCK = 32
"""Positions that one product of matrices blurs: of 16 to 64 it was the quickest."""


def looked_at(elastic: Elastic, height: int, width: int) -> F32:
    """float32 (2, height, width): the x and y at which each pixel looks, -1 to 1 in the image; see ``Elastic``."""
    across, down = _identity(width), _identity(height)[:, None]
    x, y = displacement(elastic, height, width)
    places: F32 = np.stack([across + x, down + y])
    return places


def displacement(elastic: Elastic, height: int, width: int) -> F32:
    """float32 (2, height, width): how far from its own place, along x and along y; see ``Elastic``."""
    made = []
    noise = _noise(elastic.seed, height, width)
    for field, sigma, alpha, side in zip(noise, elastic.sigma, elastic.alpha, (width, height), strict=True):
        blurred = _blurred(field, taps(sigma), elastic.sigma) if sigma else field * 2.0**-23
        made.append(blurred.astype(np.float32) * np.float32(alpha) / np.float32(side))
    return np.stack(made)


def _identity(side: int) -> F32:
    """float32 (side,): the middle of each pixel: PyTorch's ``linspace``, reckoned from the nearer end, rounded once."""
    last = np.float32((side - 1) / side)
    step = float((last + last) / np.float32(max(side - 1, 1)))
    first, second = np.arange(side // 2), np.arange(side - side // 2)[::-1]
    places: F32 = np.concatenate([step * first - float(last), float(last) - step * second]).astype(np.float32)
    return places


def _noise(seed: int, height: int, width: int) -> F64:
    """float64 (2, height, width): of x and of y, whole numbers of -2^23 to 2^23 - 1, all as likely."""
    count = height * width
    counters = np.zeros((2, -(-count // 4), 4), np.uint32)
    counters[:, :, 0], counters[1, :, 1] = np.arange(counters.shape[1]), 1
    words = philox(counters, (seed >> 32, seed & 0xFFFFFFFF)) >> np.uint32(8)
    noise: F64 = words.reshape(2, -1)[:, :count].reshape(2, height, width) - 2.0**23
    return noise


def _blurred(field: F64, count: int, sigma: Pair) -> F64:
    """The field after both blurs, in units of its largest noise."""
    padded = np.pad(field, count // 2, mode="reflect")
    across = np.rint(_convolved(padded, _weights(count, sigma[0])) * 2.0**-27)
    return _convolved(across.T, _weights(count, sigma[1])).T * 2.0**-52


def _weights(count: int, sigma: float) -> F64:
    """A bell curve, in whole numbers: 2^28 is 1."""
    curve = np.exp(-((np.arange(count) - count // 2) ** 2) / (2.0 * sigma**2))
    weights: F64 = np.rint(curve / curve.sum() * 2.0**28)
    return weights


def _convolved(rows: F64, weights: F64) -> F64:
    """Sums along the rows: float64 (rows, columns - weights + 1), exact in any order, so that BLAS may add up."""
    more = len(weights) - 1
    band = np.zeros((_BLOCK + more, _BLOCK))
    for column in range(_BLOCK):
        band[column : column + more + 1, column] = weights
    parts = (rows[:, begin : begin + len(band)] for begin in range(0, rows.shape[1] - more, _BLOCK))
    return np.concatenate([part @ band[: part.shape[1], : part.shape[1] - more] for part in parts], axis=1)


@dataclass(frozen=True, kw_only=True)
class ElasticMap(Augment):
    """torchvision's ``ElasticTransform``.

    Attributes:
        alpha, sigma: see ``Elastic``.
        p: how often.
        fill: the level of each decoded channel where it looks outside.
        filter: nearest or bilinear.
    """

    alpha: Pair
    sigma: Pair
    p: float
    fill: tuple[int, ...]
    filter: WarpFilter
    blocks: ClassVar[int] = 1  # whether, two words of the seed

    def words(self, height: int, width: int, numbers: Numbers, boxes: F64 | None = None) -> Words:
        """``{"seed": 81985529216486895}``, below 2^64, or ``{"seed": null}``: not this one."""
        del height, width, boxes
        whether, high, low, _ = numbers.blocks(self.key, 0, 1)[0].tolist()
        return {"seed": int(high * 2**32) << 32 | int(low * 2**32) if whether < self.p else None}

    def __str__(self) -> str:
        alpha, sigma = (
            " and ".join(f"{each:.4g}" for each in dict.fromkeys(pair)) for pair in (self.alpha, self.sigma)
        )
        some = "" if self.p == 1 else f" of {self.p:g} of the images"
        return f"displace the pixels{some} by noise, alpha {alpha}, sigma {sigma} ({self.filter})"

    def steps(self, words: Words, height: int, width: int) -> tuple[Warp, ...]:
        """One step, always: a GPU's plan is cut there.

        Raises:
            ImageError: DOES_NOT_FIT: the blur reaches across the mirror image.
        """
        elastic = Elastic((0.0, 0.0), (0.0, 0.0), 0)
        if words["seed"] is not None:
            elastic = Elastic(self.alpha, self.sigma, words["seed"])
            if elastic.reach >= min(height, width):
                least = f"sigma of an elastic displacement needs sides of {elastic.reach + 1}"
                raise ImageError("DOES_NOT_FIT", f"{height} x {width} pixels are too few: {least}")
        same = (1.0, 0.0, 0.0, 0.0, 1.0, 0.0)
        size = (height, width)
        return (Warp(same, size, 0, 0, *size, self.fill, self.filter, "torchvision", elastic),)
