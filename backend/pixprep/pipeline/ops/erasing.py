"""Ops that fill a fixed rectangle or random rectangles in the image."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from typing import Annotated, Any, ClassVar, Literal

import numpy as np

from pixprep.errors import ImageError, PipelineError
from pixprep.pipeline.ops.limits import (
    MAX_SIDE,
    FillColor,
    Fraction,
    Length,
    OrderedPair,
    Ratio,
    Within,
    ends,
    need_channels,
    shown,
)
from pixprep.pipeline.ops.op import Drawn, LevelsOp, Op, SteadyOp, drawn
from pixprep.plan.draws.augments import Uniforms
from pixprep.plan.draws.philox import F64, Words, between, quantiles, span_words
from pixprep.plan.lowered import Lowered, colour
from pixprep.plan.steps import levels
from pixprep.plan.steps.levels import LevelStep
from pixprep.spec import Color, ImageSpec, Reals, as_tuple

MAX_RECTANGLES, MAX_CELLS = 64, 64
MAX_ATTEMPTS = 10
"""Maximum number of attempts to sample a rectangle that fits; if none fits, no rectangle is filled."""


class Erase(SteadyOp, frozen=True, tag="erase"):
    """Fills a rectangle with one color.

    The op reproduces torchvision v2's ``erase`` before normalization, and DALI's ``erase`` with constant arguments. If
    the rectangle extends beyond the image, only the part inside the image is filled.

    Args:
        top, left: First row and first column of the rectangle.
        height, width: Height and width of the rectangle in pixels.
        fill: Color, 0 to 255: one number, or one per channel in the order of the channels.

    Example:
        {"op": "erase", "top": 0, "left": 0, "height": 16, "width": 16}
    """

    may_add_color: ClassVar[bool] = False

    top: Annotated[int, Within(0, MAX_SIDE)]
    left: Annotated[int, Within(0, MAX_SIDE)]
    height: Length
    width: Length
    fill: FillColor = 0

    def in_words(self) -> str:
        return str(levels.Erase(self.top, self.left, self.height, self.width, tuple(map(float, as_tuple(self.fill)))))

    def steps(self, words: Words, height: int, width: int, color: Color) -> tuple[LevelStep, ...]:
        values = tuple(map(float, colour(self.fill, color)))
        return (levels.Erase(self.top, self.left, self.height, self.width, values),)


class CoarseDropout(Drawn, LevelsOp, frozen=True, tag="coarse_dropout"):
    """Fills several random rectangles with one color, with probability ``p``.

    The op reproduces Albumentations' ``CoarseDropout``. The number, the sizes and the positions of the rectangles
    (holes) are uniformly distributed, and holes may overlap. Boxes and masks do not change.

    Args:
        count: Minimum and maximum number of holes.
        hole_height, hole_width: Minimum and maximum height and width of a hole. If the maxima are below 1, they are
            fractions of the image's height and width. If not, they are in pixels, and larger holes are clipped to the
            size of the image.
        fill: Color, 0 to 255: one number, or one per channel.
        p: Probability that the op is applied, 0 to 1.

    Example:
        {"op": "coarse_dropout", "count": [1, 8]}
    """

    may_add_color: ClassVar[bool] = False

    count: tuple[int, int] = (1, 2)
    hole_height: Annotated[tuple[float, float], OrderedPair(0, MAX_SIDE)] = (0.1, 0.2)
    hole_width: Annotated[tuple[float, float], OrderedPair(0, MAX_SIDE)] = (0.1, 0.2)
    fill: FillColor = 0
    p: Fraction = 0.5

    def check(self) -> None:
        if not 1 <= self.count[0] <= self.count[1] <= MAX_RECTANGLES:
            raise PipelineError(
                f'"count" must be (low, high) with 1 <= low <= high <= {MAX_RECTANGLES}, not {shown(self.count)}'
            )
        if (self.hole_height[1] < 1) != (self.hole_width[1] < 1):
            raise PipelineError('"hole_height" and "hole_width" must both be fractions below 1, or both be pixels')

    @property
    def blocks(self) -> int:
        """Number of blocks of four random numbers.

        One block determines whether the op is applied, and the number of holes. Each hole uses one more block for its
        height, width, top and left.
        """
        return 1 + self.count[1]

    def draw(self, height: int, width: int, uniforms: Uniforms) -> Words:
        """Sample the holes: ``{"holes": [[top, left, height, width]]}``."""
        (u_apply, u_count, *_), *u_holes = uniforms(0, self.blocks).tolist()
        if u_apply >= self.p:
            return {"holes": []}
        count = self.count[0] + int(u_count * (self.count[1] - self.count[0] + 1))
        return {"holes": [self._hole(height, width, u_hole) for u_hole in u_holes[:count]]}

    def _hole(self, height: int, width: int, u_hole: list[float]) -> list[int]:
        """Return the [top, left, height, width] of a hole for four random numbers."""
        rows, columns = (
            int(length * between(span, u)) if self.hole_height[1] < 1 else _random_side(span, length, u)
            for span, length, u in zip((self.hole_height, self.hole_width), (height, width), u_hole, strict=False)
        )
        return [int(u_hole[2] * (height - rows + 1)), int(u_hole[3] * (width - columns + 1)), rows, columns]

    def in_words(self) -> str:
        unit = "of the sides" if self.hole_height[1] < 1 else "pixels"
        size = f"{span_words(self.hole_height)} x {span_words(self.hole_width)} {unit}"
        return f"fill {self.count[0]} to {self.count[1]} holes of {size} in {self.p:g} of the images"

    def fixed_ops(self, words: Words) -> list[Op]:
        return [
            Erase(top, left, rows, columns, self.fill)
            for top, left, rows, columns in words["holes"]
            if rows and columns
        ]


class GridDropout(Drawn, LevelsOp, frozen=True, tag="grid_dropout"):
    """Fills a rectangle in each cell of a grid with one color, with probability ``p``.

    The op reproduces Albumentations' ``GridDropout``. The image is divided into a grid whose cells have nearly equal
    sizes; the rows and the columns that are one pixel larger are chosen at random. The height and the width of each
    rectangle (hole) are ``ratio`` times those of its cell, rounded down, but at least 1 pixel and at most 1 pixel less
    than the cell. Boxes and masks do not change.

    Args:
        ratio: Height and width of a hole as a fraction of its cell, 0 to 1.
        unit: Minimum and maximum of the random edge length of a cell in pixels; the maximum is exclusive. Default: the
            number of cells determines their size.
        cells: Number of cells, [rows, columns]. Default without ``unit``: cells of a tenth of the image's height and
            width, but at least 2 pixels.
        random_offset: Whether the position of each hole in its cell is random. If false, ``shift`` determines it.
        shift: Position [x, y] of the holes in their cells in pixels.
        fill: Color, 0 to 255: one number, or one per channel.
        p: Probability that the op is applied, 0 to 1.

    Example:
        {"op": "grid_dropout", "cells": [7, 7]}
    """

    may_add_color: ClassVar[bool] = False

    ratio: Fraction = 0.5
    unit: tuple[int, int] | None = None
    cells: Annotated[tuple[int, int] | None, Within(1, MAX_CELLS, lengths=(2,))] = None
    random_offset: bool = True
    shift: Annotated[tuple[int, int], Within(0, MAX_SIDE, lengths=(2,))] = (0, 0)
    fill: FillColor = 0
    p: Fraction = 0.5

    def check(self) -> None:
        if self.unit is not None and not 2 <= self.unit[0] < self.unit[1]:
            raise PipelineError(f'"unit" must be (low, high) with 2 <= low < high, not {shown(self.unit)}')

    def draw(self, height: int, width: int, uniforms: Uniforms) -> Words:
        """Sample the holes: ``{"holes": [[top, left, height, width]]}``."""
        u_apply, u_unit, *_ = uniforms(0, 1)[0].tolist()
        if u_apply >= self.p:
            return {"holes": []}
        rows, columns = self._grid(height, width, u_unit)
        # One random number per row and per column of cells: those with the smallest numbers are one pixel longer.
        # Two more numbers per cell determine the offset of its hole.
        numbers = uniforms(1, -(-(rows + columns + 2 * rows * columns) // 4)).ravel()
        tops, lefts = _splits(height, numbers[:rows]), _splits(width, numbers[rows : rows + columns])
        u_offsets = iter(numbers[rows + columns :].tolist())
        holes = []
        for top, bottom in pairwise(tops):
            for left, right in pairwise(lefts):
                size = [int(min(max(side * self.ratio, 1), side - 1)) for side in (bottom - top, right - left)]
                u_y, u_x = next(u_offsets), next(u_offsets)
                y, x = self.shift[::-1]
                if self.random_offset:
                    y, x = int(u_y * (bottom - top - size[0] + 1)), int(u_x * (right - left - size[1] + 1))
                holes.append([min(top + y, height - size[0]), min(left + x, width - size[1]), *size])
        return {"holes": holes}

    def _grid(self, height: int, width: int, u_unit: float) -> tuple[int, int]:
        """Return the number of rows and of columns of the grid.

        Raises:
            ImageError: DOES_NOT_FIT: The image is too small for the cells, or the grid would have too many cells.
        """
        if self.unit is not None:
            unit = self.unit[0] + int(u_unit * (self.unit[1] - self.unit[0]))
            rows, columns = height // unit, width // unit
            is_too_small = self.unit[1] > min(height, width)
        else:
            rows, columns = self.cells or (height // max(2, height // 10), width // max(2, width // 10))
            is_too_small = rows * 2 > height or columns * 2 > width
        if is_too_small or not rows * columns:
            raise ImageError("DOES_NOT_FIT", f"{height} x {width} pixels are too small for the cells of grid_dropout")
        if rows * columns > MAX_CELLS**2:
            raise ImageError(
                "DOES_NOT_FIT", f"the grid for {height} x {width} pixels has more than {MAX_CELLS**2} cells"
            )
        return rows, columns

    def in_words(self) -> str:
        cells = "x".join(map(str, self.cells)) if self.cells else "all"
        size = f"of {self.unit[0]} to {self.unit[1] - 1} pixels " if self.unit else ""
        return f"fill {self.ratio:.4g} of the height and width of {cells} cells {size}in {self.p:g} of the images"

    fixed_ops = CoarseDropout.fixed_ops


def _splits(length: int, u_order: F64) -> list[int]:
    """Divide a side into one part per random number, and return 0, followed by the end of each part.

    The parts with the smallest random numbers are one pixel longer than the others.
    """
    count = len(u_order)
    sizes = np.full(count, length // count)
    sizes[u_order.argsort(kind="stable")[: length % count]] += 1
    return [0, *np.cumsum(sizes).tolist()]


def _random_side(span: tuple[float, float], length: int, uniform: float) -> int:
    """Return a uniformly distributed integer of a span, whose ends are clipped to the length of the image's side."""
    low, high = min(int(span[0]), length), min(int(span[1]), length)
    return low + int(uniform * (high - low + 1))


