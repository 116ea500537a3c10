"""Model repositories: what `build` writes, which pairs it refuses, what `check` finds."""

import difflib
import hashlib
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import pixprep as pp
from limits import memory_for
from pixprep.cli import main
from pixprep.errors import PipelineError, SetupError
from pixprep.serving.repository import Problem, build, check, check_pipeline, plan_repository, side_notes
from pixprep.serving.repository.check import ONNX_CLASSIFIER
from pixprep.serving.repository.ports import parse_io, read_onnx

COMMITTED = Path(__file__).parents[2] / "model_repository"
MODELS = ("classifier", "ensemble", "preprocess")
PIPELINE = pp.presets.imagenet()
WEIGHTS = np.arange(12, dtype=np.float32).reshape(3, 4)


def value(name, dtype="FLOAT", shape=("batch", 3, 224, 224)):
    return helper.make_tensor_value_info(name, TensorProto.DataType.Value(dtype), shape)


def save_onnx(path, inputs=(("input",),), outputs=(("logits", "FLOAT", ("batch", 4)),)):
    """A model that only has a face: nothing that these tests do computes with it."""
    graph = helper.make_graph(
        [helper.make_node("Identity", ["weights"], ["same"])],
        "face",
        [value(*entry) for entry in inputs],
        [value(*entry) for entry in outputs],
        [numpy_helper.from_array(WEIGHTS, "weights")],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8), path)
    return path


@pytest.fixture
def model(tmp_path):
    return save_onnx(tmp_path / "my.onnx")


@pytest.fixture(scope="session")
def demo(tmp_path_factory):
    return build(tmp_path_factory.mktemp("demo") / "models")


def folder(built):
    return Path(built.paths[0]).parents[2]


def files(root):
    """Every file of a repository with its content, but the ignored weights."""
    found = [path for path in root.rglob("*") if path.is_file() and path.parent.name != "__pycache__"]
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in found if path.name != "model.onnx"}


def face(config_text):
    """Model as clients and ensembles see it."""
    return re.findall(
        r"^(?:(?:in|out)put|  (?:name|data_type|dims|label_filename)).*|^max_batch_size.*", config_text, re.MULTILINE
    )


# What it writes


def test_the_committed_repository_is_what_build_writes_byte_for_byte_but_for_what_git_ignores(demo):
    committed, built = files(COMMITTED), files(folder(demo))
    assert built.pop("classifier/1/model.py") == ONNX_CLASSIFIER.read_bytes()
    committed.pop("classifier/1/model.py", None)
    assert committed == built


def test_a_build_says_each_file_that_it_wrote_and_leaves_nothing_else(demo):
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
                "-# ONNX Runtime uses all cores by itself.",
                "-instance_group { count: 1 kind: KIND_CPU }",
                "+# Tensors that preprocess gives on the GPU stay there.",
                '+parameters { key: "FORCE_CPU_ONLY_INPUT_TENSORS" value { string_value: "no" } }',
                "+# Without instance_group there is one instance per GPU, or one on the CPU where there is no GPU.",
            ],
        ),
        (
            "tensorrt",
            [
                '-backend: "python"',
                '+platform: "tensorrt_plan"',
                "-# ONNX Runtime uses all cores by itself.",
                "-instance_group { count: 1 kind: KIND_CPU }",
            ],
        ),
    ],
)
def test_classifiers_differ_in_what_runs_them_and_in_nothing_else(demo, tmp_path, classifier, lines):
    out = tmp_path / "models"
    notes = build(out, classifier=classifier).notes
    ours, theirs = files(folder(demo)), files(out)
    # the last line has a checksum of the others
    texts = (entry.pop("classifier/config.pbtxt").decode().splitlines()[:-1] for entry in (ours, theirs))
    changed = [line for line in difflib.ndiff(*texts) if line[0] in "-+"]
    assert sorted(changed) == sorted(f"{line[0]} {line[1:]}" for line in lines)
    onnx_files = [root / "classifier" / "1" / "model.onnx" for root in (folder(demo), out)]
    assert onnx_files[0].read_bytes() == onnx_files[1].read_bytes()
    problems, commands = [], []
    if classifier == "tensorrt":
        del ours["classifier/1/model.py"]
        problems = [
            "classifier/1/model.plan: is missing: make it there with trtexec, on the machine that will serve it"
        ]
        commands = [
            "make the plan on the machine that will serve it, with its TensorRT:\n"
            f"trtexec --onnx={out}/classifier/1/model.onnx --saveEngine={out}/classifier/1/model.plan "
            "--minShapes=input:1x3x224x224 --optShapes=input:32x3x224x224 --maxShapes=input:64x3x224x224"
        ]
    assert ours == theirs
    assert list(notes) == commands
    assert list(map(str, check(out))) == problems


def test_a_classifier_of_ones_own_keeps_its_names(tmp_path):
    outputs = [("boxes:0", "FLOAT", ("n", "boxes", 4)), ("classes", "INT64", ("n", "boxes"))]
    path = save_onnx(tmp_path / "my.onnx", [("pixels", "FLOAT16", ("n", 3, "height", "width"))], outputs)
    build(tmp_path / "out", pipeline=pp.presets.letterbox(size=320, dtype="float16"), onnx=path, max_batch_size=8)
    assert face((tmp_path / "out" / "classifier" / "config.pbtxt").read_text()) == [
        "max_batch_size: 8", "input {", '  name: "pixels"', "  data_type: TYPE_FP16", "  dims: [ 3, 320, 320 ]",
        "output {", '  name: "boxes:0"', "  data_type: TYPE_FP32", "  dims: [ -1, 4 ]", "output {", '  name: "classes"',
        "  data_type: TYPE_INT64", "  dims: [ -1 ]",
    ]  # fmt: skip
    assert (tmp_path / "out" / "classifier" / "1" / "model.onnx").read_bytes() == path.read_bytes()
    assert not (tmp_path / "out" / "classifier" / "labels.txt").exists()
    assert check(tmp_path / "out") == []


