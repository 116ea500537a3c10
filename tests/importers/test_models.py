"""Tests that the recipes of docs/models.md load and produce the inputs of their models. ``make models`` compares the
pixels.
"""

import numpy as np
import pytest

import pixprep as pp
from support import images
from support.recipes import FAMILIES, PAGE, RECIPES

PHOTO = {"original_size": ("int32", (2,))}
REQUEST_INPUTS = {
    "rapidocr, PaddleOCR: detector": PHOTO | {"x": ("float32", (3, 736, 1088))},
    "rapidocr: classifier of upside-down lines": {"x": ("float32", (3, 48, 192))},
    "rapidocr, PaddleOCR: recognizer": {"x": ("float32", (3, 48, 320))},
    "rapidocr, PaddleOCR: a line of the photo": {"x": ("float32", (3, 48, 320))},
    "InsightFace: SCRFD": {"transform": ("float32", (4,)), "tensor": ("float32", (3, 640, 640))},
    "InsightFace: ArcFace": {"data": ("float32", (3, 112, 112))},
    "EasyOCR, documents: four corners": {"tensor": ("uint8", (32, 32, 3))},
    "LORE: tables": {"tensor": ("float32", (3, 768, 768))},
    "ddddocr: recognizer": {"input1": ("float32", (1, 64, 95))},
    "YOLOX, ddddocr: detector": PHOTO | {"transform": ("float32", (4,)), "images": ("float32", (3, 416, 416))},
    "RT-DETR": {"orig_target_sizes": ("int64", (2,)), "images": ("float32", (3, 640, 640))},
    "PaddleDetection": {
        "im_shape": ("float32", (2,)),
        "scale_factor": ("float32", (2,)),
        "tensor": ("float32", (3, 640, 640)),
    },
    "torchvision: Faster R-CNN": {"image_size": ("int32", (2,)), "tensor": ("float32", (3, 800, 1216))},
    "MMOCR: SAR": {"tensor": ("float32", (3, 48, 160))},
    "Surya: text detection": {"tensor": ("float32", (3, 1200, 1200))},
}


def test_the_page_has_exactly_the_recipes():
    assert list(RECIPES) == list(REQUEST_INPUTS)


@pytest.mark.parametrize("heading", REQUEST_INPUTS)
def test_a_recipe_produces_the_inputs_of_its_model(heading):
    pipeline = RECIPES[heading]
    with pp.Engine(pipeline, device="cpu", threads=1) as engine:
        batch = engine.run_batch([images.photo()], inputs=pipeline.example_inputs())
    assert batch.errors == [None]
    found = {name: (str(batch[name][0].dtype), batch[name][0].shape) for name in pipeline.outputs}
    assert found == REQUEST_INPUTS[heading]
    for name, (_, shape) in found.items():
        sides = pipeline.outputs[name].spec.shape
        assert all(known in (-1, side) for known, side in zip(sides, shape, strict=True)), name


def test_the_page_links_each_file_and_each_produces_a_tensor():
    text = PAGE.read_text(encoding="utf-8")
    assert all(f"(models/{name}.json)" in text for name in FAMILIES)
    box = np.array([[10, 20, 330, 276]], np.float32)
    for pipeline in FAMILIES.values():
        with pp.Engine(pipeline, device="cpu", threads=1) as engine:
            assert engine.run_batch([images.photo()], inputs={key: [box] for key in pipeline.inputs}).errors == [None]
