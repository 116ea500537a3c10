"""Ops that fill rectangles, a fixed one or random ones."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal

from pixprep.errors import PipelineError
from pixprep.pipeline.ops.limits import MAX_SIDE, Length, Margin, Ratio, Rising, Share, Within, need_channels, shown
from pixprep.pipeline.ops.op import Drawn, LevelsOp, Op, SteadyOp, drawn
from pixprep.plan.draws.augments import Uniforms
from pixprep.plan.draws.philox import Words, between, quantiles, span_words
from pixprep.plan.lowered import Lowered, colour
from pixprep.plan.steps import levels
from pixprep.plan.steps.levels import LevelStep
from pixprep.spec import Color, ImageSpec, Reals, as_tuple

MAX_RECTANGLES = 64
TRIES = 10
"""Attempts to draw a rectangle that fits; after them there is none."""


class Erase(SteadyOp, frozen=True, tag="erase"):
    """Fills a rectangle with one color.

    The op equals torchvision v2's ``erase`` on pixel values, and DALI's with fixed numbers. The part of the rectangle
    outside the image is ignored.

    Args:
        top, left: First row and first column of the rectangle.
        height, width: Height and width of the rectangle in pixels.
        fill: Color, 0 to 255: one number, or one per channel in the order of the channels.

    Example:
        {"op": "erase", "top": 0, "left": 0, "height": 16, "width": 16}
    """

    may_colour: ClassVar[bool] = False

    top: Annotated[int, Within(0, MAX_SIDE)]
    left: Annotated[int, Within(0, MAX_SIDE)]
    height: Length
    width: Length
    fill: Margin = 0

    def in_words(self) -> str:
        return str(levels.Erase(self.top, self.left, self.height, self.width, tuple(map(float, as_tuple(self.fill)))))

    def steps(self, words: Words, height: int, width: int, color: Color) -> tuple[LevelStep, ...]:
        values = tuple(map(float, colour(self.fill, color)))
        return (levels.Erase(self.top, self.left, self.height, self.width, values),)


class CoarseDropout(Drawn, LevelsOp, frozen=True, tag="coarse_dropout"):
    """Fills a few random rectangles of some of the images with one color.

    The op equals Albumentations' ``CoarseDropout``: the number, the sides and the positions of the holes are uniform,
    and holes may overlap. Boxes and masks do not change.

    Args:
        count: Minimum and maximum number of holes.
        hole_height, hole_width: Minimum and maximum side of a hole. If ``hole_height`` ends below 1, both are fractions
            of the image's sides; otherwise, they are pixels, at most those of the image.
        fill: Color, 0 to 255: one number, or one per channel.
        p: Probability that the op is applied, 0 to 1.

    Example:
        {"op": "coarse_dropout", "count": [1, 8]}
    """

    may_colour: ClassVar[bool] = False

    count: tuple[int, int] = (1, 2)
    hole_height: Annotated[tuple[float, float], Rising(0, MAX_SIDE)] = (0.1, 0.2)
    hole_width: Annotated[tuple[float, float], Rising(0, MAX_SIDE)] = (0.1, 0.2)
    fill: Margin = 0
    p: Share = 0.5

    def check(self) -> None:
        if not 1 <= self.count[0] <= self.count[1] <= MAX_RECTANGLES:
            raise PipelineError(
                f'"count" must be (low, high) with 1 <= low <= high <= {MAX_RECTANGLES}, not {shown(self.count)}'
            )
        if (self.hole_height[1] < 1) != (self.hole_width[1] < 1):
            raise PipelineError('"hole_height" and "hole_width" must both be fractions below 1, or both be pixels')

    @property
    def blocks(self) -> int:
        """One block for p and the count; then one a hole: height, width, top, left."""
        return 1 + self.count[1]

    def draw(self, height: int, width: int, uniforms: Uniforms) -> Words:
        """``{"holes": [[top, left, height, width]]}``."""
        (whether, u_count, *_), *each = uniforms(0, self.blocks).tolist()
        if whether >= self.p:
            return {"holes": []}
        count = self.count[0] + int(u_count * (self.count[1] - self.count[0] + 1))
        return {"holes": [self._hole(height, width, numbers) for numbers in each[:count]]}

    def _hole(self, height: int, width: int, numbers: list[float]) -> list[int]:
        rows, columns = (
            int(length * between(span, u)) if self.hole_height[1] < 1 else _side(span, length, u)
            for span, length, u in zip((self.hole_height, self.hole_width), (height, width), numbers, strict=False)
        )
        return [int(numbers[2] * (height - rows + 1)), int(numbers[3] * (width - columns + 1)), rows, columns]

    def in_words(self) -> str:
        unit = "of the sides" if self.hole_height[1] < 1 else "pixels"
        size = f"{span_words(self.hole_height)} x {span_words(self.hole_width)} {unit}"
        return f"fill {self.count[0]} to {self.count[1]} holes of {size} in {self.p:g} of the images"

    def fixed(self, words: Words) -> list[Op]:
        return [
            Erase(top, left, rows, columns, self.fill)
            for top, left, rows, columns in words["holes"]
            if rows and columns
        ]


def _side(span: tuple[float, float], length: int, uniform: float) -> int:
    """Integer number of pixels, at most the image's, each with equal probability."""
    least, most = min(int(span[0]), length), min(int(span[1]), length)
    return least + int(uniform * (most - least + 1))


