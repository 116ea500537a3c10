"""Placement: where each output pixel of a pipeline looks.

``Window`` and ``Flip`` steps around at most one ``Resize`` are a ``Geometry``. For an image of known size, and with
what was drawn or came with the request, they fold into one ``Placement``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, floor
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from pixprep.draws import windows
from pixprep.draws.colors import Augment
from pixprep.draws.erasing import Erasing
from pixprep.draws.philox import EXAMPLE, F64, Numbers, Words
from pixprep.draws.warps import Rotation
from pixprep.draws.windows import ClipFrames, RandomStep, within
from pixprep.errors import ImageError, PipelineError
from pixprep.plan import inputs
from pixprep.plan.inputs import Given, InputStep
from pixprep.profiles import PROFILES, Method
from pixprep.spec import (
    Filter,
    Like,
    Rounding,
    rounded,
    scaled,
)
from pixprep.steps import levels
from pixprep.steps.levels import Erase, LevelStep, Matrix, Take, Warp
from pixprep.steps.operators import Extern

MAX_RESIZED_PIXELS = 1 << 28
"""A resize whose whole result, before any crop, would have more pixels is refused (1 GB)."""

MAX_LEVELS_SIDE = 1 << 16
"""An image whose levels change, and that has more rows or columns, is refused: a GPU's grid has no more."""

REACH = 4
"""No filter looks further than this many resized pixels, or pixels of an image that grows, from an output's centre."""

Beyond = Literal["fill", "refuse_smaller", "refuse_larger"]


@dataclass(frozen=True, kw_only=True)
class Window:
    """A new canvas laid over the image: it crops where it is smaller, and pads where it is larger.

    Attributes:
        height, width: of the canvas; None: a square of ``int(fraction * side)``.
        side: of the image, which the square follows.
        place: where it lies. ``fixed``: at ``top``, ``left``. ``center``: half of what is cut off lies above, rounded
            by ``rounding``; half of what is added, rounded down. ``top_left``: nothing is cut off or added there.
        beyond: what happens where the canvas is larger than the image, or smaller.
    """

    height: int | None
    width: int | None
    fraction: float = 1.0
    side: Literal["shorter", "longer"] = "shorter"
    place: Literal["fixed", "center", "top_left"]
    top: int = 0
    left: int = 0
    rounding: Rounding = "half_even"
    beyond: Beyond

    def __str__(self) -> str:
        where = "in the middle" if self.place == "center" else "at the top left"
        if self.height is None and self.side == "longer":
            return f"lay on a square of the longer side, {where}"
        if self.height is None:
            return f"take the middle square of {self.fraction:g} of the shorter side"
        size = f"{self.height} x {self.width}"
        if self.place == "fixed":
            return f"take {size} from row {self.top}, column {self.left}"
        if self.beyond == "refuse_larger":
            return f"lay on a canvas of {size}, {where}"
        return f"take the middle {size}"


@dataclass(frozen=True)
class Flip:
    """Mirror the canvas."""

    axis: Literal["horizontal", "vertical"]

    def __str__(self) -> str:
        return f"mirror, {self.axis}"


GeometryStep = Window | Flip | RandomStep | InputStep


@dataclass(frozen=True)
class Move:
    """A step of the geometry that comes after steps of ``levels`` with which it does not change places.

    Attributes:
        fill: the level of each decoded channel where it leaves a margin.
    """

    step: GeometryStep
    fill: tuple[int, ...]

    def __str__(self) -> str:
        return str(self.step)


LevelsStep = LevelStep | Augment | Move
"""What a plan has to say of levels, for an image of any size."""


