"""Ops that each operator of DALI becomes: what it does by default is what DALI 2.4 was seen to do."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pixprep.errors import PipelineError
from pixprep.importers.fields import Fields
from pixprep.pipeline.ops import (
    CenterCrop,
    Crop,
    Decode,
    Flip,
    Normalize,
    Op,
    Pad,
    Resize,
    Rotate,
    TensorDType,
    as_tuple,
)
from pixprep.spec import Color, Filter, Layout, Rounding

# DALI's enumerations: DALIImageType, DALIInterpType, DALIDataType; and 0 and 1 for a boolean that can be a tensor.
_COLORS: dict[int, Color] = {0: "rgb", 1: "bgr", 2: "gray"}
_FILTERS: dict[int, Filter] = {0: "nearest", 1: "bilinear", 2: "bicubic", 3: "lanczos", 4: "bilinear"}
_DTYPES: dict[int, TensorDType] = {0: "uint8", 8: "float16", 9: "float32"}
_FLOAT, _UINT8 = 9, 0
_NO_YES = {0: False, 1: True}
_ROUNDINGS: dict[str, Rounding] = {"round": "half_away", "truncate": "down"}
_MODES = {"default": "stretch", "stretch": "stretch", "not_larger": "fit", "not_smaller": "cover"}
_EXPRESSION = re.compile(r"(?P<name>fdiv|mul|add|sub)\((?:&0 \$0:(?P<type>float32|int32)|(?P<first>\$0:float32) &0)\)")
_LAYOUTS: dict[str, Layout] = {"CHW": "chw", "HWC": "hwc"}

# Arguments of decoders that change no pixel.
_OF_DECODERS = (
    *("affine", "cache_batch_copy", "cache_debug", "cache_size", "cache_threshold", "cache_type", "memory_stats"),
    *("device_memory_padding", "device_memory_padding_jpeg2k", "host_memory_padding", "host_memory_padding_jpeg2k"),
    *("hw_decoder_load", "hybrid_huffman_threshold", "preallocate_height_hint", "preallocate_width_hint"),
    *("split_stages", "use_chunk_allocator"),
)


@dataclass(frozen=True)
class Image:
    """A tensor of the graph: an encoded image, or an image on its way.

    Attributes:
        encoded: the name of the encoded tensor.
        chain: the ops so far, from ``decode``; none of an encoded image.
        layout: of the array.
        dtype: of its values.
    """

    encoded: str
    chain: tuple[Op, ...] = ()
    layout: Layout = "hwc"
    dtype: TensorDType = "uint8"

    @property
    def is_normalized(self) -> bool:
        """Tell whether its values are no levels any more."""
        return any(isinstance(op, Normalize) for op in self.chain)

    def then(self, *ops: Op) -> Image:
        """The same with more ops."""
        return replace(self, chain=(*self.chain, *ops))

    def cast(self, fields: Fields, argument: str, default: int | None = None) -> Image:
        """The same in another dtype, if no value changes before the last rounding."""
        to = fields.choice(argument, _DTYPES, default)
        if self.is_normalized and to == "uint8":
            fields.refuse(argument, "of normalized values is not understood: there is no such tensor")
        if to != self.dtype:
            self.check_unrounded(fields, argument)
        return replace(self, dtype=to)

    def check_unrounded(self, fields: Fields, argument: str) -> None:
        """Refuse to go on after values were rounded to float16."""
        if self.is_normalized and self.dtype == "float16":
            fields.refuse(argument, "after float16 is not understood: values are rounded once, at the end")


def _decode(image: Image, fields: Fields) -> Image:
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
    return image.then(
        Decode(
            color=fields.choice("output_type", _COLORS, 0),
            apply_exif_orientation=is_upright,
            chroma="fancy" if on_cpu or is_fancy else "fast",
            idct="fast" if is_fast else "accurate",
        )
    )


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
    antialias, is_subpixel = fields.flag("antialias", default=True), fields.flag("subpixel_scale", default=True)
    target = _target(fields)
    return image.then(
        Resize(
            **target,
            filter=smaller,
            antialias=antialias,
            like="dali",
            subpixel=None if target.get("mode") == "stretch" else is_subpixel,  # whole sides have one scale
        )
    )


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
    image = _cropped(image, fields, may_pad=True)
    return image.cast(fields, "dtype") if fields.has("dtype") else image


def _cropped(image: Image, fields: Fields, *, may_pad: bool = False) -> Image:
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


def _crop_mirror_normalize(image: Image, fields: Fields) -> Image:
    """Crop, mirror, ``scale * (value - mean) / std + shift``, cast, and the layout."""
    image = _cropped(image, fields)
    if fields.choice("mirror", _NO_YES, 0):
        image = image.then(Flip("horizontal"))
    fields.off("pad_output")
    image = _normalized(image, fields, "std")
    dtype = "output_dtype" if fields.has("output_dtype") else "dtype"  # its name until DALI 1.0
    return replace(image.cast(fields, dtype, _FLOAT), layout=fields.choice("output_layout", _LAYOUTS, "CHW"))


def _normalize(image: Image, fields: Fields) -> Image:
    """``normalize`` by numbers, not by the image's own statistics."""
    for name in ("mean", "stddev"):
        if not fields.has(name):
            raise PipelineError(f'without "{name}" each image has its own, which is not understood')
    fields.expect("shift", 0)
    fields.off("batch")
    fields.ignore("ddof", "epsilon")
    return _normalized(image, fields, "stddev").cast(fields, "dtype", _FLOAT)


