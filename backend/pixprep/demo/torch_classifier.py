"""A Triton Python-backend model that runs the ``model.onnx`` beside it with PyTorch, on the GPU of its instance.

``pixprep build`` copies this file to ``classifier/1/model.py`` for GPUs without TensorRT; it imports nothing of
pixprep. Inputs, outputs and their types are those of the ONNX file, and config.pbtxt must declare the same.

    tensor on the GPU -> from_dlpack, no copy -> one batch of all requests -> outputs of each

Parameters of config.pbtxt: ``outputs``, ``cpu`` (the default) or ``gpu``: where they leave. ``threads``, how many cores
an instance on the CPU may use; by default all that the process may use.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import onnx
import torch
import triton_python_backend_utils as pb_utils
from onnx import helper, numpy_helper
from torch.utils import dlpack

_TYPES = {
    "BOOL": ("TYPE_BOOL", torch.bool),
    "UINT8": ("TYPE_UINT8", torch.uint8),
    "INT8": ("TYPE_INT8", torch.int8),
    "INT32": ("TYPE_INT32", torch.int32),
    "INT64": ("TYPE_INT64", torch.int64),
    "FLOAT16": ("TYPE_FP16", torch.float16),
    "FLOAT": ("TYPE_FP32", torch.float32),
    "DOUBLE": ("TYPE_FP64", torch.float64),
}


class TritonPythonModel:
    """Triton's view of the ONNX file: its graph on one device, which answers all requests of one shape at once."""

    def initialize(self, args: dict[str, str]) -> None:
        """Load the ONNX file, check that config.pbtxt declares what it has, and run it once.

        Raises:
            TritonModelException: the file does not load, or they disagree; one line that says what to change.
        """
        config = json.loads(args["model_config"])
        path = Path(args["model_repository"], args["model_version"], "model.onnx")
        self._name = args["model_name"]
        self._said: set[tuple[str, Any]] = set()
        try:
            # cpu: one copy a batch, which a client needs anyway. On the GPU they take room in Triton's CUDA pool, which
            # was sized for the tensors of preprocess, and Triton 2.51 answers with garbage when it is full.
            self._outputs_on = _choice(config, "outputs", ("cpu", "gpu"))
            torch.set_num_threads(_threads(config))
            self._device = _device(args["model_instance_kind"], int(args["model_instance_device_id"]))
            model = _load(path)
            inputs, outputs = _face(model.graph)
            _check(config, inputs, outputs)
            self._inputs = list(inputs)
            self._is_batched = config["max_batch_size"] > 0
            self._start(model.graph, config, inputs)
        except ValueError as error:
            raise pb_utils.TritonModelException(f"{self._name}: {error}") from None

    def execute(self, requests: list[Any]) -> list[Any]:
        """Answer the requests, those of one shape as one batch; what fails there runs again by itself.

        So a request that fails, for want of memory or otherwise, fails alone.
        """
        answers: dict[int, Any] = {}
        groups: dict[Any, dict[int, list[Any]]] = {}
        with torch.inference_mode():
            for index, request in enumerate(requests):
                try:
                    feed = [self._take(request, name) for name in self._inputs]
                except Exception as error:  # noqa: BLE001 one let out would fail all
                    answers[index] = self._failure(error)
                    continue
                key = tuple(tensor.shape[1:] for tensor in feed) if self._is_batched else index
                groups.setdefault(key, {})[index] = feed
            for group in groups.values():
                together = self._answer([requests[index] for index in group], list(group.values()))
                answers.update(zip(group, together, strict=True))
        return [answers[index] for index in range(len(requests))]

    def _take(self, request: Any, name: str) -> Any:
        """An input on this instance's device; without a copy where it lies there, and the log says once which it was.

        That line in the log, and no warning, is the proof that tensors come from GPU to GPU.
        """
        tensor = dlpack.from_dlpack(pb_utils.get_input_tensor_by_name(request, name).to_dlpack())
        if (name, tensor.device) not in self._said:
            self._said.add((name, tensor.device))
            if tensor.device == self._device:
                pb_utils.Logger.log_info(f'{self._name}: input "{name}" is taken where it lies, on {tensor.device}')
            else:
                why = (
                    '; from preprocess it comes on the GPU if that runs there, with outputs "gpu" and a CUDA pool '
                    'that is large enough (its log says), and if FORCE_CPU_ONLY_INPUT_TENSORS is "no" here'
                )
                pb_utils.Logger.log_warn(
                    f'{self._name}: input "{name}" comes on {tensor.device} and is copied to {self._device}'
                    f"{why if tensor.is_cpu else ''}"
                )
        return tensor.to(self._device)

    def _answer(self, requests: Sequence[Any], feeds: Sequence[list[Any]]) -> list[Any]:
        """The responses to requests whose inputs fit into one batch."""
        wanted = [list(request.requested_output_names()) for request in requests]
        try:
            batch = feeds[0] if len(feeds) == 1 else [torch.cat(parts) for parts in zip(*feeds, strict=True)]
            values = self._graph.run(dict(zip(self._inputs, batch, strict=True)), set().union(*wanted))
            if self._outputs_on == "cpu":  # one copy for the batch, before it is cut
                values = {name: value.cpu() for name, value in values.items()}
            rows = [len(feed[0]) for feed in feeds] if len(feeds) > 1 else []
            parts = {name: value.split(rows) if rows else [value] for name, value in values.items()}
            return [
                pb_utils.InferenceResponse([_tensor(name, parts[name][index]) for name in names])
                for index, names in enumerate(wanted)
            ]
        except Exception as error:  # noqa: BLE001 one let out would fail all
            if len(requests) == 1:
                return [self._failure(error)]
            return [self._answer([request], [feed])[0] for request, feed in zip(requests, feeds, strict=True)]

    def _failure(self, error: Exception) -> Any:
        pb_utils.Logger.log_error(f"{self._name}: {error}")
        return pb_utils.InferenceResponse(
            error=pb_utils.TritonError(
                f"{self._name}: PyTorch could not run this request; the server's log says why",
                pb_utils.TritonError.INTERNAL,
            )
        )

    def _start(self, graph: Any, config: dict[str, Any], inputs: Mapping[str, _Face]) -> None:
        """Take the graph, and run it once, so that what it cannot do shows now."""
        try:
            self._graph = _Graph(graph, self._device)
            self._warm_up(config, inputs)
        except ValueError:
            raise
        except Exception as error:  # PyTorch's share no base: RuntimeError, TypeError, IndexError
            raise ValueError(f"PyTorch cannot run model.onnx: {_first_line(error)}") from error

    def _warm_up(self, config: dict[str, Any], inputs: Mapping[str, _Face]) -> None:
        """Run the smallest batch, on a GPU the largest too: it loads its kernels when they are first used."""
        dims = {entry["name"]: [int(length) for length in entry["dims"]] for entry in config["input"]}
        if any(length < 0 for lengths in dims.values() for length in lengths):
            return
        is_on_gpu = self._device.type == "cuda"
        batches = [[1], [config["max_batch_size"]]] if is_on_gpu else [[1]]
        for batch in batches if self._is_batched else [[]]:
            feed = {
                name: torch.zeros(batch + dims[name], dtype=face.dtype, device=self._device)
                for name, face in inputs.items()
            }
            with torch.inference_mode():
                self._graph.run(feed, {entry["name"] for entry in config["output"]})
        if is_on_gpu:
            torch.cuda.synchronize(self._device)


