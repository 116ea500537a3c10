"""The course of a training: which epoch is under way, how far it is, and how long its parts took."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cached_property
from importlib.util import find_spec
from typing import Any
from weakref import ref

from pixprep.engine.batch import Batch
from pixprep.errors import SetupError
from pixprep.progress import Progress
from pixprep.training.making import Maker
from pixprep.training.order import Order
from pixprep.training.prefetch import Prefetch
from pixprep.training.sources.joined import fingerprint
from pixprep.training.timeline import Stats

log = logging.getLogger(__name__)

_LAST: dict[str, int] = {}
"""The last complete epoch of each Loader of this process, by the arguments that determine its random parameters."""
HERE = (
    "make one there. In a PyTorch DataLoader take num_workers=0: the Loader's own threads do what its workers would do"
)


class Course:
    """The epochs of a Loader in sequence.

    Args:
        order, maker: Order and Maker of the Loader.
        epoch: Number of the first epoch.
        with_bar: Whether to show a progress bar for each epoch.

    Attributes:
        epoch, position: Epoch of the last batch that was delivered, and the position after it.
        batches, samples: Number of batches and samples delivered so far.
    """

    def __init__(self, order: Order, maker: Maker, *, epoch: int, with_bar: bool) -> None:
        self.order, self.maker = order, maker
        self.epoch = epoch
        self.position = self.batches = self.samples = 0
        self._bar = _bar() if with_bar else None
        self._is_begun = False
        self._process = os.getpid()
        self._under_way: Callable[[], Epoch | None] = lambda: None

    @property
    def place(self) -> tuple[int, int]:
        """Epoch and position of the next batch, which is the start of the next epoch if this one has ended."""
        return (self.epoch, self.position) if self.order.batches(self.position) else (self.epoch + 1, 0)

    def go_to(self, epoch: int, position: int) -> None:
        """Set the position at which the next ``begin`` starts."""
        self.epoch, self.position, self._is_begun = epoch, position, False
        self.epoch, self.position = self.place

    def next_is(self, epoch: int) -> None:
        """Select the next epoch. It starts at the restored position if that is of this epoch, else at position 0."""
        if self._is_begun or epoch != self.epoch:
            self.end()
            self.go_to(epoch, 0)

    def begin(self, prefetch: int) -> Epoch:
        """Begin an epoch: the one that ``go_to`` named, or the next one."""
        self.end()
        if self._is_begun:  # and was left before its end
            self.completed()
        self._warn_of_repeats()
        epoch = Epoch(self, prefetch)
        self._under_way = ref(epoch)
        return epoch

    def end(self) -> None:
        """End the epoch that is under way."""
        self.check_process()
        if (epoch := self._under_way()) is not None:
            epoch.close()

    def check_process(self) -> None:
        """Refuse to go on in a fork, where the threads are not.

        Raises:
            SetupError: this is one.
        """
        if os.getpid() != self._process:
            raise SetupError(
                f"a Loader works only in the process that created it, and this is a fork of that process: {HERE}"
            )

    @property
    def total_s(self) -> float:
        """Seconds of all epochs so far."""
        epoch, timeline = self._under_way(), self.maker.timeline
        under_way_s = 0.0 if epoch is None or epoch.is_closed else timeline.now() - epoch.span.begin
        return timeline.seconds["epoch"] + under_way_s

    def stats(self) -> Stats:
        """See ``Loader.stats``."""
        maker, seconds = self.maker, self.maker.timeline.seconds
        return Stats(
            batches=self.batches,
            samples=self.samples,
            broken=len(maker.broken),
            cached=len(maker.cache or ()),
            threads=maker.engine.lanes,
            total_s=self.total_s,
            starved_s=seconds["wait for a batch"],
            reading_s=seconds["wait for files"],
            working_s=seconds["make a batch"] - seconds["wait for files"],
            blocked_s=seconds["wait for room"],
            decode_s=seconds["decode"],
            transform_s=seconds["transform"],
        )

    def delivered(self, position: int, samples: int) -> None:
        """Count a batch; ``position`` is the one after it."""
        self.position, self._is_begun = position, True
        self.batches += 1
        self.samples += samples
        if self._bar is not None:
            whole = self.order.batches()
            self._bar.to(whole - self.order.batches(position), whole)

    def completed(self) -> None:
        """Go on to the next epoch."""
        self.epoch, self.position, self._is_begun = self.epoch + 1, 0, False

    @cached_property
    def _arguments(self) -> str | None:
        """Arguments that decide the order and the draws of its epochs; None: each epoch is as the others."""
        order, engine = self.order, self.maker.engine
        if not (order.shuffle or engine.plan.is_random):
            return None
        key = (order.seed, order.shuffle, order.batch_size, order.shard, order.sampler, fingerprint(self.maker.source))
        return repr((*key, engine.pipeline.side, engine.pipeline.to_json()))

    def _warn_of_repeats(self) -> None:
        """Warn where an equal Loader of this process has had epoch 0 and no other: its order and draws come again."""
        if self._arguments is not None and (self.epoch, self.position) == (0, 0) and _LAST.get(self._arguments) == 0:
            log.warning(
                "a Loader with the same arguments has had epoch 0, and this one repeats its order and draws: keep one "
                "Loader for all epochs, or give each its epoch=1, 2, ..."
            )

    def left(self, *, is_whole: bool) -> None:
        """End the bar of an epoch, and give memory back unless it is whole."""
        if is_whole and self._arguments is not None:
            _LAST[self._arguments] = self.epoch
        if self._bar is not None:
            self._bar.__exit__()
            self._bar = _bar()
        if not is_whole:
            self.maker.rest()


class Epoch(Iterator[Batch]):
    """Iterator over the batches of an epoch or its remainder. Closing or deleting it also ends its threads."""

    def __init__(self, course: Course, prefetch: int) -> None:
        self._course = course
        maker = course.maker
        reader = maker.reader()
        batches = maker.batches(course.epoch, course.position, reader)
        self._ready = Prefetch(batches, most=prefetch, name="pixprep-loader", timeline=maker.timeline, stop=reader.stop)
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
        self._course.check_process()
        if self._is_over:
            raise StopIteration
        if self.is_closed:
            raise SetupError("this epoch is over: a new one has begun, or the Loader was closed")
        try:
            position, batch = next(self._ready)
        except BaseException as end:
            self._is_over = True
            is_whole = isinstance(end, StopIteration)
            self.close(is_whole=is_whole, timeout_s=None if isinstance(end, Exception) else 0.0)
            if is_whole:
                self._course.completed()
            raise
        self._course.delivered(position, len(batch))
        return batch

    @property
    def is_closed(self) -> bool:
        """Tell whether its threads have ended."""
        return self._ready.is_closed

    def close(self, *, is_whole: bool = False, timeout_s: float | None = None) -> None:
        """End the threads, and drop the batches that nobody took; after a whole epoch memory is kept for the next.

        Args:
            is_whole: The epoch has come to its end.
            timeout_s: Maximum time to wait for the threads: 0 after an interrupt.
        """
        if not self.is_closed and self._ready.close(timeout_s):
            self.span.timeline.end(self.span)
            self._course.left(is_whole=is_whole)

    def __del__(self) -> None:
        with suppress(AttributeError):  # it was not begun
            self.close()


def _bar() -> Any:
    if find_spec("tqdm") is None:
        raise SetupError("progress=True needs tqdm: pip install tqdm")
    return Progress("batches")
