"""Detects preprocessing in the first nodes of an ONNX file, to find normalization that is missing or applied twice.

The graph is followed from an input to the first node that is not preprocessing. Casts and transposes are skipped.
``Sub``, ``Add``, ``Mul`` and ``Div`` with constants, and ``BatchNormalization``, are folded to one scale and offset.
``Resize`` nodes are recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pixprep.errors import PipelineError, SetupError, shown
from pixprep.pipeline.ops import Letterbox, Normalize, Resize
from pixprep.pipeline.pipeline import Pipeline
from pixprep.pipeline.walk import Output
from pixprep.pipeline.warnings import extremes
from pixprep.plan.output_plans import TensorPlan
from pixprep.serving.repository.adapter import CONSTANTS
from pixprep.serving.repository.fit import OPS_OF_INPUTS, is_batch_second
from pixprep.serving.repository.onnx_edit import MOVES, Edit, constant_of
from pixprep.serving.repository.ports import declared, load_onnx
from pixprep.serving.repository.quantization import quantization_of
from pixprep.serving.repository.repository import ONNX_FILE, Repository

F64 = npt.NDArray[np.float64]

_FOLLOWED_OPS = ("Cast", *MOVES, "DequantizeLinear", "Pad", "QuantizeLinear")
"""Operators that are followed in the search for arithmetic. They only move, pad, convert or quantize values."""
_LEARNED_OPS = (
    *("Conv", "ConvInteger", "ConvTranspose", "Einsum", "FusedConv", "Gemm", "MatMul", "MatMulInteger"),
    *("QLinearConv", "QLinearMatMul"),
)
"""Operators with learned weights. The network itself begins with one of these operators."""
_ARITHMETIC = ("Add", "BatchNormalization", "Div", "Mul", "Sub")
_RESIZES = ("Resize", "Upsample")
_MAX_NODES = 64
"""Maximum number of nodes to follow. Usually there are only a few nodes, but a broken file may contain a cycle."""


@dataclass
class _FirstNodes:
    """First nodes of a graph after one input.

    Attributes:
        arithmetic, resizes: Descriptions of the arithmetic nodes and of the resize nodes.
        scale, offset: Combined effect of the arithmetic nodes, ``value * scale + offset``. Both have one value, or one
            value per channel.
        is_learned: Whether the arithmetic contains a batch norm, whose learned values do not follow a convention.
        is_followed: Whether the network itself follows directly, without unknown nodes before it.
        makes_images: Whether the model returns an image, so that a resize of its input may be part of its function.
    """

    arithmetic: list[str] = field(default_factory=list)
    resizes: list[str] = field(default_factory=list)
    scale: F64 = field(default_factory=lambda: np.ones(1))
    offset: F64 = field(default_factory=lambda: np.zeros(1))
    is_learned: bool = False
    is_followed: bool = False
    makes_images: bool = False


class Door(NamedTuple):
    """Input of an ONNX file that receives a pipeline's tensor.

    Attributes:
        where: Name of the file, as it appears in notes.
        graph: Function that returns the ``onnx.ModelProto`` of the file.
        port: Name of the input.
        output: Name of the pipeline's tensor.
    """

    where: str
    graph: Callable[[], Any]
    port: str
    output: str


def door_notes(pipeline: Pipeline, doors: Iterable[Door] = (), *, own: str = "", odd_range: bool = False) -> list[str]:
    """Return notes about pixel values that are never normalized, and about steps that are applied twice.

    Doubtful cases are not reported. If the model that receives a tensor is unknown, pixel values 0 to 255 are reported
    unless the pipeline was imported from a library.

    Args:
        pipeline: Serving side of the pipeline.
        doors: Model inputs that receive the pipeline's tensors. Files that cannot be read are ignored.
        own: Prefix of notes about tensors that an unknown model receives, such as ``"pipeline.json: "``.
        odd_range: Whether pixel values without normalization are intended.
    """
    bare = [] if odd_range else raw_pixel_tensors(pipeline)
    notes: list[str] = []
    known: set[str] = set()
    for where, graph, port, name in doors:
        output = pipeline.outputs.get(name)
        if output is None or output.spec.layout is None:
            continue
        with suppress(PipelineError, SetupError):
            start = _walk(graph().graph, port, output.spec.channels, output.spec.shape)
            notes += [f"{where}: {note}" for note in _notes(start, output, is_bare=name in bare)]
            known.add(name)
    return notes + [
        f'{own}"{name}" contains pixel values 0 to 255 as {pipeline.outputs[name].spec.dtype}: add normalize before '
        "tensor, unless its model was trained with such values"
        for name in ([] if pipeline.origin else bare)
        if name not in known
    ]


def _notes(start: _FirstNodes, output: Output, *, is_bare: bool) -> Iterator[str]:
    if twice := _normalized_twice(start, output):
        yield twice
    if is_bare and start.is_followed and not start.arithmetic:
        yield (
            "receives pixel values 0 to 255, which neither the pipeline nor the model normalizes: add normalize before "
            "tensor, or pass --odd-range if the training did not normalize them"
        )
    if start.resizes and not start.makes_images and any(isinstance(op, Resize | Letterbox) for op in output.chain):
        yield (
            f"both {start.resizes[0]} and the pipeline resize the image, so it is resampled twice: export the model "
            "without this node"
        )


def raw_pixel_tensors(pipeline: Pipeline) -> list[str]:
    """Return the names of floating-point tensors with pixel values 0 to 255, which few models expect."""
    return [
        name
        for name, plan in pipeline.plan.outputs.items()
        if isinstance(plan, TensorPlan)
        and not plan.calls  # a custom operator may return any values
        and plan.spec.dtype in ("float32", "float16", "bfloat16")
        and (extremes(pipeline, name) == (0, 255)).all()
    ]


def onnx_inputs_in(repository: Repository) -> dict[str, list[Door]]:
    """Return the ONNX inputs in a repository's ensembles, by the preprocess model whose tensors they receive."""
    found: dict[str, list[Door]] = {}
    for steps in repository.ensembles.values():
        sources = {tensor: (step.model, output) for step in steps for output, tensor in step.outputs.items()}
        for step in steps:
            version = repository.version_of(step)
            if version is None or not version.has(ONNX_FILE):
                continue
            for port, tensor in step.inputs.items():
                if tensor in sources:
                    producer, output = sources[tensor]
                    where = f"{version.folder / ONNX_FILE}"
                    found.setdefault(producer, []).append(Door(where, partial(getattr, version, "graph"), port, output))
    return found


