"""Boxes and points: their formats, from a photo to its tensor and back, and an annotation moved with its image.

Coordinates are continuous: x to the right, y down; the image begins at (0, 0) and ends at (width, height), and the
centre of its first pixel is (0.5, 0.5). A box is four numbers, in a format that says which:

==========  =====================================================
``xyxy``    left, top, right, bottom; right and bottom are its end
``xywh``    left, top, width, height (COCO)
``cxcywh``  x and y of its centre, width, height (YOLO)
==========  =====================================================

The way back is by the numbers of the ``transform`` output. Arrays may be of any number type, and are not changed.
Results are new float32 arrays, worked out in float64. Leading dimensions are kept: boxes (n, 4) of one image, or
(batch, n, 4) with a transform (batch, 4).

>>> import numpy as np
>>> found = np.array([[160.0, 240.0, 320.0, 400.0]])  # in a letterbox of 640 x 640
>>> boxes_to_original(found, [0.5, 0.5, 80, 0], [960, 1280])
array([[320., 320., 640., 640.]], dtype=float32)
"""

# ruff: noqa: A002  (`format` is what the formats of boxes are called everywhere)

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, get_args

import numpy as np
import numpy.typing as npt

from pixprep.draws.windows import IouCrop
from pixprep.errors import ImageError, PipelineError, PixprepError
from pixprep.masks import labels, laid
from pixprep.plan.output_plans import AnnotationPlan, BoxesPlan, MaskPlan, PointsPlan
from pixprep.plan.placement import Placement, moved
from pixprep.plan.plan import Placed, Plan
from pixprep.spec import BoxFormat
from pixprep.steps import levels

Numbers = npt.ArrayLike
F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

OF_EACH_BOX = ("labels", "ids", "area", "iscrowd", "difficult", "truncated", "visible", "points")
"""The fields of a sample that have a value for each box, and follow it; those of other names begin with ``box_``."""
_WHOLE = 1 - 1e-6
"""Tolerance of ``min_visible``: a box is seen as a whole, up to rounding."""
_NO_ROW = -1


def boxes_to_original(
    boxes: Numbers, transform: Numbers, original_size: Numbers | None = None, *, format: BoxFormat = "xyxy"
) -> F32:
    """Boxes in tensor pixels as boxes in the pixels of the decoded photo: ``(box - offset) / scale``.

    Args:
        boxes: (..., n, 4), in ``format``.
        transform: (4,) or (..., 4): ``[scale_y, scale_x, offset_y, offset_x]``, the ``transform`` output.
        original_size: (2,) or (..., 2): ``[height, width]``, the ``original_size`` output; boxes are clipped to it.
            None: a box may reach over the photo's edge.
        format: of the boxes and of the result.

    Returns:
        float32 (..., n, 4). A box of an image that was flipped has its corners in order again.

    Raises:
        PixprepError: a shape or a format is wrong; a scale is 0.
    """
    corners = _to_corners(_array("boxes", boxes, 4), format)
    scale, offset = _transform(transform)
    corners = _in_order((corners - _twice(offset)) / _twice(scale))
    if original_size is not None:
        corners = _clipped(corners, original_size)
    return _from_corners(corners, format).astype(np.float32)


def boxes_to_tensor(boxes: Numbers, transform: Numbers, *, format: BoxFormat = "xyxy") -> F32:
    """Boxes in the pixels of the decoded photo as boxes in tensor pixels: ``box * scale + offset``.

    A box may reach over the tensor's edge, where the photo was cropped: see ``clip``.

    Args:
        boxes: (..., n, 4), in ``format``.
        transform: (4,) or (..., 4): ``[scale_y, scale_x, offset_y, offset_x]``, the ``transform`` output.
        format: of the boxes and of the result.

    Returns:
        float32 (..., n, 4), the corners in order.

    Raises:
        PixprepError: a shape or a format is wrong; a scale is 0.
    """
    scale, offset = _transform(transform)
    corners = _to_corners(_array("boxes", boxes, 4), format) * _twice(scale) + _twice(offset)
    return _from_corners(_in_order(corners), format).astype(np.float32)


