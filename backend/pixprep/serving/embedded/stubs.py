"""State of the processes in which Triton runs Python models, read from Linux, since Triton 2.51 does not report it."""

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
"""A stub that died while its model was loaded is noticed by Triton within about a second, or never; on a machine
that is overloaded, that second may be longer."""


@dataclass(frozen=True)
class Stub:
    """The process in which Triton runs one instance of a Python model.

    Attributes:
        pid: Process ID.
        model: Name of the model.
        region: Shared memory through which the process communicates with Triton.
    """

    pid: int
    model: str
    region: Path

    @property
    def state(self) -> str:
        """State letter of proc(5); empty if the process has ended."""
        return stat(self.pid)[0] if _stub(self.pid) == self else ""

    @property
    def cpu_s(self) -> float:
        """Seconds of processor time used so far; 0 if the process has ended."""
        fields = stat(self.pid)
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")  # utime, stime

    def kill(self) -> None:
        """End the process, if it has not ended."""
        if self.state:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    def clear(self) -> None:
        """End the process and free its memory.

        Triton 2.51 never completely unloads a model that has answered a request with "Stub process is not healthy". The
        memory stays mapped, so that removing its name alone does not free it.
        """
        self.kill()
        with suppress(OSError):  # Triton has removed it, as it should
            size = self.region.stat().st_size
            os.truncate(self.region, 0)
            os.truncate(self.region, size)
            self.region.unlink()


def stubs(pid: int) -> set[Stub]:
    """The stubs of a Triton that have not ended: called 20 times per second, and twice as fast without ``Path``."""
    found = (_stub(int(process)) for process in os.listdir("/proc") if process.isdecimal())  # noqa: PTH208
    return {stub for stub in found if stub and int(stat(stub.pid)[1]) == pid}


class Launches:
    """Finds models whose load will never end, because a stub died during the load and Triton waits for it.

    Triton creates a stub's shared memory before the stub and removes it afterwards. After such a death, a region
    without a stub remains. A stub that dies before it is seen also leaves one.

    Args:
        pid: Process ID of a Triton that is about to load models.
        prefix: Prefix of the names of its regions.

    Attributes:
        deaths: Description of how the last failed process of each model ended, by the name of the model.
    """

    def __init__(self, pid: int, prefix: str) -> None:
        self.deaths: dict[str, str] = {}
        self._pid = pid
        self._seen: dict[int, str] = {}
        self._prefix = prefix
        self._models: dict[Path, str] = {}
        self._before = self._regions()
        self._bereft_at: dict[Path, float] = {}

    def stuck(self) -> set[str]:
        """The models that lost a stub ``STUCK_S`` ago, since this object was made; ``""``: it is not known which."""
        now, regions = time.monotonic(), self._regions() - self._before
        found = stubs(self._pid)  # read after the regions, so that each new region already has its stub
        self._note_deaths()
        self._seen |= {stub.pid: stub.model for stub in found}
        alive = {stub.region: stub.model for stub in found}
        self._models |= alive
        self._bereft_at = {region: self._bereft_at.get(region, now) for region in regions - alive.keys()}
        return {self._models.get(region, "") for region, at in self._bereft_at.items() if now - at >= STUCK_S}

    def _note_deaths(self) -> None:
        """Note how stubs ended: Triton, whose children they are, leaves them for a while before it asks."""
        for pid, model in self._seen.items():
            fields = stat(pid)
            state, parent, status = fields[0], int(fields[1]), int(fields[49])  # of proc(5)
            if state == "Z" and parent == self._pid and status:
                self.deaths[model] = ended(os.waitstatus_to_exitcode(status))

    def _regions(self) -> set[Path]:
        return set(SHARED_MEMORY.glob(f"{self._prefix}*"))


def _stub(pid: int) -> Stub | None:
    """A process, if it is a stub: ``triton_python_backend_stub /models/preprocess/1/model.py REGION ...``."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb", buffering=0) as file:  # noqa: PTH123
            words = file.read().split(b"\0")
    except OSError:
        return None
    if len(words) < 3 or Path(os.fsdecode(words[0])).name != STUB:
        return None
    return Stub(pid, Path(os.fsdecode(words[1])).parents[1].name, SHARED_MEMORY / os.fsdecode(words[2]))


def stat(process: int | str) -> list[str]:
    """Fields of proc(5) from the state on, of a process or ``PID/task/TID``; an empty string and zeros if it ended."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ["", *["0"] * 49]


def thread_states(pid: int) -> list[str]:
    """The letter of proc(5) of each thread of a process: R runs, or would if it had a processor; D waits for a disk."""
    return [stat(f"{pid}/task/{task.name}")[0] for task in Path(f"/proc/{pid}/task").glob("*")]
