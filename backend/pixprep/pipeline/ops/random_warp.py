"""Random warps with OpenCV's arithmetic that keep the image size, as in Albumentations 2.0; for training."""

from __future__ import annotations

from math import cos, radians, sin, sqrt, tan
from typing import Annotated, Any, ClassVar

from pixprep.errors import PipelineError
from pixprep.pipeline.ops.alignment import Warp
from pixprep.pipeline.ops.canvas import check_padding
from pixprep.pipeline.ops.limits import FillColor, Fraction, OrderedPair, Spread, spans
from pixprep.pipeline.ops.op import LevelsOp, Op, Whether, as_kind, drawn
from pixprep.pipeline.ops.warp import DEGREES, MAX_SCALE, SHEARS, Angles, shears
from pixprep.plan import matrices
from pixprep.plan.draws.augments import Uniforms
from pixprep.plan.draws.philox import Words, between, quantiles, span_words
from pixprep.spec import PaddingMode, WarpFilter

FourNumbers = tuple[float, ...]
_IDENTITY = ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))
_MIN_DISTANCE = 2.0
"""Minimum distance between two adjacent corners, in pixels."""
_MAX_INSET = 0.32
"""Upper bound of a corner's displacement in ``random_warp_perspective``, as a fraction of the image's side."""


class _RandomWarp(Whether, LevelsOp, frozen=True, kw_only=True):
    """Base of the random warps."""

    moves: ClassVar[bool] = True
    may_add_color: ClassVar[bool] = False

    filter: WarpFilter = "bilinear"
    padding_mode: PaddingMode = "constant"
    fill: FillColor = 0
    p: Fraction = 1.0

    no_boxes = Warp.no_boxes

    def check(self) -> None:
        check_padding(self.padding_mode, self.fill)

    def fixed_ops(self, words: Words) -> list[Op]:
        """Return a ``warp``, or no op if Albumentations skips the matrix because it is close to the identity."""
        numbers = words["matrix"]
        rows = tuple(tuple(numbers[start : start + 3]) for start in range(0, len(numbers), 3))
        if len(rows) == 2:
            pairs = [
                pair
                for row, identity_row in zip(rows, _IDENTITY, strict=False)
                for pair in zip(row, identity_row, strict=True)
            ]
            if all(abs(number - expected) <= 1e-8 + 1e-5 * expected for number, expected in pairs):
                return []
        matrix: dict[str, Any] = {"matrix": _IDENTITY[:2]} if len(rows) == 2 else {"homography": _IDENTITY}
        op = as_kind(Warp, self, height=1, width=1, **matrix)
        return [drawn(op, height=words["height"], width=words["width"], **dict.fromkeys(matrix, rows))]


class RandomWarp(_RandomWarp, frozen=True, tag="random_warp"):
    """Randomly rotates, scales, shears and translates the image as OpenCV 4 does; the size does not change.

    The op reproduces Albumentations 2.0's ``Affine``, ``ShiftScaleRotate`` and ``Rotate``. All parameters are uniformly
    distributed. Rotation, scaling and shear keep the center of the image fixed. The translation is truncated to whole
    pixels. The scales in x and in y are sampled independently.

    Args:
        degrees: Maximum rotation angle in either direction, or the minimum and maximum angle, in degrees. Positive
            angles are counter-clockwise. With 0, the image is not rotated.
        translate: Minimum and maximum translation in x, then in y, as fractions of the width and of the height;
            default: no translation.
        scale: Minimum and maximum scale in x, then in y; values greater than 1 enlarge the content. Default: no
            scaling.
        shear: Shear angle in degrees: its maximum in x in either direction, its minimum and maximum in x, or four
            numbers, the minimum and maximum in x and then in y. The maxima in x and in y must add up to less than 90
            degrees. Default: no shear.
        keep_ratio: Whether the scale in y equals the scale in x.
        filter, padding_mode, fill: as in ``warp``.
        p: Probability that the op is applied, 0 to 1.

    Example:
        {"op": "random_warp", "degrees": 15, "scale": [0.8, 1.2, 0.8, 1.2]}
    """

    blocks: ClassVar[int] = 2  # random numbers for angle, translation and scale in x; and for scale in y and shear

    degrees: Annotated[Angles, DEGREES]
    translate: Annotated[FourNumbers, Spread(-1, 1, lengths=(4,))] | None = None
    scale: Annotated[FourNumbers, Spread(1 / MAX_SCALE, MAX_SCALE, lengths=(4,))] | None = None
    shear: Annotated[Angles | None, SHEARS] = None
    keep_ratio: bool = False

    def check(self) -> None:
        super().check()
        if sum(max(map(abs, span)) for span in shears(self.shear)) >= 90:
            raise PipelineError('"shear": the maximum angles in x and in y must add up to less than 90 degrees')

    def draw(self, height: int, width: int, uniforms: Uniforms) -> Words:
        """Sample the affine matrix, which maps points of the image to the result.

        Returns:
            ``{"matrix": [1.0, 0.1, 3.2, -0.1, 1.0, 2.0], "height": 48, "width": 64}``
        """
        (u_angle, *u_translate, u_scale_x), (u_scale_y, *u_shear, _) = uniforms(0, 2).tolist()
        x, y = (
            int(between(span, u) * side)
            for span, u, side in zip(spans(self.translate or (0.0,) * 4), u_translate, (width, height), strict=True)
        )
        scale_x, scale_y = map(between, spans(self.scale or (1.0,) * 4), (u_scale_x, u_scale_y))
        if self.keep_ratio:
            scale_y = scale_x
        shear_x, shear_y = (
            -tan(radians(between(span, u))) for span, u in zip(shears(self.shear), u_shear, strict=True)
        )
        angle = radians(between(spans(self.degrees)[0], u_angle))
        a, b = (cos(angle) - shear_x * sin(angle)) * scale_x, (sin(angle) + shear_x * cos(angle)) * scale_y
        d, e = (shear_y * cos(angle) - sin(angle)) * scale_x, (shear_y * sin(angle) + cos(angle)) * scale_y
        center_x, center_y = width / 2 - 0.5, height / 2 - 0.5
        c = center_x + x - (a * center_x + b * center_y)
        f = center_y + y - (d * center_x + e * center_y)
        return {"matrix": [a, b, c, d, e, f], "height": height, "width": width}

    def in_words(self) -> str:
        translations, scales = spans(self.translate or (0.0,) * 4), spans(self.scale or (1.0,) * 4)
        shear_x, shear_y, scale_x, scale_y, x, y = (
            span_words(span) for span in (*shears(self.shear), *scales, *translations)
        )
        return (
            f"rotate by {span_words(spans(self.degrees)[0], ' degrees')}, shear by {shear_x}, {shear_y}, scale by "
            f"{scale_x} and {'the same' if self.keep_ratio else scale_y}, translate by {x} of the width and {y} of the "
            f"height ({self.filter}, {self.padding_mode}, OpenCV 4's pixels)"
        )