def test_the_ensemble_also_gives_what_the_classifier_does_not_take(model, tmp_path):
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
    built = build(
        tmp_path / "out",
        pipeline=pipeline,
        onnx=save_onnx(tmp_path / "two.onnx", inputs),
        classifier="tensorrt",
        max_batch_size=1,
    )
    shapes = "small:1x3x16x16,large:1x3x64x32"
    assert built.notes[-1].endswith(f"--minShapes={shapes} --optShapes={shapes} --maxShapes={shapes}")
    ensemble = (tmp_path / "out" / "ensemble" / "config.pbtxt").read_text()
    assert re.findall("input_map.*", ensemble) == [
        'input_map { key: "image" value: "image" }',
        'input_map { key: "small" value: "small" }',
        'input_map { key: "large" value: "large" }',
    ]
    only_large = save_onnx(tmp_path / "one.onnx", inputs[1:])
    build(tmp_path / "one", pipeline=pipeline, onnx=only_large)
    assert face((tmp_path / "one" / "ensemble" / "config.pbtxt").read_text())[-3:] == [
        '  name: "small"',
        "  data_type: TYPE_UINT8",
        "  dims: [ 3, 16, 16 ]",
    ]


def test_a_batch_of_one_serves_a_model_that_takes_no_other(tmp_path):
    fixed = save_onnx(tmp_path / "one.onnx", [("input", "FLOAT", (1, 3, 224, 224))], [("logits", "FLOAT", (1, 4))])
    built = build(tmp_path / "out", pipeline=PIPELINE, onnx=fixed, classifier="tensorrt", max_batch_size=1)
    assert "Shapes" not in built.notes[0]  # trtexec refuses them where no length is free
    (tmp_path / "out" / "classifier" / "1" / "model.plan").write_bytes(b"plan")
    assert check(tmp_path / "out") == []


def test_a_plan_is_copied_and_its_face_comes_from_its_onnx_file_or_from_words(model, tmp_path):
    plan = tmp_path / "my.plan"
    plan.write_bytes(b"plan")
    words = ["input:FP32:3x224x224", "logits:FP32:4"]
    with_onnx = build(tmp_path / "a", pipeline=PIPELINE, plan=plan, onnx=model, classifier="tensorrt")
    with_words = build(tmp_path / "b", pipeline=PIPELINE, plan=plan, classifier_io=words, classifier="tensorrt")
    assert with_onnx.notes == with_words.notes == ()
    assert files(tmp_path / "a") == files(tmp_path / "b")
    assert (tmp_path / "b" / "classifier" / "1" / "model.plan").read_bytes() == b"plan"
    assert check(tmp_path / "a") == check(tmp_path / "b") == []


def test_weights_that_an_onnx_file_keeps_beside_it_are_copied_along(model, tmp_path):
    split = tmp_path / "split" / "my.onnx"
    split.parent.mkdir()
    onnx.save(onnx.load(model), split, save_as_external_data=True, location="my.onnx.data", size_threshold=0)
    build(tmp_path / "out", pipeline=PIPELINE, onnx=split)
    copied = onnx.load(tmp_path / "out" / "classifier" / "1" / "model.onnx")
    assert np.array_equal(numpy_helper.to_array(copied.graph.initializer[0]), WEIGHTS)


def test_a_failure_that_names_no_file_is_told_without_one(tmp_path):
    plan = tmp_path / "my.plan"
    plan.symlink_to("/proc/self/mem")  # opens, and fails to read
    words = ["input:FP32:3x224x224", "logits:FP32:4"]
    with pytest.raises(SetupError) as caught:
        build(tmp_path / "out", pipeline=PIPELINE, plan=plan, classifier_io=words, classifier="tensorrt")
    assert str(caught.value) == f"{tmp_path}/out: not written: Input/output error"


def test_weights_that_old_files_list_as_inputs_are_none(tmp_path):
    path = save_onnx(tmp_path / "old.onnx", [("input",), ("weights", "FLOAT", (3, 4))])
    assert [tensor.name for tensor in read_onnx(path).inputs] == ["input"]


def test_the_demo_classifier_after_another_pipeline_comes_with_a_word_of_caution(tmp_path):
    assert build(tmp_path / "out", pipeline=PIPELINE).notes == (
        "the demo classifier learned from --preset efficientnet_lite0: after another pipeline its labels are less sure",
    )


# What does not fit


def tensor_pipeline(**fields):
    return pp.Pipeline([pp.decode(), pp.resize(256), pp.center_crop(224), pp.tensor(**fields)])


TWO = pp.Pipeline([pp.decode(), pp.resize(height=8, width=8), pp.tensor(name="a"), pp.tensor(name="b")])
HWC = tensor_pipeline(layout="hwc")
FOUR = tensor_pipeline(channels=4)
GRAY = pp.Pipeline([pp.decode(color="gray"), pp.resize(height=224, width=224), pp.tensor()])
WIDE = pp.Pipeline([pp.decode(), pp.resize(height=32, width=100), pp.tensor()])
ONE_MORE = tensor_pipeline(layout="1chw")


