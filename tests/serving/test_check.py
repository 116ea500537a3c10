"""Tests that `check` finds mistakes in a model repository."""

import shutil
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from pixprep.cli import main
from pixprep.serving.repository import Problem, build, check, check_pipeline
from support.faces import PIPELINE, PLAN, read_onnx, replace, save_onnx, tensor_pipeline
from support.limits import memory_for

LFS = "version https://git-lfs.github.com/spec/v1"
LFS_WORDS = 'it is a Git LFS pointer instead of the file: fetch the file with "git lfs pull"'


@pytest.fixture
def valid(model, tmp_path):
    build(tmp_path / "out", pipeline=PIPELINE, onnx=model)
    return tmp_path / "out"


CLASSIFIER, ENSEMBLE = (f"{name}/config.pbtxt" for name in ("classifier", "ensemble"))
SECOND_STEP = 'step 2 ("classifier")'
# Each entry contains a file, the text to change => its replacement, and the problems that ``check`` then reports.
MISTAKES = """
preprocess/config.pbtxt: backend => bakend
- preprocess/config.pbtxt: cannot be parsed: 2:1 : Message type "inference.ModelConfig" has no field named "bakend":
  see Triton's model_config.proto for the fields

preprocess/config.pbtxt: backend: "pixprep" =>
- preprocess/config.pbtxt: does not specify the backend of the model: for a pixprep model, write backend: "pixprep"

preprocess/config.pbtxt: backend: "pixprep" => backend: "pixprep" name: "pre"
- preprocess/config.pbtxt: name is "pre", but the directory is preprocess: write name: "preprocess", or remove the field

classifier/config.pbtxt: dims: [ 4 ] => dims: [ 4 ] label_filename: "labels.txt"
- classifier/labels.txt: is missing: write the labels of output "logits" to this file

preprocess/1/pipeline.json: center_crop => center_corp
- preprocess/1/pipeline.json: ops[2] "center_corp": no such op; did you mean "center_crop"?

preprocess/config.pbtxt: dims: [ 3, 224, 224 ] => dims: [ 3, 256, 256 ]
- preprocess/config.pbtxt: output "tensor" is TYPE_FP32 [3, 256, 256], but the pipeline returns TYPE_FP32 [3, 224, 224]:
  correct it, or remove the output

preprocess/config.pbtxt: dynamic_batching => parameters { key: "thread" } dynamic_batching
- preprocess/config.pbtxt: parameters: unknown parameter "thread"; did you mean "threads"?

classifier/config.pbtxt: dims: [ 4 ] => dims: [ 5 ]
- classifier/config.pbtxt: output "logits" is declared as TYPE_FP32 [-1, 5], but is TYPE_FP32 [-1, 4] in model.onnx:
  declare the same as model.onnx
- ensemble/config.pbtxt: "logits": step 2 ("classifier") output "logits" is TYPE_FP32 [-1, 5], but the ensemble's
  output is TYPE_FP32 [-1, 4]: make them equal

classifier/config.pbtxt: TYPE_FP32 => TYPE_FP16
- classifier/config.pbtxt: input "input" is declared as TYPE_FP16 [-1, 3, 224, 224], but is TYPE_FP32 [-1, 3, 224,
  224] in model.onnx:
  declare the same as model.onnx
- classifier/config.pbtxt: output "logits" is declared as TYPE_FP16 [-1, 4], but is TYPE_FP32 [-1, 4] in model.onnx:
  declare the same as model.onnx
- ensemble/config.pbtxt: "logits": step 2 ("classifier") output "logits" is TYPE_FP16 [-1, 4], but the ensemble's
  output is TYPE_FP32 [-1, 4]: make them equal
- ensemble/config.pbtxt: "tensor": step 1 ("preprocess") output "tensor" is TYPE_FP32 [-1, 3, 224, 224], but step 2
  ("classifier") input "input" is TYPE_FP16 [-1, 3, 224, 224]: make them equal

classifier/config.pbtxt: "input" => "inptu"
- classifier/config.pbtxt: input "input" of model.onnx is not declared: declare it
- classifier/config.pbtxt: input "inptu" does not exist in model.onnx: did you mean "input"?
- ensemble/config.pbtxt: step 2 ("classifier"): the model has no input "input": did you mean "inptu"?
- ensemble/config.pbtxt: step 2 ("classifier"): input "inptu" of the model is missing: add it to input_map

ensemble/config.pbtxt: model_name: "classifier" => model_name: "clasifier"
- ensemble/config.pbtxt: step 2 ("clasifier"): the model does not exist: did you mean "classifier"?

ensemble/config.pbtxt: key: "logits" => key: "logit"
- ensemble/config.pbtxt: step 2 ("classifier"): the model has no output "logit": did you mean "logits"?

ensemble/config.pbtxt: input_map { key: "input" value: "tensor" } =>
- ensemble/config.pbtxt: step 2 ("classifier") has no input_map: map the inputs of the model to tensors of the ensemble
- ensemble/config.pbtxt: "tensor" is not used: remove it, or make it an output of the ensemble

ensemble/config.pbtxt: key: "input" value: "tensor" => key: "input" value: "tensr"
- ensemble/config.pbtxt: step 2 ("classifier") input "input" uses "tensr", which does not exist: did you mean "tensor"?
- ensemble/config.pbtxt: "tensor" is not used: remove it, or make it an output of the ensemble

ensemble/config.pbtxt: key: "logits" value: "logits" => key: "logits" value: "tensor"
- ensemble/config.pbtxt: step 2 ("classifier") returns "tensor", a name that step 1 ("preprocess") output "tensor"
  already has:
  rename one of them
- ensemble/config.pbtxt: the ensemble's output uses "logits", which does not exist: available: image, tensor
- ensemble/config.pbtxt: these steps wait for each other: 2 ("classifier"): remove the cycle

ensemble/config.pbtxt: TYPE_STRING => TYPE_UINT8
- ensemble/config.pbtxt: "image": the ensemble's input is TYPE_UINT8 [-1, 1], but step 1 ("preprocess") input "image"
  is TYPE_STRING [-1, 1]: make them equal

ensemble/config.pbtxt: max_batch_size: 64 => max_batch_size: 65
- ensemble/config.pbtxt: max_batch_size is 65, but that of step 1 ("preprocess") is 64: set it to 64, or raise that of
  the model
- ensemble/config.pbtxt: max_batch_size is 65, but that of step 2 ("classifier") is 64: set it to 64, or raise that of
  the model

ensemble/config.pbtxt: key: "image" value: "image" => key: "image" value: "logits"
- ensemble/config.pbtxt: "logits": step 2 ("classifier") output "logits" is TYPE_FP32 [-1, 4], but step 1
  ("preprocess") input "image" is TYPE_STRING [-1, 1]: make them equal
- ensemble/config.pbtxt: "image" is not used: remove it, or make it an output of the ensemble
- ensemble/config.pbtxt: these steps wait for each other: 1 ("preprocess"), 2 ("classifier"): remove the cycle

preprocess/config.pbtxt: dynamic_batching => model_transaction_policy { decoupled: true } dynamic_batching
- preprocess/config.pbtxt: model_transaction_policy: with decoupled, Triton rejects every request without streaming:
  remove it, because a pixprep model has one response per request

preprocess/config.pbtxt: max_batch_size: 64 => max_batch_size: -5
- preprocess/config.pbtxt: max_batch_size must be at least 1, not -5

ensemble/config.pbtxt: max_batch_size: 64 => max_batch_size: -5
- ensemble/config.pbtxt: max_batch_size is -5, which is negative: write the maximum number of images per batch, or 0

classifier/config.pbtxt: count: 1 => count: 1025
- classifier/config.pbtxt: instance_group: 1,025 instances are too many, because each one loads the model:
  write a count of at most 1,024

classifier/config.pbtxt: count: 1 => count: 1000000000
- classifier/config.pbtxt: instance_group: 1,000,000,000 instances are too many, because each one loads the model:
  write a count of at most 1,024

ensemble/config.pbtxt: ensemble_scheduling => instance_group { count: 2 } ensemble_scheduling
- ensemble/config.pbtxt: instance_group is not supported for an ensemble: set it in the models of its steps

classifier/config.pbtxt: max_batch_size: 64 => max_batch_size: 64 version_policy { specific { versions: [ 7 ] } }
- classifier/config.pbtxt: version_policy does not select an existing version: remove it to serve the newest version
- ensemble/config.pbtxt: step 2 ("classifier"): uses the newest version, but Triton serves these versions of
  classifier: none:
  give classifier a version, or correct its version_policy

ensemble/config.pbtxt: model_version: -1 =>
- ensemble/config.pbtxt: step 1 ("preprocess"): uses version 0 (the default without model_version), but Triton serves
  these versions of preprocess: 1: write model_version: -1 for the newest version that is served
- ensemble/config.pbtxt: step 2 ("classifier"): uses version 0 (the default without model_version), but Triton serves
  these versions of classifier: 1: write model_version: -1 for the newest version that is served

ensemble/config.pbtxt: model_name: "classifier" => model_name: "ensemble"
- ensemble/config.pbtxt: step 2 ("ensemble"): the model has no input "input": available: image
- ensemble/config.pbtxt: step 2 ("ensemble"): input "image" of the model is missing: add it to input_map
- ensemble/config.pbtxt: the ensemble contains itself: remove the step that leads back to it
"""


