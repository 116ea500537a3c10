"""Tests of load balancing over three servers, by a proxy of deploy/ or by name in a gRPC client. Servers are killed,
replaced, slowed down or frozen.

Clients retry the requests that docs/scale.md lists. Every request is counted, and none may be lost or get a wrong
response. The photos are larger than the limit of gRPC's own retries. PIXPREP_SCALE_RESULTS is the path of a JSON file
for the counts.
"""

import http.client
import io
import json
import os
import random
import re
import signal
import threading
import time
from collections import Counter
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path
from urllib.request import urlopen

import numpy as np
import psutil
import pytest
from PIL import Image
from tritonclient.utils import InferenceServerException

from scale.kubelet import free_ports
from scale.names import Names
from support.proxies import KINDS, proxy_of
from support.serving import CLASSIFIER, ClientError, Oracle, Serve, ask_http, wait_until, write_repository

ROOT = Path(__file__).parents[2]
SCALE = (ROOT / "docs" / "scale.md").read_text(encoding="utf-8")
(PROGRAM,) = re.findall(r"^```python\n(.*?)^```", SCALE, re.MULTILINE | re.DOTALL)
ADDRESS = "dns:///pixprep-pods.shop:8001"
TRIES = 6
WITHIN_S = 120
SLOW_S = 2.0
"""Seconds per batch of a slow server's classifier."""
FROZEN_S = 8.0
"""Seconds for which a server is frozen. The proxies' health checks time out earlier, and the clients later."""

pytestmark = [
    pytest.mark.server,
    pytest.mark.skipif(not os.environ.get("PIXPREP_SCALE"), reason="SCALE: make scale"),
    pytest.mark.parametrize("way", ["client", *KINDS], scope="module"),
]


def large_photo():
    """Return a JPEG of noise, which JPEG cannot compress well."""
    pixels = np.random.default_rng(1).integers(0, 256, (480, 640, 3), np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "jpeg", quality=95)
    assert file.tell() > 300_000
    return file.getvalue()


PHOTO = large_photo()


class Load:
    """Clients that send requests until the load ends: two clients over gRPC, and two more over HTTP if there is an HTTP
    address.

    Attributes:
        counts: Number of requests by outcome (right, wrong, lost) and protocol.
        notes: Descriptions of the lost requests.
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
        """Send a request, and handle the response as the page's table specifies."""
        wait_s, died = 0.2, 0
        for _ in range(TRIES):
            try:
                return ask_http(self._address, "ensemble", [PHOTO]), ""
            except ClientError as error:
                note = f"{error.code} {error}"
                died += error.code == "500"
                is_passing = error.code in ("500", "502", "503") or "has no available versions" in note
                if died > 2 or not is_passing:
                    break
            except (OSError, http.client.HTTPException) as error:
                note = repr(error)
            time.sleep(wait_s * random.uniform(0.5, 1))
            wait_s = min(2.0, 2 * wait_s)
        return None, note

    def more(self, number):
        """Wait until this many more requests have succeeded, over all protocols."""
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
    """Return a function that starts a server. It may start a slow server, or a replacement for a different server. All
    servers have the same gRPC port.
    """
    grpc_port = str(free_ports(["grpc"])["grpc"])
    folder = tmp_path_factory.mktemp("balancing")
    repository, slow_count = (write_repository(folder / name) for name in ("models", "slow"))
    at = "def execute(self, requests):\n"
    assert at in CLASSIFIER
    model = CLASSIFIER.replace(at, f"{at}        import time; time.sleep({SLOW_S})\n")
    (slow_count / "classifier" / "1" / "model.py").write_text(model)
    started = []

    def start(other=None, *, host=None, is_slow=False):
        words = ["--grpc-port", grpc_port]
        if other:
            host = host or other.grpc.partition(":")[0]
            named = {"http": other.address, "metrics": other.metrics}
            words += [word for name, url in named.items() for word in (f"--{name}-port", url.rpartition(":")[2])]
        models, log = slow_count if is_slow else repository, folder / f"{len(started)}.log"
        started.append(Serve(models, *words, "--host", host, triton_log=log))
        return started[-1]

    yield start
    for server in started:
        if server.process.poll() is None:
            server.stop()


@pytest.fixture(scope="module")
def servers(start):
    """Return three running servers on different addresses. A test that ends a server must replace it in the list."""
    return [start(host=f"127.0.0.{index}") for index in (2, 3, 4)]


@pytest.fixture(scope="module")
def names(servers):
    """Start the DNS server for clients that connect to the servers directly."""
    names = Names(hosts_of(servers))
    yield names
    names.close()


