"""Like ``dali_region``, with DALI's ``color_twist``: one matrix, a fixed order, applied before the mirror."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nvidia.dali import fn

from loaders import JITTER, dali_crop, dali_region

PACKAGES, WORKERS = dali_region.PACKAGES, dali_region.WORKERS


def prepare(folder: Path, threads: int, workers: int) -> Iterator[tuple[Any, Any]]:
    """See ``loaders``."""
    del workers

    def images(encoded: Any) -> Any:
        factors = {
            name: fn.random.uniform(range=(1 - JITTER[name], 1 + JITTER[name]))
            for name in ("brightness", "contrast", "saturation")
        }
        degrees = 360 * JITTER["hue"]
        return fn.color_twist(dali_region.images(encoded), hue=fn.random.uniform(range=(-degrees, degrees)), **factors)

    return dali_crop.endless(folder, threads, images)
