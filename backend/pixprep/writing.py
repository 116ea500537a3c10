"""Files that a user names to be written: each is whole, or what it was before."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO
from uuid import uuid4

from pixprep.errors import PixprepError

LOCK = ".pixprep.lock"
UNFINISHED = ".pixprep-*.tmp"
"""The names of files that are being written, or were by a process that was killed."""


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
        raise PixprepError(f"{folder}: another run writes here: wait for its end, or take another folder") from None
    except OSError as error:
        raise PixprepError(f"{folder / LOCK}: cannot be locked: {error.strerror}: take another folder") from None
    with held:
        yield
