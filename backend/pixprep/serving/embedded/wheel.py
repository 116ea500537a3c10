"""The Triton inside the nvidia-pytriton wheel: the places of its parts, and their requirements of this machine."""

from __future__ import annotations

import importlib.util
import os
import re
import resource
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from pixprep.errors import SetupError, install
from pixprep.serving.repository.backend import entry_point

_NEWEST_PYTHON = (3, 12)
"""NumPy 1.26 ends there, and Triton 2.51 misreads tensors under NumPy 2."""
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108  (where Triton's Python backend keeps its regions; no file of ours)
_LIBRARY = "libtriton_python.so"
STUB = "triton_python_backend_stub"
# A Python model's region starts at 1 MiB and grows with its batches: Docker's 64 MiB serve a few images at a time.
MIN_SHARED_MEMORY = 32 << 20
_ENVIRONMENTS, ENVIRONMENTS = b"/tmp/python_env_", "./px_python_env_"
"""Begin of the names of the folders in which Triton's Python backend unpacks environments, and in our copy: below the
folder in which Triton runs. Both have as many letters."""
_ODD = re.compile(r"[^\w@%+=:,./-]")
"""Characters that a shell may interpret, so that a name with one of them needs quotes."""
_MAX_FILES = 1 << 20
# Maximum sizes, in bytes, of freed blocks that Triton's process keeps. By default, glibc raises both limits to 32 and
# 64 MiB when large blocks are freed, in each of 16 arenas. After a mixed load, Triton held 1.1 GB by default and 0.4 GB
# with these limits.
_MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(4 << 20), "MALLOC_TRIM_THRESHOLD_": str(16 << 20)}


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
        SetupError: pytriton is not installed, or lacks a stub for this version of Python.
    """
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    spec = importlib.util.find_spec("pytriton")
    if spec is None or spec.origin is None:
        if sys.version_info[:2] > _NEWEST_PYTHON:
            raise SetupError(
                f"the embedded Triton needs NumPy 1.26, which ends at Python 3.12, and this is {python}: make an "
                f"environment of Python 3.12 (`uv venv --python 3.12`, pyenv, conda), and in it {install('server')}"
            )
        raise SetupError(f"the embedded Triton is not installed: {install('server')}")
    root = Path(spec.origin).parent
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


def assemble_backends(target: Path) -> None:
    """Create Triton's backend directory: ``python`` from the wheel, and ``pixprep``, which uses the installed package.

    Files are copied, because Triton rejects symlinks that lead out of the directory. Each of the two backends creates a
    folder for the environments of models, always in /tmp (``TMPDIR`` is ignored), and aborts if that fails. The folder
    remains if Triton is killed, and its owner is then unknown. The copied backends create it in Triton's working
    directory, which belongs to this server.
    """
    wheel = find_wheel()
    shutil.copytree(wheel.python_backend, target / "python", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy2(wheel.stub, target / "python" / STUB)
    library = target / "python" / _LIBRARY
    library.write_bytes(library.read_bytes().replace(_ENVIRONMENTS, ENVIRONMENTS.encode()))
    (target / "pixprep").mkdir()
    shutil.copyfile(entry_point(), target / "pixprep" / "model.py")


def environment(wheel: Wheel) -> dict[str, str]:
    """The environment of Triton: its libraries, and this Python first on PATH, because the stub uses the first one.

    The environment of this process can override the limits of the memory that Triton keeps.
    """
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    # pyenv, conda and uv keep Python's shared library to themselves
    own = (sysconfig.get_config_var("LIBDIR") or "", f"{sys.base_prefix}/lib")
    python = (path for path in own if Path(path, f"libpython{version}.so.1.0").is_file())
    libraries = dict.fromkeys([str(wheel.libraries), *python, os.environ.get("LD_LIBRARY_PATH", "")])
    return (
        _MEMORY
        | os.environ
        | {
            "PATH": f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}",
            "LD_LIBRARY_PATH": ":".join(path for path in libraries if path),
        }
    )


def max_files() -> int:
    """The files that Triton may have open, each connection one: our hard limit, and at most a million."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MAX_FILES if hard == resource.RLIM_INFINITY else min(hard, _MAX_FILES)


def check_machine(wheel: Wheel) -> None:
    """Reject a machine on which Triton would hang, or return wrong results.

    Raises:
        SetupError: NumPy is version 2, the stub would not find this Python, a stub cannot start, shared memory is too
            small, or a stub cannot start from the temporary folder.
    """
    check_numpy(version("numpy"))
    check_python(Path(sys.executable))
    check_stub(wheel.stub, environment(wheel))
    check_shared_memory(SHARED_MEMORY)
    temporary_folder()


def check_numpy(numpy: str) -> None:
    """Reject NumPy 2: the stub of 2.51 reads the size of its items as 0.

    An input then repeats its first value, an output is empty, and a BYTES tensor crashes the stub. Only DLPack works.
    """
    if int(numpy.partition(".")[0]) >= 2:
        raise SetupError(f'NumPy {numpy}: Triton 2.51 misreads every tensor under NumPy 2: pip install "numpy<2"')


def check_python(executable: Path) -> None:
    """Reject a Python without the name ``python3``: the stub would use the packages of a different one on PATH."""
    python3 = executable.parent / "python3"
    if python3.resolve() != executable.resolve():
        raise SetupError(
            f"{python3} is not this Python, and Triton's stub looks for that name: "
            "run pixprep in a virtual environment (python -m venv)"
        )


def check_stub(stub: Path, environment: dict[str, str]) -> None:
    """Reject a stub that cannot load its libraries: Triton would wait for it for ever."""
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
    """Reject to serve where Python models could not exchange a batch with Triton."""
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


def temporary_folder() -> Path:
    """The folder for temporary files.

    Raises:
        SetupError: No folder is writable, or Triton cannot start its Python stub from there.
    """
    try:
        folder = Path(tempfile.gettempdir())
    except OSError as error:
        raise SetupError(f"no folder for temporary files: name one that can be written by TMPDIR ({error})") from None
    check_stub_folder(folder, "the folder for temporary files", "TMPDIR")
    return folder


def check_stub_folder(folder: Path, what: str, setting: str) -> None:
    """Reject a folder from which Triton cannot start its Python stub: Triton would end, or wait for the stub forever.

    Args:
        folder: Folder of the backends or of the models, or one above these.
        what: Description of the folder for messages.
        setting: Option or environment variable that names the folder.

    Raises:
        SetupError: The folder is mounted noexec, or a shell would not take its name as one word.
    """
    if os.statvfs(folder).f_flag & os.ST_NOEXEC:
        raise SetupError(
            f"{folder}, {what}, is mounted noexec, and Triton starts its Python stub from there: mount the folder "
            f"with exec (docker run --tmpfs {folder}:exec, and the same text in tmpfs of compose), or name another "
            f"folder by {setting}"
        )
    if odd := _ODD.search(str(folder)):
        raise SetupError(
            f"{folder}, {what}, has {odd[0]!r} in its name, and Triton starts its Python stub from there by a shell, "
            f"which would not take the name as one word: name another folder by {setting}"
        )
