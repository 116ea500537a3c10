"""The op that warps a region of the photo to an image, specified by a matrix, four corners, or points."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from math import isfinite
from typing import Annotated, Any, ClassVar, Literal

import numpy as np

from pixprep.errors import ImageError, PipelineError
from pixprep.pipeline.ops.canvas import check_padding
from pixprep.pipeline.ops.limits import MAX_RATIO, FillColor, Length, Within
from pixprep.pipeline.ops.op import SteadyOp, settle
from pixprep.pipeline.ops.warp import check_side, check_warp, no_boxes_reason
from pixprep.plan import matrices
from pixprep.plan.draws.motions import Look, rotated
from pixprep.plan.draws.philox import F64, Words
from pixprep.plan.lowered import Lowered, colour
from pixprep.plan.profiles import WARPS
from pixprep.plan.steps import warps
from pixprep.plan.steps.levels import LevelStep
from pixprep.spec import FAR, Bound, Color, ImageSpec, InputKind, InputSpec, Matrix, PaddingMode, WarpFilter

Rows = tuple[tuple[float, ...], ...]
"""Rows of a matrix, or points (x, y)."""
_FIELDS: tuple[InputKind, ...] = ("matrix", "homography", "quad", "points", "box")
"""Fields that may specify the region. Each one has the name of the kind of its input."""
_SHAPES = {
    "matrix": ((2, 3), "2 rows of 3 numbers"),
    "homography": ((3, 3), "3 rows of 3 numbers"),
    "quad": ((4, 2), "4 pairs (x, y)"),
    "box": ((1, 4), "one row of 4 numbers"),
}
"""Shape of each field's value, and its description for messages."""
MAX_POINTS = 128
_MAX_ENTRY = 1e12
"""Exclusive upper bound of the entries of an inverse matrix, so that float64 can represent all intermediate results."""


