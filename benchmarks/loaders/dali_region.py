"""DALI's fastest method on the CPU: decode only the rows of the random crop, and resize them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nvidia.dali import fn, types

from loaders import AREA, ASPECT, SIDE, dali_crop

PACKAGES = dali_crop.PACKAGES
WORKERS = ()


def images(encoded: Any) -> Any:
    """Decode and resize the random crop."""
    crop = {"random_area": AREA, "random_aspect_ratio": ASPECT}
    decoded = fn.decoders.image_random_crop(encoded, output_type=types.RGB, jpeg_fancy_upsampling=True, **crop)
    return fn.resize(decoded, size=(SIDE, SIDE), interp_type=types.INTERP_LINEAR, antialias=True)


def prepare(folder: Path, threads: int, workers: int) -> Iterator[tuple[Any, Any]]:
    """See ``loaders``."""
    del workers
    return dali_crop.endless(folder, threads, images)
