"""Helpers for sources: compact lists of names, random access to files, fingerprints, and safe paths."""

from __future__ import annotations

import glob
import hashlib
import logging
import os
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from pixprep.errors import DataError, ImageError, needed, printable
from pixprep.training.sources import LIMITS, Source

T = TypeVar("T")
StrPath = str | os.PathLike[str]
I64 = npt.NDArray[np.int64]

_MAX_PIECE_BYTES = 256 << 20
"""Maximum size of a record or a member, unless ``LIMITS`` allow larger images."""
_LOG = logging.getLogger("pixprep.read")
_MAX_OPEN = 256
_MAX_NOTES = 20
_SCANNERS = 8
_AHEAD_BYTES = 1 << 20
"""Minimum number of bytes per request when a remote object is scanned. Larger members are skipped without reading."""
_MAX_FILES = 1_000_000
_BRACES = re.compile(r"\{([^{}]*)\}")


class Names:
    """A compact list of strings: their concatenated UTF-8, and the position at which each one ends.

    A path of 30 characters takes 34 bytes, compared with 87 bytes in a list of strings.

    Args:
        parts: Lists of strings, which are concatenated. The caller must ensure that no string contains a NUL character.

    Attributes:
        blob: The strings in UTF-8, each followed by a NUL character.
    """

    def __init__(self, parts: Iterable[Sequence[str]]) -> None:
        self.blob = b"".join("".join(f"{name}\0" for name in part).encode(errors="surrogateescape") for part in parts)
        ends = np.flatnonzero(np.frombuffer(self.blob, np.uint8) == 0)
        self._ends = ends.astype(np.uint32 if len(self.blob) < 1 << 32 else np.uint64)

    def __len__(self) -> int:
        return len(self._ends)

    def __getitem__(self, index: int) -> str:
        start = int(self._ends[index - 1]) + 1 if index else 0
        return self.blob[start : int(self._ends[index])].decode(errors="surrogateescape")


class Files:
    """Random access to a list of files. Thread-safe.

    The first 256 files that are read stay open until this object is deleted. An unpickled copy opens them again.

    Args:
        paths: Paths or URLs of the files.
    """

    def __init__(self, paths: Sequence[str]) -> None:
        self.paths = tuple(paths)
        self._descriptors: dict[int, int] = {}

    def read(self, file: int, offset: int, size: int) -> bytes:
        """Read bytes of a file. The result is shorter if the file ends before.

        Args:
            file: Index of the file.
            offset: Position of the first byte.
            size: Number of bytes.

        Raises:
            OSError: The file cannot be read.
            DataError: The network fails.
        """
        descriptor = self._descriptors.get(file)
        if descriptor is not None:
            return os.pread(descriptor, size, offset)
        if is_remote(self.paths[file]):
            data: bytes = remote().read(self.paths[file], offset, size)
            return data
        descriptor = os.open(self.paths[file], os.O_RDONLY)
        if len(self._descriptors) < _MAX_OPEN and self._descriptors.setdefault(file, descriptor) == descriptor:
            return os.pread(descriptor, size, offset)
        try:
            return os.pread(descriptor, size, offset)
        finally:
            os.close(descriptor)

    def __getstate__(self) -> dict[str, Any]:
        return {"paths": self.paths, "_descriptors": {}}

    def __del__(self) -> None:
        for descriptor in self._descriptors.values():
            os.close(descriptor)


