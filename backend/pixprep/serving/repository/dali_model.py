"""Converts a model folder of dali_backend, translates its ``config.pbtxt``, and reports fields that are omitted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pixprep.errors import PipelineError, SetupError
from pixprep.pipeline.ops import OutputOp, changed
from pixprep.pipeline.ops.faults import quoted
from pixprep.pipeline.pipeline import Pipeline
from pixprep.serving.repository.pbtxt import config_text, writes_batch_size
from pixprep.serving.repository.repository import Model
from pixprep.serving.repository.warmups import check_warmups
from pixprep.serving.triton import config as model_config
from pixprep.serving.triton.config import CONFIG_FILE, PIPELINE_FILE, Config
from pixprep.spec import TensorSpec

GRAPH_FILE, SCRIPT_FILE = "model.dali", "dali.py"
_COPIED_FIELDS = ("dynamic_batching", "version_policy", "response_cache", "model_warmup", "optimization")
"""Fields that are copied, because they have the same meaning for every backend."""
_TRANSLATED_FIELDS = (
    "name",
    "backend",
    "max_batch_size",
    "input",
    "output",
    "parameters",
    "instance_group",
    "default_model_filename",
)
_PARAMETERS = {"num_threads": "threads"}
"""Names of the dali_backend parameters that are translated, and the corresponding names in pixprep. Other parameters
are not copied, because some of Triton's parameters, such as EXECUTION_ENV_PATH, run programs."""
_SPLIT_PARAMETERS = ("split_along_outer_axis", "split_outer_dim")
"""New and old name of the dali_backend parameter that splits a tensor along its first dimension."""


@dataclass(frozen=True)
class DaliModel:
    """One version of a dali_backend model.

    Attributes:
        folder: Folder of the model.
        file: File of the version: the serialized graph, or the Python file that defines it.
        config: ``config.pbtxt`` in JSON form, or an empty dict if the file does not exist.
        is_batched: Whether Triton batches requests. If ``max_batch_size`` is 0 in the file, Triton does not batch
            requests, and the declared dims include the batch dimension.
    """

    folder: Path
    file: Path
    config: Config
    is_batched: bool = True

    @property
    def dtypes(self) -> dict[str, str]:
        """Names of the NumPy dtypes of the declared inputs."""
        types = {
            entry["name"]: entry.get("data_type", "").removeprefix("TYPE_") for entry in self.config.get("input", [])
        }
        return {
            name: kind.lower().replace("fp", "float") for name, kind in types.items() if kind not in ("", "INVALID")
        }

    def output_of(self, name: str, outputs: Sequence[str]) -> str:
        """Return the name of an output in the graph, given its name in the configuration."""
        named = {entry.get("name"): mine for entry, mine in zip(self.config.get("output", []), outputs, strict=False)}
        return named.get(name, name)


def find_dali_model(folder: Path) -> list[DaliModel]:
    """Return the served versions of a dali_backend model, the newest last. For other folders, return an empty list.

    Raises:
        PipelineError: The configuration is invalid, or the graph of a version is missing.
        SetupError: tritonclient is not installed.
    """
    graphs = [path for path in folder.glob("*/*") if path.name in (GRAPH_FILE, SCRIPT_FILE)]
    found = Model(folder)
    config = found.config
    backend = config.get("backend") or ("dali" if graphs and "platform" not in config else "")
    if backend != "dali":
        return []
    if not all("name" in entry for entry in config.get("input", [])):
        raise PipelineError(f"{CONFIG_FILE}: an input has no name: write the name of its external_source")
    name = config.get("default_model_filename") or GRAPH_FILE
    if Path(name).name != name:
        raise PipelineError(f"{CONFIG_FILE}: default_model_filename must be a plain file name, not {quoted(name)}")
    is_batched = bool(config.get("max_batch_size")) or not writes_batch_size(found.text or "")
    if not found.served:
        raise PipelineError(f"{folder} has no version to serve: copy the graph to {folder / '1' / name}")
    files = [(version.folder / name, version.folder / SCRIPT_FILE) for version in found.served.values()]
    for both in files:
        if not any(map(Path.is_file, both)):
            raise PipelineError(f"{both[0].parent} contains neither {name} nor {SCRIPT_FILE}")
    return [DaliModel(folder, next(filter(Path.is_file, both)), config, is_batched) for both in files]


def check_replaceable(folder: Path) -> None:
    """Check that a folder only contains files that an import writes, before it is replaced.

    Raises:
        SetupError: The folder contains a different file, for example because it is a whole repository.
    """
    for path in folder.rglob("*") if folder.is_dir() else [folder] if folder.exists() else []:
        first, *rest = path.relative_to(folder).parts or ("",)
        is_ours = first in (CONFIG_FILE, "warmup") or (first.isdecimal() and rest == [PIPELINE_FILE])
        if not path.is_dir() and not is_ours:
            raise SetupError(f"{path} was not written by `pixprep import` and would be removed: move it first")


