"""A Triton Python-backend model that runs the ``model.onnx`` beside it with ONNX Runtime.

``pixprep build`` writes this file to ``classifier/1/model.py`` for machines without TensorRT. The copy imports nothing
of pixprep: it has the text of ``cores.py`` in place of the import. Inputs, outputs and their types are those of the
ONNX file, and config.pbtxt must declare the same.

On an instance of KIND_GPU the CUDA execution provider runs it, which the package onnxruntime-gpu has; a tensor that
comes on the GPU is taken where it lies. On others the CPU does.

Parameters of config.pbtxt: ``threads``, how many cores one request may use; by default all that the process may use,
by its affinity and by the quota of its container.
``outputs``, ``cpu`` (the default) or ``gpu``: where the outputs leave an instance on a GPU.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import triton_python_backend_utils as pb_utils

from pixprep.cores import cores

_TYPES = {
    "tensor(bool)": ("TYPE_BOOL", np.bool_),
    "tensor(uint8)": ("TYPE_UINT8", np.uint8),
    "tensor(int8)": ("TYPE_INT8", np.int8),
    "tensor(int32)": ("TYPE_INT32", np.int32),
    "tensor(int64)": ("TYPE_INT64", np.int64),
    "tensor(float16)": ("TYPE_FP16", np.float16),
    "tensor(float)": ("TYPE_FP32", np.float32),
    "tensor(double)": ("TYPE_FP64", np.float64),
}
_CUDA = "CUDAExecutionProvider"
_CUDA_OPTIONS = {
    "cudnn_conv_algo_search": "HEURISTIC",  # the default tries every algorithm again for each size of a batch
    "use_tf32": "0",  # the default has 10 bits of mantissa, and gives other logits than a CPU
}


class TritonPythonModel:
    """Triton's view of the ONNX file: one session on one device, which answers request by request."""

    def initialize(self, args: dict[str, str]) -> None:
        """Load the ONNX file, check that config.pbtxt declares what it has, and on a GPU run it once.

        Raises:
            TritonModelException: the file does not load, or they disagree; one line that says what to change.
        """
        config = json.loads(args["model_config"])
        path = Path(args["model_repository"], args["model_version"], "model.onnx")
        gpu = int(args["model_instance_device_id"]) if args["model_instance_kind"] == "GPU" else None
        self._name = args["model_name"]
        self._device = ("cpu", 0) if gpu is None else ("cuda", gpu)
        self._is_reported = gpu is None
        try:
            # On the GPU, outputs take room in Triton's CUDA pool. It is sized for the tensors of preprocess, and Triton
            # 2.51 answers with garbage when it is full.
            outputs = _parameter(config, "outputs", "cpu")
            if outputs not in ("cpu", "gpu"):
                raise ValueError(f'parameter "outputs" is "{outputs}", expected "cpu" or "gpu"')  # noqa: TRY301
            self._outputs_stay = outputs == "gpu"
            self._session = _session(path, _threads(config), gpu)
            _check(config, self._session)
            self._inputs = [tensor.name for tensor in self._session.get_inputs()]
            if gpu is not None:
                self._warm_up(config)
        except ValueError as error:
            raise pb_utils.TritonModelException(f"{self._name}: {error}") from None

    def execute(self, requests: list[Any]) -> list[Any]:
        """Answer each request by itself.

        On a CPU one run over eight requests of one image takes 4.9 ms an image instead of 5.5 on two threads, 9.2
        instead of 9.1 on one (EfficientNet-lite0), with the same bits: too little for joining, splitting and telling
        errors apart.
        """
        return [self._answer(request) for request in requests]

    def _answer(self, request: Any) -> Any:
        """The outputs that the request asks for, or the error of this request alone."""
        wanted = list(request.requested_output_names())
        try:
            binding = self._session.io_binding()
            tensors = {name: pb_utils.get_input_tensor_by_name(request, name) for name in self._inputs}
            if any(tensor.is_cpu() and tensor.as_numpy().size == 0 for tensor in tensors.values()):
                return pb_utils.InferenceResponse(self._no_rows(wanted))
            for name, tensor in tensors.items():
                self._bind(binding, name, tensor)
            outputs = self._run(binding, wanted)
        except Exception as error:  # noqa: BLE001 ONNX Runtime's share no base; one let out would fail all
            pb_utils.Logger.log_error(f"{self._name}: {error}")
            return pb_utils.InferenceResponse(
                error=pb_utils.TritonError(
                    f"{self._name}: ONNX Runtime could not run this request; the server's log says why",
                    pb_utils.TritonError.INTERNAL,
                )
            )
        return pb_utils.InferenceResponse(outputs)

    def _no_rows(self, wanted: list[str]) -> list[Any]:
        """The outputs of no rows, where a chain has found nothing: not every model runs with a batch of 0."""
        found = {tensor.name: tensor for tensor in self._session.get_outputs()}
        sides = {name: [side if isinstance(side, int) else 0 for side in found[name].shape[1:]] for name in wanted}
        return [pb_utils.Tensor(name, np.zeros((0, *sides[name]), _TYPES[found[name].type][1])) for name in wanted]

    def _bind(self, binding: Any, name: str, tensor: Any) -> None:
        """Give a run one input; without a copy where it lies on the device of this instance."""
        if not self._is_reported:  # which of the two it is shows nowhere else
            self._is_reported = True
            if tensor.is_cpu():
                pb_utils.Logger.log_warn(
                    f'{self._name}: input "{name}" comes on the CPU and is copied to the GPU; from preprocess it comes '
                    'on the GPU if that runs there, with outputs "gpu" and a CUDA pool that is large enough (its log '
                    'says), and if FORCE_CPU_ONLY_INPUT_TENSORS is "no" here'
                )
            else:
                pb_utils.Logger.log_info(f'{self._name}: input "{name}" is taken where it lies, on the GPU')
        if tensor.is_cpu():
            binding.bind_cpu_input(name, tensor.as_numpy())
        else:
            binding.bind_ortvalue_input(name, onnxruntime.OrtValue.from_dlpack(tensor.to_dlpack()))

    def _run(self, binding: Any, wanted: list[str]) -> list[Any]:
        """Run the session; the outputs as Triton's tensors."""
        place = self._device if self._outputs_stay else ("cpu", 0)
        for name in wanted:
            binding.bind_output(name, *place)
        binding.synchronize_inputs()
        self._session.run_with_iobinding(binding)
        binding.synchronize_outputs()
        values = zip(wanted, binding.get_outputs(), strict=True)
        if self._outputs_stay:
            return [pb_utils.Tensor.from_dlpack(name, value) for name, value in values]
        return [pb_utils.Tensor(name, value.numpy()) for name, value in values]

    def _warm_up(self, config: dict[str, Any]) -> None:
        """Run the smallest batch and the largest: CUDA's libraries are loaded when they are first used."""
        dims = {entry["name"]: [int(length) for length in entry["dims"]] for entry in config["input"]}
        if any(length < 0 for lengths in dims.values() for length in lengths):
            return
        most = config.get("max_batch_size", 0)
        try:
            for batch in ([1], [most]) if most else ([],):
                binding = self._session.io_binding()
                for tensor in self._session.get_inputs():
                    zeros = np.zeros(batch + dims[tensor.name], _TYPES[tensor.type][1])
                    binding.bind_cpu_input(tensor.name, zeros)
                self._run(binding, [tensor.name for tensor in self._session.get_outputs()])
        except Exception as error:  # ONNX Runtime's share no base
            raise ValueError(f"ONNX Runtime cannot run model.onnx on the GPU: {_first_line(error)}") from error


