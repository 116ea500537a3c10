"""Computes the detections in a photo from the outputs of a detector, with non-maximum suppression.

``forms.FORMS`` lists the supported forms of the outputs. Besides the outputs of the detector, ``transform`` and
``original_size`` of the pipeline are required to map the boxes to the photo. Some forms also need ``image_size``, the
size of the tensor. In most forms, coordinates are in pixels of the tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from pixprep.errors import PixprepError
from pixprep.plan.boxes import F32, convert
from pixprep.postprocessing.coordinates import (
    boxes_to_original,
    mask_to_original,
    matrix_of,
    points_to_original,
    points_to_tensor,
    quads_of,
)
from pixprep.postprocessing.forms import (
    CANDIDATES,
    MAX_NORMALIZED,
    PADDING,
    Found,
    Given,
    Rows,
    Task,
    are_normalized,
    are_ordered,
    read,
)

Array = npt.NDArray[Any]
GEOMETRY_OUTPUTS = ("transform", "original_size")
"""Names of the pipeline's outputs that map coordinates back to the photo."""
_MANY_ROWS = 200
"""Number of boxes, such as RT-DETR's 300, from which boxes in pixels of the photo are expected to cover the photo."""
_MAX_OUTSIDE = 0.1
"""Maximum fraction of boxes whose center is outside of the image, and the distance of such a center from the image as a
fraction of its side. A model without clipping returns a few such boxes with low scores."""
_STRIDE = 4
"""Number of tensor pixels per axis for one pixel of Ultralytics' mask prototypes."""
SIZE_OUTPUT = "image_size"
"""Name of the pipeline output that contains the size of the tensor. Forms with normalized coordinates require it."""
TARGET_SIZES = "orig_target_sizes"
"""Name of the pipeline's output with the width and height of the photo. An RT-DETR or D-FINE that receives it as an
input returns boxes in pixels of the photo."""


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

    def regions(self, kind: Literal["box", "xywh", "xywh64", "quad", "points"]) -> F32:
        """Return the objects as rows for an input of a pipeline.

        Args:
            kind: ``box``: left, top, right and bottom, (n, 4). ``xywh`` and ``xywh64``: left, top, width and height,
                (n, 4). ``quad``: corners (n, 4, 2), clockwise from the upper left corner. ``points``: keypoints
                (n, k, 2).

        Raises:
            PixprepError: The model does not return keypoints.
        """
        if kind == "box":
            return self.boxes
        if kind in ("xywh", "xywh64"):
            return convert(self.boxes, "xyxy", "xywh")
        if kind == "quad" and self.quads is not None:
            return self.quads[:, [2, 1, 0, 3]]  # ``quads_of`` begins with the lower right corner
        if kind == "quad":
            return self.boxes[:, [[0, 1], [2, 1], [2, 3], [0, 3]]].reshape(-1, 4, 2)
        if self.keypoints is None:
            raise PixprepError("the detector does not return keypoints")
        return self.keypoints[:, :, :2]

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
    as in Ultralytics. NMS is not applied to the outputs of a model that includes NMS or does not need it.

    Args:
        outputs: Outputs for one photo without the batch dimension: the outputs of the detector, and ``transform`` and
            ``original_size`` of the pipeline. PaddleDetection's boxes do not need ``transform``. Normalized boxes and
            SCRFD also need ``image_size``, the height and width of the tensor. For an RT-DETR or D-FINE model that has
            the input ``orig_target_sizes``, pass this array instead of ``transform`` and ``original_size``. The boxes
            are then not mapped to the photo a second time.
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
        PixprepError: The form of the outputs is not supported, or their values contradict it; or the form is ambiguous,
            and ``task`` must be passed.
    """
    geometry = (*GEOMETRY_OUTPUTS, SIZE_OUTPUT, TARGET_SIZES)
    others = {name: array for name, array in outputs.items() if name not in geometry}
    targets, sides = outputs.get(TARGET_SIZES), outputs.get(SIZE_OUTPUT)
    lost = PixprepError(
        f"the outputs are {', '.join(outputs)}: mapping boxes to the photo needs the outputs transform and "
        "original_size; add these ops before tensor"
    )
    if not others or ("original_size" not in outputs and targets is None):
        raise lost
    if bad := [
        name for name, array in others.items() if array.dtype.kind not in "fiub" or not np.isfinite(array).all()
    ]:
        raise PixprepError(f'output "{bad[0]}" is not numeric, or has values that are NaN or infinite')
    tensor_size = None if sides is None else (float(sides[0]), float(sides[1]))
    found = read(others, Given(task, keypoints, tensor_size, is_of_photo=targets is not None))
    if not found.is_of_photo and "transform" not in outputs:
        raise lost
    size = outputs["original_size"] if targets is None else targets[::-1]
    transform = np.array([1, 1, 0, 0]) if found.is_of_photo else outputs["transform"]
    if not found.is_scaled:
        _check_pixels(found, transform, size, sides, score)
    candidates = found.rows if found.rows.boxes.shape[1] == 5 else found.rows.of(are_ordered(found.rows.boxes))
    rows = candidates.of(_kept(candidates, score, 1.0 if found.is_final else overlap, most))
    prototypes = found.prototypes
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


def _check_pixels(found: Found, transform: Array, size: Array, sides: Array | None, score: float) -> None:
    """Raise a PixprepError if boxes seem to be normalized, or in pixels of the photo instead of the tensor.

    The center of a box is inside the image, because torchvision clips boxes, and the center of a DETR's box is
    normalized by a sigmoid. A model without clipping may return a few other boxes, which are tolerated.

    Args:
        found: Candidates.
        transform: Mapping from the photo to the tensor; the identity if the boxes are in pixels of the photo.
        size: Height and width of the photo.
        sides: Height and width of the tensor. None: they are estimated from ``transform``, with symmetric padding or a
            square tensor. Boxes with a low score are then ignored, because they can be in other padding.
        score: Minimum score of the detections.
    """
    photo, boxes = np.array(size[::-1], np.float64), found.rows.boxes[:, :4]
    corners = points_to_tensor(np.array([[0, 0], [1, 0], [0, 1], [1, 1]]) * photo, transform)
    shown = corners.max(axis=0) + corners.min(axis=0).clip(0)
    limit = photo if found.is_of_photo else np.full(2, shown.max()) if sides is None else np.array(sides[::-1])
    if are_normalized(boxes) and limit.max() > MAX_NORMALIZED:
        raise PixprepError(
            f"unsupported outputs (coordinates of at most {boxes.max():g}): expected boxes in pixels of the "
            f"{'photo' if found.is_of_photo else 'tensor'} (the coordinates seem to be normalized)"
        )
    is_sure = found.is_of_photo or sides is not None
    scores = found.rows.scores
    is_judged = (scores > 0 if is_sure else scores >= score) & (found.rows.classes != PADDING)
    if not found.is_final or not is_judged.any():
        return
    boxes = boxes[is_judged]
    middles = boxes[:, :2] if found.rows.boxes.shape[1] == 5 else (boxes[:, :2] + boxes[:, 2:]) / 2
    ends = middles.max(axis=0)
    is_outside = (middles > limit * (1 + _MAX_OUTSIDE) + 1).any(axis=1).mean() > _MAX_OUTSIDE
    what = f"the centers of the boxes reach x = {ends[0]:.0f}, y = {ends[1]:.0f}"
    if found.is_of_photo:
        if is_outside:
            raise PixprepError(
                f"{what}, but the photo has {photo[0]:.0f} x {photo[1]:.0f} pixels: original_size must be (height, "
                f"width), and {TARGET_SIZES} (width, height)"
            )
        return
    covers_photo = ((ends <= photo) & (ends >= 0.9 * photo) & (middles.min(axis=0) <= 0.1 * photo)).all()
    is_half = sides is not None and (2 * photo <= np.minimum(limit, corners.max(axis=0))).all()
    is_smaller = is_half and covers_photo and len(np.unique(middles, axis=0)) >= _MANY_ROWS
    if is_smaller or (is_outside and (is_sure or (ends <= photo * (1 + _MAX_OUTSIDE)).all())):
        about = "" if is_sure else "about "
        fix = "" if is_sure else "; if they are in pixels of the tensor, add the op image_size before tensor"
        raise PixprepError(
            f"{what}, the tensor has {about}{limit[0]:.0f} x {limit[1]:.0f} pixels, and the photo "
            f"{photo[0]:.0f} x {photo[1]:.0f}: the boxes seem to be in pixels of the photo; RT-DETR and D-FINE return "
            f"such boxes if they have the input {TARGET_SIZES}: pass this array (width, height) to detections{fix}"
        )


def _kept(rows: Rows, score: float, overlap: float, most: int) -> npt.NDArray[np.int64]:
    """Return the indices of the candidates that remain after non-maximum suppression per class."""
    order = np.argsort(-rows.scores, kind="stable")[:CANDIDATES]
    left, kept = order[(rows.scores[order] >= score) & (rows.classes[order] != PADDING)], list[int]()
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
