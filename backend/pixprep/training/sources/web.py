"""HTTP responses with a size limit, which holds whatever length and compression the server declares."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

import aiohttp

from pixprep.errors import DataError, Reason

MAX_BYTES: ContextVar[int] = ContextVar("MAX_BYTES", default=64 << 20)
"""Maximum number of bytes that are read from a response. The default applies to lists of files."""


class AnswerError(DataError):
    """A response is too large, or compressed.

    Attributes:
        reason: Reason for the ImageError, if the object is an image.
    """

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class _Answer(aiohttp.ClientResponse):
    async def read(self) -> bytes:
        """Return the body. The body of an error response is not read.

        Raises:
            AnswerError: The body is larger than ``MAX_BYTES``, or compressed.
        """
        if self._body is None:
            self._body = b"" if self.status >= 400 else await self._bounded(MAX_BYTES.get())
        return self._body

    async def _bounded(self, max_bytes: int) -> bytes:
        coding, body = self.headers.get("Content-Encoding", ""), bytearray()
        if coding.lower() not in ("", "identity"):
            self.close()
            raise AnswerError(
                "UNREADABLE", f"{self.url}: the server sent a response with the unrequested encoding {coding[:80]!r}"
            )
        while len(body) <= max_bytes and (self.content_length or 0) <= max_bytes:
            if not (piece := await self.content.readany()):
                return bytes(body)
            body += piece
        self.close()
        raise AnswerError("TOO_LARGE_BYTES", f"{self.url}: the response exceeds the limit of {max_bytes:,} bytes")


async def client(**options: Any) -> aiohttp.ClientSession:
    """Return the HTTP session for fsspec's HTTP file system."""
    headers = {"Accept-Encoding": "identity", **options.pop("headers", {})}
    return aiohttp.ClientSession(headers=headers, auto_decompress=False, response_class=_Answer, **options)
