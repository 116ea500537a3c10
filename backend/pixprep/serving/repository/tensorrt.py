"""Asks TensorRT's ONNX parser whether it supports a model, and writes the trtexec command that builds its plan.

The parser and the builder are those of TensorRT for RTX, because TensorRT itself needs a GPU even to parse a file. Both
libraries contain the same parser, but TensorRT for RTX implements fewer layers and does not have plugins.
"""

from __future__ import annotations

import json
import shlex
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pixprep.errors import install, shown
from pixprep.serving.repository.ports import Classifier
from pixprep.serving.repository.repository import ONNX_FILE, PLAN_FILE
from pixprep.serving.repository.trial import LIMIT_S, run_program
from pixprep.serving.repository.writer import Content
from pixprep.spec import TensorSpec

Profile = Mapping[str, Sequence[Sequence[int]]]
"""Minimum, optimum and maximum shape of each input with dynamic dimensions."""

_LENGTHS = (1, 16, 256)
"""Minimum, optimum and maximum length of a variable-length client input for which TensorRT builds an engine."""
_LIBRARY = "tensorrt_rtx_bindings"
_TYPES = {"FLOAT": "FP32", "HALF": "FP16"}
"""Triton's data types by TensorRT's names, if they differ. TensorRT reads float64 as float32."""
_MAX_NODES = 5  # maximum number of nodes that a message names
_MAX_CHARS = 300
_REMEDY = (
    "trtexec may still build the plan, because TensorRT has more operators than TensorRT for RTX; if it does not, "
    "pass the library of your own plugin with --dynamicPlugins, export the model without the operator, or serve the "
    "model with --classifier onnxruntime-gpu"
)


@dataclass(frozen=True)
class Answer:
    """Answer of TensorRT for RTX about an ONNX file.

    Attributes:
        accepted: Description of the model that TensorRT accepted, or ``""`` if it rejected the file.
        problems: Each problem with its remedy. It is empty if TensorRT accepted the file.
    """

    accepted: str
    problems: tuple[tuple[str, str], ...]


def can_ask() -> bool:
    """Return whether TensorRT for RTX is installed."""
    return find_spec(_LIBRARY) is not None


def asked(weights: Mapping[str, Content], profile: Profile, types: Mapping[str, str]) -> list[str]:
    """Return the notes that a build reports about a model that TensorRT will run.

    Args:
        weights: Files of the model's version directory.
        profile: Shapes for which the plan will be built.
        types: Triton's data types of the inputs and outputs by name.
    """
    if not can_ask():
        return [f"TensorRT's parser has not checked {ONNX_FILE}: to check it without a GPU, {install('tensorrt')}"]
    with tempfile.TemporaryDirectory(prefix="pixprep-tensorrt-") as folder:
        for name, content in weights.items():
            if isinstance(content, Path):
                Path(folder, name).symlink_to(content.resolve())
            else:
                Path(folder, name).write_bytes(content.encode() if isinstance(content, str) else content)
        answer = ask(Path(folder, ONNX_FILE), profile, types)
    return [answer.accepted] if answer.accepted else [f"{ONNX_FILE}: {what}: {fix}" for what, fix in answer.problems]


def ask(onnx: Path, profile: Profile | None, types: Mapping[str, str], *, limit_s: float = 4 * LIMIT_S) -> Answer:
    """Let TensorRT for RTX parse an ONNX file and build an engine, in a separate process.

    Args:
        onnx: The ONNX file.
        profile: Shapes of the inputs with dynamic dimensions. None means that no engine is built.
        types: Triton's data types of the inputs and outputs by name.
        limit_s: Time limit in seconds.
    """
    with tempfile.TemporaryDirectory(prefix="pixprep-tensorrt-") as folder:
        Path(folder, "profile.json").write_text(json.dumps(profile), encoding="utf-8")
        if fault := run_program("tensorrt_trial", onnx, folder, limit_s):
            remedy = "build the plan with trtexec to see whether TensorRT supports the file"
            return Answer("", ((f"TensorRT's parser could not be asked, because {fault}", remedy),))
        found = json.loads(Path(folder, "answer.json").read_text(encoding="utf-8"))
    problems = tuple(_problems(found, types))
    built = "" if profile is None else ", and its builder builds an engine for the shapes below"
    by = f"TensorRT for RTX {found['version']}, {found['layers']:,} layers"
    return Answer("" if problems else f"TensorRT's parser accepts {onnx.name} ({by}){built}", problems)


