"""Derives a model configuration from a pipeline, and parses the parameters in ``config.pbtxt``.

``config.pbtxt`` is optional, because the backend derives the configuration. If the file exists, it may specify the name
and type of the image input, the batch size, and the parameters below. Everything that the pipeline determines (outputs,
dtypes, dims) must match the pipeline.

A pipeline with boxes returns one tensor per box. Its model therefore does not support batching: ``max_batch_size`` is
0, a request contains one photo, and the first dimension of the numeric inputs and of the outputs is the number of
boxes. docs/decisions-serving.md describes the alternatives to this design.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Literal

from pixprep.cores import cores
from pixprep.engine.decoders import CODECS, DAMAGES, FORMATS, USUAL, Format, Limits
from pixprep.engine.options import EngineOptions
from pixprep.errors import PipelineError
from pixprep.pipeline.ops.faults import quoted
from pixprep.pipeline.pipeline import Pipeline
from pixprep.pipeline.walk import MAX_OUTPUT_BYTES
from pixprep.plan.steps.operators import check_name
from pixprep.spec import Frames, TensorSpec

Config = dict[str, Any]
"""Model configuration in Triton's JSON form: ``{"max_batch_size": 0, "input": [], …}``."""

CONFIG_FILE, PIPELINE_FILE = "config.pbtxt", "pipeline.json"
DEFAULT_MAX_BATCH_SIZE = 64
MAX_RESPONSE_BYTES = 320 << 20
"""Default maximum size of a response in bytes. It is enough for 64 float32 tensors of shape (3, 640, 640) and small
numeric outputs. The shared memory of two models with such responses fits in a /dev/shm of 1 GiB."""
INPUT_NAME, STATUS_NAME, AFTER_NAME = "image", "status", "after"
PIXELS = "pixels"
"""Name of the parameter from which clients learn the channel order of a pixel input. The backend derives its value."""
EXAMPLES = "examples"
"""Name of the parameter that contains example rows as a JSON object, for numeric inputs that do not accept zeros. The
backend derives its value."""
FRAMES = "frames"
"""Name of the parameter from which clients learn the number of frames per clip. The backend derives its value."""
_INTEGERS = {f"TYPE_{sign}INT{bits}" for sign in ("", "U") for bits in (8, 16, 32, 64)}
_NUMBER_TYPES = {"number": _INTEGERS | {"TYPE_FP16", "TYPE_FP32", "TYPE_FP64"}, "flag": _INTEGERS}
"""Types that config.pbtxt may declare for numeric inputs, by the kind of the input."""
CHOICES = {
    "on_error": ("fail", "zero"),
    "decoder": CODECS,
    "damage": DAMAGES,
    "outputs": ("gpu", "cpu"),
    "odd_range": ("refused", "meant"),
    "no_rows": ("refused", "empty"),
    "accept_base64": ("false", "true"),
}
"""Parameters with fixed choices. The first choice is the default."""
_LIMITS = {name: number for name, number in vars(Limits()).items() if name != "formats"}
NUMBERS = {"threads": 0, "max_request_bytes": 64 << 20, "max_response_bytes": MAX_RESPONSE_BYTES, **_LIMITS}
"""Integer parameters with their defaults. The default of ``threads`` depends on the number of instances."""
PARAMETERS = (*CHOICES, PIXELS, FRAMES, EXAMPLES, "allow_operators", "formats", *NUMBERS)
"""Names of all parameters that pixprep defines. Triton's own parameters have upper-case names."""
ZERO_IS_NO_LIMIT = ("max_expansion", "max_frames")
_MOST = 999_999_999
_MAX_OF = {"threads": 1024, "max_response_bytes": MAX_OUTPUT_BYTES}


def texts(config: Mapping[str, Any]) -> dict[str, str]:
    """Return the parameters of a configuration as a dict from name to string value."""
    return {key: entry.get("string_value", "") for key, entry in config.get("parameters", {}).items()}


def parameters(texts: Mapping[str, str]) -> Config:
    """Convert a dict of string values to the field ``parameters`` of a configuration, the inverse of ``texts``."""
    return {key: {"string_value": text} for key, text in texts.items()}


def triton_type(dtype: str) -> str:
    """Return Triton's data type for the name of a dtype, such as ``TYPE_FP32`` for ``float32``."""
    return f"TYPE_{dtype.upper().replace('FLOAT', 'F' if dtype == 'bfloat16' else 'FP')}"


