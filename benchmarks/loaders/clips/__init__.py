"""Contenders for decoding clips, one module each, as in ``loaders``. Two of the names differ.

    SETTINGS       names of settings to try, each with one FFmpeg thread per clip and with all threads; () if there are
                   no settings
    prepare(folder, threads, task)
                   yields batches endlessly: (clips, names), with clips float32 (n, frames, 3, 224, 224), or
                   (n, frames, 224, 224, 3) if the library's models require it

``task`` is (file, n, frames, setting, number of FFmpeg threads per clip). The task is to decode the given number of
evenly spaced frames of a file in ``folder``, or only the first frame, resize each to 224 x 224, antialiased if the
library supports it, and normalize them: ``(value / 255 - mean) / std``. A batch does this n times, in parallel on all
threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import numpy.typing as npt

from loaders import MEAN, SIDE, STD

F32 = npt.NDArray[np.float32]
ClipTask = tuple[str, int, int, str, int]


def wanted(count: int, frames: int) -> list[int]:
    """Return the indices of the requested frames of a clip with ``count`` frames."""
    return [index * (count - 1) // max(frames - 1, 1) for index in range(frames)]


def normalized(frames: npt.NDArray[np.uint8]) -> F32:
    """Normalize frames (n, height, width, 3) with NumPy."""
    values = frames.astype(np.float32)
    values /= 255
    values -= np.array(MEAN, np.float32)
    values /= np.array(STD, np.float32)
    return values


def endless(path: Path, threads: int, clips: int, one: Callable[[str], F32]) -> Iterator[tuple[F32, list[str]]]:
    """Yield batches of copies of a clip, decoded in parallel on all threads."""
    with ThreadPoolExecutor(threads) as pool:
        while True:
            yield np.stack([*pool.map(one, [str(path)] * clips)]), [path.name] * clips


__all__ = ["MEAN", "SIDE", "STD", "ClipTask", "endless", "normalized", "wanted"]
