"""SPDL's thread pipeline over files, with torchvision v2 on Pillow images.

SPDL's own decoder requires FFmpeg libraries on the system, and does not support random resized crops.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import contenders.torchvision  # noqa: F401
import torch
from spdl.pipeline import PipelineBuilder
from torchvision.datasets import ImageFolder

from loaders import BATCH, torch_pil

PACKAGES = ("spdl", "spdl-core", *torch_pil.PACKAGES)
WORKERS = ()


def prepare(folder: Path, threads: int, workers: int) -> Iterator[tuple[Any, Any]]:
    """See ``loaders``."""
    del workers
    torch.set_num_threads(1)
    files = ImageFolder(str(folder / "files"), torch_pil.transform())

    def order() -> Iterator[int]:
        while True:
            yield from torch.randperm(len(files)).tolist()

    def together(samples: list[tuple[torch.Tensor, int]]) -> tuple[Any, Any]:
        images, labels = zip(*samples, strict=True)
        return torch.stack(images).numpy(), labels

    builder = PipelineBuilder().add_source(order()).pipe(files.__getitem__, concurrency=threads)
    pipeline = builder.aggregate(BATCH, drop_last=True).pipe(together).add_sink(2).build(num_threads=threads)
    with pipeline.auto_stop():
        yield from pipeline
