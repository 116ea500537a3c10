"""A model folder of dali_backend becomes one of pixprep: what is kept, what is named, what is refused."""

import shutil
from pathlib import Path

import pytest

import pixprep as pp
from dali_graphs import graph, operator
from pixprep.cli.parser import main
from pixprep.importers.dali import from_dali, graph_inputs
from pixprep.serving.repository import check
from pixprep.serving.repository.dali_model import find_dali_model, translated
from pixprep.serving.triton.model_files import read_config

FROZEN = Path(__file__).parents[1] / "parity" / "frozen" / "dali"
INPUT = 'input [ { name: "DALI_INPUT_0" data_type: TYPE_UINT8 dims: [ -1 ] } ]\n'
OUTPUT = 'output [ { name: "DALI_OUTPUT_0" data_type: TYPE_FP32 dims: [ 3, 224, -1 ] } ]\n'
HEAD = 'name: "dali"\nbackend: "dali"\nmax_batch_size: 32\n'


@pytest.fixture
def model(tmp_path):
    """The folder of a model, with the usual graph."""
    (tmp_path / "dali" / "1").mkdir(parents=True)
    shutil.copy(FROZEN / "classic.dali", tmp_path / "dali" / "1" / "model.dali")
    return tmp_path / "dali"


def converted(model, text, file="model.dali"):
    if text is not None:
        (model / "config.pbtxt").write_text(text)
    found = find_dali_model(model)
    assert found.file == model / "1" / file
    data = found.file.read_bytes()
    return translated(found, from_dali(data, dtypes=found.dtypes), graph_inputs(data, found.file.name))


def config_of(files, folder):
    (folder / "made").mkdir()
    (folder / "made" / "config.pbtxt").write_text(files["config.pbtxt"])
    return read_config(folder / "made")


def test_a_configuration_keeps_what_means_the_same(model, tmp_path):
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


NOTED = {
    "a parameter": (
        'parameters [ { key: "split_along_outer_axis" value: { string_value: "A" } } ]',
        'parameter "split_along_outer_axis" has no place in a pixprep model, and is left out',
    ),
    "a field": (
        "model_repository_agents { }",
        "model_repository_agents has no place in a pixprep model, and is left out",
    ),
    "a GPU": (
        "instance_group [ { count: 2 kind: KIND_GPU gpus: [ 0, 1 ] } ]",
        "instance_group: KIND_GPU on 0, 1: 2 instances on each GPU where the server has some, else on the CPU; pixprep "
        "has not run on a GPU yet: KIND_CPU keeps it off",
    ),
}


@pytest.mark.parametrize("case", NOTED)
def test_what_has_no_place_is_named(model, tmp_path, case):
    text, words = NOTED[case]
    files, notes = converted(model, HEAD + INPUT + OUTPUT + text)
    assert notes == [words]
    assert "kind" not in str(config_of(files, tmp_path))


@pytest.mark.parametrize(
    ("text", "inputs", "outputs"),
    [
        (None, "encoded", "DALI_OUTPUT_0"),
        ('backend: "dali"\n', "encoded", "DALI_OUTPUT_0"),
        (
            'backend: "dali"\nmax_batch_size: 0\ninput [ { name: "A" data_type: TYPE_UINT8 dims: [ -1, -1 ] } ]\n'
            'output [ { name: "B" data_type: TYPE_FP32 dims: [ -1, 3, 224, 224 ] } ]\n',
            "A",
            "B",
        ),
    ],
    ids=["no file", "nothing said", "no batch"],
)
def test_what_is_not_written_follows_from_the_graph(model, tmp_path, text, inputs, outputs):
    files, notes = converted(model, text)
    config = config_of(files, tmp_path)
    data = (model / "1" / "model.dali").read_bytes()
    assert config["input"][0]["name"] == (next(iter(graph_inputs(data, ""))) if inputs == "encoded" else inputs)
    assert config["input"][0]["dims"] == ["-1"]
    assert (config["output"][0]["name"], config["max_batch_size"]) == (outputs, 64)
    assert notes == ["max_batch_size 0: requests share batches now, of the same shapes"] * (text is not None)


