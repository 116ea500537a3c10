"""Reader of the graph of a serialized DALI pipeline, its operators and their arguments, without DALI.

The file is a Protocol Buffers message, and nothing in it is executed. The field numbers are those of DALI's
``dali.proto``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pixprep import wire
from pixprep.errors import PipelineError
from pixprep.pipeline.ops.faults import quoted

MAX_OPERATORS, MAX_OUTPUTS = 256, 32
_RENAMED = (("experimental__", ""), ("_", ""), ("ImageDecoder", "decoders__Image"))
"""Prefixes of operator names, with their replacements from other versions of DALI.

The last one was used until DALI 1.0.
"""

# The fields of dali.proto's messages, by number.
# name, device, is_argument_input, arg_name, dtype, ndim, layout
_EDGE: wire.Message = {1: "text", 2: "bytes", 3: "integer", 4: "text", 5: "integer", 6: "integer", 7: "bytes"}
# name, type, floats, ints, strings, booleans, is_vector; and extra_args, the elements of a list
_ELEMENT: wire.Message = {1: "text", 2: "bytes", 3: "float", 4: "integer", 5: "text", 6: "integer", 8: "integer"}
_ARGUMENT: wire.Message = {**_ELEMENT, 7: _ELEMENT}
# name, input, output, args, inst_name, logical_id
_OPERATOR: wire.Message = {1: "text", 2: _EDGE, 3: _EDGE, 4: _ARGUMENT, 5: "bytes", 6: "integer"}
_PIPELINE: wire.Message = {5: _OPERATOR, 7: _EDGE}  # op, pipe_outputs


@dataclass(frozen=True)
class Operator:
    """One operator of the graph.

    Attributes:
        name: Name in the newest version of DALI, without the prefixes of experimental and internal operators.
        where: Name of the operator in messages.
        inputs, outputs: Names of tensors.
        computed: Name of the tensor for each argument that a tensor provides.
    """

    name: str
    where: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    computed: Mapping[str, str]
    arguments: Mapping[str, Any]


def graph(data: bytes, where: str) -> tuple[list[Operator], list[str]]:
    """Return the operators in topological order, and the names of the graph's outputs.

    Raises:
        wire.WireError: The data are not a serialized graph.
        PipelineError: The graph is too large.
    """
    message = wire.read(data, _PIPELINE, is_open=True)  # the other fields configure the execution
    if not message[5] or not message[7]:
        raise wire.WireError("it does not contain an operator" if not message[5] else "it does not contain an output")
    for what, limit, found in (("operators", MAX_OPERATORS, message[5]), ("outputs", MAX_OUTPUTS, message[7])):
        if len(found) > limit:
            raise PipelineError(f"{where}: the graph has {len(found):,} {what}; the maximum is {limit}")
    operators = [_operator(number, entry, where) for number, entry in enumerate(message[5], 1)]
    return operators, [_one(edge[1]) for edge in message[7]]


def batch_size(data: bytes) -> int | None:
    """Return the batch size that a graph was built for, if the graph contains it."""
    return max(wire.read(data, {2: "integer"}, is_open=True)[2], default=0) or None


def _operator(number: int, message: Mapping[int, list[Any]], where: str) -> Operator:
    name = _one(message[1])
    arguments = dict(map(_argument, message[4]))
    if len(arguments) < len(message[4]):
        raise wire.WireError(f"operator {number} has an argument twice")
    newest = name
    for old, new in _RENAMED:
        newest = new + newest.removeprefix(old) if newest.startswith(old) else newest
    return Operator(
        name=newest,
        where=f"{where}: operator {number} {quoted(name)}",
        inputs=tuple(_one(edge[1]) for edge in message[2] if not any(edge[3])),
        outputs=tuple(_one(edge[1]) for edge in message[3]),
        computed={_one(edge[4]): _one(edge[1]) for edge in message[2] if any(edge[3])},
        arguments=arguments,
    )


def _argument(message: Mapping[int, list[Any]]) -> tuple[str, Any]:
    """Return the name and value of an argument: a number, a boolean, a string, or a list of them."""
    values = [*message[3], *message[4], *message[5], *map(bool, message[6])]
    values += [_argument(element)[1] for element in message.get(7, ())]
    return _one(message[1]), values if any(message[8]) else _one(values)


def _one(values: Sequence[Any]) -> Any:
    if len(values) != 1:
        raise wire.WireError(f"expected one name or one argument value, found {len(values)}")
    return values[0]
