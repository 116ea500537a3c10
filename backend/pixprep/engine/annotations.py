"""Read the annotation of a sample (boxes, points and masks), and transform it together with the image.

Each pixel of a transformed mask contains the label of one pixel of the decoded image. Pixels outside the image contain
the ``ignore`` label.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Literal, cast

import numpy as np
import numpy.typing as npt

from pixprep.engine.kernels.distortions import displaced_boxes, displaced_points
from pixprep.engine.kernels.levels import apply_steps
from pixprep.engine.kernels.resampling import axes
from pixprep.engine.targets import target_of, transformed
from pixprep.errors import ImageError, PipelineError
from pixprep.plan.boxes import F32, F64, Shares, around, carried, check_place, from_corners
from pixprep.plan.folding import Geometry
from pixprep.plan.output_plans import NO_ROW, BoxesPlan, MaskPlan, PointsPlan, TargetPlan
from pixprep.plan.placement import NO_MARGINS, Placement, moved
from pixprep.plan.plan import Mask, Placed, Plan
from pixprep.plan.profiles import PROFILES, Method, Profile
from pixprep.plan.steps import levels
from pixprep.plan.steps.warps import Warp

Bools = npt.NDArray[np.bool_]
Labels = npt.NDArray[Any]

_ROUNDING = 1 - 1e-6
"""Factor of ``min_visible`` that tolerates rounding errors, for example for boxes that are completely visible."""
_NEAREST = Method("nearest", antialias=False)


def annotated(plan: Plan, placed: Placed, sample: Mapping[str, Any], boxes: F32 | None = None) -> dict[str, Any]:
    """Transform the annotations of one sample in the same way as its image.

    Args:
        plan: Plan of the pipeline.
        placed: Placement of the image in every output.
        sample: Fields of the sample.
        boxes: Result of ``read_boxes``, if it was already called.

    Returns:
        Results by name: boxes as float32 (n, 4), points as float32 (n, 2) or (n, k, 2), masks, and the fields of the
        remaining boxes, such as labels.
    """
    if not plan.annotations:
        return {}
    plan = plan.of(placed)
    results: dict[str, Any] = {}
    kept: Bools | None = None
    pad: int | None = None
    own = None
    for name, own in plan.boxes.items():
        boxes = read_boxes(sample, placed.height, placed.width) if boxes is None else boxes
        results[name], kept = _boxes(own, placed, name, boxes.astype(np.float64))
        pad = own.pad
    for field in sample:
        if own is not None and kept is not None and own.takes_along(field):
            values = of_each_box(field, sample[field])
            if values.ndim == 0 or len(values) != len(kept):
                size = "is a single value" if values.ndim == 0 else f"has {len(values)} rows"
                raise ImageError("BAD_RECORD", f'"{field}" {size}, but "boxes" has {len(kept)} rows')
            if field not in plan.annotations and field not in plan.moving:
                results[field] = values[kept]
    for name, output in plan.points.items():
        points = read_field(sample, "points", 2)
        order = _order(output, placed.placements[name], points, of_boxes=kept is not None)
        if output.flip_pairs and "visible" in sample:
            visible = np.asarray(results.get("visible", sample["visible"]))
            if points.size and visible.shape[-1:] != points.shape[-2:-1]:
                shapes = f'"visible" has the shape {visible.shape}, and "points" has {points.shape}'
                raise ImageError("BAD_RECORD", f"{shapes}: both must have the same number of points")
            results["visible"] = visible[..., order]
        points = points[..., order, :]
        results[name] = _points(output, placed.placements[name], points if kept is None else points[kept])
        results[name] = _padded(results[name], output.pad, name)
    results = {name: values if name in plan.points else _padded(values, pad, name) for name, values in results.items()}
    check = partial(check_size, height=placed.height, width=placed.width, is_upright=plan.apply_exif_orientation)
    for name, masks in plan.masks.items():
        mask = _mask(masks, sample, check)
        if masks.field == "masks" and kept is not None:
            if len(mask) != len(kept):
                raise ImageError("BAD_RECORD", f'"masks" has {len(mask)} rows, but "boxes" has {len(kept)} rows')
            mask = mask[kept]
        mask = _transformed(masks, placed.placements[name], mask)
        if masks.field == "masks" and pad is not None:  # more than ``pad`` boxes were rejected above
            mask = np.concatenate([mask, np.zeros((pad - len(mask), *mask.shape[1:]), mask.dtype)])
        results[name] = mask
    for name, target in plan.targets.items():
        with _naming(target.field):
            values = target_of(target, _field(sample, target.field), check)
        results[name] = transformed(target, placed.placements[name], values, _transformed)
    return results


def mask_of(plan: Plan, sample: Mapping[str, Any]) -> Mask | None:
    """Return a function that computes the labels of a sample's pixels on a canvas. Random ops require it.

    The labels are the values of the field ``mask``. If the sample has only ``masks``, the label is 1 for pixels of
    objects, and 0 for all other pixels.

    Returns:
        The function, or None if no op of the plan depends on the labels.
    """
    if "mask" not in plan.sees:
        return None
    field: Literal["mask", "masks"] = "mask" if sample.get("mask") is not None else "masks"
    own = next((each for each in plan.masks.values() if each.field == field), None)

    def labels(geometry: Geometry, placement: Placement, size: tuple[int, int]) -> Labels:
        dtype, ignore = (own.dtype, own.ignore) if own is not None else ("int64", 255 if field == "mask" else 0)
        output = MaskPlan(geometry=geometry, field=field, dtype=dtype, ignore=ignore, is_one_size=False)
        check = partial(check_size, height=size[0], width=size[1], is_upright=plan.apply_exif_orientation)
        found = _mask(output, sample, check)
        return _transformed(output, placement, (found != 0).any(0).astype(np.uint8) if field == "masks" else found)

    return labels


def of_each_box(name: str, values: Any) -> npt.NDArray[Any]:
    """Return a field with one value per box as an array.

    NumPy converts an empty list to float64. Here it becomes int64, except for ``area``.
    """
    found = np.asarray(values)
    return found if found.size or found.dtype != np.float64 or name == "area" else found.astype(np.int64)


def columns(plan: Plan, made: Sequence[Mapping[str, Any] | None]) -> dict[str, Any]:
    """Return the annotations of a batch by name: a list with one array per image, or one array if the plan pads.

    If the plan pads, the rows of an image without a result, or without this field, are filled with -1.

    Args:
        plan: Plan that computed the annotations.
        made: Result of ``annotated`` for each image; None if the image has no result.
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
    """Reject an image whose size differs from the size for which its annotation was made.

    Args:
        annotated_size: (height, width) in the annotation; None if the annotation does not specify it.
        height: Height of the decoded image.
        width: Width of the decoded image.
        is_upright: Whether the EXIF orientation was applied to the image.

    Raises:
        ImageError: BAD_RECORD: The sizes differ. If height and width are swapped, the message suggests to change
            ``apply_exif_orientation``.
    """
    if annotated_size is None or tuple(annotated_size) == (height, width):
        return
    hint = ""
    if tuple(annotated_size) == (width, height):
        value = str(not is_upright).lower()
        hint = f': if this is due to the EXIF orientation, set "apply_exif_orientation": {value} in decode'
    raise ImageError(
        "BAD_RECORD",
        f"the image has {height} x {width} pixels, but its annotation was made for "
        f"{annotated_size[0]} x {annotated_size[1]}{hint}",
    )


