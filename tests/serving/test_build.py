"""Tests of the model repositories that `build` writes and the notes that it prints."""

import difflib
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import pixprep as pp
from pixprep.errors import PipelineError, SetupError
from pixprep.serving.repository import build, check, side_notes
from pixprep.serving.repository.backend import onnx_classifier
from support.faces import PIPELINE, PLAN, UNASKED, WEIGHTS, files, folder, read_onnx, save_onnx

COMMITTED = Path(__file__).parents[2] / "model_repository"


@pytest.fixture(scope="session")
def demo(tmp_path_factory):
    return build(tmp_path_factory.mktemp("demo") / "models")


def interface(config_text):
    """Return the parts of a configuration that clients and ensembles depend on."""
    return re.findall(
        r"^(?:(?:in|out)put|  (?:name|data_type|dims|label_filename)).*|^max_batch_size.*", config_text, re.MULTILINE
    )


def test_the_committed_repository_equals_what_build_writes_except_ignored_files(demo):
    committed, result = files(COMMITTED), files(folder(demo))
    assert result.pop("classifier/1/model.py") == onnx_classifier().encode()
    committed.pop("classifier/1/model.py", None)
    assert committed == result


def test_a_build_names_each_file_that_it_writes_and_leaves_no_others(demo):
    root = folder(demo)
    assert [path.relative_to(root).as_posix() for path in demo.paths] == [
        "classifier/1/model.onnx", "classifier/1/model.py", "classifier/config.pbtxt", "classifier/labels.txt",
        "ensemble/1/.gitkeep", "ensemble/config.pbtxt", "preprocess/1/pipeline.json", "preprocess/config.pbtxt",
    ]  # fmt: skip
    assert sorted(path for path in root.rglob("*") if path.is_file()) == list(demo.paths)
    assert [path.name for path in root.parent.iterdir()] == ["models"]
    assert demo.notes == ()
    assert check(root) == []


@pytest.mark.parametrize(
    ("classifier", "lines"),
    [
        (
            "onnxruntime-gpu",
            [
                "-# One instance suffices: ONNX Runtime uses all cores.",
                "-instance_group { count: 1 kind: KIND_CPU }",
                "+# Keep input tensors in GPU memory.",
                '+parameters { key: "FORCE_CPU_ONLY_INPUT_TENSORS" value { string_value: "no" } }',
                "+# By default, Triton creates one instance per GPU, or one on the CPU if there is no GPU.",
            ],
        ),
        (
            "tensorrt",
            [
                '-backend: "python"',
                '+platform: "tensorrt_plan"',
                "-# One instance suffices: ONNX Runtime uses all cores.",
                "-instance_group { count: 1 kind: KIND_CPU }",
            ],
        ),
    ],
)
def test_classifiers_differ_only_in_what_runs_them(demo, tmp_path, classifier, lines):
    out = tmp_path / "models"
    notes = build(out, classifier=classifier).notes
    ours, theirs = files(folder(demo)), files(out)
    # the last line contains a checksum of the other lines
    texts = (entry.pop("classifier/config.pbtxt").decode().splitlines()[:-1] for entry in (ours, theirs))
    changed = [line for line in difflib.ndiff(*texts) if line[0] in "-+"]
    assert sorted(changed) == sorted(f"{line[0]} {line[1:]}" for line in lines)
    onnx_files = [root / "classifier" / "1" / "model.onnx" for root in (folder(demo), out)]
    assert onnx_files[0].read_bytes() == onnx_files[1].read_bytes()
    problems, commands = [], []
    if classifier == "tensorrt":
        del ours["classifier/1/model.py"]
        problems = ["classifier/1/model.plan: is missing: build it with trtexec on the machine that will serve it"]
        commands = [
            UNASKED,
            "build the plan on the machine that will serve it, with its version of TensorRT:\n"
            f"trtexec --onnx={out}/classifier/1/model.onnx --saveEngine={out}/classifier/1/model.plan "
            "--minShapes=input:1x3x224x224 --optShapes=input:32x3x224x224 --maxShapes=input:64x3x224x224",
        ]
    assert ours == theirs
    assert list(notes) == commands
    assert list(map(str, check(out))) == problems