def _tensor(name: str, value: Any) -> Any:
    """An output for Triton: what lies on a GPU stays there."""
    if value.is_cpu:
        return pb_utils.Tensor(name, value.numpy())
    return pb_utils.Tensor.from_dlpack(name, dlpack.to_dlpack(value.contiguous()))


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


# What config.pbtxt and Triton say


def _parameter(config: dict[str, Any], name: str) -> str | None:
    value: str | None = config.get("parameters", {}).get(name, {}).get("string_value")
    return value


def _choice(config: dict[str, Any], name: str, choices: tuple[str, str]) -> str:
    """A parameter that is one of two words, by default the first."""
    value = _parameter(config, name)
    if value not in (None, *choices):
        raise ValueError(f'parameter "{name}" is "{value}", expected "{choices[0]}" or "{choices[1]}"')
    return value or choices[0]


def _threads(config: dict[str, Any]) -> int:
    """The parameter ``threads``, or else the number of cores that this process may use."""
    value = _parameter(config, "threads")
    if value is None:
        return len(os.sched_getaffinity(0))
    if not (value.isascii() and value.isdigit() and int(value)):
        raise ValueError(f'parameter "threads" is "{value}", expected a whole number from 1')
    return int(value)


def _device(kind: str, index: int) -> Any:
    """The device of an instance. Triton sets none for Python models: each would land on the first GPU."""
    if kind != "GPU":
        return torch.device("cpu")
    if index >= torch.cuda.device_count():
        raise ValueError(
            f"the instance is on GPU {index}, and PyTorch {torch.__version__} sees {torch.cuda.device_count()} GPUs: "
            "install a PyTorch for this machine's CUDA, or write instance_group { kind: KIND_CPU }"
        )
    torch.cuda.set_device(index)
    torch.backends.cudnn.allow_tf32 = False  # its default is 10 bits of mantissa, and other logits than on a CPU
    return torch.device("cuda", index)


