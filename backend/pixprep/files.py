"""Files that a user names: images, folders of images, and output files, which are written atomically."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from itertools import chain, count
from pathlib import Path
from typing import Any, BinaryIO
from uuid import uuid4

from pixprep.errors import PixprepError
from pixprep.formats import CLIP_SUFFIXES, KINDS

IMAGE_SUFFIXES = tuple(suffix for kind in KINDS.values() for suffix in kind.suffixes)
_TEXT_SUFFIXES = (".csv", ".json", ".md", ".txt", ".xml", ".yaml")
_NAMED = 5
LOCK = ".pixprep.lock"
UNFINISHED = ".pixprep-*.tmp"
"""Pattern of the names of unfinished files, which a process is writing, or did not remove when it was killed."""

_PACKAGED = Path(__file__).parent / "photos"
PHOTOS = _PACKAGED if _PACKAGED.is_dir() else Path(__file__).parents[2] / "client_examples" / "images"
"""Folder of two sample photos, in the wheel or in the checkout."""


def expand(paths: Sequence[Path]) -> list[Path]:
    """Return the named files and, for each folder, its image files by suffix, sorted, without subfolders.

    If a folder does not contain images, its video clips are returned.

    Raises:
        PixprepError: A path does not exist, or a folder contains neither images nor clips.
    """
    files: list[Path] = []
    for path in paths:
        if not path.exists():
            scheme, colon, rest = str(path).partition(":/")
            if colon and scheme in ("http", "https"):  # Path reduces "//" to "/"
                raise PixprepError(f"{scheme}://{rest} is a URL: download the file, and pass its path")
            raise PixprepError(f"{path}: no such file or folder")
        if not path.is_dir():
            files.append(path)
            continue
        found = sorted(file for file in path.iterdir() if file.is_file())
        suffixes = _meant(found)
        meant = [file for file in found if file.suffix.lower() in suffixes]
        if not meant:
            raise PixprepError(
                f"{path}: no images or clips in this folder ({' '.join(IMAGE_SUFFIXES + CLIP_SUFFIXES)})"
            )
        files += meant
    return files


def _meant(files: Sequence[Path]) -> tuple[str, ...]:
    """Return the image suffixes if a folder contains images, else the suffixes of clips."""
    has_image = any(file.suffix.lower() in IMAGE_SUFFIXES for file in files)
    return IMAGE_SUFFIXES if has_image else CLIP_SUFFIXES


def skipped(paths: Sequence[Path]) -> Iterator[str]:
    """Yield a note for each folder in which ``expand`` skips files other than text files and hidden files."""
    for path in filter(Path.is_dir, paths):
        files = [file for file in path.iterdir() if file.is_file() and not file.name.startswith(".")]
        known = (*_meant(files), *_TEXT_SUFFIXES)
        if names := sorted(file.name for file in files if file.suffix.lower() not in known):
            others = f", and {len(names) - _NAMED} more" * (len(names) > _NAMED)
            yield f"{path}: skipped, because the suffix is not that of an image: {', '.join(names[:_NAMED])}{others}"


def read(path: Path) -> bytes | str:
    """Return the contents of a file, or a description of the error if it cannot be read."""
    try:
        return path.read_bytes()
    except OSError as error:
        return str(error.strerror)
    except ValueError as error:  # the path contains a null character, for example a path from a text file
        return str(error)


@contextmanager
def named(path: Path, what: str) -> Iterator[None]:
    """Convert an OSError in the block to a PixprepError that contains the file name.

    Some OSErrors, such as those for a full disk, do not contain it.

    Args:
        path: Path of the file.
        what: Description of the operation that failed.

    Raises:
        PixprepError: The block raised an OSError.
    """
    try:
        yield
    except OSError as error:
        is_lost = error.errno == errno.ENOENT and not path.parent.is_dir()
        why = f"folder {path.parent} does not exist" if is_lost else error.strerror or error
        raise PixprepError(f"{path}: {what}: {why}") from None


def npy_stems(files: Sequence[Path]) -> Iterator[str]:
    """Yield a unique stem per file: ``cat``, or ``cat.jpg`` if several files are named cat, or ``cat.jpg-2``."""
    stems = Counter(file.stem for file in files)
    taken: set[str] = set()
    for file in files:
        first = file.stem if stems[file.stem] == 1 else file.name
        name = next(name for name in chain([first], (f"{first}-{n}" for n in count(2))) if name not in taken)
        taken.add(name)
        yield name


def of_file(inputs: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """Return the per-image inputs of one file. Inputs may be given per file, by its path or its name.

    Raises:
        PixprepError: An input is given per file, but not for this file.
    """
    found = {}
    for name, values in inputs.items():
        by_file = isinstance(values, Mapping)
        key = next((key for key in (str(path), path.name) if key in values), None) if by_file else None
        if by_file and key is None:
            raise PixprepError(f'input "{name}" has no values for {path}; it has values for {", ".join(values)[:200]}')
        found[name] = values[key] if key is not None else values
    return found


@contextmanager
def atomic_file(path: str | Path) -> Iterator[BinaryIO]:
    """Open a temporary binary file that atomically replaces ``path`` when the block ends.

    If anything fails before, ``path`` is unchanged and the temporary file is removed. The new file has the mode of the
    existing one. If ``path`` is a symbolic link, its target is replaced. If ``path`` is not a regular file, such as a
    terminal, a pipe or a device, it is opened directly.

    Raises:
        OSError: The folder is not writable, or the disk is full.
    """
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_file():
        with Path(path).open("wb") as file:
            yield file
        return
    temporary = target.with_name(UNFINISHED.replace("*", uuid4().hex))
    try:
        with temporary.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if target.exists():
            shutil.copymode(target, temporary)
        temporary.replace(target)
    except BaseException as error:
        with suppress(OSError):
            temporary.unlink()
        if isinstance(error, OSError) and str(error.filename) == str(temporary):  # users do not know the temporary name
            error.filename = str(path)
        raise


def write(path: str | Path, content: bytes | str) -> None:
    """Write bytes, or text as UTF-8, atomically; see ``atomic_file``."""
    with atomic_file(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)


def copy(source: str | Path, target: str | Path) -> None:
    """Copy a file atomically; see ``atomic_file``."""
    with Path(source).open("rb") as file, atomic_file(target) as made:
        shutil.copyfileobj(file, made, 1 << 20)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Lock a folder against other processes that call this function. The kernel releases the lock if the process dies.

    Raises:
        PixprepError: Another process holds the lock, or the file system does not support locks.
    """
    try:
        with ExitStack() as stack:
            file = stack.enter_context((folder / LOCK).open("ab"))
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            held = stack.pop_all()
    except BlockingIOError:
        raise PixprepError(
            f"{folder}: another process is writing to this folder: wait until it ends, or use a different folder"
        ) from None
    except OSError as error:
        raise PixprepError(f"{folder / LOCK} cannot be locked ({error.strerror}): use a different folder") from None
    with held:
        yield
