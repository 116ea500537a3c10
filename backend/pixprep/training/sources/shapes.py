"""Rasterizes the segmentations of COCO annotations to masks that equal those of pycocotools' ``annToMask`` exactly.

The algorithms are those of maskApi.c.
"""

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
"""Maximum absolute coordinate of a polygon's point, in pixels."""
_MAX_CROSSINGS = 1 << 21
"""Maximum number of image columns that the outlines of all polygons of an image may cross in total."""
_MAX_PIXELS = 1 << 30
"""Maximum number of pixels in all masks of an image."""
_MAX_COVERS = 4
"""Maximum total area of the polygons' bounding boxes of an image, as a multiple of the size of all its masks."""
_MAX_CHARACTERS = 12
"""Maximum number of characters of a number in the compressed run-length format, which is 60 bits."""


class Runs(msgspec.Struct):
    """Run-length encoding of a mask in column-major order, which starts with a run of background pixels.

    Attributes:
        counts: Run lengths, or a string in the compressed format of pycocotools.
        size: (height, width) of the mask.
    """

    counts: list[Count] | str
    size: tuple[int, int]


class Shape(msgspec.Struct):
    """Segmentation of an annotation: polygons as lists (x, y, x, y, ...), or a run-length encoding."""

    segmentation: list[list[float]] | Runs


class Shapes:
    """The masks of the objects in an image, rasterized when NumPy requests the array: uint8 (n, height, width).

    Args:
        texts: Segmentation of each object, as JSON.
        size: (height, width) of the image.
    """

    def __init__(self, texts: Sequence[str], size: tuple[int, int]) -> None:
        self._texts = texts
        self.shape = (len(texts), *size)

    def __len__(self) -> int:
        return len(self._texts)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        """Rasterize the masks.

        Raises:
            ImageError: BAD_RECORD: A segmentation is invalid. TOO_MANY_PIXELS: The masks are too large.
        """
        del copy  # the array is always new
        count, height, width = self.shape
        if count * height * width > _MAX_PIXELS:
            what = f"{count:,} masks of {height} x {width} pixels"
            raise ImageError("TOO_MANY_PIXELS", f"{what} exceed the limit of {_MAX_PIXELS:,} pixels per image")
        masks = np.zeros(self.shape, np.uint8)
        max_columns, max_pixels = _MAX_CROSSINGS, _MAX_COVERS * masks.size
        for index, text in enumerate(self._texts):
            shape = msgspec.json.decode(text, type=Shape).segmentation
            try:
                if isinstance(shape, Runs):
                    masks[index] = _of_runs(shape, height, width)
                    continue
                for polygon in shape:
                    max_columns, max_pixels = _fill(masks[index], polygon, max_columns, max_pixels)
            except ValueError as error:
                raise ImageError("BAD_RECORD", f"segmentation {index + 1} of {len(self)}: {error}") from None
        return masks if dtype is None else masks.astype(dtype)


def _of_runs(runs: Runs, height: int, width: int) -> U8:
    counts = _lengths(runs.counts) if isinstance(runs.counts, str) else runs.counts
    if runs.size != (height, width) or min(counts, default=0) < 0 or sum(counts) != height * width:
        raise ValueError(
            f"the run lengths cover {sum(counts):,} pixels of a mask of size {runs.size}, but the image is "
            f"{height} x {width}"
        )
    columns: U8 = np.repeat(np.arange(len(counts), dtype=np.uint8) & 1, counts).reshape(width, height)
    return columns.T


def _lengths(text: str) -> list[int]:
    """Decode run lengths from the compressed format of pycocotools.

    Each character contains five bits of a number, the least significant first. From the fourth number on, the
    difference from the length two positions before is stored.
    """
    lengths: list[int] = []
    value = bits = 0
    for char in text.encode():
        if bits >= 5 * _MAX_CHARACTERS:
            raise ValueError(f"a compressed run length has more than {_MAX_CHARACTERS} characters")
        value |= (char - 48 & 31) << bits
        bits += 5
        if char - 48 & 32:
            continue
        if char - 48 & 16:
            value -= 1 << bits
        lengths.append(value + lengths[-2] if len(lengths) > 2 else value)
        value = bits = 0
    return lengths


