"""Op that lays a part of the photo straight: by a matrix, by four corners, or by points that belong to a template."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from math import isfinite
from typing import Annotated, Any, ClassVar, Literal

import numpy as np

from pixprep.errors import ImageError, PipelineError
from pixprep.pipeline.ops.canvas import check_padding
from pixprep.pipeline.ops.limits import MAX_RATIO, Length, Margin, Within
from pixprep.pipeline.ops.op import SteadyOp, settle
from pixprep.pipeline.ops.warp import check_side, check_warp, shown_again
from pixprep.plan import matrices
from pixprep.plan.draws.motions import Look, rotated
from pixprep.plan.draws.philox import F64, Words
from pixprep.plan.lowered import Lowered, colour
from pixprep.plan.profiles import WARPS
from pixprep.plan.steps import warps
from pixprep.plan.steps.levels import LevelStep
from pixprep.spec import FAR, Bound, Color, ImageSpec, InputKind, InputSpec, Matrix, PaddingMode, WarpFilter

Rows = tuple[tuple[float, ...], ...]
_KINDS: dict[str, InputKind] = {"matrix": "matrix", "homography": "homography", "quad": "quad", "points": "points"}
_FORMS = {
    "matrix": ((2, 3), "2 rows of 3 numbers"),
    "homography": ((3, 3), "3 rows of 3 numbers"),
    "quad": ((4, 2), "4 pairs of x and y"),
}
MAX_POINTS = 128
_HUGE = 1e12


class Warp(SteadyOp, frozen=True, tag="warp"):
    """Warps a region of the photo, which may be rotated, tilted or sheared, to an image, as OpenCV 4 does.

    One of ``matrix``, ``homography``, ``quad`` and ``points`` specifies the region: by numbers, or by the name of an
    input. Each row of the input yields one tensor, as boxes do. Coordinates in a request are in pixels of the photo.

    ``matrix`` and ``homography`` map a point of the photo to the result, both in coordinates whose origin is the center
    of the first pixel: the arguments of ``cv2.warpAffine`` and ``cv2.warpPerspective``. ``quad`` contains the corners
    that become the upper left, upper right, lower right and lower left corner, by ``cv2.getPerspectiveTransform``.
    ``points`` are aligned to ``template`` by the least-squares similarity transform: a rotation, one scale and a
    translation, without a reflection (Umeyama 1991). InsightFace aligns faces with it, through scikit-image's
    ``SimilarityTransform``.

    The pixels equal those of OpenCV 4.9 to 4.14 on x86-64, bit for bit, with and without IPP. OpenCV 5 interpolates
    differently: 60 % of the values differ, by up to 7.

    With ``"like": "dali"``, the pixels equal those of DALI 2.4's ``warp_affine`` on a CPU. The origin of the matrix's
    coordinates is then the corner of the image: the center of the first pixel is at (0.5, 0.5).

    Args:
        matrix: Affine matrix, 2 rows of 3 numbers.
        homography: Homography, 3 rows of 3 numbers.
        quad: 4 corners (x, y) in this order, which is clockwise, of a convex quadrilateral. For a mirror image, add
            ``flip``.
        points: (x, y) of at least 2 points.
        template: (x, y) of the same points in the result.
        height: Height of the result in pixels. It may be left out with ``quad``: each side then equals the longer of
            two opposite sides of the quadrilateral, rounded down.
        width: Width of the result in pixels.
        max_size: Maximum side of a result whose size follows from ``quad``; default: 4096.
        turn: Minimum ratio of height to width from which a result whose size follows from ``quad`` is rotated by 90
            degrees counter-clockwise. PaddleOCR uses 1.5. Default: no rotation.
        align_corners: Whether the corners of ``quad`` map to the centers of the corner pixels instead of to the ends of
            the sides, as in EasyOCR.
        filter: Interpolation filter: ``nearest``, ``bilinear`` or ``bicubic``. None is antialiased.
        padding_mode: Content outside the photo: ``constant`` is ``fill``, ``edge`` repeats the nearest pixel,
            ``reflect`` and ``symmetric`` mirror the image without and with the pixel at the edge.
        fill: Color outside the image, 0 to 255: one number, or one per channel.
        like: Library whose pixels the result equals. ``dali`` supports ``matrix``, ``nearest`` and ``bilinear``, and
            the padding modes ``constant`` and ``edge``. A GPU engine runs ``dali`` on the host.
        inverse_map: Whether ``matrix`` maps a point of the result to the photo, for ``dali``; default: false.

    Example:
        {"op": "warp", "quad": "corners", "height": 48, "width": 160}
    """

    moves: ClassVar[bool] = True
    may_colour: ClassVar[bool] = False
    profiles: ClassVar[Mapping[Any, Any]] = WARPS

    matrix: Rows | str | None = None
    homography: Rows | str | None = None
    quad: Rows | str | None = None
    points: Rows | str | None = None
    template: Rows | None = None
    height: Length | None = None
    width: Length | None = None
    max_size: Length | None = None
    turn: Annotated[float, Within(1 / MAX_RATIO, MAX_RATIO)] | None = None
    align_corners: bool = False
    filter: WarpFilter = "bilinear"
    padding_mode: PaddingMode = "constant"
    fill: Margin = 0
    like: Literal["opencv", "dali"] = "opencv"
    inverse_map: bool | None = None

    def check(self) -> None:
        named = [field for field in _KINDS if getattr(self, field) is not None]
        if len(named) != 1:
            raise PipelineError('needs one of "matrix", "homography", "quad" and "points"')
        (field,) = named
        check_warp(self.like, self.filter, self.padding_mode)
        if WARPS[self.like].origin == "pixel":
            if self.inverse_map is not None:
                raise PipelineError(f'"inverse_map" is not for "like": "{self.like}"')
        elif field != "matrix":
            raise PipelineError(f'"{field}" is not for "like": "{self.like}", which has "matrix"')
        check_padding(self.padding_mode, self.fill)
        if (self.template is None) != (field != "points"):
            raise PipelineError('"template" goes with "points", and "points" need it')
        if self.template is not None:
            if not 2 <= len(self.template) <= MAX_POINTS:
                raise PipelineError(f'"template" has 2 to {MAX_POINTS} points, not {len(self.template)}')
            _check_form("template", self.template, (len(self.template), 2), "pairs of x and y")
        value = getattr(self, field)
        if not isinstance(value, str):
            form, words = _FORMS.get(field, ((len(self.template or ()), 2), 'as many pairs of x and y as "template"'))
            _check_form(field, value, form, words)
        if (self.height is None) != (self.width is None) or (self.height is None and field != "quad"):
            raise PipelineError('needs "height" and "width"; with "quad" both may be left out')
        if self.height is None:
            settle(self, "max_size", 4096)
        elif (self.max_size, self.turn) != (None, None):
            raise PipelineError('"max_size" and "turn" go without "height" and "width"')
        if self.align_corners and field != "quad":
            raise PipelineError('"align_corners" goes with "quad"')
        if not isinstance(value, str):
            try:
                self._laid([number for row in value for number in row])
            except ImageError as error:
                raise PipelineError(f'"{field}": {error.detail}') from None

    @property
    def field(self) -> str:
        """Return the name of the field that specifies the region."""
        return next(field for field in _KINDS if getattr(self, field) is not None)

    @property
    def no_boxes(self) -> str:  # type: ignore[override]  # of most ops it is the same for all
        """Reason why no boxes or points may come behind it; empty: they may."""
        return shown_again(self.padding_mode)

    def inputs(self, image: ImageSpec) -> tuple[InputSpec, ...]:
        value = getattr(self, self.field)
        if not isinstance(value, str):
            return ()
        bounds = tuple(Bound(-FAR, FAR, example=number) for point in self.template or () for number in point)
        count = len(bounds) or {"matrix": 6, "homography": 9}.get(self.field, 8)
        return (InputSpec(name=value, kind=_KINDS[self.field], count=count, bounds=bounds),)

    @property
    def keeps_size(self) -> bool:
        """A warp says how large its result is."""
        return False

    def infer(self, image: ImageSpec) -> ImageSpec:
        """The spec of the result; refuses values that are no levels."""
        image = super().infer(image)
        if self.height is not None and self.width is not None:
            return image.sized(self.height, self.width)
        return image.within((1, 1), (self.max_size, self.max_size))

    def lower(self, before: Lowered, image: ImageSpec, key: str) -> Lowered:
        if self.inputs(image) and before.is_moved:
            raise PipelineError("must come before what moves pixels: its numbers are in pixels of the photo")
        return super().lower(before, image, key)

    def in_words(self) -> str:
        value = getattr(self, self.field)
        part = f'what "{value}" says' if isinstance(value, str) else f"its {self.field}"
        library = WARPS[self.like].title
        size = "its own size" if self.height is None else f"{self.height} x {self.width}"
        return f"warp the photo by {part} to {size} ({self.filter}, {self.padding_mode}, {library}'s pixels)"

    def input_words(self, row: F64 | None, height: int, width: int) -> Words:
        """The words of what came with the photo: the matrix from the result to it, and the size of the result.

        Raises:
            ImageError: BAD_INPUT, DOES_NOT_FIT: there is no such part, or it lies outside.
        """
        if row is None:  # an example: the whole photo
            rows, columns = (side or min(longest, self.max_size or longest)
                             for side, longest in ((self.height, height), (self.width, width)))  # fmt: skip
            matrix: Any = [width / columns, 0.0, 0.0, 0.0, height / rows, 0.0]
            return {"matrix": matrix, "height": rows, "width": columns, "turned": False}
        words = self._laid(row.tolist())
        corners = [(x, y, 1.0) for y in (0.0, words["height"] - 1.0) for x in (0.0, words["width"] - 1.0)]
        places = np.array([*words["matrix"], 0.0, 0.0, 1.0][:9]).reshape(3, 3) @ np.array(corners).T
        if (places[2] > 0).all():
            x, y = places[:2] / places[2]
            if x.max() <= -1 or y.max() <= -1 or x.min() >= width or y.min() >= height:
                raise ImageError("DOES_NOT_FIT", f"it lies outside the {height} x {width} pixels")
        return words

    def steps(self, words: Words, height: int, width: int, color: Color) -> tuple[LevelStep, ...]:
        check_side(self.like, height, width)
        if not words:
            words = self._laid([number for row in getattr(self, self.field) for number in row])
        size = words["height"], words["width"]
        fill, mode = colour(self.fill, color), self.padding_mode
        step = warps.Warp(tuple(words["matrix"]), size, 0, 0, *size, fill, self.filter, self.like, padding_mode=mode)
        return (step, *(rotated(*size, 90, Look(), expand=True) if words["turned"] else ()))

    def _laid(self, numbers: list[float]) -> Words:
        """The words of these numbers; see ``input_words``."""
        size = self.height or 1, self.width or 1
        forward: Matrix | None = tuple(numbers)
        if self.field in ("quad", "points") and max(np.ptp(numbers[::2]), np.ptp(numbers[1::2])) <= 1:
            raise ImageError("BAD_INPUT", "it is no larger than a pixel: numbers are pixels of the photo, not shares")
        if self.field == "quad":
            # getPerspectiveTransform takes float32 corners alone
            of_cv2 = np.asarray(numbers, np.float32).astype(np.float64).tolist()
            corners = list(zip(of_cv2[::2], of_cv2[1::2], strict=True))
            _check_quad(corners)
            size = size if self.height else self._size_of(corners)
            bottom, right = (float(side - self.align_corners) for side in size)
            if not (bottom and right):
                raise ImageError("BAD_INPUT", "with align_corners the result needs 2 pixels a side")
            forward = matrices.perspective(corners, [(0.0, 0.0), (right, 0.0), (right, bottom), (0.0, bottom)])
        elif self.template is not None:
            forward = matrices.similarity(list(zip(numbers[::2], numbers[1::2], strict=True)), self.template)
        back = None if forward is None else WARPS[self.like].inverse(forward)
        if self.inverse_map and back is not None:
            back = forward
        if back is None or not _is_usual(back):
            raise ImageError("BAD_INPUT", "no image follows from it: it has no inverse, or one of huge numbers")
        turned = self.turn is not None and size[0] / size[1] >= self.turn
        return {"matrix": list(back), "height": size[0], "width": size[1], "turned": turned}

    def _size_of(self, corners: list[tuple[float, float]]) -> tuple[int, int]:
        """(height, width) that follow from the sides, whose lengths are of float32, as PaddleOCR's are."""
        points = np.array(corners, np.float32)
        above, right, below, left = np.sqrt(((points - np.roll(points, -1, 0)) ** 2).sum(1, dtype=np.float32))
        height, width = int(max(left, right)), int(max(above, below))
        assert self.max_size is not None
        if not (height and width):
            raise ImageError("BAD_INPUT", "its sides are shorter than a pixel")
        if max(height, width) > self.max_size:
            raise ImageError("DOES_NOT_FIT", f"its {height} x {width} pixels have a side of over {self.max_size}")
        return height, width


