"""Reads remote objects through fsspec: ``s3://``, ``gs://``, ``https://`` and all other protocols that it supports.

A failed request is tried five times within about three seconds. After that, the network counts as broken: a DataError
ends the epoch, and the sample does not count as broken. The size of a web server's responses is limited, because an
untrusted server may send any amount of data; see ``web``.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from time import sleep
from typing import Any, TypeVar
from urllib.parse import unquote

import fsspec

from pixprep.engine.decoders import Limits
from pixprep.errors import DataError, ImageError, SetupError, needed

T = TypeVar("T")
TRIES = 5
_FIRST_WAIT_S = 0.2
_FINAL: dict[type[OSError], str] = {
    FileNotFoundError: "no such object",
    PermissionError: "permission denied",
    IsADirectoryError: "is a folder",
}
"""Errors that are not retried, and their messages."""
_WEB = re.compile(r"(?:^|::)(https?)://")  # "::" separates chained URLs of fsspec
_LOG = logging.getLogger("pixprep.read")


def read(url: str, offset: int, size: int) -> bytes:
    """Read a range of bytes of an object. The result is shorter if the object ends before.

    Raises:
        OSError: The object does not exist, or permission is denied.
        DataError: The network fails, or the server does not support range requests.
    """
    data: bytes = b"" if size == 0 else _cat(url, size, start=offset, end=offset + size)
    if len(data) > size:
        raise DataError(f"{url}: the server does not support range requests: download the file first")
    return data


def image(url: str, limits: Limits) -> bytes:
    """Read an image.

    The size limit is checked against the response of a web server. For other servers, the size is requested first.

    Raises:
        ImageError: EMPTY: The object has no bytes. TOO_LARGE_BYTES: It exceeds the limit. UNREADABLE: The response is
            compressed.
        OSError, DataError: See ``read``.
    """
    if not _is_web(url):
        limits.check_bytes(size := size_of(url))
        return read(url, 0, size)
    try:
        return _cat(url, limits.max_image_bytes)
    except needed("web").AnswerError as error:
        limit = " (parameter max_image_bytes)" if error.reason == "TOO_LARGE_BYTES" else ""
        raise ImageError(error.reason, f"{error}{limit}") from None


def _cat(url: str, max_bytes: int, **piece: int) -> bytes:
    """Read an object or a range of it. The limit applies to responses of web servers."""

    def request() -> bytes:
        data: bytes = _call(url, "cat_file", **piece)
        return data

    if not _is_web(url):
        return _retried(url, request)
    token = needed("web").MAX_BYTES.set(max_bytes)
    try:
        return _retried(url, request)
    finally:
        needed("web").MAX_BYTES.reset(token)


def size_of(url: str) -> int:
    """Return the size of an object in bytes.

    Raises:
        OSError: See ``read``.
        DataError: The server does not report the size, or one of the reasons listed for ``read`` applies.
    """
    found = _retried(url, lambda: _call(url, "size"))
    if not isinstance(found, int):
        raise DataError(f"{url}: the server does not report the size of the file: download it first")
    return found


def listed(url: str) -> list[tuple[str, bool]]:
    """Return the name of each entry in a folder, and whether the entry is a folder.

    Raises:
        OSError, DataError: See ``read``.
    """
    _, folder = _opened(url)
    rows = [
        (row["name"].rstrip("/"), row["type"] == "directory")
        for row in _retried(url, lambda: _call(url, "ls", detail=True))
    ]
    decode = unquote if url.startswith("http") else str
    return [(decode(name.rpartition("/")[2]), is_folder) for name, is_folder in rows if name != folder.rstrip("/")]


def matching(url: str) -> list[str]:
    """Return the sorted URLs that match a pattern such as ``s3://bucket/train-*.tar``."""
    files, _ = _opened(url)
    return sorted(map(files.unstrip_protocol, _retried(url, lambda: _call(url, "glob"))))


def _call(url: str, method: str, **options: Any) -> Any:
    files, path = _opened(url)
    return getattr(files, method)(path, **options)


def _opened(url: str) -> tuple[Any, str]:
    """Return fsspec's file system for a URL, and the path in it. fsspec caches its file systems."""
    own = {protocol: {"get_client": needed("web").client} for protocol in _WEB.findall(url)}
    try:
        found: tuple[Any, str] = fsspec.core.url_to_fs(url, **own)
    except ImportError as error:
        raise SetupError(f'{url}: {error}: pip install "fsspec[http]" gcsfs s3fs') from None
    except ValueError as error:  # fsspec does not support the protocol
        raise DataError(f"{url}: {error}") from None
    return found


def _is_web(url: str) -> bool:
    return _WEB.search(url) is not None


def _retried(url: str, request: Callable[[], T]) -> T:
    """Return the result of a request, which is repeated if it fails.

    Raises:
        OSError: The object does not exist, or permission is denied.
        DataError: All attempts have failed.
    """
    for attempt in range(TRIES):
        try:
            return request()
        except (DataError, SetupError):
            raise
        except Exception as error:  # noqa: BLE001  (each file system raises its own exceptions)
            if isinstance(error, tuple(_FINAL)) and not _hides_a_fault(error):
                raise OSError(
                    0, next(message for kind, message in _FINAL.items() if isinstance(error, kind)), url
                ) from None
            last = f"{type(error).__name__}: {error}"
            _LOG.info("%s: %s", url, last)
            if attempt < TRIES - 1:
                sleep(_FIRST_WAIT_S * 2**attempt)
    raise DataError(f"{url}: could not be read in {TRIES} attempts: {last}")


def _hides_a_fault(error: Exception) -> bool:
    """Return whether fsspec reports a missing file although the web server failed or could not be reached."""
    cause = error.__cause__
    is_of_web = type(cause).__module__.startswith("aiohttp")
    return is_of_web and getattr(cause, "status", None) not in (404, 410)
