"""Computes matrices of warps: inverse matrices, homographies from four points, and least-squares similarity transforms.

The functions ``inverse``, ``affine`` and ``perspective`` reproduce OpenCV's float64 arithmetic bit for bit. An affine
matrix is the tuple (a, b, c, d, e, f), and a homography is the tuple (a, ..., i), both in row-major order. A matrix
maps points of the image to points of the result. The origin of both coordinate systems is the center of the first
pixel.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from typing import Any

import numpy as np
import numpy.typing as npt

from pixprep.spec import Matrix

F32 = npt.NDArray[np.float32]
Points = Sequence[Sequence[float]]
"""Sequence of points (x, y)."""
_SINGULAR = 100 * float(np.finfo(np.float64).eps)
"""Minimum absolute value of a pivot in Gaussian elimination. OpenCV treats smaller pivots as zero."""


def inverse(matrix: Matrix) -> Matrix | None:
    """Return the inverse of a matrix, as ``warpAffine`` and ``warpPerspective`` compute it.

    The inverse maps points of the result to points of the image. Return None if the matrix is not invertible.
    """
    if len(matrix) == 6:
        a, b, c, d, e, f = matrix
        over = a * e - b * d
        if over == 0 or not isfinite(1.0 / over):
            return None
        over = 1.0 / over
        a, b, d, e = e * over, b * -over, d * -over, a * over
        found: Matrix = (a, b, -a * c - b * f, d, e, -d * c - e * f)
    else:
        a, b, c, d, e, f, g, h, i = matrix
        over = a * (e * i - f * h) - b * (d * i - f * g) + c * (d * h - e * g)
        if over == 0 or not isfinite(1.0 / over):
            return None
        over = 1.0 / over
        found = (
            *((e * i - f * h) * over, (c * h - b * i) * over, (b * f - c * e) * over),
            *((f * g - d * i) * over, (a * i - c * g) * over, (c * d - a * f) * over),
            *((d * h - e * g) * over, (b * g - a * h) * over, (a * e - b * d) * over),
        )
    return found if all(map(isfinite, found)) else None


def perspective(source: Points, target: Points) -> Matrix | None:
    """Return the homography that maps four points to four others, as ``getPerspectiveTransform`` computes it.

    Args:
        source: Four points with float32 coordinates.
        target: The corresponding points of the result, with float32 coordinates.

    Returns:
        The nine numbers of the homography, or None if OpenCV does not find one.
    """
    f32 = np.float32
    rows: list[list[float]] = []
    for axis in (0, 1):
        for (x, y), goal in zip(source, target, strict=True):
            products = [float(-f32(place) * f32(goal[axis])) for place in (x, y)]
            ones, nothing = [float(x), float(y), 1.0], [0.0, 0.0, 0.0]
            rows.append([*(nothing if axis else ones), *(ones if axis else nothing), *products, float(goal[axis])])
    found = _solved(rows)
    return None if found is None else (*found, 1.0)


def affine(source: Points, target: Points) -> Matrix | None:
    """Return the affine matrix that maps three points to three others, as ``getAffineTransform`` computes it.

    Args:
        source: Three points with float32 coordinates.
        target: The corresponding points of the result, with float32 coordinates.

    Returns:
        The six numbers of the matrix, or None if OpenCV does not find one.
    """
    rows: list[list[float]] = []
    for (x, y), goal in zip(source, target, strict=True):
        ones, nothing = [float(x), float(y), 1.0], [0.0, 0.0, 0.0]
        rows += [[*ones, *nothing, float(goal[0])], [*nothing, *ones, float(goal[1])]]
    found = _solved(rows)
    return None if found is None else tuple(found)


def region(box: F32, padding: float) -> tuple[F32, F32]:
    """Return the center of a box (left, top, right, bottom), and its sides multiplied by ``padding``, as in mmpose."""
    return (box[2:] + box[:2]) * np.float32(0.5), (box[2:] - box[:2]) * np.float32(padding)


def of_box(center: F32, sides: F32, degrees: float, height: int, width: int) -> Matrix | None:
    """Return the affine matrix that maps a region around a person to an image, as in top-down pose estimation.

    The shorter side of the region is enlarged to the aspect ratio of the image. The formulas and their float32 rounding
    are those of mmpose's ``TopdownAffine``, which computes the matrix of HRNet's ``get_affine_transform``.

    Args:
        center: Center (x, y) of the region, float32 (2,).
        sides: Width and height of the region, float32 (2,).
        degrees: Angle by which the region is rotated clockwise, a float32 number.
        height: Height of the image in pixels.
        width: Width of the image in pixels.
    """
    ratio = width / height
    wide = max(sides[1] * np.float32(ratio), sides[0])
    angle = np.deg2rad(np.float32(degrees))
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    source, target = np.zeros((3, 2), np.float32), np.zeros((3, 2), np.float32)
    source[0], source[1] = center, center + turn @ np.array([float(wide) * -0.5, 0.0])
    target[0], target[1] = (width * 0.5, height * 0.5), (0.0, height * 0.5)
    for points in (source, target):
        x, y = points[0] - points[1]
        points[2] = points[1] + np.array([-y, x])
    return affine(source.tolist(), target.tolist())


def unbiased(box: npt.NDArray[Any], padding: float, height: int, width: int) -> Matrix | None:
    """Return the affine matrix that maps a region around a person to an image without a shift by half a pixel.

    The sides of the box are multiplied by ``padding`` after the shorter side is enlarged to the aspect ratio of the
    image. The corners of this region are mapped to the centers of the four corner pixels of the image (Huang et al.,
    "The Devil is in the Details: Delving into Unbiased Data Processing for Human Pose Estimation", 2020). The formulas
    and their rounding are those of ``VitPoseImageProcessor`` of transformers 5 with NumPy 2. The class divides the
    sides by 200, rounds them to float32, and multiplies them by 200 again.

    Args:
        box: Left, top, width and height of the box, float32 or float64 (4,). The operations that precede the rounding
            to float32 are computed in this dtype.
        padding: Factor by which the sides are multiplied.
        height: Height of the image in pixels, at least 2.
        width: Width of the image in pixels, at least 2.

    Returns:
        The six numbers of the matrix, or None if the box is empty.
    """
    number, single = box.dtype.type, np.float32
    left, top, wide, high = box
    ratio, half = number(width / height), number(0.5)
    center = np.array([left + wide * half, top + high * half], single)
    if wide > ratio * high:
        high = wide / ratio
    else:
        wide = ratio * high
    sides = np.array([wide / number(200), high / number(200)], single) * single(padding) * single(200)
    if not sides.all():
        return None
    scales = np.array([width - 1, height - 1]) / sides.astype(np.float64)
    shifts = (scales * (sides * single(0.5) - center)).astype(single)
    (a, e), (c, f) = scales.astype(single).tolist(), shifts.tolist()
    return (a, 0.0, c, 0.0, e, f)


def _solved(rows: list[list[float]]) -> list[float] | None:
    """Solve a system of linear equations in float64 by Gaussian elimination, as OpenCV's ``solve`` does.

    Args:
        rows: Coefficients and right side of each equation; modified in place.

    Returns:
        The solution, or None if a pivot is too small.
    """
    count = len(rows)
    for i in range(count):
        pivot = max(range(i, count), key=lambda row: (abs(rows[row][i]), -row))
        if not abs(rows[pivot][i]) >= _SINGULAR:
            return None
        rows[i], rows[pivot] = rows[pivot], rows[i]
        over = -1 / rows[i][i]
        for row in rows[i + 1 :]:
            alpha = row[i] * over
            row[i + 1 :] = [one + alpha * other for one, other in zip(row[i + 1 :], rows[i][i + 1 :], strict=True)]
    found = [0.0] * count
    for i in reversed(range(count)):
        rest = rows[i][count]
        for k in range(i + 1, count):
            rest -= rows[i][k] * found[k]
        found[i] = rest / rows[i][i]
    return found


def similarity(source: Points, target: Points) -> Matrix | None:
    """Return the similarity transform (rotation, scale and translation) that aligns points with minimum squared error.

    The formula is Umeyama's solution ("Least-squares estimation of transformation parameters", 1991) in two dimensions,
    without reflections. scikit-image's ``SimilarityTransform`` computes the same transform by a singular value
    decomposition, with different rounding errors.

    Args:
        source: Points to align.
        target: Points with which the source points are aligned.

    Returns:
        The six numbers of an affine matrix, or None if all source points are equal.
    """
    there, goal = np.asarray(source, np.float64), np.asarray(target, np.float64)
    middle, centre = there.mean(0), goal.mean(0)
    (x, y), (u, v) = (there - middle).T, (goal - centre).T
    spread = float((x * x + y * y).sum())
    if not spread > 0:
        return None
    a, b = float((x * u + y * v).sum()) / spread, float((x * v - y * u).sum()) / spread
    c, f = centre[0] - (a * middle[0] - b * middle[1]), centre[1] - (b * middle[0] + a * middle[1])
    return (a, -b, float(c), b, a, float(f))
