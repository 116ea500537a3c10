"""DALI's fastest method on the CPU: decode only the region of the crop, and resize it to the size of the tensor."""

from __future__ import annotations

from typing import Any

from nvidia.dali import fn, math, types

from contenders import CROP, SHORTER, Run, dali

PACKAGES = dali.PACKAGES
MEAN_LEVELS = 1.0
SUPPORT = {"bilinear": 1, "bicubic": 2, "lanczos": 3}


def prepare(filter_name: str, threads: int) -> Run:
    """See ``contenders``."""

    def images(encoded: Any) -> Any:
        size = fn.cast(fn.peek_image_shape(encoded)[:2], dtype=types.FLOAT)
        resized = math.floor(size * SHORTER / fn.reductions.min(size))
        scale = size / resized
        first = math.floor((resized - CROP) / 2 + 0.5) * scale
        margin = SUPPORT[filter_name] * scale  # the filter reads pixels outside the region
        start = math.floor(math.max(first - margin, 0.0))
        end = math.ceil(math.min(first + CROP * scale + margin, size))
        decoded = fn.decoders.image_slice(
            encoded,
            device="cpu",
            output_type=types.RGB,
            jpeg_fancy_upsampling=True,
            axis_names="HW",
            start=fn.cast(start, dtype=types.INT32),
            end=fn.cast(end, dtype=types.INT32),
        )
        return fn.resize(
            decoded,
            size=(CROP, CROP),
            roi_start=first - start,
            roi_end=first - start + CROP * scale,
            interp_type=dali.FILTERS[filter_name],
            antialias=True,
        )

    return dali.running(images, threads)
