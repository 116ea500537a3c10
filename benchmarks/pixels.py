"""What every contender's tensor is compared with before anything is timed."""

from __future__ import annotations

import io
from collections.abc import Sequence

import numpy as np
from contenders import CROP, MEAN, STD, margins, resized
from PIL import Image


def difference(tensors: np.ndarray, references: Sequence[np.ndarray]) -> dict[str, float]:
    """How far tensors are from the crop of the resized reference, in levels.

    Of the crops that begin up to one pixel beside the reference's the nearest counts, and its ``shift`` (y, x) is
    told: of 117 free pixels some put 58 before the crop, some 59.
    """
    scale, offset = (255 * np.array(values).reshape(3, 1, 1) for values in (STD, MEAN))
    levels = np.rint(np.asarray(tensors, np.float64) * scale + offset)
    shifts = [(y, x) for y in (0, -1, 1) for x in (0, -1, 1)]
    candidates = []
    for y, x in shifts:
        gaps = []
        for level, canvas in zip(levels, references, strict=True):
            top, left = margins(*canvas.shape[:2])
            top = min(max(top + y, 0), canvas.shape[0] - CROP)
            left = min(max(left + x, 0), canvas.shape[1] - CROP)
            gaps.append(np.abs(level - canvas[top : top + CROP, left : left + CROP].transpose(2, 0, 1)))
        candidates.append((float(np.mean(gaps)), float(np.max(gaps))))
    best = min(range(len(shifts)), key=lambda index: candidates[index])
    mean, most = candidates[best]
    return {"max": most, "mean": round(mean, 4), "shift": list(shifts[best])}


def reference(encoded: bytes, filter_name: str) -> np.ndarray:
    """The resized photo before its crop, by Pillow: uint8 (height, width, 3)."""
    with Image.open(io.BytesIO(encoded)) as image:
        height, width = resized(image.height, image.width)
        return np.asarray(image.convert("RGB").resize((width, height), Image.Resampling[filter_name.upper()]))
