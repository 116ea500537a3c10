"""Plan of a model repository: the files to write, and the files that they may replace."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from filecmp import cmp
from pathlib import Path

from pixprep.errors import PipelineError, SetupError
from pixprep.pipeline.ops.faults import quoted
from pixprep.serving.repository import pbtxt
from pixprep.serving.repository.pbtxt import LABELS_FILE, LABELS_OF, Names
from pixprep.serving.repository.repository import Model, Repository
from pixprep.serving.repository.writer import Content
from pixprep.serving.triton.config import CONFIG_FILE, Config

_OURS = (CONFIG_FILE, LABELS_FILE, "1/.gitkeep", "1/pipeline.json", "1/model.py", "1/model.onnx")


@dataclass(frozen=True)
class RepositoryPlan:
    """Model repository to be, planned by reading alone; ``writer.write`` makes it.

    Attributes:
        before: Repository in its present state.
        names: Names of its models.
        models: Files of the models to write, by their paths in the model's folder.
        notes: Remarks on remaining work, or other information; each is complete by itself.
    """

    before: Repository = field(compare=False)
    names: Names
    models: Mapping[str, Mapping[str, Content]]
    notes: tuple[str, ...]

    @property
    def output(self) -> Path:
        """The folder of the repository."""
        return self.before.folder

    @property
    def paths(self) -> list[Path]:
        """Files that are written."""
        return sorted(self.output / model / file for model, files in self.models.items() for file in files)

    @property
    def replaced(self) -> list[str]:
        """Existing models that are replaced as a whole."""
        return [model for model in self.models if (self.output / model).exists()]


def _stays(model: Model, files: Mapping[str, Content]) -> bool:
    """Return whether a model already has these files. For ``config.pbtxt``, only its meaning to Triton is compared."""
    return all(
        _settings(model.config) == _settings(pbtxt.parse(str(content)))
        if name == CONFIG_FILE
        else has_content(model.folder / name, content)
        for name, content in files.items()
    )


def _settings(config: Config) -> Config:
    """A configuration without ``build``'s own parameter."""
    parameters = {key: value for key, value in config.get("parameters", {}).items() if key != pbtxt.STAMP}
    return {**config, "parameters": parameters}


def has_content(path: Path, content: Content) -> bool:
    """Return whether a file is there with that content."""
    if not path.is_file():
        return False
    if isinstance(content, Path):
        return cmp(content, path, shallow=False)
    return path.read_bytes() == (content.encode() if isinstance(content, str) else content)


def refuse_taken(plan: RepositoryPlan) -> None:
    """Reject overwriting a model of another ensemble, unless the model stays unchanged. ``--force`` does not allow it.

    Raises:
        SetupError: It names the first such model, or a configuration that cannot be read.
    """
    models, names = plan.before.models, plan.names
    ensembles = {}
    for model in models.values():
        try:
            ensembles[model.name] = model.steps
        except PipelineError as error:
            if model.name not in plan.models:
                what = str(error).removeprefix(f"{CONFIG_FILE}: ")
                raise SetupError(f"{model.folder / CONFIG_FILE}: {what}: mend it, or move {model.name} away") from None
    ours = ensembles.pop(names.ensemble, [])
    if ours and names.classifier not in (others := list(dict.fromkeys(step.model for step in ours))):
        where = models[names.ensemble].folder
        raise SetupError(f"{where}: is the ensemble of {', '.join(others)}: say another --name")
    for name, files in sorted(plan.models.items()):
        takers = [ensemble for ensemble, steps in ensembles.items() if any(step.model == name for step in steps)]
        if takers and name in models and not _stays(models[name], files):
            what = f"belongs to the ensemble {quoted(takers[0])} too: say another --name"
            raise SetupError(f"{models[name].folder}: {what}")


def refuse_foreign(plan: RepositoryPlan) -> None:
    """Reject overwriting files that ``build`` did not write, or that were changed since.

    Raises:
        SetupError: Such a file exists; the message names the first one.
    """
    output, models = plan.output, plan.before.models
    if not output.exists() or not any(output.iterdir()):
        return
    if all(model.is_unchanged is None for model in models.values()):
        raise SetupError(f"{output}: holds what `pixprep build` did not write: take another folder, or --force")
    known = {*plan.paths, *(output / model / file for model in plan.models for file in _OURS)}
    for model in [model for name, model in models.items() if name in plan.models]:
        where = model.folder / CONFIG_FILE
        if model.is_unchanged is False:
            raise SetupError(
                f"{where}: was changed since `pixprep build` wrote it: say the change as an option "
                "(--max-batch-size, --input, --parameter), or --force writes over it"
            )
        if model.is_unchanged is None and where.exists():
            raise SetupError(f"{where}: was not written by `pixprep build`: say another --name, or --force")
        for path in sorted(model.folder.rglob("*")):
            is_nobodys = path.is_dir() or path.parent.name == "__pycache__" or path.match(LABELS_OF.format("*"))
            if not is_nobodys and path not in known:
                raise SetupError(
                    f"{path}: was not written by `pixprep build`, which would remove it: move it, or --force"
                )
