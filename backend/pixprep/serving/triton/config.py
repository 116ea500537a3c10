"""The model configuration that a pipeline implies, and the fields that ``config.pbtxt`` may add to it.

``config.pbtxt`` is optional: the backend derives it. If the file exists, it may specify the name and the type of the
input, the batch size and the parameters below. The properties that the pipeline determines (outputs, dtypes, dims) must
agree.

A photo yields as many tensors as it has boxes. A model that accepts boxes therefore does not batch: ``max_batch_size``
is 0, a request has one photo, and the first dimension of the other inputs and of the outputs is its boxes.
docs/decisions.md describes the alternatives that were tried.
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
from pixprep.spec import DType, Frames

Config = dict[str, Any]
"""A model configuration in its JSON form, as Triton hands it to Python: ``{"max_batch_size": 0, "input": [], …}``."""

CONFIG_FILE, PIPELINE_FILE = "config.pbtxt", "pipeline.json"
DEFAULT_MAX_BATCH_SIZE = 64
MAX_RESPONSE_BYTES = 320 << 20
"""Default limit of a response: 64 float32 tensors 3 x 640 x 640, and numbers that accompany them. The shared memory
regions of two models through which they pass then fit in a /dev/shm of 1 GiB."""
INPUT_NAME, STATUS_NAME, AFTER_NAME = "image", "status", "after"
PIXELS = "pixels"
"""Parameter from which clients learn the channel order of a model's pixel input; the pipeline determines it."""
EXAMPLES = "examples"
"""Parameter with an example row, as JSON, for each input for which zeros are not valid; the pipeline determines it."""
FRAMES = "frames"
"""Parameter from which clients learn the number of frames per clip of a model; the pipeline determines it."""
TRITON_TYPES: dict[DType, str] = {
    "float32": "TYPE_FP32",
    "float16": "TYPE_FP16",
    "uint8": "TYPE_UINT8",
    "int32": "TYPE_INT32",
    "int64": "TYPE_INT64",
}
_INPUT_TYPES = {"float32": "TYPE_FP32", "float64": "TYPE_FP64", "bool": "TYPE_BOOL", "uint8": "TYPE_UINT8"}
_INTEGERS = {f"TYPE_{sign}INT{bits}" for sign in ("", "U") for bits in (8, 16, 32, 64)}
_NUMBER_TYPES = {"number": _INTEGERS | {"TYPE_FP16", "TYPE_FP32", "TYPE_FP64"}, "flag": _INTEGERS}
"""Types that config.pbtxt may declare for inputs of a kind."""
CHOICES = {
    "on_error": ("fail", "zero"),
    "decoder": CODECS,
    "damage": DAMAGES,
    "outputs": ("gpu", "cpu"),
    "odd_range": ("refused", "meant"),
    "no_rows": ("refused", "empty"),
    "accept_base64": ("false", "true"),
}
"""Parameters that are one of a few words; the first word is the default."""
_LIMITS = {name: number for name, number in vars(Limits()).items() if name != "formats"}
NUMBERS = {"threads": 0, "max_request_bytes": 64 << 20, "max_response_bytes": MAX_RESPONSE_BYTES, **_LIMITS}
"""Parameters that are numbers, with their defaults; that of ``threads`` depends on the instances."""
PARAMETERS = (*CHOICES, PIXELS, FRAMES, EXAMPLES, "allow_operators", "formats", *NUMBERS)
"""All parameters, except Triton's own, whose names are in upper case."""
ZERO_IS_NO_LIMIT = ("max_expansion", "max_frames")
_MOST = 999_999_999
_MAX_OF = {"threads": 1024, "max_response_bytes": MAX_OUTPUT_BYTES}


def texts(config: Mapping[str, Any]) -> dict[str, str]:
    """The parameters of a configuration, as text."""
    return {key: entry.get("string_value", "") for key, entry in config.get("parameters", {}).items()}


def parameters(texts: Mapping[str, str]) -> Config:
    """Parameters in the form of a configuration."""
    return {key: {"string_value": text} for key, text in texts.items()}


def face(entry: Config) -> tuple[Any, list[int]]:
    """Type and dims of an input or output as it is written."""
    return entry.get("data_type"), [int(dim) for dim in entry.get("dims", [])]


def steps(config: Mapping[str, Any]) -> list[Config]:
    """The steps of an ensemble; none of another model."""
    return list(config.get("ensemble_scheduling", {}).get("step", []))


