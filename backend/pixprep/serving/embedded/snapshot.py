"""Snapshot that is served: a copy of the model repository as it was at the start.

Triton loads a model that crashes from its files again, and the supervisor restarts a Triton that crashes. With the
copy, the deployed version comes back, even if the files on disk have changed in the meantime. Hard links do not
suffice, because an edit in place would change them.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from stat import S_ISDIR, S_ISREG
from threading import Event

from pixprep.errors import SetupError
from pixprep.serving.repository.repository import models_in

Signature = tuple[tuple[str, int, int, int], ...]
"""Signs of changed files that cost little: relative path, inode, size and time of each."""

_BLOCK = 1 << 20
_ZEROS = bytes(_BLOCK)
_HASH_LETTERS = 12
_Edition = tuple[str, Signature]
"""Hash of a copy of a model, and the signature of the files that were copied."""


class Snapshot:
    """A copy of a model repository.

    ``__pycache__`` and hidden entries of the repository folder are omitted. Links are followed. Hidden files of a model
    are copied, but a change of hidden files alone does not count as a change. Holes and zeros of a file do not use disk
    space.

    Args:
        repository: Path of the original.
        folder: Path of the copy, which does not exist yet, in its own parent folder.

    Raises:
        SetupError: The repository contains no model, or the disk has no space for the copy.
        OSError: A file cannot be read.
    """

    def __init__(self, repository: Path, folder: Path) -> None:
        self.repository = repository
        self.folder = folder
        self._beside = folder.with_name("edition")
        models, never = models_in(repository), Event()
        if not models:
            raise SetupError(f"{repository}: contains no model: write one with pixprep build")
        self._look_for_room(file for name in models for file in _files(repository / name))
        folder.mkdir()
        for path in repository.iterdir():
            if path.is_file() and not path.name.startswith("."):
                self._copy_file(path, folder / path.name, hashlib.sha256(), never)
        self._served = {name: self._copy(name, folder / name, never) for name in models}
        self._staged: _Edition = ("", ())

    @property
    def hashes(self) -> dict[str, str]:
        """Hash of the names and contents of each model's files that are served; 12 hexadecimal digits."""
        return {name: number for name, (number, _) in self._served.items()}

    def touch(self, model: str) -> None:
        """Make Triton see a change in a model: it does not reload a model with unchanged files."""
        for path, status in _entries(self.folder / model):
            if S_ISDIR(status.st_mode):
                os.utime(path)

    def changes(self) -> dict[str, Signature]:
        """The models that are not on disk as they are served, each with its signature there; empty for one that went.

        The contents may be the same all the same.
        """
        served = {name: signature for name, (_, signature) in self._served.items()}
        try:
            on_disk = {name: _signature(self.repository / name) for name in models_in(self.repository)}
        except OSError:  # for example, the disk was unmounted
            on_disk = {}
        return {name: on_disk.get(name, ()) for name in on_disk | served if on_disk.get(name, ()) != served.get(name)}

    def stage(self, model: str, over: Event) -> str:
        """Copy a model from disk to a place next to the served copy; call ``discard`` afterwards.

        Returns:
            The copy's hash.

        Raises:
            SetupError: The disk has no space for the copy.
            OSError: a file cannot be read.
            InterruptedError: ``over`` was set.
        """
        self._look_for_room(_files(self.repository / model))
        self._staged = self._copy(model, self._beside, over)
        return self._staged[0]

    def swap(self, model: str) -> None:
        """Exchange the new copy and the served copy."""
        target, spare = self.folder / model, self._beside.with_name("spare")
        for source, goal in ((target, spare), (self._beside, target), (spare, self._beside)):
            source.rename(goal)
        self._served[model], self._staged = self._staged, self._served[model]

    def discard(self) -> None:
        """Delete the copy that is not served."""
        shutil.rmtree(self._beside, ignore_errors=True)

    def _look_for_room(self, files: Iterable[tuple[Path, os.stat_result]]) -> None:
        n_bytes = sum(min(status.st_size, status.st_blocks * 512) for _, status in files)  # a sparse file occupies less
        free = shutil.disk_usage(self.folder.parent).free
        if n_bytes > free:
            raise self._no_room(f"{n_bytes / 2**20:,.0f} MiB, and {free / 2**20:,.0f} are free")

    def _no_room(self, what: str) -> SetupError:
        return SetupError(
            f"{self.folder.parents[1]}: no room for the copy of {self.repository} that is served: it needs {what}: "
            "name another folder by TMPDIR"
        )

    def _copy(self, model: str, target: Path, over: Event) -> _Edition:
        source = self.repository / model
        signature, digest = _signature(source), hashlib.sha256()
        target.mkdir()
        for path, status in _entries(source):
            name = path.relative_to(source)
            is_folder = S_ISDIR(status.st_mode)
            counts = digest if _is_shown(name) else hashlib.sha256()
            counts.update(os.fsencode(name) + f"\0{None if is_folder else status.st_size}\0".encode())
            if is_folder:
                (target / name).mkdir()
            else:
                self._copy_file(path, target / name, counts, over)
        return digest.hexdigest()[:_HASH_LETTERS], signature

    def _copy_file(self, source: Path, target: Path, counts: hashlib._Hash, over: Event) -> None:
        """Copy a file and count its bytes; holes and blocks of zeros become holes in the copy."""
        try:
            with source.open("rb") as old, target.open("xb") as new:
                at, number = 0, old.fileno()
                while (at := _next_data(number, at)) >= 0 and (block := os.pread(number, _BLOCK, at)):
                    if over.is_set():
                        raise InterruptedError
                    if block != _ZEROS[: len(block)]:
                        counts.update(f"{at}\0".encode() + block)
                        new.seek(at)
                        new.write(block)
                    at += len(block)
                new.truncate(os.fstat(number).st_size)
            shutil.copymode(source, target)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                error.filename = error.filename or str(source)  # a read names none
                raise
            raise self._no_room("more than is free") from None


def _next_data(file: int, at: int) -> int:
    """Position of the next data of an open file from ``at`` on, rounded down to its block; -1: no more data."""
    try:
        return max(at, os.lseek(file, at, os.SEEK_DATA) // _BLOCK * _BLOCK)
    except OSError as error:
        return -1 if error.errno == errno.ENXIO else at  # some file systems do not support holes


def _signature(folder: Path) -> Signature:
    try:
        return tuple(
            (str(path.relative_to(folder)), status.st_ino, status.st_size, status.st_mtime_ns)
            for path, status in _files(folder)
            if _is_shown(path.relative_to(folder))
        )
    except OSError:  # the folder is being changed
        return ()


def _is_shown(name: Path) -> bool:
    return not any(part.startswith(".") for part in name.parts)


def _files(folder: Path) -> Iterator[tuple[Path, os.stat_result]]:
    return ((path, status) for path, status in _entries(folder) if S_ISREG(status.st_mode))


def _entries(folder: Path, above: tuple[tuple[int, int], ...] = ()) -> Iterator[tuple[Path, os.stat_result]]:
    """Folders and files below a folder, a folder before its contents; without devices and cyclic links."""
    own = folder.stat()
    above = (*above, (own.st_dev, own.st_ino))
    for path in sorted(folder.iterdir()):
        try:
            status = path.stat()
        except OSError:  # for example, a dangling link
            continue
        if path.name == "__pycache__":
            continue
        if S_ISREG(status.st_mode):
            yield path, status
        elif S_ISDIR(status.st_mode) and (status.st_dev, status.st_ino) not in above:
            yield path, status
            yield from _entries(path, above)