@dataclass(frozen=True, kw_only=True)
class Resize:
    """One separable resize of the whole canvas.

    Attributes:
        rule: ``both``: to ``height`` x ``width``. ``shorter``, ``longer``: that side to ``height``, the other to
            ``height * other / side``. ``fit``, ``cover``: each side divided by the larger or smaller of
            ``side / self.side``, which makes one of them ``self.side``. ``letterbox``: both to ``side * scale`` with
            the smaller scale; ``shrink``: the same, but no scale over 1.
        rounding: of a side that the rule computes; at least 1.
        like: whose arithmetic the filter follows.
        subpixel: of DALI: the scale is what the rule says before rounding, about the image's middle.
    """

    rule: Literal["both", "shorter", "longer", "fit", "cover", "letterbox", "shrink"]
    height: int
    width: int
    filter: Filter
    antialias: bool
    like: Like = "pillow"
    rounding: Rounding = "down"
    subpixel: bool = False

    @property
    def is_real(self) -> bool:
        """Tell whether it gives float32 values, not uint8 levels."""
        return self.filter in PROFILES[self.like].real

    def keeps_margins(self, columns: int) -> bool:
        """Tell whether a result of so many columns has the margin's colour where only margin is near.

        OpenCV's weights of lanczos4 do not add up to one; of PyTorch's only column each row is the first.
        """
        return self.filter != "lanczos4" and not (columns == 1 and self.filter in PROFILES[self.like].across)

    @property
    def method(self) -> Method:
        """Method that the profile is asked for."""
        return Method(self.filter, self.antialias)

    def size(self, height: int, width: int) -> tuple[int, int]:
        """The (height, width) that an image of this size is resized to."""
        rows, columns = self._sides(height, width)
        return max(1, rounded(rows, self.rounding)), max(1, rounded(columns, self.rounding))

    def ratio(self, height: int, width: int, resized: tuple[int, int]) -> tuple[float, float]:
        """Image pixels for each resized pixel, (y, x); the windows lie symmetrically about the image's middle."""
        if not self.subpixel:
            return height / resized[0], width / resized[1]
        # DALI grows what it looks at up to tenfold, for a side that is rounded up to 1.
        rows, columns = (max(side, whole / 10) for side, whole in zip(self._sides(height, width), resized, strict=True))
        return height / rows, width / columns

    def _sides(self, height: int, width: int) -> tuple[float, float]:
        """The sides before they are rounded; a side that the rule names is whole."""
        if self.rule == "both":
            return self.height, self.width
        ratios = (height / self.height, width / self.width)
        if self.rule in ("letterbox", "shrink"):
            scale = min(self.height / height, self.width / width)
            if self.rule == "shrink":
                scale = min(scale, 1.0)
            return height * scale, width * scale
        is_height_named = ratios[0] >= ratios[1] if self.rule in ("longer", "fit") else ratios[0] <= ratios[1]
        if is_height_named:
            return self.height, self._other(width, self.height, height)
        return self._other(height, self.width, width), self.width

    def _other(self, length: int, size: int, side: int) -> float:
        """Scale ``length`` as ``side`` is scaled to ``size``."""
        if self.rule in ("fit", "cover") and self.rounding != "half_away":
            return length / (side / size)  # timm's order
        return scaled(length, size, side, self.rounding)

    def __str__(self) -> str:
        size = f"{self.height} x {self.width}"
        to = {
            "both": f"to {size}",
            "shorter": f"the shorter side to {self.height}",
            "longer": f"the longer side to {self.height}",
            "fit": f"to fit into {size}",
            "cover": f"to cover {size}",
            "letterbox": f"to fit into {size}",
            "shrink": f"to fit into {size}, never enlarging",
        }[self.rule]
        antialias = ", antialiased" if self.antialias and self.filter != "nearest" else ""
        profile = PROFILES[self.like]
        is_near = self.filter in profile.near
        values = f"within one level of {profile.title}" if is_near else f"exactly {profile.title}'s values"
        return f"resize {to} ({self.filter}{antialias}; {values})"


@dataclass(frozen=True)
class Reduction:
    """Position of an image in pixels that were decoded to a fraction of its size.

    Each pixel stands for ``denominator`` x ``denominator`` pixels of the image. The last row and column may reach over
    the image's end; in an image that was turned upright they may have become the first.

    Attributes:
        denominator: 2, 4 or 8.
        origin: (y, x), where the image begins, in these pixels: at least 0, and below 1.
    """

    denominator: int
    origin: tuple[float, float]

    def position(self, axis: int, position: float) -> float:
        """Map a position of the image to these pixels, on axis 0 (y) or 1 (x)."""
        return position / self.denominator + self.origin[axis]


