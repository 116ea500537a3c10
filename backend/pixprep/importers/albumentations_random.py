"""Transforms of Albumentations that draw, as ops. ``albumentations`` reads how often each is done."""

from __future__ import annotations

import logging
from collections import Counter
from typing import Any

from pixprep.errors import PipelineError
from pixprep.importers.albumentations_ops import Read, Walk, colour, filter_of, margin, padded, turned
from pixprep.importers.fields import Fields, reading
from pixprep.pipeline import ops
from pixprep.pipeline.ops import ImageOp
from pixprep.pipeline.ops.filters import LEAST_SIGMA, MAX_TAPS
from pixprep.spec import Filter

_NEW_BLUR = 2, 0, 5
_NEW_WARP = 1, 4, 15
_NEW_LEVELS = 1, 4, 10
_NEW_GRAY = 2, 0, 5
log = logging.getLogger(__name__)


def _random_crop(walk: Walk, fields: Fields) -> None:
    walk.move(ops.RandomCrop(*padded(walk, fields)))


def _random_resized_crop(walk: Walk, fields: Fields) -> None:
    scale, ratio = fields.span("scale"), fields.span("ratio")
    is_old = fields.has("height")  # 1.3's names
    size = (fields.side("height"), fields.side("width")) if is_old else fields.pair("size")
    walk.change(ops.RandomResizedCrop(*size, scale, ratio, filter=filter_of(fields), like="opencv"))


def _random_scale(walk: Walk, fields: Fields) -> None:
    low, high = fields.span("scale_limit")
    walk.change(ops.ScaleJitter(scale_range=(1 + low, 1 + high), filter=filter_of(fields), like="opencv"))


def _gaussian_blur(walk: Walk, fields: Fields) -> None:
    """Blur by a kernel of each size that ``blur_limit`` draws: an even one is one more, and 0 follows sigma."""
    if walk.version < _NEW_BLUR:
        raise PipelineError("has another curve before 2.0.5: make it anew with a newer version, and save it again")
    sigma, bounds = fields.span("sigma_limit"), fields.span("blur_limit")
    if sigma[0] < LEAST_SIGMA:
        fields.refuse("sigma_limit", f"must begin at {LEAST_SIGMA} or more: below it nothing is blurred")
    if not 0 <= bounds[0] <= bounds[1] <= MAX_TAPS:
        fields.refuse("blur_limit", f"must rise from 0 to {MAX_TAPS} at most")
    sizes = Counter(size + (size % 2 == 0 and size > 0) for size in range(int(bounds[0]), int(bounds[1]) + 1))
    blurs = [ops.RandomGaussianBlur(size, sigma, like="opencv") for size in sizes]
    walk.change(blurs[0] if len(blurs) == 1 else ops.RandomChoice(tuple(blurs), tuple(sizes.values())))


def _color_jitter(walk: Walk, fields: Fields) -> None:
    how: dict[str, Any] = {name: fields.span(name) for name in ("brightness", "contrast", "saturation", "hue")}
    walk.change(ops.ColorJitter(**how, like="opencv"))


def _brightness_contrast(walk: Walk, fields: Fields) -> None:
    if not fields.flag("brightness_by_max", default=True):
        fields.refuse("brightness_by_max", "follows the image's own mean, on which no draw depends: true does not")
    fields.off("ensure_safe_range")
    brightness, contrast = fields.span("brightness_limit"), fields.span("contrast_limit")
    walk.change(ops.RandomBrightnessContrast(brightness, contrast, 1.0))


def _hue_saturation_value(walk: Walk, fields: Fields) -> None:
    if walk.version < _NEW_LEVELS:
        raise PipelineError("rounds otherwise before 1.4.10: make it anew with 2.0, and save it again")
    if walk.version < _NEW_GRAY:
        log.warning("%s gives gray pixels a colour before 2.0.5, and here none", fields.where)
    hue, saturation, value = (fields.span(f"{name}_shift_limit") for name in ("hue", "sat", "val"))
    walk.change(ops.RandomHueSaturationValue(hue, saturation, value, 1.0))


def _coarse_dropout(walk: Walk, fields: Fields) -> None:
    if fields.has("fill_mask"):
        fields.refuse("fill_mask", "changes masks, which stay what they are here: null does")
    if fields.has("max_holes"):  # 1.3's names
        old = ("holes", "height", "width")
        count, height, width = ((fields.number(f"min_{name}"), fields.number(f"max_{name}")) for name in old)
        if isinstance(fields.take("max_height"), float) and height[1] >= 1:
            fields.refuse("max_height", "must be below 1: a share")
    else:
        count, height, width = (fields.span(f"{name}_range") for name in ("num_holes", "hole_height", "hole_width"))
    whole = int(count[0]), int(count[1])
    walk.change(ops.CoarseDropout(whole, height, width, colour(fields), 1.0))


