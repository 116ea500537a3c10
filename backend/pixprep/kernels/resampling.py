"""Axes of a placement, and their windows, for both kernels."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from pixprep.kernels import fixed
from pixprep.plan.geometry_steps import Resize
from pixprep.plan.placement import Placement
from pixprep.profiles import PROFILES, Method
from pixprep.profiles.windows import Axis, Formula, Passes, Resampling, Windows, single
from pixprep.spec import Like


def axes(resize: Resize | None, placement: Placement) -> tuple[Axis, Axis]:
    """The rows and the columns of a placement."""
    reduction, region, resized, ratio = placement.reduction, placement.region, placement.resized, placement.ratio
    lengths, offsets = placement.laid, (0.0, 0.0)
    if reduction is not None:
        top, left, bottom, right = placement.read
        lengths, offsets = (bottom - top, right - left), placement.offset
        ratio = ratio[0] / reduction.denominator, ratio[1] / reduction.denominator
    across = resized if resize is not None and resize.filter in PROFILES[resize.like].across else (0, 0)
    return (
        Axis(lengths[0], resized[0], ratio[0], region[0], region[2], offsets[0], is_vertical=True, across=across[1]),
        Axis(lengths[1], resized[1], ratio[1], region[1], region[3], offsets[1], is_vertical=False, across=across[0]),
    )


def resampling(resize: Resize | None, placement: Placement) -> Resampling:
    """Resampling that makes the region of a placement from its pixels, for the arithmetic in NumPy and plain.cu."""
    rows, columns = axes(resize, placement)
    if resize is None or (rows.length, columns.length) == placement.resized:
        passes: Passes = "real" if resize is not None and resize.is_real else "fixed"
        return Resampling(passes, _unchanged(rows, passes), _unchanged(columns, passes), vertical_first=False)
    profile, method = PROFILES[resize.like], resize.method
    passes = profile.passes(method, rows, columns)
    factor = rows.out_length * columns.out_length / (rows.length * columns.length)

    def windows(axis: Axis) -> Windows:
        if axis.begin == axis.end:
            return _unchanged(axis, passes)
        if rule := profile.formula(method):
            return fixed.windows(rule, axis)
        return _windows(resize.like, method, passes, axis)

    return Resampling(passes, windows(rows), windows(columns), profile.is_vertical_first(method, rows, columns), factor)


def formula(resize: Resize | None) -> Formula | None:
    """The formula of a resize's windows; None: there is none, and their profile makes them."""
    return None if resize is None else PROFILES[resize.like].formula(resize.method)


def forget() -> None:
    """Give the memory of the remembered windows back."""
    _windows.cache_clear()
    fixed.grouped.cache_clear()


@lru_cache(fixed.RECENT)
def _windows(like: Like, method: Method, passes: Passes, axis: Axis) -> Windows:
    return PROFILES[like].windows(method, passes, axis)


def _unchanged(axis: Axis, passes: Passes) -> Windows:
    return single(np.arange(axis.begin, axis.end), passes)
