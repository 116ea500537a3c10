"""Warms up an engine, so that libraries are loaded, tables built and memory allocated before the first request."""

from __future__ import annotations

from typing import Any

import numpy as np

from pixprep.engine.decoders.turbo import sample_jpeg
from pixprep.engine.engine import Engine
from pixprep.pipeline.walk import MAX_OUTPUT_BYTES

_SIZE = (375, 500)
MIN_IMAGES = 16
"""Minimum number of images for a warm-up: a chunk of 8 images for each of the two lanes (workers) of a GPU. On the CPU,
16 images take 40 ms of one core."""


def warm_up(engine: Engine) -> None:
    """Process generated JPEGs, clips or pixel arrays of a typical photo size on every thread of an engine."""
    max_images = MAX_OUTPUT_BYTES // engine.pipeline.n_bytes
    plan, min_images = engine.plan, MIN_IMAGES
    image: Any = np.zeros(plan.takes.shape(*_SIZE), plan.takes.dtype) if plan.takes else None
    if plan.clip is not None:
        from pixprep.engine.decoders.clips.decoder import sample_clip  # noqa: PLC0415  (FFmpeg, for clips only)

        image, min_images = sample_clip(plan.clip.sampling.least, *_SIZE), 1
    elif plan.takes is None:
        image = sample_jpeg(*_SIZE)
    count = min(max(2 * engine.lanes, min_images), max_images)
    engine.run_batch([image] * count, inputs=engine.pipeline.example_inputs(count))
