"""pixprep's engine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pixprep as pp
from loaders.clips import CLIPS, MEAN, SIDE, STD

PACKAGES = ("pixprep", "numpy", "llvmlite", "av")


def prepare(folder: Path, threads: int, frames: int) -> Iterator[tuple[Any, Any]]:
    """See ``loaders.clips``."""
    resize = pp.resize(height=SIDE, width=SIDE)
    pipeline = pp.Pipeline(
        [pp.decode_video(frames=frames), resize, pp.normalize(mean=MEAN, std=STD), pp.tensor(layout="tchw")]
    )
    engine = pp.Engine(pipeline, threads=threads)
    paths = sorted(folder.glob("*.mp4"))[:CLIPS]
    while True:
        yield engine.run_batch([path.read_bytes() for path in paths])["tensor"], paths
