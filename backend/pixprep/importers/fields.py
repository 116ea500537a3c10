"""Reads the configurations of other libraries, and rejects fields that no importer has read.

All errors have the form ``FILE: "field": VALUE must be …``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import numpy as np

from pixprep.errors import PipelineError
from pixprep.pipeline.file import not_json, read_bytes
from pixprep.pipeline.ops import MAX_SIDE, Levels, Reals
from pixprep.pipeline.ops.faults import quoted
from pixprep.spec import Filter

T = TypeVar("T")

MAX_BYTES = 16 << 20
"""Maximum size of a configuration file in bytes. For comparison, a file with the names of 21,843 classes takes 2 MB."""
PILLOW_FILTERS: dict[int, Filter] = dict(
    enumerate(("nearest", "lanczos", "bilinear", "bicubic", "box", "hamming")),
)
"""Filters by Pillow's ``Resampling`` constants, which torchvision and transformers also use."""

_MAX_NUMBER = 3.4e38  # maximum absolute value, slightly less than the largest float32
_INVALID_SIDES = f"must be one side, or a height and a width, from 1 to {MAX_SIDE} pixels each"


class Fields:
    """Fields of a configuration, with one method per type to read and validate a field.

    If a field is absent or null, the methods return its default. Without a default, they raise PipelineError.

    Args:
        values: Configuration, as a mapping of field names to values.
        where: Prefix of error messages, such as the name of the file or of the model.
    """

    def __init__(self, values: Mapping[str, Any], where: str) -> None:
        self.where = where
        self._values = dict(values)
        self._unread = set(self._values)

    def take(self, name: str, default: Any = None) -> Any:
        """Return the value of a field without validating it. The value may have any type."""
        self._unread.discard(name)
        value = self._values.get(name)
        return default if value is None else value

    def has(self, name: str) -> bool:
        """Return whether the field is present and not null."""
        return self.take(name) is not None

    def flag(self, name: str, *, default: bool = False) -> bool:
        """Return the value of a field that must be a boolean."""
        return self._typed(name, default, bool, "true or false")

    def text(self, name: str, default: str | None = None) -> str:
        """Return the value of a field that must be a string."""
        return self._typed(name, default, str, "a string")

    def mapping(self, name: str) -> dict[str, Any]:
        """Return the value of a field that must be a JSON object. The default is an empty dictionary."""
        return self._typed(name, {}, dict, "an object")

    def _typed(self, name: str, default: Any, type_: type[T], what: str) -> T:
        value = self.take(name, default)
        return value if isinstance(value, type_) else self.refuse(name, f"must be {what}")

    def choice(self, name: str, choices: Mapping[Any, T] | Sequence[T], default: str | int | None = None) -> T:
        """Read a field that must be a string or an integer, and return the corresponding value of ``choices``.

        If ``choices`` is a sequence, the field must have one of the values in the sequence, and its value is returned.
        """
        table: Mapping[Any, T] = choices if isinstance(choices, Mapping) else {choice: choice for choice in choices}
        value = self.take(name, default)
        if isinstance(value, bool) or not isinstance(value, str | int) or value not in table:
            listed = (f"{key} ({meaning})" if isinstance(key, int) else str(key) for key, meaning in table.items())
            self.refuse(name, f"must be one of {', '.join(listed)}")
        return table[value]

    def number(self, name: str, default: float | None = None, *, positive: bool = False) -> float:
        """Return the value of a field that must be a finite number."""
        return self._finite(name, default, (1,), positive=positive)[0]

    def numbers(self, name: str, default: Reals | None = None, *, positive: bool = False) -> Reals:
        """Return the value of a field that must be one finite number, or a list or array of three, one per channel."""
        return reals(self._finite(name, default, (1, 3), positive=positive))

    def colour(self, name: str, *, truncates: bool = False, merges: bool = False) -> Levels:
        """Return the value of a field that must be one pixel value or three, one per channel. The default is black.

        Args:
            name: Name of the field.
            truncates: Whether to truncate fractional values. If false, they are rejected.
            merges: Whether to return three equal values as a single one.
        """
        levels = finite(self.take(name, 0.0))
        if len(levels) not in (1, 3) or not all(0 <= x < 256 and (truncates or x.is_integer()) for x in levels):
            kind = "a number" if truncates else "an integer"
            self.refuse(name, f"must be {kind} from 0 to 255, or one for each of 3 channels")
        integers = tuple(int(level) for level in levels)
        return integers[0] if len({*integers} if merges else integers) == 1 else integers

    def span(self, name: str, default: tuple[float, float] | None = None) -> tuple[float, float]:
        """Return the value of a field that must consist of two finite numbers, such as a minimum and a maximum."""
        first, last = self._finite(name, default, (2,), positive=False)
        return first, last

    def integer(self, name: str) -> int:
        """Return the value of a field that must be an integer."""
        number = self.number(name)
        return int(number) if number.is_integer() else self.refuse(name, "must be an integer")

    def length(self, name: str, most: int) -> int:
        """Return the value of a field that must be an integer from 1 to ``most``."""
        value = self.take(name)
        return (
            value
            if type(value) is int and 1 <= value <= most
            else self.refuse(name, f"must be an integer of 1 to {most}")
        )

    def _finite(self, name: str, default: Any, counts: tuple[int, ...], *, positive: bool) -> tuple[float, ...]:
        values = finite(self.take(name, default))
        if len(values) not in counts:
            single = f"a finite number{', or one for each of 3 channels' * (3 in counts)}"
            self.refuse(name, f"must be {'two finite numbers' if 2 in counts else single}")
        if positive and min(values) <= 0:
            self.refuse(name, "must be greater than 0")
        return values

    def side(self, name: str) -> int:
        """Return the value of a field that must be the length of one side of an image in pixels."""
        values = sides(self.take(name))
        if len(values) != 1:
            self.refuse(name, f"must be an integer from 1 to {MAX_SIDE}, in pixels")
        return values[0]

    def sides(self, name: str) -> tuple[int, ...]:
        """Return the value of a field that must contain one or two lengths in pixels: (side,) or (height, width)."""
        values = sides(self.take(name))
        return values or self.refuse(name, _INVALID_SIDES)

    def pair(self, name: str) -> tuple[int, int]:
        """Return the value of a field that must be a (height, width) in pixels, or the side of a square."""
        values = self.sides(name)
        return values[0], values[-1]

    def each(self, read: Callable[[Fields, str], Any], *names: str) -> dict[str, Any]:
        """Read several fields with the same method, and return a dictionary of their values."""
        return {name: read(self, name) for name in names}

    def expect(self, name: str, *values: Any, why: str = "") -> None:
        """Raise PipelineError unless the field has one of the given values, is null, or is absent."""
        value = self.take(name)
        if value is not None and value not in values:
            self.refuse(name, why or f"must be {' or '.join(map(repr, values))}")

    def expect_false(self, name: str) -> None:
        """Raise PipelineError if a boolean field is true."""
        if self.flag(name):
            self.refuse(name)

    def ignore(self, *names: str) -> None:
        """Mark fields as read, because they do not affect the pixels."""
        self._unread.difference_update(names)

    def refuse(self, name: str, why: str = "is not supported") -> NoReturn:
        """Raise PipelineError with the name of the field and its value."""
        if name not in self._values:
            raise PipelineError(f"{self.where}: {quoted(name)} is missing: it {why}")
        raise PipelineError(f"{self.where}: {quoted(name)}: {shortened(repr(self._values[name]))} {why}")

    def finish(self) -> None:
        """Raise PipelineError if a field was not read."""
        for name in self._values:
            if name in self._unread:
                self.refuse(name)


