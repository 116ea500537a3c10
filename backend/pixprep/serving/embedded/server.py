"""The embedded Triton: assembles, starts, restarts and stops the server inside the nvidia-pytriton wheel.

The server is Triton 2.51.0. By default it listens only on this machine. It reads a copy of the repository
(``snapshot``). HTTP and metrics requests pass through the front, a process that rejects requests from websites and
requests that crash Triton. Triton's own two HTTP sockets are in a private folder of this user.
"""

from __future__ import annotations

import json
import socket
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, field
from enum import Enum
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

from pixprep.errors import PixprepError, SetupError
from pixprep.serving.embedded.addresses import bracketed, check_ports, claim, is_loopback, listen, listeners, resolve
from pixprep.serving.embedded.control import KEY_HEADER, Control
from pixprep.serving.embedded.failure import DIED, died, failure, last_words, loaded, still_loading
from pixprep.serving.embedded.helper import Helper
from pixprep.serving.embedded.processes import Processes, hide
from pixprep.serving.embedded.request import CLIP, PHOTO, curl_line
from pixprep.serving.embedded.snapshot import Snapshot
from pixprep.serving.embedded.stubs import Launches
from pixprep.serving.embedded.wheel import (
    assemble_backends,
    check_machine,
    check_stub_folder,
    environment,
    find_wheel,
    max_files,
)
from pixprep.serving.repository.repository import Repository
from pixprep.serving.triton import pool, probe
from pixprep.serving.triton.config import PIPELINE_FILE

if TYPE_CHECKING:
    from typing_extensions import Self

# Protocols with which a client could write files or load code on this machine.
_ADMIN = "model-repository,logging,trace"
_SOCKETS = {"http": "http.sock", "metrics": "metrics.sock"}
"""Triton's own sockets. The front connects to them."""
_CALLS = 4
"""Number of requests that one process of a user's Python model may send to other models concurrently. Each needs a
thread in Triton, which remains when the process dies; Triton's default is 32."""
_END_S = 3.0
"""Seconds of the grace period for Triton to exit after its last response; it checks its connections once a second."""
_PORTS_S = 5.0
"""Maximum seconds to wait until the ports of a killed Triton are free."""
_LOOK_S = 0.05
_READY_S, _MODEL_READY_S = 120.0, 10.0
"""Default time limit of a start, and the additional time per model: 13 ensembles took over 120 s on a busy machine."""


class State(Enum):
    """State of a server: ENDED, STARTING, SERVING (at times HEALING), DRAINING, and ENDED again."""

    STARTING = "a first Triton loads the models"
    SERVING = "it has them all"
    HEALING = "it was ended, and another one loads them"
    DRAINING = "what is in flight is answered, and what comes is refused"
    ENDED = "nothing is left, or nothing was ever started"


