"""Limits of the fields of ops, which are annotations of the fields, and checks of the images that ops accept."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Protocol

from pixprep.errors import PipelineError
from pixprep.pipeline.ops.faults import quoted
from pixprep.plan.inputs import Number, number
from pixprep.plan.sizes import MAX_SIDE as MAX_SIDE  # noqa: PLC0414
from pixprep.spec import Bound, Fill, ImageSpec, InputSpec, Layout, Levels, Reals, as_tuple

MAX_ONES = 2
"""Maximum number of axes of length one in a layout."""
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
"""Names of HTML colours, with the pixel values that a message suggests instead: one for gray, or red, green, blue."""


class Limit(Protocol):
    """Annotation that limits the values of an op's field. None is not checked."""

    def check(self, name: str, value: Any) -> None:
        """Raise PipelineError if ``value``, the value of the field ``name``, violates the limit."""


class Pair:
    """Limit of a field that contains two numbers. A single number is also accepted."""

    @staticmethod
    def check(name: str, value: Any) -> None:
        if isinstance(value, tuple | list) and len(value) != 2:
            raise PipelineError(f'"{name}" must contain 2 numbers, not {len(value)}')


@dataclass(frozen=True, repr=False)
class Within:
    """Limits of a number, or of each number of a list.

    Attributes:
        minimum, maximum: Limits, inclusive.
        unit: Unit that messages append to the limits, such as `` pixels``.
        lengths: Allowed lengths of the list. Empty: the field is a single number.
    """

    minimum: float
    maximum: float
    unit: str = ""
    lengths: tuple[int, ...] = ()

    def __repr__(self) -> str:
        return f"between {_text(self.minimum)} and {_text(self.maximum)}{self.unit}"

    def check(self, name: str, value: Any) -> None:
        if isinstance(value, str):  # a word such as "clip", which the type of the field validates
            return
        values = as_tuple(value) if self.lengths else (value,)
        if len(values) not in (self.lengths or (1,)):
            *fewer, last = map(str, self.lengths)
            lengths = f"{', '.join(fewer)} or {last}" if fewer else last
            raise PipelineError(f'"{name}" must contain {lengths} numbers, not {len(values)}')
        for each in values:
            if not self.minimum <= each <= self.maximum:
                raise PipelineError(f'"{name}" must be {self}, not {_text(each)}')


@dataclass(frozen=True, repr=False)
class OrderedPair:
    """Limits of a pair (low, high): ``minimum <= low <= high <= maximum``.

    Attributes:
        minimum, maximum: Limits.
        is_over: Whether ``low`` must be greater than ``minimum``.
    """

    minimum: float
    maximum: float
    is_over: bool = False

    def __repr__(self) -> str:
        return f"(low, high) with {self.minimum:g} {'<' if self.is_over else '<='} low <= high <= {self.maximum:g}"

    def check(self, name: str, value: Any) -> None:
        is_in = self.minimum < value[0] if self.is_over else self.minimum <= value[0]
        if not is_in or not value[0] <= value[1] <= self.maximum:
            raise PipelineError(f'"{name}" must be {self}, not {shown(tuple(value))}')


@dataclass(frozen=True)
class Spread:
    """Limits of a field with a pair (low, high), with two pairs, or with one number x, which means (-x, x).

    Attributes:
        minimum, maximum: Limits of each number of a pair, inclusive.
        lengths: Allowed lengths of the list of numbers.
    """

    minimum: float
    maximum: float
    lengths: tuple[int, ...] = (1, 2)

    def check(self, name: str, value: Any) -> None:
        values = as_tuple(value)
        limits = self.minimum, self.maximum
        if len(values) == 1:
            limits = 0.0, min(-self.minimum, self.maximum)
        Within(*limits, lengths=self.lengths).check(name, values)
        for low, high in spans(values):
            if low > high:
                raise PipelineError(f'"{name}" must be (low, high) with low <= high, not {shown((low, high))}')


def spans(value: Reals) -> tuple[tuple[float, float], ...]:
    """Return the (low, high) pairs of a field that ``Spread`` limits. A single number x means (-x, x)."""
    values = as_tuple(value)
    if len(values) == 1:
        return ((-values[0], values[0]),)
    return tuple(zip(values[::2], values[1::2], strict=False))


def ends(value: Reals) -> tuple[float, float]:
    """Return the first and the last number of a field with one or two numbers. A single number is returned twice."""
    values = as_tuple(value)
    return values[0], values[-1]


class Colour:
    """Limits of a colour: pixel values from 0 to 255, or the name of an input, which must not be a colour name."""

    def __repr__(self) -> str:
        return "between 0 and 255"

    @staticmethod
    def check(name: str, value: Any) -> None:
        if isinstance(value, str):
            if pixel := _COLORS.get(value.lower()):
                raise PipelineError(
                    f'"{name}" must be pixel values or the name of an input, not the name of a color: '
                    f'write {pixel} instead of "{value}"'
                )
        elif not all(0 <= number <= 255 for number in as_tuple(value)):
            raise PipelineError(f'"{name}" must be between 0 and 255, not {shown(value)}')


