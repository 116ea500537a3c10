"""decord, which resizes frames while it decodes (FFmpeg's bicubic filter), followed by NumPy."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import decord

from loaders.clips import SIDE, What, endless, normalized, wanted

PACKAGES = ("decord", "numpy")
SETTINGS = ("resized by FFmpeg",)


def prepare(folder: Path, threads: int, what: What) -> Iterator[tuple[Any, Any]]:
    """See ``loaders.clips``."""
    name, clips, frames, _, own = what

    def one(path: str) -> Any:
        reader = decord.VideoReader(path, width=SIDE, height=SIDE, num_threads=own)
        return normalized(reader.get_batch(wanted(len(reader), frames)).asnumpy())

    return endless(folder / name, threads, clips, one)
