"""Compute the displacement fields of warps, and transform boxes and points with them; see ``plan.steps.warps``."""

from __future__ import annotations

from functools import lru_cache
from math import sqrt
from typing import Any

import numpy as np
import numpy.typing as npt

from pixprep.engine.kernels.elastic import sampling_positions
from pixprep.engine.kernels.noise import noise
from pixprep.plan.steps.warps import Elastic, Grid, Lens, Smooth, Warp

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]


def positions(step: Warp) -> F32:
    """Return the position that each pixel of a displaced image samples, float32 (2, height, width) for x and y.

    Positions are in pixels, and 0 is the center of the first pixel. The result covers only the region of the warp.
    """
    if isinstance(step.elastic, Elastic):
        found = np.empty((2, step.height * step.width), np.float32)
        sampling_positions(step, found)
        sides = np.array(step.whole[::-1], np.float32)[:, None]
        return (((found + 1) * sides - 1) / 2).reshape(2, step.height, step.width)
    height, width = step.whole
    maps = _FIELDS[type(step.elastic)](step.elastic, height, width)
    return np.ascontiguousarray(maps[:, step.top : step.top + step.height, step.left : step.left + step.width])


def _grid(grid: Grid, height: int, width: int) -> F32:
    """Return the positions that Albumentations' ``generate_grid`` computes.

    The side lengths of its cells are integers, in pixels.
    """
    x, y = (_grid_axis(steps, side, grid.is_normalized) for steps, side in ((grid.columns, width), (grid.rows, height)))
    maps: F32 = np.stack(np.meshgrid(x, y))
    return maps


def _grid_axis(numbers: tuple[float, ...], length: int, is_normalized: bool) -> F32:
    count, steps = len(numbers) - 1, np.array(numbers)
    cell = length // count
    if is_normalized:
        steps[-1] *= (min(length, (count + 1) * cell) - count * cell) / cell
        steps = steps * (length / cell / np.sum(steps))
    line, previous = np.zeros(length, np.float32), 0.0
    for index, step in enumerate(steps.tolist()):
        begin, end = index * cell, min((index + 1) * cell, length)
        line[begin:end] = np.linspace(previous, previous + cell * step, max(end - begin, 0))
        previous += cell * step
    return line


def _lens(lens: Lens, height: int, width: int) -> F32:
    if lens.model == "camera":
        k, center_x, center_y = float(np.float32(lens.k)), width / 2, height / 2
        x = (np.arange(width) - (width - 1) * 0.5)[None] * (1 / width)
        y = (np.arange(height) - (height - 1) * 0.5)[:, None] * (1 / height)
        r2 = x * x + y * y
        scale = 1 + (k * r2 + k) * r2
        return _as_maps(width * (x * scale) + center_x, height * (y * scale) + center_y)
    y, x = np.mgrid[:height, :width].astype(np.float32)
    x, y = x - width / 2, y - height / 2
    r, theta = np.sqrt(x * x + y * y), np.arctan2(y, x)
    share = r / sqrt((width / 2) ** 2 + (height / 2) ** 2)
    r = r * (1 + lens.k * share * share)
    return _as_maps(r * np.cos(theta) + width / 2, r * np.sin(theta) + height / 2)


def _as_maps(x: npt.NDArray[Any], y: npt.NDArray[Any]) -> F32:
    maps: F32 = np.stack([x, y]).astype(np.float32)
    return maps


def _smooth(smooth: Smooth, height: int, width: int) -> F32:
    field = field_of(smooth, noise((*smooth.seed, 0), (1 if smooth.is_same else 2, height, width)))
    return _as_maps(np.arange(width) + field[0], np.arange(height)[:, None] + field[1])


def field_of(smooth: Smooth, values: F32) -> F32:
    """Return the displacement field for the given noise, float32 (1 or 2, height, width)."""
    values = values / np.abs(values).max()
    rows = values.reshape(-1, values.shape[-1]).astype(np.float64)
    down, across = (_blur_matrix(smooth.sigma, smooth.taps, length) for length in rows.shape)
    field = (down @ rows @ across.T).astype(np.float32).reshape(values.shape) * np.float32(smooth.alpha)
    both: F32 = np.broadcast_to(field, (2, *field.shape[1:]))
    return both


@lru_cache(maxsize=8)
def _blur_matrix(sigma: float, taps: int, length: int) -> F64:
    """Return the matrix (length, length) of a Gaussian blur that repeats the value at each end.

    The matrix is cached, because it takes longer to compute than the blur.
    """
    offsets = np.arange(taps) - taps // 2
    weights = np.exp(-(offsets**2) / (2 * sigma**2))
    weights = (weights / weights.sum()).astype(np.float32).astype(np.float64)
    made, rows = np.zeros((length, length)), np.arange(length)
    for offset, weight in zip(offsets.tolist(), weights.tolist(), strict=True):
        made[rows, (rows + offset).clip(0, length - 1)] += weight
    return made


_FIELDS: dict[type, Any] = {Grid: _grid, Lens: _lens, Smooth: _smooth}


def displaced_boxes(step: Warp, boxes: F64) -> F64:
    """Return the bounding boxes of the displaced boxes, float64 (n, 4) xyxy.

    The outermost output pixels that show a box determine its edges. Each new edge is the center of such a pixel, plus
    the distance from the position that the pixel samples to the old edge. A box that no pixel shows is empty.
    """
    x, y = positions(step) + np.float32(0.5)
    made = np.zeros(boxes.shape)
    for box, (left, top, right, bottom) in zip(made, boxes.tolist(), strict=True):
        is_shown = (x >= left) & (x < right) & (y >= top) & (y < bottom)
        if is_shown.any():
            box[:2] = _edge(is_shown, x, left), _edge(is_shown.T, y.T, top)
            box[2:] = -_edge(is_shown[:, ::-1], -x[:, ::-1], -right), -_edge(is_shown[::-1].T, -y[::-1].T, -bottom)
            box[2:] += is_shown.shape[::-1]
    return made


def _edge(is_shown: npt.NDArray[np.bool_], positions: F32, edge: float) -> float:
    """Return the first position of a box's edge over all rows that show the box. ``positions`` increase along a row."""
    rows = is_shown.any(1).nonzero()[0]
    columns = is_shown[rows].argmax(1)
    return float((columns + 0.5 + edge - positions[rows, columns]).min())


def displaced_points(step: Warp, points: F64) -> F64:
    """Return the positions (..., 2) of the points after the distortion.

    Each point moves by the displacement of the output pixel whose sampling position is nearest to the point.
    """
    x, y = positions(step) + np.float32(0.5)
    made = np.empty(points.shape)
    for index in np.ndindex(points.shape[:-1]):
        at_x, at_y = points[index]
        row, column = np.unravel_index(((x - at_x) ** 2 + (y - at_y) ** 2).argmin(), x.shape)
        made[index] = column + 0.5 + at_x - x[row, column], row + 0.5 + at_y - y[row, column]
    return made
