"""Comparison of a pipeline's tensors with a classifier's inputs, and the remedy if they do not fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import permutations
from typing import get_args

from pixprep.errors import PipelineError, printable
from pixprep.pipeline.ops import CenterCrop, Crop, FirstOp, ImageSize, Letterbox, OriginalSize, Pad, Resize, op_name
from pixprep.pipeline.ops.limits import MAX_ONES
from pixprep.pipeline.pipeline import Pipeline
from pixprep.pipeline.walk import RESERVED_NAMES, Output
from pixprep.serving.repository.models import Tensor
from pixprep.serving.repository.ports import Classifier
from pixprep.serving.triton.config import INPUT_NAME, STATUS_NAME, TRITON_TYPES, served_dims
from pixprep.spec import DType, Layout, SizeDType, TensorSpec

_DTYPES: dict[str, DType] = {data_type: dtype for dtype, data_type in TRITON_TYPES.items()}
_TENSOR_DTYPES: tuple[DType, ...] = ("float32", "float16", "uint8")
_SIZING_OPS = (Resize, CenterCrop, Crop, Pad, Letterbox)
_KNOWN = {
    "orig_target_sizes": '{"op": "original_size", "dtype": "int64", "order": "wh", "name": "orig_target_sizes"}',
    "im_shape": '{"op": "image_size", "dtype": "float32", "name": "im_shape"}',
    "scale_factor": '{"op": "scale_factor"}',
}
"""Inputs of RT-DETR and PaddleDetection, and the ops that produce them."""
_MAX_NUMBERS = 6
"""Maximum number of values of an output that a pipeline may compute per image, such as ``transform``."""
_EACH = "give --pipeline INPUT=FILE for each"
_COLORS = {1: "gray", 3: "rgb"}
_USUAL = "tchw"
"""Axes in the usual order."""


def connect(classifier: Classifier, pipeline: Pipeline, *, max_batch_size: int) -> dict[str, str]:
    """Find for each input of the classifier the output of the pipeline that feeds it.

    If only one tensor and one input remain, their names may differ, because the ensemble maps names. A model may
    therefore have an input "image", which is also the name of the ensemble's own input.

    Args:
        classifier: Classifier that takes the tensors.
        pipeline: Pipeline that produces the tensors.
        max_batch_size: Maximum number of images, or clips, in a batch.

    Returns:
        A mapping from the names of inputs to the names of outputs.

    Raises:
        PipelineError: An output does not fit an input; the message describes the first one and its fix.
    """
    pairs = check_inputs(classifier, pipeline, max_batch_size=max_batch_size)
    taken = [INPUT_NAME, STATUS_NAME, *pipeline.inputs, *pipeline.outputs]
    check_outputs(classifier, taken, max_batch_size=max_batch_size, is_packed=pipeline.plan.is_packed)
    return pairs


def check_inputs(classifier: Classifier, pipeline: Pipeline, *, max_batch_size: int) -> dict[str, str]:
    """The part of ``connect`` that handles the inputs."""
    try:
        pairs = _pair(classifier, pipeline)
        for tensor in classifier.inputs:
            if pipeline.plan.is_packed:
                _check_packed(tensor, pipeline.outputs[pairs[tensor.name]])
            else:
                _check_input(tensor, pipeline.outputs[pairs[tensor.name]], max_batch_size)
    except PipelineError as error:
        raise PipelineError(f"{classifier.source}: {error}") from None
    return pairs


def check_outputs(
    classifier: Classifier, taken: Sequence[str], *, max_batch_size: int, is_packed: bool = False
) -> None:
    """Reject outputs that Triton does not support, or whose names the ensemble already uses.

    Args:
        classifier: Classifier whose outputs are checked.
        taken: Names that the ensemble already uses.
        max_batch_size: Maximum number of images in a batch.
        is_packed: Whether the classifier has no batch dimension, because its images are concatenated.
    """
    try:
        for tensor in carried(classifier):
            if max_batch_size > 1 and is_batch_second(tensor):
                raise PipelineError(*transposed(tensor, classifier.source))  # noqa: TRY301
            _check_output(tensor, taken, max_batch_size, is_packed=is_packed)
    except PipelineError as error:
        first, *lines = error.args
        raise PipelineError(f"{classifier.source}: {first}", *lines) from None


def carried(classifier: Classifier) -> tuple[Tensor, ...]:
    """Outputs of the ensemble. One with only the batch axis, such as a count of boxes, is omitted if others exist."""
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
            f"image: if the model compares images, {_EACH}; if it takes one image in several forms, give the "
            "pipeline a tensor for each, of the same name"
        )
    for tensor in classifier.inputs:
        is_number = tensor.shape is not None and len(tensor.shape) == 2 and 1 <= tensor.shape[1] <= _MAX_NUMBERS
        if tensor.name in open_ and not is_number and tensor.name not in images:
            raise PipelineError(
                f'the model takes "{tensor.name}", {tensor}, and a pipeline gives images and their sizes: '
                "export the model without it, or write an ensemble by hand with a step that gives it"
            )
    known = [f"{_KNOWN[name]} for {name}" for name in open_ if name in _KNOWN]
    raise PipelineError(
        f"the model takes {_quoted(wanted)}, the pipeline gives {_quoted(list(pipeline.outputs))}: "
        f"give the pipeline an output for each, of the same name{'; such as ' * bool(known)}{', '.join(known)}"
    )


def _is_image(tensor: Tensor) -> bool:
    """Return whether an input accepts images or clips, judged by its shape: it has 1, 3 or 4 channels."""
    dims = (tensor.shape or ())[1:]
    is_free = set(dims) == {-1}
    return len(dims) in (3, 4) and (is_free or any(count in (*_COLORS, 4) for count in (*dims[:-2], dims[-1])))


def of_one_image(classifier: Classifier, pipeline: Pipeline, pairs: Mapping[str, str]) -> list[str]:
    """A note if several inputs accept images: all of them receive the one image of a request."""
    images = [port for port, name in pairs.items() if pipeline.outputs[name].spec.layout is not None]
    if len(images) < 2:
        return []
    return [
        f"{classifier.source}: {_quoted(images)} are made of the one image of a request: for a model that compares "
        f"images, {_EACH}"
    ]


def of_turned_images(classifier: Classifier, pipeline: Pipeline, pairs: Mapping[str, str]) -> list[str]:
    """Return a note for each input whose file names height and width in a different order than the pipeline."""
    notes = []
    for tensor in classifier.inputs:
        layout = pipeline.outputs[pairs[tensor.name]].spec.layout if tensor.name in pairs else None
        if layout is not None and _sides(tensor) not in ("", _order(layout)):
            words = printable(", ".join(tensor.words[1:]))
            notes.append(
                f'{classifier.source}: "{tensor.name}" calls its dims {words}: if that is their order, set tensor '
                f'layout to "{_turned(layout)}"'
            )
    return notes


def _sides(tensor: Tensor) -> str:
    """``hw`` or ``wh``, according to the names of an input's dims in the file; ``""`` without such names."""
    words = [word.lower() for word in tensor.words]
    found = [side[0] for word in words for side in ("height", "width") if word == side[0] or side in word]
    return "".join(found) if sorted(found) == ["h", "w"] else ""


