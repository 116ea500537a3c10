"""Reads and writes pipeline files. Such a file is a JSON object with one op per line, without code or paths.

docs/pipeline-file.md describes the format. The reader rejects unknown fields, and its messages contain the JSON path of
the error. The writer produces a canonical text: equal ops result in equal bytes, and fields with default values are
omitted. The default values of a format version never change.
"""

from __future__ import annotations

import errno
import json
import os
import re
import stat
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from inspect import cleandoc
from io import BufferedReader
from pathlib import Path
from typing import Annotated, Any, Union

import msgspec

from pixprep.errors import PipelineError, in_words, printable
from pixprep.formats import content_of
from pixprep.pipeline.ops import OPS, Op, op_name
from pixprep.pipeline.ops.choices import Choice
from pixprep.pipeline.ops.entries import SURROGATE, read, type_name
from pixprep.pipeline.ops.faults import message, quoted, suggest
from pixprep.spec import Like

FORMAT = "pixprep/1"
MAX_BYTES = 1 << 20
MAX_OPS = 256
MAX_DIGITS = 20
MAX_OPTION = 4000
FIELDS = ("format", "origin", "ops")
SCHEMA_FIELD = "$schema"  # editors find the JSON Schema by this field; pixprep ignores the value of the field

_SYNTAX_ERRORS = {
    "": "the text ends early",
    "'": "JSON strings require double quotes",
    **dict.fromkeys("/#", "JSON does not support comments"),
}
"""Descriptions of common syntax errors, by the character at which the JSON parser stops."""
_CONFIGURATIONS = (
    *("image_processor_type", "image_processor", "feature_extractor_type", "video_processor_type", "image_mean"),
    *("pretrained_cfg", "do_resize"),
)
"""Fields that identify the configuration of an image processor of transformers or timm."""
_YAML = re.compile(r"\s*(?:---\s|#[^\n]*\n\s*)*(?:- )?\w+:(?:\s|$)")
_CONSTANT = re.compile(r'"(?:[^"\\]|\\.)*"|(-?Infinity|NaN)')

Word = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]


