"""decord, which resizes frames while it decodes (FFmpeg's bicubic filter), followed by NumPy."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import decord

from loaders.clips import SIDE, ClipTask, endless, normalized, wanted

PACKAGES = ("decord", "numpy")
SETTINGS = ("resized by FFmpeg",)


def prepare(folder: Path, threads: int, task: ClipTask) -> Iterator[tuple[Any, Any]]:
    """See ``loaders.clips``."""
    name, clips, frames, _, ffmpeg_threads = task

    def one(path: str) -> Any:
        reader = decord.VideoReader(path, width=SIDE, height=SIDE, num_threads=ffmpeg_threads)
        return normalized(reader.get_batch(wanted(len(reader), frames)).asnumpy())

    return endless(folder / name, threads, clips, one)
