"""Run an engine once before its first request: libraries are loaded, tables built, memory touched."""

from __future__ import annotations

import numpy as np
import simplejpeg

from pixprep.engine import Engine


def warm_up(engine: Engine) -> None:
    """Decode and transform a generated photo-sized JPEG on every thread of the engine."""
    rng = np.random.default_rng(0)
    noise = rng.integers(0, 256, (375, 500, 3), dtype=np.uint8)
    jpeg = simplejpeg.encode_jpeg(noise, quality=90, colorspace="RGB", colorsubsampling="420")
    engine.run_batch([jpeg] * (2 * engine.lanes))
