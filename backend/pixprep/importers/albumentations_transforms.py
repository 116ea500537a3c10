"""Single transforms of Albumentations, as ops. ``albumentations`` walks over them and reads their probabilities.

All pixel values equal OpenCV's. After ``ToFloat`` and ``Normalize``, the values are float32, and only ops that move
pixels without resampling them are supported.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np

from pixprep.errors import PipelineError
from pixprep.importers.fields import Fields, finite, one_level, reading, reals
from pixprep.importers.walk import Walk as _Walk
from pixprep.pipeline import ops
from pixprep.pipeline.ops import ImageOp, Normalize, Op, as_tuple
from pixprep.pipeline.ops.filters import LEAST_SIGMA, MAX_TAPS
from pixprep.spec import Anchor, Filter, ImageSpec, Layout, PaddingMode, Side, TensorDType

log = logging.getLogger(__name__)

FILTERS: dict[Any, Filter] = {0: "nearest", 1: "bilinear", 2: "bicubic", 3: "area", 4: "lanczos4"}
"""Filters by OpenCV's interpolation constants."""
_NEW_BLUR = _NEW_GRAY = 2, 0, 5
_NEW_WARP = 1, 4, 15
_NEW_LEVELS = 1, 4, 10
"""First versions whose transforms behave as they are read here."""
_MARGINS: dict[Any, PaddingMode] = {0: "constant", 1: "edge", 2: "symmetric", 4: "reflect"}
_ANCHORS: dict[str, Anchor] = {"center": "center", "top_left": "top_left"}
_NO_PAD = (
    'LongestMaxSize with both sides in "max_size_hw" must be followed by PadIfNeeded with the same height and width'
)
_FILLS = {"value": "fill", "mask_value": "fill_mask"}
RENAMED: Mapping[str, Mapping[str, str]] = {
    "PadIfNeeded": _FILLS,
    "CoarseDropout": {"fill_value": "fill", "mask_fill_value": "fill_mask"},
}
"""Names in version 1.4 of fields that 2.0 renamed, by transform."""


class Walk(_Walk):
    """The ops so far, and the state of the data after them.

    Attributes:
        version: Version of the library that wrote the transforms, as a tuple of integers. Empty if it is not known.
        annotations: Ops on the annotations of an image.
        values: Arithmetic ops so far. They are applied last, because no later transform combines neighboring pixels.
        layout: Layout of the tensor.
        channels: Number of channels of the tensor: 1 after a ToGray that produces one channel. None: the image's
            channels.
        is_open: Whether the last op is a letterbox whose padding has not been read yet.
        places: Path of the transform that each of ``ops`` came from.
        mask_fills: Labels that masks receive in the padding, or the ``border_mode`` that fills the padding with labels
            of the mask; each with the path of its transform.
    """

    STATE = ("values", "layout", "channels", "is_open")

    def __init__(self, side: Side, version: str) -> None:
        super().__init__(side)
        self.version = version_of(version)
        self.annotations: tuple[Op, ...] = ()
        self.values: tuple[Normalize, ...] = ()
        self.layout: Layout = "hwc"
        self.channels: Literal[1] | None = None
        self.is_open = False
        self.places: list[str] = []
        self.mask_fills: dict[object, str] = {}

    @property
    def dtype(self) -> TensorDType:
        """Data type of the tensor."""
        return "float32" if self.values else "uint8"

    def move(self, op: ImageOp) -> None:
        """Add an op that crops or flips without resampling."""
        if self.layout == "chw":
            raise PipelineError("comes after ToTensorV2, which must be the last transform")
        if self.is_open:
            raise PipelineError(_NO_PAD)
        self.ops.append(op)

    def change(self, op: ImageOp) -> None:
        """Add an op that changes pixel values or resamples them."""
        if self.values:
            raise PipelineError("is not supported for float32 values: move it before Normalize and ToFloat")
        if self.channels and not (isinstance(op, ops.Resize | ops.Pad) and isinstance(getattr(op, "fill", 0), int)):
            raise PipelineError("is not supported after ToGray with one output channel: move it before ToGray")
        self.move(op)

    def resize(self, fields: Fields, **how: Any) -> None:
        """Add a resize as OpenCV computes it."""
        self.change(ops.Resize(filter=_filter_of(fields), like="opencv", **how))

    def branch(self) -> Walk:
        """Return a walk that starts in the same state and has its own list of ops."""
        made = super().branch()
        made.places = []
        return made

    def apply_randomly(self, branch: _Walk, p: float) -> None:
        """Add the ops of a branch with probability ``p``. A flip or a gray conversion becomes its random op."""
        match branch.ops:
            case [ops.Flip(axis=axis)]:
                branch.ops = [ops.RandomFlip(axis, 1.0)]
            case [ops.Grayscale(like=like)]:
                branch.ops = [ops.RandomGray(like, 1.0)]
        super().apply_randomly(branch, p)

    def finished(self, where: str) -> list[Op]:
        """Return all ops between ``decode`` and ``tensor``."""
        if self.is_open:
            raise PipelineError(f"{where}: {_NO_PAD}")
        if self.channels and self.layout == "hwc":
            raise PipelineError(
                f"{where}: without ToTensorV2, ToGray with one output channel returns an array with two axes, which is "
                "not supported: append ToTensorV2"
            )
        return [*self.ops, *self.values]


