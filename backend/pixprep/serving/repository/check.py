"""Problems of a model repository, found in its files: no server, no model is loaded."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from filecmp import cmp
from pathlib import Path
from typing import Any

from pixprep.engine.decoders.pillow import heic_opener, prepare_avif
from pixprep.errors import PipelineError, SetupError
from pixprep.pipeline.pipeline import Pipeline
from pixprep.pipeline.warnings import odd_ranges, unlike_sides
from pixprep.serving.repository.door import door_notes, doors_in
from pixprep.serving.repository.models import Model, Problem, Tensor, suggest
from pixprep.serving.repository.ports import read_onnx
from pixprep.serving.repository.wiring import check_ensemble
from pixprep.serving.triton import config as model_config
from pixprep.serving.triton.config import CONFIG_FILE
from pixprep.serving.triton.model_files import newest_pipelines, pipeline_files, read_config, read_pipeline

ODD_RANGE = "--odd-range if it is meant"
_ONNX_FILE = "model.onnx"
ONNX_CLASSIFIER = Path(__file__).with_name("onnx_classifier.py")
# what Triton loads from a version directory, and who makes it
_FILES = {
    "pixprep": (model_config.PIPELINE_FILE, "write the pipeline there"),
    "onnxruntime": (_ONNX_FILE, "copy the ONNX file there"),
    "tensorrt": ("model.plan", "make it there with trtexec, on the machine that will serve it"),
    "python": ("model.py", "write the Python model there"),
}
# what runs a model whose configuration does not say it, by the name of its file
_BACKENDS = {"model.onnx": "onnxruntime", "model.plan": "tensorrt", "model.pt": "pytorch", "model.xml": "openvino"} | {
    "model.savedmodel": "tensorflow",
    "model.py": "python",
}


def check(repository: Path) -> list[Problem]:
    """Everything that keeps a model repository from loading, or its ensembles from working.

    Returns:
        The problems, model by model; none for a valid repository.

    Raises:
        SetupError: tritonclient, which knows the fields of config.pbtxt, or onnx is not installed.
    """
    if (repository / CONFIG_FILE).is_file() or any(repository.glob(f"[0-9]*/{model_config.PIPELINE_FILE}")):
        parent = repository.parent if repository.name else Path("..")
        return [Problem(repository.name, "is a model, not a repository", f"its repository is {parent}")]
    if (repository / model_config.PIPELINE_FILE).is_file() and _is_version(repository.resolve().name):
        remedy = f"its repository is {repository.resolve().parents[1]}"
        return [Problem(repository.name, "is a version of a model, not a repository", remedy)]
    folders = sorted(path for path in repository.iterdir() if path.is_dir() and not path.name.startswith("."))
    if not folders:
        return [Problem(repository.name, "holds no model", "write one with `pixprep build`")]
    problems: list[Problem] = []
    models: dict[str, Model | None] = {}  # None: exists, but there is no telling what it is
    root = Path(os.path.realpath(repository))
    for folder in folders:
        models[folder.name] = None
        try:
            strays = list(_strays(folder, root))
            problems += [
                Problem(path.relative_to(repository).as_posix(), "leads out of the repository", "put a copy there")
                for path in strays
            ]
            if not strays:
                models[folder.name] = _read(folder, problems)
        except OSError as error:
            problems.append(Problem(folder.name, f"cannot be read: {error.strerror}", f"{error.filename}"))
    for model in models.values():
        if model and "ensemble_scheduling" in model.config:
            problems += check_ensemble(model, models)
    return problems


def _strays(path: Path, root: Path, depth: int = 2) -> Iterator[Path]:
    """Paths that lead out of the repository: a copy of it, or a container where it is mounted, would lack them.

    Args:
        path: a model's directory.
        root: the repository, resolved.
        depth: a model's version directories are 1 below it, their files 2.
    """
    if not Path(os.path.realpath(path)).is_relative_to(root):
        yield path
    elif depth and path.is_dir():
        for entry in sorted(path.iterdir()):
            yield from _strays(entry, root, depth - 1)


def check_pipeline(path: Path, *, odd_range: bool = False) -> list[Problem]:
    """Problems of a pipeline file: the first one, or each range of values that is hardly meant.

    Args:
        path: of the file.
        odd_range: such ranges are meant.
    """
    if path.name == CONFIG_FILE:
        remedy = f"check its repository, {path.resolve().parents[1]}"
        return [Problem(path.name, "is the configuration of a model, not a pipeline file", remedy)]
    try:
        pipeline = Pipeline.load(path)
    except PipelineError as error:
        return [_problem(path.name, error)]
    return [] if odd_range else [Problem(path.name, text, f"or say {ODD_RANGE}") for text in odd_ranges(pipeline)]


def remarks(pipeline: Pipeline) -> list[str]:
    """The tensors that training resizes otherwise, the numbers that clients are to send, and the sides left open."""
    such = ", ".join(f'"{name}" {spec}' for name, spec in pipeline.inputs.items())
    specs = {name: output.spec for name, output in pipeline.outputs.items()}
    return [
        *unlike_sides(pipeline),
        *([f"asks its clients for {such} with each image"] if such else []),
        *(f'the sides of "{name}" follow the image: {spec}' for name, spec in specs.items() if spec.is_open),
    ]


def lacking(config: Mapping[str, Any]) -> list[str]:
    """The decoders that this machine lacks for the formats of a configuration; the server's may have them."""
    formats, notes = model_config.options(config).engine.limits.formats, []
    for name, find in (("avif", prepare_avif), ("heic", heic_opener)):
        try:
            _ = find() if name in formats else None
        except SetupError as error:
            notes.append(f"this machine would not serve it: {error}")
    return notes


