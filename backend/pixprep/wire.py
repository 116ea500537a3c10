"""Parser for the wire format of Protocol Buffers. It supports messages with known fields, without groups.

A message is a sequence of fields. Each field is a varint ``number << 3 | wire type``, followed by the value. Wire type
0 is a varint (seven bits per byte, lowest bits first), 1 is eight bytes, 5 is four bytes, and 2 is a length as a
varint, followed by this number of bytes. Repeated numbers are separate fields, or packed into one field of wire type 2.
Source: protobuf.dev/programming-guides/encoding.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any, Literal, Union

Type = Union[Literal["integer", "float", "bytes", "text"], "Message"]
Message = Mapping[int, Type]
"""Types of the fields of a message, by field number. The type of a nested message is also a ``Message``."""

MAX_FIELDS = 50_000
"""Maximum number of fields of one message.

A field has at least two bytes, so the file size bounds their total number.
"""

_VARINT, _BYTES, _FOUR_BYTES = 0, 2, 5
_SIZES = {1: 8, _FOUR_BYTES: 4}


class WireError(ValueError):
    """The bytes are not a valid message with the expected fields."""


def read(data: bytes | memoryview, fields: Message, *, is_open: bool = False) -> dict[int, list[Any]]:
    """Return the values of each field, in order; an absent field has no values.

    Args:
        data: Encoded message. If it is a memoryview, values of type ``bytes`` are memoryviews of it, without a copy.
        fields: Types of the fields. Integers are read as signed 64-bit, floats have 32 bits, text is UTF-8.
        is_open: Whether to skip unknown fields of this message. Unknown fields of nested messages remain errors.

    Raises:
        WireError: The data ends early, a value does not have the type of its field, or a field is unknown.
    """
    values: dict[int, list[Any]] = {number: [] for number in fields}
    end = count = 0
    while end < len(data):
        count += 1
        if count > MAX_FIELDS:
            raise WireError(f"a message has more than {MAX_FIELDS:,} fields")
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
            raise WireError(f"a field has the unknown wire type {wire_type}")
        if end > len(data):
            raise WireError(f"a field has {end - start:,} bytes, but only {len(data) - start:,} are left")
        if number in fields:
            values[number] += _values(fields[number], wire_type, data[start:end])
        elif number == 0 or not is_open:
            raise WireError(f"unexpected field number {number}")
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
        f"expected a value of type {type_ if isinstance(type_, str) else 'message'}, got wire type {wire_type}"
    )


def _varint(data: bytes | memoryview, offset: int) -> tuple[int, int]:
    """Return the varint at ``offset``, truncated to 64 bits, and the offset of the next value."""
    value = 0
    for index, byte in enumerate(data[offset : offset + 10]):
        value |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return value & 0xFFFF_FFFF_FFFF_FFFF, offset + index + 1
    raise WireError("a varint does not end")


def onnx_metadata(data: bytes | memoryview) -> dict[str, str]:
    """Return the keys and values in the metadata of an ONNX file, without reading its weights.

    The metadata is ``metadata_props``, field 14 of ModelProto in onnx.proto. Field 1 of an entry is its key, field 2
    its value.

    Raises:
        WireError: The data is not an ONNX file.
    """
    entries = read(data, {14: {1: "bytes", 2: "bytes"}}, is_open=True)[14]
    texts = ([b"".join(entry[number][-1:]).decode(errors="replace") for number in (1, 2)] for entry in entries)
    return {key: value for key, value in texts if not key.startswith("onnx.")}  # keys of ONNX Runtime's quantizer
