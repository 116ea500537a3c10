"""Like ``tf_default``, with a PNG mask per photo. Photo and mask have the same crop window."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tensorflow as tf

from loaders import SIDE, tf_antialiased

PACKAGES, WORKERS = tf_antialiased.PACKAGES, tf_antialiased.WORKERS


def prepare(folder: Path, threads: int, workers: int) -> Iterator[tuple[Any, Any]]:
    """See ``loaders``."""
    del workers
    images, masks = (sorted(map(str, (folder / name).glob("*/*"))) for name in ("files", "masks"))

    def sample(image_path: Any, mask_path: Any) -> tuple[Any, Any]:
        pixels, (top, left, height, width) = tf_antialiased.cropped(tf.io.read_file(image_path))
        mask = tf.io.decode_png(tf.io.read_file(mask_path), channels=1)[top : top + height, left : left + width]
        image = tf.image.resize(pixels, (SIDE, SIDE))
        mask = tf.image.resize(mask, (SIDE, SIDE), method="nearest")
        if tf.random.uniform(()) < 0.5:
            image, mask = image[:, ::-1], mask[:, ::-1]
        return tf_antialiased.normalized(image), mask

    return tf_antialiased.batches((images, masks), sample, threads)
