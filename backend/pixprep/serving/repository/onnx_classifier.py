"""Triton Python model that runs the ``model.onnx`` in its folder with ONNX Runtime.

``pixprep build`` writes this file to ``classifier/1/model.py`` for machines without TensorRT. The copy does not import
pixprep, because the content of ``cores.py`` replaces the import. The inputs and outputs in config.pbtxt must be those
of the ONNX file.

An instance of KIND_GPU uses the CUDA execution provider of the package onnxruntime-gpu, and reads input tensors in GPU
memory without a copy. Other instances use the CPU.

Parameters of config.pbtxt:
``threads``: Number of cores that one request may use. Default: all cores that the process may use, according to its
affinity and the quota of its container.
``outputs``: Memory of the outputs of an instance on a GPU, ``cpu`` (default) or ``gpu``.
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
    "tensor(uint16)": ("TYPE_UINT16", np.uint16),
    "tensor(uint32)": ("TYPE_UINT32", np.uint32),
    "tensor(uint64)": ("TYPE_UINT64", np.uint64),
    "tensor(int16)": ("TYPE_INT16", np.int16),
    "tensor(int32)": ("TYPE_INT32", np.int32),
    "tensor(int64)": ("TYPE_INT64", np.int64),
    "tensor(float16)": ("TYPE_FP16", np.float16),
    "tensor(float)": ("TYPE_FP32", np.float32),
    "tensor(double)": ("TYPE_FP64", np.float64),
}
_CUDA = "CUDAExecutionProvider"
_CUDA_OPTIONS = {
    "cudnn_conv_algo_search": "HEURISTIC",  # by default, every algorithm is tried again for each batch size
    "use_tf32": "0",  # TF32 has a mantissa of 10 bits, so the logits would differ from those of a CPU
}


class TritonPythonModel:
    """Class that Triton's Python backend calls. Each instance has one session of ONNX Runtime on one device."""

    def initialize(self, args: dict[str, str]) -> None:
        """Load the ONNX file, compare it with config.pbtxt, and run it once if the instance is on a GPU.

        Raises:
            TritonModelException: The file does not load, or differs from config.pbtxt. The message has one line.
        """
        config = json.loads(args["model_config"])
        path = Path(args["model_repository"], args["model_version"], "model.onnx")
        gpu = int(args["model_instance_device_id"]) if args["model_instance_kind"] == "GPU" else None
        self._name = args["model_name"]
        self._device = ("cpu", 0) if gpu is None else ("cuda", gpu)
        self._is_reported = gpu is None
        try:
            # Outputs in GPU memory use Triton's CUDA memory pool, which is sized for the tensors of preprocess. Triton
            # 2.51 returns garbage when the pool is full.
            outputs = _parameter(config, "outputs", "cpu")
            if outputs not in ("cpu", "gpu"):
                raise ValueError(f'parameter "outputs" must be "cpu" or "gpu", not "{outputs}"')  # noqa: TRY301
            self._outputs_stay = outputs == "gpu"
            self._session = _session(path, _threads(config), gpu)
            _check(config, self._session)
            self._inputs = [tensor.name for tensor in self._session.get_inputs()]
            if gpu is not None:
                self._warm_up(config)
        except ValueError as error:
            raise pb_utils.TritonModelException(f"{self._name}: {error}") from None

    def execute(self, requests: list[Any]) -> list[Any]:
        """Run each request separately.

        Joining the requests would save little and complicate the handling of errors: for eight requests of one image
        (EfficientNet-lite0 on a CPU), it takes 4.9 instead of 5.5 ms per image on two threads, and 9.2 instead of 9.1
        on one thread.
        """
        return [self._answer(request) for request in requests]

    def _answer(self, request: Any) -> Any:
        """Run one request, and return the requested outputs or an error that only affects this request."""
        wanted = list(request.requested_output_names())
        try:
            binding = self._session.io_binding()
            tensors = {name: pb_utils.get_input_tensor_by_name(request, name) for name in self._inputs}
            if any(tensor.is_cpu() and tensor.as_numpy().size == 0 for tensor in tensors.values()):
                return pb_utils.InferenceResponse(self._no_rows(wanted))
            for name, tensor in tensors.items():
                self._bind(binding, name, tensor)
            outputs = self._run(binding, wanted)
        except Exception as error:  # noqa: BLE001 (no common base class; an uncaught exception would fail all requests)
            pb_utils.Logger.log_error(f"{self._name}: {error}")
            return pb_utils.InferenceResponse(
                error=pb_utils.TritonError(
                    f"{self._name}: ONNX Runtime failed to run this request: see the log of the server",
                    pb_utils.TritonError.INTERNAL,
                )
            )
        return pb_utils.InferenceResponse(outputs)

    def _no_rows(self, wanted: list[str]) -> list[Any]:
        """Return outputs with a batch of 0, for a photo without boxes.

        The model is not run, because not every model supports a batch of 0.
        """
        found = {tensor.name: tensor for tensor in self._session.get_outputs()}
        sides = {name: [side if isinstance(side, int) else 0 for side in found[name].shape[1:]] for name in wanted}
        return [pb_utils.Tensor(name, np.zeros((0, *sides[name]), _TYPES[found[name].type][1])) for name in wanted]

    def _bind(self, binding: Any, name: str, tensor: Any) -> None:
        """Bind one input, without a copy if it is on the device of this instance."""
        if not self._is_reported:  # log once whether inputs are copied
            self._is_reported = True
            if tensor.is_cpu():
                pb_utils.Logger.log_warn(
                    f'{self._name}: input "{name}" is copied from host memory to the GPU; to avoid this, run '
                    'preprocess on the GPU with outputs "gpu" and a large enough CUDA memory pool (see its log), and '
                    'set FORCE_CPU_ONLY_INPUT_TENSORS to "no" in this model'
                )
            else:
                pb_utils.Logger.log_info(f'{self._name}: input "{name}" is read in GPU memory without a copy')
        if tensor.is_cpu():
            binding.bind_cpu_input(name, tensor.as_numpy())
        else:
            binding.bind_ortvalue_input(name, onnxruntime.OrtValue.from_dlpack(tensor.to_dlpack()))

    def _run(self, binding: Any, wanted: list[str]) -> list[Any]:
        """Run the session, and return the outputs as Triton tensors."""
        device = self._device if self._outputs_stay else ("cpu", 0)
        for name in wanted:
            binding.bind_output(name, *device)
        binding.synchronize_inputs()
        self._session.run_with_iobinding(binding)
        binding.synchronize_outputs()
        values = zip(wanted, binding.get_outputs(), strict=True)
        if self._outputs_stay:
            return [pb_utils.Tensor.from_dlpack(name, value) for name, value in values]
        return [pb_utils.Tensor(name, value.numpy()) for name, value in values]

    def _warm_up(self, config: dict[str, Any]) -> None:
        """Run the smallest and the largest batch, because CUDA loads libraries when they are first used."""
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
        except Exception as error:  # ONNX Runtime's exceptions have no common base class
            raise ValueError(f"ONNX Runtime cannot run model.onnx on the GPU: {_first_line(error)}") from error