def _order(layout: Layout) -> str:
    return "".join(axis for axis in layout if axis in "hw")


def _turned(layout: Layout) -> Layout:
    """A layout with height and width swapped."""
    return layout.translate(str.maketrans("hw", "wh"))


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
    is_of_clips, shape = "t" in spec.lengths, tensor.shape
    export = f"export the model with [batch, {', '.join(map(str, spec.shape))}]"
    if is_of_clips and shape is not None and len(shape) == len(spec.shape) and shape[0] in (-1, 1):  # images in a batch
        raise PipelineError(
            f'the pipeline gives clips, {list(spec.shape)}, and the model\'s "{tensor.name}" takes images, '
            f"{list(shape[1:])}: average what it gives over the frames, by the lines of docs/video.md; or {export}"
        )
    if shape is None or (len(shape) == len(spec.shape) and "1" not in spec.lengths):
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
            f"{mend_dims(output, wanted, _sides(tensor)) or export}"
        )


def _settle(free: Sequence[str], spec: TensorSpec, wanted: Sequence[int]) -> str:
    """Remedy in the pipeline for a model that accepts a single size."""
    most, lengths = (spec.lengths_of(shape) for shape in (spec.largest, wanted))
    names = {"h": "min_height", "w": "min_width"}
    if all(most[axis] <= lengths[axis] for axis in free):
        return f"set tensor {' and '.join(f'{names[axis]} to {lengths[axis]}' for axis in free)}"
    return f"add letterbox with height {lengths['h']}, width {lengths['w']}"


