"""pixprep's Loader over files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pixprep as pp
from loaders import AREA, ASPECT, BATCH, MEAN, SIDE, STD

PACKAGES = ("pixprep", "numpy", "simplejpeg")
WORKERS = ()


def pipeline(*ops: Any) -> pp.Pipeline:
    """Return the training pipeline. ``ops`` are inserted after the flip."""
    return pp.Pipeline(
        [
            pp.decode(),
            pp.random_resized_crop(height=SIDE, width=SIDE, scale=AREA, ratio=ASPECT),
            pp.random_flip(),
            pp.resize(256, only="serving"),
            pp.center_crop(SIDE, only="serving"),
            *ops,
            pp.normalize(mean=MEAN, std=STD),
            pp.tensor(),
        ]
    ).for_training()


def endless(
    source: Any, made: pp.Pipeline, threads: int, *, target: str = "label", **options: Any
) -> Iterator[tuple[Any, Any]]:
    """Yield the tensors and the field ``target`` of a Loader's batches, epoch after epoch."""
    loader = pp.Loader(source, made, batch_size=BATCH, shuffle=True, threads=threads, **options)
    while True:
        for batch in loader:
            yield batch["tensor"], batch[target]


def prepare(folder: Path, threads: int, workers: int) -> Iterator[tuple[Any, Any]]:
    """See ``loaders``."""
    del workers
    return endless(pp.read.files(folder / "files"), pipeline(), threads)
