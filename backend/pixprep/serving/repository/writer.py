"""Writes models to a repository. An existing model is replaced completely, or not at all if an error occurs."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from pixprep import files
from pixprep.errors import SetupError

Content = str | bytes | Path
"""Content of a file: a string, bytes, or the path of a file to copy."""
_WORK = ".pixprep-build-"
"""Name prefix of the temporary folder."""


def write(repository: Path, models: Mapping[str, Mapping[str, Content]]) -> None:
    """Write models to a temporary folder, then replace the existing models by renaming folders.

    Args:
        repository: Folder of the repository.
        models: Files of each model, by their paths in the folder of the model. A model without files is removed.

    Raises:
        SetupError: Writing fails. All models are then unchanged.
    """
    with refusing(repository):
        _write(repository, models)


@contextmanager
def refusing(repository: Path) -> Iterator[None]:
    """Convert an OSError inside the block to a SetupError."""
    try:
        yield
    except OSError as error:
        at = error.filename or ""  # an error for a full disk does not have a file name
        at = repository.resolve().parent if _WORK in str(at) else at  # hide the path of the temporary folder
        raise SetupError(f"{repository}: not written: {f'{at}: ' if at else ''}{error.strerror or error}") from None


def _write(repository: Path, models: Mapping[str, Mapping[str, Content]]) -> None:
    # The parent folder is preferred for the temporary folder, because Triton treats folders in a repository as models.
    work = repository.resolve().parent
    work.mkdir(parents=True, exist_ok=True)
    is_mount = repository.exists() and work.stat().st_dev != repository.stat().st_dev
    if is_mount or not os.access(work, os.W_OK):
        work = repository
    with tempfile.TemporaryDirectory(prefix=_WORK, dir=work) as folder, ExitStack() as undo:
        new, old = Path(folder, "new"), Path(folder, "old")
        for model, contents in models.items():
            for name, content in contents.items():
                path = new / model / name
                path.parent.mkdir(parents=True, exist_ok=True)
                if isinstance(content, Path):
                    _copy(content, path)
                else:
                    files.write(path, content)
        repository.mkdir(exist_ok=True)
        old.mkdir()
        for model in models:
            target = repository / model
            if os.path.lexists(target):
                target.rename(old / model)
                undo.callback((old / model).rename, target)
            if not models[model]:
                continue
            (new / model).rename(target)
            undo.callback(target.rename, new / model)
        undo.pop_all()


def _copy(source: Path, target: Path) -> None:
    """Copy a regular file. A link that has replaced the file since the file was checked is not followed.

    Raises:
        OSError: The source is not a regular file, or cannot be read.
    """
    with os.fdopen(os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "Not a regular file", str(source))
        if found.st_size > shutil.disk_usage(target.parent).free:  # fail before a sparse file fills the disk
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(source))
        with files.atomic_file(target) as copy:
            shutil.copyfileobj(file, copy, 1 << 20)
