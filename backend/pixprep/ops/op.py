"""What all operators share, and the checks that several of them make.

An op takes the image of the op before it, or of the one that ``from`` names. Sizes are in pixels, height before width.
Coordinates: x to the right, y down, the centre of the first pixel is (0.5, 0.5).
"""

from __future__ import annotations

from typing import ClassVar, TypeVar

import msgspec

from pixprep.errors import PipelineError, in_words
from pixprep.spec import ImageSpec, InputSpec, Side

Levels = int | tuple[int, ...]
Reals = float | tuple[float, ...]
Fill = Levels | str
"""A colour, or the name of the input that says it."""

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

MAX_SIDE = 16384
MAX_RATIO = 1000.0
AnOp = TypeVar("AnOp", bound="Op")


class Op(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="op", kw_only=True):
    """What all operators share.

    Attributes:
        name: what later ops call this one in ``from``; of an output, its name in Triton.
        from_: the op whose image this one takes, ``from`` in the file; None: the op before.
        only: the side of the pipeline that has this op; None: both.
        home: the one side that an op of this kind can be on; None: either.
    """

    home: ClassVar[Side | None] = None

    name: str | None = None
    from_: str | None = msgspec.field(default=None, name="from")
    only: Side | None = None

    def __post_init__(self) -> None:
        if self.home not in (None, self.only or self.home):
            raise PipelineError(f'"only": {op_name(self)} is for {self.home}, and not for {self.only}')
        try:
            self.check()
        except (TypeError, OverflowError):  # only from Python: msgspec has checked the types of what a file says
            raise PipelineError(f"{op_name(self)}: {_wrong_type(self)}") from None

    def check(self) -> None:
        """Raise PipelineError where the values contradict each other or a limit."""

    def inputs(self, image: ImageSpec) -> tuple[InputSpec, ...]:
        """The numbers that this op takes with each image, where a field names an input; ``image``: what it takes."""
        del image
        return ()


class Sometimes:
    """A mixin of ops that do to some of the images, at random, what their other base does to all; they have a ``p``."""

    __slots__ = ()

    home: ClassVar[Side | None] = "training"

    def check(self) -> None:
        """See ``Op.check``."""
        super().check()  # type: ignore[misc]
        check_range("p", self.p, 0, 1)  # type: ignore[attr-defined]


def is_on(op: Op, side: Side) -> bool:
    """Whether a side of the pipeline has this op."""
    return side == (op.only or op.home or side)


def _wrong_type(op: Op) -> str:
    """Which field of an op that was made in Python has a value of the wrong type."""
    try:
        msgspec.convert(msgspec.to_builtins(op, builtin_types=()), type(op))
    except msgspec.ValidationError as error:
        text, _, path = str(error).partition(" - at `$.")
        return f"{path.rstrip('`')}: {in_words(text)}"
    except (TypeError, OverflowError):  # no type that a file can hold
        pass
    return f"a value of the wrong type in {op!r}"


def settle(op: Op, field: str, value: object) -> None:
    """Give a field that was left out the default that follows from other fields."""
    if getattr(op, field) is None:
        msgspec.structs.force_setattr(op, field, value)


def changed(op: AnOp, **fields: object) -> AnOp:
    """The same op with other values of some fields."""
    return msgspec.structs.replace(op, **fields)


def op_name(op: Op) -> str:
    """The op's name in the file, such as ``center_crop``."""
    return str(op.__struct_config__.tag)


def as_tuple(value: Reals) -> tuple[float, ...]:
    """One number as a tuple of one; Python callers may also give a list."""
    return tuple(value) if isinstance(value, tuple | list) else (value,)


def shown(value: Reals) -> str:
    """The numbers of a field, as a message shows them."""
    values = as_tuple(value)
    return ", ".join([*(f"{v:g}" for v in values[:4]), *["..."] * (len(values) > 4)])


def check_side(name: str, value: int) -> None:
    """Raise PipelineError where a side has no pixel, or too many."""
    if not 1 <= value <= MAX_SIDE:
        raise PipelineError(f'"{name}" must be 1 to {MAX_SIDE} pixels, not {value}')


def check_range(name: str, value: float, least: float, most: float) -> None:
    """Raise PipelineError where a number lies outside."""
    if not least <= value <= most:
        raise PipelineError(f'"{name}" must be {least:g} to {most:g}, not {value:g}')


def check_ratio(ratio: tuple[float, float]) -> None:
    """Raise PipelineError unless the ratio of two sides, from and to, rises and is one that a photo could have."""
    if not 1 / MAX_RATIO <= ratio[0] <= ratio[1] <= MAX_RATIO:
        raise PipelineError(
            f'"ratio" must rise from {1 / MAX_RATIO:g} to {MAX_RATIO:g} at most, not {shown(tuple(ratio))}'
        )


def check_sides(height: int | None, width: int | None) -> None:
    """``check_side`` of both, which must be given."""
    assert height is not None
    assert width is not None
    check_side("height", height)
    check_side("width", width)


def check_fill(fill: Fill) -> None:
    """Raise PipelineError where a colour has a level outside 0 to 255, or is a word that hardly is an input's name."""
    if isinstance(fill, str):
        if levels := _COLORS.get(fill.lower()):
            raise PipelineError(
                f'"fill" is levels, or the name of an input: for {fill} write {levels}; an input needs another name'
            )
        return
    for value in as_tuple(fill):
        if not 0 <= value <= 255:
            raise PipelineError(f'"fill" must be 0 to 255, not {shown(fill)}')


def need_channels(name: str, value: Reals, image: ImageSpec) -> None:
    """Raise PipelineError unless a field has one number, or one for each channel of the image."""
    count = len(as_tuple(value))
    if count not in (1, image.channels):
        raise PipelineError(
            f'"{name}" has {count} values, but the image has {image.channels} channel{"s" * (image.channels > 1)}'
        )


def need_fill(fill: Fill, image: ImageSpec) -> None:
    """``need_channels`` of a colour; an input has a level for each."""
    if not isinstance(fill, str):
        need_channels("fill", fill, image)


def fill_input(fill: Fill, image: ImageSpec) -> tuple[InputSpec, ...]:
    """The input that says a colour, if one does."""
    return (InputSpec(name=fill, kind="color", count=image.channels),) if isinstance(fill, str) else ()


def need_levels(image: ImageSpec) -> None:
    """Refuse normalized values, where no level is what it was."""
    if image.values == "normalized":
        raise PipelineError("must come before normalize: it works on the levels 0 to 255")


def need_whole_levels(image: ImageSpec) -> None:
    """Refuse values that are no levels, normalized or of a resize that rounds nothing."""
    need_levels(image)
    if image.values == "real":
        raise PipelineError('works on whole levels, and the resize before it rounds nothing: write "like": "pillow"')
