"""Tests that a model folder of dali_backend is converted to pixprep: which fields are kept, which are reported, and
which models are rejected.
"""

import os
import re
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import pixprep as pp
from pixprep.cli.parser import main
from pixprep.importers.dali import from_dali, interface
from pixprep.serving.repository import check
from pixprep.serving.repository.dali_model import find_dali_model, translated
from pixprep.serving.repository.repository import Model, Repository
from support.dali_graphs import graph, operator
from support.faces import files
from support.images import jpeg, noise
from support.limits import limited

FROZEN = Path(__file__).parents[1] / "parity" / "frozen" / "dali"
INPUT = 'input [ { name: "DALI_INPUT_0" data_type: TYPE_UINT8 dims: [ -1 ] } ]\n'
OUTPUT = 'output [ { name: "DALI_OUTPUT_0" data_type: TYPE_FP32 dims: [ 3, 224, -1 ] } ]\n'
HEAD = 'name: "dali"\nbackend: "dali"\nmax_batch_size: 32\n'


@pytest.fixture
def model(tmp_path):
    """Return a model folder of dali_backend that contains the common graph."""
    (tmp_path / "dali" / "1").mkdir(parents=True)
    shutil.copy(FROZEN / "classic.dali", tmp_path / "dali" / "1" / "model.dali")
    return tmp_path / "dali"


def converted(model, text, file="model.dali"):
    if text is not None:
        (model / "config.pbtxt").write_text(text)
    (found,) = find_dali_model(model)
    assert found.file == model / "1" / file
    data = found.file.read_bytes()
    inputs, outputs, batch_size = interface(data, found.file.name)
    return translated(found, from_dali(data, dtypes=found.dtypes), inputs, outputs, batch_size=batch_size)


def config_of(files, folder):
    (folder / "made").mkdir()
    (folder / "made" / "config.pbtxt").write_text(files["config.pbtxt"])
    return Model(folder / "made").config


def test_a_configuration_keeps_equivalent_fields(model, tmp_path):
    files, notes = converted(
        model,
        HEAD + INPUT + OUTPUT + 'parameters [ { key: "num_threads" value: { string_value: "4" } } ]\n'
        "dynamic_batching { preferred_batch_size: [ 8 ] max_queue_delay_microseconds: 100 }\n"
        "instance_group [ { count: 2 kind: KIND_CPU } ]\n",
    )
    assert notes == []
    config = config_of(files, tmp_path)
    assert config["backend"] == "pixprep"
    assert config["max_batch_size"] == 32
    assert [(each["name"], each["dims"]) for each in config["input"]] == [("DALI_INPUT_0", ["-1"])]
    assert [(each["name"], each["dims"]) for each in config["output"]] == [("DALI_OUTPUT_0", ["3", "224", "224"])]
    assert config["parameters"] == {"threads": {"string_value": "4"}}
    assert config["dynamic_batching"] == {"preferred_batch_size": [8], "max_queue_delay_microseconds": "100"}
    assert config["instance_group"] == [{"count": 2, "kind": "KIND_CPU"}]
    pipeline = pp.Pipeline.from_json(files["1/pipeline.json"])
    assert list(pipeline.outputs) == ["DALI_OUTPUT_0"]
    assert pipeline.ops[:-1] == from_dali(FROZEN / "classic.dali").ops[:-1]


@pytest.mark.parametrize(("number", "kept"), [("-1", None), ("4", {"threads": {"string_value": "4"}})])
def test_a_thread_count_left_to_the_graph_is_omitted(model, tmp_path, number, kept):
    text = f'parameters [ {{ key: "num_threads" value: {{ string_value: "{number}" }} }} ]\n'
    files, notes = converted(model, HEAD + INPUT + OUTPUT + text)
    assert notes == []
    assert config_of(files, tmp_path).get("parameters") == kept


