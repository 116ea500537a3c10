"""Batches out of samples: what an epoch's thread does, and what it does about broken samples."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from math import ceil
from threading import Lock
from types import MappingProxyType
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from pixprep.engine.annotations import columns, moving
from pixprep.engine.batch import Batch
from pixprep.engine.decoders import Decoded
from pixprep.engine.engine import Engine
from pixprep.errors import DataError, ImageError, PipelineError, printable
from pixprep.plan.boxes import in_pixels
from pixprep.plan.output_plans import BoxesPlan, MaskPlan, TensorPlan
from pixprep.plan.plan import Placed, Plan
from pixprep.spec import NO_PADDING
from pixprep.training.cache import PixelCache
from pixprep.training.fields import Annotated, as_long_as_boxes, collated, left_behind
from pixprep.training.mixing import Key, Mixing
from pixprep.training.order import Order, Part
from pixprep.training.reading import Reader, Sample
from pixprep.training.recycling import Blocks, Recycler
from pixprep.training.sources import AnySource
from pixprep.training.timeline import Timeline

log = logging.getLogger(__name__)

OnError = Literal["raise", "replace", "skip"]
ON_ERRORS: tuple[OnError, ...] = get_args(OnError)
MAX_ATTEMPTS = 100
"""Maximum number of replacements per broken sample. With half of all samples broken, ten fail once in a thousand."""
COPY = 128
"""Attempt number of the first repeat of a sample in an epoch. The k-th repeat starts at ``k * COPY``."""
_NAMED = 3


@dataclass(frozen=True)
class Broken:
    """A sample that could not be delivered.

    Attributes:
        epoch: Epoch in which the sample was requested.
        index: Index of the sample in the source.
        name: Name of the sample in the source.
        error: Reason why it could not be read or decoded.
        replaced_by: Index of the sample that replaced it. None: it was skipped.
    """

    epoch: int
    index: int
    name: str
    error: ImageError
    replaced_by: int | None = None

    def __str__(self) -> str:
        what = "left out" if self.replaced_by is None else f"sample {self.replaced_by:,} came in its place"
        return f"epoch {self.epoch}, sample {self.index:,}: {printable(self.error)}: {what}"


def checked_on_error(on_error: OnError, world: int) -> OnError:
    """Reject an invalid ``on_error``, or one that a shard does not support.

    Raises:
        PipelineError: see above.
    """
    if on_error not in ON_ERRORS:
        raise PipelineError(f"on_error must be one of {', '.join(ON_ERRORS)}, not {on_error!r}")
    if on_error == "skip" and world > 1:
        raise PipelineError(
            'on_error="skip" makes batches of different sizes on the shards, and distributed training would hang or be '
            'wrong: use on_error="replace"'
        )
    return on_error


def error_limit(max_errors: float, order: Order) -> int:
    """Return the maximum number of broken samples per epoch and shard from ``max_errors``, a number or a fraction.

    Raises:
        PipelineError: ``max_errors`` is neither.
    """
    if isinstance(max_errors, float) and 0 <= max_errors <= 1:
        return ceil(max_errors * order.length / order.shard[1])
    if isinstance(max_errors, int) and not isinstance(max_errors, bool) and max_errors >= 0:
        return max_errors
    raise PipelineError(f"max_errors must be a fraction from 0.0 to 1.0 or an integer, not {max_errors!r}")


@dataclass
class _Rows:
    """The samples of a batch.

    Attributes:
        samples: The samples that were read.
        attempts: Attempt number of each sample: 0 for the sample itself, n for its n-th replacement. The k-th repeat of
            a sample starts at ``k * COPY``.
        is_padding: Padding flags, as in ``Part``.
        annotated: The transformed annotations of each sample.
    """

    samples: list[Sample]
    attempts: list[int]
    is_padding: npt.NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, np.bool_))
    annotated: list[Mapping[str, Any]] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Maker:
    """Makes the batches of epochs, one thread at a time.

    Attributes:
        source, order, engine: Source of the samples, their order, and the engine that preprocesses them.
        on_error, max_errors: Treatment of broken samples, and their maximum number per epoch.
        recycler: Recycler for the memory of the outputs. None: the device has its own.
        cache: Cache of decoded pixels.
        mix: Operation that mixes the images of a batch.
        timeline: Timeline that records the work.
        blocks: Memory for encoded files.
        broken: Samples that were skipped or replaced, by their indices.
        warned: Names of fields for which a warning was already logged.
        lengths: See ``as_long_as_boxes``.
    """

    source: AnySource
    order: Order
    engine: Engine
    on_error: OnError
    max_errors: int
    recycler: Recycler | None
    cache: PixelCache | None
    mix: Mixing | None = None
    timeline: Timeline = field(default_factory=Timeline)
    blocks: Blocks = field(default_factory=Blocks)
    broken: dict[int, Broken] = field(default_factory=dict)
    warned: set[str] = field(default_factory=set)
    lengths: dict[str, Counter[int]] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)  # an engine is one thread's at a time: an epoch's, or that of ``replay``

    def reader(self) -> Reader:
        """Make the reader of samples for ``batches``, which closes it."""
        takes = self.engine.plan.takes
        return Reader(
            self.source,
            self.engine.options.limits,
            self.timeline,
            cache=self.cache,
            blocks=self.blocks,
            dtypes=takes.dtypes if takes else (),
            files=[name for name in moving(self.engine.plan) if name in ("mask", "masks")],
            is_patient=self.on_error != "raise",
        )

    def batches(self, epoch: int, position: int, reader: Reader) -> Generator[tuple[int, Batch], None, None]:
        """Yield batches, each preceded by the position in the epoch after it.

        Raises:
            ImageError, DataError: a sample is broken, or too many are.
        """
        met: dict[int, str] = {}
        try:
            with closing(reader), closing(reader.ahead(self.order.parts(epoch, position))) as ahead:
                for part, samples in ahead:
                    made = self._made(epoch, part, samples, reader, met)
                    if len(made) and self.mix is not None:
                        made = self.mixed(made, (self.order.seed, epoch, part.end, self.order.shard[0]))
                    if len(made):
                        yield part.end, made
                    del made  # or this frame would keep it while the next one is made
        finally:
            if met:
                done = "left out" if self.on_error == "skip" else "replaced"
                log.warning("epoch %d: %d broken samples were %s: %s", epoch, len(met), done, _some(met))

    def one(self, epoch: int, index: int, attempt: int) -> Batch:
        """A batch of one sample.

        Raises:
            ImageError: it is broken.
        """
        with closing(self.reader()) as reader:
            samples = reader.samples([index])
        rows = _Rows(samples, [attempt], np.zeros(1, np.bool_))
        made = self._run(rows, epoch)
        if made.errors[0] is not None:
            raise made.errors[0]
        return self._finished(made, rows)

    def mixed(self, made: Batch, key: Key) -> Batch:
        """The batch, mixed by the numbers of its key."""
        assert self.mix is not None
        return self.mix.mixed(made, key, self.engine.pipeline)

    def rest(self) -> None:
        """Give memory back, until the next batch."""
        if self.recycler is not None:
            self.recycler.clear()
        self.blocks.clear()
        self.engine.trim()

    def _made(self, epoch: int, part: Part, samples: list[Sample], reader: Reader, met: dict[int, str]) -> Batch:
        rows = _Rows(samples, (part.copies * COPY).tolist(), part.is_padding)
        with self.timeline.span("decode and transform", samples=len(samples)):
            made = self._run(rows, epoch)
        broken = [row for row, error in enumerate(made.errors) if error is not None]
        for row in broken:
            self._meet(epoch, samples[row], made.errors[row], met)
        if broken and self.on_error == "skip":
            return self._without(made, epoch, rows)
        if broken:
            with self.timeline.span("replace", samples=len(broken)):
                self._replace(made, epoch, rows, reader)
        return self._finished(made, rows)

    def _meet(self, epoch: int, sample: Sample, error: ImageError | None, met: dict[int, str]) -> None:
        """Count a broken sample, or raise its error."""
        assert error is not None
        if self.on_error == "raise":  # by a new one, or frame, error and batch would hold each other
            raise ImageError(error.reason, f"{error.detail}{self._remedy(sample, error)}")
        if not met:
            log.warning("epoch %d: %s", epoch, printable(error))
        met[sample.index] = printable(sample.name)
        self.broken.setdefault(sample.index, Broken(epoch, sample.index, sample.name, error))
        if len(met) > self.max_errors:
            raise DataError(
                f"{len(met):,} samples of epoch {epoch} are broken, and max_errors allows {self.max_errors:,}: "
                f"{_some(met)}; the last: {printable(error)}"
            )

    def _remedy(self, sample: Sample, error: ImageError) -> str:
        """Remedy that lets a damaged JPEG pass; empty of anything else."""
        is_jpeg = isinstance(sample.image, bytes | bytearray | memoryview) and bytes(sample.image[:2]) == b"\xff\xd8"
        is_mild = self.engine.options.damage in ("pillow", "lenient")
        if error.reason not in ("CORRUPT", "TRUNCATED") or not is_jpeg or is_mild:
            return ""
        return ': damage="pillow" takes what Pillow loads, and on_error="replace" another sample'

    def _replace(self, made: Batch, epoch: int, rows: _Rows, reader: Reader) -> None:
        """Replace each row whose sample is broken with a different sample."""
        wanted = {row: rows.samples[row] for row, error in enumerate(made.errors) if error is not None}
        copies = {row: rows.attempts[row] for row in wanted}
        left = list(wanted)
        for attempt in range(1, MAX_ATTEMPTS + 1):
            attempts = [copies[row] + attempt for row in left]
            indices = [self.order.replacement(epoch, wanted[row].index, copies[row] + attempt) for row in left]
            self._run_into(made, left, _Rows(reader.samples(indices), attempts), epoch, rows)
            for row in left:
                first = self.broken[wanted[row].index]
                if made.errors[row] is None and first.epoch == epoch:
                    self.broken[first.index] = replace(first, replaced_by=rows.samples[row].index)
            left = [row for row in left if made.errors[row] is not None]
            if not left:
                return
        raise DataError(f"no valid sample was found in {MAX_ATTEMPTS} attempts to replace {wanted[left[0]].name}")

    def _without(self, made: Batch, epoch: int, rows: _Rows) -> Batch:
        """The batch without its broken rows: the last whole ones are made again in their places."""
        whole = [row for row, error in enumerate(made.errors) if error is None]
        holes = [row for row, error in enumerate(made.errors) if error is not None and row < len(whole)]
        moved = whole[len(whole) - len(holes) :]
        others = _Rows([rows.samples[row] for row in moved], [rows.attempts[row] for row in moved])
        self._run_into(made, holes, others, epoch, rows)
        is_padding = rows.is_padding.copy()
        is_padding[holes] = is_padding[moved]
        kept = slice(len(whole))
        made.outputs = {name: array[kept] for name, array in made.outputs.items()}
        made.errors, made.placed, made.rows = made.errors[kept], made.placed[kept], made.rows[kept]
        made.decode_s, made.transform_s = made.decode_s[kept], made.transform_s[kept]
        return self._finished(
            made, _Rows(rows.samples[kept], rows.attempts[kept], is_padding[kept], rows.annotated[kept])
        )

    def _run_into(self, made: Batch, places: Sequence[int], others: _Rows, epoch: int, rows: _Rows) -> None:
        """Make other samples in rows of a batch, and enter those that are whole."""
        again = self._run(others, epoch, into=made, places=places)
        for other, row in enumerate(places):
            made.errors[row], made.placed[row] = again.errors[row], again.placed[row]
            if again.errors[row] is None:
                rows.samples[row], rows.attempts[row] = others.samples[other], others.attempts[other]
                rows.annotated[row] = others.annotated[other]

    def _run(self, rows: _Rows, epoch: int, *, into: Batch | None = None, places: Sequence[int] | None = None) -> Batch:
        """The outputs of samples, and errors that name them; into rows of another batch, if it is given."""
        cache, samples = self.cache, rows.samples
        placings = self._placings(rows, epoch)

        def keep(place: int, image: Decoded) -> None:
            placings[place].finish()
            if cache is not None:
                cache.keep(samples[place].index, samples[place].identity, image)

        with self._lock:
            made = self.engine.run_batch(
                [sample.image for sample in samples],
                places=placings,
                into=into.outputs if into else self._room(len(samples)),
                rows=places,
                keep=keep,
                keep_whole=cache is not None,
            )
        for sample, span in zip(samples, made.rows, strict=True):
            made.errors[span] = [error and sample.error(error) for error in made.errors[span]]
        rows.annotated = [placing.fields for placing in placings]
        self.timeline.add("decode", sum(made.decode_s))
        self.timeline.add("transform", sum(made.transform_s))
        return made

    def _known(self, fields: Mapping[str, Any]) -> Plan:
        """The plan; of serving without the annotations that a sample lacks, for photos without labels are served."""
        plan = self.engine.plan
        if self.engine.pipeline.side == "training" or all(each.field in fields for each in plan.annotations.values()):
            return plan
        return replace(plan, annotations={n: each for n, each in plan.annotations.items() if each.field in fields})

    def _placings(self, rows: _Rows, epoch: int) -> list[Annotated]:
        """Placing of each sample by its draws; a function of the image's size."""
        plan = self.engine.plan
        indices = [sample.index for sample in rows.samples]
        numbers = plan.draw(seed=self.order.seed, epoch=epoch, indices=indices, attempts=rows.attempts)
        is_late = self.engine.lanes > 1 and any(isinstance(each, MaskPlan) for each in plan.annotations.values())
        return [
            Annotated(self._known(sample.fields), place, sample.fields, is_late=is_late)
            for sample, each in zip(rows.samples, numbers, strict=True)
            for place in (_nowhere if isinstance(sample.image, ImageError) else plan.placing(each, sample.fields),)
        ]

    def _room(self, count: int) -> dict[str, Any]:
        """Arrays for the tensors of a batch; on a GPU, CuPy's memory pool reuses freed ones."""
        if self.recycler is None:
            return {}
        specs = {name: self.engine.pipeline.outputs[name].spec for name in self.engine.tensors}
        closed = {name: spec for name, spec in specs.items() if not spec.is_open}
        return {name: self.recycler.empty((count, *spec.shape), spec.dtype) for name, spec in closed.items()}

    def _finished(self, made: Batch, rows: _Rows) -> Batch:
        """The batch with the fields of its samples, which follow the plan's ``boxes`` and ``points``."""
        plan, records = self.engine.plan, []
        of_boxes = [(name, each) for name, each in plan.annotations.items() if isinstance(each, BoxesPlan)]
        for sample, placed, annotated in zip(rows.samples, made.placed, rows.annotated, strict=True):
            size = None if placed is None else (placed.height, placed.width)
            boxes = in_pixels(sample.fields.get("boxes"), *size) if size else None
            records.append(sample.fields if boxes is None else {**sample.fields, "boxes": boxes})
            self._warn(left_behind(sample.fields, {*moving(plan), *plan.inputs, *self.warned}, size))
            for name, each in of_boxes[:1]:
                left = len(annotated.get(name, sample.fields.get("boxes", ())))
                self._warn(as_long_as_boxes(sample.fields, self.lengths, each, left))
        fields = collated(records, [sample.name for sample in rows.samples])
        for name in moving(plan):  # the op's output has another name, and these are in pixels of the photos
            fields.pop(name, None)
        fields |= columns(plan, rows.annotated)
        own = {
            "index": np.array([sample.index for sample in rows.samples]),
            "attempt": np.array(rows.attempts),
            "is_padding": rows.is_padding,
        }
        if plan.clip is not None:
            own["frames"] = np.array([placed.frames for placed in made.placed if placed is not None])
        hidden = 'batch["{}"] is not the field of that name of the samples: give that another name'
        self._warn((name, hidden.format(name)) for name in fields.keys() & {*own, *made.outputs})
        made.fields, made.annotations = MappingProxyType(_sizes(made) | fields | own), plan.annotations
        return made

    def _warn(self, found: Iterable[tuple[str, str]]) -> None:
        """Warn of fields, each once."""
        for name, words in found:
            if name not in self.warned:
                self.warned.add(name)
                log.warning("%s", words)


def _sizes(made: Batch) -> dict[str, Any]:
    """(height, width) of each image in its tensor, where that may be padded: int64 (n, 2), as ``sizes``."""
    for name, each in made.plans.items():
        if isinstance(each, TensorPlan) and each.spec.layout and "t" not in each.spec.layout:
            is_padded = each.spec.is_open or each.spec.padding[1:] != NO_PADDING[1:]
            found = [placed.placements[name].size if placed else (0, 0) for placed in made.placed]
            return {"sizes": np.array(found).reshape(-1, 2)} if is_padded else {}
    return {}


def _some(met: Mapping[int, str]) -> str:
    return ", ".join(list(met.values())[:_NAMED]) + ", …" * (len(met) > _NAMED)


def _nowhere(height: int, width: int) -> Placed:
    raise AssertionError(f"an image that could not be read has a size: {height} x {width}")
