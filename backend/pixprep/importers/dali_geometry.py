"""Operators of DALI that make an image, or move its pixels: decoders, resizes, windows and turns.

What an operator does by default is what DALI 2.4 was seen to do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pixprep.errors import PipelineError
from pixprep.importers.dali_rules import Rows, resize_rule
from pixprep.importers.dali_values import Encoded, Image, Numbers, needed
from pixprep.importers.fields import Fields
from pixprep.pipeline.ops import CenterCrop, Crop, Decode, Flip, Pad, Resize, Rotate
from pixprep.spec import Color, Filter, Rounding

# DALI's enumerations: DALIImageType, DALIInterpType; and 0 and 1 for a boolean that can be a tensor.
COLORS: dict[int, Color] = {0: "rgb", 1: "bgr", 2: "gray"}
_FILTERS: dict[int, Filter] = {0: "nearest", 1: "bilinear", 2: "bicubic", 3: "lanczos", 4: "bilinear"}
_UINT8 = 0
NO_YES = {0: False, 1: True}
_ROUNDINGS: dict[str, Rounding] = {"round": "half_away", "truncate": "down"}
_MODES = {"default": "stretch", "stretch": "stretch", "not_larger": "fit", "not_smaller": "cover"}

Result = Image | Numbers | tuple[Image, Numbers]

# Arguments of decoders that change no pixel.
_OF_DECODERS = (
    *("affine", "cache_batch_copy", "cache_debug", "cache_size", "cache_threshold", "cache_type", "memory_stats"),
    *("device_memory_padding", "device_memory_padding_jpeg2k", "host_memory_padding", "host_memory_padding_jpeg2k"),
    *("hw_decoder_load", "hybrid_huffman_threshold", "preallocate_height_hint", "preallocate_width_hint"),
    *("split_stages", "use_chunk_allocator"),
)


def _decode(encoded: Encoded, fields: Fields) -> Image:
    """``decoders.image``: libjpeg-turbo's pixels on the CPU; on the GPU, by default, without fancy upsampling."""
    fields.ignore(*_OF_DECODERS)
    fields.expect("dtype", _UINT8, why="must be 0: images are decoded to uint8")
    on_cpu = fields.text("device", "cpu") == "cpu"
    is_fancy, is_fast = fields.flag("jpeg_fancy_upsampling"), fields.flag("use_fast_idct")
    is_upright = fields.flag("adjust_orientation", default=True)
    if is_fast and not on_cpu:
        fields.refuse("use_fast_idct", 'with device "mixed" holds for some images only')
    if is_fast and is_upright:
        fields.refuse("use_fast_idct", "holds for images that EXIF does not turn only: set adjust_orientation=False")
    decode = Decode(
        color=fields.choice("output_type", COLORS, 0),
        apply_exif_orientation=is_upright,
        chroma="fancy" if on_cpu or is_fancy else "fast",
        idct="fast" if is_fast else "accurate",
    )
    return Image(encoded.name, (decode,))


def _resize(image: Image, fields: Fields) -> Image:
    fields.ignore("minibatch_size", "temp_buffer_hint")
    fields.off("save_attrs")
    if image.dtype != "uint8":
        raise PipelineError(f"a resize of {image.dtype} values is not understood: resize before they are cast")
    fields.expect("dtype", _UINT8, why="must be 0: a resized image is uint8")
    fields.ignore("interp_type")
    names = [name if fields.has(name) else "interp_type" for name in ("min_filter", "mag_filter")]
    smaller, larger = (fields.choice(name, _FILTERS, 1) for name in names)
    if smaller != larger:
        fields.refuse("min_filter", f"and {larger} when enlarging is not understood: there is one filter")
    is_subpixel = fields.flag("subpixel_scale", default=True)
    how: dict[str, Any] = {"filter": smaller, "antialias": fields.flag("antialias", default=True), "like": "dali"}
    if (sides := _computed(image, fields)) is not None:
        return image.then(resize_rule(image, *sides, {**how, "subpixel": is_subpixel}))
    target = _target(fields)
    subpixel = None if target.get("mode") == "stretch" else is_subpixel  # whole sides have one scale
    return image.then(Resize(**target, **how, subpixel=subpixel))


def _computed(image: Image, fields: Fields) -> tuple[Rows, Rows] | None:
    """The height and the width of a resize for each of ``SIZES``, where the graph computes them."""
    names = [name for name in ("size", "resize_y", "resize_x") if fields.has(name)]
    values = [fields.take(name) for name in names]
    if not any(isinstance(value, Numbers) for value in values):
        return None
    rows = [needed(value, image, fields, name) for name, value in zip(names, values, strict=True)]
    sides = np.concatenate(rows, axis=1)
    if sides.shape[1] != 2 or fields.take("mode", "default") not in ("default", "stretch"):
        fields.refuse(names[0], "is understood of a height and a width, in the modes default and stretch")
    return sides[:, 0], sides[:, 1]


