"""Computes matrices of warps: inverse matrices, perspectives from four points, and least-squares similarity transforms.

The functions ``inverse`` and ``perspective`` reproduce OpenCV's float64 arithmetic bit for bit. An affine matrix is the
tuple (a, b, c, d, e, f), and a perspective is the tuple (a, ..., i), both in row-major order. A matrix maps points of
the image to points of the result. In both, the origin is the center of the first pixel.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite

import numpy as np

from pixprep.spec import Matrix

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
    """Return the perspective that maps four points to four others, as ``getPerspectiveTransform`` computes it.

    Args:
        source: Four points, whose coordinates are float32 numbers.
        target: Points that the source points are mapped to. Their coordinates are also float32 numbers.

    Returns:
        The nine numbers of the perspective, or None if OpenCV does not find one.
    """
    f32 = np.float32
    rows: list[list[float]] = []
    for axis in (0, 1):
        for (x, y), goal in zip(source, target, strict=True):
            products = [float(-f32(place) * f32(goal[axis])) for place in (x, y)]
            ones, nothing = [float(x), float(y), 1.0], [0.0, 0.0, 0.0]
            rows.append([*(nothing if axis else ones), *(ones if axis else nothing), *products, float(goal[axis])])
    for i in range(8):
        pivot = max(range(i, 8), key=lambda row: (abs(rows[row][i]), -row))
        if not abs(rows[pivot][i]) >= _SINGULAR:
            return None
        rows[i], rows[pivot] = rows[pivot], rows[i]
        over = -1 / rows[i][i]
        for row in rows[i + 1 :]:
            alpha = row[i] * over
            row[i + 1 :] = [one + alpha * other for one, other in zip(row[i + 1 :], rows[i][i + 1 :], strict=True)]
    found = [0.0] * 8
    for i in range(7, -1, -1):
        rest = rows[i][8]
        for k in range(i + 1, 8):
            rest -= rows[i][k] * found[k]
        found[i] = rest / rows[i][i]
    return (*found, 1.0)


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
