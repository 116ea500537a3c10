"""Originals of the ops on levels: Pillow's and torchvision's functions that each op names."""

from __future__ import annotations

from importlib import import_module

import numpy as np
import PIL
from PIL import Image, ImageEnhance, ImageOps  # noqa: F401  (ops find them in PIL)

from pixprep.ops import SteadyOp
from pixprep.verify.images import Array
from pixprep.verify.origins import planes


def recoloured(op: SteadyOp, pixels: Array) -> Array:
    """Result of an op's library for uint8 (height, width, 1 or 3), red first."""
    library = PIL if op.library == "pillow" else import_module("torchvision.transforms.v2.functional")
    if getattr(op, "like", op.library) == "torchvision":
        return np.asarray(op.twin(planes(pixels), library).numpy().transpose(1, 2, 0))
    image = Image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else np.ascontiguousarray(pixels))
    made = np.asarray(op.twin(image, library))
    return made.reshape(*made.shape[:2], pixels.shape[2])
