"""Fields of samples other than the image: their transform along with the image, and their form in a batch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from pixprep.engine.annotations import annotated, check_size, of_each_box, read_boxes, read_field
from pixprep.errors import DataError, printable
from pixprep.plan.output_plans import OF_EACH_BOX, BoxesPlan
from pixprep.plan.plan import Place, Placed, Plan

_OPS = {
    "boxes": "boxes",
    "bboxes": "boxes",
    "bbox": "boxes",
    "points": "points",
    "keypoints": "points",
    "mask": "mask",
    "masks": "masks",
    "segmentation": "mask",
}
"""The ops that would move a field."""
_SURE = 8
"""Samples of equally many boxes and values, after which these are taken for those of the boxes."""


def collated(fields: Sequence[Mapping[str, Any]], samples: Sequence[str]) -> dict[str, Any]:
    """Collate the fields of samples by name.

    Args:
        fields: Fields of each sample.
        samples: Names of the samples, for messages.

    If every sample has a number, the result is an array (n,) of int64, float64 or bool, as in NumPy. Arrays of the same
    shape and dtype are stacked into an array (n, *shape), except for data of boxes, whose number differs from image to
    image. All other fields become a list, with None for a sample that lacks the field.

    Raises:
        DataError: A sample lacks the label that other samples have.
    """
    names = dict.fromkeys(name for each in fields for name in each)
    if "label" in names:
        for sample, each in zip(samples, fields, strict=True):
            if "label" not in each:
                raise DataError(
                    f'{printable(sample)} has no "label", but other samples have one: set its label, or set it to None'
                )
    return {name: _column(name, [each.get(name) for each in fields]) for name in names}


def left_behind(
    fields: Mapping[str, Any], moved: Container[str], size: tuple[int, int] | None
) -> Iterator[tuple[str, str]]:
    """Return the fields of a sample with coordinates in its photo that no op transforms, each with a warning.

    Args:
        fields: Fields of one sample.
        moved: Names of fields that are transformed, or that were already reported.
        size: (height, width) of the photo: an array or a picture of this size is one of its pixels.
    """
    for name, value in fields.items():
        if name in moved:
            continue
        if op := _OPS.get(name):
            remedy = f"add the op {op}" if name == op else f'call the field "{op}", which the op {op} moves'
            yield name, f'no op moves batch["{name}"]: they are in pixels of the photos, not of the tensors: {remedy}'
        elif _is_of_pixels(value, size):
            how = "it is not cropped, resized and flipped as its photo is: see batch.placed"
            yield name, f'no op moves batch["{name}"]: {how}'


def as_long_as_boxes(
    fields: Mapping[str, Any], counts: dict[str, Counter[int]], plan: BoxesPlan, left: int
) -> Iterator[tuple[str, str]]:
    """Return the fields that so far had one value per box and are not filtered with the boxes, each with a warning.

    Args:
        fields: of one sample.
        counts: by each field's name the numbers of boxes of which there were as many values, and in how many samples;
            of a field that once had another number, none.
        plan: Plan of the boxes, which names the fields that go with them.
        left: Number of boxes that are left of the sample's.
    """
    if not hasattr(fields.get("boxes"), "__len__"):
        return
    number = len(fields["boxes"])
    for name, value in fields.items():
        is_known = name in (*_OPS, "size") or plan.takes_along(name) or isinstance(value, str | bytes)
        if is_known or not hasattr(value, "__len__"):
            continue
        found = counts.setdefault(name, Counter({number: 0}))
        if len(value) != number:
            found.clear()
        elif found:
            found[number] += 1
        if len(found.keys() - {0}) > 1 or (left < number and sum(found.values()) >= _SURE):
            what = "has a value for each box, and keeps those of boxes that go"
            yield name, f'batch["{name}"] {what}: name it in "follow" of the op boxes, and it goes with them'


def _is_of_pixels(value: Any, size: tuple[int, int] | None) -> bool:
    """Tell whether it has a value for each pixel: (height, width, ...), (..., height, width), or a Pillow picture."""
    shape = getattr(value, "shape", ())
    if size is None:
        return False
    if isinstance(shape, tuple) and len(shape) >= 2:
        return size in (tuple(shape[:2]), tuple(shape[-2:]))
    return hasattr(value, "getpixel") and value.size == size[::-1]


def _column(name: str, values: list[Any]) -> Any:
    if all(isinstance(value, bool | int | float | np.number | np.bool_) for value in values):
        return np.array(values)
    if name in _OPS or name in OF_EACH_BOX or name.startswith("box_"):
        return [of_each_box(name, value) if isinstance(value, np.ndarray) else value for value in values]
    kinds = {(value.shape, value.dtype) if isinstance(value, np.ndarray) else None for value in values}
    return values if None in kinds or len(kinds) > 1 else np.stack(values)


class Annotated:
    """The place of one sample, that moves the sample's annotation with its image.

    Called with the height and width of the decoded image, as any ``place``; an ImageError of the annotation is then
    that image's, as one of its pixels would be.

    Args:
        plan: Plan that specifies the image and the format of boxes, points and masks.
        place: Function from ``plan.placing``.
        sample: Sample with the annotated ``size`` (height, width), ``boxes``, ``points``, ``mask``, ``masks`` and data
            per box, if there are any.
        is_late: the call only places. An engine places one image at a time, and the PNG of a mask takes 0.3 ms.

    Attributes:
        fields: after the call, or ``finish``, what the plan makes of the annotation: its outputs, and what follows the
            boxes.

    Raises:
        ImageError: BAD_RECORD: the annotation is of an image of another size, or contradicts itself; DOES_NOT_FIT:
            there are more rows than ``pad``, or what ``place`` raises.
        PipelineError: an output of the plan is to be made of a field that the sample lacks.
    """

    def __init__(self, plan: Plan, place: Place, sample: Mapping[str, Any], *, is_late: bool = False) -> None:
        self._plan, self._place, self._sample, self._is_late = plan, place, sample, is_late
        self.fields: dict[str, Any] = {}

    def __call__(self, height: int, width: int) -> Placed:
        """See above."""
        check_size(self._sample.get("size"), height, width, is_upright=self._plan.apply_exif_orientation)
        if "boxes" in self._sample and "boxes" not in self._plan.inputs:
            if any(isinstance(each, BoxesPlan) for each in self._plan.annotations.values()):
                read_boxes(self._sample, height, width)  # random_iou_crop reads them first
            else:
                read_field(self._sample, "boxes", 4)
        self._placed = self._place(height, width)
        if not self._is_late:
            self.fields = annotated(self._plan, self._placed, self._sample)
        return self._placed

    def finish(self) -> None:
        """Make the fields, if that is to come late."""
        if self._is_late:
            self.fields = annotated(self._plan, self._placed, self._sample)
