"""tf.data as in its documentation, with the default resize, which is not antialiased."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from loaders import tf_antialiased

PACKAGES = tf_antialiased.PACKAGES
WORKERS = ()


def prepare(folder: Path, threads: int, workers: int) -> Iterator[tuple[Any, Any]]:
    """See ``loaders``."""
    del workers
    return tf_antialiased.endless(folder, threads, antialias=False)
