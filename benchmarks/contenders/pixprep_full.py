"""pixprep with the same pixels as Pillow."""

from __future__ import annotations

import pixprep as pp
from contenders import MEAN, STD, Run

PACKAGES = ("pixprep", "simplejpeg", "pillow", "numpy")
MEAN_LEVELS = 0.0


def pipeline(filter_name: str, *, dtype: str = "float32", **decode: object) -> pp.Pipeline:
    """Return the pipeline of the task."""
    return pp.Pipeline(
        [
            pp.decode(**decode),
            pp.resize(256, filter=filter_name),
            pp.center_crop(224),
            pp.normalize(mean=MEAN, std=STD),
            pp.tensor(dtype=dtype),
        ]
    )


def running(pipeline: pp.Pipeline, threads: int) -> Run:
    """Return ``run`` for a pipeline."""
    engine = pp.Engine(pipeline, threads=threads)

    def run(photos: list[bytes]) -> object:
        batch = engine.run_batch(photos)
        assert not any(batch.errors), batch.errors
        return batch.outputs["tensor"]

    return run


def prepare(filter_name: str, threads: int) -> Run:
    """See ``contenders``."""
    return running(pipeline(filter_name), threads)
