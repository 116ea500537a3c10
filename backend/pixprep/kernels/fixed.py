"""Resizes of ``fixed`` by the kernels in C: windows, both passes and values, and the look-up of levels.

A window is a dot product of levels and weights, and 16 of its products are one vector. So the windows of a row come in
groups of 4 pixels (16 of gray ones): positions that fill up a group weigh 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import addressof, byref
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pixprep.kernels.margins import Margins
from pixprep.kernels.native import LANES, STRUCTS, axis_struct, checked, formula_struct, library
from pixprep.profiles.windows import Axis, Formula, Windows

U8 = npt.NDArray[np.uint8]
Int32 = npt.NDArray[np.int32]

RECENT = 16
"""The axes whose windows are remembered: images of one size that follow each other share them.

Those of the longest axis take 1.2 MB, so that 16 take 19 MB at most.
"""


class Grouped(NamedTuple):
    """The windows of an axis, in groups of neighbours.

    Attributes:
        struct: their numbers, and where they lie in the memory.
        memory: int32: the first position of each window, its count of groups, and its row of ``taps`` weights.
    """

    struct: Any
    memory: Int32


@lru_cache(RECENT)
def grouped(formula: Formula, axis: Axis, group: int) -> Grouped:
    """The windows of one axis, of which something is wanted, in groups of 1, 4 or 16.

    A group that reaches beyond the windows' ``end`` begins at their ``begin``.
    """
    size, make = axis.end - axis.begin, library().make_windows
    windows = STRUCTS["windows"](size=size, group=group)
    made = STRUCTS["making"](formula_struct(formula), axis_struct(axis), windows)
    checked(make(byref(made)))  # it has no memory yet, and says how many taps there are
    windows = made.windows
    memory = np.zeros((2 + windows.taps) * size, np.int32)
    windows.first = memory.ctypes.data
    windows.count = windows.first + 4 * size
    windows.weights = windows.count + 4 * size
    checked(make(byref(made)))
    return Grouped(made.windows, memory)


def windows(formula: Formula, axis: Axis) -> Windows:
    """``grouped`` as the arithmetic in NumPy and plain.cu read them."""
    made = grouped(formula, axis, 1)
    first, count = made.memory[: 2 * made.struct.size].reshape(2, -1)
    weights = made.memory[2 * made.struct.size :].reshape(made.struct.size, -1)
    return Windows(first, count, weights[:, : count.max()], made.struct.bits)


def look_up(levels: U8, table: npt.NDArray[Any], out: npt.NDArray[Any]) -> None:
    """``out[c, y, x] = table[c, levels[y, x, c]]``.

    Args:
        levels: uint8 (rows, columns, planes), any strides; at least one of each.
        table: (planes, 256), C-contiguous.
        out: (planes, rows, columns) of the same dtype, any strides.
    """
    (rows, columns, planes), (row, column, plane) = levels.shape, levels.strides
    told = STRUCTS["values"](
        levels.ctypes.data, plane, row, column, out.ctypes.data, *out.strides,
        table.ctypes.data, 0, planes, rows, columns, table.itemsize,
    )  # fmt: skip
    library().look_up(byref(told))


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


def resize(
    pixels: U8,
    formula: Formula,
    rows: Axis,
    columns: Axis,
    *,
    vertical_first: bool = False,
    flips: tuple[bool, bool] = (False, False),
    around: Margins | None = None,
    remembers: bool = True,
    finish: Finish | None = None,
    out: npt.NDArray[Any] | None = None,
) -> U8 | None:
    """Resize, flip and look up in one call, because each call waits for the interpreter's lock.

    Args:
        pixels: uint8 (height, width, channels), any strides, 1 to 4 channels.
        formula: of the windows of an axis that changes its length; one that keeps it stays as it is.
        rows: with ``columns`` the two axes, of the pixels with their margin; something is wanted of both.
        columns: see above.
        vertical_first: the first pass is from row to row.
        flips: (vertical, horizontal), of the result.
        around: the margin of the pixels; None: there is none.
        remembers: keep the windows for the next image, which may have the same size.
        finish: of the levels, where there is ``out``.
        out: (planes, rows, columns), any strides.

    Returns:
        Without ``out`` the levels of the wanted region, (rows, columns, channels).
    """
    height, width, channels = pixels.shape
    words = 1 if channels == 1 else 4
    made = (grouped(formula, rows, 1), grouped(formula, columns, LANES // words)) if remembers else ()
    levels, wide = None, columns.end - columns.begin
    if out is None or finish is None:
        levels = np.empty((rows.end - rows.begin, max(wide, LANES // words), words), np.uint8)
        channel, values = (0, 0), STRUCTS["values"](out=levels.ctypes.data, out_row=levels.strides[0])
    else:
        channel = finish.first, finish.step
        values = STRUCTS["values"](
            0, 0, 0, 0, out.ctypes.data, *out.strides, *finish.addresses, len(out), 0, 0, out.itemsize
        )
    told = STRUCTS["resize"](
        formula_struct(formula), axis_struct(rows), axis_struct(columns),
        *([addressof(each.struct) for each in made] or (0, 0)),
        pixels.ctypes.data, *pixels.strides, height, width, channels,
        *(around.struct if around else (0, 0, 0)), vertical_first, *flips, *channel, values,
    )  # fmt: skip
    checked(library().resize(byref(told)))
    return levels if levels is None else levels[:, :wide, :channels]