def face(entry: Config) -> tuple[Any, list[int]]:
    """Return the data type and the dims of an input or output of a configuration."""
    return entry.get("data_type"), [int(dim) for dim in entry.get("dims", [])]


def steps(config: Mapping[str, Any]) -> list[Config]:
    """Return the steps of an ensemble, or an empty list for any other model."""
    return list(config.get("ensemble_scheduling", {}).get("step", []))


@dataclass(frozen=True, kw_only=True)
class Options:
    """Values of the parameters in ``config.pbtxt``.

    Attributes:
        on_error: Handling of an image that cannot be processed. ``fail``: its request fails. ``zero``: its tensors are
            zeros, and the output ``status`` contains the reason.
        engine: Options of the engine, see ``Engine``. By default, the cores of this process are divided equally among
            the instances. ``pixprep check`` rejects unusual value ranges unless ``odd_range`` is ``meant``.
        outputs: Memory of the output tensors. ``gpu``: the memory in which they were computed. ``cpu``: host memory.
        no_rows: Response to a request whose numeric inputs, such as boxes, do not have any rows. ``refused``: the error
            EMPTY. ``empty``: tensors whose first dimension is 0, for use inside an ensemble.
        accept_base64: Whether images may be base64 text, for clients that send JSON.
        allow_operators: Names of the installed custom operators that the pipeline may call.
        max_request_bytes: Maximum size in bytes of all images of one request.
        max_response_bytes: Maximum size in bytes of all tensors of one response, including their padding. If all output
            sizes are fixed, ``max_batch_size`` images must not exceed it.
    """

    on_error: Literal["fail", "zero"]
    engine: EngineOptions
    outputs: Literal["gpu", "cpu"]
    no_rows: Literal["refused", "empty"]
    accept_base64: bool
    allow_operators: tuple[str, ...]
    max_request_bytes: int
    max_response_bytes: int