class Warp(SteadyOp, frozen=True, tag="warp"):
    """Warps a rotated, tilted or sheared region of the photo to a rectangular image, as OpenCV 4 does.

    One of the fields ``matrix``, ``homography``, ``quad``, ``points`` and ``box`` specifies the region. The value of
    this field is either numbers or the name of an input. Each row of the input yields one tensor, like a box of
    ``crop``. Coordinates in a request are in pixels of the photo.

    ``matrix`` and ``homography`` map a point of the photo to the result, both in coordinates whose origin is the center
    of the first pixel, as for ``cv2.warpAffine`` and ``cv2.warpPerspective``. ``quad`` contains the points that become
    the upper left, upper right, lower right and lower left corner of the result, as with
    ``cv2.getPerspectiveTransform``. ``points`` are aligned to ``template`` by the least-squares similarity transform: a
    rotation, a uniform scale and a translation, without a reflection (Umeyama 1991). InsightFace aligns faces this way,
    with scikit-image's ``SimilarityTransform``. ``box`` is the box of a person for top-down pose estimation, as in
    HRNet and mmpose: the region has the same center as the box, and its sides are those of the box multiplied by
    ``box_padding``. The shorter side is then enlarged to the aspect ratio of the result. ``random_box_warp`` is the
    random op for training.

    With ``"like": "scipy"``, the pixels equal those of SciPy's ``affine_transform`` on x86-64, and ``box`` is the box
    of a person that ``VitPoseImageProcessor`` of transformers crops. The class computes the region in float32 for a
    float32 array of boxes, and in float64 for lists and float64 arrays. ``box_format`` selects the dtype; between the
    two, 2 of 100,000 pixel values differ by 1.

    The pixels equal those of OpenCV 4.9 to 4.14 on x86-64, bit for bit, with and without IPP. OpenCV 5 interpolates
    differently: 60 % of the values differ, by up to 7.

    With ``"like": "dali"``, the pixels equal those of DALI 2.4's ``warp_affine`` on a CPU. The origin of the matrix's
    coordinates is then the corner of the image: the center of the first pixel is at (0.5, 0.5).

    Args:
        matrix: Affine matrix, 2 rows of 3 numbers.
        homography: Homography, 3 rows of 3 numbers.
        quad: 4 corners (x, y) of a convex quadrilateral in clockwise order, starting at the upper left. For a mirror
            image, add ``flip``.
        points: At least 2 points (x, y).
        template: Target positions (x, y) of the ``points`` in the result.
        box: Box in pixels of the photo; see ``box_format``.
        box_format: Format of ``box``. ``xyxy``, the default, is left, top, right and bottom. ``xywh`` and ``xywh64``
            are left, top, width and height in float32 and in float64, and require ``"like": "scipy"``.
        box_padding: Factor by which the sides of ``box`` are multiplied; default: 1.25.
        height: Height of the result in pixels. With ``quad``, ``height`` and ``width`` may be omitted: each side then
            equals the longer of two opposite sides of the quadrilateral, rounded down.
        width: Width of the result in pixels.
        max_size: Maximum height and width of a result whose size follows from ``quad``; default: 4096.
        turn: Minimum ratio of height to width at which the result is rotated by 90 degrees counter-clockwise, if its
            size follows from ``quad``. PaddleOCR uses 1.5. Default: no rotation.
        align_corners: Whether the corners of ``quad`` map to the centers of the four corner pixels of the result, as in
            EasyOCR. By default, they map to the outer corners of the result. ``box`` with ``"like": "scipy"`` requires
            true, because it always maps the corners of the region to these centers.
        filter: Interpolation filter without antialiasing: ``nearest``, ``bilinear`` or ``bicubic``.
        padding_mode: Content of the area outside the photo. ``constant`` uses ``fill``, ``edge`` repeats the nearest
            pixel, and ``reflect`` and ``symmetric`` mirror the image, without and with repeating the pixel at the edge.
        fill: Color of the area outside the photo, 0 to 255: one number, or one per channel.
        like: Library whose pixels the op reproduces. ``dali`` supports ``matrix``, ``nearest`` and ``bilinear``, and
            the padding modes ``constant`` and ``edge``. ``scipy`` supports ``box``, ``matrix`` with ``inverse_map``,
            ``nearest`` and ``bilinear``, and the padding mode ``constant``.
        inverse_map: Whether ``matrix`` maps points of the result to the photo; only for ``dali`` and ``scipy``.
            Default: false. ``scipy`` requires true.

    Example:
        {"op": "warp", "quad": "corners", "height": 48, "width": 160}
    """

    moves: ClassVar[bool] = True
    may_add_color: ClassVar[bool] = False
    profiles: ClassVar[Mapping[Any, Any]] = WARPS

    matrix: Rows | str | None = None
    homography: Rows | str | None = None
    quad: Rows | str | None = None
    points: Rows | str | None = None
    template: Rows | None = None
    box: Rows | str | None = None
    box_format: Literal["xyxy", "xywh", "xywh64"] | None = None
    box_padding: Annotated[float, Within(0.01, 100)] | None = None
    height: Length | None = None
    width: Length | None = None
    max_size: Length | None = None
    turn: Annotated[float, Within(1 / MAX_RATIO, MAX_RATIO)] | None = None
    align_corners: bool = False
    filter: WarpFilter = "bilinear"
    padding_mode: PaddingMode = "constant"
    fill: FillColor = 0
    like: Literal["opencv", "dali", "scipy"] = "opencv"
    inverse_map: bool | None = None

    def check(self) -> None:
        given = [field for field in _FIELDS if getattr(self, field) is not None]
        if len(given) != 1:
            raise PipelineError('requires exactly one of "matrix", "homography", "quad", "points" and "box"')
        (field,) = given
        check_warp(self.like, self.filter, None if self.padding_mode == "constant" else self.padding_mode)
        warps, which = WARPS[self.like], f'with "like": "{self.like}"'
        if warps.regions and field not in warps.regions:
            fields = " or ".join(f'"{each}"' for each in warps.regions)
            raise PipelineError(f'"{field}" is not supported {which}: use {fields}')
        if self.inverse_map is not None and (field != "matrix" or not warps.inverse_maps):
            raise PipelineError('"inverse_map" requires "matrix", and "like": "dali" or "scipy": remove it')
        if field == "matrix" and warps.inverse_maps and bool(self.inverse_map) not in warps.inverse_maps:
            raise PipelineError(f'"matrix" {which} must map points of the result to the photo: set "inverse_map": true')
        check_padding(self.padding_mode, self.fill)
        if (self.template is None) != (field != "points"):
            raise PipelineError('"points" and "template" must be given together')
        if self.template is not None:
            if not 2 <= len(self.template) <= MAX_POINTS:
                raise PipelineError(f'"template" must have 2 to {MAX_POINTS} points, not {len(self.template)}')
            _check_shape("template", self.template, (len(self.template), 2), "a list of pairs (x, y)")
        value = getattr(self, field)
        if not isinstance(value, str):
            shape, words = _SHAPES.get(field, ((len(self.template or ()), 2), 'as many pairs (x, y) as "template"'))
            _check_shape(field, value, shape, words)
        if (self.height is None) != (self.width is None) or (self.height is None and field != "quad"):
            raise PipelineError('requires "height" and "width"; only with "quad" may both be omitted')
        if self.height is None:
            settle(self, "max_size", 4096)
        elif (self.max_size, self.turn) != (None, None):
            raise PipelineError('"max_size" and "turn" are supported only if "height" and "width" are omitted')
        if self.box is not None:
            settle(self, "box_padding", 1.25)
            if (self.box_format or "xyxy") not in warps.box_formats:
                raise PipelineError(f'"box" {which} requires "box_format": "{warps.box_formats[-1]}"')
        for name in ("box_padding", "box_format"):
            if self.box is None and getattr(self, name) is not None:
                raise PipelineError(f'"{name}" requires "box"')
        if self.align_corners and field != "quad" and not self._is_unbiased:
            raise PipelineError('"align_corners" requires "quad", or "box" with "like": "scipy"')
        if self._is_unbiased and not (self.align_corners and self.height != 1 != self.width):
            raise PipelineError(f'"box" {which} requires "align_corners": true and a result of at least 2 x 2 pixels')
        if not isinstance(value, str):
            try:
                self._inverse_map([number for row in value for number in row])
            except ImageError as error:
                raise PipelineError(f'"{field}": {error.detail}') from None

    @property
    def field(self) -> InputKind:
        """Return the name of the field that specifies the region."""
        return next(field for field in _FIELDS if getattr(self, field) is not None)

    @property
    def _is_unbiased(self) -> bool:
        """Return whether ``matrices.unbiased`` computes the region."""
        return self.box_format not in (None, "xyxy")

    @property
    def no_boxes(self) -> str:  # type: ignore[override]  # a class attribute of most ops
        """Reason why boxes and points are not supported after this op; empty if they are."""
        return no_boxes_reason(self.padding_mode)

    def inputs(self, image: ImageSpec) -> tuple[InputSpec, ...]:
        value = getattr(self, self.field)
        if not isinstance(value, str):
            return ()
        bounds = tuple(Bound(-FAR, FAR, example=number) for point in self.template or () for number in point)
        if self._is_unbiased:
            bounds = (*[Bound(-FAR, FAR)] * 2, *[Bound(0, FAR)] * 2)
        count = len(bounds) or {"matrix": 6, "homography": 9, "box": 4}.get(self.field, 8)
        kind = self.box_format if self.box_format in ("xywh", "xywh64") else self.field
        return (InputSpec(name=value, kind=kind, count=count, bounds=bounds),)

    @property
    def keeps_size(self) -> bool:
        """Return False, because the fields determine the size of the result."""
        return False

    def infer(self, image: ImageSpec) -> ImageSpec:
        """Return the spec of the result; reject values that are not 8-bit pixel values."""
        image = super().infer(image)
        if self.height is not None and self.width is not None:
            return image.sized(self.height, self.width)
        return image.within((1, 1), (self.max_size, self.max_size))

    def lower(self, before: Lowered, image: ImageSpec, key: str) -> Lowered:
        if self.inputs(image) and before.is_moved:
            raise PipelineError(
                "must come before ops that move pixels, because the coordinates of a request are in pixels of the photo"
            )
        return super().lower(before, image, key)

    def in_words(self) -> str:
        value = getattr(self, self.field)
        region = f'the input "{value}"' if isinstance(value, str) else f"a fixed {self.field}"
        library = WARPS[self.like].title
        size = "the size of the quad" if self.height is None else f"{self.height} x {self.width}"
        return f"warp the photo by {region} to {size} ({self.filter}, {self.padding_mode}, {library}'s pixels)"

    def input_words(self, row: F64 | None, height: int, width: int) -> Words:
        """Return the parameters of an input row: the matrix from the result to the photo, and the size of the result.

        Raises:
            ImageError: BAD_INPUT, DOES_NOT_FIT: The row does not specify a valid region, or the region is entirely
                outside the photo.
        """
        if row is None:  # example parameters: the whole photo
            rows, columns = (side or min(photo_side, self.max_size or photo_side)
                             for side, photo_side in ((self.height, height), (self.width, width)))  # fmt: skip
            matrix: Any = [width / columns, 0.0, 0.0, 0.0, height / rows, 0.0]
            return {"matrix": matrix, "height": rows, "width": columns, "turned": False}
        words = self._inverse_map(row.tolist())
        corners = [(x, y, 1.0) for y in (0.0, words["height"] - 1.0) for x in (0.0, words["width"] - 1.0)]
        mapped = np.array([*words["matrix"], 0.0, 0.0, 1.0][:9]).reshape(3, 3) @ np.array(corners).T
        if (mapped[2] > 0).all():
            x, y = mapped[:2] / mapped[2]
            if x.max() <= -1 or y.max() <= -1 or x.min() >= width or y.min() >= height:
                raise ImageError("DOES_NOT_FIT", f"the region is outside the image of {height} x {width} pixels")
        return words

    def steps(self, words: Words, height: int, width: int, color: Color) -> tuple[LevelStep, ...]:
        check_side(self.like, height, width)
        if not words:
            words = self._inverse_map([number for row in getattr(self, self.field) for number in row])
        size = words["height"], words["width"]
        fill, mode = colour(self.fill, color), self.padding_mode
        step = warps.Warp(tuple(words["matrix"]), size, 0, 0, *size, fill, self.filter, self.like, padding_mode=mode)
        return (step, *(rotated(*size, 90, Look(), expand=True) if words["turned"] else ()))

    def _inverse_map(self, numbers: list[float]) -> Words:
        """Return the matrix from the result to the photo, and the size of the result; see ``input_words``.

        Args:
            numbers: Flattened value of ``matrix``, ``homography``, ``quad``, ``points`` or ``box``.

        Raises:
            ImageError: BAD_INPUT, DOES_NOT_FIT: The numbers do not specify a valid region, or the result is too large.
        """
        size = self.height or 1, self.width or 1
        forward: Matrix | None = tuple(numbers)
        extents = numbers[2:] if self._is_unbiased else [float(np.ptp(numbers[::2])), float(np.ptp(numbers[1::2]))]
        if self.field in ("quad", "points", "box") and max(extents) <= 1:
            raise ImageError(
                "BAD_INPUT",
                "the region is not larger than a pixel: coordinates must be in pixels of the photo, not normalized",
            )
        if self.field == "quad":
            # cv2.getPerspectiveTransform supports only float32 corners
            rounded = np.asarray(numbers, np.float32).astype(np.float64).tolist()
            corners = list(zip(rounded[::2], rounded[1::2], strict=True))
            _check_quad(corners)
            size = size if self.height else self._quad_size(corners)
            bottom, right = (float(side - self.align_corners) for side in size)
            if not (bottom and right):
                raise ImageError("BAD_INPUT", "with align_corners, the result must be at least 2 x 2 pixels")
            forward = matrices.perspective(corners, [(0.0, 0.0), (right, 0.0), (right, bottom), (0.0, bottom)])
        elif self.box_padding is not None and self._is_unbiased:
            box = np.array(numbers, np.float64 if self.box_format == "xywh64" else np.float32)
            forward = matrices.unbiased(box, self.box_padding, *size)
        elif self.box_padding is not None:
            region = matrices.region(np.array(numbers, np.float32), self.box_padding)
            forward = matrices.of_box(*region, 0.0, *size)
        elif self.template is not None:
            forward = matrices.similarity(list(zip(numbers[::2], numbers[1::2], strict=True)), self.template)
        back = forward if self.inverse_map or forward is None else WARPS[self.like].inverse(forward)
        if back is None or not _is_well_conditioned(back):
            raise ImageError("BAD_INPUT", "the transform is singular or ill-conditioned, so the image cannot be warped")
        turned = self.turn is not None and size[0] / size[1] >= self.turn
        return {"matrix": list(back), "height": size[0], "width": size[1], "turned": turned}

    def _quad_size(self, corners: list[tuple[float, float]]) -> tuple[int, int]:
        """Return the (height, width) of a quadrilateral, from side lengths in float32, as in PaddleOCR."""
        points = np.array(corners, np.float32)
        top, right, bottom, left = np.sqrt(((points - np.roll(points, -1, 0)) ** 2).sum(1, dtype=np.float32))
        height, width = int(max(left, right)), int(max(top, bottom))
        assert self.max_size is not None
        if not (height and width):
            raise ImageError("BAD_INPUT", "the quadrilateral must be at least one pixel high and wide")
        if max(height, width) > self.max_size:
            raise ImageError(
                "DOES_NOT_FIT", f"the result of {height} x {width} pixels exceeds the maximum side, {self.max_size}"
            )
        return height, width


