"""Memory for pixels that are being decoded: a budget that all share, and buffers that are used again."""

from __future__ import annotations

import threading
from collections import deque

import numpy as np
import numpy.typing as npt

U8 = npt.NDArray[np.uint8]
KEPT_BYTES = 64 << 20
"""The largest pixel buffer that is kept for the next image."""


class Memory:
    """Memory of one image's or clip's decode: its share of the budget, and a buffer for its pixels.

    The buffer is one of those that earlier images gave back, if there is one of its size: a fresh 36 MB costs 10 % of
    the decode.
    """

    def __init__(self, budget: Budget, buffers: deque[U8]) -> None:
        self._budget = budget
        self._buffers = buffers
        self._pixels = 0
        self._buffer: U8 | None = None

    def take(self, pixels: int) -> None:
        """Wait until the budget has room for the pixels of the image, before they are in memory."""
        if not self._pixels:
            self._budget.take(pixels)
            self._pixels = pixels

    def buffer(self, n_bytes: int) -> U8:
        """Memory for the pixels."""
        try:
            self._buffer = self._buffers.popleft()
        except IndexError:
            self._buffer = None
        if self._buffer is None or len(self._buffer) < n_bytes:
            self._buffer = np.empty(n_bytes, np.uint8)
        return self._buffer[:n_bytes]

    def __enter__(self) -> Memory:  # noqa: PYI034  (typing.Self begins with Python 3.11)
        return self

    def __exit__(self, *_: object) -> None:
        """The image is done with."""
        self._budget.give(self._pixels)
        if self._buffer is not None and len(self._buffer) <= KEPT_BYTES:
            self._buffers.appendleft(self._buffer)


class Budget:
    """Budget of the pixels in memory at once; a larger image waits until it is alone."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._used = 0
        self._changed = threading.Condition()

    def take(self, pixels: int) -> None:
        """Wait until there is room for so many pixels."""
        with self._changed:
            while self._used and self._used + pixels > self._limit:
                self._changed.wait()
            self._used += pixels

    def give(self, pixels: int) -> None:
        """Release pixels that are no longer in memory."""
        if pixels:
            with self._changed:
                self._used -= pixels
                self._changed.notify_all()
