"""decord, which resizes while it decodes (FFmpeg's bicubic), then NumPy."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import decord

from loaders.clips import SIDE, endless, normalized, wanted

PACKAGES = ("decord", "numpy")


def prepare(folder: Path, threads: int, frames: int) -> Iterator[tuple[Any, Any]]:
    """See ``loaders.clips``."""

    def one(path: str) -> Any:
        reader = decord.VideoReader(path, width=SIDE, height=SIDE, num_threads=1)
        return normalized(reader.get_batch(wanted(len(reader), frames)).asnumpy())

    return endless(folder, threads, one)