def points_to_original(points: Numbers, transform: Numbers) -> F32:
    """Points (x, y) in tensor pixels in the pixels of the decoded photo: keypoints, corners of oriented boxes.

    Args:
        points: (..., n, 2): x, y.
        transform: (4,) or (..., 4), see ``boxes_to_original``.

    Returns:
        float32 (..., n, 2).

    Raises:
        PixprepError: a shape is wrong; a scale is 0.
    """
    scale, offset = _transform(transform)
    return ((_array("points", points, 2) - offset) / scale).astype(np.float32)


def points_to_tensor(points: Numbers, transform: Numbers) -> F32:
    """Points (x, y) of the decoded photo in tensor pixels; as ``points_to_original``, the other way."""
    scale, offset = _transform(transform)
    return (_array("points", points, 2) * scale + offset).astype(np.float32)


def convert(boxes: Numbers, source: BoxFormat, target: BoxFormat) -> F32:
    """Boxes (..., 4) of one format in another.

    Raises:
        PixprepError: a shape or a format is wrong.
    """
    return _from_corners(_to_corners(_array("boxes", boxes, 4), source), target).astype(np.float32)


def clip(boxes: Numbers, size: Numbers, *, format: BoxFormat = "xyxy") -> F32:
    """Boxes cut off at the edges of an image; one that lies outside becomes empty, at the edge.

    Args:
        boxes: (..., n, 4), in ``format``.
        size: (2,) or (..., 2): height and width of the image, in the unit of the boxes.
        format: of the boxes and of the result.

    Raises:
        PixprepError: a shape or a format is wrong.
    """
    corners = _clipped(_to_corners(_array("boxes", boxes, 4), format), size)
    return _from_corners(corners, format).astype(np.float32)


def normalize(boxes: Numbers, size: Numbers) -> F32:
    """Boxes (..., n, 4) of any format in shares of the image, 0 to 1, where they were in pixels.

    Args:
        boxes: see above.
        size: (2,) or (..., 2): height and width of the image they lie in.

    Raises:
        PixprepError: a shape is wrong; a side is 0.
    """
    return (_array("boxes", boxes, 4) / _sides(size)).astype(np.float32)


def denormalize(boxes: Numbers, size: Numbers) -> F32:
    """Boxes (..., n, 4) of any format in pixels, where they were in shares of the image; see ``normalize``."""
    return (_array("boxes", boxes, 4) * _sides(size)).astype(np.float32)


def annotated(plan: Plan, placed: Placed, sample: Mapping[str, Any]) -> dict[str, Any]:
    """Apply a plan to one sample's annotation, which lies in its image as ``placed`` says.

    Returns:
        By name: boxes float32 (n, 4), points float32 (n, 2) or (n, k, 2), masks, and what is said of each box that is
        left.
    """
    if not plan.annotations:
        return {}
    results: dict[str, Any] = {}
    moves = moving(plan)
    kept: Bools | None = None
    pad: int | None = None
    for name, output in plan.annotations.items():
        if isinstance(output, BoxesPlan):
            boxes = read_field(sample, "boxes", 4)
            results[name], kept = _boxes(output, placed, name, boxes.astype(np.float64))
            pad = output.pad
    for field in sample:
        if kept is not None and (field in OF_EACH_BOX or field.startswith("box_")):
            values = np.asarray(sample[field])
            if values.ndim == 0 or len(values) != len(kept):
                count = "one" if values.ndim == 0 else len(values)
                raise ImageError("BAD_RECORD", f'{count} of "{field}" for {len(kept)} boxes')
            if field not in plan.annotations and field not in moves:
                results[field] = values[kept]
    for name, output in plan.annotations.items():
        if isinstance(output, PointsPlan):
            points = read_field(sample, "points", 2)
            order = _order(output, placed.placements[name], points, of_boxes=kept is not None)
            if output.flip_pairs and "visible" in sample:
                visible = np.asarray(results.get("visible", sample["visible"]))
                if points.size and visible.shape[-1:] != points.shape[-2:-1]:
                    raise ImageError("BAD_RECORD", f'"visible" are {visible.shape}, and "points" {points.shape}')
                results["visible"] = visible[..., order]
            points = points[..., order, :]
            results[name] = _points(output, placed.placements[name], points if kept is None else points[kept])
            results[name] = _padded(results[name], output.pad, name)
    results = {
        name: values if name in _points_of(plan) else _padded(values, pad, name) for name, values in results.items()
    }
    for name, output in plan.annotations.items():
        if isinstance(output, MaskPlan):
            mask = labels(
                output,
                sample,
                partial(check_size, height=placed.height, width=placed.width, is_upright=plan.apply_exif_orientation),
            )
            if output.field == "masks" and kept is not None:
                if len(mask) != len(kept):
                    raise ImageError("BAD_RECORD", f'{len(mask)} of "masks" for {len(kept)} boxes')
                mask = mask[kept]
            mask = laid(output, placed.placements[name], mask)
            if output.field == "masks" and pad is not None:  # boxes has refused more
                mask = np.concatenate([mask, np.zeros((pad - len(mask), *mask.shape[1:]), mask.dtype)])
            results[name] = mask
    return results


