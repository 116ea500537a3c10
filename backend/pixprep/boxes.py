"""Boxes and points: their formats, from a photo to its tensor and back.

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

from itertools import permutations
from typing import Any, get_args

import numpy as np
import numpy.typing as npt

from pixprep.errors import DataError, ImageError, PixprepError
from pixprep.spec import BoxFormat, BoxSource

Numbers = npt.ArrayLike
F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]
_HORIZON = 1e-6
"""Share of its largest depth at which a box ends before the horizon."""
_DEGENERATE = 1e-6
"""Share of the products in a determinant that is left of them where float32 numbers have no inverse."""


def boxes_to_original(
    boxes: Numbers, transform: Numbers, original_size: Numbers | None = None, *, format: BoxFormat = "xyxy"
) -> F32:
    """Boxes in tensor pixels as boxes in the pixels of the decoded photo: ``(box - offset) / scale``.

    Args:
        boxes: (..., n, 4), in ``format``.
        transform: (4,) or (..., 4): ``[scale_y, scale_x, offset_y, offset_x]``, the ``transform`` output; or (3, 3) or
            (..., 3, 3), the one with ``"matrix": true``: boxes are then around what they become; of a box across the
            horizon of a perspective, around the part where the middle of the tensor lies.
        original_size: (2,) or (..., 2): ``[height, width]``, the ``original_size`` output; boxes are clipped to it.
            None: a box may reach over the photo's edge.
        format: of the boxes and of the result.

    Returns:
        float32 (..., n, 4). A box of an image that was flipped has its corners in order again.

    Raises:
        PixprepError: a shape or a format is wrong; a scale is 0.
    """
    corners = around(to_corners(checked("boxes", boxes, 4), format), np.linalg.inv(matrix_of(transform)))
    if original_size is not None:
        corners = np.clip(corners, 0.0, _sides(original_size))
    return from_corners(corners, format).astype(np.float32)


def boxes_to_tensor(boxes: Numbers, transform: Numbers, *, format: BoxFormat = "xyxy") -> F32:
    """Boxes in the pixels of the decoded photo as boxes in tensor pixels: ``box * scale + offset``.

    A box may reach over the tensor's edge, where the photo was cropped.

    Args:
        boxes: (..., n, 4), in ``format``.
        transform: as of ``boxes_to_original``.
        format: of the boxes and of the result.

    Returns:
        float32 (..., n, 4), the corners in order.

    Raises:
        PixprepError: a shape or a format is wrong; a scale is 0.
    """
    corners = around(to_corners(checked("boxes", boxes, 4), format), matrix_of(transform))
    return from_corners(corners, format).astype(np.float32)


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
    return carried(checked("points", points, 2), np.linalg.inv(matrix_of(transform))).astype(np.float32)


def points_to_tensor(points: Numbers, transform: Numbers) -> F32:
    """Points (x, y) of the decoded photo in tensor pixels; as ``points_to_original``, the other way."""
    return carried(checked("points", points, 2), matrix_of(transform)).astype(np.float32)


def matrix_of(transform: Numbers) -> F64:
    """A transform as a matrix: float64 (3, 3) or (..., 3, 3), from (x, y, 1) of the photo to that of the tensor.

    Raises:
        PixprepError: a shape is wrong; a scale is 0.
    """
    array = np.asarray(transform, np.float64)
    if array.shape[-2:] == (3, 3):
        with np.errstate(all="ignore"):
            products = sum(np.abs(array[..., range(3), order]).prod(axis=-1) for order in permutations(range(3)))
            if (np.abs(np.linalg.det(array)) > _DEGENERATE * products).all():
                return array
        raise PixprepError(
            f"the transform {array.tolist()} has no inverse, or no number: what was a point is a line there, and "
            "nothing comes back; leave out its row"
        )
    scale, offset = np.split(checked("the numbers of a transform", transform, 4)[..., [1, 0, 3, 2]], 2, axis=-1)
    if not np.isfinite(scale + offset).all() or not scale.all():
        raise PixprepError(f"the transform {np.asarray(transform).tolist()} has a scale of 0, or no number")
    matrix = np.zeros((*scale.shape[:-1], 3, 3))
    for axis in (0, 1):
        matrix[..., axis, axis], matrix[..., axis, 2] = scale[..., axis], offset[..., axis]
    matrix[..., 2, 2] = 1
    return matrix


def convert(boxes: Numbers, source: BoxFormat, target: BoxFormat) -> F32:
    """Boxes (..., 4) of one format in another.

    Raises:
        PixprepError: a shape or a format is wrong.
    """
    return from_corners(to_corners(checked("boxes", boxes, 4), source), target).astype(np.float32)


class Shares:
    """Boxes xyxy in shares of an image whose size is not known yet: 0 to 1.

    NumPy makes the shares of it, float64 (n, 4).
    """

    def __init__(self, corners: F64) -> None:
        self._corners = corners

    def __len__(self) -> int:
        return len(self._corners)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        del copy  # it is always a new one
        return np.array(self._corners, dtype)

    def pixels(self, height: int, width: int) -> F32:
        """The boxes in an image of this size."""
        return (self._corners * (width, height, width, height)).astype(np.float32)


def in_pixels(boxes: Any, height: int, width: int) -> Any:
    """Boxes as they are; ``Shares`` in the pixels of an image of this size."""
    return boxes.pixels(height, width) if isinstance(boxes, Shares) else boxes


def to_xyxy(sample: dict[str, Any], format: BoxSource) -> dict[str, Any]:
    """A sample whose ``boxes`` (n, 4) have become xyxy in pixels, or the ``Shares`` of normalized ones.

    Raises:
        ImageError: BAD_RECORD: they are no rows of four numbers.
    """
    form, _, normalized = format.partition("_")
    if format == "xyxy" or "boxes" not in sample:
        return sample
    try:
        corners = to_corners(checked("boxes", sample["boxes"], 4), form)  # type: ignore[arg-type]
    except (TypeError, ValueError, PixprepError):
        raise ImageError("BAD_RECORD", '"boxes" are no rows of four numbers') from None
    return sample | {"boxes": Shares(corners) if normalized else corners.astype(np.float32)}


def format_tag(format: BoxSource) -> tuple[str, ...]:
    """Part of a source's fingerprint; of the usual format none."""
    return () if format == "xyxy" else (format,)


