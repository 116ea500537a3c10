"""The command line, called in a folder of the test's module."""

import os
import sys
from pathlib import Path

import pytest

from pixprep.cli.parser import main


@pytest.fixture
def pixprep(folder, capsys, monkeypatch):
    """Run one command in that folder; return its exit code, stdout and stderr."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")  # as after `activate`

    def run(*arguments):
        try:
            code = main([str(argument) for argument in arguments])
        except SystemExit as ended:
            code = ended.code
        return (code, *capsys.readouterr())

    return run
