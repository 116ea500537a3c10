"""Converts DALI's geometric operators: resizes, crops, slices, padding, flips, rotations and affine transforms.

The region of a crop or of padding, which this module calls a window, can be constant, an input of the request, or
computed from the size of the image. If it is computed, ``rules`` searches for an op that results in the same window for
each size in ``sizes.SIZES``. The defaults of arguments were measured with DALI 2.4.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from pixprep.errors import PipelineError
from pixprep.importers.dali.numbers import are_fractions, rounded, subscripts
from pixprep.importers.dali.rules import resize_rule, window_rule
from pixprep.importers.dali.sizes import SIZES, Rows, lowered, using_sizes
from pixprep.importers.dali.values import (
    Canvas,
    Encoded,
    Image,
    Numbers,
    Value,
    argument_rows,
    keeps_size,
    number_of,
    pair_of,
    side_of,
    size_of,
)
from pixprep.importers.fields import Fields, finite, shortest_decimal, sides
from pixprep.pipeline import ops
from pixprep.pipeline.ops import MAX_SIDE, Levels, TensorDType
from pixprep.plan.profiles.dali import glibc_sine
from pixprep.spec import Filter, Rounding, WarpFilter

_FILTERS: dict[int, Filter] = {0: "nearest", 1: "bilinear", 2: "bicubic", 3: "lanczos", 4: "bilinear"}
_WARP_FILTERS: dict[int, WarpFilter] = {0: "nearest", 1: "bilinear"}
_ROUNDINGS: dict[str, Rounding] = {"round": "half_away", "truncate": "down"}
_MODES = {"default": "stretch", "stretch": "stretch", "not_larger": "fit", "not_smaller": "cover"}
BOOLEANS = {0: False, 1: True}
"""Values of boolean arguments that can also be tensors. DALI serializes such arguments as integers."""
_UINT8, _FLOAT = 0, 9
_GRAY_TO_RGB = ((1, 0, 0, 0), (0, 1, 0, 0), (0, 0.5, 0.5, 0))
"""Colour matrix that repeats a gray channel three times.

Channel 2 uses 0.5 * (green + blue), so that ties are rounded as in DALI's RGB images.
"""
_AXES = "HWC"
CHANNEL_ORDER_HINT = (
    "to swap red and blue, set output_type in the decoder, or send frames in the channel order of the model"
)
"""End of error messages for graphs that split or reorder the channels."""
Result = Image | Numbers | tuple[Image, Numbers]

# Resizes


def _resize(image: Image, fields: Fields) -> Result:
    """Convert ``resize``. With ``save_attrs``, also return the size of the image before the resize."""
    resized = _resized(image, fields)
    if not fields.flag("save_attrs"):
        return resized
    size = size_of(image)
    return resized, Numbers(size.values.astype(np.int32), size.sources)


def _resized(image: Image, fields: Fields) -> Image:
    fields.ignore("minibatch_size", "temp_buffer_hint")
    is_float_input = isinstance(image.chain[0], ops.Pixels) and image.dtype == "float32" and not image.is_normalized
    if image.dtype != "uint8" and not is_float_input:
        raise PipelineError(f"a resize of {image.dtype} values is not supported: resize before the cast")
    fields.expect(
        "dtype", _UINT8, *[_FLOAT] * is_float_input, why="must be 0 (uint8), because a resized image is uint8"
    )
    image = replace(image, dtype="uint8") if fields.take("dtype") == _UINT8 else image
    if not image.is_gray and lowered(image.chain)[0].is_gray:
        image = image.then(ops.ColorMatrix(matrix=_GRAY_TO_RGB))
    fields.ignore("interp_type")
    names = [name if fields.has(name) else "interp_type" for name in ("min_filter", "mag_filter")]
    smaller, larger = (fields.choice(name, _FILTERS, 1) for name in names)
    if smaller != larger:
        name, other = ("min_filter", larger) if fields.has("min_filter") else ("mag_filter", smaller)
        fields.refuse(
            name,
            f"must be the same filter for enlarging and for shrinking: the filter in the other direction is {other}",
        )
    is_subpixel = fields.flag("subpixel_scale", default=True)
    how: dict[str, Any] = {"filter": smaller, "antialias": fields.flag("antialias", default=True), "like": "dali"}
    if (sides := _computed_sides(image, fields)) is not None:
        roi = _roi(fields, {})
        again = None if roi or not keeps_size(image) else partial(_computed_sides, image, fields)
        return image.then(resize_rule(image, sides, {**how, **roi, "subpixel": is_subpixel}, again))
    target = _target(fields)
    subpixel = None if target.get("mode") == "stretch" else is_subpixel  # no effect if height and width are given
    return image.then(ops.Resize(**target, **how, **_roi(fields, target), subpixel=subpixel))


def _roi(fields: Fields, target: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a resize op for its region of interest. ``target`` contains the fields for its size."""
    is_relative, names = fields.flag("roi_relative"), ("roi_start", "roi_end")
    if not any(map(fields.has, names)):
        return {}
    ends = []
    for name in names:
        value = fields.take(name)
        pair = [value.at(0), value.at(1)] if isinstance(value, Encoded) else [*finite(value)]
        ends.append(
            pair
            if len(pair) == 2
            else fields.refuse(name, "must be two numbers, in pixels, or as fractions with roi_relative")
        )
    rows, columns = map(list, zip(*ends, strict=True))
    if len({"height", "width"} & {*target}) == 1 and fields.take("mode", "default") == "default":
        dependent = columns if "height" in target else rows  # DALI does not mirror the image along this axis
        if str in {*map(type, dependent)}:
            fields.refuse("roi_start", "is supported only if both the height and the width of the resize are specified")
        dependent.sort()
    return {"roi": (rows[0], columns[0], rows[1], columns[1]), "roi_unit": "share" if is_relative else None}