def moving(plan: Plan) -> tuple[str, ...]:
    """The fields of a sample that the plan's ops take: an op's ``name`` may give the result another name."""
    return tuple(dict.fromkeys(_field(each) for each in plan.annotations.values()))


def columns(plan: Plan, made: Sequence[Mapping[str, Any] | None]) -> dict[str, Any]:
    """The annotations of a batch by name: for each image its array, or all in one array where the plan pads.

    Args:
        plan: which made them.
        made: of each image what ``annotated`` gave; None: it has no result. Its rows are -1 where the plan pads, as
            those of a field are that only other samples have.
    """
    names = dict.fromkeys(name for each in made if each is not None for name in each)
    result: dict[str, Any] = {}
    for name in names:
        values = [None if each is None else each.get(name) for each in made]
        result[name] = values
        missing = _missing(plan, name)
        if missing is not None:
            some = next(value for value in values if value is not None)
            result[name] = np.stack([np.full_like(some, missing) if value is None else value for value in values])
    return result


def check_size(annotated_size: Sequence[int] | None, height: int, width: int, *, is_upright: bool) -> None:
    """Refuse an image that has not the size that its annotation was made for.

    Raises:
        ImageError: BAD_RECORD, with a hint where the image was turned by its EXIF data, or was not.
    """
    if annotated_size is None or tuple(annotated_size) == (height, width):
        return
    hint = ""
    if tuple(annotated_size) == (width, height):
        hint = f': turned by its EXIF data? then decode needs "apply_exif_orientation": {str(not is_upright).lower()}'
    raise ImageError(
        "BAD_RECORD",
        f"{height} x {width} pixels, but annotated as {annotated_size[0]} x {annotated_size[1]}{hint}",
    )


def read_field(sample: Mapping[str, Any], name: str, last: int) -> F32:
    """A field of the annotation: float32 (n, …, last).

    Raises:
        PipelineError: the sample has none.
        ImageError: BAD_RECORD.
    """
    if name not in sample:
        raise PipelineError(f'the pipeline gives {name}, and the samples of its source have no "{name}"')
    try:
        values: F32 = np.asarray(sample[name], np.float32)
    except (TypeError, ValueError):
        raise ImageError("BAD_RECORD", f'"{name}" are not numbers') from None
    if values.size == 0 and values.ndim < 2:
        values = values.reshape(0, last)
    if values.ndim < 2 or values.shape[-1] != last or (name == "boxes" and values.ndim != 2):
        raise ImageError("BAD_RECORD", f'"{name}" are (n, {last}), not {values.shape}')
    if not np.isfinite(values).all():
        raise ImageError("BAD_RECORD", f'a number of "{name}" is not finite')
    if name == "boxes" and (values[:, 2:] < values[:, :2]).any():
        raise ImageError("BAD_RECORD", 'one of "boxes" ends before it begins: they are left, top, right, bottom')
    return values


