"""A resampling on the CPU, in NumPy: the arithmetic of ``profiles.windows.Passes``, as written there.

What any window reads is cut out first, the border repeated where windows reach over it. A pass turns the axis it works
along into the first one, so that a tap of all windows is one gathering of long rows, one product and one sum, which
NumPy vectorizes, and during which it lets other threads run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from pixprep.kernels.margins import Margins, taken
from pixprep.profiles.windows import Passes, Resampling, Windows, multiply_add

Array = npt.NDArray[Any]
Pass = Callable[[Array, Windows, float], Array]
"""One pass over values whose first axis it works along, given its windows and ``Resampling.factor``: (out, values)."""
Finish = Callable[[Array, Windows, float], Array]
"""What is made of the sums of a pass."""

CHUNK = 1 << 19
"""So many values at a time: 2 MB beside the result, however large the image."""


def resample(pixels: npt.NDArray[np.uint8], resampling: Resampling, around: Margins | None = None) -> Array:
    """The wanted region: uint8 (rows, columns, channels), float32 where nothing is rounded to levels; any strides.

    Args:
        pixels: uint8 (height, width, channels), any strides.
        resampling: made for pixels of this height and width, or for those of ``around``.
        around: the margin of the pixels; None: there is none.
    """
    passes = resampling.passes
    shape = (len(resampling.rows.first), len(resampling.columns.first), pixels.shape[2])
    if 0 in shape:
        return np.zeros(shape, np.float32 if passes in ("real", "lerp") else np.uint8)
    laid = around.laid if around else pixels.shape
    read_rows, rows = _read(resampling.rows, laid[0])
    read_columns, columns = _read(resampling.columns, laid[1])
    values: Array = pixels
    for axis, read in enumerate((read_rows, read_columns)):
        if around:
            values = taken(values, axis, read, around)
        elif not isinstance(read, slice):
            values = np.take(values, read, axis)  # in the order of its shape, which an index does not keep
        else:
            values = values[:, read] if axis else values[read]
    along = [(0, rows), (1, columns)] if resampling.vertical_first else [(1, columns), (0, rows)]
    for (axis, windows), one in zip(along, _PASSES[passes], strict=True):
        if passes != "fixed" or windows.weights.shape[1] > 1:  # else what is read are the levels themselves
            values = _along(values, axis, windows, one, resampling.factor)
    return values


def _read(windows: Windows, length: int) -> tuple[slice | npt.NDArray[np.intp], Windows]:
    """Part of an axis that the windows read, and the windows within that part.

    Positions between windows are left out, where they are many. Windows of one position read no other.
    """
    first, (size, taps) = windows.first, windows.weights.shape
    if taps == 1:
        begin = int(first[0])
        if 0 <= begin <= length - size and np.array_equal(first, np.arange(begin, begin + size)):
            return slice(begin, begin + size), replace(windows, first=first - np.int32(begin))
    else:
        begin, end = int(first.min()), int((first + windows.count).max())
        if 2 * size * taps >= end - begin:
            inside = replace(windows, first=first - np.int32(begin))
            if begin >= 0 and end <= length:
                return slice(begin, end), inside
            return np.clip(np.arange(begin, end), 0, length - 1), inside
    positions = (first[:, None] + np.arange(taps)).ravel()
    inside = replace(windows, first=np.arange(0, len(positions), taps, dtype=np.int32))
    return np.clip(positions, 0, length - 1), inside


def _along(values: Array, axis: int, windows: Windows, one: Pass, factor: float) -> Array:
    """One pass along an axis, in chunks of the other."""
    # Of columns, the channels come before the rows: NumPy copies along the last axis, and three values are a short one.
    to_lines, from_lines = ((0, 1, 2), (0, 1, 2)) if axis == 0 else ((1, 2, 0), (2, 0, 1))
    size = max(1, CHUNK // (max(values.shape[axis], len(windows.first)) * values.shape[2]))
    results = []
    for begin in range(0, values.shape[1 - axis], size):
        chunk = slice(begin, begin + size)
        lines = (values[:, chunk] if axis == 0 else values[chunk]).transpose(to_lines)
        results.append(one(lines, windows, factor).reshape(-1, *lines.shape[1:]).transpose(from_lines))
    return results[0] if len(results) == 1 else np.concatenate(results, axis=1 - axis)


def _sum(dtype: type[np.generic], finish: Finish | None = None, **how: Any) -> Pass:
    """A pass that is the weighted sums of all windows, and what is made of them."""

    def one(lines: Array, windows: Windows, factor: float) -> Array:
        sums = _sums(lines, windows, dtype, **how)
        return finish(sums, windows, factor) if finish else sums

    return one


def _shifted(sums: Array, windows: Windows, _: float) -> Array:
    sums += 1 << (windows.bits - 1)
    sums >>= windows.bits
    return _levels(sums)


def _even(sums: Array, *_: Any) -> Array:
    return _levels(np.rint(sums))


def _mean(sums: Array, _: Windows, factor: float) -> Array:
    return _levels(np.rint(sums.astype(np.float32) * np.float32(factor)))


def _linear_second(lines: Array, windows: Windows, _: float) -> Array:
    rows = _rows(lines, np.int32)
    left, right = ((rows[windows.first + index] * windows.weights[:, index, None]) >> 16 for index in (0, 1))
    return _levels((left + right + 2) >> 2)


def _cubic_second(lines: Array, windows: Windows, _: float) -> Array:
    scaled = replace(windows, weights=windows.weights * np.float32(2.0**-22))
    return _levels(np.rint(_sums(lines, scaled, np.float32, last_first=True)))


def _lerp(lines: Array, windows: Windows, _: float) -> Array:
    rows = _rows(lines, np.float32)
    left, right = rows[windows.first], rows[windows.first + 1]
    lerped: Array = left + (right - left) * windows.weights[:, 1:]
    return lerped


def _sums(
    lines: Array, windows: Windows, dtype: type[np.generic], *, last_first: bool = False, is_fused: bool = False
) -> Array:
    """The weighted sums of all windows, (out, values), each product and sum of ``dtype`` but those that are fused."""
    rows = _rows(lines, dtype)
    weights = windows.weights.astype(dtype, copy=False)
    order = list(range(weights.shape[1]))
    first, *others = reversed(order) if last_first else order
    sums: Array = rows.take(windows.first + first, axis=0, mode="clip")
    sums *= weights[:, first, None]
    product = np.empty_like(sums)
    for index in others:
        # Clipped where a window has fewer taps than the longest: there the weight is 0.
        rows.take(windows.first + index, axis=0, out=product, mode="clip")
        late = np.flatnonzero(index > (windows.count - 1) // 4 * 4) if is_fused else ()
        exact = multiply_add(product[late], weights[late, index, None], sums[late]) if len(late) else None
        product *= weights[:, index, None]
        sums += product
        if exact is not None:
            sums[late] = exact
    return sums


def _rows(lines: Array, dtype: type[np.generic]) -> Array:
    rows: Array = lines.astype(dtype, order="C").reshape(len(lines), -1)
    return rows


def _levels(values: Array) -> npt.NDArray[np.uint8]:
    levels: npt.NDArray[np.uint8] = np.clip(values, 0, 255).astype(np.uint8)
    return levels


_WHOLE, _REAL = _sum(np.int32), _sum(np.float32)
_PASSES: dict[Passes, tuple[Pass, Pass]] = {
    "fixed": (_sum(np.int32, _shifted), _sum(np.int32, _shifted)),
    "opencv_linear": (_sum(np.int32, lambda sums, *_: sums >> 4), _linear_second),
    "opencv_cubic": (_WHOLE, _cubic_second),
    "opencv_lanczos": (_WHOLE, _sum(np.int32, _shifted)),
    "area": (_WHOLE, _sum(np.int32, _mean)),
    "float_even": (_REAL, _sum(np.float32, _even)),
    "float_fused": (_sum(np.float32, is_fused=True), _sum(np.float32, _even, is_fused=True)),
    "real": (_REAL, _REAL),
    "lerp": (_lerp, _lerp),
}
"""The first and the second pass of each arithmetic."""
