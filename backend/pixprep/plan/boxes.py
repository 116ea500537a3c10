"""Formats of boxes, and the transform of boxes and points by a matrix.

Coordinates are continuous, with x to the right and y down. The image begins at (0, 0) and ends at (width, height), and
the center of its first pixel is (0.5, 0.5). A box is four numbers in one of these formats:

==========  =====================================================
``xyxy``    left, top, right, bottom; right and bottom are its end
``xywh``    left, top, width, height (COCO)
``cxcywh``  x and y of its center, width, height (YOLO)
==========  =====================================================
"""

# ruff: noqa: A002  (`format` is what the formats of boxes are called everywhere)

from __future__ import annotations

from typing import Any, get_args

import numpy as np
import numpy.typing as npt

from pixprep.errors import DataError, ImageError, PixprepError
from pixprep.spec import BoxFormat, BoxSource

Numbers = npt.ArrayLike
F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]
_HORIZON = 1e-6
"""Fraction of its largest depth at which a box ends before the horizon."""


def convert(boxes: Numbers, source: BoxFormat, target: BoxFormat) -> F32:
    """Convert boxes (..., 4) from one format to another.

    Raises:
        PixprepError: A shape or a format is invalid.
    """
    return from_corners(to_corners(checked("boxes", boxes, 4), source), target).astype(np.float32)


class Shares:
    """Boxes xyxy as fractions, 0 to 1, of an image whose size is still unknown.

    NumPy converts the object to the fractions, float64 (n, 4).
    """

    def __init__(self, corners: F64) -> None:
        self._corners = corners

    def __len__(self) -> int:
        return len(self._corners)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        del copy  # the array is always new
        return np.array(self._corners, dtype)

    def pixels(self, height: int, width: int) -> F32:
        """Return the boxes in pixels of an image of this size."""
        return (self._corners * (width, height, width, height)).astype(np.float32)


def in_pixels(boxes: Any, height: int, width: int) -> Any:
    """Return boxes unchanged, but convert ``Shares`` to pixels of an image of this size."""
    return boxes.pixels(height, width) if isinstance(boxes, Shares) else boxes


def to_xyxy(boxes: Numbers, format: BoxSource) -> F32 | Shares:
    """Return the boxes (n, 4) of a sample as xyxy in pixels, or as ``Shares`` if they are normalized.

    Raises:
        ImageError: BAD_RECORD: The boxes are not rows of four numbers.
    """
    form, _, normalized = format.partition("_")
    try:
        corners = to_corners(checked("boxes", boxes, 4), form)  # type: ignore[arg-type]
    except (TypeError, ValueError, PixprepError):
        raise ImageError("BAD_RECORD", '"boxes" are no rows of four numbers') from None
    return Shares(corners) if normalized else corners.astype(np.float32)


def check_place(boxes: F32, height: int, width: int, *, is_converted: bool) -> None:
    """Reject boxes that are all outside of their image, and normalized boxes that were declared as pixels.

    Raises:
        ImageError: BAD_RECORD: The boxes are rejected.
    """
    if not len(boxes):
        return
    left, top, right, bottom = boxes.T
    if not is_converted and 0 <= boxes.min() <= boxes.max() <= 1 < max(height, width):
        what = f'"boxes" all lie in 0 to 1, and are pixels of {height} x {width}'
        raise ImageError("BAD_RECORD", f'{what}: give the source box_format="xyxy_normalized", or what they are')
    if ((right <= 0) | (bottom <= 0) | (left >= width) | (top >= height)).all():
        first = ", ".join(f"{number:.6g}" for number in boxes[0])
        what = f'"boxes" all lie outside the {height} x {width} pixels, such as {first}'
        raise ImageError("BAD_RECORD", f"{what}: has the source another box_format?")


def check_source_format(format: Any) -> None:
    """Reject an invalid format of a source's boxes.

    Raises:
        DataError: The format is invalid.
    """
    if format not in get_args(BoxSource):
        raise DataError(f"box_format is one of {', '.join(get_args(BoxSource))}, not {format!r}")


def checked(name: str, values: Numbers, last: int) -> F64:
    """Convert to float64 and check the last dimension; an empty list contains zero boxes."""
    array = np.asarray(values, np.float64)
    if array.shape == (0,):
        array = array.reshape(0, last)
    if not array.ndim or array.shape[-1] != last:
        raise PixprepError(f"{name} have the shape {list(array.shape)}: the last dimension must be {last}")
    return array


def carried(points: F64, matrix: F64) -> F64:
    """Return points (..., n, 2) after a transform (..., 3, 3), which maps (x, y, 1) to (u, v, w).

    The transformed point is (u / w, v / w).
    """
    (a, b, c), (d, e, f), (g, h, i) = np.moveaxis(matrix, (-2, -1), (0, 1))[..., None]
    x, y = points[..., 0], points[..., 1]
    moved: F64 = np.stack([a * x + b * y + c, d * x + e * y + f], axis=-1) / (g * x + h * y + i)[..., None]
    return moved


def around(boxes: F64, matrix: F64) -> F64:
    """Return the bounding boxes xyxy (..., n, 4) of boxes after a transform (..., 3, 3).

    If a box crosses the horizon of a perspective, only the part with positive w counts.
    """
    each = matrix[..., None, :, :]
    corners = carried(_before(boxes[..., [[0, 1], [2, 1], [2, 3], [0, 3]]], each), each)
    return np.concatenate([corners.min(axis=-2), corners.max(axis=-2)], axis=-1)


def _before(corners: F64, matrix: F64) -> F64:
    """Return the corners (..., 4, 2) of boxes.

    If a box crosses the horizon, the result has the corners (..., 8, 2) of the parts before it.
    """
    depths = (corners * matrix[..., 2:, :2]).sum(axis=-1) + matrix[..., 2:, 2]
    least = _HORIZON * depths.max(axis=-1, keepdims=True)
    behind = (depths < least) & (least > 0)
    if not behind.any():
        return corners
    deepest = np.take_along_axis(corners, depths.argmax(axis=-1)[..., None, None], axis=-2)
    made = []
    for step in (1, -1):  # a corner past the horizon moves to it along a side whose other end is before it
        others, theirs = np.roll(corners, step, axis=-2), np.roll(depths, step, axis=-1)
        share = np.divide(least - depths, theirs - depths, where=behind & (theirs >= least), out=np.zeros_like(depths))
        cut = np.where((theirs >= least)[..., None], corners + share[..., None] * (others - corners), deepest)
        made.append(np.where(behind[..., None], cut, corners))
    return np.concatenate(made, axis=-2)


def to_corners(boxes: F64, format: BoxFormat) -> F64:
    """Convert boxes (..., 4) from a format to xyxy."""
    _check(format)
    first, second = boxes[..., :2], boxes[..., 2:]
    if format == "xyxy":
        return boxes
    if format == "xywh":
        return np.concatenate([first, first + second], axis=-1)
    return np.concatenate([first - second / 2, first + second / 2], axis=-1)


def from_corners(corners: F64, format: BoxFormat) -> F64:
    """Convert boxes from left, top, right and bottom to a format; the result (..., 4) is not rounded to float32."""
    _check(format)
    first, last = corners[..., :2], corners[..., 2:]
    if format == "xyxy":
        return corners
    sides = last - first
    return np.concatenate([first if format == "xywh" else first + sides / 2, sides], axis=-1)


def _check(format: Any) -> None:
    if format not in get_args(BoxFormat):
        raise PixprepError(f'no format of boxes "{format}"; there are {", ".join(get_args(BoxFormat))}')