NOTED = {
    "a parameter": (
        'parameters [ { key: "plugin_libs" value: { string_value: "A" } } ]',
        'parameter "plugin_libs" is not supported in a pixprep model and is omitted',
    ),
    "a field": (
        "model_repository_agents { }",
        "model_repository_agents is not supported in a pixprep model and is omitted",
    ),
    "a field of an output": (
        "output { reshape { shape: [ 1, 3, 224, 224 ] } }",
        'output "__CropMirrorNormalize_2": reshape is not supported in a pixprep model and is omitted',
    ),
    "a field of instances": (
        "instance_group { kind: KIND_CPU host_policy: 'near' }",
        "instance_group: host_policy is not supported in a pixprep model and is omitted",
    ),
    "a GPU": (
        "instance_group [ { count: 2 kind: KIND_GPU gpus: [ 0, 1 ] } ]",
        "instance_group: KIND_GPU on 0, 1: 2 instances on each GPU of the server, or on the CPU if it has none; "
        "pixprep has not run on a GPU yet: to use the CPU, write KIND_CPU",
    ),
}


@pytest.mark.parametrize("case", NOTED)
def test_fields_without_an_equivalent_are_named(model, tmp_path, case):
    text, words = NOTED[case]
    files, notes = converted(model, HEAD + INPUT + ("" if "output" in text else OUTPUT) + text)
    assert notes == [words]
    assert "KIND_GPU" not in str(config_of(files, tmp_path))


OWN = "__CropMirrorNormalize_2"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, ("DALI_INPUT_0", OWN, 8)),
        ('backend: "dali"\n', ("DALI_INPUT_0", OWN, 8)),
        ("max_batch_size: 16\n", ("DALI_INPUT_0", OWN, 16)),
        ('backend: "dali"\n' + INPUT + OUTPUT, ("DALI_INPUT_0", "DALI_OUTPUT_0", 8)),
        (HEAD + OUTPUT.replace("data_type: TYPE_FP32 ", ""), ("DALI_INPUT_0", "DALI_OUTPUT_0", 32)),
        (HEAD + 'input { name: "DALI_INPUT_0" }\n' + "output { data_type: TYPE_FP32 }\n", ("DALI_INPUT_0", OWN, 32)),
        (
            'backend: "dali"\nmax_batch_size: 0\n'
            'input [ { name: "DALI_INPUT_0" data_type: TYPE_UINT8 dims: [ -1, -1 ] } ]\n'
            'output [ { name: "B" data_type: TYPE_FP32 dims: [ -1, 3, 224, 224 ] } ]\n',
            ("DALI_INPUT_0", "B", 64),
        ),
    ],
    ids=["no file", "nothing", "no backend", "no batch size", "no input", "no types", "no batch"],
)
def test_missing_fields_follow_from_the_graph(model, tmp_path, text, said):
    name, output, most = said
    files, notes = converted(model, text)
    config = config_of(files, tmp_path)
    (image,) = config["input"]
    assert (image["name"], image["data_type"], image["dims"]) == (name, "TYPE_UINT8", ["-1"])
    assert [each["name"] for each in config["output"]] == [output]
    assert config["max_batch_size"] == most
    assert notes == ["max_batch_size 0: pixprep now batches requests of the same shapes"] * (most == 64)


def test_a_batch_size_that_no_response_can_hold_is_reduced(model, tmp_path):
    shutil.copy(FROZEN / "shapes.dali", model / "1" / "model.dali")
    files, _ = converted(model, None)
    assert 0 < config_of(files, tmp_path)["max_batch_size"] <= 8


def test_a_graph_with_a_different_name_and_several_outputs(model, tmp_path):
    shutil.copy(FROZEN / "two_outputs.dali", model / "1" / "graph.bin")
    specs = from_dali(FROZEN / "two_outputs.dali").outputs.values()
    types = {"float32": "TYPE_FP32", "uint8": "TYPE_UINT8", "float16": "TYPE_FP16"}
    outputs = [
        f'output {{ name: "OUT_{index}" data_type: {types[each.spec.dtype]} dims: {list(each.spec.shape)} }}'
        for index, each in enumerate(specs)
    ]
    text = HEAD + INPUT + "\n".join(outputs) + '\ndefault_model_filename: "graph.bin"\n'
    files, notes = converted(model, text, "graph.bin")
    assert notes == []
    assert list(pp.Pipeline.from_json(files["1/pipeline.json"]).outputs) == ["OUT_0", "OUT_1"]
    assert "default_model_filename" not in config_of(files, tmp_path)


