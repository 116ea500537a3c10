"""Reads the outputs of detectors. The table ``FORMS`` lists the supported forms of the outputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from pixprep.errors import PixprepError
from pixprep.plan.boxes import F32, convert

Array = npt.NDArray[Any]
Task = Literal["detect", "segment", "pose", "obb"]
CANDIDATES = 1000
"""Maximum number of candidates for non-maximum suppression. The candidates with the highest scores are used."""
MAX_NORMALIZED = 1.5
"""Maximum normalized coordinate of a corner: a DETR's box whose center is on the edge may be as wide as the image."""
_MANY = 10
"""Minimum number of boxes from which their format is inferred."""
_MAX_FAULTY = 0.1
"""Maximum fraction of boxes with right < left or bottom < top, which a model that predicts distances may return."""
_MIN_OUTSIDE = 0.25
"""Minimum fraction of boxes that begin or end outside of the image, if their corners are read as centers and sizes."""
_DETR_NAMES = (("pred_boxes", "logits"), ("pred_boxes", "pred_logits"), ("dets", "labels"))
"""Names of the normalized boxes and of the logits. transformers' RT-DETR has further outputs with boxes and logits of
its encoder. The last pair is that of RF-DETR's export."""
_LOW_SCORE = 0.01
"""Threshold that distinguishes scores from angles in radians, because most scores of a class are below it."""
PADDING = -1
"""Class of the rows that pad the output of a model with NMS to its fixed length."""
_STRIDES = (8, 16, 32)
"""Strides of the three levels of SCRFD, in descending order of their number of rows."""
_MOST = 0.5
"""Minimum fraction of a DETR's queries that detect no object in a photo with few objects."""


class Rows(NamedTuple):
    """Candidates in tensor pixels: boxes (n, 4) xyxy or (n, 5) xywhr, and the score, class and other data per box."""

    boxes: F32
    scores: F32
    classes: npt.NDArray[np.int64]
    keypoints: F32 | None = None
    maps: Array | None = None
    weights: F32 | None = None

    def of(self, kept: Array) -> Rows:
        """Return the candidates that an index or a Boolean mask selects."""
        return Rows(*(None if each is None else each[kept] for each in self))  # type: ignore[arg-type]


class Given(NamedTuple):
    """Information about a model that its outputs do not contain.

    Attributes:
        task: Task of an Ultralytics export, or None if it is not known.
        keypoints: Number of keypoints per object and of values per keypoint, or None if they are not known.
        size: Height and width of the tensor in pixels, or None if they are not known.
        is_of_photo: Whether the model receives the size of the photo, so that its ``boxes`` are in pixels of the photo.
    """

    task: Task | None = None
    keypoints: tuple[int, int] | None = None
    size: tuple[float, float] | None = None
    is_of_photo: bool = False


class Found(NamedTuple):
    """Candidates that a form's ``read`` returns.

    Attributes:
        rows: The candidates.
        prototypes: Mask prototypes (m, height, width) of an Ultralytics export, or None.
        is_final: Whether the model includes NMS, or does not need it.
        is_of_photo: Whether the boxes are in pixels of the photo instead of the tensor.
        is_scaled: Whether the model returns normalized boxes, so that ``rows`` are known to be in pixels of the tensor.
    """

    rows: Rows
    prototypes: Array | None = None
    is_final: bool = True
    is_of_photo: bool = False
    is_scaled: bool = False


class Form(NamedTuple):
    """One form of a detector's outputs.

    Attributes:
        model: Models that have this form.
        outputs: Description of the outputs for one photo.
        read: Function that returns the candidates, or None if the outputs do not have this form.
    """

    model: str
    outputs: str
    read: Callable[[Mapping[str, Array], Given], Found | None]


def read(outputs: Mapping[str, Array], given: Given) -> Found:
    """Return the candidates of the first form that the outputs have.

    Raises:
        PixprepError: The outputs do not have a supported form, their values contradict the form, or the form needs the
            size of the tensor.
    """
    return next(found for form in FORMS if (found := form.read(outputs, given)) is not None)


