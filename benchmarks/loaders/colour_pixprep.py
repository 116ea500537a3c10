"""Like ``pixprep_loader``, with ``color_jitter``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pixprep as pp
from loaders import JITTER, pixprep_loader

PACKAGES, WORKERS = pixprep_loader.PACKAGES, pixprep_loader.WORKERS


def prepare(folder: Path, threads: int, workers: int) -> Iterator[tuple[Any, Any]]:
    """See ``loaders``."""
    del workers
    return pixprep_loader.endless(
        pp.read.files(folder / "files"), pixprep_loader.pipeline(pp.color_jitter(**JITTER)), threads
    )