def side_notes(path: Path, *, odd_range: bool = False) -> list[str]:
    """Notes on each pipeline of a repository, or on a pipeline file.

    They are: what serving leaves out, what it does otherwise, what it asks of clients, what the model behind it would
    do twice or miss.

    Args:
        path: of the repository, or of the file.
        odd_range: levels are meant, in a repository too, whose parameter ``odd_range`` says so for good.
    """
    notes = []
    files, behind = (pipeline_files(path), doors_in(path)) if path.is_dir() else ([path], {})
    newest = [*newest_pipelines(path).values()] if path.is_dir() else files
    for file in files:
        folder = file.parent.parent
        if path.is_dir():
            with suppress(PipelineError, SetupError):
                notes += [f"{folder}: {each}" for each in lacking(read_config(folder))]
        with suppress(PipelineError, SetupError):  # which is a problem, and said as such
            pipeline = read_pipeline(file) if path.is_dir() else Pipeline.load(file)
            is_served = "serving" in pipeline.sides
            note = pipeline.left_out if is_served else "no serving side: it is for training alone"
            notes += [f"{file}: {each}" for each in (note, *remarks(pipeline)) if each]
            if is_served and file in newest:
                settings = model_config.options(read_config(folder) if path.is_dir() else {})
                is_meant = odd_range or settings.engine.odd_range
                takers = behind.get(folder.name, ())
                notes += door_notes(pipeline.for_serving(), takers, own=f"{file}: ", odd_range=is_meant)
    return notes


def _problem(where: str, error: PipelineError | SetupError) -> Problem:
    """Problem that an error names; its text may begin with the name of its file."""
    return Problem(where, str(error).removeprefix(f"{Path(where).name}: "))


def _read(folder: Path, problems: list[Problem]) -> Model | None:
    """One model, checked by itself."""
    where = f"{folder.name}/{CONFIG_FILE}"
    try:
        config = read_config(folder)
    except PipelineError as error:
        problems.append(_problem(where, error))
        return None
    if config.get("name", folder.name) != folder.name:
        remedy = f'write name: "{folder.name}", or leave it out'
        problems.append(Problem(where, f'name is "{config["name"]}", the directory {folder.name}', remedy))
    versions = sorted(path for path in folder.iterdir() if path.is_dir() and _is_version(path.name))
    if not versions:
        problems.append(Problem(folder.name, "has no version directory", f"make {folder.name}/1"))
    backend = _backend(folder.name, config, versions)
    if not backend:
        what = "does not name what runs the model" if config else "is missing"
        problems.append(Problem(where, what, 'for pixprep write backend: "pixprep"'))
    if backend in _FILES and "cc_model_filenames" not in config:
        usual, remedy = _FILES[backend]
        file = usual if backend == "pixprep" else config.get("default_model_filename", usual)
        for version in versions:
            problems += _missing(version, f"{folder.name}/{version.name}/{file}", file, remedy)
    for entry in config.get("output", []):
        if name := entry.get("label_filename", ""):
            problems += _missing(folder, f"{folder.name}/{name}", name, f'write the labels of "{entry["name"]}" there')
    if backend == "pixprep":
        return _read_pixprep(folder, config, versions, problems)
    model = Model(folder.name, config)
    for version in versions:
        _check_onnx(model, backend, version, problems)
    return model


