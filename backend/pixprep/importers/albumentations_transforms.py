"""Converts each Albumentations transform to ops. The module ``albumentations`` calls these functions.

All pixel values equal OpenCV's. After ``ToFloat`` and ``Normalize``, the values are float32, and only crops, flips and
rotations by multiples of 90° are supported, because they do not interpolate.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Callable, Mapping
from itertools import permutations
from typing import Any, Literal

import numpy as np

from pixprep.errors import PipelineError
from pixprep.importers.fields import Fields, finite, reading, reals, shortest_decimal
from pixprep.importers.walk import Walk as _Walk
from pixprep.pipeline import ops
from pixprep.pipeline.ops import ImageOp, Normalize, Op, as_tuple
from pixprep.pipeline.ops.filters import MAX_TAPS, MIN_SIGMA
from pixprep.spec import Anchor, Filter, ImageSpec, Layout, PaddingMode, Side, TensorDType

log = logging.getLogger(__name__)

FILTERS: dict[Any, Filter] = {0: "nearest", 1: "bilinear", 2: "bicubic", 3: "area", 4: "lanczos4"}
"""Filters by OpenCV's constants, such as ``cv2.INTER_LINEAR``."""
_BLUR_SINCE = _GRAY_SINCE = 2, 0, 5
_WARP_SINCE = 1, 4, 15
_FLOAT32_SINCE = 1, 4, 10
"""First versions whose transforms compute the same pixel values as 2.0.8."""
_PADDING_MODES: dict[Any, PaddingMode] = {0: "constant", 1: "edge", 2: "symmetric", 4: "reflect"}
_ANCHORS: dict[str, Anchor] = {"center": "center", "top_left": "top_left"}
_MISSING_PAD = (
    'LongestMaxSize with both sides in "max_size_hw" must be followed by PadIfNeeded with the same height and width'
)
_FILL_NAMES = {"value": "fill", "mask_value": "fill_mask"}
RENAMED: Mapping[str, Mapping[str, str]] = {
    "PadIfNeeded": _FILL_NAMES,
    "CoarseDropout": {"fill_value": "fill", "mask_fill_value": "fill_mask"},
}
"""Old and new names of the fields that Albumentations 2.0 renamed, by transform."""


