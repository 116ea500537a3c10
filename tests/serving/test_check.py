"""Mistakes in a repository that `check` finds."""

import shutil
from pathlib import Path

import pytest

from faces import PIPELINE, read_onnx, replace, save_onnx, tensor_pipeline
from limits import memory_for
from pixprep.cli import main
from pixprep.serving.repository import Problem, build, check, check_pipeline


@pytest.fixture
def valid(model, tmp_path):
    build(tmp_path / "out", pipeline=PIPELINE, onnx=model)
    return tmp_path / "out"


CLASSIFIER, ENSEMBLE = (f"{name}/config.pbtxt" for name in ("classifier", "ensemble"))
SECOND = 'step 2 ("classifier")'
# a file: what is changed => into what, and the problems that ``check`` then finds
MISTAKES = """
preprocess/config.pbtxt: backend => bakend
- preprocess/config.pbtxt: cannot be parsed: 2:1 : Message type "inference.ModelConfig" has no field named "bakend":
  the fields are those of Triton's model_config.proto

preprocess/config.pbtxt: backend: "pixprep" =>
- preprocess/config.pbtxt: does not name what runs the model: for pixprep write backend: "pixprep"

preprocess/config.pbtxt: backend: "pixprep" => backend: "pixprep" name: "pre"
- preprocess/config.pbtxt: name is "pre", the directory preprocess: write name: "preprocess", or leave it out

classifier/config.pbtxt: dims: [ 4 ] => dims: [ 4 ] label_filename: "labels.txt"
- classifier/labels.txt: is missing: write the labels of "logits" there

preprocess/1/pipeline.json: center_crop => center_corp
- preprocess/1/pipeline.json: ops[2] "center_corp": no such op; did you mean "center_crop"?

preprocess/config.pbtxt: dims: [ 3, 224, 224 ] => dims: [ 3, 256, 256 ]
- preprocess/config.pbtxt: output "tensor": is TYPE_FP32 [3, 256, 256], but the pipeline gives TYPE_FP32 [3, 224, 224]:
  write that, or leave the output out

preprocess/config.pbtxt: dynamic_batching => parameters { key: "thread" } dynamic_batching
- preprocess/config.pbtxt: parameters: no such parameter "thread"; did you mean "threads"?

classifier/config.pbtxt: dims: [ 4 ] => dims: [ 5 ]
- classifier/config.pbtxt: output "logits" is TYPE_FP32 [-1, 5], in model.onnx TYPE_FP32 [-1, 4]:
  declare what model.onnx has
- ensemble/config.pbtxt: "logits": step 2 ("classifier") output "logits" is TYPE_FP32 [-1, 5],
  the ensemble's output is TYPE_FP32 [-1, 4]: make them equal

classifier/config.pbtxt: TYPE_FP32 => TYPE_FP16
- classifier/config.pbtxt: input "input" is TYPE_FP16 [-1, 3, 224, 224], in model.onnx TYPE_FP32 [-1, 3, 224, 224]:
  declare what model.onnx has
- classifier/config.pbtxt: output "logits" is TYPE_FP16 [-1, 4], in model.onnx TYPE_FP32 [-1, 4]:
  declare what model.onnx has
- ensemble/config.pbtxt: "logits": step 2 ("classifier") output "logits" is TYPE_FP16 [-1, 4],
  the ensemble's output is TYPE_FP32 [-1, 4]: make them equal
- ensemble/config.pbtxt: "tensor": step 1 ("preprocess") output "tensor" is TYPE_FP32 [-1, 3, 224, 224],
  step 2 ("classifier") input "input" is TYPE_FP16 [-1, 3, 224, 224]: make them equal

classifier/config.pbtxt: "input" => "inptu"
- classifier/config.pbtxt: input "input" of model.onnx is not declared: declare it
- classifier/config.pbtxt: input "inptu" is not in model.onnx: did you mean "input"?
- ensemble/config.pbtxt: step 2 ("classifier"): the model has no input "input": did you mean "inptu"?
- ensemble/config.pbtxt: step 2 ("classifier"): input "inptu" of the model is not mapped: add it to input_map

ensemble/config.pbtxt: model_name: "classifier" => model_name: "clasifier"
- ensemble/config.pbtxt: step 2 ("clasifier"): there is no such model: did you mean "classifier"?

ensemble/config.pbtxt: key: "logits" => key: "logit"
- ensemble/config.pbtxt: step 2 ("classifier"): the model has no output "logit": did you mean "logits"?

ensemble/config.pbtxt: input_map { key: "input" value: "tensor" } =>
- ensemble/config.pbtxt: step 2 ("classifier") has no input_map: map the inputs of the model to tensors of the ensemble
- ensemble/config.pbtxt: nothing takes "tensor": leave it out, or make it an output of the ensemble

ensemble/config.pbtxt: key: "input" value: "tensor" => key: "input" value: "tensr"
- ensemble/config.pbtxt: step 2 ("classifier") input "input" takes "tensr", which nothing gives: did you mean "tensor"?
- ensemble/config.pbtxt: nothing takes "tensor": leave it out, or make it an output of the ensemble

ensemble/config.pbtxt: key: "logits" value: "logits" => key: "logits" value: "tensor"
- ensemble/config.pbtxt: step 2 ("classifier") gives "tensor", which step 1 ("preprocess") output "tensor" is already:
  rename one of them
- ensemble/config.pbtxt: the ensemble's output takes "logits", which nothing gives: there are image, tensor
- ensemble/config.pbtxt: these steps wait for each other: 2 ("classifier"): break the circle

ensemble/config.pbtxt: TYPE_STRING => TYPE_UINT8
- ensemble/config.pbtxt: "image": the ensemble's input is TYPE_UINT8 [-1, 1],
  step 1 ("preprocess") input "image" is TYPE_STRING [-1, 1]: make them equal

ensemble/config.pbtxt: max_batch_size: 64 => max_batch_size: 65
- ensemble/config.pbtxt: max_batch_size is 65, of step 1 ("preprocess") only 64: set it to 64, or raise the model's
- ensemble/config.pbtxt: max_batch_size is 65, of step 2 ("classifier") only 64: set it to 64, or raise the model's

ensemble/config.pbtxt: key: "image" value: "image" => key: "image" value: "logits"
- ensemble/config.pbtxt: "logits": step 2 ("classifier") output "logits" is TYPE_FP32 [-1, 4],
  step 1 ("preprocess") input "image" is TYPE_STRING [-1, 1]: make them equal
- ensemble/config.pbtxt: nothing takes "image": leave it out, or make it an output of the ensemble
- ensemble/config.pbtxt: these steps wait for each other: 1 ("preprocess"), 2 ("classifier"): break the circle

ensemble/config.pbtxt: model_name: "classifier" => model_name: "ensemble"
- ensemble/config.pbtxt: step 2 ("ensemble"): the model has no input "input": there are image
- ensemble/config.pbtxt: step 2 ("ensemble"): input "image" of the model is not mapped: add it to input_map
- ensemble/config.pbtxt: the ensemble contains itself: take it out of the steps that lead back to it
"""


