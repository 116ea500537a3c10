"""HEIC, by libheif (pillow-heif). Imported where an engine may read HEIC, and nowhere else."""

from __future__ import annotations

import pillow_heif
from PIL import Image

pillow_heif.options.DECODE_THREADS = 0  # none but the lane that asks
pillow_heif.options.THUMBNAILS = pillow_heif.options.DEPTH_IMAGES = pillow_heif.options.AUX_IMAGES = False


def opened(encoded: bytes) -> Image.Image:
    """Return the only picture of a file, rotated as its container specifies. Damaged data raise any type of error."""
    image: Image.Image = pillow_heif.open_heif(encoded).to_pillow()
    return image.convert("RGBA") if image.mode == "RGBa" else image  # alpha that the colours are multiplied by