ALIKE = [
    operator("ExternalSource", [], ["DALI_INPUT_0"]),
    operator("decoders__Image", ["DALI_INPUT_0"], ["decoded"]),
    operator("Resize", ["decoded"], ["large"], size=[40.0, 40.0]),
    operator("Resize", ["decoded"], ["small"], size=[40.0, 40.0], interp_type=0),
]
NAMED = 'output [ { name: "small" data_type: TYPE_UINT8 dims: [ 40, 40, 3 ] } ]\n'


def test_outputs_are_named_in_the_order_of_the_graph_like_dali_backend(model, tmp_path):
    (model / "1" / "model.dali").write_bytes(graph(*ALIKE, outputs=["large", "small"]))
    files, _ = converted(model, HEAD + INPUT + NAMED + NAMED.replace("small", "large"))
    result = pp.Pipeline.from_json(files["1/pipeline.json"])
    assert [*result.outputs] == ["small", "large"]
    own = from_dali(model / "1" / "model.dali")
    assert [*own.outputs] == ["large", "small"]
    filters = [[op.filter for op in each.ops if hasattr(op, "filter")] for each in (result, own)]
    assert filters == [["bilinear", "nearest"]] * 2
    files, notes = converted(model, HEAD + INPUT + NAMED.replace("small", "first"))
    assert [*pp.Pipeline.from_json(files["1/pipeline.json"]).outputs] == ["first", "small"]
    assert notes == []
    assert config_of(files, tmp_path)["output"][1]["dims"] == ["40", "40", "3"]


def test_one_output_is_selected_by_the_name_that_clients_know(model, tmp_path, capsys):
    (model / "1" / "model.dali").write_bytes(graph(*ALIKE, outputs=["large", "small"]))
    (model / "config.pbtxt").write_text(HEAD + INPUT + NAMED.replace("small", "A") + NAMED.replace("small", "B"))
    assert main(["import", str(model), str(tmp_path / "made"), "--option", "output=B"]) == 0
    assert 'dali: output "A" is omitted' in capsys.readouterr().err.splitlines()
    (output,) = Model(tmp_path / "made").config["output"]
    assert output["name"] == "B"
    (resize,) = (
        op for op in pp.load(tmp_path / "made" / "1" / "pipeline.json").ops if op.__struct_config__.tag == "resize"
    )
    assert resize.filter == "nearest"


def test_an_option_that_the_importer_lacks_is_rejected_by_name(model, tmp_path, capsys):
    assert main(["import", str(model), str(tmp_path / "made"), "--option", "outptu=B"]) == 1
    assert 'unknown option "outptu" for the dali importer; available options: ' in capsys.readouterr().err
    assert main(["import", str(model), str(tmp_path / "made"), "--option", 'dtypes={"x": "int32"}']) == 1
    assert capsys.readouterr().err.startswith("pixprep: the option dtypes is not supported for a model folder")


@pytest.mark.parametrize(
    ("policy", "served"),
    [
        ("", [3]),
        ("specific { versions: [ 1, 3 ] }", [1, 3]),
        ("all { }", [1, 2, 3]),
        ("latest { num_versions: 2 }", [2, 3]),
    ],
)
def test_the_versions_that_triton_serves_are_imported(model, tmp_path, policy, served, capsys):
    for version in (2, 3):
        shutil.copytree(model / "1", model / str(version))
    (model / "config.pbtxt").write_text(HEAD + INPUT + OUTPUT + f"version_policy {{ {policy} }}")
    assert main(["import", str(model), str(tmp_path / "made")]) == 0
    assert sorted(int(file.parent.name) for file in (tmp_path / "made").glob("*/pipeline.json")) == served
    shutil.copy(FROZEN / "letterboxed.dali", model / "3" / "model.dali")
    (model / "config.pbtxt").write_text(HEAD + INPUT + f"version_policy {{ {policy} }}")
    capsys.readouterr()
    assert main(["import", str(model), str(tmp_path / "other")]) == (len(served) > 1)
    words = (
        "3/model.dali: the inputs or outputs differ from those of earlier versions, but all versions of a model "
        "share one config.pbtxt"
    )
    assert (words in capsys.readouterr().err) == (len(served) > 1)