def _target(fields: Fields) -> dict[str, Any]:
    """The size of a resize, as the fields of the op; DALI refuses two of the three ways at once."""
    names = ("resize_shorter", "resize_longer", "size", "resize_x", "resize_y")
    sizes = [name for name in names if fields.has(name)]
    mode = fields.choice("mode", _MODES, "default")
    if sizes in (["resize_shorter"], ["resize_longer"]) and fields.take("mode", "default") == "default":
        return {"size": fields.side(sizes[0]), "side": sizes[0].removeprefix("resize_")}
    if sizes == ["size"]:
        height, width = fields.pair("size")
    elif sizes == ["resize_x", "resize_y"]:
        height, width = fields.side("resize_y"), fields.side("resize_x")
    elif sizes in (["resize_x"], ["resize_y"]):
        fields.refuse(sizes[0], "without the other side is not understood")
    else:
        raise PipelineError(f"needs one size, and has {', '.join(sizes) or 'none'}")
    return {"height": height, "width": width, "mode": mode}


def _crop(image: Image, fields: Fields) -> Image:
    image = cropped(image, fields, may_pad=True)
    return image.cast(fields, "dtype") if fields.has("dtype") else image


def cropped(image: Image, fields: Fields, *, may_pad: bool = False) -> Image:
    """The window of an operator that crops: none, or the middle, or the corner; what it pads must be levels."""
    rounding = fields.choice("rounding", _ROUNDINGS, "round")
    fields.expect("out_of_bounds_policy", "error", *["pad"] * may_pad)
    pads = fields.text("out_of_bounds_policy", "error") == "pad"
    if pads:
        fields.expect("fill_values", 0.0, [0.0])
    else:
        fields.ignore("fill_values")
    top, left = fields.number("crop_pos_y", 0.5), fields.number("crop_pos_x", 0.5)
    if fields.has("crop"):
        height, width = fields.pair("crop")
    elif fields.has("crop_h") or fields.has("crop_w"):
        height, width = fields.side("crop_h"), fields.side("crop_w")
    else:
        return image
    if pads and (top, left, rounding) != (0.5, 0.5, "down"):
        fields.refuse("out_of_bounds_policy", 'is understood in the middle, with rounding="truncate"')
    if (top, left) == (0.5, 0.5):
        return image.then(CenterCrop(height, width, rounding=rounding, smaller="pad" if pads else "refuse"))
    if (top, left) != (0.0, 0.0):
        fields.refuse("crop_pos_x" if left != 0.5 else "crop_pos_y", "is not understood: 0.5 is, or 0 for both")
    return image.then(Crop(0, 0, height, width))


def _flip(image: Image, fields: Fields) -> Image:
    fields.expect("depthwise", 0)
    is_horizontal, is_vertical = fields.choice("horizontal", NO_YES, 1), fields.choice("vertical", NO_YES, 0)
    return image.then(*[Flip("horizontal")] * is_horizontal, *[Flip("vertical")] * is_vertical)


def _rotate(image: Image, fields: Fields) -> Image:
    """``rotate`` by right angles, where DALI computes no pixel; others are interpolated in a way of its own."""
    fields.ignore("fill_value", "interp_type")
    angle, keeps_size = fields.number("angle"), fields.flag("keep_size")
    if image.dtype != "uint8" or image.layout != "hwc":
        raise PipelineError(f"a rotation of {image.dtype} values in {image.layout.upper()} is not understood")
    if angle % 90 or (keeps_size and angle % 180):
        fields.refuse("angle", f"is not understood{' with keep_size' * (not angle % 90)}: right angles are")
    return image.then(*[Rotate(angle=angle % 360, expand=True)] * bool(angle % 360))


def _pad(image: Image, fields: Fields) -> Image:
    """``pad`` of height and width to a shape that is given; the image lies in the upper left corner."""
    axes = fields.take("axes", None) or [image.layout.upper().find(axis) for axis in fields.text("axis_names", "HWC")]
    if image.layout != "hwc" or axes != [0, 1] or image.is_normalized:
        raise PipelineError("a padding is understood of height and width in HWC, before values are normalized")
    if not fields.has("shape"):
        raise PipelineError('without "shape" it follows from the other images of a batch, which is not understood')
    fields.expect("align", [1, 1])
    height, width = fields.pair("shape")
    fill = fields.number("fill_value", 0.0)
    if not (0 <= fill <= 255 and fill.is_integer()):
        fields.refuse("fill_value", "must be a level, 0 to 255")
    return image.then(Pad(height=height, width=width, fill=int(fill), anchor="top_left"))


DECODERS: dict[str, Callable[[Encoded, Fields], Image]] = {
    "decoders__Image": _decode,
    "experimental__decoders__Image": _decode,
    "decoders__ImageCrop": lambda encoded, fields: cropped(_decode(encoded, fields), fields),
    "experimental__decoders__ImageCrop": lambda encoded, fields: cropped(_decode(encoded, fields), fields),
}
"""Operators whose input is an encoded image."""

GEOMETRY: dict[str, Callable[[Image, Fields], Result]] = {
    "Resize": _resize,
    "Crop": _crop,
    "Flip": _flip,
    "Pad": _pad,
    "Rotate": _rotate,
}
"""Operators on one image."""
