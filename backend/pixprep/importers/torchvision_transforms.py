"""Single transforms of torchvision, as ops. ``torchvision`` walks over them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from math import exp, log
from typing import Any, Literal, get_args

import numpy as np

from pixprep.errors import PipelineError
from pixprep.importers.assembly import resize
from pixprep.importers.fields import PILLOW_FILTERS, Fields, finite, reals
from pixprep.importers.walk import Walk as _Walk
from pixprep.pipeline import ops
from pixprep.pipeline.ops import Anchor, Arithmetic, Levels, Op, Reals, as_tuple
from pixprep.plan.draws.kinds import TorchvisionPolicy
from pixprep.spec import BoxFormat, ColorLike, Filter, PaddingMode, Side

NOT_SERVED = "is random, which is not supported for serving: pass these transforms as training"
Data = Literal["a PIL image", "a uint8 tensor", "float32 values"]

FILTERS: dict[Any, Filter] = {
    **{name: name for name in PILLOW_FILTERS.values()},
    "nearest-exact": "nearest_exact",
    **PILLOW_FILTERS,
}
"""Filters by the values of ``InterpolationMode``, and by the integers that are accepted in place of it."""
MOVED = {name: filter_ for name, filter_ in FILTERS.items() if filter_ in ("nearest", "bilinear", "bicubic")}
"""Filters that are supported for ops that move pixels, in the same form."""
_COUNTS: dict[int, Literal[1] | None] = {1: 1, 3: None}


class Walk(_Walk):
    """The ops so far, and the state of the data after them.

    Attributes:
        data: Type of the data; see ``torchvision``.
        scaling: For float32 values, the pending (scale, arithmetic) that ``normalize`` must apply to the pixel values.
        size: (height, width), if it is known.
        boxes: Format of a sample's boxes.
        channels: Channels of the tensor, if they are not red, green and blue.
        is_v2: Whether the current transform belongs to v2.
    """

    STATE = ("data", "scaling", "boxes", "channels")

    def __init__(self, data: Data, side: Side) -> None:
        super().__init__(side)
        self.data = data
        self.scaling: tuple[float, Arithmetic] | None = None
        self.size: tuple[int, int] | None = None
        self.boxes: BoxFormat = "xyxy"
        self.channels: Literal[1] | None = None
        self.is_v2 = False

    def join(self, *branches: _Walk) -> None:
        """Continue after branches. The size remains known if no branch changes it."""
        super().join(*branches)
        self.size = self.size if all(getattr(each, "size", None) == self.size for each in branches) else None

    def add(self, op: Op) -> None:
        """Add an op."""
        self.ops.append(op)

    def any_size(self, op: Op) -> None:
        """Add an op after which each image has a size of its own."""
        self.ops.append(op)
        self.size = None

    def change(self, op: Op) -> None:
        """Add an op on pixel values whose result is equal in all libraries."""
        self.levels_like()
        self.ops.append(op)

    def gray(self, op: Op) -> None:
        """Add a conversion to gray. Data that already have one channel do not change."""
        if self.channels is None:
            self.ops.append(op)

    def resize(self, fields: Fields, sides: tuple[int, ...], **how: Any) -> None:
        """Add a resize to a shorter side, or to a height and a width."""
        self.ops.append(resize(sides, **self.resampled(fields), **how))
        self.size = (sides[0], sides[1]) if len(sides) > 1 else None

    def resampled(self, fields: Fields) -> dict[str, Any]:
        """Return the fields of an op that resamples: ``filter``, ``like`` and optionally ``antialias``."""
        if self.data == "float32 values":
            raise PipelineError("is not supported for float32 values: move it before ToTensor or ToDtype")
        filter_, antialias = fields.choice("interpolation", FILTERS), fields.flag("antialias")
        how: dict[str, Any] = {"like": "torchvision"}
        if self.data == "a PIL image":
            how = {"like": "pillow"}
            filter_ = "nearest" if filter_ == "nearest_exact" else filter_
        elif not filter_.startswith("nearest"):
            how = {"like": "torchvision", "antialias": antialias} if self.is_v2 else {"like": "torch"}
            if not (self.is_v2 or antialias):
                fields.refuse(
                    "antialias",
                    "is not supported for a uint8 tensor in v1: use antialias=True, or torchvision.transforms.v2",
                )
        return {"filter": filter_, **how}

    def levels_like(self) -> ColorLike:
        """Return the library whose rounding a transform of pixel values uses for this type of data."""
        if self.data == "float32 values":
            raise PipelineError("is not supported for float32 values: move it before ToTensor or ToDtype")
        if self.data == "a uint8 tensor" and not self.is_v2:
            raise PipelineError("is not supported for a uint8 tensor in v1: use torchvision.transforms.v2")
        return "pillow" if self.data == "a PIL image" else "torchvision"

    def colour(self, fields: Fields) -> Levels:
        """Return a color. On float32 values, only black is accepted."""
        fill = fields.colour("fill")
        if self.data == "float32 values" and any(as_tuple(fill)):
            fields.refuse("fill", "must be 0 after ToTensor")
        return fill

    def moved(self, fields: Fields) -> dict[str, Any]:
        """Return the fields of an op that moves pixels: ``filter``, ``fill`` and ``like``."""
        fill = self.colour(fields) if fields.has("fill") else None
        return {"filter": fields.choice("interpolation", MOVED), "fill": fill, "like": self.levels_like()}

    def center_crop(self, size: tuple[int, int]) -> None:
        """Add a center crop."""
        self.ops.append(ops.CenterCrop(*size))
        self.size = size

    def to_float(self, scale: float, arithmetic: Arithmetic) -> None:
        """Record the factor that the pixel values are multiplied by."""
        if self.data == "a PIL image":
            raise PipelineError("has no effect on a PIL image: add PILToTensor or ToImage before it")
        if self.data == "a uint8 tensor":
            self.data = "float32 values"
            self.scaling = (scale, arithmetic)

    def normalize(self, mean: Reals, std: Reals) -> None:
        """Add the pending normalization, if any."""
        if self.scaling is not None:
            scale, arithmetic = self.scaling
            self.ops.append(ops.Normalize(mean=mean, std=std, scale=scale, arithmetic=arithmetic))
            self.scaling = None
        elif (mean, std) != (0.0, 1.0):
            self.ops.append(ops.Normalize(mean=mean, std=std, scale=1, arithmetic="multiply"))


Take = Callable[[Walk, Fields], None]


def _resize(walk: Walk, fields: Fields) -> None:
    if not fields.has("size"):
        walk.resize(fields, (fields.side("max_size"),), side="longer")
    else:
        walk.resize(fields, fields.sides("size"), max_size=_perhaps(fields, "max_size", Fields.side))


def _pad(walk: Walk, fields: Fields) -> None:
    how = _margin(walk, fields)
    padding = fields.take("padding")
    margins = (padding,) if isinstance(padding, int) else tuple(padding)
    left, top, right, bottom = (margins * 4)[:4]  # one number, or two for the axes
    if walk.size is None:
        fields.refuse("padding", "is not supported for images of variable size: resize or crop to a fixed size first")
    is_centered = 0 <= bottom - top <= 1 and 0 <= right - left <= 1
    if min(margins) < 0 or not (is_centered or top == left == 0):
        fields.refuse(
            "padding", "must not be negative, and must be equal on opposite sides or 0 on the left and the top"
        )
    anchor: Anchor = "center" if is_centered else "top_left"
    walk.size = (walk.size[0] + top + bottom, walk.size[1] + left + right)
    walk.ops.append(ops.Pad(*walk.size, anchor=anchor, **how))


def _pad_if_smaller(walk: Walk, fields: Fields) -> None:
    """Add padding on the right and bottom of images with too few rows or columns.

    Masks are padded with the op's ``ignore``.
    """
    size = fields.side("size")
    walk.any_size(ops.Pad(size, size, fill=walk.colour(fields), anchor="top_left", larger="keep"))


def _to_tensor(walk: Walk, fields: Fields) -> None:
    """Read ``PILToTensor`` followed by a division by 255."""
    _pil_to_tensor(walk, fields)
    walk.to_float(1 / 255, "divide")


def _pil_to_tensor(walk: Walk, _: Fields) -> None:
    if walk.data != "a PIL image":
        raise PipelineError(f"expects a PIL image, but its input is {walk.data}")
    walk.data = "a uint8 tensor"


def _to_image(walk: Walk, fields: Fields) -> None:
    if walk.data == "a PIL image":
        _pil_to_tensor(walk, fields)


def _to_dtype(walk: Walk, fields: Fields) -> None:
    """Read a dtype conversion: v1 divides by 255, and v2 multiplies by 1/255.

    If dtypes depend on the type, that of images counts.
    """
    taken, is_scaled = fields.take("dtype"), fields.flag("scale", default=True)
    if isinstance(taken, Mapping):
        by_type, taken = taken, of_images(taken, walk.data)
        if taken is None and "others" in by_type:  # images do not change
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
        raise PipelineError(f"expects float32 values, but its input is {walk.data}: add ToTensor or ToDtype before it")
    walk.normalize(fields.numbers("mean"), fields.numbers("std"))


def _image_classification(walk: Walk, fields: Fields) -> None:
    """Read resize, center crop, division by 255 and normalization, each as in v1."""
    walk.resize(fields, fields.sides("resize_size"))
    walk.center_crop(fields.pair("crop_size"))
    walk.data = "a uint8 tensor"
    walk.to_float(1 / 255, "divide")
    walk.normalize(fields.numbers("mean"), fields.numbers("std"))


def _grayscale(walk: Walk, fields: Fields) -> None:
    walk.gray(ops.Grayscale(like=walk.levels_like()))
    walk.channels = fields.choice("num_output_channels", _COUNTS)


def _to_rgb(walk: Walk, _: Fields) -> None:
    """Keep three channels, either from decode or with gray repeated in each."""
    walk.channels = None


def _gaussian_blur(walk: Walk, fields: Fields) -> None:
    """Read a blur, which is random unless its sigma is a single number."""
    walk.levels_like()
    size, (least, most) = fields.pair("kernel_size"), _drawn(fields, "sigma")
    if least == most:
        walk.ops.append(ops.GaussianBlur(size, least))
    elif walk.side == "training":
        walk.ops.append(ops.RandomGaussianBlur(size, (least, most)))
    else:
        fields.refuse("sigma", NOT_SERVED)


def _box_format(walk: Walk, fields: Fields) -> None:
    walk.boxes = fields.choice("format", {name.upper(): name for name in get_args(BoxFormat)})


def _clamped(_: Walk, fields: Fields) -> None:
    """Read a transform that clips boxes to the image, which pixprep always does."""
    if not fields.has("clamping_mode"):
        fields.refuse("clamping_mode", "leaves boxes outside the image, which is not supported")


def _sanitized(walk: Walk, fields: Fields) -> None:
    """Read the removal of invalid boxes on the training side."""
    least = fields.number("min_size")
    if fields.number("min_area") > least**2:
        fields.refuse("min_area", "must not exceed the square of min_size")
    if fields.take("labels_getter") not in ("default", "labels"):
        fields.refuse("labels_getter", 'must be "default" or "labels": labels are always removed with their boxes')
    if walk.side == "training":
        walk.ops.append(ops.Boxes(min_size=least))


def _margin(walk: Walk, fields: Fields) -> dict[str, Any]:
    """Return the fields of an op that pads: ``fill`` and ``padding_mode``."""
    mode, fill = fields.choice("padding_mode", get_args(PaddingMode), "constant"), walk.colour(fields)
    if mode == "constant":
        return {"fill": fill, "padding_mode": mode}
    if walk.data == "float32 values":
        fields.refuse("padding_mode", 'must be "constant" after ToTensor')
    return {"padding_mode": mode}


def of_images(fills: Mapping[Any, Any], data: Data) -> Any:
    """Return the fill color for images from a ``fill`` by type.

    Without an entry for images, the fill is black, even in a ``defaultdict``.
    """
    package = "PIL" if data == "a PIL image" else "torch"
    kinds = (kind for kind in fills if isinstance(kind, type) and kind.__module__.startswith(package))
    found = [fills[kind] for kind in kinds if kind.__name__ in ("Image", "Tensor")] or [fills.get("others")]
    return found[0] if len(found) == 1 else fills


def _drawn(fields: Fields, name: str) -> tuple[float, float]:
    """Return the limits of a random parameter. If both are equal, the value is the float32 that PyTorch draws."""
    first, last = _as_drawn(fields.span(name))
    return first, last


def _as_drawn(ends: tuple[float, ...]) -> tuple[float, ...]:
    """Replace limits that are equal in float32 by their float32 value."""
    rounded = tuple(float(np.float32(end)) for end in ends)
    return rounded if len({*rounded}) == 1 else ends


def _perhaps(fields: Fields, name: str, read: Callable[[Fields, str], Any]) -> Any:
    """Return the value of a field that may be absent."""
    return read(fields, name) if fields.has(name) else None


def _sizes(fields: Fields) -> tuple[int, ...]:
    sizes = finite(fields.take("min_size"))
    if not sizes or not all(size.is_integer() for size in sizes):
        fields.refuse("min_size", "must be integers, in pixels")
    return tuple(map(int, sizes))


def _colours(walk: Walk, fields: Fields) -> dict[str, Any]:
    """Return the limits of the color factors, and the library whose rounding applies."""
    factors = fields.each(partial(_perhaps, read=_drawn), "brightness", "contrast", "saturation", "hue")
    return {**factors, "like": walk.levels_like()}


def _short(fields: Fields, name: str) -> Any:
    """Return a number, as an int if it is an integer."""
    number = fields.number(name)
    return int(number) if number.is_integer() else number


def _random_resized_crop(walk: Walk, fields: Fields) -> None:
    size = fields.pair("size")
    ratio, drawn = fields.span("ratio"), _drawn_ratio(fields)
    if ratio[0] == ratio[1] != drawn[0]:
        fields.refuse(
            "ratio",
            "must be two different numbers, or one that float32 represents exactly: torchvision samples "
            f"{drawn[0]:.9g}, but uses the original number if no window fits",
        )
    walk.ops.append(ops.RandomResizedCrop(*size, scale=_drawn(fields, "scale"), ratio=ratio, **walk.resampled(fields)))
    walk.size = size


def _random_rotation(walk: Walk, fields: Fields) -> None:
    expand = fields.flag("expand")
    (walk.any_size if expand else walk.add)(
        ops.RandomRotate(_drawn(fields, "degrees"), expand, **_turned(walk, fields))
    )


def _random_affine(walk: Walk, fields: Fields) -> None:
    translate, scale = _perhaps(fields, "translate", Fields.span), _perhaps(fields, "scale", _drawn)
    shear = finite(fields.take("shear")) if fields.has("shear") else None
    if shear:
        shear = (*_as_drawn(shear[:2]), *_as_drawn(shear[2:]))
    walk.add(ops.RandomAffine(_drawn(fields, "degrees"), translate, scale, shear, **_turned(walk, fields)))


def _random_crop(walk: Walk, fields: Fields) -> None:
    size, padding = fields.pair("size"), fields.take("padding", 0)
    margins: int | tuple[int, ...] = padding if isinstance(padding, int) else tuple(padding) if any(padding) else 0
    if isinstance(margins, tuple) and len(margins) == 4 and walk.is_v2:  # v2's order: left, right, top, bottom
        margins = (margins[0], margins[2], margins[1], margins[3])
    needs = fields.flag("pad_if_needed")
    how = _margin(walk, fields) if margins or needs else {}
    fields.ignore("fill", "padding_mode")
    if margins and needs and how["padding_mode"] in ("reflect", "symmetric") and not walk.is_v2:
        fields.refuse(
            "padding_mode",
            "with padding and pad_if_needed mirrors twice in v1, which is not supported: use torchvision.transforms.v2",
        )
    walk.ops.append(ops.RandomCrop(*size, padding=margins, pad_if_needed=needs, **how))
    walk.size = size


def _elastic(walk: Walk, fields: Fields) -> None:
    """Read an elastic transform. torchvision converts PIL images to tensors for it; v1 handles ``fill`` differently."""
    how = walk.moved(fields)
    del how["like"]
    if how["filter"] == "bilinear" and (how["fill"] is None or (any(ops.as_tuple(how["fill"])) and not walk.is_v2)):
        fields.refuse(
            "fill",
            "is not supported with bilinear interpolation: use fill=0, or torchvision.transforms.v2 with any color",
        )
    how["fill"] = how["fill"] or 0
    walk.ops.append(ops.Elastic(fields.span("alpha"), fields.span("sigma"), **how))


def _random_erasing(walk: Walk, fields: Fields) -> None:
    """Read an erasure of tensor values, which must already be float32."""
    fields.ignore("inplace")
    if walk.data == "a PIL image":
        raise PipelineError("does not accept a PIL image: move it after ToTensor")
    field = fields.take("value", "random")  # v2 stores None for "random"
    value = finite(field)
    if field != "random" and len(value) not in (1, 3):
        fields.refuse("value", 'must be a number, one for each of 3 channels, or "random"')
    walk.normalize(0.0, 1.0)
    scale, ratio = _drawn(fields, "scale"), _drawn_ratio(fields)
    walk.ops.append(ops.RandomErasing(fields.number("p"), scale, ratio, reals(value) if value else "random"))


def _auto_augment(walk: Walk, fields: Fields) -> None:
    fields.ignore("policies")  # v1 stores its table of policies
    walk.add(ops.AutoAugment(policy=fields.choice("policy", get_args(TorchvisionPolicy)), **walk.moved(fields)))


def _aug_mix(walk: Walk, fields: Fields) -> None:
    """Read AugMix, which converts a PIL image to a tensor and back."""
    if not walk.is_v2:
        raise PipelineError("is not supported in v1: use torchvision.transforms.v2")
    how = {**walk.moved(fields), "like": "torchvision"}
    how |= fields.each(Fields.whole, "severity", "mixture_width", "chain_depth")
    how |= {"alpha": fields.number("alpha"), "all_ops": fields.flag("all_ops")}
    if how["chain_depth"] <= 0:  # 0 and below: each chain draws its depth
        how["chain_depth"] = -1
    walk.ops.append(ops.AugMix(**how))


def _turned(walk: Walk, fields: Fields) -> dict[str, Any]:
    """Return the fields of ``_filled`` and the center of rotation."""
    return {"center": _perhaps(fields, "center", Fields.span), **_filled(walk, fields)}


def _filled(walk: Walk, fields: Fields) -> dict[str, Any]:
    """Return the fields of ``Walk.moved`` with a fill color."""
    how = walk.moved(fields)
    if how["fill"] is None:
        if (how["like"], how["filter"]) == ("torchvision", "bilinear"):
            fields.refuse("fill", "is not supported for tensors with bilinear interpolation: use fill=0")
        how["fill"] = 0
    return how


def _drawn_ratio(fields: Fields) -> tuple[float, float]:
    """Return the limits of a ratio. PyTorch draws its logarithm."""
    first, last = _drawn(fields, "ratio")
    if first != last or first <= 0:
        return first, last
    drawn = float(np.float32(exp(np.float32(log(first)))))
    return drawn, drawn


TRANSFORMS: dict[str, Take] = {
    "ImageClassification": _image_classification,
    "Resize": _resize,
    "CenterCrop": lambda walk, fields: walk.center_crop(fields.pair("size")),
    "Pad": _pad,
    "ToTensor": _to_tensor,
    "PILToTensor": _pil_to_tensor,
    "ToImage": _to_image,
    "ToPureTensor": lambda *_: None,  # changes only the type
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
"""Transforms of torchvision's references, which are not part of the package."""
RANDOM: dict[str, Take] = {
    "RandomResizedCrop": _random_resized_crop,
    "RandomShortestSize": lambda walk, fields: walk.any_size(
        ops.RandomShortestSize(_sizes(fields), _perhaps(fields, "max_size", Fields.side), **walk.resampled(fields))
    ),
    "RandomResize": lambda walk, fields: walk.any_size(
        ops.RandomResize(fields.side("min_size"), fields.side("max_size"), **walk.resampled(fields))
    ),
    "ScaleJitter": lambda walk, fields: walk.any_size(  # its target is (width, height)
        ops.ScaleJitter(*fields.pair("target_size")[::-1], _drawn(fields, "scale_range"), **walk.resampled(fields))
    ),
    "RandomCrop": _random_crop,
    "RandomZoomOut": lambda walk, fields: walk.any_size(
        ops.RandomZoomOut(walk.colour(fields), fields.span("side_range"), fields.number("p"))
    ),
    "RandomIoUCrop": lambda walk, fields: walk.any_size(
        ops.RandomIouCrop(
            **fields.each(Fields.number, "min_scale", "max_scale", "min_aspect_ratio", "max_aspect_ratio"),
            sampler_options=finite(fields.take("options")),
            trials=fields.whole("trials"),
        )
    ),
    "RandomHorizontalFlip": lambda walk, fields: walk.add(ops.RandomFlip("horizontal", fields.number("p"))),
    "RandomVerticalFlip": lambda walk, fields: walk.add(ops.RandomFlip("vertical", fields.number("p"))),
    "ColorJitter": lambda walk, fields: walk.add(ops.ColorJitter(**_colours(walk, fields))),
    "RandomGrayscale": lambda walk, fields: walk.gray(ops.RandomGray(walk.levels_like(), fields.number("p"))),
    "RandomPosterize": lambda walk, fields: walk.change(
        ops.RandomPosterize(bits=_short(fields, "bits"), p=fields.number("p"))
    ),
    "RandomSolarize": lambda walk, fields: walk.change(
        ops.RandomSolarize(threshold=_short(fields, "threshold"), p=fields.number("p"))
    ),
    "RandomAutocontrast": lambda walk, fields: walk.add(ops.RandomAutocontrast(walk.levels_like(), fields.number("p"))),
    "RandomEqualize": lambda walk, fields: walk.change(ops.RandomEqualize(p=fields.number("p"))),
    "RandomInvert": lambda walk, fields: walk.change(ops.RandomInvert(p=fields.number("p"))),
    "RandomAdjustSharpness": lambda walk, fields: walk.add(
        ops.RandomSharpness(_short(fields, "sharpness_factor"), walk.levels_like(), fields.number("p"))
    ),
    "RandomRotation": _random_rotation,
    "RandomAffine": _random_affine,
    "RandomPerspective": lambda walk, fields: walk.add(
        ops.RandomPerspective(fields.number("distortion_scale"), fields.number("p"), **_filled(walk, fields))
    ),
    "RandomPhotometricDistort": lambda walk, fields: walk.add(
        ops.RandomPhotometricDistort(**_colours(walk, fields), p=fields.number("p"))
    ),
    "ElasticTransform": _elastic,
    "RandomErasing": _random_erasing,
    "RandAugment": lambda walk, fields: walk.add(
        ops.RandAugment(**fields.each(Fields.whole, "num_ops", "magnitude", "num_magnitude_bins"), **walk.moved(fields))
    ),
    "TrivialAugmentWide": lambda walk, fields: walk.add(
        ops.TrivialAugment(fields.whole("num_magnitude_bins"), **walk.moved(fields))
    ),
    "AutoAugment": _auto_augment,
    "AugMix": _aug_mix,
}
"""Random transforms, which are supported only for training."""
