"""Base class of the steps on pixel values, and the properties of a step or of an op that a plan reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, TypeVar

import msgspec

if TYPE_CHECKING:
    from typing_extensions import Self

AnyStep = TypeVar("AnyStep", bound="Step")


class Traits:
    """Mixin with the properties of steps on pixel values, and of ops whose steps differ from image to image.

    Attributes:
        moves: Whether the step may move pixels, and with them boxes and masks.
        no_places: Reason why no later op may report where a pixel came from; empty if it may.
        no_boxes: Reason why no boxes or points may follow; empty if they may.
    """

    __slots__ = ()

    moves: ClassVar[bool] = False
    no_places: ClassVar[str] = ""
    no_boxes: ClassVar[str] = ""

    @property
    def is_pointwise(self) -> bool:
        """Tell whether each pixel of the result always depends only on the same pixel of the image."""
        return False

    @property
    def keeps_places(self) -> bool:
        """Tell whether a mirror before the step has the same result as a mirror after it."""
        return False

    @property
    def keeps_gray(self) -> bool:
        """Tell whether equal channels stay equal, as far as is known."""
        return False

    @property
    def is_hosts(self) -> bool:
        """Tell whether the step runs on the host because the GPU lacks a kernel for it."""
        return False

    def is_gray(self, *, was_gray: bool) -> bool:
        """Tell whether all channels are equal after the step; ``was_gray``: They were equal before it."""
        return was_gray and self.keeps_gray


class Step(Traits, msgspec.Struct, frozen=True):
    """A step on the pixel values of an image of known size, uint8 to uint8."""

    def changed(self, **fields: object) -> Self:
        """Return the same step with different values of some fields."""
        return msgspec.structs.replace(self, **fields)
