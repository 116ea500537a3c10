"""DALI's resize and warps of uint8 images on the CPU.

In ``fn.resize``, the filter is a table that is read with linear interpolation, and the border pixel is repeated. Both
passes are computed in float32, and the pass with the lower cost comes first (resampling_filters.cu,
resampling_setup.cc, resampling_impl_cpu.h). ``geometry_steps.Resize`` computes the size of the result and, with
``subpixel_scale``, the region of the image that is resized (resize_attr.cc). DALI rounds vectors of 16 values with ties
to even, and the remaining values of a row with ties away from 0. ``find_ties`` in
``engine/kernels/library_filters.c`` determines which values are the remaining values.

The results are those of DALI 2.4 on x86-64 with glibc 2.28 or later, whose ``sinf`` computes the table of ``lanczos``.
Two measurements did not find any difference. The first measurement resized 1,900 images (noise, edges, checkerboards
and photos) between random sizes and by factors of 2 (103 million values). The second measurement resized 10,000 images
with all size rules (249 million values). ``tests/parity/test_dali.py`` compares regions (``roi``), including flipped
regions and regions that extend beyond the image. On a GPU, DALI uses fused multiply-adds, so that its results may
differ; these differences were not measured.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil, cos, floor, isfinite, pi, sin
from typing import Any

import numpy as np

from pixprep.plan.profiles.profile import Computed, Method, Original, Pair, Profile, Size, Warps
from pixprep.plan.profiles.windows import Axis, Formula, Passes, Rule, Windows, single
from pixprep.spec import Filter, Matrix, WarpFilter

_RADIUS: dict[Filter, int] = {"bilinear": 1, "bicubic": 2, "lanczos": 3}
_INTERVALS: dict[Filter, int] = {"bilinear": 2, "bicubic": 128, "lanczos": 192}
_RULES: dict[Filter, Rule] = {"bilinear": "dali_bilinear", "bicubic": "dali_bicubic", "lanczos": "dali_lanczos"}


@dataclass(frozen=True)
class _Window:
    """Parameters of one axis, computed as in DALI. All numbers are rounded to float32.

    Attributes:
        begin, end: Range of the input that is resized, in pixels. The range may extend beyond the border.
        ratio: Number of input pixels per output pixel. The ratio is negative if the axis is flipped.
        density: Number of entries in the filter table per input pixel.
        anchor: Half of the filter's width in input pixels.
        count: Number of taps.
    """

    begin: np.float32
    end: np.float32
    ratio: np.float32
    density: np.float32
    anchor: np.float32
    count: int


def passes(method: Method, rows: Axis, columns: Axis) -> Passes:
    """Return fixed-point arithmetic for ``nearest``, and float32 arithmetic for the other filters."""
    del rows, columns
    return "fixed" if method.filter == "nearest" else "dali"


def is_vertical_first(method: Method, rows: Axis, columns: Axis) -> bool:
    """Return whether DALI performs the vertical pass first, because it estimates a lower cost for this order.

    The cost, computed in float32, is 1 for each vertical tap, 1.4 for each horizontal tap, and 3 for each value of the
    intermediate image. In a test of 15,679 resizes for which the costs of both orders are close, this function always
    returned DALI's order.
    """
    row_window, column_window = _window(method, rows), _window(method, columns)

    def cost(values: int, down: int, across: int) -> np.float32:
        taps = np.float32(down * row_window.count) + np.float32(1.4) * np.float32(across * column_window.count)
        return np.float32(3) * np.float32(values) + taps

    results = rows.out_length * columns.out_length
    (left, right), (top, bottom) = _read(column_window, columns.length), _read(row_window, rows.length)
    downwards, sideways = rows.out_length * (right - left), columns.out_length * (bottom - top)
    return bool(cost(downwards, downwards, results) < cost(sideways, results, sideways))


def corner(method: Method, rows: Axis, columns: Axis) -> Size:
    """Return the origin (row, column) that positions are relative to when DALI rounds them (resampling_setup.cc).

    On the axis of the first pass, the origin is 0. On the other axis, it is the first position that the filter reads.
    """
    if is_vertical_first(method, rows, columns):
        return 0, _read(_window(method, columns), columns.length)[0]
    return _read(_window(method, rows), rows.length)[0], 0


def formula(method: Method, passes: Passes) -> Formula | None:
    """Return the formula of the filter. With antialiasing, the filter is widened by the ratio."""
    del passes
    if method.filter == "nearest":
        return None
    return Formula(_RULES[method.filter], is_widened=method.antialias)


def _window(method: Method, axis: Axis) -> _Window:
    begin, end = np.float32(axis.offset), np.float32(axis.offset + abs(axis.ratio) * axis.out_length)
    begin, end = (end, begin) if axis.ratio < 0 else (begin, end)
    none, one, two = map(np.float32, range(3))  # with Python numbers, NumPy 1 would compute in float64
    seen, out = end - begin, np.float32(axis.out_length)
    if method.filter == "nearest":
        return _Window(begin, end, seen / out, one, none, 1)
    radius = np.float32(_RADIUS[method.filter])
    if method.antialias and out < abs(seen):
        radius = radius * abs(seen) / out
    intervals = np.float32(_INTERVALS[method.filter])
    density = intervals / (two * radius)
    return _Window(begin, end, seen / out, density, intervals / two / density, ceil(intervals / density))


def _read(window: _Window, length: int) -> tuple[int, int]:
    """Return DALI's estimate of the range (begin, end) of input positions that the filter reads."""
    begin, end = (edge - window.anchor for edge in sorted((window.begin, window.end)))
    return max(0, min(length, floor(begin))), max(0, min(length, ceil(end + np.float32(window.count))))


