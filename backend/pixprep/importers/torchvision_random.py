"""Transforms of torchvision that draw, as ops: of training alone."""

from __future__ import annotations

from math import exp, log
from typing import Any, Literal, get_args

import numpy as np

from pixprep.errors import PipelineError
from pixprep.importers.fields import Fields, finite, reals
from pixprep.importers.torchvision_ops import FILTERS, Take, Walk, as_drawn, colour, drawn_span, margin
from pixprep.pipeline import ops
from pixprep.pipeline.ops import Op
from pixprep.plan.draws.kinds import TorchvisionPolicy

MOVED = {name: filter_ for name, filter_ in FILTERS.items() if filter_ in ("nearest", "bilinear", "bicubic")}
"""The same, of what moves pixels."""


def _random_resized_crop(walk: Walk, fields: Fields) -> None:
    size = fields.pair("size")
    ratio, drawn = fields.span("ratio"), _drawn_ratio(fields)
    if ratio[0] == ratio[1] != drawn[0]:
        fields.refuse(
            "ratio",
            f"must be two numbers, or one that float32 holds: it is drawn as {drawn[0]:.9g}, and "
            "used as it stands where no window fits",
        )
    walk.ops.append(
        ops.RandomResizedCrop(*size, scale=drawn_span(fields, "scale"), ratio=ratio, **walk.resampled(fields))
    )
    walk.size = size


def _random_shortest_size(walk: Walk, fields: Fields) -> None:
    sizes = finite(fields.take("min_size"))
    if not sizes or not all(size.is_integer() for size in sizes):
        fields.refuse("min_size", "must be whole numbers of pixels")
    most = fields.side("max_size") if fields.has("max_size") else None
    walk.ops.append(ops.RandomShortestSize(tuple(map(int, sizes)), most, **walk.resampled(fields)))
    walk.size = None


def _random_resize(walk: Walk, fields: Fields) -> None:
    walk.ops.append(ops.RandomResize(fields.side("min_size"), fields.side("max_size"), **walk.resampled(fields)))
    walk.size = None


def _scale_jitter(walk: Walk, fields: Fields) -> None:
    width, height = fields.pair("target_size")  # in this order
    walk.ops.append(ops.ScaleJitter(height, width, drawn_span(fields, "scale_range"), **walk.resampled(fields)))
    walk.size = None


def _zoom_out(walk: Walk, fields: Fields) -> None:
    span, p = fields.span("side_range"), fields.number("p")
    walk.ops.append(ops.RandomZoomOut(colour(walk, fields), span, p))
    walk.size = None


def _iou_crop(walk: Walk, fields: Fields) -> None:
    ends = ("min_scale", "max_scale", "min_aspect_ratio", "max_aspect_ratio")
    how: dict[str, Any] = {name: fields.number(name) for name in ends}
    walk.ops.append(
        ops.RandomIouCrop(**how, sampler_options=finite(fields.take("options")), trials=fields.whole("trials"))
    )
    walk.size = None


def _random_crop(walk: Walk, fields: Fields) -> None:
    size, padding = fields.pair("size"), fields.take("padding", 0)
    margins: int | tuple[int, ...] = padding if isinstance(padding, int) else tuple(padding) if any(padding) else 0
    if isinstance(margins, tuple) and len(margins) == 4 and walk.is_v2:  # as v2 keeps it: left, right, top, bottom
        margins = (margins[0], margins[2], margins[1], margins[3])
    needs = fields.flag("pad_if_needed")
    how = margin(walk, fields) if margins or needs else {}
    fields.ignore("fill", "padding_mode")
    if margins and needs and how["padding_mode"] in ("reflect", "symmetric") and not walk.is_v2:
        fields.refuse(
            "padding_mode", "of v1 with padding and pad_if_needed mirrors twice, and is not understood: v2 is"
        )
    walk.ops.append(ops.RandomCrop(*size, padding=margins, pad_if_needed=needs, **how))
    walk.size = size


def _random_flip(axis: Literal["horizontal", "vertical"]) -> Take:
    return lambda walk, fields: walk.ops.append(ops.RandomFlip(axis, fields.number("p")))


