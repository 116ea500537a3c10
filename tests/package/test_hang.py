"""Tests that a hanging test ends the run and prints the stack of each thread."""

import subprocess
import sys
from pathlib import Path

CONFIG = Path(__file__).parents[2] / "pyproject.toml"
TESTS = """\
import threading
def test_that_hangs():
    threading.Event().wait()
def test_that_comes_after():
    raise AssertionError("it was run")
"""


def test_a_hanging_test_prints_its_stacks_and_ends_the_run(tmp_path):
    (tmp_path / "test_it.py").write_text(TESTS)
    options = ["-c", CONFIG, f"--rootdir={tmp_path}", "-p", "no:cacheprovider", "-o", "faulthandler_timeout=1"]
    command = [sys.executable, "-m", "pytest", *options, tmp_path / "test_it.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1
    assert "in test_that_hangs" in done.stderr
    assert "it was run" not in done.stdout + done.stderr
