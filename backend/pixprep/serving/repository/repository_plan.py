"""Plans the files of a model repository, and checks that these files may replace existing files."""

from __future__ import annotations

from collections.abc import Collection, Mapping
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

_OURS = (CONFIG_FILE, LABELS_FILE, "1/.gitkeep", "1/pipeline.json", "1/model.py", "1/model.onnx", "1/rows.py")
_ONLY_SOME = ("preprocess", "picture", "rows")
"""Prefixes of the names of models that only some builds write. With the option ``name``, the name of the ensemble
precedes the prefix."""


@dataclass(frozen=True)
class RepositoryPlan:
    """Plan of the models to write. ``writer.write`` writes them.

    Attributes:
        before: Repository before the plan is written.
        names: Names of the three models that every build writes.
        models: Files of each model to write, by their paths in the model's folder. A model without files is removed.
        notes: Notes for the user, such as remaining steps.
    """

    before: Repository = field(compare=False)
    names: Names
    models: Mapping[str, Mapping[str, Content]]
    notes: tuple[str, ...]

    @property
    def output(self) -> Path:
        """Folder of the repository."""
        return self.before.folder

    @property
    def paths(self) -> list[Path]:
        """Paths of the files to write."""
        return sorted(self.output / model / file for model, files in self.models.items() for file in files)

    @property
    def replaced(self) -> list[str]:
        """Names of existing models that will be replaced."""
        return [model for model in self.models if (self.output / model).exists()]


def _stays(model: Model, files: Mapping[str, Content]) -> bool:
    """Return whether a model already has these files. ``config.pbtxt`` files may differ in their formatting."""
    return all(
        _settings(model.config) == _settings(pbtxt.parse(str(content)))
        if name == CONFIG_FILE
        else has_content(model.folder / name, content)
        for name, content in files.items()
    )


def _settings(config: Config) -> Config:
    """Return a configuration without the checksum that ``build`` adds."""
    parameters = {key: value for key, value in config.get("parameters", {}).items() if key != pbtxt.STAMP}
    return {**config, "parameters": parameters}


def has_content(path: Path, content: Content) -> bool:
    """Return whether a file exists and has this content."""
    if not path.is_file():
        return False
    if isinstance(content, Path):
        return cmp(content, path, shallow=False)
    return path.read_bytes() == (content.encode() if isinstance(content, str) else content)


def unused(before: Repository, names: Names, used: Collection[str]) -> list[str]:
    """Return the models of the earlier ensemble that neither the new ensemble nor another ensemble uses.

    These are models that only some builds write: the model that encodes pictures, the model with the Python function
    ``rows``, or the preprocess models of several inputs. Models that ``build`` did not write are omitted.

    Args:
        before: Repository with the earlier ensemble.
        names: Names of the three models that every build writes.
        used: Models of the new ensemble.
    """
    wired = before.ensembles
    elsewhere = {step.model for name, steps in wired.items() if name != names.ensemble for step in steps}
    ours = dict.fromkeys(step.model for step in wired.get(names.ensemble, ()) if step.model in before.models)
    own = "" if names == Names() else f"{names.ensemble}_"
    return [
        name
        for name in ours
        if name not in used and name not in elsewhere
        if name.startswith(tuple(f"{own}{begin}" for begin in _ONLY_SOME))
        if before.models[name].is_unchanged is not None
    ]


def refuse_taken(plan: RepositoryPlan) -> None:
    """Check that the plan does not change models of other ensembles. The check also applies with ``--force``.

    Raises:
        SetupError: A model is also part of a different ensemble, or a configuration cannot be read.
    """
    models, names = plan.before.models, plan.names
    ensembles = {}
    for model in models.values():
        try:
            ensembles[model.name] = model.steps
        except PipelineError as error:
            if model.name not in plan.models:
                problem = str(error).removeprefix(f"{CONFIG_FILE}: ")
                raise SetupError(
                    f"{model.folder / CONFIG_FILE}: {problem}: fix the file, or move {model.name}"
                ) from None
    ours = ensembles.pop(names.ensemble, [])
    if ours and names.classifier not in (others := list(dict.fromkeys(step.model for step in ours))):
        where = models[names.ensemble].folder
        raise SetupError(f"{where} is an ensemble of {', '.join(others)}: choose a different --name")
    for name, files in sorted(plan.models.items()):
        users = [ensemble for ensemble, steps in ensembles.items() if any(step.model == name for step in steps)]
        if users and name in models and not _stays(models[name], files):
            problem = f"is also part of the ensemble {quoted(users[0])}: choose a different --name"
            raise SetupError(f"{models[name].folder} {problem}")


def refuse_foreign(plan: RepositoryPlan) -> None:
    """Check that the plan does not overwrite or remove files that the user has written or changed.

    Raises:
        SetupError: Such a file exists. The message contains the path of the first such file.
    """
    output, models = plan.output, plan.before.models
    if not output.exists() or not any(output.iterdir()):
        return
    if all(model.is_unchanged is None for model in models.values()):
        raise SetupError(
            f"{output} contains files that `pixprep build` did not write: choose a different folder, or pass --force"
        )
    known = {*plan.paths, *(output / model / file for model in plan.models for file in _OURS)}
    for model in [model for name, model in models.items() if name in plan.models]:
        where = model.folder / CONFIG_FILE
        if model.is_unchanged is False:
            raise SetupError(
                f"{where} was changed after `pixprep build` wrote it: pass the change as an option "
                "(--max-batch-size, --input, --parameter), or overwrite the file with --force"
            )
        if model.is_unchanged is None and where.exists():
            raise SetupError(f"{where} was not written by `pixprep build`: choose a different --name, or pass --force")
        for path in sorted(model.folder.rglob("*")):
            is_ignored = path.is_dir() or path.parent.name == "__pycache__" or path.match(LABELS_OF.format("*"))
            if not is_ignored and path not in known:
                raise SetupError(
                    f"{path} was not written by `pixprep build` and would be removed: move it, or pass --force"
                )