class Walk(_Walk):
    """Ops of the transforms that were visited so far, and the state of the data after these ops.

    Attributes:
        version: Version of Albumentations that saved the transforms, as a tuple of integers, or ``()`` if unknown.
        annotations: Ops for boxes, points and masks, which follow the ops for the image.
        values: ``normalize`` ops, which are appended after all other ops. The order does not affect the result, because
            the ops after ``ToFloat`` and ``Normalize`` do not interpolate.
        layout: Layout of the tensor.
        channels: 1 if the tensor has one channel because of ``ToGray``. None if it has three channels.
        awaits_padding: Whether the last op is a letterbox whose padding is defined by the next transform.
        paths: Path of the transform of each op in ``ops``, for error messages.
        mask_fills: Values that fill the padding of masks, each with the path of its transform. A value can also be a
            padding mode such as ``edge``.
    """

    STATE = ("values", "layout", "channels", "awaits_padding")

    def __init__(self, side: Side, version: str) -> None:
        super().__init__(side)
        self.version = version_of(version)
        self.annotations: tuple[Op, ...] = ()
        self.values: tuple[Normalize, ...] = ()
        self.layout: Layout = "hwc"
        self.channels: Literal[1] | None = None
        self.awaits_padding = False
        self.paths: list[str] = []
        self.mask_fills: dict[object, str] = {}

    @property
    def dtype(self) -> TensorDType:
        """Dtype of the tensor."""
        return "float32" if self.values else "uint8"

    def add(self, op: ImageOp) -> None:
        """Add an op that also supports float32 values, because it does not interpolate."""
        if self.layout == "chw":
            raise PipelineError("comes after ToTensorV2, which must be the last transform")
        if self.awaits_padding:
            raise PipelineError(_MISSING_PAD)
        self.ops.append(op)

    def add_uint8(self, op: ImageOp) -> None:
        """Add an op that changes or interpolates pixel values, and therefore requires uint8."""
        if self.values:
            raise PipelineError("is not supported for float32 values: move it before Normalize and ToFloat")
        if self.channels and not (isinstance(op, ops.Resize | ops.Pad) and isinstance(getattr(op, "fill", 0), int)):
            raise PipelineError("is not supported after ToGray with one output channel: move it before ToGray")
        self.add(op)

    def resize(self, fields: Fields, **how: Any) -> None:
        """Add a resize op that equals OpenCV's."""
        self.add_uint8(ops.Resize(filter=filter_of(fields), like="opencv", **how))

    def branch(self) -> Walk:
        """Return a walk that starts in the current state of the data, with an empty list of ops."""
        branch = super().branch()
        branch.paths = []
        return branch

    def apply_randomly(self, branch: _Walk, p: float) -> None:
        """Apply the ops of a branch with probability ``p``.

        A single ``flip`` or ``grayscale`` is replaced by ``random_flip`` or ``random_gray``.
        """
        match branch.ops:
            case [ops.Flip(axis=axis)]:
                branch.ops = [ops.RandomFlip(axis, 1.0)]
            case [ops.Grayscale(like=like)]:
                branch.ops = [ops.RandomGray(like, 1.0)]
        super().apply_randomly(branch, p)

    def finished(self, where: str) -> list[Op]:
        """Return all ops for the image between ``decode`` and ``tensor``."""
        if self.awaits_padding:
            raise PipelineError(f"{where}: {_MISSING_PAD}")
        if self.channels and self.layout == "hwc":
            raise PipelineError(
                f"{where}: without ToTensorV2, ToGray with one output channel returns an array with two axes, which is "
                "not supported: append ToTensorV2"
            )
        return [*self.ops, *self.values]


def version_of(version: object) -> tuple[int, ...]:
    """Return a version as a tuple of integers, or ``()`` if it is unknown."""
    return tuple(map(int, re.findall(r"\d{1,9}", str(version))))


Reader = Callable[[Walk, Fields], None]
"""Function that reads the fields of a transform, except ``p``, and adds its ops to a walk."""


def filter_of(fields: Fields) -> Filter:
    """Return the filter for images. Masks must use ``nearest``, because pixprep always does."""
    fields.expect("mask_interpolation", 0, why="must be 0 (nearest)")
    if fields.take("area_for_downscale") is not None:
        fields.refuse(
            "area_for_downscale",
            'selects the filter by the size of each image, which is not supported: use "interpolation": 3 (area)',
        )
    return fields.choice("interpolation", FILTERS)


def padding_fields(walk: Walk, fields: Fields) -> dict[str, Any]:
    """Return the fields ``padding_mode`` and, if it is ``constant``, ``fill`` of an op that pads.

    The value that fills the padding of masks is added to ``walk.mask_fills``.
    """
    mask_values = {*finite(fields.take("fill_mask", 0))}
    if len(mask_values) != 1:
        fields.refuse("fill_mask", "must be one finite number, or the same number for each channel of a mask")
    mode, value = fields.choice("border_mode", _PADDING_MODES), mask_values.pop()
    walk.mask_fills.setdefault(
        mode if mode != "constant" else int(value) if value.is_integer() else value, fields.where
    )
    fill = fields.colour("fill", merges=True)
    return {"fill": fill, "padding_mode": mode} if mode == "constant" else {"padding_mode": mode}


def _resize(walk: Walk, fields: Fields) -> None:
    """Convert ``Resize``. If the preceding ops already return images of this size, no op is added."""
    height, width, image = fields.side("height"), fields.side("width"), ImageSpec()
    for op in walk.ops:
        image = op.infer(image)
    if (image.height, image.width) == (height, width) and not walk.values:
        filter_of(fields)
        return
    walk.resize(fields, height=height, width=width)