@pytest.mark.parametrize("mistake", MISTAKES.strip().split("\n\n"))
def test_only_the_mistake_is_found(valid, mistake):
    edit, *problems = " ".join(mistake.split()).split(" - ")
    file, edit = edit.split(": ", 1)
    replace(valid / file, *(part.strip() for part in edit.split("=>")))
    assert list(map(str, check(valid))) == problems


PLANS = {
    PLAN: "",
    b"ptrt": "",
    b"vtrt": "is a plan of TensorRT for RTX, which Triton does not support: build it with trtexec of TensorRT",
    b'\x10\x02\0\0{"batch": 1': (
        "begins with metadata of Ultralytics, which Triton does not support: remove the first 532 bytes"
    ),
    b"random bytes": "is not a TensorRT plan: write one with trtexec --saveEngine",
    b"": "is not a TensorRT plan: write one with trtexec --saveEngine",
}


def put_plan(root, content):
    (root / "other" / "1").mkdir(parents=True)
    (root / "other" / "1" / "model.plan").write_bytes(content)


@pytest.mark.parametrize(
    ("corrupt", "problems"),
    [
        (
            lambda root: (root / "other" / "1").mkdir(parents=True),
            ['other/config.pbtxt: is missing: for a pixprep model, write backend: "pixprep"'],
        ),
        (
            lambda root: shutil.rmtree(root / "ensemble" / "1"),
            ["ensemble: has no version directory: create ensemble/1"],
        ),
        (
            lambda root: (root / "preprocess" / "1" / "pipeline.json").unlink(),
            ["preprocess/1/pipeline.json: is missing: write the pipeline to this file"],
        ),
        (
            lambda root: (root / "classifier" / "1" / "model.py").unlink(),
            ["classifier/1/model.py: is missing: write the Python model to this file"],
        ),
        (
            lambda root: (root / "classifier" / "1" / "model.onnx").unlink(),
            ["classifier/1/model.onnx: is missing: write it with `pixprep build`; it is too large for git"],
        ),
        (
            lambda root: (root / "classifier" / "1" / "model.onnx").write_bytes(b"junk"),
            ["classifier/1/model.onnx: not an ONNX file, or incomplete: export or copy it again"],
        ),
        (
            lambda root: (root / "classifier" / "1" / "model.onnx").write_text(f"{LFS}\noid sha256:0\nsize 9\n"),
            [f"classifier/1/model.onnx: cannot be read: {LFS_WORDS}"],
        ),
        (
            lambda root: (root / "preprocess" / "1" / "pipeline.json").write_text(f"{LFS}\noid sha256:0\nsize 9\n"),
            [f"preprocess/1/pipeline.json: cannot be read: {LFS_WORDS}"],
        ),
        (
            lambda root: (root / "lost+found").mkdir(),
            [
                "lost+found: is a folder of the volume's file system, which Triton treats as a model: move the models "
                "to a separate folder, such as models/, and serve that"
            ],
        ),
        (
            lambda root: save_onnx(root / "classifier" / "1" / "model.onnx", [("input", "FLOAT", (1, 3, 224, 224))]),
            [
                'classifier/config.pbtxt: input "input" is declared as TYPE_FP32 [-1, 3, 224, 224], but is '
                "TYPE_FP32 [1, 3, 224, 224] in model.onnx: declare the same as model.onnx"
            ],
        ),
        (
            lambda root: shutil.copytree(root / "preprocess" / "1", root / "preprocess" / "2_old"),
            [
                "preprocess/2_old: is read as version 2, but Triton then opens preprocess/2: rename it to that "
                "number, or to "
                "a name that begins with a letter",
            ],
        ),
        *[
            (lambda root, head=head: put_plan(root, head), [f"other/1/model.plan: {words}"] if words else [])
            for head, words in PLANS.items()
        ],
        (
            lambda root: (root / ENSEMBLE).write_text('platform: "ensemble"\nensemble_scheduling { }\n'),
            [
                f"{ENSEMBLE}: does not declare an {side}: add it, because an ensemble must declare it explicitly"
                for side in ("input", "output")
            ],
        ),
    ],
)
def test_missing_and_replaced_files_are_found(valid, corrupt, problems):
    corrupt(valid)
    assert list(map(str, check(valid))) == problems


