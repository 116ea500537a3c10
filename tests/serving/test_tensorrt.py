"""Tests that TensorRT's parser checks ONNX files.

The tests of the messages replay recorded output of TensorRT for RTX 1.7.1. ``make tensorrt`` runs the tests that call
TensorRT for RTX itself, which does not require a GPU.
"""

import json
import re
from importlib.util import find_spec
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

import pixprep as pp
from pixprep.cli.parser import main
from pixprep.errors import SetupError
from pixprep.importers import import_pipeline
from pixprep.serving.repository import build, check, side_notes, tensorrt
from pixprep.serving.repository.ports import plan_version
from support import detectors
from support.faces import PIPELINE, PLAN, read_onnx, save_onnx
from support.towers import RANDOM_MODELS, export_tower, run_python

ROOT = Path(__file__).parents[2]
TORCH = ROOT / ".venv-parity" / "bin" / "python"

needs_tensorrt = pytest.mark.skipif(find_spec("tensorrt_rtx_bindings") is None, reason="NO TENSORRT: make tensorrt")
BUILDER = "IBuilder::buildSerializedNetwork: Error Code 4: Internal Error ("
NO_BATCH = (
    f"{BUILDER}kOPT values for profile 0 violate shape constraints: IShuffleLayer node_of_y: reshaping failed for "
    "tensor: x reshape would change volume 384 to 192 In executeReshape at /_src/runtime/core/shapeMachine.cpp:348)"
)
NO_LAYER = (
    "[tacticSupply.cpp::getSupportedFormats::48] Error Code 2: Internal Error (Assertion !layerImpls.empty() failed. "
    "node_of_y_0 has no runners that implement it In getSupportedFormats at /_src/optimizer/builder/tactics.cpp:48)"
)


@pytest.fixture
def replay(monkeypatch):
    """Return a function that mocks the program with a recorded response and returns the profiles passed to it."""

    def replaced(**answer):
        profiles = []

        def program(name, onnx, folder, _limit_s):
            assert (name, onnx.name) == ("tensorrt_trial", "model.onnx")
            profiles.append(json.loads(Path(folder, "profile.json").read_text()))
            whole = {"version": "1.7.1.116", "rejected": [], "inputs": {}, "outputs": {}, "layers": 3, "error": ""}
            Path(folder, "answer.json").write_text(json.dumps(whole | answer))
            return answer.get("fault", "")

        monkeypatch.setattr(tensorrt, "find_spec", lambda _: True)
        monkeypatch.setattr(tensorrt, "run_program", program)
        return profiles

    return replaced


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (
            {"rejected": [["/m/det", "Det", "false"]]},
            'TensorRT for RTX 1.7.1.116 rejects Det "/m/det": false: trtexec may still build the plan, because '
            "TensorRT has more operators than TensorRT for RTX; if it does not, pass the library of your own plugin",
        ),
        (
            {"rejected": [[f"n{number}", "Unique", "false"] for number in range(7)]},
            'Unique "n3": false; Unique "n4": false; and 2 more: trtexec may still build the plan',
        ),
        ({"rejected": [["add", "Add", "two\nlines"]]}, 'rejects Add "add": two lines: trtexec may'),
        ({"rejected": [["text", "", "no type"]]}, 'rejects the data type of the input "text": no type: trtexec may'),
        ({"rejected": [["", "", "no ONNX"]]}, "rejects the file: no ONNX: trtexec may"),
        (
            {"inputs": {"input": "HALF"}, "outputs": {"logits": "FLOAT"}},
            'TensorRT reads "input" as FP16, and not as FP32: export the model with a data type',
        ),
        (
            {"error": NO_BATCH},
            f"its builder reports: {NO_BATCH}: export the model with a dynamic batch dimension, or build it with "
            "--max-batch-size 1",
        ),
        (
            {"error": NO_LAYER},
            f"its builder reports: {NO_LAYER}: trtexec may still build the plan",
        ),
        ({"fault": "it takes more than 120 s"}, "could not be asked, because it takes more than 120 s: build the plan"),
    ],
)
def test_a_rejection_says_what_is_wrong_and_how_to_fix_it(replay, tmp_path, answer, problem):
    replay(**answer)
    model = save_onnx(tmp_path / "my.onnx")
    note = build(tmp_path / "models", pipeline=PIPELINE, onnx=model, classifier="tensorrt").notes[-2]
    assert problem in note
    assert note.startswith("model.onnx: ")
    found = [str(each) for each in check(tmp_path / "models")]
    assert any(each.startswith("classifier/1/model.onnx: ") and each.endswith(note[12:]) for each in found)


