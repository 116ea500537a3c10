"""A gRPC client that knows several servers and shares its requests out, as docs/scale.md has it: nothing is lost.

One server is killed, one ends in peace, and all are replaced one after the other, under load. The photo is larger than
what gRPC by itself would send again.
"""

import io
import re
import threading
from collections import Counter
from pathlib import Path
from urllib.request import urlopen

import numpy as np
import pytest
from PIL import Image
from tritonclient.utils import InferenceServerException

from serving import Serve, wait_until, write_repository

pytestmark = pytest.mark.server

ADDRESS = "dns:///pixprep-pods.shop:8001"
(PROGRAM,) = re.findall(
    r"^```python\n(.*?)^```",
    (Path(__file__).parents[2] / "docs" / "scale.md").read_text(encoding="utf-8"),
    re.MULTILINE | re.DOTALL,
)
CLIENTS = 3
WITHIN_S = 120


def large_photo():
    """Noise, which a JPEG cannot make small."""
    pixels = np.random.default_rng(1).integers(0, 256, (480, 640, 3), np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "jpeg", quality=95)
    assert file.tell() > 300_000
    return file.getvalue()


PHOTO = large_photo()


class Load:
    """Threads that ask by one client until the end.

    Attributes:
        counts: right, wrong, lost.
        notes: what was lost, in words.
    """

    def __init__(self, servers, expected):
        self.counts, self.notes = Counter(), []
        self._expected, self._lock, self._ending = expected, threading.Lock(), threading.Event()
        target = f"ipv4:{','.join(server.grpc for server in servers)}"
        made = {}
        assert ADDRESS in PROGRAM
        exec(PROGRAM.replace(ADDRESS, target), made)  # noqa: S102  (the page's own lines)
        self._client, self._infer = made["client"], made["infer"]
        self._threads = [threading.Thread(target=self._work) for _ in range(CLIENTS)]
        for thread in self._threads:
            thread.start()

    def _work(self):
        while not self._ending.is_set():
            note = ""
            try:
                got = self._infer(PHOTO)
                outcome = "right" if got.tobytes() == self._expected.tobytes() else "wrong"
            except InferenceServerException as error:
                outcome, note = "lost", str(error)
            with self._lock:
                self.counts[outcome] += 1
                self.notes += [note] * bool(note)

    def more(self, number):
        """Wait for so many more right answers."""
        wanted = self.counts["right"] + number
        wait_until(lambda: self.counts["right"] >= wanted, lambda: f"{self.counts} {self.notes}", within_s=WITHIN_S)

    def end(self):
        self._ending.set()
        for thread in self._threads:
            thread.join()
        self._client.close()
        assert self.counts["wrong"] == self.counts["lost"] == 0, (self.counts, self.notes)


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    return write_repository(tmp_path_factory.mktemp("models"))


@pytest.fixture
def start(repository, tmp_path):
    """Start a server, on the ports of another if one is given."""
    started = []

    def start(other=None):
        ports = []
        if other:
            named = {"http": other.address, "grpc": other.grpc, "metrics": other.metrics}
            ports = [word for name, url in named.items() for word in (f"--{name}-port", url.rpartition(":")[2])]
        started.append(Serve(repository, *ports, triton_log=tmp_path / f"{len(started)}.log"))
        return started[-1]

    yield start
    for server in started:
        if server.process.poll() is None:
            server.stop()


def test_a_server_that_is_killed_costs_no_request(start, oracle):
    servers = [start(), start()]
    load = Load(servers, oracle.tensors("ensemble", [PHOTO]))
    load.more(50)
    servers[0].process.kill()
    servers[0].end()
    load.more(200)
    load.end()


def test_a_server_that_ends_costs_no_request(start, oracle):
    servers = [start(), start()]
    load = Load(servers, oracle.tensors("ensemble", [PHOTO]))
    load.more(50)
    assert servers[0].stop() == 0
    load.more(200)
    load.end()


def test_servers_that_are_replaced_one_by_one_cost_no_request(start, oracle):
    servers = [start(), start()]
    load = Load(servers, oracle.tensors("ensemble", [PHOTO]))
    load.more(50)
    for index, old in enumerate(servers):
        assert old.stop() == 0
        servers[index] = start(old)
        wait_until(
            lambda server=servers[index]: images_of(server) >= 20, "the new server is not asked", within_s=WITHIN_S
        )
    load.end()


def images_of(server):
    """How many images it has made tensors of, by its own count, in which its probes are not."""
    with urlopen(f"http://{server.metrics}/metrics") as answer:
        text = answer.read().decode()
    return sum(map(float, re.findall(r'^pixprep_images_total\{.*result="ok".*\} (\S+)$', text, re.MULTILINE)))
