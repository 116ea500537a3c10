"""Tests that each combination of extras in docs/deploy.md resolves to the versions of NumPy and CuPy that the page
lists.

uv only requests metadata from the package index, so each combination takes a second or two.
"""

import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
UV = Path(sysconfig.get_path("scripts")) / "uv"
ROW = re.compile(r'^\| `"\.\[([\w,-]+)\]"` \| (\d) \| (?:(\d+)|-) \|', re.MULTILINE)
ROWS = ROW.findall((ROOT / "docs" / "deploy.md").read_text(encoding="utf-8"))
needs_uv = pytest.mark.skipif(not UV.exists(), reason="NO UV: the extras were not resolved (make .venv/.dev)")


@pytest.fixture(scope="module")
def resolve(tmp_path_factory):
    """Return a function that resolves extras to package versions for this Python version.

    The function raises ValueError if the extras conflict.
    """
    cache = tmp_path_factory.mktemp("uv")

    def versions(extras, folder=ROOT):
        command = [UV, "pip", "compile", "--quiet", "--no-annotate", "--no-header", "--system-certs", "--no-config"]
        command += [f"--python-version={sys.version_info[0]}.{sys.version_info[1]}", folder / "pyproject.toml"]
        command += [f"--extra={extra}" for extra in extras]
        environment = os.environ | {"UV_CACHE_DIR": str(cache)}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode and "No solution found" in done.stderr:
            raise ValueError(done.stderr)
        if done.returncode:
            pytest.skip(f"NO PACKAGE INDEX: the extras were not resolved: {done.stderr.strip().splitlines()[-1]}")
        return dict(re.findall(r"^([\w.-]+)==(\S+)", done.stdout, re.MULTILINE))

    return versions


def test_each_extra_that_requires_numpy_can_be_combined_with_each_gpu_extra():
    named = [set(extras.split(",")) for extras, _, _ in ROWS]
    assert len(named) > 8
    for cuda in ("gpu-cuda12", "gpu-cuda13"):
        for beside in ("client", "classifier", f"classifier-{cuda}", "server", "heic"):
            assert any({cuda, beside} <= each for each in named), (cuda, beside)


@pytest.mark.slow(reason="uv resolves each combination again: half a minute")
@needs_uv
@pytest.mark.parametrize(("extras", "numpy", "cupy"), ROWS)
def test_a_command_in_the_docs_installs_the_named_versions(resolve, extras, numpy, cupy):
    if "classifier-gpu" in extras and sys.version_info < (3, 11):
        pytest.skip("PYTHON 3.10: the GPU's classifier begins with 3.11")
    found = resolve(extras.split(","))
    assert found["numpy"].split(".")[0] == numpy
    assert [version.split(".")[0] for name, version in found.items() if name.startswith("cupy")] == [cupy] * bool(cupy)


@needs_uv
def test_conflicting_extras_are_detected(resolve, tmp_path):
    """As a negative control, the test also requires the other version of NumPy, so that no solution exists."""
    project = (ROOT / "pyproject.toml").read_text()
    (tmp_path / "pyproject.toml").write_text(project.replace('"cupy-cuda12x>=13.6"', '"cupy-cuda12x>=14.2"'))
    with pytest.raises(ValueError, match="cupy-cuda12x"):
        resolve(["gpu-cuda12", "client"], tmp_path)
