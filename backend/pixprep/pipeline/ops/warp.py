"""Ops that rotate, shear, scale and translate the cropped and resized image.

``like`` selects the library whose formulas an op reproduces. ``pillow`` is ``Image.rotate`` and ``Image.transform`` of
Pillow, which torchvision uses for PIL images. ``torchvision`` is torchvision v2 for uint8 tensors on a CPU. ``dali``,
supported by ``rotate``, is the CPU operator of DALI 2.4. ``opencv``, supported by ``affine``, is ``warpAffine`` of
OpenCV 4. After a bilinear rotation, a third of the values differ between ``pillow`` and ``torchvision``, by up to 191
at an edge. As in torchvision, points and translations are (x, y) in pixels.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Annotated, Any, ClassVar, Literal

from pixprep.errors import ImageError, PipelineError
from pixprep.pipeline.ops.canvas import check_padding
from pixprep.pipeline.ops.limits import MAX_SIDE, FillColor, Fraction, Spread, Within, spans
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
SHEARS = Spread(-MAX_SHEAR, MAX_SHEAR, lengths=(1, 2, 4))
Point = Within(-MAX_SIDE, MAX_SIDE, lengths=(2,))
Pair = tuple[float, float]
RotateLike = Literal["pillow", "torchvision", "dali"]
AffineLike = Literal["pillow", "torchvision", "opencv"]
Angles = float | tuple[float, ...]


class WarpOp(LevelsOp, frozen=True, kw_only=True):
    """Base class of the geometric warps."""

    moves: ClassVar[bool] = True
    may_add_color: ClassVar[bool] = False
    profiles: ClassVar[Mapping[Any, Any]] = WARPS

    filter: WarpFilter = "nearest"
    fill: FillColor = 0
    like: ColorLike = "pillow"

    def check(self) -> None:
        check_warp(self.like, self.filter)

    def look(self, color: Color = "rgb") -> Look:
        """Return the properties that all warps have in common, for an image with this order of channels."""
        center, mode = getattr(self, "center", None), getattr(self, "padding_mode", None)
        return look(self.filter, self.fill, self.like, color, center=center, padding_mode=mode or "constant")


class _CenteredWarp(WarpOp, frozen=True, kw_only=True):
    """Base class of the warps about a fixed point."""

    center: Annotated[Pair, Point] | None = None


class _PaddedWarp(_CenteredWarp, frozen=True, kw_only=True):
    """Base class of the warps with a field ``padding_mode``, which only some values of ``like`` support."""

    like: AffineLike = "pillow"  # type: ignore[assignment]  # other warps do not support OpenCV
    padding_mode: PaddingMode | None = None

    def check(self) -> None:
        check_warp(self.like, self.filter, self.padding_mode)
        check_padding(self.padding_mode or "constant", self.fill)

    @property
    def no_boxes(self) -> str:  # type: ignore[override]  # a constant of most ops
        """Reason why boxes and points must not follow this op; empty if they may."""
        return no_boxes_reason(self.padding_mode or "constant")


class _RotateBase(_PaddedWarp, frozen=True, kw_only=True):
    """Base class of ``rotate``."""

    like: RotateLike = "pillow"  # type: ignore[assignment]  # other warps do not support DALI
    padding_mode: Literal["constant", "edge"] | None = None

    def check(self) -> None:
        super().check()
        if self.center is not None and not WARPS[self.like].turns_about:
            raise PipelineError(
                f'"like": "{self.like}" does not support "center", and rotates about the center of the image: remove it'
            )


class Rotate(_RotateBase, SteadyOp, frozen=True, tag="rotate"):
    """Rotates the image counter-clockwise.

    The op reproduces torchvision v2's ``rotate``. A rotation by a multiple of 90 degrees about the center does not
    interpolate, except if the image is not square and ``expand`` is false.

    Args:
        angle: Angle in degrees, or the name of an input that contains one angle per image. ``name[1]`` is the second
            number in a row of the input.
        expand: Whether to enlarge the result so that it contains the whole rotated image. If false, the size does not
            change, and the corners are cut off.
        filter: Interpolation filter: ``nearest``, ``bilinear`` or, with ``"like": "pillow"``, ``bicubic``. These
            filters are not antialiased.
        fill: Color of the area outside the image, 0 to 255: one number, or one per channel.
        like: Library whose formulas the op reproduces. ``dali`` does not support ``center``, and its expanded result
            may be one pixel larger.
        center: Center of rotation (x, y), in pixels from the upper left corner. Default: the center of the image.
        padding_mode: Content of the area outside the image with ``"like": "dali"``: ``constant`` (the default) is
            ``fill``, and ``edge`` repeats the nearest pixel.

    Example:
        {"op": "rotate", "angle": 10, "filter": "bilinear"}
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
        """Return the spec of the rotated image. Reject values that are not 8-bit integers."""
        image = super().infer(image)
        if not self.expand:
            return image
        if image.height is not None and image.width is not None and not isinstance(self.angle, str):
            steps = self.steps({}, image.height, image.width, image.color)
            return image.sized(*size_after(steps, image.height, image.width))
        return _expanded(image)

    def in_words(self) -> str:
        is_input = isinstance(self.angle, str)
        angle = f'the angle in the input "{self.angle}"' if is_input else f"{self.angle:.4g} degrees"
        return f"rotate by {angle}{', expanding' if self.expand else ''}{self.look()}"

    def input_words(self, row: Any, height: int, width: int) -> Words:
        return {"angle": 0.0 if row is None else float(row[number(str(self.angle)).place])}

    def steps(self, words: Words, height: int, width: int, color: Color) -> tuple[LevelStep, ...]:
        return rotated(height, width, words.get("angle", self.angle), self.look(color), expand=self.expand)


