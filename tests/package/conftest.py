"""The modules of the benchmarks, and a compiler for wheels whose kernels are never run."""

import importlib
import os
import shutil
import sys
from pathlib import Path

import pytest

# the same as the Makefile's, so that a wheel's kernels are compiled once and not for each test that builds one
os.environ.setdefault("ZIG_GLOBAL_CACHE_DIR", str(Path(sys.prefix, "zig").absolute()))
READS = """#!/bin/sh
case "$*" in *x86-64-v4*) gcc -fsyntax-only "$@" || exit 1;; esac
while [ "$1" != -o ]; do shift; done
touch "$2"
"""


@pytest.fixture
def reader(tmp_path):
    """A compiler of empty libraries: GCC compiles the kernels for one level only, and other compilers all of them."""
    if shutil.which("gcc") is None:
        pytest.skip("NO GCC: apt-get install gcc")
    compiler = tmp_path / "compiler"
    compiler.write_text(READS)
    compiler.chmod(0o755)
    return str(compiler)


@pytest.fixture(scope="module")
def benchmark():
    """Make the modules importable by name, as for a script in the same folder."""
    folder = str(Path(__file__).parents[2] / "benchmarks")
    sys.path.insert(0, folder)
    yield importlib.import_module
    sys.path.remove(folder)
