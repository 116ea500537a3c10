"""A classifier seen from outside: the tensors it takes and gives, and whether those of a pipeline fit them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from pixprep.errors import PipelineError, SetupError, printable
from pixprep.pipeline.file import read_bytes
from pixprep.pipeline.ops import CenterCrop, Crop, ImageSize, Letterbox, OriginalSize, Pad, Resize, op_name
from pixprep.pipeline.pipeline import Pipeline
from pixprep.pipeline.walk import RESERVED_NAMES, Output
from pixprep.serving.repository.labels import from_metadata
from pixprep.serving.repository.models import Tensor, suggest
from pixprep.serving.triton.config import INPUT_NAME, STATUS_NAME, TRITON_TYPES
from pixprep.spec import DType, Layout, SizeDType, TensorSpec

_DTYPES: dict[str, DType] = {data_type: dtype for dtype, data_type in TRITON_TYPES.items()}
_TENSOR_DTYPES: tuple[DType, ...] = ("float32", "float16", "uint8")
_SIZING_OPS = (Resize, CenterCrop, Crop, Pad, Letterbox)
_KNOWN = {
    "orig_target_sizes": '{"op": "original_size", "dtype": "int64", "order": "wh", "name": "orig_target_sizes"}',
    "im_shape": '{"op": "image_size", "dtype": "float32", "name": "im_shape"}',
    "scale_factor": '{"op": "scale_factor"}',
}
"""Inputs of RT-DETR and PaddleDetection, and what gives them."""
_MOST_NUMBERS = 6
"""Numbers that a pipeline may give of an image, such as ``transform``."""
_BY_HAND = "write an ensemble by hand with a step of the preprocess model for each image (docs/deploy.md)"
_COLORS = {1: "gray", 3: "rgb"}
_LAYOUTS: tuple[Layout, ...] = ("chw", "hwc", "tchw", "cthw", "thwc")
_SAME = ("STRING", "BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64")
_FROM_ONNX = {
    "FLOAT": "TYPE_FP32",
    "FLOAT16": "TYPE_FP16",
    "DOUBLE": "TYPE_FP64",
    "BFLOAT16": "TYPE_BF16",
    **{name: f"TYPE_{name}" for name in _SAME},
}
_MAX_ONNX_BYTES = 1 << 31  # protobuf's limit
_CODE = (".py", ".pyc", ".so")
# the name first: TensorFlow's hold a colon
_IO = re.compile(r"(.+):([^:]*):((?:-1|0*[1-9][0-9]*)(?:x(?:-1|0*[1-9][0-9]*))*)", re.DOTALL)
_IO_EXAMPLE = "input:FP32:3x224x224"


@dataclass(frozen=True)
class Classifier:
    """Inputs and outputs of a classifier.

    Attributes:
        source: how messages call it: the name of its file.
        data_files: names of the files beside an ONNX file that hold weights of it.
        labels: names of its classes, where the metadata of an ONNX file has them.
    """

    source: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    data_files: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()


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
    tensors = []
    for text in texts:
        match = _IO.fullmatch(text)
        if not match:
            raise PipelineError(f'--classifier-io: "{text}" is not NAME:TYPE:DIMS, such as {_IO_EXAMPLE}')
        name, type_, dims = match.groups()
        types = [known.removeprefix("TYPE_") for known in _FROM_ONNX.values()]
        if type_ not in types:
            raise PipelineError(f'--classifier-io: "{text}": no such type "{type_}"; {suggest(type_.upper(), types)}')
        tensors.append(Tensor(name, f"TYPE_{type_}", (-1, *map(int, dims.split("x")))))
    return Classifier(source, tuple(tensors[:1]), tuple(tensors[1:]))


def load_onnx(path: Path) -> tuple[bytes, Any]:
    """The content of an ONNX file, without the weights that lie beside it, and the ``onnx.ModelProto`` that it is.

    Raises:
        PipelineError: it is not an ONNX file.
        SetupError: onnx is not installed.
    """
    try:
        import onnx  # noqa: PLC0415  (only who brings an ONNX file needs it)
    except ImportError:
        raise SetupError(
            'reading an ONNX file needs onnx: pip install ".[classifier]" in a checkout of pixprep'
        ) from None
    if path.is_file() and path.stat().st_size > _MAX_ONNX_BYTES:
        raise PipelineError(f"{path.name}: over 2 GiB, which no ONNX file holds: save its weights beside it")
    try:
        content = read_bytes(path, most=_MAX_ONNX_BYTES)
        model = onnx.load_model_from_string(content)
    except OSError as error:
        raise PipelineError(f"{path.name}: cannot be read: {error.strerror}") from None
    except MemoryError:  # which says nothing of the file
        raise
    except Exception:  # noqa: BLE001  (protobuf's DecodeError, whose module moves between versions)
        raise PipelineError(f"{path.name}: not an ONNX file") from None
    if not model.graph.output:  # protobuf reads some files of other formats as an empty message
        raise PipelineError(f"{path.name}: not an ONNX file")
    return content, model


def read_onnx(path: Path) -> Classifier:
    """The inputs and outputs that an ONNX file declares, see ``load_onnx`` and ``declared``."""
    _, model = load_onnx(path)
    return declared(model, path.name)


def declared(model: Any, source: str) -> Classifier:
    """The inputs and outputs that an ``onnx.ModelProto`` declares; its weights are not read.

    Raises:
        PipelineError: it names what no terminal and no configuration should hold.
    """
    import onnx  # noqa: PLC0415  (only who brings an ONNX file needs it)

    graph = model.graph
    weights = {tensor.name for tensor in graph.initializer}  # before IR version 4 they are listed as inputs as well
    places = {
        entry.value
        for part in (graph, *model.functions)
        for tensor in _tensors(part)
        if tensor.data_location == onnx.TensorProto.EXTERNAL
        for entry in tensor.external_data
        if entry.key == "location"
    }
    for place in sorted(places):
        # beside a model.py, or in place of it, Python would run code
        is_name = place.isprintable() and place not in ("", "..") and Path(place).name == place
        if not is_name or Path(place).suffix in _CODE:
            what = f'has weights in "{printable(place)}", which is no data file beside it'
            raise PipelineError(f"{source}: {what}: save it as one file")
    for value in (*graph.input, *graph.output):
        if not value.name.isprintable():
            raise PipelineError(f'{source}: "{printable(value.name)}" is no name of a tensor: rename it')
    names = onnx.TensorProto.DataType.Name
    return Classifier(
        source,
        tuple(_from_onnx(value, names) for value in graph.input if value.name not in weights),
        tuple(_from_onnx(value, names) for value in graph.output),
        tuple(sorted(places)),
        from_metadata({entry.key: entry.value for entry in model.metadata_props}),
    )


def _tensors(part: Any) -> Iterator[Any]:
    """Every constant of a graph, or of a function: its weights, and what its nodes and their own graphs hold."""
    yield from getattr(part, "initializer", ())
    for sparse in getattr(part, "sparse_initializer", ()):
        yield from (sparse.values, sparse.indices)
    for node in part.node:
        for attribute in node.attribute:
            yield from (attribute.t, *attribute.tensors)
            yield from (
                half for x in (attribute.sparse_tensor, *attribute.sparse_tensors) for half in (x.values, x.indices)
            )
            for graph in (attribute.g, *attribute.graphs):
                yield from _tensors(graph)


def _from_onnx(value: Any, type_name: Any) -> Tensor:
    tensor = value.type.tensor_type  # an empty one for a sequence or a map
    shape = tuple(dim.dim_value if dim.HasField("dim_value") else -1 for dim in tensor.shape.dim)
    data_type = _FROM_ONNX.get(type_name(tensor.elem_type), "")
    return Tensor(value.name, data_type, shape if tensor.HasField("shape") else None)


def connect(classifier: Classifier, pipeline: Pipeline, *, max_batch_size: int) -> dict[str, str]:
    """Find for each input of the classifier the output of the pipeline that it takes.

    Names need not be equal where one tensor and one input are left; the ensemble translates. So a model may have an
    input "image", which is what the ensemble calls its own.

    Args:
        classifier: what takes the tensors.
        pipeline: what gives them.
        max_batch_size: images, or clips, in a batch.

    Returns:
        The name of an input: the name of an output.

    Raises:
        PipelineError: the first thing that does not fit, and how to mend it.
    """
    try:
        pairs = _pair(classifier, pipeline)
        for tensor in classifier.inputs:
            _check_input(tensor, pipeline.outputs[pairs[tensor.name]], max_batch_size)
        for tensor in carried(classifier):
            taken = [INPUT_NAME, STATUS_NAME, *pipeline.inputs, *pipeline.outputs]
            _check_output(tensor, taken, max_batch_size)
    except PipelineError as error:
        raise PipelineError(f"{classifier.source}: {error}") from None
    return pairs


def carried(classifier: Classifier) -> tuple[Tensor, ...]:
    """The outputs of the ensemble: one with no dims beside the batch, as a count of boxes, only where it is alone."""
    wide = [tensor for tensor in classifier.outputs if tensor.shape is None or len(tensor.shape) > 1]
    return tuple(wide) or classifier.outputs


def _pair(classifier: Classifier, pipeline: Pipeline) -> dict[str, str]:
    wanted = [tensor.name for tensor in classifier.inputs]
    open_ = [name for name in wanted if name not in pipeline.outputs]
    tensors = [name for name, output in pipeline.outputs.items() if output.spec.layout and name not in wanted]
    if len(open_) == len(tensors) == 1:
        return {name: tensors[0] if name in open_ else name for name in wanted}
    if not open_:
        return {name: name for name in wanted}
    if len(wanted) == 1:
        raise PipelineError(
            f'the pipeline gives the tensors {_quoted(tensors)}: name the one "{wanted[0]}" that the model is to take'
            if wanted[0] not in RESERVED_NAMES
            else f"the pipeline gives the tensors {_quoted(tensors)}, and the model takes one: leave the others out"
        )
    images = [tensor.name for tensor in classifier.inputs if _is_image(tensor)]
    if len(images) > 1 and any(name in open_ for name in images):
        raise PipelineError(
            f"the model takes {len(images)} images, {_quoted(images)}, and a pipeline makes all its tensors of one "
            f"image: if the model compares images, {_BY_HAND}; if it takes one image in several forms, give the "
            "pipeline a tensor for each, of the same name"
        )
    for tensor in classifier.inputs:
        is_number = tensor.shape is not None and len(tensor.shape) == 2 and 1 <= tensor.shape[1] <= _MOST_NUMBERS
        if tensor.name in open_ and not is_number and tensor.name not in images:
            raise PipelineError(
                f'the model takes "{tensor.name}", {tensor}, and a pipeline gives images and their sizes: '
                f"{_BY_HAND}, and with what gives this"
            )
    known = [f"{_KNOWN[name]} for {name}" for name in open_ if name in _KNOWN]
    raise PipelineError(
        f"the model takes {_quoted(wanted)}, the pipeline gives {_quoted(list(pipeline.outputs))}: "
        f"give the pipeline an output for each, of the same name{'; such as ' * bool(known)}{', '.join(known)}"
    )


def _is_image(tensor: Tensor) -> bool:
    """Tell whether an input takes images or clips, as far as its shape says: of 1 or 3 channels."""
    dims = (tensor.shape or ())[1:]
    is_free = set(dims) == {-1}
    return len(dims) in (3, 4) and (is_free or any(count in _COLORS for count in (*dims[:-2], dims[-1])))


def of_one_image(classifier: Classifier, pipeline: Pipeline, pairs: Mapping[str, str]) -> list[str]:
    """A note where several inputs take images: all are made of the one image of a request."""
    images = [port for port, name in pairs.items() if pipeline.outputs[name].spec.layout is not None]
    if len(images) < 2:
        return []
    return [
        f"{classifier.source}: {_quoted(images)} are made of the one image of a request: for a model that compares "
        f"images, {_BY_HAND}"
    ]


def _check_input(tensor: Tensor, output: Output, max_batch_size: int) -> None:
    dtype, spec = _DTYPES.get(tensor.data_type), output.spec
    if spec.dtype != dtype:
        wants = dtype or tensor.data_type.removeprefix("TYPE_") or "no tensor"
        op = output.chain[-1]
        sizes = get_args(SizeDType) if isinstance(op, OriginalSize | ImageSize) else ()
        able = _TENSOR_DTYPES if spec.layout else sizes
        name = "tensor" if spec.layout else op_name(op)
        remedy = f"set {name} dtype to {dtype}" if dtype in able else f"export the model with {spec.dtype}"
        raise PipelineError(f'the pipeline gives {spec.dtype}, the model\'s "{tensor.name}" wants {wants}: {remedy}')
    is_of_clips, shape = spec.layout is not None and "t" in spec.layout, tensor.shape
    export = f"export the model with [batch, {', '.join(map(str, spec.shape))}]"
    if is_of_clips and shape is not None and len(shape) == len(spec.shape) and shape[0] in (-1, 1):  # images in a batch
        raise PipelineError(
            f'the pipeline gives clips, {list(spec.shape)}, and the model\'s "{tensor.name}" takes images, '
            f"{list(shape[1:])}: average what it gives over the frames, by the lines of docs/video.md; or {export}"
        )
    if shape is None or len(shape) == len(spec.shape):
        raise PipelineError(f'input "{tensor.name}" has no batch dimension: {export}')
    _check_batch("input", tensor, max_batch_size)
    wanted = shape[1:]
    if free := [
        axis for axis, ours, theirs in zip(spec.layout or "", spec.shape, wanted, strict=False) if ours == -1 != theirs
    ]:
        raise PipelineError(
            f'the pipeline gives {list(spec.shape)}, whose sides follow the image, and the model\'s "{tensor.name}" '
            f"wants {list(wanted)}: export the model with free sides, or {_settle(free, spec, wanted)}"
        )
    if not compatible(spec.shape, wanted):
        raise PipelineError(
            f'the pipeline gives {list(spec.shape)}, the model\'s "{tensor.name}" wants {list(wanted)}: '
            f"{mend_dims(output, wanted) or export}"
        )


def _settle(free: Sequence[str], spec: TensorSpec, wanted: Sequence[int]) -> str:
    """Remedy in the pipeline for a model that takes one size."""
    most, lengths = (_lengths(shape, spec.layout or "chw") for shape in (spec.largest, wanted))
    names = {"h": "min_height", "w": "min_width"}
    if all(most[axis] <= lengths[axis] for axis in free):
        return f"set tensor {' and '.join(f'{names[axis]} to {lengths[axis]}' for axis in free)}"
    return f"add letterbox with height {lengths['h']}, width {lengths['w']}"


def _check_output(tensor: Tensor, taken: Sequence[str], max_batch_size: int) -> None:
    if not tensor.data_type:
        raise PipelineError(f'output "{tensor.name}" is no tensor that Triton carries: export the model without it')
    if tensor.shape is None:
        raise PipelineError(
            f'output "{tensor.name}" has no shape: write it with onnx.shape_inference.infer_shapes_path'
        )
    if len(tensor.shape) < 2:
        raise PipelineError(f'output "{tensor.name}" has no dims beside the batch: export it as [batch, 1] or wider')
    _check_batch("output", tensor, max_batch_size)
    if tensor.name in taken:
        raise PipelineError(f'output "{tensor.name}": the ensemble has another tensor of that name: rename it')


def _check_batch(direction: str, tensor: Tensor, max_batch_size: int) -> None:
    assert tensor.shape
    batch = tensor.shape[0]
    if batch != -1 and (batch, max_batch_size) != (1, 1):
        way_out = ", or say --max-batch-size 1" if batch == 1 and max_batch_size else ""
        raise PipelineError(
            f'the batch of {direction} "{tensor.name}" is fixed at {batch}: '
            f"export the model with a free first dimension{way_out}"
        )


def mend_dims(output: Output, wanted: Sequence[int]) -> str:
    """Remedy in the pipeline for other dims; ``""`` if no pipeline gives them."""
    layout = output.spec.layout
    if layout is not None and "t" not in layout and len(wanted) == len(layout) + 1:
        return "begin with decode_video, for a model of clips"
    if layout is None or len(wanted) != len(layout):
        return ""
    sides = _lengths(output.spec.shape, layout)
    others = [other for other in _LAYOUTS if len(other) == len(layout)]
    remedies = []
    # by its channels, and of a clip by its frames if they agree; -1 is any, and images have no frames
    for axes in ("ct", "c"):
        fitting = [
            other
            for other in (layout, *others)
            if all(_lengths(wanted, other).get(axis, -1) in (sides.get(axis), -1) for axis in axes)
        ]
        if fitting:
            break
    if fitting and fitting[0] != layout:
        layout = fitting[0]
        remedies.append(f'set tensor layout to "{layout}"')
    lengths = {axis: length if length > 0 else sides[axis] for axis, length in _lengths(wanted, layout).items()}
    if lengths["c"] != sides["c"]:
        if lengths["c"] not in _COLORS:
            return ""
        remedies.append(f'set {op_name(output.chain[0])} color to "{_COLORS[lengths["c"]]}"')
    if lengths.get("t") != sides.get("t"):
        remedies.append(f"set decode_video frames to {lengths['t']}")
    tall, wide = lengths["h"], lengths["w"]
    if (tall, wide) != (sides["h"], sides["w"]):
        op = next(op for op in reversed(output.chain) if isinstance(op, _SIZING_OPS))
        size = f"{tall}" if tall == wide else f"height {tall}, width {wide}"
        remedies.append(f"set {op_name(op)} to {size}")
        resized = [
            resize.size for resize in output.chain if isinstance(resize, Resize) and isinstance(resize.size, int)
        ]
        if isinstance(op, CenterCrop) and resized and int(resized[0]) < max(tall, wide):  # it would add a black frame
            remedies.append("resize to at least that")
    return " and ".join(remedies)


def _lengths(dims: Sequence[int], layout: Layout) -> dict[str, int]:
    """The length of each axis of a layout."""
    return dict(zip(layout, dims, strict=True))


def compatible(ours: Sequence[int] | None, theirs: Sequence[int] | None) -> bool:
    """Tell whether dims agree; -1 agrees with any length, None with any dims."""
    if ours is None or theirs is None:
        return True
    return len(ours) == len(theirs) and all(-1 in (a, b) or a == b for a, b in zip(ours, theirs, strict=True))


def _quoted(names: Sequence[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)
