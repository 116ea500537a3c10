"""Read structs and constants from the C and CUDA sources, so that each is defined only once."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path
from struct import Struct
from typing import Any

_TYPES = {
    "int32_t": ctypes.c_int32,
    "uint32_t": ctypes.c_uint32,
    "int64_t": ctypes.c_int64,
    "int": ctypes.c_int32,
    "unsigned": ctypes.c_uint32,
    "long long": ctypes.c_int64,
    "float": ctypes.c_float,
    "double": ctypes.c_double,
}
_FIELD = re.compile(r"(?:const )?(?:struct )?([\w ]+?) (\*?)(\w+)(?:\[(\w+)\])?$")


def structs(*paths: Path) -> dict[str, type[ctypes.Structure]]:
    """Return the structs that are declared in these files, by name. Their memory layout is the same as in C."""
    text, found = _text(paths), dict[str, type[ctypes.Structure]]()
    for name, body in re.findall(r"^struct (\w+) \{(.*?)\n\};", text, re.DOTALL | re.MULTILINE):
        matches = [_FIELD.match(" ".join(line.split())) for line in body.split(";") if line.strip()]
        if not all(matches):
            continue  # the struct contains a function pointer or an array of arrays
        fields: list[tuple[str, Any]] = []
        for kind, star, field, count in (match.groups() for match in matches if match):
            one: Any = ctypes.c_void_p if star else found.get(kind) or _TYPES[kind]
            fields.append((field, one * _count(count, text) if count else one))
        found[name] = type(name, (ctypes.Structure,), {"_fields_": fields})
    return found


def packer(struct: type[ctypes.Structure]) -> Struct:
    """Return a packer for the fields of a struct. ctypes would take five times as long, and NumPy twice as long."""
    return Struct("".join(map(_format, (field[1] for field in struct._fields_))))


def _format(kind: Any) -> str:
    if issubclass(kind, ctypes.Structure):
        return packer(kind).format
    return f"{kind._length_}{kind._type_._type_}" if issubclass(kind, ctypes.Array) else str(kind._type_)


def numbers(*paths: Path) -> dict[str, int]:
    """Return the integer constants that these files ``#define``, by name."""
    found = re.findall(r"^#define (\w+) (\d+)\b", _text(paths), re.MULTILINE)
    return {name: int(value) for name, value in found}


def _text(paths: tuple[Path, ...]) -> str:
    """Return the text of the files without comments."""
    return "".join(re.sub("//.*", "", path.read_text(encoding="utf-8")) for path in paths)


def _count(word: str, text: str) -> int:
    """Return the value of an integer literal or of a named constant."""
    found = re.search(rf"\b{word} = (\d+)", text)
    return int(found[1] if found else word)