def explain_onnx(path: Path) -> Iterator[str]:
    """Yield lines that describe an ONNX file: its inputs and outputs, and the effect of its first nodes on an image.

    Raises:
        PipelineError: The file is not an ONNX file.
        SetupError: onnx is not installed.
    """
    model = load_onnx(path)[1]
    found = declared(model, path.name)
    for tensor in found.inputs:
        yield f'input  "{tensor.name}" {tensor}'
        shape = tensor.shape or ()
        if len(shape) < 3:
            if len(found.inputs) > 1:
                yield f"       {_source_of(tensor.name)}"
            continue
        if len(shape) == 3 and "mask" in tensor.name.lower() and len(found.inputs) > 1:
            yield "       a mask of the pixels: build computes it"
            continue
        if len(shape) == 3 and shape[0] != -1:
            yield "       has no batch dimension: build adds a Squeeze"
            shape = (-1, *shape)
        sides = shape[1:]
        channels = max((side for side in (*sides[:-2], sides[-1]) if side in (1, 3, 4)), default=3)
        start = _walk(model.graph, tensor.name, channels, sides)
        if start.resizes:
            yield f"       resizes it: {', '.join(start.resizes)}"
        if start.arithmetic:
            scale, offset = (", ".join(f"{number:.6g}" for number in each) for each in (start.scale, start.offset))
            yield f"       begins with {', '.join(start.arithmetic)}: value * [{scale}] + [{offset}]"
        elif start.is_followed:
            if tensor.data_type.endswith("_UINT8"):
                yield "       does not preprocess it: the pipeline must return pixel values 0 to 255, without normalize"
            else:
                yield "       does not preprocess it: the pipeline must include normalize"
        kind = tensor.data_type.removeprefix("TYPE_")
        if quantization := quantization_of(Edit(model, found), tensor.name, kind):
            yield f"       quantized with {quantization}: build adds a QuantizeLinear if the pipeline returns float32"
        if len(shape) == 5:
            yield "       accepts clips (decode_video), or images in a layout of five dims"
        if shape[0] > 0:
            yield f"       batch size fixed at {shape[0]}: --free-dims tries to make it dynamic"
    batches = {tensor.dim_names[:1] for tensor in found.inputs if len(tensor.shape or ()) > 3}
    for tensor in found.outputs:
        yield f'output "{tensor.name}" {tensor}'
        if is_batch_second(tensor):
            yield "       the batch is the second dimension: build appends a Transpose"
        elif tensor.shape and tensor.dim_names[:1] not in batches and tensor.shape[0] != 1:
            yield "       may be one list for all images: build tries it"
    heads = [each.name for each in found.outputs if each.shape and len(each.shape) == 2 and each.shape[1] != 1]
    if len(heads) > 1:
        yield f"       to label several outputs, pass --labels {heads[0]}=FILE for each of them"
    if found.labels:
        yield f"labels {len(found.labels):,}: {', '.join(found.labels[:5])}{' ...' * (len(found.labels) > 5)}"
    yield f"opset  {', '.join(f'{each.domain} {each.version}'.strip() for each in model.opset_import)}"


