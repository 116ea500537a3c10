"""Starts and ends the processes of `serve`, and determines the waits between their restarts.

tritonserver    leads its own process group, which contains a Python stub for each instance of a Python model
sh (the guard)  waits until this process exits, and cleans up if this process could not, such as after SIGKILL

The kernel kills Triton when this process exits, and the stubs then exit by themselves. Triton and its stubs therefore
do not outlive this process, even if the guard is killed first. The guard additionally kills stubs that hang, and
removes shared memory and folders.
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
from pixprep.serving.embedded.wheel import ENVIRONMENT_PREFIX, SHARED_MEMORY, max_files

CALM_S = 10.0  # the count of consecutive failures is reset if a process ran for at least this number of seconds
OF_MODEL = (
    0.0,
    1.0,
    2.0,
    2.0,
    2.0,
    5.0,
)  # waits before reloading a model: `serve` never gives up, because other models still work
OF_TRITON = (0.0, 1.0, 2.0, *[3.0] * 7, None)  # before restarting Triton: `serve` gives up after ten failures
_logger = logging.getLogger(__name__)

# Shell program that reads process group IDs from stdin. When stdin is closed, it kills the last group and removes the
# files that remain.
_GUARD = 'while read -r line; do group=$line; done; [ "$group" ] && kill -s KILL -- "-$group"; rm -rf "$1"* "$2"'

# Python code that runs a program in such a way that the kernel kills the program when the thread that started it ends.
# The code uses PR_SET_PDEATHSIG of prctl(2), which is preserved across exec. If the parent exits before the call, then
# getppid() returns the ID of a different process, and the program is not started.
_DIES_WITH_PARENT = (
    f"import ctypes, os, sys; ctypes.CDLL(None).prctl(1, {int(signal.SIGKILL)}); "
    "os.getppid() == int(sys.argv[1]) and os.execv(sys.argv[2], sys.argv[2:])"
)


class Processes:
    """Manages one Triton process at a time, with its stubs, shared memory and temporary files.

    Args:
        prefix: Name prefix of the shared memory regions, which are removed when Triton exits.

    Attributes:
        folder: Folder for temporary files. It is removed by ``close``, or by the guard if this process is killed.
    """

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._triton: subprocess.Popen[bytes] | None = None
        # a child process dies with the thread that started it; this thread exists as long as the object
        self._starter = ThreadPoolExecutor(1, "pixprep-starter")
        self.folder = Path(tempfile.mkdtemp(prefix="pixprep-"))
        self._guard = self._start_guard()

    @property
    def pid(self) -> int:
        """Process ID of the Triton that is running or that ran last."""
        assert self._triton is not None
        return self._triton.pid

    def poll(self, *, within_s: float = 0.0) -> int | None:
        """Return Triton's exit code, or None if Triton does not exit within this time or was never started."""
        with suppress(subprocess.TimeoutExpired):
            return None if self._triton is None else self._triton.wait(within_s)
        return None

    def start(self, command: Sequence[str], *, environment: Mapping[str, str], folder: Path, log: IO[bytes]) -> None:
        """Start Triton. The previous Triton of this object must have exited.

        The soft limit of open files is raised to the hard limit, because every connection uses a file descriptor.

        Args:
            command: Command line of Triton.
            environment: Environment variables.
            folder: Working directory.
            log: File that receives Triton's stdout and stderr.
        """
        self._triton = self._starter.submit(
            subprocess.Popen,
            [sys.executable, "-I", "-S", "-c", _DIES_WITH_PARENT, str(os.getpid()), *command],
            env=environment,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C must not reach Triton; ``kill`` kills the whole process group
        ).result()
        with suppress(OSError):  # Triton has already ended
            _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
            resource.prlimit(self._triton.pid, resource.RLIMIT_NOFILE, (max_files(), hard))
        self._tell_guard(str(self._triton.pid))

    def end(self, *, until: float) -> None:
        """Send SIGTERM to Triton, and wait until it has exited or the ``time.monotonic`` value ``until`` is reached."""
        if self._triton is not None:
            self._triton.terminate()
            self.poll(within_s=max(0.0, until - time.monotonic()))

    def kill(self) -> None:
        """Kill Triton and its stubs if they are still running, and remove their shared memory and temporary folders."""
        if self._triton is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._triton.pid, signal.SIGKILL)
            self._triton.wait()
            self._tell_guard("")
        for region in SHARED_MEMORY.glob(f"{self._prefix}*"):
            region.unlink(missing_ok=True)
        for folder in self.folder.glob(f"*/{ENVIRONMENT_PREFIX}*"):
            shutil.rmtree(folder, ignore_errors=True)

    def close(self) -> None:
        """Kill all processes and remove the folder for temporary files."""
        self.kill()
        self._guard.kill()
        self._guard.communicate()
        self._starter.shutdown()
        shutil.rmtree(self.folder, ignore_errors=True)

    def keep_guard(self) -> None:
        """Start the guard again if it has been killed."""
        if self._guard.poll() is None:
            return
        how = ended(self._guard.returncode)
        self._guard.communicate()
        self._guard = self._start_guard()
        if self.poll() is None:
            self._tell_guard(str(self.pid))
        _logger.warning("the guard process, which ends Triton if `serve` is killed, %s; it was restarted", how)

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
        with suppress(BrokenPipeError):  # the guard has been killed
            self._guard.stdin.write(f"{group}\n".encode())
            self._guard.stdin.flush()


def hide(pid: int, secret: str) -> None:
    """Overwrite a secret in the command line of a child process, because all users of this machine can read it.

    Triton accepts its keys only as command-line options. When Triton is ready, it has copied the keys, so the options
    can be overwritten.
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
    """Counts consecutive failures of a process, and determines the wait before its next start.

    Args:
        waits_s: Seconds to wait after the first, second, ... consecutive failure. The last value applies to all further
            failures. The value None means that the process is not started again.

    Attributes:
        failures: Number of consecutive failures so far.
    """

    def __init__(self, *waits_s: float | None) -> None:
        self._waits_s = waits_s
        self.failures = 0

    def count(self, *, ran_s: float) -> float | None:
        """Count a failure after a run of ``ran_s`` seconds.

        Returns:
            Seconds to wait before the next start, or None if the process should not be started again.
        """
        self.failures = 1 if ran_s > CALM_S else self.failures + 1
        return self._waits_s[min(self.failures, len(self._waits_s)) - 1]


def after(wait_s: float) -> str:
    """Return the text for a wait in a log message, such as ``" in 2 s"``, or an empty string for 0 s."""
    return f" in {wait_s:g} s" if wait_s else ""
