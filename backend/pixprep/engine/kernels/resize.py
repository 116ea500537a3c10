"""Call the C kernels that resize images, compute filter coefficients, and look up tensor values."""

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
from pixprep.engine.kernels.smoothing import resize_smoothed
from pixprep.patch_layout import PatchLayout
from pixprep.plan.profiles.windows import Axis, Formula, Resampling, Windows
from pixprep.plan.steps.arithmetic import ArithmeticStep

U8 = npt.NDArray[np.uint8]
Int32 = npt.NDArray[np.int32]

RECENT = 16
"""Number of axes whose filter coefficients are cached for further images of the same size.

The coefficients of the longest axis take 1.2 MB, so the cache takes at most 19 MB.
"""


_RESIZE, _VALUES = packer(STRUCTS["resize"]), packer(STRUCTS["values"])
NO_FORMULA = Formula("box")
INTEGER_RULES = "opencv_linear", "opencv_repeated", "opencv_cubic", "opencv_lanczos4", "opencv_area", "torch_linear"
"""Filter rules whose weights are integers."""
Grid = Any
"""``struct patches``: strides and number of the patches of one image in memory."""
OPERATIONS = "affine", "subtract", "multiply", "divide", "clip"
"""Operations of arithmetic steps, in the order of their numbers in arguments.h.

The operations ``by_own`` and ``standardize``, which depend on image statistics, exist only for pixel values.
"""


class PackedCoefficients(NamedTuple):
    """Filter coefficients of an axis in the layout of the C kernels.

    Attributes:
        struct: ``struct coefficients``, which points into ``memory``.
        memory: Array of int32 with the first input position of each output position, followed by the numbers of taps,
            and by a row of ``taps`` weights per output position.
    """

    struct: Any
    memory: Int32


@lru_cache(RECENT)
def coefficients(formula: Formula, axis: Axis) -> PackedCoefficients:
    """Compute the filter coefficients of an axis, whose range must not be empty."""
    size, make = axis.end - axis.begin, library().make_windows
    request = STRUCTS["coefficients_request"](formula_numbers(formula), axis, STRUCTS["coefficients"](size=size))
    checked(make(byref(request)))  # the first call is without memory, and only computes the number of taps
    windows = request.coefficients
    memory = np.zeros((2 + windows.taps) * size, np.int32)
    windows.first = memory.ctypes.data
    windows.count = windows.first + 4 * size
    windows.weights = windows.count + 4 * size
    checked(make(byref(request)))
    return PackedCoefficients(request.coefficients, memory)


def forget() -> None:
    """Free the cached filter coefficients."""
    coefficients.cache_clear()


def windows(formula: Formula, axis: Axis) -> Windows:
    """Compute filter coefficients in the layout of plain.cu."""
    numbers, memory = coefficients(formula, axis)
    first, count = memory[: 2 * numbers.size].reshape(2, -1)
    weights = memory[2 * numbers.size :].reshape(numbers.size, -1)[:, : count.max()]
    is_real = formula.is_rule and formula.curve not in INTEGER_RULES
    return Windows(first, count, weights.view(np.float32) if is_real else weights, numbers.bits)


def ties(how: Resampling, channels: int, *, is_mirrored: bool) -> U8:
    """Return the values of a row that the passes ``dali`` round away from 0 on a tie.

    The result is uint8 (columns, channels), with 1 for these values and 0 for the others.
    """
    is_away = np.empty((how.columns.end - how.columns.begin, channels), np.uint8)
    formula = formula_numbers(how.formula or NO_FORMULA)
    ties = STRUCTS["ties"](
        formula, how.columns, channels, how.vertical_first, how.order, is_mirrored, is_away.ctypes.data
    )
    checked(library().find_ties(byref(ties)))
    return is_away


