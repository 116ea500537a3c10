"""Extracts the images of a request from the tensor of its image input."""

from __future__ import annotations

from typing import Any

import numpy as np

from pixprep.engine.decoders.text import without_base64
from pixprep.engine.engine import Engine
from pixprep.serving.triton.config import Options


def images_of(array: Any, engine: Engine, options: Options) -> list[Any]:
    """Return the images of a request, without copying them.

    Args:
        array: Tensor of the image input: pixels, or encoded images as BYTES or UINT8.
        engine: Engine that will process the images.
        options: Parameters of the model.

    Returns:
        Arrays of pixels, or the bytes of encoded images. Base64 text is decoded if the model accepts it.
    """
    is_one = engine.plan.takes_boxes or engine.plan.is_packed
    if engine.plan.takes:
        return engine.split(array, is_one=is_one)
    if array.dtype == np.uint8:
        rows = array[None] if is_one else array
        images = [row.data for row in rows] if array.size else []
    else:
        images = list(array.reshape(-1))
    if options.accept_base64:
        max_bytes = options.engine.limits.max_image_bytes
        return without_base64(images, image_bytes=max_bytes, request_bytes=options.max_request_bytes)
    return images
