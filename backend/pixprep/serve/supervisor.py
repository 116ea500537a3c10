"""Brings a model back whose Python process has died or hangs: Triton 2.51 does neither that nor says so.

A stub is the process in which Triton runs one instance of a Python model. When it dies, its model fails every request
from then on, and ``/v2/health/ready`` stays 200. So each such model has a thread that looks at its stubs four times a
second, and sends an image through it every other second if it is one of pixprep's. A model that is down is unloaded
and loaded again; the others go on.
"""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread

from pixprep.decoders.cpu import sample_jpeg
from pixprep.errors import PixprepError
from pixprep.serve.failure import innermost
from pixprep.serve.server import Server
from pixprep.serve.wheel import SHARED_MEMORY, STUB
from pixprep.triton.config import count_instances

LOOK_S = 0.25
PROBE_S = 2.0
MISSES = 2
"""A model hangs that leaves this number of probes in a row unanswered. The second follows the first at once."""
IDLE = 0.05
"""A stub that used less than this share of a core while a probe waited does not compute: it will never answer."""
WAITS_S = (0.0, 1.0, *8 * [2.0])
"""A model that dies again and again is brought back after 0, 1, 2, 2 ... seconds, so that it is back within 5 s."""
LONGEST_WAIT_S = 30.0
"""And then after this: each time costs Triton 36 threads for good."""
CALM_S = 2 * LONGEST_WAIT_S
"""A model that ran for this time begins at 0 again."""
GRACE_S = 30.0
"""What Triton keeps for this time of a model that it was told to unload, it keeps for ever."""

_RUNNING = ("R", "S", "D", "t")  # states of a process; t: a debugger looks at it
_logger = logging.getLogger(__name__)


def serve(server: Server, *, on_ready: Callable[[], object]) -> None:
    """Start a server and look after its models until Ctrl-C or SIGTERM, then stop it.

    Args:
        server: not started yet.
        on_ready: called when every model is ready.

    Raises:
        PixprepError: it did not start, or Triton ended by itself.
    """
    stopping = Event()

    def stop(*_: object) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):  # a second one does not cut short what the first began
            signal.signal(number, signal.SIG_IGN)
        stopping.set()  # Python forgets an exception that happens to be raised inside a finalizer
        raise KeyboardInterrupt

    for number in (signal.SIGINT, signal.SIGTERM):  # a shell starts background jobs with SIGINT ignored
        signal.signal(number, stop)
    code = None
    try:
        with server:
            on_ready()
            code = watch(server, stopping)
    except KeyboardInterrupt:
        pass
    if code is not None:
        raise PixprepError(f"Triton ended by itself with exit code {code}; its log: {server.log_file}")


def watch(server: Server, stopping: Event) -> int | None:
    """Look after the models of a server until Triton ends by itself, or ``stopping`` is set.

    Args:
        server: started; all its models are ready.
        stopping: is set when this returns or raises.

    Returns:
        Triton's exit code, or None.
    """
    code = None
    try:
        for model in _models(server):
            Thread(target=model.watch, args=(stopping,), name=f"pixprep-{model.name}", daemon=True).start()
        while (code := server.poll()) is None and not stopping.wait(LOOK_S):
            pass
    finally:
        stopping.set()
    return code


def _models(server: Server) -> Iterator[_Model]:
    """The models that run in stubs of Triton."""
    probed = server.pipeline_models
    versions = Counter(entry["name"] for entry in server.index() if entry.get("state") == "READY")
    for name, count in versions.items():
        config = server.config(name)
        if config.get("backend") in ("python", "pixprep"):
            yield _Model(server, name, count=count_instances(config) * count, is_probed=name in probed)