NO_MARGINS = (0, 0, 0, 0)


class Placement(NamedTuple):
    """A geometry applied to an image of one size. Rows before columns; every number is in whole pixels.

    The image is cropped to ``box``, mirrored, surrounded by ``margins`` of the fill, and resized to ``resized``. The
    ``region`` of the result is flipped and laid on the canvas with its first pixel at ``at``. The fill covers the rest
    of the canvas. A mirror before the resize and a flip after it differ: the ties of ``nearest`` and ``box`` do not
    fall alike from both sides.

    Attributes:
        ratio: (y, x), pixels of the box and its margins for each resized pixel; their size / ``resized`` unless the
            resize is ``subpixel``: then the middles of both agree.
        box, region: (top, left, bottom, right), the last two exclusive.
        resized, at, canvas: (rows, columns). An empty region may lie outside the canvas: then ``at`` only says where
            the image would be. Where there are margins, the region leaves out what is of their colour.
        mirrors, flips: (vertical, horizontal), before and after the resize.
        reduction: of the decoded pixels; None: they are the image's. Every other number is of the image itself.
        margins: (top, left, bottom, right) of the mirrored box, before the resize.
        levels: what is then done to the canvas, fill and all.
        fill: their level, and that of the canvas, for each channel of the tensor, where an input says it.
        erasures: what is then done to the tensor; the values are those of its channels.
    """

    box: tuple[int, int, int, int]
    mirrors: tuple[bool, bool]
    resized: tuple[int, int]
    ratio: tuple[float, float]
    region: tuple[int, int, int, int]
    flips: tuple[bool, bool]
    at: tuple[int, int]
    canvas: tuple[int, int]
    reduction: Reduction | None = None
    margins: tuple[int, int, int, int] = NO_MARGINS
    fill: tuple[int, ...] | None = None
    levels: tuple[LevelStep, ...] = ()
    erasures: tuple[Erase, ...] = ()

    @property
    def size(self) -> tuple[int, int]:
        """(rows, columns) of the tensor."""
        return levels.size_after(self.levels, *self.canvas)

    @property
    def matrix(self) -> Matrix:
        """Matrix from a point of the image to the tensor, in continuous pixel coordinates."""
        scale_y, scale_x, offset_y, offset_x = self.transform
        whole: Matrix = (scale_x, 0.0, offset_x, 0.0, scale_y, offset_y)
        for forward, _ in levels.motions(self.levels, *self.canvas):
            whole = levels.joined(whole, forward)
        return whole

    @property
    def laid(self) -> tuple[int, int]:
        """(rows, columns) of the box with its margins: what is resized."""
        top, left, bottom, right = self.box
        above, before, below, behind = self.margins
        return above + bottom - top + below, before + right - left + behind

    @property
    def read(self) -> tuple[int, int, int, int]:
        """(top, left, bottom, right) of the decoded pixels that show any of the box."""
        if self.reduction is None:
            return self.box
        top, left, bottom, right = (self.reduction.position(index % 2, edge) for index, edge in enumerate(self.box))
        return floor(top), floor(left), ceil(bottom), ceil(right)

    @property
    def offset(self) -> tuple[float, float]:
        """(y, x), where the box begins in the pixels of ``read``, mirrored; 0 unless the decode was reduced."""
        if self.reduction is None:
            return 0.0, 0.0
        offsets, read = [], self.read
        for axis in (0, 1):
            if self.mirrors[axis]:
                offsets.append(read[axis + 2] - self.reduction.position(axis, self.box[axis + 2]))
            else:
                offsets.append(self.reduction.position(axis, self.box[axis]) - read[axis])
        return offsets[0], offsets[1]

    @property
    def transform(self) -> tuple[float, float, float, float]:
        """(scale_y, scale_x, offset_y, offset_x): canvas = image * scale + offset, in continuous pixel coordinates."""
        scales, offsets = [], []
        for axis in (0, 1):
            scale, offset = _stretch(
                self.box[axis::2],
                self.margins[axis::2],
                self.resized[axis],
                self.ratio[axis],
                is_mirrored=self.mirrors[axis],
            )
            offset -= self.region[axis]
            if self.flips[axis]:
                scale, offset = -scale, self.region[axis + 2] - self.region[axis] - offset
            scales.append(scale)
            offsets.append(offset + self.at[axis])
        return (*scales, *offsets)  # type: ignore[return-value]


