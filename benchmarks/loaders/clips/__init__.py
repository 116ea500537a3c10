"""Contenders of the same clips, one a file, as in ``loaders``, but for another ``prepare``.

    prepare(folder, threads, frames)
                   gives batches without end: (clips, names), clips float32 (4, frames, 3, 224, 224), or (4, frames,
                   224, 224, 3) where the library's models want that

The task: of each MP4 of ``folder`` so many frames, from the first to the last and equally far apart, or the first one;
each resized to 224 x 224, antialiased where the library has that, and ``(level / 255 - mean) / std``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import numpy.typing as npt

from loaders import MEAN, SIDE, STD

CLIPS = 4
F32 = npt.NDArray[np.float32]


def wanted(count: int, frames: int) -> list[int]:
    """The frames of a clip of ``count``."""
    return [index * (count - 1) // max(frames - 1, 1) for index in range(frames)]


def normalized(frames: npt.NDArray[np.uint8]) -> F32:
    """Frames (n, height, width, 3) as the task has them, by NumPy."""
    values = frames.astype(np.float32)
    values /= 255
    values -= np.array(MEAN, np.float32)
    values /= np.array(STD, np.float32)
    return values


def endless(folder: Path, threads: int, one: Callable[[str], F32]) -> Iterator[tuple[F32, list[str]]]:
    """Batches of clips, a thread for each of so many."""
    paths = [str(path) for path in sorted(folder.glob("*.mp4"))][:CLIPS]
    with ThreadPoolExecutor(threads) as pool:
        while True:
            yield np.stack([*pool.map(one, paths)]), paths


__all__ = ["CLIPS", "MEAN", "SIDE", "STD", "endless", "normalized", "wanted"]