EXPORT = "export the model with [batch, 3, 224, 224]"


def refusal(path, pipeline=PIPELINE):
    """How ``build`` refuses an ONNX file; it leaves nothing behind."""
    with pytest.raises(PipelineError) as caught:
        build(path.parent / "out", pipeline=pipeline, onnx=path)
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]
    return str(caught.value).removeprefix(f"{path.name}: ")


EXPORTED = "is fixed at {}: export the model with a free first dimension"
BATCH = f"{EXPORTED}, or try --free-dims"
ONE = f"{EXPORTED.format(1)}, or say --max-batch-size 1, or try --free-dims"
WANTS = 'the pipeline gives float32, the model\'s "input" wants'
BEHIND = ", or tensor channels to 1 behind grayscale"
OTHER = ", or, if the model has them the other way round, tensor layout to "


@pytest.mark.parametrize(
    ("pipeline", "shape", "remedy"),
    [
        (PIPELINE, (3, 256, 256), "set center_crop to 256"),
        (PIPELINE, (3, 256, 257), "set center_crop to height 256, width 257 and resize to at least that"),
        (GRAY, (1, 32, 100), "set resize to height 32, width 100"),
        (PIPELINE, (224, 224, 3), 'set tensor layout to "hwc"'),
        (HWC, (3, "any", 256), 'set tensor layout to "chw" and set center_crop to height 224, width 256'),
        (PIPELINE, (1, 224, 224), f'set decode color to "gray"{BEHIND}'),
        (PIPELINE, (4, 224, 224), "set tensor channels to 4"),
        (GRAY, (4, 224, 224), 'set decode color to "rgb" and set tensor channels to 4'),
        (HWC, (224, 224, 4), "set tensor channels to 4"),
        (FOUR, (3, 224, 224), "leave tensor channels out"),
        (GRAY, (3, 224, 224), 'set decode color to "rgb"'),
        (WIDE, (3, 100, 32), f'set resize to height 100, width 32{OTHER}"cwh"'),
        (WIDE, ("image_width", "H", 3), 'set tensor layout to "whc"'),
        (WIDE, (100, 32, 3), f'set tensor layout to "hwc" and set resize to height 100, width 32{OTHER}"whc"'),
        (WIDE, (1, 3, 32, 100), 'set tensor layout to "1chw"'),
        (WIDE, (3, 1, 32, 64), 'set tensor layout to "c1hw" and set resize to height 32, width 64'),
        (PIPELINE, (1, 1, 224, 224), f'set tensor layout to "1chw" and set decode color to "gray"{BEHIND}'),
        (PIPELINE, (1, 1, 1, 3, 224, 224), EXPORT),
        (ONE_MORE, (3, 224, 224), 'set tensor layout to "chw"'),
        (PIPELINE, (5, 224, 224), EXPORT),
        (PIPELINE, (150528,), EXPORT),
    ],
)
def test_an_input_of_another_shape_is_refused_with_the_way_out(tmp_path, pipeline, shape, remedy):
    gives = list(pipeline.outputs["tensor"].spec.shape)
    wants = [-1 if isinstance(length, str) else length for length in shape]
    path = save_onnx(tmp_path / "my.onnx", [("input", "FLOAT", ("n", *shape))])
    assert refusal(path, pipeline) == f'the pipeline gives {gives}, the model\'s "input" wants {wants}: {remedy}'


@pytest.mark.parametrize("words", [("width", "height"), ("W", "H"), ("height", "width"), ("a", "b")])
@pytest.mark.parametrize("layout", ["chw", "cwh"])
def test_the_words_of_an_onnx_file_say_that_its_width_comes_first(tmp_path, words, layout):
    path = save_onnx(tmp_path / "my.onnx", [("input", "FLOAT", ("n", 3, *words))])
    built = build(tmp_path / "models", pipeline=tensor_pipeline(layout=layout), onnx=path)
    order = "".join(word[0].lower() for word in words)
    other = {"chw": "cwh", "cwh": "chw"}[layout]
    note = (
        f'my.onnx: "input" calls its dims 3, {", ".join(words)}: if that is their order, set tensor layout to "{other}"'
    )
    assert (note in built.notes) == (order in other)
    assert sum("calls its dims" in each for each in built.notes) == (order in other)