class RandomErasing(Drawn, LevelsOp, frozen=True, tag="random_erasing"):
    """Fills a random rectangle with a constant value or with noise, with probability ``p``.

    The op reproduces torchvision v2's ``RandomErasing``: it samples up to ten rectangles and uses the first one that
    fits into the image. Each rectangle has the area ``H * W * U(scale)`` and the aspect ratio ``exp(U(log(ratio)))``,
    where ``U`` is uniformly distributed, and both sides are rounded. Its position is also uniformly distributed. If no
    rectangle fits, the image does not change. After ``normalize``, the op changes the values of the tensor and must be
    the last op; before ``normalize``, it changes pixel values.

    timm's ``RandomErasing`` has the same parameters under different names: ``probability`` is ``p``, ``min_area`` and
    ``max_area`` are ``scale``, ``min_aspect`` and ``max_aspect`` are ``ratio``, and ``min_count`` and ``max_count`` are
    ``count``. Its mode ``const`` corresponds to the value 0, ``pixel`` to ``"random"``, and ``rand`` to
    ``"random_color"``.

    Args:
        p: Probability that the op is applied, 0 to 1.
        scale: Minimum and maximum of the filled area, as a fraction of the image's area.
        ratio: Minimum and maximum of the rectangle's height divided by its width.
        value: Fill value: one number, or one per channel. If the op follows ``normalize``, it is a value of the tensor;
            if the op precedes ``normalize``, it is a pixel value from 0 to 255. After ``normalize``, the fill may also
            be noise from the standard normal distribution: ``random`` samples every value independently, and
            ``random_color`` samples one value per channel and rectangle.
        count: Number of rectangles, or its minimum and maximum. The area is divided equally among them.

    Example:
        {"op": "random_erasing", "p": 0.25}
    """

    p: Fraction = 0.5
    scale: Annotated[tuple[float, float], OrderedPair(0, 1)] = (0.02, 0.33)
    ratio: Ratio = (0.3, 3.3)
    value: Reals | Literal["random", "random_color"] = 0.0
    count: int | tuple[int, int] = 1

    def check(self) -> None:
        low, high = self.counts
        if len(as_tuple(self.count)) > 2 or not 1 <= low <= high <= MAX_RECTANGLES:
            raise PipelineError(
                f'"count" must be 1 to {MAX_RECTANGLES}, or (low, high) with 1 <= low <= high <= {MAX_RECTANGLES}, not '
                f"{shown(self.count)}"
            )

    @property
    def counts(self) -> tuple[int, int]:
        """Minimum and maximum number of rectangles."""
        low, high = ends(self.count)
        return int(low), int(high)

    def infer(self, image: ImageSpec) -> ImageSpec:
        """Return the spec unchanged; reject a fill value outside the range of the image."""
        if isinstance(self.value, str):
            if image.values != "normalized":
                raise PipelineError(
                    f'"value": "{self.value}" generates normalized values: place random_erasing after normalize'
                )
            return image
        need_channels("value", self.value, image.channels)
        for value in as_tuple(self.value):
            if image.values == "levels" and value not in range(256):
                raise PipelineError(
                    f'"value" must be an integer from 0 to 255 before normalize, not {value:g}: for a value of the '
                    "tensor, put random_erasing after normalize"
                )
            if not image.low <= value <= image.high:
                raise PipelineError(
                    f'"value" must be in the range of the tensor, {image.low:g} to {image.high:g}, not {value:g}'
                )
        return image

    def lower(self, before: Lowered, image: ImageSpec, key: str) -> Lowered:
        is_levels = image.values == "levels"
        op = self
        if not isinstance(self.value, str):
            values = as_tuple(self.value)
            per_channel = values * (image.channels if len(values) == 1 else 1)
            op = drawn(self, value=colour(tuple(map(int, values)), before.color) if is_levels else per_channel)
        step = op.augment(before, image, key)
        return before.do(step) if is_levels else replace(before, erasures=(*before.erasures, step))

    @property
    def blocks(self) -> int:
        """Number of blocks of four random numbers.

        The first block determines whether the op is applied, the number of rectangles, and the seed of the noise. Each
        attempt uses a block for the area, the aspect ratio, top and left, and each color of ``random_color`` uses one.
        """
        return 1 + (MAX_ATTEMPTS + (self.value == "random_color")) * self.counts[1]

    def draw(self, height: int, width: int, uniforms: Uniforms) -> Words:
        """Sample the rectangles and their noise.

        Returns:
            ``{"rectangles": [[top, left, height, width]]}``. With the value ``random``, also ``"noise"``, the seed: two
            integers below 2^32. With ``random_color``, also ``"colors"``: three values per rectangle.
        """
        (u_apply, u_count, *u_noise), *blocks = uniforms(0, self.blocks).tolist()
        if u_apply >= self.p:
            return {"rectangles": []}
        low, high = self.counts
        count = low + int(u_count * (high - low + 1))
        sampled = [
            self._rectangle(height, width, blocks[MAX_ATTEMPTS * i : MAX_ATTEMPTS * (i + 1)], count)
            for i in range(count)
        ]
        words: dict[str, Any] = {"rectangles": [rectangle for rectangle in sampled if rectangle]}
        if self.value == "random":
            words["noise"] = [int(u * 2**32) for u in u_noise]
        if self.value == "random_color":
            u_colors = (u for u, rectangle in zip(blocks[MAX_ATTEMPTS * high :], sampled, strict=False) if rectangle)
            words["colors"] = [[float(quantiles()[int(u * 65536)]) for u in u_color[:3]] for u_color in u_colors]
        return words

    def _rectangle(self, height: int, width: int, u_attempts: list[list[float]], count: int) -> list[int]:
        """Return the [top, left, height, width] of the first attempt that fits, or an empty list.

        Args:
            height: Height of the image.
            width: Width of the image.
            u_attempts: Four random numbers per attempt.
            count: Number of rectangles that the area is divided among.
        """
        log_min, log_max = math.log(self.ratio[0]), math.log(self.ratio[1])
        for u_area, u_ratio, u_top, u_left in u_attempts:
            area = height * width * between(self.scale, u_area) / count
            ratio = math.exp(log_min + u_ratio * (log_max - log_min))
            rows, columns = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
            if rows < height and columns < width:
                top, left = int(u_top * (height - rows + 1)), int(u_left * (width - columns + 1))
                return [top, left, rows, columns]
        return []

    def in_words(self) -> str:
        rectangles = "a rectangle" if self.counts == (1, 1) else f"{self.counts[0]} to {self.counts[1]} rectangles"
        value = ", ".join(f"{each:.4g}" for each in dict.fromkeys(self._values)) or "noise"
        return f"fill {rectangles} of {span_words(self.scale)} of the area with {value} in {self.p:g} of the images"

    @property
    def _values(self) -> tuple[float, ...]:
        return () if isinstance(self.value, str) else as_tuple(self.value)

    def steps(self, words: Words, height: int, width: int, color: Color) -> tuple[LevelStep, ...]:
        rectangles, noise = words["rectangles"], words.get("noise")
        channels = 1 if color == "gray" else 3
        values = [tuple(each[:channels]) for each in words.get("colors", [self._values] * len(rectangles))]
        return tuple(
            levels.Erase(top, left, rows, columns, values[index], (*noise, index) if noise else None)
            for index, (top, left, rows, columns) in enumerate(rectangles)
        )

    def fixed_ops(self, words: Words) -> list[Op]:
        return []  # verify omits this op, both in pixprep and in the reference
