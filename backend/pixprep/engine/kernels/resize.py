"""Resizes by the kernels in C: windows, both passes and values in one call, and the look-up of levels."""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import addressof, byref
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pixprep.engine.kernels.layout import packer
from pixprep.engine.kernels.margins import Margins
from pixprep.engine.kernels.native import PASSES, STRUCTS, checked, formula_numbers, library
from pixprep.plan.output_plans import Affine, ArithmeticStep, Float32
from pixprep.plan.profiles.windows import Axis, Formula, Resampling, Windows

U8 = npt.NDArray[np.uint8]
Int32 = npt.NDArray[np.int32]

RECENT = 16
"""The axes whose windows are remembered: images of one size that follow each other share them.

Those of the longest axis take 1.2 MB, so that 16 take 19 MB at most.
"""


_RESIZE, _VALUES = packer(STRUCTS["resize"]), packer(STRUCTS["values"])
NO_FORMULA = Formula("box")
WHOLE = "opencv_linear", "opencv_repeated", "opencv_cubic", "opencv_lanczos4", "opencv_area"
"""Rules whose weights are integers."""
OPERATIONS = "subtract", "multiply", "divide"
"""Arithmetic in float32, in the order of arguments.h."""


class Laid(NamedTuple):
    """The windows of an axis, as C reads them.

    Attributes:
        struct: their numbers, and where they lie in the memory.
        memory: int32: the first position of each window, its count of positions, and its row of ``taps`` weights.
    """

    struct: Any
    memory: Int32


@lru_cache(RECENT)
def made(formula: Formula, axis: Axis) -> Laid:
    """The windows of one axis, of which something is wanted."""
    size, make = axis.end - axis.begin, library().make_windows
    made = STRUCTS["making"](formula_numbers(formula), axis, STRUCTS["windows"](size=size))
    checked(make(byref(made)))  # it has no memory yet, and says how many taps there are
    windows = made.windows
    memory = np.zeros((2 + windows.taps) * size, np.int32)
    windows.first = memory.ctypes.data
    windows.count = windows.first + 4 * size
    windows.weights = windows.count + 4 * size
    checked(make(byref(made)))
    return Laid(made.windows, memory)


def forget() -> None:
    """Give the memory of the remembered windows back."""
    made.cache_clear()


def windows(formula: Formula, axis: Axis) -> Windows:
    """``made`` as plain.cu reads them."""
    numbers, memory = made(formula, axis)
    first, count = memory[: 2 * numbers.size].reshape(2, -1)
    weights = memory[2 * numbers.size :].reshape(numbers.size, -1)[:, : count.max()]
    is_real = formula.is_rule and formula.curve not in WHOLE
    return Windows(first, count, weights.view(np.float32) if is_real else weights, numbers.bits)


def ties(how: Resampling, channels: int, *, is_mirrored: bool) -> U8:
    """uint8 (columns, channels): 1 where a value of a row of the result, with the passes ``dali``, goes away from 0."""
    made = np.empty((how.columns.end - how.columns.begin, channels), np.uint8)
    formula = formula_numbers(how.formula or NO_FORMULA)
    ties = STRUCTS["ties"](formula, how.columns, channels, how.vertical_first, how.order, is_mirrored, made.ctypes.data)
    checked(library().find_ties(byref(ties)))
    return made


def look_up(levels: U8, table: npt.NDArray[Any] | None, out: npt.NDArray[Any]) -> None:
    """``out[c, y, x] = table[c, levels[y, x, c]]``.

    Args:
        levels: uint8 (rows, columns, planes), any strides; at least one of each.
        table: (planes, 256), C-contiguous; None: the levels are the values.
        out: (planes, rows, columns) of the same dtype, any strides. The byte behind each pixel of a ``blank`` one may
            be written, too.
    """
    (rows, columns, planes), (row, column, plane) = levels.shape, levels.strides
    arguments = _VALUES.pack(
        levels.ctypes.data, plane, row, column, out.ctypes.data, *out.strides,
        0 if table is None else table.ctypes.data, 0, planes, rows, columns, out.itemsize,
    )  # fmt: skip
    library().look_up(arguments)


def blank(height: int, width: int, channels: int) -> U8:
    """Memory for an image of one channel, or three in four bytes a pixel, which the steps on colours take."""
    return np.empty((height, width, 1 if channels == 1 else 4), np.uint8)[:, :, :channels]


def move(image: U8, out: U8) -> None:
    """Copy an image to another, (rows, columns, channels) of any strides; NumPy moves three bytes a pixel slowly."""
    look_up(image, None, out.transpose(2, 0, 1))


def copied(image: U8) -> U8:
    """A copy in ``blank`` memory."""
    copy = blank(*image.shape)
    move(image, copy)
    return copy


