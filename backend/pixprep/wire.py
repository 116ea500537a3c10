"""Protocol Buffers' wire format, as far as a message of known fields needs it: numbers and bytes, no groups.

A message is a row of fields: a varint ``number << 3 | wire type``, then the value. Wire type 0 is a varint (seven bits
a byte, the lowest first), 1 is eight bytes, 5 is four bytes, 2 is a varint length and as many bytes. Repeated numbers
come one by one, or packed into one field of wire type 2. Source: protobuf.dev/programming-guides/encoding.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any, Literal, Union

Type = Union[Literal["integer", "float", "bytes", "text"], "Message"]
Message = Mapping[int, Type]
"""The fields of a message by their numbers; the type of a nested message is again one of these."""

MAX_FIELDS = 50_000
"""Fields of one message. A field has two bytes or more, so that a file's size bounds the fields of all its messages."""

_VARINT, _BYTES, _FOUR_BYTES = 0, 2, 5
_SIZES = {1: 8, _FOUR_BYTES: 4}


class WireError(ValueError):
    """The bytes are not a message with these fields."""


def read(data: bytes | memoryview, fields: Message, *, is_open: bool = False) -> dict[int, list[Any]]:
    """Return the values of each field, in order; an absent field has no values.

    Args:
        data: one message. Of a memoryview, bytes are memoryviews too, without a copy.
        fields: integers are read as signed 64 bits, floats have 32, text is UTF-8.
        is_open: pass over fields of other numbers in this message, not in those inside.

    Raises:
        WireError: the bytes end early, or a field is not of its type, or not known.
    """
    values: dict[int, list[Any]] = {number: [] for number in fields}
    end = count = 0
    while end < len(data):
        count += 1
        if count > MAX_FIELDS:
            raise WireError(f"a message of more than {MAX_FIELDS:,} fields")
        tag, start = _varint(data, end)
        number, wire_type = tag >> 3, tag & 7
        if wire_type == _VARINT:
            _, end = _varint(data, start)
        elif wire_type == _BYTES:
            size, start = _varint(data, start)
            end = start + size
        elif wire_type in _SIZES:
            end = start + _SIZES[wire_type]
        else:
            raise WireError(f"a field of the unknown wire type {wire_type}")
        if end > len(data):
            raise WireError(f"a field of {end - start:,} bytes where {len(data) - start:,} are left")
        if number in fields:
            values[number] += _values(fields[number], wire_type, data[start:end])
        elif number == 0 or not is_open:
            raise WireError(f"no such field: {number}")
    return values


def _values(type_: Type, wire_type: int, value: bytes | memoryview) -> list[Any]:
    if type_ == "integer" and wire_type in (_VARINT, _BYTES):
        numbers, offset = [], 0
        while offset < len(value):
            number, offset = _varint(value, offset)
            numbers.append(number - (1 << 64) if number >> 63 else number)
        return numbers
    if type_ == "float" and wire_type in (_FOUR_BYTES, _BYTES) and len(value) % 4 == 0:
        return list(struct.unpack(f"<{len(value) // 4}f", value))
    if type_ == "bytes" and wire_type == _BYTES:
        return [value]
    if isinstance(type_, Mapping) and wire_type == _BYTES:
        return [read(value, type_)]
    if type_ == "text" and wire_type == _BYTES:
        try:
            return [str(value, "utf-8")]
        except UnicodeDecodeError as error:
            raise WireError(str(error)) from None
    raise WireError(
        f"a value of wire type {wire_type} in the place of {type_ if isinstance(type_, str) else 'a message'}"
    )


def _varint(data: bytes | memoryview, offset: int) -> tuple[int, int]:
    """Return the number at ``offset``, at most 64 bits, and the offset of the next value."""
    value = 0
    for index, byte in enumerate(data[offset : offset + 10]):
        value |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return value & 0xFFFF_FFFF_FFFF_FFFF, offset + index + 1
    raise WireError("a number that does not end")


def onnx_metadata(data: bytes | memoryview) -> dict[str, str]:
    """Return the keys and values in the metadata of an ONNX file, without reading its weights.

    They are ``metadata_props``, field 14 of onnx.proto's ModelProto; each entry has a key, 1, and a value, 2.

    Raises:
        WireError: it is no such file.
    """
    entries = read(data, {14: {1: "bytes", 2: "bytes"}}, is_open=True)[14]
    texts = ([b"".join(entry[number][-1:]).decode(errors="replace") for number in (1, 2)] for entry in entries)
    return {key: value for key, value in texts if not key.startswith("onnx.")}  # of ONNX Runtime's quantizer
