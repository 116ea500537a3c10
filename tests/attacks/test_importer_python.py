"""Attack: A model folder contains a ``dali.py``, which would run as soon as a user imports the folder. Or it contains a
folder named ``nvidia``, which is mistaken for DALI if DALI is not installed.

Defence: A Python file is rejected unless ``--run-python`` permits it. If it is permitted, DALI is imported before the
file's folder is added to the module search path. ``model.dali``, which contains only data, has precedence.

Outcome: Nothing in the folder is executed. Before the fix, both were executed without a message.
"""

import shutil
import sys
from pathlib import Path

import pytest

from pixprep.cli import main

GRAPH = Path(__file__).parents[1] / "parity" / "frozen" / "dali" / "classic.dali"
RUNS = "from nvidia.dali import pipeline_def\nopen({!r}, 'w')\n@pipeline_def\ndef pipe():\n    pass\n"


@pytest.fixture
def folder(tmp_path):
    """Return a folder with a ``dali.py`` and a package ``nvidia``. Each of them creates a file when it is executed."""
    (tmp_path / "d" / "1" / "nvidia" / "dali").mkdir(parents=True)
    for name in ("dali.py", "nvidia/__init__.py", "nvidia/dali/__init__.py"):
        (tmp_path / "d" / "1" / name).write_text(RUNS.format(str(tmp_path / "RAN")))
    return tmp_path / "d"


@pytest.fixture
def python(tmp_path):
    """Return a Python environment without DALI, even if DALI is installed in the current one."""
    program = tmp_path / "bare"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    program.chmod(0o755)
    return f"python={program}"


@pytest.mark.parametrize("source", ["d", "dali:d", "d/1/dali.py", "dali:d/1/dali.py"])
def test_a_python_file_is_not_run_unless_it_is_permitted(folder, monkeypatch, capsys, source):
    monkeypatch.chdir(folder.parent)
    assert main(["import", source, "out"]) == 1
    output = capsys.readouterr().err
    assert output.startswith(
        "pixprep: dali.py: a Python file is executed when it is imported: review its code and pass --run-python"
    )
    assert "pass --run-python" in output
    assert sorted(path.name for path in folder.parent.iterdir()) == ["d"]


def test_a_package_next_to_the_file_is_not_mistaken_for_dali(folder, python, monkeypatch, capsys):
    monkeypatch.chdir(folder.parent)
    assert main(["import", "d/1/dali.py", "out", "--run-python", "--option", python]) == 1
    assert "but is not installed for" in capsys.readouterr().err
    assert not Path("RAN").exists()


def test_a_graph_is_preferred_and_runs_nothing(folder, monkeypatch):
    monkeypatch.chdir(folder.parent)
    shutil.copy(GRAPH, "d/1/model.dali")
    assert main(["import", "d", "out"]) == 0
    assert not Path("RAN").exists()
