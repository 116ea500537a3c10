"""Protocol Buffers' wire format, as far as a message of known fields needs it: numbers and bytes, no groups.

A message is a row of fields: a varint ``number << 3 | kind``, then the value; of kind 0 a varint (seven bits a byte,
the lowest first), of 1 and 5 eight and four bytes, of 2 a varint length and so many bytes. Repeated numbers come one by
one, or packed into one field of kind 2. Source: protobuf.dev/programming-guides/encoding.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any, Literal

Kind = Literal["integer", "float", "bytes"]

MAX_FIELDS = 50_000
"""Of one message. A field has at least two bytes, so that the size of a file bounds the fields of all its messages."""

_SIZES = {1: 8, 5: 4}
_FOUR_BYTES, _BYTES = 5, 2


class WireError(ValueError):
    """The bytes are no message of these fields."""


def read(data: bytes, fields: Mapping[int, Kind], *, is_open: bool = False) -> dict[int, list[Any]]:
    """The values of each field, in order; of one that is absent none.

    Args:
        data: one message; a nested one is a field of bytes.
        fields: by number; integers are read as signed 64 bits, floats have 32.
        is_open: pass over fields of other numbers.

    Raises:
        WireError: the bytes end early, or a field is not of its kind, or not known.
    """
    values: dict[int, list[Any]] = {number: [] for number in fields}
    offset = count = 0
    while offset < len(data):
        count += 1
        if count > MAX_FIELDS:
            raise WireError(f"a message of more than {MAX_FIELDS:,} fields")
        tag, offset = _varint(data, offset)
        number, wire = tag >> 3, tag & 7
        value: int | bytes
        if wire == 0:
            value, offset = _varint(data, offset)
        else:
            if wire == _BYTES:
                size, offset = _varint(data, offset)
            elif wire in _SIZES:
                size = _SIZES[wire]
            else:
                raise WireError(f"a field of the unknown kind {wire}")
            if size > len(data) - offset:
                raise WireError(f"a field of {size:,} bytes where {len(data) - offset:,} are left")
            value, offset = data[offset : offset + size], offset + size
        if number in fields:
            values[number] += _values(fields[number], wire, value)
        elif number == 0 or not is_open:
            raise WireError(f"no such field: {number}")
    return values


def _values(kind: Kind, wire: int, value: int | bytes) -> list[Any]:
    if isinstance(value, int):
        if kind != "integer":
            raise WireError("an integer in the place of another value")
        return [_signed(value)]
    if kind == "bytes" and wire == _BYTES:
        return [value]
    if kind == "float" and wire in (_FOUR_BYTES, _BYTES) and len(value) % 4 == 0:
        return list(struct.unpack(f"<{len(value) // 4}f", value))
    if kind == "integer" and wire == _BYTES:
        numbers, offset = [], 0
        while offset < len(value):
            number, offset = _varint(value, offset)
            numbers.append(_signed(number))
        return numbers
    raise WireError("a value of the wrong kind")


def _varint(data: bytes, offset: int) -> tuple[int, int]:
    """The number that begins at ``offset``, at most 64 bits, and where the next value begins."""
    value = 0
    for index, byte in enumerate(data[offset : offset + 10]):
        value |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return value & 0xFFFF_FFFF_FFFF_FFFF, offset + index + 1
    raise WireError("a number that does not end")


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value
