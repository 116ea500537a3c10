"""PyTorch's DataLoader with torchvision's own JPEG decoder and v2 on tensors."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import contenders.torchvision  # noqa: F401
import torch
from torchvision.datasets import ImageFolder
from torchvision.io import ImageReadMode, decode_image
from torchvision.transforms import v2

from loaders import MEAN, SIDE, STD, torch_pil

PACKAGES = ("torch", "torchvision")
WORKERS = torch_pil.WORKERS


def read(path: str) -> torch.Tensor:
    """Decode a file to uint8 (3, height, width)."""
    return decode_image(path, ImageReadMode.RGB)


def prepare(folder: Path, threads: int, workers: int) -> Iterator[tuple[Any, Any]]:
    """See ``loaders``."""
    transform = v2.Compose(
        [
            v2.RandomResizedCrop(SIDE, antialias=True),
            v2.RandomHorizontalFlip(),
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize(MEAN, STD),
        ]
    )
    return torch_pil.endless(ImageFolder(str(folder / "files"), transform, loader=read), threads, workers)