def _stretch(
    box: Sequence[int], margins: Sequence[int], resized: int, ratio: float, *, is_mirrored: bool
) -> tuple[float, float]:
    """(scale, offset) of one axis: ``resized = image * scale + offset`` of what is cropped, mirrored and surrounded.

    Args:
        box: its begin and its end.
        margins: before and behind it.
        resized: its length after the resize.
        ratio: see ``Placement``.
        is_mirrored: before the margins are added.
    """
    scale, middle, beside = 1 / ratio, (box[0] + box[1]) / 2, (margins[1] - margins[0]) / 2
    if is_mirrored:
        scale, beside = -scale, -beside
    return scale, resized / 2 - (middle + beside) * scale


class Drawing:
    """Numbers of random ops and of inputs for one image: each op gets them once, whatever outputs it leads to.

    Args:
        numbers: of the sample; or the words of each op, to repeat a drawing.
        boxes: float32 (n, 4) xyxy in pixels of the image, for ``random_iou_crop``; None: there are none.
        given: what came with the image; None: an example: the whole image, not mirrored, with black margins.

    Attributes:
        draws: the words of each op that was asked.
        kept: by the key of each ``random_iou_crop``, which boxes its window keeps.
    """

    def __init__(
        self,
        numbers: Numbers | Mapping[str, Words],
        boxes: npt.ArrayLike | None = None,
        given: Given | None = None,
    ) -> None:
        self._numbers = numbers
        self._boxes = boxes
        self._given = given
        self.draws: dict[str, Words] = {}
        self.kept: dict[str, npt.NDArray[np.bool_]] = {}

    def words(self, step: RandomStep | InputStep | Augment | ClipFrames | Extern, rows: Span, columns: Span) -> Words:
        """Give a step its words; its canvas so far is ``rows`` x ``columns``."""
        if step.key in self.draws:
            return self.draws[step.key]
        boxes: F64 | None = None
        if isinstance(step, windows.IouCrop) and self._boxes is not None:
            boxes = _on_canvas(_as_boxes(self._boxes), rows, columns)
        if not isinstance(self._numbers, Numbers):
            words = self._earlier(step.key)
        elif isinstance(step, InputStep) or (isinstance(step, Rotation) and step.input is not None):
            words = self._given_words(step, rows, columns)
        else:
            words = step.words(rows.canvas, columns.canvas, self._numbers, boxes)
        if boxes is not None:
            self.kept[step.key] = within(words, boxes)
        self.draws[step.key] = words
        return words

    def fill(self, step: inputs.Fill) -> tuple[int, ...]:
        """The levels of the margins."""
        if not isinstance(self._numbers, Numbers):
            words = self._earlier(step.key)
        else:
            words = {"fill": [0] * step.channels if self._given is None else self._given[step.input].tolist()}
        self.draws[step.key] = words
        return tuple(words["fill"])

    def _given_words(self, step: InputStep | Rotation, rows: Span, columns: Span) -> Words:
        """Words of a step that an input gives."""
        assert step.input is not None
        numbers = None if self._given is None else self._given[step.input]
        if isinstance(step, Rotation):
            return {"angle": 0.0 if numbers is None else float(numbers[0])}
        if isinstance(step, inputs.Flip):
            return {"flip": numbers is not None and bool(numbers[0])}
        box = None if numbers is None else _on_canvas(numbers.astype(np.float64)[None], rows, columns)[0]
        return step.words(rows.canvas, columns.canvas, box)

    def _earlier(self, key: str) -> Words:
        """Words that were drawn before."""
        assert not isinstance(self._numbers, Numbers)
        if key not in self._numbers:
            raise PipelineError(f'no draw for "{key}"; there are {", ".join(self._numbers) or "none"}')
        return self._numbers[key]


def _is_given(step: object) -> bool:
    """Tell whether the numbers of a step come with the image."""
    return isinstance(step, InputStep) or (isinstance(step, Rotation) and step.input is not None)


