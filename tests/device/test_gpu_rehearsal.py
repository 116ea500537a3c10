"""The GPU's tests and benchmark with no GPU: each runs to its end over the fake CuPy, so that none first runs on a GPU.

In processes of their own, where the fake has CuPy's name. What they measure means nothing here.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import cuda_shim

ROOT = Path(__file__).parents[2]
BENCHMARK = """
import sys
sys.path[:0] = {paths!r}
import fake_cupy
fake_cupy.install({folder!r})
import gpu
gpu.COPIED, gpu.ROTATED, gpu.SAMPLES = 1 << 16, 1 << 20, 2
gpu.main()
"""

pytest.importorskip("nvidia.nvimgcodec", reason="NO NVIMGCODEC: pip install nvidia-nvimgcodec-cu12")
pytestmark = [
    pytest.mark.skipif(cuda_shim.COMPILER is None, reason="NO C++ COMPILER: the CUDA kernels do not run here"),
    pytest.mark.slow(reason="a minute; test_gpu_engine.py runs the product's own GPU code over the same fake"),
]


def run(command, **environment):
    return subprocess.run(
        [sys.executable, *map(str, command)],
        cwd=ROOT,
        env=os.environ | {"PIXPREP_REQUIRE_GPU": "1"} | environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_every_gpu_test_passes_on_the_fake_one_with_its_first_parameters(folder, tmp_path):
    """All of them, in a minute and a half: PIXPREP_FAKE_GPU=FOLDER pytest tests/gpu."""
    results = tmp_path / "results.json"
    environment = {"PIXPREP_FAKE_GPU": str(folder), "PIXPREP_GPU_RESULTS": str(results)}
    pytest_ = ["-m", "pytest", "-q", "-p", "no:cacheprovider"]
    served = "--ignore=tests/gpu/test_served.py"  # tests/server/test_served.py is its rehearsal
    collected = run([*pytest_, "--collect-only", served, "tests/gpu"], **environment)
    tests = {line.partition("[")[0]: line for line in reversed(collected.stdout.splitlines()) if "::" in line}
    assert len(tests) > 20, collected.stdout
    slow = "tests/gpu/test_kernel.py::test_every_case_equals_the_cpu_kernel"  # test_cuda.py has its cases
    done = run([*pytest_, *(test for name, test in tests.items() if name != slow)], **environment)
    assert f"{len(tests) - 1} passed" in done.stdout, done.stdout + done.stderr
    assert len(json.loads(results.read_text())) == 6


def test_the_gpu_benchmark_runs_to_its_end_and_writes_its_numbers(folder, tmp_path):
    paths = [str(ROOT / "benchmarks"), str(ROOT / "tests")]
    options = ["--out", tmp_path, "--date", "today", "--sizes", "500x375", "--batches", "1", "3", "--photos", "4"]
    script = BENCHMARK.format(paths=paths, folder=str(folder))
    done = run(["-c", script, *options, "--rounds", "1", "--seconds", "0"])
    assert done.returncode == 0, done.stderr
    (path,) = tmp_path.iterdir()
    results = json.loads(path.read_text())
    assert path.name == "gpu-today-fake-gpu.json"
    assert results["copy_bytes_per_s"] > 0
    decoders, batches = ["consistent", "fastest", "cuda"], [1, 3]
    assert [row["decoder"] for row in results["checks"]] == decoders
    cells = [(row["decoder"], row["batch"]) for row in results["throughput"]]
    assert cells == [(decoder, batch) for decoder in decoders for batch in batches]
    assert all({"engine", "raw"} <= set(row["contenders"]) for row in results["throughput"])
    cells = [(row["batch"], row["dtype"], row["levels"], row["device_ms"]["count"]) for row in results["kernels"]]
    kernels = [("float32", "kept"), ("float32", "jitter"), ("float32", "turned"), ("float16", "kept")]
    assert cells == [(batch, *each, 2) for batch in batches for each in kernels]
