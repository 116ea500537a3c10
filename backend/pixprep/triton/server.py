"""The embedded Triton: the real server inside the nvidia-pytriton wheel, assembled, started, watched and stopped.

For development, CI and a single trusted host: it is Triton 2.51.0, and listens on this machine only unless told.

    tritonserver    leads a process group of its own, with a Python stub for each instance of a Python model
    sh, the guard   waits for us to end: SIGKILL and a closed terminal leave no time to stop anything ourselves
"""

from __future__ import annotations

import errno
import http.client
import importlib.util
import ipaddress
import json
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
from contextlib import ExitStack, suppress
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
STUB = "triton_python_backend_stub"
# A Python model's region starts at 1 MiB and grows with its batches: Docker's 64 MiB serve a few images at a time.
MIN_SHARED_MEMORY = 32 << 20

# Ends the process group $1 as soon as nobody holds the other end of its stdin, and removes what that group left.
_GUARD = 'read -r _; kill -s KILL -- "-$1"; rm -rf "$2"* "$3"'
# What lets a client write files on this machine; shared memory is for clients that live on it.
_ADMIN = "logging,trace"
_ADMIN_FROM_AFAR = f"{_ADMIN},shared-memory"


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
        SetupError: the folder cannot be written, or holds something else of that name.
    """
    target = directory / "pixprep"
    if target.exists() and not (target / "pixprep" / "triton" / "model.py").is_file():
        raise SetupError(f"{target}: is there, and is no backend that pixprep installed: choose another folder")
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
    """The environment of Triton: its libraries, and this Python first on PATH, since the stub asks the first one."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    # pyenv, conda and uv keep Python's shared library to themselves
    own = (sysconfig.get_config_var("LIBDIR") or "", f"{sys.base_prefix}/lib")
    python = (path for path in own if Path(path, f"libpython{version}.so.1.0").is_file())
    libraries = dict.fromkeys([str(wheel.libraries), *python, os.environ.get("LD_LIBRARY_PATH", "")])
    return os.environ | {
        "PATH": f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}",
        "LD_LIBRARY_PATH": ":".join(path for path in libraries if path),
    }


def check_machine(wheel: Wheel) -> None:
    """Refuse what would let Triton hang, or answer with garbage.

    Raises:
        SetupError: NumPy 2, a Python that the stub would not find, a stub that cannot start, too little shared memory.
    """
    check_numpy(version("numpy"))
    check_python(Path(sys.executable))
    check_stub(wheel.stub, environment(wheel))
    check_shared_memory(SHARED_MEMORY)


def check_numpy(numpy: str) -> None:
    """Refuse NumPy 2: the stub of 2.51 dies of the first BYTES tensor."""
    if int(numpy.partition(".")[0]) >= 2:
        raise SetupError(f'NumPy {numpy}: Triton 2.51 misreads BYTES inputs under NumPy 2: pip install "numpy<2"')


def check_python(executable: Path) -> None:
    """Refuse a Python without the name ``python3``: the stub would take the packages of another one on PATH."""
    python3 = executable.parent / "python3"
    if python3.resolve() != executable.resolve():
        raise SetupError(
            f"{python3} is not this Python, and Triton's stub looks for that name: "
            "run pixprep in a virtual environment (python -m venv)"
        )


def check_stub(stub: Path, environment: dict[str, str]) -> None:
    """Refuse a stub that cannot load its libraries: Triton would wait for it for ever."""
    try:
        # Started by hand it ends at once, asking for its arguments.
        done = subprocess.run([stub], env=environment, capture_output=True, text=True, timeout=20, check=False)
    except (subprocess.TimeoutExpired, OSError) as error:
        raise SetupError(f"Triton's Python stub does not start: {error}") from None
    if missing := re.search(r"loading shared libraries: (\S+): cannot open", done.stderr):
        package = re.sub(r"^(libpython3\.\d+).*", r"\1", missing[1])
        raise SetupError(f"{missing[1]} is missing, which Triton's Python models load: apt-get install {package}")
    if "arguments" not in done.stdout + done.stderr:
        reason = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise SetupError(f"Triton's Python stub does not start: {reason}")


