"""Base class of the steps on pixel values, and the properties that determine how they can be combined."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, TypeVar

import msgspec

if TYPE_CHECKING:
    from typing_extensions import Self

AnyStep = TypeVar("AnyStep", bound="Step")


class Traits:
    """Mixin for steps on pixel values, and for ops whose steps differ between images, that describes their properties.

    Attributes:
        moves: Whether the step may move pixels, so that boxes and masks must be transformed with the image.
        no_places: Reason why later ops cannot output coordinates or coordinate transforms. Empty if they can.
        no_boxes: Reason why later ops cannot output boxes or points. Empty if they can.
    """

    __slots__ = ()

    moves: ClassVar[bool] = False
    no_places: ClassVar[str] = ""
    no_boxes: ClassVar[str] = ""

    @property
    def is_pointwise(self) -> bool:
        """Whether each pixel of the result depends only on the pixel of the image at the same position."""
        return False

    @property
    def keeps_places(self) -> bool:
        """Whether a flip before the step has the same result as a flip after it."""
        return False

    @property
    def keeps_gray(self) -> bool:
        """Whether an image with equal channels always has equal channels after the step."""
        return False

    @property
    def is_hosts(self) -> bool:
        """Whether the step runs on the host even if the device is a GPU, because it has no CUDA kernel."""
        return False

    def is_gray(self, *, was_gray: bool) -> bool:
        """Return whether all channels are equal after the step. ``was_gray`` is whether they were equal before it."""
        return was_gray and self.keeps_gray


class Step(Traits, msgspec.Struct, frozen=True):
    """Step that maps a uint8 image of known size to a uint8 image."""

    def changed(self, **fields: object) -> Self:
        """Return a copy of the step with these fields replaced."""
        return msgspec.structs.replace(self, **fields)
