"""Reads and writes the text of ``config.pbtxt`` files."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from pixprep.errors import PipelineError, SetupError, install, needing
from pixprep.serving.options import Runtime
from pixprep.serving.triton.config import CONFIG_FILE, EXAMPLES, FRAMES, Config, texts

LABELS_FILE, LABELS_OF = "labels.txt", "labels_{}.txt"
"""Name of the labels file if one output has labels, and pattern of the file names if several outputs have labels."""
STAMP = "PIXPREP_BUILD_CHECKSUM"
"""Name of the parameter at the end of each ``config.pbtxt`` from ``build``, with a checksum of the text before it."""
_NO_CLIENT = f"reading a config.pbtxt that `pixprep build` did not write requires tritonclient: {install('client')}"
_UNSET = -(1 << 31)
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\]:,]|[^\s{}\[\]:,"]+')
_LISTS = ("dims", "input", "output", "instance_group", "step")
_MAPS = ("parameters", "input_map", "output_map")
"""Names of the repeated fields and names of the map fields in files that ``build`` writes."""
_FORMATS = {"chw": "FORMAT_NCHW", "hwc": "FORMAT_NHWC"}
_DEFAULT_INSTANCES = "# By default, Triton creates one instance per GPU, or one on the CPU if there is no GPU."
# Lines in a classifier's config.pbtxt that configure its instances and the memory of its inputs.
_DEVICES = {
    "onnxruntime": [
        "# One instance suffices: ONNX Runtime uses all cores.\ninstance_group { count: 1 kind: KIND_CPU }"
    ],
    "onnxruntime-gpu": [
        "# Keep input tensors in GPU memory.",
        'parameters { key: "FORCE_CPU_ONLY_INPUT_TENSORS" value { string_value: "no" } }',
        _DEFAULT_INSTANCES,
    ],
}


_NOT_BATCHED = (
    "# A request has one photo with its boxes, or images whose patches are one tensor. Requests are not batched.\n"
    "# To process several requests concurrently, add instances:\n"
    "# instance_group { count: 4 kind: KIND_CPU }"
)


class Names(NamedTuple):
    """Names of the three models that ``build`` writes: the preprocess model, the classifier and the ensemble."""

    preprocess: str = "preprocess"
    classifier: str = "classifier"
    ensemble: str = "ensemble"

    @classmethod
    def of(cls, name: str) -> Names:
        """Return ``NAME_preprocess``, ``NAME_classifier`` and ``NAME``, or the defaults if the name is empty."""
        return cls(f"{name}_preprocess", f"{name}_classifier", name) if name else cls()


class Step(NamedTuple):
    """Step of an ensemble.

    Attributes:
        model: Name of the model that the step calls.
        inputs, outputs: Names of the ensemble's tensors, by the name of the model's input or output.
        version: Version of the model. -1 selects the newest served version.
    """

    model: str
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    version: int = -1


def parse(text: str) -> Config:
    """Convert the text of a ``config.pbtxt`` to its JSON form.

    Raises:
        PipelineError: The text does not follow Triton's schema.
        SetupError: ``build`` did not write the text, and tritonclient, which contains the schema, is not installed.
    """
    try:
        from google.protobuf import json_format, text_format  # noqa: PLC0415  (a dependency of tritonclient)
        from tritonclient.grpc import model_config_pb2  # noqa: PLC0415
    except ImportError:
        if not is_unchanged(text):
            raise SetupError(_NO_CLIENT) from None
        lines = (line for line in text.splitlines() if not line.startswith("#"))
        return _message(iter(_TOKEN.findall("\n".join(lines))))
    try:
        message = text_format.Parse(text, model_config_pb2.ModelConfig())
    except text_format.ParseError as error:
        fields = "see Triton's model_config.proto for the fields"
        raise PipelineError(f"{CONFIG_FILE}: cannot be parsed: {str(error).rstrip('.')}: {fields}") from None
    config: Config = json_format.MessageToDict(message, preserving_proto_field_name=True)
    return config


def _message(tokens: Iterator[str]) -> Config:
    """Parse one protobuf message up to its closing brace, from the tokens of a text that ``build`` wrote."""
    made: Config = {}
    for name in tokens:
        if name == "}":
            break
        value = _message(tokens) if next(tokens) == "{" else _value(next(tokens), tokens)
        if name in _MAPS:
            made.setdefault(name, {})[value["key"]] = value["value"]
        elif name in _LISTS:
            made.setdefault(name, []).extend(value if isinstance(value, list) else [value])
        else:
            made[name] = value
    return made


def _value(first: str, tokens: Iterator[str]) -> Any:
    if first == "[":
        return [int(number) for number in iter(tokens.__next__, "]") if number != ","]
    is_json = first[0] in '"-0123456789' or first in ("true", "false")
    return json.loads(first, strict=False) if is_json else first


def writes_batch_size(text: str) -> bool:
    """Return whether a ``config.pbtxt`` sets ``max_batch_size``. In the JSON form, a missing field appears as 0."""
    with needing(_NO_CLIENT):
        from google.protobuf import text_format  # noqa: PLC0415  (as above)
        from tritonclient.grpc import model_config_pb2  # noqa: PLC0415
    message = text_format.Merge(text, model_config_pb2.ModelConfig(max_batch_size=_UNSET))
    return bool(message.max_batch_size != _UNSET)


def config_text(config: Config) -> str:
    """Convert a configuration from its JSON form to the text of a ``config.pbtxt``.

    Raises:
        SetupError: tritonclient is not installed.
    """
    with needing(_NO_CLIENT):
        from google.protobuf import json_format, text_format  # noqa: PLC0415  (as above)
        from tritonclient.grpc import model_config_pb2  # noqa: PLC0415
    message = json_format.ParseDict(config, model_config_pb2.ModelConfig())
    text: str = text_format.MessageToString(message, as_utf8=True)
    return text


def is_unchanged(text: str) -> bool | None:
    """Return whether a text is unchanged since ``build`` wrote it, or None if ``build`` did not write the text."""
    if STAMP not in text:
        return None
    return text == _stamped(text.rpartition("parameters {")[0])


def preprocess(config: Config) -> str:
    """Return the ``config.pbtxt`` of a preprocess model as text."""
    return _text(
        "The inputs and outputs are those of 1/pipeline.json",
        f'backend: "pixprep"\nmax_batch_size: {config["max_batch_size"]}',
        _tensors("input", config["input"]),
        _tensors("output", config["output"]),
        *_parameters(texts(config)),
        "dynamic_batching { }" if config["max_batch_size"] else _NOT_BATCHED,
        _DEFAULT_INSTANCES,
    )


def rows(inputs: Sequence[Config], outputs: Sequence[Config], *, boxes: Sequence[str], is_batched: bool) -> str:
    """Return the ``config.pbtxt`` of the model that converts a detector's outputs to boxes, as text.

    Args:
        inputs: Inputs of the model, which are outputs of the detector.
        outputs: Outputs of the model, which are inputs of the preprocess model.
        boxes: Names of the outputs that are boxes.
        is_batched: Whether the inputs have a batch dimension. The length of this dimension is 1.
    """
    return _text(
        "The model calls the function in 1/rows.py",
        'backend: "python"\nmax_batch_size: 0',
        _tensors("input", inputs),
        _tensors("output", outputs),
        *_parameters({"boxes": "\n".join(boxes)} | ({"batched": "true"} if is_batched else {})),
        "instance_group { kind: KIND_CPU }",
    )


def picture(
    max_batch_size: int, inputs: Sequence[Config], outputs: Sequence[Config], parameters: Mapping[str, str]
) -> str:
    """Return the ``config.pbtxt`` of the model that encodes pictures, as text."""
    return _text(
        "The model encodes outputs of the classifier as pictures",
        f'backend: "python"\nmax_batch_size: {max_batch_size}',
        _tensors("input", inputs),
        _tensors("output", outputs),
        *_parameters(parameters),
        "# To encode several requests concurrently, increase count.\ninstance_group { count: 1 kind: KIND_CPU }",
    )


def classifier(runtime: Runtime, max_batch_size: int, inputs: Sequence[Config], outputs: Sequence[Config]) -> str:
    """Return the ``config.pbtxt`` of a classifier as text."""
    runs = 'platform: "tensorrt_plan"' if runtime == "tensorrt" else 'backend: "python"'
    return _text(
        "The inputs and outputs are those of the classifier's file",
        f"{runs}\nmax_batch_size: {max_batch_size}",
        _tensors("input", inputs),
        _tensors("output", outputs),
        *(["dynamic_batching { }"] if max_batch_size else []),
        *_DEVICES.get(runtime, []),
    )


def ensemble(
    steps: Sequence[Step],
    max_batch_size: int,
    inputs: Sequence[Config],
    outputs: Sequence[Config],
    parameters: Mapping[str, str],
) -> str:
    """Return the ``config.pbtxt`` of an ensemble as text. It contains only those ``parameters`` that clients need."""
    return _text(
        "In a map, key is the name in the model, and value the name in the ensemble",
        f'platform: "ensemble"\nmax_batch_size: {max_batch_size}',
        _tensors("input", inputs),
        _tensors("output", [{**entry, "label_filename": ""} for entry in outputs]),
        *_parameters({key: text for key, text in parameters.items() if key in (FRAMES, EXAMPLES)}),
        f"ensemble_scheduling {{\n{''.join(map(_step, steps))}}}",
    )


def _parameters(texts: Mapping[str, str]) -> list[str]:
    pairs = [(_quoted(key), _quoted(text)) for key, text in sorted(texts.items())]
    return [f"parameters {{ key: {key} value {{ string_value: {value} }} }}" for key, value in pairs]


def _text(what: str, *parts: str) -> str:
    return _stamped("\n".join([f"# Written by `pixprep build`, which overwrites this file. {what}.", *parts, ""]))


def _stamped(text: str) -> str:
    """Append the checksum of a text as a parameter."""
    checksum = hashlib.sha256(text.encode()).hexdigest()[:12]
    (stamp,) = _parameters({STAMP: checksum})
    return f"{text}{stamp}\n"


def _tensors(direction: str, entries: Sequence[Config]) -> str:
    """Return the inputs or outputs of a configuration as text."""
    blocks = []
    for entry in entries:
        labels = f"  label_filename: {_quoted(entry['label_filename'])}\n" if entry.get("label_filename") else ""
        layout = f"  format: {_FORMATS[entry['layout']]}\n" if entry.get("layout") in _FORMATS else ""
        optional = "  optional: true\n" * entry.get("optional", False)
        blocks.append(
            f"{direction} {{\n  name: {_quoted(entry['name'])}\n  data_type: {entry['data_type']}\n{layout}"
            f"  dims: [ {', '.join(map(str, entry['dims']))} ]\n{labels}{optional}}}"
        )
    return "\n".join(blocks)


def _quoted(name: str) -> str:
    return json.dumps(name, ensure_ascii=False)  # protobuf's text format has the same escapes


def _step(step: Step) -> str:
    maps = [("input_map", *pair) for pair in step.inputs.items()]
    maps += [("output_map", *pair) for pair in step.outputs.items()]
    lines = [f"    {field} {{ key: {_quoted(key)} value: {_quoted(value)} }}" for field, key, value in maps]
    named = [f"    model_name: {_quoted(step.model)}", f"    model_version: {step.version}"]
    return "\n".join(["  step {", *named, *lines, "  }", ""])
