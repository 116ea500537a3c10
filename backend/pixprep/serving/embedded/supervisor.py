"""Supervisor: restarts a model's Python process, or all of Triton, when it dies or hangs. Triton 2.51 does not do this.

A stub is the process in which Triton's Python backend runs a model. When a stub dies, its model fails every later
request, while ``/v2/health/ready`` stays 200. Therefore each model has a thread that watches its stubs, and that sends
probe images if the model is one of pixprep's. A failed model is loaded again without being unloaded: its remaining
instances and the other models serve until the new one is ready.

If a stub dies while its model loads, Triton never answers the load call. In this case, and when Triton itself dies or
hangs, Triton is killed and started again (``State.HEALING``).
"""

from __future__ import annotations

import logging
import signal
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Event, Lock, Thread

from pixprep.errors import PixprepError
from pixprep.serving.embedded.failure import ended
from pixprep.serving.embedded.processes import OF_MODEL, OF_TRITON, Waits, after
from pixprep.serving.embedded.request import Config, sample
from pixprep.serving.embedded.server import Server
from pixprep.serving.embedded.snapshot import Signature
from pixprep.serving.embedded.stubs import Stub, stubs, thread_states
from pixprep.serving.repository import Problem
from pixprep.serving.triton.config import count_instances

LOOK_S = 0.25
PROBE_S = 2.0
MISSES = 2  # consecutive unanswered probes after which a model counts as hung; the second follows immediately
SILENCES = 5  # consecutive unanswered probes after which Triton counts as hung, if none of its threads is runnable
DEAF_S = 60.0  # seconds without a response after which Triton counts as hung, whatever its threads do
IDLE = 0.05  # a stub that used a smaller fraction of a core during a probe does not compute, and will not respond
GRACE_S = 30.0  # what Triton keeps of a replaced model for longer than this, it keeps forever
THREADS_LEFT = 2000  # a dead stub leaves 8 threads in Triton, which is restarted after this many more than at its start
END_S = 0.5  # seconds between the last response of a killed process and its exit
DISK_S = 1.0  # seconds between two checks of the disk; a change is complete when both checks see the same

_RUNNING = ("R", "S", "D", "t")  # states of a running process; t: stopped by a debugger
_logger = logging.getLogger(__name__)

Check = Callable[[Path], Sequence[Problem]]
"""Finder of the problems of a model repository, such as ``pixprep.serving.repository.check``."""


def serve(
    server: Server,
    *,
    on_ready: Callable[[], object],
    on_progress: Callable[[int, int], object] | None = None,
    watch: Check | None = None,
) -> None:
    """Start a server and supervise it until Ctrl-C or SIGTERM, then stop it.

    Args:
        server: The server.
        on_ready: Function that is called when every model is ready.
        on_progress: See ``Server.start``.
        watch: Function that finds the problems of changed models; changes without problems are deployed. None: changes
            on disk are not deployed.

    Raises:
        PixprepError: The server did not start, or Triton ended repeatedly.
    """
    stopping = Event()

    def stop(*_: object) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):  # ignore a second signal during the shutdown
            signal.signal(number, signal.SIG_IGN)
        stopping.set()  # Python drops an exception that is raised inside a finalizer
        raise KeyboardInterrupt

    for number in (signal.SIGINT, signal.SIGTERM):  # a shell starts background jobs with SIGINT ignored
        signal.signal(number, stop)
    with suppress(KeyboardInterrupt):
        server.start(on_progress=on_progress)
        try:
            on_ready()
            look_after(server, stopping, watch=watch)
        finally:
            server.stop()