@dataclass(frozen=True, kw_only=True)
class Options:
    """Parameters of ``config.pbtxt``.

    Attributes:
        on_error: Effect of a bad image. ``fail``: its request fails. ``zero``: its tensor is zeros, and the output
            ``status`` contains the reason.
        engine: Options of the engine, see ``Engine``. Without ``threads``, the instances share the cores of this
            process. ``pixprep check`` rejects unusual value ranges unless ``odd_range`` is ``meant``.
        outputs: Memory of the output tensors. ``gpu``: the memory where they were computed. ``cpu``: host memory.
        no_rows: Response to a photo without boxes or other rows. ``refused``: the error EMPTY. ``empty``: tensors
            without rows, for use inside an ensemble.
        accept_base64: Whether images may be base64 text, for clients that send JSON.
        allow_operators: Names of the installed custom operators that the pipeline may call.
        max_request_bytes: Maximum number of bytes of all images of one request.
        max_response_bytes: Maximum number of bytes of the tensors of one request, padded to the largest. If all output
            sizes are fixed, ``max_batch_size`` images must fit.
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
    """Read the parameters.

    Raises:
        PipelineError: A parameter is unknown, or its value is invalid.
    """
    parameters = texts(config)
    for key in parameters:
        if key not in PARAMETERS and not key.isupper():  # upper case: Triton's own, such as EXECUTION_ENV_PATH
            near = get_close_matches(key, PARAMETERS, n=1)
            hint = f'did you mean "{near[0]}"?' if near else f"there are {', '.join(PARAMETERS)}"
            raise PipelineError(f"parameters: no such parameter {quoted(key)}; {hint}")
    if parameters.get("decoder") == "fastest":  # it was removed, and a file that has it still loads
        parameters["decoder"] = "consistent"
    instances = sum(group.get("count", 1) for group in config.get("instance_group", [])) or 1
    share = max(1, cores() // instances)
    words = {name: _choice(parameters, name, choices) for name, choices in CHOICES.items()}
    defaults = NUMBERS | {"threads": share}
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
    """The operators that the parameter ``allow_operators`` names.

    Raises:
        PipelineError: A name is invalid.
    """
    names = tuple(text.replace(",", " ").split())
    for name in names:
        try:
            check_name(name)
        except PipelineError:
            raise PipelineError(
                f"parameters: allow_operators are names such as acme.denoise, not {quoted(name)}"
            ) from None
    return names


def _choice(parameters: Mapping[str, str], name: str, choices: Sequence[str]) -> Any:
    """One of a few words, by default the first."""
    value = parameters.get(name, choices[0])
    if value not in choices:
        *others, last = map(quoted, choices)
        raise PipelineError(f"parameters: {name} is {', '.join(others)} or {last}, not {quoted(value)}")
    return value


def _formats(parameters: Mapping[str, str]) -> tuple[Format, ...]:
    named = parameters.get("formats", " ".join(USUAL)).replace(",", " ").split()
    for name in named or [""]:
        if name not in FORMATS:
            raise PipelineError(f"parameters: formats are some of {', '.join(FORMATS)}, not {quoted(name)}")
    return tuple(name for name in FORMATS if name in named)


def maximum(key: str) -> int:
    """Return the largest value of a parameter that is a number."""
    return _MAX_OF.get(key, _MOST)


def _number(parameters: Mapping[str, str], key: str, default: int) -> int:
    text = parameters.get(key, str(default))
    if key in ZERO_IS_NO_LIMIT and text == "0":
        return 0
    if not text.isascii() or not text.isdigit() or not text.strip("0"):
        raise PipelineError(f"parameters: {key} is an integer of at least 1, not {quoted(text)}")
    most = maximum(key)
    if len(text) > len(str(most)) or int(text) > most:
        raise PipelineError(f"parameters: {key} is at most {most:,}, not {quoted(text)}")
    return int(text)


def inputs(config: Mapping[str, Any], pipeline: Pipeline) -> list[Config]:
    """The inputs of a model with this configuration: the image input first, then those of the pipeline.

    The image input is the one in the configuration, completed, or BYTES ``image``.

    If the pipeline accepts pixels, the image input is UINT8 [-1, -1, channels], or follows the parameter ``pixels``.
    The configuration may declare numeric inputs with any numeric type. It may also declare an optional input ``after``
    of any type. The model does not read it; with it, a step of an ensemble waits for another step.

    Raises:
        PipelineError: A declared input does not fit encoded images or pixels, or differs from the pipeline's input.
    """
    rows = [-1] if pipeline.plan.takes_boxes else []
    derived: dict[str, Config] = {
        name: {"name": name, "data_type": _INPUT_TYPES[spec.dtype], "dims": [*rows, *spec.shape]}
        for name, spec in pipeline.inputs.items()
    }
    written = config.get("input", [])
    for entry in written:
        if want := derived.get(entry.get("name")):
            if entry.get("data_type") in _NUMBER_TYPES.get(pipeline.inputs[want["name"]].kind, ()):
                want["data_type"] = entry["data_type"]
            _compare("input", "takes", entry, want)
    after = [each for each in written if each.get("name") == AFTER_NAME not in derived and each.get("optional")]
    others = [entry for entry in written if entry.get("name") not in derived and entry not in after]
    if pipeline.plan.takes:
        return [_frames(others, pipeline.plan.takes), *derived.values(), *after]
    return [_image_input(others), *derived.values(), *after]


def _compare(side: str, verb: str, written: Config, want: Config) -> None:
    """Reject a declared input or output that differs from the pipeline's."""
    data_type, dims = face(written)
    if (data_type, dims) != (want["data_type"], want["dims"]):
        raise PipelineError(
            f'config.pbtxt: {side} "{want["name"]}": is {data_type} {dims}, but the pipeline {verb} '
            f"{want['data_type']} {want['dims']}: write that, or leave the {side} out"
        )