def _normalized(image: Image, fields: Fields, std_name: str) -> Image:
    """DALI's arithmetic, in float32: ``(value - (mean - shift * std / scale)) * (scale / std)``."""
    means = as_tuple(fields.numbers("mean", 0.0))
    stds = as_tuple(fields.numbers(std_name, 1.0, positive=True))
    scale, shift = fields.number("scale", 1.0), fields.number("shift", 0.0)
    if {*means} == {0.0} and {*stds} == {1.0} and (scale, shift) == (1.0, 0.0):
        return image
    image.check_unrounded(fields, "mean")
    if scale == 0:
        fields.refuse("scale", "must not be 0")
    if shift:
        count = max(len(means), len(stds))
        means, stds = (values * (count // len(values)) for values in (means, stds))
        means = tuple(mean - shift * std / scale for mean, std in zip(means, stds, strict=True))
    return image.then(
        Normalize(
            mean=tuple(_short(mean) * scale for mean in means),
            std=tuple(_short(std, scale) for std in stds),
            scale=scale,
            arithmetic="fused_multiply",
        )
    )


def _short(value: float, dividend: float | None = None) -> float:
    """The decimal fraction that a float32 was written as, where it gives the same constant (``dividend`` by it)."""
    short = float(str(np.float32(value)))
    if dividend is not None and np.float32(dividend / short) != np.float32(dividend / value):
        return value
    return short


def _flip(image: Image, fields: Fields) -> Image:
    fields.expect("depthwise", 0)
    is_horizontal, is_vertical = fields.choice("horizontal", _NO_YES, 1), fields.choice("vertical", _NO_YES, 0)
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


def _arithmetic(image: Image, fields: Fields) -> Image:
    """An expression of an image and one number, such as ``images / 255.``, in float32."""
    text = fields.text("expression_desc")
    match = _EXPRESSION.fullmatch(text)
    if match is None or (match["first"] and match["name"] not in ("mul", "add")):
        fields.refuse("expression_desc", "is not understood: an image with one number is, not taken from the number")
    name, kind = match["name"], "integer" if match["type"] == "int32" else "real"
    if kind == "integer" and image.dtype == "uint8" and name != "fdiv":
        fields.refuse("expression_desc", "gives whole numbers, which is not understood: write 127.0 for 127")
    image.check_unrounded(fields, "expression_desc")
    constant = fields.number(f"{kind}_constants")
    value = constant if kind == "integer" else _short(constant)
    if value == 0 and name in ("fdiv", "mul"):
        fields.refuse(f"{kind}_constants", "must not be 0")
    if name in ("fdiv", "mul"):
        made = Normalize(
            scale=value if name == "mul" else 1 / value, arithmetic="multiply" if name == "mul" else "divide"
        )
    else:
        made = Normalize(mean=value if name == "sub" else -value, scale=1.0, arithmetic="divide")
    return replace(image.then(made), dtype="float32")


def _transpose(image: Image, fields: Fields) -> Image:
    perm, axes = fields.take("perm", [2, 1, 0]), dict(enumerate(image.layout.upper()))
    turned = "".join(axes.get(index, "?") for index in (perm if isinstance(perm, list) else [perm]))
    if turned not in _LAYOUTS:
        fields.refuse("perm", f"must make HWC or CHW of an image in {image.layout.upper()}")
    if not fields.flag("transpose_layout", default=True) and not fields.has("output_layout"):
        fields.refuse("transpose_layout")
    fields.expect("output_layout", turned)
    return replace(image, layout=_LAYOUTS[turned])


OPERATORS: dict[str, Callable[[Image, Fields], Image]] = {
    "decoders__Image": _decode,
    "experimental__decoders__Image": _decode,
    "decoders__ImageCrop": lambda image, fields: _cropped(_decode(image, fields), fields),
    "experimental__decoders__ImageCrop": lambda image, fields: _cropped(_decode(image, fields), fields),
    "Resize": _resize,
    "Crop": _crop,
    "CropMirrorNormalize": _crop_mirror_normalize,
    "Normalize": _normalize,
    "Flip": _flip,
    "Pad": _pad,
    "Rotate": _rotate,
    "Transpose": _transpose,
    "Cast": lambda image, fields: image.cast(fields, "dtype"),
    "Copy": lambda image, _: image,
    "_ArithmeticGenericOp": _arithmetic,
    "ArithmeticGenericOp": _arithmetic,
}