class _Model:
    """One model, as its thread sees it.

    Args:
        server: that serves it.
        name: of the model.
        count: how many stubs it has.
        is_probed: whether to send images through it.
    """

    def __init__(self, server: Server, name: str, *, count: int, is_probed: bool) -> None:
        self.name = name
        self._server = server
        self._count = count
        self._image = sample_jpeg(64, 64) if is_probed else None
        self._stubs: set[Stub] = set()
        self._old: set[Stub] = set()  # of before the model was loaded again
        self._misses = 0
        self._probe_at = time.monotonic() + PROBE_S
        self._failures = 0
        self._back_at = 0.0
        self._find_stubs()

    def watch(self, stopping: Event) -> None:
        """Bring the model back whenever it is down."""
        while not stopping.wait(LOOK_S):
            why = self._why_down()
            if why and self._server.poll() is None:  # stubs end with Triton
                self._bring_back(why, stopping)
            elif self._old and time.monotonic() - self._back_at > GRACE_S:
                for stub in self._old:
                    stub.clear()
                self._old = set()

    def _why_down(self) -> str:
        """Why the model is down; empty if it is not."""
        if self._running() < self._count:
            self._find_stubs()
            if missing := self._count - self._running():
                how = "were stopped" if any(stub.state == "T" for stub in self._stubs) else "died"
                return f"{missing} of its {self._count} processes {how}"
        if self._image and time.monotonic() >= self._probe_at:
            self._misses = self._misses + 1 if self._is_silent(self._image) else 0
            if self._misses >= MISSES:
                return f"it answered none of {self._misses} images"
            if not self._misses:
                self._probe_at = time.monotonic() + PROBE_S
        return ""

    def _find_stubs(self) -> None:
        self._stubs |= {stub for stub in stubs(self._server.pid) if stub.model == self.name} - self._old

    def _running(self) -> int:
        return min(self._count, sum(stub.state in _RUNNING for stub in self._stubs))

    def _is_silent(self, image: bytes) -> bool:
        """Send an image: whether the model fails, or neither answers nor computes. A refusal is an answer, too."""
        before = sum(stub.cpu_s for stub in self._stubs)
        status = self._server.infer(self.name, image, timeout_s=PROBE_S)
        used_s = sum(stub.cpu_s for stub in self._stubs) - before
        return status == 500 or (status == 0 and used_s < IDLE * PROBE_S)

    def _bring_back(self, why: str, stopping: Event) -> None:
        noticed_at = time.monotonic()
        if noticed_at - self._back_at > CALM_S:
            self._failures = 0
        wait_s = self._wait_s()
        _logger.error("model %s is down: %s; it is loaded again%s", self.name, why, f" in {wait_s:g} s" * bool(wait_s))
        while not stopping.wait(wait_s):
            error = self._reload()
            self._failures += 1
            wait_s = self._wait_s()
            if stopping.is_set():
                return
            if not error:
                self._misses, self._back_at = 0, time.monotonic()
                self._probe_at = self._back_at + PROBE_S
                _logger.warning("model %s is back after %.1f s", self.name, self._back_at - noticed_at)
                return
            _logger.error("model %s does not load: %s; again in %g s", self.name, error, wait_s)

    def _wait_s(self) -> float:
        return WAITS_S[self._failures] if self._failures < len(WAITS_S) else LONGEST_WAIT_S

    def _reload(self) -> str:
        """Unload and load the model; why it failed, or empty. Its ensembles go and come with it."""
        for stub in self._stubs:
            if stub.state == "T" or self._misses >= MISSES:
                stub.kill()  # unloading would wait for it
        self._old |= self._stubs
        self._stubs = set()
        for action in ("unload", "load"):
            status, text = self._server.control(f"models/{self.name}/{action}")
            if status != 200:
                return _message(text)
        self._find_stubs()
        return ""


@dataclass(frozen=True)
class Stub:
    """The process in which Triton runs one instance of a Python model.

    Attributes:
        pid: of the process.
        model: its name.
        region: the shared memory by which it speaks with Triton.
    """

    pid: int
    model: str
    region: Path

    @property
    def state(self) -> str:
        """The letter of proc(5); empty if the process has ended."""
        return _stat(self.pid)[0] if _stub(self.pid) == self else ""

    @property
    def cpu_s(self) -> float:
        """Seconds of processor time used so far; 0 if the process has ended."""
        fields = _stat(self.pid)
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")  # utime, stime

    def kill(self) -> None:
        """End the process, if it has not ended."""
        if self.state:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    def clear(self) -> None:
        """End the process, and give its memory back.

        Triton 2.51 never quite unloads a model of which a request was answered with "Stub process is not healthy": its
        memory stays mapped, so that removing its name alone would not free it.
        """
        self.kill()
        with suppress(OSError):  # Triton has removed it, as it should
            size = self.region.stat().st_size
            os.truncate(self.region, 0)
            os.truncate(self.region, size)
            self.region.unlink()


def stubs(pid: int) -> set[Stub]:
    """The stubs of a Triton that have not ended."""
    found = (_stub(int(process.name)) for process in Path("/proc").glob("[0-9]*"))
    return {stub for stub in found if stub and int(_stat(stub.pid)[1]) == pid}


def _stub(pid: int) -> Stub | None:
    """A process, if it is a stub: ``triton_python_backend_stub /models/preprocess/1/model.py REGION ...``."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return None
    if len(words) < 3 or Path(os.fsdecode(words[0])).name != STUB:
        return None
    return Stub(pid, Path(os.fsdecode(words[1])).parents[1].name, SHARED_MEMORY / os.fsdecode(words[2]))


def _stat(pid: int) -> list[str]:
    """State, parent and what follows them in proc(5); of a process that has ended, empty and zeros."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ["", *["0"] * 49]


def _message(text: bytes) -> str:
    try:
        return innermost(re.sub(r"^load failed .*? is at UNAVAILABLE state: ", "", json.loads(text)["error"]))
    except (ValueError, TypeError, KeyError):
        return "Triton does not say why"
