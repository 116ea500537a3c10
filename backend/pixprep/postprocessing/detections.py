"""Computes the detections in a photo from the outputs of a detector, with non-maximum suppression.

Two forms of outputs are supported, in addition to the outputs ``transform`` and ``original_size``:

- Exports of Ultralytics. An output [4 + classes, n] contains the center, the size and the score per class of each
  candidate. An output [n, 6] contains the corners, the score and the class in each row. Tasks add values: an angle
  (``obb``), keypoints (``pose``), or weights of mask prototypes, which are a second output (``segment``).
- Outputs with the names of torchvision's detectors: ``boxes`` [n, 4], ``scores`` [n], and optionally ``labels`` [n],
  ``keypoints`` [n, k, 2 or 3] and ``masks`` [n, height, width] or [n, 1, height, width].

Coordinates are tensor pixels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from pixprep.errors import PixprepError
from pixprep.plan.boxes import F32, convert
from pixprep.postprocessing.coordinates import (
    boxes_to_original,
    mask_to_original,
    matrix_of,
    points_to_original,
    quads_of,
)

Array = npt.NDArray[Any]
Task = Literal["detect", "segment", "pose", "obb"]
GEOMETRY_OUTPUTS = ("transform", "original_size")
"""Names of the pipeline's outputs that map coordinates back to the photo."""
_STRIDE = 4
"""Number of tensor pixels per axis for one pixel of Ultralytics' mask prototypes."""
_IN_PIXELS = "boxes in pixels of the tensor (the coordinates seem to be normalized)"
_CANDIDATES = 1000
"""Maximum number of candidates for non-maximum suppression. The candidates with the highest scores are used."""
_LOW_SCORE = 0.01
"""Threshold that distinguishes scores from angles in radians, because most scores of a class are below it."""
_PADDING = -1
"""Class of the rows that pad the output of a model with NMS to its fixed length."""


@dataclass(frozen=True)
class Detections:
    """Objects in a photo in descending order of their scores, with coordinates in pixels of the photo.

    Attributes:
        boxes: Array float32 (n, 4) of boxes, xyxy, clipped to the photo. They enclose the rotated boxes if the detector
            returns rotated boxes.
        scores: Array float32 (n,), 0 to 1.
        classes: Array int64 (n,) of class indices.
        quads: Array float32 (n, 4, 2) of the corners of rotated boxes. None: the boxes are axis-aligned.
        keypoints: Array float32 (n, k, 3) of x, y and a score, which is 1 if the model does not return scores. None:
            the model does not return keypoints.
        maps: Array (n, height, width) with one map per object. Values are greater than 0 where the tensor shows the
            object. None: the model does not return masks.
        transform: Matrix float64 (3, 3) from the photo to the maps.
        size: Height and width of the photo.
    """

    boxes: F32
    scores: F32
    classes: npt.NDArray[np.int64]
    quads: F32 | None
    keypoints: F32 | None
    maps: Array | None
    transform: npt.NDArray[np.float64]
    size: tuple[int, int]

    def masks(self, longest: int | None = None) -> Iterator[npt.NDArray[np.bool_]]:
        """Yield the mask of each object inside its box, as bool (height, width). Without ``maps``, yield nothing.

        Args:
            longest: Maximum height and width of the masks, to draw a smaller picture. None: the masks have the size of
                the photo.
        """
        scale = min(1.0, (longest or max(self.size)) / max(self.size))
        height, width = (max(1, round(scale * side)) for side in self.size)
        smaller = np.array([width, height]) / self.size[::-1]
        transform = self.transform @ np.diag([*(1 / smaller), 1])
        for box, each in zip(self.boxes, () if self.maps is None else self.maps, strict=False):
            yield mask_to_original(each, transform, (height, width), box=box * np.tile(smaller, 2)) > 0


class _Rows(NamedTuple):
    """Candidates in tensor pixels: boxes (n, 4) xyxy or (n, 5) xywhr, and the score, class and other data per box."""

    boxes: F32
    scores: F32
    classes: npt.NDArray[np.int64]
    keypoints: F32 | None = None
    maps: Array | None = None
    weights: F32 | None = None

    def of(self, kept: Array) -> _Rows:
        """Return the candidates that an index or a Boolean mask selects."""
        return _Rows(*(None if each is None else each[kept] for each in self))  # type: ignore[arg-type]


