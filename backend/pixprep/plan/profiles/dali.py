"""DALI's ``fn.resize`` of uint8 images on a CPU, with its default ``antialias`` or without.

Sizes, and with ``subpixel_scale`` the part of the image that is looked at, come from ``geometry_steps.Resize``, as DALI
finds them (resize_attr.cc). The filter is a table, read with linear interpolation; the border is repeated; both passes
are float32, the cheaper one first (resampling_filters.cu, resampling_setup.cc, resampling_impl_cpu.h).

Against DALI 2.4 on x86-64, by all rules, over 361 images between random sizes and 400 that shrink, 73 and 38 million
values:

========  ==========  ============================  ============================
.         largest     random sizes, off per         shrinking, off per
filter    difference  million: antialias, without   million: antialias, without
========  ==========  ============================  ============================
nearest   0           0, 0                          0, 0
bilinear  1           12, 17                        5, 66
bicubic   1           3, 3                          3, 10
lanczos   1           7, 7                          6, 7
========  ==========  ============================  ============================

The values before rounding agree but for their last bits. What differs is ties, which DALI's vector code rounds to even,
as here, and its code for what is left of a row (up to 15 values) away from 0. Where many values are ties, as in a
checkerboard made larger, that is up to 3 in a hundred; bilinear at exactly half the size, 320 to 420 of a million, and
3,600 to 5,800 without antialias. On a GPU DALI fuses multiplications and additions: not measured.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil, floor
from typing import Any

import numpy as np

from pixprep.plan.profiles.profile import Method, Original, Profile, Size
from pixprep.plan.profiles.windows import Axis, Formula, Passes, Rule, Windows, single
from pixprep.spec import Filter

_RADIUS: dict[Filter, int] = {"bilinear": 1, "bicubic": 2, "lanczos": 3}
_INTERVALS: dict[Filter, int] = {"bilinear": 2, "bicubic": 128, "lanczos": 192}
_RULES: dict[Filter, Rule] = {"bilinear": "dali_bilinear", "bicubic": "dali_bicubic", "lanczos": "dali_lanczos"}


@dataclass(frozen=True)
class _Window:
    """One axis as DALI sees it; every number is a float32.

    Attributes:
        begin, end: which part of the input becomes the output, in positions; may reach over the border.
        ratio: input positions for each output position.
        density: points of the filter's table for each input position.
        anchor: half the width of a window.
        count: input positions in a window.
    """

    begin: np.float32
    end: np.float32
    ratio: np.float32
    density: np.float32
    anchor: np.float32
    count: int


def passes(method: Method, rows: Axis, columns: Axis) -> Passes:
    """Levels for ``nearest``, else float32 with ties to even."""
    del rows, columns
    return "fixed" if method.filter == "nearest" else "float_even"


def is_vertical_first(method: Method, rows: Axis, columns: Axis) -> bool:
    """Tell whether DALI finds it cheaper: taps, 1.4 for each one across, and 3 for each value between passes.

    So it was in each of 15,679 resizes whose two costs are alike. In float32.
    """
    if method.filter == "nearest":
        return False
    row_window, column_window = _window(method, rows), _window(method, columns)

    def cost(values: int, down: int, across: int) -> np.float32:
        taps = np.float32(down * row_window.count) + np.float32(1.4) * np.float32(across * column_window.count)
        return np.float32(3) * np.float32(values) + taps

    results = rows.out_length * columns.out_length
    downwards = rows.out_length * _reach(column_window, columns.length)
    sideways = columns.out_length * _reach(row_window, rows.length)
    return bool(cost(downwards, downwards, results) < cost(sideways, results, sideways))


def formula(method: Method, passes: Passes) -> Formula | None:
    """A table's, as wide as the ratio with antialias."""
    del passes
    if method.filter == "nearest":
        return None
    return Formula(_RULES[method.filter], is_widened=method.antialias)


def _window(method: Method, axis: Axis) -> _Window:
    middle, half = axis.length / 2, axis.ratio * axis.out_length / 2
    begin, end = np.float32(middle - half), np.float32(middle + half)
    one, two = np.float32(1), np.float32(2)  # NumPy 1 makes a float64 of a float32 and a number of Python's
    seen, out = end - begin, np.float32(axis.out_length)
    if method.filter == "nearest":
        return _Window(begin, end, seen / out, one, one, 1)
    radius = np.float32(_RADIUS[method.filter])
    if method.antialias and out < seen:
        radius = radius * seen / out
    intervals = np.float32(_INTERVALS[method.filter])
    density = intervals / (two * radius)
    return _Window(begin, end, seen / out, density, intervals / two / density, ceil(intervals / density))


def _reach(window: _Window, length: int) -> int:
    """Number of positions of the input that the windows read, as DALI estimates it."""
    begin, end = window.begin - window.anchor, window.end - window.anchor + np.float32(window.count)
    return max(0, min(length, floor(end))) - max(0, min(length, floor(begin)))


def windows(method: Method, passes: Passes, axis: Axis) -> Windows:
    """Rows by adding up the ratio, columns by a product: ties fall differently."""
    del passes
    window, half = _window(method, axis), np.float32(0.5)
    if axis.is_vertical:
        ratios = np.full(axis.end, window.ratio)
        ratios[0] = window.begin + half * window.ratio
        positions = np.add.accumulate(ratios)[axis.begin :]
    else:
        outputs = np.arange(axis.begin, axis.end, dtype=np.float32)
        positions = window.begin + (outputs + half) * window.ratio
    return single(np.clip(np.floor(positions), 0, axis.length - 1))


def original(dali: Any, pixels: Any, op: Any, size: Size) -> Any:
    """``fn.resize``."""
    rule: dict[str, Any] = {"resize_y": size[0], "resize_x": size[1]}
    if getattr(op, "rounding", None) == "half_away":  # as DALI itself computes the size
        mode = "not_larger" if op.mode == "fit" else "not_smaller"
        rule = {"resize_y": op.height, "resize_x": op.width, "mode": mode}
        if op.size is not None:
            rule = {f"resize_{op.side}": op.size}
        rule["subpixel_scale"] = bool(op.subpixel)
    how = {"interp_type": getattr(dali.types, MODES[op.filter]), "antialias": bool(op.antialias)}
    return run(dali, pixels, lambda image: dali.fn.resize(image, **how, **rule))


def run(dali: Any, pixels: Any, graph: Callable[[Any], Any]) -> Any:
    """Run a graph of DALI's on one image, on the CPU."""
    pipeline = dali.Pipeline(batch_size=1, num_threads=1, device_id=None)
    with pipeline:
        pixels = np.ascontiguousarray(pixels)
        pipeline.set_outputs(graph(dali.fn.external_source(source=lambda: [pixels], layout="HWC")))
    pipeline.build()
    return np.array(pipeline.run()[0].at(0))


MODES = {"nearest": "INTERP_NN", "bilinear": "INTERP_LINEAR", "bicubic": "INTERP_CUBIC", "lanczos": "INTERP_LANCZOS3"}
PROFILE = Profile(
    title="DALI",
    original=Original("dali", "nvidia.dali", "nvidia-dali-cuda120", "nvidia.dali", original),
    filters=("nearest", "bilinear", "bicubic", "lanczos"),
    antialiased=("nearest", "bilinear", "bicubic", "lanczos"),
    antialias=True,
    rounding="half_away",
    subpixel=True,
    near=("bilinear", "bicubic", "lanczos"),
    passes=passes,
    is_vertical_first=is_vertical_first,
    formula=formula,
    windows=windows,
)