@pytest.mark.parametrize(
    ("side", "tensor", "message"),
    [
        ("inputs", ("input", "FLOAT16"), f"{WANTS} float16: set tensor dtype to float16"),
        ("inputs", ("input", "INT64"), f"{WANTS} int64: export the model with float32"),
        ("inputs", ("input", "COMPLEX64"), f"{WANTS} no tensor: export the model with float32"),
        ("inputs", ("input", "FLOAT", (3, 224, 224)), f'input "input" has no batch dimension: {EXPORT}'),
        ("inputs", ("input", "FLOAT", None), f'input "input" has no batch dimension: {EXPORT}'),
        ("inputs", ("input", "FLOAT", (1, 3, 224, 224)), f'the batch of input "input" {ONE}'),
        ("inputs", ("input", "FLOAT", (8, 3, 224, 224)), f'the batch of input "input" {BATCH.format(8)}'),
        ("outputs", ("logits", "FLOAT", (1, 4)), f'the batch of output "logits" {ONE}'),
        (
            "outputs",
            ("logits", "FLOAT", ("n",)),
            'output "logits" has no dims beside the batch: export it as [batch, 1] or wider',
        ),
        (
            "outputs",
            ("a", "FLOAT", None),
            'output "a" has no shape: write it with onnx.shape_inference.infer_shapes_path',
        ),
        (
            "outputs",
            ("a", "COMPLEX64", ("n", 4)),
            'output "a" is no tensor that Triton carries: export the model without it',
        ),
        *(
            (
                "outputs",
                (name, "FLOAT", ("n", 4)),
                f'output "{name}": the ensemble has another tensor of that name: rename it',
            )
            for name in ("tensor", "image", "status")
        ),
    ],
)
def test_a_tensor_that_triton_cannot_pass_on_is_refused(tmp_path, side, tensor, message):
    assert refusal(save_onnx(tmp_path / "my.onnx", **{side: [tensor]})) == message


def test_of_two_tensors_the_one_that_is_meant_must_be_named(tmp_path):
    path = save_onnx(tmp_path / "my.onnx", [("input", "FLOAT", ("n", 3, 8, 8))])
    message = 'the pipeline gives the tensors "a", "b": name the one "input" that the model is to take'
    assert refusal(path, TWO) == message


@pytest.mark.parametrize("content", [b"", b"not an ONNX file"])
def test_a_file_of_another_format_is_refused(tmp_path, content):
    path = tmp_path / "my.onnx"
    path.write_bytes(content)
    assert refusal(path) == "not an ONNX file"


GIVE_IO = (
    "a TensorRT plan does not say what it takes: give the --onnx file that it was made from as well, or else its "
    "inputs and outputs, such as --classifier-io input:FP32:3x224x224 logits:FP32:1000"
)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"max_batch_size": 0}, "max_batch_size must be at least 1, not 0"),
        ({"classifier_io": ["a:FP32:3", "b:FP32:4"]}, GIVE_IO),
        ({"pipeline": PIPELINE, "onnx": "my.plan", "classifier_io": ["a:FP32:3", "b:FP32:4"]}, GIVE_IO),
        ({"pipeline": PIPELINE, "plan": "my.plan", "classifier": "tensorrt"}, GIVE_IO),
    ],
)
def test_arguments_that_contradict_each_other_are_refused(tmp_path, arguments, message):
    (tmp_path / "my.plan").write_bytes(b"plan")
    paths = {key: tmp_path / arguments[key] for key in ("onnx", "plan") if key in arguments}
    with pytest.raises(PipelineError) as caught:
        build(tmp_path / "out", **{**arguments, **paths})
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["input:FP32:3x8x8"], "give the input and each output, such as input:FP32:3x224x224 logits:FP32:1000"),
        (["input", "a:FP32:4"], '"input" is not NAME:TYPE:DIMS, such as input:FP32:3x224x224'),
        (["in:FP32:3x0", "a:FP32:4"], '"in:FP32:3x0" is not NAME:TYPE:DIMS, such as input:FP32:3x224x224'),
        (["in:fp32:3", "a:FP32:4"], '"in:fp32:3": no such type "fp32"; did you mean "FP32"?'),
        (
            ["in:real:3", "a:FP32:4"],
            '"in:real:3": no such type "real"; there are FP32, FP16, FP64, BF16, STRING, BOOL, UINT8, UINT16, UINT32, '
            "UINT64, INT8, INT16, INT32, INT64",
        ),
    ],
)
def test_words_that_say_no_tensor_are_refused(texts, message):
    with pytest.raises(PipelineError) as caught:
        parse_io(texts, source="my.plan")
    assert str(caught.value) == f"--classifier-io: {message}"


def test_words_say_names_with_colons_and_free_lengths():
    said = parse_io(["input:0:FP16:3x-1x224", "a:INT64:4", "b:BOOL:1"], source="my.plan")
    assert [(tensor.name, tensor.data_type, tensor.shape) for tensor in (*said.inputs, *said.outputs)] == [
        ("input:0", "TYPE_FP16", (-1, 3, -1, 224)),
        ("a", "TYPE_INT64", (-1, 4)),
        ("b", "TYPE_BOOL", (-1, 1)),
    ]


@pytest.mark.parametrize(
    ("package", "act", "message"),
    [
        (
            "onnx",
            lambda path: read_onnx(path / "x"),
            'reading an ONNX file needs onnx: pip install ".[classifier]" in a checkout of pixprep',
        ),
        (
            "tritonclient.grpc",
            check,
            'reading a config.pbtxt needs tritonclient: pip install ".[client]" in a checkout of pixprep',
        ),
    ],
)
def test_a_missing_package_is_named_with_the_command_that_installs_it(tmp_path, monkeypatch, package, act, message):
    (tmp_path / "model").mkdir()
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(SetupError) as caught:
        act(tmp_path)
    assert str(caught.value) == message


# What it does not write over