# What the ONNX file says


@dataclass(frozen=True)
class _Face:
    """An input or output of the file: Triton's name of its type, or ONNX's own; -1 is an axis of no fixed length."""

    data_type: str
    dtype: Any
    dims: list[int]


def _load(path: Path) -> Any:
    """The ONNX file, found valid."""
    if not path.is_file():
        raise ValueError(f"{path.name} is missing in version {path.parent.name} of the model")
    try:
        onnx.checker.check_model(str(path))
        return onnx.load(path)
    except Exception as error:  # onnx's and protobuf's share no base
        reason = _first_line(error).replace(str(path), path.name)
        raise ValueError(f"onnx cannot load {path.name}: {reason}") from error


def _face(graph: Any) -> tuple[dict[str, _Face], dict[str, _Face]]:
    """The inputs and the outputs."""
    weights = {tensor.name for tensor in graph.initializer}  # before IR version 4 they are listed as inputs as well

    def faces(values: Sequence[Any]) -> dict[str, _Face]:
        found = {}
        for value in values:
            tensor = value.type.tensor_type
            kind = onnx.TensorProto.DataType.Name(tensor.elem_type)
            data_type, dtype = _TYPES.get(kind, (kind, None))
            dims = [dim.dim_value if dim.HasField("dim_value") else -1 for dim in tensor.shape.dim]
            found[value.name] = _Face(data_type, dtype, dims)
        return found

    return faces([value for value in graph.input if value.name not in weights]), faces(graph.output)


def _check(config: dict[str, Any], inputs: Mapping[str, _Face], outputs: Mapping[str, _Face]) -> None:
    """Refuse a config whose inputs and outputs are not the ONNX file's; a config may leave outputs out."""
    batched = config.get("max_batch_size", 0) > 0
    for kind, found in (("input", inputs), ("output", outputs)):
        declared = {entry["name"]: entry for entry in config[kind]}
        for name in declared.keys() - found.keys():
            names = ", ".join(f'"{name}"' for name in sorted(found))
            raise ValueError(f'config.pbtxt declares {kind} "{name}", model.onnx has {names}')
        for name in found.keys() - declared.keys() if kind == "input" else ():
            raise ValueError(f'model.onnx needs input "{name}", which config.pbtxt does not declare')
        for name, entry in declared.items():
            face = found[name]
            # Triton keeps the batch out of dims
            wanted = [1 if config["max_batch_size"] == 1 else -1] * batched + [int(length) for length in entry["dims"]]
            agree = len(face.dims) == len(wanted) and all(
                ours in (-1, theirs) for ours, theirs in zip(face.dims, wanted, strict=True)
            )
            if (face.data_type, agree) != (entry["data_type"], True):
                raise ValueError(
                    f'{kind} "{name}" is {entry["data_type"]} {wanted} in config.pbtxt, '
                    f"{face.data_type} {face.dims} in model.onnx"
                    f"{' (the batch first, -1: any)' if batched else ' (-1: any)'}"
                )


# ONNX's ops: inputs by position, attributes by keyword, with ONNX's names, meaning and defaults


def _clip(x: Any, minimum: float | None = None, maximum: float | None = None) -> Any:
    return x if minimum is maximum is None else torch.clamp(x, minimum, maximum)


def _conv(
    x: Any,
    weight: Any,
    bias: Any = None,
    *,
    strides: Sequence[int] = (1, 1),
    pads: Sequence[int] = (0, 0, 0, 0),
    dilations: Sequence[int] = (1, 1),
    group: int = 1,
    kernel_shape: Sequence[int] = (),  # noqa: ARG001  (the weight's own)
) -> Any:
    """In two dimensions; ``pads`` is top, left, bottom, right."""
    top, left, bottom, right = pads
    if (top, left) != (bottom, right):  # conv2d pads both sides alike
        x, top, left = torch.nn.functional.pad(x, (left, right, top, bottom)), 0, 0
    return torch.conv2d(x, weight, bias, tuple(strides), (top, left), tuple(dilations), group)


