"""Reads the operators and their arguments from a serialized DALI pipeline. DALI need not be installed.

The file is a Protocol Buffers message with the field numbers of DALI's ``dali.proto``. Nothing in it is executed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pixprep import wire
from pixprep.errors import PipelineError
from pixprep.pipeline.ops.faults import quoted

MAX_OPERATORS, MAX_OUTPUTS = 256, 32
_PREFIXES = (("experimental__", ""), ("_", ""), ("ImageDecoder", "decoders__Image"))
"""Old and current prefixes of operator names that differ between versions of DALI.

``ImageDecoder`` was the name of the decoder up to DALI 1.0.
"""

# Field numbers of the messages in dali.proto. The comments contain the names of the fields.
# name, device, is_argument_input, arg_name, dtype, ndim, layout
_EDGE: wire.Message = {1: "text", 2: "bytes", 3: "integer", 4: "text", 5: "integer", 6: "integer", 7: "bytes"}
# name, type, floats, ints, strings, booleans, is_vector; field 7 of an argument is extra_args, the elements of a list
_ELEMENT: wire.Message = {1: "text", 2: "bytes", 3: "float", 4: "integer", 5: "text", 6: "integer", 8: "integer"}
_ARGUMENT: wire.Message = {**_ELEMENT, 7: _ELEMENT}
# name, input, output, args, inst_name, logical_id
_OPERATOR: wire.Message = {1: "text", 2: _EDGE, 3: _EDGE, 4: _ARGUMENT, 5: "bytes", 6: "integer"}
_PIPELINE: wire.Message = {5: _OPERATOR, 7: _EDGE}  # op, pipe_outputs


@dataclass(frozen=True)
class Operator:
    """Operator of a DALI graph.

    Attributes:
        name: Name of the operator in the current version of DALI, without the prefix of experimental or internal
            operators.
        where: Prefix of error messages, with the number and the name of the operator.
        inputs: Names of the input tensors.
        outputs: Names of the output tensors.
        computed: Names of the tensors that provide arguments, by the name of the argument.
        arguments: Values of the constant arguments, by name.
    """

    name: str
    where: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    computed: Mapping[str, str]
    arguments: Mapping[str, Any]


def graph(data: bytes, where: str) -> tuple[list[Operator], list[str]]:
    """Read a serialized graph.

    Args:
        data: Content of the file.
        where: Prefix of error messages.

    Returns:
        The operators in topological order, and the names of the graph's outputs.

    Raises:
        wire.WireError: The data are not a serialized graph.
        PipelineError: The graph has too many operators or outputs.
    """
    message = wire.read(data, _PIPELINE, is_open=True)  # all other fields only affect how DALI executes the graph
    if not message[5] or not message[7]:
        raise wire.WireError("it does not contain an operator" if not message[5] else "it does not contain an output")
    for what, limit, found in (("operators", MAX_OPERATORS, message[5]), ("outputs", MAX_OUTPUTS, message[7])):
        if len(found) > limit:
            raise PipelineError(f"{where}: the graph has {len(found):,} {what}; the maximum is {limit}")
    operators = [_operator(number, entry, where) for number, entry in enumerate(message[5], 1)]
    return operators, [_single(edge[1]) for edge in message[7]]


def batch_size(data: bytes) -> int | None:
    """Return the maximum batch size in a serialized graph, or None if the graph does not contain it."""
    return max(wire.read(data, {2: "integer"}, is_open=True)[2], default=0) or None


def _operator(number: int, message: Mapping[int, list[Any]], where: str) -> Operator:
    name = _single(message[1])
    arguments = dict(map(_argument, message[4]))
    if len(arguments) < len(message[4]):
        raise wire.WireError(f"operator {number} has two arguments with the same name")
    current = name
    for old, new in _PREFIXES:
        current = new + current.removeprefix(old) if current.startswith(old) else current
    return Operator(
        name=current,
        where=f"{where}: operator {number} {quoted(name)}",
        inputs=tuple(_single(edge[1]) for edge in message[2] if not any(edge[3])),
        outputs=tuple(_single(edge[1]) for edge in message[3]),
        computed={_single(edge[4]): _single(edge[1]) for edge in message[2] if any(edge[3])},
        arguments=arguments,
    )


def _argument(message: Mapping[int, list[Any]]) -> tuple[str, Any]:
    """Return the name and the value of an argument. The value is a number, a boolean, a string, or a list of these."""
    values = [*message[3], *message[4], *message[5], *map(bool, message[6])]
    values += [_argument(element)[1] for element in message.get(7, ())]
    return _single(message[1]), values if any(message[8]) else _single(values)


def _single(values: Sequence[Any]) -> Any:
    if len(values) != 1:
        raise wire.WireError(f"expected one name or one argument value, found {len(values)}")
    return values[0]
