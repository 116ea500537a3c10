"""Defines the error response that the front itself sends."""

from __future__ import annotations

import json
from http import HTTPStatus


class Refusal(Exception):  # noqa: N818  (a response, not an error of the front)
    """Exception that makes the front reject a request and send an error response.

    Args:
        status: HTTP status code.
        message: Error message for the client.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = HTTPStatus(status)

    def response(self) -> bytes:
        """Return the complete HTTP response, with a body in the format of Triton's errors and ``Connection: close``."""
        body = json.dumps({"error": f"front: {self}"}).encode()
        head = (
            f"HTTP/1.1 {self.status.value} {self.status.phrase}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        )
        return head.encode() + body
