"""Tests that the same objects are found in every form of a detector's outputs, and that forms are not confused."""

from pathlib import Path

import numpy as np
import pytest

import pixprep as pp
from pixprep.boxes import boxes_to_tensor
from pixprep.errors import PixprepError
from pixprep.postprocessing.forms import FORMS

SIDE = 320
LETTERBOX = {"transform": np.float32([0.5, 0.5, 0, 40]), "original_size": np.int32([640, 480])}
"""A photo of 640 x 480 pixels in a tensor of 320 x 320, with 40 columns of padding on both sides."""
SIZED = LETTERBOX | {"image_size": np.int32([SIDE, SIDE])}
PLACES = np.float32([[130, 90, 290, 330], [10, 400, 50, 440]])
SCORES, CLASSES = np.float32([0.9, 0.6]), np.int64([3, 1])
BOXES = boxes_to_tensor(PLACES, LETTERBOX["transform"])
MIDDLES = np.concatenate([(BOXES[:, :2] + BOXES[:, 2:]) / 2, BOXES[:, 2:] - BOXES[:, :2]], axis=1)
Y_FIRST = [1, 0, 3, 2]


def table(*columns):
    return np.concatenate([np.reshape(column, (len(BOXES), -1)) for column in columns], axis=1).astype(np.float32)


def padded(array, count=5):
    return np.concatenate([array, np.zeros((count - len(array), *array.shape[1:]), array.dtype)])


def logits(is_softmax):
    """Return logits of 6 rows and 5 classes. Logits for a softmax have an additional column for no object."""
    values = np.full((6, 5 + is_softmax), -9.0, np.float32)
    if is_softmax:
        values[2:, -1] = 9
        for row, (score, number) in enumerate(zip(SCORES, CLASSES, strict=True)):
            values[row] = -60
            values[row, [number, -1]] = np.log([score, 1 - score])
    else:
        values[[0, 1], CLASSES] = np.log(SCORES / (1 - SCORES))
    return values


