"""Serialized DALI graphs, written without DALI by a writer as small as the reader."""

import struct

from pixprep.importers.dali import from_dali

EXPRESSION = "_ArithmeticGenericOp"
FLOAT, FLOAT16, UINT8, INT8 = 9, 8, 0, 4


def varint(value):
    value &= (1 << 64) - 1
    return bytes([value]) if value < 128 else bytes([value & 127 | 128]) + varint(value >> 7)


def field(number, value):
    if isinstance(value, float):
        return varint(number << 3 | 5) + struct.pack("<f", value)
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    value = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(value)) + value


def argument(name, value):
    if isinstance(value, list):
        return field(1, name) + b"".join(field(7, argument("element", x)) for x in value) + field(8, 1)
    number = {float: 3, int: 4, str: 5, bool: 6}[type(value)]
    return field(1, name) + field(number, value)


def operator(name, inputs, outputs, computed=None, **arguments):
    edges = [field(2, field(1, edge)) for edge in inputs]
    edges += [field(2, field(1, edge) + field(3, 1) + field(4, key)) for key, edge in (computed or {}).items()]
    edges += [field(3, field(1, edge)) for edge in outputs]
    body = [field(4, argument(key, value)) for key, value in arguments.items()]
    return field(5, field(1, name) + b"".join(edges + body))


def graph(*operators, outputs):
    return b"".join(operators) + b"".join(field(7, field(1, name)) for name in outputs)


def chain(*steps):
    """A graph of (operator, arguments), each of which takes what the one before gives."""
    steps = [("ExternalSource", {}), *steps]
    names = [f"t{index}" for index in range(len(steps))]
    made = [
        operator(name, names[index - 1 : index] if index else [], [names[index]], **arguments)
        for index, (name, arguments) in enumerate(steps)
    ]
    return graph(*made, outputs=names[-1:])


DECODE = ("decoders__Image", {})
RESIZE = ("Resize", {"size": [40.0, 50.0]})
CMN = ("CropMirrorNormalize", {"crop": [8.0, 9.0]})


def imported(*steps):
    """The ops between ``decode`` and ``tensor``, and that tensor, of a chain after the decoder."""
    ops = from_dali(chain(DECODE, *steps)).ops
    return ops[1:-1], ops[-1]
