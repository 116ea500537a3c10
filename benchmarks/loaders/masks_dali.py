"""Like ``dali_region``, with a PNG mask per photo. Photo and mask have the same crop window."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nvidia.dali import fn, types

from loaders import AREA, ASPECT, SIDE, dali_crop

PACKAGES, WORKERS = dali_crop.PACKAGES, dali_crop.WORKERS


def prepare(folder: Path, threads: int, workers: int) -> Iterator[tuple[Any, Any]]:
    """See ``loaders``. Both readers have the same seed, so that they shuffle in the same order."""
    del workers

    def samples() -> tuple[Any, Any]:
        encoded, mask = (
            fn.readers.file(file_root=str(folder / name), random_shuffle=True, initial_fill=1024, seed=1)[0]
            for name in ("files", "masks")
        )
        shape = fn.peek_image_shape(encoded)[:2]
        window = fn.random_crop_generator(shape, random_area=AREA, random_aspect_ratio=ASPECT)
        image = fn.decoders.image_slice(encoded, *window, axes=[0, 1], jpeg_fancy_upsampling=True)
        labels = fn.decoders.image_slice(mask, *window, axes=[0, 1], output_type=types.GRAY)
        is_mirrored = fn.random.coin_flip()
        image = fn.resize(image, size=(SIDE, SIDE), interp_type=types.INTERP_LINEAR, antialias=True)
        labels = fn.resize(labels, size=(SIDE, SIDE), interp_type=types.INTERP_NN)
        return dali_crop.normalized(image, is_mirrored), fn.flip(labels, horizontal=is_mirrored)

    for tensors, labels in dali_crop.batches(samples, threads):
        yield tensors.as_array(), labels.as_array()
