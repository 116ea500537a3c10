"""Readers of foreign configurations, in which every field must be read by exactly one reader.

All errors have the same form: ``FILE: "field": VALUE must be …``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from pixprep.errors import PipelineError
from pixprep.pipeline.file import not_json, read_bytes
from pixprep.pipeline.ops import MAX_SIDE, Levels, Reals
from pixprep.pipeline.ops.faults import quoted
from pixprep.spec import Filter

T = TypeVar("T")

MAX_BYTES = 16 << 20
"""Maximum size of a configuration file in bytes. A file with the names of 21,843 classes has 2 MB."""
PILLOW_FILTERS: dict[int, Filter] = dict(
    enumerate(("nearest", "lanczos", "bilinear", "bicubic", "box", "hamming")),
)
"""Filters by Pillow's constants, which torchvision and transformers also use."""

_LARGEST = 3.4e38  # largest magnitude, close to the limit of float32
_SIDES = f"must be one side, or a height and a width, from 1 to {MAX_SIDE} pixels each"


class Fields:
    """The fields of one configuration. Each reader returns its default if a field is absent or null.

    A reader without a default raises an error if the field is absent.

    Args:
        values: Configuration.
        where: Prefix of error messages: the name of a file or of a model.
    """

    def __init__(self, values: Mapping[str, Any], where: str) -> None:
        self.where = where
        self._values = dict(values)
        self._left = set(self._values)

    def take(self, name: str, default: Any = None) -> Any:
        """Return a value of any type, for fields that no other reader fits."""
        self._left.discard(name)
        value = self._values.get(name)
        return default if value is None else value

    def has(self, name: str) -> bool:
        """Return whether the field is present and not null."""
        return self.take(name) is not None

    def flag(self, name: str, *, default: bool = False) -> bool:
        """Return a boolean."""
        return self._typed(name, default, bool, "true or false")

    def text(self, name: str, default: str | None = None) -> str:
        """Return a string."""
        return self._typed(name, default, str, "a string")

    def mapping(self, name: str) -> dict[str, Any]:
        """Return a nested configuration, which is empty by default."""
        return self._typed(name, {}, dict, "an object")

    def _typed(self, name: str, default: Any, type_: type[T], what: str) -> T:
        value = self.take(name, default)
        return value if isinstance(value, type_) else self.refuse(name, f"must be {what}")

    def choice(self, name: str, choices: Mapping[Any, T] | Sequence[T], default: str | int | None = None) -> T:
        """Return the meaning of a string or an integer: its entry in a mapping, or itself if it is in a sequence."""
        table: Mapping[Any, T] = choices if isinstance(choices, Mapping) else {choice: choice for choice in choices}
        value = self.take(name, default)
        if isinstance(value, bool) or not isinstance(value, str | int) or value not in table:
            listed = (f"{key} ({meaning})" if isinstance(key, int) else str(key) for key, meaning in table.items())
            self.refuse(name, f"must be one of {', '.join(listed)}")
        return table[value]

    def number(self, name: str, default: float | None = None, *, positive: bool = False) -> float:
        """Return one finite number."""
        return self._finite(name, default, (1,), positive=positive)[0]

    def numbers(self, name: str, default: Reals | None = None, *, positive: bool = False) -> Reals:
        """Return one finite number, or one per channel. An array is read as the list of its values."""
        return reals(self._finite(name, default, (1, 3), positive=positive))

    def colour(self, name: str, *, is_cut: bool = False) -> Levels:
        """Return one pixel value, or one per channel. The default is black.

        Args:
            name: Name of the field.
            is_cut: Whether fractional values are truncated. If not, they are rejected.
        """
        levels = finite(self.take(name, 0.0))
        if len(levels) not in (1, 3) or not all(0 <= x < 256 and (is_cut or x.is_integer()) for x in levels):
            kind = "a number" if is_cut else "an integer"
            self.refuse(name, f"must be {kind} from 0 to 255, or one for each of 3 channels")
        whole = tuple(int(level) for level in levels)
        return whole[0] if len(whole) == 1 else whole

    def span(self, name: str, default: tuple[float, float] | None = None) -> tuple[float, float]:
        """Return two finite numbers, such as a lower and an upper limit."""
        first, last = self._finite(name, default, (2,), positive=False)
        return first, last

    def whole(self, name: str) -> int:
        """Return an integer."""
        number = self.number(name)
        return int(number) if number.is_integer() else self.refuse(name, "must be an integer")

    def _finite(self, name: str, default: Any, counts: tuple[int, ...], *, positive: bool) -> tuple[float, ...]:
        values = finite(self.take(name, default))
        if len(values) not in counts:
            single = f"a finite number{', or one for each of 3 channels' * (3 in counts)}"
            self.refuse(name, f"must be {'two finite numbers' if 2 in counts else single}")
        if positive and min(values) <= 0:
            self.refuse(name, "must be greater than 0")
        return values

    def side(self, name: str) -> int:
        """Return the length of one side, in pixels."""
        values = sides(self.take(name))
        if len(values) != 1:
            self.refuse(name, f"must be an integer from 1 to {MAX_SIDE}, in pixels")
        return values[0]

    def sides(self, name: str) -> tuple[int, ...]:
        """Return (side,) or (height, width)."""
        values = sides(self.take(name))
        return values or self.refuse(name, _SIDES)

    def pair(self, name: str) -> tuple[int, int]:
        """Return (height, width). A single side is read as a square."""
        values = self.sides(name)
        return values[0], values[-1]

    def each(self, read: Callable[[Fields, str], Any], *names: str) -> dict[str, Any]:
        """Return the values of several fields, all read by one reader."""
        return {name: read(self, name) for name in names}

    def expect(self, name: str, *values: Any, why: str = "") -> None:
        """Raise an error if the field has any value other than these. An absent field is accepted."""
        value = self.take(name)
        if value is not None and value not in values:
            self.refuse(name, why or f"must be {' or '.join(map(repr, values))}")

    def off(self, name: str) -> None:
        """Raise an error if a flag is true."""
        if self.flag(name):
            self.refuse(name)

    def ignore(self, *names: str) -> None:
        """Mark fields as read that change no pixel."""
        self._left.difference_update(names)

    def refuse(self, name: str, why: str = "is not supported") -> NoReturn:
        """Raise PipelineError, naming the field and its value."""
        if name not in self._values:
            raise PipelineError(f"{self.where}: {quoted(name)} is missing: it {why}")
        raise PipelineError(f"{self.where}: {quoted(name)}: {brief(repr(self._values[name]))} {why}")

    def finish(self) -> None:
        """Raise an error for fields that were not read."""
        for name in self._values:
            if name in self._left:
                self.refuse(name)


