"""Loader: batches for training out of a source of samples and a pipeline.

order      which samples a batch has          integers, by seed and epoch
reading    samples -> encoded bytes           threads, two batches ahead
making     encoded bytes -> tensors           the engine; replaces what is broken
prefetch   finished batches wait              at most ``prefetch``
you        ``for batch in loader``
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from importlib.util import find_spec
from math import ceil
from numbers import Integral
from pathlib import Path
from typing import Any, Literal
from weakref import ref

from pixprep.batch import Batch
from pixprep.data.cache import PixelCache
from pixprep.data.frameworks import library
from pixprep.data.making import ON_ERRORS, Broken, Maker, OnError
from pixprep.data.order import Last, Order, Shuffle, checked_shard, shard_of
from pixprep.data.prefetch import Prefetch
from pixprep.data.reading import AnySource, fingerprint
from pixprep.data.recycling import Recycler
from pixprep.data.timeline import Stats
from pixprep.decoders import Codec, Damage, Limits
from pixprep.engine import Engine
from pixprep.errors import DataError, ImageError, PipelineError, SetupError
from pixprep.pipeline import Pipeline

log = logging.getLogger(__name__)

STATE_VERSION = 1
EXAMPLES = 100
"""Samples of which one at least has to be whole, to see what a batch has."""


class Loader:
    """Batches for training: one epoch for each ``for`` over it.

    >>> loader = Loader(pp.read.files("train/"), pipeline, batch_size=64, shuffle=True)      # doctest: +SKIP
    >>> for epoch in range(90):                                                              # doctest: +SKIP
    ...     for batch in loader:
    ...         images, labels = batch.torch("tensor", "label", device="cuda")

    A batch has the pipeline's outputs, and each field of the samples: an array for a field of numbers, else a list.
    ``index`` (int64) says which samples they are, ``attempt`` (int64) the how-many-th replacement each is, and
    ``is_padding`` (bool) which of them only fill the batch up.

    Which samples a batch has, and what is drawn for each, follows from ``seed`` and the epoch alone: not from threads,
    the device, or what was read before. An epoch that is left before its end is over: the next ``for`` begins the next
    one. Its memory is given back then; after a whole epoch it is kept for the next one, until ``close``.

    Use it from one thread at a time, in the process that made it.

    Args:
        source: what has ``len()`` and gives a sample, a dict, for each index; a list of dicts is one. ``image`` is the
            encoded bytes or a ``pathlib.Path``. Several threads ask it at once.
        pipeline: what is done to each image; ``for_training()`` or ``for_serving()``.
        batch_size: samples in a batch, of this shard.
        shuffle: True, False, or ``"blocks"``: only neighbours in the source, for disks that hate seeks.
        seed: 0 to 2**32 - 1, of the order and of all that is drawn.
        shard: (rank, world): this process's part of how many. All shards have equally many batches. Default: all
            samples, unless WORLD_SIZE says that there are several processes.
        last: what becomes of the samples that fill no batch at the end of an epoch: ``drop``, ``short`` (a smaller
            batch), or ``pad`` (filled up with samples that came before; see ``is_padding``).
        on_error: what becomes of a broken sample. ``raise``: an ImageError. ``replace``: another sample comes in its
            place, after a resume the same one. ``skip``: the batch is smaller, and its rows may be in another order.
            Both log a warning, and ``errors`` has them all.
        max_errors: how many broken samples an epoch may have before a DataError ends it: a share of this shard's
            samples, or a whole number.
        device: ``"cpu"``, ``"gpu"``, ``"gpu:1"``: where the outputs are, too. ``"cuda:1"`` is ``"gpu:1"``.
        threads: that decode and resize; default: as many as this process may use cores.
        prefetch: how many batches are made ahead.
        cache: ``"pixels"`` keeps decoded images for the next epochs, in at most ``cache_bytes``; on the CPU only.
        limits, damage, decoder, odd_range: see ``Engine``.
        progress: show a bar for each epoch on stderr, where that is a terminal or of a notebook.

    Attributes:
        source, pipeline: as given.
        order: which samples each batch has.

    Raises:
        PipelineError: an argument is none of these.
        DataError: the source has no samples, or no length, or none by its number.
        PipelineError: an option has a value that it cannot have.
        SetupError: the device is missing.
    """

    def __init__(
        self,
        source: AnySource,
        pipeline: Pipeline,
        *,
        batch_size: int,
        shuffle: Shuffle = False,
        seed: int = 0,
        shard: tuple[int, int] | None = None,
        last: Last = "drop",
        on_error: OnError = "raise",
        max_errors: float = 0.01,
        device: str = "cpu",
        threads: int | None = None,
        prefetch: int = 2,
        cache: Literal["pixels"] | None = None,
        cache_bytes: int = 4 << 30,
        limits: Limits | None = None,
        damage: Damage | None = None,
        decoder: Codec = "consistent",
        odd_range: bool = False,
        progress: bool = False,
    ) -> None:
        if isinstance(source, str | bytes | Path):
            raise DataError(f"source: {source!r} is a path, or one image: pixprep.read.files reads a folder")
        if not (hasattr(source, "__len__") and hasattr(source, "__getitem__")):
            kind = type(source).__name__
            raise DataError(
                f"source: a {kind} has no length, or no sample by its number: make a list of it, or see pixprep.read"
            )
        if len(source) == 0:
            raise DataError("the source has no samples")
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
            shard=shard_of() if shard is None else checked_shard(shard),
            last=last,
        )
        _check_on_error(on_error, self.order.shard[1])
        self._prefetch = prefetch
        self._bar = _bar() if progress else None
        self._maker = Maker(
            source=source,
            order=self.order,
            limits=limits or Limits(),
            damage=damage,
            on_error=on_error,
            most_errors=_most_errors(max_errors, self.order),
            # of what is made and waits, of what the consumer has, and of what it has just let go of
            recycler=Recycler(prefetch + 2) if device == "cpu" else None,
            cache=_cache(cache, cache_bytes, device, pipeline),
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
        if shuffle and pipeline.has_sides and pipeline.side == "serving":
            log.warning("the Loader shuffles, and %s: pipeline.for_training() is the other side", pipeline.left_out)
        self._process = os.getpid()
        self._is_closed = False
        self._epoch = self._position = 0
        self._is_begun = False
        self._under_way: Callable[[], Epoch | None] = lambda: None
        self._batches = self._samples = 0

    def __repr__(self) -> str:
        order, source = self.order, type(self.source).__name__
        what = f"shuffle={order.shuffle!r}, seed={order.seed}, shard={order.shard}, epoch={self._epoch}"
        return f"<Loader: {len(self):,} batches of {order.batch_size}, {order.samples:,} samples of {source}, {what}>"

    def __len__(self) -> int:
        """Batches of a whole epoch."""
        return self.order.batches()

    def __iter__(self) -> Epoch:
        """Begin an epoch: the one that a state names, or the next one."""
        self._check_open()
        self._end()
        if self._is_begun:  # and was left before its end
            self._completed()
        epoch = Epoch(self, self._maker, self._epoch, self._position, self._prefetch)
        self._under_way = ref(epoch)
        return epoch

    def __enter__(self) -> Loader:  # noqa: PYI034  (typing.Self begins with Python 3.11)
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the threads and give memory back; nothing can be loaded any more."""
        self._check_process()
        self._end()
        self._is_closed = True
        self._maker.rest()
        self._maker.engine.close()

    @property
    def epoch(self) -> int:
        """The epoch that is under way, or begins next."""
        return self._epoch

    @property
    def errors(self) -> list[Broken]:
        """The broken samples that were replaced or left out, each once, in the order in which they were met."""
        return list(self._maker.broken.values())

    def state_dict(self) -> dict[str, Any]:
        """State of the training behind the batch that was delivered last. JSON holds it.

        What is made ahead does not count. Behind the last batch of an epoch it is the beginning of the next. The state
        is the same in all shards, and fits another number of them.
        """
        epoch, position = self._next(self._epoch, self._position)
        return {
            "version": STATE_VERSION,
            "seed": self.order.seed,
            "shuffle": self.order.shuffle,
            "epoch": epoch,
            "position": position,
            "samples": self.order.samples,
            "source": fingerprint(self.source),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where a state was taken: the next ``for`` gives the rest of that epoch, and reads nothing else for it.

        The number of shards and ``batch_size`` may have changed: the rest of the epoch is shared out anew.

        Raises:
            DataError: the state is of other samples.
            PipelineError: it is of another ``seed`` or ``shuffle``, or is no state.
        """
        now = self.state_dict()
        if not isinstance(state, Mapping) or set(state) != set(now) or state["version"] != STATE_VERSION:
            raise PipelineError(f"this is no state of a Loader: {state!r}")
        for name in ("seed", "shuffle"):
            if state[name] != now[name]:
                raise PipelineError(
                    f"the state is of {name}={state[name]!r}, and this Loader has {name}={now[name]!r}: the rest of "
                    "the epoch would be other samples"
                )
        for name, most in (("epoch", (1 << 32) - 1), ("samples", (1 << 63) - 1), ("position", state["samples"])):
            if not isinstance(state[name], Integral) or not 0 <= int(state[name]) <= most:
                what = f"is {state[name]!r}, and no whole number from 0 to {most:,}"
                raise PipelineError(f"the state's {name} {what}: it is damaged")
        if (state["samples"], state["source"]) != (now["samples"], now["source"]):
            raise DataError(
                f"the state is of another source: {state['samples']:,} samples ({state['source']}), and here are "
                f"{now['samples']:,} ({now['source']})"
            )
        self._end()
        self._epoch, self._position = self._next(int(state["epoch"]), int(state["position"]))
        self._is_begun = False

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
        last = min(EXAMPLES, self.order.samples) - 1
        for index in range(last):
            with suppress(ImageError):
                return self._maker.one(0, index, 0)
        return self._maker.one(0, last, 0)

    def tuples(self, *names: str) -> Tuples:
        """Batches as tuples of NumPy arrays and lists: ``for images, labels in loader.tuples("tensor", "label")``.

        Args:
            names: of outputs and fields; one at least.
        """
        return Tuples(self, names)

    def torch(self, *names: str, device: Any = None) -> Any:
        """Batches as ``Batch.torch`` gives them: a PyTorch ``IterableDataset``, which Lightning and accelerate take.

        It has ``state_dict``, ``load_state_dict`` and ``len``. PyTorch's DataLoader takes it with ``batch_size=None``
        and ``num_workers=0``.

        Args:
            names: of outputs and fields; default: all, as a dict.
            device: of PyTorch; default: where they are.

        Raises:
            SetupError: PyTorch is not installed.
        """
        return library("torch").Dataset(self, names, device)

    def tf(self, *names: str) -> Any:
        """Batches as a ``tf.data.Dataset``, whose every iteration is an epoch; its types come from one sample.

        Args:
            names: of outputs and fields; default: all, as a dict. A list of arrays is a ``tf.RaggedTensor``.

        Raises:
            DataError: a field is no tensor.
            SetupError: TensorFlow is not installed.
        """
        return library("tensorflow").dataset(self, names)

    def keras(self, *names: str) -> Any:
        """Batches as a ``keras.utils.PyDataset``, for ``model.fit(loader.keras("tensor", "label"), epochs=3)``.

        Raises:
            SetupError: Keras is not installed.
        """
        return library("keras").Dataset(self, names)

    def stats(self) -> Stats:
        """Times that each side has waited for the other so far; printed, words say so."""
        epoch, maker = self._under_way(), self._maker
        seconds = maker.timeline.seconds
        under_way_s = 0.0 if epoch is None or epoch.is_closed else maker.timeline.now() - epoch.span.begin
        return Stats(
            batches=self._batches,
            samples=self._samples,
            broken=len(maker.broken),
            cached=len(maker.cache or ()),
            threads=maker.engine.lanes,
            total_s=seconds["epoch"] + under_way_s,
            starved_s=seconds["wait for a batch"],
            reading_s=seconds["wait for files"],
            working_s=seconds["make a batch"] - seconds["wait for files"],
            blocked_s=seconds["wait for room"],
            decode_s=seconds["decode"],
            transform_s=seconds["transform"],
        )

    def trace(self, path: str | Path) -> None:
        """Write what each thread did last, for https://ui.perfetto.dev: a track for each."""
        self._maker.timeline.save(path)

    def _next(self, epoch: int, position: int) -> tuple[int, int]:
        """The same place, or the beginning of the next epoch where this one has no batch left."""
        return (epoch, position) if self.order.batches(position) else (epoch + 1, 0)

    def _delivered(self, position: int, samples: int) -> None:
        self._position, self._is_begun = position, True
        self._batches += 1
        self._samples += samples
        if self._bar is not None:
            self._bar.to(len(self) - self.order.batches(position), len(self))

    def _completed(self) -> None:
        self._epoch, self._position, self._is_begun = self._epoch + 1, 0, False

    def _left(self, *, is_whole: bool) -> None:
        if self._bar is not None:
            self._bar.__exit__()
            self._bar = _bar()
        if not is_whole:
            self._maker.rest()

    def _end(self) -> None:
        epoch = self._under_way()
        if epoch is not None:
            epoch.close()

    def _check_process(self) -> None:
        if os.getpid() != self._process:
            raise SetupError(f"a Loader works in the process that made it, and this is a fork of it: {_HERE}")

    def _check_open(self) -> None:
        self._check_process()
        if self._is_closed:
            raise SetupError("this Loader was closed: make another one")

    def __reduce__(self) -> Any:
        raise SetupError(f"a Loader cannot be sent to another process: {_HERE}")


class Tuples:
    """See ``Loader.tuples``: an epoch for each ``for``."""

    def __init__(self, loader: Loader, names: tuple[str, ...]) -> None:
        if not names:
            raise PipelineError('tuples: name outputs and fields, such as tuples("tensor", "label")')
        self._loader = loader
        self._names = names

    def __len__(self) -> int:
        return len(self._loader)

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return map(self._tuple, self._loader)

    def _tuple(self, batch: Batch) -> tuple[Any, ...]:
        return tuple(batch[name] for name in self._names)


_HERE = (
    "make one there. In a PyTorch DataLoader take num_workers=0: the Loader's own threads do what its workers would do"
)


class Epoch(Iterator[Batch]):
    """The batches of one epoch, or of its rest. When it is dropped, or closed, its threads and batches go, too.

    ``_delivered``, ``_left`` and so on are the other half of ``Loader``.
    """

    def __init__(self, loader: Loader, maker: Maker, epoch: int, position: int, prefetch: int) -> None:
        self._loader = loader
        batches = maker.batches(epoch, position, maker.reader())
        self._ready = Prefetch(batches, most=prefetch, name="pixprep-loader", timeline=maker.timeline)
        self._is_over = False
        self.span = maker.timeline.span("epoch")
        self._ready.start()

    def __next__(self) -> Batch:
        """The next batch.

        Raises:
            ImageError: a sample is broken, with ``on_error="raise"``.
            DataError: too many are, or the source gives what is no sample.
            SetupError: this is a forked process, or another ``for`` over the Loader has ended this one.
        """
        self._loader._check_process()  # noqa: SLF001
        if self._is_over:
            raise StopIteration
        if self.is_closed:
            raise SetupError("this epoch is over: another one has begun, or the Loader was closed")
        try:
            position, batch = next(self._ready)
        except BaseException as end:
            self._is_over = True
            is_whole = isinstance(end, StopIteration)
            self.close(is_whole=is_whole)
            if is_whole:
                self._loader._completed()  # noqa: SLF001
            raise
        self._loader._delivered(position, len(batch))  # noqa: SLF001
        return batch

    @property
    def is_closed(self) -> bool:
        """Tell whether its threads have ended."""
        return self._ready.is_closed

    def close(self, *, is_whole: bool = False) -> None:
        """End the threads, and drop the batches that nobody took; after a whole epoch memory is kept for the next."""
        if not self.is_closed and self._ready.close():
            self.span.timeline.end(self.span)
            self._loader._left(is_whole=is_whole)  # noqa: SLF001

    def __del__(self) -> None:
        with suppress(AttributeError):  # it was not begun
            self.close()


def _check_on_error(on_error: str, world: int) -> None:
    if on_error not in ON_ERRORS:
        raise PipelineError(f"on_error is one of {', '.join(ON_ERRORS)}, not {on_error!r}")
    if on_error == "skip" and world > 1:
        raise PipelineError(
            'on_error="skip" gives the shards batches of different sizes, and distributed training would hang or be '
            'wrong: take on_error="replace"'
        )


def _most_errors(max_errors: float, order: Order) -> int:
    """Most broken samples that an epoch of this shard may have."""
    if isinstance(max_errors, float) and 0 <= max_errors <= 1:
        return ceil(max_errors * order.samples / order.shard[1])
    if isinstance(max_errors, int) and not isinstance(max_errors, bool) and max_errors >= 0:
        return max_errors
    raise PipelineError(f"max_errors is a share from 0.0 to 1.0, or a whole number, not {max_errors!r}")


def _cache(cache: str | None, most_bytes: int, device: str, pipeline: Pipeline) -> PixelCache | None:
    if cache is None:
        return None
    if cache != "pixels":
        raise PipelineError(f'cache is "pixels" or None, not {cache!r}')
    if device != "cpu":
        raise PipelineError(f'cache="pixels" is for device="cpu", not for "{device}"')
    if pipeline.plan.clip is not None:
        raise PipelineError('cache="pixels" keeps images, and this pipeline takes clips: leave it out')
    if pipeline.plan.takes:
        raise PipelineError('cache="pixels" keeps what was decoded, and this pipeline takes pixels: leave it out')
    if pipeline.plan.reduced:
        raise PipelineError(
            'cache="pixels" keeps whole images, and decode(reduced=True) makes smaller ones: leave one of them out'
        )
    if not isinstance(most_bytes, int) or most_bytes < 0:
        raise PipelineError(f"cache_bytes is a number of bytes, such as 4 << 30, not {most_bytes!r}")
    return PixelCache(most_bytes)


def _bar() -> Any:
    from pixprep.cli.output import Progress  # noqa: PLC0415  (what the command line shows, shown on request)

    if find_spec("tqdm") is None:
        raise SetupError("progress=True needs tqdm: pip install tqdm")
    return Progress("batches")
