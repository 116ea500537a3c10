"""The files that a user names: images, folders of images, and where results go."""

from __future__ import annotations

import errno
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain, count
from pathlib import Path
from typing import Any

from pixprep.data.sources.files import CLIP_SUFFIXES
from pixprep.decoders import KINDS
from pixprep.errors import PixprepError

IMAGE_SUFFIXES = tuple(suffix for kind in KINDS.values() for suffix in kind.suffixes)
_TEXT_SUFFIXES = (".csv", ".json", ".md", ".txt", ".xml", ".yaml")
_NAMED = 5

_PACKAGED = Path(__file__).parent / "photos"
PHOTOS = _PACKAGED if _PACKAGED.is_dir() else Path(__file__).parents[2] / "client_examples" / "images"
"""Two photos: in the wheel, or else in the checkout."""


def expand(paths: Sequence[Path]) -> list[Path]:
    """The files meant: a file itself; of a folder its image files by suffix, sorted, without its subfolders.

    Of a folder without an image they are its clips.

    Raises:
        PixprepError: a path that is not there, or a folder without images and clips.
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
    """The suffixes that are meant of the files in a folder."""
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
