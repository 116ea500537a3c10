"""Code that uses OpenCV: Ultralytics' letterbox, PaddleOCR's text lines, and the task of ``contenders``.

``resize_norm_img`` is copied from PaddleOCR, because its package would install PaddlePaddle.
"""

from __future__ import annotations

import math
from functools import partial

import cv2
import numpy as np
from contenders import opencv

from families import Run, alone, of

PACKAGES = opencv.PACKAGES
FLAGS = {"bilinear": cv2.INTER_LINEAR, "bicubic": cv2.INTER_CUBIC, "area": cv2.INTER_AREA}
SIDE, LINE_HEIGHT, LINE_WIDTH = 640, 48, 320


def _decoded(encoded: bytes) -> np.ndarray:
    return cv2.imdecode(np.frombuffer(encoded, np.uint8), cv2.IMREAD_COLOR)


def letterboxed(encoded: bytes) -> np.ndarray:
    """Run Ultralytics' ``LetterBox`` and the ``preprocess`` of its predictor."""
    image = _decoded(encoded)
    height, width = image.shape[:2]
    ratio = min(SIDE / height, SIDE / width)
    size = round(width * ratio), round(height * ratio)
    if size != (width, height):
        image = cv2.resize(image, size, interpolation=cv2.INTER_LINEAR)
    columns, rows = ((SIDE - side) / 2 for side in size)
    top, bottom, left, right = round(rows - 0.1), round(rows + 0.1), round(columns - 0.1), round(columns + 0.1)
    image = cv2.copyMakeBorder(image, top, bottom, left, right, cv2.BORDER_CONSTANT, value=(114, 114, 114))
    tensor = np.ascontiguousarray(image[..., ::-1].transpose(2, 0, 1)).astype(np.float32)
    tensor /= 255
    return tensor


def line(encoded: bytes) -> np.ndarray:
    """Run ``resize_norm_img`` of PaddleOCR's recognizer, for a batch of lines of equal shape."""
    image = _decoded(encoded)
    ratio = image.shape[1] / image.shape[0]
    canvas = np.zeros((3, LINE_HEIGHT, int(LINE_HEIGHT * max(LINE_WIDTH / LINE_HEIGHT, ratio))), np.float32)
    width = min(canvas.shape[2], math.ceil(LINE_HEIGHT * ratio))
    tensor = cv2.resize(image, (width, LINE_HEIGHT)).astype(np.float32).transpose(2, 0, 1) / 255
    tensor -= 0.5
    tensor /= 0.5
    canvas[:, :, :width] = tensor
    return canvas


ROWS = {
    "yolo": partial(alone, letterboxed),
    "paddle": partial(alone, line),
    **{f"opencv {name}": partial(opencv.using, flag, 1) for name, flag in FLAGS.items()},
}


def prepare(row: str, threads: int) -> Run:
    """See ``families``."""
    cv2.setNumThreads(1)
    return of(ROWS, row, threads)