def version_of(version: object) -> tuple[int, ...]:
    """Return a version as a tuple of integers. The tuple is empty if the version is not known."""
    return tuple(map(int, re.findall(r"\d{1,9}", str(version))))


Read = Callable[[Walk, Fields], None]
"""Function that adds a transform to a walk, from its fields. The walk itself reads ``p``."""


def _filter_of(fields: Fields) -> Filter:
    """Return the filter for images. The filter for masks is always nearest."""
    fields.expect("mask_interpolation", 0, why="must be 0 (nearest)")
    if fields.take("area_for_downscale") is not None:
        fields.refuse(
            "area_for_downscale",
            'selects the filter by the size of each image, which is not supported: use "interpolation": 3 (area)',
        )
    return fields.choice("interpolation", FILTERS)


def _margin(walk: Walk, fields: Fields) -> dict[str, Any]:
    """Return ``fill`` and ``padding_mode`` of an op that pads. The walk records the label of a mask's padding."""
    labels = {*finite(fields.take("fill_mask", 0))}
    if len(labels) != 1:
        fields.refuse("fill_mask", "must be one finite number, or the same number for each channel of a mask")
    mode, label = fields.choice("border_mode", _MARGINS), labels.pop()
    walk.mask_fills.setdefault(
        mode if mode != "constant" else int(label) if label.is_integer() else label, fields.where
    )
    fill = one_level(fields.colour("fill"))
    return {"fill": fill, "padding_mode": mode} if mode == "constant" else {"padding_mode": mode}


def _resize(walk: Walk, fields: Fields) -> None:
    """Add a resize. Images that already have the size do not change."""
    height, width, image = fields.side("height"), fields.side("width"), ImageSpec()
    for op in walk.ops:
        image = op.infer(image)
    if (image.height, image.width) == (height, width) and not walk.values:
        _filter_of(fields)
        return
    walk.resize(fields, height=height, width=width)


def _max_size(side: Literal["longer", "shorter"]) -> Read:
    """Return the reader of ``LongestMaxSize`` or ``SmallestMaxSize``.

    One scale applies to both sides, each rounded half to even.
    """

    def read(walk: Walk, fields: Fields) -> None:
        bounds = fields.take("max_size_hw")
        if bounds is None:
            if len(finite(fields.take("max_size"))) > 1:
                fields.refuse(
                    "max_size", "selects one of several sizes at random, which is not supported: set one size"
                )
            walk.resize(fields, size=fields.side("max_size"), side=side, mode="scale", rounding="half_even")
            return
        fields.expect("max_size", None)
        pair = tuple(bounds) if isinstance(bounds, list | tuple) else ()
        if len(pair) != 2 or pair == (None, None):
            fields.refuse("max_size_hw", "must be [height, width], where one of the two may be null")
        sides = Fields({name: x for name, x in zip(("height", "width"), pair, strict=True) if x}, fields.where)
        found = {name: sides.side(name) for name in ("height", "width") if sides.has(name)}
        if len(found) == 1:
            walk.resize(fields, **found, rounding="half_even")
        elif side == "longer":
            height, width = found["height"], found["width"]
            walk.change(ops.Letterbox(height, width, fill=0, filter=_filter_of(fields), like="opencv"))
            walk.is_open = True
        else:
            fields.refuse(
                "max_size_hw", "is supported only with one side, because no op rounds two sides in this way: use null"
            )

    return read