def test_building_again_replaces_what_build_wrote_and_keeps_other_models(model, tmp_path):
    out = tmp_path / "out"
    build(out, pipeline=PIPELINE, onnx=model, max_batch_size=8)
    (out / "other" / "1").mkdir(parents=True)
    (out / "classifier" / "1" / "__pycache__").mkdir()  # left there by a Triton that has served it
    (out / "classifier" / "1" / "__pycache__" / "model.pyc").touch()
    build(out, pipeline=PIPELINE, onnx=out / "classifier" / "1" / "model.onnx", classifier="tensorrt")
    assert not (out / "classifier" / "1" / "model.py").exists()
    assert (out / "classifier" / "1" / "model.onnx").read_bytes() == model.read_bytes()
    assert "max_batch_size: 8" in (out / "preprocess" / "config.pbtxt").read_text()
    assert sorted(path.name for path in out.iterdir()) == [*sorted([*MODELS, "other"])]


def someone_elses(out):
    shutil.rmtree(out)
    (out / "classifier").mkdir(parents=True)
    (out / "classifier" / "config.pbtxt").write_text("mine")


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (someone_elses, ": holds what `pixprep build` did not write: take another folder, or --force"),
        (
            lambda out: replace(out / "classifier" / "config.pbtxt", "max_batch_size: 64", "max_batch_size: 6"),
            "/classifier/config.pbtxt: was changed since `pixprep build` wrote it: say the change as an option "
            "(--max-batch-size, --input, --parameter), or --force writes over it",
        ),
        (
            lambda out: replace(
                out / "preprocess" / "config.pbtxt",
                "dynamic_batching",
                'parameters { key: "no such" value { string_value: "parameter" } }\ndynamic_batching',
            ),
            "/preprocess/config.pbtxt: was changed since `pixprep build` wrote it: say the change as an option "
            "(--max-batch-size, --input, --parameter), or --force writes over it",
        ),
        (
            lambda out: (out / "classifier" / "config.pbtxt").write_text("mine"),
            "/classifier/config.pbtxt: was not written by `pixprep build`: say another --name, or --force",
        ),
        (
            lambda out: (out / "classifier" / "1" / "model.plan").write_bytes(b"ten minutes of work"),
            "/classifier/1/model.plan: was not written by `pixprep build`, which would remove it: move it, or --force",
        ),
    ],
    ids=["a folder", "a changed file", "a parameter", "another file", "a plan"],
)
def test_what_build_did_not_write_is_not_written_over_unless_forced(model, tmp_path, spoil, message):
    out = tmp_path / "out"
    build(out, pipeline=PIPELINE, onnx=model, classifier="tensorrt")
    spoil(out)
    before = files(out)
    with pytest.raises(SetupError) as caught:
        build(out, pipeline=PIPELINE, onnx=model)
    assert str(caught.value) == f"{out}{message}"
    assert files(out) == before
    build(out, pipeline=PIPELINE, onnx=model, force=True)
    assert check(out) == []


def test_a_build_repeats_the_options_of_the_last_one_and_says_so(model, tmp_path):
    out = tmp_path / "out"
    first = build(
        out, pipeline=PIPELINE, onnx=model, input_="dali", max_batch_size=8,
        parameters={"threads": "2", "formats": "jpeg png"},
    )  # fmt: skip
    assert first.notes == ()
    text = (out / "preprocess" / "config.pbtxt").read_text()
    again = build(out, pipeline=PIPELINE, onnx=model)
    assert (out / "preprocess" / "config.pbtxt").read_text() == text
    assert again.notes == (
        "repeated from the last build: --input dali --max-batch-size 8 --parameter threads=2 "
        "--parameter 'formats=jpeg png'; --force repeats nothing",
    )
    for line in ('name: "DALI_INPUT_0"', "data_type: TYPE_UINT8", "max_batch_size: 8", 'key: "threads"'):
        assert line in text
    assert check(out) == []
    (note,) = build(out, pipeline=PIPELINE, onnx=model, max_batch_size=4, parameters={}).notes
    assert note == "repeated from the last build: --input dali; --force repeats nothing"
    assert build(out, pipeline=PIPELINE, onnx=model, force=True).notes == ()
    assert "max_batch_size: 64" in (out / "preprocess" / "config.pbtxt").read_text()


CROPS = [pp.decode(), pp.crop(box="boxes"), pp.resize(height=224, width=224), pp.normalize(mean=0.5, std=0.5)]


@pytest.mark.parametrize(
    ("pipeline", "options", "repeated"),
    [
        (PIPELINE, {"on_error": "zero", "odd_range": True}, "--on-error zero --odd-range"),
        (PIPELINE, {"parameters": {"PATH": 'a "b" \\ ü\n'}}, "--parameter 'PATH=a \"b\" \\ ü\n'"),
        (PIPELINE, {"on_error": "fail", "input_": "bytes", "max_batch_size": 64}, ""),  # as without them
        (pp.Pipeline([*CROPS, pp.tensor()]), {"max_batch_size": 5}, "--max-batch-size 5"),  # of boxes
        (pp.Pipeline([*PIPELINE.ops[:-1], pp.tensor(name="DALI_INPUT_0")]), {}, ""),
        (pp.Pipeline([pp.pixels(), *PIPELINE.ops[1:]]), {"max_batch_size": 3}, "--max-batch-size 3"),
    ],
)
def test_options_are_read_back_from_what_they_made(model, tmp_path, pipeline, options, repeated):
    out = tmp_path / "out"
    build(out, pipeline=pipeline, onnx=model, **options)
    before = files(out)
    for prepare in (files, make_earlier):
        prepare(out)
        notes = build(out, pipeline=pipeline, onnx=model).notes
        assert [note for note in notes if "repeat" in note] == (
            [f"repeated from the last build: {repeated}; --force repeats nothing"] if repeated else []
        )
        assert files(out) == before


