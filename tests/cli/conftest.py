"""Fixtures: the command line in the folder of a test module, and trial runs of ONNX files in the test process."""

import os
import sys
from pathlib import Path

import pytest

from pixprep.cli.parser import main
from support.trials import _trials_in_this_process  # noqa: F401  (a fixture that every test of this folder uses)


@pytest.fixture
def pixprep(folder, capsys, monkeypatch):
    """Return a function that runs one command in that folder and returns its exit code, stdout and stderr."""
    monkeypatch.chdir(folder)
    # the same PATH as after `activate`
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")

    def run(*arguments):
        try:
            code = main([str(argument) for argument in arguments])
        except SystemExit as ended:
            code = ended.code
        return (code, *capsys.readouterr())

    return run
