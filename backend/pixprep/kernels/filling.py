"""The structs of a chunk for fast.cu, and its windows, made and packed behind them by the kernels in C: one call.

``launch.py`` does the same in NumPy, number for number, for other profiles, and where there are no kernels in C.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from ctypes import byref

import numpy as np
import numpy.typing as npt

from pixprep.kernels import native
from pixprep.plan.geometry_steps import Resize
from pixprep.plan.output_plans import TensorPlan
from pixprep.plan.placement import Placement
from pixprep.profiles import PROFILES
from pixprep.profiles.formula import Formula
from pixprep.profiles.profile import never_vertical_first
from pixprep.profiles.windows import Axis

U8 = npt.NDArray[np.uint8]
_PLACED = struct.Struct("=2d23q")
"""``struct placed`` of arguments.h, five times as fast as ctypes fills it."""


def fill(
    formula: Formula,
    plan: TensorPlan,
    *,
    pixels: Sequence[tuple[int, int, int, int]],
    placements: Sequence[Placement],
    tensors: Sequence[int],
    which: Sequence[int],
    upload: Callable[[int], tuple[U8, int]],
) -> tuple[U8, int, tuple[int, int]]:
    """``launch._fill`` for fast.cu, of a plan whose windows are made by a formula."""
    order = _order(plan.geometry.resize)
    images = b"".join(
        _PLACED.pack(
            *p.ratio, *p.box, *p.resized, *p.region, *p.at, *p.mirrors, *p.flips,
            like == index and order(p), like, *one, tensor,
        )
        for index, (p, like, one, tensor) in enumerate(zip(placements, which, pixels, tensors, strict=True))
    )  # fmt: skip
    address = np.frombuffer(images, np.uint8).ctypes.data
    chunk = native.Chunk(native.formula_struct(formula), address, len(which), len(plan.channels))
    run = native.kernels().fill_chunk
    native.checked(run(byref(chunk)))  # it has no memory yet, and says how much it needs
    memory, chunk.address = upload(chunk.n_bytes)
    chunk.memory = memory.ctypes.data
    native.checked(run(byref(chunk)))
    return memory, chunk.middle, (chunk.wide, chunk.high)


def _order(resize: Resize | None) -> Callable[[Placement], bool]:
    """Tell whether the first pass of a placement is from row to row."""
    if resize is None or (profile := PROFILES[resize.like]).is_vertical_first is never_vertical_first:
        return lambda _: False
    method = resize.method

    def axis(p: Placement, axis: int) -> Axis:
        return Axis(p.box[axis + 2] - p.box[axis], p.resized[axis], p.ratio[axis], p.region[axis], p.region[axis + 2])

    return lambda p: profile.is_vertical_first(method, axis(p, 0), axis(p, 1))
