"""Defines the profiles of warps.

A profile describes the properties and the arithmetic of one library's rotations, affine maps and perspectives.
"""

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
"""Names of the kernels' warp variants, in the order of ``enum warps`` in ``engine/kernels/arguments.h``."""


class Computed(NamedTuple):
    """Arguments with which a kernel computes a warp.

    Attributes:
        arithmetic: Variant of the kernel, one of ``ARITHMETICS``.
        matrix: Six numbers of an affine map, or eight or nine numbers of a perspective.
        weights: Table of bicubic weights, int16 (1024, 16). None means that the variant does not use a table.
    """

    arithmetic: str
    matrix: Matrix
    weights: npt.NDArray[np.int16] | None = None


@dataclass(frozen=True, kw_only=True)
class Warps:
    """Profile of one library's warps.

    Attributes:
        title: Name of the library for descriptions and messages.
        filters: Supported filters.
        compute: Function ``(filter, matrix, whole, size)`` that returns the arguments of the kernel, where ``whole`` is
            the size of the whole result, and ``size`` is the size of the image.
        origin: Origin of a matrix's coordinates: the upper left ``corner``, the center of the first ``pixel``, or the
            center (``middle``) of the image and of the result. With ``middle``, the origin of perspectives is the
            corner.
        rotation: Function ``(height, width, angle, center, expand)`` that returns the matrix of a rotation and the size
            of its result. The angle is in degrees, and None as the center means the center of the image. None means
            that rotations are not supported.
        turns_about: Whether ``rotation`` supports centers other than the center of the image.
        padding_modes: Supported padding modes.
        mixes_fill: Filters that blend the fill color with pixels at the border. For these filters, a black fill color
            and no fill color have different results.
        inverse: Function that inverts a matrix from the image to the result.
        max_side: Maximum height and width of an image that the library supports. None means unlimited.
        is_hosts: Whether warps run on the host even if the device is a GPU, because they have no CUDA kernel.
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
