"""PyTorch's DataLoader with torchvision v2 on Pillow images, as in torchvision's reference script."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import contenders.torchvision  # noqa: F401  (makes torchvision importable with a PyTorch for the CPU)
import torch
from torch.utils.data import DataLoader
from torchvision.datasets import ImageFolder
from torchvision.transforms import v2

from loaders import BATCH, MEAN, SIDE, STD

PACKAGES = ("torch", "torchvision", "pillow")
WORKERS = {1: (0, 1, 2), 2: (1, 2, 3)}


def transform(*colours: v2.Transform, crop: Sequence[v2.Transform] = ()) -> v2.Compose:
    """Return the transform for each Pillow image, and for its mask or its boxes.

    Args:
        colours: Transforms to insert after the flip.
        crop: Transforms that crop and resize. Default: a random resized crop.
    """
    return v2.Compose(
        [
            *(crop or (v2.RandomResizedCrop(SIDE, antialias=True),)),
            v2.RandomHorizontalFlip(),
            *colours,
            v2.PILToTensor(),
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize(MEAN, STD),
        ]
    )


def endless(
    dataset: Any, threads: int, workers: int, collate: Callable[[Any], Any] | None = None
) -> Iterator[tuple[Any, Any]]:
    """Yield the batches of a data set with a DataLoader, epoch after epoch."""
    torch.set_num_threads(threads)
    loader = DataLoader(
        dataset,
        BATCH,
        shuffle=True,
        drop_last=True,
        num_workers=workers,
        persistent_workers=workers > 0,
        generator=torch.Generator().manual_seed(0),
        collate_fn=collate,
    )
    while True:
        for images, targets in loader:
            yield images.numpy(), targets if isinstance(targets, list) else targets.numpy()


def prepare(folder: Path, threads: int, workers: int) -> Iterator[tuple[Any, Any]]:
    """See ``loaders``."""
    return endless(ImageFolder(str(folder / "files"), transform()), threads, workers)
