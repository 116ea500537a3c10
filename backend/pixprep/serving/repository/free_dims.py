"""Makes fixed dimensions of an ONNX model dynamic, and verifies the changed model with ONNX Runtime."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pixprep.errors import PipelineError, SetupError, install
from pixprep.serving.repository.fit import transposed
from pixprep.serving.repository.models import Tensor
from pixprep.serving.repository.ports import Classifier
from pixprep.serving.repository.trial import LIMIT_S, run_onnx
from pixprep.spec import TensorSpec

Array = npt.NDArray[Any]
_ROWS = 2
_TOLERANCE = 1e-3
"""Maximum difference between the outputs for an image alone and for the same image in a batch, as a fraction of the
maximum value. Rounding errors from a different order of summation are smaller than this. If outputs depend on the other
images of the batch, the difference is larger."""


def with_dynamic_dims(model: Classifier) -> Classifier:
    """Return a classifier whose dimensions are all dynamic.

    It is used to find the pipeline outputs that match its inputs.
    """

    def free(tensor: Tensor) -> Tensor:
        return tensor if tensor.shape is None else replace(tensor, shape=(-1,) * len(tensor.shape))

    return replace(model, inputs=tuple(map(free, model.inputs)), outputs=tuple(map(free, model.outputs)))


def freed_model(graph: Any, source: str, specs: Mapping[str, TensorSpec]) -> Any:
    """Return a copy of a model with a dynamic batch dimension and with the image size of the pipeline.

    In Reshape nodes with a constant shape, the batch dimension also becomes dynamic. The copy is verified with two
    random images. For each image, the outputs must be the same whether the image is processed alone or in a batch.

    Args:
        graph: The ``onnx.ModelProto``, without external weights.
        source: Name of the model for messages.
        specs: Tensors of the pipeline, by the names of the model's inputs.

    Raises:
        PipelineError: ONNX Runtime cannot run the copy, or the outputs of an image depend on its batch.
        SetupError: ONNX Runtime is not installed.
    """
    import onnx  # noqa: PLC0415  (optional, only required for ONNX files)

    if find_spec("onnxruntime") is None:
        raise SetupError(f"--free-dims requires ONNX Runtime to test the model: {install('classifier')}")
    copy = onnx.ModelProto()
    copy.CopyFrom(graph)
    del copy.graph.value_info[:]  # shapes of intermediate tensors with the old dimensions
    for value in copy.graph.input:
        if value.name in specs:
            _free_reshape_batch(copy.graph, value.type.tensor_type.shape.dim[0].dim_value)
            _set_dims(value, specs[value.name].shape)
    for value in copy.graph.output:
        _set_dims(value, [-1] * (len(value.type.tensor_type.shape.dim) - 1))
    rng = np.random.default_rng(0)
    images = {
        name: rng.random((_ROWS, *spec.largest)).astype(spec.dtype)
        if spec.dtype != "uint8"
        else rng.integers(0, 256, (_ROWS, *spec.largest), np.uint8)
        for name, spec in specs.items()
    }
    with tempfile.TemporaryDirectory(prefix="pixprep-free-") as folder:
        path = Path(folder, source)
        path.write_bytes(copy.SerializeToString())
        alone = [
            _outputs(path, source, {name: array[row : row + 1] for name, array in images.items()})
            for row in range(_ROWS)
        ]
        together = _outputs(path, source, images)
    for index, value in enumerate(copy.graph.output):
        rows = [each[index] for each in alone]
        many, one = together[index], rows[0]
        is_batched = one.ndim > 0 and one.shape[0] == 1 and many.shape == (_ROWS, *one.shape[1:])
        if one.ndim > 2 and one.shape[1] == 1 and many.shape == (one.shape[0], _ROWS, *one.shape[2:]):
            first, *lines = transposed(Tensor(value.name, "", (one.shape[0], -1, *one.shape[2:])), source)
            raise PipelineError(f"{source}: {first}", *lines)
        if not is_batched:
            raise PipelineError(
                f'{source}: --free-dims: output "{value.name}" has the shape {list(one.shape)} for one image and '
                f"{list(many.shape)} for two: its first dimension is not the batch"
            )
        max_value = max(float(np.abs(each).max(initial=0)) for each in rows)
        if not all(
            np.allclose(many[row], rows[row][0], rtol=0, atol=_TOLERANCE * max(max_value, 1e-6)) for row in range(_ROWS)
        ):
            raise PipelineError(
                f'{source}: --free-dims: output "{value.name}" of an image depends on other images of the batch: '
                "export the model with a dynamic batch dimension"
            )
        _set_dims(value, one.shape[1:])
    return copy


def _free_reshape_batch(graph: Any, batch: int) -> None:
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
        form = onnx.numpy_helper.to_array(constants[name]).ravel()
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


def _outputs(path: Path, source: str, inputs: Mapping[str, Array]) -> list[Array]:
    outputs, _ = run_onnx(path, inputs, LIMIT_S)
    if isinstance(outputs, str):
        count = len(next(iter(inputs.values())))
        raise PipelineError(
            f"{source}: --free-dims: the model does not run with {count} image{'s' * (count > 1)}: {outputs}: export "
            "it with a dynamic batch dimension"
        )
    return outputs
