"""The class that makes pixprep a Python-based Triton backend.

The images of all requests in one execution form one batch of the engine.
"""

from __future__ import annotations

import ctypes
import json
import traceback
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils

from pixprep.bfloat16 import Exported
from pixprep.engine.batch import Batch
from pixprep.engine.engine import Engine
from pixprep.pipeline.pipeline import Pipeline
from pixprep.pipeline.warnings import black_margins, odd_ranges
from pixprep.plan.answers import Answers
from pixprep.serving.triton import config as model_config
from pixprep.serving.triton import pool
from pixprep.serving.triton.images import images_of
from pixprep.serving.triton.metrics import Metrics
from pixprep.serving.triton.patience import Patience
from pixprep.serving.triton.probe import is_probe
from pixprep.serving.triton.warm_up import warm_up
from pixprep.serving.triton.watchdog import BATCH_S, GPU_IDLE_S, IDLE_S, IMAGE_S, Watchdog

_MALLOPT = ((-3, 32 << 20), (-1, 16 << 20))
"""Numbers of the malloc parameters M_MMAP_THRESHOLD and M_TRIM_THRESHOLD (malloc.h), and their values in bytes. By
default, glibc raises M_TRIM_THRESHOLD to 64 MiB, and each thread then keeps 50 MB after a trim."""
_REQUEST_ERRORS = {"TOO_LARGE_RESPONSE": "INVALID_ARG", "ABANDONED": "CANCELLED"}
"""Triton's error codes for the error reasons that apply to a whole request and not to one image."""


