"""Processes that run an operator, beside the interpreter's lock of this one.

Each is a Python that is started anew: an engine has threads, and CUDA, and a fork takes over neither. It answers one
call at a time, over a pipe. Arrays lie in memory that both have mapped: there and back, 500 KB take 0.3 ms, and 1.6 by
``concurrent.futures``. It ends when its standard input does, however this process ends.
"""

from __future__ import annotations

import logging
import mmap
import os
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing import Pipe, spawn
from multiprocessing.connection import Connection
from multiprocessing.reduction import ForkingPickler
from queue import LifoQueue
from signal import Signals
from typing import Any, NamedTuple, NoReturn
from weakref import finalize

import numpy as np

from pixprep.errors import ImageError, SetupError
from pixprep.plan.steps.operators import Extern, Failure, Operator

log = logging.getLogger(__name__)

_GRACE_S = 2.0
_PROGRAM = (
    "import sys; sys.path[:] = sys.argv[3:]; from pixprep.plan.steps.processes import serve; serve(*sys.argv[1:3])"
)
_is_worker = False


class Workers:
    """Processes of one operator. They start as they are needed, and end with it, or with the interpreter.

    Args:
        count: of processes.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._idle: dict[int, LifoQueue[_Worker | None]] = {}  # by process: a fork has its own; None: not started
        self._all: set[_Worker] = set()
        finalize(self, _end, self._all)

    def start(self, operator: Operator) -> None:
        """Start a process, unless one is idle.

        Raises:
            SetupError: it does not find the operator.
        """
        find, path = operator.__reduce__()
        try:
            said = None if find(*path) is operator else "another operator has its place"
        except (AttributeError, ImportError, TypeError) as error:
            said = str(error)
        if said is not None:
            raise _not_found(operator, said)
        with self._worker(operator):
            pass

    def result(self, call: Extern, array: Any) -> Any:
        """Result of ``call.result_of(array)`` in a process, as soon as one is idle.

        Raises:
            ImageError: the function's own, or OPERATOR: the process ended.
            Failure: the function failed.
        """
        with self._worker(call.operator) as worker:
            is_raised, value = worker.ask(call, array)
        if is_raised:
            raise value
        return value

    @contextmanager
    def _worker(self, operator: Operator) -> Iterator[_Worker]:
        """A process for one call. One that does not come to the end of it is ended: it may answer late."""
        idle = self._idle.get(os.getpid()) or self._idle.setdefault(os.getpid(), _queue(self._count))
        worker, kept = idle.get(), None
        try:
            if worker is not None and worker.process.poll() is not None:  # it has ended while it was idle
                self._all.discard(worker)
                worker.close()
                worker = None
            if worker is None:
                worker = _Worker(operator)
                self._all.add(worker)
                worker.check_ready(operator)
            yield worker
            kept = worker
        except (EOFError, OSError):
            if worker is None:  # too many open files
                raise
            said = f"its process ended on this image, {worker.end()}"
            log.error("the operator %s: %s", operator, said)  # noqa: TRY400  (the trace would be the pipe's)
            raise ImageError("OPERATOR", said) from None
        finally:
            if worker is not None and kept is None:
                worker.end()
                self._all.discard(worker)
            idle.put(kept)


class _Worker:
    """One process."""

    def __init__(self, operator: Operator) -> None:
        if _is_worker:
            main = 'what uses it stands under `if __name__ == "__main__":`'
            raise SetupError(f"the operator {operator}: its module uses it when it is imported: {main}")
        room = os.memfd_create("pixprep")
        os.ftruncate(room, 1)
        self._pipe, theirs = Pipe()
        files = theirs.fileno(), room
        command = [sys.executable or "python3", "-c", _PROGRAM, *map(str, files), *sys.path]
        try:  # in a session of its own: Ctrl+C is none of its business
            self.process = subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=files, start_new_session=True)
            self._room = mmap.mmap(room, 1)
        except OSError as error:
            raise SetupError(f"the operator {operator}: no process starts: {error}") from None
        finally:
            theirs.close()
            os.close(room)

    def check_ready(self, operator: Operator) -> None:
        """Wait until it has found the operator.

        Raises:
            SetupError: it has not.
        """
        script = spawn.get_preparation_data("") if operator.function.__module__ == "__main__" else {}
        try:
            self._pipe.send({name: value for name, value in script.items() if name.startswith("init_main")})
            self._pipe.send(operator)
            said = self._pipe.recv()
        except (EOFError, OSError):
            said = f"it ended, {self.end()}, and its standard error says why"
        if said is not None:
            raise _not_found(operator, said)

    def ask(self, call: Extern, array: Any) -> tuple[bool, Any]:
        """Tell whether the call raised, and what it raised or gave."""
        self._pipe.send((call, _written(self._room, array)))
        is_raised, value = self._pipe.recv()
        return is_raised, _read(self._room, value)

    def close(self) -> None:
        """Let go of it, whereupon it ends."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self._pipe.close()

    def end(self) -> str:
        """End it, and say how it ended."""
        self.close()
        try:
            code = self.process.wait(2 * _GRACE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = self.process.wait()
        if code != -Signals.SIGKILL:
            return f"by {Signals(-code).name}" if code < 0 else f"with exit status {code}"
        return "by SIGKILL, which the kernel sends where memory is short"


def _not_found(operator: Operator, said: str) -> SetupError:
    where = ".".join(operator.__reduce__()[1])
    remedy = "put the operator at the top of a module of its own, under its function's name"
    return SetupError(f"the operator {operator}: a process does not find {where}: {said}: {remedy}")


def _queue(count: int) -> LifoQueue[_Worker | None]:
    queue: LifoQueue[_Worker | None] = LifoQueue()
    for _ in range(count):
        queue.put(None)
    return queue


def _end(workers: set[_Worker]) -> None:
    """End processes, all at once."""
    for worker in workers:
        worker.close()
    for worker in workers:
        worker.end()


class _Lying(NamedTuple):
    """An array that lies in the memory of so many bytes."""

    size: int
    shape: tuple[int, ...]
    dtype: str


def _written(room: mmap.mmap, value: Any) -> Any:
    """Write an array of numbers into the memory, and say what lies there; anything else is sent as it is."""
    if type(value) is not np.ndarray or value.dtype.kind not in "biuf":
        return value
    if value.nbytes > len(room):
        room.resize(value.nbytes)
    np.ndarray(value.shape, value.dtype, room)[...] = value
    return _Lying(len(room), value.shape, value.dtype.str)


def _read(room: mmap.mmap, sent: Any) -> Any:
    """Copy an array out of the memory; anything else was sent as it is."""
    if not isinstance(sent, _Lying):
        return sent
    if sent.size != len(room):
        room.resize(sent.size)
    return np.ndarray(sent.shape, sent.dtype, room).copy()


def serve(pipe: str, room: str) -> None:
    """Answer calls: the life of a process. ``pipe`` and ``room`` are the numbers of open files."""
    global _is_worker  # noqa: PLW0603
    _is_worker = True
    threading.Thread(target=_end_with_parent, daemon=True).start()
    calls, memory = Connection(int(pipe)), mmap.mmap(int(room), 1)
    with suppress(EOFError, BrokenPipeError, ConnectionResetError):  # who asks is gone
        try:
            spawn.prepare(calls.recv())
            calls.recv()
        except (Exception, SystemExit) as error:  # noqa: BLE001  (whatever a module does when it is imported)
            calls.send(f"{type(error).__name__}: {error}")
            return
        calls.send(None)
        while True:
            call, sent = calls.recv()
            try:
                pickled = ForkingPickler.dumps((False, _written(memory, call.result_of(_read(memory, sent)))))
            except ImageError as error:
                pickled = ForkingPickler.dumps((True, error))
            except (Exception, SystemExit) as error:  # noqa: BLE001  (of a function of the user's)
                pickled = ForkingPickler.dumps((True, Failure(type(error).__name__, traceback.format_exc())))
            calls.send_bytes(pickled)


def _end_with_parent() -> NoReturn:
    """End this process, in the midst of a call, too, some time after its standard input."""
    os.read(0, 1)
    time.sleep(_GRACE_S)
    os._exit(1)