def _max_size(side: Literal["longer", "shorter"]) -> Reader:
    """Return the function that converts ``LongestMaxSize`` or ``SmallestMaxSize``.

    These transforms multiply height and width by the same factor and round each to the nearest integer, with ties to
    even.
    """

    def read(walk: Walk, fields: Fields) -> None:
        bounds = fields.take("max_size_hw")
        if bounds is None:
            if len(finite(fields.take("max_size"))) > 1:
                fields.refuse(
                    "max_size", "selects one of several sizes at random, which is not supported: use one size"
                )
            walk.resize(fields, size=fields.side("max_size"), side=side, mode="scale", rounding="half_even")
            return
        fields.expect("max_size", None)
        pair = tuple(bounds) if isinstance(bounds, list | tuple) else ()
        if len(pair) != 2 or pair == (None, None):
            fields.refuse("max_size_hw", "must be [height, width], where one of the two may be null")
        sides = Fields({name: side for name, side in zip(("height", "width"), pair, strict=True) if side}, fields.where)
        found = {name: sides.side(name) for name in ("height", "width") if sides.has(name)}
        if len(found) == 1:
            walk.resize(fields, **found, rounding="half_even")
        elif side == "longer":
            height, width = found["height"], found["width"]
            walk.add_uint8(ops.Letterbox(height, width, fill=0, filter=filter_of(fields), like="opencv"))
            walk.awaits_padding = True
        else:
            fields.refuse(
                "max_size_hw",
                "is supported only if height or width is null, because no op rounds two sides in the same way",
            )

    return read


def _pad(walk: Walk, fields: Fields) -> None:
    """Convert ``PadIfNeeded``.

    After ``LongestMaxSize`` with a height and a width, it defines the padding of the letterbox.
    """
    fields.ignore("padding")
    anchor, how = fields.choice("position", _ANCHORS, "center"), padding_fields(walk, fields)
    divisors = [fields.has(name) for name in ("pad_height_divisor", "pad_width_divisor")]
    if any(divisors):
        multiple = fields.side("pad_height_divisor" if divisors[0] else "pad_width_divisor")
        if not all(divisors) or fields.side("pad_width_divisor") != multiple:
            fields.refuse(
                "pad_width_divisor", "must equal pad_height_divisor, because the op pad has the same multiple for both"
            )
        for name in ("min_height", "min_width"):
            fields.expect(name, None, why="is not supported together with a divisor: use null")
        walk.add_uint8(ops.Pad(multiple=multiple, anchor=anchor, **how))
        return
    height, width = fields.side("min_height"), fields.side("min_width")
    last = walk.ops[-1] if walk.awaits_padding and not walk.values and how["padding_mode"] == "constant" else None
    if isinstance(last, ops.Letterbox) and (last.height, last.width) == (height, width):
        walk.ops[-1], walk.awaits_padding = ops.changed(last, anchor=anchor, fill=how["fill"]), False
        return
    walk.add_uint8(ops.Pad(height, width, anchor=anchor, larger="keep", **how))


def _crop_size(walk: Walk, fields: Fields) -> tuple[int, int]:
    """Return the (height, width) of a crop. If ``pad_if_needed`` is true, an op that pads smaller images is added."""
    size = fields.side("height"), fields.side("width")
    if fields.flag("pad_if_needed"):
        anchor = fields.choice("pad_position", _ANCHORS, "center")
        walk.add_uint8(ops.Pad(*size, anchor=anchor, larger="keep", **padding_fields(walk, fields)))
    fields.ignore("pad_position", "border_mode", "fill", "fill_mask")
    return size


def _crop_around_mask(walk: Walk, fields: Fields) -> None:
    fields.expect("ignore_channels", None)
    ignored = tuple(int(label) for label in fields.take("ignore_values") or ())
    walk.add(ops.RandomCrop(fields.side("height"), fields.side("width"), around="mask", ignore=ignored))