def detections(
    outputs: Mapping[str, Array],
    task: Task | None = None,
    *,
    keypoints: tuple[int, int] | None = None,
    score: float = 0.25,
    overlap: float = 0.45,
    most: int = 100,
) -> Detections:
    """Return the detections of one photo after a score threshold and non-maximum suppression (NMS) per class.

    The overlap of two axis-aligned boxes is their intersection over union. The overlap of two rotated boxes is its
    probabilistic counterpart ("Gaussian Bounding Boxes and Probabilistic Intersection-over-Union", arXiv 2106.06072),
    as in Ultralytics. Outputs with torchvision's names are not suppressed again, because the model includes NMS.

    Args:
        outputs: Outputs for one photo without the batch dimension: the outputs of the detector, and ``transform`` and
            ``original_size`` of the pipeline.
        task: Task of an Ultralytics export. Default: ``segment`` if there are mask prototypes, else ``detect`` if the
            last row cannot contain the angles of ``obb``.
        keypoints: Number of keypoints per pose and of values per keypoint, as ``kpt_shape`` in the metadata of an
            export. Default: one class, and as many keypoints (x, y, score) as the output contains.
        score: Minimum score, 0 to 1.
        overlap: Maximum overlap of two boxes of one class. If two boxes overlap more, only the box with the higher
            score is kept.
        most: Maximum number of detections.

    Returns:
        Detections whose boxes have an area inside the photo. Boxes entirely in the padding are removed, as in
        torchvision's Faster R-CNN.

    Raises:
        PixprepError: The form of the outputs is not supported; or it is ambiguous, and ``task`` must be passed.
    """
    others = {name: array for name, array in outputs.items() if name not in GEOMETRY_OUTPUTS}
    if len(outputs) != len(others) + 2:
        raise PixprepError(
            f"the outputs are {', '.join(outputs)}: mapping boxes to the photo needs the outputs transform and "
            "original_size; add these ops before tensor"
        )
    if bad := [
        name for name, array in others.items() if array.dtype.kind not in "fiub" or not np.isfinite(array).all()
    ]:
        raise PixprepError(f'output "{bad[0]}" is not numeric, or has values that are NaN or infinite')
    is_named = {"boxes", "scores"} <= others.keys()
    rows, prototypes = (_named(others), None) if is_named else _exported(others, task, keypoints)
    rows = rows.of(_kept(rows, score, 1.0 if is_named else overlap, most))
    transform, size = outputs["transform"], outputs["original_size"]
    quads = points = None
    if rows.boxes.shape[1] == 5:
        corners = quads_of(rows.boxes)
        quads = points_to_original(corners.reshape(-1, 2), transform).reshape(corners.shape)
        around = np.concatenate([corners.min(axis=1), corners.max(axis=1)], axis=1)
    boxes = boxes_to_original(rows.boxes if quads is None else around, transform, size)
    is_seen = (boxes[:, :2] < boxes[:, 2:]).all(axis=1)
    rows, boxes, quads = rows.of(is_seen), boxes[is_seen], None if quads is None else quads[is_seen]
    if prototypes is not None and rows.weights is not None:
        rows = rows._replace(maps=np.tensordot(rows.weights, prototypes, 1).astype(np.float32))
    if rows.keypoints is not None:
        count, dims = rows.keypoints.shape[1:]
        points = np.ones((len(boxes), count, 3), np.float32)
        points[..., :dims] = rows.keypoints
        points[..., :2] = points_to_original(points[..., :2].reshape(-1, 2), transform).reshape(-1, count, 2)
    height, width = (int(side) for side in size)
    stride = 1 if prototypes is None else _STRIDE
    motion = np.diag([1 / stride, 1 / stride, 1]) @ matrix_of(transform)
    return Detections(boxes, rows.scores, rows.classes, quads, points, rows.maps, motion, (height, width))


