"""JAX: arrays that share the batch's memory on the CPU, where it begins at a multiple of 64 bytes."""

from __future__ import annotations

from typing import Any

import jax

from pixprep.training.frameworks import mapped


def converted(value: Any, *, device: Any = None, dtype: Any = None) -> Any:
    """Arrays on JAX's device of the same kind, or on another; 64-bit numbers are copied to 32 bits by default."""
    return mapped(value, lambda array: _array(array, device, dtype))


def _array(array: Any, device: Any, dtype: Any) -> Any:
    found = jax.dlpack.from_dlpack(array)
    found = found if device is None else jax.device_put(found, device)
    return found if dtype is None or array.dtype.kind != "f" else found.astype(dtype)
