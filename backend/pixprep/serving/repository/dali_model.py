"""A model folder of dali_backend as one of pixprep: what its ``config.pbtxt`` becomes, and what has no place in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pixprep.errors import PipelineError
from pixprep.pipeline.ops import OutputOp, changed
from pixprep.pipeline.ops.faults import quoted
from pixprep.pipeline.pipeline import Pipeline
from pixprep.serving.triton import config as model_config
from pixprep.serving.triton.config import CONFIG_FILE, PIPELINE_FILE, Config
from pixprep.serving.triton.model_files import config_text, newest, read_config

GRAPH_FILE, SCRIPT_FILE = "model.dali", "dali.py"
_KEPT = ("dynamic_batching", "version_policy", "response_cache", "model_warmup", "optimization")
"""Fields that mean to every model the same."""
_READ = (
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
"""Parameters of dali_backend, by pixprep's."""


@dataclass(frozen=True)
class DaliModel:
    """A model folder of dali_backend.

    Attributes:
        folder: of the model.
        file: the graph of its newest version, or the Python file that defines it.
        config: its ``config.pbtxt`` in JSON form; empty: it has none.
    """

    folder: Path
    file: Path
    config: Config

    @property
    def dtypes(self) -> dict[str, str]:
        """Types of its inputs, by NumPy's names."""
        types = {
            entry["name"]: entry.get("data_type", "").removeprefix("TYPE_") for entry in self.config.get("input", [])
        }
        return {
            name: kind.lower().replace("fp", "float") for name, kind in types.items() if kind not in ("", "INVALID")
        }


def find_dali_model(folder: Path) -> DaliModel | None:
    """The model of dali_backend in a folder; None of another folder.

    Raises:
        PipelineError: its configuration cannot be read, or its graph is missing.
        SetupError: tritonclient is not installed.
    """
    version = folder / (newest(folder) or "1")
    files = [version / GRAPH_FILE, version / SCRIPT_FILE]
    has_config = (folder / CONFIG_FILE).is_file()
    if not has_config and not any(map(Path.is_file, files)):
        return None
    config = read_config(folder)
    if has_config and config.get("backend") != "dali":
        return None
    if name := config.get("default_model_filename"):
        if Path(name).name != name:
            raise PipelineError(
                f"{CONFIG_FILE}: default_model_filename: {quoted(name)} leads out of the version's folder"
            )
        files.insert(0, version / name)
    file = next(filter(Path.is_file, files), None)
    if file is None:
        raise PipelineError(f"{version}: has neither {GRAPH_FILE} nor {SCRIPT_FILE}")
    return DaliModel(folder, file, config)


def translated(
    model: DaliModel, pipeline: Pipeline, graph_inputs: Mapping[str, str | None]
) -> tuple[dict[str, str], list[str]]:
    """The files of the pixprep model, by their paths in its folder, and what has no place in them.

    Args:
        model: of dali_backend.
        pipeline: what its graph becomes.
        graph_inputs: the graph's inputs, as clients name them, with the types that it says.

    Raises:
        PipelineError: the configuration says otherwise than the graph, or the model is a stream.
    """
    config = model.config
    if config.get("model_transaction_policy", {}).get("decoupled"):
        raise PipelineError(
            f"{CONFIG_FILE}: model_transaction_policy: a decoupled model answers a request with a stream of unknown "
            "length, and pixprep gives one answer: DALI has to serve it; decode_video gives a fixed number of frames"
        )
    has_batch = int(config.get("max_batch_size", 0)) > 0
    notes = [] if has_batch or not config else ["max_batch_size 0: requests share batches now, of the same shapes"]
    named = _named(pipeline, _without_batch(config.get("output", []), has_batch=has_batch))
    written: Config = {"backend": "pixprep", **{key: config[key] for key in _KEPT if key in config}}
    if has_batch:
        written["max_batch_size"] = int(config["max_batch_size"])
    written["input"] = _inputs(named, _without_batch(config.get("input", []), has_batch=has_batch), graph_inputs, notes)
    written["parameters"] = _parameters(config.get("parameters", {}), notes)
    if groups := _groups(config.get("instance_group", []), notes):
        written["instance_group"] = groups
    others = [key for key in config if key not in (*_KEPT, *_READ, "model_transaction_policy")]
    notes += [f"{key} has no place in a pixprep model, and is left out" for key in others]
    full = model_config.complete(written, named)
    if not full["parameters"]:
        del full["parameters"]
    version = model.file.parent.name
    return {CONFIG_FILE: config_text(full), f"{version}/{PIPELINE_FILE}": named.to_json()}, notes


