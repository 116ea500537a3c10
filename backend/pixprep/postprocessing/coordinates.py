"""Maps boxes, points, masks and rotated boxes between a tensor and its photo, using the output ``transform``.

Input arrays may have any numeric dtype and are not modified. Boxes and points are computed in float64 and returned as
new float32 arrays. Leading dimensions are kept: the shape of boxes is (n, 4) for one image, or (batch, n, 4) together
with a transform of shape (batch, 4). ``pixprep.plan.boxes`` defines the coordinates and the formats of boxes.

>>> import numpy as np
>>> found = np.array([[160.0, 240.0, 320.0, 400.0]])  # in a letterboxed tensor of 640 x 640
>>> boxes_to_original(found, [0.5, 0.5, 80, 0], [960, 1280])
array([[320., 320., 640., 640.]], dtype=float32)
>>> found = np.zeros((4, 4), bool)
>>> found[1:3, 2:] = True  # a photo of 4 x 8 in a letterboxed tensor of 4 x 4
>>> mask_to_original(found, [0.5, 0.5, 1, 0], [4, 8]).sum(axis=1)
array([4, 4, 4, 4])
"""

# ruff: noqa: A002  (box formats are called `format` in the whole API)

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from pixprep.errors import PixprepError
from pixprep.plan.boxes import F32, F64, Numbers, around, carried, checked, from_corners, to_corners
from pixprep.spec import BoxFormat

Array = npt.NDArray[Any]
MapFilter = Literal["bilinear", "area"]
"""Filters of ``mask_to_original``."""
_DEGENERATE = 1e-6
"""A float32 matrix counts as singular if its determinant is less than this fraction of the sum of the absolute products
in the determinant."""
_BLOCK = 1 << 20
"""Number of pixels of the photo that are computed at once."""
_EDGE = 1e-4
"""Tolerance in pixels for the rounding of a float32 transform. A center on the edge between two pixels belongs to the
second pixel."""
_STRETCH = 0.01
"""Fraction by which the two scales of a letterbox may differ, because its sides are rounded to integers."""


def boxes_to_original(
    boxes: Numbers, transform: Numbers, original_size: Numbers | None = None, *, format: BoxFormat = "xyxy"
) -> F32:
    """Map boxes from tensor pixels to pixels of the decoded photo: ``(box - offset) / scale``.

    Args:
        boxes: Array (..., n, 4) of boxes in ``format``.
        transform: Output ``transform`` of the pipeline: ``[scale_y, scale_x, offset_y, offset_x]`` of shape (4,) or
            (..., 4). With ``"matrix": true``, it is a matrix of shape (3, 3) or (..., 3, 3), and each returned box
            encloses the mapped quadrilateral. If a box crosses the horizon of a perspective, the returned box encloses
            the part on the same side as the center of the tensor.
        original_size: Output ``original_size`` of the pipeline, ``[height, width]`` of shape (2,) or (..., 2). The
            boxes are clipped to this size. None: boxes are not clipped and may extend beyond the photo.
        format: Format of the boxes and of the result.

    Returns:
        Array float32 (..., n, 4). The corners are in the order of the format even if the image was flipped.

    Raises:
        PixprepError: A shape or a format is wrong, or a scale is 0.
    """
    corners = around(to_corners(checked("boxes", boxes, 4), format), np.linalg.inv(matrix_of(transform)))
    if original_size is not None:
        corners = np.clip(corners, 0.0, _sides(original_size))
    return from_corners(corners, format).astype(np.float32)


def boxes_to_tensor(boxes: Numbers, transform: Numbers, *, format: BoxFormat = "xyxy") -> F32:
    """Map boxes from pixels of the decoded photo to tensor pixels: ``box * scale + offset``.

    If the photo was cropped, a box may extend beyond the tensor.

    Args:
        boxes: Array (..., n, 4) of boxes in ``format``.
        transform: The ``transform`` output, as in ``boxes_to_original``.
        format: Format of the boxes and of the result.

    Returns:
        Array float32 (..., n, 4), with the corners in order.

    Raises:
        PixprepError: A shape or a format is wrong, or a scale is 0.
    """
    corners = around(to_corners(checked("boxes", boxes, 4), format), matrix_of(transform))
    return from_corners(corners, format).astype(np.float32)