def options(config: Mapping[str, Any]) -> Options:
    """Parse the parameters of a configuration.

    Raises:
        PipelineError: A parameter is unknown, or its value is invalid.
    """
    parameters = texts(config)
    for key in parameters:
        if key not in PARAMETERS and not key.isupper():  # Triton's parameters are in upper case, such as FORCE_CPU_...
            near = get_close_matches(key, PARAMETERS, n=1)
            hint = f'did you mean "{near[0]}"?' if near else f"the parameters are {', '.join(PARAMETERS)}"
            raise PipelineError(f"parameters: unknown parameter {quoted(key)}; {hint}")
    instances = sum(group.get("count", 1) for group in config.get("instance_group", [])) or 1
    cores_per_instance = max(1, cores() // instances)
    words = {name: _choice(parameters, name, choices) for name, choices in CHOICES.items()}
    defaults = NUMBERS | {"threads": cores_per_instance}
    numbers = {name: _number(parameters, name, default) for name, default in defaults.items()}
    damage, decoder, odd_range = (words.pop(name) for name in ("damage", "decoder", "odd_range"))
    engine = EngineOptions(
        threads=numbers.pop("threads"),
        limits=Limits(formats=_formats(parameters), **{name: numbers.pop(name) for name in _LIMITS}),
        damage=damage if "damage" in parameters else None,
        decoder=decoder,
        odd_range=odd_range == "meant",
    )
    is_base64, allowed = words.pop("accept_base64") == "true", parameters.get("allow_operators", "")
    return Options(
        **{**words, **numbers}, engine=engine, accept_base64=is_base64, allow_operators=operator_names(allowed)
    )


def operator_names(text: str) -> tuple[str, ...]:
    """Parse the parameter ``allow_operators``: names of custom operators, separated by spaces or commas.

    Raises:
        PipelineError: A name is invalid.
    """
    names = tuple(text.replace(",", " ").split())
    for name in names:
        try:
            check_name(name)
        except PipelineError:
            raise PipelineError(
                f"parameters: allow_operators must contain names such as acme.denoise, not {quoted(name)}"
            ) from None
    return names


def _choice(parameters: Mapping[str, str], name: str, choices: Sequence[str]) -> Any:
    """Return the value of a parameter with fixed choices. The default is the first choice."""
    value = parameters.get(name, choices[0])
    if value not in choices:
        *others, last = map(quoted, choices)
        raise PipelineError(f"parameters: {name} must be {', '.join(others)} or {last}, not {quoted(value)}")
    return value


def _formats(parameters: Mapping[str, str]) -> tuple[Format, ...]:
    named = parameters.get("formats", " ".join(USUAL)).replace(",", " ").split()
    for name in named or [""]:
        if name not in FORMATS:
            raise PipelineError(f"parameters: formats must be some of {', '.join(FORMATS)}, not {quoted(name)}")
    return tuple(name for name in FORMATS if name in named)


def maximum(key: str) -> int:
    """Return the maximum value of an integer parameter."""
    return _MAX_OF.get(key, _MOST)


def _number(parameters: Mapping[str, str], key: str, default: int) -> int:
    text = parameters.get(key, str(default))
    if key in ZERO_IS_NO_LIMIT and text == "0":
        return 0
    if not text.isascii() or not text.isdigit() or not text.strip("0"):
        raise PipelineError(f"parameters: {key} must be an integer of at least 1, not {quoted(text)}")
    limit = maximum(key)
    if len(text) > len(str(limit)) or int(text) > limit:
        raise PipelineError(f"parameters: {key} must be at most {limit:,}, not {quoted(text)}")
    return int(text)


def inputs(config: Mapping[str, Any], pipeline: Pipeline) -> list[Config]:
    """Return the complete inputs of a model: the image input first, then the numeric inputs of the pipeline.

    The configuration may declare the image input with a different name or type; the default is BYTES ``image``, or
    pixels of shape [-1, -1, channels] if the pipeline accepts pixels. It may declare numeric inputs with any numeric
    type. It may also declare an optional input ``after`` of any type, which the model does not read. An ensemble uses
    this input to make the step wait for another step.

    Raises:
        PipelineError: A declared input is not supported for images, or differs from the pipeline's input.
    """
    rows = [-1] if pipeline.plan.takes_boxes else []
    count = -1 if pipeline.plan.is_packed else 1
    derived: dict[str, Config] = {
        name: {"name": name, "data_type": triton_type(spec.dtype), "dims": [*rows, *spec.shape]}
        for name, spec in pipeline.inputs.items()
    }
    written = config.get("input", [])
    for entry in written:
        if want := derived.get(entry.get("name")):
            if entry.get("data_type") in _NUMBER_TYPES.get(pipeline.inputs[want["name"]].kind, ()):
                want["data_type"] = entry["data_type"]
            _compare("input", "requires", entry, want)
    after = [each for each in written if each.get("name") == AFTER_NAME not in derived and each.get("optional")]
    others = [entry for entry in written if entry.get("name") not in derived and entry not in after]
    if pipeline.plan.takes:
        return [_frames(others, pipeline.plan.takes), *derived.values(), *after]
    return [_image_input(others, count), *derived.values(), *after]


def _compare(side: str, verb: str, written: Config, want: Config) -> None:
    """Raise PipelineError if a declared input or output differs from the one that the pipeline requires."""
    data_type, dims = face(written)
    if (data_type, dims) != (want["data_type"], want["dims"]):
        raise PipelineError(
            f'config.pbtxt: {side} "{want["name"]}" is {data_type} {dims}, but the pipeline {verb} '
            f"{want['data_type']} {want['dims']}: correct it, or remove the {side}"
        )


def _image_input(written: Sequence[Config], count: int) -> Config:
    """Check the declared input for encoded images and return it, or return the default input if none is declared.

    Args:
        written: Declared inputs.
        count: Number of images per element of the batch. -1: the model does not support batching, and a request may
            contain any number of images.
    """
    if not written:
        return {"name": INPUT_NAME, "data_type": "TYPE_STRING", "dims": [count]}
    if len(written) > 1:
        raise PipelineError(f"config.pbtxt: {len(written)} inputs for encoded images: declare only one")
    (entry,) = written
    data_type, dims = face(entry)
    if data_type == "TYPE_STRING" and dims in ([1], [count]):
        return entry
    if (data_type, dims) == (
        "TYPE_UINT8",
        [-1],
    ):  # if not ragged, requests of different lengths would never share a batch
        return {**entry, "allow_ragged_batch": True}
    raise PipelineError(
        f'config.pbtxt: input "{entry.get("name")}" is {data_type} {dims}, which is not supported for encoded images: '
        f"declare TYPE_STRING with dims [ {count} ], or TYPE_UINT8 with dims [ -1 ]"
    )


def _frames(written: Sequence[Config], frames: Frames) -> Config:
    """Check the declared input for pixels and return it, or return the default input if none is declared.

    The height and width of the input may be fixed or -1. If one of them is -1, ``allow_ragged_batch`` is set, because
    requests of different sizes would never share a batch without this field.
    """
    derived: Config = {"name": INPUT_NAME, "data_type": triton_type(frames.dtype), "dims": frames.shape(-1, -1)}
    entry = written[0] if written else derived
    data_type, dims = face(entry)
    is_sized = len(dims) == 3 and all(
        dim == want or (want == -1 and dim > 0) for dim, want in zip(dims, derived["dims"], strict=True)
    )
    if len(written) > 1 or data_type != derived["data_type"] or not is_sized:
        shape = ", ".join(map(str, derived["dims"]))
        raise PipelineError(
            f'config.pbtxt: input "{entry.get("name")}" is {data_type} {dims}, which does not match the pixels that '
            f"the pipeline requires: declare {derived['data_type']} with dims [ {shape} ] as the only image input"
        )
    return {**entry, "allow_ragged_batch": True} if -1 in dims else entry


def outputs(config: Mapping[str, Any], pipeline: Pipeline) -> list[Config]:
    """Return the complete outputs of a model with this configuration.

    Raises:
        PipelineError: ``config.pbtxt`` declares an output that does not exist, or whose dtype or dims differ.
    """
    rows = [-1] if pipeline.plan.takes_boxes or pipeline.plan.is_packed else []
    derived: list[Config] = [
        {"name": name, "data_type": triton_type(output.spec.dtype), "dims": served_dims(output.spec, rows)}
        for name, output in pipeline.outputs.items()
    ]
    if options(config).on_error == "zero":
        derived.append({"name": STATUS_NAME, "data_type": "TYPE_STRING", "dims": [*rows, 1]})
    by_name: dict[str, Config] = {entry["name"]: entry for entry in derived}
    for written in config.get("output", []):
        name = written.get("name")
        if name not in by_name:
            hint = ': to add it, set the parameter on_error to "zero"' if name == STATUS_NAME else ""
            raise PipelineError(f'config.pbtxt: output "{name}": the pipeline only returns {", ".join(by_name)}{hint}')
        _compare("output", "returns", written, by_name[name])
    return derived


def served_dims(spec: TensorSpec, rows: Sequence[int]) -> list[int]:
    """Return the dims of an output, which begin with ``rows`` unless the output is a variable number of patches."""
    return [*(() if spec.patches is not None and spec.is_open else rows), *spec.shape]


def complete(config: Mapping[str, Any], pipeline: Pipeline) -> Config:
    """Return the configuration with all fields that the pipeline determines.

    The default of ``max_batch_size`` is 64 for images, and 64 divided by the number of frames for clips. It is lower if
    a response of this size would exceed its limit, and 0 for a pipeline with boxes.

    Raises:
        PipelineError: The configuration contradicts the pipeline, or the outputs of a batch are too large.
    """
    max_bytes, limit = _max_bytes(config, pipeline), max_images(config, pipeline)
    tensors = {"input": inputs(config, pipeline), "output": outputs(config, pipeline)}
    if pipeline.plan.takes_boxes:
        if config.get("max_batch_size"):
            raise PipelineError(
                "config.pbtxt: max_batch_size: batching is not supported for a pipeline with boxes, because a photo "
                "has one tensor per box: write 0, or remove the field"
            )
        boxes = options(config).engine.limits.max_boxes
        if boxes > limit and "max_boxes" in config.get(
            "parameters", {}
        ):  # by default, the size of each response is checked instead
            raise PipelineError(
                f"config.pbtxt: max_boxes: the outputs of {boxes:,} boxes have {boxes * pipeline.n_bytes:,} bytes, but "
                f"the limit is {max_bytes:,}: set the parameter max_boxes to {limit}, or raise max_response_bytes"
            )
        return _with_facts({**config, "max_batch_size": 0, **tensors}, pipeline)
    if pipeline.plan.is_packed:
        if config.get("max_batch_size"):
            raise PipelineError(
                "config.pbtxt: max_batch_size: the patches of all images of a request are one tensor without a batch "
                "dimension: write 0, or leave it out"
            )
        return _with_facts({**config, "max_batch_size": 0, **tensors}, pipeline)
    usual = max(1, DEFAULT_MAX_BATCH_SIZE // (pipeline.images[0].frames or 1))
    max_batch_size = config.get("max_batch_size") or min(usual, limit)
    if max_batch_size < 0:
        raise PipelineError(f"config.pbtxt: max_batch_size must be at least 1, not {max_batch_size}")
    if max_batch_size > limit:
        remedy = ", or raise the parameter max_response_bytes" if max_bytes < MAX_OUTPUT_BYTES else ""
        raise PipelineError(
            f"config.pbtxt: max_batch_size: the outputs of {max_batch_size:,} images have "
            f"{max_batch_size * pipeline.n_bytes:,} bytes, but the limit is {max_bytes:,}: set it to {limit}"
            f"{remedy}"
        )
    full = _with_facts({**config, "max_batch_size": max_batch_size, **tensors}, pipeline)
    if "sequence_batching" not in config:
        full.setdefault("dynamic_batching", {})
    return full


def _with_facts(config: Config, pipeline: Pipeline) -> Config:
    """Add the parameters that describe the pipeline's inputs to clients.

    Raises:
        PipelineError: A parameter is declared with a different value.
    """
    facts: dict[str, str] = {}
    written, frames = texts(config), pipeline.images[0].frames
    takes = pipeline.plan.takes and pipeline.plan.takes.order
    specs = {name: spec for name, spec in pipeline.inputs.items() if spec.kind not in ("box", "flag", "color")}
    rows = {name: spec.example for name, spec in specs.items() if any(spec.example)}
    examples = json.dumps(rows, separators=(",", ":")) if rows else None
    for key, fact, what in (
        (PIXELS, takes, f"requires {takes}" if takes else "decodes files"),
        (FRAMES, frames and str(frames), f"requires {frames} frames per clip" if frames else "does not accept clips"),
        (EXAMPLES, examples, f"requires {examples}" if examples else "does not have such inputs"),
    ):
        if (value := written.get(key, fact)) != fact:
            raise PipelineError(
                f"config.pbtxt: parameters: {key} is {quoted(value)}, but the pipeline {what}: remove the parameter"
            )
        if fact:
            facts[key] = fact
    return {**config, "parameters": {**config.get("parameters", {}), **parameters(facts)}} if facts else {**config}


def max_images(config: Mapping[str, Any], pipeline: Pipeline) -> int:
    """Return the maximum number of images whose tensors do not exceed the limit of a response."""
    return _max_bytes(config, pipeline) // pipeline.n_bytes


def _max_bytes(config: Mapping[str, Any], pipeline: Pipeline) -> int:
    """Return the maximum size of the tensors of a full batch in bytes.

    If the size of an output is not fixed, ``max_response_bytes`` does not limit the batch, because it is checked for
    each response instead.
    """
    if any(output.spec.is_open for output in pipeline.outputs.values()):
        return MAX_OUTPUT_BYTES
    max_bytes = options(config).max_response_bytes
    if max_bytes < pipeline.n_bytes:
        raise PipelineError(
            f"parameters: max_response_bytes is {max_bytes:,}, but the outputs of one image take "
            f"{pipeline.n_bytes:,} bytes: increase max_response_bytes"
        )
    return max_bytes


def count_instances(config: Mapping[str, Any]) -> int:
    """Return the total number of instances that a configuration declares for all of its GPUs."""
    groups = config.get("instance_group", ())
    return sum(max(1, group.get("count", 1)) * max(1, len(group.get("gpus") or ())) for group in groups)


def is_stalling(config: Mapping[str, Any]) -> bool:
    """Return whether Triton 2.51 delays requests unnecessarily, as it does with a queue policy and only one instance.

    With a queue policy, Triton passes a batch to an instance only if the instance is free. If the instance is busy,
    Triton does not check again for 0.5 s.
    """
    batching = config.get("dynamic_batching") or {}
    policies = [batching.get("default_queue_policy") or {}, *(batching.get("priority_queue_policy") or {}).values()]
    names = ("max_queue_size", "default_timeout_microseconds", "allow_timeout_override")
    return count_instances(config) == 1 and any(int(policy.get(name) or 0) for policy in policies for name in names)