@pytest.mark.parametrize("mistake", MISTAKES.strip().split("\n\n"))
def test_each_mistake_is_found_and_nothing_else(valid, mistake):
    edit, *problems = " ".join(mistake.split()).split(" - ")
    file, edit = edit.split(": ", 1)
    replace(valid / file, *(part.strip() for part in edit.split("=>")))
    assert list(map(str, check(valid))) == problems


@pytest.mark.parametrize(
    ("spoil", "problems"),
    [
        (
            lambda root: (root / "other" / "1").mkdir(parents=True),
            ['other/config.pbtxt: is missing: for pixprep write backend: "pixprep"'],
        ),
        (lambda root: shutil.rmtree(root / "ensemble" / "1"), ["ensemble: has no version directory: make ensemble/1"]),
        (
            lambda root: (root / "preprocess" / "1" / "pipeline.json").unlink(),
            ["preprocess/1/pipeline.json: is missing: write the pipeline there"],
        ),
        (
            lambda root: (root / "classifier" / "1" / "model.py").unlink(),
            ["classifier/1/model.py: is missing: write the Python model there"],
        ),
        (
            lambda root: (root / "classifier" / "1" / "model.onnx").unlink(),
            ["classifier/1/model.onnx: is missing: `pixprep build` writes it: it is too large for the repository"],
        ),
        (
            lambda root: (root / "classifier" / "1" / "model.onnx").write_bytes(b"junk"),
            ["classifier/1/model.onnx: not an ONNX file"],
        ),
        (
            lambda root: save_onnx(root / "classifier" / "1" / "model.onnx", [("input", "FLOAT", (1, 3, 224, 224))]),
            [
                'classifier/config.pbtxt: input "input" is TYPE_FP32 [-1, 3, 224, 224], in model.onnx TYPE_FP32 '
                "[1, 3, 224, 224]: declare what model.onnx has"
            ],
        ),
        (
            lambda root: (root / ENSEMBLE).write_text('platform: "ensemble"\nensemble_scheduling { }\n'),
            [
                f"{ENSEMBLE}: declares no {side}: those of an ensemble are not derived: write them"
                for side in ("input", "output")
            ],
        ),
    ],
)
def test_what_is_missing_or_another_file_is_found(valid, spoil, problems):
    spoil(valid)
    assert list(map(str, check(valid))) == problems


