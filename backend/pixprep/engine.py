"""Engine: encoded images in; tensors or ImageErrors out, same order."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import lru_cache
from time import perf_counter

import numpy as np

from pixprep.compiler import compile_pipeline
from pixprep.decoders import Encoded, Limits, decoder_for
from pixprep.errors import ImageError, PipelineError
from pixprep.kernels import Array, kernel_for
from pixprep.pipeline import Pipeline
from pixprep.plan import SizePlan, TensorPlan, TransformPlan


@dataclass(frozen=True)
class Batch:
    """The results of one batch.

    Attributes:
        outputs: for each output that was asked for an array (images, *shape); the row of a failed image is zeros.
        errors: for each image None, or why it has no result.
        decode_s, transform_s: for each image the seconds spent on it; 0 for a stage it did not reach.
    """

    outputs: dict[str, Array]
    errors: list[ImageError | None]
    decode_s: list[float] = field(repr=False)
    transform_s: list[float] = field(repr=False)


class Engine:
    """Runs a pipeline on batches of encoded images.

    >>> engine = Engine(pixprep.load("pipeline.json"))         # doctest: +SKIP
    >>> engine.run([jpeg, b"not an image"])                    # doctest: +SKIP
    [array([[[...]]], dtype=float32), ImageError('[UNKNOWN_FORMAT] …')]

    A broken image never touches another one's result. Use it from one thread at a time; it has threads of its own.

    Args:
        pipeline: what to do.
        device: where: ``"cpu"``.
        threads: that decode and resize; default: as many as this process may use cores.
        limits: what is refused before it is decoded.

    Raises:
        PipelineError: the pipeline cannot be compiled.
        SetupError: the device is not to be had.
    """

    def __init__(
        self, pipeline: Pipeline, *, device: str = "cpu", threads: int | None = None, limits: Limits | None = None
    ) -> None:
        self.pipeline = pipeline
        self.plan = compile_pipeline(pipeline)
        self.threads = threads or len(os.sched_getaffinity(0))
        self._decoder = decoder_for(self.plan, device=device, limits=limits or Limits())
        self._kernels = {
            name: kernel_for(output, device=device)
            for name, output in self.plan.outputs.items()
            if isinstance(output, TensorPlan)
        }
        self._place = {
            name: lru_cache(maxsize=4096)(output.geometry.place)
            for name, output in self.plan.outputs.items()
            if not isinstance(output, SizePlan)
        }
        self._pool = ThreadPoolExecutor(self.threads - 1, "pixprep") if self.threads > 1 else None

    def run(self, encoded: Sequence[Encoded]) -> list[Array | ImageError]:
        """The first tensor of the pipeline for each image.

        Returns:
            In order, an array of the output's shape and dtype, or an ImageError.
        """
        name = next(iter(self._kernels))
        batch = self.run_batch(encoded, outputs=[name])
        return [error or batch.outputs[name][index] for index, error in enumerate(batch.errors)]

    def run_batch(self, encoded: Sequence[Encoded], *, outputs: Sequence[str] | None = None) -> Batch:
        """All outputs of the pipeline, or those named, for each image.

        Raises:
            PipelineError: there is no output of that name.
        """
        names = list(self.plan.outputs) if outputs is None else list(outputs)
        for name in names:
            if name not in self.plan.outputs:
                raise PipelineError(f'no output "{name}"; there are {", ".join(self.plan.outputs)}')
        count = len(encoded)
        specs = {name: self.plan.outputs[name].spec for name in names}
        arrays = {name: np.empty((count, *spec.shape), spec.dtype) for name, spec in specs.items()}
        batch = Batch(arrays, [None] * count, [0.0] * count, [0.0] * count)
        indices = iter(range(count))  # shared: whoever is free takes the next image

        def work() -> None:
            for index in indices:
                self._one(index, encoded[index], batch)

        others = [self._pool.submit(work) for _ in range(min(self.threads, count) - 1)] if self._pool else []
        work()
        for other in others:
            other.result()
        return batch

    def _one(self, index: int, encoded: Encoded, batch: Batch) -> None:
        start = perf_counter()
        (pixels,) = self._decoder.decode([encoded])
        decoded = perf_counter()
        batch.decode_s[index] = decoded - start
        try:
            if isinstance(pixels, ImageError):
                raise pixels
            for name, array in batch.outputs.items():
                self._output(name, pixels, array[index : index + 1])
        except ImageError as error:
            batch.errors[index] = error
            for array in batch.outputs.values():
                array[index] = 0
        batch.transform_s[index] = perf_counter() - decoded

    def _output(self, name: str, pixels: Array, row: Array) -> None:
        output = self.plan.outputs[name]
        size = pixels.shape[:2]
        if isinstance(output, SizePlan):
            row[0] = size
        elif isinstance(output, TransformPlan):
            row[0] = self._place[name](*size).transform
        else:
            self._kernels[name].run([pixels], [self._place[name](*size)], row)

    def close(self) -> None:
        """End the threads."""
        if self._pool is not None:
            self._pool.shutdown()

    def __enter__(self) -> Engine:  # noqa: PYI034  (typing.Self begins with Python 3.11)
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
