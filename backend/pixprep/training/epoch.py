"""Tracks the progress of a training run: the current epoch, the position in it, and the time spent on each task."""

from __future__ import annotations

import atexit
import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import CancelledError
from contextlib import suppress
from functools import cached_property
from importlib.util import find_spec
from typing import Any, Generic, TypeVar
from weakref import ref

from pixprep.engine.batch import Batch
from pixprep.errors import SetupError
from pixprep.progress import Progress
from pixprep.training.making import Maker
from pixprep.training.order import Order
from pixprep.training.sources.joined import fingerprint
from pixprep.training.timeline import Stats, Timeline

T = TypeVar("T")
_PATIENCE_S = 1.0


class Prefetch(Generic[T]):
    """Runs a generator in a thread, ahead of its consumer.

    ``close`` ends the thread and drops the items that are ready. The caller of ``start`` must also call ``close``.

    Args:
        items: Generator to run. It is closed in the thread that ran it.
        size: Maximum number of items that are ready or being generated.
        name: Name of the thread.
        timeline: Timeline that records the generation of each item, and the waiting times of the generator and of the
            consumer.
        stop: Function that interrupts the generator if it is waiting. ``close`` calls it.

    Attributes:
        is_closed: Whether ``close`` has been called.
    """

    def __init__(
        self,
        items: Generator[T, None, None],
        *,
        size: int,
        name: str,
        timeline: Timeline,
        stop: Callable[[], None] = lambda: None,
    ) -> None:
        self._items = items
        self._stop = stop
        self._size = size
        self._ready: deque[T] = deque()
        self._changed = threading.Condition()
        self._error: BaseException | None = None
        self._is_done = self.is_closed = False
        self._timeline = timeline
        self._process = os.getpid()
        # A daemon, because Python joins all other threads before it runs ``atexit`` functions. If the queue is full,
        # this thread would wait forever.
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread."""
        atexit.register(self._end)
        self._thread.start()

    def close(self, timeout_s: float | None = None) -> bool:
        """End the thread after its current item, and drop the items that are ready.

        Args:
            timeout_s: Maximum time to wait for the thread, in seconds. Default: no limit.

        Returns:
            Whether the thread was closed. False in a forked process, which has no such thread, and in which a lock may
            stay locked forever.
        """
        if os.getpid() != self._process:
            return False
        atexit.unregister(self._end)
        with self._changed:
            self.is_closed = True
            self._ready.clear()
            self._changed.notify_all()
        self._stop()
        if self._thread is not threading.current_thread():  # the garbage collector may call this in any thread
            self._thread.join(timeout_s)
        return True

    def _end(self) -> None:
        """Close at the exit of the process. The time limit keeps an interrupted process from hanging."""
        self.close(timeout_s=_PATIENCE_S)

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        """Return the next item, and keep no reference to it.

        Raises:
            BaseException: The generator raised this exception, and all items before it were returned.
        """
        with self._changed:
            with self._timeline.span("wait for a batch"):
                self._changed.wait_for(lambda: self._ready or self._is_done or self.is_closed)
            if self._ready:
                self._changed.notify_all()
                return self._ready.popleft()
        error, self._error = self._error or StopIteration(), None
        try:
            raise error
        finally:
            del error  # break the reference cycle between the traceback and this frame

    def _run(self) -> None:
        try:
            while self._has_room():
                with self._timeline.span("make a batch"):
                    item = next(self._items)
                with self._changed:
                    if not self.is_closed:
                        self._ready.append(item)
                    del item  # do not keep the item alive while the next one is being generated
                    self._changed.notify_all()
        except (StopIteration, CancelledError):  # the generator has finished, or was stopped
            pass
        except BaseException as error:  # noqa: BLE001  (``__next__`` raises it)
            self._error = error
        finally:
            self._items.close()
            with self._changed:
                self._is_done = True
                self._changed.notify_all()

    def _has_room(self) -> bool:
        """Wait until another item may be generated. Return False if the prefetcher was closed."""
        with self._timeline.span("wait for room"), self._changed:
            self._changed.wait_for(lambda: len(self._ready) < self._size or self.is_closed)
            return not self.is_closed


log = logging.getLogger(__name__)

_LAST: dict[str, int] = {}
"""Number of the last complete epoch, by the arguments of the Loader that determine its order and random parameters."""
HERE = (
    "create a Loader in each process that needs one; with a PyTorch DataLoader, use num_workers=0, because the Loader "
    "reads and decodes in its own threads"
)


class EpochSequence:
    """The sequence of a Loader's epochs.

    Args:
        order: Order of the samples.
        maker: Maker of the batches.
        epoch: Number of the first epoch.
        with_bar: Whether to show a progress bar for each epoch.

    Attributes:
        order: Order of the samples.
        maker: Maker of the batches.
        epoch: Number of the current epoch.
        position: Position in the epoch after the last delivered batch.
        batches: Number of batches delivered so far, in all epochs.
        samples: Number of samples delivered so far, in all epochs.
    """

    def __init__(self, order: Order, maker: Maker, *, epoch: int, with_bar: bool) -> None:
        self.order, self.maker = order, maker
        self.epoch = epoch
        self.position = self.batches = self.samples = 0
        self._bar = _bar() if with_bar else None
        self._has_started = False
        self._process = os.getpid()
        self._active: Callable[[], Epoch | None] = lambda: None

    @property
    def next_position(self) -> tuple[int, int]:
        """Epoch and position of the next batch. After the end of an epoch, this is the start of the next one."""
        return (self.epoch, self.position) if self.order.batches(self.position) else (self.epoch + 1, 0)

    def go_to(self, epoch: int, position: int) -> None:
        """Set the epoch and the position at which the next ``begin`` starts."""
        self.epoch, self.position, self._has_started = epoch, position, False
        self.epoch, self.position = self.next_position

    def select(self, epoch: int) -> None:
        """Select the next epoch. It starts at position 0, unless a state of this epoch was loaded."""
        if self._has_started or epoch != self.epoch:
            self.end()
            self.go_to(epoch, 0)

    def begin(self, prefetch: int) -> Epoch:
        """Start the epoch that ``go_to`` has selected, or the next one."""
        self.end()
        if self._has_started:  # the previous epoch was left before its end
            self.completed()
        self._warn_of_repeats()
        epoch = Epoch(self, prefetch)
        self._active = ref(epoch)
        return epoch

    def end(self) -> None:
        """End the active epoch, if there is one."""
        self.check_process()
        if (epoch := self._active()) is not None:
            epoch.close()

    def check_process(self) -> None:
        """Check that this is the process that created the Loader. Threads do not survive a fork.

        Raises:
            SetupError: This is a forked process.
        """
        if os.getpid() != self._process:
            raise SetupError(f"a Loader works only in the process that created it, not in a fork of it: {HERE}")

    @property
    def total_s(self) -> float:
        """Duration of all epochs so far, in seconds."""
        epoch, timeline = self._active(), self.maker.timeline
        active_s = 0.0 if epoch is None or epoch.is_closed else timeline.now() - epoch.span.begin
        return timeline.seconds["epoch"] + active_s

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
        """Record a delivered batch.

        Args:
            position: Position in the epoch after the batch.
            samples: Number of samples in the batch.
        """
        if self._bar is not None:
            total = self.order.batches()
            for at in (self.position, position):  # the bar begins at the position before its first batch
                self._bar.to(total - self.order.batches(at), total)
        self.position, self._has_started = position, True
        self.batches += 1
        self.samples += samples

    def completed(self) -> None:
        """Advance to the next epoch."""
        self.epoch, self.position, self._has_started = self.epoch + 1, 0, False

    @cached_property
    def _arguments(self) -> str | None:
        """Arguments that determine the order and the random parameters. None if all epochs are identical."""
        order, engine = self.order, self.maker.engine
        if not (order.shuffle or engine.plan.is_random):
            return None
        key = (order.seed, order.shuffle, order.batch_size, order.shard, order.sampler, fingerprint(self.maker.source))
        return repr((*key, engine.pipeline.side, engine.pipeline.to_json()))

    def _warn_of_repeats(self) -> None:
        """Warn if a Loader with the same arguments has already completed epoch 0 in this process, and no other epoch.

        This happens if a training script creates a new Loader for each epoch. All epochs are then identical.
        """
        if self._arguments is not None and (self.epoch, self.position) == (0, 0) and _LAST.get(self._arguments) == 0:
            log.warning(
                "a Loader with the same arguments has already run epoch 0, and this one repeats its order and random "
                "parameters: use one Loader for all epochs, or pass epoch=1, 2, ... to each new one"
            )

    def ended(self, *, is_complete: bool) -> None:
        """Close the progress bar of an epoch. Free the memory if the epoch is incomplete."""
        if is_complete and self._arguments is not None:
            _LAST[self._arguments] = self.epoch
        if self._bar is not None:
            self._bar.__exit__()
            self._bar = _bar()
        if not is_complete:
            self.maker.free_memory()


class Epoch(Iterator[Batch]):
    """Iterator over the batches of an epoch, or over the rest of it. Closing or deleting it ends its threads."""

    def __init__(self, epochs: EpochSequence, prefetch: int) -> None:
        self._epochs = epochs
        maker = epochs.maker
        reader = maker.reader()
        batches = maker.batches(epochs.epoch, epochs.position, reader)
        self._ready = Prefetch(batches, size=prefetch, name="pixprep-loader", timeline=maker.timeline, stop=reader.stop)
        self._is_over = False
        self.span = maker.timeline.span("epoch")
        self._ready.start()

    def __next__(self) -> Batch:
        """Return the next batch.

        Raises:
            ImageError: A sample is broken, with ``on_error="raise"``.
            DataError: Too many samples are broken, or the source returns an object that is not a sample.
            SetupError: This is a forked process, or a new epoch of the Loader has ended this one.
        """
        self._epochs.check_process()
        if self._is_over:
            raise StopIteration
        if self.is_closed:
            raise SetupError("this epoch has ended, because a new one was started or the Loader was closed")
        try:
            position, batch = next(self._ready)
            batch.wait()  # wait here, because the thread that makes batches may already read the next one
        except BaseException as end:
            self._is_over = True
            is_complete = isinstance(end, StopIteration)
            self.close(is_complete=is_complete, timeout_s=None if isinstance(end, Exception) else 0.0)
            if is_complete:
                self._epochs.completed()
            raise
        self._epochs.delivered(position, len(batch))
        return batch

    @property
    def is_closed(self) -> bool:
        """Whether the threads of the epoch have ended."""
        return self._ready.is_closed

    def close(self, *, is_complete: bool = False, timeout_s: float | None = None) -> None:
        """End the threads, and drop the prefetched batches.

        Args:
            is_complete: Whether all batches of the epoch were delivered. The memory is then kept for the next epoch.
            timeout_s: Maximum time in seconds to wait for the threads: 0 after an interrupt. None means that there is
                no limit.
        """
        if not self.is_closed and self._ready.close(timeout_s):
            self.span.timeline.end(self.span)
            self._epochs.ended(is_complete=is_complete)

    def __del__(self) -> None:
        with suppress(AttributeError):  # ``__init__`` has failed
            self.close()


def _bar() -> Any:
    if find_spec("tqdm") is None:
        raise SetupError("progress=True requires tqdm: pip install tqdm")
    return Progress("batches")