def make_earlier(out):
    """Write the configurations as builds did that kept their checksum in a comment."""
    for path in out.glob("*/config.pbtxt"):
        _, *lines, _ = path.read_text().splitlines(keepends=True)
        checksum = hashlib.sha256("".join(lines).encode()).hexdigest()[:12]
        path.write_text(
            f"# Written by `pixprep build` ({checksum}), which writes it anew: some words.\n{''.join(lines)}"
        )


def test_models_of_an_earlier_build_are_known_and_may_be_shared(model, tmp_path):
    out = tmp_path / "out"
    build(out, pipeline=PIPELINE, onnx=model, max_batch_size=2)
    build(out, preprocess="preprocess", onnx=model, name="dogs")
    make_earlier(out)
    build(out, pipeline=PIPELINE, onnx=model)
    make_earlier(out)
    replace(out / "classifier" / "config.pbtxt", "max_batch_size: 2", "max_batch_size: 6")
    with pytest.raises(SetupError, match="was changed since `pixprep build` wrote it"):
        build(out, pipeline=PIPELINE, onnx=model)


def test_a_plan_says_what_a_build_writes_and_replaces_and_touches_nothing(model, tmp_path):
    out = tmp_path / "new" / "out"
    planned = plan_repository(out, pipeline=PIPELINE, onnx=model)
    assert (sorted(planned.models), planned.replaced, (tmp_path / "new").exists()) == ([*MODELS], [], False)
    built = build(out, pipeline=PIPELINE, onnx=model)
    assert built == planned
    before = {path: (path.stat().st_ino, path.stat().st_mtime_ns) for path in tmp_path.rglob("*")}  # a read is no touch
    assert sorted(plan_repository(out, pipeline=PIPELINE, onnx=model).replaced) == [*MODELS]
    assert plan_repository(out, preprocess="preprocess", onnx=model, name="dogs").replaced == []
    assert {path: (path.stat().st_ino, path.stat().st_mtime_ns) for path in tmp_path.rglob("*")} == before


def test_an_onnx_file_is_opened_once(model, tmp_path):
    code = (
        "import sys\nfrom pathlib import Path\nimport pixprep as pp\nfrom pixprep.serving.repository import build\n"
        "opened = []\n"
        "sys.addaudithook(lambda event, arguments: opened.append(arguments[0]) if event == 'open' else None)\n"
        "build(Path('out'), pipeline=pp.presets.imagenet(), onnx=Path(sys.argv[1]))\n"
        "print([Path(name).name for name in opened if isinstance(name, str | Path)].count('my.onnx'))"
    )
    assert subprocess.check_output([sys.executable, "-c", code, model], cwd=tmp_path, text=True) == "1\n"


def test_a_parameter_that_is_none_is_refused_with_what_is_meant(model, tmp_path):
    with pytest.raises(PipelineError) as caught:
        build(tmp_path / "out", pipeline=PIPELINE, onnx=model, parameters={"thread": "2"})
    assert str(caught.value) == 'parameters: no such parameter "thread"; did you mean "threads"?'


def test_two_ensembles_live_in_one_repository_by_their_names(model, tmp_path):
    out = tmp_path / "out"
    build(out, pipeline=PIPELINE, onnx=model, name="cats")
    build(out, pipeline=PIPELINE, onnx=model, name="dogs", max_batch_size=2)
    build(out, pipeline=PIPELINE, onnx=model, name="cats")
    assert sorted(path.name for path in out.iterdir()) == [
        *("cats", "cats_classifier", "cats_preprocess"),
        *("dogs", "dogs_classifier", "dogs_preprocess"),
    ]
    assert 'model_name: "dogs_preprocess"' in (out / "dogs" / "config.pbtxt").read_text()
    assert check(out) == []
    with pytest.raises(PipelineError) as caught:
        build(out, pipeline=PIPELINE, onnx=model, name="../x")
    assert str(caught.value) == 'name: "../x" is not up to 64 letters, digits, _ and -'


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        ("", "classifier", 'classifier: belongs to the ensemble "ensemble" too: say another --name'),
        ("", "preprocess", 'preprocess: belongs to the ensemble "ensemble" too: say another --name'),
        ("a", "a_classifier", 'a_classifier: belongs to the ensemble "a" too: say another --name'),
        ("", "ensemble", "ensemble: is the ensemble of preprocess, classifier: say another --name"),
    ],
)
def test_a_name_that_another_ensemble_uses_is_refused_and_nothing_is_written(model, tmp_path, first, second, message):
    out = tmp_path / "out"
    build(out, pipeline=PIPELINE, onnx=model, name=first)
    before = files(out)
    for force in (False, True):
        with pytest.raises(SetupError) as caught:
            build(out, pipeline=PIPELINE, onnx=model, name=second, force=force)
        assert str(caught.value) == f"{out}/{message}"
    assert files(out) == before