def _check_packed(tensor: Tensor, output: Output) -> None:
    """Reject an input of a model without a batch dimension that does not fit an output of a pipeline of patches."""
    spec, dtype = output.spec, _DTYPES.get(tensor.data_type)
    dims = served_dims(spec, [-1])
    if spec.dtype != dtype:
        wants = dtype or tensor.data_type.removeprefix("TYPE_")
        remedy = f"set {op_name(output.chain[-1])} dtype to {dtype}, or export the model with {spec.dtype}"
        raise PipelineError(f'the pipeline returns {spec.dtype}, but "{tensor.name}" is {wants}: {remedy}')
    if tensor.shape is not None and not compatible(dims, tensor.shape):
        raise PipelineError(
            f'the pipeline returns {dims}, but "{tensor.name}" is {list(tensor.shape)}: a model of patches has no '
            f"batch dimension: export it with {dims}, where -1 is a dynamic axis"
        )


def _check_output(tensor: Tensor, taken: Sequence[str], max_batch_size: int, *, is_packed: bool) -> None:
    if not tensor.data_type:
        raise PipelineError(f'output "{tensor.name}" is no tensor that Triton carries: export the model without it')
    if tensor.shape is None:
        raise PipelineError(
            f'output "{tensor.name}" has no shape: write it with onnx.shape_inference.infer_shapes_path'
        )
    if len(tensor.shape) < 2 and not is_packed:
        raise PipelineError(f'output "{tensor.name}" has no dims beside the batch: export it as [batch, 1] or wider')
    if not is_packed:
        _check_batch("output", tensor, max_batch_size)
    if tensor.name in taken:
        raise PipelineError(f'output "{tensor.name}": the ensemble has another tensor of that name: rename it')


def is_batch_second(tensor: Tensor) -> bool:
    """Return whether an output is time-major: a fixed length first, and the free one of the batch second."""
    shape = tensor.shape or ()
    return len(shape) > 2 and shape[0] > 0 and shape[1] == -1 and -1 not in shape[2:]


def transposed(tensor: Tensor, source: str) -> list[str]:
    """The message for such an output, and the lines that append a Transpose to the file."""
    shape = tensor.shape or ()
    name, order = f"{tensor.name}_by_image", [1, 0, *range(2, len(shape))]
    return [
        f'output "{tensor.name}" {list(shape)} has the batch second, and Triton shares out the first dim: append a '
        "Transpose to the file, by these lines in its folder",
        "import onnx",
        f"model = onnx.load({source!r})",
        f"(output,) = [each for each in model.graph.output if each.name == {tensor.name!r}]",
        f"node = onnx.helper.make_node('Transpose', [{tensor.name!r}], [{name!r}], perm={order})",
        "model.graph.node.append(node)",
        "kind = output.type.tensor_type.elem_type",
        f"output.CopyFrom(onnx.helper.make_tensor_value_info({name!r}, kind, {['batch', shape[0], *shape[2:]]}))",
        f"onnx.save(model, {source!r})",
    ]


def _check_batch(direction: str, tensor: Tensor, max_batch_size: int) -> None:
    assert tensor.shape
    batch = tensor.shape[0]
    if batch != -1 and (batch, max_batch_size) != (1, 1):
        way_out = ", or say --max-batch-size 1" if batch == 1 and max_batch_size else ""
        raise PipelineError(
            f'the batch of {direction} "{tensor.name}" is fixed at {batch}: '
            f"export the model with a free first dimension{way_out}, or try --free-dims"
        )


