"""Brings a model back whose Python process has died or hangs: Triton 2.51 does neither that nor says so.

A stub is the process in which Triton runs one instance of a Python model. When it dies, its model fails every request
from then on, and ``/v2/health/ready`` stays 200. So four times a second we look at the processes, and every other
second we send an image through each model of pixprep. A model that is down is unloaded and loaded again; the others
go on.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from pixprep.decoders.cpu import sample_jpeg
from pixprep.triton.server import Server

LOOK_S = 0.25
PROBE_S = 2.0
PROBE_TIMEOUT_S = 2.0
MISSES = 2
SILENCE_S = 60.0
"""A model that computes may be silent for so long: 64 images of 50 megapixels took two cores about 12 s."""
IDLE = 0.05
"""Of the time between two probes: a silent process that used less of a core waits for something that does not come."""
LONGEST_WAIT_S = 30.0
"""A model that dies again and again is brought back after 0, 1, 2, 4 ... seconds, at most this."""

_STUB = "triton_python_backend_stub"
_logger = logging.getLogger(__name__)


@dataclass
class _Model:
    """What is known of one model.

    Attributes:
        expected: how many stubs it had when it was ready.
        misses: probes in a row that it failed.
        cpu_s: what its stubs had used of the processor at the last probe.
        answered_at: when it last answered one.
        failures: how often it was brought back since it last ran for a while.
        again_at: when it may be brought back.
    """

    expected: int
    misses: int = 0
    cpu_s: float = 0.0
    answered_at: float = field(default_factory=time.monotonic)
    failures: int = 0
    again_at: float = 0.0
    alive_since: float = field(default_factory=time.monotonic)


def watch(server: Server, probed: Sequence[str]) -> int:
    """Look after the models of a server until Triton ends by itself; its exit code. See ``Supervisor``."""
    supervisor = Supervisor(server, probed=probed)
    while (code := server.poll()) is None:
        supervisor.look()
        time.sleep(LOOK_S)
    return code


def stubs(pid: int) -> dict[int, str]:
    """The stubs of a Triton, as far as they live: the model of each process."""
    found: dict[int, str] = {}
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):  # a thread that has ended
            for child in children.read_text().split():
                if model := _model_of(Path("/proc") / child):
                    found[int(child)] = model
    return found


def _model_of(process: Path) -> str | None:
    """``.../preprocess/1/model.py`` is the second word of a stub's command line; a zombie has none."""
    try:
        words = (process / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return None
    if len(words) < 2 or Path(os.fsdecode(words[0])).name != _STUB:
        return None
    return Path(os.fsdecode(words[1])).parents[1].name


def _cpu_s(pid: int) -> float:
    """Seconds of processor time that a process has used; 0 if it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")  # 14, 15: utime, stime


class Supervisor:
    """Watches one server; every method is called from one thread.

    Args:
        server: started.
        probed: the models that take an image as their only input.
    """

    def __init__(self, server: Server, *, probed: Sequence[str]) -> None:
        self._server = server
        self._image = sample_jpeg(64, 64)
        self._models = {name: _Model(count) for name, count in Counter(stubs(server.pid).values()).items()}
        self._probed = [name for name in probed if name in self._models]
        self._probe_at = time.monotonic() + PROBE_S

    def look(self) -> None:
        """Look once, and bring back what is down."""
        now = time.monotonic()
        alive = Counter(stubs(self._server.pid).values())
        for name, model in self._models.items():
            if alive[name] < model.expected and now >= model.again_at:
                self._bring_back(name, model, f"{model.expected - alive[name]} of its {model.expected} processes died")
        if now >= self._probe_at:
            self._probe_all()
            self._probe_at = time.monotonic() + PROBE_S

    def _probe_all(self) -> None:
        for name in self._probed:
            model = self._models[name]
            if time.monotonic() < model.again_at or not self._is_missing(name, model):
                continue
            model.misses += 1
            if model.misses >= MISSES or time.monotonic() - model.answered_at > SILENCE_S:
                for pid in self._stubs_of(name):
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)  # unloading would wait for it
                self._bring_back(name, model, f"it answered none of {model.misses} images")

    def _is_missing(self, name: str, model: _Model) -> bool:
        """Send an image: whether the model neither answers nor computes. A refusal is an answer, and so is "busy"."""
        status = self._server.infer(name, self._image, timeout_s=PROBE_TIMEOUT_S)
        before, model.cpu_s = model.cpu_s, sum(map(_cpu_s, self._stubs_of(name)))
        if status in (200, 400, 501, 503):
            model.misses, model.answered_at = 0, time.monotonic()
            return False
        return status != 0 or model.cpu_s - before < IDLE * PROBE_TIMEOUT_S

    def _stubs_of(self, name: str) -> list[int]:
        return [pid for pid, model in stubs(self._server.pid).items() if model == name]

    def _bring_back(self, name: str, model: _Model, why: str) -> None:
        now = time.monotonic()
        if now - model.alive_since > 2 * LONGEST_WAIT_S:
            model.failures = 0
        _logger.error("model %s is down: %s; it is loaded again", name, why)
        error = self._reload(name)
        model.failures += 1
        model.misses = 0
        model.alive_since = model.answered_at = time.monotonic()
        wait_s = min(2.0 ** (model.failures - 1), LONGEST_WAIT_S)
        model.again_at = model.alive_since + (wait_s if model.failures > 1 or error else 0)
        if error:
            _logger.error("model %s does not load: %s; again in %g s", name, error, wait_s)
        else:
            _logger.warning("model %s is back after %.1f s", name, model.alive_since - now)

    def _reload(self, name: str) -> str | None:
        """Unload and load a model, and the ensembles that Triton dropped with it; why it failed, or None."""
        before = self._ready()
        for action in ("unload", "load"):
            status, text = self._server.control(f"models/{name}/{action}")
            if status != 200:
                return _message(text)
        for other in sorted(before - self._ready() - {name}):
            self._server.control(f"models/{other}/load")
        return None

    def _ready(self) -> set[str]:
        _, text = self._server.control("index")
        with suppress(ValueError, TypeError, KeyError):
            return {entry["name"] for entry in json.loads(text) if entry.get("state") == "READY"}
        return set()


def _message(text: bytes) -> str:
    try:
        return " ".join(str(json.loads(text)["error"]).split())
    except (ValueError, TypeError, KeyError):
        return "Triton does not say why"
