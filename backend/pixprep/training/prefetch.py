"""An iterator that runs in a thread of its own, a few items ahead of who asks for them."""

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
    """Runs a generator ahead of its consumer. Closing it ends the thread and drops all items.

    Who starts it closes it.

    Args:
        items: Generator to run. It is closed in the thread that ran it.
        most: Maximum number of items that are ready or being made.
        name: Name of the thread.
        timeline: Timeline that records the waits of both sides and each item.
        stop: Function that ends the waiting of the generator; ``close`` calls it.

    Attributes:
        is_closed: Whether ``close`` has been called.
    """

    def __init__(
        self,
        items: Generator[T, None, None],
        *,
        most: int,
        name: str,
        timeline: Timeline,
        stop: Callable[[], None] = lambda: None,
    ) -> None:
        self._items = items
        self._stop = stop
        self._most = most
        self._ready: deque[T] = deque()
        self._changed = threading.Condition()
        self._error: BaseException | None = None
        self._is_done = self.is_closed = False
        self._timeline = timeline
        self._process = os.getpid()
        # A daemon: Python joins all other threads before it runs ``atexit``, and this one may wait for room.
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begin."""
        atexit.register(self._end)
        self._thread.start()

    def close(self, timeout_s: float | None = None) -> bool:
        """End the thread after its current item, and drop the items that are ready.

        Args:
            timeout_s: Maximum time to wait for the thread; default: until it has ended.

        Returns:
            False in a forked process, where there is no thread, and whose locks nobody may ever open.
        """
        if os.getpid() != self._process:
            return False
        atexit.unregister(self._end)
        with self._changed:
            self.is_closed = True
            self._ready.clear()
            self._changed.notify_all()
        self._stop()
        if self._thread is not threading.current_thread():  # which also runs the garbage collector
            self._thread.join(timeout_s)
        return True

    def _end(self) -> None:
        """Close at the exit of the process, which may be that of an interrupt."""
        self.close(timeout_s=_PATIENCE_S)

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        """The next item, which nothing here refers to any more.

        Raises:
            BaseException: what the generator raised, after the items before it.
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
            del error  # whose traceback holds this frame, and through it the thread's

    def _run(self) -> None:
        try:
            while self._has_room():
                with self._timeline.span("make a batch"):
                    item = next(self._items)
                with self._changed:
                    if not self.is_closed:
                        self._ready.append(item)
                    del item  # or this frame would keep it while the next one is made
                    self._changed.notify_all()
        except (StopIteration, CancelledError):  # it is over, or was stopped
            pass
        except BaseException as error:  # noqa: BLE001  (whoever asks gets it)
            self._error = error
        finally:
            self._items.close()
            with self._changed:
                self._is_done = True
                self._changed.notify_all()

    def _has_room(self) -> bool:
        """Wait for room; False once it is closed."""
        with self._timeline.span("wait for room"), self._changed:
            self._changed.wait_for(lambda: len(self._ready) < self._most or self.is_closed)
            return not self.is_closed
