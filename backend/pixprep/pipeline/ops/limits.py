"""Limits of an op's fields, which their annotations contain, and of the images that it accepts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Protocol

from pixprep.errors import PipelineError
from pixprep.pipeline.ops.faults import quoted
from pixprep.plan.inputs import Number, number
from pixprep.plan.sizes import MAX_SIDE as MAX_SIDE  # noqa: PLC0414
from pixprep.spec import Bound, Fill, ImageSpec, InputSpec, Layout, Levels, Reals, as_tuple

MAX_ONES = 2
"""Dims of one in a layout."""
MAX_RATIO = 1000.0
_COLORS = {
    "black": "0",
    "white": "255",
    "gray": "128",
    "grey": "128",
    "silver": "192",
    "red": "[255, 0, 0]",
    "green": "[0, 128, 0]",
    "lime": "[0, 255, 0]",
    "blue": "[0, 0, 255]",
    "navy": "[0, 0, 128]",
    "yellow": "[255, 255, 0]",
    "cyan": "[0, 255, 255]",
    "magenta": "[255, 0, 255]",
    "orange": "[255, 165, 0]",
    "purple": "[128, 0, 128]",
}
"""Names of HTML's colours, and their levels: red, green, blue."""


class Limit(Protocol):
    """An annotation of an op's field, which every value but None is checked against."""

    def check(self, name: str, value: Any) -> None:
        """Raise PipelineError where the value of the field ``name`` is outside."""


class Pair:
    """Limit of two numbers, where one may be in their place."""

    @staticmethod
    def check(name: str, value: Any) -> None:
        if isinstance(value, tuple | list) and len(value) != 2:
            raise PipelineError(f'"{name}" must be 2 numbers, not {len(value)}')


@dataclass(frozen=True, repr=False)
class Within:
    """Limits of a number; where there are ``counts``, of each of so many."""

    least: float
    most: float
    unit: str = ""
    counts: tuple[int, ...] = ()

    def __repr__(self) -> str:
        return f"{_text(self.least)} to {_text(self.most)}{self.unit}"

    def check(self, name: str, value: Any) -> None:
        values = as_tuple(value) if self.counts else (value,)
        if len(values) not in (self.counts or (1,)):
            raise PipelineError(f'"{name}" must be {" or ".join(map(str, self.counts))} numbers, not {len(values)}')
        for each in values:
            if not self.least <= each <= self.most:
                raise PipelineError(f'"{name}" must be {self}, not {_text(each)}')


@dataclass(frozen=True, repr=False)
class Rising:
    """Limits of two numbers, from and to; with ``is_over`` the first is over ``least``."""

    least: float
    most: float
    is_over: bool = False

    def __repr__(self) -> str:
        return f"rise from {'over ' * self.is_over}{self.least:g} to {self.most:g} at most"

    def check(self, name: str, value: Any) -> None:
        is_in = self.least < value[0] if self.is_over else self.least <= value[0]
        if not is_in or not value[0] <= value[1] <= self.most:
            raise PipelineError(f'"{name}" must {self}, not {shown(tuple(value))}')


@dataclass(frozen=True)
class Spread:
    """Limits of from and to, or of two of both; of one number, which is the most to either side of 0."""

    least: float
    most: float
    counts: tuple[int, ...] = (1, 2)

    def check(self, name: str, value: Any) -> None:
        values = as_tuple(value)
        least, most = (0.0, min(-self.least, self.most)) if len(values) == 1 else (self.least, self.most)
        Within(least, most, counts=self.counts).check(name, values)
        for first, last in spans(values):
            if first > last:
                raise PipelineError(f'"{name}" must be (low, high) with low <= high, not {shown((first, last))}')


def spans(value: Reals) -> tuple[tuple[float, float], ...]:
    """Limits of each; of one number, to either side of 0."""
    values = as_tuple(value)
    if len(values) == 1:
        return ((-values[0], values[0]),)
    return tuple(zip(values[::2], values[1::2], strict=False))


class Colour:
    """Limits of a colour: levels of 0 to 255, or the name of an input, which is none of a colour."""

    def __repr__(self) -> str:
        return "0 to 255"

    @staticmethod
    def check(name: str, value: Any) -> None:
        if isinstance(value, str):
            if levels := _COLORS.get(value.lower()):
                raise PipelineError(
                    f'"{name}" must be pixel values or the name of an input: for {value} write {levels}; '
                    "an input needs another name"
                )
        elif not all(0 <= level <= 255 for level in as_tuple(value)):
            raise PipelineError(f'"{name}" must be 0 to 255, not {shown(value)}')


