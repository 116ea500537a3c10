"""Builds the batches of an epoch in a worker thread, and handles broken samples."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from math import ceil
from threading import Lock
from types import MappingProxyType
from typing import Any, ClassVar, Literal, get_args

import numpy as np
import numpy.typing as npt

from pixprep.engine.annotations import columns
from pixprep.engine.batch import Batch
from pixprep.engine.engine import Engine
from pixprep.errors import DataError, ImageError, PipelineError, printable
from pixprep.plan.boxes import in_pixels
from pixprep.registry import BATCHES, load
from pixprep.spec import NO_PADDING
from pixprep.training.cache import PixelCache
from pixprep.training.fields import collated, run_annotated, unfiltered, untransformed
from pixprep.training.mixer import Mixer
from pixprep.training.mixing import Mix
from pixprep.training.order import Key, Order, Part
from pixprep.training.reading import Reader, Sample
from pixprep.training.recycling import Blocks, Recycler
from pixprep.training.sources import AnySource
from pixprep.training.timeline import Timeline

log = logging.getLogger(__name__)

OnError = Literal["raise", "replace", "skip"]
ON_ERRORS: tuple[OnError, ...] = get_args(OnError)
MAX_ATTEMPTS = 100
"""Maximum number of replacements that are tried per broken sample. Even if half of all samples are broken, ten attempts
in a row fail only with a probability of 1 in 1,024."""
_MAX_NAMED = 3
"""Maximum number of broken samples that a message names."""


@dataclass(frozen=True)
class Broken:
    """A sample that could not be read or decoded.

    Attributes:
        epoch: Epoch in which the sample was requested.
        index: Index of the sample in the source.
        name: Name of the sample in the source.
        error: Error that was raised when it was read or decoded.
        replaced_by: Index of the sample that replaced it, or None if it was skipped.
    """

    epoch: int
    index: int
    name: str
    error: ImageError
    replaced_by: int | None = None

    def __str__(self) -> str:
        what = "skipped" if self.replaced_by is None else f"replaced by sample {self.replaced_by:,}"
        return f"epoch {self.epoch}, sample {self.index:,}: {printable(self.error)}: {what}"


def checked_on_error(on_error: OnError, world: int) -> OnError:
    """Return ``on_error`` if it is valid.

    Args:
        on_error: Argument of the Loader.
        world: Number of shards.

    Raises:
        PipelineError: The value is unknown, or it is "skip" with several shards.
    """
    if on_error not in ON_ERRORS:
        raise PipelineError(f"on_error must be one of {', '.join(ON_ERRORS)}, not {on_error!r}")
    if on_error == "skip" and world > 1:
        raise PipelineError(
            'on_error="skip" is not supported with several shards: their batches would differ in size, and distributed '
            'training would hang or average gradients incorrectly; use on_error="replace"'
        )
    return on_error


def error_limit(max_errors: float, order: Order) -> int:
    """Return the maximum number of broken samples per epoch and shard.

    Args:
        max_errors: Argument of the Loader: a fraction of the samples (float), or a number of samples (int).
        order: Order of the samples.

    Raises:
        PipelineError: ``max_errors`` is neither a fraction nor a nonnegative integer.
    """
    if isinstance(max_errors, float) and 0 <= max_errors <= 1:
        return ceil(max_errors * order.length / order.shard[1])
    if isinstance(max_errors, int) and not isinstance(max_errors, bool) and max_errors >= 0:
        return max_errors
    raise PipelineError(f"max_errors must be a fraction from 0.0 to 1.0 or a nonnegative integer, not {max_errors!r}")


@dataclass
class _Rows:
    """The samples of a batch, one per batch index ("row").

    Attributes:
        LISTS: Names of the attributes with a list of one value per row.
        samples: The samples that were read.
        attempts: Attempt number of each sample: 0 for the sample itself, n for its n-th replacement. The attempts of
            the k-th repetition of a sample start at ``k * order.COPY``.
        is_padding: Whether each sample only fills up the batch, as in ``Part``.
        annotated: Transformed annotations of each sample.
        histories: Random parameters of the chain for each sample; empty without a chain.
    """

    LISTS: ClassVar[tuple[str, ...]] = ("samples", "attempts", "annotated", "histories")

    samples: list[Sample]
    attempts: list[int]
    is_padding: npt.NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, np.bool_))
    annotated: list[Mapping[str, Any]] = field(default_factory=list)
    histories: list[list[Mapping[str, Any]]] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Maker:
    """Builds batches. Only one thread at a time may use it.

    Attributes:
        source: Source of the samples.
        order: Order of the samples.
        engine: Engine that preprocesses the images.
        on_error: Treatment of broken samples.
        max_errors: Maximum number of broken samples per epoch.
        recycler: Memory pool for the outputs. None means that the device manages its own memory.
        cache: Cache of decoded images, if enabled.
        mix: Batch augmentation, such as mixup, if there is one.
        mixer: Chain that changes samples before the engine, if there is one.
        timeline: Timeline that records the work.
        blocks: Memory pool for encoded files.
        broken: Samples that were skipped or replaced, by sample index.
        warned: Names of the fields for which a warning was already logged.
        lengths: Counts by which ``unfiltered`` recognizes fields with one value per box.
    """

    source: AnySource
    order: Order
    engine: Engine
    on_error: OnError
    max_errors: int
    recycler: Recycler | None
    cache: PixelCache | None
    mix: Mix | None = None
    mixer: Mixer | None = None
    timeline: Timeline = field(default_factory=Timeline)
    blocks: Blocks = field(default_factory=Blocks)
    broken: dict[int, Broken] = field(default_factory=dict)
    warned: set[str] = field(default_factory=set)
    lengths: dict[str, Counter[int]] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)  # the thread of an epoch and ``replay`` share the engine

    def reader(self) -> Reader:
        """Return a new reader of samples. ``batches`` closes it."""
        plan = self.engine.plan if self.mixer is None else self.mixer.plan
        takes = plan.takes
        return Reader(
            self.source,
            self.engine.options.limits,
            self.timeline,
            seed=self.order.seed,
            cache=self.cache,
            blocks=self.blocks,
            dtypes=takes.dtypes if takes else (),
            files=[name for name in plan.moving if name not in ("boxes", "points")],
            is_patient=self.on_error != "raise",
        )

    def batches(self, epoch: int, position: int, reader: Reader) -> Generator[tuple[int, Batch], None, None]:
        """Yield each batch of an epoch, as a pair of the position after the batch and the batch itself.

        Args:
            epoch: Number of the epoch.
            position: Position in the epoch at which the first batch begins.
            reader: Reader from ``reader``, which is closed at the end.

        Raises:
            ImageError: A sample is broken, with ``on_error="raise"``.
            DataError: Too many samples are broken, or the source returns an object that is not a sample.
        """
        broken_names: dict[int, str] = {}
        try:
            with closing(reader), closing(reader.ahead(self.order.parts(epoch, position), epoch)) as ahead:
                for part, samples in ahead:
                    batch = self._built(epoch, part, samples, reader, broken_names)
                    if len(batch) and self.mix is not None:
                        batch = self.mixed(batch, (self.order.seed, epoch, part.end, self.order.shard[0]))
                    if len(batch):
                        yield part.end, batch
                    del batch  # do not keep the batch alive while the next one is being built
        finally:
            if broken_names:
                done = "skipped" if self.on_error == "skip" else "replaced"
                log.warning(
                    "epoch %d: %d broken samples were %s: %s",
                    epoch,
                    len(broken_names),
                    done,
                    _first_names(broken_names),
                )

    def one(self, epoch: int, index: int, attempt: int) -> Batch:
        """Return a batch that contains a single sample, without mixing.

        Raises:
            ImageError: The sample is broken.
        """
        with closing(self.reader()) as reader:
            samples = reader.samples([index], epoch, [attempt])
            rows = self._chained(_Rows(samples, [attempt], np.zeros(1, np.bool_)), epoch, reader)
        batch = self._run(rows, epoch)
        if batch.errors[0] is not None:
            raise batch.errors[0]
        return self._finished(batch, rows)

    def mixed(self, batch: Batch, key: Key) -> Batch:
        """Apply the batch augmentation. The key seeds its random parameters."""
        assert self.mix is not None
        return self.mix.mixed(batch, key, self.engine.pipeline)

    def free_memory(self) -> None:
        """Free the pooled memory. The next batch allocates it again."""
        if self.recycler is not None:
            self.recycler.clear()
        self.blocks.clear()
        self.engine.trim()

    def _built(
        self, epoch: int, part: Part, samples: list[Sample], reader: Reader, broken_names: dict[int, str]
    ) -> Batch:
        """Build a batch, and handle its broken samples. Their names are added to ``broken_names``, by index."""
        rows = self._chained(_Rows(samples, part.attempts, part.is_padding), epoch, reader, broken_names)
        with self.timeline.span("decode and transform", samples=len(samples)):
            batch = self._run(rows, epoch, wait=False)
        broken = [row for row, error in enumerate(batch.errors) if error is not None]
        if broken or self.mix is not None:  # the outputs are changed below
            batch.wait()
        for row in broken:
            self._record(epoch, samples[row], batch.errors[row], broken_names)
        if broken and self.on_error == "skip":
            return self._without_broken(batch, rows)
        if broken:
            with self.timeline.span("replace", samples=len(broken)):
                self._replace(batch, epoch, rows, reader, broken_names)
        return self._finished(batch, rows)

    def _chained(self, rows: _Rows, epoch: int, reader: Reader, broken_names: dict[int, str] | None = None) -> _Rows:
        """Apply the chain to samples, if there is one. Partners that are broken are recorded, or their error is raised.

        Args:
            rows: Samples that were read.
            epoch: Number of the epoch.
            reader: Reader of the partners.
            broken_names: Names of the broken samples of the epoch, by index. None while a single sample is replayed.
        """
        if self.mixer is None:
            return rows
        for sample in rows.samples:
            for each in [*self.mixer.plan.boxes.values()][:1]:
                self._warn(unfiltered(sample.fields, self.lengths, each, 0))
        with self._lock, self.timeline.span("mix", samples=len(rows.samples)):
            items, broken = self.mixer.mixed(rows.samples, rows.attempts, epoch, reader), self.mixer.broken
        if broken_names is not None:
            for sample, error in broken:
                self._record(epoch, sample, error, broken_names)
        return replace(rows, samples=[item.sample for item in items], histories=[[*item.history] for item in items])

    def _record(self, epoch: int, sample: Sample, error: ImageError | None, broken_names: dict[int, str]) -> None:
        """Record a broken sample, or raise its error."""
        assert error is not None
        if self.on_error == "raise":  # a copy: the original would form a reference cycle with this frame and the batch
            raise ImageError(error.reason, f"{error.detail}{self._hint(sample, error)}")
        if not broken_names:
            log.warning("epoch %d: %s", epoch, printable(error))
        broken_names[sample.index] = printable(sample.name)
        self.broken.setdefault(sample.index, Broken(epoch, sample.index, sample.name, error))
        if len(broken_names) > self.max_errors:
            raise DataError(
                f"{len(broken_names):,} samples of epoch {epoch} are broken, but max_errors allows only "
                f"{self.max_errors:,}: {_first_names(broken_names)}; the last error: {printable(error)}"
            )

    def _hint(self, sample: Sample, error: ImageError) -> str:
        """Return the end of the message for a damaged JPEG: how to accept or replace it. Empty for other errors."""
        is_jpeg = isinstance(sample.image, bytes | bytearray | memoryview) and bytes(sample.image[:2]) == b"\xff\xd8"
        is_mild = self.engine.options.damage in ("pillow", "lenient")
        if error.reason not in ("CORRUPT", "TRUNCATED") or not is_jpeg or is_mild:
            return ""
        return ': damage="pillow" accepts the files that Pillow loads; on_error="replace" uses a different sample'

    def _replace(self, batch: Batch, epoch: int, rows: _Rows, reader: Reader, broken_names: dict[int, str]) -> None:
        """Replace the broken samples of a batch with different samples."""
        wanted = {row: rows.samples[row] for row, error in enumerate(batch.errors) if error is not None}
        copies = {row: rows.attempts[row] for row in wanted}
        left = list(wanted)
        for attempt in range(1, MAX_ATTEMPTS + 1):
            attempts = [copies[row] + attempt for row in left]
            indices = [self.order.replacement(epoch, wanted[row].index, copies[row] + attempt) for row in left]
            others = _Rows(reader.samples(indices, epoch, attempts), attempts)
            self._run_into(batch, left, self._chained(others, epoch, reader, broken_names), epoch, rows)
            for row in left:
                first = self.broken[wanted[row].index]
                if batch.errors[row] is None and first.epoch == epoch:
                    self.broken[first.index] = replace(first, replaced_by=rows.samples[row].index)
            left = [row for row in left if batch.errors[row] is not None]
            if not left:
                return
        raise DataError(
            f"{wanted[left[0]].name} is broken, and so are all of the {MAX_ATTEMPTS} samples that were tried as its "
            "replacement"
        )

    def _without_broken(self, batch: Batch, rows: _Rows) -> Batch:
        """Return the batch without its broken samples. The other samples keep their order.

        The outputs must stay contiguous, so each valid row moves up to the first row that is free.
        """
        valid = [row for row, error in enumerate(batch.errors) if error is None]
        outputs = dict(batch.outputs)
        for name, output in outputs.items():
            if valid and hasattr(output, "get"):  # on a GPU, where CuPy would compile a kernel to move a row
                outputs[name] = load(BATCHES["joined"])([output[row : row + 1] for row in valid])
                continue
            for to, row in enumerate(valid):
                if to != row:
                    output[to] = output[row]
            outputs[name] = output[: len(valid)]
        batch.outputs = outputs
        for owner, names in ((batch, ("errors", "placed", "decode_s", "transform_s")), (rows, _Rows.LISTS)):
            for name in names:
                values = getattr(owner, name)
                setattr(owner, name, [values[row] for row in valid if values])
        batch.rows, rows.is_padding = batch.rows[: len(valid)], rows.is_padding[valid]
        return self._finished(batch, rows)

    def _run_into(self, batch: Batch, places: Sequence[int], others: _Rows, epoch: int, rows: _Rows) -> None:
        """Compute other samples into the given rows of a batch, and record those that are valid."""
        again = self._run(others, epoch, into=batch, places=places)
        for other, row in enumerate(places):
            batch.errors[row], batch.placed[row] = again.errors[row], again.placed[row]
            if again.errors[row] is None:
                rows.samples[row], rows.attempts[row] = others.samples[other], others.attempts[other]
                rows.annotated[row] = others.annotated[other]
                if others.histories:
                    rows.histories[row] = others.histories[other]

    def _run(
        self,
        rows: _Rows,
        epoch: int,
        *,
        into: Batch | None = None,
        places: Sequence[int] | None = None,
        wait: bool = True,
    ) -> Batch:
        """Run the engine on samples. Its errors name the samples.

        Args:
            rows: The samples.
            epoch: Number of the epoch.
            into: Batch whose outputs receive the results. None means that new outputs are allocated.
            places: Rows of ``into`` for the samples.
            wait: See ``Engine.run_batch``.
        """
        with self._lock:
            batch, annotated = run_annotated(
                self.engine,
                rows.samples,
                seed=self.order.seed,
                epoch=epoch,
                attempts=rows.attempts,
                cache=None if self.mixer else self.cache,  # a chain caches the images that it decodes
                is_original=self.mixer is None,
                is_optional=self.engine.pipeline.side == "serving",
                into=into.outputs if into else self._allocated(len(rows.samples)),
                rows=places,
                wait=wait,
            )
        for sample, span in zip(rows.samples, batch.rows, strict=True):
            batch.errors[span] = [error and sample.error(error) for error in batch.errors[span]]
        rows.annotated = [each.fields for each in annotated]
        self.timeline.add("decode", sum(batch.decode_s))
        self.timeline.add("transform", sum(batch.transform_s))
        return batch

    def _allocated(self, count: int) -> dict[str, Any]:
        """Return arrays for the tensors of a batch. Empty on a GPU, where CuPy's memory pool reuses freed memory."""
        if self.recycler is None:
            return {}
        specs = {name: self.engine.pipeline.outputs[name].spec for name in self.engine.tensors}
        closed = {name: spec for name, spec in specs.items() if not spec.is_open}
        return {name: self.recycler.empty((count, *spec.shape), spec.array_dtype) for name, spec in closed.items()}

    def _finished(self, batch: Batch, rows: _Rows) -> Batch:
        """Add the fields of the samples to a batch, and warn about fields that no op transforms."""
        plan, records = self.engine.plan, []
        known = {*plan.moving, *plan.inputs, *self.warned}
        for sample, placed, annotated in zip(rows.samples, batch.placed, rows.annotated, strict=True):
            size = None if placed is None else (placed.height, placed.width)
            boxes = in_pixels(sample.fields.get("boxes"), *size) if size else None
            records.append(sample.fields if boxes is None else {**sample.fields, "boxes": boxes})
            self._warn(untransformed(sample.fields, known, size))
            for name, each in [*plan.boxes.items()][:1] if self.mixer is None else ():
                left = len(annotated.get(name, sample.fields.get("boxes", ())))
                self._warn(unfiltered(sample.fields, self.lengths, each, left))
        fields = collated(records, [sample.name for sample in rows.samples])
        for name in plan.moving:  # remove the untransformed fields, in case the op's output has a different name
            fields.pop(name, None)
        for name, target in plan.targets.items() if self.mixer is not None else ():
            for found in rows.annotated:
                if name in found:
                    found[name][np.isnan(found[name])] = target.ignore
        fields |= columns(plan, rows.annotated)
        own: dict[str, Any] = {
            "index": np.array([sample.index for sample in rows.samples]),
            "attempt": np.array(rows.attempts),
            "is_padding": rows.is_padding,
        }
        if self.mixer is not None:
            own["mix"] = rows.histories
        if plan.clip is not None:
            frames = [placed.frames for placed in batch.placed if placed is not None]
            most = max(map(len, frames), default=0)  # clips with fewer frames are padded with -1
            indices = np.array([[*each, *[-1] * (most - len(each))] for each in frames])
            sampling = plan.clip.sampling
            is_several = sampling.clips is not None and sampling.clip is None
            own["frames"] = indices.reshape(len(frames), -1, sampling.frames) if is_several else indices
        hidden = 'batch["{0}"] hides the samples\' field "{0}": rename the field'
        self._warn((name, hidden.format(name)) for name in fields.keys() & {*own, *batch.outputs})
        batch.fields, batch.annotations = MappingProxyType(_sizes(batch) | fields | own), plan.annotations
        return batch

    def _warn(self, found: Iterable[tuple[str, str]]) -> None:
        """Log warnings about fields, at most one per field."""
        for name, message in found:
            if name not in self.warned:
                self.warned.add(name)
                log.warning("%s", message)


def _sizes(batch: Batch) -> dict[str, Any]:
    """Return the field ``sizes`` if images may be padded: the (height, width) of each image, int64 (n, 2)."""
    for name, each in batch.plans.items():
        if each.spec.layout and "t" not in each.spec.layout:
            is_padded = each.spec.is_open or each.spec.padding[1:] != NO_PADDING[1:]
            found = [placed.placements[name].size if placed else (0, 0) for placed in batch.placed]
            return {"sizes": np.array(found).reshape(-1, 2)} if is_padded else {}
    return {}


def _first_names(broken_names: Mapping[int, str]) -> str:
    """List the names of the first broken samples."""
    return ", ".join(list(broken_names.values())[:_MAX_NAMED]) + ", …" * (len(broken_names) > _MAX_NAMED)
