"""Resizes of ``fixed`` by the kernels in C: windows, both passes and values, as ``resample`` does them in NumPy.

A window is a dot product of levels and weights, and 16 of its products are one vector. So the windows of a row come in
groups of 4 pixels (16 of gray ones): positions that fill up a group weigh 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import addressof, byref
from functools import lru_cache
from math import ceil
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pixprep.kernels import native
from pixprep.kernels.margins import Margins, surrounded
from pixprep.kernels.native import LANES
from pixprep.profiles.formula import RADIUS, Formula
from pixprep.profiles.windows import Axis

U8 = npt.NDArray[np.uint8]
Int32 = npt.NDArray[np.int32]

RECENT = 16
"""The axes whose windows are remembered: images of one size that follow each other share them.

Those of the longest axis take 1.2 MB, so that 16 take 19 MB at most.
"""


class Grouped(NamedTuple):
    """The windows of an axis, in groups of neighbours.

    Attributes:
        windows: their numbers, and where they lie in the memory.
        memory: int32: the first position of each window, its count of groups, and its row of ``taps`` weights.
    """

    windows: native.Windows
    memory: Int32


@lru_cache(RECENT)
def grouped(formula: Formula, axis: Axis, group: int) -> Grouped:
    """The windows of one axis that changes its length, of which something is wanted, in groups of 1, 4 or 16.

    A group that reaches beyond the windows' ``end`` begins at their ``begin``.
    """
    size, taps = axis.end - axis.begin, most_taps(formula, axis, group)
    windows, memory = laid(np.zeros((2 + taps) * size, np.int32), size=size, taps=taps, group=group)
    made = native.Making(native.formula_struct(formula), native.axis_struct(axis), windows)
    native.checked(native.kernels().make_windows(byref(made)))
    return Grouped(made.windows, memory)


def laid(memory: Int32, *, size: int, taps: int, group: int, begin: int = 0, end: int = 0, bits: int = 0) -> Grouped:
    """Windows that lie in the memory of a ``Grouped``."""
    first = memory.ctypes.data
    windows = native.Windows(first, first + 4 * size, first + 8 * size, size, taps, group, begin, end, bits)
    return Grouped(windows, memory)


def most_taps(formula: Formula, axis: Axis, group: int) -> int:
    """The most positions of a window, in whole groups."""
    support = RADIUS[formula.curve] * (max(axis.ratio, 1.0) if formula.is_widened else 1.0)
    return -(-min(2 * ceil(support) + 1, axis.length) // group) * group


def resample(
    pixels: U8, formula: Formula, rows: Axis, columns: Axis, *, vertical_first: bool, around: Margins | None = None
) -> U8:
    """The wanted region, (rows, columns, channels), perhaps a view of the pixels.

    Args:
        pixels: uint8 (height, width, channels), any strides, 1 to 4 channels.
        formula: of the windows of an axis that changes its length; one that keeps it has no pass.
        rows: with ``columns`` the two axes; something is wanted of both.
        columns: see above.
        vertical_first: the first pass is from row to row.
        around: the margin of the pixels; None: there is none. It is laid beside them as late as it can be: before the
            pass along its axis. The pass before leaves a margin its colour.
    """
    made: list[Grouped | None] = []
    missing = [(0, 0), (0, 0)]
    for number, axis in enumerate((rows, columns)):
        if axis.length == axis.out_length:
            made.append(None)
            begin, end = axis.begin, axis.end
        else:
            these = grouped(formula, axis, neighbours(pixels.shape[2]) if number else 1)
            made.append(these)
            begin, end = these.windows.begin, these.windows.end
        if around:
            before, length = around.before[number], pixels.shape[number]
            wanted, (begin, end) = (begin, end), (min(max(edge - before, 0), length) for edge in (begin, end))
            if begin == end:  # nothing but margin is seen
                shape = (rows.end - rows.begin, columns.end - columns.begin, pixels.shape[2])
                return np.full(shape, around.fill, np.uint8)
            missing[number] = (begin - (wanted[0] - before), wanted[1] - before - end)
        pixels = pixels[:, begin:end] if number else pixels[begin:end]
    if missing[0] == (0, 0) and made[0] and not vertical_first and not formula.is_widened:
        pixels, made[0] = _read(pixels, made[0])
    channels = pixels.shape[2]
    if channels == 3:  # vectors hold whole pixels
        pixels = _with_fourth(pixels)
        around = around and around._replace(fill=np.append(around.fill, around.fill[:1]))
    for number in (0, 1) if vertical_first else (1, 0):
        windows = made[number]
        if around:
            pixels = surrounded(pixels, number, missing[number], around.fill)
        if windows:
            pixels = along(number, pixels, windows)
    return pixels[:, :, :channels]


def _read(pixels: U8, made: Grouped) -> tuple[U8, Grouped]:
    """The rows that any window reads, where many are left out, and the windows within them; else both as they are."""
    windows = made.windows
    first, count = made.memory[: 2 * windows.size].reshape(2, -1)
    taps = int(count.max())
    if 2 * windows.size * taps >= len(pixels):
        return pixels, made
    positions = np.minimum((first - windows.begin)[:, None] + np.arange(taps), len(pixels) - 1).ravel()
    memory = made.memory.copy()
    memory[: windows.size] = np.arange(0, len(positions), taps)
    numbers = {"size": windows.size, "taps": windows.taps, "group": windows.group, "bits": windows.bits}
    return pixels[positions], laid(memory, **numbers, end=len(positions))


def neighbours(channels: int) -> int:
    """Number of pixels of a row are one group."""
    return LANES if channels == 1 else LANES // 4


def along(axis: int, values: U8, made: Grouped) -> U8:
    """One pass along an axis: 0 from row to row, 1 from column to column.

    Args:
        axis: which.
        values: uint8 (height, width, channels), any strides, 1 to 4 channels: of this axis the positions from
            ``begin`` to ``end`` of the windows.
        made: at least one window; along axis 1 in groups of ``neighbours(channels)``.

    Returns:
        (out, width, channels) or (height, out, channels).
    """
    return _from_row_to_row(values, made) if axis == 0 else _from_column_to_column(values, made)


def _from_row_to_row(values: U8, made: Grouped) -> U8:
    _, width, channels = values.shape
    length = width * channels
    if length < LANES:
        wide = _widened(values.reshape(len(values), length, 1), LANES, 1)
        return _from_row_to_row(wide, made)[:, :length].reshape(-1, width, channels)
    values = _mapped(values)
    out = np.empty((made.windows.size, width, channels), np.uint8)
    told = native.Pass(made.windows, values.ctypes.data, values.strides[0], out.ctypes.data, length, length=length)
    native.kernels().pass_down(byref(told))
    return out


def _from_column_to_column(values: U8, made: Grouped) -> U8:
    height, width, channels = values.shape
    if channels not in (1, 4):
        return _from_column_to_column(_widened(values, width, 4), made)[:, :, :channels]
    if width < made.windows.taps:
        return _from_column_to_column(_widened(values, made.windows.taps, channels), made)
    values = _mapped(values)
    size = made.windows.size
    out = np.empty((height, size, channels), np.uint8)
    told = native.Pass(
        made.windows, values.ctypes.data, values.strides[0], out.ctypes.data, size * channels,
        out_step=channels, rows=height, channels=channels,
    )  # fmt: skip
    native.kernels().pass_across(byref(told))
    return out


def look_up(levels: U8, table: npt.NDArray[Any], out: npt.NDArray[Any]) -> None:
    """``out[c, y, x] = table[c, levels[y, x, c]]``.

    Args:
        levels: uint8 (rows, columns, planes), any strides; at least one of each.
        table: (planes, 256), C-contiguous.
        out: (planes, rows, columns) of the same dtype, any strides.
    """
    (rows, columns, planes), (row, column, plane) = levels.shape, levels.strides
    told = native.Values(
        levels.ctypes.data, plane, row, column, out.ctypes.data, *out.strides,
        table.ctypes.data, 0, planes, rows, columns, table.itemsize,
    )  # fmt: skip
    native.kernels().look_up(byref(told))


class Finish(NamedTuple):
    """Last step of a kernel: values of a tensor from its levels; ``finish`` makes it.

    Attributes:
        table, lines: of ``finish``; no lines where they do not give the values of the table.
        first, step: the channel of the first plane, and from plane to plane.
        addresses: of both arrays.
    """

    table: npt.NDArray[Any]
    lines: npt.NDArray[np.float64] | None
    first: int
    step: int
    addresses: tuple[int, int]


def finish(table: npt.NDArray[Any], channels: Sequence[int], lines: npt.NDArray[np.float64]) -> Finish:
    """Make the last step of a plan's kernel.

    Args:
        table: (planes, 256), C-contiguous: the value of each level.
        channels: of the pixels, one a plane: in order, or backwards.
        lines: (planes, 2): a scale and an offset. Where ``float32(level * scale + offset)`` is the value of each level,
            in float64, no level need be looked up.
    """
    levels = np.arange(256, dtype=np.float64)
    is_line = table.dtype == np.float32 and np.array_equal(
        (levels * lines[:, :1] + lines[:, 1:]).astype(np.float32), table
    )
    addresses = table.ctypes.data, lines.ctypes.data if is_line else 0
    return Finish(table, lines if is_line else None, channels[0], 1 if channels[-1] >= channels[0] else -1, addresses)


def write(
    pixels: U8,
    formula: Formula,
    rows: Axis,
    columns: Axis,
    *,
    finish: Finish,
    out: npt.NDArray[Any],
    vertical_first: bool,
    flips: tuple[bool, bool],
    remembers: bool,
) -> bool:
    """Resize, flip and look up in one call: what ``resample`` and ``look_up`` do in several.

    Args:
        pixels: uint8 (height, width, 1 or 4), no gap between the pixels of a row.
        formula: of the windows of both axes.
        rows: with ``columns`` the two axes, which both change their lengths; something is wanted of both.
        columns: see above.
        finish: of the levels.
        out: (planes, rows, columns), any strides.
        vertical_first: the first pass is from row to row.
        flips: (vertical, horizontal), of the result.
        remembers: keep the windows for the next image, which may have the same size.

    Returns:
        Whether it was done: it is not if only a few columns are wanted, or read.
    """
    channels = pixels.shape[2]
    made = (grouped(formula, rows, 1), grouped(formula, columns, neighbours(channels))) if remembers else ()
    told = native.Resize(
        native.formula_struct(formula), native.axis_struct(rows), native.axis_struct(columns),
        *([addressof(each.windows) for each in made] or (0, 0)),
        pixels.ctypes.data, pixels.strides[0], channels, vertical_first, *flips, finish.first, finish.step,
        native.Values(
            0, 0, 0, 0, out.ctypes.data, *out.strides, *finish.addresses, len(out), 0, 0, out.itemsize
        ),
    )  # fmt: skip
    return native.checked(native.kernels().resize(byref(told))) != native.TOO_NARROW


def _mapped(values: U8) -> U8:
    """With no gap between the pixels of a row; rows may lie any number of bytes apart."""
    is_mapped = values.strides[1:] == (values.shape[2], 1) and values.strides[0] >= 0
    return values if is_mapped else values.copy()  # ``ascontiguousarray`` leaves a single row its stride


def _with_fourth(pixels: U8) -> U8:
    """A copy, (height, width, 4), of pixels with three channels and any strides; the fourth byte has no meaning.

    A pixel and the byte behind it are copied as one number, which but for the last of a row is inside the row: 0.6 ms
    for 1920 x 1080, where NumPy takes 7.8 to copy by threes, and 1.7 by planes, as here for other strides.
    """
    height, width, _ = pixels.shape
    wide = np.empty((height, width, 4), np.uint8)
    by_planes = pixels
    at: U8 = wide
    if pixels.strides[1:] == (3, 1) and width > 1:
        told = dict(pixels.__array_interface__)
        told |= {"typestr": "<u4", "shape": (height, width - 1), "strides": (pixels.strides[0], 3)}
        wide.view("<u4")[:, :-1, 0] = np.asarray(_Told(told, pixels))
        by_planes, at = pixels[:, -1:], wide[:, -1:]
    for plane in range(3):
        at[:, :, plane] = by_planes[:, :, plane]
    return wide


class _Told:
    """Memory as ``__array_interface__`` tells it, and what it belongs to."""

    def __init__(self, told: dict[str, Any], owner: U8) -> None:
        self.__array_interface__ = told
        self.owner = owner


def _widened(values: U8, width: int, channels: int) -> U8:
    wide = np.zeros((len(values), width, channels), np.uint8)
    wide[:, : values.shape[1], : values.shape[2]] = values
    return wide