def test_two_classifiers_share_one_preprocess_with_its_pipeline_and_options(model, tmp_path):
    out = tmp_path / "out"
    build(out, pipeline=PIPELINE, onnx=model, max_batch_size=2, on_error="zero")
    built = build(out, preprocess="preprocess", onnx=model, name="dogs")
    assert sorted({path.relative_to(out).parts[0] for path in built.paths}) == ["dogs", "dogs_classifier"]
    assert built.notes == ()
    config = (out / "dogs" / "config.pbtxt").read_text()
    assert re.findall('model_name: "(.*)"', config) == ["preprocess", "dogs_classifier"]
    assert "max_batch_size: 2" in config
    assert check(out) == []
    build(out, pipeline=PIPELINE, onnx=model)  # which changes nothing for the other
    with pytest.raises(SetupError, match='preprocess: belongs to the ensemble "dogs" too'):
        build(out, pipeline=PIPELINE, onnx=model, max_batch_size=3)
    with pytest.raises(PipelineError) as caught:
        build(out, preprocess="preproces", onnx=model, name="dogs")
    assert str(caught.value) == f'--preprocess: {out} has no such model "preproces"; did you mean "preprocess"?'
    with pytest.raises(PipelineError, match="leave --pipeline, --preset, --input, --on-error"):
        build(out, preprocess="preprocess", pipeline=PIPELINE, onnx=model, name="dogs")


def test_a_build_and_a_check_say_which_numbers_a_pipeline_asks_of_its_clients(model, tmp_path):
    pipeline = pp.Pipeline([pp.decode(), pp.letterbox(224, 224, fill="paint"), pp.normalize(), pp.tensor()])
    asks = 'asks its clients for "paint" uint8 [n, 3] (a level for each channel) with each image'
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
def test_boxes_that_no_client_could_place_are_noted(tmp_path, name, dims):
    path = save_onnx(tmp_path / "my.onnx", outputs=[(name, "FLOAT", ("n", *dims))])
    shown = [-1 if isinstance(length, str) else length for length in dims]
    remedy = "Put original_size behind decode and transform before tensor: docs/detection.md"
    looks = f'my.onnx: "{name}" {shown} looks like boxes, and no client could tell where in the photo they are.'
    cut = f"{looks} center_crop cuts off what the detector then cannot find. {remedy}"
    assert cut in build(tmp_path / "out", pipeline=PIPELINE, onnx=path).notes
    head, tail = [pp.decode(), pp.original_size(), pp.letterbox(224, 224)], [pp.normalize(), pp.tensor()]
    assert f"{looks} {remedy}" in build(tmp_path / "out", pipeline=pp.Pipeline([*head, *tail]), onnx=path).notes
    whole = pp.Pipeline([*head, pp.transform(), *tail])
    assert not any("boxes" in note for note in build(tmp_path / "out", pipeline=whole, onnx=path).notes)


@pytest.mark.parametrize("dims", [(1000,), (197, 768), (40, 97), (25, 6625), (21, 224, 224)])
def test_scores_features_and_masks_do_not_look_like_boxes(tmp_path, dims):
    path = save_onnx(tmp_path / "my.onnx", outputs=[("output", "FLOAT", ("n", *dims))])
    assert build(tmp_path / "out", pipeline=PIPELINE, onnx=path).notes == ()


def test_formats_that_this_machine_cannot_decode_are_said(model, tmp_path, monkeypatch):
    monkeypatch.delitem(sys.modules, "pixprep.engine.decoders.heic", raising=False)
    monkeypatch.delattr("pixprep.engine.decoders.heic", raising=False)
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    lacks = "this machine would not serve it: the formats name heic, which pillow-heif decodes: pip install pillow-heif"
    out = tmp_path / "out"
    assert build(out, pipeline=PIPELINE, onnx=model, parameters={"formats": "jpeg heic"}).notes == (lacks,)
    assert (check(out), side_notes(out)) == ([], [f"{out}/preprocess: {lacks}"])


# Labels


@pytest.mark.parametrize(
    "text",
    [
        "cat\ndog\r\n fish \nbird",
        '["cat", "dog", "fish", "bird"]',
        '{"0": "cat", "2": "fish", "1": "dog", "3": "bird"}',
        '{"architectures": ["ViT"], "id2label": {"0": "cat", "1": "dog", "2": "fish", "3": "bird"}}',
    ],
)
def test_labels_are_read_as_people_have_them(model, tmp_path, text):
    (tmp_path / "labels").write_text(text)
    out = tmp_path / "out"
    build(out, pipeline=PIPELINE, onnx=model, labels=tmp_path / "labels")
    assert (out / "classifier" / "labels.txt").read_text() == "cat\ndog\nfish\nbird\n"
    assert 'label_filename: "labels.txt"' in (out / "classifier" / "config.pbtxt").read_text()
    assert check(out) == []
    (note,) = build(out, pipeline=PIPELINE, onnx=model).notes
    assert note == f"{out}/classifier/labels.txt: kept from the last build; --labels gives others"
    assert (out / "classifier" / "labels.txt").read_text() == "cat\ndog\nfish\nbird\n"


HEADS = {"age": 8, "gender": 2, "race": 7, "mood": 8, "count": 1}


def test_the_heads_that_labels_do_not_name_are_said(tmp_path):
    outputs = [(name, "FLOAT", ("n", length)) for name, length in HEADS.items()]
    heads, labels = save_onnx(tmp_path / "heads.onnx", outputs=outputs), tmp_path / "labels.txt"
    labels.write_text("\n".join("abcdefg"))
    own = "--labels OUTPUT=FILE names those of each output"
    out = tmp_path / "out"
    assert build(out, pipeline=PIPELINE, onnx=heads, labels=labels).notes == (
        f'the labels are those of "race" [7]; "age" [8], "gender" [2], "mood" [8] have none: {own}',
    )
    labels.write_text("\n".join("abcdefgh"))
    assert build(out, pipeline=PIPELINE, onnx=heads, labels=labels).notes == (
        'the labels are those of "age" [8]; "gender" [2], "race" [7], "mood" [8] have none, though "mood" would fit '
        f"them, too: {own}",
    )
    entries = re.findall(r"output \{\n(.*?)\n\}", (out / "classifier" / "config.pbtxt").read_text(), re.DOTALL)
    assert [name for name, entry in zip(HEADS, entries, strict=True) if "label_filename" in entry] == ["age"]


