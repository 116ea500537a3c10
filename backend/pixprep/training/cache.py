"""Decoded images, kept from one epoch to the next."""

from __future__ import annotations

from threading import Lock

import numpy as np

from pixprep.engine.decoders import Decoded, Kept
from pixprep.errors import PipelineError
from pixprep.pipeline.pipeline import Pipeline


class PixelCache:
    """Keeps the pixels of the first images that come, until they take ``max_bytes``. None ever goes to make room.

    Each epoch takes every sample once, so no sample is more likely to be asked for next than another.
    """

    def __init__(self, max_bytes: int) -> None:
        self._left = max_bytes
        self._lock = Lock()
        self._kept: dict[int, tuple[object, Kept]] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, index: int, identity: object) -> Kept | None:
        """Return the cached pixels of a sample if its image has not changed, which a source may do per epoch."""
        kept_of, kept = self._kept.get(index, (None, None))
        return kept if kept_of == identity else None

    def keep(self, index: int, identity: object, image: Decoded) -> None:
        """Copy the pixels of a sample, if there is room."""
        n_bytes = image.pixels.nbytes
        with self._lock:
            if index in self._kept or n_bytes > self._left:
                return
            self._left -= n_bytes
        self._kept[index] = identity, Kept(np.array(image.pixels, order="C"))


def pixel_cache(cache: str | None, max_bytes: int, device: str, pipeline: Pipeline) -> PixelCache | None:
    """Make the cache that a Loader's arguments ask for.

    Raises:
        PipelineError: there is none such.
    """
    if cache is None:
        return None
    if cache != "pixels":
        raise PipelineError(f'cache must be "pixels" or None, not {cache!r}')
    if device != "cpu":
        raise PipelineError(f'cache="pixels" requires device="cpu", not "{device}"')
    if pipeline.plan.clip is not None:
        raise PipelineError('cache="pixels" stores images, but this pipeline takes video clips: remove it')
    if pipeline.plan.takes:
        raise PipelineError('cache="pixels" stores decoded images, but this pipeline takes pixels: remove it')
    if pipeline.plan.reduced:
        raise PipelineError(
            'cache="pixels" stores images at full size, but decode(reduced=True) makes smaller ones: remove one of them'
        )
    if not isinstance(max_bytes, int) or max_bytes < 0:
        raise PipelineError(f"cache_bytes must be a number of bytes, such as 4 << 30, not {max_bytes!r}")
    return PixelCache(max_bytes)