def read_field(sample: Mapping[str, Any], name: str, last: int) -> F32:
    """Return a field of the annotation, ``boxes`` or ``points``, as float32 (n, …, last).

    Raises:
        PipelineError: The sample does not contain the field.
        ImageError: BAD_RECORD: The field is not a numeric array of this shape, or its values are invalid.
    """
    if name not in sample:
        raise PipelineError(f'the pipeline requires "{name}", but the samples of its source do not contain it')
    try:
        values: F32 = np.asarray(sample[name], np.float32)
    except (TypeError, ValueError):
        raise ImageError("BAD_RECORD", f'"{name}" must be an array of numbers') from None
    if values.size == 0 and values.ndim < 2:
        values = values.reshape(0, last)
    if values.ndim < 2 or values.shape[-1] != last or (name == "boxes" and values.ndim != 2):
        shape = "(n, 4)" if name == "boxes" else f"(n, {last}) or (n, k, {last})"
        raise ImageError("BAD_RECORD", f'"{name}" must have the shape {shape}, not {values.shape}')
    if not np.isfinite(values).all():
        raise ImageError("BAD_RECORD", f'"{name}" contains a number that is not finite')
    if name == "boxes" and (values[:, 2:] < values[:, :2]).any():
        what = '"boxes" contains a box with right < left or bottom < top'
        raise ImageError(
            "BAD_RECORD", f"{what}: if the boxes are not in the format (left, top, right, bottom), set box_format"
        )
    return values


