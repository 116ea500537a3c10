"""Matches a pipeline's tensors with a classifier's inputs, and describes how to fix mismatches."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import permutations
from typing import get_args, get_type_hints

from pixprep.errors import PipelineError
from pixprep.pipeline.ops import (
    CenterCrop,
    Crop,
    FirstOp,
    Letterbox,
    OriginalSize,
    Pad,
    Resize,
    Tiles,
    Warp,
    op_name,
)
from pixprep.pipeline.ops.limits import MAX_ONES
from pixprep.pipeline.pipeline import Pipeline
from pixprep.pipeline.walk import RESERVED_NAMES, Output
from pixprep.postprocessing.detections import TARGET_SIZES
from pixprep.serving.repository.models import Tensor
from pixprep.serving.repository.ports import Classifier
from pixprep.serving.triton.config import INPUT_NAME, STATUS_NAME, served_dims, triton_type
from pixprep.spec import DType, Layout, TensorSpec

_DTYPES: dict[str, DType] = {triton_type(dtype): dtype for part in get_args(DType) for dtype in get_args(part)}
OPS_OF_INPUTS = {
    "orig_target_sizes": '{"op": "original_size", "dtype": "int64", "order": "wh", "name": "orig_target_sizes"}',
    "im_shape": '{"op": "image_size", "dtype": "float32", "name": "im_shape"}',
    "scale_factor": '{"op": "scale_factor"}',
}
"""Ops that compute the numeric inputs of RT-DETR and PaddleDetection, by the name of the input."""
_MAX_NUMBERS = 6
"""Maximum number of values per image of a numeric pipeline output, such as ``transform``."""
PIPELINE_PER_INPUT = "pass --pipeline INPUT=FILE for each input"
_SIZING_OPS = (Resize, CenterCrop, Crop, Pad, Letterbox, Warp)
_USUAL_AXES = "ntchw"
"""Axes in the most common order."""


def check_inputs(classifier: Classifier, pipeline: Pipeline, *, max_batch_size: int) -> dict[str, str]:
    """Find the pipeline output for each input of the classifier, and check that its type and shape match.

    Outputs and inputs are matched by name. If exactly one tensor and one input remain, they are matched although their
    names differ. The input of the classifier may therefore be named "image", like the input of the ensemble.

    Args:
        classifier: Classifier that receives the tensors.
        pipeline: Pipeline that returns the tensors.
        max_batch_size: Maximum number of images, or clips, in a batch.

    Returns:
        A mapping from the names of the classifier's inputs to the names of the pipeline's outputs.

    Raises:
        PipelineError: A type or shape does not match. The message describes the first mismatch and its fix.
    """
    try:
        pairs = _pair(classifier, pipeline)
        for tensor in classifier.inputs:
            if pipeline.plan.is_packed:
                check_packed(tensor, pipeline.outputs[pairs[tensor.name]])
            else:
                _check_input(tensor, pipeline.outputs[pairs[tensor.name]], max_batch_size)
    except PipelineError as error:
        raise PipelineError(f"{classifier.source}: {error}") from None
    return pairs


def check_outputs(
    classifier: Classifier, tensors: Iterable[str], *, max_batch_size: int, is_packed: bool = False
) -> None:
    """Raise PipelineError for an output that Triton does not support, or whose name the ensemble already uses.

    Args:
        classifier: Classifier whose outputs are checked.
        tensors: Names of the ensemble's tensors before the classifier.
        max_batch_size: Maximum number of images in a batch.
        is_packed: Whether the classifier has no batch dimension, because its images are concatenated.
    """
    taken = [INPUT_NAME, STATUS_NAME, *tensors]
    try:
        for tensor in classifier.outputs:
            _check_output(tensor, taken, max_batch_size, is_packed=is_packed)
    except PipelineError as error:
        raise PipelineError(f"{classifier.source}: {error}") from None


def _pair(classifier: Classifier, pipeline: Pipeline) -> dict[str, str]:
    wanted = [tensor.name for tensor in classifier.inputs]
    open_ = [name for name in wanted if name not in pipeline.outputs]
    tensors = [
        name
        for name, output in pipeline.outputs.items()
        if (output.spec.layout or output.spec.patches) and name not in wanted
    ]
    if len(open_) == len(tensors) == 1:
        return {name: tensors[0] if name in open_ else name for name in wanted}
    if not open_:
        return {name: name for name in wanted}
    if len(wanted) == 1:
        raise PipelineError(
            f'the pipeline has the tensors {listed(tensors)}: rename the one for the model to "{wanted[0]}", the name '
            "of its input"
            if wanted[0] not in RESERVED_NAMES
            else f"the pipeline has the tensors {listed(tensors)}, but the model has one input: remove the others"
        )
    images = [tensor.name for tensor in classifier.inputs if _is_image(tensor)]
    if len(images) > 1 and any(name in open_ for name in images):
        raise PipelineError(
            f"the model has {len(images)} image inputs, {listed(images)}, but a pipeline processes one image: if the "
            f"model compares images, {PIPELINE_PER_INPUT}; if it needs several versions of one image, add a tensor "
            "with the name of each input to the pipeline"
        )
    for tensor in classifier.inputs:
        is_number = tensor.shape is not None and len(tensor.shape) == 2 and 1 <= tensor.shape[1] <= _MAX_NUMBERS
        if tensor.name in open_ and not is_number and tensor.name not in images:
            raise PipelineError(
                f'the model has the input "{tensor.name}", {tensor}, but a pipeline only returns images and their '
                "sizes: export the model without it, or write your own ensemble with a step that computes it"
            )
    known = [f"{OPS_OF_INPUTS[name]} for {name}" for name in open_ if name in OPS_OF_INPUTS]
    raise PipelineError(
        f"the model has the inputs {listed(wanted)}, but the pipeline has the outputs "
        f"{listed(list(pipeline.outputs))}: add an output with the name of each input"
        f"{', such as ' * bool(known)}{', '.join(known)}"
    )


def _is_image(tensor: Tensor) -> bool:
    """Return whether an input has the shape of images or clips: 1, 3 or 4 channels, or only dynamic dimensions."""
    dims = (tensor.shape or ())[1:]
    is_free = set(dims) == {-1}
    return len(dims) in (3, 4) and (is_free or any(count in (1, 3, 4) for count in (*dims[:-2], dims[-1])))


def is_size_of_photo(pipeline: Pipeline, name: str) -> bool:
    """Return whether an output is named ``orig_target_sizes`` and contains the width and height of the photo."""
    op = pipeline.outputs[name].chain[-1]
    return name == TARGET_SIZES and isinstance(op, OriginalSize) and op.order == "wh"


def _check_dtype(tensor: Tensor, output: Output) -> None:
    """Raise PipelineError if the type of an input differs from that of the pipeline's output."""
    dtype, has, op = _DTYPES.get(tensor.data_type), output.spec.dtype, output.chain[-1]
    if has != dtype:
        wants = dtype or tensor.data_type.removeprefix("TYPE_") or "of an unsupported type"
        able = get_args(get_type_hints(type(op)).get("dtype"))
        remedy = f"set {op_name(op)} dtype to {dtype}" if dtype in able else f"export the model with {has}"
        raise PipelineError(f'the pipeline returns {has}, but input "{tensor.name}" is {wants}: {remedy}')


