"""pixprep's engine without a Loader, on the same photos with the same random crops. Files are not prefetched."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pixprep as pp
from loaders import BATCH, pixprep_loader

PACKAGES = pixprep_loader.PACKAGES
WORKERS = ()


def prepare(folder: Path, threads: int, workers: int) -> Iterator[tuple[Any, Any]]:
    """See ``loaders``."""
    del workers
    paths = sorted((folder / "files").glob("*/*.jpg"))
    engine = pp.Engine(pixprep_loader.pipeline(), threads=threads)
    epoch = 0
    while True:
        for first in range(0, len(paths) - BATCH + 1, BATCH):
            indices = range(first, first + BATCH)
            numbers = engine.plan.draw(seed=0, epoch=epoch, indices=indices)
            places = [engine.plan.placing(each) for each in numbers]
            batch = engine.run_batch([paths[index].read_bytes() for index in indices], places=places)
            yield batch["tensor"], [0] * BATCH
        epoch += 1
