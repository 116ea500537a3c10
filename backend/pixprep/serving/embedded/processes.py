"""The processes that `serve` starts: Triton's, and the guard that ends it when `serve` cannot; waits between starts.

tritonserver    leads a process group of its own, with a Python stub for each instance of a Python model
sh, the guard   waits for us to end: SIGKILL and a closed terminal leave no time to stop anything ourselves

The kernel kills Triton together with this process, and its stubs then end by themselves. No process therefore outlives
this one, even if the guard is killed first. The guard also kills a stub that hangs, and removes shared memory and
folders.
"""

from __future__ import annotations

import logging
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import IO

from pixprep.serving.embedded.failure import ended
from pixprep.serving.embedded.stubs import stat
from pixprep.serving.embedded.wheel import ENVIRONMENTS, SHARED_MEMORY, max_files

CALM_S = 10.0  # after a run of this length, the first wait applies again
OF_MODEL = (0.0, 1.0, 2.0, 2.0, 2.0, 5.0)  # without end: the other models continue to serve
OF_TRITON = (0.0, 1.0, 2.0, *[3.0] * 7, None)  # ten failures in a row take about a minute; then `serve` gives up
_logger = logging.getLogger(__name__)

# Kills the process group that was named last when the other end of stdin is closed, and then removes leftover files.
_GUARD = 'while read -r line; do group=$line; done; [ "$group" ] && kill -s KILL -- "-$group"; rm -rf "$1"* "$2"'

# Runs a program that the kernel kills when the thread that started it ends. It uses PR_SET_PDEATHSIG of prctl(2), which
# survives exec. If the parent ended before the call, getppid() returns a different process, and the program does not
# start.
_BOUND = (
    f"import ctypes, os, sys; ctypes.CDLL(None).prctl(1, {int(signal.SIGKILL)}); "
    "os.getppid() == int(sys.argv[1]) and os.execv(sys.argv[2], sys.argv[2:])"
)


class Processes:
    """One Triton at a time, its stubs and what they leave.

    Args:
        prefix: Prefix of the names of their shared memory, which is removed when they end.

    Attributes:
        folder: Folder for their files. It is removed at the end, even if this process is killed.
    """

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._triton: subprocess.Popen[bytes] | None = None
        self._starter = ThreadPoolExecutor(1, "pixprep-starter")  # its thread lives as long as this object
        self.folder = Path(tempfile.mkdtemp(prefix="pixprep-"))
        self._guard = self._start_guard()

    @property
    def pid(self) -> int:
        """The present Triton, or the last one."""
        assert self._triton is not None
        return self._triton.pid

    def poll(self, *, within_s: float = 0.0) -> int | None:
        """Triton's exit code; None if it does not end in time, or none was started."""
        with suppress(subprocess.TimeoutExpired):
            return None if self._triton is None else self._triton.wait(within_s)
        return None

    def start(self, command: Sequence[str], *, environment: Mapping[str, str], folder: Path, log: IO[bytes]) -> None:
        """Start a Triton in a folder; none may run now. The hard limit of open files bounds its connections."""
        self._triton = self._starter.submit(
            subprocess.Popen,
            [sys.executable, "-I", "-S", "-c", _BOUND, str(os.getpid()), *command],
            env=environment,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C reaches us alone; the group is ours to end
        ).result()
        with suppress(OSError):  # it has ended
            _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
            resource.prlimit(self._triton.pid, resource.RLIMIT_NOFILE, (max_files(), hard))
        self._tell_guard(str(self._triton.pid))

    def end(self, *, until: float) -> None:
        """Ask Triton to end, and wait until it has ended or the time is over."""
        if self._triton is not None:
            self._triton.terminate()
            self.poll(within_s=max(0.0, until - time.monotonic()))

    def kill(self) -> None:
        """End Triton and its stubs, if they have not ended, and remove what they leave."""
        if self._triton is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._triton.pid, signal.SIGKILL)
            self._triton.wait()
            self._tell_guard("")
        for region in SHARED_MEMORY.glob(f"{self._prefix}*"):
            region.unlink(missing_ok=True)
        for folder in self.folder.glob(f"*/{ENVIRONMENTS}*"):
            shutil.rmtree(folder, ignore_errors=True)

    def close(self) -> None:
        """End them all, and remove the folder."""
        self.kill()
        self._guard.kill()
        self._guard.communicate()
        self._starter.shutdown()
        shutil.rmtree(self.folder, ignore_errors=True)

    def keep_guard(self) -> None:
        """Start another guard if someone has killed the guard."""
        if self._guard.poll() is None:
            return
        how = ended(self._guard.returncode)
        self._guard.communicate()
        self._guard = self._start_guard()
        if self.poll() is None:
            self._tell_guard(str(self.pid))
        _logger.warning("the process that ends Triton after a kill of `serve` %s; it was started again", how)

    def _start_guard(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            ["/bin/sh", "-c", _GUARD, "sh", str(SHARED_MEMORY / self._prefix), str(self.folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def _tell_guard(self, group: str) -> None:
        assert self._guard.stdin is not None
        with suppress(BrokenPipeError):  # someone has ended it
            self._guard.stdin.write(f"{group}\n".encode())
            self._guard.stdin.flush()


def hide(pid: int, secret: str) -> None:
    """Write over a secret in the command line of a child of ours, which every user of this machine may read.

    Triton takes its keys there and nowhere else. It has copied them by the time it is ready.
    """
    try:
        with Path(f"/proc/{pid}/mem").open("r+b", buffering=0) as memory:
            begin, end = map(int, stat(pid)[45:47])  # arg_start, arg_end of proc(5)
            memory.seek(begin)
            words = memory.read(end - begin)
            memory.seek(begin)
            memory.write(words.replace(secret.encode(), b"x" * len(secret)))
    except OSError as error:
        _logger.warning("other users of this machine can read the server's admin key: %s", error.strerror)


class Waits:
    """Counts consecutive failures of a repeated attempt.

    Args:
        waits_s: Seconds to wait after each failure before the next attempt; the last value applies to all further
            failures. None: give up.
    """

    def __init__(self, *waits_s: float | None) -> None:
        self._waits_s = waits_s
        self.failures = 0

    def count(self, *, ran_s: float) -> float | None:
        """Count a failure after a run of this length in seconds; return the wait in seconds, None to give up."""
        self.failures = 1 if ran_s > CALM_S else self.failures + 1
        return self._waits_s[min(self.failures, len(self._waits_s)) - 1]


def after(wait_s: float) -> str:
    """Text for a wait."""
    return f" in {wait_s:g} s" if wait_s else ""
