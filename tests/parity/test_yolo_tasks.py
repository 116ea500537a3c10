"""Tests YOLO detection, segmentation, pose and rotated boxes against Ultralytics' predictors on untrained networks.

A complete predictor runs. The test compares its tensor with that of docs/models/yolo.json, and its result in pixels of
the photo with pixprep's result for the same rows. An untrained network finds no objects, so the rows get random
positions.
"""

from importlib import import_module
from importlib.util import find_spec

import numpy as np
import pytest

import pixprep as pp
from support import images
from support.images import png, scene
from support.recipes import FAMILIES

if any(find_spec(name) is None for name in ("torch", "torchvision", "cv2", "ultralytics")):
    pytest.skip("NO ULTRALYTICS: the tasks of YOLO were not compared with it", allow_module_level=True)

import cv2
import torch

PHOTOS = [*(png(scene(*size)) for size in ((480, 640), (641, 427), (333, 500), (70, 640))), images.photo("china")]
TASKS = {"detect": "yolov8n", "segment": "yolov8n-seg", "pose": "yolov8n-pose", "obb": "yolov8n-obb"}


def places(rows, task):
    """Return output rows of a network (n, 6 or more) whose boxes, keypoints and angles are spread over a tensor of 640
    x 640.
    """
    rng = np.random.default_rng(5)
    centre, sides = rng.uniform(0, 640, (len(rows), 2)), rng.uniform(20, 300, (len(rows), 2))
    boxes = [centre, sides] if task == "obb" else [centre - sides / 2, centre + sides / 2]
    rest = {
        "pose": lambda: rng.uniform(-20, 660, (len(rows), rows.shape[1] - 6)),
        "obb": lambda: rng.uniform(-0.7, 2.3, (len(rows), 1)),
    }.get(task, lambda: rows[:, 6:])
    return torch.from_numpy(np.concatenate([*boxes, rows[:, 4:6], rest()], axis=1).astype(np.float32))


@pytest.fixture(scope="module")
def predict(tmp_path_factory):
    """Return a function that runs Ultralytics on a photo for a task.

    It returns the tensor, the network's rows (n, 6 or more), the mask prototypes, and Ultralytics' result.
    """
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("YOLO_CONFIG_DIR", str(tmp_path_factory.mktemp("settings")))
        environment.setenv("YOLO_AUTOINSTALL", "false")
        environment.chdir(tmp_path_factory.mktemp("work"))
        yolo, kinds = import_module("ultralytics").YOLO, import_module("ultralytics.models.yolo")
        surest = lambda _, scores, *__, **___: scores.argsort(descending=True)  # noqa: E731 - no box is suppressed
        environment.setattr("torchvision.ops.nms", surest)
        environment.setattr(import_module("ultralytics.utils.nms").TorchNMS, "fast_nms", surest)
        made = {}

        def kind(task):
            (own,) = (each for name, each in vars(getattr(kinds, task)).items() if name.endswith("Predictor"))

            class Seen(own):
                def preprocess(self, image):
                    self.tensor = super().preprocess(image)
                    return self.tensor

                def construct_result(self, rows, image, photo, path, *prototypes):
                    rows, prototypes = (
                        places(rows.numpy(), task),
                        [each - each.mean((1, 2), keepdim=True) for each in prototypes],
                    )
                    self.kept = rows.clone().numpy(), *(each.numpy() for each in prototypes)
                    return super().construct_result(rows, image, photo, path, *prototypes)

            return Seen

        def run(task, encoded):
            if task not in made:
                torch.manual_seed(0)
                made[task] = yolo(f"{TASKS[task]}.yaml", verbose=False), kind(task)
            model, own = made[task]
            bgr = cv2.imdecode(np.frombuffer(encoded, np.uint8), cv2.IMREAD_COLOR)
            how = {"rect": False, "conf": 1e-9, "max_det": 20, "retina_masks": True, "verbose": False, "save": False}
            (result,) = model.predict(bgr, predictor=own, **how)
            return model.predictor.tensor[0].numpy(), *model.predictor.kept, result

        yield run


@pytest.fixture(params=TASKS)
def compared(request, predict):
    """Return a function that computes pixprep's results and the predictor's for a photo and the task."""

    def compare(encoded):
        tensor, rows, *prototypes, result = predict(request.param, encoded)
        with pp.Engine(FAMILIES["yolo"], threads=1) as engine:
            outputs = {name: array[0] for name, array in engine.run_batch([encoded]).outputs.items()}
        assert np.array_equal(outputs["images"], tensor)
        assert len(rows) == 20
        return request.param, outputs, rows, prototypes, result

    return compare


def test_detections_are_mapped_back_like_the_predictors(compared):
    for encoded in PHOTOS:
        task, outputs, rows, prototypes, result = compared(encoded)
        transform, size = outputs["transform"], outputs["original_size"]
        if task == "obb":
            turned = np.concatenate([rows[:, :4], rows[:, -1:]], axis=1)
            theirs = result.obb.xywhr.numpy()
            apart = np.abs(pp.rotated_to_original(turned, transform) - theirs)
            assert apart[:, :2].max() < 1e-4
            # Ultralytics divides a width by the scale of x, whatever the angle. The two scales differ only by rounding.
            assert (apart[:, 2:4] / theirs[:, 2:4]).max() < 2e-3
            assert apart[:, 4].max() < 1e-3
            continue
        boxes, kept = pp.boxes_to_original(rows[:, :4], transform, size), np.ones(len(rows), bool)
        if task == "segment":
            logits = np.tensordot(rows[:, 6:], prototypes[0], 1)
            masks = pp.mask_to_original(logits, transform, size, stride=4) > 0
            y, x = np.mgrid[: size[0], : size[1]]
            left, top, right, bottom = boxes.T[:, :, None, None]
            masks &= (x >= left) & (x < right) & (y >= top) & (y < bottom)
            kept = masks.any(axis=(1, 2))  # Ultralytics omits boxes that have no mask pixels
            assert 0.01 < masks.mean() < 0.3
            assert np.array_equal(masks[kept], result.masks.data.numpy() > 0)
        assert np.array_equal(boxes[kept], result.boxes.xyxy.numpy())
        moved = pp.boxes_to_original(rows[:, :4], transform + np.float32([0, 0, 0.5, 0.5]), size)
        assert np.abs(moved - boxes).max() > 0.3
        if task == "pose":
            points = pp.points_to_original(rows[:, 6:].reshape(len(rows), -1, 3)[..., :2], transform)
            assert np.array_equal(np.clip(points, 0, size[::-1]), result.keypoints.xy.numpy())
