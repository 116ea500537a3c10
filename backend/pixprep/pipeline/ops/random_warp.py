"""Ops that warp each image at random by OpenCV's pixels, whose size stays: the draws of Albumentations 2.0."""

from __future__ import annotations

from math import cos, radians, sin, sqrt, tan
from typing import Annotated, Any, ClassVar

from pixprep.errors import PipelineError
from pixprep.pipeline.ops.alignment import Warp
from pixprep.pipeline.ops.canvas import check_padding
from pixprep.pipeline.ops.limits import Margin, Rising, Share, Spread, spans
from pixprep.pipeline.ops.op import LevelsOp, Op, Whether, as_kind, drawn
from pixprep.pipeline.ops.warp import DEGREES, MAX_SCALE, SHEARS, Angles, shears
from pixprep.plan import matrices
from pixprep.plan.draws.augments import Uniforms
from pixprep.plan.draws.philox import Words, between, quantiles, span_words
from pixprep.spec import PaddingMode, WarpFilter

Four = tuple[float, ...]
_STILL = ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))
_APART = 2.0
"""The least distance, in pixels, of two corners beside each other."""
_INWARDS = 0.32
"""The part of a side that a corner of ``random_warp_perspective`` does not reach."""


class _RandomWarp(Whether, LevelsOp, frozen=True, kw_only=True):
    moves: ClassVar[bool] = True
    may_colour: ClassVar[bool] = False

    filter: WarpFilter = "bilinear"
    padding_mode: PaddingMode = "constant"
    fill: Margin = 0
    p: Share = 1.0

    no_boxes = Warp.no_boxes

    def check(self) -> None:
        check_padding(self.padding_mode, self.fill)

    def fixed(self, words: Words) -> list[Op]:
        """One ``warp``; none where the matrix is nearly the identity: Albumentations does nothing there."""
        numbers = words["matrix"]
        rows = tuple(tuple(numbers[place : place + 3]) for place in range(0, len(numbers), 3))
        if len(rows) == 2:
            pairs = [pair for row, still in zip(rows, _STILL, strict=False) for pair in zip(row, still, strict=True)]
            if all(abs(number - still) <= 1e-8 + 1e-5 * still for number, still in pairs):
                return []
        kind: dict[str, Any] = {"matrix": _STILL[:2]} if len(rows) == 2 else {"homography": _STILL}
        op = as_kind(Warp, self, height=1, width=1, **kind)
        return [drawn(op, height=words["height"], width=words["width"], **dict.fromkeys(kind, rows))]


class RandomWarp(_RandomWarp, frozen=True, tag="random_warp"):
    """Rotates, scales, shears and translates each image at random, with OpenCV 4's pixels; the size does not change.

    The op equals Albumentations 2.0's ``Affine``, ``ShiftScaleRotate`` and ``Rotate``. Every number is uniform. The
    translation is truncated to integers. The center of the image is the fixed point before the translation. Scales of x
    and y are drawn independently.

    Args:
        degrees: Maximum counter-clockwise angle, in either direction, or minimum and maximum; 0: no rotation.
        translate: Minimum and maximum of x, then of y, as fractions of the width and of the height; default: no
            translation.
        scale: Minimum and maximum scale of x, then of y; values over 1 enlarge; default: no scaling.
        shear: Maximum shear of x in degrees, in either direction, or minimum and maximum; or four numbers: minimum and
            maximum of x, then of y. Default: no shear. The maxima of x and y together are below 90 degrees.
        keep_ratio: Whether y has the same scale as x.
        filter, padding_mode, fill: as in ``warp``.
        p: Probability that the op is applied, 0 to 1.

    Example:
        {"op": "random_warp", "degrees": 15, "scale": [0.8, 1.2, 0.8, 1.2]}
    """

    blocks: ClassVar[int] = 2  # angle, x, y, scale of x; scale of y, shear of x and y

    degrees: Annotated[Angles, DEGREES]
    translate: Annotated[Four, Spread(-1, 1, counts=(4,))] | None = None
    scale: Annotated[Four, Spread(1 / MAX_SCALE, MAX_SCALE, counts=(4,))] | None = None
    shear: Annotated[Angles | None, SHEARS] = None
    keep_ratio: bool = False

    def check(self) -> None:
        super().check()
        if sum(max(map(abs, span)) for span in shears(self.shear)) >= 90:
            raise PipelineError('"shear": the maxima of x and y together must be below 90 degrees')

    def draw(self, height: int, width: int, uniforms: Uniforms) -> Words:
        """``{"matrix": [1.0, 0.1, 3.2, -0.1, 1.0, 2.0], "height": 48, "width": 64}``: where a point goes."""
        (angle, *moves, wide), (high, *leans, _) = uniforms(0, 2).tolist()
        x, y = (
            int(between(span, u) * side)
            for span, u, side in zip(spans(self.translate or (0.0,) * 4), moves, (width, height), strict=True)
        )
        scale_x, scale_y = map(between, spans(self.scale or (1.0,) * 4), (wide, high))
        if self.keep_ratio:
            scale_y = scale_x
        lean_x, lean_y = (-tan(radians(between(span, u))) for span, u in zip(shears(self.shear), leans, strict=True))
        turn = radians(between(spans(self.degrees)[0], angle))
        a, b = (cos(turn) - lean_x * sin(turn)) * scale_x, (sin(turn) + lean_x * cos(turn)) * scale_y
        d, e = (lean_y * cos(turn) - sin(turn)) * scale_x, (lean_y * sin(turn) + cos(turn)) * scale_y
        right, down = width / 2 - 0.5, height / 2 - 0.5
        matrix = [a, b, right + x - (a * right + b * down), d, e, down + y - (d * right + e * down)]
        return {"matrix": matrix, "height": height, "width": width}

    def in_words(self) -> str:
        moves, scales = spans(self.translate or (0.0,) * 4), spans(self.scale or (1.0,) * 4)
        parts = [span_words(span) for span in (*shears(self.shear), *scales, *moves)]
        return (
            f"rotate by {span_words(spans(self.degrees)[0], ' degrees')}, shear by {parts[0]}, {parts[1]}, scale by "
            f"{parts[2]} and {'the same' if self.keep_ratio else parts[3]}, move by {parts[4]} of the width and "
            f"{parts[5]} of the height ({self.filter}, {self.padding_mode}, OpenCV 4's pixels)"
        )