def _image_input(written: Sequence[Config]) -> Config:
    """The one of encoded images."""
    if not written:
        return {"name": INPUT_NAME, "data_type": "TYPE_STRING", "dims": [1]}
    if len(written) > 1:
        raise PipelineError(f"config.pbtxt: input: {len(written)} inputs, but encoded images come by one")
    (entry,) = written
    data_type, dims = face(entry)
    if (data_type, dims) == ("TYPE_STRING", [1]):
        return entry
    if (data_type, dims) == ("TYPE_UINT8", [-1]):  # ragged, or requests of different lengths would never share a batch
        return {**entry, "allow_ragged_batch": True}
    raise PipelineError(
        f'config.pbtxt: input "{entry.get("name")}": {data_type} {dims} cannot hold encoded images: '
        "write TYPE_STRING with dims [ 1 ], or TYPE_UINT8 with dims [ -1 ]"
    )


def _frames(written: Sequence[Config], frames: Frames) -> Config:
    """The input of pixels; its height and width may be written as one size, and else differ between requests.

    Without ``allow_ragged_batch`` requests of different sizes would never share a batch.
    """
    derived: Config = {"name": INPUT_NAME, "data_type": _INPUT_TYPES[frames.dtype], "dims": frames.shape(-1, -1)}
    entry = written[0] if written else derived
    data_type, dims = face(entry)
    is_sized = len(dims) == 3 and all(
        dim == want or (want == -1 and dim > 0) for dim, want in zip(dims, derived["dims"], strict=True)
    )
    if len(written) > 1 or data_type != derived["data_type"] or not is_sized:
        shape = ", ".join(map(str, derived["dims"]))
        raise PipelineError(
            f'config.pbtxt: input "{entry.get("name")}": {data_type} {dims} cannot hold the pixels that '
            f"the pipeline takes: write {derived['data_type']} with dims [ {shape} ], and no other input"
        )
    return {**entry, "allow_ragged_batch": True} if -1 in dims else entry


def outputs(config: Mapping[str, Any], pipeline: Pipeline) -> list[Config]:
    """The outputs that a model of this configuration has.

    Raises:
        PipelineError: ``config.pbtxt`` names one that the pipeline lacks, or gives one another dtype or dims.
    """
    rows = [-1] if pipeline.plan.takes_boxes else []
    derived: list[Config] = [
        {"name": name, "data_type": TRITON_TYPES[output.spec.dtype], "dims": [*rows, *output.spec.shape]}
        for name, output in pipeline.outputs.items()
    ]
    if options(config).on_error == "zero":
        derived.append({"name": STATUS_NAME, "data_type": "TYPE_STRING", "dims": [*rows, 1]})
    by_name: dict[str, Config] = {entry["name"]: entry for entry in derived}
    for written in config.get("output", []):
        name = written.get("name")
        if name not in by_name:
            hint = ': set the parameter on_error to "zero"' if name == STATUS_NAME else ""
            raise PipelineError(f'config.pbtxt: output "{name}": the pipeline gives only {", ".join(by_name)}{hint}')
        _compare("output", "gives", written, by_name[name])
    return derived