def _boxes(plan: BoxesPlan, placed: Placed, name: str, boxes: F64) -> tuple[F32, Bools]:
    """The boxes that are left, in the form of the plan; and which these are."""
    placement = placed.placements[name]
    whole = moved(boxes, placement.transform)
    left, top, right, bottom = _seen(placement)
    seen = whole.clip((left, top, left, top), (right, bottom, right, bottom))
    kept: Bools = (_extent(seen) > 0).all(axis=1)
    for matrix, (height, width) in levels.motions(placement.levels, *placement.canvas):
        whole, seen = _around(whole, matrix), _around(seen, matrix).clip(0, (width, height, width, height))
        kept &= (_extent(seen) > 0).all(axis=1)
    sides = _extent(seen)
    area, of = sides.prod(axis=1), np.abs(_extent(whole)).prod(axis=1)
    kept &= (sides >= plan.min_size).all(axis=1)
    kept &= area >= plan.min_visible * _WHOLE * of
    for step in plan.geometry.random_steps:
        if isinstance(step, IouCrop):
            kept &= placed.kept[step.key]
    result = _from_corners((seen if plan.clips else whole)[kept], plan.format)
    if plan.is_normalized:
        height, width = placement.size
        result = result / (width, height, width, height)
    return result.astype(np.float32), kept


def _order(
    plan: PointsPlan, placement: Placement, points: F32, *, of_boxes: bool
) -> npt.NDArray[np.intp] | slice[None, None, None]:
    """The order of an object's keypoints after the mirrors of its image.

    Raises:
        ImageError: BAD_RECORD: it has not the keypoints that ``flip_pairs`` names.
    """
    if not plan.flip_pairs or not points.size:
        return slice(None)
    pairs, count = np.array(plan.flip_pairs), points.shape[-2]
    if pairs.max() >= count or (of_boxes and points.ndim < 3):
        rows = " for each box" * of_boxes
        raise ImageError(
            "BAD_RECORD", f'"points" are {points.shape}: "flip_pairs" wants {pairs.max() + 1} or more{rows}'
        )
    order = np.arange(count)
    if np.linalg.det(placement.matrix) < 0:
        order[pairs] = pairs[:, ::-1]
    return order


def _points(plan: PointsPlan, placement: Placement, points: F32) -> F32:
    result = _carried(points.astype(np.float64), placement.matrix)
    if plan.clips:
        seen = np.array([_seen(placement)])
        for matrix, (height, width) in levels.motions(placement.levels, *placement.canvas):
            seen = _around(seen, matrix).clip(0, (width, height, width, height))
        result = result.clip(seen[0, :2], seen[0, 2:])
    if plan.is_normalized:
        result = result / placement.size[::-1]
    return result.astype(np.float32)


def _carried(points: F64, matrix: F64) -> F64:
    """Points (..., 2) after a motion."""
    (a, b, c), (d, e, f), (g, h, i) = matrix.tolist()
    x, y = points[..., 0], points[..., 1]
    carried: F64 = np.stack([a * x + b * y + c, d * x + e * y + f], axis=-1) / (g * x + h * y + i)[..., None]
    return carried


def _around(boxes: F64, matrix: F64) -> F64:
    """The boxes around boxes (n, 4) after a motion: from the least to the largest x and y of their four corners."""
    corners = _carried(boxes[:, [[0, 1], [2, 1], [2, 3], [0, 3]]], matrix)
    return np.concatenate([corners.min(axis=1), corners.max(axis=1)], axis=1)


def _seen(placement: Placement) -> tuple[float, float, float, float]:
    """(left, top, right, bottom) of what the canvas shows of the image, before its steps of ``levels``."""
    region, at = placement.region, placement.at
    top, left, bottom, right = placement.box
    (inner,) = moved(np.array([[left, top, right, bottom]], np.float64), placement.transform).tolist()
    last = at[1] + region[3] - region[1], at[0] + region[2] - region[0]
    return max(inner[0], at[1]), max(inner[1], at[0]), min(inner[2], last[0]), min(inner[3], last[1])


