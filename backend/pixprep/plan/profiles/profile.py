"""Defines the rows of a profile: the properties and the arithmetic of one library's resize, warps, colors and blur."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from pixprep.plan import matrices
from pixprep.plan.profiles.windows import Axis, Formula, Passes, Windows
from pixprep.spec import Filter, Like, Matrix, PaddingMode, Rounding, WarpFilter

Values = npt.NDArray[Any]


class Blur(NamedTuple):
    """Profile of one library's Gaussian blur.

    Attributes:
        sigma: Function that returns the default standard deviation for a number of taps. None means that the op must
            specify the standard deviation.
        taps: Function that returns the default number of taps for a standard deviation. None means that the op must
            specify the number of taps.
        is_mirrored_again: Whether the image is reflected repeatedly if the kernel extends beyond the first reflection.
            If False, such images are rejected.
    """

    sigma: Callable[[int], float] | None = None
    taps: Callable[[float], int] | None = None
    is_mirrored_again: bool = False


def unsupported(*numbers: float) -> Values:
    """Stand in for a function of ``Colours`` that the library does not support. This function is never called."""
    raise AssertionError(numbers)


@dataclass(frozen=True, kw_only=True)
class Colours:
    """Profile of one library's color changes.

    Attributes:
        mean: Function ``(total, count)`` that returns the mean luma, with which a change of contrast blends the image.
            ``total`` is the sum of the luma of ``count`` pixels.
        contrast: Function ``(mean, factor)`` that returns the look-up table of a change of contrast. None means that
            the kernels compute the blend without a table.
        turn: Function that converts a rotation of the hue, as a fraction of the circle, to the number that the kernels
            use. None means that the library's hue has 180 values (HSV of uint8).
        gamma: Function ``(exponent, gain)`` that returns the look-up table of a gamma curve, with 256 values.
        autocontrast: Function ``(low, high)`` that returns a look-up table with 256 values for a channel, whose minimum
            and maximum pixel values are ``low`` and ``high``. They must differ.
        threshold: Function that converts the threshold of ``solarize`` to the number that pixel values are compared
            with.
    """

    mean: Callable[[int, int], float]
    contrast: Callable[[float, float], Values] | None = None
    turn: Callable[[float], float] | None = None
    gamma: Callable[[float, float], Values] = unsupported
    autocontrast: Callable[[int, int], Values] = unsupported
    threshold: Callable[[float], float] = float


PIXEL_VALUES = np.arange(256)
"""All pixel values of uint8."""


Size = tuple[int, int]
Pair = tuple[float, float]
ARITHMETICS = (
    *("pillow_fixed", "pillow_walk", "pillow_nearest", "pillow_bilinear", "pillow_bicubic"),
    *("torchvision_nearest", "torchvision_bilinear", "dali_nearest", "dali_bilinear"),
    *("opencv_nearest", "opencv_bilinear", "opencv_bicubic", "scipy_nearest", "scipy_bilinear"),
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
        regions: Fields of the op ``warp`` that may specify the region. Empty if all are supported.
        box_formats: Supported values of the field ``box_format`` of the op ``warp``.
        inverse_maps: Supported values of the op's field ``inverse_map``. Empty if the field is not supported.
        inverse: Function that inverts a matrix from the image to the result.
        max_side: Maximum height and width of an image that the library supports. None means unlimited.
    """

    title: str
    filters: tuple[WarpFilter, ...]
    compute: Callable[[WarpFilter, Matrix, Size, Size], Computed]
    origin: Literal["corner", "pixel", "middle"]
    rotation: Callable[..., tuple[Matrix, Size]] | None = None
    turns_about: bool = True
    padding_modes: tuple[PaddingMode, ...] = ("constant",)
    mixes_fill: tuple[WarpFilter, ...] = ()
    regions: tuple[str, ...] = ()
    box_formats: tuple[str, ...] = ()
    inverse_maps: tuple[bool, ...] = ()
    inverse: Callable[[Matrix], Matrix | None] = matrices.inverse
    max_side: int | None = None


class Original(NamedTuple):
    """Resize function of the library itself, with which ``verify`` compares pixprep's results.

    The caller imports the library, and passes it to ``resize``.

    Attributes:
        key: Name of the library. Several profiles may use the same library.
        module: Name of the module that contains the version of the library.
        packages: Packages to install with pip.
        functions: Name of the module that is passed to ``resize``.
        resize: Function ``(module, pixels, op, size)`` that returns the resized pixels. ``pixels`` is a uint8 array
            (height, width, channels), and ``size`` is (height, width).
        takes_planes: Whether ``resize`` accepts and returns PyTorch tensors (channels, height, width) instead of
            arrays.
        order: Major version of Pillow that determines the order of the two passes. None means that the library is not
            Pillow.
    """

    key: str
    module: str
    packages: str
    functions: str
    resize: Callable[[Any, Any, Any, Size], Any]
    takes_planes: bool = False
    order: int | None = None