def translated(
    model: DaliModel,
    pipeline: Pipeline,
    inputs: Mapping[str, str | None],
    outputs: Sequence[str],
    *,
    batch_size: int | None,
    output: str | None = None,
) -> tuple[dict[str, str], list[str]]:
    """Translate the configuration of a dali_backend model.

    Args:
        model: Model of dali_backend.
        pipeline: Pipeline that was imported from its graph.
        inputs: Names of the graph's inputs, with the types that the graph declares. None means that the type is not
            declared.
        outputs: Names of the outputs in the graph.
        batch_size: Number of images per batch of the graph. None means that the graph does not declare it.
        output: Name of the only output of the graph that the pipeline computes. None means that the pipeline computes
            all outputs.

    Returns:
        The files of the pixprep model by their paths in its folder, and notes about fields that are omitted.

    Raises:
        PipelineError: The configuration contradicts the graph, the model is decoupled, or the model would reject its
            own warm-up request.
    """
    config = model.config
    _check_answers(config, pipeline)
    notes = [] if model.is_batched else ["max_batch_size 0: pixprep now batches requests of the same shapes"]
    named = _named(model, pipeline, outputs, output, notes)
    written: Config = {"backend": "pixprep", **{key: config[key] for key in _COPIED_FIELDS if key in config}}
    written["input"] = _inputs(model, named, inputs, notes)
    written["parameters"] = _parameters(config.get("parameters", {}), notes)
    if (most := int(config.get("max_batch_size", 0))) > 0:
        written["max_batch_size"] = most
    elif model.is_batched and batch_size:
        written["max_batch_size"] = min(batch_size, model_config.max_images(written, named))
    if groups := _groups(config.get("instance_group", []), notes):
        written["instance_group"] = groups
    others = [key for key in config if key not in (*_COPIED_FIELDS, *_TRANSLATED_FIELDS, "model_transaction_policy")]
    notes += [f"{key} is not supported in a pixprep model and is omitted" for key in others]
    full = model_config.complete(written, named)
    check_warmups(model.folder, full, named, allows_links=False)
    if not full["parameters"]:
        del full["parameters"]
    version = model.file.parent.name
    return {CONFIG_FILE: config_text(full), f"{version}/{PIPELINE_FILE}": named.to_json()}, notes


def _check_answers(config: Config, pipeline: Pipeline) -> None:
    """Check that requests receive the same number of responses and tensors from both backends.

    Raises:
        PipelineError: The model is decoupled, splits a clip into frames, or receives regions of a photo as matrices.
    """
    if config.get("model_transaction_policy", {}).get("decoupled"):
        raise PipelineError(
            f"{CONFIG_FILE}: model_transaction_policy: decoupled models are not supported, because pixprep returns one "
            "response per request: keep DALI for this model, or sample a fixed number of frames with decode_video"
        )
    for key in _SPLIT_PARAMETERS:
        if key in config.get("parameters", {}):
            raise PipelineError(
                f"{CONFIG_FILE}: parameters: {key} is not supported, because pixprep returns a clip as one tensor and "
                "not as a batch of frames: remove it and adapt the next model, or keep DALI for this model"
            )
    if pipeline.plan.takes_boxes:
        names = ", ".join(quoted(name) for name, spec in pipeline.inputs.items() if spec.is_region)
        raise PipelineError(
            f"the input {names}: a request of dali_backend has a batch of photos with one matrix each, but a request "
            "of pixprep has one photo with several matrices: import model.dali alone and change the clients as in "
            "docs/boxes.md, or keep DALI for this model"
        )


def _dims(model: DaliModel, entry: Config) -> list[int]:
    """Return the declared dims of an input or output without the batch dimension."""
    dims = [int(dim) for dim in entry.get("dims", [])]
    return dims if model.is_batched else dims[1:]


def _named(
    model: DaliModel, pipeline: Pipeline, outputs: Sequence[str], output: str | None, notes: list[str]
) -> Pipeline:
    """Rename the outputs of a pipeline to the names that clients use.

    The declared outputs correspond to the outputs of the graph in the same order. If an output is not declared, its
    name in the graph is used.

    Args:
        model: Model of dali_backend.
        pipeline: Pipeline that was imported from its graph.
        outputs: Names of the outputs in the graph.
        output: Name of the only output to keep. None means that all outputs are kept.
        notes: List that is extended by notes about omitted outputs and fields.

    Raises:
        PipelineError: The configuration declares more outputs than the graph has, or different types or dims.
    """
    entries = model.config.get("output", [])
    if len(entries) > len(outputs):
        raise PipelineError(
            f"{CONFIG_FILE}: output: {len(entries)} outputs are declared, but the graph has {len(outputs)}"
        )
    faces: list[Config] = [
        {"name": name, **entry} for name, entry in zip(outputs, [*entries, *[{}] * len(outputs)], strict=False)
    ]
    if output is not None:
        notes += [f'output "{face["name"]}" is omitted' for face in faces if face is not faces[outputs.index(output)]]
        faces = [faces[outputs.index(output)]]
    new = dict(zip(pipeline.outputs, (face["name"] for face in faces), strict=True))
    ops = [
        changed(op, name=new[op.name or str(op.__struct_config__.tag)]) if isinstance(op, OutputOp) else op
        for op in pipeline.ops
    ]
    made = Pipeline(ops, origin=pipeline.origin)
    for face in faces:
        _check_output(model, face, made.outputs[face["name"]].spec)
        notes += _left_out(f'output "{face["name"]}"', face, ())
    return made