def _keep_blocks() -> None:
    """Configure malloc to keep freed large blocks for the next batch.

    This process inherits environment variables from `pixprep serve` that make Triton return such blocks to the system.
    If they applied here too, a batch of 8 images would use 20 % more CPU time.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # only in glibc
    if mallopt is not None:
        for parameter, n_bytes in _MALLOPT:
            mallopt(parameter, n_bytes)


@dataclass(frozen=True)
class _Part:
    """One request of an execution.

    Attributes:
        start, stop: Index range of the request's images in the batch.
        outputs: Names of the requested outputs.
        is_probe: Whether the request is a health probe.
        request: Triton's request.
        response: Response that is already known before the batch runs, such as an error. None means that the batch
            determines it.
    """

    start: int = 0
    stop: int = 0
    outputs: tuple[str, ...] = ()
    is_probe: bool = False
    request: Any = None
    response: Any = None


class TritonPythonModel:
    """Class that Triton's Python backend calls. Each model instance has one object with its own engine."""

    @staticmethod
    def auto_complete_config(auto_complete_model_config: Any) -> Any:
        """Add the fields that ``config.pbtxt`` omits.

        Raises:
            PipelineError: ``config.pbtxt`` contradicts the pipeline.
        """
        config = auto_complete_model_config.as_dict()
        pipeline = _pipeline(Path(pb_utils.get_model_dir()), model_config.options(config))
        # Changes of the dictionary take effect, except for max_batch_size, which has its own setter.
        full = model_config.complete(config, pipeline)
        auto_complete_model_config.set_max_batch_size(full["max_batch_size"])
        config.update(full)
        return auto_complete_model_config

    def initialize(self, args: dict[str, str]) -> None:
        """Compile the pipeline, start the engine, and warm it up with generated images. Then the model is ready."""
        _keep_blocks()
        # Pillow's warnings about damaged files quote text from the file. Python would log each and store it forever.
        warnings.filterwarnings("ignore", module=r"PIL\.")
        config = json.loads(args["model_config"])
        version = Path(args["model_repository"]) / args["model_version"]
        options = model_config.options(config)
        pipeline = _pipeline(version, options)
        if pipeline.left_out:
            pb_utils.Logger.log_info(f"{args['model_name']}: {pipeline.left_out}")
        model_config.outputs(config, pipeline)
        image, *_ = model_config.inputs(config, pipeline)
        self._input = image["name"]
        self._options, self._pipeline = options, pipeline
        self._takes_boxes = pipeline.plan.takes_boxes
        if model_config.is_stalling(config):
            pb_utils.Logger.log_warn(
                f"{args['model_name']}: with a queue policy and only one instance, Triton 2.51 delays requests by up "
                "to 0.5 s: set `instance_group { count: 2 kind: KIND_CPU }`, or remove the queue policy"
            )
        doubts = [] if options.engine.odd_range else odd_ranges(pipeline)
        for doubt in (*doubts, *black_margins(pipeline)):  # `pixprep check` reports the same, but may not have been run
            pb_utils.Logger.log_warn(f"{args['model_name']}: {doubt}")
        is_on_gpu = args["model_instance_kind"] == "GPU"
        # Triton does not select the device of a Python model. By default, every instance would use the first GPU.
        device = f"gpu:{args['model_instance_device_id']}" if is_on_gpu else "cpu"
        self._engine = Engine(
            pipeline, **vars(replace(options.engine, device=device, odd_range=True))
        )  # unusual ranges are logged above

        if is_on_gpu:
            pb_utils.Logger.log_info(f"{args['model_name']}: images are decoded by {self._engine.decoders}")
        self._each_s = IMAGE_S if pipeline.plan.clip is None else IMAGE_S + options.engine.limits.max_decode_s
        self._bfloat16 = {name for name, each in pipeline.outputs.items() if each.spec.dtype == "bfloat16"}
        self._stays_on_gpu = is_on_gpu and options.outputs == "gpu"
        gpu = args["model_instance_device_id"]
        if self._stays_on_gpu and (problem := pool.gpu_output_problem(pipeline, config, gpu=gpu)):
            self._stays_on_gpu = False
            pb_utils.Logger.log_warn(f"{args['model_name']}: output tensors are copied to host memory: {problem}")
        warm_up(self._engine)
        self._metrics = Metrics(
            pb_utils,
            model=args["model_name"],
            version=args["model_version"],
            frames=pipeline.images[0].frames or 0,
        )
        self._watchdog = Watchdog(
            lambda words: pb_utils.Logger.log_error(f"{args['model_name']}: {words}"),
            on_idle=self._engine.trim,
            idle_s=GPU_IDLE_S if is_on_gpu else IDLE_S,
        )

    def execute(self, requests: Sequence[Any]) -> list[Any]:
        """Process the requests of one execution as one batch, and return their responses in the same order."""
        parts, encoded, numbers = self._collect(requests)
        try:
            batch = self._run(parts, encoded, numbers)
        except MemoryError as error:
            if len(requests) == 1:
                return [_no_memory(error)]
        else:
            return [part.response or self._answer(part, batch) for part in parts]
        # the tensors of all requests together do not fit, but those of each request alone may
        return [response for request in requests for response in self.execute([request])]

    def _collect(self, requests: Sequence[Any]) -> tuple[list[_Part], list[Any], dict[str, list[Any]]]:
        """Collect the inputs of all requests for one batch.

        Returns:
            One ``_Part`` per request; the images of the batch; and, by input name, the numeric values of each image.
        """
        parts: list[_Part] = []
        encoded: list[Any] = []
        numbers: dict[str, list[Any]] = {name: [] for name in self._pipeline.inputs}
        for request in requests:
            images = self._images(request)
            n_bytes = sum(map(_n_bytes, images))
            refusal = "" if images else "[EMPTY] the request does not contain an image"
            if n_bytes > self._options.max_request_bytes:
                refusal = f"[TOO_LARGE_BYTES] the images of the request have {n_bytes:,} bytes, but the limit is "
                refusal += f"{self._options.max_request_bytes:,} (parameter max_request_bytes)"
            names = () if refusal else self._pipeline.inputs
            tensors = {name: pb_utils.get_input_tensor_by_name(request, name) for name in names}
            if away := [name for name, tensor in tensors.items() if not tensor.is_cpu()]:
                refusal = f'[BAD_INPUT] input "{away[0]}" is in GPU memory: send it from host memory'
            if refusal:
                parts.append(_Part(response=_error(refusal, pb_utils.TritonError.INVALID_ARG)))
                continue
            rows, outputs = {name: tensors[name].as_numpy() for name in names}, tuple(request.requested_output_names())
            if self._options.no_rows == "empty" and self._takes_boxes and not any(map(len, rows.values())):
                parts.append(_Part(response=pb_utils.InferenceResponse(output_tensors=self._empty(outputs))))
                continue
            start = len(encoded)
            encoded.extend(images)
            for name, arrays in numbers.items():
                arrays.extend([rows[name]] if self._takes_boxes else rows[name])
            parts.append(_Part(start, len(encoded), outputs, is_probe(request), request))
        return parts, encoded, numbers

    def _images(self, request: Any) -> list[Any]:
        """Return the images of a request, see ``images_of``."""
        tensor = pb_utils.get_input_tensor_by_name(request, self._input)
        array = tensor.as_numpy() if tensor.is_cpu() or not self._pipeline.plan.takes else tensor
        return images_of(array, self._engine, self._options)

    def _run(self, parts: Sequence[_Part], encoded: Sequence[Any], numbers: dict[str, list[Any]]) -> Batch | None:
        """Run the batch, and return its results. If an internal error occurs, log it and return None.

        Raises:
            MemoryError: The outputs do not fit into the memory of the device.
        """
        wanted = {name for part in parts for name in part.outputs}
        clients = [index for part in parts if not part.is_probe for index in range(part.start, part.stop)]
        rows = self._options.engine.limits.max_boxes if self._takes_boxes else 1
        limit_s = BATCH_S + self._each_s * len(encoded) * rows
        answers = Answers([slice(part.start, part.stop) for part in parts], self._options.max_response_bytes)
        requests = [part.request for part in parts for _ in range(part.start, part.stop)]
        patience = Patience(list(zip(requests, map(_n_bytes, encoded), strict=True)))
        try:
            with self._metrics.pause, self._watchdog.limit(limit_s, is_work=bool(clients)):
                outputs = [name for name in self._pipeline.outputs if name in wanted]
                batch = self._engine.run_batch(
                    encoded, outputs=outputs, inputs=numbers, answers=answers, is_abandoned=patience.is_over
                )
        except MemoryError:
            raise
        except Exception:  # noqa: BLE001  (Triton would send the traceback of an exception to the clients)
            pb_utils.Logger.log_error(traceback.format_exc())
            if not self._engine.is_working():  # every later request would also fail
                self._watchdog.end("the GPU can no longer be used by this process")
            return None
        if clients:
            results = [row for index in clients for row in batch.rows_of(index)]
            self._metrics.record(sum(_n_bytes(encoded[index]) for index in clients), batch, results)
        return batch

    def _answer(self, part: _Part, batch: Batch | None) -> Any:
        if batch is None:
            return _error("internal error of pixprep: see the log of the server", pb_utils.TritonError.INTERNAL)
        spans = batch.rows[part.start : part.stop]
        rows = slice(spans[0].start, spans[-1].stop)
        errors = batch.errors[rows]
        for error in errors:
            if error is not None and error.reason in _REQUEST_ERRORS:
                return _error(str(error), getattr(pb_utils.TritonError, _REQUEST_ERRORS[error.reason]))
        if self._options.on_error == "fail" and any(errors):
            is_temporary = all(error is None or error.reason == "NO_MEMORY" for error in errors)
            code = pb_utils.TritonError.UNAVAILABLE if is_temporary else pb_utils.TritonError.INVALID_ARG
            return _error(_message(batch, spans), code)
        gathered = batch.packed if self._pipeline.plan.is_packed else batch.padded
        try:
            tensors = [self._tensor(name, gathered(name, rows)) for name in part.outputs if name in batch.outputs]
        except MemoryError as error:
            return _no_memory(error)
        if model_config.STATUS_NAME in part.outputs:
            status = [[b"" if error is None else str(error).encode()] for error in errors]
            tensors.append(pb_utils.Tensor(model_config.STATUS_NAME, np.array(status, dtype=np.object_)))
        return pb_utils.InferenceResponse(output_tensors=tensors)

    def _empty(self, outputs: Sequence[str]) -> list[Any]:
        """Return empty tensors for a photo without boxes. Their first dimension and their open dimensions are 0."""
        specs = {name: output.spec for name, output in self._pipeline.outputs.items()}
        shapes = {name: (0, *(max(0, side) for side in spec.shape)) for name, spec in specs.items()}
        empty = {name: np.empty(shape, specs[name].array_dtype) for name, shape in shapes.items()}
        empty[model_config.STATUS_NAME] = np.empty((0, 1), np.object_)
        return [self._tensor(name, empty[name]) for name in outputs]

    def _tensor(self, name: str, rows: Any) -> Any:
        """Convert rows of the batch to a Triton tensor. Rows in host memory are not copied, as they are contiguous."""
        on_host = isinstance(rows, np.ndarray)
        rows = rows if on_host or self._stays_on_gpu else rows.get()
        if name in self._bfloat16:
            return pb_utils.Tensor.from_dlpack(name, Exported(rows))
        if on_host or not self._stays_on_gpu:
            return pb_utils.Tensor(name, rows)
        return pb_utils.Tensor.from_dlpack(name, rows)

    def finalize(self) -> None:
        """Release all resources. Triton calls this method when it unloads the model."""
        self._watchdog.close()
        self._metrics.close()
        self._engine.close()


def _pipeline(version: Path, options: model_config.Options) -> Pipeline:
    """Load the serving side of the pipeline of a model version."""
    file = version / model_config.PIPELINE_FILE
    return Pipeline.load(file, operators=options.allow_operators).for_serving()


def _n_bytes(image: Any) -> int:
    """Return the number of bytes of an encoded image or of an array of pixels."""
    n_bytes: int = image.nbytes if hasattr(image, "nbytes") else len(image)
    return n_bytes


def _message(batch: Batch, spans: Sequence[slice]) -> str:
    """Return a message with at most three errors of a request's images. Equal errors of one image are reported once."""
    said = [
        error.at(index, len(spans))
        for index, span in enumerate(spans)
        for error in dict.fromkeys(error for error in batch.errors[span] if error is not None)
    ]
    return "; ".join(said[:3]) + (f"; and {len(said) - 3} more" if len(said) > 3 else "")


def _error(message: str, code: Any) -> Any:
    return pb_utils.InferenceResponse(error=pb_utils.TritonError(message, code))


def _no_memory(error: MemoryError) -> Any:
    """Return the response to a request whose tensors do not fit into the memory of the device."""
    return _error(f"[NO_MEMORY] {error}", pb_utils.TritonError.UNAVAILABLE)