def _computed_sides(image: Image, fields: Fields, sizes: npt.NDArray[np.int64] | None = None) -> Rows | None:
    """Return the height and width of a resize for each image size, as an array with shape (n, 2).

    Return None if the graph does not compute the height and width from the size of the image.

    Args:
        image: Input of the resize.
        fields: Arguments of the resize.
        sizes: Sizes of the encoded images, as an array with shape (m, 2). Default: ``SIZES``, for which the arguments
            are already computed.
    """
    names = [name for name in ("size", "resize_y", "resize_x") if fields.has(name)]
    values = [fields.take(name) for name in names]
    if not any(isinstance(value, Numbers) for value in values):
        return None
    with using_sizes(SIZES if sizes is None else sizes):
        if sizes is not None:
            values = [each.recompute() if isinstance(each, Numbers) and each.recompute else each for each in values]
        rows = [argument_rows(value, image, fields, name) for name, value in zip(names, values, strict=True)]
    sides = np.concatenate(rows, axis=1)
    if sides.shape[1] != 2 or fields.take("mode", "default") not in ("default", "stretch"):
        fields.refuse(names[0], "is supported only if it has a height and a width, and the mode is default or stretch")
    return sides


def _target(fields: Fields) -> dict[str, Any]:
    """Return the fields of a resize op for its size.

    If the size is an input of the request, the field contains the name of the input, and ``max_size`` is set to a
    preliminary value, which ``importer.bounded`` replaces.

    Raises:
        PipelineError: The size is specified in several ways, which DALI also rejects, or not at all.
    """
    found = [name for name in ("resize_shorter", "resize_longer", "size", "resize_x", "resize_y") if fields.has(name)]
    is_requested = any(isinstance(fields.take(name), Encoded) for name in found)
    bound: dict[str, Any] = {"max_size": MAX_SIDE} if is_requested else {}
    is_default, mode = fields.take("mode", "default") == "default", fields.choice("mode", _MODES, "default")
    if found in (["resize_shorter"], ["resize_longer"]) and is_default:
        target = {"size": side_of(fields, found[0]), "side": found[0].removeprefix("resize_"), **bound}
        if fields.has("max_size"):
            if found == ["resize_longer"] or is_requested:
                fields.refuse("max_size", "is supported only with a constant resize_shorter")
            target |= {"mode": "scale", "max_size": fields.side("max_size")}
        return target
    if found not in (["size"], ["resize_x", "resize_y"], ["resize_x"], ["resize_y"]):
        raise PipelineError(
            "requires exactly one of size, resize_shorter, resize_longer, or resize_x and resize_y, but has "
            f"{', '.join(found) or 'none of them'}"
        )
    height, width = (side_of(fields, name) if name in found else 0 for name in ("resize_y", "resize_x"))
    if found == ["size"]:
        size = finite(fields.take("size"))
        has_zero = len(size) == 2 and size.count(0) == 1 and max(size).is_integer()
        height, width = map(int, size) if has_zero else pair_of(fields, "size")
    if height and width:
        return {"height": height, "width": width, "mode": mode, **bound}
    if not is_default and (is_requested or fields.take("mode") == "stretch"):
        fields.refuse(
            "mode",
            "is not supported with only a height or a width, because DALI then keeps the other side: specify both",
        )
    return {"height": height, **bound} if height else {"width": width, **bound}


