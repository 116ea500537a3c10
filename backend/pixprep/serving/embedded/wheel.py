"""Finds the files of Triton in the nvidia-pytriton wheel, and checks that this machine meets Triton's requirements."""

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
"""Newest Python that NumPy 1.26 supports. Triton 2.51 reads tensors incorrectly with NumPy 2."""
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108  (location of the Python backend's shared memory, not a temporary file)
_LIBRARY = "libtriton_python.so"
STUB = "triton_python_backend_stub"
# The shared memory region of a stub has 1 MiB at first, and grows with the stub's batches. Docker's default of 64 MiB
# for all shared memory is enough for small batches.
MIN_SHARED_MEMORY = 32 << 20
_OLD_ENVIRONMENT_PREFIX, ENVIRONMENT_PREFIX = b"/tmp/python_env_", "./px_python_env_"
"""Path prefix of the folders in which Triton's Python backend unpacks environments, and the prefix of equal length that
replaces it in the copied backend. The new prefix is relative to Triton's working directory."""
_NEEDS_QUOTES = re.compile(r"[^\w@%+=:,./-]")
"""Regular expression for a character that a shell may interpret."""
_MAX_FILES = 1 << 20
# Fixed limits in bytes for the memory that glibc's malloc keeps after free. By default, glibc raises these limits to 32
# and 64 MiB for each of 16 arenas when large blocks are freed. After a mixed load, Triton kept 1.1 GB with glibc's
# defaults, and 0.4 GB with the fixed limits.
_MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(4 << 20), "MALLOC_TRIM_THRESHOLD_": str(16 << 20)}


@dataclass(frozen=True)
class Wheel:
    """Paths of Triton's files in the nvidia-pytriton wheel.

    Attributes:
        server: Executable of Triton.
        python_backend: Folder of the Python backend.
        stub: Executable of the Python stub for this version of Python.
        libraries: Folder with the wheel's shared libraries.
    """

    server: Path
    python_backend: Path
    stub: Path
    libraries: Path


