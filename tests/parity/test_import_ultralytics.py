"""Tests imports against Ultralytics' own predictors: the pixels that a model receives, and the mapping of its boxes to
the photo.
"""

from importlib import import_module
from importlib.util import find_spec
from types import SimpleNamespace

import numpy as np
import pytest

from pixprep import Engine
from pixprep.importers.ultralytics import TASKS, from_ultralytics
from support.compare import assert_close
from support.images import photo
from support.importing import awkward, ours

if any(find_spec(name) is None for name in ("torch", "torchvision", "cv2", "ultralytics")):
    pytest.skip("NO ULTRALYTICS: its importer was not compared", allow_module_level=True)

import torch
from torchvision import transforms

SIZES = [(640, 640), (480, 640), (427, 640), (333, 500), (801, 599), (37, 61), (5, 3), (1, 1), (1, 300), (641, 639)]
SIZES += [(64, 64), (128, 96), (192, 320), (900, 31)]
CANVASES = [64, 96, (128, 96), (96, 160), 320]
IMAGES = awkward(SIZES)


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """Return the parts of Ultralytics that the tests use.

    Ultralytics is imported in this fixture, because it writes its settings into a folder on import.
    """
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("YOLO_CONFIG_DIR", str(tmp_path_factory.mktemp("settings")))
        environment.setenv("YOLO_AUTOINSTALL", "false")
        tasks = import_module("ultralytics.models.yolo")
        predictors = {
            task: next(v for k, v in vars(getattr(tasks, task)).items() if k.endswith("Predictor")) for task in TASKS
        }
        yield SimpleNamespace(
            predictors=predictors | {"rtdetr": import_module("ultralytics.models.rtdetr").RTDETRPredictor},
            classify_transforms=import_module("ultralytics.data.augment").classify_transforms,
            imread=import_module("ultralytics.utils.patches").imread,
            scale_boxes=import_module("ultralytics.utils.ops").scale_boxes,
            model=import_module("ultralytics").YOLO,
        )


@pytest.fixture
def read(library, tmp_path):
    def read(encoded):
        path = tmp_path / "image"
        path.write_bytes(encoded)
        return library.imread(path)

    return read


def predictor(library, task, imgsz, *, fp16=False):
    """Return a predictor without a model. The predictor has the attributes of an exported model that ``preprocess``
    needs.
    """
    cls = library.predictors[task]
    made = cls.__new__(cls)
    made.imgsz = list(canvas(imgsz))
    made.args = SimpleNamespace(rect=True)
    made.device = torch.device("cpu")
    made.model = SimpleNamespace(format="onnx", dynamic=False, stride=32, fp16=fp16, channels=3)
    if task == "classify":  # the predictor's ``setup_source`` splits the transforms in this way
        steps = library.classify_transforms(made.imgsz).transforms
        made.host_transforms, made.device_transform = transforms.Compose(steps[:2]), steps[-1]
    return made


def canvas(imgsz):
    return (imgsz, imgsz) if isinstance(imgsz, int) else imgsz


@pytest.mark.parametrize("imgsz", CANVASES, ids=str)
@pytest.mark.parametrize("task", ["detect", "depth", "classify"])
def test_the_tensor_equals_the_predictors_bit_for_bit(library, read, task, imgsz):
    reference = predictor(library, task, imgsz)
    with Engine(from_ultralytics(task, imgsz=imgsz)) as engine:
        for name, encoded in IMAGES.items():
            tensor = engine.run([encoded])[0]
            assert isinstance(tensor, np.ndarray), f"{name}: {tensor}"
            assert_close(tensor, reference.preprocess([read(encoded)])[0].numpy())


@pytest.mark.parametrize("task", TASKS)
def test_every_task_has_the_geometry_of_its_predictor(library, read, task):
    expected = predictor(library, task, 320).preprocess([read(photo())])[0].numpy()
    assert_close(ours(from_ultralytics(task, imgsz=320), [photo()])[0], expected)


def test_rtdetr_stretches(library, read):
    expected = predictor(library, "rtdetr", 320).preprocess([read(photo())])[0].numpy()
    metadata = {"task": "detect", "imgsz": 320, "head": "RTDETRDecoder"}
    assert_close(ours(from_ultralytics(metadata), [photo()])[0], expected)
    with pytest.raises(AssertionError, match="largest difference"):
        assert_close(ours(from_ultralytics(metadata | {"head": "Detect"}), [photo()])[0], expected)


def test_float16_equals_the_predictor(library, read):
    expected = predictor(library, "detect", 96, fp16=True).preprocess([read(photo())])[0].numpy()
    tensor = ours(from_ultralytics("detect", imgsz=96, dtype="float16"), [photo()])[0]
    assert tensor.dtype == expected.dtype == np.float16
    assert_close(tensor, expected)


@pytest.mark.parametrize("imgsz", CANVASES, ids=str)
def test_boxes_are_mapped_back_like_scale_boxes(library, read, imgsz):
    rng = np.random.default_rng(3)
    height, width = canvas(imgsz)
    with Engine(from_ultralytics("detect", imgsz=imgsz)) as engine:
        for encoded in IMAGES.values():
            size = read(encoded).shape[:2]
            outputs = engine.run_batch([encoded]).outputs
            assert outputs["original_size"][0].tolist() == list(size)
            scale_y, scale_x, offset_y, offset_x = outputs["transform"][0].tolist()
            boxes = rng.uniform(0, [width, height] * 2, (20, 4))
            back = (boxes - [offset_x, offset_y] * 2) / ([scale_x, scale_y] * 2)
            back = np.clip(back, 0, [size[1], size[0]] * 2)  # scale_boxes also clips
            np.testing.assert_allclose(back, library.scale_boxes((height, width), boxes, size), rtol=1e-6, atol=1e-4)


class _EnoughError(Exception):
    """Ends an export as soon as the metadata are complete, before the expensive work begins."""


@pytest.mark.parametrize(("model", "task"), [("yolo11n.yaml", "detect"), ("yolo11n-cls.yaml", "classify")])
def test_every_field_that_the_exporter_writes_is_supported(library, tmp_path, monkeypatch, model, task):
    monkeypatch.chdir(tmp_path)
    written = {}

    def keep(exporter):
        written.update(exporter.metadata)
        raise _EnoughError

    untrained = library.model(model)
    untrained.add_callback("on_export_start", keep)
    with pytest.raises(_EnoughError):
        untrained.export(format="torchscript", imgsz=64)
    pipeline = from_ultralytics(written)
    assert pipeline.ops == from_ultralytics(task, imgsz=64).ops
    assert pipeline.origin.version == written["version"]
