"""New models in the place of old ones: what may be written over, and how it is done at once."""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path

from pixprep.errors import SetupError
from pixprep.files import whole, write
from pixprep.pipeline.ops.faults import quoted
from pixprep.serving.repository import pbtxt
from pixprep.serving.repository.pbtxt import LABELS_FILE, MARK, Names
from pixprep.serving.triton.config import CONFIG_FILE

_OURS = (CONFIG_FILE, LABELS_FILE, "1/.gitkeep", "1/pipeline.json", "1/model.py", "1/model.onnx")


def refuse_taken(output: Path, names: Names, files: Mapping[str, str | Path]) -> None:
    """Refuse to write a model that belongs to another ensemble, unless it stays what it is; ``--force`` or not.

    Raises:
        SetupError: it names the first such model.
    """
    ensembles = pbtxt.ensembles(output)
    ours = ensembles.pop(names.ensemble, [])
    if ours and names.classifier not in ours:
        raise SetupError(f"{output / names.ensemble}: is the ensemble of {', '.join(ours)}: say another --name")
    for model in sorted({file.partition("/")[0] for file in files}):
        texts = {output / file: text for file, text in files.items() if file.startswith(f"{model}/")}
        takers = [ensemble for ensemble, models in ensembles.items() if model in models]
        is_same = (path.is_file() and pbtxt.read(path) == text for path, text in texts.items())
        if takers and not all(is_same):
            raise SetupError(f"{output / model}: belongs to the ensemble {quoted(takers[0])} too: say another --name")


def refuse_foreign(output: Path, names: Names, files: Iterable[str]) -> None:
    """Refuse to write where something lies that ``build`` did not write, or that was changed since.

    Raises:
        SetupError: it names the first such thing.
    """
    if not output.exists() or not any(output.iterdir()):
        return
    texts = {path: pbtxt.read(path) for path in output.glob(f"*/{CONFIG_FILE}")}
    ours = {path: text for path, text in texts.items() if path.parent.name in names}
    if not any(text.startswith(MARK) for text in texts.values()):
        raise SetupError(f"{output}: holds what `pixprep build` did not write: take another folder, or --force")
    for path, text in sorted(ours.items()):
        if not text.startswith(MARK):
            raise SetupError(f"{path}: was not written by `pixprep build`: say another --name, or --force")
        if not pbtxt.is_as_written(text):
            raise SetupError(
                f"{path}: was changed since `pixprep build` wrote it: say the change as an option "
                "(--max-batch-size, --input, --parameter), or --force writes over it"
            )
    known = {*files, *(f"{model}/{name}" for model in names for name in _OURS)}
    for path in sorted(path for model in names for path in (output / model).rglob("*")):
        is_nobodys = path.is_dir() or path.parent.name == "__pycache__"
        if not is_nobodys and path.relative_to(output).as_posix() not in known:
            raise SetupError(f"{path}: was not written by `pixprep build`, which would remove it: move it, or --force")


def _copy(source: Path, target: Path) -> None:
    """Copy a regular file, and never what a link leads to: one may have come since the file was looked at.

    Raises:
        OSError: it is something else, or cannot be read.
    """
    with os.fdopen(os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "Not a regular file", str(source))
        with whole(target) as copy:
            shutil.copyfileobj(file, copy, 1 << 20)


def replace(output: Path, files: Mapping[str, str | Path], work: Path) -> None:
    """Write new directories, then put them in the place of the old ones, each by a rename."""
    for name, content in files.items():
        path = work / "new" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, Path):
            _copy(content, path)
        else:
            write(path, content)
    output.mkdir(exist_ok=True)
    (work / "old").mkdir()
    for new in sorted((work / "new").iterdir()):
        if (output / new.name).exists():
            (output / new.name).rename(work / "old" / new.name)
        new.rename(output / new.name)
