"""Detects cancelled requests, so that their images are not decoded.

Triton 2.51 reports a cancellation only if the client sent the request over gRPC and to the model itself. It does not
report the cancellation of a request over HTTP or to an ensemble.
"""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock
from typing import Any

ASK_BYTES = 128 << 10
"""Number of encoded bytes to decode between two queries whether a request has been cancelled. A query is a message to
Triton and takes 40 to 100 us, while decoding this much JPEG data takes about 5 ms. Queries are rare because Triton may
abort if this process dies during a message; it aborted in 4 of 30 such deaths."""


class Patience:
    """Tracks which requests of one batch have been cancelled. Thread-safe.

    Args:
        images: For each image of the batch, the Triton request that contains it, and the encoded size in bytes.
    """

    def __init__(self, images: Sequence[tuple[Any, int]]) -> None:
        self._images = images
        self._given_up: set[int] = set()
        self._n_bytes = 0
        self._lock = Lock()

    def is_over(self, index: int) -> bool:
        """Return whether the request of an image has been cancelled. The engine calls this before it decodes the image.

        After a cancelled request, Triton is queried for the next request regardless of its size, because cancelled
        requests often follow each other in a queue.
        """
        request, n_bytes = self._images[index]
        with self._lock:
            if id(request) in self._given_up:
                return True
            self._n_bytes += n_bytes
            if self._n_bytes < ASK_BYTES:
                return False
        if not request.is_cancelled():
            self._n_bytes = 0
            return False
        self._given_up.add(id(request))
        return True
