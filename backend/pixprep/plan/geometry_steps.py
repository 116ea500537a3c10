"""Steps of a geometry for images of any size: windows and flips before and after at most one resize."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import floor, inf
from typing import ClassVar, Literal, Union, get_args

import numpy as np

from pixprep.errors import ImageError
from pixprep.plan.draws.augments import Augment, RandomStep
from pixprep.plan.draws.crops import IouCrop
from pixprep.plan.draws.philox import Words
from pixprep.plan.inputs import InputStep, Requested
from pixprep.plan.parts import Extent, Roi
from pixprep.plan.profiles import PROFILES, Method
from pixprep.plan.profiles.windows import Order
from pixprep.plan.sizes import Sizer
from pixprep.plan.steps.levels import LevelStep, Resample
from pixprep.plan.steps.step import Traits
from pixprep.plan.tile_grids import TileGrid
from pixprep.spec import DALIS, DETRS, Filter, Like, PaddingMode, Rounding, SideRounding, rounded, scaled, times, upward

Beyond = Literal["fill", "pad", "refuse_smaller", "refuse_larger", "keep_larger"]

PADS: tuple[Beyond, ...] = ("pad", "refuse_larger", "keep_larger")
"""Windows whose padding a resize may resample."""


@dataclass(frozen=True, kw_only=True)
class Window:
    """A canvas that replaces the image: it crops if it is smaller than the image, and pads if it is larger.

    Attributes:
        height, width: Height and width of the canvas; None: a square of ``int(fraction * side)``.
        multiple: Number to whose next multiple each side of the canvas is padded, instead of ``height`` and ``width``.
        side: Side of the image that determines the square.
        place: Position of the window. ``fixed``: at ``top``, ``left``. ``free``: ``top`` and ``left`` are fractions of
            the pixels outside the window. ``share``: all four numbers are fractions of the image's sides; ``share32``:
            the fractions and the first pixel are float32. ``center``: half of the cropped pixels is above the window,
            rounded by ``rounding``; half of the padding, rounded down. ``top_left``: nothing is cropped or padded at
            the top and on the left.
        beyond: Treatment of a canvas that is larger or smaller than the image. ``fill``: it is padded, only after a
            resize; ``pad``: it is padded anywhere. ``keep_larger``: a larger side of the image is kept.
    """

    height: float | None
    width: float | None
    multiple: int | None = None
    fraction: float = 1.0
    side: Literal["shorter", "longer"] = "shorter"
    place: Literal["fixed", "free", "share", "share32", "center", "top_left"]
    top: float = 0
    left: float = 0
    rounding: Rounding = "half_even"
    beyond: Beyond

    def of(self, height: int, width: int) -> tuple[int, int, int, int]:
        """Return the window (top, left, height, width) in an image of this size; the begin may be negative."""
        square = max(1, int(self.fraction * (min if self.side == "shorter" else max)(height, width)))
        free = [upward(side, self.multiple) if self.multiple else square for side in (height, width)]
        top, rows = self._on_axis(height, self.top, free[0] if self.height is None else self.height)
        left, columns = self._on_axis(width, self.left, free[1] if self.width is None else self.width)
        return top, left, rows, columns

    def _on_axis(self, length: int, begin: float, size: float) -> tuple[int, int]:
        """Return begin and size on an axis in integer pixels; fractions follow the formulas of DALI (slice_attr.h)."""
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
        return (rounded(free / 2, self.rounding) if free >= 0 else -(-free // 2)), window

    def __str__(self) -> str:
        where = "in the middle" if self.place == "center" else "at the top left"
        if self.multiple:
            return f"lay on a canvas whose sides are the next multiples of {self.multiple}, {where}"
        if self.height is None and self.side == "longer":
            return f"lay on a square of the longer side, {where}"
        if self.height is None:
            return f"take the middle square of {self.fraction:g} of the shorter side"
        size = f"{self.height} x {self.width}"
        if self.place in ("share", "share32"):
            return f"take {size} of the sides from {self.top} of the height, {self.left} of the width"
        if self.place == "free" and self.top == self.left == 0.5:
            return f"take {size} from the middle"
        if self.place == "free":
            return f"take {size}: of the pixels beside it, {self.top:g} lie above and {self.left:g} on the left"
        if self.place == "fixed":
            return f"take {size} from row {self.top}, column {self.left}"
        if self.beyond == "refuse_larger":
            return f"lay on a canvas of {size}, {where}"
        if self.beyond == "keep_larger":
            return f"lay on a canvas of at least {size}, {where}"
        return f"take the middle {size}"


@dataclass(frozen=True)
class Flip:
    """Mirror the canvas."""

    axis: Literal["horizontal", "vertical"]

    def __str__(self) -> str:
        return f"mirror, {self.axis}"


GeometryStep = Window | Flip | RandomStep | IouCrop | InputStep


@dataclass(frozen=True)
class Move(Traits):
    """A geometric step that runs after steps of ``levels``, because a different order would change the result.

    Attributes:
        fill: Pixel value of each decoded channel of the padding.
        mode: Padding mode, as in ``levels.Take``. A mode other than ``constant`` always makes a ``Move``.
        has_margin: Whether the step may show the fill.
    """

    step: GeometryStep
    fill: tuple[int, ...]
    mode: PaddingMode = "constant"
    has_margin: bool = False
    moves: ClassVar[bool] = True

    @property
    def keeps_gray(self) -> bool:
        """See ``Traits``."""
        return not self.has_margin or self.mode != "constant" or len({*self.fill}) == 1

    def __str__(self) -> str:
        return str(self.step) if self.mode == "constant" else f"{self.step}, margins by {self.mode}"


@dataclass(frozen=True)
class Chosen(Traits):
    """Parts of steps on pixel values; a draw selects some parts, which run in order.

    A draw has the form ``{"chosen": [2, 0]}``. A draw of a single part may also be ``{"apply": true}``.

    Attributes:
        step: Step that draws.
        parts: Parts, whose steps keep the size.
    """

    step: RandomStep
    parts: tuple[tuple[LevelsStep, ...], ...]

    def drawn(self, words: Words) -> Sequence[LevelsStep]:
        """Return the steps that a draw selects."""
        if "apply" in words:
            return self.parts[0] if words["apply"] else ()
        return [step for part in words["chosen"] for step in self.parts[part]]

    @property
    def keeps_gray(self) -> bool:
        """See ``Traits``."""
        return all(are_gray(part, was_gray=True) for part in self.parts)

    def __str__(self) -> str:
        return f"{self.step}: {'; or '.join(', '.join(map(str, part)) or 'nothing' for part in self.parts)}"


LevelsStep = Union[LevelStep, Augment, Move, "Resize", Chosen]
"""A step of a plan on pixel values, for an image of any size."""


def flat(steps: Iterable[LevelsStep]) -> Iterator[LevelStep | Augment | Move | Resize]:
    """Yield the steps, with the steps of all parts in place of each choice."""
    for step in steps:
        if isinstance(step, Chosen):
            for part in step.parts:
                yield from flat(part)
        else:
            yield step


def chosen(steps: Iterable[LevelsStep]) -> Iterator[RandomStep]:
    """Yield the draws of all choices."""
    for step in steps:
        if isinstance(step, Chosen):
            yield step.step
            for part in step.parts:
                yield from chosen(part)


def traits(*steps: LevelsStep) -> Iterator[Traits]:
    """Return the traits of steps; a choice has those of all its parts, and an op those of its steps."""
    return (step.op if isinstance(step, Augment) else step for step in flat(steps))


def are_gray(steps: Iterable[LevelsStep], *, was_gray: bool) -> bool:
    """Return ``Traits.is_gray`` after all steps for an image of any size."""
    for step in steps:
        was_gray = (step.op if isinstance(step, Augment) else step).is_gray(was_gray=was_gray)
    return was_gray


REACH: Mapping[Filter, int] = dict.fromkeys(get_args(Filter), 1) | {"bicubic": 2, "lanczos": 3, "lanczos4": 4}
"""Reach of each filter from the center of an output pixel, in resized pixels, or in image pixels if the image grows."""

Rule = Literal["both", "shorter", "longer", "nearer", "height", "width", "fit", "cover", "letterbox", "shrink"]


@dataclass(frozen=True, kw_only=True)
class Resize(Traits):
    """One separable resize of the whole canvas.

    Attributes:
        rule: Rule for the size of the result. ``both``: ``height`` x ``width``. ``shorter``, ``longer``: that side
            becomes ``height``, and the other ``height * other / side``. ``nearer``: likewise, for the side whose scale
            is nearer to 1. ``height``, ``width``: that side is set, and the other keeps the aspect ratio. ``fit``,
            ``cover``: the side with the larger or smaller ``side / self.side`` becomes ``self.side``, and the other
            follows as in ``shorter``. ``letterbox``: both become ``side * scale`` with the smaller scale. ``shrink``:
            the same, but the scale is at most 1.
        rounding: Rounding of a side that the rule computes; the result is at least 1. ``detr`` rounds both sides, see
            the op ``resize``.
        like: Library whose arithmetic the filter reproduces.
        subpixel: Whether the scale is that of the rule before rounding; for DALI it applies about the center of the
            image.
        most, multiple, up_to: Fields of the op ``resize``.
        scales: Whether the one scale that makes both sides of ``shorter`` or ``longer`` may shrink an image, and
            whether it may enlarge it; None: The rule computes the sides separately.
        drawn: Step that determines ``height``, ``width`` or both, or the ``roi``, per image; None: They are constant.
        roi: Part that becomes the result; None: The whole image.
        order: Channel order of the library.
        sizer: Rule that computes both sides, in place of ``rule``.
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
    roi: Roi | None = None
    order: Order = Order.AS_DECODED
    sizer: Sizer | None = None
    moves: ClassVar[bool] = True
    keeps_gray: ClassVar[bool] = True
    is_hosts: ClassVar[bool] = True

    def of(self, words: Words) -> Resize:
        """Return the resize of one image with its random parameters or inputs."""
        height, width = (words.get("size") or words.get(side) or getattr(self, side) for side in ("height", "width"))
        return replace(self, height=height, width=width, drawn=None, roi=self.roi and self.roi.of(words))

    def resample(self, height: int, width: int) -> Resample:
        """Return the resize as a step on the pixel values of an image of this size."""
        size = self.size(height, width)
        rows, columns = self.extents(height, width, size)
        ratio, begin = (rows.ratio(size[0]), columns.ratio(size[1])), (rows.begin, columns.begin)
        return Resample(*size, ratio, begin, self.method, self.like, self.order)

    @property
    def is_real(self) -> bool:
        """Tell whether the resize returns float32 values instead of uint8."""
        return self.filter in PROFILES[self.like].real

    def keeps_margins(self, columns: int) -> bool:
        """Tell whether pixels made only of padding keep its color in a result with this number of columns.

        The weights of OpenCV's lanczos4 do not add up to one. In a result of one column, PyTorch repeats the first row.
        """
        return self.filter != "lanczos4" and not (columns == 1 and self.filter in PROFILES[self.like].across)

    @property
    def reach(self) -> int:
        """See ``REACH``."""
        return REACH[self.filter]

    @property
    def method(self) -> Method:
        """Method that the profile receives."""
        return Method(self.filter, self.antialias)

    def size(self, height: int, width: int) -> tuple[int, int]:
        """Return the size (height, width) of the result for an image of this size."""
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
        """Return the window (top, left, height, width) that pads the result. None if the rule does not pad."""
        if not isinstance(self.sizer, TileGrid) or not self.sizer.pads:
            return None
        (rows, columns), (high, wide) = self.size(height, width), self.sizer.canvas(height, width)
        return -((high - rows) // 2), -((wide - columns) // 2), high, wide

    def extents(self, height: int, width: int, resized: tuple[int, int]) -> tuple[Extent, Extent]:
        """Return the parts of the rows and the columns of an image of this size that become the result."""
        rows, columns = self._parts(height, width)
        if not self.subpixel:
            return rows, columns
        if PROFILES[self.like].takes_scale:
            step = 1.0 / self._scale(height, width)
            return rows._replace(step=step), columns._replace(step=step)
        sides = self.sides(rows.length, columns.length)
        return rows.grown(resized[0], sides[0]), columns.grown(resized[1], sides[1])

    def _parts(self, height: int, width: int) -> tuple[Extent, Extent]:
        whole = Extent(0, height), Extent(0, width)
        return whole if self.roi is None else self.roi.extents(height, width, self.filter)

    def sides(self, height: float, width: float) -> tuple[float, float]:
        """Return the sides before they are rounded; a side that the rule sets is an integer."""
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
            return self.height, self.width  # DALI uses both as they are given
        is_height_named = ratios[0] >= ratios[1] if self.rule in ("longer", "fit") else ratios[0] <= ratios[1]
        if self.rule == "nearer":
            is_height_named = abs(1 - self.width / width) >= abs(1 - self.height / height)
        if self.rule == "height" or (is_height_named and self.rule != "width"):
            return self._limited(self.height, self._other(width, self.height, height))
        return self._limited(self.width, self._other(height, self.width, width))[::-1]

    def _scaled(self, height: float, width: float) -> tuple[float, float] | None:
        """Return sides that one scale makes, or None to use the sides of the rule.

        The formulas are those of torchvision's detectors, with ``multiple`` those of PaddleOCR, and those of graphs of
        DALI.
        """
        scale = self._scale(height, width)
        if self.multiple == 1:
            if self.rounding not in DALIS:
                return height * scale, width * scale
            limit = (self.most or inf) / max(height, width)
            if self.rounding == "half_away32":
                limit = float(np.float32(limit))
            if limit < float(np.float32(scale)):  # DALI's own limit is float64, and its scale float32
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
        """Return the scale of both sides; for DALI and ``multiple``, it is the scale before ``most`` limits it."""
        longest = max(height, width)
        scale = self.height / (min(height, width) if self.rule == "shorter" else longest)
        scale = scale if self.scales is None or self.scales[scale > 1] else 1.0
        if self.most is None or self.multiple > 1 or self.rounding in DALIS:
            return scale
        if self.subpixel and rounded(longest * scale, self.rounding) <= self.most:
            return scale
        return min(scale, self.most / longest)

    def _by_detr(self, height: float, width: float) -> tuple[float, float]:
        """Return integer sides by ``get_size_with_aspect_ratio`` of transformers 5, or of YOLOS with ``multiple``.

        DETR's own function of that name continues with the rounded shorter side.

        Raises:
            ImageError: DOES_NOT_FIT: The longer side of an image with only a few rows or columns would exceed ``past``.
        """
        assert self.most is not None
        least, longest = min(height, width), max(height, width)
        is_over = longest / least * self.height > self.most
        exact = self.most * least / longest if is_over else self.height
        shorter = round(exact)
        if self.rounding == "detr_original":
            exact = shorter = max(1, shorter)
        if shorter == least and (height <= width or self.multiple == 1):
            sides = height, width
        else:
            sides = (int(exact * height / width), shorter) if width < height else (shorter, int(exact * width / height))
        if max(sides) > past(self.most):
            what = f"{height} x {width} pixels would become {sides[0]} x {sides[1]}"
            raise ImageError("DOES_NOT_FIT", f"{what}, over the {self.most} allowed")
        return sides

    def _limited(self, named: int, other: float) -> tuple[float, float]:
        """Return the side that the rule sets, and the other side with its limit."""
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
            return length / (side / size)  # timm's order; ``half_even`` corrects an error of one bit
        if self.rule in ("height", "width") and self.rounding not in DALIS:
            return size * (length / side) if self.rounding == "up" else length * (size / side)
        return scaled(length, size, side, self.rounding)

    def __str__(self) -> str:
        size = f"{self.height} x {self.width}"
        to = {
            "both": f"to {size}",
            "shorter": f"the shorter side to {self.height}",
            "longer": f"the longer side to {self.height}",
            "nearer": f"the side that is scaled least to {self.height}",
            "height": f"to height {self.height}, the aspect ratio kept",
            "width": f"to width {self.width}, the aspect ratio kept",
            "fit": f"to fit into {size}",
            "cover": f"to cover {size}",
            "letterbox": f"to fit into {size}",
            "shrink": f"to fit into {size}, never enlarging",
        }[self.rule]
        to = to if self.sizer is None else str(self.sizer)
        if isinstance(self.drawn, Requested):
            to += f" where the request says: {self.drawn}"
        elif self.drawn is not None:
            to = f"{'to' if self.rule == 'both' else 'the shorter side to'} {self.drawn}, at random"
        to += "" if self.scales is None else ", both by one scale"
        to += "".join(
            f", never {word}"
            for word, does in zip(("shrinking", "enlarging"), self.scales or (), strict=False)
            if not does
        )
        to += "" if self.most is None else f", at most {self.most}"
        to += "" if self.multiple == 1 else f", multiples of {self.multiple}"
        antialias = ", antialiased" if self.antialias and self.filter != "nearest" else ""
        part = "" if self.roi is None or isinstance(self.drawn, Requested) else f"{self.roi} "
        return f"resize {part}{to} ({self.filter}{antialias}; exactly {PROFILES[self.like].title}'s values)"


def past(most: int) -> int:
    """Return the maximum longer side with a rounding of ``DETRS``.

    It does not resize an image of 600 x 1334 if 1333 pixels are allowed. A shorter side of n pixels equals the rounded
    one up to a longer side of ``most * n / (n - 0.5)``; the limit here corresponds to n = 16.
    """
    return most + most // 31
