"""Finds the stub processes, in which Triton runs Python models, and detects stubs that died or hang.

The state of the processes is read from ``/proc``, because Triton 2.51 does not report it.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pixprep.serving.embedded.failure import ended
from pixprep.serving.embedded.wheel import SHARED_MEMORY, STUB

STUCK_S = 5.0
"""Seconds from the death of a stub until the load of its model counts as stuck. Triton notices such a death within
about a second, or within a few seconds on an overloaded machine, or never."""


@dataclass(frozen=True)
class Stub:
    """Process in which Triton's Python backend runs one instance of a model.

    Attributes:
        pid: Process ID.
        model: Name of the model.
        region: Path of the shared memory region through which the process communicates with Triton.
    """

    pid: int
    model: str
    region: Path

    @property
    def state(self) -> str:
        """State of the process as a letter, see proc(5). The string is empty if the process has exited."""
        return stat(self.pid)[0] if _stub(self.pid) == self else ""

    @property
    def cpu_s(self) -> float:
        """CPU time in seconds that the process has used so far, or 0 if the process has exited."""
        fields = stat(self.pid)
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")  # utime, stime

    def kill(self) -> None:
        """Send SIGKILL to the process if it is still running."""
        if self.state:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    def clear(self) -> None:
        """Kill the process and free its shared memory.

        Triton 2.51 never completely unloads a model that has failed a request with "Stub process is not healthy".
        Triton also keeps the shared memory of such a model mapped, so that removing the file alone would not free the
        memory.
        """
        self.kill()
        with suppress(OSError):  # Triton has already removed the file, which is the normal case
            size = self.region.stat().st_size
            os.truncate(self.region, 0)
            os.truncate(self.region, size)
            self.region.unlink()


def stubs(pid: int) -> set[Stub]:
    """Return the running stubs of the Triton process with this process ID."""
    # This function is called 20 times per second, and ``os`` is twice as fast as ``Path``.
    found = (_stub(int(process)) for process in os.listdir("/proc") if process.isdecimal())  # noqa: PTH208
    return {stub for stub in found if stub and int(stat(stub.pid)[1]) == pid}


class Launches:
    """Detects models whose load never ends, because a stub died during the load and Triton still waits for this stub.

    Triton creates the shared memory region of a stub before the stub itself, and removes the region after the stub has
    exited. A region without a stub therefore shows that a stub has died, even if that stub was never observed.

    Args:
        pid: Process ID of a Triton that is about to load models.
        prefix: Name prefix of Triton's shared memory regions.

    Attributes:
        deaths: Description of how the last failed stub of each model ended, by the name of the model.
    """

    def __init__(self, pid: int, prefix: str) -> None:
        self.deaths: dict[str, str] = {}
        self._pid = pid
        self._seen: dict[int, str] = {}
        self._prefix = prefix
        self._models: dict[Path, str] = {}
        self._before = self._regions()
        self._orphaned_at: dict[Path, float] = {}

    def stuck(self) -> set[str]:
        """Return the models that lost a stub at least ``STUCK_S`` seconds ago, but after this object was created.

        An empty name represents an unknown model.
        """
        now, regions = time.monotonic(), self._regions() - self._before
        found = stubs(self._pid)  # after the regions are listed, so that the stub of each new region already exists
        self._note_deaths()
        self._seen |= {stub.pid: stub.model for stub in found}
        alive = {stub.region: stub.model for stub in found}
        self._models |= alive
        self._orphaned_at = {region: self._orphaned_at.get(region, now) for region in regions - alive.keys()}
        return {self._models.get(region, "") for region, at in self._orphaned_at.items() if now - at >= STUCK_S}

    def _note_deaths(self) -> None:
        """Record the exit codes of dead stubs.

        The codes are available until Triton, the parent process, reaps the stubs.
        """
        for pid, model in self._seen.items():
            fields = stat(pid)
            state, parent, status = fields[0], int(fields[1]), int(fields[49])  # see proc(5)
            if state == "Z" and parent == self._pid and status:
                self.deaths[model] = ended(os.waitstatus_to_exitcode(status))

    def _regions(self) -> set[Path]:
        return set(SHARED_MEMORY.glob(f"{self._prefix}*"))


def _stub(pid: int) -> Stub | None:
    """Return the stub with this process ID, or None if the process is not a stub.

    The command line of a stub is ``triton_python_backend_stub /models/preprocess/1/model.py REGION ...``.
    """
    try:
        with open(f"/proc/{pid}/cmdline", "rb", buffering=0) as file:  # noqa: PTH123
            words = file.read().split(b"\0")
    except OSError:
        return None
    if len(words) < 3 or Path(os.fsdecode(words[0])).name != STUB:
        return None
    return Stub(pid, Path(os.fsdecode(words[1])).parents[1].name, SHARED_MEMORY / os.fsdecode(words[2]))


def stat(process: int | str) -> list[str]:
    """Return the fields of ``/proc/PID/stat``, beginning with the state of the process, see proc(5).

    Args:
        process: Process ID, or ``PID/task/TID`` for a thread.

    Returns:
        The fields as strings. If the process has exited, the state is empty and all other fields are "0".
    """
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ["", *["0"] * 49]


def thread_states(pid: int) -> list[str]:
    """Return the state letter of each thread of a process, see proc(5).

    R means that a thread is running or waiting for a core, and D means that it is waiting for a disk.
    """
    return [stat(f"{pid}/task/{task.name}")[0] for task in Path(f"/proc/{pid}/task").glob("*")]
