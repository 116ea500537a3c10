"""pixprep's Loader over photos with boxes in COCO's format."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pixprep as pp
from loaders import MEAN, SIDE, STD, pixprep_loader

PACKAGES, WORKERS = pixprep_loader.PACKAGES, pixprep_loader.WORKERS


def prepare(folder: Path, threads: int, workers: int) -> Iterator[tuple[Any, Any]]:
    """See ``loaders``."""
    del workers
    geometry = [pp.random_iou_crop(), pp.resize(height=SIDE, width=SIDE), pp.random_flip(), pp.boxes()]
    pipeline = pp.Pipeline([pp.decode(), *geometry, pp.normalize(mean=MEAN, std=STD), pp.tensor()]).for_training()
    source = pp.read.coco(folder / "files", folder / "boxes.json")
    return pixprep_loader.endless(source, pipeline, threads, target="boxes")
