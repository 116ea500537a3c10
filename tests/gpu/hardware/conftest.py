"""Fixtures that every GPU test needs: a GPU, CuPy and nvImageCodec.

Without them a loud skip, or a failure where PIXPREP_REQUIRE_GPU=1 promised them. The numbers that a test measures go to
the file that PIXPREP_GPU_RESULTS names, a line of JSON for each, as do the outcomes; PIXPREP_GPU_STEP is in each line.

With PIXPREP_FAKE_GPU=FOLDER the GPU is played by the CPU (fake_cupy.py), to see that the tests themselves run.
"""

import gc
import importlib
import json
import os
import warnings
from pathlib import Path

import pytest

if folder := os.environ.get("PIXPREP_FAKE_GPU"):
    from gpu import fake_cupy

    fake_cupy.install(folder)


def pytest_collection_modifyitems(items):
    for item in items:
        if Path(__file__).parent in item.path.parents:  # what NVIDIA's libraries warn about is printed, and no failure
            item.add_marker(pytest.mark.filterwarnings("default"))


def missing():
    """Return the reason why there is no GPU to test on; None if there is one."""
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
    """CuPy, on a machine that can run it."""
    reason = missing()
    if reason and os.environ.get("PIXPREP_REQUIRE_GPU") == "1":
        pytest.fail(f"{reason} (PIXPREP_REQUIRE_GPU=1 makes this a failure)", pytrace=False)
    if reason:
        pytest.skip(reason)
    return importlib.import_module("cupy")


@pytest.fixture(scope="session")
def gpu(cupy):  # noqa: ARG001  (first it must be there)
    """``pixprep.gpu.device``."""
    return importlib.import_module("pixprep.gpu.device")


def write(**row):
    """A line of the results file; nothing is asserted of it here."""
    if path := os.environ.get("PIXPREP_GPU_RESULTS"):
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(json.dumps({"step": os.environ.get("PIXPREP_GPU_STEP", "")} | row) + "\n")


def pytest_runtest_logreport(report):
    if report.when == "call" or not report.passed:
        why = "" if report.passed else str(report.longrepr)[-600:]
        write(test=report.nodeid, outcome=report.outcome, seconds=round(report.duration, 2), why=why)


@pytest.fixture(scope="session")
def record():
    """``record(section, **numbers)``, for people."""
    return lambda section, **numbers: write(recorded=section, **numbers)


@pytest.fixture
def free_bytes(cupy):
    """Return ``free_bytes()``, the free memory of the device after all caches are released."""

    def free_bytes():
        gc.collect()
        cupy.get_default_memory_pool().free_all_blocks()
        cupy.cuda.runtime.deviceSynchronize()
        return cupy.cuda.runtime.memGetInfo()[0]

    return free_bytes
