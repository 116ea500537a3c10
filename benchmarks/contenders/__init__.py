"""Contenders for the same task: one module per contender, which runs in its own process and defines three names.

    PACKAGES         packages whose versions determine its speed
    MEAN_LEVELS      maximum mean difference from the reference in pixel values; None if it does not return tensors
    prepare(filter_name, threads)
                     returns ``run(batch)``, which converts a list of encoded photos to float32 (photos, 3, 224, 224)

The task is torchvision's ImageNet preset: shorter side 256, center crop 224, ``(value / 255 - mean) / std``, RGB
planes. ``prepare`` raises NotImplementedError for a filter that the library does not have.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import starmap
from typing import Any

import numpy as np

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
SHORTER, CROP = 256, 224

Run = Callable[[Sequence[bytes]], Any]


def each(one: Callable[[bytes, np.ndarray], None], threads: int) -> Run:
    """Return a ``run`` function that calls the given function for each photo on several threads, as users would."""
    pool = ThreadPoolExecutor(threads)

    def run(batch: Sequence[bytes]) -> np.ndarray:
        out = np.empty((len(batch), 3, CROP, CROP), np.float32)
        list(starmap(one, zip(batch, out, strict=True)) if threads == 1 else pool.map(one, batch, out))
        return out

    return run


def resized(height: int, width: int) -> tuple[int, int]:
    """Return (height, width) after the resize, rounded as in torchvision."""
    shorter = min(height, width)
    return SHORTER * height // shorter, SHORTER * width // shorter


def margins(height: int, width: int) -> tuple[int, int]:
    """Return the top and left offsets of the center crop, rounded as in torchvision."""
    return round((height - CROP) / 2), round((width - CROP) / 2)