def test_an_output_of_as_many_scores_goes_before_one_of_any_number(tmp_path):
    outputs = [("features", "FLOAT", ("n", "m")), ("logits", "FLOAT", ("n", 4))]
    model, labels = save_onnx(tmp_path / "two.onnx", outputs=outputs), tmp_path / "labels.txt"
    labels.write_text("a\nb\nc\nd")
    (note,) = build(tmp_path / "out", pipeline=PIPELINE, onnx=model, labels=labels).notes
    assert note.startswith('the labels are those of "logits" [4]; "features" [-1] has none')


def test_labels_go_with_the_classifier_whose_classes_they_name(model, tmp_path):
    out, labels = tmp_path / "out", tmp_path / "labels.txt"
    labels.write_text("cat\ndog\nfish\nbird\n")
    build(out, pipeline=PIPELINE, onnx=model, labels=labels)
    other = save_onnx(tmp_path / "other.onnx", outputs=[("scores", "FLOAT", ("batch", 4))])
    (note,) = build(out, pipeline=PIPELINE, onnx=other).notes
    kept = f"{out}/classifier/labels.txt"
    assert note == f"{kept}: removed: it named the classes of another model; --labels names those of this"
    assert not Path(kept).exists()
    assert "label_filename" not in (out / "classifier" / "config.pbtxt").read_text()
    words, plan = ["input:FP32:3x224x224", "logits:FP32:4"], tmp_path / "my.plan"
    for content, is_kept in ((b"one", True), (b"one", True), (b"two", False)):
        plan.write_bytes(content)
        given = labels if not Path(kept).exists() else None
        build(out, pipeline=PIPELINE, plan=plan, classifier_io=words, classifier="tensorrt", labels=given)
        assert Path(kept).exists() is is_kept


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("labels", '["cat", "dog", "fish", "bird"]'),
        ("labels", "cat\ndog\nfish\nbird"),
        ("character", "cat\ndog\nfish\nbird\n"),
        ("names", "{0: 'cat', 1: 'dog', 2: 'fish', 3: 'b\\x1b[31m'}"),  # of Ultralytics
        ("names", "{0: 'person', 1: 'car'}"),  # of a detector: there is no score for each
    ],
)
def test_names_in_the_metadata_of_a_classifier_become_its_labels(model, tmp_path, key, text):
    file = onnx.load(model)
    onnx.helper.set_model_props(file, {"task": "some", "names": "of nothing:", key: text})
    onnx.save(file, model)
    build(tmp_path / "out", pipeline=PIPELINE, onnx=model)
    labels = tmp_path / "out" / "classifier" / "labels.txt"
    last = r"b\x1b[31m" if "x1b" in text else "bird"
    assert labels.exists() == ("person" not in text)
    assert not labels.exists() or labels.read_text() == f"cat\ndog\nfish\n{last}\n"


FORMS = (
    "no labels: a name a line; or JSON: a list, or numbers and names, alone or as `id2label` of Hugging Face's "
    "config.json"
)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"cat", '1 label, but no output has one score for each: the model gives "logits" [4]'),
        (b"cat\ndog", '2 labels, but no output has one score for each: the model gives "logits" [4]'),
        (b"", f"labels.txt: {FORMS}"),
        (b"cat\n\ndog", f"labels.txt: {FORMS}"),
        (b"\xff\xd8\xff", f"labels.txt: {FORMS}"),
        (b'{"0": "cat", "2": "dog"}', f"labels.txt: {FORMS}"),
        (b'{"cat": 0}', f"labels.txt: {FORMS}"),
        (b"[[[", f"labels.txt: {FORMS}"),
        (b"[" * 100_000, f"labels.txt: {FORMS}"),
    ],
)
def test_what_is_no_label_file_of_this_model_is_refused(model, tmp_path, content, message):
    (tmp_path / "labels.txt").write_bytes(content)
    with pytest.raises(PipelineError) as caught:
        build(tmp_path / "out", pipeline=PIPELINE, onnx=model, labels=tmp_path / "labels.txt")
    assert str(caught.value) == message
    assert not (tmp_path / "out").exists()


def test_an_empty_folder_is_as_good_as_none_and_a_file_is_not(model, tmp_path):
    (tmp_path / "empty").mkdir()
    build(tmp_path / "empty", pipeline=PIPELINE, onnx=model)
    for force in (False, True):
        with pytest.raises(SetupError) as caught:
            build(model, pipeline=PIPELINE, onnx=model, force=force)
        assert str(caught.value) == f"{model}: is a file: --output takes a folder"
    assert read_onnx(model).source == "my.onnx"


# What check finds


@pytest.fixture
def valid(model, tmp_path):
    build(tmp_path / "out", pipeline=PIPELINE, onnx=model)
    return tmp_path / "out"


def replace(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


PREPROCESS, CLASSIFIER, ENSEMBLE = (f"{name}/config.pbtxt" for name in ("preprocess", "classifier", "ensemble"))
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
