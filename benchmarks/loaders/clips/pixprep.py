"""pixprep's engine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pixprep as pp
from loaders.clips import MEAN, SIDE, STD, ClipTask

PACKAGES = ("pixprep", "numpy", "av")
SETTINGS = ()


def prepare(folder: Path, threads: int, task: ClipTask) -> Iterator[tuple[Any, Any]]:
    """See ``loaders.clips``."""
    name, clips, frames, _, _ = task
    resize = pp.resize(height=SIDE, width=SIDE)
    pipeline = pp.Pipeline(
        [pp.decode_video(frames=frames), resize, pp.normalize(mean=MEAN, std=STD), pp.tensor(layout="tchw")]
    )
    engine = pp.Engine(pipeline, threads=threads)
    while True:
        yield engine.run_batch([(folder / name).read_bytes() for _ in range(clips)])["tensor"], [name] * clips
