"""Metrics in NumPy, which are computed both after training and for the served model: accuracy, mIoU and mAP."""

from collections.abc import Mapping

import numpy as np

CELL, UNIT = 16, 64  # the detector's output: edge length of a grid cell, and scale of the box offsets, in pixels


def measured(outputs: np.ndarray, truth: Mapping) -> tuple[str, float]:
    """Return the name and the value of the metric for the task.

    Args:
        outputs: Outputs of the model for all images: (n, classes), (n, classes, height, width), or for detection
            (n, classes + 4, rows, columns).
        truth: Ground truth. Its fields determine the task: ``label``, ``mask``, or ``boxes`` and ``labels``.
    """
    if "label" in truth:
        return "accuracy", float(np.mean(outputs.argmax(1) == truth["label"]))
    if "mask" in truth:
        return "mIoU", mean_iou(outputs.argmax(1), truth["mask"], outputs.shape[1])
    return "mAP", mean_ap(outputs, truth["boxes"], truth["labels"])


def mean_iou(predicted: np.ndarray, true: np.ndarray, classes: int, ignore: int = 255) -> float:
    """Return the mean intersection over union (IoU) of the classes, over the pixels of all images.

    Pixels whose true label is ``ignore`` are excluded, and so are classes that are neither predicted nor true anywhere.
    """
    predicted, true = predicted[true != ignore], true[true != ignore]
    pairs = [(predicted == each, true == each) for each in range(classes)]
    return float(np.mean([(a & b).sum() / (a | b).sum() for a, b in pairs if (a | b).any()]))


def box_iou(box: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Return the intersection over union (IoU) of a box (4,) with each of the others (n, 4), in xyxy format."""
    sides = np.minimum(box[2:], others[:, 2:]) - np.maximum(box[:2], others[:, :2])
    intersection = np.prod(np.clip(sides, 0, None), axis=1)
    areas = np.prod(box[2:] - box[:2]) + np.prod(others[:, 2:] - others[:, :2], axis=1)
    return intersection / (areas - intersection)


def detections(scores: np.ndarray, edges: np.ndarray) -> list[tuple[float, np.ndarray]]:
    """Decode the objects of a class in an image, and apply non-maximum suppression at an IoU of 0.5.

    Args:
        scores: Logit of the class for each grid cell, (rows, columns).
        edges: Distances from the centre of each cell to the box's left, top, right and bottom edge, (4, rows, columns),
            in multiples of ``UNIT`` pixels.

    Returns:
        Score and box of each object, in the order of descending scores.
    """
    rows, columns = np.nonzero(scores > -3)  # a logit of -3 is a probability of 5 %
    centers = (np.stack([columns, rows] * 2, axis=1) + 0.5) * CELL
    boxes, scores = centers + edges[:, rows, columns].T * UNIT * [-1, -1, 1, 1], scores[rows, columns]
    order, kept = np.argsort(-scores, kind="stable"), []
    while len(order):
        first, order = order[0], order[1:]
        kept.append((float(scores[first]), boxes[first]))
        order = order[box_iou(boxes[first], boxes[order]) < 0.5]
    return kept


def mean_ap(outputs: np.ndarray, boxes: np.ndarray, labels: np.ndarray) -> float:
    """Return the mean over all classes of the average precision (AP), the area under the precision-recall curve.

    A detection is correct if its IoU with an object that was not matched before is at least 0.5.

    Args:
        outputs: Outputs of the detector for all images, (n, classes + 4, rows, columns).
        boxes: Padded true boxes in xyxy format, (n, boxes, 4).
        labels: Padded true class of each box, (n, boxes).
    """
    precisions = []
    for label in range(outputs.shape[1] - 4):
        true = [each[name == label] for each, name in zip(boxes, labels, strict=True)]
        predicted = [(n, *each) for n, output in enumerate(outputs) for each in detections(output[label], output[-4:])]
        unmatched, hits = [np.ones(len(each), bool) for each in true], []
        for image, _, box in sorted(predicted, key=lambda each: -each[1]):
            overlaps = box_iou(box, true[image]) * unmatched[image]
            hits.append(bool(overlaps.max(initial=0) >= 0.5))
            unmatched[image][overlaps.argmax() if hits[-1] else slice(0)] = False
        precision = np.cumsum(hits) / np.arange(1, len(hits) + 1)
        best = np.maximum.accumulate(precision[::-1])[::-1]  # highest precision at this recall or above
        if count := sum(map(len, true)):
            precisions.append(best[hits].sum() / count)
    return float(np.mean(precisions))
