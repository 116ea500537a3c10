"""Defines the steps of a plan whose parameters differ between images, because they are random or per-image inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from pixprep.plan.canvas_steps import Draws, GeometryStep
from pixprep.plan.draws.philox import F64, Numbers, Words
from pixprep.plan.placement import Span
from pixprep.plan.steps.levels import LevelStep
from pixprep.plan.steps.step import Traits
from pixprep.spec import Color

Uniforms = Callable[[int, int], F64]
"""Function ``uniforms(begin, count)`` that returns uniform random numbers of one op, float64 (count, 4).

The random numbers of an op form a sequence of blocks of four numbers. The function returns ``count`` of these blocks,
beginning with the block ``begin``.
"""


class Seen(NamedTuple):
    """Annotations of a sample on which random parameters depend, in pixels of the image at the op.

    Attributes:
        boxes: Boxes, float64 (n, 4) xyxy, or None.
        points: Points (x, y), float64 (n, 2) or (n, k, 2), or None.
        visible: Whether each point is visible, (n, k), or None.
        labels: Function that returns the labels of the pixels, integers (height, width).
    """

    boxes: F64 | None = None
    points: F64 | None = None
    visible: npt.NDArray[Any] | None = None
    labels: Callable[[], npt.NDArray[Any]] | None = None


class Drawing:
    """Base class of ops with random parameters."""

    __slots__ = ()

    @property
    def sees(self) -> tuple[str, ...]:
        """Fields of the sample on which the random parameters depend: ``boxes``, ``points``, ``visible``, ``mask``."""
        return ()

    @property
    def blocks(self) -> int:
        """Number of blocks of four random numbers that the op uses if its parameters are random."""
        return 1

    def draw(self, height: int, width: int, uniforms: Uniforms) -> Words:
        """Sample the parameters for an image of this size. The result is JSON-serializable."""
        raise NotImplementedError

    def draw_by(self, seen: Seen, height: int, width: int, uniforms: Uniforms) -> Words:
        """Sample the parameters of an op that depends on annotations (see ``sees``), for an image of this size."""
        raise NotImplementedError

    def keeps(self, words: Words, boxes: F64) -> npt.NDArray[np.bool_] | None:
        """Return the mask of the boxes that the op keeps, bool (n,), or None if the op does not remove boxes."""
        del words, boxes
        return None

    def in_words(self) -> str:
        """Return a description of the op in words."""
        raise NotImplementedError


class Changing(Traits, Drawing):
    """Base class of ops on pixel values whose steps depend on the image size, on random parameters or on inputs."""

    __slots__ = ()

    def input_words(self, row: npt.NDArray[Any] | None, height: int, width: int) -> Words:
        """Return the parameters that a row of the op's input specifies, for an image of this size.

        Args:
            row: Row of the input. None means an example.
            height: Height of the image in pixels.
            width: Width of the image in pixels.

        Raises:
            ImageError: BAD_INPUT, DOES_NOT_FIT: The row is invalid, or it is not valid for an image of this size.
        """
        raise NotImplementedError

    def steps(self, words: Words, height: int, width: int, color: Color) -> tuple[LevelStep, ...]:
        """Return the steps for an image.

        Args:
            words: Parameters of the op, as returned by ``draw`` or ``input_words``.
            height: Height of the image in pixels.
            width: Width of the image in pixels.
            color: Channel order of the image.

        Raises:
            ImageError: DOES_NOT_FIT: The image is too small.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class RandomStep(GeometryStep):
    """Random window, flip, size, choice or selection of frames.

    Attributes:
        key: Key that identifies the step's random numbers.
        op: Op that samples the parameters.
        is_inside: Whether the window is always entirely inside the image.
        axis: Direction of a flip, as in ``geometry_steps.Flip``. None means that the step is not a flip.
    """

    key: str
    op: Drawing
    is_inside: bool = True
    axis: Literal["horizontal", "vertical"] | None = None

    @property
    def is_flip(self) -> bool:
        """See ``GeometryStep``."""
        return self.axis is not None

    @property
    def is_random(self) -> bool:
        """See ``GeometryStep``."""
        return True

    @property
    def blocks(self) -> int:
        """Number of blocks of four random numbers that the step uses."""
        return self.op.blocks

    @property
    def sees(self) -> tuple[str, ...]:  # type: ignore[override]  # a class variable of other steps
        """See ``GeometryStep``."""
        return self.op.sees

    @property
    def early(self) -> str:  # type: ignore[override]  # as above
        """See ``GeometryStep``."""
        return "it selects its window by the annotations of the sample" if self.op.sees else ""

    def words(self, height: int, width: int, numbers: Numbers, seen: Seen | None = None) -> Words:
        """Sample the parameters for an image of this size.

        Args:
            height: Height of the image in pixels.
            width: Width of the image in pixels.
            numbers: Random numbers of the sample.
            seen: Annotations of the sample, if the op depends on them. None means an example without annotations.
        """
        uniforms = partial(numbers.blocks, self.key)
        if seen is None:
            return self.op.draw(height, width, uniforms)
        return self.op.draw_by(seen, height, width, uniforms)

    def __str__(self) -> str:
        return self.op.in_words()


@dataclass(frozen=True, kw_only=True)
class Augment(RandomStep):
    """Op on pixel values whose steps depend on the image size, on random parameters or on inputs.

    Attributes:
        key: Key that identifies the op's random numbers. Empty if the op has neither random parameters nor inputs.
        color: Channel order of the image.
        input: Name of the per-image input that contains the parameters. None means that the parameters are not an
            input.
    """

    branches: ClassVar[tuple[()]] = ()
    repeats: ClassVar[bool] = False
    is_call: ClassVar[bool] = False
    is_move: ClassVar[bool] = False
    op: Changing
    color: Color
    input: str | None = None

    @property
    def traits(self) -> Traits:
        """See ``Traits``."""
        return self.op

    @property
    def parameters(self) -> tuple[Augment, ...]:
        """See ``Traits``."""
        return (self,)

    def steps(self, words: Words, height: int, width: int) -> tuple[LevelStep, ...]:
        """Return the steps for an image of this size with these parameters."""
        return self.op.steps(words, height, width, self.color)

    def placed(self, rows: Span, columns: Span, drawing: Draws) -> tuple[LevelStep, ...]:
        """See ``Traits``."""
        words = drawing.words(self, rows, columns) if self.key else {}
        return self.steps(words, rows.canvas, columns.canvas)

    def given(self, row: Mapping[str, npt.NDArray[Any]] | None, rows: Span, columns: Span) -> Words:
        """See ``inputs.Box``."""
        assert self.input is not None
        return self.op.input_words(None if row is None else row[self.input], rows.canvas, columns.canvas)