def test_a_model_without_config_is_as_good_as_one_with(valid):
    (valid / "preprocess").rename(valid / "preprocess.pixprep")
    (valid / "preprocess.pixprep" / "config.pbtxt").unlink()
    replace(valid / ENSEMBLE, 'model_name: "preprocess"', 'model_name: "preprocess.pixprep"')
    assert check(valid) == []
    tensor_pipeline(dtype="float16").save(valid / "preprocess.pixprep" / "1" / "pipeline.json")
    assert list(map(str, check(valid))) == [
        'ensemble/config.pbtxt: "tensor": step 1 ("preprocess.pixprep") output "tensor" is TYPE_FP16 '
        "[-1, 3, 224, 224], "
        f'{SECOND} input "input" is TYPE_FP32 [-1, 3, 224, 224]: make them equal'
    ]


def test_what_only_its_backend_knows_is_not_guessed_at(valid):
    (valid / CLASSIFIER).write_text('backend: "python"\nmax_batch_size: 64\n')
    assert check(valid) == []


def test_a_python_model_of_ones_own_needs_no_onnx_file_and_has_optional_inputs(valid):
    (valid / "classifier" / "1" / "model.py").write_text("mine")
    (valid / "classifier" / "1" / "model.onnx").unlink()
    hint = 'input { name: "hint" data_type: TYPE_FP32 dims: [ 1 ] optional: true }'
    replace(valid / CLASSIFIER, "output {", f"{hint}\noutput {{")
    assert check(valid) == []


@pytest.mark.parametrize("file", ["model.onnx", "model.plan", "model.pt"])
def test_a_model_whose_file_says_what_runs_it_needs_no_config(valid, model, file):
    (valid / "other" / "1").mkdir(parents=True)
    shutil.copy(model, valid / "other" / "1" / file)
    assert check(valid) == []


def test_a_free_length_agrees_with_every_length(valid):
    replace(valid / ENSEMBLE, "dims: [ 4 ]", "dims: [ -1 ]")
    assert check(valid) == []


def test_an_empty_folder_holds_no_model(tmp_path):
    assert check(tmp_path) == [Problem(tmp_path.name, "holds no model", "write one with `pixprep build`")]


@pytest.mark.parametrize("has_config", [True, False])
def test_a_model_in_place_of_its_repository_is_said_to_be_one(valid, monkeypatch, has_config):
    if not has_config:
        (valid / "preprocess" / "config.pbtxt").unlink()
    what = ("preprocess", "is a model, not a repository", f"its repository is {valid}")
    assert check(valid / "preprocess") == [Problem(*what)]
    monkeypatch.chdir(valid / "preprocess")
    assert check(Path()) == [Problem("", "is a model, not a repository", "its repository is ..")]


def test_a_pipeline_file_is_checked_alone(tmp_path):
    path = tmp_path / "pipeline.json"
    PIPELINE.save(path)
    assert check_pipeline(path) == []
    replace(path, '"pixprep/1"', '"pixprep/9"')
    assert check_pipeline(path) == [
        Problem(
            "pipeline.json",
            '$.format: "pixprep/9" is not known to this version, which reads "pixprep/1": upgrade pixprep',
        )
    ]
    (problem,) = check_pipeline(tmp_path / "no.json")
    assert (problem.where, problem.what[:14]) == ("no.json", "cannot be read")


def test_an_onnx_file_is_read_with_little_memory(model):
    """2 GiB, the most that such a file has, were asked for at once: under ulimit -v it was called no ONNX file."""
    with memory_for(256 << 20):
        assert [tensor.name for tensor in read_onnx(model).inputs] == ["input"]


def test_a_lack_of_memory_is_one_line(tmp_path, capsys):
    PIPELINE.save(tmp_path / "pipeline.json")
    with (tmp_path / "my.onnx").open("wb") as file:
        file.truncate(1 << 30)
    words = ["build", "--pipeline", tmp_path / "pipeline.json", "--onnx", tmp_path / "my.onnx"]
    with memory_for(256 << 20):
        assert main([*map(str, words), "--output", str(tmp_path / "out")]) == 1
    assert capsys.readouterr().err == ("pixprep: out of memory: give it more (ulimit -v, or the container's limit)\n")