def check_shared_memory(folder: Path) -> None:
    """Refuse to serve where Python models could not exchange a batch with Triton."""
    try:
        space = os.statvfs(folder)
    except OSError as error:
        raise SetupError(f"{folder}: {error.strerror}: Triton's Python models need shared memory there") from None
    free = space.f_bavail * space.f_frsize
    if free < MIN_SHARED_MEMORY:
        raise SetupError(
            f"{folder} has {free / 2**20:.0f} MiB free, and Triton's Python models need {MIN_SHARED_MEMORY >> 20} MiB: "
            "in Docker, say --shm-size=1g"
        )


def listeners(port: int) -> set[int]:
    """The processes that listen on a TCP port of this machine, as far as this user may see."""
    sockets = set()
    for table in (Path("/proc/net/tcp"), Path("/proc/net/tcp6")):
        if not table.exists():  # a kernel without IPv6
            continue
        for line in table.read_text().splitlines()[1:]:
            _, local, _, state, *_, inode = line.split()[:10]
            if state == "0A" and int(local.rpartition(":")[2], 16) == port:
                sockets.add(f"socket:[{inode}]")
    return {int(process.name) for process in Path("/proc").glob("[0-9]*") if sockets & set(_open_files(process))}


def _open_files(process: Path) -> Iterator[str]:
    try:
        for entry in (process / "fd").iterdir():
            try:
                yield str(entry.readlink())
            except OSError:
                continue  # closed since
    except OSError:
        return  # ended since, or another user's


