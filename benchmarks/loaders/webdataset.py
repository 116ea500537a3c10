"""WebDataset's tar shards with torchvision v2 on Pillow images, in PyTorch's DataLoader."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import contenders.torchvision  # noqa: F401
import torch
import webdataset as wds

from loaders import BATCH, torch_pil

PACKAGES = ("webdataset", *torch_pil.PACKAGES)
WORKERS = {1: (0, 1), 2: (1, 2)}


def prepare(folder: Path, threads: int, workers: int) -> Iterator[tuple[Any, Any]]:
    """See ``loaders``. Each worker has its own shard, because a worker reads whole shards."""
    torch.set_num_threads(threads)
    shards = [str(folder / "shard.tar")] * max(1, workers)
    samples = wds.WebDataset(shards, shardshuffle=False, nodesplitter=wds.split_by_node).shuffle(1000).decode("pil")
    batches = samples.to_tuple("jpg", "cls").map_tuple(torch_pil.transform(), int).batched(BATCH, partial=False)
    loader = wds.WebLoader(batches, batch_size=None, num_workers=workers, persistent_workers=workers > 0)
    while True:
        for images, labels in loader:
            yield images.numpy(), labels