def _apart(one: list[float], other: list[float]) -> float:
    """Distance of two points, which are moved apart where it is below 2, on each axis by as much."""
    distance = sqrt((one[0] - other[0]) ** 2 + (one[1] - other[1]) ** 2)
    for axis in (0, 1) if distance < _APART else ():
        step = (_APART - distance) / 2 if one[axis] > other[axis] else (distance - _APART) / 2
        one[axis], other[axis] = one[axis] + step, other[axis] - step
    return max(distance, _APART)


class RandomWarpPerspective(_RandomWarp, frozen=True, tag="random_warp_perspective"):
    """Moves four points inside the image to its corners, with OpenCV 4's pixels; the size does not change.

    The op equals Albumentations 2.0's ``Perspective`` with ``keep_size``. The distance of each point from its corner is
    normally distributed; its absolute value modulo 0.32 is a fraction of the side. As in Albumentations, the region
    between the points is then enlarged again, by the side divided by the longer distance of two points.

    Args:
        scale: Minimum and maximum standard deviation of the distance.
        filter, padding_mode, fill: as in ``warp``.
        p: Probability that the op is applied, 0 to 1.

    Example:
        {"op": "random_warp_perspective"}
    """

    blocks: ClassVar[int] = 3  # x and y of four points; the deviation

    scale: Annotated[tuple[float, float], Rising(0, 1)] = (0.05, 0.1)

    def draw(self, height: int, width: int, uniforms: Uniforms) -> Words:
        """``{"matrix": [...], "height": 48, "width": 64}``: nine numbers, where a point goes."""
        *jitters, (deviation, *_) = uniforms(0, 3).tolist()
        size = between(self.scale, deviation)
        parts = [abs(float(quantiles()[int(u * 65536)]) * size) % _INWARDS for row in jitters for u in row]
        corners = ((0.0, 0.0), (1.0, 0.0), (1.0, 1.0), (0.0, 1.0))
        points = [
            [abs(x - parts[2 * i]) * width, abs(y - parts[2 * i + 1]) * height] for i, (x, y) in enumerate(corners)
        ]
        a, b, c, d = points
        across = max(_apart(b, a), _apart(c, d))  # in this order: each moves its points
        down = max(_apart(c, b), _apart(d, a))
        target = [(x * width, y * height) for x, y in corners]
        found = matrices.perspective(points, target) or sum(_STILL, ())
        scales = (width / int(across), height / int(down), 1.0)
        matrix = [number * scales[place // 3] for place, number in enumerate(found)]
        return {"matrix": matrix, "height": height, "width": width}

    def in_words(self) -> str:
        return (
            f"perspective by a deviation of {span_words(self.scale)} of a side ({self.filter}, {self.padding_mode}, "
            "OpenCV 4's pixels)"
        )
