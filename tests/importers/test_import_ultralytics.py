"""Tests that Ultralytics' predictors are imported as pipelines from the metadata of exported models."""

import json

import onnx
import pytest

from pixprep.engine.engine import Engine
from pixprep.importers.ultralytics import TASKS, from_ultralytics, own_code
from pixprep.pipeline.file import Origin
from pixprep.pipeline.ops import CenterCrop, Decode, Letterbox, Normalize, OriginalSize, Resize, Tensor, Transform
from pixprep.pipeline.pipeline import Pipeline
from support.images import png, scene
from support.importing import assert_imported_or_refused, damaged, refusal
from support.sources import ULTRALYTICS


def with_metadata(tmp_path, metadata, name="yolo11n.onnx"):
    """Return an empty model that has the metadata in the format of Ultralytics' exporter."""
    path = tmp_path / name
    if path.suffix == ".engine":
        text = json.dumps(metadata).encode()
        path.write_bytes(len(text).to_bytes(4, "little") + text + b"ftrt" + bytes(range(256)))
        return path
    model = onnx.ModelProto(ir_version=8)
    onnx.helper.set_model_props(model, {key: str(value) for key, value in metadata.items()})
    path.write_bytes(model.SerializeToString())
    return path


@pytest.mark.parametrize("name", ["yolo11n.onnx", "yolo11n.engine"])
def test_the_metadata_of_an_exported_model_determines_its_preprocessing(tmp_path, name):
    pipeline = from_ultralytics(with_metadata(tmp_path, ULTRALYTICS, name))
    assert pipeline.ops == (
        Decode(),
        Letterbox(height=640, width=480, fill=114, like="opencv"),
        Normalize(scale=1 / 255, arithmetic="divide"),
        Transform(),
        OriginalSize(),
        Tensor(dtype="float32", layout="chw"),
    )
    assert pipeline.origin == Origin(library="ultralytics", version="8.3.40", name=name, profile="opencv")
    assert Pipeline.from_json(pipeline.to_json()) == pipeline


def test_an_error_names_the_package_whose_code_prepares_images_itself(tmp_path):
    """One such package is nudenet on PyPI, which contains a model that was exported by Ultralytics."""
    package = tmp_path / "finder"
    (package / "weights").mkdir(parents=True)
    model = with_metadata(package / "weights", ULTRALYTICS)
    (package / "read.py").write_text(
        "mat = cv2.cvtColor(cv2.imread(path), cv2.COLOR_RGBA2BGR)\n"
        "mat = cv2.copyMakeBorder(mat, 0, y_pad, 0, x_pad, cv2.BORDER_CONSTANT)\n"
        "return cv2.dnn.blobFromImage(mat, 1 / 255.0, size, (0, 0, 0), swapRB=True)\n"
    )
    (package / "names.py").write_text('NAMES = ["cat", "dog"]\n')
    assert list(own_code(model)) == []  # user files in a folder that is not a package
    (package / "__init__.py").write_text("")
    assert list(own_code(model)) == [
        "read.py in the same package pads (copyMakeBorder), reorders channels (COLOR_RGBA2BGR, swapRB), resizes "
        "(blobFromImage)"
    ]


def test_a_path_as_text_and_the_metadata_itself_are_also_sources(tmp_path):
    path = with_metadata(tmp_path, ULTRALYTICS)
    assert from_ultralytics(str(path)) == from_ultralytics(path)
    assert from_ultralytics(ULTRALYTICS).ops == from_ultralytics(path).ops


