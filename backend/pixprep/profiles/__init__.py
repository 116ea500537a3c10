"""Profiles: the resize of each library, as windows and weights. NumPy only; both kernels read what they say.

A profile is a module of three functions: ``kind`` of arithmetic and ``is_vertical_first``, for an image of known size,
and ``taps``, the windows of one axis.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Protocol, cast

import numpy as np

from pixprep.plan import Placement, Resize
from pixprep.profiles import dali, opencv, pillow, tensorflow, torch, torchvision
from pixprep.profiles.taps import Axis, Kind, Resampling, Taps, single
from pixprep.spec import Like

Size = tuple[int, int]


class Profile(Protocol):
    """What each of the modules has."""

    def kind(self, resize: Resize, size: Size, resized: Size) -> Kind:
        """The arithmetic for an image of ``size``, (height, width)."""

    def is_vertical_first(self, resize: Resize, size: Size, resized: Size) -> bool:
        """Whether the first pass is from row to row."""

    def taps(self, resize: Resize, kind: Kind, axis: Axis) -> Taps:
        """The windows of one axis; never called for ``nearest`` of one position, nor for an unchanged image."""


PROFILES = cast(
    "dict[Like, Profile]",
    {
        "pillow": pillow,
        "torchvision": torchvision,
        "torch": torch,
        "opencv": opencv,
        "tensorflow": tensorflow,
        "dali": dali,
    },
)


@lru_cache(maxsize=512)
def resampling(resize: Resize | None, placement: Placement) -> Resampling:
    """How the region of a placement is computed from its source.

    The windows of equal axes are the same object.
    """
    top, left, bottom, right = placement.read
    size, resized = (bottom - top, right - left), placement.resized
    offsets, region = placement.offset, placement.region
    denominator = placement.reduction.denominator if placement.reduction else 1
    rows, columns = (
        Axis(
            length=size[i],
            out_length=resized[i],
            scale=placement.scale[i] / denominator,
            offset=offsets[i],
            begin=region[i],
            end=region[i + 2],
            is_vertical=i == 0,
            across=resized[1 - i] if resize is not None and resize.filter == "nearest_exact" else 0,
        )
        for i in (0, 1)
    )
    if resize is None or size == resized:
        kind: Kind = "real" if resize is not None and resize.is_real else "fixed"
        return Resampling(kind, _whole(rows, kind), _whole(columns, kind), vertical_first=False)
    profile = PROFILES[resize.like]
    kind = profile.kind(resize, size, resized)
    factor = resized[0] * resized[1] / (size[0] * size[1])
    is_vertical_first = profile.is_vertical_first(resize, size, resized)
    return Resampling(kind, _taps(resize, kind, rows), _taps(resize, kind, columns), is_vertical_first, factor)


@lru_cache(maxsize=512)
def _taps(resize: Resize, kind: Kind, axis: Axis) -> Taps:
    if axis.begin == axis.end:
        return single(np.zeros(0, np.int32), kind)
    return PROFILES[resize.like].taps(resize, kind, axis)


@lru_cache(maxsize=512)
def _whole(axis: Axis, kind: Kind) -> Taps:
    return single(np.arange(axis.begin, axis.end), kind)
