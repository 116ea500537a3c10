"""Measures the memory of a server after thousands of requests, and after its models were reloaded and killed under
load.
"""

import io
import logging
import os
import random
import re
import signal
import socket
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np
import psutil
from PIL import Image

from pixprep.serving.embedded.processes import CALM_S
from pixprep.serving.embedded.server import Server
from pixprep.serving.embedded.stubs import stubs
from pixprep.serving.embedded.supervisor import LOOK_S, look_after
from support.images import jpegs, others
from support.serving import BAD, GOOD, LARGE, MODELS, PHOTO, Clients, Serve, body_of, wait_until, write_repository

CONCURRENCY = 16
SHM = Path("/dev/shm")
HUNDREDS = 200
IMAGES = [*GOOD, *GOOD, *jpegs().values(), *others().values(), *BAD]


@dataclass(frozen=True)
class Held:
    """Memory that a server uses.

    Attributes:
        private_mib: Private memory of each process. Resident memory is not meaningful: Triton grows its shared memory
            to the largest batches so far and maps it again each time, so that a process's resident memory includes it
            several times.
        shared_mib: Total size of the server's regions in /dev/shm.
        regions: Number of these regions.
        files, threads: Number of open files and threads of Triton itself. A stub process inherits the connections that
            are open when it starts.
    """

    private_mib: dict[str, float]
    shared_mib: float
    regions: int
    files: int
    threads: int

    def __str__(self):
        memory = ", ".join(f"{name} {mib:.1f}" for name, mib in sorted(self.private_mib.items()))
        return (
            f"{memory} MiB private, {self.shared_mib:.1f} MiB in {self.regions} regions, {self.files} files, "
            f"{self.threads} threads"
        )


def growth(values):
    """Return the growth from the median of the third quarter to the median of the last quarter. A leak raises every
    value.

    The first half is ignored, because ONNX Runtime and Triton allocate memory for larger batches and keep it.
    """
    quarter = max(1, len(values) // 4)
    return median(values[-quarter:]) / median(values[-2 * quarter : -quarter]) - 1


def of_all_sizes():
    """Return valid images and invalid files with sizes from 5 kB to 15 MB."""
    file = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (2300, 2170, 3), np.uint8)).save(
        file, "PNG", compress_level=0
    )
    return [*GOOD * 4, LARGE, file.getvalue(), *(bytes(size) for size in (5_000, 50_000, 10**6, 3 * 10**6, 15 * 10**6))]


