"""Random warps with OpenCV's arithmetic, as in Albumentations 2.0 and in top-down pose estimation; for training."""

from __future__ import annotations

from math import cos, pi, radians, sin, sqrt, tan
from statistics import NormalDist
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from pixprep.errors import ImageError, PipelineError
from pixprep.pipeline.ops.alignment import Warp
from pixprep.pipeline.ops.canvas import check_padding
from pixprep.pipeline.ops.limits import FillColor, Fraction, Length, OrderedPair, Spread, Within, spans
from pixprep.pipeline.ops.op import Drawn, LevelsOp, Op, Whether, as_kind, drawn
from pixprep.pipeline.ops.warp import DEGREES, MAX_SCALE, SHEARS, Angles, shears
from pixprep.plan import matrices
from pixprep.plan.draws.augments import Augment, Seen, Uniforms
from pixprep.plan.draws.philox import F64, Words, between, quantiles, span_words
from pixprep.plan.lowered import Lowered
from pixprep.plan.matrices import F32
from pixprep.spec import ImageSpec, PaddingMode, WarpFilter

FourNumbers = tuple[float, ...]
_IDENTITY = ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))
_MIN_DISTANCE = 2.0
"""Minimum distance between two adjacent corners, in pixels."""
_MAX_INSET = 0.32
"""Upper bound of a corner's displacement in ``random_warp_perspective``, as a fraction of the image's side."""

_MIN_VISIBLE, _MIN_UPPER, _MIN_LOWER = 9, 2, 3
"""Minimum numbers of visible points of the body, of its upper half and of its lower half, for ``half_body_p``."""
_UPPER_P, _HALF_PADDING = 0.7, 1.5


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
        """Return a ``warp`` with the sampled matrix."""
        numbers = words["matrix"]
        rows = tuple(tuple(numbers[start : start + 3]) for start in range(0, len(numbers), 3))
        matrix: dict[str, Any] = {"matrix": _IDENTITY[:2]} if len(rows) == 2 else {"homography": _IDENTITY}
        op = as_kind(Warp, self, height=1, width=1, like="opencv", **matrix)
        return [drawn(op, height=words["height"], width=words["width"], **dict.fromkeys(matrix, rows))]


