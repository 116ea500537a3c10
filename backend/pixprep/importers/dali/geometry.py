"""Converts DALI's image decoders and geometric operators: resizes, flips, rotations and affine transforms.

The defaults of arguments were measured with DALI 2.4.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from pixprep.errors import PipelineError
from pixprep.importers.dali.requests import number_of, pair_of, side_of
from pixprep.importers.dali.rules import resize_rule
from pixprep.importers.dali.values import (
    Encoded,
    Image,
    Numbers,
    Rows,
    Value,
    argument_rows,
    keeps_size,
    lowered,
    size_of,
    using_sizes,
)
from pixprep.importers.dali.windows import WINDOWS, cropped, sliced
from pixprep.importers.fields import Fields, finite
from pixprep.pipeline.ops import MAX_SIDE, ColorMatrix, Decode, Flip, Pixels, Resize, Rotate, Warp
from pixprep.plan.profiles.dali import glibc_sine
from pixprep.spec import Color, Filter, WarpFilter

# The keys are values of DALI's enumerations DALIImageType and DALIInterpType.
COLOR_TYPES: dict[int, Color] = {0: "rgb", 1: "bgr", 2: "gray"}
_FILTERS: dict[int, Filter] = {0: "nearest", 1: "bilinear", 2: "bicubic", 3: "lanczos", 4: "bilinear"}
_WARP_FILTERS: dict[int, WarpFilter] = {0: "nearest", 1: "bilinear"}
_UINT8, _FLOAT = 0, 9
_GRAY_TO_RGB = ((1, 0, 0, 0), (0, 1, 0, 0), (0, 0.5, 0.5, 0))
"""Colour matrix that repeats a gray channel three times.

