"""Steps of a plan that differ from image to image: an op, and the key of the numbers that it draws."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy.typing as npt

from pixprep.plan.draws.philox import F64, Numbers, Words
from pixprep.plan.steps.levels import LevelStep
from pixprep.plan.steps.step import Traits
from pixprep.spec import Color

Uniforms = Callable[[int, int], F64]
"""``uniforms(begin, count)``: float64 (count, 4), blocks of the numbers of one op."""


class Drawing:
    """Base of the ops that a plan asks for each image: what one draws, and in which words it is shown."""

    __slots__ = ()

    @property
    def blocks(self) -> int:
        """Number of blocks of four numbers that it draws."""
        return 0

    def draw(self, height: int, width: int, uniforms: Uniforms) -> Words:
        """Draw for an image of this size; JSON holds the result."""
        raise NotImplementedError

    def in_words(self) -> str:
        """Words for what it does."""
        raise NotImplementedError


class Changing(Traits, Drawing):
    """Base of the ops on levels whose steps depend on the size of the image, or on what is drawn."""

    __slots__ = ()

    def input_words(self, row: npt.NDArray[Any] | None, height: int, width: int) -> Words:
        """Words of a row that came with an image of this size, of an op that takes one; None: an example.

        Raises:
            ImageError: BAD_INPUT, DOES_NOT_FIT: nothing can be made of it.
        """
        raise NotImplementedError

    def steps(self, words: Words, height: int, width: int, color: Color) -> tuple[LevelStep, ...]:
        """Steps on an image of this size, its channels in this order.

        Raises:
            ImageError: DOES_NOT_FIT: the image is too small.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class RandomStep:
    """Window, flip, size or frames that are drawn: ``words`` has them.

    Attributes:
        key: names its numbers.
        op: which draws.
        is_inside: every window lies inside the image.
        axis: of a mirror, as in the plan's ``Flip``; None: it is none.
    """

    key: str
    op: Drawing
    is_inside: bool = True
    axis: Literal["horizontal", "vertical"] | None = None

    @property
    def blocks(self) -> int:
        """Number of blocks of four numbers it takes."""
        return self.op.blocks

    def words(self, height: int, width: int, numbers: Numbers, boxes: F64 | None = None) -> Words:
        """Draw for an image of this size."""
        del boxes
        return self.op.draw(height, width, partial(numbers.blocks, self.key))

    def __str__(self) -> str:
        return self.op.in_words()


@dataclass(frozen=True, kw_only=True)
class Augment(RandomStep):
    """Op on levels whose steps depend on the size of the image, or on what is drawn.

    Attributes:
        key: names its numbers; empty: nothing is drawn.
        color: order of the channels of the image that it takes.
        input: whose row is in place of what is drawn; None: none is.
    """

    op: Changing
    color: Color
    input: str | None = None

    def steps(self, words: Words, height: int, width: int) -> tuple[LevelStep, ...]:
        """Steps that the draw makes of it."""
        return self.op.steps(words, height, width, self.color)
