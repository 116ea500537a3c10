"""Loader: batches for training out of a source of samples and a pipeline.

order      which samples a batch has          integers, by seed and epoch
reading    samples -> encoded bytes           threads, two batches ahead
making     encoded bytes -> tensors           the engine; replaces what is broken
prefetch   finished batches wait              at most ``prefetch``
you        ``for batch in loader``
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy.typing as npt

from pixprep.engine.batch import Batch
from pixprep.engine.decoders import Codec, Damage, Limits
from pixprep.engine.engine import Engine
from pixprep.errors import DataError, ImageError, PipelineError, SetupError
from pixprep.names import LOADER, explained
from pixprep.pipeline.pipeline import Pipeline, not_a_pipeline
from pixprep.training.cache import pixel_cache
from pixprep.training.epoch import HERE, Course, Epoch
from pixprep.training.frameworks import Tuples, library
from pixprep.training.making import Broken, Maker, OnError, checked_on_error, most_errors
from pixprep.training.mixing import Mixing
from pixprep.training.order import Last, Order, Shuffle, shard_of
from pixprep.training.recycling import Recycler
from pixprep.training.sources import AnySource
from pixprep.training.sources.iterated import check_in_order
from pixprep.training.sources.joined import check_source, fingerprint, groups_of, weights_of
from pixprep.training.state import STATE_VERSION, checked_epoch, checked_state
from pixprep.training.timeline import Stats

log = logging.getLogger(__name__)

EXAMPLES = 100
"""Samples of which one at least has to be whole, to see what a batch has."""


class Loader:
    """Batches for training: one epoch for each ``for`` over it.

    >>> loader = Loader(pp.read.files("train/"), pipeline, batch_size=64, shuffle=True)      # doctest: +SKIP
    >>> for epoch in range(90):                                                              # doctest: +SKIP
    ...     for batch in loader:
    ...         images, labels = batch.torch("tensor", "label", device="cuda")

    A batch has the pipeline's outputs, and each field of the samples: an array for a field of numbers, else a list.
    ``index`` (int64) is the number of each sample in the source. ``attempt`` (int64) is 0, or the number of the
    replacement; it begins at 128 for a sample that came before in the epoch. ``is_padding`` (bool) marks samples that
    only fill the batch up. ``frames`` (int64, clips x frames) has the numbers of a clip's frames in its file.

    ``seed`` and the epoch alone decide which samples a batch has and what is drawn for each: threads, the device and
    earlier reads do not. After an epoch that is left before its end, the next ``for`` begins the next epoch. Memory is
    given back when an epoch is left; after a whole epoch it is kept for the next one, until ``close``.

    Use it from one thread at a time, in the process that made it.

    Args:
        source: an object that has ``len()`` and gives a sample, a dict, for each index, such as a list of dicts.
            ``image`` is the encoded bytes or a ``pathlib.Path``. Several threads read it at once.
        pipeline: what is done to each image; ``for_training()`` or ``for_serving()``.
        batch_size: samples in a batch, of this shard.
        shuffle: True, False, or ``"blocks"``: only among neighbours in the source, for disks with slow seeks.
        seed: 0 to 2**32 - 1, of the order and of all that is drawn.
        shard: (rank, world): this process's part of how many. All shards have equally many batches. Default: all
            samples, unless WORLD_SIZE says that there are several processes.
        weights: how likely each sample is to be drawn, with replacement: an array, or ``"balanced"``: each class as
            likely as any other. Default: each sample comes once.
        shares: of an epoch's samples, one for each source of a ``pixprep.read.concat``. No sample of a source comes
            again before all others of it have come.
        repeats: how often each sample comes, each copy with its own draws; shards take the copies by turns. An epoch
            has the same number of rows, so it has fewer different samples.
        epoch_samples: samples in an epoch; the next one goes on behind them. Default: as many as the source has.
        group_by: a number for each sample. All samples of a batch, on all shards, have one number, and ``last`` holds
            for each number. ``"aspect"``: images that are at least as wide as high, and the others; sizes that the
            source does not know are read from the images' headers, once. Default: any samples make a batch.
        last: what becomes of the samples that fill no batch: ``drop``, ``short`` (a smaller batch), or ``pad`` (filled
            up; see ``is_padding``). Default: with ``shuffle`` ``drop``, others each epoch; else ``short``, or ``pad``
            on several shards.
        on_error: what becomes of a broken sample. ``raise``: an ImageError. ``replace``: another sample in its place,
            after a resume the same one. ``skip``: a smaller batch, whose rows may be in another order. Both log a
            warning, and ``errors`` has them all.
        max_errors: most broken samples of an epoch, a share of this shard's or a whole number; more are a DataError.
        device: ``"cpu"``, ``"gpu"``, ``"gpu:1"``, also of the outputs. ``"cuda:1"`` is ``"gpu:1"``.
        threads: that decode and resize; default: as many as this process may use cores.
        prefetch: how many batches are made ahead.
        cache: ``"pixels"`` keeps decoded images for the next epochs, in at most ``cache_bytes``; on the CPU only.
        mix: a ``Mix``, ``Mosaic`` or ``CopyPaste``; ``replay`` gives the samples as they were before.
        epoch: the first one, for a Loader that is made anew for each.
        limits, damage, decoder, odd_range: see ``Engine``.
        progress: show a bar for each epoch on stderr, where that is a terminal or of a notebook.

    Attributes:
        source, pipeline: as given.
        order: which samples each batch has.

    Raises:
        PipelineError: an argument is none of these, or has a value that it cannot have.
        DataError: the source has no samples, no length, or none by its number.
        SetupError: the device is missing.
    """

    @explained(LOADER, "what comes behind the pipeline has a name, such as batch_size=64")
    def __init__(
        self,
        source: AnySource,
        pipeline: Pipeline,
        *,
        batch_size: int,
        shuffle: Shuffle = False,
        seed: int = 0,
        shard: tuple[int, int] | None = None,
        weights: npt.ArrayLike | Literal["balanced"] | None = None,
        shares: Sequence[float] | None = None,
        repeats: int = 1,
        epoch_samples: int | None = None,
        group_by: npt.ArrayLike | Literal["aspect"] | None = None,
        last: Last | None = None,
        on_error: OnError = "raise",
        max_errors: float = 0.01,
        device: str = "cpu",
        threads: int | None = None,
        prefetch: int = 2,
        cache: Literal["pixels"] | None = None,
        cache_bytes: int = 4 << 30,
        mix: Mixing | None = None,
        epoch: int = 0,
        limits: Limits | None = None,
        damage: Damage | None = None,
        decoder: Codec = "consistent",
        odd_range: bool = False,
        progress: bool = False,
    ) -> None:
        if isinstance(source, Pipeline):
            raise DataError("source: a Pipeline: the source comes first, and the pipeline behind it")
        if not isinstance(pipeline, Pipeline):
            raise PipelineError(f"pipeline: must be a Pipeline, {not_a_pipeline(pipeline)}")
        check_source(source)
        check_in_order(
            source,
            shuffle=shuffle,
            weights=weights,
            shares=shares,
            repeats=repeats,
            group_by=group_by,
            on_error=on_error,
        )
        if not isinstance(prefetch, int) or prefetch < 1:
            raise PipelineError(f"prefetch is a number of batches, 1 at least, not {prefetch!r}")
        device = re.sub("^cuda(?=:|$)", "gpu", str(device))  # of PyTorch also an object
        self.source = source
        self.pipeline = pipeline
        self.order = Order(
            samples=len(source),
            batch_size=batch_size,
            shuffle=shuffle,
            seed=seed,
            shard=shard_of(shard),
            last=last,
            weights=weights_of(source, weights),
            blocks=getattr(source, "blocks", None),
            parts_of=tuple(map(len, getattr(source, "sources", ()))),
            shares=None if shares is None else tuple(map(float, shares)),
            repeats=repeats,
            epoch_samples=epoch_samples,
            groups=groups_of(
                source, group_by, is_upright=isinstance(group_by, str) and pipeline.plan.apply_exif_orientation
            ),
        )
        if mix is not None:
            if isinstance(mix, type) or not isinstance(mix, Mixing):
                raise PipelineError(f"mix is one Mix, Mosaic or CopyPaste, not {mix!r}")
            mix.check(pipeline, self.order)
        self._prefetch = prefetch
        self._maker = Maker(
            source=source,
            order=self.order,
            on_error=checked_on_error(on_error, self.order.shard[1]),
            most_errors=most_errors(max_errors, self.order),
            # of what is made and waits, of what the consumer has and has just let go of, and of a copy under way
            recycler=Recycler(prefetch + 3) if device == "cpu" else None,
            cache=pixel_cache(cache, cache_bytes, device, pipeline),
            mix=mix,
            engine=Engine(
                pipeline,
                device=device,
                threads=threads,
                limits=limits,
                damage=damage,
                decoder=decoder,
                odd_range=odd_range,
            ),
        )
        if shuffle and pipeline.side == "serving" and pipeline.left_out:
            log.warning("the Loader shuffles, and %s: pipeline.for_training() is the other side", pipeline.left_out)
        self._is_closed = False
        self._course = Course(self.order, self._maker, epoch=checked_epoch(epoch), with_bar=progress)
        self._epoch: Epoch | None = None

    def __repr__(self) -> str:
        order, source = self.order, type(self.source).__name__
        what = f"shuffle={order.shuffle!r}, seed={order.seed}, shard={order.shard}, epoch={self.epoch}"
        return f"<Loader: {len(self):,} batches of {order.batch_size}, {order.samples:,} samples of {source}, {what}>"

    def __len__(self) -> int:
        """Batches of a whole epoch."""
        return self.order.batches()

    def __iter__(self) -> Epoch:
        """Begin an epoch: the one that a state names, or the next one."""
        self._check_open()
        return self._course.begin(self._prefetch)

    def __next__(self) -> Batch:
        """The next batch: ``next(loader)`` goes on with its epoch, or begins the next one."""
        if self._epoch is None or self._epoch.is_closed:
            self._epoch = iter(self)
        return next(self._epoch)

    def __getitem__(self, index: object) -> Batch:
        raise TypeError(
            f"a Loader has batches of an epoch: source[{index}] is a sample, loader.replay(epoch, {index}) its tensors"
        )

    def __enter__(self) -> Loader:  # noqa: PYI034  (typing.Self begins with Python 3.11)
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the threads and give memory back; nothing can be loaded any more."""
        self._course.end()
        self._is_closed = True
        self._maker.rest()
        self._maker.engine.close()

    @property
    def epoch(self) -> int:
        """The epoch that is under way, or begins next."""
        return self._course.epoch

    def set_epoch(self, epoch: int) -> None:
        """Make this the next epoch. One that a state has begun, or the Loader is about to, goes on as it is.

        Args:
            epoch: 0 to 2**32 - 1.

        Raises:
            PipelineError: it is no such number.
        """
        self._course.next_is(checked_epoch(epoch))

    @property
    def errors(self) -> list[Broken]:
        """The broken samples that were replaced or left out, each once, in the order in which they were met."""
        return list(self._maker.broken.values())

    def state_dict(self) -> dict[str, Any]:
        """State of the training behind the batch that was delivered last. JSON holds it.

        What is made ahead does not count. Behind the last batch of an epoch it is the beginning of the next. The state
        is the same in all shards, and fits another number of them.
        """
        epoch, position = self._course.place
        return {
            "version": STATE_VERSION,
            "seed": self.order.seed,
            "shuffle": self.order.shuffle,
            "epoch": epoch,
            "position": position,
            "samples": self.order.samples,
            "source": fingerprint(self.source),
            "sampler": self.order.sampler,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where a state was taken: the next ``for`` gives the rest of that epoch, and reads nothing else for it.

        The number of shards and ``batch_size`` may have changed: the rest of the epoch is shared out anew.

        Raises:
            DataError: the state is of other samples.
            PipelineError: it is of another ``seed``, ``shuffle`` or sampler, or is no state.
        """
        epoch, position = checked_state(state, self.state_dict(), self.order.length)
        self._course.end()
        self._course.go_to(epoch, position)

    def replay(self, epoch: int, index: int, attempt: int = 0) -> Batch:
        """One sample again, exactly as it was in an epoch, in a batch of one.

        Args:
            epoch: as ``Loader.epoch`` was.
            index: of the sample: ``batch["index"]`` has it.
            attempt: ``batch["attempt"]`` has it.

        Raises:
            ImageError: the sample is broken.
            IndexError: there is no such sample.
        """
        self._check_open()
        if not 0 <= index < self.order.samples:
            raise IndexError(f"no sample {index}: there are {self.order.samples:,}")
        return self._maker.one(epoch, index, attempt)

    def example(self) -> Batch:
        """A batch of one sample, the first that is whole: to see what a batch has.

        Raises:
            ImageError: the first samples are all broken.
        """
        self._check_open()
        for index in range(min(EXAMPLES, self.order.samples)):
            try:
                one = self._maker.one(0, index, 0)
                break
            except ImageError as error:
                broken = error
        else:
            raise broken
        return one if self._maker.mix is None else self._maker.mixed(one, (0, 0, 0, 0))

    def tuples(self, *names: str) -> Tuples:
        """Batches as tuples of NumPy arrays and lists: ``for images, labels in loader.tuples("tensor", "label")``.

        Args:
            names: of outputs and fields; one at least.
        """
        if not names:
            raise PipelineError('tuples: name outputs and fields, such as tuples("tensor", "label")')
        return Tuples(self, names)

    def torch(
        self, *names: str, padded: bool = False, device: Any = None, non_blocking: bool = False, dtype: Any = None
    ) -> Any:
        """Batches as ``Batch.torch`` gives them: a PyTorch ``IterableDataset``, which Lightning and accelerate take.

        It has ``state_dict``, ``load_state_dict`` and ``len``. PyTorch's DataLoader takes it with ``batch_size=None``
        and ``num_workers=0``.

        Args:
            names: of outputs and fields; default: all, as a dict.
            padded: each list of arrays as one array: see ``Batch.padded``.
            device: of PyTorch; default: where they are.
            non_blocking: see ``Batch.torch``.
            dtype: see ``Batch.torch``.

        Raises:
            SetupError: PyTorch is not installed.
        """
        return library("torch").Dataset(
            self, names, padded=padded, device=device, non_blocking=non_blocking, dtype=dtype
        )

    def tf(self, *names: str, padded: bool = False) -> Any:
        """Batches as a ``tf.data.Dataset``, whose every iteration is an epoch; its types come from one sample.

        It has a ``len``, but for ``on_error="skip"``, and where a state is in the middle of an epoch.

        Args:
            names: of outputs and fields; default: all, as a dict. A list of arrays is a ``tf.RaggedTensor``.
            padded: it is one tensor: see ``Batch.padded``.

        Raises:
            DataError: a field is no tensor.
            SetupError: TensorFlow is not installed.
        """
        return library("tensorflow").dataset(self, names, is_counted=self._maker.on_error != "skip", is_padded=padded)

    def keras(self, *names: str) -> Any:
        """Batches as a ``keras.utils.PyDataset``, for ``model.fit(loader.keras("tensor", "label"), epochs=3)``.

        Each list of arrays is one array: see ``Batch.padded``.

        Raises:
            SetupError: Keras is not installed.
        """
        return library("keras").Dataset(self, names)

    def stats(self) -> Stats:
        """Times that each side has waited for the other so far; printed, words say so."""
        return self._course.stats()

    def trace(self, path: str | Path) -> None:
        """Write what each thread did last, for https://ui.perfetto.dev: a track for each."""
        self._maker.timeline.save(path)

    def _check_open(self) -> None:
        self._course.check_process()
        if self._is_closed:
            raise SetupError("this Loader was closed: make another one")

    def __reduce__(self) -> Any:
        raise SetupError(f"a Loader cannot be sent to another process: {HERE}")
