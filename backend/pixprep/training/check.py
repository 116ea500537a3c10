"""Reads and decodes every sample of a source once, to find broken samples before a training does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pixprep.pipeline.ops import CenterCrop, Decode, DecodeVideo, Op, Tensor
from pixprep.pipeline.pipeline import Pipeline
from pixprep.training.loader import Loader
from pixprep.training.making import Broken
from pixprep.training.sources import Source

_BATCH = 64


def check(
    source: Source,
    *,
    pipeline: Pipeline | None = None,
    threads: int | None = None,
    on_broken: Callable[[Broken], None] = lambda _: None,
    on_progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> list[Broken]:
    """Read and decode each sample of a source, as an epoch of a ``Loader`` does.

    Args:
        source: Source from ``pixprep.read``.
        pipeline: Pipeline that is applied to the samples. Default: one that only decodes the images, or 16 frames of
            each clip.
        threads: Number of threads, as in ``Loader``.
        on_broken: Callback that receives each broken sample as soon as it is found.
        on_progress: Callback that receives the number of completed samples and the total.

    Returns:
        The broken samples, in the order of the source.
    """
    crop = CenterCrop(height=1, width=1)
    ops: list[Op] = [Decode(), crop, Tensor(dtype="uint8")]
    if getattr(source, "holds", "images") == "clips":
        ops = [DecodeVideo(frames=16, short="repeat"), crop, Tensor(dtype="uint8", layout="tchw")]
    options: dict[str, Any] = {"batch_size": _BATCH, "shard": (0, 1), "on_error": "skip", "max_errors": 1.0}
    with Loader(source, pipeline or Pipeline(ops), threads=threads, **options) as loader:
        count = 0
        for batch in loader:
            for broken in loader.errors[count:]:
                on_broken(broken)
                count += 1
            on_progress(int(batch["index"].max()) + 1, len(source))
        for broken in loader.errors[count:]:
            on_broken(broken)
        return sorted(loader.errors, key=lambda broken: broken.index)
