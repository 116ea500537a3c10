"""COCO's shapes of objects as masks, each pixel as pycocotools' ``annToMask`` has it (maskApi.c)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
import numpy as np
import numpy.typing as npt

from pixprep.errors import ImageError

U8 = npt.NDArray[np.uint8]
I64 = npt.NDArray[np.int64]
Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 40)]
_FARTHEST = 1e6
"""Maximum distance of a point from the image's corner, in pixels."""
_MAX_CROSSINGS = 1 << 21
"""Columns that the outlines of an image's polygons cross, together."""
_MAX_PIXELS = 1 << 30
"""Pixels of the masks of an image, together."""
_MAX_COVERS = 4
"""Pixels around the polygons of an image, together, for each of its masks' pixels."""
_MAX_CHARACTERS = 12
"""Letters of a number of the short form: 60 bits."""


class Runs(msgspec.Struct):
    """Lengths of what is and is not the object, in turns, down each column; as text, pycocotools' short form."""

    counts: list[Count] | str
    size: tuple[int, int]


class Shape(msgspec.Struct):
    """Segmentation of an annotation: polygons (x, y, x, y, ...), or run lengths."""

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
            ImageError: BAD_RECORD: a shape is invalid. TOO_MANY_PIXELS: the masks are too large to be drawn.
        """
        del copy  # it is always a new one
        count, height, width = self.shape
        if count * height * width > _MAX_PIXELS:
            what = f"{count:,} masks of {height} x {width}"
            raise ImageError("TOO_MANY_PIXELS", f"{what}: at most {_MAX_PIXELS:,} pixels are drawn for an image")
        masks = np.zeros(self.shape, np.uint8)
        columns, pixels = _MAX_CROSSINGS, _MAX_COVERS * masks.size
        for index, text in enumerate(self._texts):
            shape = msgspec.json.decode(text, type=Shape).segmentation
            try:
                if isinstance(shape, Runs):
                    masks[index] = _of_runs(shape, height, width)
                    continue
                for polygon in shape:
                    columns, pixels = _fill(masks[index], polygon, columns, pixels)
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
        if bits >= 5 * _MAX_CHARACTERS:
            raise ValueError(f"a number of more than {_MAX_CHARACTERS} characters")
        value |= (letter - 48 & 31) << bits
        bits += 5
        if letter - 48 & 32:
            continue
        if letter - 48 & 16:
            value -= 1 << bits
        lengths.append(value + lengths[-2] if len(lengths) > 2 else value)
        value = bits = 0
    return lengths


def _crossings(polygon: Sequence[float], width: int, most: int) -> tuple[I64, I64]:
    """Columns of the image that the outline of a polygon crosses, drawn in fifths of a pixel, and in which row.

    Between two of its points that lie in different fifths the outline crosses into another column. In the middle of a
    pixel's fifths it counts: below there, and on from column to column, inside and outside change. Nothing of the
    outline is drawn but these places: a point may lie far from the image.
    """
    if len(polygon) < 6 or len(polygon) % 2:
        raise ValueError(f"a polygon of {len(polygon)} numbers")
    points = np.array(polygon, np.float64).reshape(-1, 2)
    if not (np.abs(points) < _FARTHEST).all():
        raise ValueError(f"a point lies {np.abs(points).max():.3g} pixels away")
    starts = np.trunc(5 * points + 0.5).astype(np.int64)
    ends = np.roll(starts, -1, axis=0)
    sides = np.abs(ends - starts)
    is_flat = sides[:, 0] >= sides[:, 1]  # the line goes from fifth to fifth in x, else in y
    is_back = np.where(is_flat, starts[:, 0] > ends[:, 0], starts[:, 1] > ends[:, 1])[:, None]
    first, last = np.where(is_back, ends, starts), np.where(is_back, starts, ends)
    begin = (-(-(np.minimum(first, last)[:, 0] - 2) // 5)).clip(0, width)
    counts = ((np.maximum(first, last)[:, 0] - 3) // 5 + 1).clip(0, width) - begin
    counts = counts.clip(0)
    if counts.sum() > most:
        raise ValueError(f"with it the image's outlines cross over {_MAX_CROSSINGS:,} columns")
    edge = np.repeat(np.arange(len(counts)), counts)
    column = begin[edge] + np.arange(len(edge)) - np.repeat(counts.cumsum() - counts, counts)
    is_flat, first, last, steps = is_flat[edge], first[edge], last[edge], sides.max(axis=1)[edge]
    slope = np.where(is_flat, last[:, 1] - first[:, 1], last[:, 0] - first[:, 0]) / np.maximum(steps, 1)
    aside, middle = np.where(is_flat, first[:, 1], first[:, 0]), 5 * column + 2

    def drawn(step: I64) -> npt.NDArray[np.float64]:
        """Place of a step of the line on its other axis, as C rounds it."""
        place: npt.NDArray[np.float64] = np.trunc(aside + slope * step + 0.5)
        return place

    def is_past(step: I64) -> npt.NDArray[np.bool_]:
        """Tell whether a line in y is past the middle of the column."""
        past: npt.NDArray[np.bool_] = np.where(slope > 0, drawn(step) > middle, drawn(step) <= middle)
        return past

    with np.errstate(divide="ignore", invalid="ignore"):
        guess = np.where(is_flat, middle + 1 - first[:, 0], np.ceil((middle + 0.5 - aside) / slope))
    step = guess.clip(1, steps).astype(np.int64)  # of a line in y, right up to rounding
    step -= ~is_flat & (step > 1) & is_past(step - 1)
    step += ~is_flat & ~is_past(step)
    y = np.where(is_flat, np.minimum(drawn(step - 1), drawn(step)), first[:, 1] + step - 1).astype(np.int64)
    return column, (y + 2) // 5


def _fill(mask: U8, polygon: Sequence[float], max_columns: int, max_pixels: int) -> tuple[int, int]:
    """Fill the inside of a polygon in a mask (height, width).

    Returns:
        What is left of the columns that outlines may cross, and of the pixels around polygons.

    Raises:
        ValueError: The points do not form a polygon, or drawing it would take too long.
    """
    columns, rows = _crossings(polygon, mask.shape[1], max_columns)
    rows = rows.clip(0, mask.shape[0])
    if not len(columns):
        return max_columns, max_pixels
    left, top = columns.min(), rows.min()
    width, height = columns.max() + 1 - left, rows.max() - top
    if width * height > max_pixels:
        raise ValueError(f"its polygons cover the image's masks {_MAX_COVERS} times")
    changes = np.zeros(width * height + 1, np.uint8)
    np.add.at(changes, (columns - left) * height + rows - top, 1)
    inside = np.bitwise_and(np.add.accumulate(changes[:-1], dtype=np.uint8), 1).reshape(width, height)
    mask[top : top + height, left : left + width] |= inside.T
    return max_columns - len(columns), max_pixels - inside.size
