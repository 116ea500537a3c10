"""Computes summary statistics of an array."""

from __future__ import annotations

from typing import Any


def summary(array: Any) -> dict[str, Any]:
    """Return the shape, dtype, minimum, maximum and mean of an array."""
    values = array.astype("float64")
    sizes = {"shape": list(array.shape), "dtype": str(array.dtype)}
    return sizes | {"min": values.min(), "max": values.max(), "mean": values.mean()}
