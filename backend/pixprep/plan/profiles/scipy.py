"""SciPy's affine maps of uint8 images and its resize of float32 images.

**Affine maps** are computed by ``scipy.ndimage.affine_transform`` with ``order`` 0 and 1. The docstring of ``compute``
contains the formulas, which are those of ``NI_GeometricTransform`` in ni_interpolation.c. The results are those of
SciPy on x86-64, where the compiler does not fuse products and sums.

**The resize** consists of ``gaussian_filter`` and ``zoom``, as in scikit-image's ``resize`` and in OWLv2. With
``antialias``, an axis that shrinks from m to n pixels is first smoothed with a Gaussian whose standard deviation is
``(m / n - 1) / 2``. The Gaussian is truncated at four standard deviations (``scipy/ndimage/_filters.py``). The smoothed
image is then interpolated linearly at the positions ``(i + 0.5) * (m / n) - 0.5`` and clipped to the range of the image
(``_clip_warp_output`` of scikit-image). Beyond the border, the image is mirrored without its edge pixel.

SciPy computes the weights of the Gaussian with NumPy's ``exp``, whose last bit depends on the version of NumPy and on
AVX-512. This module computes ``exp`` in extended precision and rounds it to float64. The weights equal those that
glibc's ``exp`` yields, except for about one in a thousand.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from pixprep.plan.profiles.profile import (
    Computed,
    Method,
    Original,
    Profile,
    Size,
    Warps,
    never_vertical_first,
    no_windows,
)
from pixprep.plan.profiles.windows import Axis, Formula, Passes
from pixprep.spec import Matrix, WarpFilter

TRUNCATE = 4.0
"""Radius of the Gaussian in standard deviations."""


@lru_cache(32)
def weights(length: int, out_length: int) -> npt.NDArray[np.float64]:
    """Return the weights of the Gaussian of an axis, from its first tap to its center.

    Args:
        length: Length of the axis before the resize.
        out_length: Length of the axis after the resize. If it is not smaller, the axis is not smoothed, and the result
            is only the center, 1.
    """
    sigma = max(0.0, (length / out_length - 1) / 2)
    if sigma <= 1e-15:
        return np.ones(1)
    radius = int(TRUNCATE * sigma + 0.5)
    taps = np.exp((-0.5 / (sigma * sigma) * np.arange(-radius, radius + 1) ** 2).astype(np.longdouble))
    values: npt.NDArray[np.float64] = taps.astype(np.float64)
    values = values / values.sum()
    return values[: radius + 1].copy()


def passes(method: Method, rows: Axis, columns: Axis) -> Passes:
    """Return the arithmetic, which does not depend on the arguments."""
    del method, rows, columns
    return "smoothed"


def formula(method: Method, passes: Passes) -> Formula:
    """Return the formula of the interpolation. ``is_widened`` means that the image is smoothed first."""
    del passes
    return Formula("bilinear", is_widened=method.antialias)


def original(ndimage: Any, pixels: Any, op: Any, size: Size) -> Any:
    """Resize an image with SciPy's functions."""
    values = np.asarray(pixels, np.float32)
    factors = np.divide(values.shape, (*size, values.shape[2]))
    sigmas = np.maximum(0, (factors - 1) / 2) if op.antialias else 0
    smoothed = ndimage.gaussian_filter(values, sigmas, mode="mirror")
    resized = ndimage.zoom(smoothed, [1 / factor for factor in factors], order=1, mode="mirror", grid_mode=True)
    return resized.clip(values.min(), values.max())


PROFILE = Profile(
    title="SciPy",
    original=Original("scipy", "scipy", "scipy", "scipy.ndimage", original),
    filters=("bilinear",),
    antialiased=("bilinear",),
    antialias=True,
    real=("bilinear",),
    takes_real=True,
    reads_all=True,
    passes=passes,
    is_vertical_first=never_vertical_first,
    formula=formula,
    windows=no_windows,
)


def inverse(matrix: Matrix) -> Matrix | None:
    """Compute the inverse of an affine map without rotation and shear, as LAPACK does for a triangular matrix.

    ``scipy.linalg.inv`` and ``numpy.linalg.inv`` return the same numbers. Return None if the map is not invertible.
    """
    a, b, c, d, e, f = matrix
    assert b == d == 0, matrix
    if not (a and e):
        return None
    over, below = 1 / a, 1 / e
    return (over, 0.0, -(c * over), 0.0, below, -(f * below))


def compute(filter_: WarpFilter, matrix: Matrix, whole: Size, size: Size) -> Computed:
    """Return the arithmetic of ``affine_transform`` with the mode ``constant``, in float64.

    The matrix (a, b, c, d, e, f) maps the output position (x', y') to ``x = (b * y' + c) + a * x'``, and to y in the
    same way with e, f and d. If x is outside of 0 to W - 1, or y outside of 0 to H - 1, for an image of the width W and
    the height H, the result is the fill color. It is not blended with pixels at the border.

    **nearest** (``order=0``): The result is the pixel value at ``floor(x + 0.5)`` and ``floor(y + 0.5)``.

    **bilinear** (``order=1``): With ``i = floor(x)``, ``dx = x - i``, ``l = 1 - dx`` and ``r = 1 - l``, and j, u and v
    in the same way from y, the result is ``p00 * u * l + p01 * u * r + p10 * v * l + p11 * v * r``, rounded half up.
    ``p00`` is the pixel value in row j and column i, ``p01`` the one in column i + 1, and ``p10`` and ``p11`` are those
    in row j + 1.
    """
    del whole, size
    return Computed(f"scipy_{filter_}", matrix)


WARPS = Warps(
    title="SciPy",
    filters=("nearest", "bilinear"),
    compute=compute,
    origin="pixel",
    regions=("matrix", "box"),
    box_formats=("xywh", "xywh64"),
    inverse_maps=(True,),
    inverse=inverse,
)
