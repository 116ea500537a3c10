"""Run an engine once before its first request: libraries are loaded, tables built, memory touched."""

from __future__ import annotations

from pixprep.decoders.cpu import sample_jpeg
from pixprep.engine import Engine


def warm_up(engine: Engine) -> None:
    """Decode and transform a generated photo-sized JPEG on every thread of the engine."""
    engine.run_batch([sample_jpeg(375, 500)] * (2 * engine.lanes))