def _check_input(tensor: Tensor, output: Output, max_batch_size: int) -> None:
    _check_dtype(tensor, output)
    spec = output.spec
    is_of_clips, shape = "t" in spec.lengths, tensor.shape
    export = f"export the model with [batch, {', '.join(map(str, spec.shape))}]"
    if is_of_clips and shape is not None and len(shape) == len(spec.shape) and shape[0] in (-1, 1):  # images in a batch
        raise PipelineError(
            f'the pipeline returns clips, {list(spec.shape)}, but input "{tensor.name}" of the model accepts images, '
            f"{list(shape[1:])}: average its results over the frames as in docs/video.md, or {export}"
        )
    if shape is None or (len(shape) == len(spec.shape) and "1" not in spec.lengths):
        raise PipelineError(f'input "{tensor.name}" has no batch dimension: {export}')
    _check_batch("input", tensor, max_batch_size)
    wanted = shape[1:]
    if free := [
        axis for axis, ours, theirs in zip(spec.layout or "", spec.shape, wanted, strict=False) if ours == -1 != theirs
    ]:
        raise PipelineError(
            f'the pipeline returns {list(spec.shape)}, a size that depends on the image, but input "{tensor.name}" of '
            f"the model is {list(wanted)}: export the model with dynamic height and width, or "
            f"{_fix_size(free, spec, wanted)}"
        )
    if not compatible(spec.shape, wanted):
        raise PipelineError(
            f'the pipeline returns {list(spec.shape)}, but input "{tensor.name}" of the model is {list(wanted)}: '
            f"{_change(output, wanted, order_of(tensor.dim_names)) or export}"
        )