def test_a_users_own_classifier_keeps_its_names(tmp_path):
    outputs = [("boxes:0", "FLOAT", ("n", "boxes", 4)), ("classes", "INT64", ("n", "boxes"))]
    path = save_onnx(tmp_path / "my.onnx", [("pixels", "FLOAT16", ("n", 3, "height", "width"))], outputs)
    build(tmp_path / "out", pipeline=pp.presets.letterbox(size=320, dtype="float16"), onnx=path, max_batch_size=8)
    assert interface((tmp_path / "out" / "classifier" / "config.pbtxt").read_text()) == [
        "max_batch_size: 8", "input {", '  name: "pixels"', "  data_type: TYPE_FP16", "  dims: [ 3, 320, 320 ]",
        "output {", '  name: "boxes:0"', "  data_type: TYPE_FP32", "  dims: [ -1, 4 ]", "output {", '  name: "classes"',
        "  data_type: TYPE_INT64", "  dims: [ -1 ]",
    ]  # fmt: skip
    assert (tmp_path / "out" / "classifier" / "1" / "model.onnx").read_bytes() == path.read_bytes()
    assert not (tmp_path / "out" / "classifier" / "labels.txt").exists()
    assert check(tmp_path / "out") == []


def test_the_ensemble_also_returns_outputs_that_the_classifier_does_not_use(model, tmp_path):
    pipeline = pp.Pipeline([pp.decode(), pp.original_size(), pp.letterbox(224, 224), pp.transform(), pp.tensor()])
    build(tmp_path / "out", pipeline=pipeline, onnx=model, on_error="zero")
    text = (tmp_path / "out" / "ensemble" / "config.pbtxt").read_text()
    assert re.findall("^  name: (.*)", text, re.MULTILINE) == [
        f'"{name}"' for name in ("image", "logits", "original_size", "transform", "status")
    ]
    assert re.findall("(?:model_name:|map {).*", text) == [
        'model_name: "preprocess"',
        'map { key: "image" value: "image" }',
        *(f'map {{ key: "{name}" value: "{name}" }}' for name in pipeline.outputs),
        'map { key: "status" value: "status" }',
        'model_name: "classifier"',
        'map { key: "input" value: "tensor" }',
        'map { key: "logits" value: "logits" }',
    ]
    assert (
        'parameters { key: "on_error" value { string_value: "zero" } }'
        in (tmp_path / "out" / "preprocess" / "config.pbtxt").read_text().splitlines()
    )
    assert check(tmp_path / "out") == []


def test_several_tensors_are_paired_with_several_inputs_by_name(tmp_path):
    pipeline = pp.Pipeline(
        [
            pp.decode(name="photo"), pp.resize(height=64, width=32), pp.tensor(name="large"),
            pp.resize(16, from_="photo"), pp.center_crop(16), pp.tensor(name="small", dtype="uint8"),
        ]
    )  # fmt: skip
    inputs = [("small", "UINT8", ("n", 3, 16, 16)), ("large", "FLOAT", ("n", 3, 64, 32))]
    result = build(
        tmp_path / "out",
        pipeline=pipeline,
        onnx=save_onnx(tmp_path / "two.onnx", inputs),
        classifier="tensorrt",
        max_batch_size=1,
    )
    shapes = "small:1x3x16x16,large:1x3x64x32"
    assert result.notes[-1].endswith(f"--minShapes={shapes} --optShapes={shapes} --maxShapes={shapes}")
    ensemble = (tmp_path / "out" / "ensemble" / "config.pbtxt").read_text()
    assert re.findall("input_map.*", ensemble) == [
        'input_map { key: "image" value: "image" }',
        'input_map { key: "small" value: "small" }',
        'input_map { key: "large" value: "large" }',
    ]
    only_large = save_onnx(tmp_path / "one.onnx", inputs[1:])
    build(tmp_path / "one", pipeline=pipeline, onnx=only_large)
    assert interface((tmp_path / "one" / "ensemble" / "config.pbtxt").read_text())[-3:] == [
        '  name: "small"',
        "  data_type: TYPE_UINT8",
        "  dims: [ 3, 16, 16 ]",
    ]