class Opened:
    """A file that is scanned from beginning to end. Remote objects are read ahead in pieces of a megabyte.

    Args:
        path: Path or URL of the file.

    Attributes:
        path: Path or URL of the file.
        size: Size of the file in bytes.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._descriptor = -1 if is_remote(path) else os.open(path, os.O_RDONLY)
        self.size = remote().size_of(path) if self._descriptor < 0 else os.fstat(self._descriptor).st_size
        self._begin, self._ahead = 0, b""

    def __enter__(self) -> Opened:  # noqa: PYI034  (typing.Self requires Python 3.11)
        return self

    def __exit__(self, *_: object) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)

    def read(self, size: int, offset: int) -> bytes:
        """Read bytes at an offset. The result is shorter if the file ends before."""
        if self._descriptor >= 0:
            return os.pread(self._descriptor, size, offset)
        begin = offset - self._begin
        if begin < 0 or begin + size > len(self._ahead):
            end = min(offset + max(size, _AHEAD_BYTES), self.size)
            self._ahead, self._begin, begin = remote().read(self.path, offset, max(end - offset, 0)), offset, 0
        return self._ahead[begin : begin + size]


class Archives(Source):
    """Base class of sources whose samples are stored in archive files.

    Args:
        paths: Paths of the files.
        counts: Number of samples in each file.
    """

    def __init__(self, paths: Sequence[str], counts: Iterable[int]) -> None:
        self._files = Files(paths)
        self._names = [os.path.basename(path) for path in paths]  # noqa: PTH119
        self._ends = list(accumulate(counts))

    def __len__(self) -> int:
        return self._ends[-1]

    def _where(self, index: int) -> tuple[int, int]:
        """Return the index of the file that contains a sample, and the sample's number in that file."""
        file = bisect_right(self._ends, index)
        return file, index - (self._ends[file - 1] if file else 0)

    def _piece(self, file: int, offset: int, size: int) -> bytes:
        """Read a record or member of a file.

        Raises:
            OSError: The file cannot be read.
            ImageError: TRUNCATED: The file has become shorter. TOO_LARGE_BYTES: The size exceeds the limit, as a small
                sparse file may pretend to contain gigabytes of zeros.
        """
        if size > (limit := max(_MAX_PIECE_BYTES, LIMITS.get().max_image_bytes)):
            raise ImageError(
                "TOO_LARGE_BYTES", f"has {size:,} bytes, but the limit is {limit:,} (parameter max_image_bytes)"
            )
        data = self._files.read(file, offset, size)
        if len(data) < size:
            raise ImageError(
                "TRUNCATED", f"only {len(data):,} of {size:,} bytes are left: the file has changed since it was opened"
            )
        return data


def fingerprint(*parts: object) -> str:
    """Return a hash of texts, bytes and arrays as 32 hexadecimal digits."""
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        if isinstance(part, np.ndarray):
            data = np.ascontiguousarray(part).data.cast("B") if part.size else memoryview(b"")
        else:
            data = memoryview(part if isinstance(part, bytes) else repr(part).encode(errors="surrogateescape"))
        digest.update(b"%d:" % data.nbytes)
        digest.update(data)
    return digest.hexdigest()


def noted(where: str, notes: Sequence[str]) -> tuple[str, ...]:
    """Log the problems of a source, and return the first 20 of them and the number of the others."""
    more = len(notes) - _MAX_NOTES
    kept = (*notes[:_MAX_NOTES], *([f"and {more:,} more"] if more > 0 else []))
    for note in kept:
        _LOG.warning("%s: %s", printable(where), printable(note))
    return kept


def inside(root: str, name: str) -> str:
    """Return the path of a file that an annotation names, after checking that it is inside the folder.

    Args:
        root: Absolute path of the folder.
        name: Path of the file, absolute or relative to ``root``.

    Raises:
        ImageError: BAD_RECORD: The path is empty, or outside the folder.
    """
    path = os.path.join(root, name)  # noqa: PTH118
    if is_remote(path) and (not is_remote(root) or "::" in name):  # "::" would chain a different URL
        raise ImageError("BAD_RECORD", f"the file name {name[:200]!r} is a URL, not a path in {root}")
    if name and not name.startswith("/") and ".." not in name and "\0" not in name:
        return path
    path = os.path.normpath(path)
    if not name or "\0" in name or not path.startswith(root if root.endswith("/") else f"{root}/"):
        raise ImageError("BAD_RECORD", f"the file {name[:200]!r} is not inside {root}")
    return path


@contextmanager
def opening(where: str) -> Iterator[None]:
    """Convert an OSError in the block to a DataError that names the file or folder."""
    try:
        yield
    except OSError as error:
        raise DataError(f"{where}: cannot be read: {error.strerror}") from None


def is_remote(path: StrPath) -> bool:
    """Return whether a path is a URL, such as ``s3://bucket/train.tar``."""
    return "://" in os.fspath(path)