def _color_jitter(walk: Walk, fields: Fields) -> None:
    how: dict[str, Any] = {"like": walk.levels_like()}
    for name in ("brightness", "contrast", "saturation", "hue"):
        how[name] = drawn_span(fields, name) if fields.has(name) else None
    walk.ops.append(ops.ColorJitter(**how))


def _at_times(cls: type[Op], **named: str) -> Take:
    """A transform of some images, as the op that has a ``p``, too.

    Args:
        cls: of the op.
        named: for a field of the op the transform's.
    """

    def take(walk: Walk, fields: Fields) -> None:
        like = walk.levels_like()
        how: dict[str, Any] = {field: fields.number(name) for field, name in named.items()}
        how = {field: int(value) if value.is_integer() else value for field, value in how.items()}
        how |= {"like": like} if "like" in cls.__struct_fields__ else {}
        how["p"] = fields.number("p")
        if cls is not ops.RandomGray or walk.channels is None:  # one channel stays what it is
            walk.ops.append(cls(**how))

    return take


def _random_rotation(walk: Walk, fields: Fields) -> None:
    degrees, expand = drawn_span(fields, "degrees"), fields.flag("expand")
    walk.ops.append(ops.RandomRotate(degrees, expand, **_turned(walk, fields)))
    walk.size = None if expand else walk.size


def _random_affine(walk: Walk, fields: Fields) -> None:
    translate = fields.span("translate") if fields.has("translate") else None
    scale = drawn_span(fields, "scale") if fields.has("scale") else None
    shear = finite(fields.take("shear")) if fields.has("shear") else None
    if shear:
        shear = (*as_drawn(shear[:2]), *as_drawn(shear[2:]))
    walk.ops.append(ops.RandomAffine(drawn_span(fields, "degrees"), translate, scale, shear, **_turned(walk, fields)))


def _random_perspective(walk: Walk, fields: Fields) -> None:
    how = _filled(walk, fields)
    walk.ops.append(ops.RandomPerspective(fields.number("distortion_scale"), fields.number("p"), **how))


def _photometric_distort(walk: Walk, fields: Fields) -> None:
    how: dict[str, Any] = {name: drawn_span(fields, name) for name in ("brightness", "contrast", "saturation", "hue")}
    walk.ops.append(ops.RandomPhotometricDistort(**how, like=walk.levels_like(), p=fields.number("p")))


def _elastic(walk: Walk, fields: Fields) -> None:
    """Read one of PIL images as one of tensors, which torchvision makes of them; v1 adds a fill up otherwise."""
    how = _moved(walk, fields)
    del how["like"]
    if how["filter"] == "bilinear" and (how["fill"] is None or (any(ops.as_tuple(how["fill"])) and not walk.is_v2)):
        fields.refuse("fill", "gives other edges than an op has, and is not understood: 0 is, and any of v2")
    how["fill"] = how["fill"] or 0
    walk.ops.append(ops.Elastic(fields.span("alpha"), fields.span("sigma"), **how))


def _random_erasing(walk: Walk, fields: Fields) -> None:
    """Erase values of the tensor, once it is float32."""
    fields.ignore("inplace")
    if walk.data == "a PIL image":
        raise PipelineError("takes no PIL image: put it behind ToTensor")
    field = fields.take("value", "random")  # v2 keeps None of it
    value = finite(field)
    if field != "random" and len(value) not in (1, 3):
        fields.refuse("value", 'must be a number, one for each of 3 channels, or "random"')
    walk.normalize(0.0, 1.0)
    scale, ratio = drawn_span(fields, "scale"), _drawn_ratio(fields)
    walk.ops.append(ops.RandomErasing(fields.number("p"), scale, ratio, reals(value) if value else "random"))


def _rand_augment(walk: Walk, fields: Fields) -> None:
    how = _policy(walk, fields)
    walk.ops.append(ops.RandAugment(fields.whole("num_ops"), fields.whole("magnitude"), **how))


def _trivial_augment(walk: Walk, fields: Fields) -> None:
    walk.ops.append(ops.TrivialAugment(**_policy(walk, fields)))


