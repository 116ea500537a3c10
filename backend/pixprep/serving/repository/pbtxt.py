"""The text of a config.pbtxt: read, and written by ``build``."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from pixprep.errors import PipelineError, SetupError, install, needing
from pixprep.serving.triton.config import CONFIG_FILE, EXAMPLES, FRAMES, Config, texts

Runtime = Literal["onnxruntime", "onnxruntime-gpu", "tensorrt"]

LABELS_FILE, LABELS_OF = "labels.txt", "labels_{}.txt"
"""Names of the labels file: for the only output with labels, and for one of several outputs with labels."""
STAMP = "PIXPREP_BUILD_CHECKSUM"
"""The parameter that ``build`` writes last: a checksum of the text before it."""
_NO_CLIENT = f"a config.pbtxt that `pixprep build` did not write needs tritonclient: {install('client')}"
_UNSET = -(1 << 31)
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\]:,]|[^\s{}\[\]:,"]+')
_LISTS = ("dims", "input", "output", "instance_group", "step")
_MAPS = ("parameters", "input_map", "output_map")
"""Fields that may occur repeatedly in the texts that ``build`` writes."""
_FORMATS = {"chw": "FORMAT_NCHW", "hwc": "FORMAT_NHWC"}
# Parts of a classifier's config.pbtxt: where the model runs, and where its inputs arrive.
_PLACES = {
    "onnxruntime": ["# ONNX Runtime uses all cores by itself.\ninstance_group { count: 1 kind: KIND_CPU }"],
    "onnxruntime-gpu": [
        "# Tensors that preprocess gives on the GPU stay there.",
        'parameters { key: "FORCE_CPU_ONLY_INPUT_TENSORS" value { string_value: "no" } }',
        "# Without instance_group there is one instance per GPU, or one on the CPU where there is no GPU.",
    ],
}


_ALONE = (
    "# A request is one photo with its boxes, or images whose patches are one tensor, and is not batched with others.\n"
    "# Requests run in parallel if there are several instances:\n"
    "# instance_group { count: 4 kind: KIND_CPU }"
)


class Names(NamedTuple):
    """Names of the three models."""

    preprocess: str = "preprocess"
    classifier: str = "classifier"
    ensemble: str = "ensemble"

    @classmethod
    def of(cls, name: str) -> Names:
        """``NAME_preprocess``, ``NAME_classifier``, and the ensemble ``NAME``; without a name the usual ones."""
        return cls(f"{name}_preprocess", f"{name}_classifier", name) if name else cls()


class Step(NamedTuple):
    """Step of an ensemble.

    Attributes:
        model: Name of its model.
        inputs, outputs: The ensemble's tensors by the model's names of them.
        version: Version of the model; -1 is the newest that is served.
    """

    model: str
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    version: int = -1


def parse(text: str) -> Config:
    """Read the text of a ``config.pbtxt`` into its JSON form.

    Raises:
        PipelineError: The text does not follow Triton's schema.
        SetupError: The text is not in the form that ``build`` writes, and tritonclient, which contains the schema, is
            not installed.
    """
    try:
        from google.protobuf import json_format, text_format  # noqa: PLC0415  (comes with tritonclient)
        from tritonclient.grpc import model_config_pb2  # noqa: PLC0415
    except ImportError:
        if not is_unchanged(text):
            raise SetupError(_NO_CLIENT) from None
        lines = (line for line in text.splitlines() if not line.startswith("#"))
        return _message(iter(_TOKEN.findall("\n".join(lines))))
    try:
        message = text_format.Parse(text, model_config_pb2.ModelConfig())
    except text_format.ParseError as error:
        fields = "the fields are those of Triton's model_config.proto"
        raise PipelineError(f"{CONFIG_FILE}: cannot be parsed: {str(error).rstrip('.')}: {fields}") from None
    config: Config = json_format.MessageToDict(message, preserving_proto_field_name=True)
    return config


def _message(tokens: Iterator[str]) -> Config:
    """Read one message in a text that ``build`` has written, up to its closing brace."""
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
    """Return whether a ``config.pbtxt`` contains ``max_batch_size``; its JSON form has 0 for a missing one as well."""
    with needing(_NO_CLIENT):
        from google.protobuf import text_format  # noqa: PLC0415  (as above)
        from tritonclient.grpc import model_config_pb2  # noqa: PLC0415
    message = text_format.Merge(text, model_config_pb2.ModelConfig(max_batch_size=_UNSET))
    return bool(message.max_batch_size != _UNSET)


def config_text(config: Config) -> str:
    """The text of a ``config.pbtxt`` of this JSON form.

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
    """Return whether nobody has changed a text since ``build`` wrote it; None if it did not write the text."""
    if STAMP not in text:
        return None
    return text == _stamped(text.rpartition("parameters {")[0])