def _pad(walk: Walk, fields: Fields) -> None:
    """Add padding for images that are too small. After ``LongestMaxSize`` with two sides, it completes a letterbox."""
    fields.ignore("padding")
    anchor, how = fields.choice("position", _ANCHORS, "center"), _margin(walk, fields)
    divisors = [fields.has(name) for name in ("pad_height_divisor", "pad_width_divisor")]
    if any(divisors):
        multiple = fields.side("pad_height_divisor" if divisors[0] else "pad_width_divisor")
        if not all(divisors) or fields.side("pad_width_divisor") != multiple:
            fields.refuse("pad_width_divisor", "must equal pad_height_divisor, because the op pad has one multiple")
        for name in ("min_height", "min_width"):
            fields.expect(name, None, why="is not supported together with a divisor: use null")
        walk.change(ops.Pad(multiple=multiple, anchor=anchor, **how))
        return
    height, width = fields.side("min_height"), fields.side("min_width")
    last = walk.ops[-1] if walk.is_open and not walk.values and how["padding_mode"] == "constant" else None
    if isinstance(last, ops.Letterbox) and (last.height, last.width) == (height, width):
        walk.ops[-1], walk.is_open = ops.changed(last, anchor=anchor, fill=how["fill"]), False
        return
    walk.change(ops.Pad(height, width, anchor=anchor, larger="keep", **how))


def _padded(walk: Walk, fields: Fields) -> tuple[int, int]:
    """Return the (height, width) of a crop, after adding the padding that it requests for smaller images."""
    size = fields.side("height"), fields.side("width")
    if fields.flag("pad_if_needed"):
        anchor = fields.choice("pad_position", _ANCHORS, "center")
        walk.change(ops.Pad(*size, anchor=anchor, larger="keep", **_margin(walk, fields)))
    fields.ignore("pad_position", "border_mode", "fill", "fill_mask")
    return size


def _crop(walk: Walk, fields: Fields) -> None:
    fields.expect_false("pad_if_needed")
    fields.ignore("pad_position", "border_mode", "fill", "fill_mask")
    left, top, right, bottom = (fields.integer(name) for name in ("x_min", "y_min", "x_max", "y_max"))
    walk.move(ops.Crop(top, left, bottom - top, right - left))


def _to_gray(walk: Walk, fields: Fields) -> None:
    """Add OpenCV's luma, in all channels or in a single channel of the tensor."""
    fields.expect("method", "weighted_average")
    one: Literal[1] | None = fields.choice("num_output_channels", {1: 1, 3: None}, 3)
    walk.change(ops.Grayscale("opencv"))
    walk.channels = one


def _to_float(walk: Walk, fields: Fields) -> None:
    """Add a float32 division for integer pixel values. Values that are already float32 do not change."""
    most = fields.number("max_value", 255.0, positive=True)
    if not walk.values:
        if np.float32(1 / (1 / most)) != np.float32(most):
            fields.refuse(
                "max_value", "is not supported, because its reciprocal cannot be inverted in float32: use 255"
            )
        walk.values += (Normalize(scale=1 / most, arithmetic="divide"),)


def _normalize(walk: Walk, fields: Fields) -> None:
    """Add ``(value - mean * most) * (1 / (std * most))``, with each constant and each step rounded to float32."""
    if fields.choice("normalization", ("standard", *_BY_IMAGE), "standard") != "standard":
        fields.refuse("normalization", 'computes statistics of each image, which is not supported: use "standard"')
    means, stds = as_tuple(fields.numbers("mean")), as_tuple(fields.numbers("std", positive=True))
    for name in ("mean", "std"):
        if walk.channels and len(as_tuple(fields.numbers(name))) > 1:
            fields.refuse(name, "must be one number after ToGray with one output channel")
        if walk.version < _NEW_LEVELS and isinstance(one := fields.take(name), list | tuple) and len(one) == 1:
            fields.refuse(name, "applies only to red in Albumentations before 1.4.10: give one number for each channel")
    most = np.float32(fields.number("max_pixel_value", positive=True))
    walk.values += (
        Normalize(
            reals([float(str(mean)) for mean in np.array(means, np.float32) * most]),
            reals([_divisor(std) for std in np.array(stds, np.float32) * most]),
            scale=1.0,
            arithmetic="fused_multiply",
        ),
    )


_BY_IMAGE = ("image", "image_per_channel", "min_max", "min_max_per_channel")


def _divisor(std: np.float32) -> float:
    """Return the shortest decimal of a float32 value, if the op computes the same reciprocal from it."""
    short = float(str(std))
    return short if np.float32(1 / short) == np.reciprocal(std) else float(std)


def _to_tensor(walk: Walk, fields: Fields) -> None:
    fields.ignore("transpose_mask")
    walk.layout = "chw"


def _transpose(walk: Walk, _: Fields) -> None:
    for op in (*_turned(1), ops.Flip("vertical")):
        walk.move(op)


def _turned(times: int) -> tuple[ImageOp, ...]:
    """Return ops that rotate by quarter turns counterclockwise, without resampling."""
    return (ops.Rotate(90 * times, expand=True),) if times else ()


