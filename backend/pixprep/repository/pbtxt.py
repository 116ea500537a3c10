"""The text of the three models' config.pbtxt."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from pixprep.triton.config import Config

Runtime = Literal["onnxruntime", "onnxruntime-gpu", "tensorrt"]

PREPROCESS, CLASSIFIER, ENSEMBLE = "preprocess", "classifier", "ensemble"
MARK = "# Written by `pixprep build`"
LABELS_FILE = "labels.txt"
# of a classifier's config.pbtxt: where it runs, and where its inputs come
_PLACES = {
    "onnxruntime": ["# ONNX Runtime uses all cores by itself.\ninstance_group { count: 1 kind: KIND_CPU }"],
    "onnxruntime-gpu": [
        "# Tensors that preprocess gives on the GPU stay there.",
        'parameters { key: "FORCE_CPU_ONLY_INPUT_TENSORS" value { string_value: "no" } }',
        "# Without instance_group there is one instance per GPU, or one on the CPU where there is no GPU.",
    ],
}


def preprocess(config: Config) -> str:
    """Of the model that makes tensors of images."""
    parameters = [
        f'parameters {{ key: "{key}" value {{ string_value: "{value["string_value"]}" }} }}'
        for key, value in config["parameters"].items()
    ]
    return _text(
        "it declares what 1/pipeline.json implies",
        f'backend: "pixprep"\nmax_batch_size: {config["max_batch_size"]}',
        _tensors("input", config["input"]),
        _tensors("output", config["output"]),
        *parameters,
        "dynamic_batching { }",
        "# Without instance_group there is one instance per GPU, or one on the CPU where there is no GPU.",
    )


def classifier(
    runtime: Runtime, max_batch_size: int, inputs: Sequence[Config], outputs: Sequence[Config], *, has_labels: bool
) -> str:
    """Of the model that takes the tensors."""
    runs = 'platform: "tensorrt_plan"' if runtime == "tensorrt" else 'backend: "python"'
    if has_labels:
        outputs = [{**outputs[0], "label_filename": LABELS_FILE}, *outputs[1:]]
    return _text(
        "the tensors are those of the classifier's file",
        f"{runs}\nmax_batch_size: {max_batch_size}",
        _tensors("input", inputs),
        _tensors("output", outputs),
        "dynamic_batching { }",
        *_PLACES.get(runtime, []),
    )


def ensemble(config: Config, pairs: Mapping[str, str], outputs: Sequence[Config]) -> str:
    """Of both, one after the other; ``pairs`` is what ``ports.connect`` found."""
    (image,) = config["input"]
    extra = [entry for entry in config["output"] if entry["name"] not in pairs.values()]
    given = [entry["name"] for entry in config["output"]]
    first = _step(PREPROCESS, [(image["name"], image["name"])], given)
    second = _step(CLASSIFIER, pairs.items(), [entry["name"] for entry in outputs])
    return _text(
        "in a map, key is the model's name, value the ensemble's",
        f'platform: "ensemble"\nmax_batch_size: {config["max_batch_size"]}',
        _tensors("input", [image]),
        _tensors("output", [*outputs, *extra]),
        f"ensemble_scheduling {{\n{first}{second}}}",
    )


def _text(what: str, *parts: str) -> str:
    return "\n".join([f"{MARK}, which writes it anew: {what}.", *parts]) + "\n"


def _tensors(direction: str, entries: Sequence[Config]) -> str:
    """The inputs or outputs of a configuration."""
    blocks = []
    for entry in entries:
        labels = f'  label_filename: "{entry["label_filename"]}"\n' if "label_filename" in entry else ""
        blocks.append(
            f"{direction} {{\n  name: {_quoted(entry['name'])}\n  data_type: {entry['data_type']}\n"
            f"  dims: [ {', '.join(map(str, entry['dims']))} ]\n{labels}}}"
        )
    return "\n".join(blocks)


def _quoted(name: str) -> str:
    return json.dumps(name, ensure_ascii=False)  # whose escapes protobuf's text format shares


def _step(model: str, inputs: Iterable[tuple[str, str]], outputs: Sequence[str]) -> str:
    maps = [("input_map", *pair) for pair in inputs] + [("output_map", name, name) for name in outputs]
    lines = [f"    {field} {{ key: {_quoted(key)} value: {_quoted(value)} }}" for field, key, value in maps]
    return "\n".join(["  step {", f'    model_name: "{model}"', "    model_version: -1", *lines, "  }", ""])
