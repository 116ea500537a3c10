"""The embedded Triton: the real server inside the nvidia-pytriton wheel, assembled, started, watched and stopped.

For development, CI and a single trusted host: it is Triton 2.51.0, and listens on this machine only unless told.

    tritonserver    leads a process group of its own, with a Python stub for each instance of a Python model
    sh, the guard   waits for us to end: SIGKILL and a closed terminal leave no time to stop anything ourselves

Triton reads a copy of the repository (``snapshot``), which is also what it reads when it is started anew.
"""

from __future__ import annotations

import http.client
import json
import logging
import os
import re
import shlex
import signal
import subprocess
import tempfile
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

import numpy as np

from pixprep.decoders.cpu import sample_jpeg
from pixprep.errors import PixprepError, SetupError
from pixprep.serve import cuda_pool
from pixprep.serve.failure import failure, still_loading
from pixprep.serve.ports import bracketed, check_ports, is_loopback, listeners, resolve, unsent
from pixprep.serve.request import ModelInput, http_body, model_input
from pixprep.serve.snapshot import Snapshot
from pixprep.serve.stubs import Launches
from pixprep.serve.wheel import SHARED_MEMORY, Wheel, assemble_backends, check_machine, environment, find_wheel
from pixprep.triton import probe
from pixprep.triton.config import pipeline_files

if TYPE_CHECKING:
    from typing_extensions import Self

_logger = logging.getLogger(__name__)

# Ends the process group that was named last as soon as nobody holds the other end of stdin, and removes what is left.
_GUARD = 'while read -r line; do group=$line; done; [ "$group" ] && kill -s KILL -- "-$group"; rm -rf "$1"* "$2"'
# What lets a client write files or load code on this machine.
_SIDE = 64  # of a sample
# Requests that one process of a user's Python model may have at other models at once. Each is a thread, which Triton
# keeps when the process dies; by default there are 32.
_CALLS = 4
_ADMIN = "model-repository,logging,trace"
_SHARED_MEMORY = "shared-memory"
_KEY_HEADER = "admin-key"
_ENSEMBLE = re.compile(r'^\s*platform:\s*"ensemble"', re.MULTILINE)
GRACE_S = 10.0
PHOTO, CLIP = "photo.jpg", "clip.mp4"
"""Of a line that is an example."""
_END_S = 3.0
"""Of the grace period, for Triton to end after its last answer: it looks once a second whether its connections have."""


class Sample(NamedTuple):
    """The body of a request over HTTP, and how much of it is JSON."""

    body: bytes
    header_bytes: int