DIVIDE = Normalize(arithmetic="divide")
LETTERBOX = [Letterbox(height=640, width=480, like="opencv"), DIVIDE, Transform(), OriginalSize(), Tensor()]
STRETCH = [Resize(height=640, width=480, like="opencv"), *LETTERBOX[1:]]
CLASSIFY = [Resize(224, like="pillow"), CenterCrop(224, rounding="half_even"), DIVIDE, Tensor()]
EXPECTED_OPS = [
    *(({"task": task}, LETTERBOX) for task, geometry in TASKS.items() if geometry == "letterbox"),
    ({"task": "depth"}, STRETCH),
    ({"head": "RTDETRDecoder"}, STRETCH),
    ({"description": "Ultralytics rtdetr-l model trained on coco.yaml"}, STRETCH),
    ({"description": "Ultralytics rtdetr-l model trained on coco.yaml", "head": "Detect"}, LETTERBOX),
    ({"task": "classify", "imgsz": 224}, CLASSIFY),
    ({"task": "classify", "imgsz": "[224, 224]"}, CLASSIFY),
    ({"task": "classify", "imgsz": [224, 128]}, [Resize(height=224, width=128), DIVIDE, Tensor()]),
]


@pytest.mark.parametrize(("changes", "expected"), EXPECTED_OPS, ids=str)
def test_each_task_has_its_geometry(changes, expected):
    assert from_ultralytics(ULTRALYTICS | changes).ops == (Decode(), *expected)


def test_a_task_and_a_size_are_equivalent_and_the_dtype_can_be_float16():
    pipeline = from_ultralytics("detect", imgsz=(640, 480), dtype="float16")
    assert pipeline.ops == (Decode(), *LETTERBOX[:-1], Tensor(dtype="float16"))


def test_the_transform_maps_a_box_back_like_scale_boxes():
    """For 37 x 61 in 64 x 64, the gains are 39/37 and 64/61, because each side is rounded separately. The padding is 12
    and 0.
    """
    with Engine(from_ultralytics("detect", imgsz=64)) as engine:
        batch = engine.run_batch([png(scene(37, 61))])
    assert batch.outputs["transform"][0].tolist() == pytest.approx([39 / 37, 64 / 61, 12, 0], rel=1e-7)
    assert batch.outputs["original_size"][0].tolist() == [37, 61]


OTHER = (
    "the file does not contain Ultralytics metadata, and other exporters do not record the preprocessing: pass the "
    "name of the model, such as timm:resnet50.a1_in1k, or write the pipeline file; for an Ultralytics detector "
    "without metadata, use ultralytics:detect --option imgsz=640"
)


def test_a_size_that_differs_from_the_models_is_rejected():
    assert from_ultralytics(ULTRALYTICS, imgsz=(640, 480)).ops == from_ultralytics(ULTRALYTICS).ops
    text = refusal(from_ultralytics, ULTRALYTICS, imgsz=320)
    assert text == (
        'metadata: "imgsz": [640, 480] is the size that the model was exported with, but the option imgsz is 320'
    )


@pytest.mark.parametrize(
    ("name", "contents", "message"),
    [
        ("a.onnx", b"", OTHER),
        ("a.onnx", b"not a model", "not an ONNX file"),
        ("a.onnx", b"\x72\xff\xff\xff\xff\x07", "not an ONNX file"),
        ("a.engine", b"ftrt" + bytes(64), "the Ultralytics metadata: is not JSON"),
        ("a.engine", b"", "the Ultralytics metadata: is not JSON"),
        ("a.engine", b"\x02\0\0\0[]", "the Ultralytics metadata: must be a JSON object"),
    ],
)
def test_a_file_of_a_different_kind_is_rejected(tmp_path, name, contents, message):
    (tmp_path / name).write_bytes(contents)
    assert refusal(from_ultralytics, tmp_path / name).startswith(f"{name}: {message}")


@pytest.mark.parametrize("name", ["a.onnx", "a.engine"])
def test_random_bytes_give_a_pipeline_or_an_error(tmp_path, name):
    path = with_metadata(tmp_path, ULTRALYTICS, name)

    def read_back(data):
        path.write_bytes(data)
        return from_ultralytics(path)

    assert_imported_or_refused(read_back, damaged(path.read_bytes()))
