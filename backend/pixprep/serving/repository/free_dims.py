"""Makes fixed dimensions of an ONNX model dynamic, and verifies the changed model with ONNX Runtime."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pixprep.errors import PipelineError

Array = npt.NDArray[Any]
_TOLERANCE = 1e-3
"""Maximum difference between the outputs for an image alone and for the same image in a batch, as a fraction of the
maximum value. Rounding errors from a different order of summation are smaller than this. If outputs depend on the other
images of the batch, the difference is larger."""


def freed_model(
    graph: Any,
    source: str,
    *,
    shapes: Mapping[str, Sequence[int]],
    feeds: Sequence[Mapping[str, Array]],
    run: Callable[[Any, Sequence[Mapping[str, Array]]], list[list[Array] | str]],
    folder: Path,
) -> Any:
    """Return a copy of a model with a dynamic batch dimension and with the image size of the pipeline.

    In Reshape nodes with a constant shape, the batch dimension also becomes dynamic. The copy is verified with two
    images. For each image, the outputs must be the same whether the image is processed alone or in a batch.

    Args:
        graph: The ``onnx.ModelProto``.
        source: Name of the model for messages.
        shapes: Shape of each input for one image, without the batch dimension. -1 is a dynamic dimension.
        feeds: Inputs of the model for two images, with the batch dimension.
        run: Function that runs a model once for each set of inputs, and returns the outputs or the reason of a failure
            for each set.
        folder: Folder of the files with external weights.

    Raises:
        PipelineError: ONNX Runtime cannot run the copy, or the outputs of an image depend on its batch.
    """
    import onnx  # noqa: PLC0415  (optional, only required for ONNX files)

    copy = onnx.ModelProto()
    copy.CopyFrom(graph)
    del copy.graph.value_info[:]  # shapes of intermediate tensors with the old dimensions
    for value in copy.graph.input:
        if value.name in shapes:
            _free_reshape_batch(copy.graph, value.type.tensor_type.shape.dim[0].dim_value, folder)
            _set_dims(value, shapes[value.name])
    for value in copy.graph.output:
        _set_dims(value, [-1] * (len(value.type.tensor_type.shape.dim) - 1))
    both = {name: np.concatenate([feed[name] for feed in feeds]) for name in feeds[0]}
    *alone, together = (
        _outputs(found, source, count)
        for found, count in zip(run(copy, [*feeds, both]), (*(1 for _ in feeds), len(feeds)), strict=True)
    )
    for index, value in enumerate(copy.graph.output):
        rows, many = [each[index] for each in alone], together[index]
        one, count = rows[0], len(feeds)
        is_batched = one.ndim > 0 and one.shape[0] == 1 and many.shape == (count, *one.shape[1:])
        is_second = one.ndim > 2 and one.shape[1] == 1 and many.shape == (one.shape[0], count, *one.shape[2:])
        if not is_batched and not is_second:
            raise PipelineError(
                f'{source}: --free-dims: output "{value.name}" has the shape {list(one.shape)} for one image and '
                f"{list(many.shape)} for two: its first dimension is not the batch"
            )
        max_value = max(float(np.abs(each).max(initial=0)) for each in rows)
        of_image = many.swapaxes(0, 1) if is_second else many
        if not all(
            np.allclose(
                of_image[row],
                rows[row][:, 0] if is_second else rows[row][0],
                rtol=0,
                atol=_TOLERANCE * max(max_value, 1e-6),
            )
            for row in range(count)
        ):
            raise PipelineError(
                f'{source}: --free-dims: output "{value.name}" of an image depends on other images of the batch: '
                "export the model with a dynamic batch dimension"
            )
        _set_dims(value, one.shape[1:])
        if is_second:
            first, second, *_ = value.type.tensor_type.shape.dim
            first.dim_value, second.dim_param = one.shape[0], "batch"
    return copy


def _free_reshape_batch(graph: Any, batch: int, folder: Path) -> None:
    """Make the batch dimension dynamic in the constant shapes of Reshape nodes that begin with the batch size."""
    import onnx  # noqa: PLC0415

    forms = {node.input[1] for node in graph.node if node.op_type == "Reshape"}
    constants = {tensor.name: tensor for tensor in graph.initializer}
    for node in graph.node:
        if node.op_type == "Constant" and len(node.attribute) == 1:
            (attribute,) = node.attribute
            if attribute.name == "value_ints":
                attribute.CopyFrom(
                    onnx.helper.make_attribute("value", onnx.numpy_helper.from_array(np.array(attribute.ints)))
                )
            constants[node.output[0]] = attribute.t
    for name in forms & constants.keys():
        form = onnx.numpy_helper.to_array(constants[name], str(folder)).ravel()
        if batch and form.size and form[0] == batch:
            free = np.array([0 if -1 in form else -1, *form[1:]], np.int64)
            constants[name].CopyFrom(onnx.numpy_helper.from_array(free, name))


def _set_dims(value: Any, sides: Any) -> None:
    """Set the shape of a graph input or output to a dynamic batch and the given dimensions, where -1 is dynamic."""
    shape = value.type.tensor_type.shape
    del shape.dim[:]
    shape.dim.add().dim_param = "batch"
    for number, side in enumerate(sides):
        dim = shape.dim.add()
        if side >= 0:
            dim.dim_value = side
        else:
            dim.dim_param = f"{value.name}_{number}"


def _outputs(outputs: list[Array] | str, source: str, count: int) -> list[Array]:
    if isinstance(outputs, str):
        raise PipelineError(
            f"{source}: --free-dims: the model does not run with {count} image{'s' * (count > 1)}: {outputs}: export "
            "it with a dynamic batch dimension"
        )
    return outputs
