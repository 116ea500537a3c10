"""Determine the resampling of a placement for the kernels: its axes, its arithmetic and its filter coefficients."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from pixprep.engine.kernels.resize import resize
from pixprep.engine.kernels.resize import windows as computed_windows
from pixprep.plan.geometry_steps import Resize
from pixprep.plan.placement import Placement
from pixprep.plan.profiles import PROFILES
from pixprep.plan.profiles.windows import Axis, Formula, Passes, Resampling, Windows, single
from pixprep.plan.steps.levels import Resample


def axes(resize: Resize | None, placement: Placement) -> tuple[Axis, Axis]:
    """Return the vertical and the horizontal axis of the resize in a placement."""
    reduction, region, resized, ratio = placement.reduction, placement.region, placement.resized, placement.ratio
    lengths, offsets = placement.laid, placement.begin
    if reduction is not None:
        top, left, bottom, right = placement.read
        lengths, offsets = (bottom - top, right - left), placement.offset
        ratio = reduction.ratio(0, ratio[0], resized[0]), reduction.ratio(1, ratio[1], resized[1])
    ratio = -ratio[0] if placement.swaps[0] else ratio[0], -ratio[1] if placement.swaps[1] else ratio[1]
    across = resized if resize is not None and resize.filter in PROFILES[resize.like].across else (0, 0)
    return (
        Axis(lengths[0], resized[0], ratio[0], region[0], region[2], offsets[0], is_vertical=True, across=across[1]),
        Axis(lengths[1], resized[1], ratio[1], region[1], region[3], offsets[1], is_vertical=False, across=across[0]),
    )


def resampling(resize: Resize | None, placement: Placement) -> Resampling:
    """Return the resampling that computes the region of a placement from the decoded pixels."""
    rows, columns = axes(resize, placement)
    if resize is None or placement.is_kept:
        passes: Passes = "fixed"
        if resize is not None and resize.is_real:
            passes = "float_fused" if PROFILES[resize.like].takes_real else "real"
        own = single(np.arange(rows.begin, rows.end), passes), single(np.arange(columns.begin, columns.end), passes)
        return Resampling(passes, rows, columns, None, own)
    return of_axes(resize, rows, columns)


def of_axes(resize: Resize | Resample, rows: Axis, columns: Axis) -> Resampling:
    """Return the resampling of a resize step with the given axes, of which at least one changes its length."""
    profile, method = PROFILES[resize.like], resize.method
    passes = profile.passes(method, rows, columns)
    formula, windows = profile.formula(method, passes), None
    if formula is None:
        windows = profile.windows(method, passes, rows), profile.windows(method, passes, columns)
    factor = rows.out_length * columns.out_length / (rows.length * columns.length)
    is_vertical_first = profile.is_vertical_first(method, rows, columns)
    return Resampling(passes, rows, columns, formula, windows, is_vertical_first, factor, resize.order)


def resampled(
    step: Resample, image: npt.NDArray[Any], values: npt.NDArray[np.float32] | None = None
) -> npt.NDArray[Any]:
    """Apply a resize step to an image.

    Args:
        step: Resize step of a placement.
        image: Array of uint8 (height, width, channels) with any strides. If the filter is ``nearest``, any integer
            dtype and any number of channels are also supported.
        values: Values that are resized instead of the pixel values, as in ``kernels.resize``. The result is float32.
    """
    (height, width), profile, method = image.shape[:2], PROFILES[step.like], step.method
    if (height, width) == (step.height, step.width):
        return image if values is None else values[range(image.shape[2]), image]
    across = (step.width, step.height) if method.filter in profile.across else (0, 0)

    def axis(number: int, at: int) -> Axis:
        length, out, begin = (height, width)[number] - at, (step.height, step.width)[number], step.begin[number] - at
        return Axis(length, out, step.ratio[number], 0, out, begin, is_vertical=number == 0, across=across[number])

    rows, columns = axis(0, 0), axis(1, 0)
    if profile.corner is not None and step.begin != (0.0, 0.0):
        top, left = profile.corner(method, rows, columns)
        image, rows, columns = image[top:, left:], axis(0, top), axis(1, left)
    how = of_axes(step, rows, columns)
    if how.windows is not None and method.filter == "nearest":
        positions = (each.first for each in how.windows)
        nearest: npt.NDArray[Any] = image[np.ix_(*positions)]
        return nearest
    result = resize(image, how, values=values)
    assert result is not None
    return result


def windows(how: Resampling) -> tuple[Windows, Windows]:
    """Return the filter coefficients of the vertical and the horizontal axis for plain.cu."""
    if how.formula is None:
        assert how.windows is not None
        return how.windows
    rows, columns = (
        computed_windows(how.formula, axis) if axis.begin < axis.end else single(np.arange(0), how.passes)
        for axis in (how.rows, how.columns)
    )
    return rows, columns


def formula(resize: Resize | None) -> Formula | None:
    """Return the formula of a resize for fast.cu, or None if only plain.cu supports the resize."""
    if resize is None:
        return None
    found = PROFILES[resize.like].formula(resize.method, "fixed")
    return None if found is None or found.is_rule else found