class RandomRotate(Whether, _CenteredWarp, frozen=True, tag="random_rotate"):
    """Rotates each image by a random angle.

    The op reproduces torchvision v2's ``RandomRotation``: the angle is uniformly distributed.

    Args:
        degrees: Range of the angle in degrees: [min, max], or one number x for [-x, x].
        expand: as in ``rotate``.
        p: Probability that the op is applied, 0 to 1.
        filter, fill, like, center: as in ``rotate``.

    Example:
        {"op": "random_rotate", "degrees": 15}
    """

    degrees: Annotated[Angles, DEGREES]
    expand: bool = False
    p: Fraction = 1.0

    @property
    def span(self) -> Pair:
        """Minimum and maximum angle."""
        return spans(self.degrees)[0]

    def infer(self, image: ImageSpec) -> ImageSpec:
        """Return the spec of the rotated image. Reject values that are not 8-bit integers."""
        image = super().infer(image)
        return _expanded(image) if self.expand else image

    def draw(self, height: int, width: int, uniforms: Uniforms) -> Words:
        """Return the angle, such as ``{"angle": 12.5}``."""
        return {"angle": between(self.span, float(uniforms(0, 1)[0, 0]))}

    def in_words(self) -> str:
        return f"rotate by {span_words(self.span, ' degrees')}{', expanding' if self.expand else ''}{self.look()}"

    def fixed_ops(self, words: Words) -> list[Op]:
        return [as_kind(Rotate, self, angle=words["angle"])]


class Affine(_PaddedWarp, SteadyOp, frozen=True, tag="affine"):
    """Rotates, shears and scales the image about a point, and translates it; the size does not change.

    The op reproduces torchvision v2's ``affine``. With ``"like": "opencv"``, the result is that of OpenCV 4's
    ``warpAffine`` with the same affine matrix.

    Args:
        angle: Angle in degrees, clockwise as in torchvision; ``rotate`` is counter-clockwise.
        translate: Translation (x, y) in pixels.
        scale: Scale factor. Values greater than 1 enlarge the content.
        shear: Shear angle in degrees, -89 to 89: one number for x, or [x, y].
        filter, fill: as in ``rotate``. ``"like": "opencv"`` also supports ``bicubic``.
        center: as in ``rotate``.
        like: Library whose formulas the op reproduces.
        padding_mode: Content of the area outside the image with ``"like": "opencv"``, as in ``warp``. Default:
            ``constant``, which is ``fill``.

    Example:
        {"op": "affine", "angle": 10, "translate": [4, 0], "scale": 1.1}
    """

    angle: Annotated[float, _ANGLE] = 0.0
    translate: Annotated[Pair, Point] = (0.0, 0.0)
    scale: Annotated[float, Within(1 / MAX_SCALE, MAX_SCALE)] = 1.0
    shear: Annotated[Angles, Within(-MAX_SHEAR, MAX_SHEAR, lengths=(1, 2))] = 0.0

    @property
    def shears(self) -> Pair:
        """Shear angles (x, y)."""
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


