"""Files that a user names: images, folders of images, and output files, which are replaced atomically."""

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
"""Pattern of the names of files that are being written, or that a killed process has left."""

_PACKAGED = Path(__file__).parent / "photos"
PHOTOS = _PACKAGED if _PACKAGED.is_dir() else Path(__file__).parents[2] / "client_examples" / "images"
"""Two photos: in the wheel, or else in the checkout."""


def expand(paths: Sequence[Path]) -> list[Path]:
    """Return the named files and, for each folder, its image files by suffix, sorted, without subfolders.

    If a folder does not contain images, its video clips are returned.

    Raises:
        PixprepError: A path does not exist, or a folder contains neither images nor clips.
    """
    files: list[Path] = []
    for path in paths:
        if not path.exists():
            raise PixprepError(f"{path}: no such file or folder")
        if not path.is_dir():
            files.append(path)
            continue
        found = sorted(file for file in path.iterdir() if file.is_file())
        suffixes = _meant(found)
        meant = [file for file in found if file.suffix.lower() in suffixes]
        if not meant:
            raise PixprepError(f"{path}: no image or clip in this folder ({' '.join(IMAGE_SUFFIXES + CLIP_SUFFIXES)})")
        files += meant
    return files


def _meant(files: Sequence[Path]) -> tuple[str, ...]:
    """Return the suffixes of the files to use from a folder: of images if it contains any, else of clips."""
    has_image = any(file.suffix.lower() in IMAGE_SUFFIXES for file in files)
    return IMAGE_SUFFIXES if has_image else CLIP_SUFFIXES


def skipped(paths: Sequence[Path]) -> Iterator[str]:
    """For each folder among the paths what ``expand`` leaves out of it, by the names; texts are no news."""
    for path in filter(Path.is_dir, paths):
        files = [file for file in path.iterdir() if file.is_file() and not file.name.startswith(".")]
        known = (*_meant(files), *_TEXT_SUFFIXES)
        if names := sorted(file.name for file in files if file.suffix.lower() not in known):
            others = f", and {len(names) - _NAMED} more" * (len(names) > _NAMED)
            yield f"{path}: skipped, as no image by name: {', '.join(names[:_NAMED])}{others}"


def read(path: Path) -> bytes | str:
    """The contents of a file, or why it cannot be read."""
    try:
        return path.read_bytes()
    except OSError as error:
        return str(error.strerror)


@contextmanager
def named(path: Path, what: str) -> Iterator[None]:
    """Name the file that an OSError inside is about: errors of reading and of a full disk do not.

    Raises:
        PixprepError: in place of the OSError.
    """
    try:
        yield
    except OSError as error:
        is_lost = error.errno == errno.ENOENT and not path.parent.is_dir()
        why = f"there is no folder {path.parent}" if is_lost else error.strerror or error
        raise PixprepError(f"{path}: {what}: {why}") from None


def npy_stems(files: Sequence[Path]) -> Iterator[str]:
    """For each file ``cat``; ``cat.jpg`` if there is another cat; ``cat.jpg-2`` if it is a cat.jpg, too."""
    stems = Counter(file.stem for file in files)
    taken: set[str] = set()
    for file in files:
        first = file.stem if stems[file.stem] == 1 else file.name
        name = next(name for name in chain([first], (f"{first}-{n}" for n in count(2))) if name not in taken)
        taken.add(name)
        yield name


def of_file(inputs: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """The numbers of one image; where they are given by files, under its path or its name.

    Raises:
        PixprepError: there are none of this file.
    """
    found = {}
    for name, values in inputs.items():
        by_file = isinstance(values, Mapping)
        key = next((key for key in (str(path), path.name) if key in values), None) if by_file else None
        if by_file and key is None:
            raise PixprepError(f'input "{name}" has no rows of {path}; it has those of {", ".join(values)[:200]}')
        found[name] = values[key] if key is not None else values
    return found


@contextmanager
def whole(path: str | Path) -> Iterator[BinaryIO]:
    """Open a file beside ``path`` for bytes, which takes its place once the disk has all of them.

    Where anything fails before, ``path`` is what it was, and nothing is left beside it. The new file has the mode of
    the old one. A link stays one, and its file is replaced. A terminal, a pipe or a device is written to as it is.

    Raises:
        OSError: the folder cannot be written, or the disk is full.
    """
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_file():
        with Path(path).open("wb") as file:
            yield file
        return
    made = target.with_name(UNFINISHED.replace("*", uuid4().hex))
    try:
        with made.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if target.exists():
            shutil.copymode(target, made)
        made.replace(target)
    except BaseException as error:
        with suppress(OSError):
            made.unlink()
        if isinstance(error, OSError) and str(error.filename) == str(made):  # nobody knows our own name in it
            error.filename = str(path)
        raise


def write(path: str | Path, content: bytes | str) -> None:
    """Write bytes, or text as UTF-8; see ``whole``."""
    with whole(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)


def copy(source: str | Path, target: str | Path) -> None:
    """Write a copy of a file; see ``whole``."""
    with Path(source).open("rb") as file, whole(target) as made:
        shutil.copyfileobj(file, made, 1 << 20)


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Lock a folder against every other process that does so. The kernel unlocks it when this one ends, however.

    Raises:
        PixprepError: another process has it, or its disk knows no locks.
    """
    try:
        with ExitStack() as stack:
            file = stack.enter_context((folder / LOCK).open("ab"))
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            held = stack.pop_all()
    except BlockingIOError:
        raise PixprepError(
            f"{folder}: another run is writing here: wait until it ends, or use a different folder"
        ) from None
    except OSError as error:
        raise PixprepError(f"{folder / LOCK}: cannot be locked: {error.strerror}: use a different folder") from None
    with held:
        yield
