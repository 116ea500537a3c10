"""Look-ahead: whether a classifier's ONNX file begins with what its pipeline does too, or with what it lacks.

Only the first nodes are looked at, from the input to the first one that is no preprocessing: casts and moved axes are
passed, ``Sub``, ``Add``, ``Mul``, ``Div`` with constants and a ``BatchNormalization`` are folded, ``Resize`` is noted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pixprep.errors import PipelineError, SetupError, printable
from pixprep.pipeline.ops import Letterbox, Normalize, Resize
from pixprep.pipeline.pipeline import Pipeline
from pixprep.pipeline.walk import Output
from pixprep.pipeline.warnings import bare_levels, taken_bare
from pixprep.serving.repository.ports import load_onnx
from pixprep.serving.triton.config import CONFIG_FILE, PIPELINE_FILE, Config, steps
from pixprep.serving.triton.files import newest, read_config

F64 = npt.NDArray[np.float64]
Wiring = list[list[Config]]
"""The steps of each ensemble."""

_PASSED = ("Cast", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze")
_CARRIED = (*_PASSED, "DequantizeLinear", "Flatten", "Pad", "QuantizeLinear")
"""Nodes that leave the values what they are."""
_LEARNED = (
    *("Conv", "ConvInteger", "ConvTranspose", "Einsum", "FusedConv", "Gemm", "MatMul", "MatMulInteger"),
    *("QLinearConv", "QLinearMatMul"),
)
"""Nodes that begin the network itself."""
_ARITHMETIC = ("Add", "BatchNormalization", "Div", "Mul", "Sub")
_RESIZES = ("Resize", "Upsample")
_MAX_NODES = 64
"""A start is a handful of nodes; a broken file may have a circle."""
_MAX_VALUES = 16
"""A constant of more is no scalar and no vector of channels."""


@dataclass
class _Start:
    """Beginning of a graph after one input.

    Attributes:
        arithmetic, resizes: the nodes, in words.
        scale, offset: what the arithmetic amounts to, one value or one a channel: value * scale + offset.
        is_learned: a batch norm is part of it, whose numbers are nobody's convention.
        is_followed: the network itself comes next, and nothing unknown before it.
    """

    arithmetic: list[str] = field(default_factory=list)
    resizes: list[str] = field(default_factory=list)
    scale: F64 = field(default_factory=lambda: np.ones(1))
    offset: F64 = field(default_factory=lambda: np.zeros(1))
    is_learned: bool = False
    is_followed: bool = False


def look_ahead(path: Path, pipeline: Pipeline, pairs: Mapping[str, str], *, odd_range: bool = False) -> list[str]:
    """Notes on steps that are done twice, or by nobody, each with its remedy; none where there is doubt.

    Args:
        path: an ONNX file.
        pipeline: what gives the model its inputs.
        pairs: the name of an input: the name of an output, as ``connect`` found them.
        odd_range: levels are meant, if the pipeline gives them.

    Raises:
        PipelineError: it is not an ONNX file.
        SetupError: onnx is not installed.
    """
    graph = load_onnx(path).graph
    bare = [] if odd_range else bare_levels(pipeline)
    notes = []
    for name, output_name in pairs.items():
        output = pipeline.outputs[output_name]
        if output.spec.layout is None:
            continue
        start = _walk(graph, name, output)
        twice = _normalized_twice(start, output)
        if twice:
            notes.append(f"{printable(path.name)}: {twice}")
        if output_name in bare and start.is_followed and not start.arithmetic:
            notes.append(
                f"{printable(path.name)}: takes the levels 0 to 255 as they are: neither the pipeline normalizes them "
                "nor the model; put normalize before tensor, or say --odd-range if the training had none"
            )
        if start.resizes and any(isinstance(op, Resize | Letterbox) for op in output.chain):
            notes.append(
                f"{printable(path.name)}: {start.resizes[0]} resizes the input, and so does the pipeline: each image "
                "is resampled twice; export the model without it"
            )
    return notes


def look_ahead_of(
    repository: Path, model: str, pipeline: Pipeline, wiring: Wiring, *, odd_range: bool = False
) -> list[str]:
    """Notes of ``look_ahead`` on each ONNX file that takes a model's tensors; and on levels that go elsewhere.

    A note begins with the path of its file in the repository.

    Args:
        repository: as Triton reads it; files that cannot be read are passed over.
        model: of the pixprep backend.
        pipeline: its serving side.
        wiring: of the repository, as ``read_wiring`` found it.
        odd_range: levels are meant, if the pipeline gives them.
    """
    notes: list[str] = []
    known: set[str] = set()
    for taker, pairs in _takers(wiring, model):
        if not taker or Path(taker).name != taker or not taker.isprintable():  # a stranger wrote the ensemble
            continue
        version = newest(repository / taker)
        path = (repository / taker / version / "model.onnx").resolve()
        if not path.is_relative_to(repository.resolve()):
            continue
        ours = {port: output for port, output in pairs.items() if output in pipeline.outputs}
        with suppress(PipelineError, SetupError):
            found = look_ahead(path, pipeline, ours, odd_range=odd_range)
            notes += [f"{taker}/{version}/{note}" for note in found]
            known |= {*ours.values()}
    bare = [] if odd_range else taken_bare(pipeline, known)
    return notes + [f"{model}/{newest(repository / model)}/{PIPELINE_FILE}: {note}" for note in bare]


def read_wiring(repository: Path) -> Wiring:
    """The steps of each ensemble of a repository; configurations that cannot be read are passed over."""
    found = []
    for path in sorted(repository.glob(f"*/{CONFIG_FILE}")):
        with suppress(PipelineError, SetupError):
            found.append(steps(read_config(path.parent)))
    return found


def _takers(wiring: Wiring, model: str) -> Iterator[tuple[str, dict[str, str]]]:
    """The models that an ensemble gives tensors of a model, and for each of their inputs the output that it takes."""
    for of_ensemble in wiring:
        given = {
            tensor: output
            for step in of_ensemble
            if step.get("model_name") == model
            for output, tensor in step.get("output_map", {}).items()
        }
        for step in of_ensemble:
            taken = step.get("input_map", {}).items()
            if pairs := {port: given[tensor] for port, tensor in taken if tensor in given}:
                yield step.get("model_name", ""), pairs


def _walk(graph: Any, name: str, output: Output) -> _Start:
    """Follow an input while one node takes what the one before gave."""
    start = _Start()
    channels, shape = _channels(output), output.spec.shape
    for _ in range(_MAX_NODES):
        takers = [node for node in graph.node if name in node.input and node.op_type not in ("Shape", "Size")]
        start.is_followed = bool(takers) and all(node.op_type in _LEARNED for node in takers)
        if len(takers) != 1 or len(takers[0].output) == 0:
            return start
        (node,) = takers
        if node.op_type in _ARITHMETIC:
            affine = _affine(node, name, graph)
            if affine is None or any(len(values) not in (1, channels) for values in affine):
                return start
            scale, offset = affine
            start.scale, start.offset = start.scale * scale, start.offset * scale + offset
            start.is_learned |= node.op_type == "BatchNormalization"
            start.arithmetic.append(_shown(node))
        elif node.op_type in _RESIZES and node.input[0] == name:
            if not _keeps_size(node, graph, shape):
                start.resizes.append(_shown(node))
        elif node.op_type not in _CARRIED or node.input[0] != name:
            return start
        name = node.output[0]
    return start


def _constant(graph: Any, name: str) -> F64 | None:
    """The values of a constant, flat; None where they are computed, many, or in another file."""
    import onnx  # noqa: PLC0415

    for _ in range(8):  # an exporter may shape a constant by nodes of its own
        node = next((node for node in graph.node if name in node.output), None)
        given = [tensor for tensor in graph.initializer if tensor.name == name]
        if given or node is None or len(node.input) == 0 or node.op_type not in _PASSED:
            break
        name = node.input[0]
    try:
        if not given and node is not None and node.op_type == "Constant":
            given = [onnx.helper.get_attribute_value(attribute) for attribute in node.attribute]
        (value,) = given
        if isinstance(value, onnx.TensorProto):
            many = any(length < 1 for length in value.dims) or prod(value.dims) > _MAX_VALUES
            if many or onnx.external_data_helper.uses_external_data(value):
                return None
            value = onnx.numpy_helper.to_array(value)
        return np.array(value, np.float64).ravel()
    except (TypeError, ValueError):  # fewer bytes than it says, or of a type that NumPy has not
        return None


def _affine(node: Any, name: str, graph: Any) -> tuple[F64, F64] | None:
    """Scale and offset of one node; None if it is no such thing for the value ``name``."""
    if len(node.input) != (5 if node.op_type == "BatchNormalization" else 2):
        return None
    if node.op_type == "BatchNormalization":
        gamma, beta, mean, variance = (_constant(graph, other) for other in node.input[1:])
        if node.input[0] != name or gamma is None or beta is None or mean is None or variance is None:
            return None
        epsilon = next((attribute.f for attribute in node.attribute if attribute.name == "epsilon"), 1e-5)
        if (variance + epsilon <= 0).any() or len({gamma.size, beta.size, mean.size, variance.size}) > 1:
            return None
        scale = gamma / np.sqrt(variance + epsilon)
        return scale, beta - mean * scale
    first, second = node.input
    is_first = first == name
    constant = _constant(graph, second if is_first else first)
    if constant is None or constant.size == 0 or (not is_first and node.op_type in ("Sub", "Div")):
        return None
    if node.op_type in ("Add", "Sub"):
        return np.ones(1), constant if node.op_type == "Add" else -constant
    if node.op_type == "Div" and not constant.all():
        return None
    return constant if node.op_type == "Mul" else 1 / constant, np.zeros(1)


def _keeps_size(node: Any, graph: Any, shape: tuple[int, ...]) -> bool:
    """Tell whether a resize is to the size that the pipeline gives."""
    given = [_constant(graph, name) for name in node.input[1:] if name]
    scales_or_sizes = given[-1] if given else None
    if scales_or_sizes is None or len(scales_or_sizes) < 2:
        return False
    last = tuple(scales_or_sizes)
    return set(last) == {1.0} or last[1:] == shape[1 - len(last) :]  # of a clip, a frame's


def _channels(output: Output) -> int:
    assert output.spec.layout
    return output.spec.shape[output.spec.layout.index("c")]


def _shown(node: Any) -> str:
    return f'{node.op_type} "{printable(node.name or node.output[0])}"'


# Whether two normalizations are one too many


def _normalized_twice(start: _Start, output: Output) -> str:
    """The note; ``""`` where pipeline and model together do what one normalization would."""
    own = [op for op in output.chain if isinstance(op, Normalize)]
    if not own or not start.arithmetic:
        return ""
    channels = _channels(output)
    scale, offset = np.ones(channels), np.zeros(channels)
    for op in own:
        factors, summands = (np.array(values) for values in zip(*op.coefficients(channels), strict=True))
        scale, offset = scale * factors, offset * factors + summands
    is_centered = output.spec.low < 0 < output.spec.high
    most = 6.0 if is_centered and not start.is_learned else 12.0
    both = (scale * start.scale, offset * start.scale + start.offset)
    if any(_is_usual(*pair, most) for pair in zip(*both, strict=True)):
        return ""
    ends = [float(x) for x in (both[1].min(), both[1].max(), *(255 * both[0] + both[1]))]
    return (
        f"{' and '.join(start.arithmetic)} normalize{'s' * (len(start.arithmetic) == 1)} the input, and so does the "
        f"pipeline: its {output.spec.low:.3g}..{output.spec.high:.3g} become {min(ends):.3g}..{max(ends):.3g}; "
        f"{_remedy(start, channels)}, or export the model without it"
    )


def _is_usual(scale: float, offset: float, most: float) -> bool:
    """Tell whether ``level * scale + offset`` is a normalization that some model is trained with.

    Such ones make of the levels 0 to 255 a range of width 1 to 5, or 255 where only a mean is taken away, with the zero
    at level 0 or at the mean of photographs; dark and even ones, as of X-rays, are wider (``most``). Two after another
    are too narrow, too wide or off the middle: ImageNet's twice has the width 19, (x / 255 - 0.5) / 0.5 twice its zero
    at level 191.
    """
    if scale == 0:
        return False
    width, zero = 255 * abs(scale), -offset / scale
    return (0.3 <= width <= most or 200 <= width <= 300) and -1 <= zero <= 180


def _remedy(start: _Start, channels: int) -> str:
    """Remedy for a model that normalizes by itself."""
    own = list(zip(*(np.broadcast_to(values, channels) for values in (start.scale, start.offset)), strict=True))
    takes_levels, takes_unit = (
        all(_is_usual(scale * unit, offset, 6.0) for scale, offset in own) for unit in (1, 1 / 255)
    )
    return "set its mean to 0 and its std to 1" if takes_unit and not takes_levels else "take normalize out of it"
