"""The text of each model's config.pbtxt."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from pixprep.pipeline.file import read_bytes
from pixprep.serving.triton.config import EXAMPLES, FRAMES, Config

Runtime = Literal["onnxruntime", "onnxruntime-gpu", "tensorrt"]

LABELS_FILE, LABELS_OF = "labels.txt", "labels_{}.txt"
"""Labels of the one output that has some, and of one of several."""
_STAMP = "PIXPREP_BUILD_CHECKSUM"
_STAMPED = re.compile(
    rf'^parameters {{ key: "{_STAMP}" value {{ string_value: "([0-9a-f]{{12}})" }} }}\n'
    r"|\A# Written by `pixprep build` \(([0-9a-f]{12})\), .*\n",  # of builds before the parameter
    re.MULTILINE,
)
_STRING = r'("(?:[^"\\\n]|\\["\\/bfnrt]|\\u[0-9a-f]{4})*")'
_PARAMETER = re.compile(rf"^parameters {{ key: {_STRING} value {{ string_value: {_STRING} }} }}$", re.MULTILINE)
_NAME = r'\s*:\s*"([^"]*)"'
_STEP = re.compile(rf"\bmodel_name{_NAME}|\b(input|output)_map\s*:?\s*\{{\s*key{_NAME}[\s,;]*value{_NAME}[\s,;]*\}}")
"""Name of a step's model, or an entry of its maps."""
_MAX_BYTES = 1 << 20
_FORMATS = {"chw": "FORMAT_NCHW", "hwc": "FORMAT_NHWC"}
# of a classifier's config.pbtxt: where it runs, and where its inputs come
_PLACES = {
    "onnxruntime": ["# ONNX Runtime uses all cores by itself.\ninstance_group { count: 1 kind: KIND_CPU }"],
    "onnxruntime-gpu": [
        "# Tensors that preprocess gives on the GPU stay there.",
        'parameters { key: "FORCE_CPU_ONLY_INPUT_TENSORS" value { string_value: "no" } }',
        "# Without instance_group there is one instance per GPU, or one on the CPU where there is no GPU.",
    ],
}


_ALONE = (
    "# A request is one photo with its boxes. Requests run at once where there are several instances:\n"
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


def read(config: Path) -> str:
    """The text of a ``config.pbtxt``, or its begin."""
    return read_bytes(config, most=_MAX_BYTES).decode(errors="replace")


class Step(NamedTuple):
    """Step of an ensemble.

    Attributes:
        model: its name.
        inputs, outputs: the ensemble's tensors, by the model's names of them.
    """

    model: str
    inputs: dict[str, str]
    outputs: dict[str, str]


def ensembles(repository: Path) -> dict[str, list[Step]]:
    """The steps of each ensemble of a repository, whoever wrote it."""
    found = {}
    for path in sorted(repository.glob("*/config.pbtxt")):
        lines = read(path).splitlines()
        if steps := _steps("\n".join(line for line in lines if not line.lstrip().startswith("#"))):
            found[path.parent.name] = steps
    return found


def _steps(text: str) -> list[Step]:
    """The steps in a configuration; each begins with its ``model_name``."""
    found: list[Step] = []
    for model, side, key, value in _STEP.findall(text):
        if model:
            found.append(Step(model, {}, {}))
        elif found:
            (found[-1].inputs if side == "input" else found[-1].outputs)[key] = value
    return found


def is_unchanged(text: str) -> bool | None:
    """Tell whether nobody has changed the file since ``build`` wrote it; None of a file that it did not write."""
    stamp = _STAMPED.search(text)
    return stamp and _checksum(text[: stamp.start()] + text[stamp.end() :]) in stamp.groups()


def settings(text: str) -> str:
    """The file without comments and ``build``'s own parameter."""
    return re.sub(r"^#.*\n", "", _STAMPED.sub("", text), flags=re.MULTILINE)


def parameters(text: str) -> dict[str, str]:
    """Parameters in the file, without ``build``'s own."""
    found = {json.loads(key): json.loads(value, strict=False) for key, value in _PARAMETER.findall(text)}
    return {key: value for key, value in found.items() if key != _STAMP}


def max_batch_size(text: str) -> int:
    """``max_batch_size`` in the file."""
    found = re.search(r"^max_batch_size: (\d{1,9})$", text, re.MULTILINE)
    return int(found[1]) if found else 0


def preprocess(config: Config) -> str:
    """Configuration of the model that makes tensors of images."""
    return _text(
        "it declares what 1/pipeline.json implies",
        f'backend: "pixprep"\nmax_batch_size: {config["max_batch_size"]}',
        tensors("input", config["input"]),
        tensors("output", config["output"]),
        *_parameters(config["parameters"]),
        "dynamic_batching { }" if config["max_batch_size"] else _ALONE,
        "# Without instance_group there is one instance per GPU, or one on the CPU where there is no GPU.",
    )


def rows(inputs: Sequence[Config], outputs: Sequence[Config], *, is_batched: bool) -> str:
    """Configuration of the model that makes rows of what a detector found, in a batch of one or without a batch."""
    return _text(
        "1/rows.py has the function that it calls",
        'backend: "python"\nmax_batch_size: 0',
        tensors("input", inputs),
        tensors("output", outputs),
        *_parameters({"batched": {"string_value": "true"}} if is_batched else {}),
        "instance_group { kind: KIND_CPU }",
    )


def classifier(runtime: Runtime, max_batch_size: int, inputs: Sequence[Config], outputs: Sequence[Config]) -> str:
    """Configuration of the model that takes the tensors."""
    runs = 'platform: "tensorrt_plan"' if runtime == "tensorrt" else 'backend: "python"'
    return _text(
        "the tensors are those of the classifier's file",
        f"{runs}\nmax_batch_size: {max_batch_size}",
        tensors("input", inputs),
        tensors("output", outputs),
        *(["dynamic_batching { }"] if max_batch_size else []),
        *_PLACES.get(runtime, []),
    )


def ensemble(
    steps: Sequence[Step],
    max_batch_size: int,
    inputs: Sequence[Config],
    outputs: Sequence[Config],
    parameters: Mapping[str, Config],
) -> str:
    """Configuration of steps that follow each other; of the parameters, those that clients read."""
    return _text(
        "in a map, key is the model's name, value the ensemble's",
        f'platform: "ensemble"\nmax_batch_size: {max_batch_size}',
        tensors("input", inputs),
        tensors("output", [{**entry, "label_filename": ""} for entry in outputs]),
        *_parameters({key: value for key, value in parameters.items() if key in (FRAMES, EXAMPLES)}),
        f"ensemble_scheduling {{\n{''.join(map(_step, steps))}}}",
    )


def _parameters(entries: Mapping[str, Config]) -> list[str]:
    pairs = [(_quoted(key), _quoted(entry["string_value"])) for key, entry in entries.items()]
    return [f"parameters {{ key: {key} value {{ string_value: {value} }} }}" for key, value in pairs]


def _text(what: str, *parts: str) -> str:
    text = "\n".join([f"# Written by `pixprep build`, which writes it anew: {what}.", *parts, ""])
    (stamp,) = _parameters({_STAMP: {"string_value": _checksum(text)}})
    return f"{text}{stamp}\n"


def _checksum(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def tensors(direction: str, entries: Sequence[Config]) -> str:
    """The inputs or outputs of a configuration."""
    blocks = []
    for entry in entries:
        labels = f'  label_filename: "{entry["label_filename"]}"\n' if entry.get("label_filename") else ""
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
    return "\n".join(["  step {", f'    model_name: "{step.model}"', "    model_version: -1", *lines, "  }", ""])
