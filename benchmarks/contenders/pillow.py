"""The most common code: Pillow followed by NumPy."""

from __future__ import annotations

import io

import numpy as np
from PIL import Image

from contenders import CROP, MEAN, STD, Run, each, margins, resized

PACKAGES = ("pillow", "numpy")
MEAN_LEVELS = 0.0


def prepare(filter_name: str, threads: int) -> Run:
    """See ``contenders``."""
    resample = Image.Resampling[filter_name.upper()]
    mean, std = np.array(MEAN, np.float32), np.array(STD, np.float32)

    def one(encoded: bytes, out: np.ndarray) -> None:
        image = Image.open(io.BytesIO(encoded)).convert("RGB")
        height, width = resized(image.height, image.width)
        top, left = margins(height, width)
        image = image.resize((width, height), resample).crop((left, top, left + CROP, top + CROP))
        array = np.asarray(image, dtype=np.float32) / 255.0
        out[...] = ((array - mean) / std).transpose(2, 0, 1)

    return each(one, threads)
