"""Operators of DALI on an image: what becomes of its values, its layout and its dtype; and the table of all.

What an operator does by default is what DALI 2.4 was seen to do.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from pixprep.errors import PipelineError
from pixprep.importers.dali_geometry import GEOMETRY, NO_YES, Result, cropped
from pixprep.importers.dali_numbers import shape_of
from pixprep.importers.dali_values import Image, Value
from pixprep.importers.fields import Fields
from pixprep.pipeline.ops import Flip, Normalize, as_tuple
from pixprep.spec import Layout

_FLOAT = 9
_EXPRESSION = re.compile(r"(?P<name>fdiv|mul|add|sub)\((?:&0 \$0:(?P<type>float32|int32)|(?P<first>\$0:float32) &0)\)")
_LAYOUTS: dict[str, Layout] = {"CHW": "chw", "HWC": "hwc"}


def _crop_mirror_normalize(image: Image, fields: Fields) -> Image:
    """Crop, mirror, ``scale * (value - mean) / std + shift``, cast, and the layout."""
    image = cropped(image, fields)
    if fields.choice("mirror", NO_YES, 0):
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


def _plain(apply: Callable[[Image, Fields], Result]) -> Callable[[Sequence[Value], Fields], Result]:
    """An operator of one input."""

    def of(inputs: Sequence[Value], fields: Fields) -> Result:
        image, *others = inputs
        if others or not isinstance(image, Image):
            raise PipelineError(f"{len(inputs)} inputs, expected one image")
        return apply(image, fields)

    return of


IMAGES: dict[str, Callable[[Sequence[Value], Fields], Result]] = {
    name: _plain(apply)
    for name, apply in {
        **GEOMETRY,
        "CropMirrorNormalize": _crop_mirror_normalize,
        "Normalize": _normalize,
        "Transpose": _transpose,
        "Cast": lambda image, fields: image.cast(fields, "dtype"),
        "Copy": lambda image, _: image,
        "Shapes": shape_of,
        "_ArithmeticGenericOp": _arithmetic,
        "ArithmeticGenericOp": _arithmetic,
    }.items()
}
"""Operators with an image among their inputs."""