def _source_of(name: str) -> str:
    """Describe the source of the value of an input other than the image."""
    if name in OPS_OF_INPUTS:
        return f"computed by {OPS_OF_INPUTS[name]}"
    if name.lower() in CONSTANTS:
        return f"replaced by {CONSTANTS[name.lower()]}; --constant {name}=VALUE sets another value"
    return "sent by clients with each image, unless an op has this name, or --constant sets the value"


def _walk(graph: Any, name: str, channels: int, shape: tuple[int, ...]) -> _FirstNodes:
    """Follow the graph from an input as long as each value has exactly one consumer.

    Args:
        graph: The ``onnx.GraphProto``.
        name: Name of the input.
        channels: Number of channels of the image.
        shape: Shape of one image.
    """
    start = _FirstNodes(makes_images=_makes_images(graph, channels))
    for _ in range(_MAX_NODES):
        takers = [node for node in graph.node if name in node.input and node.op_type not in ("Shape", "Size")]
        start.is_followed = bool(takers) and all(node.op_type in _LEARNED_OPS for node in takers)
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
        elif node.op_type not in _FOLLOWED_OPS or node.input[0] != name:
            return start
        name = node.output[0]
    return start


def _affine(node: Any, name: str, graph: Any) -> tuple[F64, F64] | None:
    """Return the scale and offset that a node applies to the value ``name``, or None if it does something else."""
    if len(node.input) != (5 if node.op_type == "BatchNormalization" else 2):
        return None
    if node.op_type == "BatchNormalization":
        gamma, beta, mean, variance = (constant_of(graph, other) for other in node.input[1:])
        if node.input[0] != name or gamma is None or beta is None or mean is None or variance is None:
            return None
        epsilon = next((attribute.f for attribute in node.attribute if attribute.name == "epsilon"), 1e-5)
        if (variance + epsilon <= 0).any() or len({gamma.size, beta.size, mean.size, variance.size}) > 1:
            return None
        scale = gamma / np.sqrt(variance + epsilon)
        return scale, beta - mean * scale
    first, second = node.input
    is_first = first == name
    constant = constant_of(graph, second if is_first else first)
    if constant is None or constant.size == 0 or (not is_first and node.op_type in ("Sub", "Div")):
        return None
    if node.op_type in ("Add", "Sub"):
        return np.ones(1), constant if node.op_type == "Add" else -constant
    if node.op_type == "Div" and not constant.all():
        return None
    return constant if node.op_type == "Mul" else 1 / constant, np.zeros(1)


