"""Tests detections against Ultralytics' own suppression and scaling, for random outputs in the format of its exported
models.
"""

import sys

import numpy as np
import pytest

torch = pytest.importorskip("torch")
nms = pytest.importorskip("ultralytics.utils.nms")
ops = pytest.importorskip("ultralytics.utils.ops")
metrics = pytest.importorskip("ultralytics.utils.metrics")

import pixprep as pp  # noqa: E402

SIZE = 480, 640
TO_PHOTO = {"transform": np.float32([0.5, 0.5, 40, 0]), "original_size": np.int32(SIZE)}  # a letterbox of 320 x 320
EXTRA = {"detect": 0, "segment": 8, "pose": 17 * 3, "obb": 1}


def export(task, seed):
    """Return a random output [4 + 3 classes + extra, 400] in which few candidates have a high score."""
    rng = np.random.default_rng(seed)
    boxes = np.concatenate([rng.uniform(60, 260, (2, 400)), rng.uniform(20, 120, (2, 400))])
    scores = rng.uniform(0, 1, (3, 400)) ** 6
    extra = rng.uniform(-0.7, 2.3, (EXTRA[task], 400)) if task == "obb" else rng.uniform(0, 320, (EXTRA[task], 400))
    return np.concatenate([boxes, scores, extra if task != "segment" else extra / 320 - 0.5]).astype(np.float32)


def greedily(rows):
    """Return the rows (x, y, width, height, score, class, angle) that remain if Ultralytics' suppression removes boxes
    one by one.
    """
    scores, classes = rows[:, 4:7].max(1)
    left = [row for row in scores.argsort(descending=True).tolist() if scores[row] > 0.25]
    likeness = metrics.batch_probiou(boxes := torch.cat([rows[:, :4], rows[:, 7:]], 1), boxes)
    kept = []
    for row in left:
        if not any(classes[row] == classes[other] and likeness[row, other] > 0.45 for other in kept):
            kept.append(row)
    return torch.cat([rows[kept, :4], scores[kept, None], classes[kept, None], rows[kept, 7:]], 1)


@pytest.mark.parametrize("task", EXTRA)
@pytest.mark.parametrize("seed", range(3))
def test_detections_equal_ultralytics(task, seed, monkeypatch):
    # without torchvision, Ultralytics suppresses boxes with its own
    monkeypatch.delitem(sys.modules, "torchvision", raising=False)
    output = export(task, seed)
    rng = np.random.default_rng(seed)
    prototypes = rng.normal(size=(8, 80, 80)).astype(np.float32)
    outputs = {"output0": output} | ({"output1": prototypes} if task == "segment" else {})
    ours = pp.detections(outputs | TO_PHOTO, task, keypoints=(17, 3) if task == "pose" else None, most=300)
    given = torch.from_numpy(output)[None].clone()
    (theirs,) = nms.non_max_suppression(given, 0.25, 0.45, nc=3, rotated=task == "obb")
    if task == "obb":  # its "fast" suppression also removes boxes that overlap a removed box
        theirs = greedily(given[0].T)
    assert len(theirs) > 10
    assert np.array_equal(ours.scores, theirs[:, 4].numpy())
    assert np.array_equal(ours.classes, theirs[:, 5].numpy())
    if task == "obb":
        turned = torch.cat([theirs[:, :4], theirs[:, 6:]], 1)
        turned[:, :4] = ops.scale_boxes((320, 320), turned[:, :4], SIZE, xywh=True)
        assert np.abs(ours.quads - ops.xywhr2xyxyxyxy(turned).numpy()).max() < 1e-2
        return
    boxes = ops.scale_boxes((320, 320), theirs[:, :4].clone(), SIZE)
    assert np.abs(ours.boxes - boxes.numpy()).max() < 1e-2
    if task == "pose":
        points = ops.scale_coords((320, 320), theirs[:, 6:].reshape(-1, 17, 3).clone(), SIZE).numpy()
        inside = (ours.keypoints[..., 1] > 0) & (ours.keypoints[..., 1] < SIZE[0])  # theirs are clipped
        assert np.abs(ours.keypoints - points)[inside].max() < 1e-2
    if task == "segment":
        masks = ops.process_mask_native(torch.from_numpy(prototypes), theirs[:, 6:], boxes, SIZE).numpy().astype(bool)
        differs = np.mean([(one != other).sum() / other.sum() for one, other in zip(ours.masks(), masks, strict=True)])
        assert differs < 1e-3, differs


def test_detections_equal_the_post_processing_of_transformers():
    """All outputs of an RT-DETR are passed, including its encoder's boxes. Boxes in pixels of a photo are rejected."""
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    model = transformers.RTDetrForObjectDetection(transformers.RTDetrConfig(num_labels=80)).eval()
    with torch.no_grad():
        given = model(torch.rand(1, 3, 320, 320))
    height, width = 720, 1280
    geometry = {"transform": np.float32([320 / height, 320 / width, 0, 0]), "original_size": np.int32([height, width])}
    outputs = {name: value[0].numpy() for name, value in given.items() if isinstance(value, torch.Tensor)}
    process = transformers.RTDetrImageProcessor().post_process_object_detection
    (every,) = process(given, threshold=0.0, target_sizes=[(height, width)])
    score = float(every["scores"][100])
    ours = pp.detections(outputs | geometry | {"image_size": np.int32([320, 320])}, score=score, most=300)
    theirs = {name: value[: len(ours.boxes)].numpy() for name, value in every.items()}
    assert len(ours.boxes) > 90
    assert np.allclose(ours.boxes, theirs["boxes"].clip(0, [width, height, width, height]), atol=1e-3)
    assert np.allclose(ours.scores, theirs["scores"])
    assert np.array_equal(ours.classes, theirs["labels"])
    with pytest.raises(pp.PixprepError, match="in pixels of the photo"):
        pp.detections({name: value.numpy() for name, value in every.items()} | geometry, score=score)