def remote() -> Any:
    """Import the module for remote objects.

    Raises:
        SetupError: fsspec is not installed.
    """
    return needed("objects")


def image_at(path: str) -> Path | bytes:
    """Return the image of a sample: a local path, or the bytes of a remote object, up to the size in ``LIMITS``.

    Raises:
        ImageError, OSError, DataError: See ``remote.image``.
    """
    return remote().image(path, LIMITS.get()) if is_remote(path) else Path(path)


def absolute(path: StrPath) -> str:
    """Return an absolute path, which remains valid if the working directory changes. A URL loses its final slashes."""
    if is_remote(path):
        return os.fspath(path).rstrip("/")
    return os.path.abspath(os.fspath(path))  # noqa: PTH100  (Path.absolute keeps "..")


def folder_of(path: StrPath) -> str:
    """Return the absolute path of a folder that exists. Without this check, each sample would be reported as missing.

    Raises:
        DataError: The folder does not exist, or is a file.
    """
    if not is_remote(path) and not Path(path).is_dir():
        raise DataError(f"{os.fspath(path)}: {'is a file, not a folder' if Path(path).exists() else 'no such folder'}")
    return absolute(path)


def archives(paths: StrPath | Sequence[StrPath]) -> list[str]:
    """Expand paths and patterns such as ``train-*.tar`` to absolute paths. The files of each pattern are sorted.

    Braces are expanded as in a shell: ``train-{000..127}.tar`` stands for 128 files, ``{train,extra}.tar`` for two. All
    of these files must exist.

    Raises:
        DataError: A path does not exist, or a pattern does not match any file.
    """
    found: list[str] = []
    for path in [paths] if isinstance(paths, str | os.PathLike) else paths:
        location = os.fspath(path)
        for text in [location] if os.path.isfile(location) else expanded(location):  # noqa: PTH113
            if is_remote(text):
                matching = remote().matching(text) if "*" in text else [text]  # in a URL, ? is not a wildcard
            elif os.path.isfile(text):  # noqa: PTH113
                matching = [text]
            else:
                matching = sorted(filter(os.path.isfile, glob.glob(text, recursive=True)))  # noqa: PTH207
            if not matching:
                is_folder = os.path.isdir(text)  # noqa: PTH112
                hint = f"is a folder: use a pattern such as {os.path.join(text, '*')}"  # noqa: PTH118
                raise DataError(f"{text}: {hint if is_folder else 'no file has this name or matches this pattern'}")
            found += map(absolute, matching)
    if not found:
        raise DataError("the list of files is empty")
    return found


def expanded(text: str) -> list[str]:
    """Expand the braces of a pattern as a shell does: ``{a,b}`` and ``{00..12}``.

    Raises:
        DataError: A range is not increasing, or is too long.
    """
    match = _BRACES.search(text)
    if match is None:
        return [text]
    bounds = re.fullmatch(r"(\d+)\.\.(\d+)", match[1])
    if bounds is None and "," not in match[1]:
        return [text]
    choices = match[1].split(",")
    if bounds is not None:
        first, last, digits = int(bounds[1]), int(bounds[2]), max(map(len, bounds.groups()))
        if not 0 <= last - first < _MAX_FILES:
            raise DataError(f"{text}: the range {{{match[1]}}} must be increasing, with at most {_MAX_FILES:,} numbers")
        choices = [f"{number:0{digits if bounds[1][0] == '0' else 1}}" for number in range(first, last + 1)]
    return [text[: match.start()] + choice + rest for choice in choices for rest in expanded(text[match.end() :])]


def scan(paths: Sequence[str], read: Callable[[str], T]) -> list[T]:
    """Return the result of ``read`` for each file. Eight files are read at a time, because they may be remote.

    Raises:
        DataError: A file cannot be opened.
    """

    def one(path: str) -> T:
        with opening(path):
            return read(path)

    if len(paths) == 1:
        return [one(paths[0])]
    with ThreadPoolExecutor(_SCANNERS, "pixprep-scan") as pool:
        return list(pool.map(one, paths))
