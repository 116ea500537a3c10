"""Ops that turn, shear, scale and move an image after its resize: each pixel of the result looks at a place of it.

``like`` says whose formulas. ``pillow``: Pillow's ``Image.rotate`` and ``Image.transform``, which torchvision uses on
PIL images. ``torchvision``: v2's of uint8 tensors on a CPU. They differ in a third of the values of a bilinear
rotation, at an edge by up to 191 levels. As in torchvision, a point and a translation are x before y, in pixels.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, ClassVar

import numpy as np

from pixprep.errors import PipelineError
from pixprep.pipeline.ops.limits import MAX_SIDE, Margin, Within, shown
from pixprep.pipeline.ops.op import Drawn, LevelsOp, Op, SteadyOp, as_kind
from pixprep.plan.draws.philox import Words
from pixprep.plan.draws.warps import AffineMap, Look, Motion, RandomAffineMap, Rotation, rotated
from pixprep.plan.lowered import Lowered
from pixprep.plan.steps.levels import size_after
from pixprep.plan.steps.warps import WarpFilter
from pixprep.spec import ColorLike, ImageSpec, InputSpec, as_tuple

MAX_ANGLE = 3600.0
MAX_SHEAR = 89.0
MAX_SCALE = 1000.0
_ANGLE = Within(-MAX_ANGLE, MAX_ANGLE)
Point = Within(-MAX_SIDE, MAX_SIDE, counts=(2,))
Pair = tuple[float, float]
Angles = float | tuple[float, ...]


class Looking(LevelsOp, frozen=True, kw_only=True):
    """Base of the ops that are a warp."""

    is_warp: ClassVar[bool] = True

    filter: WarpFilter = "nearest"
    fill: Margin = 0
    like: ColorLike = "pillow"

    def check(self) -> None:
        check_filter(self.filter, self.like)

    def look(self, before: Lowered) -> Look:
        """Parts that every warp has in common."""
        return Look(filter=self.filter, fill=before.colour(self.fill), like=self.like)

    def levels_of(self, image: Any) -> list[int]:
        """The fill: a level for each channel of an image that ``twin`` takes."""
        channels = len(image.getbands()) if self.like == "pillow" else image.shape[0]
        return [int(level) for level in np.broadcast_to(self.fill, channels)]


class _Warping(Looking, frozen=True, kw_only=True):
    center: Annotated[Pair, Point] | None = None

    def look(self, before: Lowered) -> Look:
        return replace(super().look(before), center=self.center)


class Rotate(_Warping, SteadyOp, frozen=True, tag="rotate"):
    """Rotate the image counter-clockwise.

    torchvision v2's ``rotate``. By a multiple of 90 degrees about the middle the pixels stay what they are, but of an
    image that is not square and does not expand.

    Args:
        angle: in degrees; or the name of an input that says it for each image.
        filter: ``nearest``, ``bilinear`` or, of ``like`` ``pillow``, ``bicubic``; none is antialiased.
        expand: make the result as large as the rotated image, which is then of its own size; else the size stays, and
            corners are cut off.
        center: (x, y) of the point that stays, in pixels from the upper left corner; default: the middle.
        fill: the colour where no image is, 0 to 255: one number, or one a channel.
        like: whose formulas.
    """

    angle: float | str
    expand: bool = False

    def check(self) -> None:
        super().check()
        if not isinstance(self.angle, str):
            _ANGLE.check("angle", self.angle)

    def inputs(self, image: ImageSpec) -> tuple[InputSpec, ...]:
        return (InputSpec(name=self.angle, kind="number"),) if isinstance(self.angle, str) else ()

    def infer(self, image: ImageSpec) -> ImageSpec:
        """The spec of the result; refuses values that are no levels."""
        image = super().infer(image)
        if not self.expand:
            return image
        if image.height is not None and image.width is not None and not isinstance(self.angle, str):
            look = Look(center=self.center, like=self.like)
            steps = rotated(image.height, image.width, self.angle, look, expand=True)
            return image.sized(*size_after(steps, image.height, image.width))
        return _open(image)

    def lower(self, before: Lowered, image: ImageSpec, key: str) -> Lowered:
        look = self.look(before)
        if isinstance(self.angle, str):
            return before.do(Rotation(key=key, input=self.angle, degrees=(0.0, 0.0), expand=self.expand, look=look))
        return before.do(Rotation(key="", degrees=(self.angle,) * 2, expand=self.expand, look=look))

    def twin(self, image: Any, library: Any) -> Any:
        assert not isinstance(self.angle, str)  # a pipeline with inputs is refused before
        if self.like == "pillow":
            resample, fill = library.Image.Resampling[self.filter.upper()], self.levels_of(image)
            return image.rotate(self.angle, resample, self.expand, self.center, fillcolor=tuple(fill))
        return library.rotate(
            image,
            angle=self.angle,
            interpolation=self.filter,
            expand=self.expand,
            center=self.center and list(self.center),
            fill=self.levels_of(image),
        )


class RandomRotate(Drawn, _Warping, frozen=True, tag="random_rotate"):
    """Rotate each image by a random angle.

    torchvision v2's ``RandomRotation``: the angle is uniform.

    Args:
        degrees: the most to either side, or from and to.
        expand: as in ``rotate``.
        filter, center, fill, like: as in ``rotate``.
    """

    degrees: Angles
    expand: bool = False

    def check(self) -> None:
        super().check()
        _check_angles("degrees", self.degrees, MAX_ANGLE, (2,))

    @property
    def span(self) -> Pair:
        """The angle, from and to."""
        return _spans(self.degrees)[0]

    def infer(self, image: ImageSpec) -> ImageSpec:
        """The spec of the result; refuses values that are no levels."""
        image = super().infer(image)
        return _open(image) if self.expand else image

    def lower(self, before: Lowered, image: ImageSpec, key: str) -> Lowered:
        return before.do(Rotation(key=key, degrees=self.span, expand=self.expand, look=self.look(before)))

    def fixed(self, words: Words) -> list[Op]:
        return [as_kind(Rotate, self, angle=words["angle"])]


class Affine(_Warping, SteadyOp, frozen=True, tag="affine"):
    """Rotate, shear and scale the image about a point, and move it; the size stays.

    torchvision v2's ``affine``.

    Args:
        angle: in degrees, clockwise, other than in ``rotate``: so it is in torchvision.
        translate: (x, y), in pixels.
        scale: over 1 enlarges.
        shear: of x, or of x and of y, in degrees, -89 to 89.
        filter, center, fill, like: as in ``rotate``.
    """

    twin_of: ClassVar[str | None] = "torchvision"  # of PIL images, too: Pillow itself knows matrices alone

    angle: Annotated[float, _ANGLE] = 0.0
    translate: Annotated[Pair, Point] = (0.0, 0.0)
    scale: Annotated[float, Within(1 / MAX_SCALE, MAX_SCALE)] = 1.0
    shear: Annotated[Angles, Within(-MAX_SHEAR, MAX_SHEAR, counts=(1, 2))] = 0.0

    @property
    def shears(self) -> Pair:
        """Angles of x and of y."""
        x, y = (*as_tuple(self.shear), 0.0)[:2]
        return x, y

    def lower(self, before: Lowered, image: ImageSpec, key: str) -> Lowered:
        motion = Motion(self.angle, self.translate, self.scale, self.shears)
        return before.do(AffineMap(motion=motion, look=self.look(before)))

    def twin(self, image: Any, library: Any) -> Any:
        return library.affine(
            image,
            angle=self.angle,
            translate=list(self.translate),
            scale=self.scale,
            shear=list(self.shears),
            interpolation=self.filter,
            center=self.center and list(self.center),
            fill=self.levels_of(image),
        )


class RandomAffine(Drawn, _Warping, frozen=True, tag="random_affine"):
    """Rotate, shear, scale and move each image at random; the size stays.

    torchvision v2's ``RandomAffine``: every number is uniform; the translation is rounded to whole pixels.

    Args:
        degrees: the most to either side, or from and to; 0: not at all.
        translate: the most to either side, as a part of the width and of the height; default: not at all.
        scale: from and to; default: not at all.
        shear: of x: the most to either side, or from and to; four numbers: from and to of x, then of y; default: not at
            all.
        filter, center, fill, like: as in ``rotate``.
    """

    degrees: Angles
    translate: Annotated[Pair, Within(0, 1, counts=(2,))] | None = None
    scale: Annotated[Pair, Within(1 / MAX_SCALE, MAX_SCALE, counts=(2,))] | None = None
    shear: Angles | None = None

    def check(self) -> None:
        super().check()
        _check_angles("degrees", self.degrees, MAX_ANGLE, (2,))
        if self.scale is not None:
            _check_rises("scale", self.scale)
        if self.shear is not None:
            _check_angles("shear", self.shear, MAX_SHEAR, (2, 4))

    @property
    def span(self) -> Pair:
        """The angle, from and to."""
        return _spans(self.degrees)[0]

    @property
    def shears(self) -> tuple[Pair, Pair]:
        """Values of x and of y, from and to."""
        x, y = (*_spans(self.shear or 0.0), (0.0, 0.0))[:2]
        return x, y

    def lower(self, before: Lowered, image: ImageSpec, key: str) -> Lowered:
        return before.do(
            RandomAffineMap(
                key=key,
                degrees=self.span,
                translate=self.translate or (0.0, 0.0),
                scale=self.scale or (1.0, 1.0),
                shear=self.shears,
                look=self.look(before),
            )
        )

    def fixed(self, words: Words) -> list[Op]:
        return [
            as_kind(
                Affine,
                self,
                angle=words["angle"],
                translate=tuple(words["translate"]),
                scale=words["scale"],
                shear=tuple(words["shear"]),
            )
        ]


def check_filter(filter_: WarpFilter, like: ColorLike) -> None:
    """Raise PipelineError where a library's warps have no such filter."""
    if filter_ == "bicubic" and like != "pillow":
        raise PipelineError(f'"filter": "{filter_}" is of "like": "pillow" alone')


def _open(image: ImageSpec) -> ImageSpec:
    """An image that expands to a size that is not known; no side is shorter than the shorter one."""
    least = min(image.min_height, image.min_width)
    return image.within((least, least))


def _spans(angles: Angles) -> tuple[Pair, ...]:
    """From and to of each."""
    values = as_tuple(angles)
    if len(values) == 1:
        return ((-values[0], values[0]),)
    return tuple((values[place], values[place + 1]) for place in range(0, len(values), 2))


def _check_angles(name: str, angles: Angles, most: float, counts: tuple[int, ...]) -> None:
    values = as_tuple(angles)
    if len(values) == 1:
        Within(0, most).check(name, values[0])
        return
    Within(-most, most, counts=(1, *counts)).check(name, values)
    for span in _spans(values):
        _check_rises(name, span)


def _check_rises(name: str, span: Pair) -> None:
    if span[0] > span[1]:
        raise PipelineError(f'"{name}" must rise, not {shown(span)}')