@contextmanager
def reading(values: Mapping[str, Any], where: str) -> Iterator[Fields]:
    """Yield the fields of a configuration. At the end, unread fields raise an error; all errors begin with ``where``.

    >>> with reading({"do_resize": True, "warp": 3}, "preprocessor_config.json") as fields:
    ...     is_resized = fields.flag("do_resize")
    Traceback (most recent call last):
        ...
    pixprep.errors.PipelineError: preprocessor_config.json: "warp": 3 is not supported
    """
    fields = Fields(values, where)
    with place(where):
        yield fields
        fields.finish()


@contextmanager
def place(where: str) -> Iterator[None]:
    """Prefix the errors of ops, which do not contain a location, with ``where``."""
    try:
        yield
    except PipelineError as error:
        text = str(error)
        raise PipelineError(text if text.startswith(f"{where}: ") else f"{where}: {text}") from None


def finite(value: Any) -> tuple[float, ...]:
    """Return a number, list or array as a tuple of numbers, or ``()`` if a value is not a finite float32 number."""
    value = value.tolist() if hasattr(value, "tolist") else value
    values = value if isinstance(value, list | tuple) else [value]
    if not all(type(number) in (int, float) and abs(number) <= _LARGEST for number in values):
        return ()
    return tuple(float(number) for number in values)


def reals(values: Sequence[float]) -> Reals:
    """Return a single number as itself, and several numbers as a tuple."""
    return tuple(values) if len(values) > 1 else values[0]


def one_level(levels: Levels) -> Levels:
    """Return a color with equal channels as a single pixel value."""
    return levels if isinstance(levels, int) or len({*levels}) > 1 else levels[0]


def sides(value: Any) -> tuple[int, ...]:
    """Return (side,) for a number and (height, width) for two, or ``()`` if they are not valid.

    224.0 is read as 224.
    """
    values = finite(value)
    if len(values) > 2 or not all(side.is_integer() and 1 <= side <= MAX_SIDE for side in values):
        return ()
    return tuple(int(side) for side in values)


def read_file(path: Path, *, most: int, is_whole: bool = True) -> bytes:
    """Read a file. With ``is_whole=False``, read at most its first ``most`` + 1 bytes.

    Raises:
        PipelineError: The file cannot be read, or it is larger than ``most``. The message begins with its name.
    """
    name = path.name or str(path)
    try:
        size = path.stat().st_size
        if is_whole and size > most:
            raise PipelineError(f"{name}: the file has {size:,} bytes; the maximum is {most:,}")
        return read_bytes(path, most=min(size, most))
    except OSError as error:
        raise PipelineError(f"{name}: cannot be read: {error.strerror}") from None


def read_json(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file.

    Raises:
        PipelineError: The file cannot be read, or it does not contain a JSON object. The message begins with its name.
    """
    return parse_json(read_file(path, most=MAX_BYTES), path.name)


def opened(
    source: Mapping[str, Any] | str | Path, where: str, read: Callable[[Path], dict[str, Any]] = read_json
) -> tuple[Mapping[str, Any], str]:
    """Return a configuration and the prefix of errors about it: ``where``, or the name of its file."""
    if isinstance(source, Mapping):
        return source, where
    return read(Path(source)), Path(source).name


def parse_json(text: bytes, where: str) -> dict[str, Any]:
    """Parse the JSON object of a configuration. To detect a text above ``MAX_BYTES``, one byte more is sufficient."""
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


def brief(text: str) -> str:
    """Return foreign text for a message, shortened to its beginning if it is long."""
    return text if len(text) <= 80 else f"{text[:76]} ..."