def look_after(server: Server, stopping: Event, *, watch: Check | None = None, waits: Waits | None = None) -> None:
    """Supervise a server, all of whose models are ready, until ``stopping`` is set; see ``serve``.

    Raises:
        PixprepError: Triton ended more often than ``waits`` allows; default: ``OF_TRITON``.
    """
    waits, edits = waits or Waits(*OF_TRITON), _Edits(server, watch)
    Thread(target=edits.watch, args=(stopping,), name="pixprep-edits", daemon=True).start()
    while not stopping.is_set():
        ready_at = time.monotonic()
        edits.life = life = _Life(server)
        why = life.run(stopping)
        down_at = time.monotonic()
        ran_s = down_at - ready_at
        with edits.deploying:  # a restart serves the deployed version
            while why:
                wait_s = waits.count(ran_s=ran_s)
                if wait_s is None:
                    again = f"after {waits.failures - 1} new starts in a row"
                    raise PixprepError(f"{why}, {again}; its log: {server.log_file}")
                _logger.error("%s; it is started again%s", why, after(wait_s))
                if stopping.wait(wait_s):
                    return
                try:
                    server.restart()
                except PixprepError as error:
                    why, ran_s = f"Triton does not start: {str(error).partition(chr(10))[0]}", 0.0
                else:
                    why = ""
                    _logger.warning("every model is back after %.1f s", time.monotonic() - down_at)


class Hearing:
    """Distinguishes a Triton that hangs from one that is late because other processes use the cores.

    Args:
        pid: Process ID of Triton, which has just responded.
        deaf_s: Seconds for which Triton may leave every probe unanswered while its threads run.
    """

    def __init__(self, pid: int, *, deaf_s: float = DEAF_S) -> None:
        self._pid = pid
        self._deaf_s = deaf_s
        self._max_threads = len(thread_states(pid)) + THREADS_LEFT
        self._silences = 0
        self._heard_at = time.monotonic()

    def count(self, *, is_answered: bool) -> str:
        """Count a probe. Returns the reason to restart Triton, or an empty text."""
        states = thread_states(self._pid)
        if is_answered:
            self._silences, self._heard_at = 0, time.monotonic()
        elif not {"R", "D"} & {*states}:  # no thread runs, or waits for a core or the disk
            self._silences += 1
        if len(states) > self._max_threads:
            return f"Triton keeps {THREADS_LEFT} threads of processes that died"
        if self._silences >= SILENCES:
            return f"Triton answered none of {SILENCES} probes over HTTP"
        if not is_answered and time.monotonic() - self._heard_at > self._deaf_s:
            return f"Triton runs, and answered no probe over HTTP for {self._deaf_s:g} s"
        return ""


class _Life:
    """One run of Triton, from ready until it ends or must be ended.

    ``over`` is an event that is set when the run ends.
    """

    def __init__(self, server: Server) -> None:
        self.server = server
        self.over = Event()
        self._models: dict[str, _Model] = {}
        self._why = ""

    def end(self, why: str) -> None:
        """Request a restart of Triton. Thread-safe."""
        self._why = self._why or why
        self.over.set()

    def model(self, name: str) -> _Model:
        """Return a model by name; raise ConnectionError if Triton ends, or has not listed its models yet."""
        if self.over.is_set() or name not in self._models:
            raise ConnectionError
        return self._models[name]

    def run(self, stopping: Event) -> str:
        """Supervise Triton until ``stopping`` is set. Returns the reason for a restart, or an empty text."""
        server, hearing, probe_at = self.server, Hearing(self.server.pid), 0.0
        try:
            while not self.over.is_set() and server.poll() is None and not stopping.wait(LOOK_S):
                server.keep_guard()
                if not self._models:
                    self._find_models()
                if (now := time.monotonic()) >= probe_at:
                    probe_at = now + PROBE_S
                    if why := hearing.count(is_answered=server.control.is_live()):
                        self.end(why)
        finally:
            self.over.set()
        if stopping.is_set():
            return ""
        code = server.poll(within_s=END_S)  # Triton may have ended by itself
        return self._why if code is None else f"Triton {ended(code)}"

    def _find_models(self) -> None:
        probed, index = self.server.pipeline_models, self.server.control.index(timeout_s=PROBE_S)
        versions = Counter(entry["name"] for entry in index if entry.get("state") == "READY")
        self._models = {name: _Model(self, name, count, is_probed=name in probed) for name, count in versions.items()}
        for name, model in self._models.items():
            Thread(target=model.watch, name=f"pixprep-{name}", daemon=True).start()