class Server:
    """One embedded Triton; a context manager that starts it and leaves nothing behind.

    Args:
        model_repository: what to serve, as it is when the server starts; every model in it must load.
        host: the address to listen on.
        allow_remote: let ``host`` be more than this machine.
        allow_shared_memory: let clients on this machine register shared memory, and with it end Triton: reading what
            its owner has cut off is SIGBUS.
        http_port, grpc_port, metrics_port: 0: any free one.
        log_file: of Triton; default: a temporary file, deleted at the end unless Triton failed.
        backend_directory: in place of the one that is assembled.
        images_in_flight: on a GPU: sizes the CUDA memory pool for them; default: Triton's own 64 MiB.
        trace_url: of an OpenTelemetry collector that takes OTLP over HTTP; default: no request is traced.
        trace_rate: one of so many requests is traced; of those with a ``traceparent``, each.
        grace_s: how long ``stop`` takes at most; all but the last 3 s are for requests in flight.
        extra_args: further options for tritonserver; its three endpoints must stay on.
    """

    def __init__(
        self,
        model_repository: Path,
        *,
        host: str = "127.0.0.1",
        allow_remote: bool = False,
        allow_shared_memory: bool = False,
        http_port: int = 8000,
        grpc_port: int = 8001,
        metrics_port: int = 8002,
        log_file: Path | None = None,
        backend_directory: Path | None = None,
        images_in_flight: int | None = None,
        trace_url: str | None = None,
        trace_rate: int = 100,
        grace_s: float = GRACE_S,
        extra_args: Sequence[str] = (),
    ) -> None:
        self._repository = model_repository
        self._host = host
        self._address = ""
        self._allow_remote = allow_remote
        self._allow_shared_memory = allow_shared_memory
        self._ports = {"http": http_port, "grpc": grpc_port, "metrics": metrics_port}
        self._backends = backend_directory
        self._images_in_flight = images_in_flight
        self._trace = _trace_options(trace_url, trace_rate) if trace_url else []
        self._grace_s = grace_s
        self._extra_args = extra_args
        self._key, self._probe = uuid.uuid4().hex, uuid.uuid4().hex
        self._prefix = f"pixprep_{uuid.uuid4().hex[:12]}"
        self._given_log_file = log_file
        self._log_file = log_file
        self._log_begin = 0
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._snapshot: Snapshot | None = None
        self._start_s = 0.0
        self._process: subprocess.Popen[bytes] | None = None
        self._pid: int | None = None
        self._guard: subprocess.Popen[bytes] | None = None
        self._has_failed = False

    @property
    def http_url(self) -> str:
        """``http://host:port``."""
        return f"http://{bracketed(self._host)}:{self._ports['http']}"

    @property
    def grpc_url(self) -> str:
        """``host:port``."""
        return f"{bracketed(self._host)}:{self._ports['grpc']}"

    @property
    def metrics_url(self) -> str:
        """``http://host:port/metrics``."""
        return f"http://{bracketed(self._host)}:{self._ports['metrics']}/metrics"

    @property
    def pipeline_models(self) -> list[str]:
        """The models that have a pipeline: they take an image, and perhaps numbers."""
        return sorted({path.parents[1].name for path in pipeline_files(self.snapshot.folder)})

    @property
    def ensembles(self) -> list[str]:
        """The models that are ensembles."""
        configs = sorted(self.snapshot.folder.glob("*/config.pbtxt"))
        return [path.parent.name for path in configs if _ENSEMBLE.search(path.read_text(errors="replace"))]

    @property
    def models_to_try(self) -> list[str]:
        """Each ensemble, or else the first model that has a pipeline."""
        return self.ensembles or self.pipeline_models[:1] or ["MODEL"]

    @property
    def curls(self) -> list[str]:
        """The command lines to try, of each model to try that takes the bytes of an image, and nothing else."""
        files = [model for model in self.models_to_try if not self.sample(model).header_bytes]
        clips = [model for model in files if (found := self.model_input(model)) and found.frames]
        return [curl_line(self.http_url, model, photo=CLIP if model in clips else PHOTO) for model in files]

    @property
    def snapshot(self) -> Snapshot:
        """What is served; there is one from ``start`` to ``stop``."""
        assert self._snapshot is not None
        return self._snapshot

    @property
    def log_file(self) -> Path:
        """Where Triton's log is; if it was not given, gone after ``stop`` unless Triton failed."""
        assert self._log_file is not None
        return self._log_file

    @property
    def pid(self) -> int:
        """Triton's process, which leads a process group of its own."""
        assert self._pid is not None
        return self._pid

    def start(self, *, timeout_s: float = 120) -> None:
        """Start Triton and return when every model is ready.

        Raises:
            SetupError: the machine is not fit, a port is taken, or Triton does not become ready in time.
            PixprepError: a model does not load; one line for each.
        """
        assert self._process is None
        self._check_arguments()
        wheel = find_wheel()
        check_machine(wheel)
        self._has_failed = False
        self._folder = tempfile.TemporaryDirectory(prefix="pixprep-")
        folder = Path(self._folder.name)
        try:
            self._guard = subprocess.Popen(
                ["/bin/sh", "-c", _GUARD, "sh", str(SHARED_MEMORY / self._prefix), str(folder)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            self._snapshot = Snapshot(self._repository.resolve(), folder / "models")
            if self._backends is None:
                assemble_backends(folder / "backends")
            (folder / "cwd").mkdir()
            self._make_log()
            began_at = time.monotonic()
            self._launch(folder, timeout_s=timeout_s)
            self._start_s = time.monotonic() - began_at
        except OSError as error:
            self.stop()
            raise SetupError(f"{error.filename}: {error.strerror}: Triton cannot be started") from None
        except BaseException:
            self.stop()
            raise

    @property
    def patience_s(self) -> float:
        """How long a model that loads, or all of them, may take: several times what the start took."""
        return max(20.0, 5 * self._start_s)

    def restart(self) -> None:
        """End Triton at once and start it anew: on the same ports, with the models of the snapshot.

        Raises:
            SetupError, PixprepError: as ``start``. Then there is no Triton; ``restart`` may be tried again.
        """
        assert self._process is not None
        assert self._folder is not None
        self._kill()
        try:
            self._launch(Path(self._folder.name), timeout_s=self.patience_s)
        except OSError as error:
            raise SetupError(f"{error.filename}: {error.strerror}: Triton cannot be started") from None

    def _launch(self, folder: Path, *, timeout_s: float) -> None:
        """Start a Triton and wait until it is ready."""
        wheel = find_wheel()
        pool_options, variables = self._cuda_pool()
        with self.log_file.open("ab") as log:
            self._log_begin = log.tell()
            self._process = subprocess.Popen(
                [*self.command(wheel, self.snapshot.folder, self._backends or folder / "backends"), *pool_options],
                env=environment(wheel) | variables | {probe.VARIABLE: self._probe},
                cwd=folder / "cwd",  # the stub's sys.path begins with it: it must hold no model.py
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C reaches us alone; the group is ours to end
            )
        self._pid = self._process.pid
        self._tell_guard(str(self.pid))
        self._wait_until_ready(timeout_s)
        _hide(self.pid, self._key)

    def _kill(self) -> None:
        """End Triton and its stubs, and remove what they leave. Whoever keeps a port from the next Triton has 5 s."""
        assert self._process is not None
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._tell_guard("")
        for region in SHARED_MEMORY.glob(f"{self._prefix}*"):
            region.unlink(missing_ok=True)
        deadline = time.monotonic() + 5
        while any(map(listeners, self._ports.values())) and time.monotonic() < deadline:
            time.sleep(0.05)

    def _tell_guard(self, group: str) -> None:
        assert self._guard is not None
        assert self._guard.stdin is not None
        self._guard.stdin.write(f"{group}\n".encode())
        self._guard.stdin.flush()

    def _cuda_pool(self) -> tuple[list[str], dict[str, str]]:
        """Triton's options that size its memory pools, and the variables that tell the backend."""
        if not self._images_in_flight or not (gpus := cuda_pool.gpu_count()):
            return [], {}
        n_bytes = cuda_pool.size(self.snapshot.folder, images_in_flight=self._images_in_flight)
        return cuda_pool.options(n_bytes, gpus=gpus), cuda_pool.variables(n_bytes)

    def _make_log(self) -> None:
        try:
            self._open_log().close()
        except OSError as error:
            raise SetupError(f"--log-file {error.filename}: cannot be written: {error.strerror}") from None

    def _open_log(self) -> IO[bytes]:
        if self._given_log_file is None:
            number, name = tempfile.mkstemp(prefix="pixprep-", suffix=".log")
            self._log_file = Path(name)
            return os.fdopen(number, "wb")
        return self._given_log_file.open("wb")

    def command(self, wheel: Wheel, repository: Path, backends: Path) -> list[str]:
        """The command line of tritonserver."""
        is_ipv6 = ":" in self._address
        http_address = f"ipv6:{self._address}" if is_ipv6 else self._address
        admin = _ADMIN if self._allow_shared_memory else f"{_ADMIN},{_SHARED_MEMORY}"
        restricted = f"{admin}:{_KEY_HEADER}={self._key}"
        return [
            str(wheel.server),
            f"--model-repository={repository}",
            f"--backend-directory={backends.resolve()}",
            f"--backend-config=python,shm-region-prefix-name={self._prefix}",
            f"--backend-config=python,thread-pool-size={_CALLS}",
            f"--http-address={http_address}",
            f"--grpc-address={bracketed(self._address)}",
            f"--metrics-address={http_address}",
            *(f"--{name}-port={port}" for name, port in self._ports.items()),
            "--model-control-mode=explicit",  # a model whose process died can be loaded again, by who has the key
            "--load-model=*",
            "--exit-timeout-secs=1",  # for connections that idle: ``stop`` has waited for requests before
            "--allow-vertex-ai=false",
            "--allow-sagemaker=false",
            f"--http-restricted-api={restricted}",
            f"--grpc-restricted-protocol={restricted}",
            f"--http-header-forward-pattern={probe.HEADER}",
            *self._trace,
            *self._extra_args,
        ]

    def _check_arguments(self) -> None:
        if self._repository.is_file():
            raise SetupError(f"{self._repository}: is a file, not a model repository: pixprep build writes one")
        if not self._repository.is_dir():
            raise SetupError(f"{self._repository}: no such model repository: make the demo's with pixprep build")
        self._address = resolve(self._host)
        if not is_loopback(self._address) and not self._allow_remote:
            raise SetupError(
                f"host {self._host} is open to other machines, and this Triton (2.51.0) lacks later security fixes: "
                "use 127.0.0.1, or say --allow-remote"
            )
        if not is_loopback(self._address) and self._allow_shared_memory:
            raise SetupError(
                f"host {self._host} is open to other machines, and shared memory is for clients on this one: "
                "use 127.0.0.1, or leave --allow-shared-memory out"
            )
        self._ports = check_ports(self._address, self._ports)

    def _wait_until_ready(self, timeout_s: float) -> None:
        assert self._process is not None
        deadline = time.monotonic() + timeout_s
        launches = Launches(self.pid, self._prefix)
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                error = failure(self._log(), self._process.returncode)
                raise type(error)(*error.args, f"Triton's whole log: {self.log_file}")
            if self._is_ready():
                return
            if (stuck := launches.stuck()) and (loading := still_loading(self._log())):
                lost = loading if "" in stuck else [name for name in loading if name in stuck]
                if lost:
                    self._has_failed = True
                    raise PixprepError(
                        f'model "{lost[0]}" does not load: its Python process ended while it loaded (a crash, an exit, '
                        "or no memory left)",
                        f"Triton's whole log: {self.log_file}",
                    )
            time.sleep(0.05)
        self._has_failed = True
        loading = still_loading(self._log())
        names = ", ".join(f'"{name}"' for name in loading)
        what = f"still loading {names}" if loading else "every model is loaded"
        raise SetupError(f"Triton was not ready after {timeout_s:g} s ({what}); its whole log: {self.log_file}")

    def _log(self) -> str:
        """What the present Triton has written so far."""
        with self.log_file.open("rb") as log:
            log.seek(self._log_begin)
            return log.read().decode(errors="replace")

    def _is_ready(self) -> bool:
        is_ready = self._ask("GET", "/v2/health/ready", timeout_s=2)[0] == 200
        # Whoever took a port since we looked would answer as well; and metrics start after HTTP.
        return is_ready and all(self.pid in listeners(port) for port in self._ports.values())

    def control(self, path: str, *, timeout_s: float = 120) -> tuple[int, bytes]:
        """Ask the model repository API, which is open to this object alone: ``index``, ``models/NAME/load``.

        Returns:
            The HTTP status and body; 0 if there was no answer.
        """
        headers = {_KEY_HEADER: self._key}
        return self._ask("POST", f"/v2/repository/{quote(path)}", headers=headers, timeout_s=timeout_s)

    def index(self) -> list[dict[str, str]]:
        """``name``, ``version`` and ``state`` of every model; empty if there was no answer."""
        status, text = self.control("index", timeout_s=10)
        return list(json.loads(text)) if status == 200 else []

    def config(self, model: str) -> dict[str, Any]:
        """The complete configuration of a model; empty if there was no answer."""
        status, text = self._ask("GET", f"/v2/models/{quote(model)}/config", timeout_s=10)
        return dict(json.loads(text)) if status == 200 else {}

    def load(self, model: str) -> str:
        """Load a model anew from the snapshot. The one that serves goes on until the new one is ready.

        Returns:
            Why it does not load; empty if it does.

        Raises:
            TimeoutError: no answer. This Triton will not load this model any more.
            ConnectionError: Triton has ended.
        """
        from pixprep.serve import control  # noqa: PLC0415  (gRPC takes 0.15 s to import, and 20 MB)

        self.snapshot.touch(model)
        launches = Launches(self.pid, self._prefix)
        return control.load(
            f"{bracketed(self._address)}:{self._ports['grpc']}",
            model,
            headers={f"triton-grpc-protocol-{_KEY_HEADER}": self._key},
            timeout_s=self.patience_s,
            is_stuck=lambda: not launches.stuck().isdisjoint({model, ""}),
        )

    def is_live(self, *, timeout_s: float) -> bool:
        """Whether Triton answers over HTTP."""
        return self._ask("GET", "/v2/health/live", timeout_s=timeout_s)[0] == 200

    def sample(self, model: str) -> Sample:
        """A small image as a model takes it, with examples of the numbers that it takes beside it."""
        config = self.config(model)
        found, jpeg = model_input(config) if config.get("input") else None, sample_jpeg(_SIDE, _SIDE)
        if found is None or not (found.pixels or found.numbers):
            return Sample(jpeg, 0)
        rows = [found.rows(found.example)]
        if found.pixels:
            (dims,) = (each["dims"] for each in config["input"] if each["name"] == found.name)
            frame = np.zeros([1, *(_SIDE if int(dim) == -1 else int(dim) for dim in dims)], np.uint8)
            tensors = found.beside(frame, rows)
        else:
            tensors = found.tensors([jpeg], rows)
        headers, body = http_body(tensors)
        return Sample(body, int(headers["Inference-Header-Content-Length"]))

    def infer(self, model: str, sample: Sample, *, timeout_s: float) -> int:
        """Send a ``sample`` to a model; the HTTP status, 0 if there was no answer in time.

        Beside it go examples of the numbers that the model takes. The backend knows it for no client's.
        """
        headers = {
            "Inference-Header-Content-Length": str(sample.header_bytes),
            "Content-Type": "application/octet-stream",
            probe.HEADER: self._probe,
        }
        return self._ask("POST", f"/v2/models/{quote(model)}/infer", sample.body, headers, timeout_s=timeout_s)[0]

    def model_input(self, model: str, *, timeout_s: float = 5.0) -> ModelInput | None:
        """How a model takes images; None where it takes none, or Triton does not say."""
        status, body = self._ask("GET", f"/v2/models/{quote(model)}/config", timeout_s=timeout_s)
        return model_input(json.loads(body)) if status == http.HTTPStatus.OK else None

    def _ask(
        self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None, *, timeout_s: float
    ) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection(self._address, self._ports["http"], timeout=timeout_s)  # heeds no proxy
        try:
            connection.request(method, path, body, headers or {})
            response = connection.getresponse()
            return response.status, response.read()
        except (OSError, http.client.HTTPException):
            return 0, b""
        finally:
            connection.close()

    def poll(self) -> int | None:
        """Triton's exit code if it has ended, 0 once it was stopped, else None; may be asked by any thread."""
        process = self._process
        return 0 if process is None else process.poll()

    def wait(self) -> int:
        """Block until Triton ends by itself; its exit code."""
        assert self._process is not None
        return self._process.wait()

    def stop(self, *, timeout_s: float | None = None) -> None:
        """End Triton: requests in flight are answered, then no process, shared memory or temporary file is left.

        An idle Triton needs 2 to 4 s: it looks once a second whether its connections and models have ended.

        Args:
            timeout_s: at most; what is not answered by then is cut. Default: the grace period.
        """
        if self._process is not None:
            group = self._process.pid
            self._has_failed |= self._process.poll() is not None
            timeout_s = self._grace_s if timeout_s is None else timeout_s
            end_at = time.monotonic() + timeout_s
            try:
                self._drain(end_at - min(_END_S, timeout_s / 2))
                self._process.terminate()
                with suppress(subprocess.TimeoutExpired):  # the kill below is for this case
                    self._process.wait(max(0.0, end_at - time.monotonic()))
            finally:
                with suppress(ProcessLookupError):  # it has ended, which is what we want
                    os.killpg(group, signal.SIGKILL)
                self._process.wait()
                self._process = None
        for region in SHARED_MEMORY.glob(f"{self._prefix}*"):
            region.unlink(missing_ok=True)
        if self._guard is not None:
            self._guard.kill()
            self._guard.communicate()
            self._guard = None
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = self._snapshot = None
        if self._given_log_file is None and self._log_file is not None and not self._has_failed:
            self._log_file.unlink(missing_ok=True)

    def _drain(self, until: float) -> None:
        """Have every model unloaded: Triton refuses what comes, and keeps a model until its last request is answered.

        Triton 2.51 by itself goes on taking requests from connections that are open, and cuts the last ones. A model
        whose process has died is never quite unloaded.
        """
        while (left_s := until - time.monotonic()) > 0:
            status, text = self.control("index", timeout_s=left_s)
            states = {model["name"]: model.get("state") for model in json.loads(text)} if status == 200 else {}
            for model, state in states.items():
                if state == "READY":
                    self.control(f"models/{model}/unload", timeout_s=left_s)
            is_done = not any(state in ("LOADING", "READY", "UNLOADING") for state in states.values())
            if is_done and not any(map(unsent, self._ports.values())):
                return
            time.sleep(0.05)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def curl_line(http_url: str, model: str, *, photo: str = PHOTO, model_input: ModelInput | None = None) -> str:
    """The command line that sends a photo to a model; where it takes numbers too, the lines, with examples of them."""
    if model_input is not None and model_input.numbers:
        return _curl_lines(http_url, model, model_input, shlex.quote(photo))
    return (
        f"curl --data-binary {shlex.quote(f'@{photo}')} -H 'Inference-Header-Content-Length: 0' "
        f"-H 'Content-Type: application/octet-stream' {http_url}/v2/models/{quote(model)}/infer -o answer.bin"
    )


def _curl_lines(http_url: str, model: str, model_input: ModelInput, photo: str) -> str:
    """JSON, and behind it the image, whose length goes before it where it is an element of a BYTES tensor."""
    is_bytes = model_input.datatype == "BYTES"
    batch = [] if model_input.has_rows else [1]
    image = {"name": model_input.name, "datatype": model_input.datatype, "shape": [*batch, 1 if is_bytes else "$bytes"]}
    numbers = [
        {"name": each.name, "datatype": each.datatype, "shape": [1, each.count], "data": each.example}
        for each in model_input.numbers
    ]
    entries = [image | {"parameters": {"binary_data_size": "$size"}}, *numbers]
    asked = {"inputs": entries, "parameters": {"binary_data_output": True}}
    text = json.dumps(asked).replace('"$bytes"', "'$bytes'").replace('"$size"', "'$size'")
    octal = "".join(f" $((bytes >> {shift} & 255))" for shift in (0, 8, 16, 24))
    length = f""" printf "$(printf '\\\\%03o'{octal})";""" if is_bytes else ""
    return "\n".join(
        [
            f"bytes=$(($(wc -c < {photo}))) size=$((bytes{' + 4' * is_bytes}))",
            f"json='{text}'",
            f'{{ printf %s "$json";{length} cat {photo}; }} |',
            f'    curl --data-binary @- -H "Inference-Header-Content-Length: ${{#json}}" '
            f"{http_url}/v2/models/{quote(model)}/infer -o answer.bin",
        ]
    )


def _trace_options(url: str, rate: int) -> list[str]:
    """Triton's options that send spans to a collector."""
    settings = {
        "mode": "opentelemetry",
        "level": "TIMESTAMPS",
        "rate": rate,
        "opentelemetry,url": url,
        "opentelemetry,resource": "service.name=pixprep",
    }
    return [f"--trace-config={name}={value}" for name, value in settings.items()]


def _hide(pid: int, secret: str) -> None:
    """Write over a secret in the command line of a child of ours, which every user of this machine may read.

    Triton takes its keys there and nowhere else. It has copied them by the time it is ready.
    """
    try:
        with Path(f"/proc/{pid}/mem").open("r+b", buffering=0) as memory:
            # 48, 49: arg_start, arg_end (proc(5)); the name in parentheses may hold spaces
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            begin, end = int(fields[45]), int(fields[46])
            memory.seek(begin)
            words = memory.read(end - begin)
            memory.seek(begin)
            memory.write(words.replace(secret.encode(), b"x" * len(secret)))
    except OSError as error:
        _logger.warning("other users of this machine can read the server's admin key: %s", error.strerror)
