"""Converts DALI operators that crop or pad an image: ``crop``, ``slice``, ``pad`` and ``paste``.

The region, which this module calls a window, can be constant, an input of the request, or computed from the size of the
image. If it is computed, ``rules`` searches for an op that results in the same window for each size in
``values.SIZES``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from pixprep.errors import PipelineError
from pixprep.importers.dali.numbers import are_fractions, rounded, subscripts
from pixprep.importers.dali.requests import number_of, pair_of, side_of
from pixprep.importers.dali.rules import window_rule
from pixprep.importers.dali.values import (
    Canvas,
    Encoded,
    Image,
    Numbers,
    Rows,
    Value,
    argument_rows,
    lowered,
    shortest_decimal,
    size_of,
)
from pixprep.importers.fields import Fields, finite, one_level, sides
from pixprep.pipeline.ops import MAX_SIDE, CenterCrop, Crop, Levels, Pad, TensorDType
from pixprep.spec import Rounding

_ROUNDINGS: dict[str, Rounding] = {"round": "half_away", "truncate": "down"}
_AXES = "HWC"
Smaller = Literal["pad", "refuse"]
CHANNEL_ORDER_HINT = (
    "to swap red and blue, set output_type in the decoder, or send frames in the channel order of the model"
)
"""End of error messages for graphs that split or reorder the channels."""


def colour(fields: Fields, name: str, dtype: TensorDType = "uint8") -> Levels:
    """Return the pixel value that fills the padding. In DALI, fractional values are truncated for uint8 images."""
    if dtype != "uint8" and not all(value.is_integer() for value in finite(fields.take(name, 0.0))):
        fields.refuse(name, f"must be an integer for values of type {dtype}: pad before the cast")
    return one_level(fields.colour(name, truncates=True))


def policy(fields: Fields) -> Smaller:
    """Return whether images that are smaller than the window are padded or rejected."""
    fields.expect("out_of_bounds_policy", "error", "pad")
    return "pad" if fields.text("out_of_bounds_policy", "error") == "pad" else "refuse"


def _crop(image: Image, fields: Fields) -> Image:
    smaller = policy(fields)
    image = image.cast(fields, "dtype") if fields.has("dtype") else image
    return cropped(image, fields, colour(fields, "fill_values", image.dtype) if smaller == "pad" else None)


def cropped(image: Image, fields: Fields, fill: Levels | None = None) -> Image:
    """Crop an image. The offset of the window is ``round(pos * (side - crop))`` in each axis.

    Args:
        image: Image to crop.
        fields: Arguments of the operator: ``crop``, ``crop_h``, ``crop_w``, ``crop_pos_x``, ``crop_pos_y`` and
            ``rounding``. If the size of the window is not specified, the image is not cropped.
        fill: Pixel value outside the image. None means that the window must not exceed the image.
    """
    rounding = fields.choice("rounding", _ROUNDINGS, "round")
    fields.ignore("fill_values", "out_of_bounds_policy")
    positions = {name: fields.take(name, 0.5) for name in ("crop_pos_y", "crop_pos_x")}
    names = ("crop", "crop") if fields.has("crop") else ("crop_h", "crop_w")
    lengths = [fields.take(name) for name in names]
    if lengths == [None, None]:
        return image
    smaller: Smaller = "refuse" if fill is None else "pad"
    types = {*map(type, (*positions.values(), *lengths))}
    if Encoded in types or (image.canvas is None and Numbers not in types):
        top, left = (number_of(fields, name, 0.5) for name in positions)
        height, width = pair_of(fields, "crop") if fields.has("crop") else (side_of(fields, name) for name in names)
        is_fixed = Encoded not in types
        if is_fixed and (top, left) == (0.5, 0.5) and (fill is None or (rounding, fill) == ("down", 0)):
            return image.then(CenterCrop(height, width, rounding=rounding, smaller=smaller))
        if is_fixed and (top, left, fill) == (0.0, 0.0, None):
            return image.then(Crop(0, 0, height, width))
        window: dict[str, Any] = {"unit": "free", "rounding": rounding, "smaller": smaller, "fill": fill or 0}
        return image.then(Crop(top, left, height, width, **window))
    ranges = []
    for axis, side in enumerate(canvas_size(image)):
        name, position = [*positions.items()][axis]
        length = argument_rows(lengths[axis], image, fields, names[axis])
        length = length[:, min(axis, length.shape[1] - 1)]
        offset = argument_rows(position, image, fields, name)[:, 0] * (side - length)
        ranges.append((np.trunc(offset) if rounding == "down" else rounded(offset), length))
    (top_, rows), (left_, columns) = ranges
    return window_rule(image, Canvas(top_, left_, rows, columns, fill))


def canvas_size(image: Image) -> tuple[Any, Any]:
    """Return the height and width of an image, or those of its canvas, for each size in ``SIZES``."""
    if image.canvas is not None:
        return image.canvas.height, image.canvas.width
    size = size_of(image).rows
    return size[:, 0], size[:, 1]


def axes_of(image: Image, fields: Fields, default: Sequence[int], among: str = "HW") -> list[int]:
    """Return the axes that ``axes`` or ``axis_names`` select: 0 for height, 1 for width, 2 for channels.

    Args:
        image: Input of the operator.
        fields: Arguments of the operator.
        default: Axes of the image's array if neither argument is specified.
        among: Supported axes.

    Raises:
        PipelineError: An axis is not supported or occurs twice.
    """
    if fields.has("axes"):
        axes = [int(axis) for axis in finite(fields.take("axes"))]
    elif fields.has("axis_names"):
        fields.ignore("axes")
        axes = [image.layout.upper().find(axis) for axis in fields.text("axis_names")]
    else:
        axes = list(default)
    names = [image.layout.upper()[axis] if 0 <= axis < 3 else "?" for axis in axes]
    if not names or len({*names}) < len(names) or not {*names} <= {*among}:
        what = "height, width and channels" if "C" in among else f"height and width: {CHANNEL_ORDER_HINT}"
        fields.refuse("axes" if fields.has("axes") else "axis_names", f"must contain different axes out of {what}")
    return [_AXES.index(name) for name in names]


# Slices


def sliced(inputs: Sequence[Value], fields: Fields) -> Image:
    """Convert ``slice`` of an image.

    ``start``, ``end`` and ``shape`` are in pixels. Arguments with the prefix ``rel_`` are fractions of the image's
    height and width.
    """
    image, *tensors = inputs
    assert isinstance(image, Image)
    smaller = policy(fields)
    fill = colour(fields, "fill_values", image.dtype) if smaller == "pad" else None
    fields.ignore("fill_values")
    axes = axes_of(image, fields, [1, 0])
    numbers = [value for value in tensors if isinstance(value, Numbers | Encoded)]
    if len(numbers) < len(tensors) or len(tensors) not in (0, 2):
        raise PipelineError("is supported only for a start and a shape given as numbers")
    arguments: dict[str, Any] = {}
    for name, number in zip(("start", "shape"), numbers, strict=False):
        is_relative = fields.flag(
            f"normalized_{'anchor' if name == 'start' else name}", default=are_fractions(numbers[0])
        )
        arguments[f"{'rel_' * is_relative}{name}"] = number.plain if isinstance(number, Numbers) else number
    if not tensors:
        fields.ignore("normalized_anchor", "normalized_shape")
        arguments = {
            name: fields.take(name)
            for name in ("start", "end", "shape", "rel_start", "rel_end", "rel_shape")
            if fields.has(name)
        }
    return _window(image, arguments, axes, fields, fill, named=not tensors)


def _window(
    image: Image, arguments: Mapping[str, Any], axes: Sequence[int], fields: Fields, fill: Levels | None, *, named: bool
) -> Image:
    """Apply the window of a slice to an image.

    Args:
        image: Image to slice.
        arguments: Values of ``start``, ``end`` and ``shape``, with the prefix ``rel_`` if they are fractions.
        axes: Axes that the values apply to.
        fields: Arguments of the operator.
        fill: Pixel value outside the image. None means that the window must not exceed the image.
        named: Whether the values are named arguments of the operator. If false, they are inputs.
    """
    is_requested = any(isinstance(value, Encoded) for value in arguments.values())
    is_known = sorted(axes) == [0, 1] and not any(isinstance(value, Numbers) for value in arguments.values())
    if is_known and (image.canvas is None or is_requested):
        op = _fixed_window(arguments, axes, fields, fill, named=named)
        if op is not None:
            return image.then(op)
    if is_requested:
        raise PipelineError("supports inputs of the request only for the start and the shape along both axes")
    begins, lengths = [np.zeros(len(side)) for side in canvas_size(image)], list(canvas_size(image))
    numbers = {name: argument_rows(value, image, fields, name) for name, value in arguments.items()}
    if any(len(axes) > values.shape[1] for values in numbers.values()):
        raise PipelineError("requires one number for each axis")
    for index, axis in enumerate(axes):
        begin, end = _slice_range(
            {name: values[:, index] for name, values in numbers.items()}, lengths[axis], named=named
        )
        begins[axis], lengths[axis] = rounded(begin), rounded(end) - rounded(begin)
    return window_rule(image, Canvas(begins[0], begins[1], lengths[0], lengths[1], fill))


def _slice_range(values: Mapping[str, Rows], side: Rows, *, named: bool) -> tuple[Rows, Rows]:
    """Return the begin and end of a slice along one axis in pixels, before rounding, as in DALI's ``slice_attr.h``.

    Args:
        values: Values of ``start``, ``end`` and ``shape`` for this axis, with the prefix ``rel_`` for fractions.
        side: Length of the image along this axis in pixels.
        named: Whether the values are named arguments. DALI then converts fractions to pixels in float32, except for an
            end that is computed from ``rel_start`` and ``rel_shape``.
    """

    def in_pixels(name: str) -> Rows:
        dtype = np.float32 if named else np.float64
        return np.asarray(values[name].astype(dtype) * side.astype(dtype), np.float64)

    begin = in_pixels("rel_start") if "rel_start" in values else values.get("start", np.zeros(len(side)))
    if {"rel_start", "rel_shape"} <= {*values}:
        return begin, (values["rel_start"] + values["rel_shape"]) * side
    for name, start in (("rel_end", 0), ("rel_shape", begin)):
        if name in values:
            return begin, start + in_pixels(name)
    return begin, begin + values["shape"] if "shape" in values else values.get("end", side)


def _fixed_window(
    arguments: Mapping[str, Any], axes: Sequence[int], fields: Fields, fill: Levels | None, *, named: bool
) -> Crop | None:
    """Return the crop of a slice whose values are constants or inputs of the request.

    Return None if the crop also depends on the size of the image.
    """
    is_relative = {*arguments} == {"rel_start", "rel_shape"}
    is_requested = any(isinstance(value, Encoded) for value in arguments.values())
    pairs: dict[str, list[Any]] = {}
    for name, value in arguments.items():
        numbers = [value.at(position) for position in (0, 1)] if isinstance(value, Encoded) else finite(value)
        if len(numbers) != 2:
            raise PipelineError("requires one number for each axis")
        pairs[name] = [numbers[axes.index(axis)] for axis in (0, 1)]
        if (
            is_requested
            and not is_relative
            and not all(isinstance(number, str) or number.is_integer() for number in numbers)
        ):
            fields.refuse(name, "must be two integers")
    if is_relative and fill is None:
        window = (*pairs["rel_start"], *pairs["rel_shape"])
        top, left, height, width = map(shortest_decimal, window) if named else window
        return Crop(top, left, height, width, unit="share32" if named else "share")
    if is_requested and is_relative:
        fields.refuse("out_of_bounds_policy", "is not supported for fractions that are inputs of the request")
    if not {*pairs} <= {"start", "shape", "end"} or (is_requested and {*pairs} != {"start", "shape"}):
        return None
    begin, end = pairs.get("start", [0, 0]), pairs.get("end", [0, 0])
    shape: Sequence[Any] = pairs.get("shape") or [last - first for first, last in zip(begin, end, strict=True)]
    if not is_requested and not sides(shape):
        return None
    top, left, height, width = (number if isinstance(number, str) else int(number) for number in (*begin, *shape))
    return Crop(top, left, height, width, smaller="refuse" if fill is None else "pad", fill=fill or 0)


def subscripted(inputs: Sequence[Value], fields: Fields) -> Image:
    """Convert an expression such as ``image[16:240, 16:-16]``, which selects rows and columns."""
    (image,) = inputs
    assert isinstance(image, Image)
    begins, lengths = [], []
    where = dict(zip(image.layout, [*subscripts(fields), *[slice(None)] * 3], strict=False))
    if where.get("c") != slice(None) or len(where) != 3:
        raise PipelineError(f"selects channels of {image.layout.upper()}, which is not supported: {CHANNEL_ORDER_HINT}")
    for subscript, side in zip((where["h"], where["w"]), canvas_size(image), strict=True):
        if not isinstance(subscript, slice) or subscript.step is not None:
            raise PipelineError("supports only ranges with a start and an end, without a step")
        begin, end = (
            np.full(len(side), default) if bound is None else side + bound if bound < 0 else np.full(len(side), bound)
            for bound, default in ((subscript.start, 0.0), (subscript.stop, np.nan))
        )
        begins.append(begin)
        lengths.append(np.where(np.isnan(end), side, end) - begin)
    return window_rule(image, Canvas(begins[0], begins[1], lengths[0], lengths[1], None))


# Padding


def _pad(image: Image, fields: Fields) -> Image:
    """Convert ``pad``, which pads at the bottom and the right to a shape or to multiples of a number."""
    axes = axes_of(image, fields, [0, 1, 2], _AXES)
    aligns = [int(value) for value in finite(fields.take("align", [1]))] * len(axes)
    values = finite(fields.take("shape", []))
    if isinstance(fields.take("shape"), Numbers):
        fields.refuse("shape", "must be constant")
    if values and len(values) not in (1, len(axes)):
        fields.refuse("shape", "must be one length, or one length per axis")
    shape = list(values) * (len(axes) if len(values) == 1 else 1) or [-1.0] * len(axes)
    spec = lowered(image.chain)[1]
    before = [spec.height, spec.width, image.channels]
    after: list[int | None] = [*before]
    for axis, side, align in zip(axes, shape, aligns, strict=False):
        if side <= 0 and before[axis] is None:
            raise PipelineError(
                'without "shape", the size depends on the other images of the batch, which is not supported'
            )
        after[axis] = -(-max(int(side), before[axis] or 1) // align) * align
    height, width, channels = (side or 0 for side in after)
    if channels != image.channels:
        fields.refuse("shape", f"must not change the number of channels, {image.channels}")
    if not sides([height, width]):
        fields.refuse("shape", f"must be one side, or a height and a width, from 1 to {MAX_SIDE} pixels each")
    if after == before:
        fields.ignore("fill_value")
        return image
    if image.is_normalized:
        return image.padded(height, width, fields.number("fill_value", 0.0))
    how: dict[str, Any] = {"fill": colour(fields, "fill_value", image.dtype), "anchor": "top_left"}
    if before[:2] == [None, None] and height == width == aligns[0] > 1 and len({*aligns}) == 1:
        return image.then(Pad(multiple=height, **how))
    can_be_larger = (spec.max_height or MAX_SIDE) > height or (spec.max_width or MAX_SIDE) > width
    keeps_larger = can_be_larger and {*aligns} == {1}  # with align, DALI pads a larger image to the next multiple
    return image.then(Pad(height=height, width=width, **how, larger="keep" if keeps_larger else None))


def _paste(image: Image, fields: Fields) -> Image:
    """Convert ``paste``, which places an image on a canvas.

    The height and width of the canvas are ``ratio`` times those of the image, but not less than ``min_canvas_size``.
    """
    if fields.number("n_channels", 3) != image.channels:
        fields.refuse(
            "n_channels",
            f"must be {image.channels}, the number of channels of the image: if it differs, DALI reads invalid memory",
        )
    ratio, min_size = fields.number("ratio"), fields.number("min_canvas_size", 0.0)
    if not 1 <= ratio <= 100:
        fields.refuse("ratio", "must be from 1 to 100")
    fill = colour(fields, "fill_value")
    ranges = []
    for side, name in zip(canvas_size(image), ("paste_y", "paste_x"), strict=True):
        scaled = np.trunc(np.float32(ratio) * side.astype(np.float32))
        canvas = np.maximum(scaled, np.trunc(min_size)).astype(np.float64)
        ranges.append((-np.trunc(fields.number(name, 0.5) * (canvas - side)), canvas))
    (top, height), (left, width) = ranges
    return window_rule(image, Canvas(top, left, height, width, fill))


WINDOWS = {"Crop": _crop, "Pad": _pad, "Paste": _paste}
"""Functions that convert operators on an image, by the name of the operator."""
