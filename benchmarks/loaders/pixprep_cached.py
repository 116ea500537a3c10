"""pixprep's Loader with decoded pixels that are cached in memory, as in every epoch after the first."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pixprep as pp
from loaders import pixprep_loader

PACKAGES = pixprep_loader.PACKAGES
WORKERS = ()


def prepare(folder: Path, threads: int, workers: int) -> Iterator[tuple[Any, Any]]:
    """See ``loaders``."""
    del workers
    return pixprep_loader.endless(pp.read.files(folder / "files"), pixprep_loader.pipeline(), threads, cache="pixels")
