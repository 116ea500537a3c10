"""Objects of a bucket or a web server, by fsspec: ``s3://``, ``gs://``, ``https://`` and whatever else it knows.

A piece that does not come is asked for again, five times in some three seconds. Then the network is broken, which ends
an epoch with a DataError: it is no broken sample, of which an epoch may have some. Of a web server, which may send what
it likes, no more is read than was asked for: see ``web``.
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
_REFUSED: dict[type[OSError], str] = {
    FileNotFoundError: "no such object",
    PermissionError: "permission denied",
    IsADirectoryError: "is a folder",
}
_WEB = re.compile(r"(?:^|::)(https?)://")  # behind :: in a chain of fsspec's
_LOG = logging.getLogger("pixprep.read")


def read(url: str, offset: int, size: int) -> bytes:
    """Return a range of bytes of an object; it is shorter if the object ends before.

    Raises:
        OSError: The object does not exist, or permission is denied.
        DataError: The network fails, or the server does not support range requests.
    """
    data: bytes = b"" if size == 0 else _cat(url, size, start=offset, end=offset + size)
    if len(data) > size:
        raise DataError(f"{url}: its server does not support range requests: download the file")
    return data


def image(url: str, limits: Limits) -> bytes:
    """Return the bytes of an image. A web server reports the size in its response; other servers are asked before.

    Raises:
        ImageError: EMPTY: it has no bytes. TOO_LARGE_BYTES: it is over the limit. UNREADABLE: it is compressed.
        OSError, DataError: The same errors as for ``read``.
    """
    if not _is_web(url):
        limits.check_bytes(size := size_of(url))
        return read(url, 0, size)
    try:
        return _cat(url, limits.max_image_bytes)
    except needed("web").AnswerError as error:
        limit = " (parameter max_image_bytes)" if error.reason == "TOO_LARGE_BYTES" else ""
        raise ImageError(error.reason, f"{error}{limit}") from None


def _cat(url: str, most: int, **piece: int) -> bytes:
    """Return the bytes of an object; for a web server, at most this number."""

    def ask() -> bytes:
        data: bytes = _call(url, "cat_file", **piece)
        return data

    if not _is_web(url):
        return _again(url, ask)
    token = needed("web").MOST.set(most)
    try:
        return _again(url, ask)
    finally:
        needed("web").MOST.reset(token)


def size_of(url: str) -> int:
    """Bytes of an object.

    Raises:
        OSError, DataError: as ``read``; or the server does not say it.
    """
    found = _again(url, lambda: _call(url, "size"))
    if not isinstance(found, int):
        raise DataError(f"{url}: its server does not report the size of the file: download it")
    return found


def listed(url: str) -> list[tuple[str, bool]]:
    """Names in a folder, each with whether it is a folder.

    Raises:
        OSError, DataError: as ``read``.
    """
    _, folder = _opened(url)
    rows = [
        (row["name"].rstrip("/"), row["type"] == "directory")
        for row in _again(url, lambda: _call(url, "ls", detail=True))
    ]
    decode = unquote if url.startswith("http") else str
    return [(decode(name.rpartition("/")[2]), is_folder) for name, is_folder in rows if name != folder.rstrip("/")]


def matching(url: str) -> list[str]:
    """URLs that a pattern such as ``s3://bucket/train-*.tar`` names, sorted."""
    files, _ = _opened(url)
    return sorted(map(files.unstrip_protocol, _again(url, lambda: _call(url, "glob"))))


def _call(url: str, method: str, **options: Any) -> Any:
    files, path = _opened(url)
    return getattr(files, method)(path, **options)


def _opened(url: str) -> tuple[Any, str]:
    """The file system of a URL, which fsspec keeps, and the path in it."""
    own = {protocol: {"get_client": needed("web").client} for protocol in _WEB.findall(url)}
    try:
        found: tuple[Any, str] = fsspec.core.url_to_fs(url, **own)
    except ImportError as error:
        raise SetupError(f'{url}: {error}: pip install "fsspec[http]" gcsfs s3fs') from None
    except ValueError as error:  # fsspec does not know the protocol
        raise DataError(f"{url}: {error}") from None
    return found


def _is_web(url: str) -> bool:
    return _WEB.search(url) is not None


def _again(url: str, ask: Callable[[], T]) -> T:
    """Answer of a server that may fail a few times."""
    for attempt in range(TRIES):
        try:
            return ask()
        except (DataError, SetupError):
            raise
        except Exception as error:  # noqa: BLE001  (each file system has errors of its own)
            if isinstance(error, tuple(_REFUSED)) and not _hides_a_fault(error):
                raise OSError(
                    0, next(words for kind, words in _REFUSED.items() if isinstance(error, kind)), url
                ) from None
            last = f"{type(error).__name__}: {error}"
            _LOG.info("%s: %s", url, last)
            if attempt < TRIES - 1:
                sleep(_FIRST_WAIT_S * 2**attempt)
    raise DataError(f"{url}: could not be read in {TRIES} attempts: {last}")


def _hides_a_fault(error: Exception) -> bool:
    """Return whether fsspec reports a missing file because it cannot reach the web server."""
    cause = error.__cause__
    is_of_web = type(cause).__module__.startswith("aiohttp")
    return is_of_web and getattr(cause, "status", None) not in (404, 410)
