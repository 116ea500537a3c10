"""Assembles, starts, restarts and stops the embedded Triton, the server that the nvidia-pytriton wheel contains.

The server is Triton 2.51.0. By default, it listens only on the loopback interface. It serves a copy of the repository
(see ``snapshot``). HTTP and metrics requests pass through the front, a proxy process that rejects requests from
websites and requests that would crash Triton. Triton itself listens on two Unix sockets in a private folder.
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
from pixprep.serving.options import ServerOptions
from pixprep.serving.repository.repository import Repository
from pixprep.serving.triton import pool, probe
from pixprep.serving.triton.config import PIPELINE_FILE

if TYPE_CHECKING:
    from typing_extensions import Self

# APIs that are restricted, because a client could use them to write files or load code on this machine.
_ADMIN = "model-repository,logging,trace"
_SOCKETS = {"http": "http.sock", "metrics": "metrics.sock"}
"""Names of Triton's Unix sockets. The front connects to them."""
_CALLS = 4
"""Number of concurrent requests that one stub process can send to other models. Triton keeps a thread for each of these
requests, and the threads remain when the process dies. Triton's default is 32."""
_END_S = 3.0
"""Seconds that are reserved for the exit of Triton at the end of the grace period, because Triton checks its
connections only once per second."""
_PORTS_S = 5.0
"""Maximum number of seconds to wait until the ports of a killed Triton are free."""
_LOOK_S = 0.05
_READY_S, _MODEL_READY_S = 120.0, 10.0
"""Default time limit of a start in seconds, and additional seconds per model. On a busy machine, the start of 13
ensembles took more than 120 s."""


class State(Enum):
    """State of a server.

    The order of the states is ENDED, STARTING, SERVING, DRAINING, ENDED. During SERVING, there may be phases of
    HEALING.
    """

    STARTING = "Triton is starting for the first time and loads the models"
    SERVING = "Triton runs and every model is ready"
    HEALING = "Triton was ended and is being restarted"
    DRAINING = "requests in flight are completed and new ones are rejected"
    ENDED = "the server was not started, or has stopped completely"


