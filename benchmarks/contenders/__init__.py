"""One file per contender of the same task, each run in a process of its own. Each file has three names.

    PACKAGES         the packages whose versions decide its speed
    MEAN_LEVELS      how far its pixels may lie from the reference, on average; None: it makes no tensor
    prepare(filter_name, threads)
                     gives ``run(batch)``: a list of encoded photos in, float32 (photos, 3, 224, 224) out

The task is torchvision's ImageNet preset: shorter side 256, centre 224, ``(level / 255 - mean) / std``, RGB planes.
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
