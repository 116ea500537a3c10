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
    """Make an image of a part of the photo that may be turned, tilted or sheared, as OpenCV 4 warps it.

    The part is said by one of ``matrix``, ``homography``, ``quad`` and ``points``: by numbers, or by the name of an
    input, whose rows each give a tensor, as boxes do. What comes with the request is in pixels of the photo.

    ``matrix`` and ``homography`` say where a point of the photo goes, from centre to centre of pixels: what
    ``cv2.warpAffine`` and ``cv2.warpPerspective`` take. ``quad`` has the corners that become the upper left, upper
    right, lower right and lower left one, by ``cv2.getPerspectiveTransform``. ``points`` go onto ``template`` by the
    least squares of a turn, one scale and a move, without a mirror (Umeyama 1991): scikit-image's
    ``SimilarityTransform``, with which InsightFace aligns faces.

    The pixels are OpenCV's, bit for bit, of the versions 4.9 to 4.14 on x86-64, with and without IPP. OpenCV 5
    interpolates in another way, and differs in 60 % of the values, by up to 7 levels.

    With ``like`` ``dali`` they are those of DALI 2.4's ``warp_affine`` on a CPU. The matrix is then from corner to
    corner: a pixel's centre is at a half.

    Args:
        matrix: 2 rows of 3 numbers.
        homography: 3 rows of 3 numbers.
        quad: 4 corners (x, y) in this order, which is clockwise; none points inwards. A mirror is ``flip``, behind it.
        points: (x, y) of at least 2 points.
        template: (x, y) of each of them in the result.
        height: of the result; may be left out with ``quad``: both sides follow the longer of two opposite sides each,
            rounded down.
        width: of the result.
        max_size: the longest side of a result that follows; default: 4096.
        turn: a result that follows is turned by a quarter, counter-clockwise, if its height is at least so many times
            its width; PaddleOCR's is 1.5; default: never.
        align_corners: the corners of ``quad`` go to the centres of the corner pixels, not to the ends of the sides, as
            EasyOCR has them.
        filter: ``nearest``, ``bilinear`` or ``bicubic``, none of them antialiased.
        padding_mode: what lies outside the photo: ``fill``, the nearest pixel at the ``edge``, or the mirror image
            without the edge itself (``reflect``) or with it (``symmetric``).
        fill: the colour where no image is, 0 to 255: one number, or one a channel.
        like: whose pixels; ``dali`` has ``matrix``, ``nearest`` and ``bilinear``, and ``padding_mode`` ``constant`` and
            ``edge``; a GPU leaves it to the host.
        inverse_map: of ``dali``: ``matrix`` says where a point of the result comes from; default: it does not.
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
        """The field that says the part."""
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