# Windows


def colour(fields: Fields, name: str, dtype: TensorDType = "uint8") -> Levels:
    """Return the pixel value that fills the padding. In DALI, fractional values are truncated for uint8 images."""
    if dtype != "uint8" and not all(value.is_integer() for value in finite(fields.take(name, 0.0))):
        fields.refuse(name, f"must be an integer for values of type {dtype}: pad before the cast")
    return fields.colour(name, truncates=True, merges=True)


def pads(fields: Fields) -> bool:
    """Return whether images that are smaller than the window are padded. Otherwise, they are rejected."""
    fields.expect("out_of_bounds_policy", "error", "pad")
    return fields.text("out_of_bounds_policy", "error") == "pad"


def outside(fill: Levels | None) -> dict[str, Any]:
    """Return the fields of a crop for the pixels outside the image. None means that there must not be any."""
    return {"smaller": "refuse" if fill is None else "pad", "fill": fill or 0}


def _crop(image: Image, fields: Fields) -> Image:
    is_padded = pads(fields)
    image = image.cast(fields, "dtype") if fields.has("dtype") else image
    return cropped(image, fields, colour(fields, "fill_values", image.dtype) if is_padded else None)


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
    types = {*map(type, (*positions.values(), *lengths))}
    if Encoded in types or (image.canvas is None and Numbers not in types):
        top, left = (number_of(fields, name, 0.5) for name in positions)
        height, width = pair_of(fields, "crop") if fields.has("crop") else (side_of(fields, name) for name in names)
        is_fixed = Encoded not in types
        if is_fixed and (top, left) == (0.5, 0.5) and (fill is None or (rounding, fill) == ("down", 0)):
            return image.then(ops.CenterCrop(height, width, rounding=rounding, smaller=outside(fill)["smaller"]))
        if is_fixed and (top, left, fill) == (0.0, 0.0, None):
            return image.then(ops.Crop(0, 0, height, width))
        return image.then(ops.Crop(top, left, height, width, unit="free", rounding=rounding, **outside(fill)))
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
    fill = colour(fields, "fill_values", image.dtype) if pads(fields) else None
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
) -> ops.Crop | None:
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
        top, left, height, width = (
            shortest_decimal(number) if named and not isinstance(number, str) else number for number in window
        )
        return ops.Crop(top, left, height, width, unit="share32" if named else "share")
    if is_requested and is_relative:
        fields.refuse("out_of_bounds_policy", "is not supported for fractions that are inputs of the request")
    if not {*pairs} <= {"start", "shape", "end"} or (is_requested and {*pairs} != {"start", "shape"}):
        return None
    begin, end = pairs.get("start", [0, 0]), pairs.get("end", [0, 0])
    shape: Sequence[Any] = pairs.get("shape") or [last - first for first, last in zip(begin, end, strict=True)]
    if not is_requested and not sides(shape):
        return None
    top, left, height, width = (number if isinstance(number, str) else int(number) for number in (*begin, *shape))
    return ops.Crop(top, left, height, width, **outside(fill))


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
        return image.then(ops.Pad(multiple=height, **how))
    can_be_larger = (spec.max_height or MAX_SIDE) > height or (spec.max_width or MAX_SIDE) > width
    keeps_larger = can_be_larger and {*aligns} == {1}  # with align, DALI pads a larger image to the next multiple
    return image.then(ops.Pad(height=height, width=width, **how, larger="keep" if keeps_larger else None))


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


# Flips, rotations and affine transforms


def mirrors(fields: Fields, argument: str, axis: Literal["horizontal", "vertical"], default: int) -> list[ops.Flip]:
    """Return the flip that an argument specifies, or an empty list if the argument does not flip the image."""
    value = fields.take(argument)
    if isinstance(value, Encoded):
        return [ops.Flip(axis, when=value.at(0))]
    return [ops.Flip(axis)] * fields.choice(argument, BOOLEANS, default)


