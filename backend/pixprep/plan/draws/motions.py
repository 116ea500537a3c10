"""Rotations, affine maps and perspectives of an image of known size, by the formulas of Pillow and torchvision v2.

Angles are in degrees. As in torchvision, a point and a translation are x before y, in pixels; a point is counted from
the upper left corner.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, cos, floor, pi, radians, sin, tan
from typing import NamedTuple

import numpy as np

from pixprep.plan.steps.levels import LevelStep, Take
from pixprep.plan.steps.warps import Matrix, Warp, WarpFilter
from pixprep.spec import PaddingMode, WarpLike

Pair = tuple[float, float]
Fill = tuple[int, ...] | None
Corners = Sequence[Sequence[int]]
"""(x, y) of the upper left, upper right, lower right and lower left pixel."""


@dataclass(frozen=True, kw_only=True)
class Look:
    """Parts that every warp of an op has in common.

    Attributes:
        filter: nearest or bilinear.
        center: (x, y) of the point that stays; None: the middle.
        fill: see ``plan.steps.warps.Warp``.
        like: whose formulas.
        padding_mode: of dali and opencv: what lies outside.
    """

    filter: WarpFilter = "nearest"
    center: Pair | None = None
    fill: Fill = None
    like: WarpLike = "pillow"
    padding_mode: PaddingMode = "constant"

    def __str__(self) -> str:
        about = "" if self.center is None else f" about x {self.center[0]:g}, y {self.center[1]:g}"
        margins = "" if self.padding_mode == "constant" else f", margins by {self.padding_mode}"
        return f"{about} ({self.filter}, {self.like}'s rounding{margins})"


def rotated(height: int, width: int, angle: float, look: Look, *, expand: bool = False) -> tuple[LevelStep, ...]:
    """A rotation of an image, counter-clockwise.

    Args:
        height: of the image.
        width: of the image.
        angle: in degrees.
        look: how.
        expand: make the result as large as the rotated image; else it keeps the size.

    Returns:
        A step; none where nothing changes. Turns by a half, and by a quarter of what is square or expands, about the
        middle are exact whatever the filter.
    """
    given, angle = angle, angle % 360.0
    if look.center is None:
        if angle == 0:
            return ()
        if angle == 180:
            return (Take(0, 0, height, width, (True, True), ()),)
        if angle in (90, 270) and (expand or height == width):
            matrix: Matrix = (0.0, -1.0, float(width), 1.0, 0.0, 0.0)
            if angle == 270:
                matrix = (0.0, 1.0, 0.0, -1.0, 0.0, float(height))
            return (Warp(matrix, (width, height), 0, 0, width, height, None, "nearest", "pillow"),)
    if look.like == "dali":
        matrix, size = _dali_rotation(height, width, given, expand=expand)
        return (Warp(matrix, size, 0, 0, *size, look.fill, look.filter, "dali", None, look.padding_mode),)
    about = _pillow_rotation if look.like == "pillow" else _torchvision_rotation
    matrix, size = about(height, width, angle, look.center, expand=expand)
    return (Warp(matrix, size, 0, 0, *size, look.fill, look.filter, look.like),)


class Motion(NamedTuple):
    """Motion about the center, as torchvision's ``affine`` makes it.

    Attributes:
        angle: clockwise.
        translate: (x, y), afterwards.
        scale: over 1 enlarges.
        shear: of x and of y, angles.
    """

    angle: float = 0.0
    translate: Pair = (0.0, 0.0)
    scale: float = 1.0
    shear: Pair = (0.0, 0.0)

    def __str__(self) -> str:
        return (
            f"rotate by {self.angle:.4g} degrees clockwise, shear by {self.shear[0]:.4g}, {self.shear[1]:.4g}, scale "
            f"by {self.scale:.4g}, move by {self.translate[0]:g}, {self.translate[1]:g}"
        )


def mapped(height: int, width: int, motion: Motion, look: Look) -> Warp:
    """The ``affine`` of torchvision, of an image of this size."""
    size = (height, width)
    x, y = (width * 0.5, height * 0.5) if look.center is None else look.center
    if look.like == "torchvision":
        x, y = (0.0, 0.0) if look.center is None else (x - width * 0.5, y - height * 0.5)
    matrix = _inverse(x, y, motion)
    if look.like == "opencv":  # from centre to centre of pixels
        a, b, c, d, e, f = matrix
        matrix = (a, b, c + 0.5 * (a + b - 1), d, e, f + 0.5 * (d + e - 1))
    return Warp(matrix, size, 0, 0, *size, look.fill, look.filter, look.like, None, look.padding_mode)


def coefficients(height: int, width: int, corners: Corners) -> Matrix | None:
    """Coefficients of torchvision's ``_get_perspective_coeffs``: of an image whose four corner pixels go to others.

    Returns:
        (a, b, c, d, e, f, g, h) of a perspective from the result to the image, each the float32 that is nearest to the
        exact solution; torchvision's least squares is at most the next one. None: three of the corners lie on a line,
        and no perspective does that.

    Whole numbers all the way: the inverse of the map of the unit square (Heckbert, 1989), times the sides.
    """
    (x0, y0), (x1, y1), (x2, y2), (x3, y3) = corners
    dx1, dy1, dx2, dy2 = x1 - x2, y1 - y2, x3 - x2, y3 - y2
    sx, sy, t = x0 - x1 + x2 - x3, y0 - y1 + y2 - y3, dx1 * dy2 - dx2 * dy1
    g, h = sx * dy2 - dx2 * sy, dx1 * sy - sx * dy1
    a, b, c = (x1 - x0) * t + g * x1, (x3 - x0) * t + h * x3, x0 * t
    d, e, f = (y1 - y0) * t + g * y1, (y3 - y0) * t + h * y3, y0 * t
    across, down, last = width - 1, height - 1, a * e - b * d
    if 0 in (t, last, t + g, t + h, across, down):
        return None
    back = (
        *(across * each for each in (e * t - f * h, c * h - b * t, b * f - c * e)),
        *(down * each for each in (f * g - d * t, a * t - c * g, c * d - a * f)),
        d * h - e * g, b * g - a * h,
    )  # fmt: skip
    return tuple(float(np.float32(each / last)) for each in back)


def projected(height: int, width: int, corners: Corners, look: Look) -> tuple[Warp, ...]:
    """A perspective of an image of this size by its corners; none where three of them lie on a line."""
    matrix = coefficients(height, width, corners)
    if matrix is None:
        return ()
    return (Warp(matrix, (height, width), 0, 0, height, width, look.fill, look.filter, look.like),)


def _pillow_rotation(
    height: int, width: int, angle: float, center: Pair | None, *, expand: bool
) -> tuple[Matrix, tuple[int, int]]:
    """Rotation as ``Image.rotate`` makes it: the matrix, rounded to 15 digits, and the size of the result."""
    x, y = (width / 2, height / 2) if center is None else center
    angle = -radians(angle)
    a, b, d, e = round(cos(angle), 15), round(sin(angle), 15), round(-sin(angle), 15), round(cos(angle), 15)
    c, f = a * -x + b * -y + x, d * -x + e * -y + y
    if not expand:
        return (a, b, c, d, e, f), (height, width)
    corners = [(a * x + b * y + c, d * x + e * y + f) for x, y in ((0, 0), (width, 0), (width, height), (0, height))]
    columns, rows = (ceil(max(ends)) - floor(min(ends)) for ends in zip(*corners, strict=True))
    left, top = -(columns - width) / 2.0, -(rows - height) / 2.0
    return (a, b, a * left + b * top + c, d, e, d * left + e * top + f), (rows, columns)


def _torchvision_rotation(
    height: int, width: int, angle: float, center: Pair | None, *, expand: bool
) -> tuple[Matrix, tuple[int, int]]:
    """Rotation as ``rotate_image`` makes it; the size of the result is worked out in float32."""
    x, y = (0.0, 0.0) if center is None else (center[0] - width * 0.5, center[1] - height * 0.5)
    matrix = _inverse(x, y, Motion(-angle))
    if not expand:
        return matrix, (height, width)
    half = np.array([0.5 * width, 0.5 * height], np.float32)
    corners = np.array([(-1, -1), (-1, 1), (1, 1), (1, -1)], np.float32) * half
    factors = np.array(matrix, np.float32).reshape(2, 3)
    found = corners[:, :1] * factors[:, 0] + corners[:, 1:] * factors[:, 1] + factors[:, 2]
    first, last = (
        np.trunc((ends + half) * np.float32(1e4)) * np.float32(1e-4) for ends in (found.min(axis=0), found.max(axis=0))
    )
    columns, rows = (int(each) for each in np.ceil(last) - np.floor(first))
    return matrix, (rows, columns)


def _dali_rotation(height: int, width: int, angle: float, *, expand: bool) -> tuple[Matrix, tuple[int, int]]:
    """Rotation as DALI's ``rotate`` makes it, in float32.

    A side of the result that expands is rounded up, less a hundredth, and even or odd as the side of the image is that
    it is nearest to in its direction.
    """
    one = np.float32
    turn = float(one(angle) * one(np.pi / 180))
    across, down = abs(cos(turn)), abs(sin(turn))
    rows, columns = height, width
    if expand:
        rows, columns = (ceil(across * own + down * other - 0.01) for own, other in ((height, width), (width, height)))
        likes = (height, width) if down <= across else (width, height)
        rows, columns = (side + (side - like) % 2 for side, like in zip((rows, columns), likes, strict=True))
    a, b = glibc_sine(turn, quarters=1), glibc_sine(turn)
    x, y = one(-columns / 2), one(-rows / 2)
    c, f = (a * x - b * y) + one(width / 2), (b * x + a * y) + one(height / 2)
    return tuple(float(each) for each in (a, -b, c, b, a, f)), (rows, columns)


def glibc_sine(angle: float, *, quarters: int = 0) -> np.float32:
    """The ``sinf`` of glibc of radians in float32, as in rules.c; with a quarter turn more the ``cosf``."""
    turns = floor(angle * (2 / pi) + 0.5)
    x = angle - turns * (pi / 2)
    square = x * x
    if (turns + quarters) % 2:
        rest = -0.001388676379437604 + square * 2.4390450703564542e-05
        value = (
            1 + square * -0.49999999725108224 + square * square * 0.041666623324344516 + square * square * square * rest
        )
    else:
        value = (
            x
            + x * square * -0.16666654943701084
            + x * (square * square) * (0.008332178146138854 + square * -0.00019517298981385725)
        )
    return np.float32(-value if (turns + quarters) % 4 > 1 else value)


def _inverse(x: float, y: float, motion: Motion) -> Matrix:
    """Inverse about (x, y), as torchvision's ``_get_inverse_affine_matrix``, operation by operation."""
    _, translate, scale, shear = motion
    turn, shear_x, shear_y = radians(motion.angle), radians(shear[0]), radians(shear[1])
    a = cos(turn - shear_y) / cos(shear_y)
    b = -(a * tan(shear_x) + sin(turn))
    c = sin(turn - shear_y) / cos(shear_y)
    d = cos(turn) - c * tan(shear_x)
    to_x, to_y = x + translate[0], y + translate[1]
    m0, m1, m3, m4 = d / scale, -b / scale, -c / scale, a / scale
    return m0, m1, x - m0 * to_x - m1 * to_y, m3, m4, y - m3 * to_x - m4 * to_y