def _torchvision(outputs: Mapping[str, Array], given: Given) -> Found | None:
    if not {"boxes", "scores"} <= outputs.keys():
        return None
    return Found(_named(outputs), is_of_photo=given.is_of_photo)


def _tensorflow(outputs: Mapping[str, Array], given: Given) -> Found | None:
    names = ("detection_boxes", "detection_scores", "detection_classes", "num_detections")
    if not {*names[:3]} <= outputs.keys():
        return None
    boxes, scores, classes, *count = (outputs[name] for name in names if name in outputs)
    most = int(count[0].ravel()[0]) if count else len(scores)
    corners = _scaled(boxes.reshape(-1, 4)[:most, [1, 0, 3, 2]], given, "detection_boxes")
    found = _rows(corners, scores.ravel()[:most], classes.ravel()[:most], "detection_boxes")
    return found._replace(is_scaled=True)


def _efficient_nms(outputs: Mapping[str, Array], _given: Given) -> Found | None:
    names = ("num_dets", "det_boxes", "det_scores", "det_classes")
    if not {*names} <= outputs.keys():
        return None
    count, boxes, scores, classes = (outputs[name] for name in names)
    most = int(count.ravel()[0])
    return _rows(boxes.reshape(-1, 4)[:most], scores.ravel()[:most], classes.ravel()[:most], "det_boxes")


def _detr(outputs: Mapping[str, Array], given: Given) -> Found | None:
    names = next((pair for pair in _DETR_NAMES if {*pair} <= outputs.keys()), [*outputs])
    boxes = [name for name in names if outputs[name].shape[1:] == (4,) and ("box" in name or name == "dets")]
    logits = [name for name in names if outputs[name].ndim == 2 and ("logit" in name or name == "labels")]
    if len(boxes) != 1 or len(logits) != 1 or len(outputs[boxes[0]]) != len(outputs[logits[0]]):
        return None
    values, places = outputs[logits[0]].astype(np.float64), outputs[boxes[0]].astype(np.float32)
    _check_centers(places, boxes[0])
    is_none = (values.argmax(axis=1) == values.shape[1] - 1) & (values[:, -1] > 0)
    is_softmax = values.shape[1] > 1 and is_none.mean() >= _MOST
    if not is_softmax and values.shape[1] > 1 and (values < 0).mean() < 1 - _MOST / 5:
        raise PixprepError(
            f"{logits[0]} {list(values.shape)} may be logits for softmax, with a class for no object, or for sigmoid: "
            "compute boxes, labels and scores as the package of the model does"
        )
    if is_softmax:
        powers = np.exp(values - values.max(axis=1, keepdims=True))
        scores = (powers / powers.sum(axis=1, keepdims=True))[:, :-1]
        queries, classes = np.arange(len(scores)), scores.argmax(axis=1)
    else:  # a query may have several classes
        scores = 1 / (1 + np.exp(-values))
        best = np.argsort(-scores, axis=None, kind="stable")[: max(len(scores), CANDIDATES)]
        queries, classes = np.unravel_index(best, scores.shape)
    corners = _scaled(convert(places[queries], "cxcywh", "xyxy"), given, boxes[0])
    return _rows(corners, scores[queries, classes], classes, boxes[0])._replace(is_scaled=True)