def _private_mib(pid):
    found = re.search(r"RssAnon:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(found[1]) / 1024


class Endurance:
    """A server whose models this process can load, with clients that check every response.

    Attributes:
        server: The running server; see ``Server``.
        clients: Clients that count the outcome of every request.
    """

    def __init__(self, server, oracle):
        self.server = server
        self.address, self.grpc = server.http_url.removeprefix("http://"), server.grpc_url
        self.clients = Clients(self, oracle)
        self._rng = random.Random(0)

    def held(self, *, idle_s=0.0):
        """Return the memory of the server after a pause of ``IDLE_S``, because an idle model then frees its memory.

        Also wait until Triton has freed the models that it unloaded, which takes a second or two.
        """
        time.sleep(idle_s)
        with suppress(AssertionError):
            wait_until(lambda: len(self.stubs()) == len(self.regions()) == 2, within_s=120)
        processes = {"tritonserver": self.server.pid} | {stub.model: stub.pid for stub in self.stubs()}
        regions = self.regions()
        return Held(
            {name: _private_mib(pid) for name, pid in processes.items()},
            sum(region.stat().st_size for region in regions) / 2**20,
            len(regions),
            psutil.Process(self.server.pid).num_fds(),
            psutil.Process(self.server.pid).num_threads(),
        )

    def stubs(self):
        return list(stubs(self.server.pid))

    def regions(self):
        return list(SHM.glob(f"{self.server._prefix}*"))

    def steady(
        self, count, *, concurrency=CONCURRENCY, images=IMAGES, models=MODELS, sizes=(1, 1, 1, 2, 4),
        protocols=("http", "grpc"),
    ):  # fmt: skip
        """Send this many requests with 1 to 4 images each, both valid and invalid, at a concurrency of 16."""
        turns = iter(range(count))
        lock = threading.Lock()

        def work(number):
            while True:
                with lock:
                    if next(turns, None) is None:
                        return
                    chosen = self._rng.choices(images, k=self._rng.choice(sizes))
                    model = self._rng.choice(models)
                self.clients.ask(chosen, model=model, protocol=protocols[number % 2])

        with ThreadPoolExecutor(concurrency) as pool:
            list(pool.map(work, range(concurrency)))

    def mixed(self, count):
        """Send this many requests of 5 kB to 15 MB over hundreds of persistent connections."""
        protocols = ("http, kept alive", "grpc")
        self.steady(count, concurrency=HUNDREDS, images=of_all_sizes(), sizes=(1,), protocols=protocols)

    def reload(self, times):
        """Unload and reload preprocess under load this many times. Return the seconds of the slowest reload."""
        slowest = 0.0
        with self.clients.load(4):
            for _ in range(times):
                start = time.monotonic()
                assert self.server.control.repository("models/preprocess/unload")[0] == 200
                assert self.server.control.repository("models/preprocess/load")[0] == 200
                slowest = max(slowest, time.monotonic() - start)
                self.more_right(4)
        return slowest

    def kill(self, times, *, settle_s=0.0):
        """Kill preprocess under load this many times. Return the seconds of the slowest recovery, without the waits
        that the log announces.

        ``settle_s`` is the time for which the models are supervised afterwards, without load.
        """
        slowest, log = 0.0, _Lines()
        logger = logging.getLogger("pixprep.serving.embedded.supervisor")
        logger.addHandler(log)
        with ExitStack() as stack:
            stack.enter_context(self.looked_after())
            load = stack.enter_context(self.clients.load(4))
            for _ in range(times):
                after = len(log.lines)
                stub = max((stub for stub in self.stubs() if stub.model == "preprocess"), key=lambda stub: stub.pid)
                os.kill(stub.pid, signal.SIGKILL)
                start = time.monotonic()
                wait_until(lambda after=after: len(log.lines) >= after + 2, lambda: log.lines, within_s=90)
                self.more_right(4)
                waited = re.search(r" in (\d+) s$", log.lines[after])
                slowest = max(slowest, time.monotonic() - start - int(waited[1] if waited else 0))
            load.set()
            time.sleep(settle_s)
        logger.removeHandler(log)
        return slowest

    def kill_anything(self, times, *, log):
        """Kill random stub processes at any time, preferably while they load a model. Sometimes kill Triton or its
        guard instead.

        Many kills follow an edit on disk. Clients retry until the responses are correct. After every ten kills, the
        server has time to recover.

        Returns:
            Seconds of the slowest recovery, and the clients with the outcomes of their requests.
        """
        killed, ended = Counter(), threading.Event()
        slowest_s = 0.0
        with Clients(self, self.clients.oracle, is_closing=True) as clients, self.looked_after():
            persistent = [threading.Thread(target=self._persist, args=(clients, ended, n)) for n in range(4)]
            for thread in persistent:
                thread.start()
            for number in range(1, times + 1):
                time.sleep(min(6.0, self._rng.expovariate(1 / 1.5)))
                if self._rng.random() < 0.3:
                    killed["edits on disk"] += self._edit()
                killed[self._kill_one()] += 1
                if number % 10 and number < times:
                    continue
                healed_s = clients.recover(within_s=120)
                slowest_s = max(slowest_s, healed_s)
                log(f"    {number} kills, right again after {healed_s:.1f} s: {dict(killed)}, {dict(clients.counts)}")
                time.sleep(CALM_S + 1)
            ended.set()
            for thread in persistent:
                thread.join()
            rights = clients.counts["right"]
            for model in MODELS:
                for protocol in ("http", "grpc"):
                    clients.ask([PHOTO], model=model, protocol=protocol)
            assert clients.counts["right"] == rights + 4, clients.notes
        return slowest_s, clients

    def _persist(self, clients, ended, number):
        """Send images one at a time, and retry each image until the response is correct."""
        for turn in range(number, 1 << 30):
            image, model = IMAGES[turn % len(IMAGES)], MODELS[turn % len(MODELS)]
            while clients.ask([image], model=model, protocol=("http", "grpc")[number % 2]) == "error":
                time.sleep(0.05)
            if ended.is_set():
                return

    def _kill_one(self):
        """Kill a process, and return a description of it."""
        while True:
            found = sorted(self.stubs(), key=lambda stub: stub.pid)
            dice = self._rng.random()
            if dice < 0.1:
                what, pid = "Triton", self.server.pid
            elif dice < 0.2:
                what, pid = "guard", self.server._processes._guard.pid
            elif found:
                stub = found[-1] if self._rng.random() < 0.5 else self._rng.choice(found)
                what, pid = stub.model, stub.pid
            else:
                time.sleep(0.02)
                continue
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                return what

    def _edit(self):
        """Edit a model on disk, so that the model would return different responses or fail to load."""
        version = self.server.snapshot.repository / self._rng.choice(("preprocess", "classifier")) / "1"
        for path in version.glob("*.*"):
            text = path.read_text()
            path.write_text(text.replace("0.485", "0.585") if self._rng.random() < 0.5 else text[: len(text) // 2])
        return 1

    @contextmanager
    def looked_after(self):
        """Supervise the models in the same way as ``pixprep serve``."""
        stopping = threading.Event()
        care = threading.Thread(target=look_after, args=(self.server, stopping))
        care.start()
        time.sleep(4 * LOOK_S)  # wait until the supervisor has found the models
        try:
            yield
        finally:
            stopping.set()
            care.join()

    def more_right(self, count):
        """Wait until this many more requests have succeeded."""
        rights = self.clients.counts["right"]
        wait_until(lambda: self.clients.counts["right"] >= rights + count, lambda: self.clients.notes, within_s=90)

    def hang_up(self, times):
        """Run clients that disconnect before, during or after sending their request."""
        headers, body = body_of([GOOD[0]])
        words = {"Host": "localhost", "Content-Length": str(len(body)), **headers}
        head = "".join(f"{name}: {value}\r\n" for name, value in words.items())
        request = f"POST /v2/models/ensemble/infer HTTP/1.1\r\n{head}\r\n".encode() + body
        with self.clients.load(4):
            for number in range(times):
                with socket.create_connection(self.address.split(":"), timeout=120) as connection:
                    connection.sendall(request[: len(request) * (1 + number % 4) // 4])
            self.more_right(4)


class _Lines(logging.Handler):
    def __init__(self):
        super().__init__()
        self.lines = []

    def emit(self, record):
        self.lines.append(record.getMessage())


@contextmanager
def endurance(folder, oracle, models=None, *, extra_args=()):
    """Start a server whose files are in ``folder``.

    ``models`` replaces the default repository, which contains preprocess, classifier and ensemble.
    """
    models = models or write_repository(folder / "models")
    options = {"log_file": folder / "triton.log", "grace_s": 0, "extra_args": extra_args}
    with Server(models, http_port=0, grpc_port=0, metrics_port=0, **options) as server:
        it = Endurance(server, oracle)
        with it.clients:
            yield it


def drain(folder, oracle, protocol, *, count=8):
    """Stop `pixprep serve` while clients send large images without a pause.

    Returns:
        Outcomes of the requests in flight, outcomes of all requests, and the duration of the shutdown in seconds.
    """
    ended, in_flight = threading.Event(), Counter()
    with (
        Serve(write_repository(folder / "models"), triton_log=folder / "triton.log") as serve,
        Clients(serve, oracle) as clients,
        ThreadPoolExecutor(count) as pool,
    ):

        def work(_):
            is_answered = True
            while is_answered:
                was_ended = ended.is_set()
                outcome = clients.ask([LARGE], protocol=protocol)
                if ended.is_set() and not was_ended:
                    in_flight[outcome] += 1
                is_answered = outcome == "right"

        done = pool.map(work, range(count))
        wait_until(lambda: clients.counts["right"] >= 2 * count, lambda: clients.notes, within_s=90)
        ended.set()
        start = time.monotonic()
        code = serve.stop()
        took_s = time.monotonic() - start
        list(done)
    assert (code, serve.left()) == (0, [])
    return dict(in_flight), dict(clients.counts), took_s
