"""Open HEIC files with libheif (pillow-heif). This module is imported only if an engine accepts HEIC."""

from __future__ import annotations

import pillow_heif
from PIL import Image

pillow_heif.options.DECODE_THREADS = 0  # decode on the calling thread
pillow_heif.options.THUMBNAILS = pillow_heif.options.DEPTH_IMAGES = pillow_heif.options.AUX_IMAGES = False


def opened(encoded: bytes) -> Image.Image:
    """Return the only image of a file, rotated as its container specifies.

    Damaged data may raise any type of error.
    """
    image: Image.Image = pillow_heif.open_heif(encoded).to_pillow()
    return image.convert("RGBA") if image.mode == "RGBa" else image  # premultiplied alpha