def read_boxes(sample: Mapping[str, Any], height: int, width: int, *, is_original: bool = True) -> F32:
    """Return the boxes of a sample, float32 (n, 4), xyxy in pixels of an image of this size.

    Args:
        sample: Fields of the sample.
        height: Height of the image in pixels.
        width: Width of the image in pixels.
        is_original: Whether the boxes are those of the source, whose positions are checked.

    Raises:
        PipelineError: The sample does not contain boxes.
        ImageError: BAD_RECORD: The boxes are invalid, or do not fit the image.
    """
    field = sample.get("boxes")
    boxes = read_field(
        {**sample, "boxes": field.pixels(height, width)} if isinstance(field, Shares) else sample, "boxes", 4
    )
    if is_original:
        check_place(boxes, height, width, is_converted=isinstance(field, Shares))
    return boxes


def _boxes(plan: BoxesPlan, placed: Placed, name: str, boxes: F64) -> tuple[F32, Bools]:
    """Return the remaining boxes in the format of the plan, and a boolean mask of the input boxes that remain."""
    placement = placed.placements[name]
    transform = placement.transform
    whole = moved(boxes, transform)
    left, top, right, bottom = _seen(placement, transform)
    seen = whole.clip((left, top, left, top), (right, bottom, right, bottom))
    width, height = _sides(seen)
    kept: Bools = (width > 0) & (height > 0)
    for motion, size in _motions(placement):
        whole, seen = (_moved_boxes(each, motion) for each in (whole, seen))
        seen = seen.clip(0, (*size[::-1], *size[::-1]))
        width, height = _sides(seen)
        kept &= (width > 0) & (height > 0)
    if plan.min_size:
        kept &= (width >= plan.min_size) & (height >= plan.min_size)
    if plan.min_area or plan.min_visible:
        full_width, full_height = _sides(whole)
        limit = plan.min_visible * _ROUNDING * np.abs(full_width * full_height)
        kept &= width * height >= np.maximum(limit, plan.min_area)
    if placed.kept:
        for step in plan.geometry.random_steps:
            kept &= placed.kept.get(step.key, True)
    result = from_corners((seen if plan.clip else whole)[kept], plan.format)
    if plan.normalized:
        result = result / (*placement.size[::-1], *placement.size[::-1])
    return result.astype(np.float32), kept


def _order(
    plan: PointsPlan, placement: Placement, points: F32, *, of_boxes: bool
) -> npt.NDArray[np.intp] | slice[None, None, None]:
    """Return the order of an object's keypoints: if its image is mirrored, ``flip_pairs`` are swapped.

    Raises:
        ImageError: BAD_RECORD: The object lacks a keypoint that ``flip_pairs`` refers to.
    """
    if not plan.flip_pairs or not points.size:
        return slice(None)
    pairs, count = np.array(plan.flip_pairs), points.shape[-2]
    if pairs.max() >= count or (of_boxes and points.ndim < 3):
        needed = f"at least {pairs.max() + 1} points{' per box' * of_boxes}"
        raise ImageError("BAD_RECORD", f'"points" has the shape {points.shape}, but "flip_pairs" requires {needed}')
    order = np.arange(count)
    if np.linalg.det(placement.matrix) < 0:
        order[pairs] = pairs[:, ::-1]
    return order


def _points(plan: PointsPlan, placement: Placement, points: F32) -> F32:
    result = points.astype(np.float64)
    if any(isinstance(motion, Warp) for motion, _ in _motions(placement)):
        result = carried(result, placement._replace(levels=()).matrix)
        for motion, _ in _motions(placement):
            result = displaced_points(motion, result) if isinstance(motion, Warp) else carried(result, motion)
    else:
        result = carried(result, placement.matrix)
    if plan.clip:
        seen = visible(placement)
        result = result.clip(seen[:2], seen[2:])
    if plan.normalized:
        result = result / placement.size[::-1]
    return result.astype(np.float32)


