"""Boxes and points of a sample, moved with its image. The way back is in ``coordinates``.

Boxes are xyxy (left, top, right, bottom), points x before y, in pixels: x to the right, y down, the centre of the first
pixel is (0.5, 0.5).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from pixprep.draws.philox import F64
from pixprep.draws.windows import IouCrop
from pixprep.errors import ImageError, PipelineError
from pixprep.plan.placement import Placement, moved
from pixprep.plan.plan import AnnotationPlan, BoxesPlan, Place, Placed, Plan, PointsPlan
from pixprep.spec import BoxFormat
from pixprep.steps import levels

F32 = npt.NDArray[np.float32]
Bools = npt.NDArray[np.bool_]

OF_EACH_BOX = ("labels", "ids", "area", "iscrowd", "difficult", "truncated", "visible", "points")
"""The fields of a sample that have a value for each box, and follow it; those of other names begin with ``box_``."""
_WHOLE = 1 - 1e-6
"""Of ``min_visible``: a box is seen as a whole, up to rounding."""
_NO_ROW = -1


class Annotated:
    """The place of one sample, that moves the sample's annotation with its image.

    Called with the height and width of the decoded image, as any ``place``; an ImageError of the annotation is then
    that image's, as one of its pixels would be.

    Args:
        plan: says where boxes and points lie, and in what form they come.
        place: of ``plan.placing``.
        sample: ``size`` (height, width) as annotated, ``boxes``, ``points`` and what is said of each box, if it has
            them.

    Attributes:
        fields: after the call, what the plan makes of the annotation: its outputs, and what follows the boxes.

    Raises:
        ImageError: BAD_RECORD: the annotation is of an image of another size, or contradicts itself; DOES_NOT_FIT:
            there are more rows than ``pad``, or what ``place`` raises.
        PipelineError: an output of the plan is to be made of a field that the sample lacks.
    """

    def __init__(self, plan: Plan, place: Place, sample: Mapping[str, Any]) -> None:
        self._plan, self._place, self._sample = plan, place, sample
        self.fields: dict[str, Any] = {}

    def __call__(self, height: int, width: int) -> Placed:
        """See above."""
        check_size(self._sample.get("size"), height, width, is_upright=self._plan.apply_exif_orientation)
        if "boxes" in self._sample and "boxes" not in self._plan.inputs:
            read_field(self._sample, "boxes", 4)  # random_iou_crop reads them first
        placed = self._place(height, width)
        self.fields = annotated(self._plan, placed, self._sample)
        return placed


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


def annotated(plan: Plan, placed: Placed, sample: Mapping[str, Any]) -> dict[str, Any]:
    """What a plan makes of one sample's annotation; see ``Annotated``.

    Returns:
        By name: boxes float32 (n, 4), points float32 (n, 2) or (n, k, 2), and the fields of each box that is left.
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
    return {
        name: values if name in _points_of(plan) else _padded(values, pad, name) for name, values in results.items()
    }


def moving(plan: Plan) -> tuple[str, ...]:
    """The fields of a sample that the plan's ops take: an op's ``name`` may give the result another name."""
    kinds = {type(each) for each in plan.annotations.values()}
    return tuple(field for field, kind in (("boxes", BoxesPlan), ("points", PointsPlan)) if kind in kinds)


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
        if _pad_of(plan, name) is not None:
            some = next(value for value in values if value is not None)
            result[name] = np.stack([np.full_like(some, _NO_ROW) if value is None else value for value in values])
    return result


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
    kept: Bools = (_sides(seen) > 0).all(axis=1)
    for matrix, (height, width) in levels.motions(placement.levels, *placement.canvas):
        whole, seen = _around(whole, matrix), _around(seen, matrix).clip(0, (width, height, width, height))
        kept &= (_sides(seen) > 0).all(axis=1)
    sides = _sides(seen)
    area, of = sides.prod(axis=1), np.abs(_sides(whole)).prod(axis=1)
    kept &= (sides >= plan.min_size).all(axis=1)
    kept &= area >= plan.min_visible * _WHOLE * of
    for step in plan.geometry.random_steps:
        if isinstance(step, IouCrop):
            kept &= placed.kept[step.key]
    result = _formed((seen if plan.clips else whole)[kept], plan.format)
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
    a, b, _, d, e, _ = placement.matrix
    order = np.arange(count)
    if a * e < b * d:
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


def _carried(points: F64, matrix: levels.Matrix) -> F64:
    """Points (..., 2) after a motion."""
    a, b, c, d, e, f = matrix
    x, y = points[..., 0], points[..., 1]
    return np.stack([a * x + b * y + c, d * x + e * y + f], axis=-1)


def _around(boxes: F64, matrix: levels.Matrix) -> F64:
    """The boxes around boxes (n, 4) after a motion: from the least to the largest x and y of their four corners."""
    corners = _carried(boxes[:, [[0, 1], [2, 1], [2, 3], [0, 3]]], matrix)
    return np.concatenate([corners.min(axis=1), corners.max(axis=1)], axis=1)


def _sides(boxes: F64) -> F64:
    """(n, 2): width and height."""
    return boxes[:, 2:] - boxes[:, :2]


def _seen(placement: Placement) -> tuple[float, float, float, float]:
    """(left, top, right, bottom) of what the canvas shows of the image, before its steps of ``levels``."""
    region, at = placement.region, placement.at
    top, left, bottom, right = placement.box
    (inner,) = moved(np.array([[left, top, right, bottom]], np.float64), placement.transform).tolist()
    last = at[1] + region[3] - region[1], at[0] + region[2] - region[0]
    return max(inner[0], at[1]), max(inner[1], at[0]), min(inner[2], last[0]), min(inner[3], last[1])


def _formed(boxes: F64, form: BoxFormat) -> F64:
    """Boxes xyxy in another form."""
    if form == "xyxy":
        return boxes
    first, sides = boxes[:, :2], boxes[:, 2:] - boxes[:, :2]
    return np.concatenate([first + sides / 2 if form == "cxcywh" else first, sides], axis=1)


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


def _pad_of(plan: Plan, name: str) -> int | None:
    """The rows of an annotation: its own, or those of the boxes that it belongs to."""
    own: AnnotationPlan | None = plan.annotations.get(name)
    if own is not None:
        return own.pad
    return next((each.pad for each in plan.annotations.values() if isinstance(each, BoxesPlan)), None)