def _crop(walk: Walk, fields: Fields) -> None:
    fields.expect_false("pad_if_needed")
    fields.ignore("pad_position", "border_mode", "fill", "fill_mask")
    left, top, right, bottom = (fields.integer(name) for name in ("x_min", "y_min", "x_max", "y_max"))
    walk.add(ops.Crop(top, left, bottom - top, right - left))


def _to_gray(walk: Walk, fields: Fields) -> None:
    """Convert ``ToGray``, which returns OpenCV's grayscale image with one channel, or with three equal channels."""
    fields.expect("method", "weighted_average")
    channels: Literal[1] | None = fields.choice("num_output_channels", {1: 1, 3: None}, 3)
    walk.add_uint8(ops.Grayscale("opencv"))
    walk.channels = channels


def _to_float(walk: Walk, fields: Fields) -> None:
    """Convert ``ToFloat``, which divides uint8 pixel values by ``max_value`` and does not change float32 values."""
    max_value = fields.number("max_value", 255.0, positive=True)
    if not walk.values:
        if np.float32(1 / (1 / max_value)) != np.float32(max_value):
            fields.refuse(
                "max_value", "is not supported, because its reciprocal cannot be inverted in float32: use 255"
            )
        walk.values += (Normalize(scale=1 / max_value, arithmetic="divide"),)


def _normalize(walk: Walk, fields: Fields) -> None:
    """Convert ``Normalize``, which computes ``(value - mean * maximum) * (1 / (std * maximum))``.

    ``maximum`` is ``max_pixel_value``. All constants and intermediate results are float32.
    """
    if fields.choice("normalization", ("standard", *_IMAGE_STATISTICS), "standard") != "standard":
        fields.refuse("normalization", 'computes statistics of each image, which is not supported: use "standard"')
    means, stds = as_tuple(fields.numbers("mean")), as_tuple(fields.numbers("std", positive=True))
    for name in ("mean", "std"):
        if walk.channels and len(as_tuple(fields.numbers(name))) > 1:
            fields.refuse(name, "must be one number after ToGray with one output channel")
        if walk.version < _FLOAT32_SINCE and isinstance(one := fields.take(name), list | tuple) and len(one) == 1:
            fields.refuse(name, "applies only to red in Albumentations before 1.4.10: give one number for each channel")
    maximum = np.float32(fields.number("max_pixel_value", positive=True))
    walk.values += (
        Normalize(
            reals([shortest_decimal(mean) for mean in np.array(means, np.float32) * maximum]),
            reals([shortest_decimal(std, 1.0) for std in np.array(stds, np.float32) * maximum]),
            scale=1.0,
            arithmetic="fused_multiply",
        ),
    )


_IMAGE_STATISTICS = ("image", "image_per_channel", "min_max", "min_max_per_channel")


def _to_tensor(walk: Walk, fields: Fields) -> None:
    fields.ignore("transpose_mask")
    walk.layout = "chw"


def _transpose(walk: Walk, _: Fields) -> None:
    for op in (*_quarter_turns(1), ops.Flip("vertical")):
        walk.add(op)


def _quarter_turns(times: int) -> tuple[ImageOp, ...]:
    """Return the ops that rotate an image counterclockwise by ``times`` * 90°."""
    return (ops.Rotate(90 * times, expand=True),) if times else ()


def _random_resized_crop(walk: Walk, fields: Fields) -> None:
    scale, ratio = fields.span("scale"), fields.span("ratio")
    is_old = fields.has("height")  # names of version 1.3
    size = (fields.side("height"), fields.side("width")) if is_old else fields.pair("size")
    walk.add_uint8(ops.RandomResizedCrop(*size, scale, ratio, filter=filter_of(fields), like="opencv"))


def _scale_range(fields: Fields) -> tuple[float, float]:
    """Return the minimum and maximum of a scale factor, which are 1 plus the values of ``scale_limit``."""
    low, high = fields.span("scale_limit")
    return 1 + low, 1 + high