def test_warmup_photos_are_copied(model, tmp_path, capsys):
    photo = jpeg(noise(256, 256))
    (model / "config.pbtxt").write_text(
        HEAD + INPUT + OUTPUT + 'model_warmup { name: "w" batch_size: 1 inputs { key: "DALI_INPUT_0" '
        f'value {{ data_type: TYPE_UINT8 dims: {len(photo)} input_data_file: "photo" }} }} }}'
    )
    assert main(["import", str(model), str(tmp_path / "made")]) == 1
    assert 'config.pbtxt: model_warmup: input_data_file: "photo" cannot be read' in capsys.readouterr().err
    (model / "warmup").mkdir()
    (model / "warmup" / "photo").write_bytes(photo)
    assert main(["import", str(model), str(tmp_path / "made")]) == 0
    copy = tmp_path / "made" / "warmup" / "photo"
    assert copy.read_bytes() == photo
    assert f"{copy}: copied from {model / 'warmup' / 'photo'}\n" in capsys.readouterr().out


SLICED = [
    *(operator("ExternalSource", [], [name]) for name in ("E", "AT", "SIZE")),
    operator("decoders__Image", ["E"], ["decoded"]),
    operator("Slice", ["decoded", "AT", "SIZE"], ["window"]),
    operator("Resize", ["window"], ["t"], size=[40.0, 50.0]),
]


@pytest.mark.parametrize(
    ("kind", "window"),
    [
        ("TYPE_INT32", pp.crop("AT[1]", "AT", "SIZE[1]", "SIZE")),
        ("TYPE_FP32", pp.crop("AT[1]", "AT", "SIZE[1]", "SIZE", unit="share")),
    ],
)
def test_configured_types_determine_whether_a_slice_is_in_pixels_or_normalized(model, tmp_path, kind, window):
    (model / "1" / "model.dali").write_bytes(graph(*SLICED, outputs=["t"]))
    inputs = "".join(f'input {{ name: "{name}" data_type: {kind} dims: [ 2 ] }}\n' for name in ("AT", "SIZE"))
    files, notes = converted(model, HEAD + INPUT.replace("DALI_INPUT_0", "E") + inputs)
    assert notes == []
    assert pp.Pipeline.from_json(files["1/pipeline.json"]).ops[1] == window
    config = config_of(files, tmp_path)
    assert [each["data_type"] for each in config["input"]] == ["TYPE_UINT8", kind, kind]


def test_missing_inputs_are_added(model, tmp_path):
    (model / "1" / "model.dali").write_bytes(graph(*SLICED, outputs=["t"]))
    files, _ = converted(model, HEAD + 'input { name: "AT" data_type: TYPE_FP16 dims: [ 2 ] }\n')
    assert [(each["name"], each["data_type"], each["dims"]) for each in config_of(files, tmp_path)["input"]] == [
        ("E", "TYPE_UINT8", ["-1"]),
        ("AT", "TYPE_FP16", ["2"]),
        ("SIZE", "TYPE_FP32", ["2"]),
    ]


def test_types_in_the_graph_are_those_of_the_inputs(model, tmp_path):
    typed = [operator("ExternalSource", [], [name], dtype=6) for name in ("AT", "SIZE")]
    nodes = [SLICED[0], *typed, *SLICED[3:]]
    (model / "1" / "model.dali").write_bytes(graph(*nodes, outputs=["t"]))
    files, _ = converted(model, None)
    config = config_of(files, tmp_path)
    assert [(each["name"], each["data_type"], each["dims"]) for each in config["input"]] == [
        ("E", "TYPE_UINT8", ["-1"]),
        ("AT", "TYPE_INT32", ["2"]),
        ("SIZE", "TYPE_INT32", ["2"]),
    ]


