"""Single transforms of torchvision, as ops: those that draw nothing. ``torchvision`` walks over them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, get_args

import numpy as np

from pixprep.errors import PipelineError
from pixprep.importers.assembly import resize
from pixprep.importers.fields import PILLOW_FILTERS, Fields
from pixprep.pipeline import ops
from pixprep.pipeline.ops import Anchor, Arithmetic, Levels, Op, Reals, as_tuple
from pixprep.spec import BoxFormat, ColorLike, Filter, PaddingMode, Side

NOT_SERVED = "serving draws nothing: give these transforms as training"
Data = Literal["a PIL image", "a uint8 tensor", "float32 values"]

FILTERS: dict[Any, Filter] = {
    **{name: name for name in PILLOW_FILTERS.values()},
    "nearest-exact": "nearest_exact",
    **PILLOW_FILTERS,
}
"""Filters by the values of ``InterpolationMode``, and by the numbers in its place."""
_COUNTS: dict[int, Literal[1] | None] = {1: 1, 3: None}


class Walk:
    """The ops so far, and what the data is after them.

    Attributes:
        data: see ``torchvision``.
        side: which the transforms are of.
        scaling: of float32 values: what ``normalize`` must still do to the levels, (scale, arithmetic).
        size: (height, width), where it is known.
        boxes: the format of a sample's boxes.
        channels: of the tensor, where they are not red, green and blue.
        is_v2: whether the transform at hand is one of v2.
    """

    def __init__(self, data: Data, side: Side) -> None:
        self.ops: list[Op] = []
        self.side = side
        self.data = data
        self.scaling: tuple[float, Arithmetic] | None = None
        self.size: tuple[int, int] | None = None
        self.boxes: BoxFormat = "xyxy"
        self.channels: Literal[1] | None = None
        self.is_v2 = False

    def resize(self, fields: Fields, sides: tuple[int, ...], **how: Any) -> None:
        """Resize to a shorter side, or to a height and a width."""
        self.ops.append(resize(sides, **self.resampled(fields), **how))
        self.size = (sides[0], sides[1]) if len(sides) > 1 else None

    def resampled(self, fields: Fields) -> dict[str, Any]:
        """Fields of an op that resamples: ``filter``, ``like`` and perhaps ``antialias``."""
        if self.data == "float32 values":
            raise PipelineError("would resize float32 values: put it before ToTensor or ToDtype")
        filter_, antialias = fields.choice("interpolation", FILTERS), fields.flag("antialias")
        how: dict[str, Any] = {"like": "torchvision"}
        if self.data == "a PIL image":
            how = {"like": "pillow"}
            filter_ = "nearest" if filter_ == "nearest_exact" else filter_
        elif not filter_.startswith("nearest"):
            how = {"like": "torchvision", "antialias": antialias} if self.is_v2 else {"like": "torch"}
            if not (self.is_v2 or antialias):
                fields.refuse("antialias", "of v1 transforms and a uint8 tensor is not understood: True is, and v2 is")
        return {"filter": filter_, **how}

    def levels_like(self) -> ColorLike:
        """Library whose rounding a transform of levels has on this data."""
        if self.data == "float32 values":
            raise PipelineError("would change float32 values: put it before ToTensor or ToDtype")
        if self.data == "a uint8 tensor" and not self.is_v2:
            raise PipelineError("of v1 transforms and a uint8 tensor is not understood: v2 is")
        return "pillow" if self.data == "a PIL image" else "torchvision"

    def center_crop(self, size: tuple[int, int]) -> None:
        """Cut the middle out."""
        self.ops.append(ops.CenterCrop(*size))
        self.size = size

    def to_float(self, scale: float, arithmetic: Arithmetic) -> None:
        """Remember what levels are multiplied by."""
        if self.data == "a PIL image":
            raise PipelineError("does nothing to a PIL image: put PILToTensor or ToImage before it")
        if self.data == "a uint8 tensor":
            self.data = "float32 values"
            self.scaling = (scale, arithmetic)

    def normalize(self, mean: Reals, std: Reals) -> None:
        """Normalization that is left to do, if any."""
        if self.scaling is not None:
            scale, arithmetic = self.scaling
            self.ops.append(ops.Normalize(mean=mean, std=std, scale=scale, arithmetic=arithmetic))
            self.scaling = None
        elif (mean, std) != (0.0, 1.0):
            self.ops.append(ops.Normalize(mean=mean, std=std, scale=1, arithmetic="multiply"))


Take = Callable[["Walk", Fields], None]


def _resize(walk: Walk, fields: Fields) -> None:
    if not fields.has("size"):
        walk.resize(fields, (fields.side("max_size"),), side="longer")
    else:
        most = fields.side("max_size") if fields.has("max_size") else None
        walk.resize(fields, fields.sides("size"), max_size=most)


def _pad(walk: Walk, fields: Fields) -> None:
    how = margin(walk, fields)
    padding = fields.take("padding")
    margins = (padding,) if isinstance(padding, int) else tuple(padding)
    left, top, right, bottom = (margins * 4)[:4]  # one number, or two for both axes
    if walk.size is None:
        fields.refuse("padding", "of images of any size is not understood: resize or crop to a fixed size before")
    is_centered = 0 <= bottom - top <= 1 and 0 <= right - left <= 1
    if min(margins) < 0 or not (is_centered or top == left == 0):
        fields.refuse("padding", "must be the same on opposite sides")
    anchor: Anchor = "center" if is_centered else "top_left"
    walk.size = (walk.size[0] + top + bottom, walk.size[1] + left + right)
    walk.ops.append(ops.Pad(*walk.size, anchor=anchor, **how))


def _pad_if_smaller(walk: Walk, fields: Fields) -> None:
    """Margins on the right and below, of an image that has fewer rows or columns; its masks get the op's ``ignore``."""
    size = fields.side("size")
    walk.ops.append(ops.Pad(size, size, fill=colour(walk, fields), anchor="top_left", larger="keep"))
    walk.size = None


