"""Decoded images, kept from one epoch to the next."""

from __future__ import annotations

from threading import Lock

import numpy as np

from pixprep.decoders import Decoded, Kept


class PixelCache:
    """Keeps the pixels of the first images that come, until they take ``most_bytes``. None ever goes to make room.

    Each epoch takes every sample once, so no sample is more likely to be asked for next than another.
    """

    def __init__(self, most_bytes: int) -> None:
        self._left = most_bytes
        self._lock = Lock()
        self._kept: dict[int, Kept] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, index: int) -> Kept | None:
        """The pixels of a sample, if they are kept."""
        return self._kept.get(index)

    def keep(self, index: int, image: Decoded) -> None:
        """Copy the pixels of a sample, if there is room."""
        n_bytes = image.pixels.nbytes
        with self._lock:
            if index in self._kept or n_bytes > self._left:
                return
            self._left -= n_bytes
        self._kept[index] = Kept(np.array(image.pixels, order="C"))