def _check_output(model: DaliModel, face: Config, spec: TensorSpec) -> None:
    """Check a declared output against the graph.

    Raises:
        PipelineError: The type or the dims differ.
    """
    dims, of_graph = _dims(model, face), model_config.triton_type(spec.dtype)
    is_same = len(dims) == len(spec.shape) and all(
        -1 in pair or pair[0] == pair[1] for pair in zip(dims, spec.shape, strict=True)
    )
    if face.get("data_type", of_graph) != of_graph or (face.get("dims") and not is_same):
        batch = "" if model.is_batched else " after the batch dimension, which dims include if max_batch_size is 0"
        raise PipelineError(
            f'{CONFIG_FILE}: output "{face["name"]}" is {face.get("data_type", of_graph)} '
            f"[{', '.join(map(str, face.get('dims', [])))}], but the graph has {of_graph} {list(spec.shape)}{batch}: "
            "correct it, or remove the output"
        )


def _left_out(what: str, entry: Config, known: Sequence[str]) -> list[str]:
    """Return notes about fields of a part of the configuration that a pixprep model does not support."""
    return [
        f"{what}: {key} is not supported in a pixprep model and is omitted"
        for key in entry
        if key not in ("name", "data_type", "dims", *known)
    ]


def _inputs(
    model: DaliModel, pipeline: Pipeline, graph_inputs: Mapping[str, str | None], notes: list[str]
) -> list[Config]:
    """Return the inputs with the names, types and dims that clients use. Missing fields are derived from the graph.

    Raises:
        PipelineError: A declared input is not an input of the graph. dali_backend also rejects such a declaration.
    """
    types = {name: model_config.triton_type(dtype) for name, dtype in graph_inputs.items() if dtype}
    image, *numbers = model_config.inputs({}, pipeline)
    usual = {each["name"]: {**each, "data_type": types.get(each["name"], each["data_type"])} for each in numbers}
    image["name"] = next(name for name in graph_inputs if name not in usual)
    image |= {} if pipeline.plan.takes else {"data_type": "TYPE_UINT8", "dims": [-1]}
    made = {}
    for entry in model.config.get("input", []):
        name = entry["name"]
        if name not in graph_inputs:
            raise PipelineError(
                f"{CONFIG_FILE}: input {quoted(name)} does not exist in the graph, whose inputs are "
                f"{', '.join(map(quoted, graph_inputs))}: write the name of an external_source"
            )
        notes += _left_out(f'input "{name}"', entry, ("format", "allow_ragged_batch"))
        declared = {key: entry[key] for key in ("name", "data_type") if key in entry}
        dims = {"dims": _dims(model, entry)} if entry.get("dims") else {}
        made[name] = {**usual.get(name, image), **declared, **dims}
    if made.keys() <= usual.keys():
        made[image["name"]] = image
    return [*(usual | made).values()]


def _parameters(parameters: Mapping[str, Any], notes: list[str]) -> Config:
    made = {}
    for key, entry in parameters.items():
        if key == "num_threads" and entry.get("string_value", "").strip() == "-1":
            continue  # the default of dali_backend, the number of threads in the graph
        if key in _PARAMETERS:
            made[_PARAMETERS[key]] = entry
        else:
            notes.append(f"parameter {quoted(key)} is not supported in a pixprep model and is omitted")
    return made


def _groups(groups: Sequence[Config], notes: list[str]) -> list[Config]:
    """Translate the instance groups. Groups other than KIND_CPU run on GPUs if the server has GPUs, or on the CPU."""
    made = []
    for group in groups:
        kind, count = group.get("kind", "KIND_AUTO"), int(group.get("count", 1))
        notes += _left_out("instance_group", group, ("count", "kind", "gpus"))
        made.append({"count": count, **({"kind": "KIND_CPU"} if kind == "KIND_CPU" else {})})
        if kind == "KIND_GPU":
            gpus = f" on {', '.join(map(str, group['gpus']))}" if group.get("gpus") else ""
            notes.append(
                f"instance_group: KIND_GPU{gpus}: {count} instances on each GPU of the server, or on the CPU if it "
                "has none; pixprep has not run on a GPU yet: to use the CPU, write KIND_CPU"
            )
    return made