def test_a_model_with_a_fixed_batch_of_one_is_served(tmp_path):
    fixed = save_onnx(tmp_path / "one.onnx", [("input", "FLOAT", (1, 3, 224, 224))], [("logits", "FLOAT", (1, 4))])
    result = build(tmp_path / "out", pipeline=PIPELINE, onnx=fixed, classifier="tensorrt", max_batch_size=1)
    assert "Shapes" not in result.notes[-1]  # trtexec rejects shape options for a model with fixed dimensions
    (tmp_path / "out" / "classifier" / "1" / "model.plan").write_bytes(PLAN)
    assert check(tmp_path / "out") == []


def test_a_plan_is_copied_and_its_inputs_come_from_its_onnx_file_or_from_options(model, tmp_path):
    plan = tmp_path / "my.plan"
    plan.write_bytes(PLAN)
    words = ["input:FP32:3x224x224", "logits:FP32:4"]
    with_onnx = build(tmp_path / "a", pipeline=PIPELINE, plan=plan, onnx=model, classifier="tensorrt")
    with_words = build(tmp_path / "b", pipeline=PIPELINE, plan=plan, classifier_io=words, classifier="tensorrt")
    assert with_onnx.notes == with_words.notes == ()
    assert files(tmp_path / "a") == files(tmp_path / "b")
    assert (tmp_path / "b" / "classifier" / "1" / "model.plan").read_bytes() == PLAN
    assert check(tmp_path / "a") == check(tmp_path / "b") == []


def test_external_weights_of_an_onnx_file_are_copied(model, tmp_path):
    split = tmp_path / "split" / "my.onnx"
    split.parent.mkdir()
    onnx.save(onnx.load(model), split, save_as_external_data=True, location="my.onnx.data", size_threshold=0)
    build(tmp_path / "out", pipeline=PIPELINE, onnx=split)
    copied = onnx.load(tmp_path / "out" / "classifier" / "1" / "model.onnx")
    assert np.array_equal(numpy_helper.to_array(copied.graph.initializer[0]), WEIGHTS)


def test_an_error_without_a_file_name_is_reported_without_one(tmp_path):
    plan = tmp_path / "my.plan"
    plan.symlink_to("/proc/self/mem")  # this file can be opened, but reading it fails
    words = ["input:FP32:3x224x224", "logits:FP32:4"]
    with pytest.raises(SetupError) as caught:
        build(tmp_path / "out", pipeline=PIPELINE, plan=plan, classifier_io=words, classifier="tensorrt")
    assert str(caught.value) == f"{tmp_path}/out: not written: Input/output error"


def test_weights_that_old_files_list_as_inputs_are_not_inputs(tmp_path):
    path = save_onnx(tmp_path / "old.onnx", [("input",), ("weights", "FLOAT", (3, 4))])
    assert [tensor.name for tensor in read_onnx(path).inputs] == ["input"]


def test_the_demo_classifier_after_a_different_pipeline_causes_a_warning(tmp_path):
    assert build(tmp_path / "out", pipeline=PIPELINE).notes == (
        "the demo classifier was trained with --preset efficientnet_lite0: a different pipeline makes it less accurate",
    )