class Server:
    """One embedded Triton; a context manager that starts it and leaves nothing behind.

    Args:
        model_repository: what to serve; every model in it must load.
        host: the address to listen on.
        allow_remote: let ``host`` be more than this machine.
        http_port, grpc_port, metrics_port: 0: any free one.
        log_file: of Triton; default: a temporary file, deleted at the end unless Triton failed.
        backend_directory: in place of the one that is assembled.
        extra_args: further options for tritonserver; its three endpoints must stay on.
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
        self._address = ""
        self._allow_remote = allow_remote
        self._ports = {"http": http_port, "grpc": grpc_port, "metrics": metrics_port}
        self._backends = backend_directory
        self._extra_args = extra_args
        self._prefix = f"pixprep_{uuid.uuid4().hex[:12]}"
        self._given_log_file = log_file
        self._log_file = log_file
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._guard: subprocess.Popen[bytes] | None = None
        self._has_failed = False

    @property
    def http_url(self) -> str:
        """``http://host:port``."""
        return f"http://{_bracketed(self._host)}:{self._ports['http']}"

    @property
    def grpc_url(self) -> str:
        """``host:port``."""
        return f"{_bracketed(self._host)}:{self._ports['grpc']}"

    @property
    def metrics_url(self) -> str:
        """``http://host:port/metrics``."""
        return f"http://{_bracketed(self._host)}:{self._ports['metrics']}/metrics"

    @property
    def log_file(self) -> Path:
        """Where Triton's log is; if it was not given, gone after ``stop`` unless Triton failed."""
        assert self._log_file is not None
        return self._log_file

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
        assert self._process is None
        self._check_arguments()
        wheel = find_wheel()
        check_machine(wheel)
        self._has_failed = False
        self._folder = tempfile.TemporaryDirectory(prefix="pixprep-")
        folder = Path(self._folder.name)
        try:
            backends = self._backends or folder / "backends"
            if self._backends is None:
                assemble_backends(backends)
            working = folder / "cwd"  # the stub's sys.path begins with it: it must hold no model.py
            working.mkdir()
            with self._open_log() as log:
                self._process = subprocess.Popen(
                    self.command(wheel, backends),
                    env=environment(wheel),
                    cwd=working,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,  # Ctrl-C reaches us alone; the group is ours to end
                )
            self._guard = subprocess.Popen(
                ["/bin/sh", "-c", _GUARD, "sh", str(self.pid), str(SHARED_MEMORY / self._prefix), str(folder)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            self._wait_until_ready(timeout_s)
        except OSError as error:
            self.stop()
            raise SetupError(f"{error.filename}: {error.strerror}: Triton cannot be started") from None
        except BaseException:
            self.stop()
            raise

    def _open_log(self) -> IO[bytes]:
        if self._given_log_file is None:
            number, name = tempfile.mkstemp(prefix="pixprep-", suffix=".log")
            self._log_file = Path(name)
            return os.fdopen(number, "wb")
        return self._given_log_file.open("wb")

    def command(self, wheel: Wheel, backends: Path) -> list[str]:
        """The command line of tritonserver."""
        is_ipv6 = ":" in self._address
        http_address = f"ipv6:{self._address}" if is_ipv6 else self._address
        restricted = f"{_ADMIN if _is_loopback(self._address) else _ADMIN_FROM_AFAR}:admin-key={uuid.uuid4().hex}"
        return [
            str(wheel.server),
            f"--model-repository={self._repository.resolve()}",
            f"--backend-directory={backends.resolve()}",
            f"--backend-config=python,shm-region-prefix-name={self._prefix}",
            f"--http-address={http_address}",
            f"--grpc-address={_bracketed(self._address)}",
            f"--metrics-address={http_address}",
            *(f"--{name}-port={port}" for name, port in self._ports.items()),
            "--model-control-mode=none",
            "--exit-timeout-secs=8",
            "--allow-vertex-ai=false",
            "--allow-sagemaker=false",
            f"--http-restricted-api={restricted}",
            f"--grpc-restricted-protocol={restricted}",
            *self._extra_args,
        ]

    def _check_arguments(self) -> None:
        if not self._repository.is_dir():
            raise SetupError(f"{self._repository}: no such model repository: make the demo's with pixprep build")
        self._address = _resolve(self._host)
        if not _is_loopback(self._address) and not self._allow_remote:
            raise SetupError(
                f"host {self._host} is open to other machines, and this Triton (2.51.0) lacks later security fixes: "
                "use 127.0.0.1, or say --allow-remote"
            )
        self._ports = check_ports(self._address, self._ports)

    def _wait_until_ready(self, timeout_s: float) -> None:
        assert self._process is not None
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                error = _failure(self.log_file.read_text(errors="replace"), self._process.returncode)
                raise type(error)(f"{error}\nTriton's whole log: {self.log_file}")
            if self._is_ready():
                return
            time.sleep(0.05)
        self._has_failed = True
        loading = _still_loading(self.log_file.read_text(errors="replace"))
        what = f"still loading {', '.join(loading)}" if loading else "every model is loaded"
        raise SetupError(f"Triton was not ready after {timeout_s:g} s ({what}); its whole log: {self.log_file}")

    def _is_ready(self) -> bool:
        connection = http.client.HTTPConnection(self._address, self._ports["http"], timeout=2)  # heeds no proxy
        try:
            connection.request("GET", "/v2/health/ready")
            is_ready = connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()
        # Whoever took a port since we looked would answer as well; and metrics start after HTTP.
        return is_ready and all(self.pid in listeners(port) for port in self._ports.values())

    def wait(self) -> int:
        """Block until Triton ends by itself; its exit code."""
        assert self._process is not None
        return self._process.wait()

    def stop(self, *, timeout_s: float = 10) -> None:
        """End Triton: requests in flight are answered, then no process, shared memory or temporary file is left.

        An idle Triton needs 3 to 4 s: it looks once a second whether its connections and models have ended.
        """
        if self._process is not None:
            group = self._process.pid
            self._has_failed |= self._process.poll() is not None
            try:
                self._process.terminate()
                self._process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                pass  # the kill below is for this case
            finally:
                _kill_group(group)
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
            self._folder = None
        if self._given_log_file is None and self._log_file is not None and not self._has_failed:
            self._log_file.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def _kill_group(group: int) -> None:
    with suppress(ProcessLookupError):  # it has ended, which is what we want
        os.killpg(group, signal.SIGKILL)


def _resolve(host: str) -> str:
    """The address of a name: Triton takes addresses only, and would listen nowhere for ``localhost``."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError as error:
        raise SetupError(f"host {host}: {error.strerror}: use 127.0.0.1, or an address of this machine") from None
    return str(min(found, key=lambda entry: entry[0] != socket.AF_INET)[4][0])  # IPv4 where there is a choice


def _is_loopback(address: str) -> bool:
    return ipaddress.ip_address(address).is_loopback


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def check_ports(address: str, ports: dict[str, int]) -> dict[str, int]:
    """The ports, if they are free; for 0 any free one. All are held until the last is found, so that they differ.

    Raises:
        SetupError: one is taken, or cannot be listened on.
    """
    claimed: dict[str, int] = {}
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with ExitStack() as stack:
        for name, port in ports.items():
            if port and port in claimed.values():
                (other,) = (known for known, value in claimed.items() if value == port)
                raise SetupError(f"--{other}-port and --{name}-port are both {port}: give each its own")
            probe = stack.enter_context(socket.socket(family, socket.SOCK_STREAM))
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((address, port))
                probe.listen()
            except OverflowError:
                raise SetupError(f"--{name}-port {port}: ports go from 0 to 65535") from None
            except OSError as error:
                raise SetupError(_taken(address, name, port, error)) from None
            claimed[name] = int(probe.getsockname()[1])
    return claimed


def _taken(address: str, name: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"port {port} is in use{_by_whom(port)}: stop what listens there, or choose another --{name}-port"
    if error.errno == errno.EACCES:
        return f"port {port}: {error.strerror}: choose a --{name}-port from 1024 up"
    return f"host {address}: {error.strerror}: use 127.0.0.1, or an address of this machine"


def _by_whom(port: int) -> str:
    for pid in sorted(listeners(port)):
        return f" by {Path(f'/proc/{pid}/comm').read_text().strip()} (process {pid})"
    return ""


def _failure(log: str, code: int) -> PixprepError:
    """Why Triton ended: a line for each model that did not load, or its last error."""
    if reasons := dict(_failed_models(log)):
        return PixprepError("\n".join(f'model "{name}" does not load: {reason}' for name, reason in reasons.items()))
    errors = [text for level, text in _log_lines(log) if level == "E" and not text.startswith("CudaDriverHelper")]
    errors += re.findall(r"^error: (.+)", log, re.MULTILINE)
    first = (log.strip().splitlines() or ["its log is empty"])[0].rpartition("tritonserver: ")[2]
    how = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
    return SetupError(f"Triton {how}: {errors[-1] if errors else first}")


def _failed_models(log: str) -> Iterator[tuple[str, str]]:
    """The models that did not load, with the innermost reason: no traceback, no type's name of ours, one line.

    An ensemble that lacks only such a model is not among them.
    """
    config_error = ""
    for level, text in _log_lines(log):
        if level == "protobuf":
            config_error = text
        elif found := re.match(r"failed to load (?:model )?'([^']+)'(?: version \d+)?: (.*)", text, re.DOTALL):
            yield found[1], _innermost(found[2])
        elif found := re.match(r"Poll failed for model directory '([^']+)': (.*)", text, re.DOTALL):
            is_syntax = found[2].startswith("failed to read text proto")
            yield found[1], f"config.pbtxt: {config_error}" if is_syntax else _innermost(found[2])
        elif found := re.match(r"Invalid argument: ensemble (\S+) (contains .*)", text):
            yield found[1], found[2]


def _still_loading(log: str) -> list[str]:
    ended = set(re.findall(r"(?:successfully loaded|failed to load) '([^']+)'", log))
    return [f'"{name}"' for name in re.findall(r'"loading: (.+):\d+"', log) if name not in ended]


def _log_lines(log: str) -> Iterator[tuple[str, str]]:
    """Errors in Triton's log, as (E or protobuf, text)."""
    for line in log.splitlines():
        if found := re.match(r'E\d{4} .*?\] (".*")$', line):
            yield "E", str(json.loads(found[1], strict=False))
        elif found := re.match(r"\[libprotobuf ERROR .*?\] Error parsing .*?ModelConfig: (.*)", line):
            yield "protobuf", found[1]


def _innermost(reason: str) -> str:
    reason = reason.partition("\n\nAt:\n")[0].strip()
    reason = re.sub(r"^(Internal|Invalid argument|Unavailable|Not found): ", "", reason)
    if found := re.match(r"unable to find backend library for backend '(.*?)'", reason):
        return f'the embedded Triton has no backend "{found[1]}": serve it in NVIDIA\'s Triton container'
    if re.fullmatch(r"Stub process '.*' is not healthy\.", reason):
        return "its Python process ended while it loaded (a crash, an exit, or no memory left)"
    return " ".join(re.sub(r"^([A-Za-z_]+\.)*(Pipeline|Setup|Image|Pixprep)Error: ", "", reason).split())
