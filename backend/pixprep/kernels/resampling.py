"""What both kernels resample by: the axes of a placement, and the windows of both."""

from __future__ import annotations

import logging
from functools import cache, lru_cache
from types import ModuleType

import numpy as np

from pixprep.plan import Placement, Resize
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
    top, left, bottom, right = placement.read
    lengths = (bottom - top, right - left) if placement.reduction else placement.laid
    offsets = placement.offset
    denominator = placement.reduction.denominator if placement.reduction else 1
    is_across = resize is not None and resize.filter in PROFILES[resize.like].across
    rows, columns = (
        Axis(
            length=lengths[i],
            out_length=placement.resized[i],
            ratio=placement.ratio[i] / denominator,
            begin=placement.region[i],
            end=placement.region[i + 2],
            offset=offsets[i],
            is_vertical=i == 0,
            across=placement.resized[1 - i] if is_across else 0,
        )
        for i in (0, 1)
    )
    return rows, columns


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
