"""What is wrong with a model repository, found in its files: no server, no model is loaded."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from pixprep.compiler import compile_pipeline
from pixprep.errors import PipelineError, SetupError, printable
from pixprep.pipeline import Pipeline
from pixprep.pipeline_file import read_bytes
from pixprep.triton import config as model_config
from pixprep.triton.classifier import Tensor, compatible, read_onnx

_CONFIG_FILE = "config.pbtxt"
_MAX_CONFIG_BYTES = 256 << 10  # of a larger one, parsing takes seconds
_MAX_SCRIPT_BYTES = 1 << 20
_MAX_SUGGESTED = 64  # names that a mistake is compared with, and that a message lists
_ONNX_FILE = "model.onnx"
_CLASSIFIERS = [Path(__file__).parents[1] / "demo" / name for name in ("onnx_classifier.py", "torch_classifier.py")]
# what Triton loads from a version directory, and who makes it
_FILES = {
    "pixprep": (model_config.PIPELINE_FILE, "write the pipeline there"),
    "python": ("model.py", "write the Python model there"),
    "tensorrt": ("model.plan", "make it there with trtexec, on the machine that will serve it"),
    "onnxruntime": (_ONNX_FILE, "copy the ONNX file there"),
}
# by the name of its file, where a configuration does not say what runs a model
_BACKENDS = {
    _ONNX_FILE: "onnxruntime",
    "model.plan": "tensorrt",
    "model.pt": "pytorch",
    "model.savedmodel": "tensorflow",
    "model.xml": "openvino",
    "model.py": "python",
}
_PLATFORMS = {"tensorrt_plan": "tensorrt", "onnxruntime_onnx": "onnxruntime"}


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong.

    Attributes:
        where: the file or directory, as a path inside the repository.
        what: is wrong.
        remedy: what to do; ``""`` where ``what`` says it.
    """

    where: str
    what: str
    remedy: str = ""

    def __str__(self) -> str:
        parts = (printable(part) for part in (self.where, self.what, self.remedy) if part)
        return ": ".join(part if len(part) <= 1000 else f"{part[:1000]} ..." for part in parts)


@dataclass(frozen=True)
class _Side:
    """The inputs, or the outputs, of a model by name: data type, and shape with the batch first where there is one."""

    tensors: Mapping[str, Tensor]
    optional: frozenset[str] = frozenset()


@dataclass(frozen=True)
class _Model:
    """A model directory as far as it could be read.

    Attributes:
        name: of the directory.
        config: in its JSON form; what pixprep derives is filled in.
        inputs, outputs: None where only its backend knows them.
    """

    name: str
    config: Mapping[str, Any]
    inputs: _Side | None
    outputs: _Side | None

    @property
    def max_batch_size(self) -> int:
        return int(self.config.get("max_batch_size", 0))

    @property
    def where(self) -> str:
        return f"{self.name}/{_CONFIG_FILE}"

    @property
    def steps(self) -> list[Any]:
        """Of an ensemble."""
        return list(self.config.get("ensemble_scheduling", {}).get("step", []))


def check(repository: Path) -> list[Problem]:
    """Everything that keeps a model repository from loading, or its ensembles from working.

    Returns:
        The problems, model by model; none for a valid repository.

    Raises:
        SetupError: tritonclient, which knows the fields of config.pbtxt, or onnx is not installed.
    """
    if (repository / _CONFIG_FILE).is_file() or any(repository.glob(f"[0-9]*/{model_config.PIPELINE_FILE}")):
        parent = repository.parent if repository.name else Path("..")
        return [Problem(repository.name, "is a model, not a repository", f"its repository is {parent}")]
    folders = sorted(path for path in repository.iterdir() if path.is_dir() and not path.name.startswith("."))
    if not folders:
        return [Problem(repository.name, "holds no model", "write one with `pixprep build`")]
    problems: list[Problem] = []
    models: dict[str, _Model | None] = {}  # None: exists, but there is no telling what it is
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
            problems += _check_ensemble(model, models)
    return problems