def laid(windows: Windows) -> Laid:
    """Windows as C reads them."""
    size, taps = windows.weights.shape
    weights = np.ascontiguousarray(windows.weights).view(np.int32)
    memory = np.concatenate([windows.first, windows.count, weights.ravel()])
    at = memory.ctypes.data
    return Laid(STRUCTS["windows"](at, at + 4 * size, at + 8 * size, size, taps, windows.bits), memory)


class Finish(NamedTuple):
    """Last step of a kernel: values of a tensor, made by ``finish`` of levels and by ``finish_real`` of real values.

    Attributes:
        memory: what the addresses are of.
        first, step: the channel of the first plane, and from plane to plane.
        table, lines: addresses; 0: there are none, or no lines give the values of the table.
        steps: address and count of the steps of arithmetic.
    """

    memory: tuple[Any, ...]
    first: int
    step: int
    table: int = 0
    lines: int = 0
    steps: tuple[int, int] = (0, 0)

    def of(self, table: npt.NDArray[Any]) -> Finish:
        """The same of another table, (planes, 256), C-contiguous."""
        return self._replace(memory=(table,), table=table.ctypes.data, lines=0)


def finish(table: npt.NDArray[Any], channels: Sequence[int], lines: npt.NDArray[np.float64]) -> Finish:
    """Make the last step of levels.

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
    return Finish((table, lines), *_order(channels), table.ctypes.data, lines.ctypes.data if is_line else 0)


def finish_real(channels: Sequence[int], arithmetic: Sequence[ArithmeticStep]) -> Finish:
    """Make the last step of real values, for a tensor of float32.

    Args:
        channels: as ``finish``, at most 4.
        arithmetic: its steps.
    """
    steps = (STRUCTS["arithmetic"] * len(arithmetic))(*map(_arithmetic, arithmetic))
    return Finish((steps,), *_order(channels), steps=(addressof(steps), len(steps)))


def _order(channels: Sequence[int]) -> tuple[int, int]:
    return channels[0], 1 if channels[-1] >= channels[0] else -1


def _arithmetic(step: ArithmeticStep) -> tuple[int, tuple[float, ...], tuple[float, ...]]:
    if isinstance(step, Affine):
        return 0, step.scale, step.offset
    assert isinstance(step, Float32)  # levels alone are measured
    return 1 + OPERATIONS.index(step.operation), step.by, ()


def resize(
    pixels: U8,
    how: Resampling,
    *,
    flips: tuple[bool, bool] = (False, False),
    around: Margins | None = None,
    remembers: bool = True,
    finish: Finish | None = None,
    out: npt.NDArray[Any] | None = None,
) -> npt.NDArray[Any] | None:
    """Resize, flip and make values in one call, because each call waits for the interpreter's lock.

    Args:
        pixels: uint8 (height, width, channels), any strides, 1 to 4 channels.
        how: of the pixels with their margin; something is wanted of both axes. Of ``fixed``, an axis that keeps its
            length stays as it is.
        flips: (vertical, horizontal), of the result.
        around: the margin of the pixels; None: there is none.
        remembers: keep the windows for the next image, which may have the same size.
        finish: of the values, where there is ``out``.
        out: (planes, rows, columns), any strides.

    Returns:
        Without ``out`` the wanted region, (rows, columns, channels): levels, or float32 of ``real`` and ``lerp``.
    """
    (height, width, channels), (passes, rows, columns, formula, windows, vertical_first, factor, _) = pixels.shape, how
    words, kept = 1 if channels == 1 else 4, list[Laid]()
    if windows is not None:
        kept = [laid(windows[0]), laid(windows[1])]
    elif remembers and formula is not None:
        kept = [made(formula, rows), made(formula, columns)]
    result, wide = None, columns.end - columns.begin
    if out is None or finish is None:
        dtype = np.dtype(np.float32 if passes in ("real", "lerp") else np.uint8)
        result = np.empty((rows.end - rows.begin, wide, words), dtype)
        channel, steps = (0, 0), (0, 0)
        values: tuple[int, ...] = result.ctypes.data, 0, result.strides[0], *[0] * 6, dtype.itemsize
    else:
        channel, steps = (finish.first, finish.step), finish.steps
        values = out.ctypes.data, *out.strides, finish.table, finish.lines, len(out), 0, 0, out.itemsize
    arguments = _RESIZE.pack(
        *formula_numbers(formula or NO_FORMULA), *rows, *columns,
        *([addressof(each.struct) for each in kept] or (0, 0)),
        pixels.ctypes.data, *pixels.strides, height, width, channels,
        *(around.struct if around else (0, 0, 0)), vertical_first, *flips, how.order, *channel, 0, 0, 0, 0, *values,
        PASSES["copied" if formula is None and passes == "fixed" else passes], factor, *steps,
    )  # fmt: skip
    checked(library().resize(arguments))
    return result if result is None else result[:, :, :channels]
