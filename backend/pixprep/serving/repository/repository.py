"""Provides a read-only view of a model repository, as Triton interprets the repository.

Each file is read when it is first needed, and its content is cached. After a change to the files, a new ``Repository``
must be created. Properties raise ``PipelineError`` or ``OSError`` if a file is invalid or cannot be read, and
``SetupError`` if tritonclient, onnx or a custom operator is not installed.
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
from pixprep.serving.repository.ports import PLAN_BYTES, Classifier, declared, load_onnx, without_weights
from pixprep.serving.triton import config as model_config
from pixprep.serving.triton.config import CONFIG_FILE, PIPELINE_FILE, Config

ONNX_FILE, PLAN_FILE = "model.onnx", "model.plan"
_MAX_BYTES = 256 << 10  # maximum size of a configuration: parsing a larger one takes seconds


@dataclass(eq=False, repr=False)
class Repository:
    """Model repository in a folder. The folder does not have to exist."""

    folder: Path

    @classmethod
    def at(cls, folder: Path | Repository) -> Repository:
        """Return the repository in a folder. If the argument is already a ``Repository``, return it unchanged."""
        return folder if isinstance(folder, Repository) else cls(folder)

    @cached_property
    def models(self) -> dict[str, Model]:
        """All models of the repository by name."""
        root = Path(os.path.realpath(self.folder))
        return {name: Model(self.folder / name, root=root) for name in models_in(self.folder)}

    @cached_property
    def ensembles(self) -> dict[str, list[Step]]:
        """Steps of each ensemble by name. Models whose configuration cannot be read are omitted."""
        found = {}
        for name, model in self.models.items():
            try:
                found[name] = model.steps
            except (PipelineError, OSError):
                continue
        return {name: steps for name, steps in found.items() if steps}

    @cached_property
    def pipelines(self) -> dict[str, Version]:
        """Newest served version of each model with a pipeline, by the name of the model."""
        newest = {name: self.version_of(Step(name, {}, {})) for name in self.models}
        return {name: version for name, version in newest.items() if version and version.has(PIPELINE_FILE)}

    def version_of(self, step: Step) -> Version | None:
        """Return the model version that a step uses, or None if it is unknown or Triton does not serve it."""
        model = self.models.get(step.model)
        try:
            served = model.served if model else {}
        except (PipelineError, OSError):
            return None
        return served.get(max(served, default=0) if step.version == -1 else step.version)


@dataclass(eq=False, repr=False)
class Model:
    """One model of a repository.

    Args:
        folder: Directory of the model.
        root: Resolved path of the repository. Links must not point outside of this path. None means that links are not
            checked.
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
        """Path of the configuration, relative to the repository."""
        return f"{self.name}/{CONFIG_FILE}"

    @cached_property
    def strays(self) -> list[Path]:
        """Links to paths outside the repository. A container that only mounts the repository lacks these paths."""
        return list(_strays(self.folder, self.root)) if self.root else []

    @cached_property
    def text(self) -> str | None:
        """Text of ``config.pbtxt``, or None if the file does not exist."""
        path = self.folder / CONFIG_FILE
        if self.strays:
            raise PipelineError(f"{self.strays[0]} links to a path outside the repository: replace it with a copy")
        if not os.path.lexists(path):
            return None
        try:
            content = read_bytes(path, max_bytes=_MAX_BYTES)
            if len(content) > _MAX_BYTES:
                raise PipelineError(f"{CONFIG_FILE}: the file exceeds the limit of {_MAX_BYTES:,} bytes")
            return content.decode()
        except OSError as error:
            raise PipelineError(f"{CONFIG_FILE}: cannot be read: {error.strerror}") from None
        except UnicodeDecodeError as error:
            raise PipelineError(f"{CONFIG_FILE}: cannot be parsed: {error}") from None

    @cached_property
    def config(self) -> Config:
        """Configuration in JSON form, or ``{}`` if ``config.pbtxt`` does not exist."""
        return {} if self.text is None else pbtxt.parse(self.text)

    @property
    def is_unchanged(self) -> bool | None:
        """Whether the configuration is unchanged since ``build`` wrote it, or None if ``build`` did not write it."""
        try:
            return pbtxt.is_unchanged(self.text or "")
        except PipelineError:
            return None

    @property
    def options(self) -> model_config.Options:
        """Parameters of a pixprep model."""
        return model_config.options(self.config)

    @property
    def steps(self) -> list[Step]:
        """Steps of an ensemble in the order of the configuration; empty for other models."""
        found = []
        for step in model_config.steps(self.config):
            inputs, outputs = (dict(sorted(step.get(f"{side}_map", {}).items())) for side in ("input", "output"))
            found.append(Step(step.get("model_name", ""), inputs, outputs, int(step.get("model_version", 0))))
        return found

    @cached_property
    def versions(self) -> dict[int, Version]:
        """Versions by number, in ascending order. As in Triton, they are the directories that begin with a number."""
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
        """Versions that Triton serves: those that ``version_policy`` selects, by default the newest one."""
        policy, numbers = self.config.get("version_policy", {}), list(self.versions)
        if "specific" in policy:
            wanted = [int(number) for number in policy["specific"].get("versions", [])]
        else:
            latest = int(policy["latest"].get("num_versions", 0)) if "latest" in policy else 1
            wanted = numbers if "all" in policy else numbers[max(0, len(numbers) - latest) :]
        return {number: version for number, version in self.versions.items() if number in wanted}

    @property
    def newest(self) -> Version | None:
        """Newest version that Triton serves."""
        return self.served[max(self.served)] if self.served else None


