"""Base of the steps on levels, and what a plan asks of each step, or of the op that makes its steps."""

from __future__ import annotations

from typing import ClassVar, TypeVar

import msgspec
from typing_extensions import Self

AnyStep = TypeVar("AnyStep", bound="Step")


class Traits:
    """A mixin: the answers of a step on levels, or of an op whose steps differ from image to image.

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
        """Tell whether a GPU has no kernel for it, so that the host does it."""
        return False

    def is_gray(self, *, was_gray: bool) -> bool:
        """Tell whether all channels are equal after it, as far as is known; ``was_gray``: they were before."""
        return was_gray and self.keeps_gray


class Step(Traits, msgspec.Struct, frozen=True):
    """A step on the levels of an image of known size, uint8 to uint8."""

    def changed(self, **fields: object) -> Self:
        """The same step with other values of some fields."""
        return msgspec.structs.replace(self, **fields)
