"""Tests Python files that define DALI pipelines: how one of several is selected, and the error if it cannot be
serialized.
"""

import sys
from pathlib import Path

import pytest

import pixprep as pp
from pixprep.importers.dali.importer import from_dali
from pixprep.importers.dali.script import serialized

FROZEN = Path(__file__).parents[1] / "parity" / "frozen" / "dali" / "classic_gpu.dali"
DALI = f"""
import inspect

class Pipeline:
    def __init__(self, batch_size=None, num_threads=None, device_id=None, seed=None):
        assert batch_size and num_threads, "DALI needs them"
        assert device_id is None, "DALI needs a GPU"
        self.batch_size = batch_size
    def __enter__(self):
        return self
    def __exit__(self, *_):
        pass
    def serialize(self, filename):
        open(filename, "wb").write(open({str(FROZEN)!r}, "rb").read())

def pipeline_def(*_, **options):
    def decorate(function):
        def make(**given):
            print("this file says", given)
            names = inspect.getfullargspec(Pipeline.__init__).args
            made = Pipeline(**{{name: options[name] for name in options if name in names}}, **given)
            assert made.batch_size == options.get("batch_size", 1)
            function()
            return made
        make._is_pipeline_def = True
        return make
    return decorate(_[0]) if _ else decorate
"""
DEFINED = "@pipeline_def(batch_size=8, device_id=0)\ndef {}():\n    {}\n"
BEGIN = "from nvidia.dali import pipeline_def, Pipeline\nfrom nvidia.dali.plugin.triton import autoserialize\n"
GOOD = {
    "alone": BEGIN + DEFINED.format("pipe", "pass"),
    "the marked one of several": BEGIN + DEFINED.format("a", "pass") + "@autoserialize\n" + DEFINED.format("b", "pass"),
    "a pipeline": BEGIN + "pipe = Pipeline(batch_size=8)\nwith pipe:\n    pass\n",
    "a block": BEGIN + "with Pipeline(batch_size=8) as pipe:\n    pass\n",
    "a pipeline of a GPU": BEGIN + "pipe = Pipeline(8, 2, 0)\n",
    "one that the file itself serializes": BEGIN + DEFINED.format("pipe", "pass") + "pipe().serialize('mine.dali')\n",
    "by another name": "import nvidia.dali as dali\n@dali.pipeline_def\ndef pipe():\n    pass\n",
    "imported": "from beside import pipe\n",
    "of a class": BEGIN + "class Mine(Pipeline):\n    pass\npipe = Mine(8, 2, 0)\n",
    "with a neighbour": "import beside\n" + BEGIN + DEFINED.format("pipe", "assert beside.SIZE == 3"),
}
WRONG = {
    "two": (
        BEGIN + DEFINED.format("a", "pass") + DEFINED.format("b", "pass"),
        'dali.py: the file defines several pipelines: set --option pipeline=NAME to one of "a", "b"',
    ),
    "none": (
        "def pipe():\n    pass\n",
        "dali.py: no DALI pipeline found, because the file defines neither a function with @pipeline_def nor a "
        "Pipeline: pass --option pipeline=NAME with the name of a function that returns a Pipeline",
    ),
    "no Python": (
        "def pipe(:\n",
        "dali.py, line 1: {python} cannot serialize the pipeline: SyntaxError: invalid",
    ),
    "one that fails": (
        BEGIN + DEFINED.format("pipe", "raise ValueError('no such file')"),
        "dali.py, line 5: {python} cannot serialize the pipeline: ValueError: no such file",
    ),
    "one that ends": (BEGIN + "import sys\nsys.exit(4)\n" + DEFINED.format("pipe", "pass"), "exit code 4"),
}


@pytest.fixture
def python(tmp_path):
    """Return a Python environment with a fake DALI, which writes a graph that the real DALI has serialized."""
    package = tmp_path / "site" / "nvidia" / "dali"
    (package / "plugin").mkdir(parents=True)
    (package / "__init__.py").write_text(DALI)
    (package / "plugin" / "triton.py").write_text(
        "def autoserialize(function):\n    function._is_autoserialize = True\n    return function\n"
    )
    program = tmp_path / "python"
    program.write_text(f'#!/bin/sh\nPYTHONPATH={tmp_path / "site"} exec {sys.executable} "$@"\n')
    program.chmod(0o755)
    return str(program)


def written(folder, text):
    (folder / "beside.py").write_text(f"SIZE = 3\n{BEGIN}{DEFINED.format('pipe', 'pass')}")
    file = folder / "dali.py"
    file.write_text(text)
    return file


@pytest.mark.parametrize("case", GOOD)
def test_a_file_provides_the_graph_of_its_pipeline(tmp_path, python, case, capfd):
    file = written(tmp_path, GOOD[case])
    assert serialized(file, python=python) == FROZEN.read_bytes()
    assert pp.Pipeline(from_dali(file, python=python, run_python=True).ops) == pp.Pipeline(from_dali(FROZEN).ops)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("case", WRONG)
def test_a_file_without_a_pipeline_is_rejected_with_a_message(tmp_path, python, case):
    text, words = WRONG[case]
    with pytest.raises(pp.PipelineError) as caught:
        serialized(written(tmp_path, text), python=python)
    assert words.format(python=python) in str(caught.value)


def test_one_of_several_pipelines_is_selected_by_name(tmp_path, python):
    file = written(tmp_path, WRONG["two"][0])
    assert serialized(file, python=python, pipeline="b") == FROZEN.read_bytes()
    with pytest.raises(pp.PipelineError, match=r'dali.py: unknown pipeline "c"; available pipelines'):
        serialized(file, python=python, pipeline="c")


def test_without_dali_one_line_names_the_command_and_the_environment(tmp_path, python):
    del python
    program = tmp_path / "bare"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    program.chmod(0o755)
    with pytest.raises(pp.SetupError) as caught:
        serialized(written(tmp_path, GOOD["alone"]), python=str(program))
    assert str(caught.value) == (
        f"dali.py: DALI is required to serialize the pipeline, but is not installed for {program}: pass a Python "
        "interpreter with DALI as --option python=PATH, or import the file that the pipeline's method "
        "serialize(filename='model.dali') writes"
    )
    with pytest.raises(pp.SetupError, match=r"nowhere cannot be executed .No such file or directory.: pass a Python"):
        serialized(tmp_path / "dali.py", python=str(tmp_path / "nowhere"))


def test_options_for_python_files_are_rejected_for_a_graph():
    with pytest.raises(pp.PipelineError, match="the options pipeline and python apply only to a Python file"):
        from_dali(FROZEN, python="python3")


def test_no_files_are_left_behind(tmp_path, python, monkeypatch):
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr("tempfile.tempdir", None)
    serialized(written(tmp_path, GOOD["alone"]), python=python)
    assert [*(tmp_path / "tmp").iterdir()] == []
