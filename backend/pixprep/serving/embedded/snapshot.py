"""Copies the model repository to a snapshot, from which Triton serves the models.

After a crash, the supervisor reloads a model, or restarts Triton with all models. Because the models are loaded from
the snapshot, this restores the deployed version even if the files in the repository have changed in the meantime. Hard
links would not be sufficient, because editing a file in place would also change the linked file.
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
from pixprep.serving.repository.check import not_a_repository
from pixprep.serving.repository.repository import models_in

Signature = tuple[tuple[str, int, int, int], ...]
"""Relative path, inode, size and modification time (in ns) of each file. Comparing them is a cheap way to detect
changes."""

_BLOCK = 1 << 20
_HASH_LETTERS = 12
_Edition = tuple[str, Signature]
"""Hash of the copied files of a model, and signature of the original files."""


class Snapshot:
    """Copy of a model repository.

    Symbolic links are followed. ``__pycache__`` and hidden entries at the top level are omitted. Hidden files of a
    model are copied, but changes to hidden files are ignored.

    Args:
        repository: Path of the original repository.
        folder: Path of the copy, which must not exist yet. The parent folder of the copy also receives temporary
            copies.

    Raises:
        SetupError: The repository does not contain a model, or there is not enough disk space for the copy.
        OSError: A file cannot be read.
    """

    def __init__(self, repository: Path, folder: Path) -> None:
        self.repository = repository
        self.folder = folder
        self._beside = folder.with_name("edition")
        models, never = models_in(repository), Event()
        if wrong := not_a_repository(repository):
            raise SetupError(f"{repository} {wrong.what}: {wrong.remedy}")
        if not models:
            raise SetupError(f"{repository} does not contain a model: write one with `pixprep build`")
        self._check_space(file for name in models for file in _files(repository / name))
        folder.mkdir()
        for path in repository.iterdir():
            if path.is_file() and not path.name.startswith("."):
                self._copy_file(path, folder / path.name, hashlib.sha256(), never)
        self._served = {name: self._copy(name, folder / name, never) for name in models}
        self._staged: _Edition = ("", ())

    @property
    def hashes(self) -> dict[str, str]:
        """Hash of each served model by name: 12 hexadecimal digits, computed from all file names and file contents."""
        return {name: number for name, (number, _) in self._served.items()}

    def touch(self, model: str) -> None:
        """Update the modification time of a model, because Triton does not reload a model with unchanged files."""
        for path, status in _entries(self.folder / model):
            if S_ISDIR(status.st_mode):
                os.utime(path)

    def changes(self) -> dict[str, Signature]:
        """Find the models whose files on disk differ from the served files in inode, size or modification time.

        The contents of the files may still be equal.

        Returns:
            Signature of the files on disk by the name of each such model. It is empty if the model was removed.
        """
        served = {name: signature for name, (_, signature) in self._served.items()}
        try:
            on_disk = {name: _signature(self.repository / name) for name in models_in(self.repository)}
        except OSError:  # for example, the disk was unmounted
            on_disk = {}
        return {name: on_disk.get(name, ()) for name in on_disk | served if on_disk.get(name, ()) != served.get(name)}

    def stage(self, model: str, over: Event) -> str:
        """Copy a model from disk to a temporary folder. The caller must call ``discard`` afterwards.

        Args:
            model: Name of the model.
            over: Event that aborts the copy when it is set.

        Returns:
            The hash of the copied model.

        Raises:
            SetupError: There is not enough disk space for the copy.
            OSError: A file cannot be read.
            InterruptedError: ``over`` was set.
        """
        self._check_space(_files(self.repository / model))
        self._staged = self._copy(model, self._beside, over)
        return self._staged[0]

    def swap(self, model: str) -> None:
        """Exchange the staged copy and the served copy of a model."""
        target, spare = self.folder / model, self._beside.with_name("spare")
        for source, goal in ((target, spare), (self._beside, target), (spare, self._beside)):
            source.rename(goal)
        self._served[model], self._staged = self._staged, self._served[model]

    def discard(self) -> None:
        """Delete the staged copy."""
        shutil.rmtree(self._beside, ignore_errors=True)

    def _check_space(self, files: Iterable[tuple[Path, os.stat_result]]) -> None:
        n_bytes = sum(status.st_size for _, status in files)
        free = shutil.disk_usage(self.folder.parent).free
        if n_bytes > free:
            raise self._no_space(f"{n_bytes / 2**20:,.0f} MiB are required, {free / 2**20:,.0f} MiB are free")

    def _no_space(self, usage: str) -> SetupError:
        return SetupError(
            f"not enough disk space in {self.folder.parents[1]} for the copy of {self.repository} that is served "
            f"({usage}): set TMPDIR to a different folder"
        )

    def _copy(self, model: str, target: Path, over: Event) -> _Edition:
        source = self.repository / model
        signature, digest = _signature(source), hashlib.sha256()
        target.mkdir()
        for path, status in _entries(source):
            name = path.relative_to(source)
            is_folder = S_ISDIR(status.st_mode)
            target_hash = digest if _is_shown(name) else hashlib.sha256()
            target_hash.update(os.fsencode(name) + f"\0{None if is_folder else status.st_size}\0".encode())
            if is_folder:
                (target / name).mkdir()
            else:
                self._copy_file(path, target / name, target_hash, over)
        return digest.hexdigest()[:_HASH_LETTERS], signature

    def _copy_file(self, source: Path, target: Path, target_hash: hashlib._Hash, over: Event) -> None:
        """Copy a file and update a hash with its contents."""
        try:
            with source.open("rb") as old, target.open("xb") as new:
                while block := old.read(_BLOCK):
                    if over.is_set():
                        raise InterruptedError
                    target_hash.update(block)
                    new.write(block)
            shutil.copymode(source, target)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                error.filename = error.filename or str(source)  # errors of read calls have no file name
                raise
            raise self._no_space("the disk is full") from None


def _signature(folder: Path) -> Signature:
    try:
        return tuple(
            (str(path.relative_to(folder)), status.st_ino, status.st_size, status.st_mtime_ns)
            for path, status in _files(folder)
            if _is_shown(path.relative_to(folder))
        )
    except OSError:  # the folder changes at this moment
        return ()


def _is_shown(name: Path) -> bool:
    return not any(part.startswith(".") for part in name.parts)


def _files(folder: Path) -> Iterator[tuple[Path, os.stat_result]]:
    return ((path, status) for path, status in _entries(folder) if S_ISREG(status.st_mode))


def _entries(folder: Path, above: tuple[tuple[int, int], ...] = ()) -> Iterator[tuple[Path, os.stat_result]]:
    """Yield all folders and files below a folder with their status. Each folder precedes its contents.

    Device files and links that form a cycle are omitted.
    """
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
