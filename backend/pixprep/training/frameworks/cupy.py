"""Converts batches to CuPy arrays. Arrays that are already on the GPU are not copied."""

from __future__ import annotations

from typing import Any

import cupy
import numpy as np

from pixprep.training.frameworks import mapped
from pixprep.training.recycling import COPIES, Memory


def converted(value: Any, *, non_blocking: bool = False) -> Any:
    """Return arrays on the current GPU; see ``Batch.cupy``."""
    made = mapped(value, _sent)
    if non_blocking:
        COPIES.allocate = _pinned
    return made


def _sent(array: Any) -> Any:
    """Return an array on the GPU. Copies from pinned memory are asynchronous, so the source is kept until they end."""
    copy = cupy.asarray(array)
    if copy is not array:
        event = cupy.cuda.get_current_stream().record()
        COPIES.hold(array, lambda: event.done)
    return copy


def _pinned(n_bytes: int) -> Memory:
    return np.frombuffer(cupy.cuda.alloc_pinned_memory(n_bytes), np.uint8, n_bytes)
