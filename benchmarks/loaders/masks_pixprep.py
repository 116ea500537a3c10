"""pixprep's Loader over photos with PNG masks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pixprep as pp
from loaders import pixprep_loader

PACKAGES, WORKERS = ("zlib-ng", *pixprep_loader.PACKAGES), pixprep_loader.WORKERS


def prepare(folder: Path, threads: int, workers: int) -> Iterator[tuple[Any, Any]]:
    """See ``loaders``."""
    del workers
    images, masks = (sorted((folder / name).glob("*/*")) for name in ("files", "masks"))
    source = [{"image": image, "mask": mask} for image, mask in zip(images, masks, strict=True)]
    return pixprep_loader.endless(source, pixprep_loader.pipeline(pp.mask()), threads, target="mask")
