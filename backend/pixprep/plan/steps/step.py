"""Base class of the steps on pixel values, and the properties that determine how they can be combined."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from typing_extensions import Self

F64 = npt.NDArray[np.float64]
AnyStep = TypeVar("AnyStep", bound="Step")


class Traits:
    """Mixin with the properties that steps on pixel values share with ops whose steps differ between images.

    Attributes:
        branches: Lists of steps, if the step chooses between them at random.
        repeats: Whether the result may have padding that repeats parts of the image.
        is_call: Whether the step calls a custom operator.
        is_move: Whether the step is a geometric step between steps on pixel values.
        moves: Whether the step may move pixels, so that boxes and masks must be transformed with the image.
        no_places: Reason why later ops cannot output coordinates or coordinate transforms. Empty if they can.
        no_boxes: Reason why later ops cannot output boxes or points. Empty if they can.
        no_matrix: Reason why the coordinate transform is not a homography. Empty if it is.
    """

    __slots__ = ()

    branches: ClassVar[tuple[Any, ...]] = ()
    repeats: ClassVar[bool] = False
    is_call: ClassVar[bool] = False
    is_move: ClassVar[bool] = False
    moves: ClassVar[bool] = False
    no_places: ClassVar[str] = ""
    no_boxes: ClassVar[str] = ""
    no_matrix: ClassVar[str] = ""

    @property
    def traits(self) -> Traits:
        """Properties of the step."""
        return self

    @property
    def parameters(self) -> tuple[Any, ...]:
        """Steps whose parameters may be random or read from inputs."""
        return (self,)

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

    @property
    def is_color(self) -> bool:
        """Whether the step changes only colors, and neither moves pixels nor reads their neighbors."""
        return False

    @property
    def is_neutral(self) -> bool:
        """Whether the step does not change any image."""
        return False

    @property
    def keeps_gray_values(self) -> bool:
        """Whether the step does not change an image with one channel."""
        return False

    def changed(self, **fields: object) -> Self:
        """Return a copy of the step with these fields replaced."""
        return msgspec.structs.replace(self, **fields)

    def placed(self, rows: Any, columns: Any, drawing: Any) -> tuple[Step, ...]:
        """Return the steps for an image of known size.

        Args:
            rows: ``Span`` of the image's vertical axis.
            columns: ``Span`` of the image's horizontal axis.
            drawing: Parameters of the steps for the image; see ``inputs.Drawing``.
        """
        del rows, columns, drawing
        return (self,)

    def size_after(self, height: int, width: int) -> tuple[int, int]:
        """Return the size (height, width) of the result for an image of this size."""
        return height, width

    def forward(self, height: int, width: int) -> F64 | None:
        """Return the coordinate transform from an image of this size to the result (see ``levels.motions``).

        None means that the step does not move pixels.
        """
        del height, width
        return None

    def of_labels(self, height: int, width: int, fill: tuple[int, ...]) -> Step | None:
        """Return the step that moves the labels of a segmentation map as this step moves the pixels of its image.

        Args:
            height: Height of the map.
            width: Width of the map.
            fill: Label of the padding.

        Returns:
            A step with nearest-neighbor sampling, or None if this step does not move pixels.
        """
        del height, width, fill
        return None