def _fix_size(free: Sequence[str], spec: TensorSpec, wanted: Sequence[int]) -> str:
    """Return the change to a pipeline with variable output size that a model with a fixed input size requires."""
    max_lengths, lengths = (spec.lengths_of(shape) for shape in (spec.largest, wanted))
    names = {"h": "min_height", "w": "min_width"}
    if all(max_lengths[axis] <= lengths[axis] for axis in free):
        return f"set tensor {' and '.join(f'{names[axis]} to {lengths[axis]}' for axis in free)}"
    return f"add letterbox with height {lengths['h']}, width {lengths['w']}"


def check_packed(tensor: Tensor, output: Output) -> None:
    """Raise PipelineError if an input of a model for concatenated patches does not match the pipeline's output."""
    _check_dtype(tensor, output)
    dims = served_dims(output.spec, [-1])
    if tensor.shape is not None and not compatible(dims, tensor.shape):
        raise PipelineError(
            f'the pipeline returns {dims}, but "{tensor.name}" is {list(tensor.shape)}: a model of patches has no '
            f"batch dimension: export it with {dims}, where -1 is a dynamic axis"
        )
    if any(ours == -1 != theirs for ours, theirs in zip(dims, tensor.shape or (), strict=False)):
        more = f", or set {op_name(output.chain[-1])} max_tiles to {(tensor.shape or ())[0]}" * (
            isinstance(output.chain[-1], Tiles)
        )
        raise PipelineError(
            f'the pipeline returns {dims}, where -1 depends on the image, but "{tensor.name}" is '
            f"{list(tensor.shape or ())}: export the model with a dynamic axis{more}"
        )


def _check_output(tensor: Tensor, taken: Sequence[str], max_batch_size: int, *, is_packed: bool) -> None:
    if not tensor.data_type:
        raise PipelineError(f'output "{tensor.name}" has a type that Triton does not support: remove it from the model')
    if tensor.shape is None:
        raise PipelineError(f'output "{tensor.name}" has no shape: add it with onnx.shape_inference.infer_shapes_path')
    if len(tensor.shape) < 2 and not is_packed:
        raise PipelineError(f'output "{tensor.name}" has only a batch dimension: export it as [batch, 1] or larger')
    if not is_packed:
        _check_batch("output", tensor, max_batch_size)
    if tensor.name in taken:
        raise PipelineError(f'output "{tensor.name}": the ensemble already has a tensor with this name: rename it')


def is_batch_second(tensor: Tensor) -> bool:
    """Return whether an output is time-major: its first dimension is fixed, and its second is the dynamic batch."""
    shape = tensor.shape or ()
    return len(shape) > 2 and shape[0] > 0 and shape[1] == -1 and -1 not in shape[2:]


def _check_batch(direction: str, tensor: Tensor, max_batch_size: int) -> None:
    assert tensor.shape
    batch = tensor.shape[0]
    if batch != -1 and (batch, max_batch_size) != (1, 1):
        way_out = ", or pass --max-batch-size 1" if batch == 1 and max_batch_size else ""
        raise PipelineError(
            f'the batch size of {direction} "{tensor.name}" is fixed at {batch}: '
            f"export the model with a dynamic batch dimension{way_out}, or try --free-dims"
        )