def _to_tensor(walk: Walk, fields: Fields) -> None:
    """``PILToTensor``, and a division by 255."""
    _pil_to_tensor(walk, fields)
    walk.to_float(1 / 255, "divide")


def _pil_to_tensor(walk: Walk, _: Fields) -> None:
    if walk.data != "a PIL image":
        raise PipelineError(f"takes a PIL image, but here is {walk.data}")
    walk.data = "a uint8 tensor"


def _to_image(walk: Walk, fields: Fields) -> None:
    if walk.data == "a PIL image":
        _pil_to_tensor(walk, fields)


def _to_dtype(walk: Walk, fields: Fields) -> None:
    """v1 divides by 255, v2 multiplies by 1/255; of dtypes by type that of images counts."""
    taken, is_scaled = fields.take("dtype"), fields.flag("scale", default=True)
    if isinstance(taken, Mapping):
        by_type, taken = taken, of_images(taken, walk.data)
        if taken is None and "others" in by_type:  # images stay what they are
            return
    dtype = str(taken)
    if dtype == "torch.uint8" and walk.data == "a uint8 tensor":
        return
    if dtype != "torch.float32":
        fields.refuse("dtype", "must be torch.float32")
    walk.to_float(1 / 255 if is_scaled else 1.0, "multiply" if walk.is_v2 else "divide")


def _normalize(walk: Walk, fields: Fields) -> None:
    fields.ignore("inplace")
    if walk.data != "float32 values":
        raise PipelineError(f"takes float32 values, but here is {walk.data}: put ToTensor or ToDtype before it")
    walk.normalize(fields.numbers("mean"), fields.numbers("std"))


def _image_classification(walk: Walk, fields: Fields) -> None:
    """Resize, centre crop, division by 255, normalize: each of v1."""
    walk.resize(fields, fields.sides("resize_size"))
    walk.center_crop(fields.pair("crop_size"))
    walk.data = "a uint8 tensor"
    walk.to_float(1 / 255, "divide")
    walk.normalize(fields.numbers("mean"), fields.numbers("std"))


def _grayscale(walk: Walk, fields: Fields) -> None:
    like = walk.levels_like()
    if walk.channels is None:  # one channel stays what it is
        walk.ops.append(ops.Grayscale(like=like))
    walk.channels = fields.choice("num_output_channels", _COUNTS)


def _to_rgb(walk: Walk, _: Fields) -> None:
    """Keep three channels: those of decode, or gray in each."""
    walk.channels = None