def _is_version(name: str) -> bool:
    return name.isascii() and name.isdigit() and bool(name.strip("0"))


def _missing(folder: Path, where: str, name: str, remedy: str) -> Iterator[Problem]:
    """Tell whether a file that a configuration names is absent, or elsewhere."""
    if Path(name).is_absolute() or ".." in Path(name).parts:
        yield Problem(where, "leads out of the model's directory", "put the file in it")
    elif not (folder / name).exists():
        yield Problem(where, "is missing", remedy)


def _backend(name: str, config: Mapping[str, Any], versions: Sequence[Path]) -> str:
    """Backend of the model, in Triton's order: as written, by the directory's suffix, by the file; ``""``: none."""
    if "platform" in config:
        return str(config["platform"]).partition("_")[0]  # such as tensorrt_plan
    if config.get("backend") or "." in name:
        return str(config.get("backend") or name.rpartition(".")[2])
    names = {path.name for version in versions for path in version.iterdir()}
    return next((backend for file, backend in _BACKENDS.items() if file in names), "")


def _read_pixprep(
    folder: Path, config: dict[str, Any], versions: Sequence[Path], problems: list[Problem]
) -> Model | None:
    model = None
    for path in (version / model_config.PIPELINE_FILE for version in versions):
        if not path.exists():
            continue
        file, settings = path.relative_to(folder.parent).as_posix(), f"{folder.name}/{CONFIG_FILE}"
        where = settings
        try:
            allowed = model_config.options(config).allow_operators
            where = file
            pipeline = Pipeline.load(path, operators=allowed).for_serving()
            odd = odd_ranges(pipeline)
            where = settings
            model = Model(folder.name, model_config.complete(config, pipeline))  # Triton serves the newest
            if not model_config.options(config).engine.odd_range:
                remedy = f'or set the parameter odd_range to "meant" in {where}'
                problems += [Problem(file, text, remedy) for text in odd]
        except (PipelineError, SetupError) as error:
            problems.append(_problem(where, error))
    return model


def _check_onnx(model: Model, backend: str, version: Path, problems: list[Problem]) -> None:
    """The declared tensors against the ONNX file that is loaded, or that the plan is made from."""
    path = version / _ONNX_FILE
    where = f"{model.name}/{version.name}/{_ONNX_FILE}"
    if backend == "python":
        script = version / "model.py"
        if not script.is_file() or not cmp(script, ONNX_CLASSIFIER, shallow=False):
            return
        problems += _missing(
            version, where, _ONNX_FILE, "`pixprep build` writes it: it is too large for the repository"
        )
    if not path.exists() or backend not in ("python", "onnxruntime", "tensorrt"):
        return
    try:
        onnx = read_onnx(path)
    except PipelineError as error:
        problems.append(_problem(where, error))
        return
    for side, tensors in (("input", onnx.inputs), ("output", onnx.outputs)):
        found = {tensor.name: tensor for tensor in tensors}
        declared = model.tensors.get(side, found)
        if side == "input":
            problems += [
                Problem(model.where, f'input "{name}" of {_ONNX_FILE} is not declared', "declare it")
                for name in found
                if name not in declared
            ]
        for name, ours in declared.items():
            tensor = found.get(name)
            if tensor is None:
                problems.append(Problem(model.where, f'{side} "{name}" is not in {_ONNX_FILE}', suggest(name, found)))
            elif ours.data_type != tensor.data_type or not _within(ours, tensor, model.max_batch_size):
                what = f'{side} "{name}" is {ours}, in {_ONNX_FILE} {tensor}'
                problems.append(Problem(model.where, what, f"declare what {_ONNX_FILE} has"))


def _within(declared: Tensor, tensor: Tensor, max_batch_size: int) -> bool:
    """Tell whether every shape that a configuration allows is one that the ONNX file takes."""
    if declared.shape is None or tensor.shape is None:
        return tensor.shape is None
    ours = (1, *declared.shape[1:]) if max_batch_size == 1 else declared.shape
    return len(ours) == len(tensor.shape) and all(b in (-1, a) for a, b in zip(ours, tensor.shape, strict=True))
