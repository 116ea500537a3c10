"""Provides fixtures that import the benchmarks' modules, and that replace the compilers for wheels whose kernels are
never run.
"""

import importlib
import os
import shutil
import sys
from pathlib import Path

import pytest

# The Makefile uses the same folder, so that a wheel's kernels are compiled only once, not in every test that builds a
# wheel.
os.environ.setdefault("ZIG_GLOBAL_CACHE_DIR", str(Path(sys.prefix, "zig").absolute()))
READS = """#!/bin/sh
case "$*" in *x86-64-v4*) gcc -fsyntax-only "$@" || exit 1;; esac
while [ "$1" != -o ]; do shift; done
touch "$2"
"""


@pytest.fixture
def reader(tmp_path):
    """Replace the compilers: GCC compiles the kernels for only one CPU level, and the other compilers write empty
    libraries.
    """
    if shutil.which("gcc") is None:
        pytest.skip("NO GCC: apt-get install gcc")
    compiler = tmp_path / "compiler"
    compiler.write_text(READS)
    compiler.chmod(0o755)
    return str(compiler)


@pytest.fixture(scope="module")
def benchmark():
    """Return a function that imports a benchmark's module by name, as a script in the same folder would."""
    folder = str(Path(__file__).parents[2] / "benchmarks")
    sys.path.insert(0, folder)
    yield importlib.import_module
    sys.path.remove(folder)