def points_to_original(points: Numbers, transform: Numbers) -> F32:
    """Map points (x, y), such as keypoints or corners of rotated boxes, from tensor pixels to pixels of the photo.

    Args:
        points: Array (..., n, 2) of x, y.
        transform: The ``transform`` output, as in ``boxes_to_original``.

    Returns:
        Array float32 (..., n, 2) in pixels of the decoded photo.

    Raises:
        PixprepError: A shape is wrong, or a scale is 0.
    """
    return carried(checked("points", points, 2), np.linalg.inv(matrix_of(transform))).astype(np.float32)


def points_to_tensor(points: Numbers, transform: Numbers) -> F32:
    """Map points (x, y) from pixels of the decoded photo to tensor pixels. This inverts ``points_to_original``."""
    return carried(checked("points", points, 2), matrix_of(transform)).astype(np.float32)


def matrix_of(transform: Numbers) -> F64:
    """Return a transform as a float64 matrix (3, 3) or (..., 3, 3) that maps (x, y, 1) of the photo to the tensor.

    Raises:
        PixprepError: A shape is wrong, or a scale is 0.
    """
    array = np.asarray(transform, np.float64)
    if array.shape[-2:] == (3, 3):
        with np.errstate(all="ignore"):
            products = sum(np.abs(array[..., range(3), order]).prod(axis=-1) for order in permutations(range(3)))
            if (np.abs(np.linalg.det(array)) > _DEGENERATE * products).all():
                return array
        raise PixprepError(
            f"the transform {array.tolist()} is singular or not finite: it maps lines to points, so it cannot be "
            "inverted; skip this image"
        )
    scale, offset = np.split(checked("the numbers of a transform", transform, 4)[..., [1, 0, 3, 2]], 2, axis=-1)
    if not np.isfinite(scale + offset).all() or not scale.all():
        raise PixprepError(f"the transform {np.asarray(transform).tolist()} has a scale of 0 or is not finite")
    matrix = np.zeros((*scale.shape[:-1], 3, 3))
    for axis in (0, 1):
        matrix[..., axis, axis], matrix[..., axis, 2] = scale[..., axis], offset[..., axis]
    matrix[..., 2, 2] = 1
    return matrix


