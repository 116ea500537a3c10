"""Box formats, and coordinate transforms of boxes and points.

Coordinates are continuous, with x to the right and y down. The image extends from (0, 0) to (width, height), and the
center of its first pixel is (0.5, 0.5). A box consists of four numbers in one of these formats:

==========  ============================================================
``xyxy``    left, top, right, bottom
``xywh``    left, top, width, height (COCO)
``cxcywh``  x of the center, y of the center, width, height (YOLO)
==========  ============================================================
"""

# ruff: noqa: A002  (the public argument for a box format is called `format`)

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
"""Depth (w), as a fraction of the largest depth in a box, at which the box is cut off. At the horizon, w is 0."""


def convert(boxes: Numbers, source: BoxFormat, target: BoxFormat) -> F32:
    """Convert boxes, (..., 4), from one format to another.

    Args:
        boxes: Boxes in the format ``source``.
        source: Format of the boxes.
        target: Format of the result.

    Raises:
        PixprepError: The shape of the boxes or a format is invalid.
    """
    return from_corners(to_corners(checked("boxes", boxes, 4), source), target).astype(np.float32)


class Shares:
    """Normalized xyxy boxes, with coordinates from 0 to 1, for an image whose size is not yet known.

    NumPy converts such an object to an array of the normalized boxes, float64 (n, 4).
    """

    def __init__(self, corners: F64) -> None:
        self._corners = corners

    def __len__(self) -> int:
        return len(self._corners)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        del copy  # np.array always copies
        return np.array(self._corners, dtype)

    def pixels(self, height: int, width: int) -> F32:
        """Return the boxes in pixels of an image of this size."""
        return (self._corners * (width, height, width, height)).astype(np.float32)


def in_pixels(boxes: Any, height: int, width: int) -> Any:
    """Convert boxes to pixels of an image of this size if they are ``Shares``; return all other boxes unchanged."""
    return boxes.pixels(height, width) if isinstance(boxes, Shares) else boxes


def to_xyxy(boxes: Numbers, format: BoxSource) -> F32 | Shares:
    """Convert the boxes of a sample, (n, 4), to xyxy in pixels, or to ``Shares`` if the format is normalized.

    Raises:
        ImageError: BAD_RECORD: The boxes are not numbers of shape (n, 4).
    """
    form, _, normalized = format.partition("_")
    try:
        corners = to_corners(checked("boxes", boxes, 4), form)  # type: ignore[arg-type]
    except (TypeError, ValueError, PixprepError):
        raise ImageError("BAD_RECORD", '"boxes" must be an array of numbers with the shape (n, 4)') from None
    return Shares(corners) if normalized else corners.astype(np.float32)


def check_place(boxes: F32, height: int, width: int, *, is_converted: bool) -> None:
    """Check that the boxes of a sample are plausible for an image of this size.

    Args:
        boxes: Boxes, float32 (n, 4) xyxy in pixels.
        height: Height of the image in pixels.
        width: Width of the image in pixels.
        is_converted: Whether the boxes were converted from normalized coordinates.

    Raises:
        ImageError: BAD_RECORD: All boxes are outside of the image, or boxes that should be in pixels appear to be
            normalized.
    """
    if not len(boxes):
        return
    if not is_converted and boxes.max() <= 1 < max(height, width) and boxes.min() >= 0:
        what = f'all numbers of "boxes" are from 0 to 1, but boxes must be in pixels of {height} x {width}'
        raise ImageError("BAD_RECORD", f'{what}: set box_format="xyxy_normalized" (or the actual format) in the source')
    left, top, right, bottom = boxes[0].tolist()
    if right > 0 and bottom > 0 and left < width and top < height:  # usually true; the other boxes are then not checked
        return
    if ((boxes[:, 2:] <= 0) | (boxes[:, :2] >= (width, height))).any(axis=1).all():
        first = ", ".join(f"{number:.6g}" for number in boxes[0])
        what = f'all "boxes" are outside the image of {height} x {width} pixels, such as {first}'
        raise ImageError("BAD_RECORD", f"{what}: check the box_format of the source")