def _flip(image: Image, fields: Fields) -> Image:
    fields.expect("depthwise", 0)
    return image.then(*mirrors(fields, "horizontal", "horizontal", 1), *mirrors(fields, "vertical", "vertical", 0))


def _rotate(image: Image, fields: Fields) -> Image:
    """Convert ``rotate``. For multiples of 90°, DALI does not interpolate unless ``size`` is specified."""
    angle, keeps_size = number_of(fields, "angle"), fields.flag("keep_size")
    how = _warp_fields(image, fields)
    if fields.has("size"):
        spec, (height, width) = lowered(image.chain)[1], fields.pair("size")
        if isinstance(angle, str) or spec.height is None or spec.width is None or keeps_size:
            fields.refuse(
                "size",
                "is supported only for a constant angle and an image of fixed size, without keep_size: resize to a "
                "height and a width first",
            )
        radians = float(np.float32(angle) * np.float32(np.pi / 180))
        sine, cosine = glibc_sine(radians), glibc_sine(radians, quarters=1)
        rotation = np.array([[cosine, -sine], [sine, cosine]], np.float32)
        center, target_center = np.array([[spec.width, spec.height], [width, height]], np.float32) / 2
        translation = center - (rotation * target_center).sum(1)
        rows = tuple((*map(float, row), float(shift)) for row, shift in zip(rotation, translation, strict=True))
        return image.then(ops.Warp(matrix=rows, height=height, width=width, inverse_map=True, **how))
    if not isinstance(angle, str) and not angle % 90 and not (keeps_size and angle % 180):
        return image.then(*[ops.Rotate(angle=angle % 360, expand=True)] * bool(angle % 360))
    return image.then(ops.Rotate(angle=angle, expand=not keeps_size, **how))


def warped(inputs: Sequence[Value], fields: Fields) -> Image:
    """Convert ``warp_affine`` to a fixed size. The matrix is an argument or the second input."""
    image, *tensors = inputs
    assert isinstance(image, Image)
    how = _warp_fields(image, fields)
    matrix: Any = tensors[0] if tensors else fields.take("matrix")
    matrix = matrix.plain if isinstance(matrix, Numbers) else matrix
    if isinstance(matrix, Numbers):
        raise PipelineError(
            "its matrix depends on the size of the image, which is not supported: resize to a height and a width first"
        )
    if isinstance(matrix, Encoded):
        if matrix.index is not None:
            fields.refuse("matrix", "must be an input of 6 numbers, not a single number of an input")
        matrix = matrix.name
    else:
        numbers = finite(matrix)
        if len(numbers) != 6:
            raise PipelineError("its matrix must have 2 rows of 3 finite numbers")
        matrix = (numbers[:3], numbers[3:])
    spec = lowered(image.chain)[1]
    height, width = fields.pair("size") if fields.has("size") else (spec.height, spec.width)
    if height is None or width is None:
        raise PipelineError('requires "size": without it, the size of the result depends on the image')
    is_inverse = fields.flag("inverse_map", default=True)
    return image.then(ops.Warp(matrix=matrix, height=height, width=width, inverse_map=is_inverse or None, **how))


def _warp_fields(image: Image, fields: Fields) -> dict[str, Any]:
    """Return the fields ``filter``, ``like``, ``padding_mode`` and ``fill`` of a rotation or an affine transform.

    Without ``fill_value``, the pixels at the edge are repeated.
    """
    image.check_levels(fields)
    how: dict[str, Any] = {"filter": fields.choice("interp_type", _WARP_FILTERS, 1), "like": "dali"}
    if not fields.has("fill_value"):
        return {**how, "padding_mode": "edge"}
    fill = fields.number("fill_value")
    if not (fill.is_integer() and 0 <= fill <= 255):
        fields.refuse("fill_value", "must be an integer from 0 to 255")
    return {**how, "fill": int(fill)}


GEOMETRY: dict[str, Callable[[Image, Fields], Result]] = {
    "Resize": _resize,
    "Crop": _crop,
    "Pad": _pad,
    "Paste": _paste,
    "Flip": _flip,
    "Rotate": _rotate,
}
"""Functions that convert operators on an image, by the name of the operator."""