def test_the_parser_is_asked_with_the_shapes_of_the_plan(replay, tmp_path):
    profiles = replay(inputs={"input": "FLOAT"}, outputs={"logits": "FLOAT"})
    model = save_onnx(tmp_path / "my.onnx")
    options = {"pipeline": PIPELINE, "onnx": model, "classifier": "tensorrt", "max_batch_size": 8}
    notes = build(tmp_path / "models", **options).notes
    assert notes[-2] == (
        "TensorRT's parser accepts model.onnx (TensorRT for RTX 1.7.1.116, 3 layers), and its builder builds an engine "
        "for the shapes below"
    )
    shapes = "--minShapes=input:1x3x224x224 --optShapes=input:4x3x224x224 --maxShapes=input:8x3x224x224"
    assert notes[-1].endswith(shapes)
    assert [each.where for each in check(tmp_path / "models")] == ["classifier/1/model.plan"]
    (tmp_path / "models" / "classifier" / "1" / "model.plan").write_bytes(PLAN)
    assert check(tmp_path / "models") == []
    assert check(tmp_path / "models", tensorrt=True) == []
    assert profiles == [{"input": [[batch, 3, 224, 224] for batch in (1, 4, 8)]}] * 3  # not for the existing plan


def test_a_model_of_onnx_runtime_is_only_checked_on_request(replay, tmp_path, capsys):
    replay(rejected=[["d", "Det", "false"]])
    build(tmp_path / "models", pipeline=PIPELINE, onnx=save_onnx(tmp_path / "my.onnx"))
    assert check(tmp_path / "models") == []
    assert main(["check", str(tmp_path / "models"), "--tensorrt"]) == 1
    assert 'rejects Det "d"' in capsys.readouterr().out


