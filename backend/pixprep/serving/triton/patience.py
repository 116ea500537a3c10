"""Detection of cancelled requests, so that their images are not decoded.

Triton 2.51 reports a cancellation only if the client sent the request over gRPC to the model itself, and not over HTTP
or to an ensemble.
"""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock
from typing import Any

ASK_BYTES = 128 << 10
"""Number of encoded bytes to decode between two queries. A query is a message to Triton and takes 40 to 100 us, while
decoding this much JPEG data takes about 5 ms. Queries are rare because Triton may abort if the process dies during a
message, as it did in 4 of 30 deaths."""


class Patience:
    """Tracks which requests of one batch have been cancelled. Thread-safe.

    Args:
        images: For each image of the batch, Triton's request and the number of encoded bytes.
    """

    def __init__(self, images: Sequence[tuple[Any, int]]) -> None:
        self._images = images
        self._given_up: set[int] = set()
        self._n_bytes = 0
        self._lock = Lock()

    def is_over(self, index: int) -> bool:
        """Return whether the request of an image has been cancelled. Called before the image is decoded.

        After a cancelled request, Triton is queried again for the next one, whatever its size: cancelled requests often
        follow each other in a queue.
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
