"""DALI on the CPU, as in its documentation.

The prefetch queue contains one batch. With a longer queue, DALI would compute the next batch while other contenders are
timed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from nvidia.dali import fn, pipeline_def, types

from contenders import CROP, MEAN, SHORTER, STD, Run

PACKAGES = ("nvidia-dali-cuda120", "nvidia-dali-cuda130", "numpy")
MEAN_LEVELS = 1.5  # the measured maximum is 1.07, for bicubic at 12 megapixels
FILTERS = {
    "bilinear": types.INTERP_LINEAR,
    "bicubic": types.INTERP_CUBIC,
    "lanczos": types.INTERP_LANCZOS3,
}
LARGEST_BATCH = 128


def running(images: Callable[[Any], Any], threads: int, *, gpu: int | None = None) -> Run:
    """Return ``run`` for a pipeline that ends in ``crop_mirror_normalize``.

    ``images`` decodes and resizes its input.
    """

    @pipeline_def(batch_size=LARGEST_BATCH, num_threads=threads, device_id=gpu, prefetch_queue_depth=1)
    def definition() -> Any:
        return fn.crop_mirror_normalize(
            images(fn.external_source(name="encoded", dtype=types.UINT8, ndim=1)),
            crop=(CROP, CROP),
            dtype=types.FLOAT,
            output_layout="CHW",
            mean=[255 * mean for mean in MEAN],
            std=[255 * std for std in STD],
        )

    pipeline = definition()
    pipeline.build()
    return lambda batch: pipeline.run(encoded=[np.frombuffer(photo, np.uint8) for photo in batch])[0]


def prepare(filter_name: str, threads: int, *, gpu: int | None = None, hardware: float = 0.0) -> Run:
    """See ``contenders``. On a GPU, ``hardware`` is the fraction of photos that the hardware decoder receives."""

    def images(encoded: Any) -> Any:
        where = {"device": "cpu"} if gpu is None else {"device": "mixed", "hw_decoder_load": hardware}
        decoded = fn.decoders.image(encoded, output_type=types.RGB, jpeg_fancy_upsampling=True, **where)
        return fn.resize(decoded, resize_shorter=SHORTER, interp_type=FILTERS[filter_name], antialias=True)

    return running(images, threads, gpu=gpu)