def _strays(path: Path, root: Path, depth: int = 2) -> Iterator[Path]:
    """What leads out of the repository: a copy of it, or a container where it is mounted, would not have that.

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


def check_pipeline(path: Path) -> list[Problem]:
    """What is wrong with a pipeline file: at most one problem, the first."""
    problems: list[Problem] = []
    _load_pipeline(path, path.name, problems)
    return problems


def _load_pipeline(path: Path, where: str, problems: list[Problem]) -> Pipeline | None:
    try:
        pipeline = Pipeline.load(path)
        compile_pipeline(pipeline)
    except PipelineError as error:
        problems.append(Problem(where, str(error).removeprefix(f"{path.name}: ")))
        return None
    return pipeline


def _read(folder: Path, problems: list[Problem]) -> _Model | None:
    """One model, checked by itself."""
    config = _read_config(folder, problems)
    if config is None:
        return None
    where = f"{folder.name}/{_CONFIG_FILE}"
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
        problems += [
            Problem(f"{folder.name}/{version.name}/{file}", *_absence(file, remedy))
            for version in versions
            if not _is_inside(file) or not (version / file).exists()
        ]
    problems += [
        Problem(f"{folder.name}/{name}", *_absence(name, f'write the labels of "{entry["name"]}" there'))
        for entry in config.get("output", [])
        if (name := entry.get("label_filename", "")) and not (_is_inside(name) and (folder / name).is_file())
    ]
    if backend == "pixprep":
        return _read_pixprep(folder, config, versions, problems)
    model = _Model(folder.name, config, _side(config, "input"), _side(config, "output"))
    for version in versions:
        _check_onnx(model, backend, version, problems)
    return model


def _is_version(name: str) -> bool:
    return name.isascii() and name.isdigit() and bool(name.strip("0"))


def _is_inside(name: str) -> bool:
    """Whether a name in a configuration stays in the directory that it is of."""
    return not Path(name).is_absolute() and ".." not in Path(name).parts


def _absence(name: str, remedy: str) -> tuple[str, str]:
    """What is wrong with a file that is not where a configuration says, and what to do."""
    return ("is missing", remedy) if _is_inside(name) else ("leads out of the model's directory", "put the file in it")


def _backend(name: str, config: Mapping[str, Any], versions: Sequence[Path]) -> str:
    """What runs the model, in Triton's order: as written, by the directory's suffix, by the file; ``""``: nothing."""
    if "platform" in config:
        return str(_PLATFORMS.get(config["platform"], config["platform"]))
    if config.get("backend") or "." in name:
        return str(config.get("backend") or name.rpartition(".")[2])
    names = {path.name for version in versions for path in version.iterdir()}
    return next((backend for file, backend in _BACKENDS.items() if file in names), "")


def _read_config(folder: Path, problems: list[Problem]) -> dict[str, Any] | None:
    """The config.pbtxt in JSON form, ``{}`` where there is none; None if it cannot be parsed."""
    try:
        from google.protobuf import json_format, text_format  # noqa: PLC0415  (comes with tritonclient)
        from tritonclient.grpc import model_config_pb2  # noqa: PLC0415  (300 ms, and not needed to build)
    except ImportError:
        raise SetupError('checking a config.pbtxt needs tritonclient: pip install "pixprep[client]"') from None
    path = folder / _CONFIG_FILE
    if not os.path.lexists(path):
        return {}
    where = f"{folder.name}/{_CONFIG_FILE}"
    try:
        text = read_bytes(path, most=_MAX_CONFIG_BYTES)
    except OSError as error:
        problems.append(Problem(where, f"cannot be read: {error.strerror}"))
        return None
    if len(text) > _MAX_CONFIG_BYTES:
        problems.append(Problem(where, f"has over {_MAX_CONFIG_BYTES:,} bytes, which no configuration needs"))
        return None
    try:
        message = text_format.Parse(text.decode(), model_config_pb2.ModelConfig())
    except (text_format.ParseError, UnicodeDecodeError) as error:
        remedy = "the fields are those of Triton's model_config.proto"
        problems.append(Problem(where, f"cannot be parsed: {error}", remedy))
        return None
    config: dict[str, Any] = json_format.MessageToDict(message, preserving_proto_field_name=True)
    return config


def _read_pixprep(
    folder: Path, config: dict[str, Any], versions: Sequence[Path], problems: list[Problem]
) -> _Model | None:
    model = None
    for version in versions:
        path = version / model_config.PIPELINE_FILE
        if not path.exists():
            continue
        pipeline = _load_pipeline(path, f"{folder.name}/{version.name}/{path.name}", problems)
        if pipeline is None:
            continue
        try:
            full = model_config.complete(config, pipeline)
        except PipelineError as error:
            what = str(error).removeprefix(f"{_CONFIG_FILE}: ")
            problems.append(Problem(f"{folder.name}/{_CONFIG_FILE}", what))
            continue
        model = _Model(folder.name, full, _side(full, "input"), _side(full, "output"))  # Triton serves the newest
    return model


def _side(config: Mapping[str, Any], kind: str) -> _Side | None:
    entries = config.get(kind, [])
    if not entries:
        return None
    batch = [-1] * (int(config.get("max_batch_size", 0)) > 0)
    tensors = {}
    for entry in entries:
        shape = (*batch, *map(int, entry.get("dims", [])))
        name = entry.get("name", "")
        tensors[name] = Tensor(name, entry.get("data_type", "TYPE_INVALID"), shape)
    return _Side(tensors, frozenset(entry.get("name", "") for entry in entries if entry.get("optional")))


def _check_onnx(model: _Model, backend: str, version: Path, problems: list[Problem]) -> None:
    """The declared tensors against the ONNX file that is loaded, or that the plan is made from."""
    path = version / _ONNX_FILE
    where = f"{model.name}/{version.name}/{_ONNX_FILE}"
    script = version / "model.py"
    ours = [path.read_bytes() for path in _CLASSIFIERS]
    is_ours = backend == "python" and script.is_file() and read_bytes(script, most=_MAX_SCRIPT_BYTES) in ours
    if is_ours and not path.exists():
        problems.append(Problem(where, "is missing", "`pixprep build` writes it: it is too large for the repository"))
    if not path.exists() or not (is_ours or backend in _PLATFORMS.values()):
        return
    try:
        onnx = read_onnx(path)
    except PipelineError as error:
        problems.append(Problem(where, str(error).removeprefix(f"{path.name}: ")))
        return
    for kind, side, tensors in (("input", model.inputs, onnx.inputs), ("output", model.outputs, onnx.outputs)):
        if side is None:
            continue
        found = {tensor.name: tensor for tensor in tensors}
        problems += [
            Problem(model.where, f'input "{name}" of {_ONNX_FILE} is not declared', "declare it")
            for name in found
            if kind == "input" and name not in side.tensors
        ]
        for name, declared in side.tensors.items():
            if name not in found:
                what = f'{kind} "{name}" is not in {_ONNX_FILE}'
                problems.append(Problem(model.where, what, _suggest(name, found)))
                continue
            tensor = found[name]
            if (declared.data_type, True) != (tensor.data_type, _within(declared, tensor, model.max_batch_size)):
                what = f'{kind} "{name}" is {_shown(declared)}, in {_ONNX_FILE} {_shown(tensor)}'
                problems.append(Problem(model.where, what, f"declare what {_ONNX_FILE} has"))


def _within(declared: Tensor, tensor: Tensor, max_batch_size: int) -> bool:
    """Whether every shape that a configuration allows is one that the ONNX file takes."""
    if declared.shape is None or tensor.shape is None:
        return tensor.shape is None
    ours = (1, *declared.shape[1:]) if max_batch_size == 1 else declared.shape
    return len(ours) == len(tensor.shape) and all(b in (-1, a) for a, b in zip(ours, tensor.shape, strict=True))


def _check_ensemble(ensemble: _Model, models: Mapping[str, _Model | None]) -> Iterator[Problem]:
    """The wiring: each tensor is given once, as what its takers expect, and none is left over or waited for in vain."""
    where = ensemble.where
    given: dict[str, tuple[str, Tensor | None]] = {}
    taken: list[tuple[str, str, Tensor | None]] = []
    for kind, own in (("input", ensemble.inputs), ("output", ensemble.outputs)):
        if own is None:
            yield Problem(where, f"declares no {kind}", "those of an ensemble are not derived: write them")
        for name, tensor in own.tensors.items() if own else ():
            if kind == "input":
                given[name] = ("the ensemble's input", tensor)
            else:
                taken.append((name, "the ensemble's output", tensor))
    for number, step in enumerate(ensemble.steps, 1):
        name = step.get("model_name", "")
        who = f'step {number} ("{name}")'
        model = models.get(name)
        if name not in models:
            yield Problem(where, f"{who}: there is no such model", _suggest(name, models))
        elif model:
            yield from _check_step(ensemble, who, step, model)
        takes, gives = (model.inputs, model.outputs) if model else (None, None)
        for port, name in step.get("input_map", {}).items():
            taken.append((name, f'{who} input "{port}"', takes.tensors.get(port) if takes else None))
        for port, name in step.get("output_map", {}).items():
            if name in given:
                yield Problem(where, f'{who} gives "{name}", which {given[name][0]} is already', "rename one of them")
            given.setdefault(name, (f'{who} output "{port}"', gives.tensors.get(port) if gives else None))
    for name, taker, want in taken:
        if name not in given:
            yield Problem(where, f'{taker} takes "{name}", which nothing gives', _suggest(name, given))
            continue
        giver, have = given[name]
        if have and want and not _same(have, want):
            what = f'"{name}": {giver} is {_shown(have)}, {taker} is {_shown(want)}'
            yield Problem(where, what, "make them equal")
    wanted = {name for name, *_ in taken}
    for name in [name for name in given if name not in wanted]:
        yield Problem(where, f'nothing takes "{name}"', "leave it out, or make it an output of the ensemble")
    yield from _check_cycles(ensemble, models)


def _same(gives: Tensor, takes: Tensor) -> bool:
    if gives.shape is None or takes.shape is None:
        return gives.data_type == takes.data_type
    return gives.data_type == takes.data_type and compatible(gives.shape, takes.shape)


def _check_step(ensemble: _Model, who: str, step: Mapping[str, Any], model: _Model) -> Iterator[Problem]:
    """The maps of one step against its model."""
    where = ensemble.where
    for kind, side in (("input", model.inputs), ("output", model.outputs)):
        ports = step.get(f"{kind}_map", {})
        if not ports:
            yield Problem(where, f"{who} has no {kind}_map", f"map the {kind}s of the model to tensors of the ensemble")
        if side is None or not ports:
            continue
        for port in ports:
            if port not in side.tensors:
                yield Problem(where, f'{who}: the model has no {kind} "{port}"', _suggest(port, side.tensors))
        for port in side.tensors:
            if kind == "input" and port not in ports and port not in side.optional:
                yield Problem(where, f'{who}: input "{port}" of the model is not mapped', "add it to input_map")
    if model.max_batch_size < ensemble.max_batch_size:
        what = f"max_batch_size is {ensemble.max_batch_size}, of {who} only {model.max_batch_size}"
        yield Problem(where, what, f"set it to {model.max_batch_size}, or raise the model's")


def _check_cycles(ensemble: _Model, models: Mapping[str, _Model | None]) -> Iterator[Problem]:
    """Steps that wait for each other, and ensembles that contain themselves."""
    waiting = list(enumerate(ensemble.steps, 1))
    while True:
        # A tensor that no step gives is there from the start, or has been reported.
        missing = {name for _, step in waiting for name in step.get("output_map", {}).values()}
        stuck = [step for step in waiting if not missing.isdisjoint(step[1].get("input_map", {}).values())]
        if len(stuck) == len(waiting):
            break
        waiting = stuck
    if waiting:
        names = ", ".join(f'{number} ("{step.get("model_name", "")}")' for number, step in waiting)
        yield Problem(ensemble.where, f"these steps wait for each other: {names}", "break the circle")
    inside, reached = [ensemble.name], set[str]()
    while inside:
        model = models.get(inside.pop())
        for step in model.steps if model else ():
            name = step.get("model_name", "")
            if name not in reached:
                reached.add(name)
                inside.append(name)
    if ensemble.name in reached:
        yield Problem(ensemble.where, "the ensemble contains itself", "take it out of the steps that lead back to it")


def _shown(tensor: Tensor) -> str:
    shape = "" if tensor.shape is None else f" {list(tensor.shape)}"
    return f"{tensor.data_type or 'no tensor'}{shape}"


def _suggest(name: str, known: Mapping[str, Any]) -> str:
    if len(known) > _MAX_SUGGESTED:
        return f"it is none of {len(known):,} names"
    near = get_close_matches(name, list(known), n=1)
    return f'did you mean "{near[0]}"?' if near else f"there are {', '.join(known) or 'none'}"
