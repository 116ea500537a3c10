"""A resampling on the CPU, in NumPy: the arithmetic of ``profiles.taps.Kind``, as written there.

What any window reads is cut out first, the border repeated where windows reach over it. A pass turns the axis it works
along into the first one, so that a tap of all windows is one gathering of long rows, one product and one sum, which
NumPy vectorizes, and during which it lets other threads run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from pixprep.profiles.taps import Kind, Resampling, Taps, fused

Array = npt.NDArray[Any]
Along = Callable[[int, Array, Taps], Array]
"""One pass of ``fixed`` along axis 0 or 1 of uint8 (height, width, channels), whose windows stay inside."""
Step = Callable[[Array, Taps, float], Array]
"""One pass over values whose first axis it works along, given its windows and ``Resampling.factor``: (out, values)."""

CHUNK = 1 << 19
"""So many values at a time: 2 MB beside the result, however large the image."""


def resample(source: npt.NDArray[np.uint8], resampling: Resampling, compiled: Along | None = None) -> Array:
    """The wanted region: uint8 (rows, columns, channels), float32 where the kind does not round; any strides.

    Args:
        source: uint8 (height, width, channels), any strides.
        resampling: made for a source of this height and width.
        compiled: a pass of ``fixed`` that is faster than the one here, and gives the same.
    """
    kind = resampling.kind
    shape = (len(resampling.rows.first), len(resampling.columns.first), source.shape[2])
    if 0 in shape:
        return np.zeros(shape, np.float32 if kind in ("real", "lerp") else np.uint8)
    read_rows, rows = _read(resampling.rows, source.shape[0], is_sparse=True)
    # Compiled code finds a column where it is; a row that is left out is one that the first pass need not work on.
    read_columns, columns = _read(resampling.columns, source.shape[1], is_sparse=compiled is None or kind != "fixed")
    values: Array = source[read_rows][:, read_columns]
    passes = [(0, rows), (1, columns)] if resampling.vertical_first else [(1, columns), (0, rows)]
    for (axis, taps), step in zip(passes, _STEPS[kind], strict=True):
        if kind == "fixed" and taps.weights.shape[1] == 1:  # the level itself
            values = np.take(values, taps.first, axis)
        elif kind == "fixed" and compiled is not None:
            values = compiled(axis, values, taps)
        else:
            values = _along(values, axis, taps, step, resampling.factor)
    return values


@lru_cache(maxsize=512)
def _read(taps: Taps, length: int, *, is_sparse: bool) -> tuple[slice | npt.NDArray[np.intp], Taps]:
    """What of an axis the windows read, in order, and the windows within that, which none of them leaves.

    ``is_sparse``: positions between the windows are left out, where they are many.
    """
    begin, end = int(taps.first.min()), int((taps.first + taps.count).max())
    if begin >= 0 and end <= length and not (is_sparse and 2 * int(taps.count.sum()) < end - begin):
        return slice(begin, end), replace(taps, first=taps.first - begin)
    positions = np.unique(taps.first[:, None] + np.arange(taps.weights.shape[1]))
    first = np.searchsorted(positions, taps.first).astype(np.int32)
    return np.clip(positions, 0, length - 1), replace(taps, first=first)


def _along(values: Array, axis: int, taps: Taps, step: Step, factor: float) -> Array:
    """One pass along an axis, in chunks of the other."""
    # Of columns, the channels come before the rows: NumPy copies along the last axis, and three values are a short one.
    to_lines, from_lines = ((0, 1, 2), (0, 1, 2)) if axis == 0 else ((1, 2, 0), (2, 0, 1))
    size = max(1, CHUNK // (max(values.shape[axis], len(taps.first)) * values.shape[2]))
    results = []
    for begin in range(0, values.shape[1 - axis], size):
        chunk = slice(begin, begin + size)
        lines = (values[:, chunk] if axis == 0 else values[chunk]).transpose(to_lines)
        results.append(step(lines, taps, factor).reshape(-1, *lines.shape[1:]).transpose(from_lines))
    return results[0] if len(results) == 1 else np.concatenate(results, axis=1 - axis)


def _fixed(lines: Array, taps: Taps, _: float) -> Array:
    sums = _sums(lines, taps, np.int32)
    sums += 1 << (taps.bits - 1)
    sums >>= taps.bits
    return _levels(sums)


def _integer(lines: Array, taps: Taps, _: float) -> Array:
    return _sums(lines, taps, np.int32)


def _linear_first(lines: Array, taps: Taps, _: float) -> Array:
    return _sums(lines, taps, np.int32) >> 4


def _linear_second(lines: Array, taps: Taps, _: float) -> Array:
    rows = _rows(lines, np.int32)
    left, right = ((rows[taps.first + index] * taps.weights[:, index, None]) >> 16 for index in (0, 1))
    return _levels((left + right + 2) >> 2)


def _cubic_second(lines: Array, taps: Taps, _: float) -> Array:
    scaled = replace(taps, weights=taps.weights * np.float32(2.0**-22))
    return _levels(np.rint(_sums(lines, scaled, np.float32, last_first=True)))


def _mean(lines: Array, taps: Taps, factor: float) -> Array:
    return _levels(np.rint(_sums(lines, taps, np.int32).astype(np.float32) * np.float32(factor)))


def _real(lines: Array, taps: Taps, _: float) -> Array:
    return _sums(lines, taps, np.float32)


def _even(lines: Array, taps: Taps, _: float) -> Array:
    return _levels(np.rint(_sums(lines, taps, np.float32)))


def _partly_fused(lines: Array, taps: Taps, _: float) -> Array:
    return _sums(lines, taps, np.float32, is_fused=True)


def _even_fused(lines: Array, taps: Taps, factor: float) -> Array:
    return _levels(np.rint(_partly_fused(lines, taps, factor)))


def _lerp(lines: Array, taps: Taps, _: float) -> Array:
    rows = _rows(lines, np.float32)
    left, right = rows[taps.first], rows[taps.first + 1]
    lerped: Array = left + (right - left) * taps.weights[:, 1:]
    return lerped


_STEPS: dict[Kind, tuple[Step, Step]] = {
    "fixed": (_fixed, _fixed),
    "opencv_linear": (_linear_first, _linear_second),
    "opencv_cubic": (_integer, _cubic_second),
    "area": (_integer, _mean),
    "float_even": (_real, _even),
    "float_fused": (_partly_fused, _even_fused),
    "real": (_real, _real),
    "lerp": (_lerp, _lerp),
}
"""The first and the second pass of each kind."""


def _sums(
    lines: Array, taps: Taps, dtype: type[np.generic], *, last_first: bool = False, is_fused: bool = False
) -> Array:
    """The weighted sums of all windows, (out, values), each product and sum of ``dtype`` but those that are fused."""
    rows = _rows(lines, dtype)
    weights = taps.weights.astype(dtype, copy=False)
    order = list(range(weights.shape[1]))
    first, *others = reversed(order) if last_first else order
    sums: Array = rows.take(taps.first + first, axis=0, mode="clip")
    sums *= weights[:, first, None]
    product = np.empty_like(sums)
    for index in others:
        # Clipped where a window has fewer taps than the longest: there the weight is 0.
        rows.take(taps.first + index, axis=0, out=product, mode="clip")
        late = np.flatnonzero(index > (taps.count - 1) // 4 * 4) if is_fused else ()
        exact = fused(product[late], weights[late, index, None], sums[late]) if len(late) else None
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
