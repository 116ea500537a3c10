"""SciPy's affine maps of uint8 images, ``scipy.ndimage.affine_transform`` with ``order`` 0 and 1.

The formulas are those of ``NI_GeometricTransform`` in ni_interpolation.c. The results are those of SciPy on x86-64,
where the compiler does not fuse products and sums. The docstring of ``compute`` describes them.
"""

from __future__ import annotations

from pixprep.plan.profiles.profile import Computed, Size, Warps
from pixprep.spec import Matrix, WarpFilter


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

    The position is ``x = (b * y' + c) + a * x'``, and y is computed in the same way from e, f and d. If x is outside of
    0 to W - 1, or y outside of 0 to H - 1, the result is the fill color. It is not blended with pixels at the border.

    **nearest** (``order=0``): The result is the pixel value at ``floor(x + 0.5)`` and ``floor(y + 0.5)``.

    **bilinear** (``order=1``): With ``i = floor(x)``, ``dx = x - i``, ``l = 1 - dx`` and ``r = 1 - l``, and j, u and v
    in the same way from y, the result is ``p00 * u * l + p01 * u * r + p10 * v * l + p11 * v * r``, rounded half up.
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
