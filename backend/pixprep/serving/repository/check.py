"""Finds problems in the files of a model repository, without a server and without loading a model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from pixprep.engine.decoders.pillow import prepare_avif
from pixprep.errors import PipelineError, PixprepError, SetupError, install, needed
from pixprep.pipeline.pipeline import Pipeline
from pixprep.pipeline.warnings import odd_ranges, unlike_sides
from pixprep.serving.repository.backend import onnx_classifier
from pixprep.serving.repository.door import Door, door_notes, onnx_inputs_in
from pixprep.serving.repository.models import Problem, Tensor, suggest
from pixprep.serving.repository.ports import check_data_files, plan_fault, plan_version
from pixprep.serving.repository.repository import ONNX_FILE, PLAN_FILE, Model, Repository, Version
from pixprep.serving.repository.running_code import code_in
from pixprep.serving.repository.tensorrt import Profile, ask, can_ask
from pixprep.serving.repository.warmups import check_warmups
from pixprep.serving.repository.wiring import check_ensemble
from pixprep.serving.triton import config as model_config
from pixprep.serving.triton.config import CONFIG_FILE, Config

_MAX_INSTANCES = 1024
"""Maximum number of instances of a model. An instance is a process or a thread that may need a copy of the model."""
ODD_RANGE = "pass --odd-range if this is intended"
_FOREIGN_FOLDERS = {
    "lost+found": "a folder of the volume's file system",
    "System Volume Information": "a folder of the volume's file system",
    "$RECYCLE.BIN": "a folder of the volume's file system",
    "@eaDir": "a folder of the storage device",
    "__MACOSX": "a folder of an archive made by macOS",
    "__pycache__": "a folder of Python",
}
"""Descriptions of folders that other programs create in a model repository, by the name of the folder."""
# for each backend: the file that it loads from a version directory, and how to create this file
_FILES = {
    "pixprep": (model_config.PIPELINE_FILE, "write the pipeline to this file"),
    "onnxruntime": (ONNX_FILE, "copy the ONNX file to this path"),
    "tensorrt": ("model.plan", "build it with trtexec on the machine that will serve it"),
    "python": ("model.py", "write the Python model to this file"),
}
# backend of a model whose configuration does not specify a backend, by the name of its model file
_BACKENDS = {"model.onnx": "onnxruntime", "model.plan": "tensorrt", "model.pt": "pytorch", "model.xml": "openvino"} | {
    "model.savedmodel": "tensorflow",
    "model.py": "python",
}


def check(repository: Path | Repository, *, tensorrt: bool = False) -> list[Problem]:
    """Find problems that prevent a model repository from loading, or its ensembles from working.

    If TensorRT for RTX is installed, its ONNX parser checks each model that TensorRT will serve and whose plan has not
    been built yet.

    Args:
        repository: The repository, or its path.
        tensorrt: Whether TensorRT's parser checks all ONNX files, including those that ONNX Runtime serves.

    Returns:
        The problems, ordered by model, or an empty list for a valid repository.

    Raises:
        SetupError: A required package is not installed: tritonclient (to parse config.pbtxt), onnx or, if ``tensorrt``
            is true, TensorRT for RTX.
    """
    if tensorrt and not can_ask():
        raise SetupError(
            f"checking a repository with TensorRT's parser requires TensorRT for RTX: {install('tensorrt')}"
        )
    repository = Repository.at(repository)
    if wrong := not_a_repository(repository.folder):
        return [wrong]
    if not repository.models:
        return [Problem(repository.folder.name, "does not contain a model", "write one with `pixprep build`")]
    problems = [problem for find in CHECKS for problem in find(repository)]
    return [*problems, *(check_for_tensorrt(repository, checks_all=tensorrt) if can_ask() else ())]


def not_a_repository(folder: Path) -> Problem | None:
    """Return a problem if the folder is a model or a version of a model, instead of a repository."""
    if (folder / CONFIG_FILE).is_file() or any(folder.glob(f"[0-9]*/{model_config.PIPELINE_FILE}")):
        parent = folder.parent if folder.name else Path("..")
        return Problem(folder.name, "is a model, not a repository", f"pass its repository, {parent}")
    if (folder / model_config.PIPELINE_FILE).is_file() and folder.resolve().name.isdecimal():
        remedy = f"pass its repository, {folder.resolve().parents[1]}"
        return Problem(folder.name, "is a version of a model, not a repository", remedy)
    return None


def check_models(repository: Repository) -> Iterator[Problem]:
    """Find the problems within each model of a repository."""
    for model in repository.models.values():
        if model.name in _FOREIGN_FOLDERS:
            what = f"is {_FOREIGN_FOLDERS[model.name]}, which Triton treats as a model"
            yield Problem(model.name, what, "move the models to a separate folder, such as models/, and serve that")
            continue
        try:
            if model.strays:
                for path in model.strays:
                    where = path.relative_to(repository.folder).as_posix()
                    yield Problem(where, "links to a path outside the repository", "replace it with a copy")
            else:
                yield from _check_model(model)
        except OSError as error:
            yield Problem(model.name, f"cannot be read: {error.strerror}", f"{error.filename}")


def check_ensembles(repository: Repository) -> Iterator[Problem]:
    """Find ensembles whose steps do not match each other."""
    for model in repository.models.values():
        with suppress(PipelineError, OSError):  # reported as a problem of the model
            if "ensemble_scheduling" in model.config:
                yield from check_ensemble(model, repository)


def check_for_tensorrt(repository: Repository, *, checks_all: bool) -> Iterator[Problem]:
    """Find ONNX files that TensorRT's parser rejects.

    Args:
        repository: The repository.
        checks_all: Whether all ONNX files are checked. If False, only files that TensorRT will serve and
            whose plan does not exist are checked.
    """
    for model in repository.models.values():
        with suppress(PipelineError, OSError):  # reported as a problem of the model
            is_awaited = _backend(model) == "tensorrt"
            for version in model.served.values():
                if version.has(ONNX_FILE) and (checks_all or (is_awaited and not version.has(PLAN_FILE))):
                    types = {
                        name: tensor.data_type
                        for tensors in version.declared.tensors.values()
                        for name, tensor in tensors.items()
                    }
                    answer = ask(version.folder / ONNX_FILE, _profile(version), types)
                    yield from (Problem(version.where(ONNX_FILE), what, fix) for what, fix in answer.problems)


def _profile(version: Version) -> Profile | None:
    """Return the shapes that the configuration allows, or None if it does not limit them."""
    declared, most = version.declared.tensors.get("input", {}), version.declared.max_batch_size
    shapes = {
        port.name: declared[port.name].shape
        for port in version.onnx.inputs
        if -1 in (port.shape or ()) and port.name in declared
    }
    rows = [(batch,) if most else () for batch in (1, max(1, most // 2), most)]
    sizes = {name: (shape or ())[most > 0 :] for name, shape in shapes.items()}
    is_open = any(-1 in size for size in sizes.values())
    return None if is_open else {name: [(*row, *size) for row in rows] for name, size in sizes.items()}


CHECKS: tuple[Callable[[Repository], Iterator[Problem]], ...] = (check_models, check_ensembles)
"""Checks that ``check`` runs, in this order."""


def check_pipeline(path: Path, *, odd_range: bool = False) -> list[Problem]:
    """Find the problems of a pipeline file: its first error, or all unusual value ranges.

    Args:
        path: Path of the pipeline file.
        odd_range: Whether to accept unusual value ranges.
    """
    if path.name == CONFIG_FILE:
        remedy = f"pass its repository, {path.resolve().parents[1]}"
        return [Problem(path.name, "is the configuration of a model, not a pipeline file", remedy)]
    try:
        pipeline = Pipeline.load(path)
    except PipelineError as error:
        return [_problem(path.name, error)]
    return [] if odd_range else [Problem(path.name, text, f"or {ODD_RANGE}") for text in odd_ranges(pipeline)]


def remarks(pipeline: Pipeline, *, asks: bool = True) -> list[str]:
    """Return notes about tensors that are resized differently in training, required numeric inputs, and variable sizes.

    Args:
        pipeline: Pipeline that is served.
        asks: Whether clients must send the numeric inputs. If False, a preceding model computes these inputs.
    """
    numbers = ", ".join(f'"{name}" {spec}' for name, spec in pipeline.inputs.items())
    specs = {name: output.spec for name, output in pipeline.outputs.items()}
    return [
        *unlike_sides(pipeline),
        *([f"clients must send {numbers} with each image"] if numbers and asks else []),
        *(f'the size of "{name}" depends on the image: {spec}' for name, spec in specs.items() if spec.is_open),
    ]


def missing_decoders(config: Mapping[str, Any]) -> list[str]:
    """Return notes about configured image formats that this machine cannot decode. The server may support them."""
    formats, notes = model_config.options(config).engine.limits.formats, []
    for name, find in (("avif", prepare_avif), ("heic", lambda: needed("heic"))):
        try:
            _ = find() if name in formats else None
        except SetupError as error:
            notes.append(f"this machine cannot serve the model: {error}")
    return notes


def side_notes(path: Path | Repository, *, odd_range: bool = False) -> list[str]:
    """Return notes about each pipeline of a repository, or about a pipeline file.

    The notes describe ops that are omitted in serving, differences from training, required numeric inputs, and
    normalization or resizing that the next model repeats or that is missing. For a repository, the last notes list all
    files that contain code.

    Args:
        path: Path of the repository or of the pipeline file.
        odd_range: Whether to accept unusual value ranges. The parameter ``odd_range`` of a model has the same effect.
    """
    notes: list[str] = []
    if isinstance(path, Path) and not path.is_dir():
        with suppress(PipelineError, SetupError):  # reported as a problem
            notes += _pipeline_notes(path, Pipeline.load(path), odd_range=odd_range)
        return notes
    repository = Repository.at(path)
    takers = onnx_inputs_in(repository)
    for model, version in repository.pipelines.items():
        with suppress(PipelineError, SetupError):
            notes += [f"{version.model.folder}: {each}" for each in missing_decoders(version.model.config)]
            is_meant = odd_range or version.model.options.engine.odd_range
            file = version.folder / model_config.PIPELINE_FILE
            notes += _pipeline_notes(file, version.pipeline, takers.get(model, ()), odd_range=is_meant)
    for each in repository.models.values():
        with suppress(PipelineError, OSError):
            for version in each.served.values():
                if built_by := plan_version(version.plan_head or b""):
                    where = version.folder / PLAN_FILE
                    notes.append(f"{where}: built by TensorRT {built_by}; the server must have the same version")
    return notes + code_in(repository)


def _pipeline_notes(file: Path, pipeline: Pipeline, takers: Iterable[Door] = (), *, odd_range: bool) -> Iterator[str]:
    is_served = "serving" in pipeline.sides
    note = pipeline.left_out if is_served else "the pipeline is for training only and has no serving side"
    yield from (f"{file}: {each}" for each in (note, *remarks(pipeline)) if each)
    if is_served:
        yield from door_notes(pipeline.for_serving(), takers, own=f"{file}: ", odd_range=odd_range)


def _problem(where: str, error: PixprepError) -> Problem:
    """Convert an error to a problem, and remove the file name at the beginning of its message."""
    return Problem(where, str(error).removeprefix(f"{Path(where).name}: "))


def _check_model(model: Model) -> Iterator[Problem]:
    """Find problems within one model."""
    try:
        config, served = model.config, model.served
    except PipelineError as error:
        yield _problem(model.where, error)
        return
    if config.get("name", model.name) != model.name:
        remedy = f'write name: "{model.name}", or remove the field'
        yield Problem(model.where, f'name is "{config["name"]}", but the directory is {model.name}', remedy)
    if not model.versions:
        yield Problem(model.name, "has no version directory", f"create {model.name}/1")
    elif not served:
        yield Problem(
            model.where, "version_policy does not select an existing version", "remove it to serve the newest version"
        )
    for version in served.values():
        if not version.folder.is_dir():
            what = f"is read as version {version.number}, but Triton then opens {model.name}/{version.number}"
            yield Problem(
                f"{model.name}/{version.name}", what, "rename it to that number, or to a name that begins with a letter"
            )
    served = {number: version for number, version in served.items() if version.folder.is_dir()}
    backend = _backend(model)
    if not backend:
        what = "does not specify the backend of the model" if config else "is missing"
        yield Problem(model.where, what, 'for a pixprep model, write backend: "pixprep"')
    if backend in _FILES and "cc_model_filenames" not in config:
        usual, remedy = _FILES[backend]
        file = usual if backend == "pixprep" else config.get("default_model_filename", usual)
        for version in served.values():
            yield from _missing(version.folder, version.where(file), file, remedy)
    for entry in config.get("output", []):
        if name := entry.get("label_filename", ""):
            remedy = f'write the labels of output "{entry["name"]}" to this file'
            yield from _missing(model.folder, f"{model.name}/{name}", name, remedy)
    yield from _check_fields(model, config, backend)
    if backend == "pixprep" and config.get("model_transaction_policy", {}).get("decoupled"):
        what = "model_transaction_policy: with decoupled, Triton rejects every request without streaming"
        yield Problem(model.where, what, "remove it, because a pixprep model has one response per request")
    check_version = _check_pixprep if backend == "pixprep" else _check_onnx
    for version in served.values():
        yield from check_version(version, backend)
        if backend == "tensorrt" and version.plan_head is not None and (fault := plan_fault(version.plan_head)):
            yield Problem(version.where(PLAN_FILE), fault)


def _check_fields(model: Model, config: Config, backend: str) -> Iterator[Problem]:
    """Find problems in fields that have the same meaning for every backend."""
    if (batch := config.get("max_batch_size", 0)) < 0 and backend != "pixprep":  # pixprep has its own check
        yield Problem(
            model.where,
            f"max_batch_size is {batch}, which is negative",
            "write the maximum number of images per batch, or 0",
        )
    if "instance_group" in config and "ensemble_scheduling" in config:
        yield Problem(
            model.where, "instance_group is not supported for an ensemble", "set it in the models of its steps"
        )
    elif (instances := model_config.count_instances(config)) > _MAX_INSTANCES:
        what = f"instance_group: {instances:,} instances are too many, because each one loads the model"
        yield Problem(model.where, what, f"write a count of at most {_MAX_INSTANCES:,}")


def _missing(folder: Path, where: str, name: str, remedy: str) -> Iterator[Problem]:
    """Yield a problem if a file that the configuration refers to is missing or is outside the model's directory."""
    if Path(name).is_absolute() or ".." in Path(name).parts:
        yield Problem(where, "is outside the model's directory", "move the file into it")
    elif not (folder / name).exists():
        yield Problem(where, "is missing", remedy)


