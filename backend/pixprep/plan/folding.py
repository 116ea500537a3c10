"""Combines the steps of a geometry into one ``Placement`` for one image.

At this point, the size, the random parameters and the per-image inputs of the image are known.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from math import ceil, floor
from typing import Any, cast

import numpy.typing as npt

from pixprep.errors import ImageError
from pixprep.plan import inputs
from pixprep.plan.canvas_steps import GeometryStep, crop
from pixprep.plan.draws.augments import Augment, RandomStep
from pixprep.plan.draws.philox import EXAMPLE
from pixprep.plan.geometry_steps import (
    REACH,
    LevelsStep,
    Resize,
    chosen,
    flat,
    traits,
)
from pixprep.plan.inputs import Drawing, is_given
from pixprep.plan.parts import Extent
from pixprep.plan.placement import NO_MARGINS, Placement, Span, stretch
from pixprep.plan.profiles import PROFILES
from pixprep.plan.profiles.windows import Axis
from pixprep.plan.steps import levels
from pixprep.plan.steps.levels import Erase, LevelStep, Trim
from pixprep.plan.steps.operators import Extern

MAX_RESIZED_PIXELS = 1 << 28
"""Maximum number of pixels in the result of a resize before the result is cropped (1 GB). Images with a larger result
are rejected."""

MAX_LEVELS_SIDE = 1 << 16
"""Maximum height and width of images for steps on pixel values. This is the maximum size of a CUDA grid."""


@dataclass(frozen=True)
class Geometry:
    """Geometry of an output, with the output's steps on pixel values, for images of any size.

    Attributes:
        before, resize, after: Geometric steps before the resize, the resize, and the geometric steps after it. They are
            combined into one placement.
        levels: Steps that are applied to the pixel values of the canvas after the geometric steps.
        erasures: Steps that erase rectangles of the tensor.
        fill: Per-image input that contains the color of the padding. None means that the color is constant.
        photo: Steps on the pixel values of the whole image that are applied before the geometric steps. They do not
            move pixels, except for a ``Trim`` and padding that repeats parts of the image.
        most: Maximum height and width of the result in pixels. None means unlimited.
        thumbnail: Geometry of the thumbnail that is added to the tiles of the image, or None.
    """

    before: tuple[GeometryStep, ...]
    resize: Resize | None
    after: tuple[GeometryStep, ...]
    levels: tuple[LevelsStep, ...] = ()
    erasures: tuple[Augment, ...] = ()
    fill: inputs.Fill | None = None
    photo: tuple[LevelsStep, ...] = ()
    most: int | None = None
    thumbnail: Geometry | None = None

    @property
    def _steps(self) -> tuple[GeometryStep | Augment | LevelStep, ...]:
        """All steps except for the resize and the erasures, with the contents of each ``Move`` and ``Chosen``."""
        levels = (*self.photo, *self.levels)
        rest = [each for step in flat(levels) for each in step.parameters]
        return (*self.before, *self.after, *rest, *chosen(levels))

    @property
    def random_steps(self) -> tuple[RandomStep | Extern, ...]:
        """Steps with random parameters."""
        steps: tuple[Any, ...] = (self.resize and self.resize.drawn, *self._steps, *self.erasures)
        return tuple(step for step in steps if getattr(step, "key", "") and not is_given(step))

    @property
    def takes_inputs(self) -> bool:
        """Whether a step reads numbers from per-image inputs."""
        return self.fill is not None or any(map(is_given, (self.resize and self.resize.drawn, *self._steps)))

    @property
    def may_warp(self) -> bool:
        """Whether a step on pixel values may move pixels, such as a rotation or another warp."""
        return any(not step.is_move and _moves(step) for step in self.levels)

    @property
    def motion(self) -> tuple[object, ...]:
        """Steps that may move pixels. If these steps are equal for two outputs, their coordinates are also equal."""
        return (self.before, self.resize, self.after, *filter(_moves, self.levels))

    @property
    def trim(self) -> Trim | None:
        """First step, if it is a ``Trim``. The placement is computed again from the size of the trimmed image."""
        first = self.photo[0] if self.photo else None
        return first if isinstance(first, Trim) else None

    @property
    def is_padded(self) -> bool:
        """Whether an image may be padded before the resize."""
        return any(step.may_pad for step in self.before)

    def words(self) -> Iterator[str]:
        """Yield a description of each step, such as ``center crop to 224 x 224``."""
        yield from (f"{step}, on the whole image" for step in self.photo)
        yield from map(str, self.before)
        yield from map(str, filter(None, (self.resize,)))
        yield from map(str, (*self.after, *self.levels))
        if self.fill is not None:
            yield f'padding in the colour of the input "{self.fill.input}"'
        yield from map(str, self.erasures)

    def place(self, height: int, width: int, drawing: Drawing | None = None) -> Placement:
        """Return the placement of an image of this size.

        Args:
            height: Height of the image in pixels.
            width: Width of the image in pixels.
            drawing: Random parameters and inputs. Default: an example in which all random numbers are nearly 0.5.

        Raises:
            ImageError: DOES_NOT_FIT, BAD_DIMENSIONS: The size of the image is not supported by a step.
        """
        drawing = drawing or Drawing(EXAMPLE)
        photo = self._placed_levels(self.photo, height, width, drawing) if self.photo else ()
        rows, columns = map(Span, levels.size_after(photo, height, width))
        self._apply(rows, columns, drawing, (height, width), is_resized=False)
        size, resize = (rows.canvas, columns.canvas), self.resize
        if resize is not None and resize.drawn is not None:
            resize = resize.of(drawing.words(resize.drawn, rows, columns))
        if resize is not None and resize.sizer is not None:
            resize = resize.of_frames(drawing.frames)
        resized = resize.size(*size) if resize else size
        sizer = resize.sizer if resize else None
        cuts, has_thumbnail = (sizer.cuts(*size), sizer.has_thumbnail(*size)) if sizer else ((1, 1), True)
        seen = resize.extents(*size, resized) if resize else (Extent(0, size[0]), Extent(0, size[1]))
        ratio = seen[0].ratio(resized[0]), seen[1].ratio(resized[1])
        if resized[0] * resized[1] > MAX_RESIZED_PIXELS:
            raise ImageError(
                "BAD_DIMENSIONS",
                f"its {size[0]} x {size[1]} pixels would be resized to {resized[0]} x {resized[1]}, "
                f"which exceeds the limit of {MAX_RESIZED_PIXELS:,} pixels",
            )
        begin = seen[0].begin, seen[1].begin
        corner = PROFILES[resize.like].corner if resize is not None and begin != (0.0, 0.0) else None
        if resize is not None and corner is not None:
            axes = zip(size, resized, ratio, begin, strict=True)
            top, left = corner(resize.method, *(Axis(length, out, each, 0, out, at) for length, out, each, at in axes))
            rows.window(top, size[0] - top)
            columns.window(left, size[1] - left)
            begin = begin[0] - top, begin[1] - left
        box = (rows.begin, columns.begin, rows.begin + rows.length, columns.begin + columns.length)
        bottom, right = rows.canvas - rows.at - rows.length, columns.canvas - columns.at - columns.length
        margins = rows.at, columns.at, bottom, right
        mirrors = (rows.is_flipped, columns.is_flipped)
        if margins == NO_MARGINS or (resize is not None and not resize.keeps_padding(resized[1])):
            rows, columns = Span(resized[0]), Span(resized[1])
        else:
            rows = _visible_range(rows, resized[0], ratio[0], begin[0])
            columns = _visible_range(columns, resized[1], ratio[1], begin[1])
        for axis, span in enumerate((rows, columns)):
            span.stretch = stretch(box[axis::2], margins[axis], begin[axis], ratio[axis], is_mirrored=mirrors[axis])
            if seen[axis].is_swapped:
                span.flip()
        if resize is not None and (canvas := resize.canvas(*size)) is not None:
            crop(rows, columns, canvas, beyond="refuse_larger", is_fixed=False)
        self._apply(rows, columns, drawing, (height, width), is_resized=True)
        done = self._placed_levels(self.levels, rows.canvas, columns.canvas, drawing) if self.levels else ()
        size = levels.size_after(done, rows.canvas, columns.canvas)
        if self.most is not None and max(size) > self.most:
            raise ImageError(
                "DOES_NOT_FIT",
                f"the result has {size[0]} x {size[1]} pixels; the limit is {self.most} per side (max_size)",
            )
        erasures: list[Erase] = []
        for erasing in self.erasures:
            height, width = levels.size_after(done, rows.canvas, columns.canvas)
            made = erasing.steps(drawing.words(erasing, Span(height), Span(width)), height, width)
            erasures += cast("tuple[Erase, ...]", made)
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
            fill=tuple(drawing.words(self.fill, rows, columns)["fill"]) if self.fill else None,
            levels=done,
            erasures=tuple(erasures),
            photo=photo,
            begin=begin,
            swaps=(seen[0].is_swapped, seen[1].is_swapped),
            thumbnail=self.thumbnail.place(height, width, drawing) if self.thumbnail and has_thumbnail else None,
            cuts=cuts,
            frames=drawing.frames,
        )

    def _apply(self, rows: Span, columns: Span, drawing: Drawing, size: tuple[int, int], *, is_resized: bool) -> None:
        """Apply the steps before or after the resize. A step that depends on the mask receives the mask before it.

        Args:
            rows: Vertical axis of the canvas.
            columns: Horizontal axis of the canvas.
            drawing: Parameters of the steps for the image.
            size: (height, width) of the image.
            is_resized: Whether to apply the steps ``after`` instead of the steps ``before``.
        """
        steps = self.after if is_resized else self.before
        for index, step in enumerate(steps):
            if drawing.mask is not None and "mask" in step.sees:
                until = replace(self, after=steps[:index], levels=(), erasures=(), thumbnail=None, most=None)
                until = until if is_resized else replace(until, before=(), resize=None)
                drawing.labels = partial(_labels, until, size, drawing)
            step.apply(rows, columns, drawing)

    @staticmethod
    def _placed_levels(
        steps: tuple[LevelsStep, ...], height: int, width: int, drawing: Drawing
    ) -> tuple[LevelStep, ...]:
        """Return the steps on pixel values for an image of this size, with the image's random parameters and inputs."""
        made: list[LevelStep] = []
        _check_levels_size(height, width)
        for step in steps:
            these = step.placed(Span(height), Span(width), drawing)
            size = levels.size_after(these, height, width)
            if size != (height, width):
                height, width = size
                _check_levels_size(height, width)
            made += these
        return levels.folded(made)


