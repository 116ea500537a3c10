"""Converts batches to JAX arrays. On the CPU, they share the memory of the batch, which is aligned to 64 bytes."""

from __future__ import annotations

from typing import Any

import jax

from pixprep.training.frameworks import mapped


def converted(value: Any, *, device: Any = None, dtype: Any = None) -> Any:
    """Return arrays on the same kind of device, or on ``device``.

    By default, JAX stores 64-bit numbers in 32 bits, which requires a copy.
    """
    return mapped(value, lambda array: _array(array, device, dtype))


def _array(array: Any, device: Any, dtype: Any) -> Any:
    found = jax.dlpack.from_dlpack(array)
    found = found if device is None else jax.device_put(found, device)
    return found if dtype is None or not jax.numpy.issubdtype(found.dtype, jax.numpy.floating) else found.astype(dtype)