def check_place(boxes: F32, height: int, width: int, *, is_converted: bool) -> None:
    """Refuse boxes of which none lies in its image of this size, and pixels that were meant to be shares of it.

    Raises:
        ImageError: BAD_RECORD.
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
    """Refuse what is no format of a source's boxes.

    Raises:
        DataError: see above.
    """
    if format not in get_args(BoxSource):
        raise DataError(f"box_format is one of {', '.join(get_args(BoxSource))}, not {format!r}")


def checked(name: str, values: Numbers, last: int) -> F64:
    """Convert to float64, and check the last dimension; an empty list is no boxes."""
    array = np.asarray(values, np.float64)
    if array.shape == (0,):
        array = array.reshape(0, last)
    if not array.ndim or array.shape[-1] != last:
        raise PixprepError(f"{name} have the shape {list(array.shape)}: the last dimension must be {last}")
    return array


def carried(points: F64, matrix: F64) -> F64:
    """Points (..., n, 2) after a motion (..., 3, 3): (x, y, 1) becomes (u, v, w), which lies at (u / w, v / w)."""
    (a, b, c), (d, e, f), (g, h, i) = np.moveaxis(matrix, (-2, -1), (0, 1))[..., None]
    x, y = points[..., 0], points[..., 1]
    moved: F64 = np.stack([a * x + b * y + c, d * x + e * y + f], axis=-1) / (g * x + h * y + i)[..., None]
    return moved


def around(boxes: F64, matrix: F64) -> F64:
    """Boxes xyxy (..., n, 4) around what boxes become by a motion (..., 3, 3).

    Of a box across the horizon of a perspective it is the part before it, where w is over 0.
    """
    each = matrix[..., None, :, :]
    corners = carried(_before(boxes[..., [[0, 1], [2, 1], [2, 3], [0, 3]]], each), each)
    return np.concatenate([corners.min(axis=-2), corners.max(axis=-2)], axis=-1)


def _before(corners: F64, matrix: F64) -> F64:
    """Corners (..., 4, 2) of boxes; if one lies across the horizon, (..., 8, 2) of the parts before it."""
    depths = (corners * matrix[..., 2:, :2]).sum(axis=-1) + matrix[..., 2:, 2]
    least = _HORIZON * depths.max(axis=-1, keepdims=True)
    behind = (depths < least) & (least > 0)
    if not behind.any():
        return corners
    deepest = np.take_along_axis(corners, depths.argmax(axis=-1)[..., None, None], axis=-2)
    made = []
    for step in (1, -1):  # a corner behind goes to the horizon along either side, if the side's other end is before it
        others, theirs = np.roll(corners, step, axis=-2), np.roll(depths, step, axis=-1)
        share = np.divide(least - depths, theirs - depths, where=behind & (theirs >= least), out=np.zeros_like(depths))
        cut = np.where((theirs >= least)[..., None], corners + share[..., None] * (others - corners), deepest)
        made.append(np.where(behind[..., None], cut, corners))
    return np.concatenate(made, axis=-2)


def _sides(size: Numbers) -> F64:
    """(..., 1, 4): width, height, width, height."""
    array = checked("height and width", size, 2)
    if not (array > 0).all():
        raise PixprepError(f"the size {np.asarray(size).tolist()} has a side that is not over 0")
    return np.tile(array[..., None, ::-1], 2)


def to_corners(boxes: F64, format: BoxFormat) -> F64:
    """Boxes (..., 4) in a format as xyxy."""
    _check(format)
    first, second = boxes[..., :2], boxes[..., 2:]
    if format == "xyxy":
        return boxes
    if format == "xywh":
        return np.concatenate([first, first + second], axis=-1)
    return np.concatenate([first - second / 2, first + second / 2], axis=-1)


def from_corners(corners: F64, format: BoxFormat) -> F64:
    """Boxes (..., 4) of a format, of left, top, right and bottom; not rounded to float32."""
    _check(format)
    first, last = corners[..., :2], corners[..., 2:]
    if format == "xyxy":
        return corners
    sides = last - first
    return np.concatenate([first if format == "xywh" else first + sides / 2, sides], axis=-1)


def _check(format: Any) -> None:
    if format not in get_args(BoxFormat):
        raise PixprepError(f'no format of boxes "{format}"; there are {", ".join(get_args(BoxFormat))}')