def _on_canvas(boxes: F64, rows: Span, columns: Span) -> F64:
    """Boxes of the image, float64 (n, 4) xyxy, on a canvas."""
    (scale_y, offset_y), (scale_x, offset_x) = rows.transform, columns.transform
    return moved(boxes, (scale_y, scale_x, offset_y, offset_x))


def _as_boxes(values: Any) -> F64:
    """Annotated boxes: float64 (n, 4)."""
    try:
        return np.asarray(values, np.float64).reshape(-1, 4)
    except (TypeError, ValueError):
        raise ImageError("BAD_RECORD", '"boxes" are (n, 4) numbers') from None


def moved(boxes: F64, transform: tuple[float, float, float, float]) -> F64:
    """Boxes after a ``Placement.transform``: float64 (n, 4) xyxy; a mirror swaps the ends."""
    scale_y, scale_x, offset_y, offset_x = transform
    ends = boxes * (scale_x, scale_y, scale_x, scale_y) + (offset_x, offset_y, offset_x, offset_y)
    if scale_x < 0:
        ends[:, [0, 2]] = ends[:, [2, 0]]
    if scale_y < 0:
        ends[:, [1, 3]] = ends[:, [3, 1]]
    return ends


@dataclass(frozen=True)
class Geometry:
    """Geometry and steps on levels of an output, for images of any size."""

    before: tuple[GeometryStep, ...]
    resize: Resize | None
    after: tuple[GeometryStep, ...]
    levels: tuple[LevelsStep, ...] = ()
    erasures: tuple[Erasing, ...] = ()
    fill: inputs.Fill | None = None

    @property
    def _steps(self) -> tuple[GeometryStep | Augment | LevelStep, ...]:
        """Give all steps that are done to an image, those after levels as they are."""
        return (*self.before, *self.after, *(step.step if isinstance(step, Move) else step for step in self.levels))

    @property
    def random_steps(self) -> tuple[RandomStep | Augment, ...]:
        """The steps that differ from image to image by what is drawn."""
        still = Window | Flip | LevelStep
        drawn = (
            step
            for step in self._steps
            if (isinstance(step, Extern) or not (isinstance(step, still) or _is_given(step))) and step.key
        )
        return (*drawn, *self.erasures)  # type: ignore[arg-type]

    @property
    def takes_inputs(self) -> bool:
        """Tell whether a step's numbers come with the image."""
        return self.fill is not None or any(_is_given(step) for step in self._steps)

    @property
    def may_warp(self) -> bool:
        """Tell whether it may turn an image, so that its boxes are no boxes any more."""
        still = Move | Erasing
        return any(
            isinstance(step, Warp)
            if isinstance(step, LevelStep)
            else not (isinstance(step, still) or step.keeps_places)
            for step in self.levels
        )

    @property
    def is_padded(self) -> bool:
        """Tell whether an image may have margins before the resize."""
        return any(_makes_margins(step) for step in self.before)

    def place(self, height: int, width: int, drawing: Drawing | None = None) -> Placement:
        """Fold the steps for an image of this size.

        Args:
            height: of the image.
            width: of the image.
            drawing: what random steps get; default: an example, in which every number is nearly a half.

        Raises:
            ImageError: DOES_NOT_FIT, BAD_DIMENSIONS: this image has no such window.
        """
        drawing = drawing or Drawing(EXAMPLE)
        rows, columns = Span(height), Span(width)
        for step in self.before:
            _apply(step, rows, columns, drawing)
        box = (rows.begin, columns.begin, rows.begin + rows.length, columns.begin + columns.length)
        size = (rows.canvas, columns.canvas)
        below, behind = rows.canvas - rows.at - rows.length, columns.canvas - columns.at - columns.length
        margins = rows.at, columns.at, below, behind
        resized = self.resize.size(*size) if self.resize else size
        ratio = self.resize.ratio(*size, resized) if self.resize else (1.0, 1.0)
        if resized[0] * resized[1] > MAX_RESIZED_PIXELS:
            raise ImageError(
                "BAD_DIMENSIONS",
                f"its {size[0]} x {size[1]} pixels would be resized to {resized[0]} x {resized[1]}, "
                f"more than {MAX_RESIZED_PIXELS:,} pixels",
            )
        mirrors = (rows.is_flipped, columns.is_flipped)
        if margins == NO_MARGINS or (self.resize is not None and not self.resize.keeps_margins(resized[1])):
            rows, columns = Span(resized[0]), Span(resized[1])
        else:
            rows, columns = _seen(rows, resized[0], ratio[0]), _seen(columns, resized[1], ratio[1])
        for axis, span in enumerate((rows, columns)):
            span.stretch = _stretch(
                box[axis::2], margins[axis::2], resized[axis], ratio[axis], is_mirrored=mirrors[axis]
            )
        for step in self.after:
            _apply(step, rows, columns, drawing)
        done = self._placed_levels(rows.canvas, columns.canvas, drawing) if self.levels else ()
        return Placement(
            box=box,
            mirrors=mirrors,
            resized=resized,
            ratio=ratio,
            region=(rows.begin, columns.begin, rows.begin + rows.length, columns.begin + columns.length),
            flips=(rows.is_flipped, columns.is_flipped),
            at=(rows.at, columns.at),
            canvas=(rows.canvas, columns.canvas),
            margins=margins,
            fill=drawing.fill(self.fill) if self.fill else None,
            levels=done,
            erasures=self._placed_erasures(*levels.size_after(done, rows.canvas, columns.canvas), drawing)
            if self.erasures
            else (),
        )

    def _placed_erasures(self, height: int, width: int, drawing: Drawing) -> tuple[Erase, ...]:
        """The rectangles of a tensor of this size."""
        rows, columns = Span(height), Span(width)
        return tuple(
            erase for step in self.erasures for erase in step.steps(drawing.words(step, rows, columns), height, width)
        )

    def _placed_levels(self, height: int, width: int, drawing: Drawing) -> tuple[LevelStep, ...]:
        """The steps for a canvas of this size."""
        made: list[LevelStep] = []
        _check_levels_size(height, width)
        for step in self.levels:
            rows, columns = Span(height), Span(width)
            these: tuple[LevelStep, ...]
            if isinstance(step, Move):
                _apply(step.step, rows, columns, drawing)
                these = (_take(rows, columns, step.fill),)
            elif isinstance(step, Extern) and step.key:
                these = (replace(step, seed=drawing.words(step, rows, columns)["seed"]),)
            elif isinstance(step, LevelStep):
                these = (step,)
            else:
                these = step.steps(drawing.words(step, rows, columns) if step.key else {}, height, width)
            height, width = levels.size_after(these, height, width)
            _check_levels_size(height, width)
            made.extend(these)
        return levels.folded(made)