def windows(method: Method, passes: Passes, axis: Axis) -> Windows:
    """Return the windows of ``nearest``, which have a single tap.

    DALI computes the positions of rows by adding the ratio repeatedly, and the positions of columns by a
    multiplication. Therefore, ties may be broken differently on the two axes.
    """
    del passes
    window, half = _window(method, axis), np.float32(0.5)
    if axis.is_vertical:
        ratios = np.full(axis.out_length, window.ratio)
        ratios[0] = window.begin + half * window.ratio
        positions = np.add.accumulate(ratios)
    else:
        positions = window.begin + (np.arange(axis.out_length, dtype=np.float32) + half) * window.ratio
    wanted = positions[:: -1 if axis.ratio < 0 else 1][axis.begin : axis.end]
    return single(np.clip(np.floor(wanted), 0, axis.length - 1))


def rotation(height: int, width: int, angle: float, center: Pair | None, *, expand: bool) -> tuple[Matrix, Size]:
    """Return the matrix of DALI's ``rotate``, computed in float32, and the size of the result.

    With ``expand``, 0.01 is subtracted from each side of the result before the side is rounded up. If necessary, 1 is
    then added to the side, so that it has the same parity as the side of the image with the most similar direction.
    """
    del center  # DALI rotates about the center only
    one = np.float32
    turn = float(one(angle) * one(np.pi / 180))
    across, down = abs(cos(turn)), abs(sin(turn))
    rows, columns = height, width
    if expand:
        rows, columns = (ceil(across * own + down * other - 0.01) for own, other in ((height, width), (width, height)))
        likes = (height, width) if down <= across else (width, height)
        rows, columns = (side + (side - like) % 2 for side, like in zip((rows, columns), likes, strict=True))
    a, b = glibc_sine(turn, quarters=1), glibc_sine(turn)
    x, y = one(-columns / 2), one(-rows / 2)
    c, f = (a * x - b * y) + one(width / 2), (b * x + a * y) + one(height / 2)
    return tuple(float(each) for each in (a, -b, c, b, a, f)), (rows, columns)


