"""Ops that turn, shear, scale and move an image after its resize: each pixel of the result looks at a place of it.

``like`` says whose formulas. ``pillow``: Pillow's ``Image.rotate`` and ``Image.transform``, which torchvision uses on
PIL images. ``torchvision``: v2's of uint8 tensors on a CPU. ``dali``, of ``rotate``: DALI 2.4's CPU operator.
``opencv``, of ``affine``: OpenCV 4's ``warpAffine``. The first two differ in a third of the values of a bilinear
rotation, at an edge by up to 191 levels. As in torchvision, a point and a translation are x before y, in pixels.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Annotated, Any, ClassVar, Literal

from pixprep.errors import ImageError, PipelineError
from pixprep.pipeline.ops.canvas import check_padding
from pixprep.pipeline.ops.limits import MAX_SIDE, Margin, Share, Spread, Within, spans
from pixprep.pipeline.ops.op import LevelsOp, Op, SteadyOp, Whether, as_kind, drawn
from pixprep.plan.draws.augments import Uniforms
from pixprep.plan.draws.motions import Look, Motion, mapped, rotated
from pixprep.plan.draws.philox import Words, between, span_words
from pixprep.plan.inputs import number
from pixprep.plan.lowered import colour
from pixprep.plan.profiles import WARPS
from pixprep.plan.steps.levels import LevelStep, size_after
from pixprep.spec import Color, ColorLike, ImageSpec, InputSpec, Levels, PaddingMode, WarpFilter, WarpLike, as_tuple

MAX_ANGLE = 3600.0
MAX_SHEAR = 89.0
MAX_SCALE = 1000.0
_ANGLE = Within(-MAX_ANGLE, MAX_ANGLE)
DEGREES = Spread(-MAX_ANGLE, MAX_ANGLE)
SHEARS = Spread(-MAX_SHEAR, MAX_SHEAR, counts=(1, 2, 4))
Point = Within(-MAX_SIDE, MAX_SIDE, counts=(2,))
Pair = tuple[float, float]
RotateLike = Literal["pillow", "torchvision", "dali"]
AffineLike = Literal["pillow", "torchvision", "opencv"]
Angles = float | tuple[float, ...]


class Looking(LevelsOp, frozen=True, kw_only=True):
    """Base of the ops that are a warp."""

    moves: ClassVar[bool] = True
    may_colour: ClassVar[bool] = False
    profiles: ClassVar[Mapping[Any, Any]] = WARPS

    filter: WarpFilter = "nearest"
    fill: Margin = 0
    like: ColorLike = "pillow"

    def check(self) -> None:
        check_warp(self.like, self.filter)

    def look(self, color: Color = "rgb") -> Look:
        """Parts that every warp has in common, of an image with its channels in this order."""
        center, mode = getattr(self, "center", None), getattr(self, "padding_mode", None)
        return look(self.filter, self.fill, self.like, color, center=center, padding_mode=mode or "constant")


class _Warping(Looking, frozen=True, kw_only=True):
    center: Annotated[Pair, Point] | None = None


class _Bordered(_Warping, frozen=True, kw_only=True):
    """Base of the ops that may show the image in place of a fill, by the formulas of one library."""

    like: AffineLike = "pillow"  # type: ignore[assignment]  # no other warp has OpenCV's
    padding_mode: PaddingMode | None = None

    def check(self) -> None:
        check_warp(self.like, self.filter, self.padding_mode)
        check_padding(self.padding_mode or "constant", self.fill)

    @property
    def no_boxes(self) -> str:  # type: ignore[override]  # of most ops it is the same for all
        """Reason why no boxes or points may come behind it; empty: they may."""
        return shown_again(self.padding_mode or "constant")


class _Turning(_Bordered, frozen=True, kw_only=True):
    like: RotateLike = "pillow"  # type: ignore[assignment]  # no other warp has DALI's
    padding_mode: Literal["constant", "edge"] | None = None

    def check(self) -> None:
        super().check()
        if self.center is not None and not WARPS[self.like].turns_about:
            raise PipelineError(f'"like": "{self.like}" turns about the middle: leave "center" out')


class Rotate(_Turning, SteadyOp, frozen=True, tag="rotate"):
    """Rotate the image counter-clockwise.

    torchvision v2's ``rotate``. By a multiple of 90 degrees about the middle the pixels stay what they are, but of an
    image that is not square and does not expand.

    Args:
        angle: in degrees; or the name of an input that says it for each image, or ``name[1]``, its second number.
        filter: ``nearest``, ``bilinear`` or, of ``like`` ``pillow``, ``bicubic``; none is antialiased.
        expand: make the result as large as the rotated image, which is then of its own size; else the size stays, and
            corners are cut off.
        center: (x, y) of the point that stays, in pixels from the upper left corner; default: the middle.
        fill: the colour where no image is, 0 to 255: one number, or one a channel.
        like: whose formulas; ``dali`` turns about the middle, and its result may be a pixel larger when it expands. A
            GPU leaves it to the host.
        padding_mode: of ``like`` ``dali``: ``edge`` shows the nearest pixel of the image in place of the fill;
            default: ``constant``.
    """

    angle: float | str
    expand: bool = False

    def check(self) -> None:
        super().check()
        if not isinstance(self.angle, str):
            _ANGLE.check("angle", self.angle)

    def inputs(self, image: ImageSpec) -> tuple[InputSpec, ...]:
        return (number(self.angle).spec,) if isinstance(self.angle, str) else ()

    def infer(self, image: ImageSpec) -> ImageSpec:
        """The spec of the result; refuses values that are no levels."""
        image = super().infer(image)
        if not self.expand:
            return image
        if image.height is not None and image.width is not None and not isinstance(self.angle, str):
            steps = self.steps({}, image.height, image.width, image.color)
            return image.sized(*size_after(steps, image.height, image.width))
        return _open(image)

    def in_words(self) -> str:
        is_given = isinstance(self.angle, str)
        angle = f'the angle that "{self.angle}" says' if is_given else f"{self.angle:.4g} degrees"
        return f"rotate by {angle}{', expanding' if self.expand else ''}{self.look()}"

    def input_words(self, row: Any, height: int, width: int) -> Words:
        return {"angle": 0.0 if row is None else float(row[number(str(self.angle)).place])}

    def steps(self, words: Words, height: int, width: int, color: Color) -> tuple[LevelStep, ...]:
        return rotated(height, width, words.get("angle", self.angle), self.look(color), expand=self.expand)


class RandomRotate(Whether, _Warping, frozen=True, tag="random_rotate"):
    """Rotate each image by a random angle.

    torchvision v2's ``RandomRotation``: the angle is uniform.

    Args:
        degrees: the most to either side, or from and to.
        expand: as in ``rotate``.
        filter, center, fill, like: as in ``rotate``.
        p: how often, 0 to 1; else the image stays as it is.
    """

    blocks: ClassVar[int] = 1  # the angle

    degrees: Annotated[Angles, DEGREES]
    expand: bool = False
    p: Share = 1.0

    @property
    def span(self) -> Pair:
        """The angle, from and to."""
        return spans(self.degrees)[0]

    def infer(self, image: ImageSpec) -> ImageSpec:
        """The spec of the result; refuses values that are no levels."""
        image = super().infer(image)
        return _open(image) if self.expand else image

    def draw(self, height: int, width: int, uniforms: Uniforms) -> Words:
        """``{"angle": 12.5}``."""
        return {"angle": between(self.span, float(uniforms(0, 1)[0, 0]))}

    def in_words(self) -> str:
        return f"rotate by {span_words(self.span, ' degrees')}{', expanding' if self.expand else ''}{self.look()}"

    def fixed(self, words: Words) -> list[Op]:
        return [as_kind(Rotate, self, angle=words["angle"])]


class Affine(_Bordered, SteadyOp, frozen=True, tag="affine"):
    """Rotate, shear and scale the image about a point, and move it; the size stays.

    torchvision v2's ``affine``. With ``like`` ``opencv`` the same map is done by OpenCV 4's ``warpAffine``.

    Args:
        angle: in degrees, clockwise, other than in ``rotate``: so it is in torchvision.
        translate: (x, y), in pixels.
        scale: over 1 enlarges.
        shear: of x, or of x and of y, in degrees, -89 to 89.
        filter, center, fill: as in ``rotate``; ``like`` ``opencv`` has ``bicubic``, too.
        like: whose formulas.
        padding_mode: of ``like`` ``opencv``: what lies outside, as in ``warp``; default: ``constant``, the fill.
    """

    angle: Annotated[float, _ANGLE] = 0.0
    translate: Annotated[Pair, Point] = (0.0, 0.0)
    scale: Annotated[float, Within(1 / MAX_SCALE, MAX_SCALE)] = 1.0
    shear: Annotated[Angles, Within(-MAX_SHEAR, MAX_SHEAR, counts=(1, 2))] = 0.0

    @property
    def shears(self) -> Pair:
        """Angles of x and of y."""
        x, y = (*as_tuple(self.shear), 0.0)[:2]
        return x, y

    @property
    def _motion(self) -> Motion:
        return Motion(self.angle, self.translate, self.scale, self.shears)

    def in_words(self) -> str:
        return f"{self._motion}{self.look()}"

    def steps(self, words: Words, height: int, width: int, color: Color) -> tuple[LevelStep, ...]:
        check_side(self.like, height, width)
        return (mapped(height, width, self._motion, self.look(color)),)


class RandomAffine(Whether, _Bordered, frozen=True, tag="random_affine"):
    """Rotate, shear, scale and move each image at random; the size stays.

    torchvision v2's ``RandomAffine``: every number is uniform; the translation is rounded to whole pixels.

    Args:
        degrees: the most to either side, or from and to; 0: not at all.
        translate: the most to either side, as a part of the width and of the height; default: not at all.
        scale: from and to; default: not at all.
        shear: of x: the most to either side, or from and to; four numbers: from and to of x, then of y; default: not at
            all.
        filter, center, fill, like, padding_mode: as in ``affine``.
        p: how often, 0 to 1; else the image stays as it is.
    """

    blocks: ClassVar[int] = 2  # angle, x, y, scale; shear of x and y

    degrees: Annotated[Angles, DEGREES]
    translate: Annotated[Pair, Within(0, 1, counts=(2,))] | None = None
    scale: Annotated[Pair, Spread(1 / MAX_SCALE, MAX_SCALE, counts=(2,))] | None = None
    shear: Annotated[Angles | None, SHEARS] = None
    p: Share = 1.0

    def draw(self, height: int, width: int, uniforms: Uniforms) -> Words:
        """``{"angle": 3.1, "translate": [4, -2], "scale": 1.1, "shear": [0.0, 0.0]}``; whole pixels."""
        (angle, x, y, scale), (shear_x, shear_y, *_) = uniforms(0, 2).tolist()
        mosts = self.translate or (0.0, 0.0)
        return {
            "angle": between(spans(self.degrees)[0], angle),
            "translate": [
                round(between((-most * side, most * side), u))
                for most, side, u in zip(mosts, (width, height), (x, y), strict=True)
            ],
            "scale": between(self.scale or (1.0, 1.0), scale),
            "shear": [between(span, u) for span, u in zip(shears(self.shear), (shear_x, shear_y), strict=True)],
        }

    def in_words(self) -> str:
        angle, shear_x, shear_y = map(span_words, (*spans(self.degrees), *shears(self.shear)), (" degrees", "", ""))
        x, y = self.translate or (0.0, 0.0)
        return (
            f"rotate by {angle} clockwise, shear by {shear_x}, {shear_y}, scale by "
            f"{span_words(self.scale or (1.0, 1.0))}, move by up to {x:.4g} of the width and {y:.4g} of the height"
            f"{self.look()}"
        )

    def fixed(self, words: Words) -> list[Op]:
        still = as_kind(Affine, self, translate=(0.0, 0.0), scale=1.0, shear=0.0)
        translate, shear = tuple(words["translate"]), tuple(words["shear"])
        return [drawn(still, angle=words["angle"], translate=translate, scale=words["scale"], shear=shear)]


@lru_cache
def look(filter_: WarpFilter, fill: Levels | None, like: WarpLike, color: Color, **more: Any) -> Look:
    """Parts that every warp has in common."""
    return Look(filter=filter_, fill=None if fill is None else colour(fill, color), like=like, **more)


def check_warp(like: WarpLike, filter_: WarpFilter, padding_mode: PaddingMode | None = None) -> None:
    """Raise PipelineError where a library's warps do not have a filter, or a padding mode that is given."""
    filters, modes = WARPS[like].filters, WARPS[like].padding_modes
    if filter_ not in filters:
        raise PipelineError(f'"filter": "{filter_}" is not for "like": "{like}", which has {", ".join(filters)}')
    if padding_mode is not None and modes == ("constant",):
        raise PipelineError(f'"padding_mode" is not for "like": "{like}", which has "fill" alone')
    if padding_mode is not None and padding_mode not in modes:
        raise PipelineError(
            f'"padding_mode": "{padding_mode}" is not for "like": "{like}", which has {", ".join(modes)}'
        )


def check_side(like: WarpLike, height: int, width: int) -> None:
    """Raise ImageError for an image that a library does not warp."""
    warps = WARPS[like]
    if warps.max_side is not None and max(height, width) > warps.max_side:
        raise ImageError("BAD_DIMENSIONS", f"{warps.title} warps sides of up to {warps.max_side:,}: {height} x {width}")


def shown_again(mode: PaddingMode) -> str:
    """Reason why no boxes or points may come behind a warp with these margins; empty: they may."""
    if mode in ("constant", "edge"):
        return ""
    return f'"padding_mode": "{mode}" shows objects again, without boxes or points: use constant'


def _open(image: ImageSpec) -> ImageSpec:
    """An image that expands to a size that is not known; no side is shorter than the shorter one."""
    least = min(image.min_height, image.min_width)
    return image.within((least, least))


def shears(angles: Angles | None) -> tuple[Pair, Pair]:
    """Angles of x and of y, from and to."""
    x, y = (*spans(angles or 0.0), (0.0, 0.0))[:2]
    return x, y
