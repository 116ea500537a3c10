"""New models in the place of old ones: their plan, what it may write over, and the writer, who does it at once."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from filecmp import cmp
from pathlib import Path

from pixprep import files
from pixprep.errors import SetupError
from pixprep.ops.faults import quoted
from pixprep.repository import pbtxt
from pixprep.repository.pbtxt import LABELS_FILE, Names
from pixprep.triton.config import CONFIG_FILE

_OURS = (CONFIG_FILE, LABELS_FILE, "1/.gitkeep", "1/pipeline.json", "1/model.py", "1/model.onnx")


WORK = ".pixprep-build-"
"""Beginning of the name of the writer's own folder."""
Content = str | bytes | Path
"""Text or bytes of a file, or the file to copy."""


@dataclass(frozen=True)
class RepositoryPlan:
    """Model repository to be, planned by reading alone; ``write`` makes it.

    Attributes:
        output: its folder.
        names: names of its models; one that has no file here stays as it is.
        files: content by the path in the repository.
        notes: remarks on what is left to do, or to know; each is complete by itself.
    """

    output: Path
    names: Names
    files: Mapping[str, Content]
    notes: tuple[str, ...]

    @property
    def paths(self) -> list[Path]:
        """Files that are written."""
        return sorted(self.output / file for file in self.files)

    @property
    def models(self) -> list[str]:
        """Models that are written."""
        return sorted({file.partition("/")[0] for file in self.files})

    @property
    def replaced(self) -> list[str]:
        """Models that are there already, and give way as a whole."""
        return [model for model in self.models if (self.output / model).exists()]


def is_content(path: Path, content: Content) -> bool:
    """Tell whether a file is there with that content; of a ``config.pbtxt``, with what it says to Triton."""
    if not path.is_file():
        return False
    if isinstance(content, Path):
        return cmp(content, path, shallow=False)
    if isinstance(content, str) and path.name == CONFIG_FILE:
        return pbtxt.said(pbtxt.read(path)) == pbtxt.said(content)
    return path.read_bytes() == (content.encode() if isinstance(content, str) else content)


def refuse_taken(plan: RepositoryPlan) -> None:
    """Refuse to write a model that belongs to another ensemble, unless it stays what it is; ``--force`` or not.

    Raises:
        SetupError: it names the first such model.
    """
    output, names = plan.output, plan.names
    ensembles = pbtxt.ensembles(output)
    ours = ensembles.pop(names.ensemble, [])
    if ours and names.classifier not in ours:
        raise SetupError(f"{output / names.ensemble}: is the ensemble of {', '.join(ours)}: say another --name")
    for model in plan.models:
        own = {output / file: content for file, content in plan.files.items() if file.startswith(f"{model}/")}
        takers = [ensemble for ensemble, models in ensembles.items() if model in models]
        if takers and not all(is_content(*file) for file in own.items()):
            raise SetupError(f"{output / model}: belongs to the ensemble {quoted(takers[0])} too: say another --name")


def refuse_foreign(plan: RepositoryPlan) -> None:
    """Refuse to write where something lies that ``build`` did not write, or that was changed since.

    Raises:
        SetupError: it names the first such thing.
    """
    output, names = plan.output, plan.names
    if not output.exists() or not any(output.iterdir()):
        return
    unchanged = {path: pbtxt.is_unchanged(pbtxt.read(path)) for path in sorted(output.glob(f"*/{CONFIG_FILE}"))}
    if all(state is None for state in unchanged.values()):
        raise SetupError(f"{output}: holds what `pixprep build` did not write: take another folder, or --force")
    for path in [path for path, state in unchanged.items() if path.parent.name in names and not state]:
        if unchanged[path] is None:
            raise SetupError(f"{path}: was not written by `pixprep build`: say another --name, or --force")
        raise SetupError(
            f"{path}: was changed since `pixprep build` wrote it: say the change as an option "
            "(--max-batch-size, --input, --parameter), or --force writes over it"
        )
    known = {*plan.files, *(f"{model}/{name}" for model in names for name in _OURS)}
    for path in sorted(path for model in names for path in (output / model).rglob("*")):
        is_nobodys = path.is_dir() or path.parent.name == "__pycache__"
        if not is_nobodys and path.relative_to(output).as_posix() not in known:
            raise SetupError(f"{path}: was not written by `pixprep build`, which would remove it: move it, or --force")


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
        for name, content in plan.files.items():
            path = new / name
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
