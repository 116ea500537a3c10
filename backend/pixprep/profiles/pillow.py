"""Pillow's 8-bit resize.

One output value is ``clip8((2**21 + sum(level * coefficient)) >> 22)`` over a window of levels, along one axis, rounded
to uint8, and then along the other (Pillow, src/libImaging/Resample.c). Before Pillow 13 the horizontal pass comes
first: ``pillow12``. Since then the vertical one does where the height shrinks and ``height - out_height > 2 * (width -
out_width)``: ``pillow``. An axis that keeps its length has no pass.
"""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import numpy as np
import numpy.typing as npt

from pixprep.profiles.formula import MOST_BITS, Curve, Formula
from pixprep.profiles.formula import windows as by_formula
from pixprep.profiles.profile import Method, Profile, always_fixed, never_vertical_first
from pixprep.profiles.windows import Axis, Passes, Windows, single


def is_vertical_first(method: Method, rows: Axis, columns: Axis) -> bool:
    """Since Pillow 13: whether the height shrinks, and by more than twice what the width does."""
    del method
    lost = rows.length - rows.out_length
    return lost > 0 and lost > 2 * (columns.length - columns.out_length)


def formula(method: Method) -> Formula | None:
    """Windows that are cut off at the border, with weights of 22 bits."""
    return None if method.filter == "nearest" else Formula(cast("Curve", method.filter), method.antialias, MOST_BITS)


def windows(method: Method, passes: Passes, axis: Axis) -> Windows:
    """The windows of one axis; an axis that keeps its length has no pass."""
    del passes
    if axis.out_length == axis.length:
        return single(np.arange(axis.begin, axis.end))
    rule = formula(method)
    if rule is None:
        return single(nearest(axis.length, axis.out_length, begin=axis.begin, end=axis.end))
    return by_formula(rule, axis)


def nearest(length: int, out_length: int, *, begin: int, end: int) -> npt.NDArray[np.int64]:
    """For output positions ``begin`` to ``end`` the input position that Pillow's NEAREST takes.

    Pillow adds up the ratio in float64, so that ties fall where they do; a product would move 5 % of them.
    """
    ratios = np.full(end, length / out_length)
    ratios[0] *= 0.5
    return np.minimum(np.add.accumulate(ratios).astype(np.int64), length - 1)[begin:]


PROFILE = Profile(
    title="Pillow",
    filters=("nearest", "box", "bilinear", "hamming", "bicubic", "lanczos"),
    antialiased=("nearest", "box", "bilinear", "hamming", "bicubic", "lanczos"),
    antialias=True,
    reducible=("bilinear", "hamming", "bicubic", "lanczos"),
    is_pillow=True,
    passes=always_fixed,
    is_vertical_first=is_vertical_first,
    windows=windows,
    formula=formula,
)
PROFILE_12 = replace(PROFILE, title="Pillow 12", is_vertical_first=never_vertical_first)
"""The order of the passes before Pillow 13."""