def test_a_graph_of_another_name_and_several_outputs(model, tmp_path):
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
def test_types_of_the_configuration_say_whether_a_slice_is_of_pixels_or_of_shares(model, tmp_path, kind, window):
    (model / "1" / "model.dali").write_bytes(graph(*SLICED, outputs=["t"]))
    inputs = "".join(f'input {{ name: "{name}" data_type: {kind} dims: [ 2 ] }}\n' for name in ("AT", "SIZE"))
    files, notes = converted(model, HEAD + INPUT.replace("DALI_INPUT_0", "E") + inputs)
    assert notes == []
    assert pp.Pipeline.from_json(files["1/pipeline.json"]).ops[1] == window
    config = config_of(files, tmp_path)
    assert [each["data_type"] for each in config["input"]] == ["TYPE_UINT8", kind, kind]


def test_types_that_the_graph_says_are_those_of_the_inputs(model, tmp_path):
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
        "config.pbtxt: model_transaction_policy: a decoupled model answers a request with a stream of unknown length, "
        "and pixprep gives one answer: DALI has to serve it; decode_video gives a fixed number of frames",
    ),
    "other dims": (
        OUTPUT.replace("3, 224, -1", "224, 224, 3"),
        'config.pbtxt: output "DALI_OUTPUT_0": is TYPE_FP32 [224, 224, 3], but the graph gives TYPE_FP32 '
        "[3, 224, 224]: mend it there, or leave it out",
    ),
    "another type": (
        OUTPUT.replace("FP32", "UINT8"),
        'config.pbtxt: output "DALI_OUTPUT_0": is TYPE_UINT8 [3, 224, -1], but the graph gives TYPE_FP32 '
        "[3, 224, 224]: mend it there, or leave it out",
    ),
    "more outputs": (OUTPUT + OUTPUT.replace("_0", "_1"), "config.pbtxt: output: 2 outputs, and the graph gives 1"),
    "a file elsewhere": (
        'default_model_filename: "../../x"',
        'config.pbtxt: default_model_filename: "../../x" leads out of the version\'s folder',
    ),
    "an input of text": (
        INPUT.replace("UINT8", "FP32"),
        'config.pbtxt: input "DALI_INPUT_0": TYPE_FP32 [-1] cannot hold encoded images: write TYPE_STRING with dims '
        "[ 1 ], or TYPE_UINT8 with dims [ -1 ]",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_configuration_that_contradicts_its_graph_is_refused(model, case):
    text, words = REFUSED[case]
    with pytest.raises(pp.PipelineError) as caught:
        converted(model, HEAD + text)
    assert str(caught.value) == words


def test_the_command_writes_a_folder_that_passes_the_check(model, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (model / "config.pbtxt").write_text(HEAD + INPUT + OUTPUT)
    assert main(["import", "dali", "served/dali"]) == 0
    out, err = capsys.readouterr()
    assert out.splitlines() == ["served/dali/config.pbtxt", "served/dali/1/pipeline.json"]
    assert err.splitlines()[-1].endswith("check served")
    assert check(tmp_path / "served") == []
    assert main(["import", "dali", "served/dali"]) == 1
    assert "exists already" in capsys.readouterr().err
    assert main(["import", "dali", "served/other", "--option", "chroma=fast"]) == 0
    assert "clients ask for the model dali, and this is other" in capsys.readouterr().err
    (model / "1" / "model.dali").unlink()
    assert main(["import", "dali", "served/dali", "--force"]) == 1
    assert "has neither model.dali nor dali.py" in capsys.readouterr().err


def test_another_folder_is_left_to_its_library(tmp_path):
    (tmp_path / "preprocessor_config.json").write_text("{}")
    assert find_dali_model(tmp_path) is None
    (tmp_path / "config.pbtxt").write_text('backend: "python"\n')
    assert find_dali_model(tmp_path) is None
