"""Fields that come with the samples beside their images, as a batch has them."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

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


def collated(fields: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The fields of samples by name.

    A number in every sample makes an array (n,): int64, float64 or bool, as NumPy has it. All else makes a list, with
    None where a sample lacks the field. So the kind of a field does not depend on which samples meet in a batch.
    """
    names = dict.fromkeys(name for each in fields for name in each)
    return {name: _column([each.get(name) for each in fields]) for name in names}


def left_behind(
    fields: Mapping[str, Any], moved: Container[str], size: tuple[int, int] | None
) -> Iterator[tuple[str, str]]:
    """The fields of a sample that lie in its photo and that no op moves, each with what to say of it.

    Args:
        fields: of one sample.
        moved: names of fields that are moved, or were told of.
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


def _is_of_pixels(value: Any, size: tuple[int, int] | None) -> bool:
    """Tell whether it has a value for each pixel: (height, width, ...), (..., height, width), or a Pillow picture."""
    shape = getattr(value, "shape", ())
    if size is None:
        return False
    if isinstance(shape, tuple) and len(shape) >= 2:
        return size in (tuple(shape[:2]), tuple(shape[-2:]))
    return hasattr(value, "getpixel") and value.size == size[::-1]


def _column(values: list[Any]) -> Any:
    if all(isinstance(value, bool | int | float | np.number | np.bool_) for value in values):
        return np.array(values)
    return values
