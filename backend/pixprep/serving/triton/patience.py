"""Whether clients still wait for the images of a batch, asked before images are decoded.

Triton 2.51 reports a request as cancelled if it came over gRPC to the model itself. It reports nothing of a request
over HTTP or to an ensemble.
"""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock
from typing import Any

ASK_BYTES = 128 << 10
"""Encoded bytes between two queries. A query is a message to Triton and takes 40 to 100 microseconds, while this many
bytes of JPEG take about 5 ms. Triton may abort if the process dies in the middle of a message: it did in 4 of 30
deaths."""


class Patience:
    """State of the clients of one batch: which of them still wait. Many threads may query it.

    Args:
        images: Triton's request and the number of bytes of each image.
    """

    def __init__(self, images: Sequence[tuple[Any, int]]) -> None:
        self._images = images
        self._given_up: set[int] = set()
        self._n_bytes = 0
        self._lock = Lock()

    def is_over(self, index: int) -> bool:
        """Return whether the client canceled the request of the image that is decoded next.

        After a canceled request, the next one is queried regardless of its size, because it came from the same queue.
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