def _gaussian_blur(walk: Walk, fields: Fields) -> None:
    """Convert ``GaussianBlur``, which samples a kernel size from the integers in ``blur_limit``.

    Even sizes are increased by 1. For a size of 0, the size is computed from sigma.
    """
    if walk.version < _BLUR_SINCE:
        raise PipelineError(
            "uses a different kernel in Albumentations before 2.0.5: create and save it again with a newer version"
        )
    sigma, (low, high) = fields.span("sigma_limit"), fields.span("blur_limit")
    if sigma[0] < MIN_SIGMA:
        fields.refuse("sigma_limit", f"must begin at {MIN_SIGMA} or more: a smaller sigma does not blur")
    if not 0 <= low <= high <= MAX_TAPS:
        fields.refuse("blur_limit", f"must be [low, high] with 0 <= low <= high <= {MAX_TAPS}")
    sizes = Counter(size + (size % 2 == 0 and size > 0) for size in range(int(low), int(high) + 1))
    blurs = [ops.RandomGaussianBlur(size, sigma, like="opencv") for size in sizes]
    walk.add_uint8(blurs[0] if len(blurs) == 1 else ops.RandomChoice(tuple(blurs), tuple(sizes.values())))


def _brightness_contrast(walk: Walk, fields: Fields) -> None:
    if not fields.flag("brightness_by_max", default=True):
        fields.refuse("brightness_by_max", "uses the mean of each image, which is not supported: use true")
    fields.expect_false("ensure_safe_range")
    brightness, contrast = fields.span("brightness_limit"), fields.span("contrast_limit")
    walk.add_uint8(ops.RandomBrightnessContrast(brightness, contrast, 1.0))


def _hue_saturation_value(walk: Walk, fields: Fields) -> None:
    if walk.version < _FLOAT32_SINCE:
        raise PipelineError("rounds differently in Albumentations before 1.4.10: create and save it again with 2.0")
    if walk.version < _GRAY_SINCE:
        log.warning(
            "%s: Albumentations before 2.0.5 changes the color of gray pixels, but pixprep keeps them gray",
            fields.where,
        )
    hue, saturation, value = (fields.span(f"{name}_shift_limit") for name in ("hue", "sat", "val"))
    walk.add_uint8(ops.RandomHueSaturationValue(hue, saturation, value, 1.0))


def _coarse_dropout(walk: Walk, fields: Fields) -> None:
    if fields.has("fill_mask"):
        fields.refuse("fill_mask", "also fills the holes in masks, which is not supported: use null")
    if fields.has("max_holes"):  # names of version 1.3
        names = ("holes", "height", "width")
        count, height, width = ((fields.number(f"min_{name}"), fields.number(f"max_{name}")) for name in names)
        if isinstance(fields.take("max_height"), float) and height[1] >= 1:
            fields.refuse("max_height", "must be less than 1, because floats are fractions of the image")
    else:
        count, height, width = (fields.span(f"{name}_range") for name in ("num_holes", "hole_height", "hole_width"))
    holes = int(count[0]), int(count[1])
    walk.add_uint8(ops.CoarseDropout(holes, height, width, fields.colour("fill", merges=True), 1.0))


def _warp(walk: Walk, fields: Fields, op: type[ops.RandomWarp | ops.RandomWarpPerspective], **how: Any) -> None:
    """Add an op that warps the image as OpenCV does.

    Each box becomes the bounding box of its four warped corners, as with the ``rotate_method`` ``largest_box``.
    """
    if walk.version < _WARP_SINCE:
        raise PipelineError(
            "uses a different matrix in Albumentations before 1.4.15: create and save it again with 2.0"
        )
    fields.expect(
        "rotate_method", "largest_box", why='computes different boxes, which is not supported: use "largest_box"'
    )
    fields.expect_false("fit_output")
    found = filter_of(fields)
    filter_: Filter = "bilinear" if found == "area" else found  # OpenCV's warps replace area by bilinear
    if filter_ not in ("nearest", "bilinear", "bicubic"):
        fields.refuse("interpolation", "must be 0 (nearest), 1 (bilinear) or 2 (bicubic)")
    walk.add_uint8(op(**{"filter": filter_, "p": 1.0} | padding_fields(walk, fields) | how))


