"""Plan of a model repository: what its files will be, and what they may take the place of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from filecmp import cmp
from pathlib import Path

from pixprep.errors import SetupError
from pixprep.pipeline.ops.faults import quoted
from pixprep.serving.repository import pbtxt
from pixprep.serving.repository.pbtxt import LABELS_FILE, LABELS_OF, Names
from pixprep.serving.triton.config import CONFIG_FILE

_OURS = (CONFIG_FILE, LABELS_FILE, "1/.gitkeep", "1/pipeline.json", "1/model.py", "1/model.onnx")
Content = str | bytes | Path
"""Text or bytes of a file, or the file to copy."""


@dataclass(frozen=True)
class RepositoryPlan:
    """Model repository to be, planned by reading alone; ``writer.write`` makes it.

    Attributes:
        output: its folder.
        names: names of its models.
        models: files of those that are written, by the path in the model's folder.
        notes: remarks on what is left to do, or to know; each is complete by itself.
    """

    output: Path
    names: Names
    models: Mapping[str, Mapping[str, Content]]
    notes: tuple[str, ...]

    @property
    def paths(self) -> list[Path]:
        """Files that are written."""
        return sorted(self.output / model / file for model, files in self.models.items() for file in files)

    @property
    def replaced(self) -> list[str]:
        """Models that are there already, and give way as a whole."""
        return [model for model in self.models if (self.output / model).exists()]


def has_content(path: Path, content: Content) -> bool:
    """Tell whether a file is there with that content; of a ``config.pbtxt``, with what it says to Triton."""
    if not path.is_file():
        return False
    if isinstance(content, Path):
        return cmp(content, path, shallow=False)
    if isinstance(content, str) and path.name == CONFIG_FILE:
        return pbtxt.settings(pbtxt.read(path)) == pbtxt.settings(content)
    return path.read_bytes() == (content.encode() if isinstance(content, str) else content)


def refuse_taken(plan: RepositoryPlan) -> None:
    """Refuse to write a model that belongs to another ensemble, unless it stays what it is; ``--force`` or not.

    Raises:
        SetupError: it names the first such model.
    """
    output, names = plan.output, plan.names
    ensembles = pbtxt.ensembles(output)
    ours = ensembles.pop(names.ensemble, [])
    if ours and names.classifier not in (models := list(dict.fromkeys(step.model for step in ours))):
        raise SetupError(f"{output / names.ensemble}: is the ensemble of {', '.join(models)}: say another --name")
    for model, files in sorted(plan.models.items()):
        takers = [ensemble for ensemble, steps in ensembles.items() if any(step.model == model for step in steps)]
        if takers and not all(has_content(output / model / file, content) for file, content in files.items()):
            raise SetupError(f"{output / model}: belongs to the ensemble {quoted(takers[0])} too: say another --name")


def refuse_foreign(plan: RepositoryPlan) -> None:
    """Refuse to write where something lies that ``build`` did not write, or that was changed since.

    Raises:
        SetupError: it names the first such thing.
    """
    output, names = plan.output, plan.models
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
    known = {*plan.paths, *(output / model / file for model in names for file in _OURS)}
    for path in sorted(path for model in names for path in (output / model).rglob("*")):
        is_nobodys = path.is_dir() or path.parent.name == "__pycache__" or path.match(LABELS_OF.format("*"))
        if not is_nobodys and path not in known:
            raise SetupError(f"{path}: was not written by `pixprep build`, which would remove it: move it, or --force")
