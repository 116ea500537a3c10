"""Profile: the properties of one library's resize."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from pixprep.plan.profiles.windows import Axis, Formula, Passes, Windows
from pixprep.spec import Filter, Like, Rounding

Size = tuple[int, int]


class Original(NamedTuple):
    """The library's own resize, with which ``verify`` compares.

    The functions are passed in; this module does not import the library.

    Attributes:
        key: Key of the library; profiles may share one.
        module: Module with the version of the library.
        packages: Packages that pip installs.
        functions: Module that contains the functions.
        resize: Function of the module ``functions``, uint8 (height, width, channels), the op and a (height, width) to
            the resized pixels.
        takes_planes: Whether ``resize`` accepts and returns a PyTorch tensor (channels, height, width).
        order: Version of Pillow whose order of the two passes applies; None: The library is not Pillow.
    """

    key: str
    module: str
    packages: str
    functions: str
    resize: Callable[[Any, Any, Any, Size], Any]
    takes_planes: bool = False
    order: int | None = None


class Method(NamedTuple):
    """A filter with or without antialias."""

    filter: Filter
    antialias: bool


@dataclass(frozen=True, kw_only=True)
class Profile:
    """Resize of the library that ``like`` names.

    Attributes:
        title: Name of the library as people write it.
        original: The library's own resize, for ``verify``.
        filters: Filters without antialias; empty: The library always antialiases.
        antialiased: Filters with antialias, including ``nearest``, which antialias does not change; empty: The library
            never antialiases.
        antialias: Default of ``antialias``.
        rounding: Default of the rounding of a side that follows from the other.
        subpixel: Default of ``subpixel``; None: The library does not support it, or with ``takes_scale`` supports it on
            request as ``fx`` and ``fy``.
        real: Filters whose results are not rounded to integers.
        across: Filters whose windows of one axis depend on the other axis.
        reducible: Filters whose antialiased resize accepts a JPEG that was decoded to a fraction of its size.
        passes: Function from a method and both axes to the arithmetic of both passes.
        is_vertical_first: Function from a method and both axes; it returns whether the first pass is vertical.
        formula: Function from a method and its passes to the formula of the windows; it returns None for ``nearest``
            and ``nearest_exact``.
        windows: Function that returns the windows of one axis for a method without a formula. It is never called for an
            axis without outputs.
        labels: Library whose nearest pixels a resize of labels selects.
        corner: Function to the row and the column from which the positions of a part are counted and rounded; None: The
            library cannot resize a part.
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
        """All methods of the library."""
        plain = (Method(name, antialias=False) for name in self.filters)
        return *plain, *(Method(name, antialias=True) for name in self.antialiased)


def always_fixed(method: Method, rows: Axis, columns: Axis) -> Passes:
    """Return integer arithmetic: ``Profile.passes`` of a library that has no other."""
    del method, rows, columns
    return "fixed"


def never_vertical_first(method: Method, rows: Axis, columns: Axis) -> bool:
    """Return False: ``Profile.is_vertical_first`` of a library whose horizontal pass is always first."""
    del method, rows, columns
    return False


def no_windows(method: Method, passes: Passes, axis: Axis) -> Windows:
    """Fail: ``Profile.windows`` of a library that has a formula for every method."""
    raise AssertionError(method, passes, axis)
