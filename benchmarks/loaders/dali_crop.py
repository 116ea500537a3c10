"""DALI on the CPU, as in its ImageNet example: decode, then crop and resize."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from nvidia.dali import fn, pipeline_def, types

from loaders import AREA, ASPECT, BATCH, MEAN, SIDE, STD

PACKAGES = ("nvidia-dali-cuda120", "nvidia-dali-cuda130")
WORKERS = ()


def endless(folder: Path, threads: int, images: Callable[[Any], Any]) -> Iterator[tuple[Any, Any]]:
    """Yield batches of tensors and labels. ``images`` decodes the photos and resizes them to (224, 224)."""

    def samples() -> tuple[Any, Any]:
        encoded, labels = fn.readers.file(file_root=str(folder / "files"), random_shuffle=True, initial_fill=1024)
        return normalized(images(encoded), fn.random.coin_flip()), labels

    for tensors, labels in batches(samples, threads):
        yield tensors.as_array(), labels.as_array()


def normalized(images: Any, is_mirrored: Any) -> Any:
    """Mirror the images for which ``is_mirrored`` is 1, and normalize all images. Return float32 (3, height, width)."""
    mean, std = ([255 * number for number in numbers] for numbers in (MEAN, STD))
    return fn.crop_mirror_normalize(
        images, dtype=types.FLOAT, output_layout="CHW", mirror=is_mirrored, mean=mean, std=std
    )


def batches(samples: Callable[[], tuple[Any, Any]], threads: int) -> Iterator[tuple[Any, Any]]:
    """Yield the batches of the pipeline that ``samples`` defines, with DALI's default prefetch queue of length two."""
    pipeline = pipeline_def(samples)(batch_size=BATCH, num_threads=threads, device_id=None, prefetch_queue_depth=2)
    pipeline.build()
    while True:
        yield pipeline.run()


def prepare(folder: Path, threads: int, workers: int) -> Iterator[tuple[Any, Any]]:
    """See ``loaders``."""
    del workers

    def images(encoded: Any) -> Any:
        decoded = fn.decoders.image(encoded, output_type=types.RGB, jpeg_fancy_upsampling=True)
        crop = {"random_area": AREA, "random_aspect_ratio": ASPECT}
        return fn.random_resized_crop(
            decoded, size=(SIDE, SIDE), interp_type=types.INTERP_LINEAR, antialias=True, **crop
        )

    return endless(folder, threads, images)