def _auto_augment(walk: Walk, fields: Fields) -> None:
    fields.ignore("policies")  # v1 keeps its table
    policy = fields.choice("policy", get_args(TorchvisionPolicy))
    walk.ops.append(ops.AutoAugment(policy=policy, **_moved(walk, fields)))


def _aug_mix(walk: Walk, fields: Fields) -> None:
    """A PIL image becomes a tensor there, and a PIL image again."""
    if not walk.is_v2:
        raise PipelineError("of v1 rounds as v1 does on tensors, and is not understood: v2 is")
    how = {**_moved(walk, fields), "like": "torchvision"}
    how |= {name: fields.whole(name) for name in ("severity", "mixture_width", "chain_depth")}
    how |= {"alpha": fields.number("alpha"), "all_ops": fields.flag("all_ops")}
    if how["chain_depth"] <= 0:  # any of these is drawn
        how["chain_depth"] = -1
    walk.ops.append(ops.AugMix(**how))


def _policy(walk: Walk, fields: Fields) -> dict[str, Any]:
    return {"num_magnitude_bins": fields.whole("num_magnitude_bins"), **_moved(walk, fields)}


def _turned(walk: Walk, fields: Fields) -> dict[str, Any]:
    """``_filled``, about a point."""
    return {"center": fields.span("center") if fields.has("center") else None, **_filled(walk, fields)}


def _filled(walk: Walk, fields: Fields) -> dict[str, Any]:
    """``_moved``, with a colour."""
    how = _moved(walk, fields)
    if how["fill"] is None:
        if (how["like"], how["filter"]) == ("torchvision", "bilinear"):
            fields.refuse("fill", "gives tensors other edges than 0 does, and is not understood: 0 is")
        how["fill"] = 0
    return how


def _moved(walk: Walk, fields: Fields) -> dict[str, Any]:
    """Fields of an op that moves pixels: ``filter``, ``fill`` and ``like``."""
    fill = colour(walk, fields) if fields.has("fill") else None
    return {"filter": fields.choice("interpolation", MOVED), "fill": fill, "like": walk.levels_like()}


def _drawn_ratio(fields: Fields) -> tuple[float, float]:
    """The same of a ratio, of which PyTorch draws the logarithm."""
    first, last = drawn_span(fields, "ratio")
    if first != last or first <= 0:
        return first, last
    drawn = float(np.float32(exp(np.float32(log(first)))))
    return drawn, drawn


RANDOM: dict[str, Take] = {
    "RandomResizedCrop": _random_resized_crop,
    "RandomShortestSize": _random_shortest_size,
    "RandomResize": _random_resize,
    "ScaleJitter": _scale_jitter,
    "RandomCrop": _random_crop,
    "RandomZoomOut": _zoom_out,
    "RandomIoUCrop": _iou_crop,
    "RandomHorizontalFlip": _random_flip("horizontal"),
    "RandomVerticalFlip": _random_flip("vertical"),
    "ColorJitter": _color_jitter,
    "RandomGrayscale": _at_times(ops.RandomGray),
    "RandomPosterize": _at_times(ops.RandomPosterize, bits="bits"),
    "RandomSolarize": _at_times(ops.RandomSolarize, threshold="threshold"),
    "RandomAutocontrast": _at_times(ops.RandomAutocontrast),
    "RandomEqualize": _at_times(ops.RandomEqualize),
    "RandomInvert": _at_times(ops.RandomInvert),
    "RandomAdjustSharpness": _at_times(ops.RandomSharpness, factor="sharpness_factor"),
    "RandomRotation": _random_rotation,
    "RandomAffine": _random_affine,
    "RandomPerspective": _random_perspective,
    "RandomPhotometricDistort": _photometric_distort,
    "ElasticTransform": _elastic,
    "RandomErasing": _random_erasing,
    "RandAugment": _rand_augment,
    "TrivialAugmentWide": _trivial_augment,
    "AutoAugment": _auto_augment,
    "AugMix": _aug_mix,
}
"""Random transforms, which only training has."""