@dataclass(eq=False, repr=False)
class Server(ServerOptions):
    """Embedded Triton server. As a context manager, it starts the server on entry and stops it on exit.

    The fields of ``ServerOptions`` are keyword arguments too.

    Args:
        model_repository: Repository to serve. It is copied at the start, and all of its models must load.
        backend_directory: Backend directory to use instead of the one that pixprep assembles.
        extra_args: Additional options for tritonserver. They must not disable the HTTP, gRPC or metrics endpoint.

    Attributes:
        snapshot: Served copy of the repository. It exists from ``start`` to ``stop``.
        control: Control interface of Triton, which ``start`` creates.
        log_file: Path of Triton's log, which ``start`` sets.
        state: Current state of the server.
    """

    model_repository: Path
    _: KW_ONLY
    backend_directory: Path | None = None
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
        """URL for HTTP requests, ``http://host:port``."""
        return f"http://{bracketed(self.host)}:{self._ports['http']}"

    @property
    def grpc_url(self) -> str:
        """Address for gRPC requests, ``host:port``."""
        return f"{bracketed(self.host)}:{self._ports['grpc']}"

    @property
    def metrics_url(self) -> str:
        """URL of the metrics, ``http://host:port/metrics``."""
        return f"http://{bracketed(self.host)}:{self._ports['metrics']}/metrics"

    @property
    def pipeline_models(self) -> list[str]:
        """Names of the models that have a pipeline file."""
        return sorted(Repository(self.snapshot.folder).pipelines)

    @property
    def ensembles(self) -> list[str]:
        """Names of the models that are ensembles."""
        return list(Repository(self.snapshot.folder).ensembles)

    @property
    def models_to_try(self) -> list[str]:
        """Names of the models in example commands: all ensembles, or one model with a pipeline if none exist."""
        return self.ensembles or self.pipeline_models[:1] or ["MODEL"]

    @property
    def curls(self) -> list[str]:
        """Example curl commands for all ``models_to_try`` whose only input is an encoded image or clip."""
        takes = {model: self.control.model_input(model) for model in self.models_to_try}
        return [
            curl_line(self.http_url, model, photo=CLIP if found and found.frames else PHOTO)
            for model, found in takes.items()
            if found and found.is_alone and not found.pixels
        ]

    @property
    def pid(self) -> int:
        """Process ID of Triton. It is also the ID of Triton's process group."""
        assert self._processes is not None
        return self._processes.pid

    def start(self, *, on_progress: Callable[[int, int], object] | None = None) -> None:
        """Start Triton and return when every model is ready.

        Args:
            on_progress: Function that is called with the number of loaded models and the total number of models.

        Raises:
            SetupError: The machine does not meet Triton's requirements, a port is in use, or Triton does not become
                ready in time.
            PixprepError: A model does not load. The error has one line for each such model.
        """
        assert self.state is State.ENDED
        self._check_arguments()
        check_machine(find_wheel())
        if self.backend_directory is not None:
            check_stub_folder(self.backend_directory.resolve(), "the backend directory", "backend_directory")
        self.state, self._keeps_log = State.STARTING, False
        try:
            with _os_errors_as_setup_errors():
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
            SetupError, PixprepError: See ``start``. After such an error, Triton is not running, and ``restart`` may be
                called again.
        """
        assert self.state in (State.SERVING, State.HEALING)
        assert self._processes is not None
        self.state = State.HEALING
        self._processes.kill()
        deadline = time.monotonic() + _PORTS_S
        while listeners(self._ports["grpc"]) and time.monotonic() < deadline:
            time.sleep(_LOOK_S)
        with _os_errors_as_setup_errors():
            self._launch(self._processes, timeout_s=self._patience_s)

    def stop(self, *, timeout_s: float | None = None) -> None:
        """Complete the requests in flight, end Triton, and remove its shared memory and temporary files.

        If Triton is idle, this takes 2 to 4 s, because Triton checks only once per second whether its connections are
        closed and its models are unloaded.

        Args:
            timeout_s: Maximum duration in seconds. After this time, open requests are aborted. Default: ``grace_s``.
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
        """Return Triton's exit code if Triton has exited or exits within this time, or else None.

        After ``stop``, the result is 0. This method is thread-safe.
        """
        processes = self._processes
        return 0 if processes is None else processes.poll(within_s=within_s)

    def keep_guard(self) -> None:
        """Restart the guard process if it was killed. The guard cleans up after Triton if this process is killed."""
        if self._processes is not None:
            self._processes.keep_guard()

    def load(self, model: str, *, over: Event | None = None) -> str:
        """Load a model again from the snapshot.

        Args:
            model: Name of the model.
            over: Event that is set when Triton is about to exit.

        Returns:
            An empty string if the model was loaded, or the reason why it was not.

        Raises:
            TimeoutError: The load did not finish, and this Triton cannot load the model any more.
            ConnectionError: Triton has exited, or is about to exit.
        """
        self.snapshot.touch(model)
        launches = Launches(self.pid, self._prefix)

        def look() -> None:
            if over is not None and over.is_set():
                raise ConnectionError("Triton is about to end")
            if not launches.stuck().isdisjoint({model, ""}):
                raise TimeoutError(
                    f"Triton cannot finish loading model {model}: {died(launches.deaths.get(model, ''))}"
                )

        error = self.control.load(model, timeout_s=self._patience_s, meanwhile=look)
        return died(launches.deaths.get(model, "")) if error == DIED else error

    @property
    def _patience_s(self) -> float:
        """Time limit in seconds for loading a model again, which is a multiple of the duration of the start."""
        return max(20.0, 5 * self._start_s)

    def _start_front(self, folder: Path) -> None:
        """Bind the HTTP and metrics ports, and start the front. The ports do not listen yet.

        ``folder`` is the folder of Triton's Unix sockets.
        """
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
            "--model-control-mode=explicit",  # so that the supervisor can reload a model whose process has died
            "--load-model=*",
            "--exit-timeout-secs=1",  # applies only to idle connections, because ``stop`` has waited for the requests
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
                folder=folder / "cwd",  # the first entry of sys.path in stub processes must not contain a model.py
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
        launches, log_hint = Launches(self.pid, self._prefix), f"Triton's complete log: {self.log_file}"
        while time.monotonic() < deadline:
            if (code := self.poll()) is not None:
                error = failure(self._log(), code, files=max_files(), deaths=launches.deaths)
                raise type(error)(*error.args, log_hint)
            # Check that the process on the gRPC port is this Triton, after the metrics endpoint, which starts last.
            metrics = self.snapshot.folder.parent / "cwd" / _SOCKETS["metrics"]
            if self.control.is_ready() and self.pid in listeners(self._ports["grpc"]) and metrics.exists():
                on_progress(len(models), len(models))
                return
            stuck = launches.stuck()
            if lost := [name for name in still_loading(self._log()) if stuck & {name, ""}]:
                how = died(launches.deaths.get(lost[0], ""))
                raise PixprepError(f'model "{lost[0]}" does not load: {how}', *last_words(self._log()), log_hint)
            on_progress(len(loaded(self._log())), len(models))
            time.sleep(_LOOK_S)
        names = ", ".join(f'"{name}"' for name in still_loading(self._log()))
        progress = f"{len(loaded(self._log()))} of {len(models)} models loaded" + (
            f", still loading {names}" if names else ""
        )
        raise SetupError(
            f"Triton was not ready after {timeout_s:g} s ({progress}): to wait longer, pass --ready-timeout; {log_hint}"
        )

    def _log(self) -> str:
        """Return the log of the Triton process that was started last."""
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
            raise SetupError(f"{self.model_repository} is a file: pass the folder of a model repository")
        if not self.model_repository.is_dir():
            raise SetupError(f"{self.model_repository}: no such folder: write a model repository with `pixprep build`")
        self._address = resolve(self.host)
        if not is_loopback(self._address) and not self.allow_remote:
            raise SetupError(
                f"other machines can reach host {self.host}, and this Triton (2.51.0) lacks later security fixes: "
                "use 127.0.0.1, or pass --allow-remote"
            )
        if not is_loopback(self._address) and self.allow_shared_memory:
            raise SetupError(
                f"other machines can reach host {self.host}, and shared memory is only for clients on this machine: "
                "use 127.0.0.1, or remove --allow-shared-memory"
            )
        self._ports = check_ports(self._address, self._ports)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


@contextmanager
def _os_errors_as_setup_errors() -> Iterator[None]:
    """Convert an OSError inside the block to a SetupError."""
    try:
        yield
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        raise SetupError(f"Triton cannot be started: {where}{error.strerror}") from None
