"""Ultralytics' predictors as pipelines, from the metadata of exported models."""

import json
import random

import onnx
import pytest

from images import png, scene
from pixprep.engine import Engine
from pixprep.errors import PipelineError
from pixprep.importers.ultralytics import TASKS, from_ultralytics
from pixprep.ops import CenterCrop, Decode, Letterbox, Normalize, OriginalSize, Resize, Tensor, Transform
from pixprep.pipeline import Pipeline

METADATA = {
    "description": "Ultralytics YOLO11n model trained on coco.yaml",
    "author": "Ultralytics",
    "date": "2025-11-03T09:12:44.123456+00:00",
    "version": "8.3.40",
    "license": "AGPL-3.0 License (https://ultralytics.com/license)",
    "docs": "https://docs.ultralytics.com",
    "stride": 32,
    "task": "detect",
    "batch": 1,
    "imgsz": [640, 480],
    "names": {0: "person", 1: "bicycle"},
    "args": {"batch": 1, "half": False, "dynamic": False, "simplify": True, "opset": None, "nms": False},
    "channels": 3,
    "end2end": False,
}


def with_metadata(tmp_path, metadata, name="yolo11n.onnx"):
    """A model of one node, with the metadata as Ultralytics' exporter writes it."""
    path = tmp_path / name
    if path.suffix == ".engine":
        text = json.dumps(metadata).encode()
        path.write_bytes(len(text).to_bytes(4, "little") + text + b"ftrt" + bytes(range(256)))
        return path
    image = onnx.helper.make_tensor_value_info("images", onnx.TensorProto.FLOAT, [1, 3, 640, 640])
    out = onnx.helper.make_tensor_value_info("output0", onnx.TensorProto.FLOAT, [1, 3, 640, 640])
    model = onnx.helper.make_model(
        onnx.helper.make_graph([onnx.helper.make_node("Identity", ["images"], ["output0"])], "g", [image], [out])
    )
    onnx.helper.set_model_props(model, {key: str(value) for key, value in metadata.items()})
    onnx.save(model, path)
    return path


@pytest.mark.parametrize("name", ["yolo11n.onnx", "yolo11n.engine"])
def test_an_exported_model_says_its_preprocessing(tmp_path, name):
    pipeline = from_ultralytics(with_metadata(tmp_path, METADATA, name))
    assert pipeline.ops == (
        Decode(),
        Letterbox(height=640, width=480, fill=114, like="opencv"),
        Normalize(scale=1 / 255, arithmetic="divide"),
        Transform(),
        OriginalSize(),
        Tensor(dtype="float32", layout="chw"),
    )
    source = pipeline.source
    assert (source.library, source.version, source.name, source.profile) == ("ultralytics", "8.3.40", name, "opencv")
    assert Pipeline.from_json(pipeline.to_json()) == pipeline


def test_the_text_of_a_path_and_the_metadata_itself_are_sources_too(tmp_path):
    path = with_metadata(tmp_path, METADATA)
    assert from_ultralytics(str(path)) == from_ultralytics(path)
    assert from_ultralytics(METADATA).ops == from_ultralytics(path).ops


@pytest.mark.parametrize("task", [task for task, geometry in TASKS.items() if geometry == "letterbox"])
def test_a_task_and_a_size_say_as_much(task):
    assert from_ultralytics(task, imgsz=(640, 480)).ops == from_ultralytics(METADATA).ops


@pytest.mark.parametrize(
    "changes",
    [{"head": "RTDETRDecoder"}, {"description": "Ultralytics rtdetr-l model trained on coco.yaml"}, {"task": "depth"}],
)
def test_rtdetr_and_depth_stretch(changes):
    stretch = Resize(height=640, width=480, like="opencv")
    assert from_ultralytics(METADATA | changes).ops[1] == stretch
    assert from_ultralytics(METADATA | {"head": "Detect"}).ops[1] != stretch


def test_a_classifier_resizes_as_torchvision_does_and_has_no_transform():
    ops = from_ultralytics("classify", imgsz=224).ops
    assert ops == (
        Decode(),
        Resize(224, like="pillow"),
        CenterCrop(224, rounding="half_even"),
        Normalize(arithmetic="divide"),
        Tensor(),
    )


