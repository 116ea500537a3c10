"""DALI on the CPU: the graph that pixprep imports, as its file says it."""

from __future__ import annotations

import numpy as np
from contenders import dali
from measure import ROOT
from nvidia.dali.pipeline import Pipeline

from families import Run, of

PACKAGES = dali.PACKAGES


def graph() -> Run:
    """Shorter side 256, centre 224, ImageNet's mean and std."""
    pipeline = Pipeline.deserialize(
        filename=str(ROOT / "tests" / "parity" / "frozen" / "dali" / "classic.dali"),
        batch_size=dali.LARGEST_BATCH,
        num_threads=1,
        device_id=None,
        prefetch_queue_depth=1,
    )
    pipeline.build()

    def run(batch: list[bytes]) -> object:
        pipeline.feed_input("DALI_INPUT_0", [np.frombuffer(photo, np.uint8) for photo in batch])
        return pipeline.run()[0]

    return run


def prepare(row: str, threads: int) -> Run:
    """See ``families``."""
    return of({"dali": graph}, row, threads)