class Origin(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Origin of an imported pipeline, which does not affect the pixels.

    ``pixprep verify`` imports the source again, and compares the result with the pipeline.

    Args:
        library: Library that defines the preprocessing: ``torchvision``, ``timm``, ``transformers``, ``keras``,
            ``ultralytics`` or ``dali``.
        version: Version of the library that was installed during the import, or the version in the imported definition.
            It is ``unknown`` if neither is available.
        name: Name of the model, the weights or the file.
        profile: Library whose pixels the pipeline reproduces. It is the ``like`` of the pipeline's resize.
        source: Name of the imported file or folder, without its directory. Default: ``name``.
        options: Options that were passed to the importer, each as ``NAME=VALUE``, as for ``--option``.
    """

    library: Word
    version: Word
    name: Word
    profile: Like
    source: Word | None = None
    options: Annotated[
        tuple[Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_OPTION)], ...], msgspec.Meta(max_length=64)
    ] = ()

    def __post_init__(self) -> None:
        words = {"library": self.library, "version": self.version, "name": self.name, "source": self.source or ""}
        words |= {f"options[{index}]": option for index, option in enumerate(self.options)}
        for field, word in words.items():
            if not word.isprintable():  # because it is written to terminals
                raise PipelineError(f"{field}: must not contain control characters or other unprintable characters")


def open_regular(path: Path) -> BufferedReader:
    """Open a regular file for reading.

    Raises:
        OSError: The file cannot be opened, or is not a regular file. Other files are rejected, because reading a FIFO
            could block forever, and a device could return an endless amount of data.
    """
    file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb")
    if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        return file
    file.close()
    raise OSError(errno.EINVAL, "Not a regular file", str(path))


def read_bytes(path: Path, *, max_bytes: int) -> bytes:
    """Return at most ``max_bytes + 1`` bytes of a regular file, so that the caller can detect a longer file.

    Raises:
        OSError: The file cannot be opened, is not a regular file, or is a Git LFS pointer.
    """
    with open_regular(path) as file:
        # read() allocates the requested size first, so request the file's size; a file in /proc reports size 0
        content = file.read(min(max_bytes, max(os.fstat(file.fileno()).st_size, 1 << 16)) + 1) or b""
    if content.startswith(b"version https://git-lfs"):
        reason = 'it is a Git LFS pointer instead of the file: fetch the file with "git lfs pull"'
        raise OSError(errno.EINVAL, reason, str(path))
    return content


def loads(text: str | bytes) -> tuple[tuple[Op, ...], Origin | None]:
    """Parse the text of a pipeline file.

    Returns:
        Ops in order, and the origin or None. This function does not check whether the ops fit together; ``Pipeline``
        does.

    Raises:
        PipelineError: The file is invalid. The message contains the JSON path of the error.
    """
    if len(text) > MAX_BYTES:
        raise PipelineError(f"not a pipeline file: it has more than {MAX_BYTES:,} bytes")
    constants: list[object] = []  # NaN and Infinity, which are not JSON although Python's parser accepts them

    def constant(_: str) -> object:
        constants.append(object())
        return constants[-1]

    try:
        text = text if isinstance(text, str) else text.decode()
        document = json.loads(text, object_pairs_hook=_object, parse_constant=constant, parse_int=_integer)
    except json.JSONDecodeError as error:
        raise PipelineError(not_json(error)) from None
    except UnicodeDecodeError as error:
        if what := content_of(error.object):
            raise PipelineError(f"not a pipeline file, but {what}: pass the JSON file with the ops") from None
        raise PipelineError(f"not a pipeline file: byte {error.start:,} is not UTF-8") from None
    except RecursionError:
        raise PipelineError("not a pipeline file: the JSON is nested too deeply") from None
    except ValueError:
        raise PipelineError("not a pipeline file: a number has too many digits") from None
    if constants:
        raise PipelineError(_not_a_number(document, constants[0], text))
    if not isinstance(document, dict):
        raise PipelineError(f'a pipeline file must be an object with "format" and "ops", not {type_name(document)}')
    if "format" not in document and not document.keys().isdisjoint(_CONFIGURATIONS):
        raise PipelineError(
            "not a pipeline file, but a configuration of transformers or timm: convert it with `pixprep import`"
        )
    _check_format(document.get("format"))
    for key in document:
        if key not in (*FIELDS, SCHEMA_FIELD):
            raise PipelineError(f"$: no such field {quoted(key)}{suggest(key, FIELDS, 'fields')}")
    origin = _origin(document["origin"]) if "origin" in document else None
    ops = document.get("ops")
    if not isinstance(document.get(SCHEMA_FIELD, ""), str):
        raise PipelineError(f"$.{SCHEMA_FIELD}: must be a string")
    if not isinstance(ops, list) or not ops:
        raise PipelineError("$.ops: must be a list of at least one op")
    if len(ops) > MAX_OPS:
        raise PipelineError(f"$.ops: must contain at most {MAX_OPS} ops, not {len(ops)}")
    return tuple(read(entry, f"ops[{index}]") for index, entry in enumerate(ops)), origin


def not_json(error: json.JSONDecodeError) -> str:
    """Return the error message for a file that is not valid JSON.

    The messages for common mistakes are specific, and do not depend on the Python version.
    """
    text, at = error.doc, error.pos
    before, next_ = text[:at].rstrip(), text[at : at + 1]
    if not text.strip():
        return "not JSON: the file is empty"
    if at == len(text) - len(text.lstrip()) and _YAML.match(text):
        how = "this is YAML: write it as JSON"
    elif error.msg.startswith("Illegal trailing comma") or (before[-1:] == "," and next_ and next_ in "]}"):
        at, how = (at if next_ == "," else len(before) - 1), "remove the trailing comma"
    else:
        how = _SYNTAX_ERRORS.get(next_, error.msg[0].lower() + error.msg[1:])
    line, column = text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at)
    return f"not JSON: line {line} column {column}: {how}"


def dumps(ops: Sequence[Op], origin: Origin | None = None) -> str:
    """Return the canonical text of a pipeline file.

    The text has one op per line, with the fields in the order of the documentation.
    """
    lines = ",\n".join(f"    {json.dumps(to_dict(op), ensure_ascii=False)}" for op in ops)
    from_ = f'  "origin": {json.dumps(_origin_fields(origin), ensure_ascii=False)},\n' if origin else ""
    return f'{{\n  "format": "{FORMAT}",\n{from_}  "ops": [\n{lines}\n  ]\n}}\n'


def _origin_fields(origin: Origin) -> dict[str, Any]:
    """Return the non-empty fields of an origin, by name."""
    return {field: value for field, value in msgspec.to_builtins(origin).items() if value}


def to_dict(op: Op) -> dict[str, Any]:
    """Return the JSON object of an op in the file, without default values. ``name``, ``from`` and ``only`` are last."""
    fields = settings(op)
    for key in [*fields][1:]:
        fewer = {other: value for other, value in fields.items() if other != key}
        with suppress(msgspec.ValidationError, PipelineError):  # raised if a required field is missing
            fields = fewer if msgspec.convert(fewer, type(op)) == op else fields
    return fields | ({"ops": _entries(op, to_dict)} if isinstance(op, Choice) else {})


def settings(op: Op) -> dict[str, Any]:
    """Return the JSON object of an op with its default values, except for optional fields that are None.

    ``name``, ``from`` and ``only`` are last.
    """
    fields = msgspec.to_builtins(op, builtin_types=())
    first: dict[str, Any] = {"op": op_name(op)}
    last: dict[str, Any] = {}
    for key, value in fields.items():
        if value is not None or key not in _none_by_default(type(op)):
            (last if key in ("name", "from", "only") else first)[key] = value
    return first | ({"ops": _entries(op, settings)} if isinstance(op, Choice) else {}) | last


@cache
def _none_by_default(kind: type[Op]) -> frozenset[str]:
    """Return the fields of an op whose default is None, by their names in the file."""
    return frozenset(field.encode_name for field in msgspec.structs.fields(kind) if field.default is None)


def _entries(choice: Choice, entry: Callable[[Op], dict[str, Any]]) -> tuple[Any, ...]:
    """Return the list ``ops`` of a choice as in the file. ``entry`` converts each op to its JSON object."""
    return tuple(tuple(map(entry, each)) if isinstance(each, tuple) else entry(each) for each in choice.ops)


def convert(op: Op) -> Op:
    """Check the fields of an op that was created in Python as strictly as those of a file, and return the op."""
    try:
        fields = settings(op)
        return msgspec.convert(fields, type(op))
    except msgspec.ValidationError as error:
        raise PipelineError(message(error, fields, type(op))) from None
    except TypeError as error:  # the value has no JSON type, for example a NumPy array
        raise PipelineError(str(error)) from None


def schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of pipeline files.

    A schema cannot express all rules of the format. ``loads`` and ``Pipeline`` check the other rules.
    """
    every: Any = Union[tuple(OPS.values())]  # noqa: UP007  (not a type annotation)
    (ops, origin), components = msgspec.json.schema_components([list[every], Origin], ref_template="#/$defs/{name}")
    one = {"$ref": "#/properties/ops/items"}
    for cls in OPS.values():
        if issubclass(cls, Choice):
            items = one if cls.is_one_list else {"anyOf": [one, {"type": "array", "items": one}]}
            components[cls.__name__]["properties"]["ops"] |= {"items": items, "minItems": 1}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "pixprep pipeline",
        "type": "object",
        "required": ["format", "ops"],
        "additionalProperties": False,
        "properties": {
            SCHEMA_FIELD: {"type": "string"},
            "format": {"const": FORMAT},
            "origin": origin,
            "ops": ops | {"minItems": 1, "maxItems": MAX_OPS},
        },
        "$defs": {  # Python before 3.13 keeps the indentation of docstrings
            name: {key: cleandoc(value) if key == "description" else value for key, value in component.items()}
            for name, component in components.items()
        },
    }


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) < len(pairs):
        twice = next(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)
        raise PipelineError(f"the field {quoted(twice)} occurs twice in the same object")
    return result


