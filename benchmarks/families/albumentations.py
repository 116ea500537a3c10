"""albumentations on arrays, with a fixed value instead of a range for each parameter."""

from __future__ import annotations

import os
from functools import partial

import cv2
import numpy as np

from families import Run, of, on_arrays

os.environ["NO_ALBUMENTATIONS_UPDATE"] = "1"  # without this, it queries PyPI for its newest version
import albumentations as A  # noqa: N812

PACKAGES = ("albumentations", "albucore", "opencv-python-headless", "numpy")
ONE, NONE = (1, 1), (0, 0)
JITTER = {"brightness": ONE, "contrast": ONE, "saturation": ONE, "hue": NONE}
TRANSFORMS = {
    "brightness": A.ColorJitter(**JITTER | {"brightness": (1.3, 1.3)}, p=1),
    "contrast": A.ColorJitter(**JITTER | {"contrast": (1.3, 1.3)}, p=1),
    "saturation": A.ColorJitter(**JITTER | {"saturation": (1.3, 1.3)}, p=1),
    "hue": A.ColorJitter(**JITTER | {"hue": (0.1, 0.1)}, p=1),
    "grayscale": A.ToGray(p=1),
    "gamma": A.RandomGamma(gamma_limit=(130, 130), p=1),
    "posterize": A.Posterize(num_bits=(4, 4), p=1),
    "solarize": A.Solarize(threshold_range=(128 / 255, 128 / 255), p=1),
    "invert": A.InvertImg(p=1),
    "autocontrast": A.AutoContrast(method="pil", p=1),
    "equalize": A.Equalize(mode="pil", p=1),
    "flip": A.HorizontalFlip(p=1),
    "gaussian_blur": A.GaussianBlur(blur_limit=(5, 5), sigma_limit=(1, 1), p=1),
    "rotate": A.Rotate(limit=(15, 15), border_mode=cv2.BORDER_CONSTANT, p=1),
    "elastic": A.ElasticTransform(alpha=50, sigma=5, border_mode=cv2.BORDER_CONSTANT, p=1),
}


def _array(transform: A.BasicTransform, pixels: np.ndarray) -> np.ndarray:
    return transform(image=pixels)["image"]


def prepare(row: str, threads: int) -> Run:
    """See ``families``."""
    cv2.setNumThreads(1)
    return of(
        {name: partial(on_arrays, partial(_array, transform)) for name, transform in TRANSFORMS.items()}, row, threads
    )