@dataclass(frozen=True, repr=False)
class Bounded:
    """Limits of a number. If the field contains the name of an input instead, they apply to the values of this input.

    Attributes:
        bound: Limits.
        unit: Unit that messages append to the limits, such as `` pixels``.
    """

    bound: Bound
    unit: str = ""

    def __repr__(self) -> str:
        return f"between {self.bound.least:g} and {self.bound.most:g}{self.unit}"

    def check(self, name: str, value: Any) -> None:
        if isinstance(value, str):
            if not number(value).input.isidentifier():
                raise PipelineError(f'"{name}" must be a number or the name of an input, not {quoted(value)}')
        elif not self.bound.holds(value):
            integer = "an integer " * (self.bound.is_whole and value % 1 != 0)
            raise PipelineError(f'"{name}" must be {integer}{self}, not {_text(value)}')


def requested(**values: tuple[Any, Bound]) -> tuple[tuple[str, Number], ...]:
    """Return the numbers that a request provides, because fields contain names of inputs instead of values.

    Args:
        **values: Value and limits of each field.

    Returns:
        (field, number) for each field whose value is the name of an input.
    """
    return tuple((field, number(value, bound)) for field, (value, bound) in values.items() if isinstance(value, str))


SIDE = Bound(1, MAX_SIDE, is_whole=True, example=32)
"""Limits of a height or a width in pixels."""
LengthOrInput = Annotated[int | str, Bounded(SIDE, " pixels")]
Fraction = Annotated[float, Within(0, 1)]
Length = Annotated[int, Within(1, MAX_SIDE, " pixels")]
FillColor = Annotated[Levels, Colour()]
"""Colour of the area outside the image."""
FillColorOrInput = Annotated[Fill, Colour()]
Ratio = Annotated[tuple[float, float], OrderedPair(1 / MAX_RATIO, MAX_RATIO)]
"""Range (low, high) of an aspect ratio."""


def _text(number: float) -> str:
    return str(number) if isinstance(number, int) and abs(number) < 10**20 else f"{number:g}"


def shown(value: Reals) -> str:
    """Return the value of a field for a message: one number, or a list in parentheses, shortened to four numbers."""
    values = as_tuple(value)
    text = ", ".join([*(f"{v:g}" for v in values[:4]), *["..."] * (len(values) > 4)])
    return f"({text})" if len(values) > 1 else text


def need_channels(name: str, value: Reals, channels: int, of: str = "image") -> None:
    """Raise PipelineError unless a field contains one number or one number per channel.

    Args:
        name: Name of the field, for the message.
        value: Value of the field.
        channels: Number of channels.
        of: Object that has the channels, for the message.
    """
    count = len(as_tuple(value))
    if count not in (1, channels):
        raise PipelineError(f'"{name}" has {count} values, but the {of} has {channels} channel{"s" * (channels > 1)}')


def need_layout(layout: Layout, axes: str) -> None:
    """Raise PipelineError unless a layout contains each of the axes exactly once."""

    def is_right(layout: Layout) -> bool:
        return layout.count("1") <= MAX_ONES and sorted(layout.replace("1", "")) == sorted(axes)

    if not is_right(layout):
        meant = "".join(axis for axis in layout.lower() if axis in (*axes, "1"))
        hint = f'; did you mean "{meant}"?' if is_right(meant) else ""
        kind = "several clips" if "n" in axes else "a clip" if "t" in axes else "an image"
        raise PipelineError(
            f'"layout" of {kind} must contain each of {", ".join(axes)} exactly once, in any order, and may contain 1 '
            f"for an axis of length one (at most {MAX_ONES} times), not {quoted(layout)}{hint}"
        )


def need_fill(fill: Fill, image: ImageSpec) -> None:
    """Check ``fill`` with ``need_channels``, unless it is the name of an input."""
    if not isinstance(fill, str):
        need_channels("fill", fill, image.channels)


def fill_input(fill: Fill, image: ImageSpec) -> tuple[InputSpec, ...]:
    """Return the input that contains the colour, if ``fill`` is the name of an input."""
    return (InputSpec(name=fill, kind="color", count=image.channels),) if isinstance(fill, str) else ()


def need_pixel_values(image: ImageSpec, hint: str = "") -> None:
    """Reject images that are already normalized; ``hint`` ends the message."""
    if image.values == "normalized":
        raise PipelineError(f"must come before normalize, because it requires pixel values from 0 to 255{hint}")


def need_8bit_values(image: ImageSpec) -> None:
    """Reject images whose values are not 8-bit integers, because they are normalized or a resize did not round them."""
    need_pixel_values(image)
    if image.values == "real":
        raise PipelineError(
            'requires 8-bit pixel values, but the preceding resize does not round: add "like": "pillow" to it'
        )