@contextmanager
def reading(values: Mapping[str, Any], where: str) -> Iterator[Fields]:
    """Yield the ``Fields`` of a configuration. When the block ends, raise PipelineError if a field was not read.

    All errors that are raised in the block begin with ``where``.

    >>> with reading({"do_resize": True, "warp": 3}, "preprocessor_config.json") as fields:
    ...     is_resized = fields.flag("do_resize")
    Traceback (most recent call last):
        ...
    pixprep.errors.PipelineError: preprocessor_config.json: "warp": 3 is not supported
    """
    fields = Fields(values, where)
    with error_prefix(where):
        yield fields
        fields.finish()


@contextmanager
def error_prefix(where: str) -> Iterator[None]:
    """Prefix every PipelineError raised in the block with ``where``, unless its message already begins with it."""
    try:
        yield
    except PipelineError as error:
        text = str(error)
        text = text if text.startswith(f"{where}: ") else f"{where}: {text}"
        raise PipelineError(text, limit=error.limit) from None


def finite(value: Any) -> tuple[float, ...]:
    """Return a number, list or array as a tuple of floats, or ``()`` if an element is not a finite float32 number."""
    value = value.tolist() if hasattr(value, "tolist") else value
    values = value if isinstance(value, list | tuple) else [value]
    if not all(type(number) in (int, float) and abs(number) <= _MAX_NUMBER for number in values):
        return ()
    return tuple(float(number) for number in values)


