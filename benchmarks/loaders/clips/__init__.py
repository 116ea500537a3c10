"""Contenders for the same clips, one per file, as in ``loaders``; two of the names differ.

    SETTINGS       the names of those to try, each with one of FFmpeg's threads for a clip, and with as many as there
                   are; () where there is nothing to set
    prepare(folder, threads, what)
                   gives batches without end: (clips, names), clips float32 (n, frames, 3, 224, 224), or (n, frames,
                   224, 224, 3) where the library's models want that

``what`` is (file, n, frames, setting, FFmpeg's threads for a clip). The task: of this file in ``folder`` so many
frames, from the first to the last and equally far apart, or the first one; each resized to 224 x 224, antialiased where
the library has that, and ``(level / 255 - mean) / std``; n times, by as many threads at once as there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import numpy.typing as npt

from loaders import MEAN, SIDE, STD

F32 = npt.NDArray[np.float32]
What = tuple[str, int, int, str, int]


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


def endless(path: Path, threads: int, clips: int, one: Callable[[str], F32]) -> Iterator[tuple[F32, list[str]]]:
    """Batches of a clip, as many at once as there are threads."""
    with ThreadPoolExecutor(threads) as pool:
        while True:
            yield np.stack([*pool.map(one, [str(path)] * clips)]), [path.name] * clips


__all__ = ["MEAN", "SIDE", "STD", "What", "endless", "normalized", "wanted"]
