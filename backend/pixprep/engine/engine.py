"""The engine converts encoded images to tensors, and returns an ImageError in place of each invalid image."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import wait as wait_for_all
from contextlib import suppress
from itertools import accumulate, islice
from threading import Lock
from time import perf_counter
from typing import Any

import numpy as np

from pixprep.engine.batch import Batch
from pixprep.engine.decoders import Chunk, Codec, Damage, Decoded, Encoded, Kept, Limits, Pixels, check_encoded
from pixprep.engine.devices import device_for
from pixprep.engine.kernels import Array, Kernel
from pixprep.engine.kernels.forked import ForkedKernel
from pixprep.engine.options import EngineOptions
from pixprep.errors import ImageError, PipelineError, needed
from pixprep.names import explained
from pixprep.pipeline.pipeline import Pipeline, not_a_pipeline
from pixprep.pipeline.warnings import odd_ranges
from pixprep.plan.answers import Answers
from pixprep.plan.inputs import Row, check_inputs
from pixprep.plan.inputs import rows as input_rows
from pixprep.plan.output_plans import TensorPlan
from pixprep.plan.placement import Placement
from pixprep.plan.plan import NEEDS_NUMBERS, Place

_ABANDONED = ImageError("ABANDONED", "the client cancelled the request")
_NO_MEMORY = ImageError(
    "NO_MEMORY",
    "the device does not have enough free memory, even for this image alone: lower max_pixels or the size of the "
    "outputs, or free memory that other programs use",
)
_LOG = logging.getLogger(__name__)


class Engine:
    """Runs a pipeline on batches of encoded images.

    >>> engine = Engine(pixprep.load("pipeline.json"))         # doctest: +SKIP
    >>> engine.run([jpeg, b"not an image"])                    # doctest: +SKIP
    [array([[[...]]], dtype=float32), ImageError('[UNKNOWN_FORMAT] …')]

    An invalid image never affects the results of the other images. An engine has its own threads. Only one thread at a
    time may call its methods.

    Args:
        pipeline: The pipeline to run.
        device: ``"cpu"``, ``"gpu"`` or ``"gpu:1"``.
        threads: Number of threads that decode and resize images on the CPU, or that parse JPEGs for a GPU. Default: the
            number of cores available to this process.
        limits: Limits on the size and the format of an image, which are checked before it is decoded.
        damage: How to treat damaged JPEGs.

            - ``strict`` (default on the CPU): reject every JPEG for which libjpeg-turbo warns about truncated or
              corrupt data. With a GPU, the CPU reads all data for this check.
            - ``structural`` (default on a GPU): reject a JPEG if its markers show damage and libjpeg-turbo confirms
              it with a warning. On the CPU it is identical to ``strict``, which has no extra
              cost there.
            - ``pillow``: reject the JPEGs for which Pillow raises an error, such as files that end before the last
              row. All other JPEGs are decoded to the same pixels as in Pillow.
            - ``lenient``: decode as far as possible, as browsers do.

            ``Batch.recovered`` counts the damaged images that ``pillow`` and ``lenient`` accept. In a PNG, chunks that
            do not affect the pixels may have a wrong checksum or exceed 1 MiB. ``lenient`` also ignores a transparency
            or orientation chunk with a wrong checksum. Images in other formats are rejected if Pillow rejects them.
            The video decoder of a GPU does not report damage inside a packet; with ``strict``, clips are therefore
            decoded on the CPU.
        odd_range: Whether an unusual range of tensor values is intended. If False, the engine logs a warning if the
            range is one that image classifiers do not usually expect. ``pixprep check`` prints the same warning.
        decoder: Decoder on a GPU. ``consistent``: the hardware JPEG engine decodes baseline JPEGs, and CUDA kernels
            decode the others, so that the pixels of an image do not depend on the load. CUDA decodes all JPEGs if the
            pixels of the hardware engine differ too much from libjpeg-turbo's, or vary with the load. ``cuda``: CUDA
            kernels decode all JPEGs. ``cpu``: libjpeg-turbo decodes JPEGs, and FFmpeg decodes clips.

    Attributes:
        tensors: Names of the outputs that are on the device.

    Raises:
        SetupError: The device is not available, or its results differ from those of the CPU.
        PipelineError: The value of an option is invalid.
    """

    @explained({}, "arguments after the pipeline are keyword-only: write threads=4, for example")
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
            raise TypeError(f"pipeline must be a Pipeline, {not_a_pipeline(pipeline)}")
        limits = Limits() if limits is None else limits
        self.options = EngineOptions(
            device=device, threads=threads, limits=limits, damage=damage, decoder=decoder, odd_range=odd_range
        )
        for text in () if odd_range else odd_ranges(pipeline):
            _LOG.warning("%s; if this is intended, pass odd_range=True", text)
        self.pipeline = pipeline
        self.plan = pipeline.plan
        self._device = device_for(device, threads=threads)
        self._decoder = self._device.decoder(self.plan, self.options)
        self._kernels = {name: self._kernel(name) for name in self.plan.outputs if name not in self.plan.numbers}
        self.tensors = tuple(self.plan.tensors)
        self._flow = needed("optical_flow") if self.plan.flows else None
        self._pool = ThreadPoolExecutor(self._device.lanes - 1, "pixprep") if self._device.lanes > 1 else None

    @property
    def lanes(self) -> int:
        """Number of threads that process images in parallel."""
        return self._device.lanes

    @property
    def decoders(self) -> str:
        """Description of the decoders, for logs."""
        return self._decoder.words

    def run(
        self, encoded: Sequence[Encoded | Pixels | ImageError], *, inputs: Mapping[str, Sequence[Any]] | None = None
    ) -> list[Array | ImageError]:
        """Return the first tensor of the pipeline for each image, or for each box.

        Args:
            encoded: List of encoded images, each the bytes of an image file. For a pipeline that begins with
                ``pixels``, a list of uint8 arrays (height, width, 3), or one array (n, height, width, 3): NumPy arrays,
                PyTorch tensors, CuPy arrays on a GPU, and other objects that NumPy (on a GPU, CuPy) reads without a
                copy. They must not change until this method returns. An ImageError in place of an image is returned
                as the result of that image.
            inputs: Per-request inputs of the pipeline (``pipeline.inputs``) by name. Each input contains one row per
                image. For a pipeline with boxes, it contains a list of rows per image, one row per box.

        Returns:
            A list in the order of the images. Each element is an array with the shape and dtype of the output, or an
            ImageError. A dynamic dimension depends on the size of the image. The results of the boxes of an image are
            consecutive. If the image is invalid, the same error is returned for each of its boxes.

        Raises:
            TypeError: ``encoded`` is not such a list. For example, it is the bytes of one image, a path, or an array
                whose dtype is not uint8.
            PipelineError: An input is missing or unknown, or its length differs from the number of images.
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
        wait: bool = True,
    ) -> Batch:
        """Compute all outputs of the pipeline, or selected ones, for each image.

        Args:
            encoded: The images; see ``run``.
            outputs: Names of the outputs to compute. Default: all outputs.
            inputs: Per-request inputs; see ``run``.
            places: Functions that compute the placement of each image, as returned by ``plan.placing`` or
                ``plan.replaying``. These functions already contain the inputs. Required if the pipeline has random ops.
            into: Preallocated arrays (or lists) by output name, to which the outputs are written. ``run_batch``
                allocates the other outputs.
            rows: Row of each image in these arrays and in the batch. Default: 0, 1, 2, …
            keep: Callback that receives the index in ``encoded`` and the decoded pixels of each image, called in the
                thread that decoded the image. The pixels are only valid during the call; a copy can later be passed
                as ``Kept``. If the callback raises an ImageError, it becomes the error of the image.
            keep_whole: Whether to decode all pixels for ``keep``. If False, pixels outside the region that the outputs
                need are undefined.
            answers: Maximum size of the tensors in one response. An image whose response exceeds it gets the error
                TOO_LARGE_RESPONSE.
            is_abandoned: Function that returns whether the request of an image was cancelled, given the index of the
                image. It is called before the image is decoded. A cancelled image is not decoded and gets the error
                ABANDONED. A GPU skips a chunk of images only if all of them are cancelled.
            wait: Whether to wait until a GPU has computed the outputs. If False, the batch is returned while the work
                is still queued, so that the next batch can be read meanwhile. Call ``Batch.wait`` before you use the
                outputs. The images and ``into`` must not change until then. At most two batches are in flight; the
                next one waits for the first.

        Returns:
            The batch with the outputs and the errors.

        Raises:
            PipelineError: An output is unknown, ``inputs`` are invalid, or ``places`` is missing although the pipeline
                has random ops.
            TypeError: ``encoded`` is not a list of bytes or arrays; see ``run``.
        """
        if self.plan.takes is None:  # PixelsDecoder checks arrays
            check_encoded(encoded)
        if isinstance(outputs, str):
            raise PipelineError(f'outputs must be a list of names, such as ["{outputs}"], not a string')
        if places is None and self.plan.is_random:
            raise PipelineError(NEEDS_NUMBERS)
        names = list(self.plan.outputs) if outputs is None else list(outputs)
        for name in names:
            if name not in self.plan.outputs:
                raise PipelineError(
                    f'the pipeline has no output "{name}"; its outputs are {", ".join(self.plan.outputs)}'
                )
        images = len(encoded) if hasattr(encoded, "__len__") else 0  # without a length, the decoder raises
        counts = [1] * images
        if places is None:
            places, counts = self._placing(images, inputs or {})
        if answers is not None:
            places, counts = answers.bound(places, counts, self.plan.outputs)
        valid: Sequence[int] = range(images)
        given: Sequence[Any] = encoded
        if isinstance(encoded, Sequence) and ImageError in {*map(type, encoded)}:
            valid = [index for index in valid if not isinstance(encoded[index], ImageError)]
            given, places = [encoded[index] for index in valid], [places[index] for index in valid]
        chunks = self._decoder.chunks(given, places, is_whole=keep is not None and keep_whole)
        ends, into = [0, *accumulate(counts)], into or {}
        spans = list(map(slice, ends, ends[1:])) if rows is None else [slice(row, row + 1) for row in rows]
        count = ends[-1] if rows is None else max(rows, default=-1) + 1
        batch = Batch(
            outputs={name: into[name] if name in into else self._allocate(name, count) for name in names},
            errors=[None] * count,
            decode_s=[0.0] * count,
            transform_s=[0.0] * count,
            placed=[None] * count,
            rows=spans,
            plans=self.plan.outputs,
        )
        self._device.follow()
        if len(valid) < images:
            with self._device.lane():  # zeros are written on the device
                for index in {*range(images)}.difference(valid):
                    self._set_errors(batch, dict.fromkeys(batch.rows_of(index), encoded[index]))
        lock = Lock()  # two threads must not advance a generator at the same time

        def work(first: Chunk | None = None) -> None:  # each thread processes the next chunk as soon as it is idle
            with lock:
                chunk = first or next(chunks, None)
            while chunk is not None:
                if is_abandoned is not None and all(is_abandoned(valid[index]) for index in chunk.indices):
                    results: Sequence[Decoded | ImageError] = ()
                    with self._device.lane():
                        for index in chunk.indices:
                            self._set_errors(batch, dict.fromkeys(batch.rows_of(valid[index]), _ABANDONED))
                else:
                    try:
                        results = self._run_chunk(chunk, valid, batch, keep, wait=wait)
                    except MemoryError:
                        results = ()
                    results = results or self._run_in_parts(chunk, valid, batch, keep, wait=wait)
                with lock:
                    for result in results:
                        if isinstance(result, Decoded):
                            batch.recovered += result.is_recovered
                            batch.fallbacks += result.is_fallback
                    chunk = next(chunks, None)

        first = next(chunks, None)
        left = len(valid) - len(first.indices) if first else 0  # do not wake more threads than there are images
        pool, workers = self._pool, min(self.lanes - 1, left)
        futures = [pool.submit(work) for _ in range(workers)] if pool else []
        try:
            work(first)
        finally:
            if futures:  # they write to this batch, so wait for all of them even if one has failed
                wait_for_all(futures)
        for future in futures:
            future.result()
        return batch

    def _kernel(self, name: str) -> Kernel:
        """Return the kernel of an output. If the plan forks, the kernel contains one kernel per leaf."""
        plans = [leaf.flows[name].frames if name in leaf.flows else leaf.tensors[name] for leaf in self.plan.leaves]
        kernels = [self._device.kernel(plan.frame) for plan in plans]
        return kernels[0] if len(kernels) == 1 else ForkedKernel(kernels)

    def _allocate(self, name: str, count: int) -> Array:
        """Allocate an output for ``count`` rows: tensors on the device, other outputs on the host.

        An output with dynamic dimensions is a list, whose arrays are allocated when the sizes of the images are known.

        Raises:
            MemoryError: The device does not have enough free memory, even without its cached memory.
        """
        spec = self.pipeline.outputs[name].spec
        if spec.is_open:
            return [None] * count
        shape = (count, *spec.shape)
        if name not in self.tensors:
            return np.empty(shape, spec.array_dtype)
        with suppress(MemoryError):
            return self._device.empty(shape, spec.array_dtype)
        self._device.trim()
        return self._device.empty(shape, spec.array_dtype)

    def _run_in_parts(
        self,
        chunk: Chunk,
        valid: Sequence[int],
        batch: Batch,
        keep: Callable[[int, Decoded], None] | None,
        *,
        wait: bool,
    ) -> list[Decoded | ImageError]:
        """Process a chunk that did not fit into memory, so that only the images that do not fit fail.

        The cached memory is freed, and the chunk is processed in two halves. A half that does not fit either is
        processed image by image.
        """
        self._device.trim()
        todo, results = [chunk], list[Decoded | ImageError]()
        for most in sorted({-(-len(chunk.indices) // 2), 1}, reverse=True):
            parts = [_slice(each, at, at + most) for each in todo for at in range(0, len(each.indices), most)]
            todo = []
            for part in parts:
                try:
                    results += self._run_chunk(part, valid, batch, keep, wait=wait)
                except MemoryError:
                    todo.append(part)
        with self._device.lane():
            for index in (index for part in todo for index in part.indices):
                self._set_errors(batch, dict.fromkeys(batch.rows_of(valid[index]), _NO_MEMORY))
        return results

    def _run_chunk(
        self,
        chunk: Chunk,
        valid: Sequence[int],
        batch: Batch,
        keep: Callable[[int, Decoded], None] | None,
        *,
        wait: bool,
    ) -> list[Decoded | ImageError]:
        """Decode a chunk and write its outputs, in a lane.

        Args:
            chunk: Chunk of the decoder.
            valid: Batch index of each image that the decoder receives.
            batch: Batch whose outputs are written.
            keep: See ``run_batch``.
            wait: See ``run_batch``.

        Raises:
            MemoryError: The device does not have enough free memory.
        """
        images: dict[int, Decoded] = {}
        failed: dict[int, ImageError] = {}
        queued: list[Any] | None = None if wait else []
        with self._device.lane(queued):
            start = perf_counter()
            with self._decoder.decode(chunk) as results:
                after_decode = perf_counter()
                for index, result in zip(chunk.indices, results, strict=True):
                    span = batch.rows[valid[index]]
                    rows = range(span.start, span.stop)
                    for row, each in zip(rows, _per_row(result, len(rows)), strict=True):
                        if isinstance(each, ImageError):
                            failed[row] = each
                        else:
                            images[row], batch.placed[row] = each, each.placed
                every = [*images, *failed]
                for name, array in batch.outputs.items():
                    failed |= self._write(name, images, array)
                self._set_errors(batch, failed)
                after_transform = perf_counter()
                if keep is not None:
                    for index, result in zip(chunk.indices, results, strict=True):
                        try:
                            if not isinstance(result, ImageError):
                                keep(valid[index], result)
                        except ImageError as error:
                            self._set_errors(batch, dict.fromkeys(batch.rows_of(valid[index]), error.as_value()))
        for work in queued or ():
            work.held = batch.outputs, results
            batch.queued.append(work)
        for row in every:
            batch.decode_s[row] = (after_decode - start) / len(every)
            batch.transform_s[row] = (after_transform - after_decode) / len(every)
        return results

    def _placing(self, count: int, inputs: Mapping[str, Sequence[Any]]) -> tuple[list[Place], list[int]]:
        """Return the placement function and the number of rows of each image, given the per-request inputs."""
        check_inputs(self.plan.inputs, inputs, count)
        if not self.plan.inputs:
            return [self.plan.place] * count, [1] * count
        max_rows = self.options.limits.max_boxes if self.plan.takes_boxes else None
        found: list[list[Row | ImageError]] = []
        for index in range(count):
            try:
                values = {name: per_image[index] for name, per_image in inputs.items()}
                found.append([*input_rows(self.plan.inputs, values, most=max_rows)])
            except ImageError as error:
                found.append([error.as_value()])
        max_pixels = self.options.limits.max_box_pixels
        return [self.plan.placing_rows(rows, max_pixels=max_pixels) for rows in found], [*map(len, found)]

    def _write(self, name: str, images: Mapping[int, Decoded], array: Array) -> dict[int, ImageError]:
        """Write one output of decoded images, and return the errors of custom operators, by row."""
        if name in self.plan.numbers:
            spec = self.plan.numbers[name].spec
            for row, image in images.items():
                placed = image.placed
                numbers = self.plan.numbers[name].numbers(placed.height, placed.width, placed.placements.get(name))
                array[row] = np.asarray(numbers, spec.dtype) if spec.is_open else numbers
            return {}
        if self.plan.clip is not None and self.plan.outputs[name].spec.patches is None:
            clips = {row: self._write_clip(name, clip, array[row]) for row, clip in images.items()}
            return {row: error for row, error in clips.items() if error is not None}
        spec = self.plan.tensors[name].spec
        rows, pixels, placements = list[int](), list[Any](), list[Placement]()
        is_open, is_clip = spec.is_open, self.plan.clip is not None
        for row, image in images.items():
            placement = image.placed.placements[name]
            if is_open:
                array[row] = self._device.empty(spec.shape_of(*placement.views), spec.array_dtype)
            if not is_clip:
                rows.append(row)
                pixels.append(image.pixels)
                placements.append(placement)
                continue
            frames = image.pixels  # the decoded pixels of a clip: a list of frames
            rows += [row] * len(frames)
            pixels += frames
            placements += [placement._replace(frame=index) if index else placement for index in range(len(frames))]
        failed = self._kernels[name].run(pixels, placements, array, rows)
        return {rows[index]: error for index, error in failed.items()} if failed else {}

    def _set_errors(self, batch: Batch, errors: Mapping[int, ImageError]) -> None:
        """Store the errors of failed rows, and fill their outputs with zeros."""
        for row, error in errors.items():
            batch.errors[row], batch.placed[row] = error, None
            for name, array in batch.outputs.items():
                spec = batch.plans[name].spec
                if spec.is_open:
                    array[row] = self._device.empty(spec.least, spec.array_dtype)
                    array[row][...] = 0
                else:
                    array[row] = 0

    def _write_clip(self, name: str, clip: Decoded, array: Array) -> ImageError | None:
        """Write the tensor of one clip, or its optical flow.

        Returns:
            The error of a custom operator that failed on a frame, or None.
        """
        if (flow := self.plan.flows.get(name)) is None:
            return self._write_frames(name, clip, self.plan.tensors[name], array)
        assert self._flow is not None
        frames = self._device.empty(flow.frames.spec.shape, flow.frames.spec.array_dtype)
        error = self._write_frames(name, clip, flow.frames, frames)
        self._flow(self._device.on_host(frames), flow.preset, array)
        return error

    def _write_frames(self, name: str, clip: Decoded, plan: TensorPlan, array: Array) -> ImageError | None:
        """Write the frames of one clip, which share a placement. See ``_write_clip``."""
        axes = "".join(axis for axis in "nt" if axis in plan.spec.lengths)
        clips = plan.spec.view(array, f"{axes}{plan.frame.spec.layout}")
        pixels = iter(clip.pixels)
        for frames in clips if "n" in axes else (clips,):
            placements = [clip.placed.placements[name]] * len(frames)
            failed = self._kernels[name].run([*islice(pixels, len(frames))], placements, frames, range(len(frames)))
            if failed:
                return next(iter(failed.values()))
        return None

    def split(self, pixels: Any, *, is_one: bool = False) -> list[Array]:
        """Return views of the images of an array, so that a batch can combine images of several arrays.

        Args:
            pixels: Array of uint8, (n, height, width, channels).
            is_one: Whether ``pixels`` is a single image (height, width, channels).
        """
        array = self._device.array(pixels)
        return [array] if is_one else list(array)

    def trim(self) -> None:
        """Free the memory that is cached for the next batch, for example before a long pause.

        On the CPU, the engine keeps at most 512 MiB of the tensors that have been deleted, besides the buffers of its
        threads. Any thread may call this method.
        """
        self._device.trim()

    def is_working(self) -> bool:
        """Return whether the device still works. After some errors, a GPU cannot be used again by the same process."""
        return self._device.is_working()

    def close(self) -> None:
        """Stop the threads and free all memory. The engine cannot be used afterwards."""
        if self._pool is not None:
            self._pool.shutdown()
        self._device.close()

    def __enter__(self) -> Engine:  # noqa: PYI034  (typing.Self begins with Python 3.11)
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _slice(chunk: Chunk, begin: int, end: int) -> Chunk:
    """Return a part of a chunk: its images from ``begin`` to ``end``, exclusive."""
    return Chunk(chunk.indices[begin:end], chunk.images[begin:end])


def _per_row(result: Decoded | ImageError, count: int) -> Sequence[Decoded | ImageError]:
    """Return the result of an image for each of its ``count`` rows."""
    if isinstance(result, ImageError) or not result.placed.rows:
        return [result] * count
    return [row if isinstance(row, ImageError) else result._replace(placed=row) for row in result.placed.rows]