def _backend(model: Model) -> str:
    """Return the name of the backend, or ``""`` if it is unknown.

    As in Triton, the backend is determined from the configuration, the suffix of the directory, or the name of the
    model's file.
    """
    if "platform" in model.config:
        return str(model.config["platform"]).partition("_")[0]  # such as tensorrt_plan
    if model.config.get("backend") or "." in model.name:
        return str(model.config.get("backend") or model.name.rpartition(".")[2])
    names = {path.name for version in model.versions.values() for path in version.folder.iterdir()}
    return next((backend for file, backend in _BACKENDS.items() if file in names), "")


def _check_pixprep(version: Version, _backend: str) -> Iterator[Problem]:
    """Find problems with a pipeline, and contradictions between the pipeline and its configuration."""
    if not version.has(model_config.PIPELINE_FILE):
        return
    file, where = version.where(model_config.PIPELINE_FILE), version.model.where
    try:
        is_meant = version.model.options.engine.odd_range
        where = file
        odd = odd_ranges(version.pipeline.for_serving())
        where = version.model.where
        config = version.declared.config
        remedy = f'or set the parameter odd_range to "meant" in {where}'
        yield from (Problem(file, text, remedy) for text in odd if not is_meant)
        check_warmups(version.model.folder, config, version.pipeline.for_serving())
    except (PipelineError, SetupError) as error:
        yield _problem(where, error)


