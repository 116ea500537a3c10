"""Threads that the end of the process does not wait for: a read from a network mount may never return."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from queue import SimpleQueue
from threading import Semaphore, Thread
from time import monotonic
from typing import Any

_Task = tuple[Future[Any], Callable[..., Any], tuple[Any, ...]]
_PATIENCE_S = 0.25


class Daemons:
    """Pool of daemon threads, where Python joins those of a ``ThreadPoolExecutor`` at its exit.

    Args:
        count: Maximum number of threads; each is started when no other one is idle.
        name: Name of each thread.
    """

    def __init__(self, count: int, name: str) -> None:
        self._count, self._name = count, name
        self._tasks: SimpleQueue[_Task | None] = SimpleQueue()
        self._idle = Semaphore(0)
        self._threads: list[Thread] = []

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        """Run a function in one of the threads. An exception may be set on the future while the function runs."""
        future: Future[Any] = Future()
        self._tasks.put((future, function, arguments))
        if not self._idle.acquire(blocking=False) and len(self._threads) < self._count:
            thread = Thread(target=_work, args=(self._tasks, self._idle), name=self._name, daemon=True)
            self._threads.append(thread)
            thread.start()
        return future

    def close(self) -> None:
        """End each thread after its task, and wait for that no longer than a quarter of a second."""
        for _ in self._threads:
            self._tasks.put(None)
        until = monotonic() + _PATIENCE_S
        for thread in self._threads:
            thread.join(max(until - monotonic(), 0))
        self._threads.clear()

    def __del__(self) -> None:
        for _ in self._threads:
            self._tasks.put(None)


def _work(tasks: SimpleQueue[_Task | None], idle: Semaphore) -> None:
    while (task := tasks.get()) is not None:
        _run(*task)
        del task
        idle.release()


def _run(future: Future[Any], function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    with suppress(InvalidStateError):  # the future was given up
        try:
            result = function(*arguments)
        except BaseException as error:  # noqa: BLE001  (whoever waits for it gets it)
            future.set_exception(error)
        else:
            future.set_result(result)
