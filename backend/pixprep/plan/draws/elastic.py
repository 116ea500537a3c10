"""Elastic displacements by torchvision v2's rules: the draw; ``engine.kernels.elastic`` makes a field of its seed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pixprep.errors import ImageError
from pixprep.plan.draws.augments import Augment
from pixprep.plan.draws.philox import F64, Numbers, Words
from pixprep.plan.steps.warps import Elastic, Warp, WarpFilter

Pair = tuple[float, float]


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
