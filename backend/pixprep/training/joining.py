"""Combines the images of several samples and their annotations, for mosaic, mixup and copy-paste."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from pixprep.errors import DataError, PipelineError
from pixprep.plan.output_plans import is_of_each_box
from pixprep.plan.plan import Plan


class Part:
    """Image and annotations of a sample, in the form in which a stage of a chain receives them.

    Attributes:
        image: Pixels, uint8 (height, width, channels).
        fields: Fields of the sample.
    """

    def __init__(self, image: npt.NDArray[Any], fields: Mapping[str, Any]) -> None:
        self.image, self.fields = image, fields

    @property
    def size(self) -> tuple[int, int]:
        """Height and width of the image."""
        height, width = self.image.shape[:2]
        return height, width

    @property
    def boxes(self) -> npt.NDArray[Any]:
        """Boxes, float32 (n, 4) xyxy in pixels."""
        boxes: npt.NDArray[Any] = self.fields["boxes"]
        return boxes

    def changed(self, fields: Mapping[str, Any]) -> Part:
        """Return a copy with other values of some fields."""
        return Part(self.image, {**self.fields, **fields})

    def selected(self, kept: npt.NDArray[Any], plan: Plan) -> Part:
        """Return a copy that contains only the selected boxes and their fields."""
        return self.changed({name: self.fields[name][kept] for name in _of_boxes(self.fields, plan)})

    def joined(self, others: Sequence[Part], image: npt.NDArray[Any], plan: Plan) -> Part:
        """Return a copy with a different image, and with the objects of this part and of others."""
        fields = dict(self.fields)
        every = [self.fields, *(other.fields for other in others)]
        for name in _of_objects(fields, plan):
            # a sample without objects may have an empty list, whose dtype and number of axes are arbitrary
            values = [np.asarray(each[name]) for each in every]
            values = [each for each in values if len(each)] or values[:1]
            if len({each.shape[1:] for each in values}) > 1:
                shapes = " and ".join(str(each.shape) for each in values)
                raise DataError(
                    f'"{name}" of several samples cannot be concatenated, because the shapes do not match: {shapes}'
                )
            fields[name] = np.concatenate(values)
        return Part(image, fields)


def check_fields(parts: Sequence[Part], plan: Plan) -> None:
    """Raise a DataError if parts cannot be combined: a field is missing, or does not have one value per object."""
    needed = [each.field for each in plan.annotations.values()]
    for name in dict.fromkeys([*needed, *(name for part in parts for name in _of_objects(part.fields, plan))]):
        if any(name not in part.fields for part in parts):
            raise DataError(f'some samples have no "{name}": a mosaic, mixup or copy-paste needs it for every sample')
        if plan.boxes or name in needed:
            continue
        counted = next(each for each in ("masks", "points") if each in needed)
        for part in parts:
            count, found = len(part.fields[counted]), np.shape(part.fields[name])
            if found[:1] != (count,):
                raise DataError(
                    f'"{name}" has the shape {found}, but "{counted}" has {count} objects: a field of objects must '
                    f'have one value per object; if "{name}" is not a field of objects, rename it'
                )


def on_canvas(
    parts: Sequence[Part], corners: Sequence[tuple[int, int]], size: tuple[int, int], fill: int, plan: Plan
) -> Part:
    """Paste several images with their annotations on a canvas. Boxes that are outside the canvas are removed.

    Args:
        parts: Images with their annotations. The first one provides the fields that do not belong to objects or pixels.
        corners: Row and column of the canvas at which each image begins. They may be negative.
        size: (height, width) of the canvas.
        fill: Pixel value of the canvas outside the images.
        plan: Plan with the annotations of the samples.
    """
    first, moved = parts[0], []
    canvas = np.full((*size, *first.image.shape[2:]), fill, np.uint8)
    planes = {
        name: np.full((*size, *first.fields[name].shape[2:]), ignore, first.fields[name].dtype)
        for name, ignore in pixel_fields(plan).items()
    }
    boxes_plan = next(iter(plan.boxes.values()), None)
    for part, (top, left) in zip(parts, corners, strict=True):
        height, width = part.size
        ends = min(top + height, size[0]), min(left + width, size[1])
        outer = slice(max(top, 0), max(ends[0], 0)), slice(max(left, 0), max(ends[1], 0))
        inner = tuple(slice(each.start - at, each.stop - at) for each, at in zip(outer, (top, left), strict=True))
        canvas[outer] = part.image[inner]
        for name, plane in planes.items():
            plane[outer] = part.fields[name][inner]
        fields, shift = {}, np.array([left, top], np.float32)
        objects = _of_objects(part.fields, plan)
        if "points" in objects:
            fields["points"] = part.fields["points"] + shift
        if "masks" in objects:
            masks = part.fields["masks"]
            fields["masks"] = np.zeros((len(masks), *size), masks.dtype)
            fields["masks"][(slice(None), *outer)] = masks[(slice(None), *inner)]
        if boxes_plan is not None:
            boxes = part.boxes + np.tile(shift, 2)
            seen = boxes.clip(0, np.array([size[1], size[0]] * 2, np.float32))
            fields["boxes"] = seen if boxes_plan.clip else boxes
            kept = np.flatnonzero((seen[:, 2:] > seen[:, :2]).all(axis=1))
            moved.append(part.changed(fields).selected(kept, plan))
        else:
            moved.append(part.changed(fields))
    return moved[0].joined(moved[1:], canvas, plan).changed(planes)


def pixel_fields(plan: Plan) -> dict[str, float]:
    """Return the fields with one value per pixel, each with the value that fills the area outside the image."""
    masks = {each.field: each.ignore for each in plan.masks.values() if each.field == "mask"}
    return masks | {each.field: each.ignore for each in plan.targets.values()}


def _of_boxes(fields: Mapping[str, Any], plan: Plan) -> list[str]:
    """Return the fields with one value per box, including ``boxes``. Empty if the plan has no boxes."""
    boxes = next(iter(plan.boxes.values()), None)
    if boxes is None:
        return []
    masks = {each.field for each in plan.masks.values()} & {"masks"}
    return [name for name in fields if name == "boxes" or name in masks or boxes.takes_along(name)]


def _of_objects(fields: Mapping[str, Any], plan: Plan) -> list[str]:
    """Return the fields whose values are concatenated when samples are combined.

    Without the op ``boxes``, the fields that usually contain one value per box contain one value per object in
    ``masks`` or ``points``.
    """
    moved = {each.field for each in plan.annotations.values()} & {"points", "masks"}
    if plan.boxes:
        moved.update(_of_boxes(fields, plan))
    elif moved:
        moved |= {name for name in fields if is_of_each_box(name) and name != "points"}
    return [name for name in fields if name in moved]


def check_same_size(name: str, parts: Sequence[Part]) -> None:
    """Raise a PipelineError if images differ in size."""
    sizes = {part.size for part in parts}
    if len(sizes) > 1:
        these = " and ".join(f"{height} x {width}" for height, width in sorted(sizes))
        raise PipelineError(
            f"{name}: the images have different sizes, {these}: add an op before it that returns images of one size, "
            "such as letterbox, or random_crop with pad_if_needed"
        )


def bounding_box(mask: npt.NDArray[Any]) -> tuple[float, float, float, float]:
    """Return the bounding box of a mask as (x1, y1, x2, y2) with exclusive ends. All zeros for an empty mask."""
    rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
    if not len(rows):
        return 0.0, 0.0, 0.0, 0.0
    return float(columns[0]), float(rows[0]), float(columns[-1] + 1), float(rows[-1] + 1)