def _named(outputs: Mapping[str, Array]) -> _Rows:
    """Read outputs with torchvision's names.

    Raises:
        PixprepError: The shape or the values of an output are invalid.
    """
    boxes, scores = outputs["boxes"], outputs["scores"]
    count = len(scores) if scores.ndim == 1 else -1
    labels, points, masks = (outputs.get(name) for name in ("labels", "keypoints", "masks"))
    if masks is not None and masks.ndim == 4 and masks.shape[1] == 1:
        masks = masks[:, 0]
    are_odd = masks is not None and masks.dtype.kind == "f" and masks.size and (masks.min() < 0 or masks.max() > 1)
    for is_wrong, what in (
        (
            outputs.keys() - {"boxes", "scores", "labels", "keypoints", "masks"},
            "only boxes, scores, labels, keypoints and masks",
        ),
        (boxes.shape != (count, 4) or (boxes[:, :2] > boxes[:, 2:]).any(), "boxes [n, 4]: left, top, right, bottom"),
        (_are_normalized(boxes), _IN_PIXELS),
        (count < 0 or not ((scores >= 0) & (scores <= 1)).all(), "scores [n] of 0 to 1"),
        (labels is not None and (labels.shape != (count,) or labels.dtype.kind not in "iu"), "labels [n], integers"),
        (labels is not None and labels.min(initial=0) < _PADDING, "labels of at least 0, or -1 in padding rows"),
        (points is not None and (points.shape[::2] not in ((count, 2), (count, 3))), "keypoints [n, k, 2 or 3]"),
        (masks is not None and (masks.ndim != 3 or len(masks) != count), "masks [n, height, width]"),
        (are_odd, "masks of 0 to 1"),
        (masks is not None and _miss_centers(boxes, masks), "masks of the whole tensor (they do not cover the boxes)"),
    ):
        if is_wrong:
            shapes = ", ".join(f"{name} {list(array.shape)}" for name, array in outputs.items())
            raise PixprepError(f"unsupported outputs {shapes}: expected {what}")
    classes = np.zeros(count, np.int64) if labels is None else labels.astype(np.int64)
    if masks is not None:
        masks = masks - np.float32(0.5) if masks.dtype.kind == "f" else masks > 0
    return _Rows(boxes.astype(np.float32), scores.astype(np.float32), classes, points, masks)


def _are_normalized(boxes: Array) -> bool:
    """Return whether boxes are normalized: all coordinates are at most 1. Boxes that are all 0 are empty rows."""
    return bool(0 < boxes.max(initial=0) <= 1)


def _miss_centers(boxes: Array, masks: Array) -> bool:
    """Return whether the center of any box (n, 4) is outside of the masks (n, height, width).

    This is the case for masks that only cover their box instead of the whole tensor.
    """
    middles = (boxes[:, :2] + boxes[:, 2:]) / 2
    return bool((middles > masks.shape[:0:-1]).any())


def _exported(
    outputs: Mapping[str, Array], task: Task | None, keypoints: tuple[int, int] | None
) -> tuple[_Rows, Array | None]:
    """Read the candidates of an Ultralytics export, and its mask prototypes if it has any.

    Raises:
        PixprepError: The outputs are not those of an Ultralytics export.
    """
    flat = [array for array in outputs.values() if array.ndim == 2]
    prototypes = [array for array in outputs.values() if array.ndim == 3]
    is_open = not task and not prototypes
    task = task or ("segment" if prototypes else "detect")
    if len(flat) != 1 or len(outputs) != 1 + (task == "segment") or len(prototypes) != (task == "segment"):
        shapes = ", ".join(f"{name} {list(array.shape)}" for name, array in outputs.items())
        expected = "an output of boxes" + " and one of mask prototypes" * (task == "segment")
        raise PixprepError(f"unsupported outputs {shapes}: expected {expected}")
    (output,) = flat
    weights, dims = len(prototypes[0]) if prototypes else 0, keypoints[1] if keypoints else 3
    extra = {"detect": 0, "segment": weights, "obb": 1, "pose": keypoints and keypoints[0] * dims}[task]
    is_finished = output.shape[1] == 6 + extra if extra is not None else len(output) > output.shape[1]
    fields = (output.T if is_finished else output).astype(np.float32)
    if extra is None:  # one class
        extra = max(0, len(fields) - (6 if is_finished else 5))
    end = max(4, len(fields) - extra)
    boxes, middle, rest = fields[:4].T, fields[4:end], fields[end:].T
    is_known = len(middle) == 2 if is_finished else 0 < len(middle) <= len(fields) < output.shape[1]
    if is_known:
        scores, classes = middle if is_finished else (middle.max(axis=0), middle.argmax(axis=0))
        boxes = boxes if is_finished or task == "obb" else convert(boxes, "cxcywh", "xyxy")
        is_ordered = task == "obb" or bool((boxes[:, :2] <= boxes[:, 2:]).all())
        are_classes = (classes == classes.round()) & (classes >= _PADDING)
        is_known = is_ordered and bool(((scores >= 0) & (scores <= 1) & are_classes).all())
    if not is_known or (task == "pose" and extra % dims):
        raise PixprepError(
            f"the output of shape {list(output.shape)} does not contain boxes and scores from 0 to 1 for the task "
            f"{task}: pass the task of the export (pose for YOLO-pose, obb for YOLO-obb, segment for YOLO-seg); for "
            "other detectors, decode the outputs as their package does"
        )
    if is_open and not is_finished and len(middle) > 1 and (middle[-1] >= _LOW_SCORE).mean() > 0.5:
        raise PixprepError(
            f"the last row of {list(output.shape)} may contain scores of a class or angles of rotated boxes: pass "
            'task="detect" or task="obb"'
        )
    if _are_normalized(boxes):
        raise PixprepError(f"unsupported output {list(output.shape)}: expected {_IN_PIXELS}")
    rows = _Rows(boxes, scores, classes.astype(np.int64))
    if task == "obb":
        rows = rows._replace(boxes=np.concatenate([boxes, rest], axis=1))
    elif task == "pose":
        rows = rows._replace(keypoints=rest.reshape(len(rest), -1, dims))
    elif task == "segment":
        rows = rows._replace(weights=rest)
    return rows, prototypes[0] if prototypes else None


