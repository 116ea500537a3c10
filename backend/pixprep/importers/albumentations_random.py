"""Transforms of Albumentations that draw, as ops. ``albumentations`` reads how often each is done."""

from __future__ import annotations

from typing import Any

from pixprep.importers.albumentations_ops import Read, Walk, colour, filter_of, padded
from pixprep.importers.fields import Fields
from pixprep.pipeline import ops


def _random_crop(walk: Walk, fields: Fields) -> None:
    walk.move(ops.RandomCrop(*padded(walk, fields)))


def _random_resized_crop(walk: Walk, fields: Fields) -> None:
    scale, ratio = fields.span("scale"), fields.span("ratio")
    walk.change(ops.RandomResizedCrop(*fields.pair("size"), scale, ratio, filter=filter_of(fields), like="opencv"))


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
    hue, saturation, value = (fields.span(f"{name}_shift_limit") for name in ("hue", "sat", "val"))
    walk.change(ops.RandomHueSaturationValue(hue, saturation, value, 1.0))


def _coarse_dropout(walk: Walk, fields: Fields) -> None:
    if fields.has("fill_mask"):
        fields.refuse("fill_mask", "changes masks, which stay what they are here: null does")
    count, height, width = (fields.span(f"{name}_range") for name in ("num_holes", "hole_height", "hole_width"))
    whole = int(count[0]), int(count[1])
    walk.change(ops.CoarseDropout(whole, height, width, colour(fields), 1.0))


RANDOM: dict[str, Read] = {
    "RandomCrop": _random_crop,
    "RandomResizedCrop": _random_resized_crop,
    "ColorJitter": _color_jitter,
    "RandomBrightnessContrast": _brightness_contrast,
    "HueSaturationValue": _hue_saturation_value,
    "CoarseDropout": _coarse_dropout,
}