class RandomErasing(Drawn, LevelsOp, frozen=True, tag="random_erasing"):
    """Fills a random rectangle of some of the images with one value, or with noise.

    The op equals torchvision v2's ``RandomErasing``. The rectangle is the first of ten attempts that fits. Each attempt
    has the area ``H * W * U(scale)`` and the ratio ``exp(U(log(ratio)))``, with both sides rounded, at a uniform
    position. If none fits, the image does not change. After ``normalize``, the op changes the values of the tensor and
    must be the last op; before it, the op changes pixel values.

    timm's ``RandomErasing`` has the same parameters: its probability is ``p``, its areas are ``scale``, its aspects are
    ``ratio`` and its counts are ``count``. Its mode ``const`` is the value 0, ``pixel`` is ``"random"``, and ``rand``
    is ``"random_color"``.

    Args:
        p: Probability that the op is applied, 0 to 1.
        scale: Minimum and maximum of the filled area, as a fraction of the image's area.
        ratio: Minimum and maximum of the height divided by the width.
        value: Value of the tensor after ``normalize``, or pixel value of 0 to 255 before it: one number, or one per
            channel. After ``normalize``, the values may also be drawn from a normal distribution with mean 0 and
            standard deviation 1: ``random`` draws each value, and ``random_color`` draws one per channel for each
            rectangle.
        count: Number of rectangles, or its minimum and maximum. They share the area.

    Example:
        {"op": "random_erasing", "p": 0.25}
    """

    p: Share = 0.5
    scale: Annotated[tuple[float, float], Rising(0, 1)] = (0.02, 0.33)
    ratio: Ratio = (0.3, 3.3)
    value: Reals | Literal["random", "random_color"] = 0.0
    count: int | tuple[int, int] = 1

    def check(self) -> None:
        least, most = self.counts
        if len(as_tuple(self.count)) > 2 or not 1 <= least <= most <= MAX_RECTANGLES:
            raise PipelineError(f'"count" must be 1 to {MAX_RECTANGLES}, or rise, not {shown(self.count)}')

    @property
    def counts(self) -> tuple[int, int]:
        """Fewest and most rectangles."""
        values = as_tuple(self.count)
        return int(values[0]), int(values[-1])

    def infer(self, image: ImageSpec) -> ImageSpec:
        """The spec does not change; refuses a value that the tensor would not have."""
        if isinstance(self.value, str):
            if image.values != "normalized":
                raise PipelineError(f'"value": "{self.value}" is noise of the tensor, and must come after normalize')
            return image
        need_channels("value", self.value, image.channels)
        for value in as_tuple(self.value):
            if image.values == "levels" and value not in range(256):
                raise PipelineError(
                    f'"value" must be a level, 0 to 255, not {value:g}: after normalize it is one of the tensor'
                )
            if not image.low <= value <= image.high:
                raise PipelineError(f'"value" {value:g} is outside the tensor\'s {image.low:g} to {image.high:g}')
        return image

    def lower(self, before: Lowered, image: ImageSpec, key: str) -> Lowered:
        is_levels = image.values == "levels"
        op = self
        if not isinstance(self.value, str):
            values = as_tuple(self.value)
            whole = values * (image.channels if len(values) == 1 else 1)
            op = drawn(self, value=colour(tuple(map(int, values)), before.color) if is_levels else whole)
        step = op.augment(before, image, key)
        return before.do(step) if is_levels else replace(before, erasures=(*before.erasures, step))

    @property
    def blocks(self) -> int:
        """One block for p, the count and two words of noise; one a try: area, ratio, top, left; one a colour."""
        return 1 + (TRIES + (self.value == "random_color")) * self.counts[1]

    def draw(self, height: int, width: int, uniforms: Uniforms) -> Words:
        """``{"rectangles": [[top, left, height, width]]}``, and of noise ``"noise"``, two numbers below 2^32.

        Of ``random_color`` ``"colors"``, three values for each rectangle.
        """
        (whether, u_count, *u_noise), *tries = uniforms(0, self.blocks).tolist()
        if whether >= self.p:
            return {"rectangles": []}
        least, most = self.counts
        count = least + int(u_count * (most - least + 1))
        found = [self._rectangle(height, width, tries[TRIES * i : TRIES * (i + 1)], count) for i in range(count)]
        words: dict[str, Any] = {"rectangles": [rectangle for rectangle in found if rectangle]}
        if self.value == "random":
            words["noise"] = [int(u * 2**32) for u in u_noise]
        if self.value == "random_color":
            rows = (row for row, rectangle in zip(tries[TRIES * most :], found, strict=False) if rectangle)
            words["colors"] = [[float(quantiles()[int(u * 65536)]) for u in row[:3]] for row in rows]
        return words

    def _rectangle(self, height: int, width: int, tries: list[list[float]], count: int) -> list[int]:
        lowest, highest = math.log(self.ratio[0]), math.log(self.ratio[1])
        for u_area, u_ratio, u_top, u_left in tries:
            area = height * width * between(self.scale, u_area) / count
            ratio = math.exp(lowest + u_ratio * (highest - lowest))
            rows, columns = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
            if rows < height and columns < width:
                top, left = int(u_top * (height - rows + 1)), int(u_left * (width - columns + 1))
                return [top, left, rows, columns]
        return []

    def in_words(self) -> str:
        how = "a rectangle" if self.counts == (1, 1) else f"{self.counts[0]} to {self.counts[1]} rectangles"
        value = ", ".join(f"{each:.4g}" for each in dict.fromkeys(self._values)) or "noise"
        return f"fill {how} of {span_words(self.scale)} of the area with {value} in {self.p:g} of the images"

    @property
    def _values(self) -> tuple[float, ...]:
        return () if isinstance(self.value, str) else as_tuple(self.value)

    def steps(self, words: Words, height: int, width: int, color: Color) -> tuple[LevelStep, ...]:
        rectangles, noise = words["rectangles"], words.get("noise")
        channels = 1 if color == "gray" else 3
        values = [tuple(each[:channels]) for each in words.get("colors", [self._values] * len(rectangles))]
        return tuple(
            levels.Erase(top, left, rows, columns, values[which], (*noise, which) if noise else None)
            for which, (top, left, rows, columns) in enumerate(rectangles)
        )

    def fixed(self, words: Words) -> list[Op]:
        return []  # left out on both sides
