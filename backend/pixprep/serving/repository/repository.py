"""A model repository as Triton reads it. Each of its files is opened at most once.

Code that needs a fact of a repository asks a ``Repository``, which keeps everything it has read. It is a view of one
moment: after an edit, create a new one. A property raises ``PipelineError`` or ``OSError`` if its file is invalid or
cannot be read, and ``SetupError`` if tritonclient, onnx or an installed operator is missing.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from pixprep.errors import PipelineError
from pixprep.pipeline.file import read_bytes
from pixprep.pipeline.pipeline import Pipeline
from pixprep.serving.repository import pbtxt
from pixprep.serving.repository.models import Declared
from pixprep.serving.repository.pbtxt import Step
from pixprep.serving.repository.ports import PLAN_BYTES, Classifier, declared, load_onnx, plan_fault, without_weights
from pixprep.serving.triton import config as model_config
from pixprep.serving.triton.config import CONFIG_FILE, PIPELINE_FILE, Config

ONNX_FILE, PLAN_FILE = "model.onnx", "model.plan"
_MAX_BYTES = 256 << 10  # parsing a larger configuration takes seconds


@dataclass(eq=False, repr=False)
class Repository:
    """A model repository in a folder, which may be missing."""

    folder: Path

    @classmethod
    def at(cls, place: Path | Repository) -> Repository:
        """The repository in a folder; a ``Repository`` is returned unchanged."""
        return place if isinstance(place, Repository) else cls(place)

    @cached_property
    def models(self) -> dict[str, Model]:
        """The models by name."""
        root = Path(os.path.realpath(self.folder))
        return {name: Model(self.folder / name, root=root) for name in models_in(self.folder)}

    @cached_property
    def ensembles(self) -> dict[str, list[Step]]:
        """The steps of each ensemble; models with an unreadable configuration are omitted."""
        found = {}
        for name, model in self.models.items():
            try:
                found[name] = model.steps
            except (PipelineError, OSError):
                continue
        return {name: steps for name, steps in found.items() if steps}

    @cached_property
    def pipelines(self) -> dict[str, Version]:
        """For each model with a pipeline, the newest version that Triton serves."""
        newest = {name: self.version_of(Step(name, {}, {})) for name in self.models}
        return {name: version for name, version in newest.items() if version and version.has(PIPELINE_FILE)}

    def version_of(self, step: Step) -> Version | None:
        """The version that a step of an ensemble names; None if Triton does not serve it, or it is unknown."""
        model = self.models.get(step.model)
        try:
            served = model.served if model else {}
        except (PipelineError, OSError):
            return None
        return served.get(max(served, default=0) if step.version == -1 else step.version)


@dataclass(eq=False, repr=False)
class Model:
    """A model in its directory.

    Args:
        folder: Directory of the model.
        root: Resolved path of the repository, out of which links may not lead; None: links may lead anywhere.
    """

    folder: Path
    _: KW_ONLY
    root: Path | None = None

    @property
    def name(self) -> str:
        """Name of the model."""
        return self.folder.name

    @property
    def where(self) -> str:
        """Path of its configuration inside the repository."""
        return f"{self.name}/{CONFIG_FILE}"

    @cached_property
    def strays(self) -> list[Path]:
        """Paths that lead out of the repository: a copy of it, or a container where it is mounted, would lack them."""
        return list(_strays(self.folder, self.root)) if self.root else []

    @cached_property
    def text(self) -> str | None:
        """Text of its ``config.pbtxt``, or None if the file does not exist."""
        path = self.folder / CONFIG_FILE
        if self.strays:
            raise PipelineError(f"{self.strays[0]}: leads out of the repository: put a copy there")
        if not os.path.lexists(path):
            return None
        try:
            content = read_bytes(path, most=_MAX_BYTES)
            if len(content) > _MAX_BYTES:
                raise PipelineError(f"{CONFIG_FILE}: has over {_MAX_BYTES:,} bytes, which no configuration needs")
            return content.decode()
        except OSError as error:
            raise PipelineError(f"{CONFIG_FILE}: cannot be read: {error.strerror}") from None
        except UnicodeDecodeError as error:
            raise PipelineError(f"{CONFIG_FILE}: cannot be parsed: {error}") from None

    @cached_property
    def config(self) -> Config:
        """Its ``config.pbtxt`` in JSON form, or ``{}`` if the file does not exist."""
        return {} if self.text is None else pbtxt.parse(self.text)

    @property
    def is_unchanged(self) -> bool | None:
        """Return whether nobody has changed the configuration since ``build`` wrote it; None: it did not write it."""
        try:
            return pbtxt.is_unchanged(self.text or "")
        except PipelineError:
            return None

    @property
    def options(self) -> model_config.Options:
        """The parameters of a pixprep model."""
        return model_config.options(self.config)

    @property
    def steps(self) -> list[Step]:
        """The steps of an ensemble in their order; empty for a model that is not an ensemble."""
        found = []
        for step in model_config.steps(self.config):
            inputs, outputs = (dict(sorted(step.get(f"{side}_map", {}).items())) for side in ("input", "output"))
            found.append(Step(step.get("model_name", ""), inputs, outputs, int(step.get("model_version", 0))))
        return found

    @cached_property
    def versions(self) -> dict[int, Version]:
        """Its versions by number, in their order: as for Triton, the directories whose names begin with a number."""
        found: dict[int, Version] = {}
        for path in self.folder.iterdir():
            begin = re.match(r"\s*[+-]?[0-9]+", path.name, re.ASCII)
            if begin is None or (path.name[0] == "0" and path.name != "0") or not path.is_dir():
                continue  # Triton ignores numbers with leading zeros
            version = Version(self, int(begin[0]), path.name)
            if version.number not in found or path == version.folder:
                found[version.number] = version
        return dict(sorted(found.items()))

    @cached_property
    def served(self) -> dict[int, Version]:
        """The versions that Triton serves: the newest, unless ``version_policy`` names others."""
        policy, numbers = self.config.get("version_policy", {}), list(self.versions)
        if "specific" in policy:
            wanted = [int(number) for number in policy["specific"].get("versions", [])]
        else:
            latest = int(policy["latest"].get("num_versions", 0)) if "latest" in policy else 1
            wanted = numbers if "all" in policy else numbers[max(0, len(numbers) - latest) :]
        return {number: version for number, version in self.versions.items() if number in wanted}

    @property
    def newest(self) -> Version | None:
        """The newest version that Triton serves."""
        return self.served[max(self.served)] if self.served else None


@dataclass(eq=False, repr=False)
class Version:
    """A version of a model: its number, and the name of its directory."""

    model: Model
    number: int
    name: str

    @property
    def folder(self) -> Path:
        """Directory in which Triton looks for the files, whatever the name of the directory that is there."""
        return self.model.folder / str(self.number)

    def where(self, file: str) -> str:
        """Path of a file inside the repository."""
        return f"{self.model.name}/{self.number}/{file}"

    def has(self, file: str) -> bool:
        """Return whether the version has such a file."""
        return (self.folder / file).exists()

    @cached_property
    def pipeline(self) -> Pipeline:
        """Its pipeline, with the installed operators that the configuration allows."""
        return Pipeline.load(self.folder / PIPELINE_FILE, operators=self.model.options.allow_operators)

    @cached_property
    def declared(self) -> Declared:
        """Its inputs and outputs, with everything filled in that a pipeline implies."""
        config = self.model.config
        return Declared(
            model_config.complete(config, self.pipeline.for_serving()) if self.has(PIPELINE_FILE) else config
        )

    @cached_property
    def graph(self) -> Any:
        """The ``onnx.ModelProto`` in its ONNX file, without weights."""
        if self.model.strays:
            raise PipelineError(f"{self.model.strays[0]}: leads out of the repository: put a copy there")
        return without_weights(load_onnx(self.folder / ONNX_FILE)[1])

    @cached_property
    def onnx(self) -> Classifier:
        """The inputs and outputs that its ONNX file declares."""
        return declared(self.graph, ONNX_FILE)

    @cached_property
    def plan_fault(self) -> str:
        """Problem of a ``model.plan`` that is not a plan; empty if it is one, or if it is missing."""
        path = self.folder / PLAN_FILE
        return plan_fault(read_bytes(path, most=PLAN_BYTES)) if path.is_file() else ""


def models_in(repository: Path) -> list[str]:
    """The names of the models of a repository: its folders that are not hidden; empty if it does not exist."""
    folders = repository.iterdir() if repository.is_dir() else ()
    return sorted(path.name for path in folders if path.is_dir() and not path.name.startswith("."))


def _strays(path: Path, root: Path, depth: int = 2) -> Iterator[Path]:
    """Yield paths that lead out of the repository: a model's directory, its version directories, and their files."""
    if not Path(os.path.realpath(path)).is_relative_to(root):
        yield path
    elif depth and path.is_dir():
        for entry in sorted(path.iterdir()):
            yield from _strays(entry, root, depth - 1)
