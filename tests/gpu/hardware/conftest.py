"""Provides what every test on a real GPU needs: the GPU, CuPy and nvImageCodec.

If one of them is missing, the tests are skipped with a message, or fail if PIXPREP_REQUIRE_GPU=1. Measurements and test
outcomes are appended as lines of JSON to the file that PIXPREP_GPU_RESULTS names. Each line contains PIXPREP_GPU_STEP.

With PIXPREP_FAKE_GPU=FOLDER, the GPU is mocked on the CPU (fake_cupy.py), to check that the tests themselves run.
"""

import gc
import importlib
import json
import os
import warnings
from functools import partial
from pathlib import Path

import pytest

if folder := os.environ.get("PIXPREP_FAKE_GPU"):
    from gpu import fake_cupy
    from gpu.conftest import shrink_samples
    from pixprep.gpu import samples

    fake_cupy.install(folder)
    shrink_samples(partial(setattr, samples))


def pytest_collection_modifyitems(items):
    for item in items:
        # warnings of NVIDIA's libraries are printed, but do not fail a test
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings("default"))


def missing():
    """Return the reason why no GPU can be tested, or None."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            cupy = importlib.import_module("cupy")
            importlib.import_module("nvidia.nvimgcodec")
        except ImportError as error:
            return f'NO {(error.name or "CUPY").upper()}: pip install ".[gpu-cuda12]" (or gpu-cuda13)'
        try:
            count = cupy.cuda.runtime.getDeviceCount()
        except cupy.cuda.runtime.CUDARuntimeError as error:
            return f"NO NVIDIA GPU: {error}"
    return None if count else "NO NVIDIA GPU: the driver sees none"


@pytest.fixture(scope="session", autouse=True)
def cupy():
    """Return CuPy if this machine can run it; skip the test otherwise."""
    reason = missing()
    if reason and os.environ.get("PIXPREP_REQUIRE_GPU") == "1":
        pytest.fail(f"{reason} (PIXPREP_REQUIRE_GPU=1 makes this a failure)", pytrace=False)
    if reason:
        pytest.skip(reason)
    return importlib.import_module("cupy")


@pytest.fixture(scope="session")
def gpu(cupy):  # noqa: ARG001  (a GPU is required)
    """Return ``pixprep.gpu.device``."""
    return importlib.import_module("pixprep.gpu.device")


def write(**row):
    """Append a line to the results file, without checking its contents."""
    if path := os.environ.get("PIXPREP_GPU_RESULTS"):
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(json.dumps({"step": os.environ.get("PIXPREP_GPU_STEP", "")} | row) + "\n")


def pytest_runtest_logreport(report):
    if report.when == "call" or not report.passed:
        why = "" if report.passed else str(report.longrepr)[-600:]
        write(test=report.nodeid, outcome=report.outcome, seconds=round(report.duration, 2), why=why)


@pytest.fixture(scope="session")
def record():
    """Return ``record(section, **numbers)``, which writes measurements to the results file."""
    return lambda section, **numbers: write(recorded=section, **numbers)


@pytest.fixture
def free_bytes(cupy):
    """Return ``free_bytes()``, which releases all caches and returns the free memory of the device."""

    def free_bytes():
        gc.collect()
        cupy.get_default_memory_pool().free_all_blocks()
        cupy.cuda.runtime.deviceSynchronize()
        return cupy.cuda.runtime.memGetInfo()[0]

    return free_bytes
