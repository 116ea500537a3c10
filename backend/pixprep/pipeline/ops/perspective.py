"""Ops that apply a homography to the cropped and resized image."""

from __future__ import annotations

from typing import ClassVar

from pixprep.errors import PipelineError
from pixprep.pipeline.ops.limits import Fraction
from pixprep.pipeline.ops.op import Drawn, Op, SteadyOp, as_kind, drawn
from pixprep.pipeline.ops.warp import Point, WarpOp
from pixprep.plan.draws.augments import Uniforms
from pixprep.plan.draws.motions import projected
from pixprep.plan.draws.philox import Words
from pixprep.plan.steps.levels import LevelStep
from pixprep.spec import Color, WarpFilter


class _PerspectiveBase(WarpOp, frozen=True, kw_only=True):
    """Base class of the perspective warps."""

    filter: WarpFilter = "bilinear"


class Perspective(_PerspectiveBase, SteadyOp, frozen=True, tag="perspective"):
    """Applies the homography that moves the four corner pixels to given positions; the size does not change.

    The op reproduces torchvision v2's ``perspective`` with ``corners`` as ``endpoints``. The coefficients are exact,
    whereas torchvision computes them by least squares. If three of the corners are on one line, the image does not
    change.

    Args:
        corners: New positions (x, y) of the upper left, upper right, lower right and lower left corner pixels.
        filter, fill, like: as in ``rotate``.

    Example:
        {"op": "perspective", "corners": [[1, 0], [7, 0], [7, 7], [0, 7]]}
    """

    corners: tuple[tuple[int, int], ...]

    def check(self) -> None:
        super().check()
        if len(self.corners) != 4:
            raise PipelineError(f'"corners" must contain 4 points (x, y), not {len(self.corners)}')
        for corner in self.corners:
            Point.check("corners", corner)

    def in_words(self) -> str:
        return f"move the corners to {', '.join(f'{x} {y}' for x, y in self.corners)}{self.look()}"

    def steps(self, words: Words, height: int, width: int, color: Color) -> tuple[LevelStep, ...]:
        return projected(height, width, self.corners, self.look(color))


class RandomPerspective(Drawn, _PerspectiveBase, frozen=True, tag="random_perspective"):
    """Applies a random homography to some of the images.

    The op reproduces torchvision v2's ``RandomPerspective``: each corner pixel moves to a uniformly distributed
    position in its own quarter of the image. As in torchvision, boxes and points are transformed with the image. If
    three of the corners are on one line, the image does not change. This is always the case if the image has only one
    row or column.

    Args:
        distortion_scale: Maximum displacement of a corner as a fraction of half the width and height. 0 does not change
            the image, and with 1, corners move as far as the center of the image.
        p: Probability that the op is applied, 0 to 1.
        filter, fill, like: as in ``rotate``.

    Example:
        {"op": "random_perspective", "distortion_scale": 0.3}
    """

    blocks: ClassVar[int] = 3  # random numbers for two corners (x, y), for the two other corners, and for p

    distortion_scale: Fraction = 0.5
    p: Fraction = 0.5

    def draw(self, height: int, width: int, uniforms: Uniforms) -> Words:
        """Return the positions (x, y) of the corners, such as ``{"corners": [[3, 0], [61, 5], [60, 40], [1, 47]]}``.

        The value is None if the op is not applied.
        """
        numbers = uniforms(0, 3).ravel().tolist()
        if numbers[8] >= self.p:
            return {"corners": None}
        corners = []
        for index, (x, y) in enumerate(zip(numbers[0:8:2], numbers[1:8:2], strict=True)):
            is_right, is_lower = index in (1, 2), index > 1
            corners.append(
                [self._random_position(x, width, is_last=is_right), self._random_position(y, height, is_last=is_lower)]
            )
        return {"corners": corners}

    def _random_position(self, uniform: float, side: int, *, is_last: bool) -> int:
        """Return a random position near the start of a side or, with ``is_last``, near its end."""
        bound = int(self.distortion_scale * (side // 2)) + 1
        return int(uniform * bound) + (side - bound) * is_last

    def in_words(self) -> str:
        reach = f"up to {self.distortion_scale:g} of half a side"
        return f"move the corners of {self.p:g} of the images at random, by {reach}{self.look()}"

    def fixed_ops(self, words: Words) -> list[Op]:
        if words["corners"] is None:
            return []
        base = as_kind(Perspective, self, corners=((0, 0),) * 4)
        return [drawn(base, corners=tuple((x, y) for x, y in words["corners"]))]