def test_a_classifier_that_is_not_square_stretches():
    pipeline = from_ultralytics("classify", imgsz=(224, 128))
    assert pipeline.ops[1] == Resize(height=224, width=128)
    assert pipeline.outputs["tensor"].spec.shape == (3, 224, 128)


def test_the_dtype_may_be_float16():
    assert from_ultralytics("detect", imgsz=640, dtype="float16").outputs["tensor"].spec.dtype == "float16"


def test_the_transform_brings_a_box_back_as_scale_boxes_does():
    """Of 37 x 61 in 64 x 64 the gains are 39/37 and 64/61, each side rounded by itself, and the pads 12 and 0."""
    with Engine(from_ultralytics("detect", imgsz=64)) as engine:
        batch = engine.run_batch([png(scene(37, 61))])
    assert batch.outputs["transform"][0].tolist() == pytest.approx([39 / 37, 64 / 61, 12, 0], rel=1e-7)
    assert batch.outputs["original_size"][0].tolist() == [37, 61]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"task": "track"}, "\"task\": 'track' is not understood"),
        ({"task": None}, '"task": None is missing'),
        ({"imgsz": None}, '"imgsz": None is missing: give imgsz'),
        ({"imgsz": "[640"}, "\"imgsz\": '[640'"),
        ({"imgsz": [640, 640, 640]}, '"imgsz": [640, 640, 640] must be one side, or height and width'),
        ({"imgsz": [640.0, 640]}, '"imgsz": [640.0, 640] must be'),
        ({"imgsz": [True, 640]}, '"imgsz": [True, 640] must be'),
        ({"channels": 4}, '"channels": 4 is not 3'),
        ({"channels": "1"}, "\"channels\": '1' is not 3"),
        ({"mean": [0.5]}, '"mean": [0.5] is not understood'),
        ({"task": "classify", "version": "8.0.196"}, "\"version\": '8.0.196'"),
    ],
)
def test_what_is_not_understood_is_refused_by_name(changes, message):
    with pytest.raises(PipelineError) as caught:
        from_ultralytics(METADATA | changes)
    assert str(caught.value).startswith(f"metadata: {message}")


def test_another_size_than_the_model_has_is_refused():
    assert from_ultralytics(METADATA, imgsz=(640, 480)).ops == from_ultralytics(METADATA).ops
    with pytest.raises(PipelineError, match=r"exported for, not 320"):
        from_ultralytics(METADATA, imgsz=320)


@pytest.mark.parametrize(
    ("name", "contents", "message"),
    [
        ("a.onnx", b"", '"task": None is missing'),
        ("a.onnx", b"not a model", "a.onnx: not an ONNX file"),
        ("a.onnx", b"\x72\xff\xff\xff\xff\x07", "a.onnx: not an ONNX file"),
        ("a.engine", b"ftrt" + bytes(64), "a.engine: does not begin with the metadata"),
        ("a.engine", b"", "a.engine: does not begin with the metadata"),
        ("a.engine", b"\xff\xff\xff\x7f{}", "a.engine: does not begin with the metadata"),
        ("a.engine", b"\x02\0\0\0[]", "a.engine: does not begin with the metadata"),
        ("a.engine", (10**6).to_bytes(4, "little") + b"[" * 10**6, "a.engine: does not begin with the metadata"),
    ],
)
def test_a_file_of_something_else_is_refused(tmp_path, name, contents, message):
    path = tmp_path / name
    path.write_bytes(contents)
    with pytest.raises(PipelineError, match=message):
        from_ultralytics(path)


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(PipelineError, match=r"^nothing.onnx: cannot be read: No such file"):
        from_ultralytics(tmp_path / "nothing.onnx")


@pytest.mark.parametrize("name", ["a.onnx", "a.engine"])
def test_any_bytes_give_a_pipeline_or_an_error(tmp_path, name):
    whole = with_metadata(tmp_path, METADATA, name).read_bytes()
    rng = random.Random(4)
    path = tmp_path / name
    outcomes = set()
    for _ in range(300):
        damaged = bytearray(whole)
        for _ in range(rng.randint(1, 4)):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        path.write_bytes(damaged[: rng.choice([len(damaged), rng.randrange(len(damaged))])])
        try:
            outcomes.add(type(from_ultralytics(path)))
        except PipelineError as error:
            outcomes.add(type(error))
    assert outcomes == {Pipeline, PipelineError}