def mend_dims(output: Output, wanted: Sequence[int], order: str = "") -> str:
    """Remedy in the pipeline if a model expects different dims; ``""`` if no pipeline can produce them.

    Args:
        output: Output of the pipeline.
        wanted: Dims of one image that the model expects.
        order: ``hw`` or ``wh``, if it is known; ``""`` means the order of the pipeline.
    """
    sides = output.spec.lengths
    axes = "".join(axis for axis in _USUAL if axis in sides)
    ones = len(wanted) - len(axes)
    if not axes or not 0 <= ones <= MAX_ONES:
        return ""
    if ones == 1 and "t" not in sides and 1 not in wanted:
        return "begin with decode_video, for a model of clips"
    layout = _fitting(output.spec, wanted, order or _order(output.spec.layout or ""), "1" * ones + axes)
    if layout is None:
        return ""
    remedies = []
    if layout != output.spec.layout:
        remedies.append(f'set tensor layout to "{layout}"')
    dims = zip(layout, wanted, strict=True)
    lengths = {axis: length if length > 0 else sides[axis] for axis, length in dims}
    if lengths["c"] != sides["c"]:
        if lengths["c"] not in (*_COLORS, 4):
            return ""
        remedies += _of_channels(output, lengths["c"])
    if lengths.get("t") != sides.get("t"):
        remedies.append(f"set decode_video frames to {lengths['t']}")
    tall, wide = lengths["h"], lengths["w"]
    if (tall, wide) != (sides["h"], sides["w"]):
        op = next(op for op in reversed(output.chain) if isinstance(op, _SIZING_OPS))
        size = f"{tall}" if tall == wide else f"height {tall}, width {wide}"
        is_turned = not order and (wide, tall) == (sides["h"], sides["w"])
        other = f', or, if the model has them the other way round, tensor layout to "{_turned(layout)}"' * is_turned
        remedies.append(f"set {op_name(op)} to {size}{other}")
        resized = [
            resize.size for resize in output.chain if isinstance(resize, Resize) and isinstance(resize.size, int)
        ]
        if isinstance(op, CenterCrop) and resized and int(resized[0]) < max(tall, wide):  # it would add a black frame
            remedies.append("resize to at least that")
    return " and ".join(remedies)


def _of_channels(output: Output, wanted: int) -> list[str]:
    """Return fixes for a different number of channels."""
    first, *_ = output.chain
    assert isinstance(first, FirstOp)
    own, color = first.infer().channels, f"set {op_name(first)} color to "
    if wanted == 4:
        return [f'{color}"rgb"'] * (own == 1) + [
            'set tensor channels to 4, whose fourth is "pad_value" in every pixel and never the alpha of the file (a '
            "model of RGBA wants the value there that its training gave to alpha 255)"
        ]
    if wanted == own:
        return ["leave tensor channels out"]
    gray = ", or tensor channels to 1 behind grayscale" * (wanted == 1)
    return [f'{color}"{_COLORS[wanted]}"{gray}']


def _fitting(spec: TensorSpec, wanted: Sequence[int], order: str, axes: str) -> Layout | None:
    """Layout of these axes that dims seem to have, by their frames and channels, or by their channels; -1 is any."""
    layouts = dict.fromkeys("".join(each) for each in (spec.layout or "", *permutations(axes)))
    lengths = {**spec.lengths, "1": 1}

    def agreement(layout: Layout) -> tuple[bool | int, ...]:
        pairs = [(axis, lengths[axis], length) for axis, length in zip(layout, wanted, strict=True) if axis not in "hw"]
        wrong = {axis for axis, ours, theirs in pairs if theirs not in (ours, -1)}
        return "1" not in wrong, not wrong, "c" not in wrong, sum(ours == theirs for _, ours, theirs in pairs)

    fitting = [layout for layout in layouts if len(layout) == len(wanted) and _order(layout) == order]
    best = max(fitting, key=agreement)
    return best if agreement(best)[0] else None


def compatible(ours: Sequence[int] | None, theirs: Sequence[int] | None) -> bool:
    """Return whether dims agree; -1 agrees with any length, None with any dims."""
    if ours is None or theirs is None:
        return True
    return len(ours) == len(theirs) and all(-1 in (a, b) or a == b for a, b in zip(ours, theirs, strict=True))


def _quoted(names: Sequence[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)
