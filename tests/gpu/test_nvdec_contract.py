"""Tests that PyNvVideoCodec's own code, run over a mocked driver, behaves as pixprep requires and as fake_nvdec.py
does.

The package is not installed by default: run ``pip install --no-deps --target FOLDER PyNvVideoCodec``, and set
PYTHONPATH=FOLDER.
"""

import importlib.util
import inspect
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from gpu import cuda_shim, fake_nvdec, nvdec_driver

TESTS = Path(__file__).parents[1]
SPEC = importlib.util.find_spec("PyNvVideoCodec")
pytestmark = [
    pytest.mark.skipif(SPEC is None, reason="NO PYNVVIDEOCODEC: make gpu-installs installs it"),
    pytest.mark.skipif(cuda_shim.COMPILER is None, reason="NO C++ COMPILER: the CUDA kernels do not run here"),
    pytest.mark.skipif(nvdec_driver.COMPILER is None, reason="NO C COMPILER: the driver cannot be mocked"),
]


@pytest.fixture(scope="module")
def driver_results(tmp_path_factory):
    """Return the output of tests/gpu/nvdec_driver.py."""
    folder, shims = tmp_path_factory.mktemp("driver"), tmp_path_factory.mktemp("shim")
    nvdec_driver.libraries(folder)
    environment = os.environ | {"LD_LIBRARY_PATH": str(folder)}
    command = [sys.executable, "-m", "gpu.nvdec_driver", shims]
    done = subprocess.run(command, env=environment, cwd=TESTS, capture_output=True, text=True, check=False, timeout=280)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_the_code_of_the_wheel_runs(driver_results):
    assert driver_results["file"] == SPEC.origin
    assert int(driver_results["version"].split(".")[0]) >= 2


@pytest.mark.parametrize("frames", ["5", "70"])
def test_its_frames_give_the_tensors_of_the_cpu(driver_results, frames):
    assert driver_results[frames] == {"equal": True, "errors": 0, "fallbacks": 0}


def test_a_packet_without_bytes_ends_the_stream(driver_results):
    end, time = nvdec_driver.Driver.END, nvdec_driver.Driver.TIME
    assert driver_results["flags"] == [time, end | time]


def test_frames_are_only_copied_on_the_workers_stream(driver_results):
    assert driver_results["streams"] == nvdec_driver.STREAM


def test_a_driver_error_is_raised_and_the_cpu_decodes(driver_results):
    assert driver_results["errors"] == [True, True]
    assert driver_results["fault"] == {"equal": True, "errors": 0, "fallbacks": 2}


def test_the_mock_has_only_what_the_wheel_has(driver_results):
    module = fake_nvdec.played()
    for name, members in driver_results["members"].items():
        played = {each for each in vars(getattr(module, name)) if not each.startswith("_")}
        for base in getattr(module, name).__mro__[1:-1]:
            played |= {
                each for each in vars(base) if each[0].isupper() or each in ("format", "shape", "strides", "pts")
            }
        ours = {"made", "packets", "fault", "lost", "change", "codecs", "outside", "name", "value"}
        assert played - ours <= {*members}, (name, played - ours - {*members})
    (first, *_) = re.findall(r"CreateDecoder\((gpuid.*)\) ->", driver_results["documented"]["CreateDecoder"])
    arguments = re.findall(r"(\w+): ", re.sub(r"<[^>]*>", "", first))
    assert [*inspect.signature(module.CreateDecoder).parameters] == arguments[:5]
