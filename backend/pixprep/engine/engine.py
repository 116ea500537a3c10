"""Engine: converts encoded images to tensors or ImageErrors, in the same order."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from itertools import accumulate
from threading import Lock
from time import perf_counter
from typing import Any, cast

import numpy as np

from pixprep.engine.batch import Batch
from pixprep.engine.decoders import Chunk, Codec, Damage, Decoded, Encoded, Kept, Limits, Pixels, check_encoded
from pixprep.engine.devices import device_for
from pixprep.engine.kernels import Array, Kernel
from pixprep.engine.kernels.forked import ForkedKernel
from pixprep.engine.options import EngineOptions
from pixprep.errors import ImageError, PipelineError, needed, unreachable
from pixprep.pipeline.pipeline import Pipeline, not_a_pipeline
from pixprep.pipeline.warnings import odd_ranges
from pixprep.plan.answers import Answers
from pixprep.plan.inputs import Row, check_inputs
from pixprep.plan.inputs import rows as input_rows
from pixprep.plan.output_plans import FlowPlan, NumbersPlan, TensorPlan
from pixprep.plan.plan import NEEDS_NUMBERS, Place

_ABANDONED = ImageError("ABANDONED", "the client has given up the request")
_LOG = logging.getLogger(__name__)


class Engine:
    """Runs a pipeline on batches of encoded images.

    >>> engine = Engine(pixprep.load("pipeline.json"))         # doctest: +SKIP
    >>> engine.run([jpeg, b"not an image"])                    # doctest: +SKIP
    [array([[[...]]], dtype=float32), ImageError('[UNKNOWN_FORMAT] …')]

    An invalid image never changes the result of a different image. An engine has its own threads, and must be used by
    one thread at a time.

    Args:
        pipeline: The pipeline to run.
        device: ``"cpu"``, ``"gpu"`` or ``"gpu:1"``.
        threads: Number of threads that decode and resize on the CPU, or that parse JPEGs for a GPU. Default: the number
            of cores available to this process.
        limits: Limits that are checked before an image is decoded.
        damage: How to treat damaged JPEGs.

            - ``strict`` (default on the CPU): reject every JPEG for which libjpeg-turbo warns about truncated or
              corrupt data. With a GPU, the CPU reads all data for this check.
            - ``structural`` (default on a GPU): reject a JPEG if its markers show damage and libjpeg-turbo confirms
              it with a warning. On the CPU this is the same as ``strict``, which costs nothing there.
            - ``pillow``: reject the JPEGs for which Pillow raises an error, such as data that end before the last row.
              All others get Pillow's pixels.
            - ``lenient``: decode as far as possible, as browsers do.

            ``Batch.recovered`` counts the damaged images that ``pillow`` and ``lenient`` accept. A PNG is accepted
            with a wrong checksum, or with over 1 MiB, in a chunk that pixels do not depend on. ``lenient`` also
            ignores a transparency or orientation chunk with a wrong checksum. In other formats, every image that
            Pillow rejects is an error. A GPU's video decoder hides damage inside a packet; with ``strict`` the CPU
            decodes clips.
        odd_range: Whether unusual ranges of values are intended. If False, an engine logs a warning about a range that
            classifiers do not usually expect, in the words of ``pixprep check``.
        decoder: Decoder on a GPU. ``consistent``: the hardware engine decodes baseline JPEGs, and CUDA decodes the
            others, so that an image gets the same pixels under any load. CUDA decodes all JPEGs if the pixels of the
            hardware engine differ too much from libjpeg-turbo's, or change with the load. ``cuda``: CUDA alone.
            ``cpu``: libjpeg-turbo, and FFmpeg for clips.

    Attributes:
        tensors: Names of the outputs that are on the device.

    Raises:
        SetupError: The device is not available, or its results differ from those of the CPU.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        *,
        device: str = "cpu",
        threads: int | None = None,
        limits: Limits | None = None,
        damage: Damage | None = None,
        decoder: Codec = "consistent",
        odd_range: bool = False,
    ) -> None:
        if not isinstance(pipeline, Pipeline):
            raise TypeError(f"an engine takes a Pipeline, {not_a_pipeline(pipeline)}")
        limits = Limits() if limits is None else limits
        self.options = EngineOptions(
            device=device, threads=threads, limits=limits, damage=damage, decoder=decoder, odd_range=odd_range
        )
        for text in () if odd_range else odd_ranges(pipeline):
            _LOG.warning("%s; odd_range=True if it is meant", text)
        self.pipeline = pipeline
        self.plan = pipeline.plan
        self._device = device_for(device, threads=threads)
        self._decoder = self._device.decoder(self.plan, self.options)
        self._kernels = {
            name: self._kernel(name)
            for name, output in self.plan.outputs.items()
            if isinstance(output, TensorPlan | FlowPlan)
        }
        self.tensors = tuple(name for name in self._kernels if isinstance(self.plan.outputs[name], TensorPlan))
        has_flow = any(isinstance(output, FlowPlan) for output in self.plan.outputs.values())
        self._flow = needed("optical_flow") if has_flow else None
        self._pool = ThreadPoolExecutor(self._device.lanes - 1, "pixprep") if self._device.lanes > 1 else None

    @property
    def lanes(self) -> int:
        """Number of threads that process images in parallel."""
        return self._device.lanes

    @property
    def decoders(self) -> str:
        """Description of the decoders."""
        return self._decoder.words

    def run(
        self, encoded: Sequence[Encoded | Pixels | ImageError], *, inputs: Mapping[str, Sequence[Any]] | None = None
    ) -> list[Array | ImageError]:
        """Return the first tensor of the pipeline for each image, or for each box.

        Args:
            encoded: A list with the content of image files, each as bytes. For a pipeline that begins with ``pixels``,
                a list of uint8 arrays (height, width, 3), or one array (n, height, width, 3): NumPy arrays, PyTorch
                tensors, CuPy arrays on a GPU, and other objects that NumPy (on a GPU, CuPy) reads without a copy. They
                must not change until this method returns. An ImageError in place of an image is its result.
            inputs: Per-request inputs of the pipeline (``pipeline.inputs``) by name. Each contains one row per image,
                or for a pipeline with boxes the rows of each image.

        Returns:
            A list in the order of the images. Each element is an array with the shape and dtype of the output, or an
            ImageError. An open dimension has the size of the image. The boxes of an image are consecutive, and all of
            them have its error if the image is invalid.

        Raises:
            TypeError: ``encoded`` is not such a list, for example the bytes of one image, a path, or an array whose
                dtype is not uint8.
            PipelineError: An input is missing, unknown, or has a different number of images.
        """
        name = self.tensors[0]
        batch = self.run_batch(encoded, outputs=[name], inputs=inputs)
        return [error or batch.outputs[name][index] for index, error in enumerate(batch.errors)]

    def run_batch(
        self,
        encoded: Sequence[Encoded | Kept | Pixels | ImageError],
        *,
        outputs: Sequence[str] | None = None,
        inputs: Mapping[str, Sequence[Any]] | None = None,
        places: Sequence[Place] | None = None,
        into: Mapping[str, Array] | None = None,
        rows: Sequence[int] | None = None,
        keep: Callable[[int, Decoded], None] | None = None,
        keep_whole: bool = True,
        answers: Answers | None = None,
        is_abandoned: Callable[[int], bool] | None = None,
    ) -> Batch:
        """Compute all outputs of the pipeline, or selected ones, for each image.

        Args:
            encoded: The images; see ``run``.
            outputs: Names of outputs. Default: all.
            inputs: Per-request inputs; see ``run``.
            places: For each image the result of ``plan.placing`` or ``plan.replaying``, which includes the inputs.
                Required if the pipeline has random ops.
            into: Arrays (or lists) by name into which outputs are written. ``run_batch`` allocates the others.
            rows: Row of each image in these arrays and in the batch. Default: 0, 1, 2, …
            keep: A function that receives the index in ``encoded`` and the decoded pixels of each image, in the thread
                that decoded it. The pixels are only valid during the call; a copy can be passed again as ``Kept``. An
                ImageError that it raises becomes the result of the image.
            keep_whole: Whether to decode all pixels for ``keep``. If False, pixels outside the region that the outputs
                need are undefined.
            answers: Bound on the tensors of images that are returned together. An image above it gets the error
                TOO_LARGE_RESPONSE.
            is_abandoned: A function that returns, for the index of an image, whether its request was cancelled. It is
                called before the image is decoded, which is then ABANDONED. A GPU decodes the images of a chunk unless
                all of them are abandoned.

        Returns:
            The batch with the outputs and the errors.

        Raises:
            PipelineError: An output is unknown, the pipeline has random ops and ``places`` is missing, or ``inputs``
                are invalid.
            TypeError: ``encoded`` is not a list of bytes or of arrays; see ``run``.
        """
        if self.plan.takes is None:  # else its decoder checks them
            check_encoded(encoded)
        if isinstance(outputs, str):
            raise PipelineError(f'outputs is a list of names: ["{outputs}"]')
        if places is None and self.plan.is_random:
            raise PipelineError(NEEDS_NUMBERS)
        names = list(self.plan.outputs) if outputs is None else list(outputs)
        for name in names:
            if name not in self.plan.outputs:
                raise PipelineError(f'no output "{name}"; there are {", ".join(self.plan.outputs)}')
        images = len(encoded) if hasattr(encoded, "__len__") else 0  # if not, the decoder reports the error
        counts = [1] * images
        if places is None:
            places, counts = self._places(images, inputs or {})
        if answers is not None:
            places, counts = answers.bound(places, counts, self.plan.outputs)
        there: Sequence[int] = range(images)
        sent: Sequence[Any] = encoded
        if isinstance(encoded, Sequence) and ImageError in {*map(type, encoded)}:
            there = [index for index in there if not isinstance(encoded[index], ImageError)]
            sent, places = [encoded[index] for index in there], [places[index] for index in there]
        chunks = self._decoder.chunks(sent, places, is_whole=keep is not None and keep_whole)
        ends, into = [0, *accumulate(counts)], into or {}
        spans = list(map(slice, ends, ends[1:])) if rows is None else [slice(row, row + 1) for row in rows]
        count = ends[-1] if rows is None else max(rows, default=-1) + 1
        batch = Batch(
            outputs={name: into[name] if name in into else self._array(name, count) for name in names},
            errors=[None] * count,
            decode_s=[0.0] * count,
            transform_s=[0.0] * count,
            placed=[None] * count,
            rows=spans,
            plans=self.plan.outputs,
        )
        for index in {*range(images)}.difference(there):
            self._fail(batch, dict.fromkeys(batch.rows_of(index), encoded[index]))
        lock = Lock()  # a generator may not be asked by two threads at once

        def work(first: Chunk | None = None) -> None:  # the next idle thread takes the next chunk
            with lock:
                chunk = first or next(chunks, None)
            while chunk is not None:
                if is_abandoned is not None and all(is_abandoned(there[place]) for place in chunk.indices):
                    results: Sequence[Decoded | ImageError] = ()
                    for place in chunk.indices:
                        self._fail(batch, dict.fromkeys(batch.rows_of(there[place]), _ABANDONED))
                else:
                    with self._device.lane():
                        results = self._run_chunk(chunk, there, batch, keep)
                with lock:
                    for result in results:
                        if isinstance(result, Decoded):
                            batch.recovered += result.is_recovered
                            batch.fallbacks += result.is_fallback
                    chunk = next(chunks, None)

        first = next(chunks, None)
        left = len(there) - len(first.indices) if first else 0  # no thread is woken for nothing
        pool, helpers = self._pool, min(self.lanes - 1, left)
        others = [pool.submit(work) for _ in range(helpers)] if pool else []
        try:
            work(first)
        finally:
            if others:  # they write into this batch, so all of them must end even if one has failed
                wait(others)
        for other in others:
            other.result()
        return batch

    def _kernel(self, name: str) -> Kernel:
        """The kernel of an output; one for each leaf of a plan that forks."""
        outputs = [cast("TensorPlan | FlowPlan", leaf.outputs[name]) for leaf in self.plan.leaves]
        plans = [(output.frames if isinstance(output, FlowPlan) else output).frame for output in outputs]
        kernels = [self._device.kernel(plan) for plan in plans]
        return kernels[0] if len(kernels) == 1 else ForkedKernel(kernels)

    def _array(self, name: str, count: int) -> Array:
        """Room for one output of a batch; a few numbers an image stay where Python is. An open one has none yet."""
        spec = self.pipeline.outputs[name].spec
        if spec.is_open:
            return [None] * count
        shape = (count, *spec.shape)
        return self._device.empty(shape, spec.dtype) if name in self.tensors else np.empty(shape, spec.dtype)

    def _run_chunk(
        self,
        chunk: Chunk,
        there: Sequence[int],
        batch: Batch,
        keep: Callable[[int, Decoded], None] | None,
    ) -> list[Decoded | ImageError]:
        """Decode the images of a chunk, and write every output; ``there`` has the places of the decoder's images."""
        images: dict[int, Decoded] = {}
        failed: dict[int, ImageError] = {}
        start = perf_counter()
        with self._decoder.decode(chunk) as results:
            after_decode = perf_counter()
            for place, result in zip(chunk.indices, results, strict=True):
                rows = batch.rows_of(there[place])
                for row, each in zip(rows, _each(result, len(rows)), strict=True):
                    if isinstance(each, ImageError):
                        failed[row] = each
                    else:
                        images[row], batch.placed[row] = each, each.placed
            every = [*images, *failed]
            for name, array in batch.outputs.items():
                failed |= self._write(name, images, array)
            self._fail(batch, failed)
            after_transform = perf_counter()
            if keep is not None:
                for place, result in zip(chunk.indices, results, strict=True):
                    try:
                        if not isinstance(result, ImageError):
                            keep(there[place], result)
                    except ImageError as error:
                        self._fail(batch, dict.fromkeys(batch.rows_of(there[place]), error.as_value()))
        for row in every:
            batch.decode_s[row] = (after_decode - start) / len(every)
            batch.transform_s[row] = (after_transform - after_decode) / len(every)
        return results

    def _places(self, count: int, inputs: Mapping[str, Sequence[Any]]) -> tuple[list[Place], list[int]]:
        """Place and number of rows of each image, by the numbers that came with it."""
        check_inputs(self.plan.inputs, inputs, count)
        if not self.plan.inputs:
            return [self.plan.place] * count, [1] * count
        most = self.options.limits.max_boxes if self.plan.takes_boxes else None
        found: list[list[Row | ImageError]] = []
        for index in range(count):
            try:
                found.append([*input_rows(self.plan.inputs, {name: x[index] for name, x in inputs.items()}, most=most)])
            except ImageError as error:
                found.append([error.as_value()])
        max_pixels = self.options.limits.max_box_pixels
        return [self.plan.placing_rows(rows, max_pixels=max_pixels) for rows in found], [*map(len, found)]

    def _write(self, name: str, images: Mapping[int, Decoded], array: Array) -> dict[int, ImageError]:
        """Write one output of the images of a chunk, by their rows; give the rows that an operator failed on."""
        output = self.plan.outputs[name]
        match output:
            case NumbersPlan():
                for index, image in images.items():
                    placed = image.placed
                    array[index] = output.numbers(placed.height, placed.width, placed.placements.get(name))
            case TensorPlan() if self.plan.clip is None:
                placements = [image.placed.placements[name] for image in images.values()]
                if output.spec.is_open:
                    for row, placement in zip(images, placements, strict=True):
                        array[row] = self._device.empty(output.spec.shape_of(*placement.size), output.spec.dtype)
                pixels = [image.pixels for image in images.values()]
                failed = self._kernels[name].run(pixels, placements, array, [*images])
                return {row: failed[place] for place, row in enumerate(images) if place in failed} if failed else {}
            case TensorPlan() | FlowPlan():
                clips = {row: self._write_clip(name, clip, output, array[row]) for row, clip in images.items()}
                return {row: error for row, error in clips.items() if error is not None}
            case _ as never:
                unreachable(never)
        return {}

    def _fail(self, batch: Batch, errors: Mapping[int, ImageError]) -> None:
        """Give rows of a batch no result: they are zeros."""
        for row, error in errors.items():
            batch.errors[row], batch.placed[row] = error, None
            for name, array in batch.outputs.items():
                spec = batch.plans[name].spec
                if spec.is_open:
                    array[row] = self._device.empty(spec.least, spec.dtype)
                    array[row][...] = 0
                else:
                    array[row] = 0

    def _write_clip(self, name: str, clip: Decoded, plan: TensorPlan | FlowPlan, array: Array) -> ImageError | None:
        """The tensor of one clip, whose frames share a placement, or its flow; or why an operator failed on a frame."""
        if isinstance(plan, FlowPlan):
            assert self._flow is not None
            frames = self._device.empty(plan.frames.spec.shape, plan.frames.spec.dtype)
            error = self._write_clip(name, clip, plan.frames, frames)
            self._flow(self._device.on_host(frames), plan.preset, array)
            return error
        frames = plan.spec.view(array, f"t{plan.frame.spec.layout}")
        placements = [clip.placed.placements[name]] * len(frames)
        failed = self._kernels[name].run(clip.pixels, placements, frames, range(len(frames)))
        return next(iter(failed.values()), None) if failed else None

    def split(self, pixels: Any, *, is_one: bool = False) -> list[Array]:
        """The images of one array, uint8 (n, height, width, channels), which may share a batch with others: views.

        Args:
            pixels: the array.
            is_one: it is one image, (height, width, channels).
        """
        array = self._device.array(pixels)
        return [array] if is_one else list(array)

    def trim(self) -> None:
        """Free the memory that is kept for the next batch, such as before a long pause. Any thread may call this."""
        self._device.trim()

    def is_working(self) -> bool:
        """Tell whether the device can still compute: after some errors a GPU does nothing more for this process."""
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


def _each(result: Decoded | ImageError, count: int) -> Sequence[Decoded | ImageError]:
    """Result of an image in each of its rows."""
    if isinstance(result, ImageError) or not result.placed.rows:
        return [result] * count
    return [row if isinstance(row, ImageError) else result._replace(placed=row) for row in result.placed.rows]
