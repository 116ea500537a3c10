"""Attack: A folder that seems to contain only data runs code on the server. EXECUTION_ENV_PATH refers to a tar file
among the warm-up photos, and Triton runs the bin/activate in this tar file. Or the folder contains a shared library or
a stub next to the model, or a program of a different backend.

Defence: ``import`` converts only the parameters that it supports, and reports all others. ``check`` reports everything
in a repository that runs code, except files that pixprep wrote. Each of these files was observed to be run or loaded by
Triton 2.51.

Outcome: Each file is reported. Before the fix, an untrusted file passed ``import`` and ``check``, and ``serve`` ran it.
"""

import os
import shutil
from pathlib import Path

import pytest

from attacks.repositories import CONFIG
from pixprep.cli import main
from pixprep.serving.repository import build, side_notes
from pixprep.serving.repository.repository import Model
from support.faces import PIPELINE, save_onnx
from support.images import jpeg, noise

GRAPH = Path(__file__).parents[1] / "parity" / "frozen" / "dali" / "classic.dali"
FILES = {
    "1/model.py": "Python backend",
    "1/lib/helper.py": "Python code that a model may import",
    "1/x.pyc": "Python code that a model may import",
    "1/libtriton_pixprep.so": "shared library",
    "batchstrategy.so": "shared library",
    "1/libc.so.6": "shared library",
    "triton_python_backend_stub": "program that replaces the stub of the Python backend",
    "1/rows.py": "function rows, which computes an input of a pipeline",
    "1/w.pkl": "pickle, which can run code when it is loaded",
}
DATA = ("1/triton_python_backend_stub", "1/model.onnx", "1/weights.bin", "labels.txt", "1/so", "1/a.solid")
FIELDS = {
    'parameters { key: "EXECUTION_ENV_PATH" value { string_value: "$$TRITON_MODEL_DIRECTORY/e.tar.gz" } }': (
        'parameter EXECUTION_ENV_PATH "$$TRITON_MODEL_DIRECTORY/e.tar.gz": runs its bin/activate in a shell'
    ),
    'parameters { key: "TRITON_BATCH_STRATEGY_PATH" value { string_value: "b.so" } }': (
        'parameter TRITON_BATCH_STRATEGY_PATH "b.so": a shared library'
    ),
    'parameters { key: "allow_operators" value { string_value: "acme.denoise" } }': (
        'parameter allow_operators "acme.denoise": functions of installed packages'
    ),
    'runtime: "libevil.so"': 'runtime "libevil.so": a library or program that replaces that of the backend',
    'model_operations { op_library_filename: "ops.so" }': 'op_library_filename "ops.so": a shared library',
    'model_repository_agents { agents { name: "x" } }': 'model_repository_agents "x": a shared library of the server',
}


def code(models):
    return [note for note in side_notes(models) if note.startswith("runs code: ")]


def test_every_executable_file_is_listed_and_data_is_not(models):
    for name in (*FILES, *DATA):
        (models / "m" / name).parent.mkdir(exist_ok=True)
        (models / "m" / name).touch()
    assert sorted(code(models)) == sorted(f"runs code: m/{name} ({what})" for name, what in FILES.items())


@pytest.mark.parametrize(("text", "what"), FIELDS.items())
def test_every_field_that_names_code_is_listed(models, text, what):
    (models / CONFIG).write_text(f'backend: "pixprep"\n{text}\n')
    assert code(models) == [f"runs code: {CONFIG} ({what})"]


@pytest.mark.parametrize(
    ("backend", "name", "what"),
    [
        ('backend: "pytorch"', "1/model.pt", "pytorch model, which is a program"),
        ('platform: "tensorflow_savedmodel"', "1/model.savedmodel/a.pb", "tensorflow model, which is a program"),
        ('backend: "dali"', "1/dali.py", "Python code of the DALI backend"),
        ('backend: "python" default_model_filename: "m.txt"', "1/m.txt", "Python backend"),
    ],
)  # fmt: skip
def test_programs_of_other_backends_are_listed(models, backend, name, what):
    (models / "n" / name).parent.mkdir(parents=True)
    (models / "n" / name).touch()
    (models / "n" / "config.pbtxt").write_text(backend)
    assert code(models) == [f"runs code: n/{name} ({what})"]


def test_files_that_pixprep_writes_are_not_listed_until_they_are_changed(tmp_path, capsys):
    build(tmp_path / "out", pipeline=PIPELINE, onnx=save_onnx(tmp_path / "my.onnx"))
    script = tmp_path / "out" / "classifier" / "1" / "model.py"
    assert script.is_file()
    assert code(tmp_path / "out") == []
    script.write_text(script.read_text() + "\n")
    assert main(["check", str(tmp_path / "out")]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "runs code: classifier/1/model.py (Python backend)"


def test_the_list_is_limited_follows_no_link_and_reads_no_fifo(models, tmp_path):
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "evil.py").touch()
    (models / "m" / "2").symlink_to(tmp_path / "outside")
    for number in range(500):
        (models / "m" / "1" / f"{number}.so").touch()
    os.mkfifo(models / "m" / "1" / "a.py")
    notes = code(models)
    assert len(notes) == 101
    assert notes[-1] == "runs code: 401 more"
    assert "evil" not in "".join(notes)


def test_import_copies_no_parameter_that_runs_a_program(tmp_path, capsys):
    photo, folder = jpeg(noise(256, 256)), tmp_path / "d"
    (folder / "1").mkdir(parents=True)
    (folder / "warmup").mkdir()
    shutil.copy(GRAPH, folder / "1" / "model.dali")
    (folder / "warmup" / "photo.tar.gz").write_bytes(photo)  # a warm-up file must be a valid image, whatever its name
    keys = {"EXECUTION_ENV_PATH": "$$TRITON_MODEL_DIRECTORY/warmup/photo.tar.gz", "TRITON_ANY": "x", "num_threads": "2"}
    parameters = [f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}' for key, value in keys.items()]
    warmup = f'value {{ data_type: TYPE_UINT8 dims: [ {len(photo)} ] input_data_file: "photo.tar.gz" }}'
    warmup = f'model_warmup {{ name: "w" batch_size: 1 inputs {{ key: "DALI_INPUT_0" {warmup} }} }}'
    (folder / "config.pbtxt").write_text("\n".join(['backend: "dali"', "max_batch_size: 4", *parameters, warmup]))
    assert main(["import", str(folder), str(tmp_path / "served" / "d")]) == 0
    output = capsys.readouterr().err
    for key in ("EXECUTION_ENV_PATH", "TRITON_ANY"):
        assert f'd: parameter "{key}" is not supported in a pixprep model and is omitted\n' in output
    assert Model(tmp_path / "served" / "d").config["parameters"] == {"threads": {"string_value": "2"}}
    assert code(tmp_path / "served") == []