def _padded(values: npt.NDArray[Any], pad: int | None, name: str) -> npt.NDArray[Any]:
    if pad is None:
        return values
    if len(values) > pad:
        raise ImageError("DOES_NOT_FIT", f'{len(values)} of "{name}"; the pipeline says "pad": {pad}')
    if values.dtype.kind in "bu":
        values = values.astype(np.int64)
    rows = np.full((pad - len(values), *values.shape[1:]), _NO_ROW, values.dtype)
    return np.concatenate([values, rows])


def _points_of(plan: Plan) -> list[str]:
    return [name for name, each in plan.annotations.items() if isinstance(each, PointsPlan)]


def _missing(plan: Plan, name: str) -> int | None:
    """The value of an image without a result, where all images are one array; None where they are a list."""
    own: AnnotationPlan | None = plan.annotations.get(name)
    pad = next((each.pad for each in plan.annotations.values() if isinstance(each, BoxesPlan)), None)
    if isinstance(own, MaskPlan):
        return own.ignore if own.is_one_size and (own.field == "mask" or pad is not None) else None
    return None if (pad if own is None else own.pad) is None else _NO_ROW


def _field(plan: AnnotationPlan) -> str:
    """The field of a sample that an op takes."""
    if isinstance(plan, MaskPlan):
        return plan.field
    return "boxes" if isinstance(plan, BoxesPlan) else "points"


def _array(name: str, values: Numbers, last: int) -> F64:
    """Convert to float64, and check the last dimension; an empty list is no boxes."""
    array = np.asarray(values, np.float64)
    if array.shape == (0,):
        array = array.reshape(0, last)
    if not array.ndim or array.shape[-1] != last:
        raise PixprepError(f"{name} have the shape {list(array.shape)}: the last dimension must be {last}")
    return array


def _transform(transform: Numbers) -> tuple[F64, F64]:
    """Scale and offset, each (..., 1, 2) in the order x, y."""
    array = _array("the numbers of a transform", transform, 4)[..., None, :]
    scale, offset = array[..., 1::-1], array[..., 3:1:-1]
    if not np.isfinite(array).all() or not scale.all():
        raise PixprepError(f"the transform {np.asarray(transform).tolist()} has a scale of 0, or no number")
    return scale, offset


def _sides(size: Numbers) -> F64:
    """(..., 1, 4): width, height, width, height."""
    array = _array("height and width", size, 2)
    if not (array > 0).all():
        raise PixprepError(f"the size {np.asarray(size).tolist()} has a side that is not over 0")
    return _twice(array[..., None, ::-1])


def _twice(pair: F64) -> F64:
    """(..., 2) as (..., 4): for both corners."""
    return np.concatenate([pair, pair], axis=-1)


def _clipped(corners: F64, size: Numbers) -> F64:
    clipped: F64 = np.clip(corners, 0.0, _sides(size))
    return clipped


def _in_order(corners: F64) -> F64:
    first, last = corners[..., :2], corners[..., 2:]
    return np.concatenate([np.minimum(first, last), np.maximum(first, last)], axis=-1)


def _to_corners(boxes: F64, format: BoxFormat) -> F64:
    _check(format)
    first, second = boxes[..., :2], boxes[..., 2:]
    if format == "xyxy":
        return boxes
    if format == "xywh":
        return np.concatenate([first, first + second], axis=-1)
    return np.concatenate([first - second / 2, first + second / 2], axis=-1)


def _from_corners(corners: F64, format: BoxFormat) -> F64:
    _check(format)
    first, last = corners[..., :2], corners[..., 2:]
    if format == "xyxy":
        return corners
    sides = last - first
    return np.concatenate([first if format == "xywh" else first + sides / 2, sides], axis=-1)


def _check(format: Any) -> None:
    if format not in get_args(BoxFormat):
        raise PixprepError(f'no format of boxes "{format}"; there are {", ".join(get_args(BoxFormat))}')


def _extent(corners: F64) -> F64:
    """(..., 2): width and height."""
    return corners[..., 2:] - corners[..., :2]