def test_a_check_without_tensorrt_or_of_a_file_is_an_error(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(tensorrt, "find_spec", lambda _: None)
    with pytest.raises(SetupError, match=r'requires TensorRT for RTX: pip install "\.\[tensorrt\]"'):
        check(tmp_path, tensorrt=True)
    file = tmp_path / "pipeline.json"
    PIPELINE.save(file)
    assert main(["check", str(file), "--tensorrt"]) == 1
    assert "--tensorrt requires a model repository" in capsys.readouterr().err


def test_the_version_of_a_plan_is_read_from_its_header(tmp_path):
    head = b"ftrt" + bytes(20) + bytes([10, 13, 3, 9])
    assert plan_version(head) == "10.13.3.9"
    assert plan_version(head[:27]) == plan_version(b"ftrt\1" + head[5:]) == plan_version(b"vtrt" + head[4:]) == ""
    model = save_onnx(tmp_path / "my.onnx")
    (tmp_path / "my.plan").write_bytes(head + b"more")
    build(tmp_path / "models", pipeline=PIPELINE, onnx=model, plan=tmp_path / "my.plan", classifier="tensorrt")
    (note,) = [note for note in side_notes(tmp_path / "models") if "model.plan" in note]
    assert note.endswith("classifier/1/model.plan: built by TensorRT 10.13.3.9; the server must have the same version")


# with TensorRT for RTX itself


@needs_tensorrt
@pytest.mark.parametrize(
    ("nodes", "inputs", "problem"),
    [
        ([("Cast", ["x"], ["y"], {"to": 1})], ("UINT8", ["n", 3, 8, 8]), ""),
        ([("Cast", ["x"], ["y"], {"to": 1})], ("INT64", ["n", 3]), ""),
        ([("Det", ["x"], ["y"], {})], ("FLOAT", ["n", 3, 3]), 'Det "node_0": '),
        (
            [("Mine", ["x"], ["a"], {"domain": "acme"}), ("Unique", ["a"], ["y"], {})],
            ("FLOAT", ["n", 3]),
            'Mine "node_0": ',
        ),
        ([("NonZero", ["x"], ["y"], {})], ("FLOAT", ["n", 3]), 'NonZero "node_0": '),
        ([("Identity", ["x"], ["y"], {})], ("STRING", ["n"]), ' "x": '),
        ([("Cast", ["x"], ["y"], {"to": 1})], ("DOUBLE", ["n", 3]), 'TensorRT reads "x" as FP32, and not as FP64: '),
        (
            [("Constant", [], ["s"], {"value_ints": [1, 192]}), ("Reshape", ["x", "s"], ["y"], {})],
            ("FLOAT", ["n", 3, 8, 8]),
            "reshape would change volume 384 to 192",
        ),
    ],
)
def test_tensorrt_says_what_it_rejects(tmp_path, nodes, inputs, problem):
    made = [
        helper.make_node(operator, given, found, name=f"node_{number}", **more)
        for number, (operator, given, found, more) in enumerate(nodes)
    ]
    dtype, shape = inputs
    y = TensorProto.STRING if dtype == "STRING" else TensorProto.FLOAT
    x = helper.make_tensor_value_info("x", TensorProto.DataType.Value(dtype), shape)
    graph = helper.make_graph(made, "g", [x], [helper.make_tensor_value_info("y", y, None)])
    sets = [helper.make_opsetid("", 17), helper.make_opsetid("acme", 1)]
    onnx.save(helper.make_model(graph, opset_imports=sets, ir_version=8), tmp_path / "my.onnx")
    profile = {"x": [[batch, *shape[1:]] for batch in (1, 2, 4)]}
    types = {port.name: port.data_type for port in read_onnx(tmp_path / "my.onnx").inputs}
    answer = tensorrt.ask(tmp_path / "my.onnx", profile, types)
    assert bool(answer.accepted) == (not problem)
    assert problem in " ".join(f"{what}: {fix}" for what, fix in answer.problems)


@needs_tensorrt
def test_a_file_that_is_not_onnx_is_rejected(tmp_path):
    (tmp_path / "my.onnx").write_bytes(b"abc")
    ((what, _),) = tensorrt.ask(tmp_path / "my.onnx", {}, {}).problems
    assert " rejects " in what


EXPORTS = {
    "yolo": "YOLO('yolo11n.yaml').export(format='onnx', dynamic=True, simplify=False, opset=17)",
    "yolo with NMS": "YOLO('yolo11n.yaml').export(format='onnx', nms=True, simplify=False, opset=17)",
}


def accepted(folder, **options):
    """Build a repository for TensorRT, and return the note about TensorRT's parser."""
    notes = build(folder / "models", classifier="tensorrt", **options).notes
    assert notes[-1].startswith("build the plan on the machine")
    return notes[-2]


@needs_tensorrt
def test_the_demos_classifier_and_a_detector_are_accepted(tmp_path):
    assert re.search(r"accepts model\.onnx \(TensorRT for RTX [\d.]+, \d+ layers\)", accepted(tmp_path / "demo"))
    detector = detectors.save(tmp_path / "detector.onnx")
    note = accepted(tmp_path, pipeline=pp.presets.letterbox(size=320), onnx=detector)
    assert note.endswith("its builder builds an engine for the shapes below")


@needs_tensorrt
@pytest.mark.skipif(not TORCH.exists(), reason="NO PYTORCH: make parity creates .venv-parity")
@pytest.mark.parametrize(("name", "most"), [("yolo", 8), ("yolo with NMS", 1)])
def test_yolo_is_accepted_without_its_suppression(tmp_path, name, most):
    run_python(TORCH, f"from ultralytics import YOLO; {EXPORTS[name]}", cwd=tmp_path)
    pipeline = pp.presets.letterbox(size=640)
    note = accepted(tmp_path, pipeline=pipeline, onnx=tmp_path / "yolo11n.onnx", max_batch_size=most)
    if name == "yolo":
        assert note.endswith("its builder builds an engine for the shapes below")
    else:
        assert "NonZero" in note


@needs_tensorrt
@pytest.mark.skipif(find_spec("rapidocr") is None, reason="NO RAPIDOCR: make tensorrt")
def test_an_ocr_recognizer_for_lines_of_any_width_is_accepted(tmp_path):
    (onnx_file,) = Path(find_spec("rapidocr").origin).parent.glob("models/PP-OCRv6_rec_small.onnx")
    (lines,) = re.findall(r"^```json\n(.*?)^```", (ROOT / "docs" / "ocr.md").read_text(), re.MULTILINE | re.DOTALL)
    pipeline = pp.Pipeline.from_json(lines)
    note = accepted(tmp_path, pipeline=pipeline, onnx=onnx_file, max_batch_size=4)
    assert note.endswith("its builder builds an engine for the shapes below")


@needs_tensorrt
@pytest.mark.skipif(not TORCH.exists(), reason="NO PYTORCH: make parity creates .venv-parity")
@pytest.mark.parametrize("name", RANDOM_MODELS)
def test_a_vision_tower_of_tiles_or_patches_is_accepted(tmp_path, name):
    export_tower(TORCH, name, tmp_path)
    pipeline = import_pipeline(f"transformers:{tmp_path / name / 'preprocessor_config.json'}")
    note = accepted(tmp_path, pipeline=pipeline, onnx=tmp_path / f"{name}.onnx")
    assert note.endswith("its builder builds an engine for the shapes below")
