"""Writer of a model repository: new models take the place of old ones, each at once."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import tempfile
from pathlib import Path

from pixprep import files
from pixprep.serving.repository.repository_plan import RepositoryPlan

WORK = ".pixprep-build-"
"""Beginning of the name of its own folder."""


def write(plan: RepositoryPlan) -> None:
    """Write the models of a plan, then put them in the place of the old ones, each by a rename.

    Raises:
        OSError: the disk refuses; no model is replaced by half of another.
    """
    parent = plan.output.resolve().parent
    parent.mkdir(parents=True, exist_ok=True)
    # beside the repository, not in it: Triton takes every directory of a repository for a model
    with tempfile.TemporaryDirectory(prefix=WORK, dir=parent) as folder:
        new, old = Path(folder, "new"), Path(folder, "old")
        for model, contents in plan.models.items():
            for name, content in contents.items():
                path = new / model / name
                path.parent.mkdir(parents=True, exist_ok=True)
                if isinstance(content, Path):
                    _copy(content, path)
                else:
                    files.write(path, content)
        plan.output.mkdir(exist_ok=True)
        old.mkdir()
        replaced = plan.replaced
        for model in plan.models:
            if model in replaced:
                (plan.output / model).rename(old / model)
            (new / model).rename(plan.output / model)


def _copy(source: Path, target: Path) -> None:
    """Copy a regular file, and never what a link leads to: one may have come since the file was looked at.

    Raises:
        OSError: it is something else, or cannot be read.
    """
    with os.fdopen(os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "Not a regular file", str(source))
        with files.whole(target) as copy:
            shutil.copyfileobj(file, copy, 1 << 20)
