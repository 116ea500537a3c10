"""Build hook of hatchling that compiles the C kernels for a wheel or an editable install.

Run as a program, it compiles the kernels next to their sources, or to the folder given as the first argument; further
arguments are compiler options. The compiler is Clang from the package ``ziglang``, because kernels compiled by GCC are
several times slower. Environment variables:

PIXPREP_CC: A different compiler. The wheel then requires a system similar to the build machine.
PIXPREP_ARCHITECTURE: x86_64 or aarch64, to cross-compile a wheel.
ZIG_GLOBAL_CACHE_DIR: Folder in which compiled objects are cached between builds.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ZIG = "ziglang==0.17.1"
GLIBC = "2.17"
PACKAGE = Path("backend", "pixprep")
FOLDERS = Path("engine", "kernels"), Path("gpu")
"""Source folders inside the package. The compiled libraries are written to the first one."""
LEVELS = {"x86_64": ("x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4")}
"""Microarchitecture levels, each of which gets its own library. Other architectures have a single library."""
FLAGS = (
    "-std=gnu11", "-O3", "-fPIC", "-shared", "-s", "-Wall", "-Wextra", "-Wno-psabi", "-fvisibility=hidden",
    "-ffp-contract=off",  # no fused multiply-add: round each product and sum separately
    "-fno-math-errno", "-fno-trapping-math",
)  # fmt: skip


def compiler(architecture: str) -> list[str]:
    """Return the command that runs the compiler, without options.

    Raises:
        SystemExit: No compiler is installed.
    """
    if other := os.environ.get("PIXPREP_CC"):
        return [other]
    if importlib.util.find_spec("ziglang") is None:
        sys.exit(f'pixprep: the kernels need a compiler: pip install "{ZIG}", or set PIXPREP_CC=gcc (slower)')
    libc = f"gnu.{GLIBC}" if architecture in ("x86_64", "aarch64") else "gnu"
    return [sys.executable, "-m", "ziglang", "cc", "-target", f"{architecture}-linux-{libc}"]


def compile_kernels(package: Path, to: Path, architecture: str, *more: str) -> list[Path]:
    """Compile the libraries of an architecture, two at a time, and return their paths.

    Args:
        package: Folder of the package.
        to: Folder to which the libraries are written.
        architecture: Architecture as returned by ``platform.machine``.
        more: Additional compiler options.

    Raises:
        SystemExit: No compiler is installed.
        subprocess.CalledProcessError: The compiler failed. Its messages are on stderr.
    """
    other = os.environ.get("PIXPREP_CC")
    start = compiler(architecture)
    sources = [str(path) for folder in FOLDERS for path in sorted((package / folder).glob("*.c"))]
    headers = [f"-I{package / folder}" for folder in FOLDERS]

    def compiled(level: str) -> Path:
        library = to / f"pixprep-{level}.so"
        flags = [*FLAGS, *more]
        if level.startswith("x86"):
            flags.append(f"-march={level}" if other else f"-mcpu={level.replace('x86-64', 'x86_64').replace('-', '_')}")
        if level.endswith("v4"):
            flags.append("-mprefer-vector-width=512")
        made = library.with_suffix(f".{os.getpid()}")  # renamed later, so that running processes keep the old library
        command = [*start, *flags, *headers, *sources, "-o", str(made), "-lm"]
        environment = {**os.environ, "ZIG_GLOBAL_CACHE_DIR": cache, "ZIG_LOCAL_CACHE_DIR": cache}
        subprocess.run(command, check=True, env=environment)
        made.replace(library)
        return library

    with tempfile.TemporaryDirectory() as empty, ThreadPoolExecutor(2) as pool:
        cache = os.environ.get("ZIG_GLOBAL_CACHE_DIR", empty)
        return list(pool.map(compiled, LEVELS.get(architecture, (architecture,))))


def is_new(package: Path, architecture: str) -> bool:
    """Return whether all compiled libraries exist and are newer than the sources."""
    libraries = [package / FOLDERS[0] / f"pixprep-{level}.so" for level in LEVELS.get(architecture, (architecture,))]
    sources = [Path(__file__), *(path for folder in FOLDERS for path in (package / folder).glob("*.[ch]"))]
    return all(each.exists() for each in libraries) and max(each.stat().st_mtime for each in sources) < min(
        each.stat().st_mtime for each in libraries
    )


class Kernels(BuildHookInterface[Any]):
    """Build hook; see the module docstring."""

    def dependencies(self) -> list[str]:
        """Return the build dependencies: Zig, unless PIXPREP_CC names a different compiler."""
        return [ZIG] if platform.system() == "Linux" and not os.environ.get("PIXPREP_CC") else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile the kernels, next to the sources for an editable install, or into the wheel."""
        self._made = None
        if platform.system() != "Linux":
            return
        package = Path(self.root, PACKAGE)
        if version == "editable":
            if not is_new(package, platform.machine()):
                compile_kernels(package, package / FOLDERS[0], platform.machine())
            return
        architecture = os.environ.get("PIXPREP_ARCHITECTURE") or platform.machine()
        self._made = Path(tempfile.mkdtemp())
        for library in compile_kernels(package, self._made, architecture):
            build_data["force_include"][str(library)] = f"pixprep/{FOLDERS[0].as_posix()}/{library.name}"
        is_any = not os.environ.get("PIXPREP_CC") and architecture in ("x86_64", "aarch64")
        system = f"manylinux_{GLIBC.replace('.', '_')}" if is_any else "linux"
        build_data |= {"pure_python": False, "tag": f"py3-none-{system}_{architecture}"}

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the temporary folder of the compiled libraries."""
        del version, build_data, artifact_path
        if self._made:
            shutil.rmtree(self._made)


if __name__ == "__main__":
    HERE = Path(__file__).parent / PACKAGE
    TO, *MORE = sys.argv[1:] or [HERE / FOLDERS[0]]
    compile_kernels(HERE, Path(TO), os.environ.get("PIXPREP_ARCHITECTURE") or platform.machine(), *map(str, MORE))