def _parameter(config: dict[str, Any], name: str, default: str) -> str:
    return str(config.get("parameters", {}).get(name, {}).get("string_value", default))


def _threads(config: dict[str, Any]) -> int:
    """Return the parameter ``threads``. Its default is the number of cores that this process may use."""
    value = _parameter(config, "threads", str(cores()))
    if not (value.isascii() and value.isdigit() and int(value)):
        raise ValueError(f'parameter "threads" must be an integer of at least 1, not "{value}"')
    return int(value)


def _session(path: Path, threads: int, gpu: int | None) -> onnxruntime.InferenceSession:
    """Create the ONNX Runtime session, on a GPU or on the CPU.

    Its threads do not spin while they wait. With one photo every 35 ms on two cores, spinning used 41 instead of 10 ms
    of CPU time per photo, which the decoder of the next photo then lacks, and only saved 0.6 of 5.5 ms.
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
        onnxruntime.preload_dlls()  # loads CUDA libraries from pip packages if the system does not have them
        providers.insert(0, (_CUDA, {"device_id": str(gpu), **_CUDA_OPTIONS}))
    try:
        session = onnxruntime.InferenceSession(str(path), options, providers=providers)
    except Exception as error:  # ONNX Runtime's exceptions have no common base class
        reason = _first_line(error).replace(str(path), path.name)
        raise ValueError(f"ONNX Runtime cannot load {path.name}: {reason}") from error
    if gpu is not None and _CUDA not in session.get_providers():  # ONNX Runtime falls back to the CPU
        raise ValueError(_no_cuda(gpu, "cannot start its CUDA provider (see the log of the server)"))
    return session


def _no_cuda(gpu: int, why: str) -> str:
    return (
        f"the instance is on GPU {gpu}, but ONNX Runtime {onnxruntime.__version__} {why}: pip uninstall onnxruntime, "
        'then pip install ".[classifier-gpu-cuda13]" (or -cuda12) in a checkout of pixprep; or set '
        "instance_group { kind: KIND_CPU }"
    )


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _check(config: dict[str, Any], session: onnxruntime.InferenceSession) -> None:
    """Raise ValueError if the declared inputs and outputs differ from the ONNX file. Outputs may be omitted."""
    batched = config.get("max_batch_size", 0) > 0
    for side, tensors in (("input", session.get_inputs()), ("output", session.get_outputs())):
        found = {tensor.name: tensor for tensor in tensors}
        declared = {entry["name"]: entry for entry in config[side]}
        if not declared.keys() <= found.keys() or (side == "input" and declared.keys() != found.keys()):
            raise ValueError(f"config.pbtxt declares the {side}s {[*declared]}, but model.onnx has {[*found]}")
        for name, entry in declared.items():
            dtype, _ = _TYPES.get(found[name].type, (found[name].type, None))
            # A dynamic dimension is a name or None in ONNX, and -1 in Triton. Triton's dims do not include the batch.
            dims = [length if isinstance(length, int) else -1 for length in found[name].shape]
            wanted = [1 if config["max_batch_size"] == 1 else -1] * batched + [int(length) for length in entry["dims"]]
            # Dynamic dimensions of an output may be declared with any length, because ONNX Runtime computes them.
            is_open = [side == "output" and axis >= batched and b == -1 for axis, b in enumerate(wanted)]
            fits = len(dims) == len(wanted) and all(
                a in (-1, b) or free for a, b, free in zip(dims, wanted, is_open, strict=True)
            )
            if not fits or dtype != entry["data_type"]:
                ours, theirs = f"{entry['data_type']} {wanted}", f"{dtype} {dims}"
                raise ValueError(f'{side} "{name}" is {ours} in config.pbtxt, but {theirs} in model.onnx (-1: any)')