@dataclass(eq=False, repr=False)
class Version:
    """One version of a model.

    Args:
        model: Model of the version.
        number: Version number.
        name: Name of the directory, which may have text after the number.
    """

    model: Model
    number: int
    name: str

    @property
    def folder(self) -> Path:
        """Directory from which Triton loads the files. Its name is the version number, even if ``name`` differs."""
        return self.model.folder / str(self.number)

    def where(self, file: str) -> str:
        """Return the path of a file of this version, relative to the repository."""
        return f"{self.model.name}/{self.number}/{file}"

    def has(self, file: str) -> bool:
        """Return whether a file of this version exists."""
        return (self.folder / file).exists()

    @cached_property
    def pipeline(self) -> Pipeline:
        """Pipeline of the version. It may call the custom operators that the configuration allows."""
        return Pipeline.load(self.folder / PIPELINE_FILE, operators=self.model.options.allow_operators)

    @cached_property
    def declared(self) -> Declared:
        """Declared inputs and outputs of the model, including the inputs and outputs that its pipeline determines."""
        config = self.model.config
        return Declared(
            model_config.complete(config, self.pipeline.for_serving()) if self.has(PIPELINE_FILE) else config
        )

    @cached_property
    def graph(self) -> Any:
        """``onnx.ModelProto`` of the ONNX file, without the values of large weights."""
        if self.model.strays:
            raise PipelineError(
                f"{self.model.strays[0]} links to a path outside the repository: replace it with a copy"
            )
        return without_weights(load_onnx(self.folder / ONNX_FILE)[1])

    @cached_property
    def onnx(self) -> Classifier:
        """Inputs and outputs of the ONNX file."""
        return declared(self.graph, ONNX_FILE)

    @cached_property
    def plan_head(self) -> bytes | None:
        """First bytes of the file ``model.plan``, or None if the file does not exist."""
        path = self.folder / PLAN_FILE
        return read_bytes(path, max_bytes=PLAN_BYTES) if path.is_file() else None


def models_in(repository: Path) -> list[str]:
    """Return the names of the models in a repository, which are the names of its folders except hidden folders.

    The result is empty if the repository does not exist.
    """
    folders = repository.iterdir() if repository.is_dir() else ()
    return sorted(path.name for path in folders if path.is_dir() and not path.name.startswith("."))


def _strays(path: Path, root: Path, depth: int = 2) -> Iterator[Path]:
    """Yield links of a model to paths outside the repository: its directory, its versions, and the files in both."""
    if not Path(os.path.realpath(path)).is_relative_to(root):
        yield path
    elif depth and path.is_dir():
        for entry in sorted(path.iterdir()):
            yield from _strays(entry, root, depth - 1)