def find_wheel() -> Wheel:
    """Find the embedded Triton without importing pytriton, which would take a second.

    Raises:
        SetupError: nvidia-pytriton is not installed, or does not support this version of Python.
    """
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    spec = importlib.util.find_spec("pytriton")
    if spec is None or spec.origin is None:
        if sys.version_info[:2] > _NEWEST_PYTHON:
            raise SetupError(
                f"the embedded Triton does not support Python {python}, because it requires NumPy 1.26: create an "
                f"environment with Python 3.12, such as with `uv venv --python 3.12`, and in it {install('server')}"
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
        raise SetupError(f"the embedded Triton does not support Python {python}: use {', '.join(have)}")
    return wheel


def assemble_backends(target: Path) -> None:
    """Create a backend directory for Triton. It contains the wheel's backend ``python``, and a backend ``pixprep``.

    The backend ``pixprep`` uses this package. Files are copied, because Triton rejects symbolic links that point
    outside of the directory. The original Python backend always creates a folder for model environments in /tmp. It
    aborts if it cannot create this folder, and does not remove the folder if it is killed. The copied backend is
    therefore patched to create the folder in Triton's working directory, which the server removes.
    """
    wheel = find_wheel()
    shutil.copytree(wheel.python_backend, target / "python", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy2(wheel.stub, target / "python" / STUB)
    library = target / "python" / _LIBRARY
    library.write_bytes(library.read_bytes().replace(_OLD_ENVIRONMENT_PREFIX, ENVIRONMENT_PREFIX.encode()))
    (target / "pixprep").mkdir()
    shutil.copyfile(entry_point(), target / "pixprep" / "model.py")


def environment(wheel: Wheel) -> dict[str, str]:
    """Return the environment variables for Triton.

    ``LD_LIBRARY_PATH`` contains the folder of the wheel's libraries. ``PATH`` begins with the folder of this Python,
    because a stub uses the first ``python3`` on ``PATH``. The limits for malloc are included unless the environment of
    this process already contains them.
    """
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    # pyenv, conda and uv install Python's shared library outside of the default search path
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
    """Return the limit of open files for Triton. It is the hard limit of this process, but at most about a million."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MAX_FILES if hard == resource.RLIM_INFINITY else min(hard, _MAX_FILES)


def check_machine(wheel: Wheel) -> None:
    """Check that Triton would not hang or return incorrect results on this machine.

    Raises:
        SetupError: The version of NumPy is 2, a stub would use a different Python, a stub does not start, shared memory
            is too small, or stubs cannot be started from the temporary folder.
    """
    check_numpy(version("numpy"))
    check_python(Path(sys.executable))
    check_stub(wheel.stub, environment(wheel))
    check_shared_memory(SHARED_MEMORY)
    temporary_folder()


def check_numpy(numpy: str) -> None:
    """Raise SetupError for NumPy 2, because the stub of Triton 2.51 then reads 0 as the item size of arrays.

    As a result, an input would repeat its first value, an output would be empty, and a BYTES tensor would crash the
    stub.
    """
    if int(numpy.partition(".")[0]) >= 2:
        raise SetupError(f'NumPy {numpy}: Triton 2.51 does not support NumPy 2: pip install "numpy<2"')


def check_python(executable: Path) -> None:
    """Raise SetupError if ``python3`` is missing in the folder of this Python, or is a different Python.

    In this case, stubs would use the packages of a different Python, which they find on PATH.
    """
    python3 = executable.parent / "python3"
    if python3.resolve() != executable.resolve():
        raise SetupError(
            f"{python3}, which Triton's stub processes use, is missing or a different Python: "
            "run pixprep in a virtual environment (python -m venv)"
        )


def check_stub(stub: Path, environment: dict[str, str]) -> None:
    """Raise SetupError if a stub cannot load its shared libraries, because Triton would wait for the stub forever."""
    try:
        # without arguments, the stub prints that they are missing, and exits
        done = subprocess.run([stub], env=environment, capture_output=True, text=True, timeout=20, check=False)
    except (subprocess.TimeoutExpired, OSError) as error:
        raise SetupError(f"Triton's Python stub does not start: {error}") from None
    if missing := re.search(r"loading shared libraries: (\S+): cannot open", done.stderr):
        package = re.sub(r"^(libpython3\.\d+).*", r"\1", missing[1])
        raise SetupError(f"{missing[1]}, which Triton's Python backend requires, is missing: apt-get install {package}")
    if "arguments" not in done.stdout + done.stderr:
        reason = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise SetupError(f"Triton's Python stub does not start: {reason}")


def check_shared_memory(folder: Path) -> None:
    """Raise SetupError if shared memory is too small for Python models to exchange tensors with Triton."""
    try:
        space = os.statvfs(folder)
    except OSError as error:
        raise SetupError(f"{folder}: {error.strerror}: mount shared memory there for Triton's Python models") from None
    free = space.f_bavail * space.f_frsize
    if free < MIN_SHARED_MEMORY:
        raise SetupError(
            f"{folder} has {free / 2**20:.0f} MiB free, but Triton's Python models need {MIN_SHARED_MEMORY >> 20} MiB: "
            "in Docker, pass --shm-size=1g"
        )


def temporary_folder() -> Path:
    """Return the folder for temporary files.

    Raises:
        SetupError: No folder is writable, or Triton cannot start its Python stub from the folder.
    """
    try:
        folder = Path(tempfile.gettempdir())
    except OSError as error:
        raise SetupError(f"no writable folder for temporary files: set TMPDIR to one ({error})") from None
    check_stub_folder(folder, "the folder for temporary files", "TMPDIR")
    return folder


def check_stub_folder(folder: Path, role: str, setting: str) -> None:
    """Check that Triton can start its Python stub from a folder. Otherwise, Triton would exit or wait forever.

    Args:
        folder: Backend directory, or a folder that will contain it.
        role: Description of the folder in error messages.
        setting: Name of the option or environment variable that sets the folder.

    Raises:
        SetupError: The folder is mounted noexec, or its path contains a character that a shell interprets.
    """
    if os.statvfs(folder).f_flag & os.ST_NOEXEC:
        raise SetupError(
            f"{folder}, {role}, is mounted noexec, but Triton starts its Python stub from there: mount it with exec "
            f"(docker run --tmpfs {folder}:exec, or `tmpfs: {folder}:exec` in a compose file), or set {setting} to a "
            "different folder"
        )
    if special := _NEEDS_QUOTES.search(str(folder)):
        raise SetupError(
            f"{folder}, {role}, has {special[0]!r} in its name, and Triton passes the path to a shell without quotes: "
            f"set {setting} to a different folder"
        )
