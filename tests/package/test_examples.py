"""Tests of functions in the client examples that do not need a server."""

import json
import os
import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "client_examples"


SCRIPTS = sorted(EXAMPLES.glob("*.py"))
MODULES = {"tritonclient": "tritonclient", "pixprep": ".", "pytriton": "server"} | {
    name: name for name in ("pyspark", "pandas")
}


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_an_example_begins_with_the_packages_to_install(path):
    line, imported = installs(path), set(re.findall(r"^(?:import|from) (\w+)", path.read_text(), re.MULTILINE))
    for module in imported & MODULES.keys():
        assert module in line or MODULES[module] in line or ("[client" in line and module == "tritonclient")
    assert "opencv" not in line  # the newest OpenCV requires NumPy 2, which prevents the embedded Triton from starting


def test_packages_of_the_examples_do_not_conflict_with_the_embedded_triton(reader):
    """The test omits spark_batch.py, because its page uses a separate environment."""
    words = [word for path in SCRIPTS if path.stem != "spark_batch" for word in shlex.split(installs(path))]
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--no-index", "--quiet", "--report", "-"]
    command.append("--no-build-isolation")
    done = subprocess.run(
        [*command, *words], capture_output=True, text=True, check=False, cwd=EXAMPLES.parent,
        env=os.environ | {"PIXPREP_CC": reader},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    # pip would install this checkout
    assert [each["metadata"]["name"] for each in json.loads(done.stdout)["install"]] == ["pixprep"]


def installs(path):
    """Return the arguments that an example's command passes to ``pip install``."""
    (line,) = re.findall(r"^pip install (.+)$", path.read_text(), re.MULTILINE)
    return line


def test_grpc_async_many_accepts_a_folder_of_photos(tmp_path):
    files = runpy.run_path(str(EXAMPLES / "grpc_async_many.py"))["files"]
    (tmp_path / "deep").mkdir()
    photos = [tmp_path / "a.jpg", tmp_path / "deep" / "b.jpeg"]
    for path in [*photos, tmp_path / "notes.txt"]:
        path.touch()
    assert files([tmp_path]) == photos
    assert files([tmp_path / "x", tmp_path / "deep"]) == [tmp_path / "x", photos[1]]
    with pytest.raises(SystemExit) as caught:
        files([])
    assert str(caught.value) == "grpc_async_many.py: no JPEG files found: pass JPEG files or folders that contain some"
