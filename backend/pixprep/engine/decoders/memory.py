"""Memory for pixels during decoding: a shared budget, and reusable buffers."""

from __future__ import annotations

import threading
from collections import deque

import numpy as np
import numpy.typing as npt

U8 = npt.NDArray[np.uint8]
KEPT_BYTES = 64 << 20
"""Maximum size in bytes of a pixel buffer that is kept for the next image."""


class Memory:
    """Memory for decoding one image or clip: its part of the shared budget, and a buffer for its pixels.

    A buffer of an earlier image is reused if it is large enough, because allocating 36 MB takes 10 % of the decode.
    """

    def __init__(self, budget: Budget, buffers: deque[U8]) -> None:
        self._budget = budget
        self._buffers = buffers
        self._pixels = 0
        self._buffer: U8 | None = None

    def take(self, pixels: int) -> None:
        """Wait until the budget has space for the pixels of the image. Must be called before they are allocated."""
        if not self._pixels:
            self._budget.acquire(pixels)
            self._pixels = pixels

    def buffer(self, n_bytes: int) -> U8:
        """Return a buffer of ``n_bytes`` for the pixels."""
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
        """Release the pixels of the budget, and keep the buffer for the next image."""
        self._budget.release(self._pixels)
        if self._buffer is not None and len(self._buffer) <= KEPT_BYTES:
            self._buffers.appendleft(self._buffer)


class Budget:
    """Limit on the number of pixels that are in memory at the same time.

    An image that is larger than the limit waits until no other image is in memory.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._used = 0
        self._changed = threading.Condition()

    def acquire(self, pixels: int) -> None:
        """Wait until the budget has space for this number of pixels."""
        with self._changed:
            while self._used and self._used + pixels > self._limit:
                self._changed.wait()
            self._used += pixels

    def release(self, pixels: int) -> None:
        """Release pixels whose memory was freed."""
        if pixels:
            with self._changed:
                self._used -= pixels
                self._changed.notify_all()
