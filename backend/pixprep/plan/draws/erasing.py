"""Random erasing: rectangles of one value or of noise, by the rules of torchvision v2 and timm."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from statistics import NormalDist
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from pixprep.plan.draws.augments import Augment
from pixprep.plan.draws.philox import F64, Numbers, Words, between, span_words
from pixprep.plan.steps.levels import Erase

TRIES = 10
"""For a rectangle that fits; after them there is none."""


@cache
def quantiles() -> npt.NDArray[np.float32]:
    """float32 (65536,): the normal distribution of mean 0 and deviation 1, from -4.33 to 4.33, all as likely."""
    inverse = NormalDist().inv_cdf
    table = np.array([inverse((place + 0.5) / 65536) for place in range(65536)], np.float32)
    table.flags.writeable = False
    return table


@dataclass(frozen=True, kw_only=True)
class Erasing(Augment):
    """torchvision's ``RandomErasing``, and timm's.

    Attributes:
        p: how often.
        scale: of the rectangles' area to the image's, from and to.
        ratio: of a rectangle's height to its width, from and to.
        count: of rectangles, from and to; the area is shared among them.
        values: of each channel: levels of the decoded ones, or values of the tensor's; None: noise.
    """

    p: float
    scale: tuple[float, float]
    ratio: tuple[float, float]
    count: tuple[int, int]
    values: tuple[float, ...] | None
    moves: ClassVar[bool] = False

    @property
    def blocks(self) -> int:
        """Number of blocks: whether, how many, two words of noise; then one a try: area, ratio, top, left."""
        return 1 + TRIES * self.count[1]

    def words(self, height: int, width: int, numbers: Numbers, boxes: F64 | None = None) -> Words:
        """``{"rectangles": [[top, left, height, width]]}``, and of noise ``"noise"``, two numbers below 2^32."""
        del boxes
        (whether, u_count, *u_noise), *tries = numbers.blocks(self.key, 0, self.blocks).tolist()
        if whether >= self.p:
            return {"rectangles": []}
        count = self.count[0] + int(u_count * (self.count[1] - self.count[0] + 1))
        found = (self._rectangle(height, width, tries[TRIES * i : TRIES * (i + 1)], count) for i in range(count))
        words = {"rectangles": [rectangle for rectangle in found if rectangle]}
        return words if self.values else {**words, "noise": [int(uniform * 2**32) for uniform in u_noise]}

    def _rectangle(self, height: int, width: int, tries: list[list[float]], count: int) -> list[int]:
        lowest, highest = math.log(self.ratio[0]), math.log(self.ratio[1])
        for u_area, u_ratio, u_top, u_left in tries:
            area = height * width * between(self.scale, u_area) / count
            ratio = math.exp(lowest + u_ratio * (highest - lowest))
            rows, columns = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
            if rows < height and columns < width:
                top, left = int(u_top * (height - rows + 1)), int(u_left * (width - columns + 1))
                return [top, left, rows, columns]
        return []

    def __str__(self) -> str:
        how = "a rectangle" if self.count == (1, 1) else f"{self.count[0]} to {self.count[1]} rectangles"
        value = ", ".join(f"{each:.4g}" for each in dict.fromkeys(self.values or ())) or "noise"
        return f"fill {how} of {span_words(self.scale)} of the area with {value} in {self.p:g} of the images"

    def steps(self, words: Words, height: int, width: int) -> tuple[Erase, ...]:
        """One for each rectangle."""
        del height, width
        noise = [None if self.values else (*words["noise"], which) for which in range(len(words["rectangles"]))]
        return tuple(
            Erase(top, left, rows, columns, self.values or (), each)
            for (top, left, rows, columns), each in zip(words["rectangles"], noise, strict=True)
        )
