"""Boxes that a detector found in a photo, for the page to draw, where its outputs have a form that is well known."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from pixprep.boxes import boxes_to_original, convert

Array = npt.NDArray[Any]

_SCORE, _OVERLAP, _MOST = 0.25, 0.45, 100
"""As in ``client_examples/detect.py``."""
_BESIDE = {"transform", "original_size"}


def detections(outputs: Mapping[str, Array]) -> list[dict[str, Any]] | None:
    """What was found, the surest first: ``class``, ``score``, and ``box`` as shares of the photo.

    A box is (left, top, width, height).

    Args:
        outputs: of one photo: ``transform`` and ``original_size``, and one of [4 + classes, n] (Ultralytics') or of
            [n, 6], which is suppressed already.

    Returns:
        None where the outputs are others.
    """
    others = [array for name, array in outputs.items() if name not in _BESIDE]
    candidates = _candidates(others[0]) if len(others) == 1 and outputs.keys() >= _BESIDE else None
    if candidates is None:
        return None
    corners, scores, classes = candidates
    height, width = outputs["original_size"]
    boxes = boxes_to_original(corners, outputs["transform"], outputs["original_size"])
    left, top, right, bottom = boxes.T / np.array([[width], [height], [width], [height]])
    shares = np.stack([left, top, right - left, bottom - top], axis=1)
    return [
        {"class": int(classes[row]), "score": float(scores[row]), "box": shares[row].tolist()}
        for row in _kept(boxes, scores, classes)
    ]


def _candidates(output: Array) -> tuple[Array, Array, Array] | None:
    """Corners (n, 4) in the tensor's pixels, scores and classes (n,); None of another form."""
    if output.ndim != 2 or output.dtype.kind != "f" or not np.isfinite(output).all():
        return None
    if output.shape[1] == 6:
        corners, scores, classes = output[:, :4], output[:, 4], output[:, 5]
        if (corners[:, :2] > corners[:, 2:]).any() or (classes != classes.round()).any():
            return None
    elif 5 <= output.shape[0] < output.shape[1]:
        rows = output[4:]
        corners, scores, classes = convert(output[:4].T, "cxcywh", "xyxy"), rows.max(axis=0), rows.argmax(axis=0)
    else:
        return None
    return (corners, scores, classes) if ((scores >= 0) & (scores <= 1)).all() else None


def _kept(boxes: Array, scores: Array, classes: Array) -> Iterator[int]:
    """The rows that stay, class by class: of boxes that overlap the surest."""
    area = (boxes[:, 2:] - boxes[:, :2]).prod(axis=1)
    left = [row for row in np.argsort(-scores, kind="stable")[: 10 * _MOST] if scores[row] >= _SCORE]
    for _ in range(_MOST):
        if not left:
            return
        best = left[0]
        yield best
        start = np.maximum(boxes[left, :2], boxes[best, :2])
        shared = np.maximum(np.minimum(boxes[left, 2:], boxes[best, 2:]) - start, 0).prod(axis=1)
        overlaps = shared > _OVERLAP * (area[left] + area[best] - shared)
        left = [
            row
            for row, over in zip(left[1:], overlaps[1:], strict=True)
            if not (over and classes[row] == classes[best])
        ]