def _affine(walk: Walk, fields: Fields) -> None:
    fields.expect_false("balanced_scale")
    if fields.has("translate_px"):
        with reading(fields.mapping("translate_px"), "translate_px") as pixels:
            for axis in ("x", "y"):
                if pixels.span(axis) != (0, 0):
                    pixels.refuse(
                        axis, "is in pixels, which is not supported: use translate_percent, a fraction of the image"
                    )
    how: dict[str, Any] = (
        {"translate": _range_per_axis(fields, "translate_percent")} if fields.has("translate_percent") else {}
    )
    how |= {name: _range_per_axis(fields, name) for name in ("scale", "shear")}
    _warp(walk, fields, ops.RandomWarp, degrees=fields.span("rotate"), keep_ratio=fields.flag("keep_ratio"), **how)


def _range_per_axis(fields: Fields, name: str) -> tuple[float, ...]:
    """Return the minimum and maximum for x, followed by the minimum and maximum for y."""
    with reading(fields.mapping(name), name) as axes:
        return (*axes.span("x"), *axes.span("y"))


def _shift_scale_rotate(walk: Walk, fields: Fields) -> None:
    shifts = (*fields.span("shift_limit_x"), *fields.span("shift_limit_y"))
    how: dict[str, Any] = {"degrees": fields.span("rotate_limit"), "translate": shifts}
    _warp(walk, fields, ops.RandomWarp, **how, scale=_scale_range(fields) * 2)


def _rotate(walk: Walk, fields: Fields) -> None:
    fields.expect_false("crop_border")
    _warp(walk, fields, ops.RandomWarp, degrees=fields.span("limit"))


def _perspective(walk: Walk, fields: Fields) -> None:
    if not fields.flag("keep_size", default=True):
        fields.refuse("keep_size", "results in a different size for each image, which is not supported: use true")
    how: dict[str, Any] = {"scale": fields.span("scale")}
    level = fields.take("fill")
    if isinstance(level, int | float) and level and fields.take("border_mode") == 0:
        how["fill"] = (fields.colour("fill", merges=True), 0, 0)  # OpenCV uses a single number for red only
    _warp(walk, fields, ops.RandomWarpPerspective, **how)


_HORIZONTAL, _VERTICAL = (ops.Flip(),), (ops.Flip("vertical"),)