def _check_levels_size(height: int, width: int) -> None:
    """Refuse what a small image may become, when one of its sides is resized, or it is turned and expands."""
    if height * width > MAX_RESIZED_PIXELS or max(height, width) > MAX_LEVELS_SIDE:
        raise ImageError(
            "BAD_DIMENSIONS",
            f"its levels would be changed at {height} x {width}; a side has at most {MAX_LEVELS_SIDE:,}, and all "
            f"{MAX_RESIZED_PIXELS:,} pixels",
        )


def _take(rows: Span, columns: Span, fill: tuple[int, ...]) -> Take:
    """Window of the image before that the canvas shows."""
    top, left = (
        span.begin - (span.canvas - span.at - span.length if span.is_flipped else span.at) for span in (rows, columns)
    )
    return Take(top, left, rows.canvas, columns.canvas, (rows.is_flipped, columns.is_flipped), fill)


def _makes_margins(step: GeometryStep) -> bool:
    """Tell whether a step before the resize may leave a margin, which is then resized too."""
    if isinstance(step, Window):
        return step.beyond == "refuse_larger"
    return not isinstance(step, Flip) and not step.is_inside


class Span:
    """Part of one axis that a canvas shows while steps are folded: ``length`` pixels from ``begin``, seen at ``at``.

    Where it shows none, ``at`` may lie outside it.
    """

    __slots__ = ("at", "begin", "canvas", "is_flipped", "length", "stretch")

    def __init__(self, canvas: int, begin: int = 0, end: int | None = None) -> None:
        self.begin = self.at = begin
        self.length = (canvas if end is None else end) - begin
        self.canvas = canvas
        self.stretch = (1.0, 0.0)
        self.is_flipped = False

    def window(self, start: int, length: int) -> None:
        """Lay a canvas of ``length`` over this one, beginning at ``start`` (negative: a margin before)."""
        first, last = max(self.at, start), min(self.at + self.length, start + length)
        if last <= first:  # nothing is seen, and an empty range stays where the image begins, for the transform
            first = last = self.at
        cut_before, cut_after = first - self.at, self.at + self.length - last
        self.begin += cut_after if self.is_flipped else cut_before
        self.length -= cut_before + cut_after
        self.at = first - start
        self.canvas = length

    @property
    def transform(self) -> tuple[float, float]:
        """(scale, offset) from the decoded image to the canvas."""
        scale, offset = self.stretch
        if self.is_flipped:
            return -scale, self.at + self.length + self.begin - offset
        return scale, offset - self.begin + self.at

    def flip(self) -> None:
        """Mirror what lies on the canvas."""
        self.at = self.canvas - self.at - self.length
        self.is_flipped = not self.is_flipped


