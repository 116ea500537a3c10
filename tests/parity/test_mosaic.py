"""Tests that the pixels and boxes of mosaics match those of Ultralytics' mosaics with the same centres, for square
images.
"""

import random
from importlib import import_module
from importlib.util import find_spec

import numpy as np
import pytest

import pixprep as pp

if any(find_spec(name) is None for name in ("torch", "cv2", "ultralytics")):
    pytest.skip("NO ULTRALYTICS: mosaics were not compared", allow_module_level=True)

SIDE = 64


class Dataset(list):
    """Provides the images of a mosaic in the order in which Ultralytics reads them."""

    cache = "ram"

    def get_image_and_label(self, index):
        return self[index]


@pytest.fixture
def library(tmp_path, monkeypatch):
    """Return Ultralytics' classes for mosaics and boxes.

    Ultralytics is imported in this fixture, because it writes its settings into a folder on import.
    """
    monkeypatch.setenv("YOLO_CONFIG_DIR", str(tmp_path))
    monkeypatch.setenv("YOLO_AUTOINSTALL", "false")
    return import_module("ultralytics.data.augment").Mosaic, import_module("ultralytics.utils.instance").Instances


def sample(index):
    rng = np.random.default_rng(index)
    corners = rng.integers(0, SIDE - 20, (4, 2)).astype(np.float32)
    boxes = np.hstack([corners, corners + rng.integers(2, 20, (4, 2))]).astype(np.float32)
    return {
        "image": rng.integers(0, 256, (SIDE, SIDE, 3), np.uint8),
        "boxes": boxes,
        "labels": np.arange(4) + 4 * index,
    }


def theirs(library, samples, center):
    """Return the part of a mosaic around its centre, with its boxes and labels, as Ultralytics' affine map crops it."""
    mosaic, instances = library
    patches = [
        {
            "img": each["image"],
            "cls": each["labels"][:, None],
            "instances": instances(
                each["boxes"].copy(), np.zeros((0, 1000, 2), np.float32), None, "xyxy", normalized=False
            ),
            "im_file": "a.jpg",
            "ori_shape": (SIDE, SIDE),
            "resized_shape": (SIDE, SIDE),
        }
        for each in samples
    ]
    made = mosaic(Dataset(patches[1:]), imgsz=SIDE, p=1.0, n=4)
    points = iter([center[0] + SIDE / 2, center[1] + SIDE / 2])
    with pytest.MonkeyPatch.context() as patch:
        numbers = iter(range(3))
        patch.setattr(random, "randint", lambda *_: next(numbers))
        patch.setattr(random, "uniform", lambda *_: next(points))
        labels = patches[0]
        params = made.get_params(labels)
    labels = made.apply_instances(made.apply_image(labels, params), params)
    half = SIDE // 2
    boxes = labels["instances"].bboxes - half
    seen = boxes.clip(0, SIDE)
    kept = ((seen[:, 2:] - seen[:, :2]) >= 1).all(axis=1)
    return labels["img"][half:-half, half:-half], seen[kept], labels["cls"][kept, 0]


def test_a_mosaic_equals_ultralytics(library):
    samples = [sample(index) for index in range(40)]
    pipeline = pp.Pipeline(
        [pp.pixels(), pp.center_crop(height=SIDE, width=SIDE), pp.boxes(), pp.tensor(layout="hwc", dtype="uint8")]
    ).for_training()
    with pp.Loader(samples, pipeline, batch_size=8, mix=pp.Mosaic(), shuffle=True) as loader:
        for batch in loader:
            for row, words in enumerate(batch["mix"]):
                of = [samples[index] for index in words["of"]]
                image, boxes, labels = theirs(library, of, words["mosaic"])
                assert (image == batch["tensor"][row]).all()
                assert (boxes == batch["boxes"][row]).all()
                assert (labels == batch["labels"][row]).all()
                other, *_ = theirs(library, of[::-1], words["mosaic"])
                assert (other != batch["tensor"][row]).any()
