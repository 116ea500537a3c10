"""Like ``torch_pil``, with torchvision v2's ColorJitter on Pillow images."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import contenders.torchvision  # noqa: F401  (makes torchvision importable with a PyTorch for the CPU)
from torchvision.datasets import ImageFolder
from torchvision.transforms import v2

from loaders import JITTER, torch_pil

PACKAGES, WORKERS = torch_pil.PACKAGES, torch_pil.WORKERS


def prepare(folder: Path, threads: int, workers: int) -> Iterator[tuple[Any, Any]]:
    """See ``loaders``."""
    transform = torch_pil.transform(v2.ColorJitter(**JITTER))
    return torch_pil.endless(ImageFolder(str(folder / "files"), transform), threads, workers)