def _motions(placement: Placement) -> Iterator[tuple[F64 | Warp, tuple[int, int]]]:
    """Yield the motions of ``levels.motions``.

    For a warp that displaces each pixel separately, yield the warp instead of a matrix.
    """
    height, width = placement.canvas
    for step in placement.levels:
        motion, (height, width) = step.forward(height, width), step.size_after(height, width)
        if motion is not None:
            yield (step if isinstance(step, Warp) and step.is_displaced else motion), (height, width)


def _moved_boxes(boxes: F64, motion: F64 | Warp) -> F64:
    return displaced_boxes(motion, boxes) if isinstance(motion, Warp) else around(boxes, motion)


def visible(placement: Placement) -> F64:
    """Return the bounding box (left, top, right, bottom) of the image in the tensor.

    If the tensor does not show any part of the image, right may be less than left, or bottom less than top.
    """
    seen = np.array([_seen(placement, placement.transform)])
    for motion, (height, width) in _motions(placement):
        seen = _moved_boxes(seen, motion).clip(0, (width, height, width, height))
    box: F64 = seen[0]
    return box


def _seen(placement: Placement, transform: tuple[float, float, float, float]) -> tuple[float, float, float, float]:
    """Return (left, top, right, bottom) of the image on the canvas, before the steps that warp the canvas."""
    region, at = placement.region, placement.at
    box, (scale_y, scale_x, offset_y, offset_x) = placement.box, transform
    left, right = sorted(edge * scale_x + offset_x for edge in box[1::2])
    top, bottom = sorted(edge * scale_y + offset_y for edge in box[::2])
    last = at[1] + region[3] - region[1], at[0] + region[2] - region[0]
    return max(left, at[1]), max(top, at[0]), min(right, last[0]), min(bottom, last[1])


def _padded(values: npt.NDArray[Any], pad: int | None, name: str) -> npt.NDArray[Any]:
    if pad is None:
        return values
    if len(values) > pad:
        raise ImageError("DOES_NOT_FIT", f'"{name}" has {len(values)} rows, but the pipeline specifies "pad": {pad}')
    padded = np.empty((pad, *values.shape[1:]), np.int64 if values.dtype.kind in "bu" else values.dtype)
    padded[: len(values)], padded[len(values) :] = values, NO_ROW
    return padded


def _missing(plan: Plan, name: str) -> float | None:
    """Return the fill value for images without a result, or None if a batch of this annotation is a list."""
    pad = next((boxes.pad for boxes in plan.boxes.values()), None)
    if name in plan.annotations:
        return plan.annotations[name].missing(pad)
    return None if pad is None else NO_ROW


def _sides(boxes: F64) -> F64:
    """Return the widths and the heights of boxes, (2, n)."""
    return (boxes[:, 2:] - boxes[:, :2]).T


def _mask(plan: MaskPlan, sample: Mapping[str, Any], check_size: Callable[[tuple[int, ...]], None]) -> Labels:
    """Return the mask of a sample, (height, width), or its masks, (n, height, width), as integers.

    Args:
        plan: Plan of the mask, which specifies the field and the range of labels.
        sample: Sample whose field is an array, a Pillow image, or the bytes of a PNG.
        check_size: Function that raises ImageError unless its argument equals the (height, width) of the image.

    Raises:
        PipelineError: The sample does not contain the field.
        ImageError: BAD_RECORD: The field is not a mask of the image.
    """
    with _naming(plan.field):
        return _checked(plan, _field(sample, plan.field), check_size)


@contextmanager
def _naming(field: str) -> Iterator[None]:
    """Prefix the message of an ImageError with the name of a field."""
    try:
        yield
    except ImageError as error:
        raise ImageError(error.reason, f'"{field}": {error.detail}') from None


def _field(sample: Mapping[str, Any], name: str) -> Any:
    """Return a field of a sample, or raise PipelineError if the sample does not contain it."""
    if name not in sample:
        raise PipelineError(f'the pipeline requires "{name}", but the samples of its source do not contain it')
    return sample[name]


