"""Converts inputs of a DALI graph that are not encoded images: numbers, and frames that are already decoded.

The content of an ``external_source`` depends on its use in the graph. The input of a decoder is an encoded image, an
argument of an operator consists of numbers, and the input of any other operator on images is a frame.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pixprep.errors import PipelineError
from pixprep.importers.dali.graph import Operator
from pixprep.importers.dali.numbers import subscripts
from pixprep.importers.dali.values import TYPES, Encoded, Image, Value
from pixprep.importers.fields import Fields
from pixprep.pipeline.ops import MAX_SIDE, Op, Pad, Pixels, Resize, Tensor, TensorDType, changed
from pixprep.pipeline.ops.faults import quoted
from pixprep.pipeline.pipeline import Pipeline
from pixprep.spec import FrameLayout, Layout

_CROP_ARGUMENTS = ("crop", "crop_h", "crop_w", "crop_pos_x", "crop_pos_y")
_SLICE_ARGUMENTS = ("start", "shape", "rel_start", "rel_shape")
_REQUEST_ARGUMENTS: Mapping[str, Sequence[str]] = {
    "Crop": _CROP_ARGUMENTS,
    "CropMirrorNormalize": (*_CROP_ARGUMENTS, "mirror"),
    "decoders__ImageCrop": _CROP_ARGUMENTS,
    "Slice": _SLICE_ARGUMENTS,
    "decoders__ImageSlice": _SLICE_ARGUMENTS,
    "Resize": ("size", "resize_x", "resize_y", "resize_shorter", "resize_longer", "roi_start", "roi_end"),
    "Flip": ("horizontal", "vertical"),
    "Rotate": ("angle",),
    "WarpAffine": ("matrix",),
}
"""Names of the arguments that can be inputs of the request, by the name of the operator."""
_FRAME_LAYOUTS: dict[str, tuple[FrameLayout, Layout]] = {
    "": ("hwc", "hwc"),
    "HWC": ("hwc", "hwc"),
    "CHW": ("chw", "chw"),
}
_FRAME_DTYPES: dict[str, TensorDType] = {"uint8": "uint8", "float32": "float32"}


def source_of(operator: Operator, dtypes: Mapping[str, str]) -> Encoded:
    """Return the input that an ``external_source`` provides.

    Args:
        operator: Operator ``external_source`` of the graph.
        dtypes: Dtypes of inputs whose dtype is not specified in the graph, by the name of the input.
    """
    name = operator.outputs[0]
    layout = operator.arguments.get("layout", "")
    dtype = dtype_of(operator) or dtypes.get(name)
    return Encoded(name, layout if isinstance(layout, str) else "?", dtype)


def dtype_of(operator: Operator) -> str | None:
    """Return the dtype of an input, or None if the graph does not specify it."""
    dtype: Any = operator.arguments.get("dtype")
    return TYPES.get(dtype) if isinstance(dtype, int) else None


def check_arguments(operator: Operator, values: Mapping[str, Value]) -> None:
    """Raise PipelineError if an argument of an operator is an input of the request, but this is not supported."""
    for argument, name in operator.computed.items():
        value = values.get(name)
        if isinstance(value, Image) and isinstance(value.chain[0], Pixels):
            raise PipelineError(
                f"its argument {quoted(argument)} is computed from the input {quoted(value.encoded)} of the request, "
                "which is not supported: add an input for the argument itself"
            )
        if isinstance(value, Encoded) and argument not in _REQUEST_ARGUMENTS.get(operator.name, ()):
            raise PipelineError(
                f"its argument {quoted(argument)} is an input of the request, which is not supported: use a constant"
            )


def is_number(operator: Operator) -> bool:
    """Return whether an operator only casts, copies or indexes the numbers of the request's input that it receives."""
    is_vector = operator.arguments.get("num_subscripts") == 1
    return operator.name in ("Cast", "Copy") or (operator.name == "TensorSubscript" and is_vector)


def converted_input(name: str, source: Encoded, fields: Fields) -> Encoded:
    """Return an input after an operator that casts it, copies it, or selects one of its numbers."""
    if name == "TensorSubscript":
        (index,) = subscripts(fields)
        if source.index is not None or not isinstance(index, int) or index < 0:
            raise PipelineError(
                "is supported only for a single number of an input with a non-negative index, such as roi[0]"
            )
        return replace(source, index=index)
    return replace(source, cast=fields.choice("dtype", TYPES)) if name == "Cast" else source


