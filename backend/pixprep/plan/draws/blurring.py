"""Gaussian blur of random width, by torchvision v2's rules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pixprep.errors import ImageError
from pixprep.plan.draws.augments import Augment
from pixprep.plan.draws.philox import F64, Numbers, Span, Words, between, span_words
from pixprep.plan.steps.levels import Filter


def weights(taps: int, sigma: float) -> tuple[float, ...]:
    """Weights of a bell curve: an odd number of float32, whose sum is 1."""
    places = np.arange(taps) - taps // 2
    curve = np.exp(-(places**2) / (2.0 * sigma**2))
    return tuple((curve / curve.sum()).astype(np.float32).tolist())


@dataclass(frozen=True, kw_only=True)
class Blur(Augment):
    """torchvision's ``GaussianBlur``.

    Attributes:
        p: how often.
        taps: of the rows and of the columns, odd.
        sigma: of the rows and of the columns, each from and to; one number is drawn for both.
    """

    p: float = 1.0
    taps: tuple[int, int]
    sigma: tuple[Span, Span]
    blocks: ClassVar[int] = 1  # whether, sigma
    keeps_places: ClassVar[bool] = False  # its float32 sum has an order
    moves: ClassVar[bool] = False

    def words(self, height: int, width: int, numbers: Numbers, boxes: F64 | None = None) -> Words:
        """``{"sigma": [1.2, 1.2]}``, or ``{"sigma": null}``: not this one."""
        del height, width, boxes
        whether, uniform, *_ = numbers.blocks(self.key, 0, 1)[0].tolist()
        those = [between(span, uniform) for span in self.sigma]
        return {"sigma": those if whether < self.p else None}

    def __str__(self) -> str:
        spans = dict.fromkeys(map(span_words, self.sigma))
        some = "" if self.p == 1 else f"{self.p:g} of the images "
        return f"blur {some}by {self.taps[0]} x {self.taps[1]} pixels, sigma {' and '.join(spans)}"

    def steps(self, words: Words, height: int, width: int) -> tuple[Filter, ...]:
        """One step, or none.

        Raises:
            ImageError: DOES_NOT_FIT: the kernel reaches across the mirror image.
        """
        sigma = words.get("sigma", [span[0] for span in self.sigma])
        if sigma is None:
            return ()
        rows, columns = self.taps
        if rows // 2 >= height or columns // 2 >= width:
            raise ImageError("DOES_NOT_FIT", f"{height} x {width} pixels are too few for a blur by {rows} x {columns}")
        return (Filter("blur", "torchvision", rows=weights(rows, sigma[0]), columns=weights(columns, sigma[1])),)
