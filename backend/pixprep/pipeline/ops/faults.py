"""Messages for what is wrong with an op: its fields, their types and values, in a file and in Python."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

import msgspec

from pixprep.errors import PipelineError, in_words
from pixprep.names import CHOICES, STATISTICS, field_hint, hint, meant


def quoted(value: object) -> str:
    """A value of a file as a message may show it: in ASCII, in quotation marks if it is a string, and not too long."""
    text = json.dumps(value)
    return text if len(text) <= 80 else f"{text[:76]} ..."


def suggest(word: str, known: Sequence[str]) -> str:
    """Suggest a fix for an unknown word."""
    elsewhere = {name: ours for name, ours in CHOICES.items() if ours in known}
    return hint(meant(word, known, elsewhere)) or f"; there are {', '.join(known)}"


def message(error: msgspec.ValidationError, fields: Mapping[str, Any], cls: type[msgspec.Struct]) -> str:
    """Message of msgspec, with the field first and in words: ``size: expected an integer, got a string``."""
    text, _, path = str(error).partition(" - at `$.")
    path = path.rstrip("`")
    if text.startswith("Object missing required field"):
        return f'the field "{text.split("`")[1]}" is missing'
    if text.startswith("Invalid enum value"):
        return f"{path}: {quoted(fields[path])} is not a choice{suggest(str(fields[path]), _choices(cls, path))}"
    words = in_words(text)
    lacks = words.endswith(("expected a list, got an integer", "expected a list, got a number"))
    remedy = _two_numbers(cls, path) if lacks else _both_sides(cls, fields, path)
    if lacks and not remedy:
        words = words.replace("a list,", "a list of numbers,")
    remedy = f": {STATISTICS[name]}" if (name := str(fields.get(path)).lower()) in STATISTICS else remedy
    return f"{path}: {words}{remedy}"


class Called(msgspec.StructMeta):
    """Metaclass of the ops: errors of a call name the op, the field and the fix, like errors of a file."""

    if not TYPE_CHECKING:  # editors then read the fields of each class

        def __call__(cls, *args, **fields):  # noqa: ANN002, ANN003, ANN204, N805
            try:
                return super().__call__(*args, **fields)
            except (TypeError, KeyError, OverflowError, PipelineError) as error:
                raise _of_call(cls, args, fields, error) from None


def _of_call(cls: type[msgspec.Struct], args: Sequence[Any], named: Mapping[str, Any], error: Exception) -> Exception:
    """Error for a call of an op's class that failed: of its fields' names, their types and choices, or the op's own."""
    name = str(cls.__struct_config__.tag)
    written = dict(zip(cls.__struct_fields__, cls.__struct_encode_fields__, strict=True))
    for each in named:
        if each not in written:
            return TypeError(f'{name}: no such field "{each}"{field_hint(each, written)}')
    fields = {written[field]: value for field, value in (dict(zip(written, args, strict=False)) | dict(named)).items()}
    try:
        msgspec.convert(msgspec.to_builtins({"op": name, **fields}, builtin_types=()), cls)
    except msgspec.ValidationError as wrong:
        counts = "of length" in str(wrong) and isinstance(error, PipelineError)  # the op says what the numbers are
        return PipelineError(f"{name}: {error if counts else message(wrong, fields, cls)}")
    except PipelineError as own:
        return PipelineError(f"{name}: {own}")
    except (TypeError, OverflowError):  # no type that a file can hold
        shown = ", ".join(f"{field}={value!r}"[:80] for field, value in fields.items())
        return PipelineError(f"{name}: a value of the wrong type in {shown}: numbers, text, true, false and lists are")
    return error


def _choices(cls: type[msgspec.Struct], field: str) -> list[str]:
    parts = get_args(get_type_hints(cls)[field])  # of ``Literal`` its words; of ``Literal | None`` a ``Literal`` first
    words = [str(word) for part in parts for word in (get_args(part) or (part,)) if isinstance(word, str | int)]
    return [*["a number"] * (float in parts), *words]


def _both_sides(cls: type[msgspec.Struct], fields: Mapping[str, Any], field: str) -> str:
    """Remedy where both sides are written as other libraries have them: ``resize(224, 224)``, ``(224, 224)``."""
    value = fields.get(field)
    sides = (fields.get("size"), value) if field == "side" else value
    is_pair = isinstance(sides, tuple | list) and len(sides) == 2 and all(isinstance(side, int) for side in sides)
    if not is_pair or not {"height", "width"} <= {*cls.__struct_fields__}:
        return ""
    return f": both sides are height={sides[0]}, width={sides[1]}"  # type: ignore[index]


def _two_numbers(cls: type[msgspec.Struct], field: str) -> str:
    """Remedy where one number is given, and from and to are meant, such as ``scale=0.5``."""
    default = {each.encode_name: each.default for each in msgspec.structs.fields(cls)}.get(field)
    return f": two are meant, such as {json.dumps(default)}" if isinstance(default, tuple) else ""
