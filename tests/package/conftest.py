"""The benchmarks' modules."""

import importlib
import os
import sys
from pathlib import Path

import pytest

# The Makefile's: a wheel's kernels are compiled once, and not for each test that makes one.
os.environ.setdefault("ZIG_GLOBAL_CACHE_DIR", str(Path(sys.prefix, "zig").absolute()))


@pytest.fixture(scope="module")
def benchmark():
    """The modules by name, as a script beside them would import them."""
    folder = str(Path(__file__).parents[2] / "benchmarks")
    sys.path.insert(0, folder)
    yield importlib.import_module
    sys.path.remove(folder)