def _is_well_conditioned(matrix: Matrix) -> bool:
    """Return whether a matrix is invertible, and float64 can represent the inverse and all intermediate results."""
    table = np.array([*matrix, 0.0, 0.0, 1.0][:9]).reshape(3, 3)
    magnitudes = np.abs(table)
    is_in_range = magnitudes.max() < _MAX_ENTRY and magnitudes.max(1).min() > 1 / _MAX_ENTRY
    return bool(is_in_range and abs(np.linalg.det(table)) > _MAX_ENTRY**-3)


def _check_shape(name: str, value: Any, shape: tuple[int, int], words: str) -> None:
    """Raise PipelineError if a value is not of this shape, or contains numbers outside -FAR to FAR.

    Args:
        name: Name of the field.
        value: Value of the field.
        shape: Number of rows, and number of columns.
        words: Description of the shape for the message.
    """
    rows, columns = shape
    has_shape = not isinstance(value, str) and len(value) == rows and all(len(row) == columns for row in value)
    if not has_shape or not all(isfinite(number) and abs(number) <= FAR for row in value for number in row):
        raise PipelineError(f'"{name}" must be {words}, with all numbers from -{FAR:,} to {FAR:,}')


def _check_quad(corners: list[tuple[float, float]]) -> None:
    """Raise ImageError unless the corners form a convex quadrilateral and are in clockwise order.

    Raises:
        ImageError: BAD_INPUT: Three corners are collinear, two sides intersect, a corner is concave, or the order is
            counter-clockwise.
    """
    sides = [(x1 - x0, y1 - y0) for (x0, y0), (x1, y1) in pairwise([*corners, *corners[:1]])]
    cross_products = [a * d - b * c for (a, b), (c, d) in pairwise([*sides, *sides[:1]])]
    if 0 in cross_products:
        raise ImageError("BAD_INPUT", "three of the four corners are collinear")
    if min(cross_products) < 0 < max(cross_products):
        raise ImageError(
            "BAD_INPUT",
            "the corners do not form a convex quadrilateral: specify the upper left, upper right, lower right and "
            "lower left corner, in this order",
        )
    if max(cross_products) < 0:
        raise ImageError(
            "BAD_INPUT",
            "the corners are in counter-clockwise order, which would mirror the image: specify the upper left, upper "
            "right, lower right and lower left corner, in this order; to mirror the image, add flip after this op",
        )
