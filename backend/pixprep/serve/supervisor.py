"""Brings back what dies or hangs: a model's Python process, or all of Triton. Triton 2.51 does neither, nor says so.

A stub is the process in which Triton runs one instance of a Python model. When it dies, its model fails every request
from then on, and ``/v2/health/ready`` stays 200. So each such model has a thread that looks at its stubs four times a
second, and sends an image through it every other second if it is one of pixprep's. A model that is down is loaded anew
without being unloaded: what still serves goes on until the new one is ready, and so do the other models.

A stub that dies while its model is loaded leaves a call that Triton never answers. Then, and when Triton itself dies or
hangs, Triton is ended and started anew.
"""

from __future__ import annotations

import logging
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Lock, Thread

from pixprep.errors import PixprepError
from pixprep.repository import Problem
from pixprep.serve.server import Sample, Server
from pixprep.serve.snapshot import Edition, Signature
from pixprep.serve.stubs import Stub, stubs
from pixprep.triton.config import count_instances

LOOK_S = 0.25
PROBE_S = 2.0
MISSES = 2
"""A model hangs that leaves this number of probes in a row unanswered. The second follows the first at once."""
SILENCES = 5
"""Triton hangs that leaves this number of probes in a row unanswered."""
IDLE = 0.05
"""A stub that used less than this share of a core while a probe waited does not compute: it will never answer."""
CALM_S = 10.0
"""What ran for this time begins at the first wait again."""
GRACE_S = 30.0
"""What Triton keeps for this time of a model that was replaced, it keeps for ever."""
THREADS_LEFT = 2000
"""Each death of a stub leaves 8 threads in Triton. With so many more than at its start it is started anew."""
END_S = 0.5
"""A process that is killed answers nothing for a while before it counts as ended."""
DISK_S = 1.0
"""How often to look at the files on disk; a change that two looks see alike has rested."""

_RUNNING = ("R", "S", "D", "t")  # states of a process; t: a debugger looks at it
_logger = logging.getLogger(__name__)

Check = Callable[[Path], Sequence[Problem]]
"""What finds the problems of a model repository, such as ``pixprep.repository.check``."""


@dataclass
class Waits:
    """How long to wait before the next attempt, of something that fails again and again.

    Attributes:
        first_s: before the first attempts, in order.
        then_s: before each later one; None: there is none.
        failures: so many in a row.
    """

    first_s: tuple[float, ...]
    then_s: float | None
    failures: int = 0

    def count(self, *, ran_s: float) -> float | None:
        """Count a failure of what ran for so many seconds; the wait in seconds, None: give up."""
        self.failures = 1 if ran_s > CALM_S else self.failures + 1
        return self.first_s[self.failures - 1] if self.failures <= len(self.first_s) else self.then_s


def waits_of_model() -> Waits:
    """A model is tried for ever: the others serve meanwhile."""
    return Waits((0.0, 1.0, 2.0, 2.0, 2.0), 5.0)


def waits_of_triton() -> Waits:
    """After ten failures in a row, which take a minute or so, whoever started us should know."""
    return Waits((0.0, 1.0, 2.0, *[3.0] * 7), None)


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
    while True:
        ready_at = time.monotonic()
        why = _Life(server, edits).run(stopping)
        down_at = time.monotonic()
        ran_s = down_at - ready_at
        while why:
            wait_s = waits.count(ran_s=ran_s)
            if wait_s is None:
                raise PixprepError(f"{why}, after {waits.failures - 1} new starts in a row; its log: {server.log_file}")
            _logger.error("%s; it is started anew%s", why, f" in {wait_s:g} s" * bool(wait_s))
            if stopping.wait(wait_s):
                return
            try:
                server.restart()
            except PixprepError as error:
                why, ran_s = f"Triton does not start: {str(error).partition(chr(10))[0]}", 0.0
            else:
                why = ""
                _logger.warning("every model is back after %.1f s", time.monotonic() - down_at)
        if stopping.is_set():
            return


