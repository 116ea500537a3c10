"""An iterator that runs in its own thread, a few items ahead of its consumer."""

from __future__ import annotations

import atexit
import os
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import CancelledError
from typing import Generic, TypeVar

from pixprep.training.timeline import Timeline

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
