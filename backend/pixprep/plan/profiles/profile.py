"""Profile: what is known of one library's resize."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from pixprep.plan.profiles.windows import Axis, Formula, Passes, Windows
from pixprep.spec import Filter, Like, Rounding

Size = tuple[int, int]


class Original(NamedTuple):
    """The library's own resize, with which ``verify`` compares. Nothing is imported here: it is given the functions.

    Attributes:
        key: of the library; profiles may share one.
        module: that says its version.
        packages: what pip installs.
        functions: the module that has them.
        resize: of these, uint8 (height, width, channels), the op and a (height, width): its pixels, resized.
        takes_planes: it takes and gives a tensor of PyTorch (channels, height, width).
        order: the Pillow whose order of the two passes it has; None: it is not Pillow.
    """

    key: str
    module: str
    packages: str
    functions: str
    resize: Callable[[Any, Any, Any, Size], Any]
    takes_planes: bool = False
    order: int | None = None


class Method(NamedTuple):
    """A filter, with antialias or without."""

    filter: Filter
    antialias: bool


@dataclass(frozen=True, kw_only=True)
class Profile:
    """One library's ways, which ``like`` names.

    Attributes:
        title: the library as people write it.
        original: what ``verify`` compares with.
        filters: what it has without antialias; empty: it always antialiases.
        antialiased: what it has with antialias, ``nearest`` among them, which is the same either way; empty: it never
            antialiases.
        antialias: its default.
        rounding: its default, of a side that follows from the other.
        subpixel: its default; None: it has no such thing, or ``takes_scale``: it is asked for as ``fx`` and ``fy``.
        real: the filters whose values it does not round to levels.
        across: the filters whose windows of one axis depend on the other.
        reducible: the filters whose antialiased resize may be given a JPEG that was decoded to a fraction.
        passes: the arithmetic of both passes, of a method and both axes.
        is_vertical_first: whether the first pass is from row to row; as ``passes``.
        formula: of a method's windows, by its passes; None of ``nearest`` and ``nearest_exact``.
        windows: the windows of one axis by a method without a formula; never asked for an axis without outputs.
        labels: library whose nearest pixels a resize of labels takes.
        corner: row and column from which the places of a part are counted and rounded; None: it resizes no part.
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
        """Everything that it resizes by."""
        plain = (Method(name, antialias=False) for name in self.filters)
        return *plain, *(Method(name, antialias=True) for name in self.antialiased)


def always_fixed(method: Method, rows: Axis, columns: Axis) -> Passes:
    """``Profile.passes`` of a library that has one arithmetic, in integers."""
    del method, rows, columns
    return "fixed"


def never_vertical_first(method: Method, rows: Axis, columns: Axis) -> bool:
    """``Profile.is_vertical_first`` of a library whose first pass is from column to column."""
    del method, rows, columns
    return False


def no_windows(method: Method, passes: Passes, axis: Axis) -> Windows:
    """``Profile.windows`` of a library that has a formula for every method."""
    raise AssertionError(method, passes, axis)