def hosts_of(servers):
    return [server.grpc.partition(":")[0] for server in servers]


@pytest.fixture(scope="module")
def record():
    """Return a function ``record(case, way, counts)`` that stores the counts in the results file."""
    path = os.environ.get("PIXPREP_SCALE_RESULTS")
    found = {"date": datetime.now(timezone.utc).date().isoformat(), "cores": os.cpu_count(), "cases": {}}

    def record(case, way, counts):
        found["cases"].setdefault(case, {})[way] = dict(sorted(counts.items()))
        if path:
            Path(path).write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")

    return record


@pytest.fixture(scope="module")
def expected():
    """Return the expected responses."""
    oracle = Oracle()
    yield oracle.tensors("ensemble", [PHOTO])
    oracle.close()


@pytest.fixture
def entrance(way, servers, names):
    """Return the address that the clients use, which is a DNS name or the address of a proxy."""
    if way == "client":
        port = servers[0].grpc.rpartition(":")[2]
        yield {"grpc": f"dns://{names.address}/pixprep-pods.shop:{port}"}
    else:
        with proxy_of(way, [(server.address, server.grpc) for server in servers]) as proxy:
            yield {"grpc": proxy.grpc, "address": proxy.address}


@pytest.fixture
def load(request, servers, entrance, expected, record):
    """Send requests to all servers for the duration of a test. Assert that each server has received some of them."""
    load = Load(expected, **entrance)
    try:
        for server in servers:
            wait_until_asked(server)
        yield load
    finally:
        load.end()
    record(request.node.originalname, request.node.callspec.params["way"], load.counts)
    assert sorted(load.counts) == sorted(load.right), (load.counts, load.notes)


def wait_until_asked(server):
    before = images_of(server)

    def is_asked():
        count = images_of(server)
        return count >= (before if count >= before else 0) + 20  # the counter of a new process starts at 0

    wait_until(is_asked, "it gets no requests", within_s=WITHIN_S)


def images_of(server):
    """Return the number of images that the server's own metric counts, which excludes probes. Return 0 if the server is
    unavailable.
    """
    try:
        with urlopen(f"http://{server.metrics}/metrics") as answer:
            text = answer.read().decode()
    except OSError:
        return 0
    return sum(map(float, re.findall(r'^pixprep_images_total\{.*result="ok".*\} (\S+)$', text, re.MULTILINE)))


def test_a_killed_server_costs_no_request_and_gets_its_share_after_the_restart(servers, load, start):
    servers[1].process.kill()
    servers[1].end()
    load.more(100)
    servers[1] = start(servers[1])
    wait_until_asked(servers[1])


def test_all_are_replaced_one_by_one_without_a_lost_request(way, servers, names, load, start):
    """With a DNS name, each new server has a new address, as in Kubernetes. gRPC resolves the name again after 30 s."""
    for index, old in enumerate(servers):
        assert old.stop() == 0
        servers[index] = start(old, host=f"127.0.0.{index + 5}" if way == "client" else None)
        names.hosts = hosts_of(servers)
        wait_until_asked(servers[index])
    load.more(1)


@pytest.mark.usefixtures("load")
def test_a_slow_server_costs_no_request_and_the_proxies_send_it_fewer(way, servers, start):
    assert servers[2].stop() == 0
    servers[2] = start(servers[2], is_slow=True)
    wait_until_asked(servers[2])
    before = [images_of(server) for server in servers]

    def more():
        return [images_of(server) - first for server, first in zip(servers, before, strict=True)]

    enough = 20 if way == "client" else 100
    *fast_counts, slow_count = wait_until(
        lambda: min((found := more())[:2]) >= enough and found, more, within_s=WITHIN_S
    )
    if way == "client":
        assert slow_count > min(fast_counts) / 2  # the client uses the servers in turn, and waits for each response
    else:
        assert slow_count < min(fast_counts) / 2
    assert servers[2].stop() == 0
    servers[2] = start(servers[2])
    wait_until_asked(servers[2])


def test_a_temporarily_frozen_server_costs_no_request(way, servers, load):
    family = [psutil.Process(servers[0].process.pid), *psutil.Process(servers[0].process.pid).children(recursive=True)]
    for process in family:
        process.send_signal(signal.SIGSTOP)
    before = load.answered()
    time.sleep(FROZEN_S)
    n_answered = load.answered() - before
    for process in family:
        with suppress(psutil.NoSuchProcess):
            process.send_signal(signal.SIGCONT)
    wait_until_asked(servers[0])
    if way != "client":
        assert n_answered > len(load.right)  # the other servers respond meanwhile