def _kept(rows: _Rows, score: float, overlap: float, most: int) -> npt.NDArray[np.int64]:
    """Return the indices of the candidates that remain after non-maximum suppression per class."""
    order = np.argsort(-rows.scores, kind="stable")[:_CANDIDATES]
    left, kept = order[(rows.scores[order] >= score) & (rows.classes[order] != _PADDING)], list[int]()
    overlaps: Callable[[F32, F32], F32] = _probabilistic_iou if rows.boxes.shape[1] == 5 else _intersection
    while len(left) and len(kept) < most:
        best, left = left[0], left[1:]
        kept.append(best)
        is_over = overlaps(rows.boxes[best], rows.boxes[left]) > overlap
        left = left[~(is_over & (rows.classes[left] == rows.classes[best]))]
    return np.array(kept, np.int64)


def _intersection(box: F32, boxes: F32) -> F32:
    """Return the intersection over union (IoU) of a box (4,) and boxes (n, 4)."""
    both = np.minimum(boxes[:, 2:], box[2:]) - np.maximum(boxes[:, :2], box[:2])
    shared = np.maximum(both, 0).prod(axis=1)
    areas = (boxes[:, 2:] - boxes[:, :2]).prod(axis=1) + (box[2:] - box[:2]).prod()
    iou: F32 = shared / np.maximum(areas - shared, 1e-9)
    return iou


def _probabilistic_iou(box: F32, boxes: F32) -> F32:
    """Return the probabilistic IoU of a rotated box (5,) and boxes (n, 5).

    The probabilistic IoU is 1 minus the Hellinger distance of two normal distributions that represent the boxes.
    """
    first, others = box.astype(np.float64), boxes.astype(np.float64)
    first_covariance, other_covariances, epsilon = _covariance(first), _covariance(others), 1e-7
    a, b, c = (value + values for value, values in zip(first_covariance, other_covariances, strict=True))
    x, y = (others[:, :2] - first[:2]).T
    determinant: Array = a * b - c * c
    mahalanobis = (a * y * y + b * x * x - 2 * c * x * y) / (4 * (determinant + epsilon))
    first_determinant, other_determinants = (
        np.maximum(p * q - r * r, 0) for p, q, r in (first_covariance, other_covariances)
    )
    geometric_mean = np.sqrt(first_determinant * other_determinants)
    log_term = np.log(determinant / (4 * geometric_mean + epsilon) + epsilon) / 2
    distance = np.clip(mahalanobis + log_term, epsilon, 100)
    iou: F32 = 1 - np.sqrt(1 - np.exp(-distance) + epsilon)
    return iou


def _covariance(boxes: Array) -> tuple[Array, Array, Array]:
    """Return the variances of x and y and the covariance of uniform distributions over rotated boxes (..., 5)."""
    along, down, angle = boxes[..., 2] ** 2 / 12, boxes[..., 3] ** 2 / 12, boxes[..., 4]
    cosine, sine = np.cos(angle), np.sin(angle)
    return along * cosine**2 + down * sine**2, along * sine**2 + down * cosine**2, (along - down) * cosine * sine
