"""Tests how devices are selected by name on machines that lack a GPU, a home folder or write permission."""

import os
import subprocess
import sys

import pytest

CUPY = """
import os
folder = os.environ.get("CUPY_CACHE_DIR", os.path.expanduser("~/.cupy/kernel_cache"))
os.makedirs(folder, exist_ok=True)
print(folder)
raise ImportError("a stand-in, which does what CuPy 14 does first", name="cupy")
"""
SCRIPT = """
import pixprep
from pixprep.engine.devices import device_for
try:
    device_for("gpu:1")
except pixprep.SetupError as error:
    print(error)
"""
NO_HOME = "/proc/no-home"


@pytest.fixture
def output_of(tmp_path):
    """Return ``output_of(HOME=…)``: the output of a process that imports CuPy and then requests a GPU."""
    (tmp_path / "cupy.py").write_text(CUPY, encoding="utf-8")
    (tmp_path / "tmp").mkdir()

    def output_of(**variables):
        inherited = {name: value for name, value in os.environ.items() if name != "CUPY_CACHE_DIR"}
        environment = inherited | {"PYTHONPATH": str(tmp_path), "TMPDIR": str(tmp_path / "tmp")} | variables
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, check=True
        )
        return done.stdout.splitlines()

    return output_of


def test_without_a_home_cupy_gets_a_temporary_folder_that_is_deleted_at_exit(output_of, tmp_path):
    folder, error = output_of(HOME=NO_HOME)
    assert folder.startswith(str(tmp_path / "tmp" / "pixprep-cupy-"))
    assert error.startswith('device "gpu:1" requires cupy: pip install ".[gpu-cuda12]"')
    assert not list((tmp_path / "tmp").iterdir())


def test_cupy_writes_into_an_existing_home(output_of, tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    assert output_of(HOME=str(home))[0] == str(home / ".cupy" / "kernel_cache")


def test_a_folder_that_cupy_cannot_create_is_reported_with_the_fix(output_of):
    (error,) = output_of(CUPY_CACHE_DIR=f"{NO_HOME}/kernels")
    assert error == (f'device "gpu:1": {NO_HOME}: No such file or directory: set CUPY_CACHE_DIR to a writable folder')