def _separate(first: list[float], second: list[float]) -> float:
    """Move two points apart if their distance is below the minimum, by the same amount on both axes.

    Returns:
        Distance of the points before the move, or the minimum distance if that is larger.
    """
    distance = sqrt((first[0] - second[0]) ** 2 + (first[1] - second[1]) ** 2)
    for axis in (0, 1) if distance < _MIN_DISTANCE else ():
        is_larger = first[axis] > second[axis]
        step = (_MIN_DISTANCE - distance) / 2 if is_larger else (distance - _MIN_DISTANCE) / 2
        first[axis], second[axis] = first[axis] + step, second[axis] - step
    return max(distance, _MIN_DISTANCE)


class RandomWarpPerspective(_RandomWarp, frozen=True, tag="random_warp_perspective"):
    """Applies a random perspective that maps four points inside the image to its corners; the size does not change.

    The op reproduces Albumentations 2.0's ``Perspective`` with ``keep_size``, computed with OpenCV 4. Along each axis,
    the distance of a point from its corner, as a fraction of the image's width or height, is the absolute value of a
    normally distributed number, modulo 0.32. As in Albumentations, the result is then enlarged along each axis by the
    image's width or height divided by the longer of the two distances between adjacent points along this axis.

    Args:
        scale: Minimum and maximum standard deviation of the distances.
        filter, padding_mode, fill: as in ``warp``.
        p: Probability that the op is applied, 0 to 1.

    Example:
        {"op": "random_warp_perspective"}
    """

    blocks: ClassVar[int] = 3  # random numbers for the four points, and for the standard deviation

    scale: Annotated[tuple[float, float], OrderedPair(0, 1)] = (0.05, 0.1)

    def draw(self, height: int, width: int, uniforms: Uniforms) -> Words:
        """Sample the homography, which maps points of the image to the result.

        Returns:
            ``{"matrix": [...], "height": 48, "width": 64}``, with nine numbers.
        """
        *u_points, (u_std, *_) = uniforms(0, 3).tolist()
        std = between(self.scale, u_std)
        insets = [abs(float(quantiles()[int(u * 65536)]) * std) % _MAX_INSET for row in u_points for u in row]
        corners = ((0.0, 0.0), (1.0, 0.0), (1.0, 1.0), (0.0, 1.0))
        points = [
            [abs(x - insets[2 * i]) * width, abs(y - insets[2 * i + 1]) * height] for i, (x, y) in enumerate(corners)
        ]
        a, b, c, d = points
        max_width = max(_separate(b, a), _separate(c, d))  # the order matters, because each call may move its points
        max_height = max(_separate(c, b), _separate(d, a))
        target = [(x * width, y * height) for x, y in corners]
        homography = matrices.perspective(points, target) or sum(_IDENTITY, ())
        scales = (width / int(max_width), height / int(max_height), 1.0)
        matrix = [entry * scales[index // 3] for index, entry in enumerate(homography)]
        return {"matrix": matrix, "height": height, "width": width}

    def in_words(self) -> str:
        return (
            f"apply a random perspective with a standard deviation of {span_words(self.scale)} of a side "
            f"({self.filter}, {self.padding_mode}, OpenCV 4's pixels)"
        )