def _flatten(x: Any, *, axis: int = 1) -> Any:
    return x.reshape(math.prod(x.shape[:axis]), math.prod(x.shape[axis:]))


def _gemm(
    a: Any,
    b: Any,
    c: Any = None,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,  # noqa: N803
    transB: int = 0,  # noqa: N803
) -> Any:
    a, b = a.T if transA else a, b.T if transB else b
    return alpha * (a @ b) if c is None else torch.addmm(c, a, b, beta=beta, alpha=alpha)


def _global_average_pool(x: Any) -> Any:
    return x.mean(tuple(range(2, x.ndim)), keepdim=True)


def _reshape(x: Any, shape: Sequence[int], *, allowzero: int = 0) -> Any:
    """0 in ``shape`` is the length that the axis has, unless ``allowzero``; -1 is what is left."""
    return x.reshape([x.shape[axis] if not (length or allowzero) else length for axis, length in enumerate(shape)])


_OPS: dict[str, Callable[..., Any]] = {
    "Add": torch.add,
    "Clip": _clip,
    "Conv": _conv,
    "Flatten": _flatten,
    "Gemm": _gemm,
    "GlobalAveragePool": _global_average_pool,
    "MatMul": torch.matmul,
    "Reshape": _reshape,
}
_NUMBERS = ("Clip", "Reshape")  # ops whose inputs but the first are Python's numbers: read off a GPU, each would wait


@dataclass(frozen=True)
class _Step:
    """One node: what it calls, with what, and where the result goes.

    Attributes:
        arguments: the name of a value, or a constant itself.
        last: names of the values that nothing after this step needs.
    """

    call: Callable[..., Any]
    arguments: tuple[Any, ...]
    output: str
    last: tuple[str, ...]


class _Graph:
    """The nodes of an ONNX graph in their order, the weights on the device.

    Raises:
        ValueError: it has something that is not in ``_OPS``.
    """

    def __init__(self, graph: Any, device: Any) -> None:
        constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
        kept = {value.name for value in graph.output}
        self._steps: list[_Step] = []
        for node in reversed(graph.node):  # backwards, so that the first to take a value is the last to need it
            call = _call(node)
            arguments = tuple(_argument(node, position, constants, device) for position in range(len(node.input)))
            last = {name for name in arguments if isinstance(name, str)} - kept
            kept |= last
            self._steps.insert(0, _Step(call, arguments, node.output[0], tuple(last)))

    def run(self, feed: Mapping[str, Any], wanted: set[str]) -> dict[str, Any]:
        """The outputs of these names, on the device."""
        values = dict(feed)
        for step in self._steps:
            values[step.output] = step.call(
                *(values[argument] if isinstance(argument, str) else argument for argument in step.arguments)
            )
            for name in step.last:
                del values[name]
        return {name: values[name] for name in wanted}


def _call(node: Any) -> Callable[..., Any]:
    """The function of a node, its attributes bound."""
    name = node.op_type if node.domain in ("", "ai.onnx") else f"{node.domain}.{node.op_type}"
    call = _OPS.get(name)
    if call is None:
        raise ValueError(
            f'model.onnx has op "{name}"; the PyTorch classifier knows {", ".join(_OPS)}: '
            "run this one with ONNX Runtime or TensorRT"
        )
    attributes = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
    if attributes.get("auto_pad") == b"NOTSET":  # the default, which some exporters write out
        del attributes["auto_pad"]
    for attribute in attributes.keys() - (getattr(call, "__kwdefaults__", None) or {}).keys():
        raise ValueError(
            f'model.onnx has op "{name}" with attribute "{attribute}", which the PyTorch classifier does not know: '
            "run this one with ONNX Runtime or TensorRT"
        )
    return partial(call, **attributes)


def _argument(node: Any, position: int, constants: Mapping[str, Any], device: Any) -> Any:
    """An input of a node: a value's name, or the constant; None where an optional one is left out."""
    name = node.input[position]
    are_numbers = node.op_type in _NUMBERS and position > 0
    if name in constants:
        array = constants[name]
        return array.tolist() if are_numbers else torch.from_numpy(array.copy()).to(device)
    if name and are_numbers:
        raise ValueError(
            f'model.onnx has op "{node.op_type}" whose input "{name}" is computed, which the PyTorch classifier does '
            "not know: run this one with ONNX Runtime or TensorRT"
        )
    return name or None
