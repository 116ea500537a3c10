"""pixprep as it comes: within one level of Pillow."""

from __future__ import annotations

import pixprep as pp
from contenders import MEAN, STD, Run

PACKAGES = ("pixprep", "simplejpeg", "llvmlite", "pillow", "numpy")
MEAN_LEVELS = 0.5


def engine(filter_name: str, threads: int, *, exact: bool, **decode: object) -> Run:
    """The engine of this task."""
    pipeline = pp.Pipeline(
        [
            pp.decode(**decode),
            pp.resize(256, filter=filter_name, exact=exact),
            pp.center_crop(224),
            pp.normalize(mean=MEAN, std=STD),
            pp.tensor(),
        ]
    )
    running = pp.Engine(pipeline, threads=threads)

    def run(photos: list[bytes]) -> object:
        batch = running.run_batch(photos)
        assert not any(batch.errors), batch.errors
        return batch.outputs["tensor"]

    return run


def prepare(filter_name: str, threads: int) -> Run:
    """See ``contenders``."""
    return engine(filter_name, threads, exact=False)
