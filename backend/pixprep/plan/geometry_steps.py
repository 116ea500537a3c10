"""Defines the geometric steps of a plan for images of any size: windows (crop or pad), flips and resizes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from math import floor, inf, sqrt
from typing import Any, ClassVar, Literal, Union, cast, get_args

import numpy as np

from pixprep.errors import ImageError
from pixprep.plan.canvas_steps import Beyond, Draws, GeometryStep, crop
from pixprep.plan.draws.augments import Augment, RandomStep
from pixprep.plan.draws.philox import Words
from pixprep.plan.inputs import Requested, is_given
from pixprep.plan.parts import Extent, Fitted, Roi
from pixprep.plan.placement import ReducingGap, Span
from pixprep.plan.profiles import PROFILES, Method
from pixprep.plan.profiles.windows import Order
from pixprep.plan.sizes import PixelBudget, Sizer, detr_size, max_detr_side
from pixprep.plan.steps.arithmetic import ArithmeticStep, statistic_of
from pixprep.plan.steps.levels import LevelStep, Resample, Take
from pixprep.plan.steps.step import Traits
from pixprep.spec import DALIS, DETRS, BorderMode, Filter, Like, Rounding, SideRounding, rounded, scaled, times, upward

PADS: tuple[Beyond, ...] = ("pad", "refuse_larger", "keep_larger")
"""Values of ``Window.beyond`` with which a window before the resize may add padding, which the resize resamples."""


@dataclass(frozen=True, kw_only=True)
class Window(GeometryStep):
    """Crop or padding. On each axis, the image is cropped if the window is smaller, and padded if the window is larger.

    Attributes:
        height, width: Height and width of the window. None means the size that ``multiple``, ``root`` or ``border``
            specifies or, without these, a square with an edge length of ``int(fraction * side)`` pixels.
        multiple: If given, the height and the width of the image are each padded to the next multiple of this number.
        always: Dimensions that are padded to the next multiple even if they are already a multiple: both, the width, or
            none.
        root: If given, the image is padded on all four edges: on each axis, by ``int(sqrt(length / 2) * root)`` pixels
            at each end, where ``length`` is the size of the image on this axis.
        border: If given, number of pixels that are added to the image (above, below, on the left, on the right).
        fraction: Edge length of the square as a fraction of ``side``.
        refuses_empty: Whether an image is rejected if the edge length of its square rounds down to 0. If false, the
            edge length is then 1 pixel.
        side: Side of the image that determines the edge length of the square.
        place: Position of the window.

            - ``fixed``: at the pixel (``top``, ``left``).
            - ``free``: ``top`` and ``left`` are fractions of the difference between the image's and the window's size.
            - ``share``: ``top``, ``left``, ``height`` and ``width`` are fractions of the image's height and width.
            - ``share32``: as ``share``, but the fractions and their products are rounded to float32.
            - ``center``: in the center of the image. Half of the pixels to crop, rounded by ``rounding``, are cropped
              at the top and on the left. Half of the padding, rounded by ``padding_rounding``, is added at the top and
              on the left.
            - ``top_left``: at the pixel (0, 0).
        top, left: Position of the window, see ``place``.
        rounding: Rounding of the window's position. For ``share`` and ``share32``, the end of the window is rounded in
            the same way.
        padding_rounding: Rounding of half of the padding.
        beyond: How to handle an image that does not contain the whole window, or does not fit into the window.
            ``fill``: crop and pad the image, which is allowed only after the resize. ``pad``: crop and pad the image,
            which is also allowed before the resize. ``refuse_smaller``: reject images that do not contain the window.
            ``refuse_larger``: reject images that do not fit into the window. ``keep_larger``: enlarge the window, so
            that it contains the image.
    """

    height: float | None
    width: float | None
    multiple: int | None = None
    always: Literal["both", "width"] | None = None
    root: float | None = None
    border: tuple[int, int, int, int] | None = None
    fraction: float = 1.0
    refuses_empty: bool = False
    side: Literal["shorter", "longer"] = "shorter"
    place: Literal["fixed", "free", "share", "share32", "center", "top_left"]
    top: float = 0
    left: float = 0
    rounding: Rounding = "half_even"
    padding_rounding: SideRounding = "down"
    beyond: Beyond

    @property
    def may_pad(self) -> bool:
        """See ``GeometryStep``."""
        return self.beyond in PADS

    def before_resize(self) -> Window:
        """See ``GeometryStep``."""
        return replace(self, beyond="refuse_smaller") if self.beyond == "fill" else self

    def apply(self, rows: Span, columns: Span, drawing: Draws) -> None:
        """See ``GeometryStep``."""
        del drawing
        is_fixed = self.place in ("fixed", "share", "share32")
        crop(rows, columns, self.of(rows.canvas, columns.canvas), beyond=self.beyond, is_fixed=is_fixed)

    def of(self, height: int, width: int) -> tuple[int, int, int, int]:
        """Return the window (top, left, height, width) in an image of this size.

        ``top`` and ``left`` are negative if the window begins outside of the image.
        """
        if self.border is not None:
            return -self.border[0], -self.border[2], self.padded(height, 0), self.padded(width, 1)
        square = int(self.fraction * (min if self.side == "shorter" else max)(height, width))
        if square == 0 and self.refuses_empty:
            raise ImageError(
                "DOES_NOT_FIT", f"a crop of {self.fraction:g} times a side of {height} x {width} pixels is empty"
            )
        square = max(1, square)
        is_free = self.multiple is not None or self.root is not None
        free = [self.padded(side, axis) if is_free else square for axis, side in enumerate((height, width))]
        top, rows = self._on_axis(height, self.top, free[0] if self.height is None else self.height)
        left, columns = self._on_axis(width, self.left, free[1] if self.width is None else self.width)
        return top, left, rows, columns

    def padded(self, side: int, axis: int) -> int:
        """Return the height (axis 0) or the width (axis 1) after the padding of ``multiple``, ``root`` or ``border``.

        Raises:
            ImageError: DOES_NOT_FIT: The side is too short for the padding.
        """
        if self.root is not None:
            margin = int(sqrt(side / 2) * self.root)
            if margin >= side:
                raise ImageError("DOES_NOT_FIT", f"a side of {side} pixels is too short for a padding of {margin}")
            return side + 2 * margin
        if self.border is not None:
            return side + sum(self.border[2 * axis : 2 * axis + 2])
        assert self.multiple is not None
        is_extended = self.always == "both" or (self.always == "width" and axis == 1)
        return (side // self.multiple + 1) * self.multiple if is_extended else upward(side, self.multiple)

    def _on_axis(self, length: int, begin: float, size: float) -> tuple[int, int]:
        """Return the first pixel and the size of the window on one axis, in integer pixels.

        Fractions are converted to pixels as in DALI (slice_attr.h).
        """
        if self.place in ("share", "share32"):
            at = begin * length
            if self.place == "share32":
                begin, size = float(np.float32(begin)), float(np.float32(size))
                at = float(np.float32(begin * length))
            first, last = rounded(at, self.rounding), rounded((begin + size) * length, self.rounding)
            return first, last - first
        size = max(size, length) if self.beyond == "keep_larger" else size
        window, free = int(size), length - int(size)
        if self.place == "top_left":
            return 0, window
        if self.place == "fixed":
            return int(begin), window
        if self.place == "free":
            offset = rounded(begin * abs(free), self.rounding)
            return offset if free >= 0 else -offset, window
        return (rounded(free / 2, self.rounding) if free >= 0 else -rounded(-free / 2, self.padding_rounding)), window

    def __str__(self) -> str:
        where = "with the image in the center" if self.place == "center" else "with the image at the top left"
        if self.border is not None:
            return "pad by {} rows above and {} below, {} columns left and {} right".format(*self.border)
        if self.root is not None:
            return f"pad each side by {self.root:g} times the square root of half its length, before and after"
        if self.multiple:
            more = {"both": ", by at least one pixel", "width": ", the width by at least one pixel", None: ""}[
                self.always
            ]
            return f"pad each side to the next multiple of {self.multiple}{more}, {where}"
        if self.height is None and self.side == "longer":
            return f"pad to a square of the longer side, {where}"
        if self.height is None:
            return f"center crop to a square of {self.fraction:g} times the shorter side"
        size = f"{self.height} x {self.width}"
        if self.place in ("share", "share32"):
            return f"crop to {size} of the image's height and width, from {self.top}, {self.left}"
        if self.place == "free" and self.top == self.left == 0.5:
            return f"center crop to {size}"
        if self.place == "free":
            return f"crop to {size}, with {self.top:g} of the removed rows above and {self.left:g} of the columns left"
        if self.place == "fixed":
            return f"crop to {size} from row {self.top}, column {self.left}"
        if self.beyond == "refuse_larger":
            return f"pad to {size}, {where}"
        if self.beyond == "keep_larger":
            return f"pad to at least {size}, {where}"
        return f"center crop to {size}"


@dataclass(frozen=True)
class Flip(GeometryStep):
    """Flip of the whole image.

    Attributes:
        axis: Direction of the flip. ``horizontal`` exchanges left and right, and ``vertical`` exchanges top and bottom.
    """

    axis: Literal["horizontal", "vertical"] = "horizontal"
    is_flip: ClassVar[bool] = True

    def apply(self, rows: Span, columns: Span, drawing: Draws) -> None:
        """See ``GeometryStep``."""
        del drawing
        (rows if self.axis == "vertical" else columns).flip()

    def __str__(self) -> str:
        return f"flip {self.axis}ly"


@dataclass(frozen=True)
class Move(Traits):
    """Geometric step that must remain after earlier steps on pixel values, because the order affects the result.

    A step with a padding mode other than ``constant`` is always a ``Move``.

    Attributes:
        step: Geometric step.
        fill: Pixel value of the padding for each decoded channel.
        mode: Padding mode, as in ``levels.Take``.
        has_margin: Whether the result may contain padding.
    """

    step: GeometryStep
    fill: tuple[int, ...]
    mode: BorderMode = "constant"
    has_margin: bool = False
    moves: ClassVar[bool] = True
    is_move: ClassVar[bool] = True

    @property
    def repeats(self) -> bool:  # type: ignore[override]  # a class variable of all other steps
        """See ``Traits``."""
        return self.mode != "constant"

    @property
    def parameters(self) -> tuple[Any, ...]:
        """See ``Traits``."""
        return (self.step,)

    def placed(self, rows: Span, columns: Span, drawing: Draws) -> tuple[LevelStep, ...]:
        """See ``Step``. The result crops, pads and flips the image."""
        self.step.apply(rows, columns, drawing)
        top, left = (
            span.begin - (span.canvas - span.at - span.length if span.is_flipped else span.at)
            for span in (rows, columns)
        )
        flips = rows.is_flipped, columns.is_flipped
        return (Take(top, left, rows.canvas, columns.canvas, flips, self.fill, self.mode),)

    @property
    def keeps_gray(self) -> bool:
        """See ``Traits``."""
        return not self.has_margin or self.mode != "constant" or len({*self.fill}) == 1

    def __str__(self) -> str:
        return str(self.step) if self.mode == "constant" else f"{self.step}, padding mode {self.mode}"


@dataclass(frozen=True)
class Chosen(Traits):
    """Random choice between lists of steps on pixel values.

    With the sampled parameters ``{"chosen": [2, 0]}``, the steps of list 2 and then the steps of list 0 are applied. If
    there is only one list, the parameters may also be ``{"apply": true}`` or ``{"apply": false}``.

    Attributes:
        step: Step that samples the choice.
        parts: Lists of steps. None of the steps changes the size of the image.
    """

    step: RandomStep
    parts: tuple[tuple[LevelsStep, ...], ...]

    @property
    def branches(self) -> tuple[tuple[LevelsStep, ...], ...]:  # type: ignore[override]  # a class variable of all others
        """See ``Traits``."""
        return self.parts

    def placed(self, rows: Span, columns: Span, drawing: Draws) -> tuple[LevelStep, ...]:
        """See ``Step``. The result consists of the steps that the sampled parameters select."""
        words, size = drawing.words(self.step, rows, columns), (rows.canvas, columns.canvas)
        chosen = words["chosen"] if "chosen" in words else (0,) * words["apply"]
        selected = (step for part in chosen for step in self.parts[part])
        return tuple(each for step in selected for each in step.placed(*map(Span, size), drawing))

    @property
    def keeps_gray(self) -> bool:
        """See ``Traits``."""
        return all(are_gray(part, was_gray=True) for part in self.parts)

    def __str__(self) -> str:
        return f"{self.step}: {'; or '.join(', '.join(map(str, part)) or 'nothing' for part in self.parts)}"


LevelsStep = Union[LevelStep, Augment, Move, "Resize", Chosen]
"""Any step of ``Geometry.levels`` (steps on pixel values, and geometric steps between them), for any image size."""


def flat(steps: Iterable[LevelsStep]) -> Iterator[LevelStep | Augment | Move | Resize]:
    """Yield all steps, with each random choice replaced by the steps of all its lists."""
    for step in steps:
        for part in step.branches:
            yield from flat(part)
        if not step.branches:
            yield cast("Any", step)


def chosen(steps: Iterable[LevelsStep]) -> Iterator[RandomStep]:
    """Yield, for each random choice, the step that samples the choice. Nested choices are included."""
    for step in steps:
        if step.branches:
            yield cast("Chosen", step).step
        for part in step.branches:
            yield from chosen(part)


def traits(*steps: LevelsStep) -> Iterator[Traits]:
    """Return the traits of all steps. Each random choice is replaced by the steps of all its lists."""
    return (step.traits for step in flat(steps))


def are_gray(steps: Iterable[LevelsStep], *, was_gray: bool) -> bool:
    """Return whether all channels are equal after the steps, for images of any size (see ``Traits.is_gray``)."""
    for step in steps:
        was_gray = step.traits.is_gray(was_gray=was_gray)
    return was_gray


REACH: Mapping[Filter, int] = dict.fromkeys(get_args(Filter), 1) | {"bicubic": 2, "lanczos": 3, "lanczos4": 4}
"""Radius of each filter. If the image is shrunk, the unit is a pixel of the result; if not, a pixel of the input."""

Rule = Literal["both", "shorter", "longer", "nearer", "height", "width", "fit", "cover", "letterbox", "shrink"]


@dataclass(frozen=True, kw_only=True)
class Resize(Traits):
    """Separable resize.

    Attributes:
        rule: Rule that determines the size of the result.

            - ``both``: the size is ``height`` x ``width``.
            - ``shorter``, ``longer``: the shorter or the longer side of the image becomes ``height``, and the other
              side is computed so that the aspect ratio is kept.
            - ``nearer``: the height becomes ``height`` or the width becomes ``width``, whichever scale is closer to 1.
              The other side is computed so that the aspect ratio is kept.
            - ``height``, ``width``: only the height or the width is given, and the other side is computed so that the
              aspect ratio is kept.
            - ``fit``: the largest size inside ``height`` x ``width`` with the aspect ratio of the image. One side has
              the given length, and the other side is computed.
            - ``cover``: the smallest size that covers ``height`` x ``width``, computed as for ``fit``.
            - ``letterbox``: like ``fit``, but both sides are computed from one scale.
            - ``shrink``: like ``letterbox``, but images are never enlarged.
        height, width: Requested size in pixels; ``rule`` defines how it is used.
        filter: Interpolation filter.
        antialias: Whether the support of the filter is widened if the image shrinks.
        like: Library whose arithmetic the resize reproduces.
        rounding: How the length of a computed side is rounded. The result is at least 1. ``detr`` and ``detr_original``
            compute both sides with the formulas that the op ``resize`` describes.
        subpixel: Whether the sampling positions are computed from the exact scale factor. If False, they are computed
            from the ratio of the rounded sizes. For DALI, the resized region is scaled about its center to compensate
            for the rounding.
        most, multiple, up_to: Fields ``max_size``, ``multiple`` and ``up_to`` of the op ``resize``.
        scales: Two flags for a resize that computes both sides from one scale: whether it may shrink the image, and
            whether it may enlarge the image. None means that the sides are computed separately.
        drawn: Step that provides the values of ``height``, ``width`` or ``roi`` for each image, from random numbers or
            from an input. None means that these attributes are the same for all images.
        roi: Region of the image that is resized. None means the whole image.
        order: Channel order in which the library receives the image.
        sizer: Rule that computes the size of the result instead of ``rule``.
        gap: Reduction of the decoded image before the resize. None means that it is not reduced.
        arithmetic: Steps that convert pixel values to the float32 values that are resized, in the channel order of the
            image. Only profiles that resize float32 values support them.
    """

    rule: Rule
    height: int
    width: int
    filter: Filter
    antialias: bool
    like: Like = "pillow"
    rounding: SideRounding = "down"
    subpixel: bool = False
    most: int | None = None
    multiple: int = 1
    up_to: int | None = None
    scales: tuple[bool, bool] | None = None
    drawn: RandomStep | Requested | None = None
    roi: Roi | Fitted | None = None
    order: Order = Order.AS_DECODED
    sizer: Sizer | None = None
    gap: ReducingGap | None = None
    arithmetic: tuple[ArithmeticStep, ...] = ()
    moves: ClassVar[bool] = True
    keeps_gray: ClassVar[bool] = True
    is_hosts: ClassVar[bool] = True

    def of(self, words: Words) -> Resize:
        """Return the resize for one image, with its random parameters or inputs."""
        height, width = (words.get("size") or words.get(side) or getattr(self, side) for side in ("height", "width"))
        return replace(self, height=height, width=width, drawn=None, roi=self.roi and self.roi.of(words))

    def of_frames(self, frames: int) -> Resize:
        """Return the resize for a clip with this number of frames. The size of the result may depend on this number."""
        if isinstance(self.sizer, PixelBudget) and self.sizer.frames == 0:
            return replace(self, sizer=replace(self.sizer, frames=frames))
        return self

    @property
    def parameters(self) -> tuple[Any, ...]:
        """See ``Traits``."""
        return () if self.drawn is None else (self.drawn,)

    def placed(self, rows: Span, columns: Span, drawing: Draws) -> tuple[LevelStep, ...]:
        """See ``Step``."""
        resize = self if self.drawn is None else self.of(drawing.words(self.drawn, rows, columns))
        return (resize.resample(rows.canvas, columns.canvas),)

    def resample(self, height: int, width: int) -> Resample:
        """Return the resize as a step on the pixel values (``levels.Resample``) for an image of this size."""
        size = self.size(height, width)
        rows, columns = self.extents(height, width, size)
        ratio, begin = (rows.ratio(size[0]), columns.ratio(size[1])), (rows.begin, columns.begin)
        return Resample(*size, ratio, begin, self.method, self.like, self.order)

    @property
    def is_real(self) -> bool:
        """Whether the resize returns float32 instead of uint8."""
        return self.filter in PROFILES[self.like].real

    @property
    def pads(self) -> bool:
        """Whether the result is padded to the size of a grid of tiles."""
        return self.sizer is not None and self.sizer.pads

    def keeps_padding(self, columns: int) -> bool:
        """Return whether the padding keeps its color exactly where no pixel of the image contributes to the result.

        There are two exceptions. The weights of OpenCV's lanczos4 do not add up to one. If the result has only one
        column, PyTorch sets every row to the first row.

        Args:
            columns: Number of columns of the result.
        """
        return self.filter != "lanczos4" and not (columns == 1 and self.filter in PROFILES[self.like].across)

    @property
    def reads_all(self) -> bool:
        """Whether each value of the result may depend on all pixels of the image."""
        return PROFILES[self.like].reads_all or statistic_of(self.arithmetic) is not None

    @property
    def reach(self) -> int:
        """Radius of the filter; see ``REACH``. It exceeds the side of any image if ``reads_all`` is true."""
        return 1 << 32 if self.reads_all else REACH[self.filter]

    @cached_property
    def method(self) -> Method:
        """Filter and antialiasing as one object, by which a ``Profile`` selects its arithmetic."""
        return Method(self.filter, self.antialias)

    def size(self, height: int, width: int) -> tuple[int, int]:
        """Return the size (height, width) of the result for an image of this size.

        Raises:
            ImageError: DOES_NOT_FIT: The size rule or the library's arithmetic does not support an image of this size.
        """
        rows, columns = self._size(height, width)
        if self.filter == "bilinear" and not self.antialias and rows + columns < PROFILES[self.like].min_sides:
            least = PROFILES[self.like].min_sides
            what = f"{height} x {width} pixels would be resized to {rows} x {columns}"
            raise ImageError("DOES_NOT_FIT", f'{what}, whose sum must be at least {least} with "like": "{self.like}"')
        return rows, columns

    def _size(self, height: int, width: int) -> tuple[int, int]:
        if self.sizer is not None:
            return self.sizer.size(height, width)
        sides = (height, width) if self.roi is None else (part.length for part in self._parts(height, width))
        rows, columns = self.sides(*sides)
        of_rows, of_columns = (1 if self.rule == side else self.multiple for side in ("height", "width"))
        return (
            max(1, rounded(rows / of_rows, self.rounding)) * of_rows,
            max(1, rounded(columns / of_columns, self.rounding)) * of_columns,
        )

    def canvas(self, height: int, width: int) -> tuple[int, int, int, int] | None:
        """Return the window (top, left, height, width) that pads the result, or None if the rule does not pad."""
        return self.sizer.window(height, width) if self.sizer is not None and self.sizer.pads else None

    def extents(self, height: int, width: int, resized: tuple[int, int]) -> tuple[Extent, Extent]:
        """Return the range of rows and the range of columns that are resized, for an image of this size.

        Args:
            height: Height of the image in pixels.
            width: Width of the image in pixels.
            resized: Size (height, width) of the result.
        """
        rows, columns = self._parts(height, width)
        if self.roi is not None and PROFILES[self.like].corner is None:  # Pillow subtracts the edges in float32
            rows = rows._replace(step=rows.length / resized[0])
            columns = columns._replace(step=columns.length / resized[1])
        if not self.subpixel:
            return rows, columns
        if PROFILES[self.like].takes_scale:
            step = 1.0 / self._scale(height, width)
            return rows._replace(step=step), columns._replace(step=step)
        sides = self.sides(rows.length, columns.length)
        return rows.grown(resized[0], sides[0]), columns.grown(resized[1], sides[1])

    def _parts(self, height: int, width: int) -> tuple[Extent, Extent]:
        whole = Extent(0, height), Extent(0, width)
        if self.roi is None:
            return whole
        is_ordered = PROFILES[self.like].roi == "inside"
        is_inside = is_ordered or self.filter == "nearest"
        return self.roi.extents(height, width, is_inside=is_inside, is_ordered=is_ordered)

    def sides(self, height: float, width: float) -> tuple[float, float]:
        """Return the height and width of the result before rounding.

        Args:
            height: Height of the image or its region of interest, in pixels.
            width: Width of the image or its region of interest, in pixels.
        """
        if self.rule == "both":
            return self.height, self.width
        ratios = (height / self.height, width / self.width)
        if self.rule in ("letterbox", "shrink"):
            scale = min(self.height / height, self.width / width)
            if self.rule == "shrink":
                scale = min(scale, 1.0)
            return height * scale, width * scale
        if self.scales is not None and (sides := self._scaled(height, width)) is not None:
            return sides
        if self.rounding in DETRS:
            return self._by_detr(height, width)
        is_dali = self.rounding in DALIS and self.rule not in ("height", "width")
        if is_dali and np.float32(self.height / height) == np.float32(self.width / width):
            return self.height, self.width  # if both scales are equal in float32, DALI uses both given sides
        is_height_named = ratios[0] >= ratios[1] if self.rule in ("longer", "fit") else ratios[0] <= ratios[1]
        if self.rule == "nearer":
            is_height_named = abs(1 - self.width / width) >= abs(1 - self.height / height)
        if self.rule == "height" or (is_height_named and self.rule != "width"):
            return self._limited(self.height, self._other(width, self.height, height))
        return self._limited(self.width, self._other(height, self.width, width))[::-1]

    def _scaled(self, height: float, width: float) -> tuple[float, float] | None:
        """Return the height and width if both are computed from one scale, or None if ``rule`` determines them.

        The formulas are those of torchvision's detection models, PaddleOCR (if ``multiple`` is given), and DALI graphs.
        """
        scale = self._scale(height, width)
        if self.multiple == 1:
            if self.rounding not in DALIS:
                return height * scale, width * scale
            limit = (self.most or inf) / max(height, width)
            if self.rounding == "half_away32":
                limit = float(np.float32(limit))
            if limit < float(np.float32(scale)):  # in DALI, the limit is float64 and the scale is float32
                return float(np.float32(height * limit)), float(np.float32(width * limit))
            if self.most is not None and self.rounding == "half_away":
                return (height, width) if scale == 1 else None
            return float(np.float32(height) * np.float32(scale)), float(np.float32(width) * np.float32(scale))
        rows, columns = (int(times(side, scale, self.rounding)) for side in (height, width))
        if self.most is not None and max(rows, columns) > self.most:
            scale = self.most / max(rows, columns)
            rows, columns = (int(times(side, scale, self.rounding)) for side in (rows, columns))
        return rows, columns

    def _scale(self, height: float, width: float) -> float:
        """Return the scale of both sides. ``most`` is not considered for DALI, and if ``multiple`` is given."""
        longest = max(height, width)
        scale = self.height / (min(height, width) if self.rule == "shorter" else longest)
        scale = scale if self.scales is None or self.scales[scale > 1] else 1.0
        if self.most is None or self.multiple > 1 or self.rounding in DALIS:
            return scale
        if self.subpixel and rounded(longest * scale, self.rounding) <= self.most:
            return scale
        return min(scale, self.most / longest)

    def _by_detr(self, height: float, width: float) -> tuple[float, float]:
        """Return the height and width with a rounding of ``DETRS``; with ``multiple``, they are those of YOLOS.

        Raises:
            ImageError: DOES_NOT_FIT: The longer side would exceed ``max_detr_side``, because the image has only a few
                rows or columns.
        """
        assert self.most is not None
        is_original, is_yolos = self.rounding == "detr_original", self.multiple > 1
        sides = detr_size(height, width, self.height, self.most, is_original=is_original, is_yolos=is_yolos)
        if max(sides) > max_detr_side(self.most):
            what = f"{height} x {width} pixels would be resized to {sides[0]} x {sides[1]}"
            raise ImageError("DOES_NOT_FIT", f"{what}, but the longer side must not exceed {self.most}")
        return sides

    def _limited(self, named: int, other: float) -> tuple[float, float]:
        """Return the length that the rule fixes, and the other length, reduced if it exceeds ``most``."""
        if self.rule in ("shorter", "nearer"):
            if self.most is None or (whole := rounded(other, self.rounding)) <= self.most:
                return named, other
            return self.most * named / whole, self.most
        if self.up_to is not None and other > self.up_to:
            other = floor(other)
        return named, other if self.most is None else min(other, self.most)

    def _other(self, length: float, size: int, side: float) -> float:
        """Scale ``length`` by the ratio of ``size`` to ``side``."""
        if self.rule in ("fit", "cover") and self.rounding == "half_even":
            return length / (side / size)  # timm's order of operations; ``half_even`` tolerates an error of 1 ulp
        if self.rule in ("height", "width") and self.rounding not in DALIS:
            return size * (length / side) if self.rounding == "up" else length * (size / side)
        return scaled(length, size, side, self.rounding)

    def __str__(self) -> str:
        size = f"{self.height} x {self.width}"
        to = {
            "both": f"to {size}",
            "shorter": f"the shorter side to {self.height}",
            "longer": f"the longer side to {self.height}",
            "nearer": f"the side whose scale is closer to 1 to {self.height}",
            "height": f"to height {self.height}, keeping the aspect ratio",
            "width": f"to width {self.width}, keeping the aspect ratio",
            "fit": f"to fit into {size}",
            "cover": f"to cover {size}",
            "letterbox": f"to fit into {size}",
            "shrink": f"to fit into {size}, never enlarging",
        }[self.rule]
        to = to if self.sizer is None else str(self.sizer)
        if is_given(self.drawn):
            to += f", with per-image inputs: {self.drawn}"
        elif self.drawn is not None:
            to = f"{'to' if self.rule == 'both' else 'the shorter side to'} {self.drawn}, at random"
        to += "" if self.scales is None else ", both sides by one scale"
        to += "".join(
            f", never {word}"
            for word, does in zip(("shrinking", "enlarging"), self.scales or (), strict=False)
            if not does
        )
        to += "" if self.most is None else f", at most {self.most}"
        to += "" if self.multiple == 1 else f", multiples of {self.multiple}"
        antialias = ", antialiased" if self.antialias and self.filter != "nearest" else ""
        part = "" if self.roi is None or is_given(self.drawn) else f"{self.roi} "
        first = "" if self.gap is None else f"; {self.gap}"
        return f"resize {part}{to} ({self.filter}{antialias}{first}; exactly {PROFILES[self.like].title}'s values)"
