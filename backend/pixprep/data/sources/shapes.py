"""COCO's shapes of objects as masks, each pixel as pycocotools' ``annToMask`` has it (maskApi.c)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from pixprep.errors import ImageError

U8 = npt.NDArray[np.uint8]
_FARTHEST = 1e6
"""Pixels from the image's corner that a point may lie."""
_LONGEST = 1 << 24
"""Points of an outline, in fifths of a pixel."""


class Runs(msgspec.Struct):
    """Lengths of what is and is not the object, in turns, down each column; as text, pycocotools' short form."""

    counts: list[int] | str
    size: tuple[int, int]


class Shape(msgspec.Struct):
    """The part of an annotation that says where its object is: polygons of x, y, x, y ..., or runs."""

    segmentation: list[list[float]] | Runs


class Shapes:
    """Masks of an image's objects, which NumPy makes of it when it is asked for an array: uint8 (n, height, width).

    Args:
        texts: the annotations of the objects, as JSON.
        size: (height, width) of the image.
    """

    def __init__(self, texts: Sequence[str], size: tuple[int, int]) -> None:
        self._texts = texts
        self.shape = (len(texts), *size)

    def __len__(self) -> int:
        return len(self._texts)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        """See above.

        Raises:
            ImageError: BAD_RECORD: a shape makes no sense.
        """
        del copy  # it is always a new one
        masks = np.zeros(self.shape, np.uint8)
        for index, text in enumerate(self._texts):
            shape = msgspec.json.decode(text, type=Shape).segmentation
            try:
                if isinstance(shape, Runs):
                    masks[index] = _of_runs(shape, *self.shape[1:])
                else:
                    for polygon in shape:
                        masks[index] |= _filled(polygon, *self.shape[1:])
            except ValueError as error:
                raise ImageError("BAD_RECORD", f"shape {index + 1} of {len(self)}: {error}") from None
        return masks if dtype is None else masks.astype(dtype)


def _of_runs(runs: Runs, height: int, width: int) -> U8:
    counts = _lengths(runs.counts) if isinstance(runs.counts, str) else runs.counts
    if runs.size != (height, width) or min(counts, default=0) < 0 or sum(counts) != height * width:
        raise ValueError(f"its runs are {sum(counts):,} pixels of {runs.size}, and the image is {height} x {width}")
    columns: U8 = np.repeat(np.arange(len(counts), dtype=np.uint8) & 1, counts).reshape(width, height)
    return columns.T


def _lengths(text: str) -> list[int]:
    """Lengths of the short form: five bits a letter, the lowest first; from the third on less the one before last."""
    lengths: list[int] = []
    value = bits = 0
    for letter in text.encode():
        value |= (letter - 48 & 31) << bits
        bits += 5
        if letter - 48 & 32:
            continue
        if letter - 48 & 16:
            value -= 1 << bits
        lengths.append(value + lengths[-2] if len(lengths) > 2 else value)
        value = bits = 0
    return lengths


def _filled(polygon: Sequence[float], height: int, width: int) -> U8:
    """The inside of a polygon, whose outline is drawn in fifths of a pixel.

    Between two of its points that lie in different fifths the outline crosses into another column. In the middle of a
    pixel's fifths it counts: below there, and on from column to column, inside and outside change.
    """
    if len(polygon) < 6 or len(polygon) % 2:
        raise ValueError(f"a polygon of {len(polygon)} numbers")
    points = np.array(polygon, np.float64).reshape(-1, 2)
    if not (np.abs(points) < _FARTHEST).all():
        raise ValueError(f"a point lies {np.abs(points).max():.3g} pixels away")
    starts = np.trunc(5 * points + 0.5).astype(np.int64)
    ends = np.roll(starts, -1, axis=0)
    sides = np.abs(ends - starts)
    along = np.where(sides[:, 0] >= sides[:, 1], 0, 1)  # the axis on which the line goes from fifth to fifth
    edges = np.arange(len(starts))
    steps = sides[edges, along]
    if steps.sum() > _LONGEST:
        raise ValueError(f"an outline of {steps.sum() // 5:,} pixels")
    is_back = starts[edges, along] > ends[edges, along]
    first, last = np.where(is_back[:, None], ends, starts), np.where(is_back[:, None], starts, ends)
    slope = (last - first)[edges, 1 - along] / np.maximum(steps, 1)
    edge = np.repeat(edges, steps + 1)
    done = np.arange(len(edge)) - np.repeat(np.cumsum(steps + 1) - (steps + 1), steps + 1)
    done = np.where(is_back[edge], steps[edge] - done, done)
    on, aside = first[edge, along[edge]] + done, first[edge, 1 - along[edge]] + slope[edge] * done + 0.5
    drawn = np.where(along[edge] == 0, [on, np.trunc(aside)], [np.trunc(aside), on]).astype(np.int64)
    (x, y), (before_x, before_y) = drawn[:, 1:], drawn[:, :-1]
    column = np.where(x < before_x, x, x - 1)
    crosses = (x != before_x) & (column % 5 == 2) & (column >= 0) & (column // 5 < width)
    row = ((np.minimum(y, before_y) + 2) // 5).clip(0, height)
    changes = np.bincount((column // 5 * height + row)[crosses], minlength=height * width + 1)[:-1]
    inside: U8 = (changes.cumsum() & 1).astype(np.uint8).reshape(width, height)
    return inside.T
