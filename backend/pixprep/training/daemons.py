"""A pool of daemon threads, which do not block the exit of the process if a read from a network mount hangs."""

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
    """Pool of daemon threads. Python does not join them at exit, unlike the threads of a ``ThreadPoolExecutor``.

    Args:
        count: Maximum number of threads. A thread is started only when all others are busy.
        name: Name of each thread.
    """

    def __init__(self, count: int, name: str) -> None:
        self._count, self._name = count, name
        self._tasks: SimpleQueue[_Task | None] = SimpleQueue()
        self._idle = Semaphore(0)
        self._threads: list[Thread] = []

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        """Run a function in one of the threads.

        The caller may set an exception on the future while the function runs, to stop waiting for its result.
        """
        future: Future[Any] = Future()
        self._tasks.put((future, function, arguments))
        if not self._idle.acquire(blocking=False) and len(self._threads) < self._count:
            thread = Thread(target=_work, args=(self._tasks, self._idle), name=self._name, daemon=True)
            self._threads.append(thread)
            thread.start()
        return future

    def close(self) -> None:
        """End each thread after its current task. Wait for the threads for at most 0.25 s."""
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
    with suppress(InvalidStateError):  # the caller has set an exception on the future
        try:
            result = function(*arguments)
        except BaseException as error:  # noqa: BLE001  (``future.result`` raises it)
            future.set_exception(error)
        else:
            future.set_result(result)
