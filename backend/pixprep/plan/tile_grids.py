"""Implements the rules by which vision-language models choose a grid of tiles for an image."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from math import ceil, floor, inf
from typing import Literal

import numpy as np

from pixprep.errors import ImageError
from pixprep.plan.sizes import Bounds, Size, Sizer

Grid = tuple[int, int]
"""Number of rows and columns of tiles."""
Fit = Literal["stretch", "center", "top_left", "top_left32", "inside"]
Choice = Literal["aspect_ratio", "scale", "scale32", "max_scale32", "resolution", "coverage", "canvas", "unscaled"]
_MIN_COVERAGE = 0.9
_MIN_SIDE = 10


@dataclass(frozen=True)
class TileGrid(Sizer):
    """Rule that chooses the best grid of square tiles for an image.

    Attributes:
        tile: Edge length of a tile in pixels.
        grids: Grids to choose from, in the order in which they are compared.
        choice: Criterion for the best grid.

            - ``aspect_ratio``: the grid whose aspect ratio is closest to that of the image (InternVL, GOT-OCR 2).
            - ``scale``: the grid for which the image is enlarged by the smallest factor. If no grid enlarges the image,
              it is the grid for which the image is shrunk by the smallest factor (Command A Vision).
            - ``scale32``: the same in float32 (Llama 4).
            - ``max_scale32``: the grid with the largest scale factor, in float32 (``resize_to_max_canvas`` of Llama 4).
            - ``resolution``: the grid that keeps the largest number of the image's pixels. In case of a tie, the grid
              with the smallest amount of padding is chosen (LLaVA-NeXT).
            - ``coverage``: the grid with the minimum number of tiles that represents 90 % of the image's pixels
              (Ovis 2).
            - ``canvas``: the grid in which the image has the largest size, if the image fits into at least one grid
              without shrinking. If it does not, ``canvas`` is the grid with the closest aspect ratio (PerceptionLM).
            - ``unscaled``: the smallest grid that contains the image, or, if it has too many tiles, the grid with the
              closest aspect ratio (Phi-4).
        fit: How the image fills the grid. With ``stretch``, the image is stretched. With ``center``, it keeps its
            aspect ratio and is padded on all sides. With ``top_left``, it keeps its aspect ratio, is enlarged at most
            to one tile, and is padded at the bottom and on the right. ``top_left32`` is the same in float32; with
            ``max_scale32``, the image is enlarged to the whole grid. ``inside`` is the same as ``top_left`` without the
            limit; results with a side below 10 pixels are rejected.
        fill: Pixel value of the padding.
        keeps_small: Whether an image that fits into one tile without being shrunk gets a grid of one tile.
    """

    tile: int
    grids: tuple[Grid, ...]
    choice: Choice
    fit: Fit = "stretch"
    keeps_small: bool = False
    fill: int = 0

    def grid(self, height: int, width: int) -> Grid:
        """Return the grid for an image of this size."""
        if self.keeps_small and max(height, width) <= self.tile:
            return 1, 1
        return _grid(self, height, width)

    def canvas(self, height: int, width: int) -> Size:
        """Return the size (height, width) of the whole grid in pixels, for an image of this size."""
        rows, columns = self.grid(height, width)
        return rows * self.tile, columns * self.tile

    def size(self, height: int, width: int) -> Size:
        """Return the size of the resized image before it is padded, for an image of this size.

        Raises:
            ImageError: DOES_NOT_FIT: The aspect ratio of the image is too extreme for all grids.
        """
        rows, columns = self.canvas(height, width)
        if self.fit == "stretch":
            return rows, columns
        if self.fit == "top_left":
            return self._at_top_left(height, width, rows, columns)
        if self.fit == "inside":
            return self._inside(height, width, rows, columns)
        if self.fit == "top_left32":
            return self._at_top_left32(height, width, rows, columns)
        scale_x, scale_y = columns / width, rows / height
        if scale_x < scale_y:
            return min(ceil(height * scale_x), rows), columns
        return rows, min(ceil(width * scale_y), columns)

    @property
    def pads(self) -> bool:
        """See ``Sizer``."""
        return self.fit != "stretch"

    def window(self, height: int, width: int) -> tuple[int, int, int, int]:
        """See ``Sizer``."""
        (rows, columns), (high, wide) = self.size(height, width), self.canvas(height, width)
        if self.fit in ("top_left", "top_left32", "inside"):
            return 0, 0, high, wide
        return -((high - rows) // 2), -((wide - columns) // 2), high, wide

    def _at_top_left(self, height: int, width: int, rows: int, columns: int) -> Size:
        """Return the size that ``get_image_size_fit_to_canvas`` of transformers' Mllama computes."""
        rows, columns = min(max(height, self.tile), rows), min(max(width, self.tile), columns)
        scale_x, scale_y = columns / width, rows / height
        if scale_x < scale_y:
            return min(floor(height * scale_x) or 1, rows), columns
        return rows, min(floor(width * scale_y) or 1, columns)

    def _inside(self, height: int, width: int, rows: int, columns: int) -> Size:
        """Return the size that ``dynamic_preprocess`` of transformers' Phi-4 computes.

        Raises:
            ImageError: DOES_NOT_FIT: A side of the result would have fewer than 10 pixels. Phi-4 rejects such images.
        """
        scale_x, scale_y = columns / width, rows / height
        size = (int(height * scale_x), columns) if scale_x < scale_y else (rows, int(width * scale_y))
        if min(size) < _MIN_SIDE:
            raise ImageError(
                "DOES_NOT_FIT",
                f"{height} x {width} pixels would be resized to {size[0]} x {size[1]}, but each side must have at "
                f"least {_MIN_SIDE} pixels",
            )
        return size

    def _at_top_left32(self, height: int, width: int, rows: int, columns: int) -> Size:
        """Return the size that ``get_max_res_without_distortion`` of transformers' Llama 4 computes.

        In Llama 4, the sides of the grid are tensors. A scale is therefore a float32 if a side of the grid limits the
        size, and a float64 if one tile or the image itself limits the size.
        """

        def of(side: int, most: int) -> tuple[int, float | np.float32]:
            limit = most if self.choice == "max_scale32" else max(side, self.tile)
            if most < limit or self.choice == "max_scale32":
                return most, np.float32(most) / np.float32(side)
            return limit, limit / side

        (high, scale_y), (wide, scale_x) = of(height, rows), of(width, columns)
        is_float32 = isinstance(scale_x, np.float32) or isinstance(scale_y, np.float32)
        if np.float32(scale_x) < np.float32(scale_y) if is_float32 else scale_x < scale_y:
            return max(1, min(_floor(height, scale_x), high)), wide
        return high, max(1, min(_floor(width, scale_y), wide))

    @property
    def bounds(self) -> Bounds:
        """See ``Sizer``."""
        rows, columns = (max(each) * self.tile for each in zip(*self.grids, strict=True))
        max_pixels = max(rows * columns for rows, columns in self.grids) * self.tile**2
        return Bounds((self.tile, self.tile), (rows, columns), max_pixels)

    def __str__(self) -> str:
        max_tiles = max(rows * columns for rows, columns in self.grids)
        padding = "" if self.fit == "stretch" else f", padded with {self.color} ({self.fit})"
        return f"to a grid of at most {max_tiles} tiles of {self.tile} x {self.tile} pixels (by {self.choice}){padding}"


