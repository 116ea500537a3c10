"""Steps of a plan that differ from image to image: each has an op, and the key of the random numbers that it draws."""

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
"""``uniforms(begin, count)`` returns float64 (count, 4): blocks of the random numbers of one op."""


class Drawing:
    """Base class of the ops that draw parameters for each image, and describe them as text."""

    __slots__ = ()

    @property
    def blocks(self) -> int:
        """Number of blocks of four random numbers that the op draws."""
        return 0

    def draw(self, height: int, width: int, uniforms: Uniforms) -> Words:
        """Draw the parameters for an image of this size; JSON can represent the result."""
        raise NotImplementedError

    def in_words(self) -> str:
        """Describe the op as text."""
        raise NotImplementedError


class Changing(Traits, Drawing):
    """Base class of the ops on pixel values whose steps depend on the size of the image, or on random parameters."""

    __slots__ = ()

    def input_words(self, row: npt.NDArray[Any] | None, height: int, width: int) -> Words:
        """Return the parameters of an input row for an image of this size; None as the row returns an example.

        Raises:
            ImageError: BAD_INPUT, DOES_NOT_FIT: The row is invalid, or does not fit the image.
        """
        raise NotImplementedError

    def steps(self, words: Words, height: int, width: int, color: Color) -> tuple[LevelStep, ...]:
        """Return the steps for an image of this size and channel order.

        Raises:
            ImageError: DOES_NOT_FIT: The image is too small.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class RandomStep:
    """A random window, flip, size or selection of frames, which ``words`` draws.

    Attributes:
        key: Key of the step's random numbers.
        op: Op that draws.
        is_inside: Whether every window is entirely inside the image.
        axis: Axis of a mirror, as in the plan's ``Flip``; None: The step does not mirror.
    """

    key: str
    op: Drawing
    is_inside: bool = True
    axis: Literal["horizontal", "vertical"] | None = None

    @property
    def blocks(self) -> int:
        """Number of blocks of four random numbers that the step draws."""
        return self.op.blocks

    def words(self, height: int, width: int, numbers: Numbers, boxes: F64 | None = None) -> Words:
        """Draw the parameters for an image of this size."""
        del boxes
        return self.op.draw(height, width, partial(numbers.blocks, self.key))

    def __str__(self) -> str:
        return self.op.in_words()


@dataclass(frozen=True, kw_only=True)
class Augment(RandomStep):
    """An op on pixel values whose steps depend on the size of the image, or on random parameters.

    Attributes:
        key: Key of the step's random numbers; empty: The op draws nothing.
        color: Channel order of the image.
        input: Name of the input whose row replaces the random parameters; None: No input replaces them.
    """

    op: Changing
    color: Color
    input: str | None = None

    def steps(self, words: Words, height: int, width: int) -> tuple[LevelStep, ...]:
        """Return the steps of these parameters."""
        return self.op.steps(words, height, width, self.color)
