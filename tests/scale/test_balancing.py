"""Three servers, behind deploy/haproxy.cfg or known to a gRPC client: killed, ended and replaced, under load.

Clients send again what docs/scale.md says, and every request is counted: none is lost, none is wrong. Photos are larger
than what gRPC by itself would send again.
"""

import http.client
import io
import os
import random
import re
import shutil
import subprocess
import threading
import time
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

import numpy as np
import pytest
from PIL import Image
from tritonclient.utils import InferenceServerException

from kubelet import free_ports
from serving import ClientError, Serve, ask_http, wait_until, write_repository

HAPROXY = shutil.which("haproxy", path=f"{os.environ['PATH']}:/usr/sbin")
ROOT = Path(__file__).parents[2]
SCALE = (ROOT / "docs" / "scale.md").read_text(encoding="utf-8")
(PROGRAM,) = re.findall(r"^```python\n(.*?)^```", SCALE, re.MULTILINE | re.DOTALL)
ADDRESS = "dns:///pixprep-pods.shop:8001"
TRIES = 6
WITHIN_S = 120
WAYS = [
    "client",
    pytest.param("proxy", marks=pytest.mark.skipif(HAPROXY is None, reason="NO HAPROXY: apt-get install haproxy")),
]

pytestmark = [
    pytest.mark.server,
    pytest.mark.skipif(not os.environ.get("PIXPREP_SCALE"), reason="SCALE: make scale"),
    pytest.mark.parametrize("way", WAYS),
]


def large_photo():
    """Noise, which a JPEG cannot make small."""
    pixels = np.random.default_rng(1).integers(0, 256, (480, 640, 3), np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "jpeg", quality=95)
    assert file.tell() > 300_000
    return file.getvalue()


PHOTO = large_photo()


@contextmanager
def proxy_of(servers):
    """HAProxy in front of servers: HOST:PORT for HTTP and for gRPC."""
    ports = free_ports(["http", "grpc"])
    address, grpc = (f"127.0.0.1:{ports[name]}" for name in ("http", "grpc"))
    variables = {"PIXPREP_LISTEN_HTTP": address, "PIXPREP_LISTEN_GRPC": grpc}
    for suffix, server in zip(("", "_2", "_3"), servers, strict=True):
        variables |= {f"PIXPREP_HTTP{suffix}": server.address, f"PIXPREP_GRPC{suffix}": server.grpc}
    command = [HAPROXY, "-db", "-f", ROOT / "deploy" / "haproxy.cfg"]
    with subprocess.Popen(command, env=os.environ | variables, stderr=subprocess.DEVNULL) as process:
        yield address, grpc
        process.terminate()


class Load:
    """Two clients over gRPC, and two over HTTP where it has an address, until the end.

    Attributes:
        counts: by outcome and protocol: right, wrong, lost.
        notes: what was lost, in words.
    """

    def __init__(self, expected, *, grpc, address=None):
        self.counts, self.notes = Counter(), []
        self._address, self._expected = address, expected
        self._lock, self._ending = threading.Lock(), threading.Event()
        made = {}
        assert ADDRESS in PROGRAM
        exec(PROGRAM.replace(ADDRESS, grpc), made)  # noqa: S102  (the page's own lines)
        self._client, self._infer = made["client"], made["infer"]
        asks = {"grpc": self._ask_grpc} | ({"http": self._ask_http} if address else {})
        self.right = [f"right {protocol}" for protocol in asks]
        self._threads = [threading.Thread(target=self._work, args=ask) for ask in asks.items() for _ in range(2)]
        for thread in self._threads:
            thread.start()

    def _work(self, protocol, ask):
        while not self._ending.is_set():
            got, note = ask()
            outcome = "lost" if got is None else "right" if got.tobytes() == self._expected.tobytes() else "wrong"
            with self._lock:
                self.counts[f"{outcome} {protocol}"] += 1
                self.notes += [note] * bool(note)

    def _ask_grpc(self):
        try:
            return self._infer(PHOTO), ""
        except InferenceServerException as error:
            return None, str(error)

    def _ask_http(self):
        """By the page's table."""
        wait_s = 0.2
        for _ in range(TRIES):
            try:
                return ask_http(self._address, "ensemble", [PHOTO]), ""
            except ClientError as error:
                note = f"{error.code} {error}"
                if error.code not in ("500", "502", "503") and "has no available versions" not in note:
                    break
            except (OSError, http.client.HTTPException) as error:
                note = repr(error)
            time.sleep(wait_s * random.uniform(0.5, 1))
            wait_s = min(2.0, 2 * wait_s)
        return None, note

    def more(self, number):
        """Wait for so many more right answers, of all protocols together."""
        wanted = self.answered() + number
        wait_until(lambda: self.answered() >= wanted, lambda: f"{self.counts} {self.notes}", within_s=WITHIN_S)

    def answered(self):
        return sum(self.counts[name] for name in self.right)

    def end(self):
        self._ending.set()
        for thread in self._threads:
            thread.join()
        self._client.close()


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    """Start a server, on the ports of another if one is given."""
    folder = tmp_path_factory.mktemp("balancing")
    repository, started = write_repository(folder / "models"), []

    def start(other=None):
        ports = []
        if other:
            named = {"http": other.address, "grpc": other.grpc, "metrics": other.metrics}
            ports = [word for name, url in named.items() for word in (f"--{name}-port", url.rpartition(":")[2])]
        started.append(Serve(repository, *ports, triton_log=folder / f"{len(started)}.log"))
        return started[-1]

    yield start
    for server in started:
        if server.process.poll() is None:
            server.stop()


@pytest.fixture(scope="module")
def servers(start):
    """Three at the beginning of each test: a test puts another in the place of one that it ends."""
    return [start() for _ in range(3)]


@pytest.fixture
def load(way, servers, oracle):
    """Requests to all servers from the beginning of a test to its end, when each one has had its answer."""
    expected = oracle.tensors("ensemble", [PHOTO])
    if way == "client":
        yield from loaded(Load(expected, grpc=f"ipv4:{','.join(server.grpc for server in servers)}"), servers)
    else:
        with proxy_of(servers) as (address, grpc):
            yield from loaded(Load(expected, grpc=grpc, address=address), servers)


def loaded(load, servers):
    try:
        for server in servers:
            wait_until_asked(server)
        yield load
    finally:
        load.end()
    assert sorted(load.counts) == sorted(load.right), (load.counts, load.notes)


def wait_until_asked(server):
    before = images_of(server)
    wait_until(lambda: images_of(server) >= before + 20, "it gets no requests", within_s=WITHIN_S)


def images_of(server):
    """How many images it has made tensors of, by its own count, in which its probes are not."""
    with urlopen(f"http://{server.metrics}/metrics") as answer:
        text = answer.read().decode()
    return sum(map(float, re.findall(r'^pixprep_images_total\{.*result="ok".*\} (\S+)$', text, re.MULTILINE)))


def test_one_that_is_killed_costs_no_request_and_gets_its_share_when_it_is_back(servers, load, start):
    servers[1].process.kill()
    servers[1].end()
    load.more(100)
    servers[1] = start(servers[1])
    wait_until_asked(servers[1])


def test_all_are_replaced_one_by_one_and_no_request_is_lost(servers, load, start):
    for index, old in enumerate(servers):
        assert old.stop() == 0
        servers[index] = start(old)
        wait_until_asked(servers[index])
    load.more(1)
