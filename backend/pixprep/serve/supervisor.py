"""Brings back what dies or hangs: a model's Python process, or all of Triton. Triton 2.51 does neither, nor says so.

A stub is the process in which Triton runs one instance of a Python model. When it dies, its model fails every request
from then on, and ``/v2/health/ready`` stays 200. So each such model has a thread that looks at its stubs four times a
second, and sends an image through it every other second if it is one of pixprep's. A model that is down is loaded anew
without being unloaded: what still serves goes on until the new one is ready, and so do the other models.

A stub that dies while its model is loaded leaves a call that Triton never answers. Then, and when Triton itself dies or
hangs, Triton is ended and started anew (``State.HEALING``).
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
from pixprep.repository import Problem
from pixprep.serve.processes import count_threads
from pixprep.serve.request import Sample
from pixprep.serve.server import Server
from pixprep.serve.snapshot import Edition, Signature
from pixprep.serve.stubs import Stub, stubs
from pixprep.triton.config import count_instances

LOOK_S = 0.25
PROBE_S = 2.0
MISSES = 2  # a model hangs that leaves so many probes in a row unanswered; the second follows the first at once
SILENCES = 5  # and so does Triton
IDLE = 0.05  # a stub that used a smaller share of a core while a probe waited does not compute: it will never answer
CALM_S = 10.0  # what ran for so long begins at the first wait again
GRACE_S = 30.0  # what Triton keeps for so long of a model that was replaced, it keeps for ever
THREADS_LEFT = 2000  # a stub that dies leaves 8 in Triton; with so many more than at its start it is started anew
END_S = 0.5  # a process that is killed answers nothing for a while before it counts as ended
DISK_S = 1.0  # between two looks at the disk; a change that both see alike has rested

_RUNNING = ("R", "S", "D", "t")  # states of a process; t: a debugger looks at it
_logger = logging.getLogger(__name__)

Check = Callable[[Path], Sequence[Problem]]
"""What finds the problems of a model repository, such as ``pixprep.repository.check``."""


class Waits:
    """Counts the failures in a row of something that is tried again and again.

    Args:
        waits_s: before the next attempt after each failure; the last one counts for all that follow. None: give up.
    """

    def __init__(self, *waits_s: float | None) -> None:
        self._waits_s = waits_s
        self.failures = 0

    def count(self, *, ran_s: float) -> float | None:
        """Count a failure of what ran for so many seconds; the wait in seconds, None: give up."""
        self.failures = 1 if ran_s > CALM_S else self.failures + 1
        return self._waits_s[min(self.failures, len(self._waits_s)) - 1]


def waits_of_model() -> Waits:
    """A model is tried for ever: the others serve meanwhile."""
    return Waits(0.0, 1.0, 2.0, 2.0, 2.0, 5.0)


def waits_of_triton() -> Waits:
    """After ten failures in a row, which take a minute or so, whoever started us should know."""
    return Waits(0.0, 1.0, 2.0, *[3.0] * 7, None)


def serve(server: Server, *, on_ready: Callable[[], object], watch: Check | None = None) -> None:
    """Start a server and look after it until Ctrl-C or SIGTERM, then stop it.

    Args:
        server: not started yet.
        on_ready: called when every model is ready.
        watch: deploy what changes on disk, if this finds no problem in it; None: leave it alone.

    Raises:
        PixprepError: it did not start, or Triton ended again and again.
    """
    stopping = Event()

    def stop(*_: object) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):  # a second one does not cut short what the first began
            signal.signal(number, signal.SIG_IGN)
        stopping.set()  # Python forgets an exception that happens to be raised inside a finalizer
        raise KeyboardInterrupt

    for number in (signal.SIGINT, signal.SIGTERM):  # a shell starts background jobs with SIGINT ignored
        signal.signal(number, stop)
    with suppress(KeyboardInterrupt), server:
        on_ready()
        look_after(server, stopping, watch=watch)


def look_after(server: Server, stopping: Event, *, watch: Check | None = None, waits: Waits | None = None) -> None:
    """Look after a server until ``stopping`` is set.

    Args:
        server: started; all its models are ready.
        stopping: set by another thread, or by whoever makes this raise.
        watch: see ``serve``.
        waits: before Triton is started anew; default: ``waits_of_triton``.

    Raises:
        PixprepError: Triton ended again and again.
    """
    waits, edits = waits or waits_of_triton(), _Edits(server, watch)
    while not stopping.is_set():
        ready_at = time.monotonic()
        if why := _Life(server, edits).run(stopping):
            _heal(server, stopping, why, waits, ran_s=time.monotonic() - ready_at)


def _heal(server: Server, stopping: Event, why: str, waits: Waits, *, ran_s: float) -> None:
    """Start Triton anew, until it is ready."""
    down_at = time.monotonic()
    while why:
        wait_s = waits.count(ran_s=ran_s)
        if wait_s is None:
            raise PixprepError(f"{why}, after {waits.failures - 1} new starts in a row; its log: {server.log_file}")
        _logger.error("%s; it is started anew%s", why, _in(wait_s))
        if stopping.wait(wait_s):
            return
        try:
            server.restart()
        except PixprepError as error:
            why, ran_s = f"Triton does not start: {str(error).partition(chr(10))[0]}", 0.0
        else:
            why = ""
            _logger.warning("every model is back after %.1f s", time.monotonic() - down_at)


def _in(wait_s: float) -> str:
    return f" in {wait_s:g} s" if wait_s else ""


class _Life:
    """One Triton, from when it is ready until it has ended, or has to be ended."""

    def __init__(self, server: Server, edits: _Edits) -> None:
        self.server = server
        self.over = Event()
        self.models: dict[str, _Model] = {}
        self._edits = edits
        self._why = ""

    def end(self, why: str) -> None:
        """Have Triton ended, and started anew; by any thread. Whatever seems wrong, it may have ended by itself."""
        ends_at = time.monotonic() + END_S
        while (code := self.server.poll()) is None and time.monotonic() < ends_at:
            time.sleep(LOOK_S / 5)
        self._why = self._why or (why if code is None else f"Triton ended by itself with exit code {code}")
        self.over.set()

    def run(self, stopping: Event) -> str:
        """Look after everything until ``stopping`` is set; else, why Triton has to be started anew."""
        threads = [Thread(target=self._edits.watch, args=(self,), name="pixprep-edits", daemon=True)]
        try:
            self._find_models()
            for name, model in self.models.items():
                threads.append(Thread(target=model.watch, name=f"pixprep-{name}", daemon=True))
            for thread in threads:
                thread.start()
            self._look(stopping)
        finally:
            self.over.set()
            with self._edits.deploying:  # what is served is again what was deployed
                pass
        return "" if stopping.is_set() else self._why

    def _find_models(self) -> None:
        probed = self.server.pipeline_models
        versions = Counter(entry["name"] for entry in self.server.control.index() if entry.get("state") == "READY")
        if not versions:
            self.end("Triton does not say which models it has")
        self.models = {name: _Model(self, name, count, is_probed=name in probed) for name, count in versions.items()}

    def _look(self, stopping: Event) -> None:
        """Look at Triton itself."""
        silences, probe_at, threads = 0, 0.0, count_threads(self.server.pid) + THREADS_LEFT
        while not self.over.is_set() and not stopping.wait(LOOK_S):
            if self.server.poll() is not None:
                self.end("Triton ended by itself")
            elif count_threads(self.server.pid) > threads:
                self.end(f"Triton keeps {THREADS_LEFT} threads of processes that died")
            elif (now := time.monotonic()) >= probe_at:
                probe_at = now + PROBE_S
                silences = 0 if self.server.control.is_live() else silences + 1
                if silences >= SILENCES:
                    self.end(f"Triton answered none of {SILENCES} probes over HTTP")


class _Edits:
    """Edits on disk while another state of it is served. A slow disk keeps nobody from healing Triton.

    Args:
        server: that serves it.
        check: None: say so once. Else deploy it, if this finds no problem in it.
    """

    def __init__(self, server: Server, check: Check | None) -> None:
        self._server = server
        self._check = check
        self._seen: dict[str, Signature] = {}
        self._settled: dict[str, Signature] = {}  # there is no more to do until it changes again
        self.deploying = Lock()  # held while what is served may not be what was deployed

    def watch(self, life: _Life) -> None:
        """Deal with what changes while a Triton lives; what its end interrupts begins again with the next."""
        while not life.over.wait(DISK_S):
            with suppress(ConnectionError, InterruptedError):
                self._look(life)

    def _look(self, life: _Life) -> None:
        """Deal with the models that changed, as soon as all of them have rested."""
        changes = self._server.snapshot.changes()
        last, self._seen = self._seen, changes
        news = {name: signature for name, signature in changes.items() if self._settled.get(name) != signature}
        if not news or any(last.get(name) != signature for name, signature in news.items()):
            return
        known = [name for name in news if name in life.models and news[name]]
        for name in sorted(news.keys() - known):
            _say(name, "is new or gone on disk: a restart deploys that")
            self._settled[name] = news[name]
        if self._check:
            self._deploy(known, life, self._check)
        else:
            for name in known:
                _say(name, "changed on disk: a restart deploys that, or `pixprep serve --watch`")
        self._settled |= news

    def _deploy(self, names: Sequence[str], life: _Life, check: Check) -> None:
        editions: list[Edition] = []
        try:
            for name in names:
                editions += self._stage(name, life.over, check)
            with self.deploying:
                if life.over.is_set():
                    raise InterruptedError
                if len(editions) == 1:
                    life.models[editions[0].model].deploy(editions[0], check)
                    return
            for edition in editions:
                _say(edition.model, "changed on disk together with others: a restart deploys them")
        finally:
            for edition in editions:
                self._server.snapshot.discard(edition)

    def _stage(self, name: str, over: Event, check: Check) -> list[Edition]:
        """A copy of a model as it lies on disk; none if its contents are what is served, or must not be read."""
        snapshot, edition = self._server.snapshot, None
        try:
            own = [problem for problem in check(snapshot.repository) if problem.where.split("/")[0] == name]
            why = "; ".join(map(str, own))
            edition = None if why else snapshot.stage(name, over)
        except InterruptedError:
            raise
        except OSError as error:
            why = f"{error.filename}: {error.strerror}"
        except PixprepError as error:
            why = str(error)
        if edition is None:
            _say(name, f"stays {snapshot.hashes[name]}: what changed on disk is refused: {why}")
        elif edition.hash == snapshot.hashes[name]:
            snapshot.discard(edition)
        else:
            return [edition]
        return []


def _say(model: str, what: str, level: int = logging.WARNING) -> None:
    _logger.log(level, "model %s %s", model, what, extra={"model": model})


class _Model:
    """One model, as its thread sees it; ``is_probed``: images are sent through it."""

    def __init__(self, life: _Life, name: str, versions: int, *, is_probed: bool) -> None:
        self._life = life
        self._server = life.server
        self._name = name
        self._versions = versions
        self._image = self._server.control.sample(name) if is_probed else None
        self._lock = Lock()  # held while it is looked at or loaded
        self._count = 0  # of its stubs
        self._stubs: set[Stub] = set()
        self._old: set[Stub] = set()  # of before the model was loaded anew
        self._waits = waits_of_model()
        self._down_at: float | None = None
        self._again_at = 0.0
        self._is_stuck = False
        self._misses = 0
        self._back_at = time.monotonic()
        self._probe_at = self._back_at + PROBE_S
        self._ask_how_many()

    def watch(self) -> None:
        """Bring the model back whenever it is down."""
        while not self._life.over.wait(LOOK_S):
            with self._lock:
                if self._down_at is None and (why := self._why_down()):
                    self._go_down(why)
                if self._down_at is not None and time.monotonic() >= self._again_at and not self._life.over.is_set():
                    self._bring_back(self._down_at)
                elif self._old and time.monotonic() - self._back_at > GRACE_S:
                    for stub in self._old:
                        stub.clear()
                    self._old = set()

    def deploy(self, edition: Edition, check: Check) -> None:
        """Serve other files from now on, unless they are broken.

        Raises:
            ConnectionError: this Triton ends, which says nothing of the edition.
        """
        snapshot, served = self._server.snapshot, self._server.snapshot.hashes[self._name]
        with self._lock:
            other, why = snapshot.put(edition), "?"
            try:
                why = "; ".join(map(str, check(snapshot.folder))) or self._load()
            except TimeoutError:
                why = "its Python process ended while it loaded, or loads for ever"
            except ConnectionError as lost:
                self._life.end(str(lost))
                raise
            except PixprepError as error:
                why = str(error)
            finally:
                snapshot.discard(snapshot.put(other) if why else other)
            if not why:
                self._ask_how_many()
                self._is_back()
        if why:
            refused = f"stays {served}: what changed on disk ({edition.hash}) is refused: {why}"
            _say(self._name, refused, logging.ERROR)
        else:
            _say(self._name, f"is {edition.hash} from now on, as on disk; it was {served}")

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
        self._stubs |= {stub for stub in stubs(self._server.pid) if stub.model == self._name} - self._old

    def _running(self) -> int:
        return min(self._count, sum(stub.state in _RUNNING for stub in self._stubs))

    def _is_silent(self, image: Sample) -> bool:
        """Send an image: whether the model fails, or neither answers nor computes. A refusal is an answer, too."""
        before = sum(stub.cpu_s for stub in self._stubs)
        status = self._server.control.infer(self._name, image, timeout_s=PROBE_S)
        used_s = sum(stub.cpu_s for stub in self._stubs) - before
        is_idle = status == 0 and used_s < IDLE * PROBE_S
        return status == 500 or (is_idle and self._server.control.is_live())

    def _go_down(self, why: str) -> None:
        now = time.monotonic()
        wait_s = self._waits.count(ran_s=now - self._back_at) or 0.0
        if not self._life.over.is_set() and self._server.poll() is None:  # stubs end with Triton
            _say(self._name, f"is down: {why}; it is loaded again{_in(wait_s)}", logging.ERROR)
            self._down_at, self._again_at = now, now + wait_s

    def _bring_back(self, down_at: float) -> None:
        for stub in self._stubs:
            if stub.state == "T" or self._misses >= MISSES:
                stub.kill()  # what waits for it gets an error
        try:
            error = self._load()
        except (TimeoutError, ConnectionError) as lost:
            self._life.end(str(lost))
            return
        if error:
            wait_s = self._waits.count(ran_s=0) or 0.0
            self._again_at = time.monotonic() + wait_s
            _say(self._name, f"does not load: {error}; again in {wait_s:g} s", logging.ERROR)
        else:
            self._is_back()
            _say(self._name, f"is back after {self._back_at - down_at:.1f} s")

    def _load(self) -> str:
        """Load the model anew; why it failed, or empty. Its ensembles follow by themselves.

        Raises:
            TimeoutError: it never ends.
            ConnectionError: nor would it now; or Triton has ended.
        """
        if self._is_stuck:
            raise ConnectionError(f"Triton never ends to load model {self._name}")
        before = {stub for stub in stubs(self._server.pid) if stub.model == self._name}
        try:
            error = self._server.load(self._name, over=self._life.over)
        except TimeoutError:
            self._is_stuck = True
            raise
        if not error:
            self._old |= before | self._stubs
            self._stubs = set()
            self._find_stubs()
        return error

    def _is_back(self) -> None:
        self._down_at, self._misses, self._back_at = None, 0, time.monotonic()
        self._probe_at = self._back_at + PROBE_S

    def _ask_how_many(self) -> None:
        """Ask Triton how many stubs the model has."""
        if not (config := self._server.control.config(self._name)):
            self._life.end(f"Triton does not say what model {self._name} is")
        if config.get("backend") in ("python", "pixprep"):
            self._count = count_instances(config) * self._versions
            self._find_stubs()