def _parameter(config: dict[str, Any], name: str, default: str) -> str:
    return str(config.get("parameters", {}).get(name, {}).get("string_value", default))


def _threads(config: dict[str, Any]) -> int:
    """The parameter ``threads``, or else the number of cores that this process may use."""
    value = _parameter(config, "threads", str(cores()))
    if not (value.isascii() and value.isdigit() and int(value)):
        raise ValueError(f'parameter "threads" is "{value}", expected an integer from 1')
    return int(value)


def _session(path: Path, threads: int, gpu: int | None) -> onnxruntime.InferenceSession:
    """ONNX Runtime's session of the file, on a GPU or on the CPU.

    Its threads must not spin while they wait: with a photo every 35 ms on two cores that cost 41 ms of processor time a
    photo instead of 10, taken from whoever decodes the next one, and saved 0.6 ms of 5.5.
    """
    if not path.is_file():
        raise ValueError(f"{path.name} is missing in version {path.parent.name} of the model")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    providers: list[Any] = ["CPUExecutionProvider"]
    if gpu is not None:
        if _CUDA not in onnxruntime.get_available_providers():
            raise ValueError(_no_cuda(gpu, "has no CUDA provider"))
        onnxruntime.preload_dlls()  # CUDA's libraries from pip's packages, where the machine has none of its own
        providers.insert(0, (_CUDA, {"device_id": str(gpu), **_CUDA_OPTIONS}))
    try:
        session = onnxruntime.InferenceSession(str(path), options, providers=providers)
    except Exception as error:  # ONNX Runtime's exceptions share no base
        reason = _first_line(error).replace(str(path), path.name)
        raise ValueError(f"ONNX Runtime cannot load {path.name}: {reason}") from error
    if gpu is not None and _CUDA not in session.get_providers():  # it would go on with the CPU
        raise ValueError(_no_cuda(gpu, "cannot start its CUDA provider, the server's log says why"))
    return session


