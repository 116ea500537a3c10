"""Warps of one library: the properties that ops check, and the arithmetic of a ``plan.steps.warps.Warp``."""

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
    """Arithmetic of one warp, with its numbers.

    Attributes:
        arithmetic: One of ``ARITHMETICS``.
        matrix: Six numbers of an affine map, followed by two or three more for a perspective.
        weights: Weights of a cubic, int16 (1024, 16); None: The arithmetic does not read a table.
    """

    arithmetic: str
    matrix: Matrix
    weights: npt.NDArray[np.int16] | None = None


@dataclass(frozen=True, kw_only=True)
class Warps:
    """Warps of the library that ``like`` names.

    Attributes:
        title: Name of the library as people write it.
        filters: Supported filters.
        compute: Function from a filter, a matrix, and the sizes of the whole result and of the image to the arithmetic.
        origin: Origin of a matrix's coordinates: the upper left ``corner`` of the image, the center of the first
            ``pixel``, or the ``middle`` of the image and of the result (for a perspective the corner).
        rotation: Function to the matrix and the size of the result of a rotation, from the height and the width of the
            image, an angle in degrees, the fixed point (None: the center) and ``expand``; None: Rotation is not
            supported.
        turns_about: Whether ``rotation`` accepts a fixed point other than the center.
        padding_modes: Supported padding modes outside of the image.
        mixes_fill: Filters that mix the fill with pixels at the edge, so that a missing fill differs from a black one.
        inverse: Function from the matrix image-to-result to the matrix result-to-image.
        max_side: Maximum side of an image that the library warps; None: unlimited.
        is_hosts: Whether the GPU lacks a kernel for the arithmetic.
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
