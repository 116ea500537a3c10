"""OpenCV as most scripts have it: read every frame, keep the wanted ones, resize (area), NumPy."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from loaders.clips import SIDE, endless, normalized, wanted

PACKAGES = ("opencv-python-headless", "numpy")


def prepare(folder: Path, threads: int, frames: int) -> Iterator[tuple[Any, Any]]:
    """See ``loaders.clips``."""
    cv2.setNumThreads(0)

    def one(path: str) -> Any:
        capture = cv2.VideoCapture(path, cv2.CAP_FFMPEG, [cv2.CAP_PROP_N_THREADS, 1])
        left = wanted(int(capture.get(cv2.CAP_PROP_FRAME_COUNT)), frames)
        found, index = [], 0
        while left:
            is_read, frame = capture.read()
            if not is_read:
                raise ValueError(f"{path}: ends at frame {index}")
            while left and left[0] == index:
                small = cv2.resize(frame, (SIDE, SIDE), interpolation=cv2.INTER_AREA)
                found.append(cv2.cvtColor(small, cv2.COLOR_BGR2RGB))
                left.pop(0)
            index += 1
        capture.release()
        return normalized(np.stack(found))

    return endless(folder, threads, one)
