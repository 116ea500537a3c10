"""Steps that rotate an image of known size, or apply an affine or perspective transform to it.

As in torchvision, angles are in degrees, and points and translations are (x, y) in pixels. The origin of points is the
upper left corner of the image.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from pixprep.plan.profiles import WARPS
from pixprep.plan.profiles.torchvision import inverse_affine
from pixprep.plan.steps.levels import LevelStep, Take
from pixprep.plan.steps.warps import Warp
from pixprep.spec import Matrix, PaddingMode, WarpFilter, WarpLike

Pair = tuple[float, float]
Fill = tuple[int, ...] | None
Corners = Sequence[Sequence[int]]
"""Positions (x, y) of the upper left, upper right, lower right and lower left corner pixels."""


@dataclass(frozen=True, kw_only=True)
class Look:
    """Parameters of a warp that are the same for all images.

    Attributes:
        filter: Interpolation: nearest, bilinear or bicubic.
        center: Center (x, y) of rotation, scaling and shear. None means the center of the image.
        fill: Fill value per channel, see ``steps.warps.Warp``.
        like: Library whose formulas the warp reproduces.
        padding_mode: Padding mode outside of the image. Modes other than ``constant`` are supported for dali and
            opencv.
    """

    filter: WarpFilter = "nearest"
    center: Pair | None = None
    fill: Fill = None
    like: WarpLike = "pillow"
    padding_mode: PaddingMode = "constant"

    def __str__(self) -> str:
        about = "" if self.center is None else f" about x {self.center[0]:g}, y {self.center[1]:g}"
        padding = "" if self.padding_mode == "constant" else f", padding mode {self.padding_mode}"
        return f"{about} ({self.filter}, {self.like}'s rounding{padding})"

    def warp(self, matrix: Matrix, size: tuple[int, int]) -> Warp:
        """Return the warp with this matrix.

        Args:
            matrix: Matrix from the result to the image, see ``steps.warps.Warp``.
            size: Size (height, width) of the result.
        """
        return Warp(matrix, size, 0, 0, *size, self.fill, self.filter, self.like, padding_mode=self.padding_mode)


def rotated(height: int, width: int, angle: float, look: Look, *, expand: bool = False) -> tuple[LevelStep, ...]:
    """Return the steps that rotate an image counterclockwise.

    Args:
        height: Height of the image.
        width: Width of the image.
        angle: Angle in degrees.
        look: Further parameters of the warp.
        expand: Whether the result is enlarged to contain the whole rotated image. If False, it has the size of the
            image.

    Returns:
        One step, or an empty tuple if the image does not change. With every filter, rotations about the center by 180
        degrees only rearrange pixels. Rotations by 90 or 270 degrees also do so if the image is square or ``expand`` is
        true.
    """
    rotation_angle = angle % 360.0
    if look.center is None:
        if rotation_angle == 0:
            return ()
        if rotation_angle == 180:
            return (Take(0, 0, height, width, (True, True), ()),)
        if rotation_angle in (90, 270) and (expand or height == width):
            matrix: Matrix = (0.0, -1.0, float(width), 1.0, 0.0, 0.0)
            if rotation_angle == 270:
                matrix = (0.0, 1.0, 0.0, -1.0, 0.0, float(height))
            return (Look().warp(matrix, (width, height)),)
    rotation = WARPS[look.like].rotation
    assert rotation is not None
    return (look.warp(*rotation(height, width, angle, look.center, expand=expand)),)


class Motion(NamedTuple):
    """Parameters of an affine map about a center, as in torchvision's ``affine``.

    Attributes:
        angle: Angle of the rotation in degrees, clockwise.
        translate: Translation (x, y) in pixels, which is applied last.
        scale: Scale factor. Values above 1 enlarge the image.
        shear: Shear angles (x, y) in degrees.
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
    """Return the warp of torchvision's ``affine`` for an image of this size."""
    x, y = (width * 0.5, height * 0.5) if look.center is None else look.center
    origin = WARPS[look.like].origin
    if origin == "middle":
        x, y = x - width * 0.5, y - height * 0.5
    matrix = inverse_affine(x, y, **motion._asdict())
    if origin == "pixel":
        a, b, c, d, e, f = matrix
        matrix = (a, b, c + 0.5 * (a + b - 1), d, e, f + 0.5 * (d + e - 1))
    return look.warp(matrix, (height, width))


def coefficients(height: int, width: int, corners: Corners) -> Matrix | None:
    """Return the coefficients of the perspective that moves the four corner pixels of an image to ``corners``.

    The coefficients are those of torchvision's ``_get_perspective_coeffs``. They are computed with exact integers, as
    the inverse of the map from the unit square to the corners (Heckbert, 1989), scaled to the size of the image.

    Returns:
        Coefficients (a, b, c, d, e, f, g, h) of a perspective from the result to the image, or None if three of the
        corners are collinear, so that no perspective exists. Each coefficient is the float32 number that is nearest to
        the exact solution. torchvision's least-squares solution is equal or differs in the last bit.
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
    """Return the warp that moves the corner pixels to ``corners``, or an empty tuple if three of them are collinear."""
    matrix = coefficients(height, width, corners)
    if matrix is None:
        return ()
    return (look.warp(matrix, (height, width)),)