def mask_to_original(
    mask: Array,
    transform: Numbers,
    original_size: Numbers,
    *,
    stride: float = 1,
    box: Numbers | None = None,
    filter: MapFilter = "bilinear",
) -> Array:
    """Map a mask, or a map such as a heat map, from tensor pixels to pixels of the decoded photo.

    The center of each pixel of the photo is mapped to the tensor, and the mask is sampled at this position.
    Floating-point values are interpolated bilinearly between four pixels, like PyTorch's ``interpolate`` with
    ``align_corners=False`` and OpenCV's ``INTER_LINEAR``. With ``filter="area"``, the result equals that of OpenCV's
    ``INTER_AREA``: if the photo is not larger than the mask along any axis, each value is the mean of the mask over the
    area of a photo pixel. Pixels of the padding, such as the padding of a letterbox, are not used. Boolean and integer
    values, such as classes, are taken from the nearest pixel, like ``nearest-exact``.

    For a perspective, pixels beyond the horizon are also mapped, as in OpenCV's ``warpPerspective``.

    Args:
        mask: Array (height, width) or (n, height, width).
        transform: Output ``transform`` for one image, with the shape (4,) or (3, 3).
        original_size: Output ``original_size`` for the image, ``[height, width]`` of shape (2,).
        stride: Number of tensor pixels per mask pixel along each axis, such as 4 for a YOLO mask of 160 x 160 and a
            tensor of 640 x 640.
        box: Box (4,), xyxy in pixels of the photo. Only pixels whose upper left corner is inside the box are computed,
            and all other pixels are 0, as in Ultralytics. Default: the whole photo.
        filter: Filter of floating-point values. ``area`` requires a transform without rotation, and no ``box``.

    Returns:
        Array (*size) or (n, *size) with the dtype of the mask. Pixels of the photo that are outside of the tensor are
        0.

    Raises:
        PixprepError: A shape is wrong, a scale is 0, or the matrix is singular.
    """
    array = np.asarray(mask)
    sides = np.asarray(original_size)
    if array.ndim not in (2, 3) or sides.shape != (2,) or not (sides > 0).all() or not stride > 0:
        raise PixprepError(
            f"the mask must have shape (height, width) or (n, height, width), original_size must be [height, width], "
            f"and stride must be positive; given: {list(array.shape)}, {sides.tolist()} and {stride}"
        )
    matrix = matrix_of(transform)
    if matrix.shape != (3, 3):
        raise PixprepError(f"transform must have shape (4,) or (3, 3), not {list(np.shape(transform))}")
    height, width = (int(side) for side in sides)
    ends = (width, height, width, height)
    left, top, right, bottom = ends if box is None else np.ceil(np.clip(box, 0, ends)).astype(int).tolist()
    if box is None:
        left = top = 0
    masks = array.reshape(-1, *array.shape[-2:])
    if filter == "area" and array.dtype.kind == "f":
        if box is not None or not _is_straight(matrix):
            raise PixprepError('filter "area" requires a transform without rotation or perspective, and no box')
        return _averaged(masks, matrix, height, width, stride).reshape(*array.shape[:-2], height, width)
    found = np.zeros((len(masks), height, width), array.dtype)
    rows = max(1, _BLOCK // width)
    area = _area(matrix, height, width, stride, masks.shape[1:])
    for start in range(top, bottom, rows):
        stop = min(bottom, start + rows)
        y, x = (each + 0.5 for each in np.ogrid[start:stop, left:right])
        *positions, depth = (_affine_function(row, x, y) for row in matrix.tolist())
        x, y = (_quotient(each, depth * stride) for each in positions)
        found[:, start:stop, left:right] = _sampled(masks, x, y, area)
    return found.reshape(*array.shape[:-2], height, width)


def _affine_function(row: Sequence[float], x: F64, y: F64) -> F64:
    """Return ``a x + b y + c`` for x (1, columns) and y (rows, 1), without broadcasting if ``a`` or ``b`` is 0."""
    terms = [factor * place for factor, place in zip(row[:2], (x, y), strict=True) if factor]
    return np.asarray(sum(terms, row[2]))


def _quotient(positions: F64, depth: F64) -> F64:
    """Divide positions by their depth. On the horizon, where the depth is 0, return a position outside of any mask."""
    outside = np.full(np.broadcast_shapes(positions.shape, depth.shape), -1.0)
    return np.divide(positions, depth, out=outside, where=depth != 0)


def _area(matrix: F64, height: int, width: int, stride: float, sides: tuple[int, ...]) -> tuple[float, ...]:
    """Return the bounds (left, top, right, bottom) of the photo in mask pixels.

    If the photo is rotated, the bounds are the bounds of the whole mask.
    """
    if not _is_straight(matrix):
        return 0.0, 0.0, float(sides[1]), float(sides[0])
    corners = np.array([[0, 0, 1], [width, height, 1]]) @ matrix.T
    ends = corners[:, :2] / corners[:, 2:] / stride
    (left, top), (right, bottom) = ends.min(axis=0), ends.max(axis=0)
    return max(0.0, left), max(0.0, top), min(float(sides[1]), right), min(float(sides[0]), bottom)


def _is_straight(matrix: F64) -> bool:
    """Return whether a matrix only scales, flips and translates."""
    return not matrix[0, 1] and not matrix[1, 0] and not matrix[2, :2].any()


def _averaged(masks: Array, matrix: F64, height: int, width: int, stride: float) -> Array:
    """Map masks (n, height, width) with the filter ``area``.

    Each axis has a matrix of weights. If neither axis grows, a weight is the overlap of a mask pixel with a photo
    pixel. If an axis grows, OpenCV uses two mask pixels along both axes: the one in which the photo pixel begins, and
    the next one. The weight of the next one is the fraction of the photo pixel that is beyond the first.
    """
    axes = []
    for axis, count in ((1, height), (0, width)):
        scale, offset = matrix[axis, axis] / matrix[2, 2] / stride, matrix[axis, 2] / matrix[2, 2] / stride
        length = masks.shape[2 - axis]
        edges = offset + scale * np.arange(count + 1)
        edges = np.where(np.abs(edges - np.round(edges)) < _EDGE, np.round(edges), edges)
        begin, end = np.minimum(edges[:-1], edges[1:]), np.maximum(edges[:-1], edges[1:])
        axes.append((begin, end, length))
    grows = any((end - begin).max() < 1 - _EDGE / length for begin, end, length in axes)
    rows, columns = (_overlaps(begin, end, length, is_two=grows) for begin, end, length in axes)
    across = masks.astype(np.float64) @ columns.T
    found: Array = (rows @ across).astype(masks.dtype)
    return found


def _overlaps(begin: F64, end: F64, length: int, *, is_two: bool) -> F64:
    """Return the weights (out, length) of mask pixels for intervals of mask positions.

    The weights of an interval that is outside of the mask are 0.
    """
    low, high = max(0.0, float(begin.min())), min(float(length), float(end.max()))
    pixels = np.arange(length)
    if is_two:
        first = np.floor(begin)
        beyond = np.clip((end - first - 1) / (end - begin), 0, 1)
        last = max(np.floor(low), np.ceil(high) - 1)
        weights = (pixels == np.clip(first, np.floor(low), last)[:, None]) * (1 - beyond)[:, None]
        weights = weights + (pixels == np.clip(first + 1, np.floor(low), last)[:, None]) * beyond[:, None]
    else:
        overlap = np.minimum(end[:, None], pixels + 1) - np.maximum(begin[:, None], pixels)
        weights = np.maximum(overlap, 0)
        weights /= np.maximum(weights.sum(axis=1, keepdims=True), 1e-12)
    is_inside = (end > 0) & (begin < length)
    found: F64 = np.where(is_inside[:, None], weights, 0)
    return found


def _sampled(masks: Array, x: F64, y: F64, area: tuple[float, ...]) -> Array:
    """Sample masks (n, height, width) at positions x and y in mask pixels, which broadcast to (rows, columns)."""
    left, top, right, bottom = area
    height, width = masks.shape[1:]
    is_inside = (x >= 0) & (x <= width) & (y >= 0) & (y <= height)
    if masks.dtype.kind != "f":
        columns = np.clip(np.floor(x + _EDGE), 0, width - 1).astype(int)
        rows = np.clip(np.floor(y + _EDGE), 0, height - 1).astype(int)
        return np.where(is_inside, masks[:, rows, columns], np.zeros((), masks.dtype))
    # centers of the first and the last mask pixel that the photo covers
    first_x, last_x = np.floor(left + 0.5), max(np.floor(left + 0.5), np.ceil(right - 0.5) - 1)
    first_y, last_y = np.floor(top + 0.5), max(np.floor(top + 0.5), np.ceil(bottom - 0.5) - 1)
    x, y = np.clip(x - 0.5, first_x, last_x), np.clip(y - 0.5, first_y, last_y)
    column, row = np.floor(x).astype(int), np.floor(y).astype(int)
    column, row = np.clip(column, 0, width - 1), np.clip(row, 0, height - 1)
    right_, below = np.minimum(column + 1, width - 1), np.minimum(row + 1, height - 1)
    share_x, share_y = x - column, y - row
    if x.shape[0] == 1 and y.shape[-1] == 1:  # separable: interpolate along the rows, then along the columns
        across = masks[:, :, column[0]] * (1 - share_x) + masks[:, :, right_[0]] * share_x
        upper, lower = across[:, row[:, 0]], across[:, below[:, 0]]
    else:
        upper = masks[:, row, column] * (1 - share_x) + masks[:, row, right_] * share_x
        lower = masks[:, below, column] * (1 - share_x) + masks[:, below, right_] * share_x
    return np.where(is_inside, upper * (1 - share_y) + lower * share_y, 0).astype(masks.dtype)


def quads_of(boxes: Numbers) -> F32:
    """Return the corners of rotated boxes, in the order of Ultralytics' ``xywhr2xyxyxyxy``.

    Args:
        boxes: Array (..., 5) of x and y of the center, width, height, and the clockwise angle in radians.

    Returns:
        Array float32 (..., 4, 2) of x, y of the corners. For a box with angle 0, the order is lower right, upper right,
        upper left, lower left.

    Raises:
        PixprepError: A shape is wrong.
    """
    corners: F32 = _quads(checked("rotated boxes", boxes, 5)).astype(np.float32)
    return corners


def rotated_to_original(boxes: Numbers, transform: Numbers) -> F32:
    """Map rotated boxes (``xywhr``) from tensor pixels to pixels of the decoded photo.

    The scales of both axes must be equal, as they are for a letterbox, except for small differences due to rounding. If
    the image was stretched, a rotated box becomes a quadrilateral that is not a rectangle. In this case, use
    ``points_to_original(quads_of(boxes), transform)``.

    Args:
        boxes: Array (..., n, 5), as in ``quads_of``.
        transform: The ``transform`` output, as in ``boxes_to_original``.

    Returns:
        Array float32 (..., n, 5), with angles from -pi to pi.

    Raises:
        PixprepError: A shape is wrong, a scale is 0, or the two scales differ by more than 1 %.
    """
    array = checked("rotated boxes", boxes, 5)
    inverse = np.linalg.inv(matrix_of(transform))
    across, down = inverse[..., :2, 0], inverse[..., :2, 1]
    lengths = np.linalg.norm(across, axis=-1), np.linalg.norm(down, axis=-1)
    skew = np.abs((across * down).sum(axis=-1)) / (lengths[0] * lengths[1])
    if (np.abs(lengths[0] / lengths[1] - 1) > _STRETCH).any() or (skew > _STRETCH).any() or inverse[..., 2, :2].any():
        raise PixprepError(
            "the transform stretches the image, so rotated boxes do not remain rectangles: map their corners with "
            "points_to_original(quads_of(boxes), transform)"
        )
    quads = _quads(array)
    points = quads.reshape(*quads.shape[:-3], -1, 2)
    corners = carried(points, inverse).reshape(quads.shape)
    along, beside = corners[..., 1, :] - corners[..., 2, :], corners[..., 0, :] - corners[..., 1, :]
    sides = [np.linalg.norm(each, axis=-1) for each in (along, beside)]
    angle = np.arctan2(along[..., 1], along[..., 0])
    centre = corners.mean(axis=-2)
    rotated: F32 = np.stack([centre[..., 0], centre[..., 1], *sides, angle], axis=-1).astype(np.float32)
    return rotated


def _quads(boxes: F64) -> F64:
    """Return the corners (..., 4, 2) of rotated boxes (..., 5)."""
    x, y, width, height, angle = np.moveaxis(boxes, -1, 0)
    cosine, sine = np.cos(angle), np.sin(angle)
    along = np.stack([width / 2 * cosine, width / 2 * sine], axis=-1)
    down = np.stack([-height / 2 * sine, height / 2 * cosine], axis=-1)
    centre = np.stack([x, y], axis=-1)
    return np.stack(
        [centre + along + down, centre + along - down, centre - along - down, centre - along + down], axis=-2
    )


def _sides(size: Numbers) -> F64:
    """Return an array (..., 1, 4) of width, height, width, height, as limits for boxes in the format xyxy."""
    array = checked("height and width", size, 2)
    if not (array > 0).all():
        raise PixprepError(f"the size {np.asarray(size).tolist()} must have positive sides")
    return np.tile(array[..., None, ::-1], 2)