TRANSFORMS: dict[str, Reader] = {
    "Resize": _resize,
    "LongestMaxSize": _max_size("longer"),
    "SmallestMaxSize": _max_size("shorter"),
    "PadIfNeeded": _pad,
    "CenterCrop": lambda walk, fields: walk.add(
        ops.CenterCrop(*_crop_size(walk, fields), rounding="down", smaller="refuse")
    ),
    "Crop": _crop,
    "HorizontalFlip": lambda walk, _: walk.add(ops.Flip()),
    "VerticalFlip": lambda walk, _: walk.add(ops.Flip("vertical")),
    "Transpose": _transpose,
    "InvertImg": lambda walk, _: walk.add_uint8(ops.Invert()),
    "ToGray": _to_gray,
    "ToFloat": _to_float,
    "Normalize": _normalize,
    "ToTensorV2": _to_tensor,
    "RandomRotate90": lambda walk, _: walk.add(ops.RandomChoice(tuple(map(_quarter_turns, range(4))))),
    "D4": lambda walk, _: walk.add(
        ops.RandomChoice(tuple((*_quarter_turns(times), *flip) for times in range(4) for flip in ((), _VERTICAL)))
    ),
    "Flip": lambda walk, _: walk.add(ops.RandomChoice((_VERTICAL, _HORIZONTAL, (*_VERTICAL, *_HORIZONTAL)))),
    "RandomCrop": lambda walk, fields: walk.add(ops.RandomCrop(*_crop_size(walk, fields))),
    "CropNonEmptyMaskIfExists": _crop_around_mask,
    "RandomResizedCrop": _random_resized_crop,
    "RandomScale": lambda walk, fields: walk.add_uint8(
        ops.ScaleJitter(scale_range=_scale_range(fields), filter=filter_of(fields), like="opencv")
    ),
    "GaussianBlur": _gaussian_blur,
    "ColorJitter": lambda walk, fields: walk.add_uint8(
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
"""Functions by transform."""


_SINCE = 2, 0, 8
_MAX_EXACT = 11
"""Maximum kernel size that OpenCV filters directly. Larger ones use a Fourier transform, which rounds differently."""


def _odd(fields: Fields) -> tuple[int, int]:
    """Return the range of ``blur_limit``. As in Albumentations, even sizes are increased by 1, and the minimum is 3."""
    low, high = (max(3, int(size) + (int(size) % 2 == 0)) for size in fields.span("blur_limit"))
    return low, max(low, high)


def _motion_blur(walk: Walk, fields: Fields) -> None:
    size = _odd(fields)
    if size[1] > _MAX_EXACT:
        fields.refuse("blur_limit", f"must be at most {_MAX_EXACT}: OpenCV rounds larger kernels differently")
    shift = (-1.0, 1.0) if fields.flag("allow_shifted", default=True) else (0.0, 0.0)
    walk.add_uint8(ops.MotionBlur(size, fields.span("angle_range"), fields.span("direction_range"), shift, shift))


def _sharpen(walk: Walk, fields: Fields) -> None:
    if fields.text("method", "kernel") != "kernel":
        fields.refuse(
            "method", 'is not supported, because it overflows for dark pixels in Albumentations: use "kernel"'
        )
    fields.ignore("kernel_size", "sigma")
    walk.add_uint8(ops.Sharpen(**fields.each(Fields.span, "alpha", "lightness")))


def _gauss_noise(walk: Walk, fields: Fields) -> None:
    fields.expect("noise_scale_factor", 1, why="enlarges smaller noise, which is not supported: use 1")
    per_channel = fields.flag("per_channel", default=True)
    walk.add_uint8(ops.GaussNoise(fields.span("std_range"), fields.span("mean_range"), per_channel))


def _tone_curve(walk: Walk, fields: Fields) -> None:
    if fields.flag("per_channel"):
        fields.refuse("per_channel", "is not supported, because it applies a separate curve to each channel: use false")
    walk.add_uint8(ops.ToneCurve(std=fields.number("scale")))


def _downscale(walk: Walk, fields: Fields) -> None:
    with reading(fields.mapping("interpolation_pair"), "interpolation_pair") as pair:
        down, up = (pair.choice(name, FILTERS) for name in ("downscale", "upscale"))
    walk.add_uint8(ops.Downscale(fields.span("scale_range"), down, up))  # type: ignore[arg-type]  # OpenCV's filters


def _grid_dropout(walk: Walk, fields: Fields) -> None:
    if fields.has("fill_mask"):
        fields.refuse("fill_mask", "also fills the holes in masks, which is not supported: use null")
    unit = fields.has("unit_size_range") and fields.pair("unit_size_range")
    cells = fields.has("holes_number_xy") and fields.pair("holes_number_xy")
    shift_x, shift_y = (int(each) for each in fields.span("shift_xy"))
    fill, is_random = fields.colour("fill", merges=True), fields.flag("random_offset", default=True)
    # in Albumentations 2.0, the first number of holes_number_xy is the number of rows
    walk.add_uint8(
        ops.GridDropout(fields.number("ratio"), unit or None, cells or None, is_random, (shift_x, shift_y), fill, 1.0)
    )


def _random_sized_crop(walk: Walk, fields: Fields) -> None:
    low, high = (int(side) for side in fields.span("min_max_height"))
    (height, width), ratio = fields.pair("size"), fields.number("w2h_ratio", 1.0, positive=True)
    walk.add_uint8(ops.RandomSizedCrop(height, (low, high), width, ratio, filter=filter_of(fields), like="opencv"))


def _distortion(walk: Walk, fields: Fields, op: type[Any], **how: Any) -> None:
    """Add an op that samples the image with OpenCV's ``remap``."""
    fields.ignore("keypoint_remapping_method")
    found = filter_of(fields)
    filter_: Filter = "bilinear" if found == "area" else found  # remap uses bilinear instead of area
    if filter_ not in ("nearest", "bilinear", "bicubic"):
        fields.refuse("interpolation", "must be 0 (nearest), 1 (bilinear) or 2 (bicubic)")
    level, padding = fields.take("fill"), padding_fields(walk, fields)
    if isinstance(level, int | float) and level and "fill" in padding:
        padding["fill"] = (padding["fill"], 0, 0)  # OpenCV uses a single number for red only
    walk.add_uint8(op(filter=filter_, **padding, **how))


def _grid_distortion(walk: Walk, fields: Fields) -> None:
    how = {"limit": fields.span("distort_limit"), "normalized": fields.flag("normalized", default=True)}
    _distortion(walk, fields, ops.GridDistortion, cells=fields.length("num_steps", 64), **how)


def _optical_distortion(walk: Walk, fields: Fields) -> None:
    model = fields.choice("mode", ("camera", "fisheye"), "camera")
    _distortion(walk, fields, ops.OpticalDistortion, k=fields.span("distort_limit"), model=model)


def _elastic_transform(walk: Walk, fields: Fields) -> None:
    if fields.text("noise_distribution", "gaussian") != "gaussian":
        fields.refuse("noise_distribution", 'is not supported: use "gaussian"')
    size = 17 if fields.flag("approximate") else None
    how = {"kernel_size": size, "same": fields.flag("same_dxdy")} | fields.each(Fields.number, "alpha", "sigma")
    _distortion(walk, fields, ops.ElasticDistortion, **how)


_READERS: dict[str, Reader] = {
    "Blur": lambda walk, fields: walk.add_uint8(ops.BoxBlur(_odd(fields))),
    "MedianBlur": lambda walk, fields: walk.add_uint8(ops.MedianBlur(_odd(fields))),
    "MotionBlur": _motion_blur,
    "Sharpen": _sharpen,
    "CLAHE": lambda walk, fields: walk.add_uint8(ops.Clahe(fields.span("clip_limit"), fields.pair("tile_grid_size"))),
    "RandomGamma": lambda walk, fields: walk.add_uint8(
        ops.Gamma(tuple(limit / 100 for limit in fields.span("gamma_limit")), like="opencv")  # type: ignore[arg-type]
    ),
    "GaussNoise": _gauss_noise,
    "ImageCompression": lambda walk, fields: walk.add_uint8(
        ops.Compression(
            tuple(int(quality) for quality in fields.span("quality_range")),  # type: ignore[arg-type]  # two numbers
            fields.choice("compression_type", ("jpeg", "webp"), "jpeg"),
        )
    ),
    "RandomToneCurve": _tone_curve,
    "ChannelShuffle": lambda walk, _: walk.add_uint8(
        ops.RandomChoice(tuple(ops.PermuteChannels(order) for order in permutations(range(3))))
    ),
    "Downscale": _downscale,
    "GridDropout": _grid_dropout,
    "RandomSizedCrop": _random_sized_crop,
    "GridDistortion": _grid_distortion,
    "OpticalDistortion": _optical_distortion,
    "ElasticTransform": _elastic_transform,
}


def _of_this_version(read: Reader) -> Reader:
    def checked(walk: Walk, fields: Fields) -> None:
        if walk.version < _SINCE:
            raise PipelineError("requires Albumentations 2.0.8 or later: create and save it again with such a version")
        read(walk, fields)

    return checked


EFFECTS: dict[str, Reader] = {name: _of_this_version(read) for name, read in _READERS.items()}
"""Functions by transform."""