Channel 2 uses 0.5 * (green + blue), so that ties are rounded as in DALI's RGB images.
"""
BOOLEANS = {0: False, 1: True}
"""Values of boolean arguments that can also be tensors. DALI serializes such arguments as integers."""
_MODES = {"default": "stretch", "stretch": "stretch", "not_larger": "fit", "not_smaller": "cover"}

Result = Image | Numbers | tuple[Image, Numbers]

# Arguments of decoders that do not affect the pixels.
_IGNORED_BY_DECODERS = (
    *("affine", "cache_batch_copy", "cache_debug", "cache_size", "cache_threshold", "cache_type", "memory_stats"),
    *("device_memory_padding", "device_memory_padding_jpeg2k", "host_memory_padding", "host_memory_padding_jpeg2k"),
    *("hw_decoder_load", "hybrid_huffman_threshold", "preallocate_height_hint", "preallocate_width_hint"),
    *("split_stages", "use_chunk_allocator"),
)


def _decode(encoded: Encoded, fields: Fields) -> Image:
    """Convert ``decoders.image``.

    With the device ``cpu``, DALI decodes with libjpeg-turbo. With the device ``mixed``, DALI uses fancy upsampling only
    if the graph requests fancy upsampling.
    """
    fields.ignore(*_IGNORED_BY_DECODERS)
    fields.expect("dtype", _UINT8, why="must be 0 (uint8), because images are decoded to uint8")
    on_cpu = fields.text("device", "cpu") == "cpu"
    is_fancy, is_fast = fields.flag("jpeg_fancy_upsampling"), fields.flag("use_fast_idct")
    applies_exif = fields.flag("adjust_orientation", default=True)
    if is_fast and not on_cpu:
        fields.refuse(
            "use_fast_idct", 'is not supported with device "mixed", which applies it only to some images: remove it'
        )
    if is_fast and applies_exif:
        fields.refuse(
            "use_fast_idct",
            "is ignored by DALI for images with an EXIF orientation, which is not supported: set "
            "adjust_orientation=False",
        )
    decode = Decode(
        color=fields.choice("output_type", COLOR_TYPES, 0),
        apply_exif_orientation=applies_exif,
        chroma="fancy" if on_cpu or is_fancy else "fast",
        idct="fast" if is_fast else "accurate",
    )
    return Image(encoded.name, (decode,))


def _resize(image: Image, fields: Fields) -> Result:
    """Convert ``resize``. With ``save_attrs``, also return the size of the image before the resize."""
    resized = _resized(image, fields)
    if not fields.flag("save_attrs"):
        return resized
    size = size_of(image)
    return resized, Numbers(size.values.astype(np.int32), size.sources)


def _resized(image: Image, fields: Fields) -> Image:
    fields.ignore("minibatch_size", "temp_buffer_hint")
    is_float_input = isinstance(image.chain[0], Pixels) and image.dtype == "float32" and not image.is_normalized
    if image.dtype != "uint8" and not is_float_input:
        raise PipelineError(f"a resize of {image.dtype} values is not supported: resize before the cast")
    fields.expect(
        "dtype", _UINT8, *[_FLOAT] * is_float_input, why="must be 0 (uint8), because a resized image is uint8"
    )
    image = replace(image, dtype="uint8") if fields.take("dtype") == _UINT8 else image
    if not image.is_gray and lowered(image.chain)[0].is_gray:
        image = image.then(ColorMatrix(matrix=_GRAY_TO_RGB))
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
        again = None if roi or not keeps_size(image) else partial(_recomputed_sides, image, fields)
        return image.then(resize_rule(image, sides, {**how, **roi, "subpixel": is_subpixel}, again))
    target = _target(fields)
    subpixel = None if target.get("mode") == "stretch" else is_subpixel  # no effect if height and width are given
    return image.then(Resize(**target, **how, **_roi(fields, target), subpixel=subpixel))


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


def _recomputed_sides(image: Image, fields: Fields, sizes: npt.NDArray[np.int64]) -> Rows:
    """Compute the height and width of a resize again for different image sizes.

    Args:
        image: Input of the resize.
        fields: Arguments of the resize.
        sizes: Sizes of the encoded images, as an array with shape (n, 2).
    """
    names = [name for name in ("size", "resize_y", "resize_x") if fields.has(name)]
    with using_sizes(sizes):
        values = [fields.take(name) for name in names]
        values = [each.recompute() if isinstance(each, Numbers) and each.recompute else each for each in values]
        rows = [argument_rows(each, image, fields, name) for name, each in zip(names, values, strict=True)]
        return np.concatenate([each.T for each in rows]).T


def _computed_sides(image: Image, fields: Fields) -> Rows | None:
    """Return the height and width of a resize for each of ``SIZES``, as an array with shape (n, 2).

    Return None if the graph does not compute the height and width from the size of the image.
    """
    names = [name for name in ("size", "resize_y", "resize_x") if fields.has(name)]
    values = [fields.take(name) for name in names]
    if not any(isinstance(value, Numbers) for value in values):
        return None
    rows = [argument_rows(value, image, fields, name) for name, value in zip(names, values, strict=True)]
    sides = np.concatenate(rows, axis=1)
    if sides.shape[1] != 2 or fields.take("mode", "default") not in ("default", "stretch"):
        fields.refuse(names[0], "is supported only if it has a height and a width, and the mode is default or stretch")
    return sides


def _target(fields: Fields) -> dict[str, Any]:
    """Return the fields of a resize op for its size.

    If the size is an input of the request, the field contains the name of the input, and ``max_size`` is set to a
    preliminary value, which ``requests.bounded`` replaces.

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


def mirrors(fields: Fields, argument: str, axis: Literal["horizontal", "vertical"], default: int) -> list[Flip]:
    """Return the flip that an argument specifies, or an empty list if the argument does not flip the image."""
    value = fields.take(argument)
    if isinstance(value, Encoded):
        return [Flip(axis, when=value.at(0))]
    return [Flip(axis)] * fields.choice(argument, BOOLEANS, default)


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
        return image.then(Warp(matrix=rows, height=height, width=width, inverse_map=True, **how))
    if not isinstance(angle, str) and not angle % 90 and not (keeps_size and angle % 180):
        return image.then(*[Rotate(angle=angle % 360, expand=True)] * bool(angle % 360))
    return image.then(Rotate(angle=angle, expand=not keeps_size, **how))


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
    return image.then(Warp(matrix=matrix, height=height, width=width, inverse_map=is_inverse or None, **how))


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


DECODERS: dict[str, Callable[..., Image]] = {
    "decoders__Image": _decode,
    "decoders__ImageCrop": lambda encoded, fields: cropped(_decode(encoded, fields), fields),
    "decoders__ImageSlice": lambda encoded, fields, *window: sliced([_decode(encoded, fields), *window], fields),
}
"""Functions that convert operators on an encoded image. ``decoders.image_slice`` has up to two further inputs."""

GEOMETRY: dict[str, Callable[[Image, Fields], Result]] = {
    "Resize": _resize,
    **WINDOWS,
    "Flip": _flip,
    "Rotate": _rotate,
}
"""Functions that convert operators on an image, by the name of the operator."""