def _gaussian_blur(walk: Walk, fields: Fields) -> None:
    """Random, unless its sigma is one number."""
    walk.levels_like()
    size, (least, most) = fields.pair("kernel_size"), drawn_span(fields, "sigma")
    if least == most:
        walk.ops.append(ops.GaussianBlur(size, least))
    elif walk.side == "training":
        walk.ops.append(ops.RandomGaussianBlur(size, (least, most)))
    else:
        fields.refuse("sigma", f"is random, and {NOT_SERVED}")


def _box_format(walk: Walk, fields: Fields) -> None:
    walk.boxes = fields.choice("format", {name.upper(): name for name in get_args(BoxFormat)})


def _clamped(_: Walk, fields: Fields) -> None:
    """Boxes are cut off at the image's edges in any case."""
    if not fields.has("clamping_mode"):
        fields.refuse("clamping_mode", "leaves boxes outside of the image")


def _sanitized(walk: Walk, fields: Fields) -> None:
    """Boxes of the training side."""
    least = fields.number("min_size")
    if fields.number("min_area") > least**2:
        fields.refuse("min_area", "must be the square of min_size at most: an op knows the least sides")
    if fields.take("labels_getter") not in ("default", "labels"):
        fields.refuse("labels_getter", 'must be "default" or "labels": what is said of a box goes with it')
    if walk.side == "training":
        walk.ops.append(ops.Boxes(min_size=least))


def margin(walk: Walk, fields: Fields) -> dict[str, Any]:
    """Fields of an op that pads: ``fill`` and ``padding_mode``."""
    mode, fill = fields.choice("padding_mode", get_args(PaddingMode), "constant"), colour(walk, fields)
    if mode == "constant":
        return {"fill": fill, "padding_mode": mode}
    if walk.data == "float32 values":
        fields.refuse("padding_mode", "must be constant after ToTensor")
    return {"padding_mode": mode}


def of_images(fills: Mapping[Any, Any], data: Data) -> Any:
    """The colour of images in a ``fill`` by type; where it has none, black: no default of a ``defaultdict`` is used."""
    package = "PIL" if data == "a PIL image" else "torch"
    kinds = (kind for kind in fills if isinstance(kind, type) and kind.__module__.startswith(package))
    found = [fills[kind] for kind in kinds if kind.__name__ in ("Image", "Tensor")] or [fills.get("others")]
    return found[0] if len(found) == 1 else fills


def colour(walk: Walk, fields: Fields) -> Levels:
    """A colour: whole levels; None is black."""
    fill = as_tuple(fields.numbers("fill", 0.0))
    if not all(level.is_integer() for level in fill) or (walk.data == "float32 values" and any(fill)):
        fields.refuse("fill", "must be whole levels, and 0 after ToTensor")
    levels = tuple(int(level) for level in fill)
    return levels if len(levels) > 1 else levels[0]


def drawn_span(fields: Fields, name: str) -> tuple[float, float]:
    """Limits of what is drawn; one number alone is the float32 that PyTorch draws."""
    first, last = as_drawn(fields.span(name))
    return first, last


def as_drawn(ends: tuple[float, ...]) -> tuple[float, ...]:
    """The same of ends that are equal in float32."""
    rounded = tuple(float(np.float32(end)) for end in ends)
    return rounded if len({*rounded}) == 1 else ends


TRANSFORMS: dict[str, Take] = {
    "ImageClassification": _image_classification,
    "Resize": _resize,
    "CenterCrop": lambda walk, fields: walk.center_crop(fields.pair("size")),
    "Pad": _pad,
    "ToTensor": _to_tensor,
    "PILToTensor": _pil_to_tensor,
    "ToImage": _to_image,
    "ToPureTensor": lambda *_: None,  # changes the type alone
    "RGB": _to_rgb,
    "ConvertImageDtype": _to_dtype,
    "ToDtype": _to_dtype,
    "Normalize": _normalize,
    "Grayscale": _grayscale,
    "GaussianBlur": _gaussian_blur,
    "ConvertBoundingBoxFormat": _box_format,
    "ClampBoundingBoxes": _clamped,
    "SanitizeBoundingBoxes": _sanitized,
}
OF_REFERENCES: dict[str, Take] = {"PadIfSmaller": _pad_if_smaller}
"""Transforms of torchvision's references, which are no part of the package."""