def _no_cuda(gpu: int, why: str) -> str:
    return (
        f"the instance is on GPU {gpu}, and ONNX Runtime {onnxruntime.__version__} {why}: pip uninstall onnxruntime, "
        'then pip install ".[classifier-gpu-cuda13]" (or -cuda12) in a checkout of pixprep; or write '
        "instance_group { kind: KIND_CPU }"
    )


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _check(config: dict[str, Any], session: onnxruntime.InferenceSession) -> None:
    """Refuse a config whose inputs and outputs are not the ONNX file's; a config may leave outputs out."""
    batched = config.get("max_batch_size", 0) > 0
    for side, tensors in (("input", session.get_inputs()), ("output", session.get_outputs())):
        found = {tensor.name: tensor for tensor in tensors}
        declared = {entry["name"]: entry for entry in config[side]}
        if not declared.keys() <= found.keys() or (side == "input" and declared.keys() != found.keys()):
            raise ValueError(f"config.pbtxt declares the {side}s {[*declared]}, model.onnx has {[*found]}")
        for name, entry in declared.items():
            dtype, _ = _TYPES.get(found[name].type, (found[name].type, None))
            # an axis without a fixed length is a name or None in ONNX, -1 in Triton, which keeps the batch out of dims
            dims = [length if isinstance(length, int) else -1 for length in found[name].shape]
            wanted = [1 if config["max_batch_size"] == 1 else -1] * batched + [int(length) for length in entry["dims"]]
            # ONNX Runtime derives lengths of an output that the file leaves open, and so does its config.
            is_open = [side == "output" and axis >= batched and b == -1 for axis, b in enumerate(wanted)]
            fits = len(dims) == len(wanted) and all(
                a in (-1, b) or free for a, b, free in zip(dims, wanted, is_open, strict=True)
            )
            if not fits or dtype != entry["data_type"]:
                ours, theirs = f"{entry['data_type']} {wanted}", f"{dtype} {dims}"
                raise ValueError(f'{side} "{name}" is {ours} in config.pbtxt, {theirs} in model.onnx (-1: any)')