class Method(NamedTuple):
    """Resize filter, with or without antialiasing."""

    filter: Filter
    antialias: bool


@dataclass(frozen=True, kw_only=True)
class Profile:
    """Profile of one library's resize.

    Attributes:
        title: Name of the library for descriptions and messages.
        original: Resize function of the library itself, for ``verify``.
        filters: Filters that are supported without antialiasing. Empty if the library always antialiases.
        antialiased: Filters that are supported with antialiasing. They include ``nearest``, on which antialiasing has
            no effect. Empty if the library never antialiases.
        antialias: Default of the op's field ``antialias``.
        rounding: Default rounding of a side that is computed from the other side.
        subpixel: Default of the op's field ``subpixel``. If it is None and ``takes_scale`` is true, the default is
            false. If it is None and ``takes_scale`` is false, the field is not supported.
        takes_scale: Whether the library accepts a scale (OpenCV's ``fx`` and ``fy``). If so, the op's field
            ``subpixel`` uses this scale.
        real: Filters whose results are float32 and not rounded.
        takes_real: Whether the resize accepts float32 values, so that ``normalize`` may precede it.
        reads_all: Whether each value of the result may depend on all pixels of the image.
        min_sides: Minimum sum of the height and the width of a result of ``bilinear`` without antialiasing. For smaller
            results, the library uses other arithmetic.
        across: Filters whose coefficients on one axis depend on the size of the other axis.
        reducible: Filters whose antialiased resize is supported for JPEGs that are decoded at a reduced size.
        passes: Function ``(method, rows, columns)`` that returns the arithmetic of the two passes.
        is_vertical_first: Function ``(method, rows, columns)`` that returns whether the vertical pass comes before the
            horizontal pass.
        formula: Function ``(method, passes)`` that returns the formula of the filter coefficients, or None for
            ``nearest`` and ``nearest_exact``.
        windows: Function ``(method, passes, axis)`` that returns the filter coefficients of an axis, for methods
            without a formula. It is called only for axes with at least one output pixel.
        labels: Library whose ``nearest`` is used to resize segmentation maps.
        roi: Regions of the image that the library can resize: ``inside`` the image, or ``any``, which may also extend
            beyond the image or be reversed. None means that the library can only resize the whole image.
        corner: Function ``(method, rows, columns)`` for resizing a region. It returns the origin (row, column) in the
            image that positions are relative to when they are rounded. None: the origin is that of the image.
        alpha: Treatment of the alpha of RGBA images: ``separate`` resizes it like a color, and ``premultiplied`` also
            multiplies the colors by alpha before the resize, unless the filter is ``nearest``, and divides them
            afterwards. None means that the resize of RGBA images is not reproduced.
    """

    title: str
    original: Original
    filters: tuple[Filter, ...]
    antialiased: tuple[Filter, ...]
    antialias: bool
    rounding: Rounding = "down"
    subpixel: bool | None = None
    takes_scale: bool = False
    real: tuple[Filter, ...] = ()
    takes_real: bool = False
    reads_all: bool = False
    min_sides: int = 0
    across: tuple[Filter, ...] = ()
    reducible: tuple[Filter, ...] = ()
    passes: Callable[[Method, Axis, Axis], Passes]
    is_vertical_first: Callable[[Method, Axis, Axis], bool]
    formula: Callable[[Method, Passes], Formula | None]
    windows: Callable[[Method, Passes, Axis], Windows]
    labels: Like = "torchvision"
    roi: Literal["inside", "any"] | None = None
    corner: Callable[[Method, Axis, Axis], Size] | None = None
    alpha: Literal["separate", "premultiplied"] | None = None

    @property
    def methods(self) -> tuple[Method, ...]:
        """All filters that the library supports, with and without antialiasing."""
        plain = (Method(name, antialias=False) for name in self.filters)
        return *plain, *(Method(name, antialias=True) for name in self.antialiased)


def always_fixed(method: Method, rows: Axis, columns: Axis) -> Passes:
    """Implement ``Profile.passes`` for a library that always uses fixed-point arithmetic."""
    del method, rows, columns
    return "fixed"


def never_vertical_first(method: Method, rows: Axis, columns: Axis) -> bool:
    """Implement ``Profile.is_vertical_first`` for a library whose horizontal pass always comes first."""
    del method, rows, columns
    return False


def no_windows(method: Method, passes: Passes, axis: Axis) -> Windows:
    """Stand in for ``Profile.windows`` of a library that has formulas for all methods. It is never called."""
    raise AssertionError(method, passes, axis)
