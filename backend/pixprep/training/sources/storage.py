"""Parts that sources share: many names in little memory, open files, fingerprints, paths that stay inside."""

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
_AHEAD_BYTES = 1 << 20  # of an object: what is scanned comes in pieces of this size, and a large member is passed over
_MAX_FILES = 1_000_000
_BRACES = re.compile(r"\{([^{}]*)\}")


class Names:
    """Many texts without a NUL in little memory: their UTF-8, one after the other, and where each ends.

    1.28 million paths of 30 letters take 34 bytes each, where a list of strings takes 87.

    Args:
        parts: lists of texts, in order. A NUL would be an end of its own: callers refuse it.

    Attributes:
        blob: the texts, each with a NUL behind it.
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
    """Files that are read in pieces, addressed by number; several threads may read at once.

    The first 256 that are read stay open until this object goes. A pickled one opens them again.
    """

    def __init__(self, paths: Sequence[str]) -> None:
        self.paths = tuple(paths)
        self._descriptors: dict[int, int] = {}

    def read(self, file: int, offset: int, size: int) -> bytes:
        """A piece of a file; shorter where the file ends.

        Raises:
            OSError: the file cannot be read.
            DataError: the network is broken.
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
    """A file that is read from its beginning to its end, by pieces; an object a megabyte at a time.

    Attributes:
        size: in bytes.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._descriptor = -1 if is_remote(path) else os.open(path, os.O_RDONLY)
        self.size = remote().size_of(path) if self._descriptor < 0 else os.fstat(self._descriptor).st_size
        self._begin, self._ahead = 0, b""

    def __enter__(self) -> Opened:  # noqa: PYI034  (typing.Self begins with Python 3.11)
        return self

    def __exit__(self, *_: object) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)

    def read(self, size: int, offset: int) -> bytes:
        """A piece; shorter where the file ends."""
        if self._descriptor >= 0:
            return os.pread(self._descriptor, size, offset)
        begin = offset - self._begin
        if begin < 0 or begin + size > len(self._ahead):
            end = min(offset + max(size, _AHEAD_BYTES), self.size)
            self._ahead, self._begin, begin = remote().read(self.path, offset, max(end - offset, 0)), offset, 0
        return self._ahead[begin : begin + size]


class Archives(Source):
    """Samples that are stored consecutively in larger files.

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
        """The file of a sample, and its number in there."""
        file = bisect_right(self._ends, index)
        return file, index - (self._ends[file - 1] if file else 0)

    def _piece(self, file: int, offset: int, size: int) -> bytes:
        """Bytes of a file.

        Raises:
            OSError: the file cannot be read.
            ImageError: TRUNCATED; TOO_LARGE_BYTES: a sparse file of a few bytes holds gigabytes of zeros.
        """
        if size > (most := max(_MAX_PIECE_BYTES, LIMITS.get().max_image_bytes)):
            what = f"has {size:,} bytes; at most {most:,} are read (parameter max_image_bytes)"
            raise ImageError("TOO_LARGE_BYTES", what)
        data = self._files.read(file, offset, size)
        if len(data) < size:
            raise ImageError("TRUNCATED", f"has {len(data):,} of {size:,} bytes: the file has changed")
        return data


def fingerprint(*parts: object) -> str:
    """32 hexadecimal digits of texts, bytes and arrays, in this order."""
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
    """Log unusual facts about a source, and keep them: the first 20, and the number of the others."""
    more = len(notes) - _MAX_NOTES
    kept = (*notes[:_MAX_NOTES], *([f"and {more:,} more"] if more > 0 else []))
    for note in kept:
        _LOG.warning("%s: %s", printable(where), printable(note))
    return kept


def inside(root: str, name: str) -> str:
    """Return the path of the file that an annotation names; it must be inside the folder.

    Args:
        root: an absolute path.
        name: relative to it, or absolute.

    Raises:
        ImageError: The name does not refer to a file in the folder.
    """
    path = os.path.join(root, name)  # noqa: PTH118
    if is_remote(path) and (not is_remote(root) or "::" in name):  # which would be an address of its own
        raise ImageError("BAD_RECORD", f"its file {name[:200]!r} is a URL, not a name in {root}")
    if name and not name.startswith("/") and ".." not in name and "\0" not in name:
        return path
    path = os.path.normpath(path)
    if not name or "\0" in name or not path.startswith(root if root.endswith("/") else f"{root}/"):
        raise ImageError("BAD_RECORD", f"its file {name[:200]!r} is not inside {root}")
    return path


