"""DALI on the CPU: the serialized graphs that pixprep imports."""

from __future__ import annotations

from functools import partial

import numpy as np
from contenders import dali
from measure import ROOT
from nvidia.dali.pipeline import Pipeline

from families import GRAPHS, Run, of

PACKAGES = dali.PACKAGES


def graph(name: str) -> Run:
    """Return ``run`` for a serialized graph."""
    pipeline = Pipeline.deserialize(
        filename=str(ROOT / "tests" / "parity" / "frozen" / "dali" / f"{name}.dali"),
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
    return of({each: partial(graph, name) for each, name in GRAPHS.items()}, row, threads)