def preprocess(config: Config) -> str:
    """Configuration of the model that converts images to tensors."""
    return _text(
        "it declares what 1/pipeline.json implies",
        f'backend: "pixprep"\nmax_batch_size: {config["max_batch_size"]}',
        _tensors("input", config["input"]),
        _tensors("output", config["output"]),
        *_parameters(texts(config)),
        "dynamic_batching { }" if config["max_batch_size"] else _ALONE,
        "# Without instance_group there is one instance per GPU, or one on the CPU where there is no GPU.",
    )


def rows(inputs: Sequence[Config], outputs: Sequence[Config], *, is_batched: bool) -> str:
    """Configuration of the model that computes rows from a detector's output, in a batch of one or without a batch."""
    return _text(
        "1/rows.py has the function that it calls",
        'backend: "python"\nmax_batch_size: 0',
        _tensors("input", inputs),
        _tensors("output", outputs),
        *_parameters({"batched": "true"} if is_batched else {}),
        "instance_group { kind: KIND_CPU }",
    )


def classifier(runtime: Runtime, max_batch_size: int, inputs: Sequence[Config], outputs: Sequence[Config]) -> str:
    """Configuration of the model that receives the tensors."""
    runs = 'platform: "tensorrt_plan"' if runtime == "tensorrt" else 'backend: "python"'
    return _text(
        "the tensors are those of the classifier's file",
        f"{runs}\nmax_batch_size: {max_batch_size}",
        _tensors("input", inputs),
        _tensors("output", outputs),
        *(["dynamic_batching { }"] if max_batch_size else []),
        *_PLACES.get(runtime, []),
    )


def ensemble(
    steps: Sequence[Step],
    max_batch_size: int,
    inputs: Sequence[Config],
    outputs: Sequence[Config],
    parameters: Mapping[str, str],
) -> str:
    """Configuration of an ensemble with these steps; it contains only those parameters that clients read."""
    return _text(
        "in a map, key is the model's name, value the ensemble's",
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
    return _stamped("\n".join([f"# Written by `pixprep build`, which overwrites it: {what}.", *parts, ""]))


def _stamped(text: str) -> str:
    """A text with its checksum as the last parameter."""
    checksum = hashlib.sha256(text.encode()).hexdigest()[:12]
    (stamp,) = _parameters({STAMP: checksum})
    return f"{text}{stamp}\n"


def _tensors(direction: str, entries: Sequence[Config]) -> str:
    """The inputs or outputs of a configuration."""
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
    return json.dumps(name, ensure_ascii=False)  # whose escapes protobuf's text format shares


def _step(step: Step) -> str:
    maps = [("input_map", *pair) for pair in step.inputs.items()]
    maps += [("output_map", *pair) for pair in step.outputs.items()]
    lines = [f"    {field} {{ key: {_quoted(key)} value: {_quoted(value)} }}" for field, key, value in maps]
    named = [f"    model_name: {_quoted(step.model)}", f"    model_version: {step.version}"]
    return "\n".join(["  step {", *named, *lines, "  }", ""])