def check_source_format(format: Any) -> None:
    """Check the argument ``box_format`` of a source.

    Raises:
        DataError: The format is not supported.
    """
    if format not in get_args(BoxSource):
        raise DataError(f"box_format must be one of {', '.join(get_args(BoxSource))}, not {format!r}")


def checked(name: str, values: Numbers, last: int) -> F64:
    """Convert boxes or points to float64, and check their last dimension. An empty list means no boxes or points."""
    array = np.asarray(values, np.float64)
    if array.shape == (0,):
        array = array.reshape(0, last)
    if not array.ndim or array.shape[-1] != last:
        raise PixprepError(f"the last dimension of {name} must be {last}, but their shape is {list(array.shape)}")
    return array


def carried(points: F64, matrix: F64) -> F64:
    """Apply homographies, (..., 3, 3), to points, (..., n, 2)."""
    (a, b, c), (d, e, f), (g, h, i) = np.moveaxis(matrix, (-2, -1), (0, 1))[..., None]
    x, y = points[..., 0], points[..., 1]
    moved: F64 = np.stack([a * x + b * y + c, d * x + e * y + f], axis=-1) / (g * x + h * y + i)[..., None]
    return moved


def around(boxes: F64, matrix: F64) -> F64:
    """Apply homographies, (..., 3, 3), to boxes, and return the bounding boxes of the results, xyxy (..., n, 4).

    If a box crosses the horizon of a homography (w = 0), only the part of the box with positive w is transformed.
    """
    each = matrix[..., None, :, :]
    corners = carried(_cut_at_horizon(boxes[..., [[0, 1], [2, 1], [2, 3], [0, 3]]], each), each)
    return np.concatenate([corners.min(axis=-2), corners.max(axis=-2)], axis=-1)


def _cut_at_horizon(corners: F64, matrix: F64) -> F64:
    """Cut off the part of each box that is beyond the horizon of a homography, where w is 0 or negative.

    Returns:
        If no box crosses the horizon, the unchanged corners, (..., 4, 2). If a box does, the corners of the remaining
        parts, (..., 8, 2).
    """
    depths = (corners * matrix[..., 2:, :2]).sum(axis=-1) + matrix[..., 2:, 2]
    limit = _HORIZON * depths.max(axis=-1, keepdims=True)
    behind = (depths < limit) & (limit > 0)
    if not behind.any():
        return corners
    deepest = np.take_along_axis(corners, depths.argmax(axis=-1)[..., None, None], axis=-2)
    made = []
    for step in (1, -1):  # move corners beyond the horizon onto it, along the edge to the next or the previous corner
        others, theirs = np.roll(corners, step, axis=-2), np.roll(depths, step, axis=-1)
        t = np.divide(limit - depths, theirs - depths, where=behind & (theirs >= limit), out=np.zeros_like(depths))
        cut = np.where((theirs >= limit)[..., None], corners + t[..., None] * (others - corners), deepest)
        made.append(np.where(behind[..., None], cut, corners))
    return np.concatenate(made, axis=-2)


def to_corners(boxes: F64, format: BoxFormat) -> F64:
    """Convert boxes, (..., 4), from the given format to xyxy."""
    _check(format)
    first, second = boxes[..., :2], boxes[..., 2:]
    if format == "xyxy":
        return boxes
    if format == "xywh":
        return np.concatenate([first, first + second], axis=-1)
    return np.concatenate([first - second / 2, first + second / 2], axis=-1)


def from_corners(corners: F64, format: BoxFormat) -> F64:
    """Convert boxes, (..., 4), from xyxy to the given format, in float64."""
    _check(format)
    first, last = corners[..., :2], corners[..., 2:]
    if format == "xyxy":
        return corners
    sides = last - first
    return np.concatenate([first if format == "xywh" else first + sides / 2, sides], axis=-1)


def _check(format: Any) -> None:
    if format not in get_args(BoxFormat):
        raise PixprepError(f'box format must be one of {", ".join(get_args(BoxFormat))}, not "{format}"')