class _Life:
    """One Triton, from when it is ready until it has ended, or has to be ended.

    Args:
        server: that runs it.
        edits: to look at meanwhile.
    """

    def __init__(self, server: Server, edits: _Edits) -> None:
        self._server = server
        self._edits = edits
        self._over = Event()
        self._why = ""
        self._silences = 0
        self._probe_at = self._disk_at = time.monotonic()
        self._threads = _count_threads(server.pid) + THREADS_LEFT
        self.models: dict[str, _Model] = {}

    def end(self, why: str) -> None:
        """Have Triton ended, and started anew; by any thread. Whatever seems wrong, it may have ended by itself."""
        ends_at = time.monotonic() + END_S
        while (code := self._server.poll()) is None and time.monotonic() < ends_at:
            time.sleep(LOOK_S / 5)
        self._why = self._why or (why if code is None else f"Triton ended by itself with exit code {code}")
        self._over.set()

    def run(self, stopping: Event) -> str:
        """Look after everything until ``stopping`` is set; else, why Triton has to be started anew."""
        try:
            self.models = {model.name: model for model in self._find_models()}
            for model in self.models.values():
                Thread(target=model.watch, args=(self._over,), name=f"pixprep-{model.name}", daemon=True).start()
            while not self._over.is_set() and not stopping.wait(LOOK_S):
                self._look()
        finally:
            self._over.set()
        return "" if stopping.is_set() else self._why

    def _find_models(self) -> Iterator[_Model]:
        probed = self._server.pipeline_models
        versions = Counter(entry["name"] for entry in self._server.index() if entry.get("state") == "READY")
        if not versions:
            self.end("Triton does not say which models it has")
        for name, count in versions.items():
            yield _Model(self._server, name, versions=count, is_probed=name in probed, give_up=self.end)

    def _look(self) -> None:
        now = time.monotonic()
        if self._server.poll() is not None:
            self.end("Triton ended by itself")
        elif _count_threads(self._server.pid) > self._threads:
            self.end(f"Triton keeps {THREADS_LEFT} threads of processes that died")
        elif now >= self._probe_at:
            self._silences = 0 if self._server.is_live(timeout_s=PROBE_S) else self._silences + 1
            self._probe_at = now + PROBE_S
            if self._silences >= SILENCES:
                self.end(f"Triton answered none of {SILENCES} probes over HTTP")
        elif now >= self._disk_at:
            self._edits.look(self.models)
            self._disk_at = time.monotonic() + DISK_S


class _Edits:
    """What changes on disk while another state of it is served.

    Args:
        server: that serves it.
        check: None: say so once. Else deploy it, if this finds no problem in it.
    """

    def __init__(self, server: Server, check: Check | None) -> None:
        self._snapshot = server.snapshot
        self._check = check
        self._seen: dict[str, Signature] = {}
        self._settled: dict[str, Signature] = {}  # there is no more to do until it changes again

    def look(self, models: Mapping[str, _Model]) -> None:
        """Deal with the models that changed, as soon as all of them have rested."""
        changes = self._snapshot.changes()
        last, self._seen = self._seen, changes
        news = {name: signature for name, signature in changes.items() if self._settled.get(name) != signature}
        if not news or any(last.get(name) != signature for name, signature in news.items()):
            return
        self._settled |= news
        known = [name for name in news if name in models and news[name]]
        for name in sorted(news.keys() - known):
            self._say(name, "is new or gone on disk: a restart deploys that")
        if self._check is None:
            for name in known:
                self._say(name, "changed on disk: a restart deploys that, or `pixprep serve --watch`")
            return
        editions = [edition for name in known if (edition := self._stage(name, self._check))]
        if len(editions) == 1:
            (edition,) = editions
            if not models[edition.model].deploy(edition, self._check):
                del self._settled[edition.model]
            return
        for edition in editions:
            self._snapshot.discard(edition)
            self._say(edition.model, "changed on disk together with others: a restart deploys them")

    def _stage(self, name: str, check: Check) -> Edition | None:
        """A copy of a model as it lies on disk; None if its contents are what is served, or must not be read."""
        refused = f"stays {self._snapshot.hashes[name]}: what changed on disk is refused"
        try:
            problems = check(self._snapshot.repository)
            if own := [problem for problem in problems if problem.where.split("/")[0] == name]:
                self._say(name, f"{refused}: {'; '.join(map(str, own))}")
                return None
            edition = self._snapshot.stage(name)
        except OSError as error:
            self._say(name, f"{refused}: {error.filename}: {error.strerror}")
            return None
        except PixprepError as error:
            self._say(name, f"{refused}: {error}")
            return None
        if edition.hash != self._snapshot.hashes[name]:
            return edition
        self._snapshot.agree(edition)
        self._snapshot.discard(edition)
        return None

    def _say(self, name: str, what: str) -> None:
        _logger.warning("model %s %s", name, what, extra={"model": name})