def grids(*, keypoints):
    """Return the outputs of SCRFD: scores, distances and keypoints of three strides, with two anchors per cell."""
    outputs = {}
    for level, stride in enumerate((8, 16, 32)):
        cells = (SIDE // stride) ** 2
        scores, distances = np.zeros((2 * cells, 1), np.float32), np.zeros((2 * cells, 4), np.float32)
        points = np.zeros((2 * cells, 10), np.float32)
        if level < len(BOXES):  # each object is detected at one level
            x, y = (MIDDLES[level, :2] // stride).astype(int)
            row = 2 * (y * SIDE // stride + x) + level
            center = np.array([x, y]) * stride
            scores[row] = SCORES[level]
            distances[row] = np.concatenate([center - BOXES[level, :2], BOXES[level, 2:] - center]) / stride
            points[row] = ((MIDDLES[level, :2] - center) / stride).tolist() * 5
        outputs |= {f"score_{stride}": scores, f"bbox_{stride}": distances}
        outputs |= {f"kps_{stride}": points} if keypoints else {}
    return outputs


RAW = padded(table(MIDDLES, np.eye(5)[CLASSES] * SCORES[:, None]), 60).T
ROWS = {  # for each form: the outputs for one photo, and the outputs of the pipeline that it needs
    "torchvision": ({"boxes": BOXES, "labels": CLASSES, "scores": SCORES}, LETTERBOX),
    "RT-DETR with orig_target_sizes": (
        {"boxes": PLACES, "labels": CLASSES, "scores": SCORES},
        LETTERBOX | {"orig_target_sizes": LETTERBOX["original_size"][::-1]},
    ),
    "TensorFlow": (
        {
            "detection_boxes": padded(BOXES[:, Y_FIRST] / SIDE),
            "detection_classes": padded(CLASSES.astype(np.float32)),
            "detection_scores": padded(SCORES),
            "num_detections": np.float32([2]),
        },
        SIZED,
    ),
    "EfficientNMS": (
        {
            "num_dets": np.int32([2]),
            "det_boxes": padded(BOXES),
            "det_scores": padded(SCORES),
            "det_classes": padded(CLASSES),
        },
        LETTERBOX,
    ),
    "DETR": ({"pred_logits": logits(is_softmax=True), "pred_boxes": padded(MIDDLES / SIDE, 6)}, SIZED),
    "RT-DETR": ({"logits": logits(is_softmax=False), "pred_boxes": padded(MIDDLES / SIDE, 6)}, SIZED),
    "SCRFD": (grids(keypoints=False), SIZED),
    "SCRFD with keypoints": (grids(keypoints=True), SIZED),
    "YOLO [n, 7]": ({"output": table([0, 0], BOXES, CLASSES, SCORES)}, LETTERBOX),
    "EfficientDet [n, 7]": ({"detections": table([1, 1], BOXES[:, Y_FIRST], SCORES, CLASSES)}, LETTERBOX),
    "PaddleDetection": (
        {"rows": padded(table(CLASSES, SCORES, PLACES)), "count": np.int32([2])},
        {"original_size": LETTERBOX["original_size"]},
    ),
    "PaddleDetection without a count": ({"rows": table(CLASSES, SCORES, PLACES)}, LETTERBOX),
    "YOLO [n, 6]": ({"output0": table(BOXES, SCORES, CLASSES)}, LETTERBOX),
    "YOLO [4 + classes, n]": ({"output0": RAW}, LETTERBOX),
}


@pytest.mark.parametrize("form", ROWS)
def test_the_same_objects_are_found_in_each_form(form):
    outputs, geometry = ROWS[form]
    found = pp.detections(outputs | geometry)
    assert found.boxes == pytest.approx(PLACES, abs=1e-3)
    assert found.scores == pytest.approx(SCORES, abs=1e-6)
    assert found.classes.tolist() == ([0, 0] if "SCRFD" in form else CLASSES.tolist())
    if "keypoints" in form:
        middles = (PLACES[:, :2] + PLACES[:, 2:]) / 2
        assert found.keypoints[:, :, :2] == pytest.approx(middles[:, None].repeat(5, 1), abs=1e-3)


EMPTY = {
    "torchvision": {"boxes": BOXES[:0], "labels": CLASSES[:0], "scores": SCORES[:0]},
    "YOLO [n, 7]": {"output": np.zeros((0, 7), np.float32)},
    "YOLO [n, 6]": {"output": np.zeros((0, 6), np.float32)},
    "TensorFlow": ROWS["TensorFlow"][0] | {"num_detections": np.float32([0])},
    "PaddleDetection": {"rows": np.float32([[-1, 0, 0, 0, 0, 0]]), "count": np.int32([0])},
}


@pytest.mark.parametrize("form", EMPTY)
def test_no_objects_are_no_detections(form):
    found = pp.detections(EMPTY[form] | SIZED)
    assert (found.boxes.shape, found.scores.shape, found.classes.shape) == ((0, 4), (0,), (0,))


def queries(count=300, seed=0):
    """Return the outputs of a DETR: normalized boxes, cxcywh and xyxy, scores in descending order, and classes."""
    numbers = np.random.default_rng(seed)
    boxes = np.concatenate([numbers.uniform(0.05, 0.95, (count, 2)), numbers.uniform(0.02, 0.4, (count, 2))], axis=1)
    corners = np.concatenate([boxes[:, :2] - boxes[:, 2:] / 2, boxes[:, :2] + boxes[:, 2:] / 2], axis=1)
    scores = np.sort(numbers.uniform(0, 0.9, count) ** 6)[::-1]
    return *(each.astype(np.float32) for each in (boxes, corners, scores)), numbers.integers(0, 80, count)


CENTERS, CORNERS, DESCENDING, OF_80 = queries()
LOGITS = np.full((300, 80), -9, np.float32)
LOGITS[np.arange(300), OF_80] = np.log(DESCENDING / (1 - DESCENDING))
WIDE = {"transform": np.float32([640 / 720, 0.5, 0, 0]), "original_size": np.int32([720, 1280])}
"""Outputs of a pipeline that resizes a photo of 1280 x 720 pixels to 640 x 640."""
SMALL = {"transform": np.float32([640 / 240, 2, 0, 0]), "original_size": np.int32([240, 320])}


def named(sides, boxes=CORNERS):
    return {"boxes": boxes * np.float32([*sides, *sides]), "scores": DESCENDING, "labels": OF_80}


def rows_of(sides):
    return {"output0": np.concatenate([named(sides)["boxes"], DESCENDING[:, None], OF_80[:, None]], axis=1)}


TENSOR = {"image_size": np.int32([640, 640])}


@pytest.mark.parametrize(
    ("geometry", "sized"), [(WIDE, {}), (WIDE, TENSOR), (SMALL, TENSOR)], ids=["estimated", "known", "small photo"]
)
def test_boxes_in_pixels_of_the_photo_are_never_mistaken_for_those_of_the_tensor(geometry, sized):
    height, width = geometry["original_size"]
    right = pp.detections(named((640, 640)) | geometry | sized)
    expected = (CORNERS[: len(right.boxes)] * [width, height, width, height]).clip(0, [width, height, width, height])
    assert right.boxes == pytest.approx(expected, abs=1e-2)
    counted = {"det_boxes": CORNERS * np.float32([width, height] * 2), "det_scores": DESCENDING, "det_classes": OF_80}
    for outputs in (named((width, height)), rows_of((width, height)), {"num_dets": np.int32([300])} | counted):
        with pytest.raises(PixprepError, match=r"in pixels of the photo; .* pass this array \(width, height\)"):
            pp.detections(outputs | geometry | sized)
    targets = {"orig_target_sizes": np.int64([width, height])}
    assert pp.detections(named((width, height)) | targets).boxes == pytest.approx(right.boxes, abs=1e-2)
    with pytest.raises(PixprepError, match=r"orig_target_sizes \(width, height\)"):
        pp.detections(named((width, height)) | {"orig_target_sizes": np.int64([height, width])})


@pytest.mark.parametrize("transform", [[2, 2, -960, -640], [-1, 1, 640, 0], [1, 1, 100, 100]])
def test_boxes_of_a_cropped_flipped_or_padded_photo_are_in_pixels_of_the_tensor(transform):
    geometry = {"transform": np.float32(transform), "original_size": np.int32([640, 640])}
    assert len(pp.detections(named((320, 320)) | geometry).boxes) > 0


TILE = {"transform": np.float32([2, 2, 0, 0]), "original_size": np.int32([640, 640])}
"""The first tile of 640 x 640 pixels of a photo of 640 x 640 that was resized to 1280 x 1280."""
PADDED = {"transform": np.float32([0.4, 0.4, 0, 0]), "original_size": np.int32([2000, 1500])}
"""A photo of 1500 x 2000 pixels, resized to 600 x 800, with padding at the right up to 1333 x 800."""
FAR = np.concatenate([CORNERS[:280] * 640, np.float32([[700, 600, 800, 680]] * 20)])
BOX = CORNERS[:1] * 60 + 1
MANY_CLASSES = np.concatenate([BOX.repeat(200, axis=0), CORNERS[:100] * 60])
FULL = np.float32([[0.5, 0.5, 0.98, 0.98]] * 290 + [[0.35, 0.6, 0.95, 0.9]] * 10)
VALID = {
    "padding at the right": named((1333, 800))
    | PADDED
    | {"scores": DESCENDING * np.where(CENTERS[:, 0] < 0.4, 1, 0.1).astype(np.float32)},
    "padding without a resize": named((640, 640)) | {**TILE, "transform": np.float32([1, 1, 0, 0])},
    "tile, estimated": named((640, 640)) | TILE,
    "tile": named((640, 640)) | TILE | TENSOR,
    "objects in a corner": named((500, 500)) | TENSOR | {**TILE, "transform": np.float32([1.3, 1.3, 0, 0])},
    "one object with many classes": named((1, 1), MANY_CLASSES) | SMALL | TENSOR,
    "a few boxes outside of the tensor": named((1, 1), FAR) | TENSOR | WIDE,
    "a few boxes outside of the photo": named((1, 1), FAR) | {"orig_target_sizes": np.int64([640, 640])},
    "a few faulty boxes": named((1, 1), np.concatenate([CORNERS[:280] * 640, FAR[280:, [2, 3, 0, 1]]])) | TENSOR | WIDE,
    "a photo of one pixel": named((1, 1), np.float32([[0, 0, 1, 1]] * 300)) | {"orig_target_sizes": np.int64([1, 1])},
    "one box partly outside": {"boxes": np.float32([[600, 600, 690, 680]]), "scores": DESCENDING[:1], **WIDE},
    "centers outside": {"dets": CENTERS + np.float32([0, 0, 1.2, 0]) * (OF_80 == 3)[:, None], "labels": LOGITS},
    "objects of the size of the photo": {"pred_boxes": FULL, "logits": LOGITS},
}


@pytest.mark.parametrize("name", VALID)
def test_valid_boxes_are_not_rejected(name):
    """Models without clipping, padded tensors, and small, cropped or enlarged photos have such boxes."""
    outputs = (WIDE | TENSOR if "dets" in VALID[name] or "pred_boxes" in VALID[name] else {}) | VALID[name]
    found = pp.detections(outputs)
    assert len(found.boxes) > 0
    assert (found.boxes[:, :2] < found.boxes[:, 2:]).all()


RAW_DETR = {
    "transformers": {
        "pred_boxes": CENTERS,
        "enc_topk_bboxes": CENTERS[::-1],
        "logits": LOGITS,
        "enc_topk_logits": LOGITS,
    },
    "RF-DETR": {"dets": CENTERS, "labels": LOGITS},
}


@pytest.mark.parametrize("model", RAW_DETR)
def test_the_outputs_of_the_decoder_are_used(model):
    found = pp.detections(RAW_DETR[model] | WIDE | TENSOR)
    expected = pp.detections(named((640, 640)) | WIDE)
    assert len(found.boxes) > 20
    assert found.boxes == pytest.approx(expected.boxes, abs=1e-2)
    assert np.array_equal(found.classes, expected.classes)


RAW_YOLO = np.random.default_rng(0).uniform(0, 1, (3, 300)) ** 9
TF = {"detection_scores": DESCENDING, "detection_classes": OF_80.astype(np.float32)}
YUNET = {
    f"{name}_{stride}": np.full(((SIDE // stride) ** 2, columns), 0.5, np.float32)
    for stride in (8, 16, 32)
    for name, columns in (("cls", 1), ("obj", 1), ("bbox", 4), ("kps", 10))
}
MISTAKEN = {
    "DETR in pixels": ({"pred_boxes": CENTERS * 640, "logits": LOGITS}, "expected normalized boxes"),
    "DETR with corners": ({"pred_boxes": CORNERS, "logits": LOGITS}, "expected the center and the size of each box"),
    "TensorFlow in pixels": ({"detection_boxes": CORNERS * 640, **TF}, "expected normalized boxes"),
    "normalized": (named((1.1, 1.1)), "the coordinates seem to be normalized"),
    "normalized centers": (named((1.1, 1.1), CENTERS), "expected boxes [n, 4]: left, top, right, bottom"),
    "normalized rows": (rows_of((1.1, 1.1)), "the coordinates seem to be normalized"),
    "normalized YOLO": ({"output0": np.concatenate([CENTERS.T * 1.1, RAW_YOLO])}, "seem to be normalized"),
    "YOLO with corners": ({"output0": np.concatenate([CORNERS.T * 640, RAW_YOLO])}, "expected the center and the size"),
    "EfficientNMS with centers": (
        {"num_dets": np.int32([300]), "det_boxes": CENTERS * 640, "det_scores": DESCENDING, "det_classes": OF_80},
        "expected boxes as corners",
    ),
    "TensorFlow with a class of -2": (
        {"detection_boxes": CORNERS, **TF, "detection_classes": OF_80 - 2},
        "(detection_boxes): expected scores from 0 to 1, and class indices",
    ),
    "YuNet": (YUNET, "unsupported outputs cls_8 [1600, 1], obj_8 [1600, 1]"),
}


@pytest.mark.parametrize("name", MISTAKEN)
def test_outputs_of_another_kind_of_boxes_are_rejected(name):
    outputs, message = MISTAKEN[name]
    with pytest.raises(PixprepError) as caught:
        pp.detections(outputs | WIDE | {"image_size": np.int32([SIDE, SIDE] if name == "YuNet" else [640, 640])})
    assert message in str(caught.value)


@pytest.mark.parametrize("form", ["DETR", "SCRFD", "TensorFlow"])
def test_a_form_that_needs_the_size_of_the_tensor_is_rejected_without_it(form):
    with pytest.raises(PixprepError, match=r'the size of the tensor is needed: add \{"op": "image_size"\} before'):
        pp.detections(ROWS[form][0] | LETTERBOX)


@pytest.mark.parametrize(
    ("outputs", "message"),
    [
        ({"output": table([0, 0], BOXES, [1, 0], [1, 1])}, "may have the class before the score or after it"),
        ({"output": table([0, 1], BOXES, CLASSES, SCORES)}, "does not contain boxes and scores"),
        (
            {"logits": logits(is_softmax=False) + 10, "pred_boxes": padded(MIDDLES / SIDE, 6)},
            "may be logits for softmax",
        ),
        ({**grids(keypoints=False), "score_8": np.zeros((3200, 2))}, "expected an output of boxes"),
        (ROWS["TensorFlow"][0] | {"detection_scores": padded(SCORES) * 2}, "expected scores from 0 to 1"),
    ],
)
def test_ambiguous_and_wrong_outputs_are_rejected(outputs, message):
    with pytest.raises(PixprepError) as caught:
        pp.detections(outputs | SIZED)
    assert message in str(caught.value)


def test_the_grid_of_a_different_tensor_is_rejected():
    with pytest.raises(PixprepError, match=r"do not match the grid of a tensor of 300 x 320 pixels at stride 8"):
        pp.detections(ROWS["SCRFD"][0] | SIZED | {"image_size": np.int32([300, SIDE])})


def test_the_docs_list_the_forms():
    page = (Path(__file__).parents[2] / "docs" / "detection.md").read_text(encoding="utf-8")
    for form in FORMS:
        assert f"| {form.model} | {form.outputs} |" in page


def test_objects_are_the_regions_of_a_pipeline():
    outputs, geometry = ROWS["SCRFD with keypoints"]
    found = pp.detections(outputs | geometry)
    assert np.array_equal(found.regions("box"), found.boxes)
    assert found.regions("points").shape == (2, 5, 2)
    left, top, right, bottom = found.boxes[0]
    assert found.regions("xywh")[0].tolist() == [left, top, right - left, bottom - top]
    corners = [[left, top], [right, top], [right, bottom], [left, bottom]]
    assert found.regions("quad")[0].tolist() == corners
    row = np.float32([*MIDDLES[0], 0.9, 0, 0.0])  # a rotated box with angle 0
    rotated = pp.detections({"output0": row[None]} | LETTERBOX, "obb")
    assert rotated.regions("quad")[0] == pytest.approx(np.array(corners), abs=1e-3)
    with pytest.raises(PixprepError, match="the detector does not return keypoints"):
        rotated.regions("points")
