"""Contenders for the same task: one file per contender, each run in its own process. Each file defines three names.

    PACKAGES         the packages whose versions determine its speed
    MEAN_LEVELS      maximum mean difference from the reference, in pixel values; None: without a tensor
    prepare(filter_name, threads)
                     returns ``run(batch)``, which converts a list of encoded photos to float32 (photos, 3, 224, 224)

The task is torchvision's ImageNet preset: shorter side 256, center crop 224, ``(value / 255 - mean) / std``, RGB
planes.
``prepare`` raises NotImplementedError for a filter that the library does not have.
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
    """A batch from a function that writes the tensor of one photo: as a user spreads it over threads."""
    pool = ThreadPoolExecutor(threads)

    def run(batch: Sequence[bytes]) -> np.ndarray:
        out = np.empty((len(batch), 3, CROP, CROP), np.float32)
        list(starmap(one, zip(batch, out, strict=True)) if threads == 1 else pool.map(one, batch, out))
        return out

    return run


def resized(height: int, width: int) -> tuple[int, int]:
    """The (height, width) after the resize, as torchvision rounds it."""
    shorter = min(height, width)
    return SHORTER * height // shorter, SHORTER * width // shorter


def margins(height: int, width: int) -> tuple[int, int]:
    """The (rows, columns) before the centre crop, as torchvision rounds them."""
    return round((height - CROP) / 2), round((width - CROP) / 2)