@contextmanager
def opening(where: str) -> Iterator[None]:
    """Raise a DataError with the name of what cannot be read."""
    try:
        yield
    except OSError as error:
        raise DataError(f"{where}: cannot be read: {error.strerror}") from None


def is_remote(path: StrPath) -> bool:
    """Tell whether a path is the URL of an object, such as ``s3://bucket/train.tar``."""
    return "://" in os.fspath(path)


def remote() -> Any:
    """Our module for objects.

    Raises:
        SetupError: fsspec is not installed.
    """
    return needed("objects")


def image_at(path: str) -> Path | bytes:
    """The image of a sample: a path, or the bytes of an object, of which no more are read than ``LIMITS`` allow.

    Raises:
        ImageError, OSError, DataError: as ``remote.image``.
    """
    return remote().image(path, LIMITS.get()) if is_remote(path) else Path(path)


def absolute(path: StrPath) -> str:
    """A path that holds wherever the process goes."""
    if is_remote(path):
        return os.fspath(path).rstrip("/")
    return os.path.abspath(os.fspath(path))  # noqa: PTH100  (Path.absolute keeps "..")


def folder_of(path: StrPath) -> str:
    """The absolute path of a folder that is there: else every sample would be missing, one by one.

    Raises:
        DataError: it is not, or is a file.
    """
    if not is_remote(path) and not Path(path).is_dir():
        raise DataError(f"{os.fspath(path)}: {'is a file, not a folder' if Path(path).exists() else 'no such folder'}")
    return absolute(path)


def archives(paths: StrPath | Sequence[StrPath]) -> list[str]:
    """The files that paths and patterns such as ``train-*.tar`` name: those of a pattern sorted.

    ``train-{000..127}.tar`` names 128 files, and ``{train,extra}.tar`` two: each must be there.

    Raises:
        DataError: one of them names no file.
    """
    found: list[str] = []
    for path in [paths] if isinstance(paths, str | os.PathLike) else paths:
        whole = os.fspath(path)
        for text in [whole] if os.path.isfile(whole) else expanded(whole):  # noqa: PTH113
            if is_remote(text):
                matching = remote().matching(text) if "*" in text else [text]  # a ? begins a query
            elif os.path.isfile(text):  # noqa: PTH113
                matching = [text]
            else:
                matching = sorted(filter(os.path.isfile, glob.glob(text, recursive=True)))  # noqa: PTH207
            if not matching:
                folder = f"is a folder: write {os.path.join(text, '*')}, say" * os.path.isdir(text)  # noqa: PTH112, PTH118
                raise DataError(f"{text}: {folder or 'no file with this name or matching this pattern'}")
            found += map(absolute, matching)
    if not found:
        raise DataError("no file is named")
    return found


def expanded(text: str) -> list[str]:
    """Texts that a pattern with braces names, as a shell has them: ``{a,b}``, ``{00..12}``."""
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
            raise DataError(f"{text}: {{{match[1]}}} must count up, over at most {_MAX_FILES:,} numbers")
        choices = [f"{number:0{digits if bounds[1][0] == '0' else 1}}" for number in range(first, last + 1)]
    return [text[: match.start()] + choice + rest for choice in choices for rest in expanded(text[match.end() :])]


def scan(paths: Sequence[str], read: Callable[[str], T]) -> list[T]:
    """Return the result of ``read`` for each file. Several files are read at a time, because they may be remote.

    Raises:
        DataError: a file cannot be opened.
    """

    def one(path: str) -> T:
        with opening(path):
            return read(path)

    if len(paths) == 1:
        return [one(paths[0])]
    with ThreadPoolExecutor(_SCANNERS, "pixprep-scan") as pool:
        return list(pool.map(one, paths))
