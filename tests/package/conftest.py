"""The benchmarks' modules."""

import importlib
import sys
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def benchmark():
    """The modules by name, as a script beside them would import them."""
    folder = str(Path(__file__).parents[2] / "benchmarks")
    sys.path.insert(0, folder)
    yield importlib.import_module
    sys.path.remove(folder)