class _Edits:
    """Edits on disk: reported once, or deployed if ``check`` finds no problem. A slow disk does not delay restarts.

    Attributes:
        life: The present Triton, or the last one.
        deploying: Lock that is held while the served version may differ from the deployed one, and while Triton is
            down.
    """

    life: _Life

    def __init__(self, server: Server, check: Check | None) -> None:
        self._snapshot = server.snapshot
        self._check = check
        self.deploying = Lock()

    def watch(self, stopping: Event) -> None:
        """Handle the models that change, as soon as all changes are complete."""
        changes: dict[str, Signature] = {}
        settled: dict[str, Signature] = {}  # handled, until the model changes again
        while not stopping.wait(DISK_S):
            last, changes = changes, self._snapshot.changes()
            news = {name: signature for name, signature in changes.items() if settled.get(name) != signature}
            if any(last.get(name) != signature for name, signature in news.items()):
                continue
            with suppress(ConnectionError, InterruptedError):  # interrupted by the end of Triton: it begins again
                for name, signature in sorted(news.items()):
                    if name not in self._snapshot.hashes or not signature:
                        _say(name, "is new or gone on disk: a restart deploys that")
                    elif not self._check:
                        _say(name, "changed on disk: a restart deploys that, or `pixprep serve --watch`")
                    else:
                        self._deploy(name, self._check, stopping)
                    settled[name] = signature

    def _deploy(self, name: str, check: Check, stopping: Event) -> None:
        """Deploy a model from disk, unless it is unchanged or has a problem."""
        snapshot, served, which = self._snapshot, self._snapshot.hashes[name], ""
        try:
            why = "; ".join(str(each) for each in check(snapshot.repository) if each.where.split("/")[0] == name)
            if not why:
                new = snapshot.stage(name, stopping)
                if new == served:
                    return
                which = f" ({new})"
                with self.deploying:
                    why = self.life.model(name).deploy(check)
        except (ConnectionError, InterruptedError):
            raise
        except OSError as error:
            why = f"{error.filename}: {error.strerror}"
        except PixprepError as error:
            why = str(error)
        finally:
            snapshot.discard()
        if why:
            _say(name, f"stays {served}: what changed on disk{which} is refused: {why}", logging.ERROR)
        else:
            _say(name, f"is {snapshot.hashes[name]} from now on, as on disk; it was {served}")


def _say(model: str, what: str, level: int = logging.WARNING) -> None:
    _logger.log(level, "model %s %s", model, what, extra={"model": model})


