"""Ops that tilt an image after its resize: straight lines stay straight, and parallels may meet."""

from __future__ import annotations

from typing import Any, ClassVar

from pixprep.draws.philox import Words
from pixprep.draws.warps import PerspectiveMap, coefficients
from pixprep.errors import PipelineError
from pixprep.ops.op import MAX_SIDE, Op, SteadyOp, check_range
from pixprep.ops.warp import Looking, check_all
from pixprep.plan.lowered import Lowered
from pixprep.spec import ImageSpec, Side
from pixprep.steps.warps import WarpFilter


class _Tilting(Looking, frozen=True, kw_only=True):
    filter: WarpFilter = "bilinear"


class Perspective(_Tilting, SteadyOp, frozen=True, tag="perspective"):
    """Tilt the image: its four corner pixels go to others, and straight lines stay straight; the size stays.

    torchvision v2's ``perspective``, with ``corners`` as its ``endpoints``; its coefficients are here exact, and there
    of least squares. An image of which three corners would lie on a line stays as it is.

    Args:
        corners: (x, y) of the pixel that the upper left, upper right, lower right and lower left one go to.
        filter, fill, like: as in ``rotate``.
    """

    corners: tuple[tuple[int, int], ...]

    def check(self) -> None:
        """See ``Op.check``."""
        super().check()
        if len(self.corners) != 4:
            raise PipelineError(f'"corners" are 4 pairs of x and y, not {len(self.corners)}')
        for corner in self.corners:
            check_all("corners", corner, -MAX_SIDE, MAX_SIDE, 2)

    def lower(self, before: Lowered, image: ImageSpec, key: str) -> Lowered:
        """See ``ImageOp.lower``."""
        del image, key
        return before.do(PerspectiveMap(key="", corners=self.corners, look=self.look(before)))

    @property
    def library(self) -> str:
        """See ``Affine.library``."""
        return "torchvision"

    def twin(self, image: Any, library: Any) -> Any:
        """See ``SteadyOp.twin``."""
        height, width = library.get_size(image)
        found = coefficients(height, width, self.corners)
        if found is None:
            return image
        return library.perspective(
            image,
            startpoints=None,
            endpoints=None,
            coefficients=list(found),
            interpolation=self.filter,
            fill=self.levels_of(len(image.getbands()) if self.like == "pillow" else image.shape[0]),
        )


class RandomPerspective(_Tilting, frozen=True, tag="random_perspective"):
    """Tilt some of the images at random.

    torchvision v2's ``RandomPerspective``: each corner pixel goes to a whole pixel of its own quarter, each as likely.
    As there, boxes and points go where the corners take them. An image of which three corners would lie on a line stays
    as it is: one of a single row or column always does.

    Args:
        distortion_scale: how far a corner may go: 0 not at all, 1 to the middle.
        p: how often, 0 to 1.
        filter, fill, like: as in ``rotate``.
    """

    home: ClassVar[Side | None] = "training"

    distortion_scale: float = 0.5
    p: float = 0.5

    def check(self) -> None:
        """See ``Op.check``."""
        super().check()
        check_range("distortion_scale", self.distortion_scale, 0, 1)
        check_range("p", self.p, 0, 1)

    def lower(self, before: Lowered, image: ImageSpec, key: str) -> Lowered:
        """See ``ImageOp.lower``."""
        del image
        return before.do(
            PerspectiveMap(key=key, distortion_scale=self.distortion_scale, p=self.p, look=self.look(before))
        )

    def fixed(self, words: Words) -> list[Op]:
        """See ``Op.fixed``."""
        if words["corners"] is None:
            return []
        corners = tuple((x, y) for x, y in words["corners"])
        return [Perspective(corners=corners, filter=self.filter, fill=self.fill, like=self.like)]