def _floor(side: int, scale: float | np.float32) -> int:
    """Return ``side * scale``, rounded down. The product has the precision of ``scale``."""
    return floor(np.float32(side) * scale) if isinstance(scale, np.float32) else floor(side * scale)


def grids_of(fewest: int, most: int, choice: Choice) -> tuple[Grid, ...]:
    """Return all grids that a criterion can choose, in the order in which the grids are compared.

    Args:
        fewest: Minimum number of tiles.
        most: Maximum number of tiles.
        choice: Criterion, see ``TileGrid.choice``.
    """
    if choice == "canvas":
        return tuple((rows, columns) for columns, rows in _by_ratio(most))
    sides = range(1, most + 1)
    grids = [(rows, columns) for columns, rows in product(sides, sides) if fewest <= rows * columns <= most]
    return tuple(sorted(grids, key=lambda grid: grid[0] * grid[1]))


@lru_cache(512)
def _grid(rule: TileGrid, height: int, width: int) -> Grid:
    return _CHOICES[rule.choice](rule, height, width)


def _by_aspect_ratio(rule: TileGrid, height: int, width: int) -> Grid:
    """Return the grid that ``get_optimal_tiled_canvas`` of transformers' GOT-OCR 2 chooses."""
    best, min_difference = (1, 1), inf
    for rows, columns in rule.grids:
        difference = abs(width / height - columns / rows)
        is_tie = difference == min_difference and width * height > 0.5 * rule.tile * rule.tile * columns * rows
        if difference < min_difference or is_tie:
            best, min_difference = (rows, columns), difference
    return best


def _by_scale(rule: TileGrid, height: int, width: int) -> Grid:
    """Return the grid that ``get_optimal_tiled_canvas`` of transformers' Cohere2Vision and Mllama chooses."""
    scales = [min(columns * rule.tile / width, rows * rule.tile / height) for rows, columns in rule.grids]
    enlarging = [scale for scale in scales if scale >= 1]
    best = min(enlarging) if enlarging else max(scales)
    equal = [grid for grid, scale in zip(rule.grids, scales, strict=True) if scale == best]
    return min(equal, key=lambda grid: grid[0] * grid[1])


def _by_scale32(rule: TileGrid, height: int, width: int) -> Grid:
    """Return the grid that ``get_best_fit`` of transformers' Llama 4 chooses. It is computed in float32, as there."""
    sides = np.array(rule.grids, np.float32) * np.float32(rule.tile)
    scales = np.min(sides / np.array([height, width], np.float32), axis=1)
    enlarging = scales[scales >= 1]
    is_min = rule.choice == "scale32" and len(enlarging)
    best = enlarging.min() if is_min else scales.max()
    equal = [grid for grid, scale in zip(rule.grids, scales, strict=True) if scale == best]
    return min(equal, key=lambda grid: grid[0] * grid[1])


