"""Tests the GPU tests without a GPU: each test runs to its end with a mocked CuPy, so that it has run before it runs on
a GPU.

The tests run in separate processes, in which the mock replaces the module ``cupy``. Their measurements have no meaning
here.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpu import cuda_shim

ROOT = Path(__file__).parents[2]
pytest.importorskip("nvidia.nvimgcodec", reason="NO NVIMGCODEC: pip install nvidia-nvimgcodec-cu12")
pytestmark = [
    pytest.mark.skipif(cuda_shim.COMPILER is None, reason="NO C++ COMPILER: the CUDA kernels do not run here"),
    pytest.mark.slow(reason="takes minutes; the other files run the product's own GPU code with the same mock"),
]


def run(command, **environment):
    return subprocess.run(
        [sys.executable, *map(str, command)],
        cwd=ROOT,
        env=os.environ | {"PIXPREP_REQUIRE_GPU": "1"} | environment,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )


OTHERS = "test_every_case_equals", "test_the_pixels_of_every", "test_rates_compared"
"""Parts of the names of tests that are not run here, because test_cuda.py and test_gpu_hour.py cover them."""
RECORDED = {"clips": {"clips"}, "decode": set(), "engine": {"damage inside a scan", "device memory"}, "kernel": set()}
RECORDED["loader"] = {"device memory"}
"""Sections that each test file records in its results. tests/serving/server/test_served.py rehearses test_served.py."""


@pytest.mark.parametrize("name", RECORDED)
def test_every_gpu_test_passes_on_the_mock_with_its_first_parameters(name, folder, tmp_path):
    """All parameters take a minute and a half: PIXPREP_FAKE_GPU=FOLDER pytest tests/gpu/hardware."""
    results = tmp_path / "results.json"
    environment = {"PIXPREP_FAKE_GPU": str(folder), "PIXPREP_GPU_RESULTS": str(results)}
    pytest_ = ["-m", "pytest", "-q", "-p", "no:cacheprovider"]
    collected = run([*pytest_, "--collect-only", f"tests/gpu/hardware/test_{name}.py"], **environment)
    tests = {line.partition("[")[0]: line for line in reversed(collected.stdout.splitlines()) if "::" in line}
    assert tests, collected.stdout
    chosen = [line for test, line in tests.items() if not any(other in test for other in OTHERS)]
    done = run([*pytest_, *chosen], **environment)
    assert f"{len(chosen)} passed" in done.stdout, done.stdout + done.stderr
    rows = [json.loads(line) for line in results.read_text().splitlines()]
    assert {row["recorded"] for row in rows if "recorded" in row} == RECORDED[name]
