"""A request that is answered without Triton."""

from __future__ import annotations

import json
from http import HTTPStatus


class Refusal(Exception):  # noqa: N818  (most are the client's errors, and 503 is nobody's)
    """Answer to a request that does not reach Triton.

    Args:
        status: HTTP status.
        words: Reason, for the client.
    """

    def __init__(self, status: int, words: str) -> None:
        super().__init__(words)
        self.status = HTTPStatus(status)

    def response(self) -> bytes:
        """The whole response, in the form of Triton's errors. The connection ends with it."""
        body = json.dumps({"error": f"front: {self}"}).encode()
        head = (
            f"HTTP/1.1 {self.status.value} {self.status.phrase}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        )
        return head.encode() + body