@pytest.mark.parametrize(
    ("dtypes", "policy", "step", "problem"),
    [
        ({1: "float16", 9: "float16", 10: "float32"}, "", -1, ""),
        ({1: "float32", 9: "float32", 10: "float16"}, "", -1, "TYPE_FP16"),
        ({1: "float32", 2: "float16"}, "specific { versions: [ 1, 7 ] }", -1, ""),
        ({1: "float16", 2: "float32"}, "specific { versions: 1 }", -1, "TYPE_FP16"),
        ({1: "float32", 2: "float16"}, "all { }", 1, ""),
        ({1: "float16", 2: "float32"}, "all { }", 1, "TYPE_FP16"),
        ({2: "float16", 9: "float32", 10: "float16"}, "latest { num_versions: 2 }", 9, ""),
        ({2: "float16", 9: "float32", 10: "float16"}, "latest { num_versions: 1 }", 9, "preprocess: 10"),
        ({1: "float32", 2: "float32"}, "", 1, "uses version 1, but Triton serves these versions of preprocess: 2"),
        ({0: "float32"}, "", 0, ""),
        ({1: "float32", 2: "no pipeline"}, "specific { versions: 1 }", -1, ""),
        ({1: "no pipeline", 2: "float32"}, "all { }", -1, 'ops[3] "tensor": dtype'),
    ],
)
def test_the_checked_versions_are_those_that_triton_serves_and_that_a_step_names(valid, dtypes, policy, step, problem):
    shutil.rmtree(valid / "preprocess" / "1")
    for version, dtype in dtypes.items():
        (valid / "preprocess" / str(version)).mkdir()
        text = tensor_pipeline(dtype="float16").to_json().replace("float16", dtype)
        (valid / "preprocess" / str(version) / "pipeline.json").write_text(text)
    parameter = 'parameters { key: "odd_range" value { string_value: "meant" } }'
    policy = policy and f"version_policy {{ {policy} }}"
    (valid / "preprocess" / "config.pbtxt").write_text(f'backend: "pixprep" {parameter} {policy}')
    named = 'model_name: "preprocess"\n    model_version:'
    replace(valid / ENSEMBLE, f"{named} -1", f"{named} {step}")
    found = list(map(str, check(valid)))
    assert len(found) == bool(problem)
    assert problem in "".join(found)