def _is_usual(matrix: Matrix) -> bool:
    """Tell whether a matrix has an inverse that numbers of float64 hold, with whatever is computed on the way."""
    table = np.array([*matrix, 0.0, 0.0, 1.0][:9]).reshape(3, 3)
    sizes = np.abs(table)
    return bool(sizes.max() < _HUGE and sizes.max(1).min() > 1 / _HUGE and abs(np.linalg.det(table)) > _HUGE**-3)


def _check_form(name: str, value: Any, form: tuple[int, int], words: str) -> None:
    rows, columns = form
    is_form = not isinstance(value, str) and len(value) == rows and all(len(row) == columns for row in value)
    if not is_form or not all(isfinite(number) and abs(number) <= FAR for row in value for number in row):
        raise PipelineError(f'"{name}" is {words}, each of -{FAR:,} to {FAR:,}')


def _check_quad(corners: list[tuple[float, float]]) -> None:
    """Refuse corners of which three lie on a line, sides that cross, and corners that would mirror the part.

    Raises:
        ImageError: BAD_INPUT.
    """
    sides = [(x1 - x0, y1 - y0) for (x0, y0), (x1, y1) in pairwise([*corners, *corners[:1]])]
    turns = [a * d - b * c for (a, b), (c, d) in pairwise([*sides, *sides[:1]])]
    if 0 in turns:
        raise ImageError("BAD_INPUT", "three of its corners lie on a line")
    if min(turns) < 0 < max(turns):
        raise ImageError("BAD_INPUT", "its sides cross, or a corner points inwards: give the corners in order")
    if max(turns) < 0:
        raise ImageError(
            "BAD_INPUT",
            "its corners go anticlockwise, which mirrors the image: give the upper left, upper right, lower right and "
            "lower left one; flip behind it mirrors",
        )
