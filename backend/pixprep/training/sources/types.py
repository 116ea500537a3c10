"""Types of fields: what a source's texts and numbers become, as ``types=`` of every function of ``read`` declares."""

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
_WHOLE = re.compile(r"([+-]?\d+)(?:\.0*)?")
_BETWEEN = re.compile(r"[\s|;,]+")
_MAX_DIGITS = 18
NO_LABEL = int(np.iinfo(np.int64).min)
"""Marks a missing or invalid label among integers, where any other value, such as -1, may be a label."""
S = TypeVar("S", bound=Source)


@dataclass(frozen=True)
class Types:
    """Declared types of a source's fields.

    Args:
        fields: Type of each declared field.
        classes: Names of the classes, for fields of the types ``classes`` and ``multi_hot``.
    """

    fields: Mapping[str, FieldType]
    classes: tuple[str, ...] = ()

    def applied(self, sample: Sample) -> Sample:
        """The sample with its declared fields converted.

        Raises:
            ImageError: BAD_RECORD: a value is not of its field's type.
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
        """The integer of each label, ``NO_LABEL`` where it has none; None if labels are of another type."""
        kind = self.fields.get("label", "int")
        if kind not in ("int", "classes"):
            return None
        return np.array([_integer_or_none(kind, value, self.classes) for value in values], np.int64)


def typed(source: S, types: Mapping[str, FieldType] | None, fields: Iterable[str], box_format: BoxSource = "xyxy") -> S:
    """The source, whose samples get the declared types.

    Args:
        source: Source of samples.
        types: Declared types; None: no field is converted.
        fields: Names of the fields of its samples.
        box_format: Format of the field ``boxes``.

    Raises:
        DataError: a type or a field is unknown, or names of classes are missing.
    """
    source.box_format = box_format
    source.types = Types(checked(types, [*fields]), source.classes)
    for field, kind in source.types.fields.items():
        if kind in ("classes", "multi_hot") and not source.classes:
            raise DataError(f'types: "{field}" is "{kind}", which needs the class names: pass classes=["cat", "dog"]')
    return source


def checked(types: Mapping[str, FieldType] | None, fields: Sequence[str]) -> dict[str, FieldType]:
    """Declared types, each of a known field.

    Raises:
        DataError: see above.
    """
    if types is not None and not isinstance(types, Mapping):
        raise DataError(f'types must be a dict such as {{"label": "float"}}, not {types!r}')
    for field, kind in (types or {}).items():
        if kind not in TYPES:
            raise DataError(f'types: the type of "{field}" must be one of {", ".join(TYPES)}, not {kind!r}')
        if field in ("image", "name") or field not in fields:
            known = ", ".join(f'"{each}"' for each in fields if each not in ("image", "name")) or "none"
            raise DataError(f'types: no field "{printable(field)}" can have a type; the fields are {known}')
    return dict(types or {})


def named(**fields: Any) -> dict[str, Any]:
    """The fields that a source is to read; None leaves one out, as ``label=None`` does."""
    return {name: where for name, where in fields.items() if where is not None}


def converted(kind: FieldType, value: Any, classes: Sequence[str]) -> Any:
    """A value, or each value of a list, as its type has it; ``multi_hot`` is float32 (classes).

    Raises:
        ValueError: it is not of this type.
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


def _whole(value: Any, _: Sequence[str] = ()) -> int:
    if isinstance(value, str):
        found = _WHOLE.fullmatch(value.strip())
        if found and len(found[1]) <= _MAX_DIGITS:
            return int(found[1])
    elif isinstance(value, bool | int | float | np.number | np.bool_) and value == value // 1:
        return int(value)
    raise ValueError(f"{str(value)[:80]!r} is not an integer")


def _real(value: Any, _: Sequence[str] = ()) -> float:
    try:
        found = float("" if isinstance(value, str) and "_" in value else value)
    except (TypeError, ValueError):
        found = float("nan")
    if not isfinite(found):
        raise ValueError(f"{str(value)[:80]!r} is not a finite number")
    return found


def _class(value: Any, classes: Sequence[str]) -> int:
    """Number of a class: of its name, where that is a text, else the number itself."""
    if isinstance(value, bytes | memoryview):
        value = str(value, "utf-8")
    if isinstance(value, str):
        name = value if value in classes else value.strip()
        if name in classes:
            return classes.index(name)
    elif 0 <= (number := _whole(value)) < len(classes):
        return number
    raise ValueError(f"{str(value)[:80]!r} is not one of the classes")


_CONVERT: Mapping[FieldType, Callable[[Any, Sequence[str]], Any]] = {
    "int": _whole,
    "float": _real,
    "str": lambda value, _: str(value),
    "classes": _class,
}


def _integer_or_none(kind: FieldType, value: Any, classes: Sequence[str]) -> int:
    try:
        return int(converted(kind, value, classes))
    except ValueError:
        return NO_LABEL


def guessed(texts: Iterable[str]) -> tuple[FieldType | None, str]:
    """The type of a column of texts where it is certain; else None, and a text for which it is not."""
    distinct = dict.fromkeys(texts)
    if all(text.removeprefix("-").isdecimal() and len(text) <= _MAX_DIGITS for text in distinct):
        return "int", ""
    for text in distinct:
        parts = _BETWEEN.split(text)
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
    """Sorted names of the classes of a column of texts.

    Raises:
        DataError: names of ``multi_hot`` are separated by something else than blanks.
    """
    distinct = dict.fromkeys(texts)
    if kind == "multi_hot":
        for text in distinct:
            if re.search(r"[|;,]", text):
                raise DataError(
                    f'types: the names of "multi_hot" must be separated by spaces, unlike {text[:80]!r}: pass classes'
                )
        distinct = dict.fromkeys(name for text in distinct for name in text.split())
    return tuple(sorted(distinct.keys() - {""}))
