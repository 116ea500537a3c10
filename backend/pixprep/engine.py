"""Engine: encoded images in; tensors or ImageErrors out, same order."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from functools import lru_cache
from threading import Lock
from time import perf_counter

import numpy as np

from pixprep.compiler import compile_pipeline
from pixprep.decoders import Decoded, Encoded, Limits, Pixels
from pixprep.devices import device_for
from pixprep.errors import ImageError, PipelineError
from pixprep.kernels import Array
from pixprep.pipeline import Pipeline
from pixprep.plan import Placement, SizePlan, TensorPlan, TransformPlan


@dataclass(frozen=True)
class Batch:
    """The results of one batch.

    Attributes:
        outputs: for each output that was asked for an array (images, *shape); the row of a failed image is zeros.
        errors: for each image None, or why it has no result.
        decode_s, transform_s: for each image the seconds spent on it; 0 for a stage it did not reach.
        recovered: how many of the images are damaged JPEGs that were decoded all the same (``"damage": "lenient"``).
    """

    outputs: dict[str, Array]
    errors: list[ImageError | None]
    decode_s: list[float] = field(repr=False)
    transform_s: list[float] = field(repr=False)
    recovered: int = 0


class Engine:
    """Runs a pipeline on batches of encoded images.

    >>> engine = Engine(pixprep.load("pipeline.json"))         # doctest: +SKIP
    >>> engine.run([jpeg, b"not an image"])                    # doctest: +SKIP
    [array([[[...]]], dtype=float32), ImageError('[UNKNOWN_FORMAT] …')]

    A broken image never touches another one's result. Use it from one thread at a time; it has threads of its own.

    Args:
        pipeline: what to do.
        device: where: ``"cpu"``, ``"gpu"``, ``"gpu:1"``.
        threads: that decode and resize on the CPU; default: as many as this process may use cores.
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
        self._device = device_for(device, threads=threads)
        self._decoder = self._device.decoder(self.plan, limits or Limits())
        self._kernels = {
            name: self._device.kernel(output)
            for name, output in self.plan.outputs.items()
            if isinstance(output, TensorPlan)
        }
        self._place = {
            name: lru_cache(maxsize=4096)(output.geometry.place)
            for name, output in self.plan.outputs.items()
            if not isinstance(output, SizePlan)
        }
        self._pool = ThreadPoolExecutor(self._device.lanes - 1, "pixprep") if self._device.lanes > 1 else None

    @property
    def lanes(self) -> int:
        """How many threads work at once."""
        return self._device.lanes

    @property
    def fallbacks(self) -> int:
        """How many images so far the GPU's decoders refused and the CPU decoded; 0 on the CPU."""
        return self._decoder.fallbacks

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
        count, recovered = len(encoded), self._decoder.recovered
        batch = Batch({name: self._array(name, count) for name in names}, [None] * count, [0.0] * count, [0.0] * count)
        chunks = self._device.chunks(encoded)
        lock = Lock()  # a generator may not be asked by two threads at once

        def take() -> range | None:
            with lock:
                return next(chunks, None)

        def work() -> None:  # whoever is free takes the next chunk
            while (chunk := take()) is not None:
                try:
                    with self._device.lane():
                        self._chunk(chunk, encoded, batch)
                finally:
                    self._decoder.release()

        others = [self._pool.submit(work) for _ in range(min(self.lanes, count) - 1)] if self._pool else []
        try:
            work()
        finally:
            wait(others)  # they write into this batch: none may be left behind when one has failed
        for other in others:
            other.result()
        return replace(batch, recovered=self._decoder.recovered - recovered)

    def _array(self, name: str, count: int) -> Array:
        output = self.plan.outputs[name]
        shape = (count, *output.spec.shape)
        # a few numbers an image: nothing is gained by having them anywhere but where Python is
        return (
            self._device.empty(shape, output.spec.dtype)
            if isinstance(output, TensorPlan)
            else np.empty(shape, output.spec.dtype)
        )

    def _chunk(self, chunk: range, encoded: Sequence[Encoded], batch: Batch) -> None:
        """Decode the images of a chunk, then run every output's kernel on those that decoded."""
        start = perf_counter()
        images = dict(zip(chunk, self._decoder.decode([encoded[index] for index in chunk]), strict=True))
        decoded = perf_counter()
        self._refuse_misfits(images)
        for name, array in batch.outputs.items():
            self._output(name, images, array)
        done = perf_counter()
        for index, image in images.items():
            batch.decode_s[index] = (decoded - start) / len(chunk)
            batch.transform_s[index] = (done - decoded) / len(chunk)
            if isinstance(image, ImageError):
                batch.errors[index] = image
                for array in batch.outputs.values():
                    array[index] = 0

    def _refuse_misfits(self, images: dict[int, Decoded | ImageError]) -> None:
        """An image that has no place in one output has no result, whichever outputs its batch is asked for."""
        for index, image in images.items():
            if not isinstance(image, ImageError):
                try:
                    for place in self._place.values():
                        place(image.height, image.width)
                except ImageError as error:
                    images[index] = error.as_value()

    def _output(self, name: str, images: dict[int, Decoded | ImageError], array: Array) -> None:
        """One output of the images that have not failed."""
        output = self.plan.outputs[name]
        pixels: list[Pixels] = []
        placements: dict[int, Placement] = {}
        for index, image in images.items():
            if isinstance(image, ImageError):
                continue
            if isinstance(output, SizePlan):
                array[index] = image.height, image.width
                continue
            placement = self._place[name](image.height, image.width)
            pixels.append(image.pixels)
            placements[index] = replace(placement, reduction=image.reduction) if image.reduction else placement
        if isinstance(output, TransformPlan):
            for index, placement in placements.items():
                array[index] = placement.transform
        elif isinstance(output, TensorPlan):
            self._kernels[name].run(pixels, list(placements.values()), [array[index] for index in placements])

    def trim(self) -> None:
        """Give memory back that is kept for the next batch: after a long pause, say. Any thread may ask for it."""
        self._device.trim()

    def is_working(self) -> bool:
        """Whether the device can still compute: after some errors a GPU does nothing more for this process."""
        return self._device.is_working()

    def close(self) -> None:
        """End the threads and give memory back; nothing can be run any more."""
        if self._pool is not None:
            self._pool.shutdown()
        self._device.close()

    def __enter__(self) -> Engine:  # noqa: PYI034  (typing.Self begins with Python 3.11)
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
