"""Compares contenders with reference tensors before they are timed, and computes the minimum traffic of a kernel."""

from __future__ import annotations

import io
from collections.abc import Sequence
from itertools import product

import numpy as np
from contenders import CROP, MEAN, SHORTER, STD, margins, resized
from PIL import Image


def difference(tensors: np.ndarray, references: Sequence[np.ndarray]) -> dict[str, float]:
    """Return the maximum and mean difference from the crop of the resized reference, in pixel values.

    Libraries round offsets differently: if the resized image has 117 pixels more than the crop, some libraries place
    the crop at offset 58, and others at 59. Each tensor is therefore compared with all crops whose offset differs by at
    most one pixel, and the best match counts. ``shifted`` is the number of photos whose best match has a different
    offset.
    """
    scale, offset = (255 * np.array(values).reshape(3, 1, 1) for values in (STD, MEAN))
    levels = np.rint(np.asarray(tensors, np.float64) * scale + offset)
    nearest = [_nearest(level, canvas) for level, canvas in zip(levels, references, strict=True)]
    return {
        "max": float(np.max([gaps for gaps, _ in nearest])),
        "mean": round(float(np.mean([gaps for gaps, _ in nearest])), 4),
        "shifted": sum(shift != (0, 0) for _, shift in nearest),
    }


def _nearest(level: np.ndarray, canvas: np.ndarray) -> tuple[np.ndarray, tuple[int, int]]:
    candidates = []
    for shift in product((0, -1, 1), (0, -1, 1)):
        corners = zip(margins(*canvas.shape[:2]), shift, canvas.shape, strict=False)
        top, left = (min(max(margin + move, 0), side - CROP) for margin, move, side in corners)
        candidates.append((np.abs(level - canvas[top : top + CROP, left : left + CROP].transpose(2, 0, 1)), shift))
    return min(candidates, key=lambda candidate: float(candidate[0].mean()))


def reference(encoded: bytes, filter_name: str) -> np.ndarray:
    """Return the photo resized by Pillow, before the crop: uint8 (height, width, 3)."""
    with Image.open(io.BytesIO(encoded)) as image:
        height, width = resized(image.height, image.width)
        return np.asarray(image.convert("RGB").resize((width, height), Image.Resampling[filter_name.upper()]))


def least_bytes(sizes: Sequence[tuple[int, int]], *, support: int, dtype: str) -> int:
    """Return the minimum bytes that any kernel must move through device memory for images of given sizes.

    The kernel reads the source region that the filters cover once, and writes the tensor once. The intermediate result
    of the two passes, the filter coefficients and the tables are not counted, because they can stay in a cache.
    """
    read = 0
    for height, width in sizes:
        ratio = min(height, width) / SHORTER
        seen = (CROP - 1) * ratio + 2 * support * max(ratio, 1)
        read += 3 * round(min(height, seen)) * round(min(width, seen))
    return read + len(sizes) * 3 * CROP * CROP * np.dtype(dtype).itemsize
