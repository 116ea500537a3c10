"""Defines the profiles of resizes, which describe the properties and the arithmetic of one library's resize."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from pixprep.plan.profiles.windows import Axis, Formula, Passes, Windows
from pixprep.spec import Filter, Like, Rounding

Size = tuple[int, int]


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
        subpixel: Default of the op's field ``subpixel``. None means that the field is not supported or, if
            ``takes_scale`` is true, that its default is false.
        takes_scale: Whether the library accepts a scale (OpenCV's ``fx`` and ``fy``). If so, the op's field
            ``subpixel`` uses this scale.
        real: Filters whose results are float32 and not rounded.
        takes_real: Whether the resize accepts float32 values, so that ``normalize`` may precede it.
        is_hosts: Whether the resize runs on the host even if the device is a GPU, because it has no CUDA kernel.
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
        corner: Function ``(method, rows, columns)`` for resizing a region (``roi``). It returns the origin (row,
            column) in the image that positions are relative to when they are rounded. None means that the library
            cannot resize a region.
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
    is_hosts: bool = False
    across: tuple[Filter, ...] = ()
    reducible: tuple[Filter, ...] = ()
    passes: Callable[[Method, Axis, Axis], Passes]
    is_vertical_first: Callable[[Method, Axis, Axis], bool]
    formula: Callable[[Method, Passes], Formula | None]
    windows: Callable[[Method, Passes, Axis], Windows]
    labels: Like = "torchvision"
    corner: Callable[[Method, Axis, Axis], Size] | None = None

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