@dataclass(eq=False, repr=False)
class Server:
    """One embedded Triton; a context manager that starts it, and on exit removes its processes and temporary files.

    Args:
        model_repository: Repository to serve, as it is when the server starts; every model in it must load.
        host: Address to listen on.
        allow_remote: Allow a ``host`` that other machines can reach.
        allow_shared_memory: Allow clients on this machine to register shared memory. Such a client can crash Triton:
            reading memory that its owner has truncated raises SIGBUS.
        allow_hosts: Names of this server in the ``Host`` of requests, besides its address and localhost; pages of
            these hosts may send requests. If the server is open to other machines, the default is any.
        http_max_input_size: Maximum number of bytes of the body of a request over HTTP.
        http_port, grpc_port, metrics_port: Ports to listen on; 0: any free port.
        log_file: File for Triton's log; default: a temporary file, deleted at the end unless Triton failed.
        backend_directory: Backend directory to use instead of the one that pixprep assembles.
        images_in_flight: Number of images for which the CUDA memory pool is sized, on a GPU; default: Triton's own
            64 MiB.
        trace_url: URL of an OpenTelemetry collector that accepts OTLP over HTTP; default: no request is traced.
        trace_rate: One of this number of requests is traced; every request with a ``traceparent`` is traced.
        ready_timeout_s: Maximum number of seconds of a start; default: 120, plus 10 for each model.
        grace_s: Maximum number of seconds of ``stop``; all but the last 3 s are for requests in flight.
        extra_args: Additional options for tritonserver; they must not turn off one of its three endpoints.

    Attributes:
        snapshot: Copy of the repository that is served, from ``start`` to ``stop``.
        control: Control interface of Triton, set by ``start``.
        log_file: Log file of Triton, set by ``start``. A temporary one is deleted by ``stop`` unless Triton failed.
    """

    model_repository: Path
    _: KW_ONLY
    host: str = "127.0.0.1"
    allow_remote: bool = False
    allow_shared_memory: bool = False
    allow_hosts: Sequence[str] = ()
    http_max_input_size: int = 96 << 20
    http_port: int = 8000
    grpc_port: int = 8001
    metrics_port: int = 8002
    log_file: Path | None = None
    backend_directory: Path | None = None
    images_in_flight: int | None = None
    trace_url: str | None = None
    trace_rate: int = 100
    ready_timeout_s: float | None = None
    grace_s: float = 10.0
    extra_args: Sequence[str] = ()

    snapshot: Snapshot = field(init=False)
    control: Control = field(init=False)
    state: State = field(default=State.ENDED, init=False)
    _processes: Processes | None = field(default=None, init=False)
    _front: Helper | None = field(default=None, init=False)
    _sockets: dict[str, socket.socket] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self._ports = {"http": self.http_port, "grpc": self.grpc_port, "metrics": self.metrics_port}
        self._address = ""
        self._prefix = f"pixprep_{uuid.uuid4().hex[:12]}"
        self._has_own_log = self.log_file is None
        self._log_begin = 0
        self._keeps_log = False
        self._start_s = 0.0

    @property
    def http_url(self) -> str:
        """``http://host:port``."""
        return f"http://{bracketed(self.host)}:{self._ports['http']}"

    @property
    def grpc_url(self) -> str:
        """``host:port``."""
        return f"{bracketed(self.host)}:{self._ports['grpc']}"

    @property
    def metrics_url(self) -> str:
        """``http://host:port/metrics``."""
        return f"http://{bracketed(self.host)}:{self._ports['metrics']}/metrics"

    @property
    def pipeline_models(self) -> list[str]:
        """Names of the models that have a pipeline; their inputs are an image, and possibly numbers."""
        return sorted(Repository(self.snapshot.folder).pipelines)

    @property
    def ensembles(self) -> list[str]:
        """Names of the models that are ensembles."""
        return list(Repository(self.snapshot.folder).ensembles)

    @property
    def models_to_try(self) -> list[str]:
        """Names of all ensembles; without any ensemble, the name of the first model with a pipeline."""
        return self.ensembles or self.pipeline_models[:1] or ["MODEL"]

    @property
    def curls(self) -> list[str]:
        """Example curl commands for each model to try whose only input is an encoded image."""
        takes = {model: self.control.model_input(model) for model in self.models_to_try}
        return [
            curl_line(self.http_url, model, photo=CLIP if found and found.frames else PHOTO)
            for model, found in takes.items()
            if found and found.is_alone and not found.pixels
        ]

    @property
    def pid(self) -> int:
        """Process ID of Triton, which is also its process group."""
        assert self._processes is not None
        return self._processes.pid

    def start(self, *, on_progress: Callable[[int, int], object] | None = None) -> None:
        """Start Triton and return when every model is ready.

        Args:
            on_progress: Function that is called with the number of loaded models, and the number of all models.

        Raises:
            SetupError: The machine is not suitable, a port is in use, or Triton does not become ready in time.
            PixprepError: A model does not load; the error has one line for each such model.
        """
        assert self.state is State.ENDED
        self._check_arguments()
        check_machine(find_wheel())
        if self.backend_directory is not None:
            check_stub_folder(self.backend_directory.resolve(), "the folder of the backends", "backend_directory")
        self.state, self._keeps_log = State.STARTING, False
        try:
            with _said():
                self._make_log()
                self._processes = Processes(self._prefix)
                folder = self._processes.folder
                self.control = Control(folder / "cwd" / _SOCKETS["http"], self._address, self._ports)
                self.snapshot = Snapshot(self.model_repository.resolve(), folder / "models")
                if self.backend_directory is None:
                    assemble_backends(folder / "backends")
                (folder / "cwd").mkdir()
                self._start_front(folder / "cwd")
                began_at = time.monotonic()
                timeout_s = self.ready_timeout_s or _READY_S + _MODEL_READY_S * len(self.snapshot.hashes)
                self._launch(self._processes, timeout_s=timeout_s, on_progress=on_progress)
                self._start_s = time.monotonic() - began_at
                for name, claimed in self._sockets.items():
                    listen(claimed, name)
        except BaseException:
            self.stop()
            raise

    def restart(self) -> None:
        """Kill Triton and start it again on the same ports, with the models of the snapshot.

        Raises:
            SetupError, PixprepError: As for ``start``. Triton does not run then; ``restart`` may be called again.
        """
        assert self.state in (State.SERVING, State.HEALING)
        assert self._processes is not None
        self.state = State.HEALING
        self._processes.kill()
        deadline = time.monotonic() + _PORTS_S
        while listeners(self._ports["grpc"]) and time.monotonic() < deadline:
            time.sleep(_LOOK_S)
        with _said():
            self._launch(self._processes, timeout_s=self._patience_s)

    def stop(self, *, timeout_s: float | None = None) -> None:
        """Finish the requests in flight, then end Triton, and remove its shared memory and temporary files.

        An idle Triton needs 2 to 4 s, because it checks once a second whether its connections and models have ended.

        Args:
            timeout_s: Maximum number of seconds, after which open requests are aborted. Default: the grace period.
        """
        timeout_s = self.grace_s if timeout_s is None else timeout_s
        end_at = time.monotonic() + timeout_s
        before, self.state = self.state, State.DRAINING
        if self._processes is not None:
            self._keeps_log |= self.poll() is not None
            try:
                if before is State.SERVING:
                    self.control.drain(end_at - min(_END_S, timeout_s / 2))
                    self._processes.end(until=end_at)
            finally:
                self._processes.close()
                self._processes = None
        if self._front is not None:
            self._front.close()
            self._front = None
        while self._sockets:
            self._sockets.popitem()[1].close()
        if self._has_own_log and not self._keeps_log and self.log_file:
            self.log_file.unlink(missing_ok=True)
        self.state = State.ENDED

    def poll(self, *, within_s: float = 0.0) -> int | None:
        """Return Triton's exit code if it ends in time, 0 after ``stop``, and None while it runs. Thread-safe."""
        processes = self._processes
        return 0 if processes is None else processes.poll(within_s=within_s)

    def keep_guard(self) -> None:
        """Start the guard process again if it was killed. The guard ends Triton when this process is killed."""
        if self._processes is not None:
            self._processes.keep_guard()

    def load(self, model: str, *, over: Event | None = None) -> str:
        """Load a model again from the snapshot. Returns the reason if it does not load, or an empty text.

        Args:
            model: Name of the model.
            over: Event that is set when Triton is about to end.

        Raises:
            TimeoutError: Triton did not respond, and will not load this model until it is restarted.
            ConnectionError: Triton has ended, or is about to end.
        """
        self.snapshot.touch(model)
        launches = Launches(self.pid, self._prefix)

        def look() -> None:
            if over is not None and over.is_set():
                raise ConnectionError("Triton is about to end")
            if not launches.stuck().isdisjoint({model, ""}):
                raise TimeoutError(
                    f"Triton does not finish loading model {model}: {died(launches.deaths.get(model, ''))}"
                )

        error = self.control.load(model, timeout_s=self._patience_s, meanwhile=look)
        return died(launches.deaths.get(model, "")) if error == DIED else error

    @property
    def _patience_s(self) -> float:
        """Time limit in seconds for loading one or all models: a multiple of the time that the start took."""
        return max(20.0, 5 * self._start_s)

    def _start_front(self, folder: Path) -> None:
        """Start the front and wait until its ports listen; ``folder`` contains Triton's sockets."""
        own = {"localhost", self.host.lower(), *(name.lower() for name in self.allow_hosts)}
        is_any = not is_loopback(self._address) and not self.allow_hosts
        rules = {"names": None if is_any else sorted(own), "limit_bytes": self.http_max_input_size}
        self._sockets = {name: claim(self._address, self._ports[name], name) for name in _SOCKETS}
        self._front = Helper("front", "pixprep.serving.front", [*self._sockets.values()])
        sockets = [(claimed.fileno(), _SOCKETS[name]) for name, claimed in self._sockets.items()]
        self._front.start(json.dumps(sockets), json.dumps({**rules, "folder": str(folder)}))

    def _launch(
        self, processes: Processes, *, timeout_s: float, on_progress: Callable[[int, int], object] | None = None
    ) -> None:
        """Start a Triton process and wait until it is ready."""
        wheel, folder = find_wheel(), processes.folder
        assert self.log_file
        closed = _ADMIN if self.allow_shared_memory else f"{_ADMIN},shared-memory"
        closed = f"{closed}:{KEY_HEADER}={self.control.key}"
        for name in _SOCKETS.values():
            (folder / "cwd" / name).unlink(missing_ok=True)
        traced = {
            "mode": "opentelemetry",
            "level": "TIMESTAMPS",
            "rate": self.trace_rate,
            "opentelemetry,url": self.trace_url,
            "opentelemetry,resource": "service.name=pixprep",
        }
        pool_options, variables = [], {}
        if self.images_in_flight and (gpus := pool.gpu_count()):
            models = Repository(self.snapshot.folder).models.values()
            served = [version for model in models for version in model.served.values() if version.has(PIPELINE_FILE)]
            pipelines = [version.pipeline for version in served]
            n_bytes = pool.size(pipelines, images_in_flight=self.images_in_flight)
            pool_options, variables = pool.options(n_bytes, gpus=gpus), pool.variables(n_bytes)
        command = [
            str(wheel.server),
            f"--model-repository={self.snapshot.folder}",
            f"--backend-directory={(self.backend_directory or folder / 'backends').resolve()}",
            f"--backend-config=python,shm-region-prefix-name={self._prefix}",
            f"--backend-config=python,thread-pool-size={_CALLS}",
            *(f"--{name}-address=unix:{file}" for name, file in _SOCKETS.items()),
            f"--grpc-address={bracketed(self._address)}",
            *(f"--{name}-port={port}" for name, port in self._ports.items()),
            "--model-control-mode=explicit",  # a client with the key can reload a model whose process died
            "--load-model=*",
            "--exit-timeout-secs=1",  # only for idle connections; ``stop`` waits for requests itself
            "--allow-vertex-ai=false",
            "--allow-sagemaker=false",
            f"--http-restricted-api={closed}",
            f"--grpc-restricted-protocol={closed}",
            f"--http-header-forward-pattern={probe.HEADER}",
            *pool_options,
            *(f"--trace-config={name}={value}" for name, value in traced.items() if self.trace_url),
            *self.extra_args,
        ]
        with self.log_file.open("ab") as log:
            self._log_begin = log.tell()
            processes.start(
                command,
                environment=environment(wheel) | variables | {probe.VARIABLE: self.control.mark},
                folder=folder / "cwd",  # first entry of the stub's sys.path: must not contain a model.py
                log=log,
            )
        try:
            self._wait_until_ready(timeout_s, on_progress or (lambda *_: None))
        except PixprepError:
            self._keeps_log = True
            raise
        hide(self.pid, self.control.key)
        self.state = State.SERVING

    def _wait_until_ready(self, timeout_s: float, on_progress: Callable[[int, int], object]) -> None:
        models = self.snapshot.hashes
        deadline = time.monotonic() + timeout_s
        launches, whole = Launches(self.pid, self._prefix), f"Triton's whole log: {self.log_file}"
        while time.monotonic() < deadline:
            if (code := self.poll()) is not None:
                error = failure(self._log(), code, files=max_files(), deaths=launches.deaths)
                raise type(error)(*error.args, whole)
            # A different server that took the port meanwhile would also respond; metrics start after HTTP.
            metrics = self.snapshot.folder.parent / "cwd" / _SOCKETS["metrics"]
            if self.control.is_ready() and self.pid in listeners(self._ports["grpc"]) and metrics.exists():
                on_progress(len(models), len(models))
                return
            stuck = launches.stuck()
            if lost := [name for name in still_loading(self._log()) if stuck & {name, ""}]:
                how = died(launches.deaths.get(lost[0], ""))
                raise PixprepError(f'model "{lost[0]}" does not load: {how}', *last_words(self._log()), whole)
            on_progress(len(loaded(self._log())), len(models))
            time.sleep(_LOOK_S)
        names = ", ".join(f'"{name}"' for name in still_loading(self._log()))
        what = f"{len(loaded(self._log()))} of {len(models)} models are loaded" + (f", not {names}" if names else "")
        raise SetupError(f"Triton was not ready after {timeout_s:g} s ({what}): --ready-timeout waits longer; {whole}")

    def _log(self) -> str:
        """Return the log of the running Triton so far."""
        assert self.log_file
        with self.log_file.open("rb") as log:
            log.seek(self._log_begin)
            return log.read().decode(errors="replace")

    def _make_log(self) -> None:
        try:
            if self._has_own_log:
                with tempfile.NamedTemporaryFile(prefix="pixprep-", suffix=".log", delete=False) as file:
                    self.log_file = Path(file.name)
            elif self.log_file:
                self.log_file.write_bytes(b"")
        except OSError as error:
            raise SetupError(f"--log-file {error.filename}: cannot be written: {error.strerror}") from None

    def _check_arguments(self) -> None:
        if self.model_repository.is_file():
            raise SetupError(f"{self.model_repository}: is a file, not a model repository: pixprep build writes one")
        if not self.model_repository.is_dir():
            raise SetupError(f"{self.model_repository}: no such model repository: make the demo's with pixprep build")
        self._address = resolve(self.host)
        if not is_loopback(self._address) and not self.allow_remote:
            raise SetupError(
                f"host {self.host} is open to other machines, and this Triton (2.51.0) lacks later security fixes: "
                "use 127.0.0.1, or say --allow-remote"
            )
        if not is_loopback(self._address) and self.allow_shared_memory:
            raise SetupError(
                f"host {self.host} is open to other machines, and shared memory is for clients on this one: "
                "use 127.0.0.1, or leave --allow-shared-memory out"
            )
        self._ports = check_ports(self._address, self._ports)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


@contextmanager
def _said() -> Iterator[None]:
    """Convert an OSError to a SetupError."""
    try:
        yield
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        raise SetupError(f"{where}{error.strerror}: Triton cannot be started") from None