def _check_onnx(version: Version, backend: str) -> Iterator[Problem]:
    """Compare the declared inputs and outputs with the ONNX file, from which the TensorRT plan may have been built."""
    where = version.where(ONNX_FILE)
    if backend == "python":
        script = version.folder / "model.py"
        text = onnx_classifier().encode()
        if not script.is_file() or script.stat().st_size != len(text) or script.read_bytes() != text:
            return
        remedy = "write it with `pixprep build`; it is too large for git"
        yield from _missing(version.folder, where, ONNX_FILE, remedy)
    if not version.has(ONNX_FILE) or backend not in ("python", "onnxruntime", "tensorrt"):
        return
    try:
        onnx = version.onnx
        if backend != "tensorrt":  # a plan contains its weights
            check_data_files(version.graph, version.folder, ONNX_FILE, allows_links=True)
    except PipelineError as error:
        yield _problem(where, error)
        return
    ours = version.declared
    for side, tensors in (("input", onnx.inputs), ("output", onnx.outputs)):
        found = {tensor.name: tensor for tensor in tensors}
        declared = ours.tensors.get(side, found)
        for name in found if side == "input" else ():
            if name not in declared:
                yield Problem(version.model.where, f'input "{name}" of {ONNX_FILE} is not declared', "declare it")
        for name, tensor in declared.items():
            if name not in found:
                what = f'{side} "{name}" does not exist in {ONNX_FILE}'
                yield Problem(version.model.where, what, suggest(name, found))
            elif tensor.data_type != found[name].data_type or not _within(tensor, found[name], ours.max_batch_size):
                what = f'{side} "{name}" is declared as {tensor}, but is {found[name]} in {ONNX_FILE}'
                yield Problem(version.model.where, what, f"declare the same as {ONNX_FILE}")


def _within(declared: Tensor, tensor: Tensor, max_batch_size: int) -> bool:
    """Return whether the ONNX file accepts every shape of a tensor that the configuration allows."""
    if declared.shape is None or tensor.shape is None:
        return tensor.shape is None
    ours = (1, *declared.shape[1:]) if max_batch_size == 1 else declared.shape
    return len(ours) == len(tensor.shape) and all(b in (-1, a) for a, b in zip(ours, tensor.shape, strict=True))