REFUSED = {
    "a stream": (
        "model_transaction_policy { decoupled: true }",
        "config.pbtxt: model_transaction_policy: decoupled models are not supported, because pixprep returns one "
        "response per request: keep DALI for this model, or sample a fixed number of frames with decode_video",
    ),
    "other dims": (
        OUTPUT.replace("3, 224, -1", "224, 224, 3"),
        'config.pbtxt: output "DALI_OUTPUT_0" is TYPE_FP32 [224, 224, 3], but the graph has TYPE_FP32 '
        "[3, 224, 224]: correct it, or remove the output",
    ),
    "another type": (
        OUTPUT.replace("FP32", "UINT8"),
        'config.pbtxt: output "DALI_OUTPUT_0" is TYPE_UINT8 [3, 224, -1], but the graph has TYPE_FP32 '
        "[3, 224, 224]: correct it, or remove the output",
    ),
    "more outputs": (
        OUTPUT + OUTPUT.replace("_0", "_1"),
        "config.pbtxt: output: 2 outputs are declared, but the graph has 1",
    ),
    "a file elsewhere": (
        'default_model_filename: "../../x"',
        'config.pbtxt: default_model_filename must be a plain file name, not "../../x"',
    ),
    "clips cut to frames": (
        'parameters { key: "split_along_outer_axis" value { string_value: "A" } }',
        "config.pbtxt: parameters: split_along_outer_axis is not supported, because pixprep returns a clip as one "
        "tensor and not as a batch of frames: remove it and adapt the next model, or keep DALI for this model",
    ),
    "an input without a name": (
        "input { data_type: TYPE_UINT8 dims: [ -1 ] }",
        "config.pbtxt: an input has no name: write the name of its external_source",
    ),
    "an input of another name": (
        INPUT.replace("DALI_INPUT_0", "encoded"),
        'config.pbtxt: input "encoded" does not exist in the graph, whose inputs are "DALI_INPUT_0": write the name '
        "of an external_source",
    ),
    "an input of text": (
        INPUT.replace("UINT8", "FP32"),
        'config.pbtxt: input "DALI_INPUT_0" is TYPE_FP32 [-1], which is not supported for encoded images: declare '
        "TYPE_STRING with dims [ 1 ], or TYPE_UINT8 with dims [ -1 ]",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_configuration_that_contradicts_its_graph_is_rejected(model, case):
    text, words = REFUSED[case]
    with pytest.raises(pp.PipelineError) as caught:
        converted(model, HEAD + text)
    assert str(caught.value) == words


def test_dims_without_the_batch_are_rejected_if_max_batch_size_is_0(model):
    with pytest.raises(pp.PipelineError) as caught:
        converted(model, HEAD.replace("32", "0  # none") + OUTPUT)
    assert str(caught.value) == (
        'config.pbtxt: output "DALI_OUTPUT_0" is TYPE_FP32 [3, 224, -1], but the graph has TYPE_FP32 [3, 224, 224] '
        "after the batch dimension, which dims include if max_batch_size is 0: correct it, or remove the output"
    )


def test_per_request_matrices_are_rejected_because_clients_send_batches(model):
    nodes = [
        *(operator("ExternalSource", [], [name]) for name in ("E", "M")),
        operator("decoders__Image", ["E"], ["decoded"]),
        operator("WarpAffine", ["decoded", "M"], ["t"], size=[40.0, 50.0], fill_value=0.0),
    ]
    (model / "1" / "model.dali").write_bytes(graph(*nodes, outputs=["t"]))
    with pytest.raises(pp.PipelineError, match='the input "M": a request of dali_backend has a batch of photos'):
        converted(model, HEAD)


def test_a_missing_default_file_is_not_replaced_by_a_different_graph(model):
    (model / "config.pbtxt").write_text(HEAD + 'default_model_filename: "graph.bin"\n')
    with pytest.raises(pp.PipelineError, match=r"1 contains neither graph.bin nor dali.py"):
        find_dali_model(model)


def test_the_command_writes_a_folder_that_passes_the_check(model, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (model / "config.pbtxt").write_text(HEAD + INPUT + OUTPUT)
    assert main(["import", "dali", "served/dali"]) == 0
    out, err = capsys.readouterr()
    assert out.splitlines() == ["served/dali/config.pbtxt", "served/dali/1/pipeline.json"]
    assert err.splitlines()[-1].endswith("check served")
    assert check(tmp_path / "served") == []
    assert main(["import", "dali", "served/dali"]) == 1
    assert "already exists" in capsys.readouterr().err
    assert main(["import", "dali", "served/other", "--option", "chroma=fast"]) == 0
    assert "the new model is named other: change the model name in clients that call dali" in capsys.readouterr().err
    (model / "1" / "model.dali").unlink()
    assert main(["import", "dali", "served/dali", "--force"]) == 1
    assert "contains neither model.dali nor dali.py" in capsys.readouterr().err


def test_a_removed_version_is_gone_after_the_next_import(model, tmp_path):
    out = tmp_path / "served" / "dali"
    (model / "config.pbtxt").write_text(HEAD)
    shutil.copytree(model / "1", model / "2")
    assert main(["import", str(model), str(out)]) == 0
    assert list(Repository(out.parent).models["dali"].versions) == [2]
    shutil.rmtree(model / "2")
    assert main(["import", str(model), str(out), "--force"]) == 0
    assert sorted(path.relative_to(out).as_posix() for path in out.rglob("*")) == [
        "1",
        "1/pipeline.json",
        "config.pbtxt",
    ]


def test_a_failed_import_leaves_the_model_unchanged(model, tmp_path, capsys):
    out = tmp_path / "served" / "dali"
    (model / "config.pbtxt").write_text(HEAD)
    assert main(["import", str(model), str(out)]) == 0
    before = files(out)
    shutil.copy(FROZEN / "letterboxed.dali", model / "1" / "model.dali")
    with limited(resource.RLIMIT_FSIZE, 8):  # a file size limit simulates a full disk
        assert main(["import", str(model), str(out), "--force"]) == 1
    assert "not written: " in capsys.readouterr().err
    assert files(out) == before
    assert [path.name for path in out.parent.iterdir()] == ["dali"]
    (out / "notes.txt").write_text("mine")
    assert main(["import", str(model), str(out), "--force"]) == 1
    assert "notes.txt was not written by `pixprep import` and would be removed" in capsys.readouterr().err
    assert files(out) == before | {"notes.txt": b"mine"}


def test_the_configuration_of_the_page_is_kept_completely(model):
    page = (Path(__file__).parents[2] / "docs" / "dali.md").read_text(encoding="utf-8")
    (text,) = re.findall(r"```text\n(backend.*?)```", page, re.DOTALL)
    shutil.copy(FROZEN / "classic_gpu.dali", model / "1" / "model.dali")
    files, notes = converted(model, text)
    assert notes == []
    assert 'key: "threads"' in files["config.pbtxt"]


def test_a_comment_in_any_language_is_read_in_any_locale(model):
    (model / "config.pbtxt").write_text('backend: "dali"  # größer\nmax_batch_size: 0\n', encoding="utf-8")
    code = f"from pixprep.serving.repository.dali_model import find_dali_model as f; print(f({model!r})[0].is_batched)"
    code = f"from pathlib import Path, PosixPath; {code}"
    plain = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = subprocess.run([sys.executable, "-c", code], env={**os.environ, **plain}, capture_output=True, check=False)
    assert (done.stdout, done.returncode) == (b"False\n", 0), done.stderr


def test_a_folder_of_another_library_is_left_to_its_importer(tmp_path):
    (tmp_path / "preprocessor_config.json").write_text("{}")
    assert find_dali_model(tmp_path) == []
    (tmp_path / "config.pbtxt").write_text('backend: "python"\n')
    assert find_dali_model(tmp_path) == []
