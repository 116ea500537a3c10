"""Acts as a kubelet for one container of a rendered manifest on this machine: it runs the command, the probes and
preStop, and applies the grace period.

The current Python environment replaces the image. The program ``pixprep`` is that of this environment, and paths in the
image are mapped to folders of the test. Each fixed port is replaced with a free one, because all pods share one
machine, where they do not have their own addresses. Everything else comes from the manifest.
"""

import http.client
import os
import random
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress

import psutil

from support.serving import PROGRAM

_ENTRY = [sys.executable, "-c", PROGRAM]


def free_ports(names):
    """Return a free port for each of these names."""
    sockets = {name: socket.create_server(("127.0.0.1", 0)) for name in names}
    ports = {name: each.getsockname()[1] for name, each in sockets.items()}
    for each in sockets.values():
        each.close()
    return ports


class Pod:
    """Simulates a pod with one container, from its start to its end.

    Attributes:
        is_ready: Result of the readiness probe.
        restarts: Number of restarts after a failed liveness probe.
        events: Events as (seconds since the start, text), like those that ``kubectl describe`` shows.
        address, grpc: HOST:PORT of this pod for each protocol.
    """

    def __init__(self, template, *, folders, log):
        """Start the pod. ``template`` is the pod template of the Deployment. ``folders`` maps paths in the image to
        local folders.
        """
        (self._container,) = template["spec"]["containers"]
        self._grace_s = template["spec"]["terminationGracePeriodSeconds"]
        self._folders, self._log = folders, log
        fixed_ports = {each["name"]: each["containerPort"] for each in self._container["ports"]}
        self.ports = free_ports(fixed_ports)
        self._port_words = {f"--{name}-port={number}": f"--{name}-port={self.ports[name]}"
                            for name, number in fixed_ports.items()}  # fmt: skip
        self.address, self.grpc = (f"127.0.0.1:{self.ports[name]}" for name in ("http", "grpc"))
        self._is_answering = False
        self.restarts, self.events = 0, []
        self._began = time.monotonic()
        self._ending = threading.Event()
        self._start()
        self._threads = [threading.Thread(target=self._watch)]
        self._threads[0].start()

    @property
    def is_ready(self):
        """Return whether a service would send new connections to this pod."""
        return self._is_answering and not self._ending.is_set()

    def _say(self, what):
        self.events.append((round(time.monotonic() - self._began, 1), what))

    def _words(self, command):
        words = [self._port_words.get(word, word) for word in command]
        for path, folder in self._folders.items():
            words = [re.sub(f"(^|=){re.escape(path)}$", rf"\g<1>{folder}", word) for word in words]
        if words[0] == "pixprep":
            is_server = words[1] == "serve"
            # listen only on this machine, because a pod network does not exist
            words = [word for word in words if word not in ("--host=0.0.0.0", "--allow-remote")]
            words[:1] = _ENTRY
            words += [] if is_server else ["--url", self.address]
        return words

    def _start(self):
        environment = os.environ | {each["name"]: each["value"] for each in self._container["env"]}
        command = self._words([*self._container["command"], *self._container["args"]])
        with self._log.open("a") as log:
            self.process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
        self._say("started")

    def _probe(self, probe):
        """Run a probe, and return whether it succeeds."""
        timeout_s = probe.get("timeoutSeconds", 1)
        if "exec" in probe:
            command = self._words(probe["exec"]["command"])
            with suppress(subprocess.TimeoutExpired):
                return subprocess.run(command, capture_output=True, timeout=timeout_s, check=False).returncode == 0
            return False
        call = probe["httpGet"]
        try:
            connection = http.client.HTTPConnection("127.0.0.1", self.ports[call["port"]], timeout=timeout_s)
            connection.request("GET", call["path"])
            return 200 <= connection.getresponse().status < 400
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def _watch(self):
        """Run the startup probe until it succeeds. Then run the readiness and liveness probes at their own
        intervals.
        """
        startup = self._container["startupProbe"]
        failures = 0
        while not self._ending.wait(startup["periodSeconds"]):
            if self._probe(startup):
                break
            failures += 1
            if failures >= startup["failureThreshold"]:
                self._restart("startup")
                failures = 0
        self._say("startup probe succeeded")
        others = [threading.Thread(target=self._repeat, args=[kind]) for kind in ("readiness", "liveness")]
        for thread in others:
            thread.start()
        for thread in others:
            thread.join()

    def _repeat(self, kind):
        probe = self._container[f"{kind}Probe"]
        failures = 0
        while not self._ending.is_set():
            if self._probe(probe):
                failures = 0
                if kind == "readiness" and not self._is_answering:
                    self._is_answering = True
                    self._say("ready")
            else:
                failures += 1
                if failures == probe.get("failureThreshold", 3):
                    failures = 0
                    if kind == "readiness":
                        self._is_answering = False
                        self._say("not ready")
                    else:
                        self._restart(kind)
            self._ending.wait(probe.get("periodSeconds", 10))

    def _restart(self, why):
        if self._ending.is_set():
            return
        self._say(f"{why} failed: restart")
        self._is_answering = False
        self.restarts += 1
        self._end(self._grace_s)
        self._start()

    def _end(self, seconds):
        """Run preStop, send SIGTERM, and send SIGKILL at the end of the grace period, which includes preStop."""
        deadline = time.monotonic() + seconds
        stop = self._words(self._container["lifecycle"]["preStop"]["exec"]["command"])
        with suppress(subprocess.TimeoutExpired):
            subprocess.run(stop, check=True, timeout=seconds)
        self.process.send_signal(signal.SIGTERM)
        self._say("SIGTERM")
        try:
            self.code = self.process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            self._say("SIGKILL")
            os.killpg(self.process.pid, signal.SIGKILL)
            self.code = self.process.wait()
        self._say(f"ended with {self.code}")

    def delete(self):
        """Delete the pod like ``kubectl delete pod``: it gets no new connections from the service, and ends within its
        grace period.
        """
        self._ending.set()
        self._end(self._grace_s)
        for thread in self._threads:
            thread.join()

    def kill_stub(self, model):
        """Send SIGKILL to the Python process of a model."""
        for process in psutil.Process(self.process.pid).children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                if any(model in word for word in process.cmdline()) and "stub" in process.name():
                    process.kill()
                    return
        raise AssertionError(f"{model} has no process")


class Service:
    """Provides the ready pods to clients. A change becomes visible after a second, as with kube-proxy.

    Attributes:
        pods: All pods, including those that are not ready.
    """

    DELAY_S = 1.0

    def __init__(self):
        self.pods = []
        self._seen = []
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._follow)
        self._thread.start()

    def _follow(self):
        while not self._ending.wait(self.DELAY_S):
            self._seen = [pod for pod in self.pods if pod.is_ready]

    def pick(self, rng: random.Random):
        """Return a random ready pod for one request, or None if no pod is ready."""
        seen = self._seen
        return rng.choice(seen) if seen else None

    def close(self):
        self._ending.set()
        self._thread.join()