TRANSFORMS: dict[str, Read] = {
    "Resize": _resize,
    "LongestMaxSize": _max_size("longer"),
    "SmallestMaxSize": _max_size("shorter"),
    "PadIfNeeded": _pad,
    "CenterCrop": lambda walk, fields: walk.move(
        ops.CenterCrop(*_padded(walk, fields), rounding="down", smaller="refuse")
    ),
    "Crop": _crop,
    "HorizontalFlip": lambda walk, _: walk.move(ops.Flip()),
    "VerticalFlip": lambda walk, _: walk.move(ops.Flip("vertical")),
    "Transpose": _transpose,
    "InvertImg": lambda walk, _: walk.change(ops.Invert()),
    "ToGray": _to_gray,
    "ToFloat": _to_float,
    "Normalize": _normalize,
    "ToTensorV2": _to_tensor,
}
"""Deterministic transforms, which can still have a probability of being applied."""


def _random_resized_crop(walk: Walk, fields: Fields) -> None:
    scale, ratio = fields.span("scale"), fields.span("ratio")
    is_old = fields.has("height")  # 1.3's names
    size = (fields.side("height"), fields.side("width")) if is_old else fields.pair("size")
    walk.change(ops.RandomResizedCrop(*size, scale, ratio, filter=_filter_of(fields), like="opencv"))


def _about_one(fields: Fields) -> tuple[float, float]:
    """Return the limits of a scale. ``scale_limit`` stores them minus 1."""
    low, high = fields.span("scale_limit")
    return 1 + low, 1 + high


def _gaussian_blur(walk: Walk, fields: Fields) -> None:
    """Add a blur with a random kernel size from ``blur_limit``.

    Even sizes are increased by one; 0 derives the size from sigma.
    """
    if walk.version < _NEW_BLUR:
        raise PipelineError(
            "uses a different kernel in Albumentations before 2.0.5: create and save it again with a newer version"
        )
    sigma, bounds = fields.span("sigma_limit"), fields.span("blur_limit")
    if sigma[0] < LEAST_SIGMA:
        fields.refuse("sigma_limit", f"must begin at {LEAST_SIGMA} or more: a smaller sigma does not blur")
    if not 0 <= bounds[0] <= bounds[1] <= MAX_TAPS:
        fields.refuse("blur_limit", f"must be [low, high] with 0 <= low <= high <= {MAX_TAPS}")
    sizes = Counter(size + (size % 2 == 0 and size > 0) for size in range(int(bounds[0]), int(bounds[1]) + 1))
    blurs = [ops.RandomGaussianBlur(size, sigma, like="opencv") for size in sizes]
    walk.change(blurs[0] if len(blurs) == 1 else ops.RandomChoice(tuple(blurs), tuple(sizes.values())))


def _brightness_contrast(walk: Walk, fields: Fields) -> None:
    if not fields.flag("brightness_by_max", default=True):
        fields.refuse("brightness_by_max", "uses the mean of each image, which is not supported: use true")
    fields.expect_false("ensure_safe_range")
    brightness, contrast = fields.span("brightness_limit"), fields.span("contrast_limit")
    walk.change(ops.RandomBrightnessContrast(brightness, contrast, 1.0))


def _hue_saturation_value(walk: Walk, fields: Fields) -> None:
    if walk.version < _NEW_LEVELS:
        raise PipelineError("rounds differently in Albumentations before 1.4.10: create and save it again with 2.0")
    if walk.version < _NEW_GRAY:
        log.warning(
            "%s: Albumentations before 2.0.5 changes the color of gray pixels, but pixprep keeps them gray",
            fields.where,
        )
    hue, saturation, value = (fields.span(f"{name}_shift_limit") for name in ("hue", "sat", "val"))
    walk.change(ops.RandomHueSaturationValue(hue, saturation, value, 1.0))


def _coarse_dropout(walk: Walk, fields: Fields) -> None:
    if fields.has("fill_mask"):
        fields.refuse("fill_mask", "also fills the holes in masks, which is not supported: use null")
    if fields.has("max_holes"):  # 1.3's names
        old = ("holes", "height", "width")
        count, height, width = ((fields.number(f"min_{name}"), fields.number(f"max_{name}")) for name in old)
        if isinstance(fields.take("max_height"), float) and height[1] >= 1:
            fields.refuse("max_height", "must be less than 1, because floats are fractions of the image")
    else:
        count, height, width = (fields.span(f"{name}_range") for name in ("num_holes", "hole_height", "hole_width"))
    whole = int(count[0]), int(count[1])
    walk.change(ops.CoarseDropout(whole, height, width, one_level(fields.colour("fill")), 1.0))