def _scrfd(outputs: Mapping[str, Array], given: Given) -> Found | None:
    levels: dict[int, dict[int, Array]] = {}
    for array in outputs.values():
        if array.ndim != 2 or array.shape[1] not in (1, 4, 10) or array.shape[1] in levels.get(len(array), {}):
            return None  # YuNet has two arrays [n, 1] per stride, and different formulas
        levels.setdefault(len(array), {})[array.shape[1]] = array
    kinds = {tuple(sorted(level)) for level in levels.values()}
    if len(levels) != len(_STRIDES) or len(kinds) != 1 or kinds not in ({(1, 4)}, {(1, 4, 10)}):
        return None
    size = _sides(given, "boxes of SCRFD are distances from the cells of a grid")[:2]
    parts: list[tuple[Array, Array, Array | None]] = []
    for stride, count in zip(_STRIDES, sorted(levels, reverse=True), strict=True):
        columns, rows = (-(-int(side) // stride) for side in size)
        anchors, rest = divmod(count, columns * rows)
        if rest or not anchors:
            raise PixprepError(
                f"outputs with {count} rows do not match the grid of a tensor of {size[1]:g} x {size[0]:g} pixels at "
                f"stride {stride}: image_size must be the size of the tensor"
            )
        grid = np.stack(np.meshgrid(np.arange(columns), np.arange(rows)), axis=-1).reshape(-1, 2)
        centers = (grid * stride).repeat(anchors, axis=0).astype(np.float32)
        level = levels[count]
        distances = level[4] * np.float32(stride)
        ends = np.sort([centers - distances[:, :2], centers + distances[:, 2:]], axis=0)
        corners = np.concatenate([*ends], axis=1)
        points = level[10].reshape(count, 5, 2) * np.float32(stride) + centers[:, None] if 10 in level else None
        parts.append((corners, level[1][:, 0], points))
    boxes, scores = (np.concatenate([part[index] for part in parts]) for index in (0, 1))
    keypoints = np.concatenate([points for *_, points in parts if points is not None] or [np.zeros((0, 5, 2))])
    found = _rows(boxes, scores, np.zeros(len(boxes)), "SCRFD")
    return Found(found.rows._replace(keypoints=keypoints if len(keypoints) else None), is_final=False)


def _sevens(outputs: Mapping[str, Array], given: Given) -> Found | None:
    """Read rows [n, 7] of one photo: either image, box, class and score, or image, box (y first), score and class."""
    array = _only(outputs)
    if given.task or array is None or array.shape[1] != 7 or (array[:, 0] != array[:1, 0]).any():
        return None
    by_class = _valid(array[:, 1:5], array[:, 6], array[:, 5])
    by_score = _valid(array[:, [2, 1, 4, 3]], array[:, 5], array[:, 6])
    if by_class is not None and by_score is not None and len(array) and by_score.rows.scores.any():
        raise PixprepError(
            "the rows [n, 7] may have the class before the score or after it: pass boxes [n, 4], labels [n] and scores "
            "[n] instead"
        )
    return by_class if by_class is not None else by_score


def _paddle(outputs: Mapping[str, Array], given: Given) -> Found | None:
    """Read rows [n, 6] of class, score and box, and optionally the number of rows."""
    arrays = [array for array in outputs.values() if array.size != 1 or array.ndim == 2]
    counts = [array for array in outputs.values() if array.size == 1 and array.ndim < 2]
    if given.task or len(arrays) != 1 or len(counts) > 1 or arrays[0].ndim != 2 or arrays[0].shape[1] != 6:
        return None
    rows = arrays[0][: int(counts[0].ravel()[0])] if counts else arrays[0]
    if not counts and not rows.any():  # an Ultralytics export may also return only zeros
        return None
    found = _valid(rows[:, 2:], rows[:, 1], rows[:, 0])
    return None if found is None else found._replace(is_of_photo=True)


def _only(outputs: Mapping[str, Array]) -> Array | None:
    """Return the only output of a model if it has two dimensions. Return None for all other models."""
    arrays = [*outputs.values()]
    return arrays[0] if len(arrays) == 1 and arrays[0].ndim == 2 else None


def _valid(boxes: Array, scores: Array, classes: Array) -> Found | None:
    """Return the candidates, or None if they are not valid.

    They are not valid if boxes have their corners in the wrong order, a score is outside the range 0 to 1, or a class
    is not a class index.
    """
    if not (_are_corners(boxes) and _are_scored(scores, classes)):
        return None
    return Found(Rows(boxes.astype(np.float32), scores.astype(np.float32), classes.astype(np.int64)))


def _rows(boxes: Array, scores: Array, classes: Array, name: str) -> Found:
    """Return the candidates. The caller has identified the form by the names or the shapes of the outputs.

    Raises:
        PixprepError: The candidates are not valid.
    """
    found = _valid(boxes, scores, classes)
    if found is None:
        what = "boxes as corners (xyxy), but some boxes have right < left or bottom < top"
        if not _are_scored(scores, classes):
            what = "scores from 0 to 1, and class indices"
        raise PixprepError(f"unsupported outputs ({name}): expected {what}")
    return found


def _sides(given: Given, why: str) -> F32:
    """Return the width and height of the tensor, twice.

    Raises:
        PixprepError: They are not known.
    """
    if given.size is None:
        raise PixprepError(
            f'{why}, so the size of the tensor is needed: add {{"op": "image_size"}} before tensor, after all other ops'
        )
    return np.tile(np.array(given.size[::-1], np.float32), 2)


def _scaled(boxes: F32, given: Given, name: str) -> F32:
    """Convert normalized corners (n, 4) to pixels of the tensor.

    Raises:
        PixprepError: The boxes are not normalized, or the size of the tensor is not known.
    """
    sides = _sides(given, f"{name} are normalized")
    ends = boxes[boxes.any(axis=1), 2:]
    if len(ends) and np.median(ends) > MAX_NORMALIZED:
        raise PixprepError(
            f"unsupported outputs ({name}): expected normalized boxes, but the maximum coordinate is {boxes.max():g}"
        )
    return boxes * sides


def _check_centers(boxes: F32, name: str) -> None:
    """Raise a PixprepError if boxes (n, 4) that should be cxcywh seem to be corners.

    Corners satisfy x1 <= x2 and y1 <= y2, but few boxes satisfy cx <= w and cy <= h. Boxes are rejected if all of them
    satisfy these conditions, and if many of them, interpreted as cxcywh, would begin or end clearly outside of the
    image.
    """
    begins, ends = boxes[:, :2] - boxes[:, 2:] / 2, boxes[:, :2] + boxes[:, 2:] / 2
    side = boxes.max(initial=0)
    is_outside = ((begins < -0.1 * side) | (ends > 1.1 * side)).any(axis=1)
    if len(boxes) >= _MANY and are_ordered(boxes).all() and is_outside.mean() >= _MIN_OUTSIDE:
        raise PixprepError(
            f"unsupported outputs ({name}): expected the center and the size of each box (cxcywh), not corners (xyxy)"
        )


def _named(outputs: Mapping[str, Array]) -> Rows:
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
        (boxes.shape != (count, 4) or not _are_corners(boxes), "boxes [n, 4]: left, top, right, bottom"),
        (count < 0 or not ((scores >= 0) & (scores <= 1)).all(), "scores [n] of 0 to 1"),
        (labels is not None and (labels.shape != (count,) or labels.dtype.kind not in "iu"), "labels [n], integers"),
        (labels is not None and labels.min(initial=0) < PADDING, "labels of at least 0, or -1 in padding rows"),
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
    return Rows(boxes.astype(np.float32), scores.astype(np.float32), classes, points, masks)


def are_normalized(boxes: Array) -> bool:
    """Return whether boxes (n, 4) seem to be normalized. Boxes that are all 0 are empty rows."""
    return bool(0 < boxes.max(initial=0) <= MAX_NORMALIZED and boxes.min() >= 1 - MAX_NORMALIZED)


def are_ordered(boxes: Array) -> npt.NDArray[np.bool_]:
    """Return for each of the boxes (n, 4) whether left <= right and top <= bottom."""
    ordered: npt.NDArray[np.bool_] = (boxes[:, :2] <= boxes[:, 2:4]).all(axis=1)
    return ordered


def _are_scored(scores: Array, classes: Array) -> bool:
    """Return whether all scores are from 0 to 1, and all classes are class indices or ``PADDING``."""
    are_classes = (classes == classes.round()) & (classes >= PADDING)
    return bool(((scores >= 0) & (scores <= 1)).all() and are_classes.all())


def _are_corners(boxes: Array) -> bool:
    """Return whether boxes (n, 4) are corners, xyxy, except for a few faulty boxes."""
    return not len(boxes) or bool((~are_ordered(boxes)).mean() <= _MAX_FAULTY)


def _miss_centers(boxes: Array, masks: Array) -> bool:
    """Return whether the center of any box (n, 4) is outside of the masks (n, height, width).

    This is the case for masks that only cover their box instead of the whole tensor.
    """
    middles = (boxes[:, :2] + boxes[:, 2:]) / 2
    return bool((middles > masks.shape[:0:-1]).any())


def _ultralytics(outputs: Mapping[str, Array], given: Given) -> Found:
    task, keypoints = given.task, given.keypoints
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
        if not is_finished and task != "obb":
            boxes = convert(boxes, "cxcywh", "xyxy")
        is_known = (task == "obb" or _are_corners(boxes)) and _are_scored(scores, classes)
    if not is_known or (task == "pose" and extra % dims):
        raise PixprepError(
            f"the output of shape {list(output.shape)} does not contain boxes and scores from 0 to 1 for the task "
            f"{task}: pass the task of the export (pose for YOLO-pose, obb for YOLO-obb, segment for YOLO-seg); for "
            "other detectors, decode the outputs as their package does"
        )
    if not is_finished and task != "obb":
        _check_centers(fields[:4].T, f"{list(output.shape)}")
    if is_open and not is_finished and len(middle) > 1 and (middle[-1] >= _LOW_SCORE).mean() > 0.5:
        raise PixprepError(
            f"the last row of {list(output.shape)} may contain scores of a class or angles of rotated boxes: pass "
            'task="detect" or task="obb"'
        )
    rows = Rows(boxes, scores, classes.astype(np.int64))
    if task == "obb":
        rows = rows._replace(boxes=np.concatenate([boxes, rest], axis=1))
    elif task == "pose":
        rows = rows._replace(keypoints=rest.reshape(len(rest), -1, dims))
    elif task == "segment":
        rows = rows._replace(weights=rest)
    return Found(rows, prototypes[0] if prototypes else None, is_final=is_finished)


FORMS = (
    Form(
        "torchvision; RT-DETR and D-FINE with `orig_target_sizes`",
        "`boxes` [n, 4], `scores` [n]; `labels` [n], `keypoints` [n, k, 2 or 3], `masks` [n, h, w]",
        _torchvision,
    ),
    Form(
        "TensorFlow, EfficientDet-Lite",
        "`detection_boxes` [n, 4], `detection_scores` [n], `detection_classes` [n]; `num_detections`",
        _tensorflow,
    ),
    Form(
        "EfficientNMS of TensorRT",
        "`det_boxes` [n, 4], `det_scores` [n], `det_classes` [n], `num_dets`",
        _efficient_nms,
    ),
    Form(
        "DETR, RT-DETR, RF-DETR, Deformable DETR", "`pred_boxes` [n, 4], `logits` [n, classes], or similar names", _detr
    ),
    Form("SCRFD", "for each of three strides: scores [n, 1], distances [n, 4]; keypoints [n, 10]", _scrfd),
    Form(
        "YOLO with NMS, EfficientDet",
        "[n, 7]: image, box, class, score; or image, box (y first), score, class",
        _sevens,
    ),
    Form("PaddleDetection", "[n, 6]: class, score, box in pixels of the photo; number of rows", _paddle),
    Form("Ultralytics", "[4 + classes, n], or [n, 6]: box, score, class; with the values of a task", _ultralytics),
)
"""Supported forms of the outputs. The first form that the outputs have is used."""