OPENED_FILES = []
"""Files that were opened in the folder of ``watched``, each by its path and inode."""


def remember(event, arguments):
    if event == "open" and watched_folders and str(arguments[0]).startswith(f"{watched_folders[0]}/"):
        with suppress(OSError):
            OPENED_FILES.append((str(arguments[0]), Path(arguments[0]).stat().st_ino))


watched_folders = []
sys.addaudithook(remember)


def test_each_file_is_opened_once_by_check_and_by_a_second_build(valid, model):
    build(valid, pipeline=PIPELINE, onnx=model, name="b")
    for command, min_files in (
        (lambda: main(["check", str(valid)]), 6 + 2 + 2),
        (lambda: build(valid, pipeline=PIPELINE, onnx=model, name="b"), 6),
    ):
        OPENED_FILES.clear()
        watched_folders.append(valid)
        command()
        watched_folders.clear()
        read = [entry for entry in OPENED_FILES if entry[0].endswith((".pbtxt", ".json", ".onnx"))]
        assert len(read) >= min_files
        assert sorted(read) == sorted(set(read))


def test_a_model_without_config_is_as_valid_as_one_with_config(valid):
    (valid / "preprocess").rename(valid / "preprocess.pixprep")
    (valid / "preprocess.pixprep" / "config.pbtxt").unlink()
    replace(valid / ENSEMBLE, 'model_name: "preprocess"', 'model_name: "preprocess.pixprep"')
    assert check(valid) == []
    tensor_pipeline(dtype="float16").save(valid / "preprocess.pixprep" / "1" / "pipeline.json")
    assert list(map(str, check(valid))) == [
        'ensemble/config.pbtxt: "tensor": step 1 ("preprocess.pixprep") output "tensor" is TYPE_FP16 '
        "[-1, 3, 224, 224], but "
        f'{SECOND_STEP} input "input" is TYPE_FP32 [-1, 3, 224, 224]: make them equal'
    ]


