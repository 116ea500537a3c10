"""Inputs of a DALI graph other than the encoded photo: numbers per request, and frames that need no decoding.

The use of an ``external_source`` determines its type: for a decoder it is a photo, for an argument it is numbers, and
for an operator on images it is a frame.
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

_WINDOW = ("crop", "crop_h", "crop_w", "crop_pos_x", "crop_pos_y")
_SLICE = ("start", "shape", "rel_start", "rel_shape")
_TAKEN: Mapping[str, Sequence[str]] = {
    "Crop": _WINDOW,
    "CropMirrorNormalize": (*_WINDOW, "mirror"),
    "decoders__ImageCrop": _WINDOW,
    "Slice": _SLICE,
    "decoders__ImageSlice": _SLICE,
    "Resize": ("size", "resize_x", "resize_y", "resize_shorter", "resize_longer", "roi_start", "roi_end"),
    "Flip": ("horizontal", "vertical"),
    "Rotate": ("angle",),
    "WarpAffine": ("matrix",),
}
"""Arguments of operators that may come with a request."""
_FORMS: dict[str, tuple[FrameLayout, Layout]] = {"": ("hwc", "hwc"), "HWC": ("hwc", "hwc"), "CHW": ("chw", "chw")}
_FRAMES: dict[str, TensorDType] = {"uint8": "uint8", "float32": "float32"}


def source_of(operator: Operator, dtypes: Mapping[str, str]) -> Encoded:
    """Return the input of an ``external_source``.

    ``dtypes``: types of inputs for which the graph does not specify one.
    """
    name = operator.outputs[0]
    layout = operator.arguments.get("layout", "")
    dtype = dtype_of(operator) or dtypes.get(name)
    return Encoded(name, layout if isinstance(layout, str) else "?", dtype)


def dtype_of(operator: Operator) -> str | None:
    """Return the type that the graph specifies for an input."""
    dtype: Any = operator.arguments.get("dtype")
    return TYPES.get(dtype) if isinstance(dtype, int) else None


def check_arguments(operator: Operator, values: Mapping[str, Value]) -> None:
    """Reject an argument that comes with the request and is not in ``_TAKEN``."""
    for argument, name in operator.computed.items():
        value = values.get(name)
        if isinstance(value, Image) and isinstance(value.chain[0], Pixels):
            raise PipelineError(
                f"its argument {quoted(argument)} is computed from the input {quoted(value.encoded)} of the request, "
                "which is not supported: add an input for the argument itself"
            )
        if isinstance(value, Encoded) and argument not in _TAKEN.get(operator.name, ()):
            raise PipelineError(
                f"its argument {quoted(argument)} is an input of the request, which is not supported: use a constant"
            )


def is_number(operator: Operator) -> bool:
    """Return whether an operator on an input only changes the form of its numbers, for any values."""
    is_one = operator.arguments.get("num_subscripts") == 1
    return operator.name in ("Cast", "Copy") or (operator.name == "TensorSubscript" and is_one)


def converted_input(name: str, source: Encoded, fields: Fields) -> Encoded:
    """Return the input in a different type, or one of its numbers."""
    if name == "TensorSubscript":
        (index,) = subscripts(fields)
        if source.index is not None or not isinstance(index, int) or index < 0:
            raise PipelineError(
                "is supported only for a single number of an input, with an index of at least 0, such as roi[0]"
            )
        return replace(source, index=index)
    return replace(source, cast=fields.choice("dtype", TYPES)) if name == "Cast" else source


def frame_of(source: Encoded) -> Image:
    """Return the image of an input that contains pixels.

    Raises:
        PipelineError: The input's layout or type is not supported.
    """
    if source.layout not in _FORMS or source.index is not None:
        raise PipelineError(
            f"the input {quoted(source.name)} has the layout {quoted(source.layout)}: only HWC and CHW are supported"
        )
    layout, own = _FORMS[source.layout]
    stored, made = source.dtype or "uint8", source.cast or source.dtype or "uint8"
    for dtype in (stored, made):
        if dtype not in _FRAMES:
            raise PipelineError(
                f"the input {quoted(source.name)} has the type {dtype}: only uint8 and float32 are supported for frames"
            )
    pixels = Pixels(dtype="uint8" if stored == "uint8" else "float32", layout=layout)
    return Image(source.name, (pixels,), layout=own, dtype=_FRAMES[made])


def number_of(fields: Fields, name: str, default: float | None = None) -> Any:
    """Return a number, or the op's field that refers to a number of the request."""
    value = fields.take(name)
    return value.at(0) if isinstance(value, Encoded) else fields.number(name, default)


def side_of(fields: Fields, name: str) -> Any:
    """Return a side in pixels, or the op's field that refers to a number of the request."""
    value = fields.take(name)
    return value.at(0) if isinstance(value, Encoded) else fields.side(name)


def pair_of(fields: Fields, name: str) -> tuple[Any, Any]:
    """Return (height, width) in pixels, or the op's fields that refer to two numbers of the request."""
    value = fields.take(name)
    return (value.at(0), value.at(1)) if isinstance(value, Encoded) else fields.pair(name)


def bounded(ops: Sequence[Op], max_size: int | None) -> list[Op]:
    """Return the ops with an upper bound on the pixels that a request may ask for, if its numbers are sizes.

    Raises:
        PipelineError: The request determines the tensor's size, and no bound is specified.
    """
    asks = [op for op in ops if _asks(op)]
    if not asks:
        if max_size is not None:
            raise PipelineError(
                "the option max_size applies only to sizes that are inputs of the request, which the graph does not "
                "have"
            )
        return list(ops)
    free = [op if _asks(op) != "crop" else changed(op, max_size=MAX_SIDE) for op in ops]
    sides = [changed(op, min_height=1) if isinstance(op, Tensor) else op for op in free]
    is_open = False
    try:
        is_open = any(output.spec.is_open for output in Pipeline(sides).outputs.values())
    except PipelineError as error:
        if "a response of the server may contain at most" not in str(error):
            raise
        is_open = True
    if not is_open:
        if max_size is not None:
            raise PipelineError(
                "the option max_size applies only to a tensor whose size is an input of the request, but the size is "
                "fixed"
            )
        return [changed(op, max_size=None) if _asks(op) == "crop" else op for op in ops]
    if max_size is None:
        raise PipelineError(
            "the size of the tensor is an input of the request: limit its sides with the option max_size, such as "
            "--option max_size=1280"
        )
    for op in asks:
        if isinstance(op, Resize) and None in (op.height, op.width) and op.side != "longer":
            raise PipelineError("a resize of one side to an input of the request is supported only if a crop follows")
    return [changed(op, max_size=max_size) if _asks(op) else op for op in ops]


def _asks(op: Op) -> str:
    """Return the kind of an op whose size comes with the request, and an empty string for other ops."""
    names = ("size", "height", "width")
    is_asked = any(isinstance(getattr(op, name, None), str) for name in names)
    is_asked = is_asked and "share" not in getattr(op, "unit", "")
    return ("resize" if isinstance(op, Resize) else "pad" if isinstance(op, Pad) else "crop") if is_asked else ""
