"""Run an engine once before its first request: libraries are loaded, tables built, memory touched."""

from __future__ import annotations

from pixprep.decoders.cpu import sample_jpeg
from pixprep.engine import Engine
from pixprep.pipeline import MAX_OUTPUT_BYTES

LEAST = 16
"""Images: on a GPU a chunk has 8, and there are two lanes. On the CPU they take 40 ms of one core."""


def warm_up(engine: Engine) -> None:
    """Decode and transform a generated photo-sized JPEG on every thread of the engine."""
    most = MAX_OUTPUT_BYTES // engine.pipeline.n_bytes
    count = min(max(2 * engine.lanes, LEAST), most)
    engine.run_batch([sample_jpeg(375, 500)] * count, inputs=engine.pipeline.example_inputs(count))