def _without_batch(entries: Sequence[Config], *, has_batch: bool) -> list[Config]:
    """Inputs or outputs with the dims of one image: without ``max_batch_size`` the first of several is the batch."""
    made = []
    for entry in entries:
        dims = [int(dim) for dim in entry.get("dims", [])]
        made.append({**entry, "dims": dims if has_batch else dims[1:]})
    return made


def _named(pipeline: Pipeline, outputs: Sequence[Config]) -> Pipeline:
    """The pipeline with the names of the configuration's outputs: where they are not the graph's, in their order.

    Raises:
        PipelineError: there are others, or of another type or other dims.
    """
    names = [entry["name"] for entry in outputs]
    found = list(pipeline.outputs)
    if names and len(names) != len(found):
        raise PipelineError(f"{CONFIG_FILE}: output: {len(names)} outputs, and the graph gives {len(found)}")
    if not names:
        names = [f"DALI_OUTPUT_{index}" if "tensor" in name else name for index, name in enumerate(found)]
    new = dict(zip(found, found if {*names} == {*found} else names, strict=True))
    ops = [
        changed(op, name=new[op.name or str(op.__struct_config__.tag)]) if isinstance(op, OutputOp) else op
        for op in pipeline.definition
    ]
    made = Pipeline(ops, origin=pipeline.origin)
    for entry in outputs:
        spec = made.outputs[entry["name"]].spec
        is_same = len(entry["dims"]) == len(spec.shape) and all(
            -1 in pair or pair[0] == pair[1] for pair in zip(entry["dims"], spec.shape, strict=True)
        )
        of_graph = model_config.TRITON_TYPES[spec.dtype]
        if entry.get("data_type", of_graph) != of_graph or (entry["dims"] and not is_same):
            raise PipelineError(
                f'{CONFIG_FILE}: output "{entry["name"]}": is {entry.get("data_type")} {entry["dims"]}, but the graph '
                f"gives {of_graph} {list(spec.shape)}: mend it there, or leave it out"
            )
    return made


def _inputs(
    pipeline: Pipeline, entries: Sequence[Config], graph_inputs: Mapping[str, str | None], notes: list[str]
) -> list[Config]:
    """Inputs with the names, types and dims that clients send."""
    names = [name for name in graph_inputs if name not in pipeline.inputs]
    if not entries:
        (image, *numbers) = model_config.inputs({}, pipeline)
        encoded = {} if pipeline.plan.takes else {"data_type": "TYPE_UINT8", "dims": [-1]}
        types = {name: f"TYPE_{dtype.upper().replace('FLOAT', 'FP')}" for name, dtype in graph_inputs.items() if dtype}
        numbers = [{**entry, "data_type": types.get(entry["name"], entry["data_type"])} for entry in numbers]
        return [*({**image, **encoded, "name": name} for name in names[:1]), *numbers]
    kept = ("name", "data_type", "dims")
    notes += [
        f'input "{entry["name"]}": {key} has no place in a pixprep model, and is left out'
        for entry in entries
        for key in entry
        if key not in (*kept, "format", "allow_ragged_batch")
    ]
    return [{key: entry[key] for key in kept if key in entry} for entry in entries]


def _parameters(parameters: Mapping[str, Any], notes: list[str]) -> Config:
    made = {}
    for key, entry in parameters.items():
        if key in _PARAMETERS or key.isupper():
            made[_PARAMETERS.get(key, key)] = entry
        else:
            notes.append(f"parameter {quoted(key)} has no place in a pixprep model, and is left out")
    return made


def _groups(groups: Sequence[Config], notes: list[str]) -> list[Config]:
    """Instances, where this server has what they ask for: a GPU if there is one, else the CPU."""
    made = []
    for group in groups:
        kind, count = group.get("kind", "KIND_AUTO"), int(group.get("count", 1))
        made.append({"count": count, **({"kind": "KIND_CPU"} if kind == "KIND_CPU" else {})})
        if kind == "KIND_GPU":
            gpus = f" on {', '.join(map(str, group['gpus']))}" if group.get("gpus") else ""
            notes.append(
                f"instance_group: KIND_GPU{gpus}: {count} instances on each GPU where the server has some, else on the "
                "CPU; pixprep has not run on a GPU yet: KIND_CPU keeps it off"
            )
    return made