def _integer(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise ValueError
    return int(digits)


def _not_a_number(document: object, constant: object, text: str) -> str:
    """Return the error message for the first NaN or Infinity of a document, with its JSON path, line and column."""
    places: list[tuple[str, object]] = [("$", document)]
    while (place := places.pop())[1] is not constant:
        path, value = place
        if isinstance(value, dict):
            places += [(f"{path}.{printable(key)}", each) for key, each in value.items()]
        elif isinstance(value, list):
            places += [(f"{path}[{index}]", each) for index, each in enumerate(value)]
    found = next(found for found in _CONSTANT.finditer(text) if found[1])
    line, column = text.count("\n", 0, found.start()) + 1, found.start() - text.rfind("\n", 0, found.start())
    return f"{place[0]}: line {line} column {column}: {found[1]} is not a JSON number"


def _check_format(value: object) -> None:
    if value == FORMAT:
        return
    if value is None:
        raise PipelineError(f'$.format is missing: add "format": "{FORMAT}"')
    if isinstance(value, str) and value.startswith("pixprep/"):
        raise PipelineError(
            f'$.format: {quoted(value)} is not supported by this version, which reads "{FORMAT}": upgrade pixprep'
        )
    raise PipelineError(f'$.format: must be "{FORMAT}"')


def _origin(value: object) -> Origin:
    try:
        return msgspec.convert(value, Origin)
    except msgspec.ValidationError as error:
        text, _, path = str(error).partition(" - at `$")
        raise PipelineError(f"$.origin{path.rstrip('`')}: {printable(in_words(text)[:200])}") from None
    except PipelineError as error:
        raise PipelineError(f"$.origin.{error}") from None
    except UnicodeEncodeError:
        raise PipelineError(f"$.origin: {SURROGATE}") from None
