"""Ops that tilt an image after its resize: straight lines stay straight, and parallels may meet."""

from __future__ import annotations

from typing import Any, ClassVar

from pixprep.errors import PipelineError
from pixprep.pipeline.ops.limits import Share
from pixprep.pipeline.ops.op import Drawn, Op, SteadyOp, as_kind
from pixprep.pipeline.ops.warp import Looking, Point
from pixprep.plan.draws.philox import Words
from pixprep.plan.draws.warps import PerspectiveMap, coefficients
from pixprep.plan.lowered import Lowered
from pixprep.plan.steps.warps import WarpFilter
from pixprep.spec import ImageSpec


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

    twin_of: ClassVar[str | None] = "torchvision"

    corners: tuple[tuple[int, int], ...]

    def check(self) -> None:
        super().check()
        if len(self.corners) != 4:
            raise PipelineError(f'"corners" are 4 pairs of x and y, not {len(self.corners)}')
        for corner in self.corners:
            Point.check("corners", corner)

    def lower(self, before: Lowered, image: ImageSpec, key: str) -> Lowered:
        return before.do(PerspectiveMap(key="", corners=self.corners, look=self.look(before)))

    def twin(self, image: Any, library: Any) -> Any:
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
            fill=self.levels_of(image),
        )


class RandomPerspective(Drawn, _Tilting, frozen=True, tag="random_perspective"):
    """Tilt some of the images at random.

    torchvision v2's ``RandomPerspective``: each corner pixel goes to a whole pixel of its own quarter, each as likely.
    As there, boxes and points go where the corners take them. An image of which three corners would lie on a line stays
    as it is: one of a single row or column always does.

    Args:
        distortion_scale: how far a corner may go: 0 not at all, 1 to the middle.
        p: how often, 0 to 1.
        filter, fill, like: as in ``rotate``.
    """

    distortion_scale: Share = 0.5
    p: Share = 0.5

    def lower(self, before: Lowered, image: ImageSpec, key: str) -> Lowered:
        return before.do(
            PerspectiveMap(key=key, distortion_scale=self.distortion_scale, p=self.p, look=self.look(before))
        )

    def fixed(self, words: Words) -> list[Op]:
        if words["corners"] is None:
            return []
        return [as_kind(Perspective, self, corners=tuple((x, y) for x, y in words["corners"]))]