def _problems(found: Mapping[str, Any], types: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield each problem that an answer contains, with its remedy."""
    # the parser reports an input without an operator, and a file that it cannot read without a name
    rejected = [
        f'{operator or "the data type of the input"} "{name}": {text}' if name or operator else f"the file: {text}"
        for name, operator, text in found["rejected"]
    ]
    if rejected:
        more = f"; and {len(rejected) - _MAX_NODES} more" if len(rejected) > _MAX_NODES else ""
        yield f"TensorRT for RTX {found['version']} rejects {_joined(rejected[:_MAX_NODES])}{more}", _REMEDY
    for name, theirs in {**found["inputs"], **found["outputs"]}.items():
        ours = types.get(name, "").removeprefix("TYPE_")
        if ours and ours != _TYPES.get(theirs, theirs):
            fix = "export the model with a data type that TensorRT supports: float32, float16, int32 or int64"
            yield f'TensorRT reads "{name}" as {_TYPES.get(theirs, theirs)}, and not as {ours}', fix
    if error := found["error"]:
        remedy = "export the model with a dynamic batch dimension, or build it with --max-batch-size 1"
        remedy = remedy if "shape constraints" in error else _REMEDY
        yield (
            f"TensorRT for RTX {found['version']} parses the file, but its builder reports: {_joined([error])}",
            remedy,
        )


def _joined(texts: Sequence[str]) -> str:
    """Join messages of TensorRT in one printable line."""
    return "; ".join(shown(" ".join(text.split())[:_MAX_CHARS]) for text in texts)


def profile_of(
    model: Classifier,
    specs: Mapping[str, TensorSpec],
    max_batch_size: int,
    sent: Mapping[str, Sequence[int]],
    *,
    is_packed: bool,
) -> Profile:
    """Return the shapes for which TensorRT builds an engine.

    The engine supports all image sizes, and batch sizes from 1 to ``max_batch_size``. For concatenated images, it
    supports the patches of one image, from a single merge window to the maximum number of patches. Without dynamic
    dims, the profile is empty. ``sent`` contains the dims of the inputs that clients send.
    """
    if not any(-1 in (tensor.shape or ()) for tensor in model.inputs):
        return {}
    ends = (("min", 1), ("opt", max(1, max_batch_size // 2)), ("max", max_batch_size))
    if is_packed:
        return {name: [_packed_shape(spec, end) for end, _ in ends] for name, spec in specs.items()}
    return {
        name: [(batch, *(spec.least if end == "min" else spec.largest)) for end, batch in ends]
        for name, spec in specs.items()
    } | {
        name: [
            (batch, *(length if side == -1 else side for side in sides))
            for (_, batch), length in zip(ends, _LENGTHS, strict=True)
        ]
        for name, sides in sent.items()
    }


def trtexec(folder: Path, profile: Profile) -> str:
    """Return the trtexec command that builds an engine for a profile."""
    command = ["trtexec", f"--onnx={folder / ONNX_FILE}", f"--saveEngine={folder / PLAN_FILE}"]
    # without dynamic dims, the profile is empty, and trtexec rejects options for shapes
    for end, shapes in zip(("min", "opt", "max"), zip(*profile.values(), strict=True), strict=False):
        sides = [f"{name}:{'x'.join(map(str, shape))}" for name, shape in zip(profile, shapes, strict=True)]
        command.append(f"--{end}Shapes={','.join(sides)}")
    return shlex.join(command)


def _packed_shape(spec: TensorSpec, end: str) -> tuple[int, ...]:
    """Return the shape of an input for one image: the smallest, a typical, or the largest shape."""
    if spec.patches is None or not spec.is_open:
        return (1, *spec.largest)
    most = spec.largest[0]
    counts = {"min": spec.patches.merge**2, "opt": max(spec.patches.merge**2, most // 4), "max": most}
    return (counts[end], *spec.largest[1:])
