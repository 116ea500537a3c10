"""Rules that choose a grid of tiles for an image, as the processors of vision-language models do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from math import ceil, floor, inf
from typing import Literal

from pixprep.errors import ImageError
from pixprep.plan.sizes import Bounds, Size

Grid = tuple[int, int]
"""Number of rows and columns of tiles."""
Choice = Literal["aspect_ratio", "scale", "resolution", "coverage", "canvas"]
_MIN_COVERAGE = 0.9


@dataclass(frozen=True)
class TileGrid:
    """A grid of square tiles that fits an image best.

    Attributes:
        tile: Side of a tile in pixels.
        grids: Grids to choose from, in the order in which they are compared.
        choice: Criterion. ``aspect_ratio``: the aspect ratio that is closest to that of the image, as for InternVL and
            GOT-OCR 2. ``scale``: the smallest enlargement, or the largest scale if every grid shrinks the image, as for
            Command A Vision. ``resolution``: the largest number of the image's pixels, then the smallest padding, as
            for LLaVA-NeXT. ``coverage``: the fewest tiles whose pixels cover 90 % of the image, as for Ovis 2.
            ``canvas``: the grid that contains the image and enlarges it most, else the closest aspect ratio, as for
            PerceptionLM.
        pads: Whether the aspect ratio is kept and the image is centred on black pixels. If False, the image is
            stretched.
    """

    tile: int
    grids: tuple[Grid, ...]
    choice: Choice
    pads: bool = False

    def grid(self, height: int, width: int) -> Grid:
        """Return the grid for an image of this size."""
        return _grid(self, height, width)

    def canvas(self, height: int, width: int) -> Size:
        """Return the size of all tiles together, for an image of this size."""
        rows, columns = self.grid(height, width)
        return rows * self.tile, columns * self.tile

    def size(self, height: int, width: int) -> Size:
        """Return the size of the resized image, before the padding, for an image of this size.

        Raises:
            ImageError: DOES_NOT_FIT: No grid suits the image, which is too long and narrow.
        """
        rows, columns = self.canvas(height, width)
        if not self.pads:
            return rows, columns
        scale_x, scale_y = columns / width, rows / height
        if scale_x < scale_y:
            return min(ceil(height * scale_x), rows), columns
        return rows, min(ceil(width * scale_y), columns)

    @property
    def bounds(self) -> Bounds:
        """See ``Sizer``."""
        rows, columns = (max(each) * self.tile for each in zip(*self.grids, strict=True))
        most = max(rows * columns for rows, columns in self.grids) * self.tile**2
        return Bounds((self.tile, self.tile), (rows, columns), most)

    def __str__(self) -> str:
        most = max(rows * columns for rows, columns in self.grids)
        rest = ", centred on black" if self.pads else ""
        return f"to a grid of at most {most} tiles of {self.tile} x {self.tile} pixels (by {self.choice}){rest}"


def grids_of(fewest: int, most: int, choice: Choice) -> tuple[Grid, ...]:
    """Return the grids with ``fewest`` to ``most`` tiles in the order that a criterion requires."""
    if choice == "canvas":
        return tuple((rows, columns) for columns, rows in _by_ratio(most))
    sides = range(1, most + 1)
    grids = [(rows, columns) for columns, rows in product(sides, sides) if fewest <= rows * columns <= most]
    return tuple(sorted(grids, key=lambda grid: grid[0] * grid[1]))


@lru_cache(512)
def _grid(rule: TileGrid, height: int, width: int) -> Grid:
    return _CHOICES[rule.choice](rule, height, width)


def _by_aspect_ratio(rule: TileGrid, height: int, width: int) -> Grid:
    """Return the grid of ``get_optimal_tiled_canvas`` of transformers' GOT-OCR 2."""
    best, least = (1, 1), inf
    for rows, columns in rule.grids:
        difference = abs(width / height - columns / rows)
        is_tie = difference == least and width * height > 0.5 * rule.tile * rule.tile * columns * rows
        if difference < least or is_tie:
            best, least = (rows, columns), difference
    return best


def _by_scale(rule: TileGrid, height: int, width: int) -> Grid:
    """Return the grid of ``get_optimal_tiled_canvas`` of transformers' Cohere2Vision."""
    scales = [min(columns * rule.tile / width, rows * rule.tile / height) for rows, columns in rule.grids]
    enlarging = [scale for scale in scales if scale >= 1]
    return rule.grids[scales.index(min(enlarging) if enlarging else max(scales))]


def _by_resolution(rule: TileGrid, height: int, width: int) -> Grid:
    """Return the grid of ``select_best_resolution`` of transformers."""
    best: Grid | None = None
    most, least = 0, inf
    for rows, columns in rule.grids:
        rows_px, columns_px = rows * rule.tile, columns * rule.tile
        scale = min(columns_px / width, rows_px / height)
        effective = min(int(width * scale) * int(height * scale), width * height)
        wasted = rows_px * columns_px - effective
        if effective > most or (effective == most and wasted < least):
            best, most, least = (rows, columns), effective, wasted
    if best is None or not most:
        raise ImageError("DOES_NOT_FIT", f"{height} x {width} pixels are too long and narrow for every grid of tiles")
    return best


def _by_coverage(rule: TileGrid, height: int, width: int) -> Grid:
    """Return the grid of ``get_min_tile_covering_grid`` of transformers' Ovis 2.

    transformers iterates over (columns, rows) as if they were (rows, columns), and swaps them in the result.
    """
    found = [((columns, rows), _coverage(columns, rows, height, width, rule.tile)) for rows, columns in rule.grids]
    enough = [each for each in found if each[1] > _MIN_COVERAGE]
    if enough:
        first, second = min(enough, key=lambda each: (each[0][0] * each[0][1], -each[1]))[0]
    else:
        first, second = min(found, key=lambda each: (-each[1], each[0][0] * each[0][1]))[0]
    return second, first


def _coverage(rows: int, columns: int, height: int, width: int, side: int) -> float:
    """Return the fraction of an image's pixels that tiles of this side can represent."""
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
    """Return the grid of transformers' PerceptionLM."""
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
    """Return the (width, height) of an image inside a canvas."""
    scale, ratio = min(max_width / width, max_height / height), width / height
    if ratio > 1.0:
        return scale * width, floor(scale * width / ratio)
    return floor(scale * height * ratio), scale * height


def _by_ratio(most: int) -> Iterator[tuple[int, int]]:
    """Yield (columns, rows) of grids, grouped by their aspect ratio, from the largest number of tiles down."""
    groups: dict[float, list[tuple[int, int]]] = {}
    for count in range(most, 0, -1):
        for columns in (each for each in range(1, count + 1) if count % each == 0):
            groups.setdefault(columns / (count // columns), []).append((columns, count // columns))
    for group in groups.values():
        yield from group


_CHOICES = {
    "aspect_ratio": _by_aspect_ratio,
    "scale": _by_scale,
    "resolution": _by_resolution,
    "coverage": _by_coverage,
    "canvas": _by_canvas,
}
