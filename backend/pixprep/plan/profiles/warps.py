"""Warps of one library: what ops check, and the arithmetic by which kernels compute a ``plan.steps.warps.Warp``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from pixprep.plan import matrices
from pixprep.spec import Matrix, PaddingMode, WarpFilter

Size = tuple[int, int]
Pair = tuple[float, float]
ARITHMETICS = (
    *("pillow_fixed", "pillow_walk", "pillow_nearest", "pillow_bilinear", "pillow_bicubic"),
    *("torchvision_nearest", "torchvision_bilinear", "dali_nearest", "dali_bilinear"),
    *("opencv_nearest", "opencv_bilinear", "opencv_bicubic"),
)
"""Names of all arithmetic of warps, in the order of ``enum warps`` in ``engine/kernels/arguments.h``."""


class Computed(NamedTuple):
    """Arithmetic of one warp and its numbers.

    Attributes:
        arithmetic: One of ``ARITHMETICS``.
        matrix: Six numbers of an affine map, and two or three more of a perspective.
        weights: int16 (1024, 16) of a cubic; None: the arithmetic reads no table.
    """

    arithmetic: str
    matrix: Matrix
    weights: npt.NDArray[np.int16] | None = None


@dataclass(frozen=True, kw_only=True)
class Warps:
    """One library's warps, which ``like`` names.

    Attributes:
        title: Name of the library as people write it.
        filters: Filters of a warp.
        compute: Arithmetic and numbers by a filter, a matrix, and the sizes of the whole result and of the image.
        origin: Point from which the coordinates of a matrix are counted: the ``corner`` of the image, the center of the
            first ``pixel``, or the ``middle`` of the image and of the result (of a perspective the corner).
        rotation: Matrix and size of the result of a rotation, by the height and the width of the image, an angle in
            degrees, the point that stays (None: the middle) and ``expand``; None: the library has none here.
        turns_about: Whether ``rotation`` accepts another point than the middle.
        padding_modes: What may be outside the image.
        mixes_fill: Filters that mix the fill with pixels at the edge, where no fill then differs from a black one.
        inverse: Matrix from the result to the image by the matrix from the image to the result.
        max_side: Longest side of an image that the library warps; None: there is no limit.
        is_hosts: Whether a GPU has no kernel for the arithmetic.
    """

    title: str
    filters: tuple[WarpFilter, ...]
    compute: Callable[[WarpFilter, Matrix, Size, Size], Computed]
    origin: Literal["corner", "pixel", "middle"]
    rotation: Callable[..., tuple[Matrix, Size]] | None = None
    turns_about: bool = True
    padding_modes: tuple[PaddingMode, ...] = ("constant",)
    mixes_fill: tuple[WarpFilter, ...] = ()
    inverse: Callable[[Matrix], Matrix | None] = matrices.inverse
    max_side: int | None = None
    is_hosts: bool = False
