"""OpenCV with an area resize, followed by NumPy. The settings are methods of reaching the requested frames.

``read`` decodes and converts every frame and keeps the requested ones, as most scripts do. ``grab`` converts only the
requested frames. ``seek`` sets the position before each of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from loaders.clips import SIDE, ClipTask, endless, normalized, wanted

PACKAGES = ("opencv-python-headless", "numpy")
SETTINGS = ("read", "grab", "seek")


def prepare(folder: Path, threads: int, task: ClipTask) -> Iterator[tuple[Any, Any]]:
    """See ``loaders.clips``."""
    name, clips, frames, method, ffmpeg_threads = task
    cv2.setNumThreads(0)

    def one(path: str) -> Any:
        capture = cv2.VideoCapture(path, cv2.CAP_FFMPEG, [cv2.CAP_PROP_N_THREADS, ffmpeg_threads])
        those = wanted(int(capture.get(cv2.CAP_PROP_FRAME_COUNT)), frames)
        found = []
        for index in those if method == "seek" else range(those[-1] + 1):
            if method == "seek":
                capture.set(cv2.CAP_PROP_POS_FRAMES, index)
            if method == "grab":
                is_read, frame = capture.grab(), None
                if index in those:
                    is_read, frame = capture.retrieve()
            else:
                is_read, frame = capture.read()
            if not is_read:
                raise ValueError(f"{path}: the clip ends at frame {index}")
            if index in those:
                small = cv2.resize(frame, (SIDE, SIDE), interpolation=cv2.INTER_AREA)
                found.append(cv2.cvtColor(small, cv2.COLOR_BGR2RGB))
        capture.release()
        return normalized(np.stack(found))

    return endless(folder / name, threads, clips, one)
