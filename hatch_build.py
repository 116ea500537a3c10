"""Compiles the kernels, the *.c of FOLDERS, when a wheel or an editable install is made: hatchling calls it.

As a program it compiles them where they lie, or into the folder that is named, with more options of the compiler behind
it. The compiler is Clang, as ``ziglang`` brings it: GCC's
kernels take several times as long. These variables of the environment change that:

PIXPREP_CC: another compiler. Its wheel is for machines like this one.
PIXPREP_ARCHITECTURE: x86_64 or aarch64, for a wheel that is meant for another processor.
ZIG_GLOBAL_CACHE_DIR: a folder for what is compiled, where the same is found the next time.
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
"""Folders of the sources inside the package; the libraries lie in the first."""
LEVELS = {"x86_64": ("x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4")}
"""Processors with a library each. Any other architecture has one, by its own name."""
FLAGS = (
    "-std=gnu11", "-O3", "-fPIC", "-shared", "-s", "-Wall", "-Wextra", "-Wno-psabi", "-fvisibility=hidden",
    "-ffp-contract=off",  # each product and sum is rounded by itself
    "-fno-math-errno", "-fno-trapping-math",
)  # fmt: skip


def compiler(architecture: str) -> list[str]:
    """The words that begin a command of the compiler.

    Raises:
        SystemExit: there is none.
    """
    if other := os.environ.get("PIXPREP_CC"):
        return [other]
    if importlib.util.find_spec("ziglang") is None:
        sys.exit(f'pixprep: the kernels need a compiler: pip install "{ZIG}", or say PIXPREP_CC=gcc (slower kernels)')
    libc = f"gnu.{GLIBC}" if architecture in ("x86_64", "aarch64") else "gnu"
    return [sys.executable, "-m", "ziglang", "cc", "-target", f"{architecture}-linux-{libc}"]


def compile_kernels(package: Path, to: Path, architecture: str, *more: str) -> list[Path]:
    """The libraries of an architecture, two at a time.

    Args:
        package: the folder of the package.
        to: where the libraries go.
        architecture: as ``platform.machine`` says it.
        more: options of the compiler.

    Raises:
        SystemExit: there is no compiler.
        subprocess.CalledProcessError: it does not compile them; it has said why.
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
        made = library.with_suffix(f".{os.getpid()}")  # whoever has the old one loaded keeps it
        command = [*start, *flags, *headers, *sources, "-o", str(made), "-lm"]
        environment = {**os.environ, "ZIG_GLOBAL_CACHE_DIR": cache, "ZIG_LOCAL_CACHE_DIR": cache}
        subprocess.run(command, check=True, env=environment)
        made.replace(library)
        return library

    with tempfile.TemporaryDirectory() as empty, ThreadPoolExecutor(2) as pool:
        cache = os.environ.get("ZIG_GLOBAL_CACHE_DIR", empty)
        return list(pool.map(compiled, LEVELS.get(architecture, (architecture,))))


def is_new(package: Path, architecture: str) -> bool:
    """Tell whether the libraries that lie beside the sources are newer than these."""
    libraries = [package / FOLDERS[0] / f"pixprep-{level}.so" for level in LEVELS.get(architecture, (architecture,))]
    sources = [Path(__file__), *(path for folder in FOLDERS for path in (package / folder).glob("*.[ch]"))]
    return all(each.exists() for each in libraries) and max(each.stat().st_mtime for each in sources) < min(
        each.stat().st_mtime for each in libraries
    )


class Kernels(BuildHookInterface[Any]):
    """See the head of this file."""

    def dependencies(self) -> list[str]:
        """Zig, which is fetched only where no other compiler is named."""
        return [ZIG] if platform.system() == "Linux" and not os.environ.get("PIXPREP_CC") else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, beside the sources for an editable install, else into the wheel."""
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
        """Remove what was compiled for the wheel."""
        del version, build_data, artifact_path
        if self._made:
            shutil.rmtree(self._made)


if __name__ == "__main__":
    HERE = Path(__file__).parent / PACKAGE
    TO, *MORE = sys.argv[1:] or [HERE / FOLDERS[0]]
    compile_kernels(HERE, Path(TO), os.environ.get("PIXPREP_ARCHITECTURE") or platform.machine(), *map(str, MORE))
