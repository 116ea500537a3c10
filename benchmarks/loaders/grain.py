"""Grain's threads over files, with torchvision v2 on Pillow images, because Grain does not have image operators."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import contenders.torchvision  # noqa: F401
import numpy as np
import torch
from grain import MapDataset, ReadOptions
from torchvision.datasets import ImageFolder

from loaders import BATCH, torch_pil

PACKAGES = ("grain", *torch_pil.PACKAGES)
WORKERS = ()


def prepare(folder: Path, threads: int, workers: int) -> Iterator[tuple[Any, Any]]:
    """See ``loaders``."""
    del workers
    torch.set_num_threads(1)
    files = ImageFolder(str(folder / "files"), torch_pil.transform())

    def sample(index: int) -> tuple[np.ndarray, int]:
        image, label = files[index]
        return image.numpy(), label

    data = MapDataset.range(len(files)).seed(0).shuffle().repeat().map(sample)
    options = ReadOptions(num_threads=threads, prefetch_buffer_size=2 * BATCH)
    return iter(data.to_iter_dataset(options).batch(BATCH, drop_remainder=True))