def _warped(walk: Walk, fields: Fields, op: type[ops.RandomWarp | ops.RandomWarpPerspective], **how: Any) -> None:
    """Warp by OpenCV; of boxes, ``rotate_method`` of corners is what they are here."""
    if walk.version < _NEW_WARP:
        raise PipelineError("has another matrix before 2.0: make it anew with 2.0, and save it again")
    fields.expect("rotate_method", "largest_box", why="makes other boxes: largest_box has the corners' own")
    fields.off("fit_output")
    found = filter_of(fields)
    filter_: Filter = "bilinear" if found == "area" else found  # OpenCV's own rule for warps
    if filter_ not in ("nearest", "bilinear", "bicubic"):
        fields.refuse("interpolation", "must be 0 (nearest), 1 (bilinear) or 2 (bicubic)")
    walk.change(op(**{"filter": filter_, "p": 1.0} | margin(walk, fields) | how))


def _affine(walk: Walk, fields: Fields) -> None:
    fields.off("balanced_scale")
    if fields.has("translate_px"):
        with reading(fields.mapping("translate_px"), "translate_px") as pixels:
            for axis in ("x", "y"):
                if pixels.span(axis) != (0, 0):
                    pixels.refuse(axis, "is in pixels: translate_percent is a part of the image")
    how: dict[str, Any] = {"translate": _axes(fields, "translate_percent")} if fields.has("translate_percent") else {}
    how |= {name: _axes(fields, name) for name in ("scale", "shear")}
    _warped(walk, fields, ops.RandomWarp, degrees=fields.span("rotate"), keep_ratio=fields.flag("keep_ratio"), **how)


def _axes(fields: Fields, name: str) -> tuple[float, ...]:
    """Limits of x, then of y."""
    with reading(fields.mapping(name), name) as axes:
        return (*axes.span("x"), *axes.span("y"))


def _shift_scale_rotate(walk: Walk, fields: Fields) -> None:
    x, y, scale = (fields.span(name) for name in ("shift_limit_x", "shift_limit_y", "scale_limit"))
    scales = (1 + scale[0], 1 + scale[1]) * 2
    _warped(walk, fields, ops.RandomWarp, degrees=fields.span("rotate_limit"), translate=(*x, *y), scale=scales)


def _rotate(walk: Walk, fields: Fields) -> None:
    fields.off("crop_border")
    _warped(walk, fields, ops.RandomWarp, degrees=fields.span("limit"))


def _perspective(walk: Walk, fields: Fields) -> None:
    if not fields.flag("keep_size", default=True):
        fields.refuse("keep_size", "gives each image a size of its own: true keeps it")
    how: dict[str, Any] = {"scale": fields.span("scale")}
    level = fields.take("fill")
    if isinstance(level, int | float) and level and fields.take("border_mode") == 0:
        how["fill"] = (colour(fields), 0, 0)  # OpenCV gets one number, which is red's
    _warped(walk, fields, ops.RandomWarpPerspective, **how)


def _one_of(*lists: tuple[ImageOp, ...]) -> Read:
    """Any of several moves, each as often."""
    return lambda walk, _: walk.move(ops.RandomChoice(lists))


_ACROSS, _DOWN = (ops.Flip(),), (ops.Flip("vertical"),)

RANDOM: dict[str, Read] = {
    "RandomRotate90": _one_of(*map(turned, range(4))),
    "D4": _one_of(*((*turned(times), *flip) for times in range(4) for flip in ((), _DOWN))),
    "Flip": _one_of(_DOWN, _ACROSS, (*_DOWN, *_ACROSS)),
    "RandomCrop": _random_crop,
    "RandomResizedCrop": _random_resized_crop,
    "RandomScale": _random_scale,
    "GaussianBlur": _gaussian_blur,
    "ColorJitter": _color_jitter,
    "RandomBrightnessContrast": _brightness_contrast,
    "HueSaturationValue": _hue_saturation_value,
    "CoarseDropout": _coarse_dropout,
    "Affine": _affine,
    "ShiftScaleRotate": _shift_scale_rotate,
    "Rotate": _rotate,
    "Perspective": _perspective,
}