@dataclass(frozen=True, repr=False)
class Bounded:
    """Limits of a number, which may be the name of an input instead; the same hold for what comes with the image."""

    bound: Bound
    unit: str = ""

    def __repr__(self) -> str:
        return f"{self.bound.least:g} to {self.bound.most:g}{self.unit}"

    def check(self, name: str, value: Any) -> None:
        if isinstance(value, str):
            if not number(value).input.isidentifier():
                raise PipelineError(f'"{name}" must be a number, or the name of an input, not {quoted(value)}')
        elif not self.bound.holds(value):
            whole = "an integer of " * (self.bound.is_whole and value % 1 != 0)
            raise PipelineError(f'"{name}" must be {whole}{self}, not {_text(value)}')


def requested(**values: tuple[Any, Bound]) -> tuple[tuple[str, Number], ...]:
    """The numbers of inputs that fields name, by the field; each comes with its limits."""
    return tuple((field, number(value, bound)) for field, (value, bound) in values.items() if isinstance(value, str))


SIDE = Bound(1, MAX_SIDE, is_whole=True, example=32)
"""Limits of a side in pixels."""
LengthOrInput = Annotated[int | str, Bounded(SIDE, " pixels")]
Share = Annotated[float, Within(0, 1)]
Length = Annotated[int, Within(1, MAX_SIDE, " pixels")]
Margin = Annotated[Levels, Colour()]
"""The colour where no image is."""
MarginOrInput = Annotated[Fill, Colour()]
Ratio = Annotated[tuple[float, float], Rising(1 / MAX_RATIO, MAX_RATIO)]
"""Range of a ratio of two sides, such as a photo could have."""


def _text(number: float) -> str:
    return str(number) if isinstance(number, int) and abs(number) < 10**20 else f"{number:g}"


def shown(value: Reals) -> str:
    """The numbers of a field, as a message shows them."""
    values = as_tuple(value)
    return ", ".join([*(f"{v:g}" for v in values[:4]), *["..."] * (len(values) > 4)])


def need_channels(name: str, value: Reals, channels: int, of: str = "image") -> None:
    """Raise PipelineError unless a field has one number, or one for each of the channels; ``of`` what these are."""
    count = len(as_tuple(value))
    if count not in (1, channels):
        raise PipelineError(f'"{name}" has {count} values, but the {of} has {channels} channel{"s" * (channels > 1)}')


def need_layout(layout: Layout, axes: str) -> None:
    """Raise PipelineError unless a layout has each of the axes once."""

    def is_right(layout: Layout) -> bool:
        return layout.count("1") <= MAX_ONES and sorted(layout.replace("1", "")) == sorted(axes)

    if not is_right(layout):
        meant = "".join(axis for axis in layout.lower() if axis in (*axes, "1"))
        remedy = f'; did you mean "{meant}"?' if is_right(meant) else ""
        kind = "a clip" if "t" in axes else "an image"
        what = f"each of {', '.join(axes)} once, in any order, and a 1 for a dim of one ({MAX_ONES} at most)"
        raise PipelineError(f'"layout" of {kind} has {what}, not {quoted(layout)}{remedy}')


def need_fill(fill: Fill, image: ImageSpec) -> None:
    """``need_channels`` of a colour; an input has a level for each."""
    if not isinstance(fill, str):
        need_channels("fill", fill, image.channels)


def fill_input(fill: Fill, image: ImageSpec) -> tuple[InputSpec, ...]:
    """Return the input that specifies a color, if there is one."""
    return (InputSpec(name=fill, kind="color", count=image.channels),) if isinstance(fill, str) else ()


def need_levels(image: ImageSpec, remedy: str = "") -> None:
    """Refuse normalized values, where no level is what it was."""
    if image.values == "normalized":
        raise PipelineError(f"must come before normalize: it works on the levels 0 to 255{remedy}")


def need_whole_levels(image: ImageSpec) -> None:
    """Reject values that are not 8-bit pixel values: normalized ones, and those of a resize that does not round."""
    need_levels(image)
    if image.values == "real":
        raise PipelineError('works on whole levels, and the resize before it rounds nothing: write "like": "pillow"')