def _labels(geometry: Geometry, size: tuple[int, int], drawing: Drawing) -> npt.NDArray[Any]:
    """Return the labels of the sample for each pixel of the canvas that ``geometry`` produces.

    Args:
        geometry: Geometry whose steps are applied to the labels.
        size: (height, width) of the image.
        drawing: Parameters of the steps for the image, and the labels of the sample.
    """
    assert drawing.mask is not None
    return drawing.mask(geometry, geometry.place(*size, drawing), size)


def _moves(step: LevelsStep) -> bool:
    """Return whether a step may move pixels, so that boxes and masks must be transformed with the image."""
    return any(each.moves for each in traits(step))


def _check_levels_size(height: int, width: int) -> None:
    """Raise ImageError if an image is too large for steps on pixel values.

    Even a small image can become too large if only one side is resized, or if it is rotated with ``expand``.
    """
    if height * width > MAX_RESIZED_PIXELS or max(height, width) > MAX_LEVELS_SIDE:
        raise ImageError(
            "BAD_DIMENSIONS",
            f"its pixel values would be changed at a size of {height} x {width}; the limits are {MAX_LEVELS_SIDE:,} "
            f"pixels per side and {MAX_RESIZED_PIXELS:,} pixels in total",
        )


def _visible_range(span: Span, resized: int, ratio: float, begin: float) -> Span:
    """Return the range of a resized axis that depends on pixels of the image. All other pixels contain only padding.

    If one end of the axis has no padding, the range extends to this end.

    Args:
        span: Axis of the padded image before the resize.
        resized: Length of the axis after the resize.
        ratio: Pixels per resized pixel.
        begin: Position at which the first resized pixel begins.
    """
    if span.length <= 0:
        return Span(resized, 0, 0)
    reach, end = max(REACH.values()) * max(ratio, 1.0) + 1, span.at + span.length
    first = floor((span.at - reach - begin) / ratio) if span.at else 0
    last = ceil((end + reach - begin) / ratio) if end < span.canvas else resized
    return Span(resized, min(max(first, 0), resized), max(min(last, resized), 0))