class _Model:
    """One model, as its thread sees it; ``is_probed``: images are sent through it."""

    def __init__(self, life: _Life, name: str, versions: int, *, is_probed: bool) -> None:
        self._life = life
        self._server = life.server
        self._name = name
        self._versions = versions
        self._is_probed = is_probed
        self._lock = Lock()  # held while the model is examined or loaded
        self._stubs: set[Stub] = set()
        self._old: set[Stub] = set()  # stubs from before the model was reloaded
        self._count = 0  # number of its stubs
        self._config: Config = {}  # configuration of a model that is probed
        self._waits = Waits(*OF_MODEL)
        self._is_stuck = False
        self._again_at = 0.0
        self._begin()

    def _begin(self) -> None:
        """Begin to watch the model, which serves from now on. Its number of stubs and its inputs are not known yet."""
        self._is_known, self._down_at, self._misses = False, 0.0, 0  # 0.0: it is up
        self._back_at = time.monotonic()
        self._probe_at = self._back_at + PROBE_S

    def watch(self) -> None:
        """Bring the model back whenever it is down."""
        while not self._life.over.wait(LOOK_S):
            with self._lock:
                if not self._is_known:
                    self._ask()
                if not self._down_at and (why := self._why_down()):
                    self._go_down(why)
                if self._down_at and time.monotonic() >= self._again_at and not self._life.over.is_set():
                    self._bring_back()
                elif self._old and time.monotonic() - self._back_at > GRACE_S:
                    for stub in self._old:
                        stub.clear()
                    self._old = set()

    def deploy(self, check: Check) -> str:
        """Serve the files that are staged from now on, unless they are broken; why they are, or empty.

        Raises:
            ConnectionError: This Triton ends; the files may be valid.
        """
        snapshot, why = self._server.snapshot, "?"
        with self._lock:
            snapshot.swap(self._name)
            try:
                why = "; ".join(map(str, check(snapshot.folder))) or self._load()
            except TimeoutError as stuck:
                why = str(stuck)
            except ConnectionError as lost:
                self._life.end(str(lost))
                raise
            finally:
                if why:
                    snapshot.swap(self._name)
        return why

    def _ask(self) -> None:
        """Ask Triton about the model, again at the next check if it does not respond."""
        if config := self._server.control.config(self._name):
            self._is_known = True
            self._config = config if self._is_probed else {}
            if config.get("backend") in ("python", "pixprep"):
                self._count = count_instances(config) * self._versions
                self._find_stubs()

    def _why_down(self) -> str:
        """Reason why the model is down; empty if it is not."""
        if self._running() < self._count:
            self._find_stubs()
            if missing := self._count - self._running():
                how = "were stopped" if any(stub.state == "T" for stub in self._stubs) else "died"
                return f"{missing} of its {self._count} processes {how}"
        if self._config and time.monotonic() >= self._probe_at:
            self._misses = self._misses + 1 if self._is_silent() else 0
            if self._misses >= MISSES:
                return f"it answered none of {self._misses} images"
            if not self._misses:
                self._probe_at = time.monotonic() + PROBE_S
        return ""

    def _find_stubs(self) -> None:
        self._stubs |= {stub for stub in stubs(self._server.pid) if stub.model == self._name} - self._old

    def _running(self) -> int:
        return min(self._count, sum(stub.state in _RUNNING for stub in self._stubs))

    def _is_silent(self) -> bool:
        """Send a new image: whether the model fails, or neither answers nor computes. A refusal is also an answer."""
        before = sum(stub.cpu_s for stub in self._stubs)
        status = self._server.control.infer(self._name, sample(self._config), timeout_s=PROBE_S)
        used_s = sum(stub.cpu_s for stub in self._stubs) - before
        wants_more = any("R" in thread_states(stub.pid) for stub in self._stubs)
        is_idle = status == 0 and used_s < IDLE * PROBE_S and not wants_more
        return status == 500 or (is_idle and self._server.control.is_live())

    def _wait(self, *, ran_s: float) -> float:
        """Seconds to the next load after a failure."""
        wait_s = self._waits.count(ran_s=ran_s) or 0.0
        self._again_at = time.monotonic() + wait_s
        return wait_s

    def _go_down(self, why: str) -> None:
        now = time.monotonic()
        wait_s = self._wait(ran_s=now - self._back_at)
        if not self._life.over.is_set() and self._server.poll() is None:  # stubs end with Triton
            _say(self._name, f"is down: {why}; it is loaded again{after(wait_s)}", logging.ERROR)
            self._down_at = now

    def _bring_back(self) -> None:
        for stub in self._stubs:
            if stub.state == "T" or self._misses >= MISSES:
                stub.kill()  # waiting requests receive an error
        down_at = self._down_at
        try:
            error = self._load()
        except (TimeoutError, ConnectionError) as lost:
            self._life.end(str(lost))
            return
        if error:
            _say(self._name, f"does not load: {error}; again in {self._wait(ran_s=0):g} s", logging.ERROR)
        else:
            _say(self._name, f"is back after {self._back_at - down_at:.1f} s")

    def _load(self) -> str:
        """Load the model again; return the reason of a failure, or an empty string. Its ensembles follow automatically.

        Raises:
            TimeoutError: The load never ends.
            ConnectionError: The load would never end now, or Triton has ended.
        """
        if self._is_stuck:
            raise ConnectionError(f"Triton does not finish loading model {self._name}")
        before = {stub for stub in stubs(self._server.pid) if stub.model == self._name}
        try:
            error = self._server.load(self._name, over=self._life.over)
        except TimeoutError:
            self._is_stuck = True
            raise
        if not error:
            self._old |= before | self._stubs
            self._stubs = set()
            self._find_stubs()  # at once, so that the memory of a stub that dies before the next look is known
            self._begin()
        return error