def frame_of(source: Encoded) -> Image:
    """Return the image for an input that contains pixels and need not be decoded.

    Raises:
        PipelineError: The layout or the dtype of the input is not supported.
    """
    if source.layout not in _FRAME_LAYOUTS or source.index is not None:
        raise PipelineError(
            f"the input {quoted(source.name)} has the layout {quoted(source.layout)}: only HWC and CHW are supported"
        )
    layout, image_layout = _FRAME_LAYOUTS[source.layout]
    stored, after_cast = source.dtype or "uint8", source.cast or source.dtype or "uint8"
    for dtype in (stored, after_cast):
        if dtype not in _FRAME_DTYPES:
            raise PipelineError(
                f"the input {quoted(source.name)} has the type {dtype}: only uint8 and float32 are supported for frames"
            )
    pixels = Pixels(dtype="uint8" if stored == "uint8" else "float32", layout=layout)
    return Image(source.name, (pixels,), layout=image_layout, dtype=_FRAME_DTYPES[after_cast])


def number_of(fields: Fields, name: str, default: float | None = None) -> Any:
    """Return a number, or the name of the request's input that contains it."""
    value = fields.take(name)
    return value.at(0) if isinstance(value, Encoded) else fields.number(name, default)


def side_of(fields: Fields, name: str) -> Any:
    """Return a height or width in pixels, or the name of the request's input that contains it."""
    value = fields.take(name)
    return value.at(0) if isinstance(value, Encoded) else fields.side(name)


def pair_of(fields: Fields, name: str) -> tuple[Any, Any]:
    """Return (height, width) in pixels, or the names of the request's inputs that contain them."""
    value = fields.take(name)
    return (value.at(0), value.at(1)) if isinstance(value, Encoded) else fields.pair(name)


def bounded(ops: Sequence[Op], max_size: int | None) -> list[Op]:
    """Limit the sizes that are inputs of the request, if the size of a tensor depends on these inputs.

    Args:
        ops: Ops of the pipeline.
        max_size: Maximum height and width in pixels. None is allowed only if no tensor size depends on the request.

    Raises:
        PipelineError: ``max_size`` is missing, or is specified although it has no effect.
    """
    resized = [op for op in ops if _requested_size(op)]
    if not resized:
        if max_size is not None:
            raise PipelineError(
                "the option max_size applies only to sizes that are inputs of the request, but the graph does not have "
                "such an input"
            )
        return list(ops)
    unlimited = [op if _requested_size(op) != "crop" else changed(op, max_size=MAX_SIDE) for op in ops]
    ops_with_min = [changed(op, min_height=1) if isinstance(op, Tensor) else op for op in unlimited]
    is_open = False
    try:
        is_open = any(output.spec.is_open for output in Pipeline(ops_with_min).outputs.values())
    except PipelineError as error:
        if error.limit != "response":
            raise
        is_open = True
    if not is_open:
        if max_size is not None:
            raise PipelineError(
                "the option max_size applies only to a tensor whose size is an input of the request, but the size of "
                "the tensor is fixed"
            )
        return [changed(op, max_size=None) if _requested_size(op) == "crop" else op for op in ops]
    if max_size is None:
        raise PipelineError(
            "the size of the tensor is an input of the request: limit its sides with the option max_size, such as "
            "--option max_size=1280"
        )
    for op in resized:
        if isinstance(op, Resize) and None in (op.height, op.width) and op.side != "longer":
            raise PipelineError(
                "a resize with an input of the request as its height, its width or its shorter side is supported only "
                "if a crop follows"
            )
    return [changed(op, max_size=max_size) if _requested_size(op) else op for op in ops]


def _requested_size(op: Op) -> str:
    """Return ``resize``, ``pad`` or ``crop`` if an op's size is an input of the request, and ``""`` if it is not."""
    names = ("size", "height", "width")
    is_requested = any(isinstance(getattr(op, name, None), str) for name in names)
    is_requested = is_requested and "share" not in getattr(op, "unit", "")
    return ("resize" if isinstance(op, Resize) else "pad" if isinstance(op, Pad) else "crop") if is_requested else ""