def _warped(walk: Walk, fields: Fields, op: type[ops.RandomWarp | ops.RandomWarpPerspective], **how: Any) -> None:
    """Add a warp as OpenCV computes it. Boxes are warped as with the ``rotate_method`` for corners."""
    if walk.version < _NEW_WARP:
        raise PipelineError(
            "uses a different matrix in Albumentations before 1.4.15: create and save it again with 2.0"
        )
    fields.expect(
        "rotate_method", "largest_box", why='computes different boxes, which is not supported: use "largest_box"'
    )
    fields.expect_false("fit_output")
    found = _filter_of(fields)
    filter_: Filter = "bilinear" if found == "area" else found  # as OpenCV itself does for warps
    if filter_ not in ("nearest", "bilinear", "bicubic"):
        fields.refuse("interpolation", "must be 0 (nearest), 1 (bilinear) or 2 (bicubic)")
    walk.change(op(**{"filter": filter_, "p": 1.0} | _margin(walk, fields) | how))


def _affine(walk: Walk, fields: Fields) -> None:
    fields.expect_false("balanced_scale")
    if fields.has("translate_px"):
        with reading(fields.mapping("translate_px"), "translate_px") as pixels:
            for axis in ("x", "y"):
                if pixels.span(axis) != (0, 0):
                    pixels.refuse(
                        axis, "is in pixels, which is not supported: use translate_percent, a fraction of the image"
                    )
    how: dict[str, Any] = {"translate": _axes(fields, "translate_percent")} if fields.has("translate_percent") else {}
    how |= {name: _axes(fields, name) for name in ("scale", "shear")}
    _warped(walk, fields, ops.RandomWarp, degrees=fields.span("rotate"), keep_ratio=fields.flag("keep_ratio"), **how)


def _axes(fields: Fields, name: str) -> tuple[float, ...]:
    """Return the limits of x, then those of y."""
    with reading(fields.mapping(name), name) as axes:
        return (*axes.span("x"), *axes.span("y"))


def _shift_scale_rotate(walk: Walk, fields: Fields) -> None:
    moves = (*fields.span("shift_limit_x"), *fields.span("shift_limit_y"))
    how: dict[str, Any] = {"degrees": fields.span("rotate_limit"), "translate": moves}
    _warped(walk, fields, ops.RandomWarp, **how, scale=_about_one(fields) * 2)


def _rotate(walk: Walk, fields: Fields) -> None:
    fields.expect_false("crop_border")
    _warped(walk, fields, ops.RandomWarp, degrees=fields.span("limit"))


def _perspective(walk: Walk, fields: Fields) -> None:
    if not fields.flag("keep_size", default=True):
        fields.refuse("keep_size", "results in a different size for each image, which is not supported: use true")
    how: dict[str, Any] = {"scale": fields.span("scale")}
    level = fields.take("fill")
    if isinstance(level, int | float) and level and fields.take("border_mode") == 0:
        how["fill"] = (one_level(fields.colour("fill")), 0, 0)  # OpenCV receives one number, for red
    _warped(walk, fields, ops.RandomWarpPerspective, **how)


_ACROSS, _DOWN = (ops.Flip(),), (ops.Flip("vertical"),)

RANDOM: dict[str, Read] = {
    "RandomRotate90": lambda walk, _: walk.move(ops.RandomChoice(tuple(map(_turned, range(4))))),
    "D4": lambda walk, _: walk.move(
        ops.RandomChoice(tuple((*_turned(times), *flip) for times in range(4) for flip in ((), _DOWN)))
    ),
    "Flip": lambda walk, _: walk.move(ops.RandomChoice((_DOWN, _ACROSS, (*_DOWN, *_ACROSS)))),
    "RandomCrop": lambda walk, fields: walk.move(ops.RandomCrop(*_padded(walk, fields))),
    "RandomResizedCrop": _random_resized_crop,
    "RandomScale": lambda walk, fields: walk.change(
        ops.ScaleJitter(scale_range=_about_one(fields), filter=_filter_of(fields), like="opencv")
    ),
    "GaussianBlur": _gaussian_blur,
    "ColorJitter": lambda walk, fields: walk.change(
        ops.ColorJitter(**fields.each(Fields.span, "brightness", "contrast", "saturation", "hue"), like="opencv")
    ),
    "RandomBrightnessContrast": _brightness_contrast,
    "HueSaturationValue": _hue_saturation_value,
    "CoarseDropout": _coarse_dropout,
    "Affine": _affine,
    "ShiftScaleRotate": _shift_scale_rotate,
    "Rotate": _rotate,
    "Perspective": _perspective,
}