class _Model:
    """One model, as its thread sees it.

    Args:
        server: that serves it.
        name: of the model.
        versions: how many it has.
        is_probed: whether to send images through it.
        give_up: called with the reason when this Triton cannot load it any more.
    """

    def __init__(
        self, server: Server, name: str, *, versions: int, is_probed: bool, give_up: Callable[[str], None]
    ) -> None:
        self.name = name
        self._logger = logging.LoggerAdapter(_logger, {"model": name})
        self._server = server
        self._versions = versions
        self._image = server.sample(name) if is_probed else None
        self._give_up = give_up
        self._lock = Lock()  # held while it is looked at or loaded
        self._count = 0
        self._stubs: set[Stub] = set()
        self._old: set[Stub] = set()  # of before the model was loaded anew
        self._misses = 0
        self._waits = waits_of_model()
        self._down_at: float | None = None
        self._again_at = 0.0
        self._back_at = time.monotonic()
        self._probe_at = self._back_at + PROBE_S
        self._is_stuck = False
        self._ask_how_many()

    def watch(self, over: Event) -> None:
        """Bring the model back whenever it is down."""
        while not over.wait(LOOK_S):
            with self._lock:
                if self._down_at is None and (why := self._why_down()):
                    self._go_down(why, over)
                if self._down_at is not None and time.monotonic() >= self._again_at and not over.is_set():
                    self._bring_back(over)
                elif self._old and time.monotonic() - self._back_at > GRACE_S:
                    for stub in self._old:
                        stub.clear()
                    self._old = set()

    def deploy(self, edition: Edition, check: Check) -> bool:
        """Serve other files from now on, unless they are broken; whether that is settled."""
        snapshot, served = self._server.snapshot, self._server.snapshot.hashes[self.name]
        with self._lock:
            other = snapshot.put(edition)
            try:
                why = self._why_refused(check)
            except ConnectionError as lost:  # it says nothing of the edition
                snapshot.discard(snapshot.put(other))
                self._give_up(str(lost))
                return False
            if why:
                other = snapshot.put(other)
            else:
                self._ask_how_many()
                self._is_back()
            snapshot.discard(other)
        if why:
            self._logger.error(
                "model %s stays %s: what changed on disk (%s) is refused: %s", self.name, served, edition.hash, why
            )
        else:
            self._logger.warning("model %s is %s from now on, as on disk; it was %s", self.name, edition.hash, served)
        return True

    def _why_refused(self, check: Check) -> str:
        try:
            return "; ".join(map(str, check(self._server.snapshot.folder))) or self._load()
        except TimeoutError:
            return "its Python process ended while it loaded, or loads for ever"
        except PixprepError as error:
            return str(error)

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

    def _is_silent(self, image: Sample) -> bool:
        """Send an image: whether the model fails, or neither answers nor computes. A refusal is an answer, too."""
        before = sum(stub.cpu_s for stub in self._stubs)
        status = self._server.infer(self.name, image, timeout_s=PROBE_S)
        used_s = sum(stub.cpu_s for stub in self._stubs) - before
        is_idle = status == 0 and used_s < IDLE * PROBE_S
        return status == 500 or (is_idle and self._server.is_live(timeout_s=PROBE_S))

    def _go_down(self, why: str, over: Event) -> None:
        now = time.monotonic()
        wait_s = self._waits.count(ran_s=now - self._back_at) or 0.0
        if over.is_set() or self._server.poll() is not None:  # stubs end with Triton
            return
        self._logger.error(
            "model %s is down: %s; it is loaded again%s", self.name, why, f" in {wait_s:g} s" * bool(wait_s)
        )
        self._down_at, self._again_at = now, now + wait_s

    def _bring_back(self, over: Event) -> None:
        assert self._down_at is not None
        for stub in self._stubs:
            if stub.state == "T" or self._misses >= MISSES:
                stub.kill()  # what waits for it gets an error
        try:
            error = self._load()
        except (TimeoutError, ConnectionError) as lost:
            self._give_up(str(lost))
            return
        if over.is_set():
            return
        if error:
            wait_s = self._waits.count(ran_s=0) or 0.0
            self._again_at = time.monotonic() + wait_s
            self._logger.error("model %s does not load: %s; again in %g s", self.name, error, wait_s)
            return
        took_s = time.monotonic() - self._down_at
        self._is_back()
        self._logger.warning("model %s is back after %.1f s", self.name, took_s)

    def _load(self) -> str:
        """Load the model anew; why it failed, or empty. Its ensembles follow by themselves.

        Raises:
            TimeoutError: it never ends.
            ConnectionError: nor would it now; or Triton has ended.
        """
        if self._is_stuck:
            raise ConnectionError(f"Triton never ends to load model {self.name}")
        before = {stub for stub in stubs(self._server.pid) if stub.model == self.name}
        try:
            error = self._server.load(self.name)
        except TimeoutError:
            self._is_stuck = True
            raise
        if error:
            return error
        self._old |= before | self._stubs
        self._stubs = set()
        self._find_stubs()
        return ""

    def _is_back(self) -> None:
        self._down_at, self._misses, self._back_at = None, 0, time.monotonic()
        self._probe_at = self._back_at + PROBE_S

    def _ask_how_many(self) -> None:
        """Ask Triton how many stubs the model has."""
        if not (config := self._server.config(self.name)):
            self._give_up(f"Triton does not say what model {self.name} is")
        if config.get("backend") in ("python", "pixprep"):
            self._count = count_instances(config) * self._versions
            self._find_stubs()


def _count_threads(pid: int) -> int:
    """The threads of a process; 0 if it has ended."""
    try:
        return len(os.listdir(f"/proc/{pid}/task"))  # noqa: PTH208  (names, not paths)
    except OSError:
        return 0
