"""libjpeg-turbo alone, decoding into reused memory: the upper bound for contenders that decode whole photos with it."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import simplejpeg

from contenders import Run

PACKAGES = ("simplejpeg", "numpy")
MEAN_LEVELS = None


def prepare(filter_name: str, threads: int) -> Run:
    """See ``contenders``."""
    if filter_name != "bilinear":  # decoding does not depend on the filter
        raise NotImplementedError
    local = threading.local()

    def one(encoded: bytes) -> None:
        height, width, *_ = simplejpeg.decode_jpeg_header(encoded)
        if len(getattr(local, "buffer", ())) < height * width * 4:
            local.buffer = np.empty(height * width * 4, np.uint8)
        simplejpeg.decode_jpeg(encoded, "RGBX", buffer=local.buffer)

    pool = ThreadPoolExecutor(threads)
    return lambda batch: list(map(one, batch) if threads == 1 else pool.map(one, batch))
