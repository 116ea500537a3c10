"""Reads an op from its entry in the pipeline file, or in the list of a choice, and checks its fields."""

from __future__ import annotations

from functools import cache

import msgspec

from pixprep.errors import PipelineError
from pixprep.names import OPS as ELSEWHERE
from pixprep.names import field_hint, hint, meant
from pixprep.pipeline.ops.faults import message, quoted
from pixprep.pipeline.ops.op import KINDS, Op, op_name

SURROGATE = "a string contains an unpaired surrogate"


def known() -> dict[str, type[Op]]:
    """Return the class of each op by its name in the file. Base classes, which do not have a ``tag``, are excluded."""
    return _known(len(KINDS))


@cache
def _known(_: int) -> dict[str, type[Op]]:
    """Build the dict of ``known``, cached by the number of classes, because a user's own op adds a class later."""
    return {op_name(cls): cls for cls in KINDS if op_name(cls) != cls.__name__}


def read(entry: object, where: str) -> Op:
    """Return the op that an entry describes.

    Args:
        entry: Entry as parsed from JSON.
        where: Location of the entry, as the prefix of a message.

    Raises:
        PipelineError: The op or a field does not exist, or a value is invalid.
    """
    if not isinstance(entry, dict):
        raise PipelineError(f'{where}: an op must be an object such as {{"op": "decode"}}, not {type_name(entry)}')
    name, ops = entry.get("op"), known()
    if not isinstance(name, str) or name not in ops:
        if "op" not in entry:
            raise PipelineError(f'{where}: the field "op" is missing')
        near = hint(meant(str(name), ops, ELSEWHERE)) or f"; docs/operators.md lists the {len(ops)} ops"
        raise PipelineError(f"{where} {quoted(name)}: no such op{near}")
    cls = ops[name]
    where = f'{where} "{name}"'
    fields = ["op", *cls.__struct_encode_fields__]
    for key in entry:
        if key not in fields:
            raise PipelineError(f"{where}: no such field {quoted(key)}{field_hint(key, fields)}")
    try:
        return msgspec.convert(entry, cls)
    except msgspec.ValidationError as error:
        raise PipelineError(f"{where}: {message(error, entry, cls)}") from None
    except PipelineError as error:
        raise PipelineError(f"{where}: {error}") from None
    except UnicodeEncodeError:
        raise PipelineError(f"{where}: {SURROGATE}") from None


def type_name(value: object) -> str:
    """Return the name of a value's type in JSON, with its article."""
    names = {dict: "an object", list: "a list", str: "a string", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number")
