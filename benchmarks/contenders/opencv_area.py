"""OpenCV's ``INTER_AREA``, its only resize with antialiasing."""

from __future__ import annotations

import cv2

from contenders import Run, opencv

PACKAGES = opencv.PACKAGES
MEAN_LEVELS = 3.0


def prepare(filter_name: str, threads: int) -> Run:
    """See ``contenders``."""
    if filter_name != "bilinear":
        raise NotImplementedError
    return opencv.using(cv2.INTER_AREA, threads)
