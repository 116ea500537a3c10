"""Supervises Triton: reloads a model whose Python process dies or hangs, and restarts Triton if Triton dies or hangs.

Triton 2.51 does not do this itself. A stub is the process in which Triton's Python backend runs a model instance. When
a stub dies, its model fails every later request, but ``/v2/health/ready`` still returns 200. Each model therefore has a
supervising thread, which watches the stubs of the model, and sends probe images if the model has a pipeline. A failed
model is loaded again without being unloaded, so that its remaining instances and the other models continue to serve
requests until the new instances are ready.

If a stub dies while its model loads, Triton may never respond to the load request. In this case, and when Triton
itself dies or hangs, Triton is killed and restarted (``State.HEALING``).
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
MISSES = 2  # consecutive unanswered probes after which a model counts as hung; the second probe follows immediately
SILENCES = 5  # consecutive unanswered probes after which Triton counts as hung, if none of its threads is runnable
DEAF_S = 60.0  # seconds without a response after which Triton counts as hung, even if its threads are running
IDLE = 0.05  # stubs that use less than this fraction of a core during a probe are idle and will not respond to it
GRACE_S = 30.0  # seconds for Triton to release the old stubs of a reloaded model; afterwards they are killed
THREADS_LEFT = 2000  # additional threads after which Triton is restarted, because each dead stub leaves 8 threads
END_S = 0.5  # seconds to wait for the exit of a process that no longer responds
DISK_S = 1.0  # seconds between checks of the disk; a change is complete if two consecutive checks have equal results

_RUNNING = ("R", "S", "D", "t")  # letters in proc(5) for the states of a running process; t: stopped by a debugger
_logger = logging.getLogger(__name__)

Check = Callable[[Path], Sequence[Problem]]
"""Function that returns the problems in a model repository, such as ``pixprep.serving.repository.check``."""


def serve(
    server: Server,
    *,
    on_ready: Callable[[], object],
    on_progress: Callable[[int, int], object] | None = None,
    watch: Check | None = None,
) -> None:
    """Start a server, supervise it until Ctrl-C or SIGTERM, and then stop it.

    Args:
        server: Server to start.
        on_ready: Function that is called when every model is ready.
        on_progress: See ``Server.start``.
        watch: Function that checks changed models. A model whose files change on disk is deployed if this function does
            not find problems. None: changes are not deployed.

    Raises:
        PixprepError: The server did not start, or Triton failed repeatedly.
    """
    stopping = Event()

    def stop(*_: object) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):  # ignore a second signal during the shutdown
            signal.signal(number, signal.SIG_IGN)
        stopping.set()  # the exception alone is not enough, because Python ignores exceptions inside a finalizer
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
    """Supervise a server until ``stopping`` is set. All models of the server must be ready.

    Args:
        server: Server that is in the state SERVING.
        stopping: Event that ends the supervision.
        watch: See ``serve``.
        waits: Waits between restarts of Triton. Default: ``OF_TRITON``.

    Raises:
        PixprepError: The number of consecutive failures of Triton exceeded the number that ``waits`` allows.
    """
    waits, edits = waits or Waits(*OF_TRITON), _Edits(server, watch)
    Thread(target=edits.watch, args=(stopping,), name="pixprep-edits", daemon=True).start()
    while not stopping.is_set():
        ready_at = time.monotonic()
        edits.run = run = _Run(server)
        reason = run.supervise(stopping)
        down_at = time.monotonic()
        ran_s = down_at - ready_at
        with edits.deploying:  # so that the restarted Triton does not serve a version that is still being checked
            while reason:
                wait_s = waits.count(ran_s=ran_s)
                if wait_s is None:
                    again = f"after {waits.failures - 1} restarts in a row"
                    raise PixprepError(f"{reason}, {again}; Triton's log: {server.log_file}")
                _logger.error("%s; it is restarted%s", reason, after(wait_s))
                if stopping.wait(wait_s):
                    return
                try:
                    server.restart()
                except PixprepError as error:
                    reason, ran_s = f"Triton did not start: {str(error).partition(chr(10))[0]}", 0.0
                else:
                    reason = ""
                    _logger.warning("all models are ready again after %.1f s", time.monotonic() - down_at)


class HangDetector:
    """Detects a Triton that hangs, as opposed to a Triton that is slow because the machine is busy, from health probes.

    Args:
        pid: Process ID of a Triton that has just responded.
        deaf_s: Seconds without a response after which Triton counts as hung even if its threads are running.
    """

    def __init__(self, pid: int, *, deaf_s: float = DEAF_S) -> None:
        self._pid = pid
        self._deaf_s = deaf_s
        self._max_threads = len(thread_states(pid)) + THREADS_LEFT
        self._silences = 0
        self._heard_at = time.monotonic()

    def count(self, *, is_answered: bool) -> str:
        """Record the result of a probe. Return the reason to restart Triton, or an empty string if it is not hung."""
        states = thread_states(self._pid)
        if is_answered:
            self._silences, self._heard_at = 0, time.monotonic()
        elif not {"R", "D"} & {*states}:  # no thread is running, waiting for a core, or waiting for the disk
            self._silences += 1
        if len(states) > self._max_threads:
            return f"Triton has over {THREADS_LEFT} leftover threads of processes that died"
        if self._silences >= SILENCES:
            return f"Triton did not respond to {SILENCES} HTTP probes in a row"
        if not is_answered and time.monotonic() - self._heard_at > self._deaf_s:
            return f"Triton is running, but has not responded to HTTP probes for {self._deaf_s:g} s"
        return ""


class _Run:
    """One run of Triton, from the time when its models are ready until Triton exits or must be restarted.

    Attributes:
        server: Server that is supervised.
        over: Event that is set when the run ends.
    """

    def __init__(self, server: Server) -> None:
        self.server = server
        self.over = Event()
        self._models: dict[str, _Model] = {}
        self._reason = ""

    def end(self, reason: str) -> None:
        """Request a restart of Triton for the given reason. This method is thread-safe."""
        self._reason = self._reason or reason
        self.over.set()

    def model(self, name: str) -> _Model:
        """Return a model by name.

        Raises:
            ConnectionError: Triton is about to exit, or has not listed its models yet.
        """
        if self.over.is_set() or name not in self._models:
            raise ConnectionError
        return self._models[name]

    def supervise(self, stopping: Event) -> str:
        """Supervise Triton until it must be restarted or ``stopping`` is set.

        Returns:
            The reason for the restart, or an empty string if ``stopping`` is set.
        """
        server, detector, probe_at = self.server, HangDetector(self.server.pid), 0.0
        try:
            while not self.over.is_set() and server.poll() is None and not stopping.wait(LOOK_S):
                server.keep_guard()
                if not self._models:
                    self._find_models()
                if (now := time.monotonic()) >= probe_at:
                    probe_at = now + PROBE_S
                    if reason := detector.count(is_answered=server.control.is_live()):
                        self.end(reason)
        finally:
            self.over.set()
        if stopping.is_set():
            return ""
        code = server.poll(within_s=END_S)  # not None if Triton has exited by itself
        return self._reason if code is None else f"Triton {ended(code)}"

    def _find_models(self) -> None:
        probed, index = self.server.pipeline_models, self.server.control.index(timeout_s=PROBE_S)
        versions = Counter(entry["name"] for entry in index if entry.get("state") == "READY")
        self._models = {name: _Model(self, name, count, is_probed=name in probed) for name, count in versions.items()}
        for name, model in self._models.items():
            Thread(target=model.watch, name=f"pixprep-{name}", daemon=True).start()


class _Edits:
    """Watches the model repository on disk, and reports or deploys changed models.

    Changes are deployed only if a function ``check`` is given and does not find problems. The repository is watched in
    a separate thread, so that a slow disk does not delay restarts.

    Attributes:
        run: Current or most recent run of Triton.
        deploying: Lock that is held during a deployment and while Triton is restarted. During a deployment, the
            snapshot may contain an unverified version.
    """

    run: _Run

    def __init__(self, server: Server, check: Check | None) -> None:
        self._snapshot = server.snapshot
        self._check = check
        self.deploying = Lock()

    def watch(self, stopping: Event) -> None:
        """Report or deploy changed models as soon as their changes are complete, until ``stopping`` is set."""
        changes: dict[str, Signature] = {}
        settled: dict[str, Signature] = {}  # changes that have already been handled
        while not stopping.wait(DISK_S):
            last, changes = changes, self._snapshot.changes()
            news = {name: signature for name, signature in changes.items() if settled.get(name) != signature}
            if any(last.get(name) != signature for name, signature in news.items()):
                continue
            with suppress(ConnectionError, InterruptedError):  # if Triton has exited, try again in the next run
                for name, signature in sorted(news.items()):
                    if name not in self._snapshot.hashes or not signature:
                        _say(name, "was added or removed on disk: restart `pixprep serve` to apply the change")
                    elif not self._check:
                        _say(name, "has changed on disk: restart `pixprep serve` to deploy the change, or use --watch")
                    else:
                        self._deploy(name, self._check, stopping)
                    settled[name] = signature

    def _deploy(self, name: str, check: Check, stopping: Event) -> None:
        """Deploy a model from disk unless its content is unchanged or ``check`` finds problems, and log the result."""
        snapshot, served, which = self._snapshot, self._snapshot.hashes[name], ""
        try:
            reason = "; ".join(str(each) for each in check(snapshot.repository) if each.where.split("/")[0] == name)
            if not reason:
                new = snapshot.stage(name, stopping)
                if new == served:
                    return
                which = f" ({new})"
                with self.deploying:
                    reason = self.run.model(name).deploy(check)
        except (ConnectionError, InterruptedError):
            raise
        except OSError as error:
            reason = f"{error.filename}: {error.strerror}"
        except PixprepError as error:
            reason = str(error)
        finally:
            snapshot.discard()
        if reason:
            _say(name, f"still serves {served}: the version on disk{which} was not deployed: {reason}", logging.ERROR)
        else:
            _say(name, f"now serves {snapshot.hashes[name]} from disk instead of {served}")


def _say(model: str, text: str, level: int = logging.WARNING) -> None:
    _logger.log(level, "model %s %s", model, text, extra={"model": model})


class _Model:
    """Supervises one model in a separate thread.

    Args:
        run: Run of Triton in which the model is loaded.
        name: Name of the model.
        versions: Number of loaded versions of the model.
        is_probed: Whether to send probe images to the model.
    """

    def __init__(self, run: _Run, name: str, versions: int, *, is_probed: bool) -> None:
        self._run = run
        self._server = run.server
        self._name = name
        self._versions = versions
        self._is_probed = is_probed
        self._lock = Lock()  # held while the model is checked or loaded
        self._stubs: set[Stub] = set()
        self._old: set[Stub] = set()  # stubs that were started before the model was reloaded
        self._count = 0  # expected number of stubs
        self._config: Config = {}  # configuration for building probes; empty if the model is not probed
        self._waits = Waits(*OF_MODEL)
        self._is_stuck = False
        self._again_at = 0.0
        self._begin()

    def _begin(self) -> None:
        """Reset the state after the model has become ready. Its configuration must then be queried again."""
        self._is_known, self._down_at, self._misses = False, 0.0, 0  # 0.0 as the time means that the model is not down
        self._back_at = time.monotonic()
        self._probe_at = self._back_at + PROBE_S

    def watch(self) -> None:
        """Check the model repeatedly until Triton exits, and reload the model when it is down."""
        while not self._run.over.wait(LOOK_S):
            with self._lock:
                if not self._is_known:
                    self._ask()
                if not self._down_at and (reason := self._down_reason()):
                    self._go_down(reason)
                if self._down_at and time.monotonic() >= self._again_at and not self._run.over.is_set():
                    self._bring_back()
                elif self._old and time.monotonic() - self._back_at > GRACE_S:
                    for stub in self._old:
                        stub.clear()
                    self._old = set()

    def deploy(self, check: Check) -> str:
        """Replace the served files with the staged files and load the model. If that fails, restore the old files.

        Returns:
            An empty string if the model was deployed, or the reason why the staged files were rejected.

        Raises:
            ConnectionError: Triton is about to exit. The staged files may be valid.
        """
        snapshot, reason = self._server.snapshot, "?"
        with self._lock:
            snapshot.swap(self._name)
            try:
                reason = "; ".join(map(str, check(snapshot.folder))) or self._load()
            except TimeoutError as stuck:
                reason = str(stuck)
            except ConnectionError as lost:
                self._run.end(str(lost))
                raise
            finally:
                if reason:
                    snapshot.swap(self._name)
        return reason

    def _ask(self) -> None:
        """Query the configuration of the model. If Triton does not respond, the query is repeated at the next check."""
        if config := self._server.control.config(self._name):
            self._is_known = True
            self._config = config if self._is_probed else {}
            if config.get("backend") in ("python", "pixprep"):
                self._count = count_instances(config) * self._versions
                self._find_stubs()

    def _down_reason(self) -> str:
        """Return the reason why the model is down, or an empty string if it is not down."""
        if self._running() < self._count:
            self._find_stubs()
            if missing := self._count - self._running():
                how = "were stopped" if any(stub.state == "T" for stub in self._stubs) else "died"
                return f"{missing} of its {self._count} processes {how}"
        if self._config and time.monotonic() >= self._probe_at:
            self._misses = self._misses + 1 if self._is_silent() else 0
            if self._misses >= MISSES:
                return f"it did not respond to {self._misses} probe images in a row"
            if not self._misses:
                self._probe_at = time.monotonic() + PROBE_S
        return ""

    def _find_stubs(self) -> None:
        self._stubs |= {stub for stub in stubs(self._server.pid) if stub.model == self._name} - self._old

    def _running(self) -> int:
        return min(self._count, sum(stub.state in _RUNNING for stub in self._stubs))

    def _is_silent(self) -> bool:
        """Send a probe image, and return whether the model fails, or neither responds nor uses the CPU.

        If the model rejects the image, this counts as a response.
        """
        before = sum(stub.cpu_s for stub in self._stubs)
        status = self._server.control.infer(self._name, sample(self._config), timeout_s=PROBE_S)
        used_s = sum(stub.cpu_s for stub in self._stubs) - before
        wants_more = any("R" in thread_states(stub.pid) for stub in self._stubs)
        is_idle = status == 0 and used_s < IDLE * PROBE_S and not wants_more
        return status == 500 or (is_idle and self._server.control.is_live())

    def _wait(self, *, ran_s: float) -> float:
        """Record a failure, schedule the next load, and return the number of seconds until this load."""
        wait_s = self._waits.count(ran_s=ran_s) or 0.0
        self._again_at = time.monotonic() + wait_s
        return wait_s

    def _go_down(self, reason: str) -> None:
        now = time.monotonic()
        wait_s = self._wait(ran_s=now - self._back_at)
        if not self._run.over.is_set() and self._server.poll() is None:  # stubs always exit together with Triton
            _say(self._name, f"is down: {reason}; it is reloaded{after(wait_s)}", logging.ERROR)
            self._down_at = now

    def _bring_back(self) -> None:
        for stub in self._stubs:
            if stub.state == "T" or self._misses >= MISSES:
                stub.kill()  # waiting requests receive an error
        down_at = self._down_at
        try:
            error = self._load()
        except (TimeoutError, ConnectionError) as lost:
            self._run.end(str(lost))
            return
        if error:
            _say(self._name, f"does not load: {error}; next attempt in {self._wait(ran_s=0):g} s", logging.ERROR)
        else:
            _say(self._name, f"is ready again after {self._back_at - down_at:.1f} s")

    def _load(self) -> str:
        """Load the model again. Ensembles that contain the model then use the reloaded model automatically.

        Returns:
            An empty string if the model was loaded, or the reason why it was not.

        Raises:
            TimeoutError: The load will never finish.
            ConnectionError: An earlier load, which blocks this load, has not finished, or Triton has exited.
        """
        if self._is_stuck:
            raise ConnectionError(f"Triton cannot finish loading model {self._name}")
        before = {stub for stub in stubs(self._server.pid) if stub.model == self._name}
        try:
            error = self._server.load(self._name, over=self._run.over)
        except TimeoutError:
            self._is_stuck = True
            raise
        if not error:
            self._old |= before | self._stubs
            self._stubs = set()
            self._find_stubs()  # find stubs immediately, because a stub may die before the next check
            self._begin()
        return error
