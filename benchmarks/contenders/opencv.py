"""OpenCV's default resize, ``INTER_LINEAR``. It does not antialias, so its pixels differ from the reference."""

from __future__ import annotations

import cv2
import numpy as np

from contenders import CROP, MEAN, STD, Run, each, margins, resized

PACKAGES = ("opencv-python-headless", "opencv-python", "numpy")
MEAN_LEVELS = 16.0  # the measured maximum is 12.8, at 12 megapixels
FLAGS = {"bilinear": cv2.INTER_LINEAR, "bicubic": cv2.INTER_CUBIC, "lanczos": cv2.INTER_LANCZOS4}


def using(flag: int, threads: int) -> Run:
    """Return ``run`` for OpenCV with an interpolation flag."""
    cv2.setNumThreads(1)  # the photos are distributed over threads instead
    mean, std = np.array(MEAN, np.float32), np.array(STD, np.float32)

    def one(encoded: bytes, out: np.ndarray) -> None:
        image = cv2.imdecode(np.frombuffer(encoded, np.uint8), cv2.IMREAD_COLOR)
        height, width = resized(*image.shape[:2])
        image = cv2.resize(image, (width, height), interpolation=flag)
        top, left = margins(height, width)
        image = cv2.cvtColor(image[top : top + CROP, left : left + CROP], cv2.COLOR_BGR2RGB)
        out[...] = ((image.astype(np.float32) / 255.0 - mean) / std).transpose(2, 0, 1)

    return each(one, threads)


def prepare(filter_name: str, threads: int) -> Run:
    """See ``contenders``."""
    return using(FLAGS[filter_name], threads)
