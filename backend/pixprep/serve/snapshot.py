"""What is served: a copy of the model repository as it was at the start.

A model that crashes is loaded anew from its files, and so is all of Triton. From the copy comes back what was deployed,
whatever lies on disk by then.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from stat import S_ISDIR, S_ISREG

from pixprep.errors import SetupError

Signature = tuple[tuple[str, int, int, int], ...]
"""What tells cheaply whether files changed: relative path, inode, size and time of each."""

_BLOCK = 1 << 20
_HASH_LETTERS = 12


@dataclass(frozen=True)
class Edition:
    """The files of one model, as they were at one time.

    Attributes:
        model: its name.
        folder: where they are.
        hash: of their names and contents; 12 hexadecimal digits.
        signature: of the files that they are copies of.
    """

    model: str
    folder: Path
    hash: str
    signature: Signature


class Snapshot:
    """A copy of a model repository.

    Hidden entries beside the models are left out, and ``__pycache__``. Links are followed. In a model, hidden files are
    copied, but a change in them alone is none.

    Args:
        repository: the original.
        folder: the copy, in a folder of its own; not there yet.

    Raises:
        SetupError: there is no room for it.
        OSError: a file cannot be read.
    """

    def __init__(self, repository: Path, folder: Path) -> None:
        self.repository = repository
        self.folder = folder
        self._spare = 0
        n_bytes = sum(status.st_size for _, status in self._outer() if S_ISREG(status.st_mode))
        n_bytes += sum(status.st_size for name in self._on_disk() for _, status in _files(repository / name))
        free = shutil.disk_usage(folder.parent).free
        if n_bytes > free:
            raise self._no_room(f"{n_bytes / 2**20:,.0f} MiB, and {free / 2**20:,.0f} are free")
        folder.mkdir()
        try:
            for path, status in self._outer():
                if S_ISREG(status.st_mode):  # what models may share
                    shutil.copy(path, folder / path.name)
            self._editions = {name: self._copy(name, folder / name) for name in self._on_disk()}
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            raise self._no_room("more than is free") from None

    @property
    def hashes(self) -> dict[str, str]:
        """By model, of its files that are served."""
        return {name: edition.hash for name, edition in self._editions.items()}

    def touch(self, model: str) -> None:
        """Make Triton see a change in a model: it loads none anew whose files are the same."""
        for path, status in _entries(self.folder / model):
            if S_ISDIR(status.st_mode):
                os.utime(path)

    def changes(self) -> dict[str, Signature]:
        """The models that are not on disk as they are served, each with its signature there; empty for one that went.

        The contents may be the same all the same.
        """
        on_disk = dict.fromkeys(self._editions, ()) | {
            name: _signature(self.repository / name) for name in self._on_disk()
        }
        served = {name: edition.signature for name, edition in self._editions.items()}
        return {name: signature for name, signature in on_disk.items() if signature != served.get(name)}

    def stage(self, model: str) -> Edition:
        """Copy a model as it lies on disk, beside what is served.

        Raises:
            OSError: a file cannot be read, or there is no room.
        """
        return self._copy(model, self._beside())

    def put(self, edition: Edition) -> Edition:
        """Serve an edition from now on. The other one lies beside: it may be put back; else, discard it."""
        target, beside = self.folder / edition.model, self._beside()
        old = self._editions[edition.model]
        target.rename(beside)
        edition.folder.rename(target)
        self._editions[edition.model] = _moved(edition, target)
        return _moved(old, beside)

    def discard(self, edition: Edition) -> None:
        """Delete what lies beside."""
        shutil.rmtree(edition.folder)

    def agree(self, edition: Edition) -> None:
        """The same contents lie on disk anew: look no more at the times of what lay there before."""
        served = self._editions[edition.model]
        assert served.hash == edition.hash
        self._editions[edition.model] = Edition(served.model, served.folder, served.hash, edition.signature)

    def _beside(self) -> Path:
        self._spare += 1
        return self.folder.with_name(f"edition-{self._spare}")

    def _no_room(self, what: str) -> SetupError:
        return SetupError(
            f"{self.folder.parents[1]}: no room for the copy of {self.repository} that is served: it needs {what}: "
            "name another folder by TMPDIR"
        )

    def _outer(self) -> Iterator[tuple[Path, os.stat_result]]:
        """The entries of the repository."""
        for path in sorted(self.repository.iterdir()):
            if not path.name.startswith(".") and (status := _status(path)):
                yield path, status

    def _on_disk(self) -> list[str]:
        try:
            return [path.name for path, status in self._outer() if S_ISDIR(status.st_mode)]
        except OSError:  # the disk was taken away, say
            return []

    def _copy(self, model: str, target: Path) -> Edition:
        source = self.repository / model
        signature = _signature(source)
        digest = hashlib.sha256()
        target.mkdir()
        for path, status in _entries(source):
            name = path.relative_to(source)
            size = None if S_ISDIR(status.st_mode) else status.st_size
            counts = digest if _is_shown(name) else hashlib.sha256()
            counts.update(os.fsencode(name) + f"\0{size}\0".encode())
            if size is None:
                (target / name).mkdir()
                continue
            with path.open("rb") as old, (target / name).open("xb") as new:
                while block := old.read(_BLOCK):
                    new.write(block)
                    counts.update(block)
            shutil.copymode(path, target / name)
        return Edition(model, target, digest.hexdigest()[:_HASH_LETTERS], signature)


def _moved(edition: Edition, folder: Path) -> Edition:
    return Edition(edition.model, folder, edition.hash, edition.signature)


def _signature(folder: Path) -> Signature:
    try:
        return tuple(
            (str(path.relative_to(folder)), status.st_ino, status.st_size, status.st_mtime_ns)
            for path, status in _files(folder)
            if _is_shown(path.relative_to(folder))
        )
    except OSError:  # someone is at it
        return ()


def _is_shown(name: Path) -> bool:
    return not any(part.startswith(".") for part in name.parts)


def _files(folder: Path) -> Iterator[tuple[Path, os.stat_result]]:
    return ((path, status) for path, status in _entries(folder) if S_ISREG(status.st_mode))


def _entries(folder: Path, above: tuple[tuple[int, int], ...] = ()) -> Iterator[tuple[Path, os.stat_result]]:
    """Folders and files below a folder, a folder before what it holds; no devices, no links in a circle."""
    above = above or (_place(folder.stat()),)
    for path in sorted(folder.iterdir()):
        if path.name == "__pycache__" or not (status := _status(path)):
            continue
        place = _place(status)
        if S_ISREG(status.st_mode):
            yield path, status
        elif S_ISDIR(status.st_mode) and place not in above:
            yield path, status
            yield from _entries(path, (*above, place))


def _place(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _status(path: Path) -> os.stat_result | None:
    """What a path, or what it leads to, is; None if nothing is there."""
    try:
        return path.stat()
    except OSError:
        return None