def complete(config: Mapping[str, Any], pipeline: Pipeline) -> Config:
    """The configuration with everything filled in that the pipeline implies.

    Without ``max_batch_size`` in the file, it is 64 images, or as many clips as have the size of 64 images, or fewer if
    a response would be too large. For a pipeline with boxes it is 0.

    Raises:
        PipelineError: The configuration contradicts the pipeline, or the outputs of a batch are too large.
    """
    most_bytes, most = _most_bytes(config, pipeline), max_images(config, pipeline)
    tensors = {"input": inputs(config, pipeline), "output": outputs(config, pipeline)}
    if pipeline.plan.takes_boxes:
        if config.get("max_batch_size"):
            raise PipelineError(
                "config.pbtxt: max_batch_size: a photo gives as many tensors as it has boxes, which is no batch of "
                "Triton's: write 0, or leave it out"
            )
        boxes = options(config).engine.limits.max_boxes
        if boxes > most and "max_boxes" in config.get("parameters", {}):  # else each request is measured
            raise PipelineError(
                f"config.pbtxt: max_boxes: the outputs of {boxes:,} boxes take {boxes * pipeline.n_bytes:,} bytes; an "
                f"answer has at most {most_bytes:,}: set the parameter max_boxes to {most}, or raise max_response_bytes"
            )
        return _with_facts({**config, "max_batch_size": 0, **tensors}, pipeline)
    usual = max(1, DEFAULT_MAX_BATCH_SIZE // (pipeline.images[0].frames or 1))
    max_batch_size = config.get("max_batch_size") or min(usual, most)
    if max_batch_size < 0:
        raise PipelineError(f"config.pbtxt: max_batch_size: {max_batch_size} is less than 1")
    if max_batch_size > most:
        remedy = ", or raise the parameter max_response_bytes" if most_bytes < MAX_OUTPUT_BYTES else ""
        raise PipelineError(
            f"config.pbtxt: max_batch_size: the outputs of {max_batch_size:,} images take "
            f"{max_batch_size * pipeline.n_bytes:,} bytes; an answer has at most {most_bytes:,}: set it to {most}"
            f"{remedy}"
        )
    full = _with_facts({**config, "max_batch_size": max_batch_size, **tensors}, pipeline)
    if "sequence_batching" not in config:
        full.setdefault("dynamic_batching", {})
    return full


def _with_facts(config: Config, pipeline: Pipeline) -> Config:
    """Return the configuration with the parameters that describe the pipeline's inputs to clients.

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
        (PIXELS, takes, f"takes {takes}" if takes else "decodes files"),
        (FRAMES, frames and str(frames), f"takes {frames} of a clip" if frames else "takes no clips"),
        (EXAMPLES, examples, f"has {examples}" if examples else "has no such inputs"),
    ):
        if (said := written.get(key, fact)) != fact:
            raise PipelineError(
                f"config.pbtxt: parameters: {key} is {quoted(said)}, but the pipeline {what}: leave it out"
            )
        if fact:
            facts[key] = fact
    return {**config, "parameters": {**config.get("parameters", {}), **parameters(facts)}} if facts else {**config}


def max_images(config: Mapping[str, Any], pipeline: Pipeline) -> int:
    """The images of the largest batch whose tensors an answer holds."""
    return _most_bytes(config, pipeline) // pipeline.n_bytes


def _most_bytes(config: Mapping[str, Any], pipeline: Pipeline) -> int:
    """Maximum number of bytes of the response to a full batch; with open sizes, each request is measured later."""
    if any(output.spec.is_open for output in pipeline.outputs.values()):
        return MAX_OUTPUT_BYTES
    most_bytes = options(config).max_response_bytes
    if most_bytes < pipeline.n_bytes:
        raise PipelineError(
            f"parameters: max_response_bytes is {most_bytes:,}, and the outputs of one image take "
            f"{pipeline.n_bytes:,} bytes: raise it"
        )
    return most_bytes


def count_instances(config: Mapping[str, Any]) -> int:
    """Count the instances that a model of this configuration has, on all its GPUs."""
    groups = config.get("instance_group", ())
    return sum(max(1, group.get("count", 1)) * max(1, len(group.get("gpus") or ())) for group in groups)


def is_stalling(config: Mapping[str, Any]) -> bool:
    """Return whether Triton 2.51 delays requests without a reason: with a queue policy and one instance.

    With a queue policy, Triton passes a batch to an instance only when the instance is free. If it has just checked, it
    checks again after 0.5 s.
    """
    batching = config.get("dynamic_batching") or {}
    policies = [batching.get("default_queue_policy") or {}, *(batching.get("priority_queue_policy") or {}).values()]
    names = ("max_queue_size", "default_timeout_microseconds", "allow_timeout_override")
    return count_instances(config) == 1 and any(int(policy.get(name) or 0) for policy in policies for name in names)