def _crossings(polygon: Sequence[float], width: int, maximum: int) -> tuple[I64, I64]:
    """Find where the outline of a polygon crosses the centres of the image's columns.

    maskApi.c draws the outline on a grid that is five times as fine as the pixels. Where the outline crosses the centre
    of a pixel column, inside and outside alternate for all pixels below, in column-major order. Only these crossings
    are computed here, not the whole outline, because a point may be far outside the image.

    Args:
        polygon: Coordinates x, y, x, y, ... in pixels.
        width: Width of the image in pixels.
        maximum: Maximum number of crossings.

    Returns:
        Column and row of each crossing, int64 (n,). Rows may be outside the image.

    Raises:
        ValueError: The points do not form a polygon, or there are too many crossings.
    """
    if len(polygon) < 6 or len(polygon) % 2:
        raise ValueError(f"a polygon must have an even number of at least 6 coordinates, not {len(polygon)}")
    points = np.array(polygon, np.float64).reshape(-1, 2)
    if not (np.abs(points) < _FARTHEST).all():
        raise ValueError(f"coordinates must be below {_FARTHEST:,.0f} pixels, not {np.abs(points).max():.3g}")
    starts = np.trunc(5 * points + 0.5).astype(np.int64)
    ends = np.roll(starts, -1, axis=0)
    sides = np.abs(ends - starts)
    is_flat = sides[:, 0] >= sides[:, 1]  # the line is drawn in steps of x; the others are drawn in steps of y
    is_back = np.where(is_flat, starts[:, 0] > ends[:, 0], starts[:, 1] > ends[:, 1])[:, None]
    first, last = np.where(is_back, ends, starts), np.where(is_back, starts, ends)
    begin = (-(-(np.minimum(first, last)[:, 0] - 2) // 5)).clip(0, width)
    counts = ((np.maximum(first, last)[:, 0] - 3) // 5 + 1).clip(0, width) - begin
    counts = counts.clip(0)
    if counts.sum() > maximum:
        raise ValueError(f"the polygons of the image cross more than {_MAX_CROSSINGS:,} columns in total")
    edge = np.repeat(np.arange(len(counts)), counts)
    column = begin[edge] + np.arange(len(edge)) - np.repeat(counts.cumsum() - counts, counts)
    is_flat, first, last, steps = is_flat[edge], first[edge], last[edge], sides.max(axis=1)[edge]
    slope = np.where(is_flat, last[:, 1] - first[:, 1], last[:, 0] - first[:, 0]) / np.maximum(steps, 1)
    aside, middle = np.where(is_flat, first[:, 1], first[:, 0]), 5 * column + 2

    def drawn(step: I64) -> npt.NDArray[np.float64]:
        """Return the coordinate of a step on the other axis, rounded as in C."""
        coordinate: npt.NDArray[np.float64] = np.trunc(aside + slope * step + 0.5)
        return coordinate

    def is_past(step: I64) -> npt.NDArray[np.bool_]:
        """Return whether a line that is drawn in steps of y has passed the centre of the column."""
        past: npt.NDArray[np.bool_] = np.where(slope > 0, drawn(step) > middle, drawn(step) <= middle)
        return past

    with np.errstate(divide="ignore", invalid="ignore"):
        guess = np.where(is_flat, middle + 1 - first[:, 0], np.ceil((middle + 0.5 - aside) / slope))
    step = guess.clip(1, steps).astype(np.int64)  # for steps of y, an estimate that rounding may shift by one
    step -= ~is_flat & (step > 1) & is_past(step - 1)
    step += ~is_flat & ~is_past(step)
    y = np.where(is_flat, np.minimum(drawn(step - 1), drawn(step)), first[:, 1] + step - 1).astype(np.int64)
    return column, (y + 2) // 5


def _fill(mask: U8, polygon: Sequence[float], max_columns: int, max_pixels: int) -> tuple[int, int]:
    """Fill the inside of a polygon in a mask (height, width).

    Args:
        mask: Mask to modify.
        polygon: Coordinates x, y, x, y, ... in pixels.
        max_columns: Number of columns that the outlines of this and all following polygons may cross.
        max_pixels: Total area of the bounding boxes that is allowed for this and all following polygons.

    Returns:
        ``max_columns`` and ``max_pixels`` for the following polygons.

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
        raise ValueError(f"the bounding boxes of the polygons are more than {_MAX_COVERS} times as large as all masks")
    changes = np.zeros(width * height + 1, np.uint8)
    np.add.at(changes, (columns - left) * height + rows - top, 1)
    inside = np.bitwise_and(np.add.accumulate(changes[:-1], dtype=np.uint8), 1).reshape(width, height)
    mask[top : top + height, left : left + width] |= inside.T
    return max_columns - len(columns), max_pixels - inside.size
