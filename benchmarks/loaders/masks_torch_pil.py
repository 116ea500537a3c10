"""Like ``torch_pil``, with a PNG mask per photo, which is a ``tv_tensors.Mask``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import contenders.torchvision  # noqa: F401  (makes torchvision importable with a PyTorch for the CPU)
import numpy as np
import torch
from PIL import Image
from torch.utils.data import Dataset
from torchvision.tv_tensors import Mask

from loaders import torch_pil

PACKAGES, WORKERS = torch_pil.PACKAGES, torch_pil.WORKERS


class _Masked(Dataset[tuple[Any, Any]]):
    def __init__(self, folder: Path) -> None:
        self._images, self._masks = (sorted((folder / name).glob("*/*")) for name in ("files", "masks"))
        self._transform = torch_pil.transform()

    def __len__(self) -> int:
        return len(self._images)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        mask = Mask(torch.from_numpy(np.array(Image.open(self._masks[index]))))
        image, mask = self._transform(Image.open(self._images[index]).convert("RGB"), mask)
        return image, mask.as_subclass(torch.Tensor)


def prepare(folder: Path, threads: int, workers: int) -> Iterator[tuple[Any, Any]]:
    """See ``loaders``."""
    return torch_pil.endless(_Masked(folder), threads, workers)
