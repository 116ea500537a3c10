"""What both kernels resample by: the axes of a placement, and the windows of both."""

from __future__ import annotations

import logging
from functools import cache, lru_cache
from types import ModuleType

import numpy as np

from pixprep.plan.placement import Placement, Resize
from pixprep.profiles import PROFILES, Method
from pixprep.profiles.windows import Axis, Passes, Resampling, Windows, single
from pixprep.spec import Like

log = logging.getLogger(__name__)

RECENT = 16
"""The axes whose windows are remembered: images of one size that follow each other share them.

Those of the longest axis take 1.2 MB, so that 16 take 19 MB at most.
"""


@cache
def machine_code() -> ModuleType | None:
    """``kernels.compiled``, where llvmlite is installed and works.

    Imported on demand, before the first image: 0.1 s and 72 MB, of which 63 are LLVM's library, which processes share.
    """
    try:
        from pixprep.kernels import compiled  # noqa: PLC0415
    except ImportError:
        return None
    except (OSError, RuntimeError) as error:  # LLVM's library does not load, or does not know this processor
        log.warning("llvmlite does not work here, so that Pillow and NumPy resize, more slowly: %s", error)
        return None
    return compiled


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
    """How the region of a placement is computed from its pixels."""
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
        return _windows(resize.like, method, passes, axis)

    return Resampling(passes, windows(rows), windows(columns), profile.is_vertical_first(method, rows, columns), factor)


def forget() -> None:
    """Give the memory of the remembered windows back."""
    _windows.cache_clear()
    if machine_code.cache_info().currsize and (compiled := machine_code()) is not None:
        compiled.forget()


@lru_cache(RECENT)
def _windows(like: Like, method: Method, passes: Passes, axis: Axis) -> Windows:
    return PROFILES[like].windows(method, passes, axis)


def _unchanged(axis: Axis, passes: Passes) -> Windows:
    return single(np.arange(axis.begin, axis.end), passes)
