"""The embedded Triton: the real server inside the nvidia-pytriton wheel, assembled, started, watched and stopped.

For development, CI and a single trusted host: it is Triton 2.51.0, and listens on this machine only unless told.
"""

from __future__ import annotations

import http.client
import importlib.util
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import IO, TYPE_CHECKING

from pixprep.errors import PixprepError, SetupError

if TYPE_CHECKING:
    from typing_extensions import Self

PACKAGE = Path(__file__).parents[1]
INSTALL = 'pip install "pixprep[server]"'
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108  (where Triton's Python backend keeps its regions; no file of ours)
LOOPBACK = ("127.0.0.1", "localhost", "::1")
STUB = "triton_python_backend_stub"


@dataclass(frozen=True)
class Wheel:
    """The parts of Triton inside the nvidia-pytriton wheel."""

    server: Path
    python_backend: Path
    stub: Path
    libraries: Path


def find_wheel() -> Wheel:
    """Find the embedded Triton without importing pytriton, whose import takes a second.

    Raises:
        SetupError: it is not installed, or has no stub for this version of Python.
    """
    spec = importlib.util.find_spec("pytriton")
    if spec is None or spec.origin is None:
        raise SetupError(f"the embedded Triton is not installed: {INSTALL}")
    root = Path(spec.origin).parent
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    triton = root / "tritonserver"
    wheel = Wheel(
        server=triton / "bin" / "tritonserver",
        python_backend=triton / "backends" / "python",
        stub=triton / "python_backend_stubs" / python / STUB,
        libraries=root.parent / "nvidia_pytriton.libs",
    )
    if not wheel.stub.is_file():
        have = sorted(path.name for path in wheel.stub.parents[1].glob("3.*"))
        raise SetupError(f"the embedded Triton cannot run Python {python}: it has stubs for {', '.join(have)}")
    return wheel


def entry_point() -> Path:
    """The backend's ``model.py``: in a checkout beside the package, in an installed wheel inside it."""
    beside = PACKAGE.parent / "model.py"
    return beside if beside.is_file() else PACKAGE / "triton" / "backend_model.py"


def assemble_backends(target: Path) -> None:
    """Make Triton's backend directory: ``python`` from the wheel, and ``pixprep``, whose package Python knows.

    Files are copied: Triton refuses symlinks that lead out of the directory.
    """
    wheel = find_wheel()
    shutil.copytree(wheel.python_backend, target / "python", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy2(wheel.stub, target / "python" / STUB)
    (target / "pixprep").mkdir()
    shutil.copyfile(entry_point(), target / "pixprep" / "model.py")


def install_backend(directory: Path) -> Path:
    """Write the self-contained backend, ``pixprep/model.py`` with the package beside it, into a backend directory.

    Returns:
        The folder ``directory/pixprep``. What lay there is replaced.

    Raises:
        SetupError: the folder cannot be written.
    """
    target = directory / "pixprep"
    try:
        if target.exists():
            shutil.rmtree(target)
        target.mkdir(parents=True)
        shutil.copyfile(entry_point(), target / "model.py")
        shutil.copytree(PACKAGE, target / "pixprep", ignore=shutil.ignore_patterns("__pycache__", "backend_model.py"))
        shutil.copyfile(entry_point(), target / "pixprep" / "triton" / "backend_model.py")
    except OSError as error:
        raise SetupError(
            f"{target}: {error.strerror}: choose a folder that you may write, or run as its owner"
        ) from None
    return target


def environment(wheel: Wheel) -> dict[str, str]:
    """The environment of Triton: its libraries, and this Python first on PATH, since the stub starts the first one."""
    libraries = [str(wheel.libraries), sysconfig.get_config_var("LIBDIR") or "", os.environ.get("LD_LIBRARY_PATH", "")]
    return os.environ | {
        "PATH": f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}",
        "LD_LIBRARY_PATH": ":".join(path for path in libraries if path),
    }


def check_machine(wheel: Wheel) -> None:
    """Refuse what would let Triton hang or answer with garbage.

    Raises:
        SetupError: NumPy 2, or a Python stub that cannot start.
    """
    numpy = version("numpy")
    if int(numpy.split(".")[0]) >= 2:
        raise SetupError(f'NumPy {numpy}: Triton 2.51 misreads BYTES inputs under NumPy 2: pip install "numpy<2"')
    try:
        # Without arguments the stub ends at once; one that cannot load its libraries would let Triton wait for ever.
        done = subprocess.run(
            [wheel.stub], env=environment(wheel), capture_output=True, text=True, timeout=20, check=False
        )
    except (subprocess.TimeoutExpired, OSError) as error:
        raise SetupError(f"Triton's Python stub does not start: {error}") from None
    if missing := re.search(r"loading shared libraries: (\S+): cannot open", done.stderr):
        package = re.sub(r"^(libpython3\.\d+).*", r"\1", missing[1])
        raise SetupError(f"{missing[1]} is missing, which Triton's Python models load: apt-get install {package}")


class Server:
    """One embedded Triton; a context manager that starts it and leaves nothing behind.

    Args:
        model_repository: what to serve; every model in it must load.
        host: the address to listen on.
        allow_remote: let ``host`` be more than this machine.
        http_port, grpc_port, metrics_port: 0: any free one.
        log_file: of Triton; default: a temporary file, deleted at the end.
        backend_directory: in place of the one that is assembled.
        extra_args: further options for tritonserver.
    """

    def __init__(
        self,
        model_repository: Path,
        *,
        host: str = "127.0.0.1",
        allow_remote: bool = False,
        http_port: int = 8000,
        grpc_port: int = 8001,
        metrics_port: int = 8002,
        log_file: Path | None = None,
        backend_directory: Path | None = None,
        extra_args: Sequence[str] = (),
    ) -> None:
        self._repository = model_repository
        self._host = host
        self._allow_remote = allow_remote
        self._ports = {"http": http_port, "grpc": grpc_port, "metrics": metrics_port}
        self._backends = backend_directory
        self._extra_args = extra_args
        self._prefix = f"pixprep_{uuid.uuid4().hex[:12]}"
        self._log_file = log_file
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._log: IO[bytes] | None = None
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def http_url(self) -> str:
        """``http://host:port``."""
        return f"http://{self._host}:{self._ports['http']}"

    @property
    def grpc_url(self) -> str:
        """``host:port``."""
        return f"{self._host}:{self._ports['grpc']}"

    @property
    def metrics_url(self) -> str:
        """``http://host:port/metrics``."""
        return f"http://{self._host}:{self._ports['metrics']}/metrics"

    @property
    def log_file(self) -> Path:
        """Where Triton's log is; gone after ``stop`` unless it was given."""
        assert self._log is not None
        return Path(self._log.name)

    @property
    def pid(self) -> int:
        """Triton's process, which leads a process group of its own."""
        assert self._process is not None
        return self._process.pid

    def start(self, *, timeout_s: float = 120) -> None:
        """Start Triton and return when every model is ready.

        Raises:
            SetupError: the machine is not fit, a port is taken, or Triton does not become ready in time.
            PixprepError: a model does not load; one line for each.
        """
        wheel = find_wheel()
        check_machine(wheel)
        self._check_arguments()
        self._folder = tempfile.TemporaryDirectory(prefix="pixprep-")
        folder = Path(self._folder.name)
        try:
            if self._backends is None:
                self._backends = folder / "backends"
                assemble_backends(self._backends)
            self._log = (self._log_file or folder / "triton.log").open("wb")
            working = folder / "cwd"  # the stub's sys.path begins with it: it must hold no model.py
            working.mkdir()
            self._process = subprocess.Popen(
                self.command(wheel),
                env=environment(wheel),
                cwd=working,
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C reaches us alone; the group is ours to end
            )
            self._wait_until_ready(timeout_s)
        except BaseException:
            self.stop()
            raise

    def command(self, wheel: Wheel) -> list[str]:
        """The command line of tritonserver."""
        return [
            str(wheel.server),
            f"--model-repository={self._repository.resolve()}",
            f"--backend-directory={self._backends}",
            f"--backend-config=python,shm-region-prefix-name={self._prefix}",
            f"--http-address={self._host}",
            f"--grpc-address={self._host}",
            f"--metrics-address={self._host}",
            *(f"--{name}-port={port}" for name, port in self._ports.items()),
            "--model-control-mode=none",
            "--exit-timeout-secs=8",
            "--allow-vertex-ai=false",
            "--allow-sagemaker=false",
            *self._extra_args,
        ]

    def _check_arguments(self) -> None:
        if not self._repository.is_dir():
            raise SetupError(f"{self._repository}: no such model repository: make the demo's with pixprep build")
        if self._host not in LOOPBACK and not self._allow_remote:
            raise SetupError(
                f"host {self._host} is open to other machines, and this Triton (2.51.0) lacks later security fixes: "
                "use 127.0.0.1, or say --allow-remote"
            )
        for name, port in self._ports.items():
            self._ports[name] = _claim(self._host, name, port)

    def _wait_until_ready(self, timeout_s: float) -> None:
        assert self._process is not None
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                raise _failure(self.log_file.read_text(errors="replace"), self._process.returncode)
            if self._is_ready():
                return
            time.sleep(0.05)
        raise SetupError(f"Triton was not ready after {timeout_s:g} s; the last words of its log: {self._last_words()}")

    def _is_ready(self) -> bool:
        connection = http.client.HTTPConnection(self._host, self._ports["http"], timeout=2)  # heeds no proxy
        try:
            connection.request("GET", "/v2/health/ready")
            is_ready = connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()
        # our child must be alive: whoever else took the port in the meantime would answer as well
        return is_ready and self._process is not None and self._process.poll() is None

    def _last_words(self) -> str:
        lines = self.log_file.read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "none"

    def wait(self) -> int:
        """Block until Triton ends by itself; its exit code."""
        assert self._process is not None
        return self._process.wait()

    def stop(self, *, timeout_s: float = 10) -> None:
        """End Triton: requests in flight are answered, then no process, shared memory or temporary file is left."""
        if self._process is not None:
            group = self._process.pid
            _signal_group(group, signal.SIGTERM, only_leader=True)
            try:
                self._process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                pass  # the kill below is for this case
            finally:
                _signal_group(group, signal.SIGKILL)
                self._process.wait()
                self._process = None
        for region in SHARED_MEMORY.glob(f"{self._prefix}*"):
            region.unlink(missing_ok=True)
        if self._log is not None:
            self._log.close()
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def _signal_group(group: int, number: signal.Signals, *, only_leader: bool = False) -> None:
    try:
        if only_leader:
            os.kill(group, number)
        else:
            os.killpg(group, number)
    except ProcessLookupError:
        pass  # it has ended, which is what we want


def _claim(host: str, name: str, port: int) -> int:
    """The port itself if it is free, or any free one for 0.

    Raises:
        SetupError: it is taken, or cannot be listened on.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
            probe.listen()
        except OSError as error:
            raise SetupError(
                f"port {port} of {host}: {error.strerror}: stop what listens there, or choose another --{name}-port"
            ) from None
        return int(probe.getsockname()[1])


def _failure(log: str, code: int) -> PixprepError:
    """Why Triton ended: a line for each model that did not load, or its last error."""
    if models := list(_failed_models(log)):
        return PixprepError("\n".join(f'model "{name}" does not load: {reason}' for name, reason in models))
    errors = re.findall(r"^(?:error: |E\d{4} .*?\] )(.+)$", log, re.MULTILINE)
    return SetupError(f"Triton ended with exit code {code}: {errors[-1] if errors else log.strip()[-300:]}")


def _failed_models(log: str) -> Iterator[tuple[str, str]]:
    """Read Triton's table of models. A reason that Python raised comes without its traceback and the type's name."""
    for name, _, status in _table_rows(log):
        if not status.startswith("UNAVAILABLE"):
            continue
        reason = status.removeprefix("UNAVAILABLE:").split(" At: ")[0].strip()
        reason = re.sub(r"^(Internal|Invalid argument|Unavailable|Not found): ", "", reason)
        yield name, re.sub(r"^(\w+\.)*\w*(Error|Exception): ", "", reason)
    for name, reason in re.findall(r"failed to load model '([^']+)': (.+)", log):
        yield name, reason


def _table_rows(log: str) -> Iterator[list[str]]:
    """The rows of the table "Model | Version | Status"; a cell of several lines is joined."""
    table = log.rpartition("| Model ")[2]
    row: list[str] = []
    for line in table.splitlines()[2:]:
        if not line.startswith("|"):
            break
        cells = [cell.strip() for cell in line.strip("|").split("|", 2)]
        if cells[0]:
            if row:
                yield row
            row = cells
        elif row:
            row = [f"{before} {more}".strip() for before, more in zip(row, cells, strict=True)]
    if row:
        yield row
