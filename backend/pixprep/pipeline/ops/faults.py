"""Messages for invalid fields of an op, in a pipeline file or in a Python call."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

import msgspec
import numpy as np

from pixprep.errors import PipelineError, in_words
from pixprep.names import CHOICES, STATISTICS, field_hint, hint, meant


def quoted(value: object) -> str:
    """Return a value of a file for a message: as ASCII JSON, so that a string is quoted, and at most 80 characters."""
    text = json.dumps(value)
    return text if len(text) <= 80 else f"{text[:76]} ..."


def suggest(word: str, known: Sequence[str], kind: str = "values") -> str:
    """Return the end of a message about an unknown word: it suggests a similar word, or else lists all known ones."""
    elsewhere = {name: ours for name, ours in CHOICES.items() if ours in known}
    return hint(meant(word, known, elsewhere)) or f"; valid {kind}: {', '.join(known)}"


def message(error: msgspec.ValidationError, fields: Mapping[str, Any], cls: type[msgspec.Struct]) -> str:
    """Return the message for an error of msgspec, such as ``size: expected an integer, got a string``.

    Args:
        error: Error of msgspec.
        fields: Fields of the op, by their name in the file.
        cls: Class of the op.
    """
    text, _, path = str(error).partition(" - at `$.")
    path = path.rstrip("`")
    if text.startswith("Object missing required field"):
        return f'the field "{text.split("`")[1]}" is missing'
    if text.startswith("Invalid enum value"):
        return f"{path}: {quoted(fields[path])} is not supported{suggest(str(fields[path]), _choices(cls, path))}"
    words = in_words(text)
    is_number = words.endswith(("expected a list, got an integer", "expected a list, got a number"))
    fix = _pair_hint(cls, path) if is_number else _sides_hint(cls, fields, path)
    if is_number and not fix:
        words = words.replace("a list,", "a list of numbers,")
    fix = f": use {STATISTICS[name]}" if (name := str(fields.get(path)).lower()) in STATISTICS else fix
    return f"{path}: {words}{fix}"


class OpMeta(msgspec.StructMeta):
    """Metaclass of the ops. An invalid call in Python raises the same error as an invalid entry in a file.

    NumPy scalars and arrays in a call are converted to Python numbers and tuples, which a file can store.
    """

    if not TYPE_CHECKING:  # with this method, editors would not show the fields as the parameters of the call

        def __call__(cls, *args, **fields):  # noqa: ANN002, ANN003, ANN204, N805
            args, fields = plain(args), {name: plain(value) for name, value in fields.items()}
            try:
                return super().__call__(*args, **fields)
            except (TypeError, KeyError, OverflowError, PipelineError) as error:
                raise _call_error(cls, args, fields, error) from None


def plain(value: Any) -> Any:
    """Convert the NumPy scalars in a value to Python scalars, and the NumPy arrays to tuples."""
    if isinstance(value, tuple) or (isinstance(value, np.ndarray) and value.ndim):
        return tuple(map(plain, value))
    if isinstance(value, list):
        return [*map(plain, value)]
    return value.item() if isinstance(value, np.generic | np.ndarray) else value


def _call_error(
    cls: type[msgspec.Struct], args: Sequence[Any], named: Mapping[str, Any], error: Exception
) -> Exception:
    """Return the error to raise for a failed call of an op's class.

    Args:
        cls: Class of the op.
        args: Positional arguments of the call.
        named: Keyword arguments of the call.
        error: Error that the call raised.
    """
    name = str(cls.__struct_config__.tag)
    file_names = dict(zip(cls.__struct_fields__, cls.__struct_encode_fields__, strict=True))
    for field in named:
        if field not in file_names:
            return TypeError(f'{name}: no such field "{field}"{field_hint(field, file_names)}')
    values = dict(zip(file_names, args, strict=False)) | dict(named)
    fields = {file_names[field]: value for field, value in values.items()}
    try:
        msgspec.convert(msgspec.to_builtins({"op": name, **fields}, builtin_types=()), cls)
    except msgspec.ValidationError as invalid:
        # for a list of the wrong length, the message of the op's own check is clearer than that of msgspec
        is_length = "of length" in str(invalid) and isinstance(error, PipelineError)
        return PipelineError(f"{name}: {error if is_length else message(invalid, fields, cls)}")
    except PipelineError as own:
        return PipelineError(f"{name}: {own}")
    except (TypeError, OverflowError):  # JSON has no such type
        shown = ", ".join(f"{field}={value!r}"[:80] for field, value in fields.items())
        return PipelineError(
            f"{name}: unsupported type of a value in {shown}: use numbers, strings, booleans, or lists of them"
        )
    return error


def _choices(cls: type[msgspec.Struct], field: str) -> list[str]:
    """Return the names of the values that a field accepts, for the list in an error message."""
    # the strings of a ``Literal``, or the types of a union that contains a ``Literal``
    parts = get_args(get_type_hints(cls)[field])
    words = [str(word) for part in parts for word in (get_args(part) or (part,)) if isinstance(word, str | int)]
    return [*["a number"] * (float in parts), *words]


def _sides_hint(cls: type[msgspec.Struct], fields: Mapping[str, Any], field: str) -> str:
    """Return a hint if the size is a pair as in other libraries: ``resize(224, 224)`` or ``resize((224, 224))``."""
    value = fields.get(field)
    sides = (fields.get("size"), value) if field == "side" else value
    is_pair = isinstance(sides, tuple | list) and len(sides) == 2 and all(isinstance(side, int) for side in sides)
    if not is_pair or not {"height", "width"} <= {*cls.__struct_fields__}:
        return ""
    return f": use height={sides[0]}, width={sides[1]}"  # type: ignore[index]


def _pair_hint(cls: type[msgspec.Struct], field: str) -> str:
    """Return a hint if one number is passed to a field that requires a pair, such as ``scale=0.5``."""
    default = {each.encode_name: each.default for each in msgspec.structs.fields(cls)}.get(field)
    return f": use two numbers, such as {json.dumps(default)}" if isinstance(default, tuple) else ""
