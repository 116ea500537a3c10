"""A classifier of images made one of clips: every frame of a clip goes through it, and what it gives is averaged.

clips [n, frames, ...] ─► Reshape [n * frames, ...] ─► the classifier ─► Reshape [n, frames, ...] ─► mean over frames

All of it is one ONNX file, so that ONNX Runtime runs it, and TensorRT makes a plan of it, as of any other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pixprep.errors import PipelineError
from pixprep.repository.ports import Classifier

_FLOATS = ("TYPE_FP32", "TYPE_FP16", "TYPE_FP64")
_SHAPES_ARE_INPUTS = 5
"""The opset from which on ``Reshape`` takes its shape as an input."""
_INITIALIZERS_ARE_NO_INPUTS = 4
"""The IR version from which on an initializer need not be listed as an input as well."""
_AXES_ARE_INPUTS = 18
"""The opset from which on ``ReduceMean`` takes its axes as an input."""


def averaged(path: Path, classifier: Classifier, clips: Mapping[str, tuple[int, ...]]) -> bytes:
    """An ONNX file whose inputs are clips and whose outputs are means over their frames; the names stay.

    The weights are as they were; those in files beside it are not read.

    Args:
        path: of the classifier of images.
        classifier: what ``read_onnx`` read from it.
        clips: of each input the dims of a clip, the frames first: (16, 3, 224, 224).

    Raises:
        PipelineError: an output has no mean, or no fixed dims, or the file's opset is too old.
    """
    import onnx  # noqa: PLC0415  (only who brings an ONNX file needs it)

    for tensor in classifier.outputs:
        if tensor.name in clips:
            raise PipelineError(f'{path.name}: output "{tensor.name}" is an input, too: export the model without it')
        if tensor.data_type not in _FLOATS:
            what = f"is {tensor.data_type.removeprefix('TYPE_')}, of which there is no mean"
            raise PipelineError(f'{path.name}: output "{tensor.name}" {what}: export the model without it')
        if -1 in (tensor.shape or ())[1:]:
            what = f"has dims of free length, {list(tensor.shape or ())}"
            raise PipelineError(f'{path.name}: output "{tensor.name}" {what}: export the model with fixed ones')
    model = onnx.load(path, load_external_data=False)
    opset = max((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), default=0)
    if opset < _SHAPES_ARE_INPUTS:
        raise PipelineError(f"{path.name}: is of opset {opset}, too old for --average-frames: export the model anew")
    graph, helper = model.graph, onnx.helper
    taken = set(_names(graph))

    def fresh(name: str) -> str:
        while name in taken:
            name += "_"
        taken.add(name)
        return name

    frame_of = {tensor.name: fresh(f"{tensor.name}_of_frames") for tensor in (*classifier.inputs, *classifier.outputs)}
    types = {value.name: value.type.tensor_type.elem_type for value in (*graph.input, *graph.output)}
    _rename(graph, frame_of)
    first, last, constants = [], [], []

    def constant(name: str, values: list[int]) -> str:
        constants.append(helper.make_tensor(fresh(name), onnx.TensorProto.INT64, [len(values)], values))
        return str(constants[-1].name)

    def declare(values: Any, index: int, name: str, shape: tuple[int, ...]) -> None:
        # the batch of clips has no name: a model's own stands for that of frames inside
        values[index].CopyFrom(helper.make_tensor_value_info(name, types[name], [None, *shape]))

    places = {value.name: index for index, value in enumerate(graph.input)}
    for name, dims in clips.items():
        shape = constant(f"{name}_shape", [-1, *dims[1:]])
        first.append(helper.make_node("Reshape", [name, shape], [frame_of[name]]))
        declare(graph.input, places[name], name, dims)
    frames = next(iter(clips.values()))[0]
    for index, tensor in enumerate(classifier.outputs):
        assert tensor.shape
        name, apart = tensor.name, fresh(f"{tensor.name}_by_clip")
        shape = constant(f"{name}_shape", [-1, frames, *tensor.shape[1:]])
        last.append(helper.make_node("Reshape", [frame_of[name], shape], [apart]))
        axes = [constant(f"{name}_axes", [1])] if opset >= _AXES_ARE_INPUTS else []
        written: dict[str, Any] = {} if axes else {"axes": [1]}
        last.append(helper.make_node("ReduceMean", [apart, *axes], [name], keepdims=0, **written))
        declare(graph.output, index, name, tensor.shape[1:])
    nodes = [*first, *graph.node, *last]
    del graph.node[:]
    graph.node.extend(nodes)
    graph.initializer.extend(constants)
    if model.ir_version < _INITIALIZERS_ARE_NO_INPUTS:
        graph.input.extend(helper.make_tensor_value_info(each.name, each.data_type, each.dims) for each in constants)
    return bytes(model.SerializeToString(deterministic=True))


def _names(graph: Any) -> Iterator[str]:
    """Of all tensors of a graph, and of graphs inside its nodes, whose names must not be those of tensors outside."""
    yield from (value.name for value in (*graph.input, *graph.output, *graph.initializer))
    for node in graph.node:
        yield from (*node.input, *node.output)
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                yield from _names(inner)


def _rename(graph: Any, names: Mapping[str, str]) -> None:
    """Rename tensors in the nodes of a graph, and in graphs inside these, which may read them too."""
    for value in (*graph.value_info, *graph.initializer):
        value.name = names.get(value.name, value.name)
    for node in graph.node:
        for side in (node.input, node.output):
            side[:] = [names.get(name, name) for name in side]
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                _rename(inner, names)
                for value in inner.output:  # it may give on what the outer graph has
                    value.name = names.get(value.name, value.name)
