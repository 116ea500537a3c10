"""Declared types of fields: the argument ``types=`` of the functions of ``read``, and the conversion of values."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any, Literal, TypeVar, get_args

import numpy as np
import numpy.typing as npt

from pixprep.errors import DataError, ImageError, printable
from pixprep.spec import BoxSource
from pixprep.training.sources import Sample, Source, naming

FieldType = Literal["int", "float", "str", "classes", "multi_hot"]
TYPES: tuple[str, ...] = get_args(FieldType)
_INTEGER = re.compile(r"([+-]?\d+)(?:\.0*)?")
_SEPARATOR = re.compile(r"[\s|;,]+")
_MAX_DIGITS = 18
NO_LABEL = int(np.iinfo(np.int64).min)
"""Value that marks a missing or invalid label in an array of labels. Other values, such as -1, may be labels."""
S = TypeVar("S", bound=Source)


@dataclass(frozen=True)
class Types:
    """The declared types of a source's fields.

    Args:
        fields: Type of each declared field, by name.
        classes: Names of the classes, for fields of type ``classes`` or ``multi_hot``.
    """

    fields: Mapping[str, FieldType]
    classes: tuple[str, ...] = ()

    def applied(self, sample: Sample) -> Sample:
        """Convert the declared fields of a sample in place, and return it.

        Raises:
            ImageError: BAD_RECORD: A value cannot be converted to the type of its field.
        """
        with naming(sample["name"]):
            for field, kind in self.fields.items():
                if field in sample:
                    try:
                        sample[field] = converted(kind, sample[field], self.classes)
                    except ValueError as error:
                        raise ImageError("BAD_RECORD", f'"{field}": {error}') from None
        return sample

    def labels(self, values: Iterable[Any]) -> npt.NDArray[np.int64] | None:
        """Convert labels to int64, with ``NO_LABEL`` for invalid ones. None if the declared type is not an integer."""
        kind = self.fields.get("label", "int")
        if kind not in ("int", "classes"):
            return None
        return np.array([_integer_or_none(kind, value, self.classes) for value in values], np.int64)


def typed(source: S, types: Mapping[str, FieldType] | None, fields: Iterable[str], box_format: BoxSource = "xyxy") -> S:
    """Set the declared types and the box format of a source, and return it.

    Args:
        source: Source to modify.
        types: Declared type of each field. None means that no field is converted.
        fields: Names of the fields of its samples.
        box_format: Format of the field ``boxes``.

    Raises:
        DataError: A type or a field is unknown, or the class names are missing.
    """
    source.box_format = box_format
    source.types = Types(checked(types, [*fields]), source.classes)
    for field, kind in source.types.fields.items():
        if kind in ("classes", "multi_hot") and not source.classes:
            raise DataError(
                f'types: the type "{kind}" of "{field}" requires class names: pass classes, such as ["cat", "dog"]'
            )
    return source


def checked(types: Mapping[str, FieldType] | None, fields: Sequence[str]) -> dict[str, FieldType]:
    """Return the declared types as a dict.

    Raises:
        DataError: ``types`` is not a mapping, or contains an unknown type or field.
    """
    if types is not None and not isinstance(types, Mapping):
        raise DataError(f'types must be a dict such as {{"label": "float"}}, not {types!r}')
    for field, kind in (types or {}).items():
        if kind not in TYPES:
            raise DataError(f'types: the type of "{field}" must be one of {", ".join(TYPES)}, not {kind!r}')
        if field in ("image", "name") or field not in fields:
            known = ", ".join(f'"{each}"' for each in fields if each not in ("image", "name")) or "none"
            raise DataError(f'types: unknown field "{printable(field)}"; the fields that can have a type are {known}')
    return dict(types or {})


def named(**fields: Any) -> dict[str, Any]:
    """Return the fields that a source reads. Fields that are None, such as ``label=None``, are omitted."""
    return {name: where for name, where in fields.items() if where is not None}


def converted(kind: FieldType, value: Any, classes: Sequence[str]) -> Any:
    """Convert a value, or each value of a list, to a type. ``multi_hot`` values become float32 (classes,).

    Raises:
        ValueError: The value cannot be converted.
    """
    if isinstance(value, bytes | memoryview):
        value = str(value, "utf-8")
    if kind == "multi_hot":
        result = np.zeros(len(classes), np.float32)
        for each in value.split() if isinstance(value, str) else [value] if np.ndim(value) == 0 else value:
            result[_class(each, classes)] = 1
        return result
    convert = _CONVERT[kind]
    if not isinstance(value, list | tuple | np.ndarray):
        return convert(value, classes)
    values = [converted(kind, each, classes) for each in value]
    return values if kind == "str" else np.array(values, np.float64 if kind == "float" else np.int64)


def _integer(value: Any, _: Sequence[str] = ()) -> int:
    if isinstance(value, str):
        found = _INTEGER.fullmatch(value.strip())
        if found and len(found[1]) <= _MAX_DIGITS:
            return int(found[1])
    elif isinstance(value, bool | int | float | np.number | np.bool_) and value == value // 1:
        return int(value)
    raise ValueError(f"{str(value)[:80]!r} is not an integer")


def _float(value: Any, _: Sequence[str] = ()) -> float:
    try:
        found = float("" if isinstance(value, str) and "_" in value else value)
    except (TypeError, ValueError):
        found = float("nan")
    if not isfinite(found):
        raise ValueError(f"{str(value)[:80]!r} is not a finite number")
    return found


def _class(value: Any, classes: Sequence[str]) -> int:
    """Return the index of a class, given its name or its index."""
    if isinstance(value, bytes | memoryview):
        value = str(value, "utf-8")
    if isinstance(value, str):
        name = value if value in classes else value.strip()
        if name in classes:
            return classes.index(name)
    elif 0 <= (number := _integer(value)) < len(classes):
        return number
    raise ValueError(f"{str(value)[:80]!r} is not one of the classes")


_CONVERT: Mapping[FieldType, Callable[[Any, Sequence[str]], Any]] = {
    "int": _integer,
    "float": _float,
    "str": lambda value, _: str(value),
    "classes": _class,
}


def _integer_or_none(kind: FieldType, value: Any, classes: Sequence[str]) -> int:
    try:
        return int(converted(kind, value, classes))
    except ValueError:
        return NO_LABEL


def guessed(texts: Iterable[str]) -> tuple[FieldType | None, str]:
    """Determine the type of a column of texts.

    Returns:
        ``int`` or ``classes``, and an empty string; or, if the type is ambiguous, None and a text that shows why.
    """
    distinct = dict.fromkeys(texts)
    if all(text.removeprefix("-").isdecimal() and len(text) <= _MAX_DIGITS for text in distinct):
        return "int", ""
    for text in distinct:
        parts = _SEPARATOR.split(text)
        is_list = len(parts) > 1 and not distinct.keys().isdisjoint(parts)
        if is_list or _is_number(text) or not any(map(str.isalpha, text)):
            return None, text
    return "classes", ""


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def found_classes(kind: FieldType, texts: Iterable[str]) -> tuple[str, ...]:
    """Return the sorted names of the classes that occur in a column of texts.

    Raises:
        DataError: The names in a ``multi_hot`` column are separated by other characters than spaces.
    """
    distinct = dict.fromkeys(texts)
    if kind == "multi_hot":
        for text in distinct:
            if re.search(r"[|;,]", text):
                raise DataError(
                    f'types: class names of "multi_hot" must be separated by spaces, not as in {text[:80]!r}: pass '
                    "classes if a name contains this character"
                )
        distinct = dict.fromkeys(name for text in distinct for name in text.split())
    return tuple(sorted(distinct.keys() - {""}))