def test_backend_specific_settings_are_not_checked(valid):
    (valid / CLASSIFIER).write_text('backend: "python"\nmax_batch_size: 64\n')
    assert check(valid) == []


def test_a_users_python_model_needs_no_onnx_file_and_can_have_optional_inputs(valid):
    (valid / "classifier" / "1" / "model.py").write_text("mine")
    (valid / "classifier" / "1" / "model.onnx").unlink()
    hint = 'input { name: "hint" data_type: TYPE_FP32 dims: [ 1 ] optional: true }'
    replace(valid / CLASSIFIER, "output {", f"{hint}\noutput {{")
    assert check(valid) == []


@pytest.mark.parametrize("file", ["model.onnx", "model.pt"])
def test_a_model_whose_file_name_determines_its_backend_needs_no_config(valid, model, file):
    (valid / "other" / "1").mkdir(parents=True)
    shutil.copy(model, valid / "other" / "1" / file)
    assert check(valid) == []


def test_an_open_dimension_matches_every_length(valid):
    replace(valid / ENSEMBLE, "dims: [ 4 ]", "dims: [ -1 ]")
    assert check(valid) == []


def test_an_empty_folder_contains_no_model(tmp_path):
    assert check(tmp_path) == [Problem(tmp_path.name, "does not contain a model", "write one with `pixprep build`")]


@pytest.mark.parametrize("has_config", [True, False])
def test_a_model_given_as_a_repository_is_recognized(valid, monkeypatch, has_config):
    if not has_config:
        (valid / "preprocess" / "config.pbtxt").unlink()
    what = ("preprocess", "is a model, not a repository", f"pass its repository, {valid}")
    assert check(valid / "preprocess") == [Problem(*what)]
    monkeypatch.chdir(valid / "preprocess")
    assert check(Path()) == [Problem("", "is a model, not a repository", "pass its repository, ..")]


def test_a_pipeline_file_is_checked_alone(tmp_path):
    path = tmp_path / "pipeline.json"
    PIPELINE.save(path)
    assert check_pipeline(path) == []
    replace(path, '"pixprep/1"', '"pixprep/9"')
    assert check_pipeline(path) == [
        Problem(
            "pipeline.json",
            '$.format: "pixprep/9" is not supported by this version, which reads "pixprep/1": upgrade pixprep',
        )
    ]
    (problem,) = check_pipeline(tmp_path / "no.json")
    assert (problem.where, problem.what[:14]) == ("no.json", "cannot be read")


def test_an_onnx_file_is_read_with_little_memory(model):
    """The reader used to allocate 2 GiB, the maximum size of an ONNX file.

    With a limit set by ulimit -v, a valid file was then reported as invalid.
    """
    with memory_for(256 << 20):
        assert [tensor.name for tensor in read_onnx(model).inputs] == ["input"]


def test_insufficient_memory_is_one_line(tmp_path, capsys):
    PIPELINE.save(tmp_path / "pipeline.json")
    with (tmp_path / "my.onnx").open("wb") as file:
        file.truncate(1 << 30)
    words = ["build", "--pipeline", tmp_path / "pipeline.json", "--onnx", tmp_path / "my.onnx"]
    with memory_for(256 << 20):
        assert main([*map(str, words), "--output", str(tmp_path / "out")]) == 1
    assert capsys.readouterr().err == (
        "pixprep: out of memory: raise the memory limit (ulimit -v, or that of the container)\n"
    )