def reals(values: Sequence[float]) -> Reals:
    """Return a sequence of several numbers as a tuple, and a sequence of one number as this number."""
    return tuple(values) if len(values) > 1 else values[0]


def shortest_decimal(value: float, dividend: float | None = None) -> float:
    """Return the shortest decimal that rounds to a float32 number, for a readable pipeline file.

    If ``dividend`` is given, and its float32 quotient by the decimal differs from that by the number, the number is
    returned unchanged.
    """
    decimal = float(str(np.float32(value)))
    is_same = dividend is None or np.float32(dividend / decimal) == np.float32(dividend / float(value))
    return decimal if is_same else float(value)


def sides(value: Any) -> tuple[int, ...]:
    """Return (side,) for one number, and (height, width) for two numbers.

    If they are not valid lengths in pixels, return ``()``. Floats without a fractional part are valid: 224.0 is read as
    224.
    """
    values = finite(value)
    if len(values) > 2 or not all(side.is_integer() and 1 <= side <= MAX_SIDE for side in values):
        return ()
    return tuple(int(side) for side in values)


def read_file(path: Path, *, max_bytes: int, is_complete: bool = True) -> bytes:
    """Read a file. The messages of errors begin with the file's name.

    Args:
        path: Path of the file.
        max_bytes: Maximum size of the file.
        is_complete: Whether to reject a larger file. If false, only the beginning of a larger file is read, at most
            ``max_bytes`` + 1 bytes.

    Raises:
        PipelineError: The file cannot be read, or it is larger than ``max_bytes``.
    """
    name = path.name or str(path)
    try:
        size = path.stat().st_size
        if is_complete and size > max_bytes:
            raise PipelineError(f"{name}: the file has {size:,} bytes; the maximum is {max_bytes:,}")
        return read_bytes(path, max_bytes=min(size, max_bytes))
    except OSError as error:
        raise PipelineError(f"{name}: cannot be read: {error.strerror}") from None


def read_json(path: Path) -> dict[str, Any]:
    """Read the JSON object in a file. The messages of errors begin with the file's name.

    Raises:
        PipelineError: The file cannot be read, or it does not contain a JSON object.
    """
    return parse_json(read_file(path, max_bytes=MAX_BYTES), path.name)


def opened(
    source: Mapping[str, Any] | str | Path, where: str, read: Callable[[Path], dict[str, Any]] = read_json
) -> tuple[Mapping[str, Any], str]:
    """Read a configuration, unless it is already a mapping.

    Args:
        source: Configuration, or the path of its file.
        where: Prefix of error messages if ``source`` is a mapping.
        read: Function that reads the file.

    Returns:
        The configuration, and the prefix of error messages: ``where``, or the name of the file.
    """
    if isinstance(source, Mapping):
        return source, where
    return read(Path(source)), Path(source).name


def parse_json(text: bytes, where: str) -> dict[str, Any]:
    """Parse a configuration that is a JSON object.

    Args:
        text: JSON text of at most ``MAX_BYTES`` bytes. A longer text is rejected, so that it suffices to read
            ``MAX_BYTES`` + 1 bytes of a file.
        where: Prefix of error messages.
    """
    if len(text) > MAX_BYTES:
        raise PipelineError(f"{where}: the configuration is larger than the maximum of {MAX_BYTES:,} bytes")
    try:
        config = json.loads(text)
    except json.JSONDecodeError as error:
        raise PipelineError(f"{where}: is {not_json(error)}") from None
    except (ValueError, RecursionError) as error:
        raise PipelineError(f"{where}: is not JSON: {error}") from None
    if not isinstance(config, dict):
        raise PipelineError(f"{where}: must be a JSON object")
    return config


def shortened(text: str) -> str:
    """Shorten text from a file to at most 80 characters for a message."""
    return text if len(text) <= 80 else f"{text[:76]} ..."