def test_an_onnx_file_is_opened_once(model, tmp_path):
    code = (
        "import sys\nfrom pathlib import Path\nimport pixprep as pp\nfrom pixprep.serving.repository import build\n"
        "opened = []\n"
        "sys.addaudithook(lambda event, arguments: opened.append(arguments[0]) if event == 'open' else None)\n"
        "build(Path('out'), pipeline=pp.presets.imagenet(), onnx=Path(sys.argv[1]))\n"
        "print([Path(name).name for name in opened if isinstance(name, str | Path)].count('my.onnx'))"
    )
    assert subprocess.check_output([sys.executable, "-c", code, model], cwd=tmp_path, text=True) == "1\n"


def test_an_unknown_parameter_is_rejected_with_a_suggestion(model, tmp_path):
    with pytest.raises(PipelineError) as caught:
        build(tmp_path / "out", pipeline=PIPELINE, onnx=model, parameters={"thread": "2"})
    assert str(caught.value) == 'parameters: unknown parameter "thread"; did you mean "threads"?'


def test_build_and_check_report_the_inputs_that_clients_must_send(model, tmp_path):
    pipeline = pp.Pipeline([pp.decode(), pp.letterbox(224, 224, fill="paint"), pp.normalize(), pp.tensor()])
    asks = 'clients must send "paint" uint8 [n, 3] (a pixel value per channel) with each image'
    assert build(tmp_path / "out", pipeline=pipeline, onnx=model).notes[0] == asks
    assert side_notes(tmp_path / "out") == [f"{tmp_path}/out/preprocess/1/pipeline.json: {asks}"]
    pipeline.save(tmp_path / "p.json")
    assert side_notes(tmp_path / "p.json") == [f"{tmp_path}/p.json: {asks}"]


@pytest.mark.parametrize(
    ("name", "dims"),
    [
        ("dets", ("m", 5)),
        ("pred_boxes", ("a", "b")),
        ("output0", (84, 1029)),
        ("output", (1029, 85)),
        ("out", (3087, 85)),
    ],
)
def test_boxes_without_a_transform_are_noted(tmp_path, name, dims):
    path = save_onnx(tmp_path / "my.onnx", outputs=[(name, "FLOAT", ("batch", *dims))])
    shown = [-1 if isinstance(length, str) else length for length in dims]
    remedy = "Add original_size after decode and transform before tensor: docs/detection.md"
    report = f'my.onnx: "{name}" {shown} looks like boxes, but clients cannot map them to the photo.'
    cut = f"{report} The detector cannot find objects that center_crop cuts off. {remedy}"
    assert cut in build(tmp_path / "out", pipeline=PIPELINE, onnx=path).notes
    head, tail = [pp.decode(), pp.original_size(), pp.letterbox(224, 224)], [pp.normalize(), pp.tensor()]
    assert f"{report} {remedy}" in build(tmp_path / "out", pipeline=pp.Pipeline([*head, *tail]), onnx=path).notes
    whole = pp.Pipeline([*head, pp.transform(), *tail])
    assert not any("boxes" in note for note in build(tmp_path / "out", pipeline=whole, onnx=path).notes)


@pytest.mark.parametrize("dims", [(1000,), (197, 768), (40, 97), (25, 6625), (21, 224, 224)])
def test_scores_features_and_masks_are_not_mistaken_for_boxes(tmp_path, dims):
    path = save_onnx(tmp_path / "my.onnx", outputs=[("output", "FLOAT", ("batch", *dims))])
    assert build(tmp_path / "out", pipeline=PIPELINE, onnx=path).notes == ()


def test_formats_that_this_machine_cannot_decode_are_reported(model, tmp_path, monkeypatch):
    monkeypatch.delitem(sys.modules, "pixprep.engine.decoders.heic", raising=False)
    monkeypatch.delattr("pixprep.engine.decoders.heic", raising=False)
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    lacks = "this machine cannot serve the model: the image format heic needs pillow-heif: pip install pillow-heif"
    out = tmp_path / "out"
    assert build(out, pipeline=PIPELINE, onnx=model, parameters={"formats": "jpeg heic"}).notes == (lacks,)
    assert (check(out), side_notes(out)) == ([], [f"{out}/preprocess: {lacks}"])
