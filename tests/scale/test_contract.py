"""Tests of the contract between chart and server: the actions that the manifest makes a kubelet take, on real servers
under load.

Clients follow docs/scale.md: they retry on a different server after a closed connection, a 503, or an error of a server
that is shutting down. Every request is counted.
"""

import http.client
import json
import random
import signal
import threading
import time
from collections import Counter

import pytest

from scale.charts import EMBEDDED, one, render
from scale.kubelet import Pod, Service
from support.serving import PHOTO, ClientError, Oracle, ask_grpc, ask_http, wait_until, write_repository

tritonclient = pytest.importorskip("tritonclient.grpc")

pytestmark = pytest.mark.server

CLIENTS = 4
TRIES = 8
QUICK_VALUES = {"drainSeconds": 4, "graceSeconds": 10}


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    return write_repository(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="module")
def oracle():
    oracle = Oracle()
    yield oracle
    oracle.close()


class Load:
    """Clients of a service. Half of them use HTTP, and half of them use gRPC.

    Attributes:
        counts: Number of requests by outcome (right, wrong, lost), and the number of retries as ``again``.
    """

    def __init__(self, service, oracle):
        self._service, self._expected = service, oracle.tensors("ensemble", [PHOTO])
        self.counts, self.notes = Counter(), []
        self._lock = threading.Lock()
        self._ending = threading.Event()
        self._threads = [threading.Thread(target=self._work, args=[each], daemon=True) for each in range(CLIENTS)]
        for thread in self._threads:
            thread.start()

    def _work(self, index):
        rng, clients = random.Random(index), {}
        while not self._ending.is_set():
            outcome, tries = self._ask(rng, clients, is_grpc=index % 2 == 1)
            with self._lock:
                self.counts[outcome] += 1
                self.counts["again"] += tries
        for client in clients.values():
            client.close()

    def _ask(self, rng, clients, *, is_grpc):
        """Send one request, and return its outcome and the number of retries."""
        for tries in range(TRIES):
            pod = self._service.pick(rng)
            if pod is None:
                time.sleep(0.5)
                continue
            try:
                if is_grpc:
                    if pod not in clients:
                        clients[pod] = tritonclient.InferenceServerClient(pod.grpc)
                    got = ask_grpc(clients[pod], "ensemble", [PHOTO])
                else:
                    got = ask_http(pod.address, "ensemble", [PHOTO])
            except (ClientError, OSError, http.client.HTTPException) as error:
                with self._lock:
                    self.notes.append(f"{getattr(error, 'code', type(error).__name__)} {error}")
                time.sleep(0.1 * 2**tries * rng.uniform(0.5, 1))
                continue
            return ("right" if got.tobytes() == self._expected.tobytes() else "wrong"), tries
        return "lost", TRIES

    def end(self):
        self._ending.set()
        for thread in self._threads:
            thread.join()
        return self.counts


class Cluster:
    """Pods of one Deployment, with methods for the actions of the Deployment's controller."""

    def __init__(self, values, repository, folder):
        deployment = one(render(EMBEDDED | values), "Deployment")["spec"]
        self.template, self.min_ready_s = deployment["template"], deployment["minReadySeconds"]
        self.strategy = deployment["strategy"]["rollingUpdate"]
        self._repository, self._folder = repository, folder
        self.service = Service()

    def start(self):
        pod = Pod(self.template, folders={"/models": self._repository},
                  log=self._folder / f"pod-{len(self.service.pods)}.log")  # fmt: skip
        self.service.pods.append(pod)
        return pod

    def wait(self, pod):
        wait_until(lambda: pod.is_ready, lambda: f"not ready: {pod.events}", within_s=180)
        return pod

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for pod in self.service.pods:
            if pod.process.poll() is None:
                pod.delete()
        self.service.close()


def test_a_pod_starts_is_ready_and_ends_within_its_grace_period(repository, tmp_path):
    observed = {"logFormat": "json", "tracing": {"url": "http://127.0.0.1:9/v1/traces", "rate": 1}}
    with Cluster(QUICK_VALUES | observed, repository, tmp_path) as cluster:
        pod = cluster.start()
        assert not pod.is_ready
        cluster.wait(pod)
        assert [what for _, what in pod.events] == ["started", "startup probe succeeded", "ready"]
        began = time.monotonic()
        pod.delete()
        assert time.monotonic() - began < cluster.template["spec"]["terminationGracePeriodSeconds"]
        assert [what for _, what in pod.events][-2:] == ["SIGTERM", "ended with 0"]
    messages = [json.loads(line)["message"] for line in (tmp_path / "pod-0.log").read_text().splitlines()]
    assert "ready" in messages
    assert messages[-1] == "stopped"


def test_a_dead_process_is_restarted_within_the_pod(repository, tmp_path, oracle):
    with Cluster(QUICK_VALUES, repository, tmp_path) as cluster:
        pods = [cluster.wait(pod) for pod in [cluster.start(), cluster.start()]]
        load = Load(cluster.service, oracle)
        wait_until(lambda: load.counts["right"] > 50)
        pods[0].kill_stub("preprocess")
        before = load.counts["right"]
        wait_until(lambda: load.counts["right"] > before + 300, within_s=60)
        counts = load.end()
        assert counts["lost"] == counts["wrong"] == 0, (counts, load.notes)
        assert [pod.restarts for pod in pods] == [0, 0]
        assert ask_http(pods[0].address, "ensemble", [PHOTO]).tobytes() == oracle.tensors("ensemble", [PHOTO]).tobytes()


def test_a_server_that_hangs_is_removed_from_the_service_and_restarted(repository, tmp_path, oracle):
    """The test suspends the supervisor itself, so that only the kubelet can restart the pod."""
    with Cluster(QUICK_VALUES, repository, tmp_path) as cluster:
        pods = [cluster.wait(pod) for pod in [cluster.start(), cluster.start()]]
        load = Load(cluster.service, oracle)
        pods[0].process.send_signal(signal.SIGSTOP)
        pods[0].kill_stub("preprocess")
        wait_until(lambda: not pods[0].is_ready, lambda: pods[0].events, within_s=60)
        pods[0].process.send_signal(signal.SIGKILL)
        wait_until(lambda: pods[0].restarts == 1, lambda: pods[0].events, within_s=120)
        cluster.wait(pods[0])
        counts = load.end()
        assert counts["wrong"] == counts["lost"] == 0, (counts, load.notes)
        assert counts["right"] > 100


def test_a_rolling_update_loses_no_request(repository, tmp_path, oracle):
    with Cluster(QUICK_VALUES, repository, tmp_path) as cluster:
        assert cluster.strategy == {"maxUnavailable": 0, "maxSurge": 1}
        old = [cluster.wait(pod) for pod in [cluster.start(), cluster.start()]]
        load = Load(cluster.service, oracle)
        for pod in old:
            new = cluster.wait(cluster.start())
            time.sleep(cluster.min_ready_s)
            assert new.is_ready
            pod.delete()
            assert pod.events[-1][1] == "ended with 0", pod.events
        counts = load.end()
        assert counts["lost"] == counts["wrong"] == 0, (counts, load.notes)
        assert counts["right"] > 500
