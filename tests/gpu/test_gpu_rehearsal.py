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


def test_every_gpu_test_passes_on_the_mock_with_its_first_parameters(folder, tmp_path):
    """All parameters take a minute and a half: PIXPREP_FAKE_GPU=FOLDER pytest tests/gpu/hardware."""
    results = tmp_path / "results.json"
    environment = {"PIXPREP_FAKE_GPU": str(folder), "PIXPREP_GPU_RESULTS": str(results)}
    pytest_ = ["-m", "pytest", "-q", "-p", "no:cacheprovider"]
    served = "--ignore=tests/gpu/hardware/test_served.py"  # tests/serving/server/test_served.py runs these tests
    collected = run([*pytest_, "--collect-only", served, "tests/gpu/hardware"], **environment)
    tests = {line.partition("[")[0]: line for line in reversed(collected.stdout.splitlines()) if "::" in line}
    assert len(tests) > 20, collected.stdout
    others = (
        "test_every_case_equals",
        "test_the_pixels_of_every",
        "test_rates_compared",
    )  # test_cuda.py and test_gpu_hour.py cover these
    chosen = [test for name, test in tests.items() if not any(other in name for other in others)]
    assert len(chosen) == len(tests) - len(others)
    done = run([*pytest_, *chosen], **environment)
    assert f"{len(chosen)} passed" in done.stdout, done.stdout + done.stderr
    rows = [json.loads(line) for line in results.read_text().splitlines()]
    assert len({row["recorded"] for row in rows if "recorded" in row}) == 3