class RandomAffine(Whether, _PaddedWarp, frozen=True, tag="random_affine"):
    """Rotates, shears, scales and translates each image at random; the size does not change.

    The op reproduces torchvision v2's ``RandomAffine``: all parameters are uniformly distributed, and the translation
    is rounded to integers.

    Args:
        degrees: Range of the angle in degrees: [min, max], or one number x for [-x, x]. 0 disables the rotation.
        translate: Maximum absolute translation as fractions of the width and of the height. Default: no translation.
        scale: Minimum and maximum scale factor. Default: no scaling.
        shear: Range of the shear angle in degrees: [min, max] for x, or one number x for [-x, x], or [x_min, x_max,
            y_min, y_max]. Default: no shear.
        p: Probability that the op is applied, 0 to 1.
        filter, fill, like, center, padding_mode: as in ``affine``.

    Example:
        {"op": "random_affine", "degrees": 10, "translate": [0.1, 0.1]}
    """

    blocks: ClassVar[int] = 2  # random numbers for angle, translation (x, y) and scale; and for shear (x, y)

    degrees: Annotated[Angles, DEGREES]
    translate: Annotated[Pair, Within(0, 1, lengths=(2,))] | None = None
    scale: Annotated[Pair, Spread(1 / MAX_SCALE, MAX_SCALE, lengths=(2,))] | None = None
    shear: Annotated[Angles | None, SHEARS] = None
    p: Fraction = 1.0

    def draw(self, height: int, width: int, uniforms: Uniforms) -> Words:
        """Return the parameters: ``{"angle": 3.1, "translate": [4, -2], "scale": 1.1, "shear": [0.0, 0.0]}``."""
        (angle, x, y, scale), (shear_x, shear_y, *_) = uniforms(0, 2).tolist()
        fractions = self.translate or (0.0, 0.0)
        return {
            "angle": between(spans(self.degrees)[0], angle),
            "translate": [
                round(between((-fraction * side, fraction * side), u))
                for fraction, side, u in zip(fractions, (width, height), (x, y), strict=True)
            ],
            "scale": between(self.scale or (1.0, 1.0), scale),
            "shear": [between(span, u) for span, u in zip(shears(self.shear), (shear_x, shear_y), strict=True)],
        }

    def in_words(self) -> str:
        angle, shear_x, shear_y = map(span_words, (*spans(self.degrees), *shears(self.shear)), (" degrees", "", ""))
        x, y = self.translate or (0.0, 0.0)
        return (
            f"rotate by {angle} clockwise, shear by {shear_x} in x and {shear_y} in y, scale by "
            f"{span_words(self.scale or (1.0, 1.0))}, translate by up to {x:.4g} of the width and {y:.4g} of the height"
            f"{self.look()}"
        )

    def fixed_ops(self, words: Words) -> list[Op]:
        identity = as_kind(Affine, self, translate=(0.0, 0.0), scale=1.0, shear=0.0)
        translate, shear = tuple(words["translate"]), tuple(words["shear"])
        return [drawn(identity, angle=words["angle"], translate=translate, scale=words["scale"], shear=shear)]


@lru_cache
def look(filter_: WarpFilter, fill: Levels | None, like: WarpLike, color: Color, **more: Any) -> Look:
    """Return the properties that all warps have in common."""
    return Look(filter=filter_, fill=None if fill is None else colour(fill, color), like=like, **more)


def check_warp(like: WarpLike, filter_: WarpFilter, padding_mode: PaddingMode | None = None) -> None:
    """Raise PipelineError if the warps of a library do not support a filter or a padding mode."""
    filters, modes = WARPS[like].filters, WARPS[like].padding_modes
    if filter_ not in filters:
        raise PipelineError(
            f'"filter": "{filter_}" is not supported by "like": "{like}", which supports {", ".join(filters)}'
        )
    if padding_mode is not None and modes == ("constant",):
        raise PipelineError(f'"padding_mode" is not supported with "like": "{like}", which supports only "fill"')
    if padding_mode is not None and padding_mode not in modes:
        raise PipelineError(
            f'"padding_mode": "{padding_mode}" is not supported by "like": "{like}", which supports {", ".join(modes)}'
        )


def check_side(like: WarpLike, height: int, width: int) -> None:
    """Raise ImageError if an image is too large for the warps of a library."""
    warps = WARPS[like]
    if warps.max_side is not None and max(height, width) > warps.max_side:
        raise ImageError(
            "BAD_DIMENSIONS",
            f"{height} x {width} pixels: {warps.title} warps images with sides of at most {warps.max_side:,} pixels",
        )


def no_boxes_reason(mode: PaddingMode) -> str:
    """Return the reason why boxes and points must not follow a warp with this padding mode; empty if they may."""
    if mode in ("constant", "edge"):
        return ""
    return f'"padding_mode": "{mode}" repeats objects without their boxes or points: use "constant"'


def _expanded(image: ImageSpec) -> ImageSpec:
    """Return the spec of an expanded image of unknown size. Its sides are at least as long as the shorter side."""
    shortest = min(image.min_height, image.min_width)
    return image.within((shortest, shortest))


def shears(angles: Angles | None) -> tuple[Pair, Pair]:
    """Return the ranges (min, max) of the shear angles of x and y."""
    x, y = (*spans(angles or 0.0), (0.0, 0.0))[:2]
    return x, y