def grid(patches: PatchLayout, blocks: npt.NDArray[Any], width: int) -> tuple[Grid, npt.NDArray[Any]]:
    """Return the grid of patches of an image, and a view (planes, rows, columns) of the first patch.

    Args:
        patches: Layout of the patches.
        blocks: View (patches, frames, planes, rows, columns) of at least one patch. The image is written to each of
            its frames.
        width: Width of the image in pixels, which must be a multiple of the width of a patch.
    """
    (stride, frame, *_), frames, (rows, columns) = blocks.strides, blocks.shape[1], patches.size
    return STRUCTS["patches"](rows, columns, patches.merge, width // columns, stride, frames, frame, 0), blocks[0, 0]


def look_up(levels: U8, table: npt.NDArray[Any] | None, out: npt.NDArray[Any], grid: Grid | None = None) -> None:
    """Compute ``out[c, y, x] = table[c, levels[y, x, c]]``.

    Args:
        levels: Pixel values, uint8 (rows, columns, planes) with any strides. The array must not be empty.
        table: C-contiguous look-up table (planes, 256). None means that the pixel values are copied.
        out: Array (planes, rows, columns) with the dtype of the table and any strides. If it is a ``blank`` image, the
            unused byte of each pixel may also be written.
        grid: Grid of patches if ``out`` is the first patch of a tensor of patches.
    """
    (rows, columns, planes), (row, column, plane) = levels.shape, levels.strides
    arguments = _VALUES.pack(
        levels.ctypes.data, plane, row, column, out.ctypes.data, *out.strides,
        0 if table is None else table.ctypes.data, 0, planes, rows, columns, out.itemsize,
        addressof(grid) if grid else 0,
    )  # fmt: skip
    library().look_up(arguments)


def blank(height: int, width: int, channels: int) -> U8:
    """Allocate an image with one channel, or with three channels in four bytes per pixel, as color steps require."""
    return np.empty((height, width, 1 if channels == 1 else 4), np.uint8)[:, :, :channels]


def move(image: U8, out: U8) -> None:
    """Copy an image (rows, columns, channels) with any strides, because NumPy is slow with three bytes per pixel."""
    look_up(image, None, out.transpose(2, 0, 1))


def copied(image: U8) -> U8:
    """Return a copy of an image in ``blank`` memory."""
    copy = blank(*image.shape)
    move(image, copy)
    return copy


def packed(windows: Windows) -> PackedCoefficients:
    """Convert filter coefficients to the layout of the C kernels."""
    size, taps = windows.weights.shape
    weights = np.ascontiguousarray(windows.weights).view(np.int32)
    memory = np.concatenate([windows.first, windows.count, weights.ravel()])
    at = memory.ctypes.data
    return PackedCoefficients(
        STRUCTS["coefficients"](at, at + 4 * size, at + 8 * size, size, taps, windows.bits), memory
    )


class Finish(NamedTuple):
    """Last step of a kernel, which computes tensor values from pixel values (``finish``) or float32 (``finish_real``).

    Attributes:
        memory: Arrays to which the addresses refer. They must not be freed before the kernel has run.
        first, step: Channel of the first plane, and difference between the channels of consecutive planes.
        table, lines: Addresses of the look-up table and of the scales and offsets; 0 if they are not used.
        steps: Address and number of the arithmetic steps.
    """

    memory: tuple[Any, ...]
    first: int
    step: int
    table: int = 0
    lines: int = 0
    steps: tuple[int, int] = (0, 0)

    def of(self, table: npt.NDArray[Any]) -> Finish:
        """Return the same step with a different C-contiguous look-up table, (planes, 256)."""
        return self._replace(memory=(table,), table=table.ctypes.data, lines=0)


def finish(table: npt.NDArray[Any], channels: Sequence[int], lines: npt.NDArray[np.float64]) -> Finish:
    """Create the last step for pixel values.

    Args:
        table: C-contiguous array (planes, 256) with the tensor value of each pixel value.
        channels: Image channel of each plane, in ascending or descending order.
        lines: Scale and offset per plane, (planes, 2). If ``float32(value * scale + offset)``, computed in float64,
            equals the table for every pixel value, the kernel computes tensor values instead of looking them up.
    """
    levels = np.arange(256, dtype=np.float64)
    is_line = table.dtype == np.float32 and np.array_equal(
        (levels * lines[:, :1] + lines[:, 1:]).astype(np.float32), table
    )
    return Finish((table, lines), *_order(channels), table.ctypes.data, lines.ctypes.data if is_line else 0)


def finish_real(channels: Sequence[int], arithmetic: Sequence[ArithmeticStep]) -> Finish:
    """Create the last step for float32 values of the resize and a float32 tensor.

    Args:
        channels: Image channel of each plane, as for ``finish``; at most 4.
        arithmetic: Arithmetic steps that convert the values to tensor values.
    """
    rows = ((OPERATIONS.index(step.operation), *step.operands) for step in arithmetic)
    steps = (STRUCTS["arithmetic"] * len(arithmetic))(*rows)
    return Finish((steps,), *_order(channels), steps=(addressof(steps), len(steps)))


def _order(channels: Sequence[int]) -> tuple[int, int]:
    return channels[0], 1 if channels[-1] >= channels[0] else -1


def resize(
    pixels: U8,
    how: Resampling,
    *,
    flips: tuple[bool, bool] = (False, False),
    around: Margins | None = None,
    remembers: bool = True,
    finish: Finish | None = None,
    out: npt.NDArray[Any] | None = None,
    grid: Grid | None = None,
    values: npt.NDArray[np.float32] | None = None,
) -> npt.NDArray[Any] | None:
    """Resize and flip an image, and compute its tensor values, in a single C call.

    A single call is used because each return from C waits for the GIL.

    Args:
        pixels: Array of uint8 (height, width, channels) with 1 to 4 channels and any strides.
        how: Resampling of the pixels including their padding. The ranges of both axes must not be empty. With the
            passes ``fixed``, an axis that keeps its length is copied.
        flips: Whether to flip the result (vertically, horizontally).
        around: Padding around the pixels. None means no padding.
        remembers: Whether to cache the filter coefficients for further images of the same size.
        finish: Last step, which computes the tensor values of ``out``.
        out: Array of tensor values (planes, rows, columns) with any strides.
        grid: Grid of patches if ``out`` is the first patch of a tensor of patches. A vertical flip and float32 values
            of the resize are not supported with a grid.
        values: Values that are resized instead of the pixel values, float32 (4, 256), one row per channel of the
            pixels. The result is then float32. The passes ``float_pairs`` and ``smoothed`` require these values. Of all
            other passes, only ``float_fused`` support them.

    Returns:
        None if ``out`` was written. Otherwise the requested region, (rows, columns, channels), as uint8, or as float32
        with ``values`` and for the passes ``real`` and ``lerp``. The passes ``smoothed`` never write ``out``.
    """
    (height, width, channels), (passes, rows, columns, formula, windows, vertical_first, factor, _) = pixels.shape, how
    if passes == "smoothed":
        assert around is None
        assert formula is not None
        assert values is not None
        return resize_smoothed(pixels, rows, columns, values, flips, is_smoothed=formula.is_widened)
    assert passes != "float_pairs" or values is not None  # else C would read past the end of the pixels
    words, kept = 1 if channels == 1 else 4, list[PackedCoefficients]()
    if windows is not None:
        kept = [packed(windows[0]), packed(windows[1])]
    elif remembers and formula is not None:
        kept = [coefficients(formula, rows), coefficients(formula, columns)]
    result, wide = None, columns.end - columns.begin
    if out is None or finish is None:
        is_real = values is not None or passes in ("real", "lerp")
        dtype = np.dtype(np.float32 if is_real else np.uint8)
        result = np.empty((rows.end - rows.begin, wide, words), dtype)
        channel, steps = (0, 0), (0, 0)
        target: tuple[int, ...] = result.ctypes.data, 0, result.strides[0], *[0] * 6, dtype.itemsize, 0
    else:
        channel, steps = (finish.first, finish.step), finish.steps
        layout = addressof(grid) if grid else 0
        address = out.__array_interface__["data"][0]  # ctypes.data takes two Python calls
        target = address, *out.strides, finish.table, finish.lines, len(out), 0, 0, out.itemsize, layout
    arguments = _RESIZE.pack(
        *formula_numbers(formula or NO_FORMULA), *rows, *columns,
        *([addressof(each.struct) for each in kept] or (0, 0)),
        pixels.__array_interface__["data"][0], *pixels.strides, height, width, channels,
        *(around.struct if around else (0, 0, 0)), vertical_first, *flips, how.order, *channel, 0, 0, 0, 0, *target,
        PASSES["copied" if formula is None and passes == "fixed" else passes], factor, *steps,
        0 if values is None else values.ctypes.data,
    )  # fmt: skip
    checked(library().resize(arguments))
    return result if result is None else result[:, :, :channels]