def _seen(span: Span, resized: int, ratio: float) -> Span:
    """Positions of a resized axis that a filter makes of more than its margins."""
    if span.length <= 0:
        return Span(resized, 0, 0)
    reach = REACH * max(ratio, 1.0) + 1
    middle = resized / 2 - span.canvas / 2 / ratio  # where the canvas begins: 0 unless the resize is subpixel
    first = floor((span.at - reach) / ratio + middle)
    last = ceil((span.at + span.length + reach) / ratio + middle)
    return Span(resized, min(max(first, 0), resized), max(min(last, resized), 0))


def _apply(step: GeometryStep, rows: Span, columns: Span, drawing: Drawing) -> None:
    if isinstance(step, Flip):
        (rows if step.axis == "vertical" else columns).flip()
    elif isinstance(step, Window):
        side = int(step.fraction * (min if step.side == "shorter" else max)(rows.canvas, columns.canvas))
        height = max(1, side) if step.height is None else step.height
        width = max(1, side) if step.width is None else step.width
        is_fixed = step.place == "fixed"
        top = step.top if is_fixed else _start(step, rows.canvas, height)
        left = step.left if is_fixed else _start(step, columns.canvas, width)
        _lay(rows, columns, (top, left, height, width), beyond=step.beyond, is_fixed=is_fixed)
    else:
        words = drawing.words(step, rows, columns)
        if not isinstance(step, windows.Flip | inputs.Flip):
            window = words["top"], words["left"], words["height"], words["width"]
            _lay(rows, columns, window, beyond="refuse_smaller" if step.is_inside else "fill", is_fixed=True)
        elif words["flip"]:
            (rows if step.axis == "vertical" else columns).flip()


def _lay(rows: Span, columns: Span, window: tuple[int, int, int, int], *, beyond: Beyond, is_fixed: bool) -> None:
    """Lay a canvas, (top, left, height, width), over this one."""
    top, left, height, width = window
    larger = rows.canvas > height or columns.canvas > width
    is_inside = top >= 0 and left >= 0 and top + height <= rows.canvas and left + width <= columns.canvas
    if (beyond == "refuse_larger" and larger) or (beyond == "refuse_smaller" and not is_inside):
        what = "larger than the canvas of" if beyond == "refuse_larger" else "too small for the window of"
        where = f" at {top}, {left}" if is_fixed else ""
        raise ImageError(
            "DOES_NOT_FIT", f"{rows.canvas} x {columns.canvas} pixels are {what} {height} x {width}{where}"
        )
    rows.window(top, height)
    columns.window(left, width)


def _start(step: Window, length: int, window: int) -> int:
    """Begin of a window on an axis; negative where it is longer than the axis."""
    if step.place == "top_left":
        return 0
    if window <= length:
        return rounded((length - window) / 2, step.rounding)
    return -((window - length) // 2)