def _checked(plan: MaskPlan, value: Any, check_size: Callable[[tuple[int, ...]], None]) -> Labels:
    if isinstance(value, bytes | bytearray | memoryview):
        from pixprep.engine.decoders.pillow import labels_of  # noqa: PLC0415  (imports Pillow, which only a PNG needs)

        value = labels_of(value, check_size)
    if isinstance(getattr(value, "shape", None), tuple):  # check the size before a large lazy array is computed
        check_size(value.shape[-2:])
    found = np.asarray(value)
    if found.dtype.kind not in "bui":
        given = f"array of {found.dtype}" if found.ndim else type(value).__name__
        what = "an array of integers, the bytes of a PNG, or a pathlib.Path"
        raise ImageError("BAD_RECORD", f"must be {what}, not {given}")
    if found.ndim != (2 if plan.field == "mask" else 3):
        shape = "(height, width)" if plan.field == "mask" else "(n, height, width)"
        raise ImageError("BAD_RECORD", f"must have the shape {shape}, not {found.shape}")
    check_size(found.shape[-2:])
    if found.dtype == np.bool_:
        return found.astype(np.uint8)  # not a view, because Pillow stores True as 255
    if plan.dtype == "uint8" and found.dtype != np.uint8 and found.size:
        low, high = int(found.min()), int(found.max())
        if low < 0 or high > 255:
            hint = 'set "dtype": "int64" in the op'
            raise ImageError("BAD_RECORD", f"labels range from {low} to {high}, which does not fit into uint8: {hint}")
    return found


def _transformed(plan: MaskPlan | TargetPlan, placement: Placement, mask: Labels) -> Labels:
    """Transform a mask, or several masks, with the placement of their image.

    Args:
        plan: Plan of the mask, which specifies the label outside the image.
        placement: Placement of the image.
        mask: Integers (height, width) or (n, height, width) at the size of the decoded image; not modified.

    Returns:
        A new array of ``plan.dtype``, (height, width) or (n, height, width), at the size of the output.
    """
    ignore = plan.ignore
    if mask.dtype == np.uint8 and 0 <= ignore <= 255 and ignore % 1 == 0:
        ignore = int(ignore)
    else:
        mask = mask.astype(plan.dtype)
    resize = plan.geometry.resize
    like = resize.like if resize is not None else "torchvision"
    is_exact = resize is not None and bool(resize.subpixel or resize.roi)
    profile = PROFILES[like if is_exact else PROFILES[like].labels]
    rows, columns = _source_positions(placement, profile)
    result: Labels = mask.take(rows, axis=-2, mode="clip").take(columns, axis=-1, mode="clip")
    top, left, bottom, right = placement.region
    if placement.margins != NO_MARGINS or (bottom - top, right - left) != placement.canvas:
        result[..., rows < 0, :] = ignore
        result[..., columns < 0] = ignore
    if steps := levels.moving(placement.levels, *placement.canvas, (cast("int", ignore),)):
        image = result[:, :, None] if result.ndim == 2 else result.transpose(1, 2, 0)
        result = apply_steps(steps, image).transpose(2, 0, 1).reshape(*result.shape[:-2], *placement.size)
    return np.ascontiguousarray(result, plan.dtype)


def _source_positions(placement: Placement, profile: Profile) -> list[npt.NDArray[np.int32]]:
    """Return the index of the decoded row for each row of the canvas, and that of the decoded column for each column.

    An index is -1 outside the image.
    """
    found = []
    placement = placement if placement.reduction is None else placement._replace(reduction=None)
    for axis, resized in enumerate(axes(None, placement)):
        begin, end = placement.box[axis::2]
        length, canvas, at = resized.end - resized.begin, placement.canvas[axis], placement.at[axis]
        if length:
            positions = profile.windows(_NEAREST, "fixed", resized).first - placement.margins[axis]
            positions = end - 1 - positions if placement.mirrors[axis] else begin + positions
            if placement.margins != NO_MARGINS:
                positions[(positions < begin) | (positions >= end)] = -1
            if placement.flips[axis]:
                positions = positions[::-1]
        if length != canvas:
            whole = np.full(canvas, -1, np.int32)
            if length:
                whole[at : at + length] = positions
            positions = whole
        found.append(positions)
    return found
