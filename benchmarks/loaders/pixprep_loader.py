"""pixprep's Loader over files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pixprep as pp
from loaders import AREA, ASPECT, BATCH, MEAN, SIDE, STD

PACKAGES = ("pixprep", "numpy", "simplejpeg")
WORKERS = ()


def pipeline(*colours: Any) -> pp.Pipeline:
    """Return the training pipeline. ``colours`` are ops to insert after the flip."""
    return pp.Pipeline(
        [
            pp.decode(),
            pp.random_resized_crop(height=SIDE, width=SIDE, scale=AREA, ratio=ASPECT),
            pp.random_flip(),
            pp.resize(256, only="serving"),
            pp.center_crop(SIDE, only="serving"),
            *colours,
            pp.normalize(mean=MEAN, std=STD),
            pp.tensor(),
        ]
    ).for_training()


def endless(folder: Path, threads: int, *colours: Any, **options: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the batches of a Loader, epoch after epoch."""
    source = pp.read.files(folder / "files")
    loader = pp.Loader(source, pipeline(*colours), batch_size=BATCH, shuffle=True, threads=threads, **options)
    while True:
        for batch in loader:
            yield batch["tensor"], batch["label"]


def prepare(folder: Path, threads: int, workers: int) -> Iterator[tuple[Any, Any]]:
    """See ``loaders``."""
    del workers
    return endless(folder, threads)