class RandomWarp(_RandomWarp, frozen=True, tag="random_warp"):
    """Randomly rotates, scales, shears and translates the image as OpenCV 4 does.

    The op reproduces Albumentations 2.0's ``Affine``, ``ShiftScaleRotate`` and ``Rotate``. All parameters are uniformly
    distributed. Rotation, scaling and shear keep the center of the image fixed. The translation is truncated to whole
    pixels. The scales in x and in y are sampled independently.

    With ``"like": "ultralytics"`` or ``"yolox"``, the op reproduces the affine transform that follows a mosaic, and the
    result has ``height`` x ``width`` pixels. The translation is a fraction of this size and is not truncated.
    ``ultralytics`` reproduces ``RandomPerspective`` without its perspective transform: the center of the image moves to
    the center of the result, and the matrix is computed in float32. ``yolox`` reproduces ``random_affine`` of YOLOX
    0.3, which rotates, scales and shears about the upper left corner.

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
        keep_ratio: Whether the scale in y equals the scale in x. Required by ``yolox`` and ``ultralytics``.
        height, width: Height and width of the result in pixels, for ``yolox`` and ``ultralytics``. Default: those of
            the image.
        like: Library whose formula of the matrix the op reproduces.
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
    height: Length | None = None
    width: Length | None = None
    like: Literal["albumentations", "yolox", "ultralytics"] = "albumentations"

    def check(self) -> None:
        super().check()
        is_yolo = self.like != "albumentations"
        if (self.height is None) != (self.width is None) or (self.height is not None and not is_yolo):
            raise PipelineError(
                '"height" and "width" must be given together, and require "like": "yolox" or "ultralytics"'
            )
        if is_yolo and not self.keep_ratio:
            raise PipelineError(f'"like": "{self.like}" has a single scale: write "keep_ratio": true')
        if sum(max(map(abs, span)) for span in shears(self.shear)) >= 90:
            raise PipelineError('"shear": the maximum angles in x and in y must add up to less than 90 degrees')

    def draw(self, height: int, width: int, uniforms: Uniforms) -> Words:
        """Sample the affine matrix, which maps points of the image to the result.

        Returns:
            ``{"matrix": [1.0, 0.1, 3.2, -0.1, 1.0, 2.0], "height": 48, "width": 64}``
        """
        (u_angle, *u_translate, u_scale_x), (u_scale_y, *u_shear, _) = uniforms(0, 2).tolist()
        if self.like != "albumentations":
            return self._centered(height, width, uniforms)
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

    def _centered(self, height: int, width: int, uniforms: Uniforms) -> Words:
        """Sample the affine matrix of YOLOX or Ultralytics; see ``draw``.

        The matrix may differ from that of Ultralytics in the last bit of each number.
        """
        (u_angle, *u_translate, u_scale), (_, *u_shear, _) = uniforms(0, 2).tolist()
        real = np.float32 if self.like == "ultralytics" else np.float64
        size = self.height or height, self.width or width
        angle = between(spans(self.degrees)[0], u_angle) * (pi / 180)
        scale = between(spans(self.scale or (1.0,) * 4)[0], u_scale)
        a, b = real(cos(angle) * scale), real(sin(angle) * scale)
        x, y = (real(tan(between(span, u) * pi / 180)) for span, u in zip(shears(self.shear), u_shear, strict=True))
        middle = 0.0 if self.like == "yolox" else 0.5
        shift_x, shift_y = (
            real(between((middle + span[0], middle + span[1]), u) * side)
            for span, u, side in zip(spans(self.translate or (0.0,) * 4), u_translate, size[::-1], strict=True)
        )
        if self.like == "yolox":
            rows = (a - y * b, b + y * a, shift_x), (x * a - b, x * b + a, shift_y)
        else:
            center_x, center_y = real(-width / 2), real(-height / 2)
            p, q, r, s = a - x * b, b + x * a, y * a - b, y * b + a
            shift_x, shift_y = p * center_x + q * center_y + shift_x, r * center_x + s * center_y + shift_y
            rows = (p, q, shift_x), (r, s, shift_y)
        matrix = [float(each) for row in rows for each in row]
        return {"matrix": matrix, "height": size[0], "width": size[1]}

    def fixed_ops(self, words: Words) -> list[Op]:
        """Return a ``warp``, or no op if Albumentations skips the matrix because it is close to the identity."""
        pairs = zip(words["matrix"], (*_IDENTITY[0], *_IDENTITY[1]), strict=True)
        if self.like == "albumentations" and all(abs(a - b) <= 1e-8 + 1e-5 * b for a, b in pairs):
            return []
        return super().fixed_ops(words)

    @property
    def keeps_size(self) -> bool:
        return self.height is None

    def infer(self, image: ImageSpec) -> ImageSpec:
        """Return the spec of the result; reject values that are not 8-bit pixel values."""
        image = super().infer(image)
        return image if self.height is None or self.width is None else image.sized(self.height, self.width)

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


class RandomBoxWarp(Drawn, LevelsOp, frozen=True, tag="random_box_warp"):
    """Warps a random region around a box of the sample to ``height`` x ``width``, for top-down pose estimation.

    The op reproduces mmpose's ``GetBBoxCenterScale``, ``RandomHalfBody``, ``RandomBBoxTransform`` and
    ``TopdownAffine``, which follow HRNet. It chooses a box of the sample. The region has the same center as the box,
    and its sides are those of the box multiplied by ``box_padding``. The region is then moved, resized and rotated at
    random, by numbers from a normal distribution that is truncated to one standard deviation. Its shorter side is
    enlarged to the aspect ratio of the result. The op ``boxes`` removes all other boxes of the sample, with their
    points and labels.

    With ``half_body_p``, the region can instead contain only the upper or the lower body. Its center is then the mean
    of the visible points on this half, and its sides are those of their bounding box multiplied by 1.5. This requires
    the fields ``points``, (n, k, 2), and ``visible``, (n, k). At least 9 points must be visible, and at least 2 on the
    upper body or 3 on the lower body. If both halves have enough points, the upper body is chosen with probability 0.7.

    The op must come before all ops that move pixels. mmpose flips the photo before this op, whereas ``random_flip``
    follows it here. In serving, ``warp`` with ``box`` crops the same region without random changes.

    Args:
        height, width: Height and width of the result in pixels.
        box_padding: Factor by which the sides of the box are multiplied.
        shift: Maximum translation in either direction, as a fraction of the region's sides.
        shift_p: Probability that the region is moved.
        scale: Minimum and maximum factor by which the sides of the region are multiplied.
        scale_p: Probability that the sides of the region are multiplied by a random factor from ``scale``.
        degrees: Maximum angle of the rotation in either direction, in degrees.
        degrees_p: Probability that the region is rotated.
        half_body_p: Probability that the region contains only half of the body, if enough points are visible.
        upper_body, lower_body: Indices of the points of the upper and of the lower body.
        filter, fill: as in ``warp``.

    Example:
        {"op": "random_box_warp", "height": 256, "width": 192}
    """

    moves: ClassVar[bool] = True
    may_add_color: ClassVar[bool] = False
    blocks: ClassVar[int] = 3  # for the box and the half of the body, for the changes, for their probabilities

    height: Length
    width: Length
    box_padding: Annotated[float, Within(0.01, 100)] = 1.25
    shift: Annotated[float, Within(0, 10)] = 0.16
    shift_p: Fraction = 0.3
    scale: Annotated[tuple[float, float], OrderedPair(0.01, 100)] = (0.5, 1.5)
    scale_p: Fraction = 1.0
    degrees: Annotated[float, Within(0, 360)] = 80.0
    degrees_p: Fraction = 0.6
    half_body_p: Fraction = 0.0
    upper_body: tuple[int, ...] = ()
    lower_body: tuple[int, ...] = ()
    filter: WarpFilter = "bilinear"
    fill: FillColor = 0

    def check(self) -> None:
        if self.half_body_p and not (self.upper_body and self.lower_body):
            raise PipelineError('"half_body_p" requires "upper_body" and "lower_body", the indices of points')
        if min((*self.upper_body, *self.lower_body, 0)) < 0 or {*self.upper_body} & {*self.lower_body}:
            raise PipelineError(
                '"upper_body" and "lower_body" must contain indices of points, at least 0, and must not share an index'
            )

    @property
    def sees(self) -> tuple[str, ...]:
        return ("boxes", "points", "visible") if self.half_body_p else ("boxes",)

    @property
    def keeps_size(self) -> bool:
        return False

    def infer(self, image: ImageSpec) -> ImageSpec:
        """Return the spec of the result; reject values that are not 8-bit pixel values."""
        return super().infer(image).sized(self.height, self.width)

    def augment(self, before: Lowered, image: ImageSpec, key: str) -> Augment:
        if before.is_moved:
            raise PipelineError("must come before ops that move pixels, because boxes are in pixels of the photo")
        return super().augment(before, image, key)

    def draw(self, height: int, width: int, uniforms: Uniforms) -> Words:
        """Sample the parameters for a box that covers the whole image, as an example without annotations."""
        return self.draw_by(Seen(np.array([[0.0, 0.0, width, height]])), height, width, uniforms)

    def draw_by(self, seen: Seen, height: int, width: int, uniforms: Uniforms) -> Words:
        """Sample the index of the box, and the affine matrix that maps points of the image to the result.

        Returns:
            ``{"matrix": [1.0, 0.1, 3.2, -0.1, 1.0, 2.0], "box": 0}``

        Raises:
            ImageError: BAD_RECORD: The sample has no boxes, or its points do not fit the op. BAD_INPUT: The box has no
                area.
        """
        if seen.boxes is None or not len(seen.boxes):
            raise ImageError("BAD_RECORD", "random_box_warp requires at least one box per sample")
        (u_box, u_half, u_upper, _), u_changes, (u_shift, u_scale, u_degrees, _) = uniforms(0, 3).tolist()
        index = int(u_box * len(seen.boxes))
        center, sides = matrices.region(seen.boxes[index].astype(np.float32), self.box_padding)
        if self.half_body_p and (half := self._half(seen, index, u_half, u_upper)) is not None:
            center, sides = half
        normal = NormalDist()
        low = normal.cdf(-1.0)
        x, y, grow, turn = (np.float32(normal.inv_cdf(low + u * (1 - 2 * low))) for u in u_changes)
        if u_shift < self.shift_p:
            center = center + np.array([x, y]) * np.float32(self.shift) * sides
        if u_scale < self.scale_p:
            least, most = self.scale
            sides = sides * (grow * np.float32((most - least) * 0.5) + np.float32((most + least) * 0.5))
        degrees = float(turn * np.float32(self.degrees)) if u_degrees < self.degrees_p else 0.0
        matrix = matrices.of_box(center, sides, degrees, self.height, self.width)
        if matrix is None:
            raise ImageError("BAD_INPUT", f"box {index + 1} of {len(seen.boxes)} has no area")
        return {"matrix": list(matrix), "box": index}

    def _half(self, seen: Seen, index: int, u_half: float, u_upper: float) -> tuple[F32, F32] | None:
        """Return the center and the sides of a region around half of the body, or None to use the box instead."""
        points, visible = seen.points, seen.visible
        if points is None or visible is None or points.ndim != 3 or visible.shape[:2] != points.shape[:2]:
            raise ImageError("BAD_RECORD", '"half_body_p" requires "points" (n, k, 2) and "visible" (n, k)')
        shown = visible.reshape(*points.shape[:2], -1)[index, :, 0]
        if max(*self.upper_body, *self.lower_body) >= len(shown):
            raise ImageError(
                "BAD_RECORD",
                f'"upper_body" and "lower_body" must contain indices below {len(shown)}, the number of points per box',
            )
        upper, lower = ([at for at in part if shown[at] > 0] for part in (self.upper_body, self.lower_body))
        is_few = len(upper) < _MIN_UPPER, len(lower) < _MIN_LOWER
        if np.count_nonzero(shown > 0) < _MIN_VISIBLE or u_half > self.half_body_p or all(is_few):
            return None
        chosen = upper if is_few[1] or (not is_few[0] and u_upper < _UPPER_P) else lower
        those = points[index, chosen].astype(np.float32)
        return those.mean(axis=0), (those.max(axis=0) - those.min(axis=0)) * np.float32(_HALF_PADDING)

    def keeps(self, words: Words, boxes: F64) -> npt.NDArray[np.bool_]:
        kept: npt.NDArray[np.bool_] = np.arange(len(boxes)) == words["box"]
        return kept

    def in_words(self) -> str:
        half = f", or {self.half_body_p:g} of the times to half of the body" if self.half_body_p else ""
        return (
            f"warp a random region around a box{half} to {self.height} x {self.width}: sides times "
            f"{self.box_padding:g} and {span_words(self.scale)}, moved by up to {self.shift:g} of the sides, "
            f"rotated by up to {self.degrees:g} degrees ({self.filter}, OpenCV 4's pixels)"
        )

    def fixed_ops(self, words: Words) -> list[Op]:
        rows = tuple(words["matrix"][:3]), tuple(words["matrix"][3:])
        op = as_kind(Warp, self, matrix=_IDENTITY[:2], box_padding=None)
        return [drawn(op, matrix=rows)]
