"""A classifier seen from outside: the tensors it takes and gives, and whether those of a pipeline fit them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from pixprep.errors import PipelineError, SetupError, printable
from pixprep.ops import CenterCrop, Crop, Letterbox, Pad, Resize, op_name
from pixprep.pipeline import Output, Pipeline
from pixprep.spec import DType, Layout
from pixprep.triton.config import INPUT_NAME, STATUS_NAME, TRITON_TYPES

_DTYPES: dict[str, DType] = {kind: dtype for dtype, kind in TRITON_TYPES.items()}
_TENSOR_DTYPES: tuple[DType, ...] = ("float32", "float16", "uint8")
_SIZING_OPS = (Resize, CenterCrop, Crop, Pad, Letterbox)
_CHANNEL_AXIS: dict[Layout, int] = {"chw": 0, "hwc": 2}
_COLORS = {1: "gray", 3: "rgb"}
_FROM_ONNX = {
    "FLOAT": "TYPE_FP32",
    "FLOAT16": "TYPE_FP16",
    "DOUBLE": "TYPE_FP64",
    "BFLOAT16": "TYPE_BF16",
    "STRING": "TYPE_STRING",
    **{
        kind: f"TYPE_{kind}"
        for kind in ("BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64")
    },
}
_MAX_ONNX_BYTES = 1 << 31  # protobuf's limit
_CODE = (".py", ".pyc", ".so")
_IO_EXAMPLE = "input:FP32:3x224x224"


@dataclass(frozen=True)
class Tensor:
    """One input or output of a classifier.

    Attributes:
        name: in the model's file.
        data_type: Triton's, such as ``TYPE_FP32``; ``""`` where it is no tensor that Triton carries.
        shape: the batch first; -1 where a length is free; None where the file does not say.
    """

    name: str
    data_type: str
    shape: tuple[int, ...] | None


@dataclass(frozen=True)
class Classifier:
    """What a classifier takes and gives.

    Attributes:
        source: how messages call it: the name of its file.
        data_files: names of the files beside an ONNX file that hold weights of it.
    """

    source: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    data_files: tuple[str, ...] = ()


def parse_io(texts: Sequence[str], *, source: str) -> Classifier:
    """A classifier from words, for a file that cannot be read here.

    Args:
        texts: the input, then each output, as ``NAME:TYPE:DIMS``: Triton's type, dims of one image.
        source: the name of the file.

    Raises:
        PipelineError: a text is not of that form.
    """
    if len(texts) < 2:
        raise PipelineError(f"--classifier-io: give the input and each output, such as {_IO_EXAMPLE} logits:FP32:1000")
    first, *others = map(_parse_tensor, texts)
    return Classifier(source, (first,), tuple(others))


def _parse_tensor(text: str) -> Tensor:
    name, kind, dims = (["", "", "", *text.rsplit(":", 2)])[-3:]  # from the right: TensorFlow's names hold a colon
    kinds = [known.removeprefix("TYPE_") for known in _FROM_ONNX.values()]
    lengths = dims.split("x")
    if not name or not all(
        length == "-1" or (length.isascii() and length.isdigit() and int(length)) for length in lengths
    ):
        raise PipelineError(f'--classifier-io: "{text}" is not NAME:TYPE:DIMS, such as {_IO_EXAMPLE}')
    if kind not in kinds:
        near = get_close_matches(kind.upper(), kinds, n=1)
        hint = f'did you mean "{near[0]}"?' if near else f"there are {', '.join(kinds)}"
        raise PipelineError(f'--classifier-io: "{text}": no such type "{kind}"; {hint}')
    return Tensor(name, f"TYPE_{kind}", (-1, *map(int, lengths)))


def read_onnx(path: Path) -> Classifier:
    """The inputs and outputs that an ONNX file declares; its weights are not read.

    Raises:
        PipelineError: it is not an ONNX file.
        SetupError: onnx is not installed.
    """
    try:
        import onnx  # noqa: PLC0415  (only who brings an ONNX file needs it)
    except ImportError:
        raise SetupError('reading an ONNX file needs onnx: pip install "pixprep[classifier]"') from None
    if path.exists() and not path.is_file():  # a FIFO would be waited for
        raise PipelineError(f"{path.name}: not a file")
    if path.is_file() and path.stat().st_size > _MAX_ONNX_BYTES:
        raise PipelineError(f"{path.name}: over 2 GiB, which no ONNX file holds: save its weights beside it")
    try:
        graph = onnx.load(path, load_external_data=False).graph
    except OSError as error:
        raise PipelineError(f"{path.name}: cannot be read: {error.strerror}") from None
    except Exception:  # noqa: BLE001  (protobuf's DecodeError, whose module moves between versions)
        raise PipelineError(f"{path.name}: not an ONNX file") from None
    if not graph.output:  # protobuf reads some files of other kinds as an empty message
        raise PipelineError(f"{path.name}: not an ONNX file")
    weights = {tensor.name for tensor in graph.initializer}  # before IR version 4 they are listed as inputs as well
    places = {
        entry.value
        for tensor in graph.initializer
        if tensor.data_location == onnx.TensorProto.EXTERNAL
        for entry in tensor.external_data
        if entry.key == "location"
    }
    for place in sorted(places):
        if place in ("", "..") or Path(place).name != place or "\0" in place:
            raise PipelineError(
                f'{path.name}: has weights in "{printable(place)}", which is not beside it: save it as one file'
            )
        if Path(place).suffix in _CODE:  # beside a model.py, or in place of it, Python would run them
            raise PipelineError(f'{path.name}: has weights in "{printable(place)}": save it as one file')
    names = onnx.TensorProto.DataType.Name
    return Classifier(
        path.name,
        tuple(_from_onnx(value, names) for value in graph.input if value.name not in weights),
        tuple(_from_onnx(value, names) for value in graph.output),
        tuple(sorted(places)),
    )


def _from_onnx(value: Any, type_name: Any) -> Tensor:
    tensor = value.type.tensor_type  # an empty one for a sequence or a map
    shape = tuple(dim.dim_value if dim.HasField("dim_value") else -1 for dim in tensor.shape.dim)
    data_type = _FROM_ONNX.get(type_name(tensor.elem_type), "")
    return Tensor(value.name, data_type, shape if tensor.HasField("shape") else None)


def connect(classifier: Classifier, pipeline: Pipeline, *, max_batch_size: int) -> dict[str, str]:
    """Find for each input of the classifier the output of the pipeline that it takes.

    Names need not be equal where one tensor meets one input; the ensemble translates.

    Returns:
        The name of an input: the name of an output.

    Raises:
        PipelineError: the first thing that does not fit, and how to mend it.
    """
    try:
        pairs = _pair(classifier, pipeline)
        for tensor in classifier.inputs:
            _check_input(tensor, pipeline.outputs[pairs[tensor.name]], max_batch_size)
        for tensor in classifier.outputs:
            _check_output(tensor, [INPUT_NAME, STATUS_NAME, *pipeline.outputs], max_batch_size)
    except PipelineError as error:
        raise PipelineError(f"{classifier.source}: {error}") from None
    return pairs


def _pair(classifier: Classifier, pipeline: Pipeline) -> dict[str, str]:
    wanted = [tensor.name for tensor in classifier.inputs]
    if all(name in pipeline.outputs for name in wanted):
        return {name: name for name in wanted}
    tensors = [name for name, output in pipeline.outputs.items() if output.spec.layout]
    if len(wanted) == len(tensors) == 1:
        return {wanted[0]: tensors[0]}
    if len(wanted) == 1:
        raise PipelineError(
            f'the pipeline gives the tensors {_quoted(tensors)}: name the one "{wanted[0]}" that the model is to take'
        )
    raise PipelineError(
        f"the model takes {_quoted(wanted)}, the pipeline gives {_quoted(list(pipeline.outputs))}: "
        "give the pipeline an output for each, of the same name"
    )


def _check_input(tensor: Tensor, output: Output, max_batch_size: int) -> None:
    dtype, spec = _DTYPES.get(tensor.data_type), output.spec
    if spec.dtype != dtype:
        wants = dtype or tensor.data_type.removeprefix("TYPE_") or "no tensor"
        able = dtype in _TENSOR_DTYPES and spec.layout
        remedy = f"set tensor dtype to {dtype}" if able else f"export the model with {spec.dtype}"
        raise PipelineError(f'the pipeline gives {spec.dtype}, the model\'s "{tensor.name}" wants {wants}: {remedy}')
    if tensor.shape is None:
        raise PipelineError(f'input "{tensor.name}" has no shape: export the model with {_batched(spec.shape)}')
    if len(tensor.shape) == len(spec.shape):
        raise PipelineError(
            f'input "{tensor.name}" has no batch dimension: export the model with {_batched(spec.shape)}'
        )
    _check_batch("input", tensor, max_batch_size)
    wanted = tensor.shape[1:]
    if not compatible(spec.shape, wanted):
        raise PipelineError(
            f'the pipeline gives {list(spec.shape)}, the model\'s "{tensor.name}" wants {list(wanted)}: '
            f"{_mend_dims(output, wanted) or f'export the model with {_batched(spec.shape)}'}"
        )


def _check_output(tensor: Tensor, taken: Sequence[str], max_batch_size: int) -> None:
    if not tensor.data_type:
        raise PipelineError(f'output "{tensor.name}" is no tensor that Triton carries: export the model without it')
    if tensor.shape is None:
        raise PipelineError(
            f'output "{tensor.name}" has no shape: write it with onnx.shape_inference.infer_shapes_path'
        )
    if len(tensor.shape) < 2:
        raise PipelineError(f'output "{tensor.name}" is {_shown(tensor.shape)}: export it as [batch, 1] or wider')
    _check_batch("output", tensor, max_batch_size)
    if tensor.name in taken:
        who = "the ensemble" if tensor.name in (INPUT_NAME, STATUS_NAME) else "the pipeline"
        mend = "rename it in the model" if who == "the ensemble" else 'give the pipeline\'s op another "name"'
        raise PipelineError(f'output "{tensor.name}": {who} has a tensor of that name: {mend}')


def _check_batch(kind: str, tensor: Tensor, max_batch_size: int) -> None:
    assert tensor.shape
    batch = tensor.shape[0]
    if batch != -1 and (batch, max_batch_size) != (1, 1):
        way_out = ", or say --max-batch-size 1" if batch == 1 else ""
        raise PipelineError(
            f'the batch of {kind} "{tensor.name}" is fixed at {batch}: '
            f"export the model with a free first dimension{way_out}"
        )


def _mend_dims(output: Output, wanted: Sequence[int]) -> str:
    """What to change in the pipeline for other dims; ``""`` if no pipeline gives them."""
    layout, shape = output.spec.layout, output.spec.shape
    if layout is None or len(wanted) != 3:
        return ""
    remedies = []
    channels = shape[_CHANNEL_AXIS[layout]]
    other: Layout = "hwc" if layout == "chw" else "chw"
    height, width = _sides(shape, layout)
    if not compatible([channels], [wanted[_CHANNEL_AXIS[layout]]]):
        if compatible([channels], [wanted[_CHANNEL_AXIS[other]]]):
            layout = other
            remedies.append(f'set tensor layout to "{other}"')
        elif wanted[_CHANNEL_AXIS[layout]] in _COLORS:
            remedies.append(f'set decode color to "{_COLORS[wanted[_CHANNEL_AXIS[layout]]]}"')
        else:
            return ""
    sides = _sides(wanted, layout)
    if not compatible((height, width), sides):
        tall, wide = (side if side > 0 else given for side, given in zip(sides, (height, width), strict=True))
        op = next(op for op in reversed(output.chain) if isinstance(op, _SIZING_OPS))
        size = f"{tall}" if tall == wide else f"height {tall}, width {wide}"
        remedies.append(f"set {op_name(op)} to {size}")
        resized = [resize.size for resize in output.chain if isinstance(resize, Resize) and resize.size]
        if isinstance(op, CenterCrop) and resized and resized[0] < max(tall, wide):  # it would add a black frame
            remedies.append("resize to at least that")
    return " and ".join(remedies)


def compatible(ours: Sequence[int], theirs: Sequence[int]) -> bool:
    """Whether dims agree; -1 agrees with any length."""
    return len(ours) == len(theirs) and all(-1 in (a, b) or a == b for a, b in zip(ours, theirs, strict=True))


def _sides(dims: Sequence[int], layout: Layout) -> tuple[int, int]:
    return (dims[1], dims[2]) if layout == "chw" else (dims[0], dims[1])


def _batched(shape: Sequence[int]) -> str:
    return f"[batch, {', '.join(map(str, shape))}]"


def _shown(shape: Sequence[int]) -> str:
    return f"[{', '.join('batch' if length == -1 else str(length) for length in shape)}]"


def _quoted(names: Sequence[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)
