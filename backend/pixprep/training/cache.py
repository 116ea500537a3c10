"""Cache of decoded images for later epochs."""

from __future__ import annotations

from threading import Lock

import numpy as np

from pixprep.engine.decoders import Decoded, Kept
from pixprep.errors import PipelineError
from pixprep.pipeline.pipeline import Pipeline


class PixelCache:
    """Keeps the pixels of decoded images until they take ``max_bytes``. Images are never evicted.

    Each epoch uses every sample once, so replacing one image by another would not improve the hit rate.

    Args:
        max_bytes: Maximum size of the cache in bytes.
    """

    def __init__(self, max_bytes: int) -> None:
        self._left = max_bytes
        self._lock = Lock()
        self._kept: dict[int, tuple[object, Kept]] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, index: int, identity: object) -> Kept | None:
        """Return the cached pixels of a sample, or None. A source may return a different image in each epoch.

        Args:
            index: Index of the sample.
            identity: See ``Sample.identity``. The cached pixels are returned only if it has not changed.
        """
        kept_of, kept = self._kept.get(index, (None, None))
        return kept if kept_of == identity else None

    def keep(self, index: int, identity: object, image: Decoded) -> None:
        """Copy the pixels of a sample into the cache if they fit."""
        n_bytes = image.pixels.nbytes
        with self._lock:
            if index in self._kept or n_bytes > self._left:
                return
            self._left -= n_bytes
        self._kept[index] = identity, Kept(np.array(image.pixels, order="C"))


def pixel_cache(cache: str | None, max_bytes: int, device: str, pipeline: Pipeline) -> PixelCache | None:
    """Return the cache for the arguments of a Loader. None if ``cache`` is None.

    Raises:
        PipelineError: An argument is invalid, or the device or the pipeline does not support a cache.
    """
    if cache is None:
        return None
    if cache != "pixels":
        raise PipelineError(f'cache must be "pixels" or None, not {cache!r}')
    if device != "cpu":
        raise PipelineError(f'cache="pixels" requires device="cpu", not "{device}"')
    if pipeline.plan.clip is not None:
        raise PipelineError('cache="pixels" does not support pipelines for video clips: remove it')
    if pipeline.plan.takes:
        raise PipelineError(
            'cache="pixels" stores decoded images, but the input of this pipeline is already decoded: remove it'
        )
    if pipeline.plan.reduced or pipeline.plan.gap is not None:
        raise PipelineError(
            'cache="pixels" stores images at full size, but decode(reduced=True) and reducing_gap reduce them: remove '
            "the cache, or these fields"
        )
    if not isinstance(max_bytes, int) or max_bytes < 0:
        raise PipelineError(f"cache_bytes must be a nonnegative integer, such as 4 << 30, not {max_bytes!r}")
    return PixelCache(max_bytes)
