"""Tests the recipe in docs/detection.md for a package with its own preprocessing code. The tensors and the boxes must
match those of the package.
"""

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from pixprep import Engine, Pipeline, boxes_to_original
from pixprep.importers import import_pipeline
from pixprep.importers.ultralytics import own_code
from pixprep.plan.boxes import convert
from support.compare import assert_close
from support.images import noise, png, scene
from support.importing import photos

if find_spec("nudenet") is None or find_spec("cv2") is None:
    pytest.skip("NO NUDENET: the recipe of docs/detection.md was not compared with it", allow_module_level=True)

import onnxruntime
from nudenet import nudenet

DOCS = Path(__file__).parents[2] / "docs" / "detection.md"
MODEL = Path(nudenet.__file__).with_name("320n.onnx")


@pytest.fixture(scope="module")
def recipe():
    text = DOCS.read_text(encoding="utf-8")
    blocks = (rest.partition("```")[0] for rest in text.split("```json\n")[1:])
    return Pipeline.from_json(next(block for block in blocks if "original_size" in block))


def run(pipeline, encoded):
    with Engine(pipeline) as engine:
        batch = engine.run_batch([encoded])
    assert batch.errors == [None]
    return {name: array[0] for name, array in batch.outputs.items()}


ENCODED = [*photos(), *(png(make(*size)) for make in (scene, noise) for size in ((320, 320), (99, 641), (731, 202)))]


def test_the_recipe_equals_the_packages_preprocessing_bit_for_bit(recipe):
    for encoded in ENCODED:
        assert_close(run(recipe, encoded)["tensor"], nudenet._read_image(encoded)[0][0])


def test_the_convention_is_detected_from_the_metadata():
    for encoded in ENCODED[:3]:
        imported = run(import_pipeline(str(MODEL)), encoded)["tensor"]
        assert (imported != nudenet._read_image(encoded)[0][0]).mean() > 0.5


def test_the_boxes_equal_the_packages(recipe):
    """pixprep and the package convert the same 20 boxes of the network, which have the highest scores, to pixels of the
    photo.

    The package truncates coordinates to integers.
    """
    session = onnxruntime.InferenceSession(str(MODEL), providers=["CPUExecutionProvider"])
    compared = 0
    for encoded in photos():
        outputs = run(recipe, encoded)
        (found,) = session.run(None, {"images": outputs["tensor"][None]})
        best = np.argsort(-found[0, 4:].max(axis=0))[:20]
        (height, width), transform = outputs["original_size"], outputs["transform"]
        _, x_ratio, y_ratio, x_pad, y_pad, *size = nudenet._read_image(encoded)
        assert size == [width, height]
        for index in best:
            alone = np.zeros_like(found)
            alone[..., :4, :] = found[..., :4, :]
            alone[0, 4, index] = 1
            (theirs,) = nudenet._postprocess([alone], x_pad, y_pad, x_ratio, y_ratio, width, height, 320, 320)
            (ours,) = boxes_to_original(found[:, :4, index], transform, [height, width], format="cxcywh")
            left, top, *sides = convert([ours], "cxcywh", "xywh")[0]
            if left > 0 and top > 0:  # otherwise, the package moves the box instead of clipping it
                assert np.abs(np.subtract([left, top, *sides], theirs["box"])).max() <= 1.001
                compared += 1
    assert compared >= 20


def test_the_packages_own_code_is_named():
    (line,) = own_code(MODEL)
    assert line == (
        "nudenet.py in the same package pads (copyMakeBorder), reorders channels (COLOR_RGBA2BGR, swapRB), resizes "
        "(blobFromImage)"
    )