def _change(output: Output, wanted: Sequence[int], order: str) -> str:
    """Return the change to a pipeline that a model's dims require, or ``""`` if no pipeline returns such a tensor.

    Args:
        output: Output of the pipeline.
        wanted: Dims of one image in the model. -1 matches every length.
        order: Order of height and width in the model: ``hw``, ``wh`` or, if it is unknown, ``""``.
    """
    ours = output.spec.lengths
    axes = "".join(axis for axis in _USUAL_AXES if axis in ours)
    ones = len(wanted) - len(axes)
    if not axes or not 0 <= ones <= MAX_ONES:
        return ""
    if ones == 1 and "t" not in axes and 1 not in wanted:
        return "begin with decode_video if the model accepts clips"
    layout = _fitting_layout(output.spec, wanted, order or order_of(output.spec.layout or ""), "1" * ones + axes)
    if layout is None:
        return ""
    lengths = ours | {axis: side for axis, side in zip(layout, wanted, strict=True) if side != -1}
    changed = [axis for axis in axes if lengths[axis] != ours[axis]]
    if lengths["c"] not in (1, 3, 4):
        return f"{lengths['c']} channels do not fit, because an image has 1, 3 or 4 channels"
    fixes = [f'set tensor layout to "{layout}"'] * (layout != output.spec.layout)
    if "c" in changed:
        fixes.append(_change_of_channels(output, lengths["c"]))
    names = {"n": "clips", "t": "frames"}
    fixes += [f"set decode_video {names[axis]} to {lengths[axis]}" for axis in changed if axis in names]
    if "h" in changed or "w" in changed:
        height, width = lengths["h"], lengths["w"]
        op = next((op for op in reversed(output.chain) if isinstance(op, _SIZING_OPS)), None)
        is_swapped = not order and (width, height) == (ours["h"], ours["w"])
        other = f', or, if the width comes first in the model, set tensor layout to "{swapped(layout)}"' * is_swapped
        fixes.append(f"set {op_name(op) if op else 'the size of the image'} to height {height}, width {width}{other}")
        resizes = [op for op in output.chain if isinstance(op, Resize)] if isinstance(op, CenterCrop) else []
        sides = [side for op in resizes for side in (op.size, op.height, op.width) if isinstance(side, int)]
        if sides and min(sides) < max(height, width):  # center_crop would pad the image
            fixes.append("resize to at least that size")
    return " and ".join(fixes)


def _change_of_channels(output: Output, count: int) -> str:
    """Return the change to a pipeline after which its images have 1, 3 or 4 channels."""
    first, *_ = output.chain
    assert isinstance(first, FirstOp)
    decoded, color = first.infer().channels, f"set {op_name(first)} color to "
    if count == 4:
        return f'{color}"rgb" and ' * (decoded == 1) + (
            'set tensor channels to 4, which fills the fourth channel with "pad_value" and ignores the alpha channel '
            "of the file (for an RGBA model, use the value of alpha 255 in its training)"
        )
    if count == decoded:
        return "remove channels from tensor"
    return f'{color}"gray", or tensor channels to 1 after grayscale' if count == 1 else f'{color}"rgb"'


def _fitting_layout(spec: TensorSpec, wanted: Sequence[int], order: str, axes: str) -> Layout | None:
    """Find the layout that best matches the dims of a model in its numbers of frames and channels.

    Args:
        spec: Tensor of the pipeline.
        wanted: Dims of one image in the model. -1 matches every length.
        order: Order of height and width: ``hw`` or ``wh``.
        axes: Axes of the layout.

    Returns:
        The layout, or None if the layout would need a dimension of 1 for which the model has a different length.
    """
    layouts = dict.fromkeys("".join(each) for each in (spec.layout or "", *permutations(axes)))
    lengths = {**spec.lengths, "1": 1}

    def agreement(layout: Layout) -> tuple[bool | int, ...]:
        pairs = [(axis, lengths[axis], length) for axis, length in zip(layout, wanted, strict=True) if axis not in "hw"]
        wrong = {axis for axis, ours, theirs in pairs if theirs not in (ours, -1)}
        return "1" not in wrong, not wrong, "c" not in wrong, sum(ours == theirs for _, ours, theirs in pairs)

    fitting = [layout for layout in layouts if len(layout) == len(wanted) and order_of(layout) == order]
    best = max(fitting, key=agreement)
    return best if agreement(best)[0] else None


def order_of(axes: Iterable[str]) -> str:
    """Return the order of height and width in a layout, or in the names of a tensor's dims: ``hw`` or ``wh``.

    Return ``""`` if the axes do not have these names.
    """
    sides = [
        side[0] for axis in axes for side in ("height", "width") if axis.lower() == side[0] or side in axis.lower()
    ]
    return "".join(sides) if sorted(sides) == ["h", "w"] else ""


def swapped(layout: Layout) -> Layout:
    """Return the layout with height and width swapped."""
    return layout.translate(str.maketrans("hw", "wh"))


def compatible(ours: Sequence[int] | None, theirs: Sequence[int] | None) -> bool:
    """Return whether two sequences of dims match. -1 matches every length, and None matches all dims."""
    if ours is None or theirs is None:
        return True
    return len(ours) == len(theirs) and all(-1 in (a, b) or a == b for a, b in zip(ours, theirs, strict=True))


def listed(names: Sequence[str]) -> str:
    """Return names as a list for a message: in quotes, with commas between them."""
    return ", ".join(f'"{name}"' for name in names)
