"""Edits the graph of an ONNX file: adds nodes before an input or after an output, and updates the declarations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from pixprep.serving.repository.models import Tensor
from pixprep.serving.repository.ports import FROM_ONNX, Classifier

Array = npt.NDArray[Any]
Shape = tuple[int, ...]

_AXES_AS_INPUT = 13
"""First opset in which Squeeze and Unsqueeze receive their axes as an input instead of an attribute."""

MOVES = ("Flatten", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze")
"""Operators that only rearrange values."""
_MAX_VALUES = 16
"""Maximum number of values in a constant, which is either a scalar or contains one value per channel."""


@dataclass
class Edit:
    """Edits an ONNX file.

    Args:
        model: The ``onnx.ModelProto``, which is modified.
        classifier: Declared inputs and outputs of the model, which each edit updates.
        notes: Notes for the user about each edit.
    """

    model: Any
    classifier: Classifier
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._at = 0

    @property
    def graph(self) -> Any:
        """The ``onnx.GraphProto``."""
        return self.model.graph

    @property
    def opset(self) -> int:
        """Version of the operator set of ONNX that the file uses."""
        return next((each.version for each in self.model.opset_import if each.domain in ("", "ai.onnx")), 1)

    def note(self, text: str) -> None:
        """Add a note for the user. The name of the file is prepended."""
        self.notes.append(f"{self.classifier.source}: {text}")

    def put_before(self, name: str, kind: str, shape: Shape, steps: Sequence[tuple[str, Any]]) -> None:
        """Insert nodes between an input, whose type and shape change, and the network."""
        inner = f"{name}/network"
        _rename(self.graph, name, inner, is_input=True)
        self._chain(name, steps, inner)
        self.declare(name, shape, kind)
        self._say(steps, f'before input "{name}"')

    def put_after(self, name: str, shape: Shape | None, steps: Sequence[tuple[str, Any]], *, kind: str = "") -> None:
        """Insert nodes between the network and an output, whose type or shape changes."""
        inner = f"{name}/network"
        _rename(self.graph, name, inner)
        self._at = len(self.graph.node)
        self._chain(inner, steps, name)
        self.declare(name, shape, kind)
        self._say(steps, f'after output "{name}"')

    def _say(self, steps: Sequence[tuple[str, Any]], where: str) -> None:
        words = {"Cast": "Cast to {}", "Squeeze": "Squeeze of axis {}", "Unsqueeze": "Unsqueeze of axis {}"}
        words["QuantizeLinear"] = "QuantizeLinear with {}"
        done = ", ".join(words.get(kind, f"{kind} {{}}").format(str(value).lower()) for kind, value in steps)
        self.note(f"{done} {where}")

    def _chain(self, source: str, steps: Sequence[tuple[str, Any]], target: str) -> None:
        for number, (kind, value) in enumerate(steps):
            end = target if number == len(steps) - 1 else f"{target}/{number}"
            if kind == "Cast":
                source = self.cast(source, value, end)
            elif kind == "Transpose":
                source = self.node(kind, [source], end, perm=value)
            elif kind == "QuantizeLinear":
                source = self.node(kind, [source, *map(self.constant, value)], end)
            else:
                source = self.squeeze(kind, source, value, end)

    def squeeze(self, kind: str, source: str, axis: int, target: str = "") -> str:
        """Insert a Squeeze or Unsqueeze node for one axis."""
        if self.opset < _AXES_AS_INPUT:
            return self.node(kind, [source], target, axes=[axis])
        return self.node(kind, [source, self.constant(np.array([axis]))], target)

    def cast(self, source: str, kind: str, target: str = "") -> str:
        """Insert a node that casts to an element type of ONNX, such as ``FLOAT``."""
        import onnx  # noqa: PLC0415  (optional, only required for ONNX files)

        return self.node("Cast", [source], target, to=onnx.TensorProto.DataType.Value(kind))

    def constant(self, array: Array, name: str = "") -> str:
        """Add a Constant node. In files of old versions, an initializer would also have to be listed as an input."""
        import onnx  # noqa: PLC0415  (as above)

        if array.dtype == np.int_:
            array = array.astype(np.int64)
        return self.node("Constant", [], name, value=onnx.numpy_helper.from_array(np.ascontiguousarray(array)))

    def node(self, kind: str, inputs: Sequence[str], name: str = "", **fields: Any) -> str:
        """Insert a node with one output before the network, or after the network if it converts an output."""
        import onnx  # noqa: PLC0415  (as above)

        name = name or f"pixprep/{len(self.graph.node)}"
        self.graph.node.insert(self._at, onnx.helper.make_node(kind, inputs, [name], **fields))
        self._at += 1
        return name

    def drop_input(self, name: str) -> None:
        """Remove an input. A node must compute its value instead."""
        (value,) = [each for each in self.graph.input if each.name == name]
        self.graph.input.remove(value)
        kept = tuple(each for each in self.classifier.inputs if each.name != name)
        self.classifier = replace(self.classifier, inputs=kept)

    def type_of(self, name: str) -> str:
        """Return the element type of an input, such as ``FLOAT``."""
        import onnx  # noqa: PLC0415  (as above)

        (value,) = [each for each in self.graph.input if each.name == name]
        return str(onnx.TensorProto.DataType.Name(value.type.tensor_type.elem_type))

    def declare(self, name: str, shape: Shape | None, kind: str = "") -> None:
        """Set the type and the shape of an input or output, in the file and in its description."""
        import onnx  # noqa: PLC0415  (as above)

        for value in (*self.graph.input, *self.graph.output):
            if value.name == name:
                kind = kind or onnx.TensorProto.DataType.Name(value.type.tensor_type.elem_type)
                sides = (
                    None
                    if shape is None
                    else [
                        side if side >= 0 else f"{name}_{axis}" if axis else "batch" for axis, side in enumerate(shape)
                    ]
                )
                value.CopyFrom(onnx.helper.make_tensor_value_info(name, onnx.TensorProto.DataType.Value(kind), sides))

        def changed(tensor: Tensor) -> Tensor:
            type_ = FROM_ONNX.get(kind, "")
            return replace(tensor, shape=shape, data_type=type_, dim_names=()) if tensor.name == name else tensor

        self.classifier = replace(
            self.classifier,
            inputs=tuple(map(changed, self.classifier.inputs)),
            outputs=tuple(map(changed, self.classifier.outputs)),
        )


def _rename(graph: Any, old: str, new: str, *, is_input: bool = False) -> None:
    """Rename a value in all nodes of a graph and of its subgraphs.

    The names of the graph's inputs and outputs are not changed.
    """
    for node in graph.node:
        for names in (node.input,) if is_input else (node.input, node.output):
            for index, name in enumerate(names):
                if name == old:
                    names[index] = new
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                _rename(inner, old, new, is_input=is_input)
                for value in inner.output:  # a subgraph may return a value of the outer graph
                    if value.name == old:
                        value.name = new


def constant_of(graph: Any, name: str) -> npt.NDArray[np.float64] | None:
    """Return the values of a constant as a 1-D array.

    The result is None if the values are computed, if they are in a separate file, or if there are too many values.
    """
    import onnx  # noqa: PLC0415

    for _ in range(8):  # an exporter may reshape a constant with additional nodes
        node = next((node for node in graph.node if name in node.output), None)
        constants = [tensor for tensor in graph.initializer if tensor.name == name]
        if constants or node is None or len(node.input) == 0 or node.op_type not in ("Cast", *MOVES):
            break
        name = node.input[0]
    try:
        if not constants and node is not None and node.op_type == "Constant":
            constants = [onnx.helper.get_attribute_value(attribute) for attribute in node.attribute]
        (value,) = constants
        if isinstance(value, onnx.TensorProto):
            many = any(length < 1 for length in value.dims) or prod(value.dims) > _MAX_VALUES
            if many or onnx.external_data_helper.uses_external_data(value):
                return None
            value = onnx.numpy_helper.to_array(value)
        return np.array(value, np.float64).ravel()
    except (TypeError, ValueError):  # too few bytes, or a type that NumPy does not support
        return None