def glibc_sine(angle: float, *, quarters: int = 0) -> np.float32:
    """Return glibc's ``sinf`` of an angle in radians, as in library_filters.c. With ``quarters=1``, return ``cosf``."""
    turns = floor(angle * (2 / pi) + 0.5)
    x = angle - turns * (pi / 2)
    square = x * x
    if (turns + quarters) % 2:
        rest = -0.001388676379437604 + square * 2.4390450703564542e-05
        value = (
            1 + square * -0.49999999725108224 + square * square * 0.041666623324344516 + square * square * square * rest
        )
    else:
        value = (
            x
            + x * square * -0.16666654943701084
            + x * (square * square) * (0.008332178146138854 + square * -0.00019517298981385725)
        )
    return np.float32(-value if (turns + quarters) % 4 > 1 else value)


def inverse(matrix: Matrix) -> Matrix | None:
    """Compute the inverse of an affine map in float32. Return None if the map is not invertible."""
    a, b, c, d, e, f = np.array(matrix, np.float32)
    with np.errstate(all="ignore"):
        a, b, d, e = np.array([e, -b, -d, a]) / (a * e - b * d)
        found = tuple(map(float, (a, b, -a * c - b * f, d, e, -d * c - e * f)))
    return found if all(map(isfinite, found)) else None


def compute(filter_: WarpFilter, matrix: Matrix, whole: Size, size: Size) -> Computed:
    """Return the arithmetic of DALI 2.4's CPU operators ``rotate`` and ``warp_affine``, in float32.

    The coordinate x is ``(c + a * 0.5) + b * (y' + 0.5)`` in the first column of the whole result. It is incremented by
    ``256 * a`` from the beginning of each block of 256 columns to that of the next block, and by a from column to
    column within a block. y is computed in the same way from d, e and f. Outside of the image, pixels have the fill
    color, or the value of the nearest edge pixel.

    **nearest**: The result is the pixel value at (x, y), with both coordinates rounded down.

    **bilinear**: With ``u = x - 0.5``, ``i = floor(u)`` and ``dx = u - i``, and v, j and dy in the same way from y, the
    result is ``upper + (lower - upper) * dy``, rounded half up, with ``upper = p00 * (1 - dx) + p01 * dx``, and
    ``lower`` in the same way from the next row.
    """
    del whole, size
    return Computed(f"dali_{filter_}", matrix)


def original(dali: Any, pixels: Any, op: Any, size: Size) -> Any:
    """Resize an image with DALI's ``fn.resize``."""
    rule: dict[str, Any] = {"resize_y": size[0], "resize_x": size[1]}
    if getattr(op, "rounding", None) == "half_away":  # then DALI computes the size
        mode = "not_larger" if op.mode == "fit" else "not_smaller"
        rule = {"resize_y": op.height, "resize_x": op.width, "mode": mode}
        if op.size is not None:
            rule = {f"resize_{op.side}": op.size} | ({"max_size": op.max_size} if op.max_size else {})
        if op.mode == "scale" and not op.max_size:  # operators of the DALI graph compute the size
            scale = op.size / (min if op.side == "shorter" else max)(pixels.shape[:2])
            scale = scale if (op.shrink, op.enlarge)[scale > 1] else 1.0
            sides = zip("yx", pixels.shape, strict=False)
            rule = {f"resize_{axis}": float(np.float32(side) * np.float32(scale)) for axis, side in sides}
        rule["subpixel_scale"] = bool(op.subpixel)
    if getattr(op, "roi", None) is not None:
        rule |= {"roi_start": op.roi[:2], "roi_end": op.roi[2:], "roi_relative": op.roi_unit == "share"}
    how = {"interp_type": getattr(dali.types, MODES[op.filter]), "antialias": bool(op.antialias)}
    return run(dali, pixels, lambda image: dali.fn.resize(image, **how, **rule))


def run(dali: Any, pixels: Any, graph: Callable[[Any], Any]) -> Any:
    """Run a DALI graph with a single image on the CPU."""
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
    passes=passes,
    is_vertical_first=is_vertical_first,
    formula=formula,
    windows=windows,
    roi="any",
    corner=corner,
)
WARPS = Warps(
    title="DALI",
    filters=("nearest", "bilinear"),
    compute=compute,
    origin="corner",
    rotation=rotation,
    turns_about=False,
    padding_modes=("constant", "edge"),
    regions=("matrix",),
    inverse_maps=(False, True),
    inverse=inverse,
)