def _keeps_size(node: Any, graph: Any, shape: tuple[int, ...]) -> bool:
    """Return whether a resize node keeps the size of the pipeline's tensor."""
    constants = [constant_of(graph, name) for name in node.input[1:] if name]
    scales_or_sizes = constants[-1] if constants else None
    if scales_or_sizes is None or len(scales_or_sizes) < 2:
        return False
    last = tuple(scales_or_sizes)
    return (
        set(last) == {1.0} or last[1:] == shape[1 - len(last) :]
    )  # the dims without the batch dimension and, for clips, without the number of frames


def _makes_images(graph: Any, channels: int) -> bool:
    """Return whether an output is an image with this number of channels, as in a super-resolution model."""
    shapes = [[dim.dim_value for dim in each.type.tensor_type.shape.dim] for each in graph.output]
    return any(len(shape) == 4 and channels in (shape[1], shape[3]) for shape in shapes)


def _shown(node: Any) -> str:
    return f'{node.op_type} "{shown(node.name or node.output[0])}"'


# Detection of repeated normalization


def _normalized_twice(start: _FirstNodes, output: Output) -> str:
    """Return a note if both the pipeline and the model normalize the image, or ``""`` if the combination is common."""
    own = [op for op in output.chain if isinstance(op, Normalize)]
    if not own or not start.arithmetic:
        return ""
    channels = output.spec.channels
    scale, offset = np.ones(channels), np.zeros(channels)
    for op in own:
        factors, summands = (np.array(values) for values in zip(*op.coefficients(channels), strict=True))
        scale, offset = scale * factors, offset * factors + summands
    is_centered = output.spec.low < 0 < output.spec.high
    max_width = 6.0 if is_centered and not start.is_learned else 12.0
    both = (scale * start.scale, offset * start.scale + start.offset)
    if any(_is_usual(*pair, max_width) for pair in zip(*both, strict=True)):
        return ""
    ends = [float(x) for x in (both[1].min(), both[1].max(), *(255 * both[0] + both[1]))]
    return (
        f"{' and '.join(start.arithmetic)} normalize{'s' * (len(start.arithmetic) == 1)} the input again: the pipeline "
        f"returns {output.spec.low:.3g}..{output.spec.high:.3g}, which become {min(ends):.3g}..{max(ends):.3g}; "
        f"{_remedy(start, channels)}, or export the model without this step"
    )


def _is_usual(scale: float, offset: float, max_width: float) -> bool:
    """Return whether ``pixel * scale + offset`` is a common normalization.

    A common normalization maps the pixel values 0 to 255 to a range of width 0.3 to ``max_width``, or about 255 if it
    only subtracts a mean. For photographs, the width is 1 to 5. It is larger for dark images with little
    contrast, such as X-rays. The pixel value that is mapped to 0 is 0, or near the mean of photographs. Two
    normalizations in sequence can be distinguished from a common normalization: ImageNet's normalization, applied
    twice, has a range with a width of 19, and (x / 255 - 0.5) / 0.5, applied twice, maps the pixel value 191 to 0.

    Args:
        scale: Factor of the normalization.
        offset: Summand of the normalization.
        max_width: Maximum width of a range that is not about 255 wide.
    """
    if scale == 0:
        return False
    width, zero = 255 * abs(scale), -offset / scale
    return (0.3 <= width <= max_width or 200 <= width <= 300) and -1 <= zero <= 180


def _remedy(start: _FirstNodes, channels: int) -> str:
    """Return the change that the pipeline requires, because the model itself normalizes its input."""
    own = list(zip(*(np.broadcast_to(values, channels) for values in (start.scale, start.offset)), strict=True))
    takes_levels, takes_unit = (
        all(_is_usual(scale * unit, offset, 6.0) for scale, offset in own) for unit in (1, 1 / 255)
    )
    is_unit = takes_unit and not takes_levels
    return "set mean to 0 and std to 1 in normalize" if is_unit else "remove normalize from the pipeline"
