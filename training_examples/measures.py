"""Measures of a network's answers, in NumPy: the training and the server of its model use the same."""

from collections.abc import Mapping

import numpy as np

CELL, UNIT = 16, 64  # output of the detector: side of a cell in pixels, and pixels per unit of an edge


def measured(answers: np.ndarray, truth: Mapping) -> tuple[str, float]:
    """Name and number of the measure that the truth's fields ask for."""
    if "label" in truth:
        return "accuracy", float(np.mean(answers.argmax(1) == truth["label"]))
    if "mask" in truth:
        return "mIoU", mean_iou(answers.argmax(1), truth["mask"], answers.shape[1])
    return "mAP", mean_ap(answers, truth["boxes"], truth["labels"])


def mean_iou(told: np.ndarray, true: np.ndarray, classes: int, ignore: int = 255) -> float:
    """Mean over classes of intersection over union, over all images; a class that is nowhere does not count."""
    told, true = told[true != ignore], true[true != ignore]
    both = [(told == each, true == each) for each in range(classes)]
    return float(np.mean([(a & b).sum() / (a | b).sum() for a, b in both if (a | b).any()]))


def overlaps(box: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Intersection over union of a box, xyxy, with each of others (n, 4)."""
    sides = np.minimum(box[2:], others[:, 2:]) - np.maximum(box[:2], others[:, :2])
    shared = np.prod(np.clip(sides, 0, None), axis=1)
    return shared / (np.prod(box[2:] - box[:2]) + np.prod(others[:, 2:] - others[:, :2], axis=1) - shared)


def found(scores: np.ndarray, edges: np.ndarray) -> list[tuple[float, np.ndarray]]:
    """Score and box of each object of a class, the surest first: none overlaps a surer one by half."""
    rows, columns = np.nonzero(scores > -3)  # threshold of logits, which corresponds to a probability of 5 %
    middles = (np.stack([columns, rows] * 2, axis=1) + 0.5) * CELL
    boxes, scores = middles + edges[:, rows, columns].T * UNIT * [-1, -1, 1, 1], scores[rows, columns]
    order, kept = np.argsort(-scores, kind="stable"), []
    while len(order):
        first, order = order[0], order[1:]
        kept.append((float(scores[first]), boxes[first]))
        order = order[overlaps(boxes[first], boxes[order]) < 0.5]
    return kept


def mean_ap(answers: np.ndarray, boxes: np.ndarray, labels: np.ndarray) -> float:
    """Mean over classes of the area below precision by recall; an object is found once, at an IoU of at least 0.5."""
    precisions = []
    for label in range(answers.shape[1] - 4):
        true = [each[name == label] for each, name in zip(boxes, labels, strict=True)]
        told = [(n, *each) for n, answer in enumerate(answers) for each in found(answer[label], answer[-4:])]
        free, hits = [np.ones(len(each), bool) for each in true], []
        for photo, _, box in sorted(told, key=lambda each: -each[1]):
            shared = overlaps(box, true[photo]) * free[photo]
            hits.append(bool(shared.max(initial=0) >= 0.5))
            free[photo][shared.argmax() if hits[-1] else slice(0)] = False
        precision = np.cumsum(hits) / np.arange(1, len(hits) + 1)
        best = np.maximum.accumulate(precision[::-1])[::-1]  # at this recall, or at a higher one
        if count := sum(map(len, true)):
            precisions.append(best[hits].sum() / count)
    return float(np.mean(precisions))
