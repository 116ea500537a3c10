"""Writes serialized DALI graphs without DALI, using a minimal Protocol Buffers encoder."""

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


TYPES = {float: (3, "float"), int: (4, "int64"), str: (5, "string"), bool: (6, "bool")}


def argument(name, value):
    if isinstance(value, list):
        kind = TYPES.get(type(value[0]) if value else float, TYPES[float])[1]
        elements = b"".join(field(7, argument(f"element {index}", each)) for index, each in enumerate(value))
        return field(1, name) + field(2, kind) + elements + field(8, 1)
    number, kind = TYPES[type(value)]
    return field(1, name) + field(2, kind) + field(number, value) + field(8, 0)


def edge(name, argument=""):
    """Return an input or an output of an operator on the CPU, or a tensor that is the value of an argument."""
    return field(1, name) + field(2, "cpu") + field(3, int(bool(argument))) + (field(4, argument) if argument else b"")


def operator(name, inputs, outputs, computed=None, **arguments):
    edges = [field(2, edge(each)) for each in inputs]
    edges += [field(2, edge(each, key)) for key, each in (computed or {}).items()]
    edges += [field(3, edge(each)) for each in outputs]
    body = [field(4, argument(key, value)) for key, value in arguments.items()]
    return field(5, field(1, name) + b"".join(edges + body) + b"".join(field(5, each) for each in outputs[:1]))


def graph(*operators, outputs):
    return b"".join(operators) + b"".join(field(7, edge(name)) for name in outputs)


def chain(*steps):
    """Return a graph with these (operator, arguments). Each operator's input is the output of the previous operator."""
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
    """Return the ops between ``decode`` and ``tensor``, and the tensor op, for a graph in which these operators follow
    the decoder.
    """
    ops = from_dali(chain(DECODE, *steps)).ops
    return ops[1:-1], ops[-1]


DECODED = (operator("ExternalSource", [], ["in"]), operator("decoders__Image", ["in"], ["pixels"]))


def asked(*steps, inputs=("X", "Y"), types=None, photo="E", **options):
    """Return the imported ops of a graph in which these steps follow the decoder. Each step is (operator, constant
    arguments, argument inputs, further inputs).
    """
    nodes = [operator("ExternalSource", [], [name], **(types or {}).get(name, {})) for name in (photo, *inputs)]
    last = photo
    if photo == "E":
        nodes.append(operator("decoders__Image", [photo], ["decoded"]))
        last = "decoded"
    for index, (name, constants, computed, *more) in enumerate(steps):
        nodes.append(operator(name, [last, *(more[0] if more else [])], [f"t{index}"], computed=computed, **constants))
        last = f"t{index}"
    return from_dali(graph(*nodes, outputs=[last]), **options)


def mapped(*transforms, sized=True):
    """Return the matrix that these operators (name, inputs, result, arguments) compute for ``warp_affine``, and the
    graph.
    """
    resize = operator("Resize", ["pixels"], ["small"], **({"size": [40.0, 50.0]} if sized else {"resize_longer": 50.0}))
    size = [
        operator("Shapes", ["small"], ["size"], dtype=FLOAT),
        operator("Slice", ["size"], ["two"], start=[0], shape=[2], axes=[0]),
        operator(EXPRESSION, ["two"], ["middle"], expression_desc="fdiv(&0 $0:int32)", integer_constants=[2]),
        operator("Constant", [], ["constant"], fdata=[1.0, 0.0, 5.0, 0.0, 1.0, 6.0], shape=[2, 3], dtype=FLOAT),
    ]
    steps = [operator(f"transforms__{name}", inputs, [result], **of) for name, inputs, result, of in transforms]
    warp = operator("WarpAffine", ["small", transforms[-1][2]], ["t"], size=[30.0, 20.0])
    return graph(*DECODED, resize, *size, *steps, warp, outputs=["t"])
