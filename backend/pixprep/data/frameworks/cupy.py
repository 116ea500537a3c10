"""CuPy: arrays on the GPU; those that are there already are the batch's own."""

from __future__ import annotations

from typing import Any

import cupy

from pixprep.data.frameworks import mapped


def converted(value: Any) -> Any:
    """Arrays on the current GPU."""
    return mapped(value, cupy.asarray)
