"""Steps of a plan that differ from image to image: an op, and the key of the numbers that it draws."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Literal

import numpy.typing as npt

from pixprep.plan.draws.philox import F64, Numbers, Words
from pixprep.plan.steps.levels import LevelStep
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


class Changing(Drawing):
    """Base of the ops on levels whose steps depend on the size of the image, or on what is drawn.

    Attributes:
        moves: Whether it may move pixels, and with them what boxes and masks lie on.
        no_places: Reason why no later op may report where a pixel came from; empty: it may.
        no_boxes: Reason why no boxes or points may follow; empty: they may.
    """

    __slots__ = ()

    moves: ClassVar[bool] = False
    no_places: ClassVar[str] = ""
    no_boxes: ClassVar[str] = ""

    @property
    def is_pointwise(self) -> bool:
        """Tell whether each pixel of the result depends on the same pixel alone, whatever is drawn."""
        return False

    @property
    def keeps_places(self) -> bool:
        """Tell whether a mirror may come before or after."""
        return False

    @property
    def keeps_gray(self) -> bool:
        """Tell whether equal channels stay equal, as far as is known."""
        return False

    @property
    def is_hosts(self) -> bool:
        """Tell whether a GPU has no kernel for its steps, so that the host does them."""
        return False

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

    @property
    def is_hosts(self) -> bool:
        """Tell whether a GPU has no kernel for its steps."""
        return self.op.is_hosts

    def steps(self, words: Words, height: int, width: int) -> tuple[LevelStep, ...]:
        """Steps that the draw makes of it."""
        return self.op.steps(words, height, width, self.color)