def _unscaled(rule: TileGrid, height: int, width: int) -> Grid:
    """Return the grid that ``dynamic_preprocess`` of transformers' Phi-4 chooses."""
    grid = ceil(height / rule.tile), ceil(width / rule.tile)
    return grid if grid in rule.grids else _by_aspect_ratio(rule, height, width)


def _by_resolution(rule: TileGrid, height: int, width: int) -> Grid:
    """Return the grid that ``select_best_resolution`` of transformers chooses."""
    best: Grid | None = None
    max_effective, min_wasted = 0, inf
    for rows, columns in rule.grids:
        rows_px, columns_px = rows * rule.tile, columns * rule.tile
        scale = min(columns_px / width, rows_px / height)
        effective = min(int(width * scale) * int(height * scale), width * height)
        wasted = rows_px * columns_px - effective
        if effective > max_effective or (effective == max_effective and wasted < min_wasted):
            best, max_effective, min_wasted = (rows, columns), effective, wasted
    if best is None or not max_effective:
        raise ImageError(
            "DOES_NOT_FIT", f"the aspect ratio of {height} x {width} pixels is too extreme for all grids of tiles"
        )
    return best


def _by_coverage(rule: TileGrid, height: int, width: int) -> Grid:
    """Return the grid that ``get_min_tile_covering_grid`` of transformers' Ovis 2 chooses.

    As in transformers, rows and columns are swapped when the coverage is computed, and swapped back in the result.
    """
    found = [((columns, rows), _coverage(columns, rows, height, width, rule.tile)) for rows, columns in rule.grids]
    enough = [each for each in found if each[1] > _MIN_COVERAGE]
    if enough:
        first, second = min(enough, key=lambda each: (each[0][0] * each[0][1], -each[1]))[0]
    else:
        first, second = min(found, key=lambda each: (-each[1], each[0][0] * each[0][1]))[0]
    return second, first


def _coverage(rows: int, columns: int, height: int, width: int, side: int) -> float:
    """Return the fraction of an image's pixels that a grid of tiles with this edge length can represent."""
    total = 0.0
    high, wide = height // rows, width // columns
    for row, column in product(range(rows), range(columns)):
        sides = (
            width - column * wide if column == columns - 1 else wide,
            height - row * high if row == rows - 1 else high,
        )
        longer, shorter = max(sides), float(min(sides))
        if longer > side:
            longer, shorter = side, shorter / longer * side
        total += longer * shorter
    return total / (width * height)


def _by_canvas(rule: TileGrid, height: int, width: int) -> Grid:
    """Return the grid that transformers' PerceptionLM chooses."""
    tile, ratio = rule.tile, width / height
    best: Grid | None = None
    best_size = (0.0, 0.0)
    for rows, columns in rule.grids:
        if columns * tile < width or rows * tile < height:
            continue
        size = _on_canvas(width, height, columns * tile, rows * tile)
        is_better = best is None or (ratio < 1 and size[0] >= best_size[0]) or (ratio >= 1 and size[1] >= best_size[1])
        if is_better:
            best, best_size = (rows, columns), size
    if best is not None:
        return best
    known = dict.fromkeys(columns / rows for rows, columns in rule.grids)
    if ratio >= 1:
        closest = min((each for each in known if each <= ratio), key=lambda each: abs(each - ratio))
    else:
        larger = [each for each in known if each > ratio]
        closest = min(larger, key=lambda each: abs(1 / each - 1 / ratio))
    same = [grid for grid in rule.grids if grid[1] / grid[0] == closest]
    return max(same, key=lambda grid: grid[1] if ratio >= 1 else grid[0])


def _on_canvas(width: int, height: int, max_width: int, max_height: int) -> tuple[float, float]:
    """Return the size (width, height) of an image that is resized to fit into a canvas."""
    scale, ratio = min(max_width / width, max_height / height), width / height
    if ratio > 1.0:
        return scale * width, floor(scale * width / ratio)
    return floor(scale * height * ratio), scale * height


def _by_ratio(max_tiles: int) -> Iterator[tuple[int, int]]:
    """Yield (columns, rows) of all grids, grouped by aspect ratio, with decreasing numbers of tiles."""
    groups: dict[float, list[tuple[int, int]]] = {}
    for count in range(max_tiles, 0, -1):
        for columns in (each for each in range(1, count + 1) if count % each == 0):
            groups.setdefault(columns / (count // columns), []).append((columns, count // columns))
    for group in groups.values():
        yield from group


_CHOICES = {
    "aspect_ratio": _by_aspect_ratio,
    "scale": _by_scale,
    "scale32": _by_scale32,
    "max_scale32": _by_scale32,
    "resolution": _by_resolution,
    "coverage": _by_coverage,
    "canvas": _by_canvas,
    "unscaled": _unscaled,
}
