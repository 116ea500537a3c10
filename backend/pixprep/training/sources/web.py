"""Responses of web servers. At most the requested number of bytes is read, regardless of length and compression."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

import aiohttp

from pixprep.errors import DataError, Reason

MOST: ContextVar[int] = ContextVar("MOST", default=64 << 20)
"""Maximum number of bytes that are read of a response; the default is the limit for a list of files."""


class AnswerError(DataError):
    """A response that is not read.

    Attributes:
        reason: Reason of the ImageError, if the object is an image.
    """

    def __init__(self, reason: Reason, words: str) -> None:
        super().__init__(words)
        self.reason = reason


class _Answer(aiohttp.ClientResponse):
    async def read(self) -> bytes:
        """Return the body, up to ``MOST`` bytes; the body of an error response is not read.

        Raises:
            AnswerError: it is longer, or compressed.
        """
        if self._body is None:
            self._body = b"" if self.status >= 400 else await self._bounded(MOST.get())
        return self._body

    async def _bounded(self, most: int) -> bytes:
        coding, body = self.headers.get("Content-Encoding", ""), bytearray()
        if coding.lower() not in ("", "identity"):
            self.close()
            raise AnswerError("UNREADABLE", f"{self.url}: its server sends {coding[:80]!r}, which was not asked for")
        while len(body) <= most and (self.content_length or 0) <= most:
            if not (piece := await self.content.readany()):
                return bytes(body)
            body += piece
        self.close()
        raise AnswerError("TOO_LARGE_BYTES", f"{self.url}: its server sends more than the {most:,} bytes that are read")


async def client(**options: Any) -> aiohttp.ClientSession:
    """Session of fsspec's file system of a web server."""
    headers = {"Accept-Encoding": "identity", **options.pop("headers", {})}
    return aiohttp.ClientSession(headers=headers, auto_decompress=False, response_class=_Answer, **options)
