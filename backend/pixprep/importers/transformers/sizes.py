"""Imports image processors of transformers that compute the size by their own rule, or split an image into tiles."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np

from pixprep.importers.fields import PILLOW_FILTERS, Fields, sides
from pixprep.importers.transformers.classes import (
    BICUBIC,
    BILINEAR,
    CLIP,
    HALF,
    IMAGENET,
    LANCZOS,
    NONE,
    PAIRS,
    TILES,
    VIDEO,
    class_fields,
)
from pixprep.pipeline.ops import (
    MAX_SIDE,
    CenterCrop,
    ColorIds,
    Constant,
    ImageSize,
    Normalize,
    Op,
    OriginalSize,
    Pad,
    Patches,
    PatchGrid,
    PatchMask,
    Resize,
    ResizeByRule,
    ResizeToPixels,
    ResizeToTiles,
    Tensor,
    TileCount,
    TileGridId,
    TileMask,
    Tiles,
    TileTokenCount,
    TokenCount,
    Trim,
    changed,
)
from pixprep.pipeline.ops.tiles import MAX_TILES
from pixprep.plan.folding import MAX_RESIZED_PIXELS
from pixprep.plan.side_rules import MAX_IDEFICS_SIDE, Rule
from pixprep.plan.tile_grids import grids_of
from pixprep.spec import Filter, Like

MAX_GRANITE_SIDE = 16
"""Maximum numbers of rows and columns in GraniteDocling's grid of tiles."""
MAX_OPEN_SIDE = 4096
"""Maximum height and width of a tensor if the class does not limit the size of an image. Every tensor requires an upper
bound."""


class Branch(NamedTuple):
    """Further ops of a class that returns pixel values in two sizes.

    Attributes:
        source: Name of the op whose image the first of these ops receives.
        geometry: Ops before the normalization.
        outputs: Output ops after the normalization.
        prefix: Prefix of the fields with the mean and the standard deviation of the normalization.
    """

    source: str
    geometry: list[Op]
    outputs: list[Op]
    prefix: str = ""


class Made(NamedTuple):
    """Ops that are equivalent to a configuration of a class, except for the normalization.

    Attributes:
        geometry: Ops before the normalization.
        outputs: Output ops after the normalization.
        branches: Further ops, for a class that returns pixel values in two sizes.
    """

    geometry: list[Op]
    outputs: list[Op]
    branches: tuple[Branch, ...] = ()


PHOTO = "photo"
"""Name of the op ``decode`` in a pipeline with branches."""
Make = Callable[[Fields, Filter, Like], Made]


class Sized(NamedTuple):
    """Description of a supported class.

    Attributes:
        defaults: Values of all fields that a configuration may omit.
        make: Function that returns the ops for the fields of a configuration.
        is_flagged: Whether the class has the flag ``do_resize``, which must then be true.
        crops: Whether ``make`` supports ``do_center_crop``.
        first: Step that precedes the resize: ``rescale``, or ``normalize`` for both rescaling and normalization. The
            resize then receives float32 values. None means that the resize is the first step.
        is_bfloat16: Whether the class rescales and normalizes in bfloat16.
    """

    defaults: dict[str, Any]
    make: Make
    is_flagged: bool = True
    crops: bool = False
    first: Literal["rescale", "normalize"] | None = None
    is_bfloat16: bool = False


def _pixtral(fields: Fields, filter_: Filter, like: Like) -> Made:
    size = _edges(fields, "size", ("longest_edge",), ("height", "width"))
    patch = _edges(fields, "patch_size", ("height", "width"), is_square=True)
    if patch[0] != patch[1]:
        fields.refuse("patch_size", "must have equal height and width")
    width = size[1] if len(size) > 1 and size[1] != size[0] else None
    resize = ResizeByRule(rule="shrink", size=size[0], width=width, multiple=patch[0], filter=filter_, like=like)
    return Made([resize], [ImageSize(dtype="int64", name="image_sizes"), _tensor()])


def _glpn(fields: Fields, filter_: Filter, like: Like) -> Made:
    multiple = fields.length("size_divisor", MAX_SIDE)
    return Made([ResizeByRule(rule="multiple", multiple=multiple, filter=filter_, like=like)], [_tensor(MAX_OPEN_SIDE)])


def _textnet(fields: Fields, filter_: Filter, like: Like) -> Made:
    (size,), multiple = _edges(fields, "size", ("shortest_edge",)), fields.length("size_divisor", MAX_SIDE)
    resize = ResizeByRule(rule="shorter_up", size=size, multiple=multiple, filter=filter_, like=like)
    return Made([resize], [_tensor(max(MAX_OPEN_SIDE, size))])


def _vilt(fields: Fields, filter_: Filter, like: Like) -> Made:
    (size,), multiple = _edges(fields, "size", ("shortest_edge",)), fields.length("size_divisor", MAX_SIDE)
    return Made(
        [ResizeByRule(rule="shorter_down", size=size, multiple=multiple, filter=filter_, like=like)], [_tensor()]
    )


def _bridgetower(fields: Fields, filter_: Filter, like: Like) -> Made:
    made = _vilt(fields, filter_, like)
    if fields.flag("do_center_crop"):
        (window,) = _edges(fields, "crop_size", ("shortest_edge",))
        made.geometry.append(center_crop(window, window, like))
    return made


def _idefics2(fields: Fields, filter_: Filter, like: Like) -> Made:
    size = _edges(fields, "size", ("shortest_edge", "longest_edge"), ("height", "width"))
    if {*fields.mapping("size")} == {"height", "width"}:
        return Made([Resize(height=size[0], width=size[1], filter=filter_, like=like)], [_tensor()])
    resize = ResizeByRule(rule="bounded", size=size[1], min_size=size[0], filter=filter_, like=like)
    return Made([resize], [_tensor()])


def _janus(fields: Fields, filter_: Filter, like: Like) -> Made:
    geometry = _janus_geometry(fields, filter_, like)
    return Made(geometry if fields.flag("do_pad") else geometry[:1], [_tensor()])


def _janus_geometry(fields: Fields, filter_: Filter, like: Like, prefix: str = "", name: str | None = None) -> list[Op]:
    """Return a resize, and a pad to a square in the color of the mean. ``name`` is the name of the pad."""
    field = f"{prefix}size"
    size, least = _edges(fields, field, ("height", "width"), is_square=True), fields.length("min_size", MAX_SIDE)
    if size[0] != size[1] or least > size[0]:
        fields.refuse(field, "must have equal height and width, and not be smaller than min_size")
    return [
        ResizeByRule(rule="longer_even", size=size[0], min_size=least, filter=filter_, like=like),
        Pad(height=size[0], width=size[0], fill=_mean_colour(fields, prefix), name=name),
    ]


def _janus_hybrid(fields: Fields, filter_: Filter, like: Like) -> Made:
    """Return the ops of DeepSeek-VL's hybrid class, which resizes the padded image again."""
    if not fields.flag("do_pad"):
        fields.refuse("do_pad", "must be true")
    high: Filter = fields.choice("high_res_resample", PILLOW_FILTERS)
    if high == "nearest":  # the PIL backend replaces 0 by the value of "resample"
        high = filter_ if like == "pillow" else "nearest_exact"
    padded = _janus_geometry(fields, high, like, "high_res_", "padded")
    small = _janus_geometry(fields, filter_, like)[0]  # the padded image is square, so it is not padded again
    return Made(
        [*padded, changed(small, again=True)],
        [_tensor()],
        (Branch("padded", [], [Tensor(name="high_res_pixel_values")], "high_res_"),),
    )


def _aria(fields: Fields, filter_: Filter, like: Like) -> Made:
    fields.expect_false("do_resize")
    size, least = fields.length("max_image_size", MAX_SIDE), fields.length("min_image_size", MAX_SIDE)
    if size not in (490, 980):
        fields.refuse("max_image_size", "must be 490 or 980")
    if least > size:
        fields.refuse("min_image_size", f"must not exceed max_image_size, {size}")
    resize = ResizeByRule(rule="longer", size=size, min_size=least, filter=filter_, like=like)
    return Made([resize, Pad(height=size, width=size, anchor="top_left")], [_tensor()])


def _maskformer(fields: Fields, filter_: Filter, like: Like) -> Made:
    if fields.has("pad_size"):
        fields.refuse("pad_size")
    size = _edges(fields, "size", ("shortest_edge", "longest_edge"), ("height", "width"))
    multiple = fields.take("size_divisor", 0) or 1
    if type(multiple) is not int or not 1 <= multiple <= MAX_SIDE:
        fields.refuse("size_divisor", f"must be an integer of 0 to {MAX_SIDE}")
    if {*fields.mapping("size")} == {"height", "width"}:
        height, width = (-(-side // multiple) * multiple for side in size)
        return Made([Resize(height=height, width=width, filter=filter_, like=like)], [_tensor()])
    resize = ResizeByRule(rule="detr", size=size[0], max_size=size[1], multiple=multiple, filter=filter_, like=like)
    return Made([resize], [_tensor()])


def _perceiver(fields: Fields, filter_: Filter, like: Like) -> Made:
    size = _edges(fields, "size", ("height", "width"), is_square=True)
    ops: list[Op] = [Resize(height=size[0], width=size[1], filter=filter_, like=like)]
    if fields.flag("do_center_crop"):
        crop = _edges(fields, "crop_size", ("height", "width"), is_square=True)
        fraction = size[0] / crop[0]
        if fraction != size[1] / crop[1] or fraction > 1:
            fields.refuse("crop_size", "must be at least size, and have the same ratio to it on both sides")
        ops.insert(0, CenterCrop(fraction=fraction, rounding="down", smaller="refuse"))
    return Made(ops, [_tensor()])


def _lcnet(fields: Fields, filter_: Filter, like: Like) -> Made:
    size, multiple = fields.length("resize_short", MAX_SIDE), fields.length("size_divisor", MAX_SIDE)
    ops: list[Op] = [ResizeByRule(rule="shorter_even", size=size, multiple=multiple, filter=filter_, like=like)]
    if not fields.flag("do_center_crop"):
        return Made(ops, [_tensor(max(MAX_OPEN_SIDE, size))])
    height, width = _edges(fields, "crop_size", ("height", "width"), is_square=True)
    return Made([*ops, center_crop(height, width, like)], [_tensor()])


def _dinov3(fields: Fields, filter_: Filter, like: Like) -> Made:
    del like
    size = _edges(fields, "size", ("height", "width"), ("shortest_edge",), is_square=True)
    if not fields.flag("do_rescale"):
        fields.refuse("do_rescale", "must be true: the class resizes the rescaled values")
    how: dict[str, Any] = {"filter": float_filter(fields, filter_), "like": "torch_float"}
    resize = Resize(height=size[0], width=size[1], **how) if len(size) > 1 else Resize(size=size[0], **how)
    return Made([resize], [_tensor(None if len(size) > 1 else MAX_OPEN_SIDE)])


def _interpolated(fields: Fields, filter_: Filter, like: Like, *, is_float: bool) -> dict[str, Any]:
    """Return the fields of a resize without antialiasing. It receives float32 values if ``is_float`` is true."""
    if is_float:
        return {"filter": float_filter(fields, filter_), "like": "torch_float", "antialias": False}
    return {"filter": filter_, "like": like, "antialias": False}


def _depth_pro(fields: Fields, filter_: Filter, like: Like) -> Made:
    size = _edges(fields, "size", ("height", "width"), is_square=True)
    how = _interpolated(fields, filter_, like, is_float=fields.flag("do_rescale") or fields.flag("do_normalize"))
    return Made([Resize(height=size[0], width=size[1], **how)], [_tensor()])


def _rf_detr(fields: Fields, filter_: Filter, like: Like) -> Made:
    if fields.has("pad_size"):
        fields.refuse("pad_size")
    if fields.flag("do_normalize") and not fields.flag("do_rescale"):
        fields.refuse("do_normalize", 'requires "do_rescale": transformers raises an error without it')
    how = _interpolated(fields, filter_, like, is_float=fields.flag("do_rescale"))
    size = _edges(fields, "size", ("shortest_edge", "longest_edge"), ("height", "width"))
    if {*fields.mapping("size")} == {"height", "width"}:
        return Made([Resize(height=size[0], width=size[1], **how)], [_tensor()])
    return Made([Resize(size=size[0], max_size=size[1], rounding="detr", **how)], [_tensor()])


def _layout_v4(fields: Fields, filter_: Filter, like: Like) -> Made:
    size = _edges(fields, "size", ("height", "width"), is_square=True)
    if fields.flag("do_pad") or fields.has("pad_size"):
        fields.refuse("do_pad")
    how = _interpolated(fields, filter_, like, is_float=fields.flag("do_rescale"))
    geometry: list[Op] = [Resize(height=size[0], width=size[1], **how)]
    if fields.flag("do_rescale"):
        geometry.append(Normalize(scale=1.0, arithmetic="multiply", clip=True))
    return Made(geometry, [_tensor()])


def _uvdoc(fields: Fields, filter_: Filter, like: Like) -> Made:
    del filter_, like
    if not (fields.flag("do_rescale") or fields.flag("do_normalize")):
        fields.refuse("do_rescale", "or do_normalize must be true: the class resizes float32 values")
    height, width = _edges(fields, "size", ("height", "width"), is_square=True)
    return Made([Resize(height=height, width=width, filter="bilinear", like="torch_corners")], [_tensor()])


def _zoedepth(fields: Fields, filter_: Filter, like: Like) -> Made:
    del like
    if not fields.flag("do_rescale"):
        fields.refuse("do_rescale", "must be true: the class resizes the rescaled values")
    height, width = _edges(fields, "size", ("height", "width"), is_square=True)
    multiple = fields.take("ensure_multiple_of")
    is_part = multiple == 1 / 32
    if not is_part and (type(multiple) is not int or not 1 <= multiple <= min(height, width)):
        fields.refuse("ensure_multiple_of", "must be 1/32, or an integer from 1 to the smallest side of size")
    how: dict[str, Any] = {"filter": float_filter(fields, filter_), "like": "torch_corners"}
    pads: list[Op] = [Pad(root=3.0, padding_mode="reflect")] if fields.flag("do_pad") else []
    if fields.flag("keep_aspect_ratio"):
        rule: Rule = "nearer_32" if is_part else "nearer"
        wide = None if width == height else width
        resize: Op = ResizeByRule(rule=rule, size=height, width=wide, multiple=1 if is_part else multiple, **how)
    else:
        rows, columns = (int(round(side / multiple) * multiple) for side in (height, width))
        resize = Resize(height=rows, width=columns, **how)
    return Made([*pads, resize], [_tensor(None if isinstance(resize, Resize) else MAX_OPEN_SIDE)])


def _owlv2(fields: Fields, filter_: Filter, like: Like) -> Made:
    """Return the ops of OWLv2, whose PIL backend interprets ``resample`` as the flag for antialiasing."""
    del like
    if not fields.flag("do_rescale"):
        fields.refuse("do_rescale", "must be true: the class resizes the rescaled values")
    height, width = _edges(fields, "size", ("height", "width"), is_square=True)
    resize = Resize(height=height, width=width, like="scipy", antialias=filter_ != "nearest")
    pads: list[Op] = [Pad(square=True, anchor="top_left")] if fields.flag("do_pad") else []
    return Made([*pads, resize], [_tensor()])


def _swin2sr(fields: Fields, filter_: Filter, like: Like) -> Made:
    del filter_, like
    if fields.has("pad_size"):
        fields.refuse("pad_size")
    for flag in ("do_normalize", "do_resize"):
        fields.expect_false(flag)
    ops: list[Op] = []
    if fields.flag("do_pad"):
        multiple = fields.length("size_divisor", MAX_SIDE)
        ops.append(Pad(multiple=multiple, always="both", anchor="top_left", padding_mode="symmetric"))
    return Made(ops, [_tensor(MAX_OPEN_SIDE)])


def _inkling(fields: Fields, filter_: Filter, like: Like) -> Made:
    for field in ("rescale_image_frac", "do_resize"):
        fields.expect(field, None, why="is not supported unless it is null")
    patch, width = _edges(fields, "size", ("height", "width"))
    if patch != width:
        fields.refuse("size", "must have equal height and width")
    size = ResizeByRule(rule="keep", size=MAX_OPEN_SIDE, filter=filter_, like=like)
    outputs: list[Op] = [
        Patches(patch, temporal_patch_size=2, layout="hwc", flat=False, name="pixel_values"),
        TokenCount(patch, name="num_patches"),
    ]
    return Made([size, Pad(multiple=patch, always="width", anchor="top_left", value=-1.0)], outputs)


def _pair(fields: Fields, filter_: Filter, like: Like) -> Made:
    fields.expect_false("do_normalize")
    if fields.flag("do_grayscale") and not fields.flag("do_rescale"):
        fields.refuse("do_grayscale", 'requires "do_rescale"')
    height, width = _edges(fields, "size", ("height", "width"))
    return Made([Resize(height=height, width=width, filter=filter_, like=like)], [_tensor()])


def _slanext(fields: Fields, filter_: Filter, like: Like) -> Made:
    del filter_, like
    height, width = _edges(fields, "size", ("height", "width"), is_square=True)
    size = max(height, width)
    resize = ResizeByRule(rule="longer_even", size=size, filter="bilinear", like="slanext")
    if not fields.flag("do_pad"):
        return Made([resize], [_tensor()])
    canvas = _edges(fields, "pad_size", ("height", "width"), is_square=True) if fields.has("pad_size") else (0, 0)
    if min(canvas) < size:
        fields.refuse("pad_size", f"must have a height and a width of at least {size}")
    return Made([resize], [Tensor(min_height=canvas[0], min_width=canvas[1], name="pixel_values")])


def _text_detector(fields: Fields, filter_: Filter, like: Like) -> Made:
    del like
    rules: dict[str, Rule] = {"max": "text_max", "min": "text_min", "resize_long": "text_long"}
    resize = ResizeByRule(
        rule=fields.choice("limit_type", rules),
        size=fields.length("limit_side_len", MAX_SIDE),
        max_size=fields.length("max_side_limit", MAX_SIDE),
        multiple=32,
        filter=float_filter(fields, filter_),
        like="torch_float",
    )
    return Made([resize], [OriginalSize(dtype="float32", name="target_sizes"), _tensor()])


def float_filter(fields: Fields, filter_: Filter) -> Filter:
    """Return the filter of a resize of float32 values."""
    if filter_ not in ("bilinear", "bicubic"):
        fields.refuse("resample", "must be 2 or 3 for this class, which resizes float32 values")
    return filter_


def _recognizer(fields: Fields, filter_: Filter, like: Like, *, is_float: bool) -> Made:
    height, width = _edges(fields, "size", ("height", "width"), is_square=True)
    if not fields.flag("do_pad") or _edges(fields, "pad_size", ("height", "width")) != (height, width):
        fields.refuse("pad_size", "must be equal to size, and do_pad must be true")
    most = fields.length("max_image_width", MAX_SIDE)
    if most <= width:
        fields.refuse("max_image_width", f"must be greater than the width of size, {width}")
    how: dict[str, Any] = {"filter": filter_, "antialias": False, "like": like}
    if is_float:
        how = {"filter": float_filter(fields, filter_), "like": "torch_float"}
    resize = Resize(height=height, max_size=most, rounding="up", up_to=width, **how)
    return Made([resize], [Tensor(min_width=width, name="pixel_values")])


def _paddle(fields: Fields, filter_: Filter, like: Like) -> Made:
    size = _edges(fields, "size", ("height", "width"), is_square=True)
    return Made([Resize(height=size[0], width=size[1], filter=filter_, like=like, antialias=False)], [_tensor()])


def _inside(fields: Fields, filter_: Filter, like: Like) -> Made:
    height, width = _edges(fields, "size", ("max_height", "max_width"))
    resize = ResizeByRule(
        rule="contain", size=height, width=None if width == height else width, filter=filter_, like=like
    )
    if not fields.flag("do_pad"):
        return Made([resize], [_tensor()])
    canvas = _edges(fields, "pad_size", ("height", "width")) if fields.has("pad_size") else (0, 0)
    if canvas[0] < height or canvas[1] < width:
        fields.refuse("pad_size", "must have a height and a width, at least max_height and max_width of size")
    return Made([resize], [Tensor(min_height=canvas[0], min_width=canvas[1], name="pixel_values")])


def _tiled(fields: Fields, filter_: Filter, like: Like, family: Literal["got", "ovis", "cohere", "granite"]) -> Made:
    """Return the ops of a class that splits an image into tiles.

    ``family`` is ``got`` for GOT-OCR 2 and InternVL, ``ovis`` for Ovis 2, ``cohere`` for Command A Vision, or
    ``granite`` for GraniteDocling.
    """
    size = _edges(fields, "size", ("height", "width"), is_square=True)
    if not fields.flag("crop_to_patches"):
        whole: list[Op] = [_tensor()]
        if family == "ovis":
            whole.append(Constant((1, 1), name="grids"))
        elif family != "granite":
            whole.append(Constant((1,), name="num_patches"))
        return Made([Resize(height=size[0], width=size[1], filter=filter_, like=like)], whole)
    if size[0] != size[1]:
        fields.refuse("size", 'must have equal height and width if "crop_to_patches" is true')
    most = fields.length("max_patches", MAX_TILES)
    is_ovis = family == "ovis"
    covers = is_ovis and fields.flag("use_covering_area_grid")
    fewest = 1 if covers or family == "cohere" else fields.length("min_patches", most)
    tiles: dict[str, Any] = {"tile_size": size[0], "thumbnail": "first" if is_ovis else "last"}
    choices: dict[str, Any] = {"max_tiles": most, "min_tiles": fewest}
    if family == "granite":
        grids = tuple(grid for grid in grids_of(fewest, most, "aspect_ratio") if max(grid) <= MAX_GRANITE_SIDE)
        if not grids:
            fields.refuse(
                "min_patches", f"and max_patches allow no grid of at most {MAX_GRANITE_SIDE} rows and columns"
            )
        choices = {"grids": grids}
    resize = ResizeToTiles(
        tile_size=size[0],
        **choices,
        choose="coverage" if covers else "scale" if family == "cohere" else "aspect_ratio",
        filter=filter_,
        like=like,
    )
    outputs: list[Op] = [Tiles(**tiles, name="pixel_values")]
    if is_ovis:
        outputs.append(PatchGrid(size[0], name="grids"))
    elif family != "granite":
        outputs.append(TileCount(**tiles, name="num_patches"))
    return Made([resize], outputs)


def _idefics3(fields: Fields, filter_: Filter, like: Like) -> Made:
    (size,), (tile,) = _edges(fields, "size", ("longest_edge",)), _edges(fields, "max_image_size", ("longest_edge",))
    how: dict[str, Any] = {"filter": filter_, "like": like}
    resizes: list[Op] = [
        ResizeByRule(
            rule="idefics3_capped",
            size=size,
            multiple=tile,
            max_tiles=fields.length("max_image_tiles", MAX_TILES),
            **how,
        )
        if fields.has("max_image_tiles")
        else ResizeByRule(rule="idefics3", size=size, **how),
        ResizeByRule(rule="up", multiple=tile, again=True, **how),
    ]
    outputs: list[Op] = [Tiles(tile_size=tile, thumbnail="last", thumbnail_of="tiles", name="pixel_values")]
    if fields.flag("do_pad"):
        outputs.append(TileMask(tile_size=tile, thumbnail="last", name="pixel_attention_mask"))
    return Made(resizes, outputs)


def _smolvlm_clip(fields: Fields, filter_: Filter, like: Like) -> Made:
    (size,), (tile,) = _edges(fields, "size", ("longest_edge",)), _edges(fields, "max_image_size", ("longest_edge",))
    how: dict[str, Any] = {"filter": filter_, "like": like}
    resizes: list[Op] = [
        ResizeByRule(rule="idefics3", size=min(size, MAX_IDEFICS_SIDE), **how),
        ResizeByRule(rule="square", size=tile, again=True, **how),
    ]
    return Made(resizes, [])


def _donut(fields: Fields, filter_: Filter, like: Like) -> Made:
    height, width = _edges(fields, "size", ("height", "width"), is_square=True)
    how: dict[str, Any] = {"filter": filter_, "like": like}
    ops: list[Op] = [Resize(size=min(height, width), **how)]
    if not (fields.flag("do_thumbnail") and fields.flag("do_pad")):
        fields.refuse("do_thumbnail", "and do_pad must be true")
    if filter_ == "nearest" and like == "pillow":  # the number of this filter is 0, which the class reads as unset
        how["filter"] = "bicubic"
    ops.append(ResizeByRule(rule="thumbnail", size=height, width=width, again=True, **how))
    return Made([*ops, Pad(height=height, width=width)], [_tensor()])


def _image_gpt(fields: Fields, filter_: Filter, like: Like) -> Made:
    height, width = _edges(fields, "size", ("height", "width"), is_square=True)
    geometry: list[Op] = [Resize(height=height, width=width, filter=filter_, like=like)]
    if not fields.flag("do_color_quantize"):
        return Made(geometry, [_tensor()])
    if not (fields.flag("do_rescale") or fields.flag("do_normalize")):
        fields.refuse("do_color_quantize", 'requires "do_rescale" or "do_normalize"')
    clusters = fields.take("clusters")
    if not isinstance(clusters, list | tuple) or not clusters or any(np.shape(each) != (3,) for each in clusters):
        fields.refuse("clusters", "must be a list of colors with three numbers each")
    colors = tuple((float(red), float(green), float(blue)) for red, green, blue in clusters)
    return Made(
        geometry,
        [ColorIds(colors=colors, arithmetic="float64" if like == "pillow" else "float32", name="input_ids")],
    )


def _nougat(fields: Fields, filter_: Filter, like: Like) -> Made:
    made = _donut(fields, filter_, like)
    height, width = _edges(fields, "size", ("height", "width"), is_square=True)
    is_pillow = like == "pillow"
    rule: Rule = "thumbnail_gap" if is_pillow else "thumbnail"  # the PIL backend passes reducing_gap=2
    bicubic = ResizeByRule(rule=rule, size=height, width=width, again=True, filter="bicubic", like=like)
    trim = Trim(threshold=200, like="pillow" if is_pillow else "torchvision")
    return made._replace(
        geometry=[*([trim] if fields.flag("do_crop_margin") else []), made.geometry[0], bicubic, *made.geometry[2:]]
    )


def _emu3(fields: Fields, filter_: Filter, like: Like) -> Made:
    least, most = (fields.length(field, MAX_RESIZED_PIXELS) for field in ("min_pixels", "max_pixels"))
    if fields.mapping("size") not in ({}, {"min_pixels": least, "max_pixels": most}):
        fields.refuse("size", "must be equal to min_pixels and max_pixels")
    multiple = fields.length("spatial_factor", MAX_SIDE)
    resize = ResizeToPixels(multiple=multiple, min_pixels=least, max_pixels=most, filter=filter_, like=like)
    return Made([resize], [ImageSize(dtype="int64", name="image_sizes"), _tensor()])


def _fuyu(fields: Fields, filter_: Filter, like: Like) -> Made:
    height, width = _edges(fields, "size", ("height", "width"), is_square=True)
    resize = ResizeByRule(
        rule="contain_down", size=height, width=None if width == height else width, filter=filter_, like=like
    )
    ops: list[Op] = [resize]
    if fields.flag("do_pad"):
        fill = fields.number("padding_value")
        if fill not in range(256):
            fields.refuse("padding_value", "must be an integer from 0 to 255")
        fields.expect("padding_mode", "constant", why='is not supported unless it is "constant"')
        ops.append(Pad(height=height, width=width, fill=int(fill), anchor="top_left"))
    return Made(ops, [OriginalSize(dtype="int64", name="image_sizes"), Tensor(name="images")])


def _tvp(fields: Fields, filter_: Filter, like: Like) -> Made:
    size = _edges(fields, "size", ("longest_edge",), ("height", "width"))
    how: dict[str, Any] = {"filter": filter_, "like": like}
    ops: list[Op] = [
        Resize(height=size[0], width=size[1], **how)
        if len(size) > 1
        else ResizeByRule(rule="longer_down", size=size[0], **how)
    ]
    if fields.flag("do_center_crop"):
        size = _edges(fields, "crop_size", ("height", "width"), is_square=True)
        ops.append(center_crop(size[0], size[1], like))
    if not fields.flag("do_pad"):
        return Made(ops, [_tensor()])
    canvas = _edges(fields, "pad_size", ("height", "width"), is_square=True)
    if min(canvas) < max(size):
        fields.refuse("pad_size", "must not be smaller than the result of the resize and the crop")
    fields.expect("constant_values", 0, why="is not supported unless it is 0")
    return Made(ops, [Tensor(min_height=canvas[0], min_width=canvas[1], name="pixel_values")])


def _video_llava(fields: Fields, filter_: Filter, like: Like, *, name: str = "pixel_values_images") -> Made:
    size = _edges(fields, "size", ("height", "width"), ("shortest_edge",))
    how: dict[str, Any] = {"filter": filter_, "like": like}
    ops: list[Op] = [Resize(height=size[0], width=size[1], **how) if len(size) > 1 else Resize(size=size[0], **how)]
    if fields.flag("do_center_crop"):
        crop = _edges(fields, "crop_size", ("height", "width"), is_square=True)
        ops.append(center_crop(crop[0], crop[1], like))
    return Made(ops, [Tensor(name=name)])


def _llava(fields: Fields, filter_: Filter, like: Like) -> Made:
    size = _edges(fields, "size", ("height", "width"), ("shortest_edge",), is_square=True)
    tile = size[0]
    if len({*size}) > 1:
        fields.refuse("size", "must have equal height and width")
    if fields.flag("do_center_crop") and not fields.has("crop_size"):
        fields.refuse("crop_size", 'must be set if "do_center_crop" is true')
    if fields.has("crop_size") and _edges(fields, "crop_size", ("height", "width"), is_square=True) != (tile, tile):
        fields.refuse("crop_size", f"must have the height and width of size, {tile}")
    points = fields.take("image_grid_pinpoints")
    is_list = isinstance(points, list | tuple) and all(isinstance(each, list | tuple) for each in points)
    if not is_list or not points or any(len(sides(each)) != 2 for each in points):
        fields.refuse("image_grid_pinpoints", "must be a list of pairs of a height and a width")
    grids = tuple((height // tile, width // tile) for height, width in points)
    if any(
        each != (rows * tile, columns * tile) for each, (rows, columns) in zip(map(tuple, points), grids, strict=True)
    ):
        fields.refuse(
            "image_grid_pinpoints",
            f"must contain only multiples of size, {tile}: from other sizes, the class cuts tiles of "
            "different sizes, and resizes each tile a second time, which is not supported",
        )
    resize = ResizeToTiles(tile_size=tile, grids=grids, choose="resolution", fit="center", filter=filter_, like=like)
    tiles = Tiles(tile_size=tile, thumbnail="first", thumbnail_of_one=True, name="pixel_values")
    return Made([resize], [tiles, OriginalSize(dtype="int64", name="image_sizes")])


def _mllama(fields: Fields, filter_: Filter, like: Like) -> Made:
    tile = _edges(fields, "size", ("height", "width"), is_square=True)
    if tile[0] != tile[1]:
        fields.refuse("size", "must have equal height and width")
    if not fields.flag("do_pad"):
        fields.refuse("do_pad", "must be true")
    most = fields.length("max_image_tiles", MAX_TILES)
    sides = range(1, most + 1)
    grids = tuple((rows, columns) for rows in sides for columns in sides if rows * columns <= most)
    resize = ResizeToTiles(tile_size=tile[0], grids=grids, choose="scale", fit="top_left", filter=filter_, like=like)
    return Made(
        [resize],
        [
            Tiles(tile_size=tile[0], max_tiles=most, name="pixel_values"),
            TileGridId(name="aspect_ratio_ids"),
            PatchMask(tile[0], max_patches=most, dtype="int64", name="aspect_ratio_mask"),
            TileCount(tile_size=tile[0], name="num_tiles"),
        ],
    )


def _llama4(fields: Fields, filter_: Filter, like: Like) -> Made:
    if fields.flag("do_normalize") and not fields.flag("do_rescale"):
        fields.refuse("do_normalize", 'requires "do_rescale": transformers raises an error without it')
    tile = _edges(fields, "size", ("height", "width"), is_square=True)
    if tile[0] != tile[1]:
        fields.refuse("size", "must have equal height and width")
    most = fields.length("max_patches", MAX_TILES)
    by_ratio: dict[float, list[tuple[int, int]]] = {}
    for count in range(most, 0, -1):
        for rows in (rows for rows in range(1, count + 1) if count % rows == 0):
            by_ratio.setdefault(rows / (count // rows), []).append((rows, count // rows))
    resize = ResizeToTiles(
        tile_size=tile[0],
        grids=tuple(grid for grids in by_ratio.values() for grid in grids),
        choose="max_scale32" if fields.flag("resize_to_max_canvas") else "scale32",
        fit="top_left32",
        filter=filter_,
        like=like,
    )
    tiles = Tiles(tile_size=tile[0], thumbnail="last", name="pixel_values")
    return Made([resize], [tiles, PatchGrid(tile[0], name="aspect_ratios")])


def _phi4(fields: Fields, filter_: Filter, like: Like) -> Made:
    if not fields.flag("do_rescale"):
        fields.refuse("do_rescale", "must be true: the class computes the thumbnail from float32 values")
    tile = _edges(fields, "size", ("height", "width"), is_square=True)
    patch, most = fields.length("patch_size", MAX_SIDE), fields.length("dynamic_hd", MAX_TILES)
    if tile[0] != tile[1] or tile[0] % patch:
        fields.refuse("size", f"must have equal height and width, which must be a multiple of patch_size, {patch}")
    resize = ResizeToTiles(
        tile_size=tile[0], max_tiles=most, choose="unscaled", fit="inside", fill=255, filter="bilinear", like=like
    )
    place: dict[str, Any] = {"tile_size": tile[0], "thumbnail": "first", "thumbnail_of_one": True}
    values: Any = float_filter(fields, filter_)
    outputs: list[Op] = [
        Tiles(**place, thumbnail_of="values", thumbnail_filter=values, name="image_pixel_values"),
        ImageSize(dtype="int64", name="image_sizes"),
        TileMask(**place, patch_size=patch, dtype="float32", name="image_attention_mask"),
        TileTokenCount(tile[0], patch, name="num_img_tokens"),
    ]
    return Made([resize], outputs)


def _perception(fields: Fields, filter_: Filter, like: Like) -> Made:
    tile = fields.length("tile_size", MAX_SIDE)
    if fields.take("vision_input_type") != "thumb+tile":
        return Made([Resize(height=tile, width=tile, filter=filter_, like=like)], [_tensor()])
    most = fields.length("max_num_tiles", MAX_TILES)
    resize = ResizeToTiles(tile_size=tile, max_tiles=most, choose="canvas", filter=filter_, like=like)
    return Made([resize], [Tiles(tile_size=tile, thumbnail="first", thumbnail_of_one=True, name="pixel_values")])


def _deepseek_ocr(fields: Fields, filter_: Filter, like: Like, *, is_unlimited: bool) -> Made:
    """Return the ops of DeepSeek-OCR 2 or Unlimited-OCR: the whole image, and the tiles of a large image."""
    size = _edges(fields, "size", ("height", "width"), is_square=True)
    tile, splits = fields.length("tile_size", MAX_SIDE), fields.flag("crop_to_patches")
    whole = (max(size) if is_unlimited else size[0]) if splits or is_unlimited else tile
    colour = fields.take("background_color")
    if not isinstance(colour, list | tuple) or len(colour) != 3 or any(each not in range(256) for each in colour):
        fields.refuse("background_color", "must be three integers from 0 to 255")
    how: dict[str, Any] = {"filter": filter_, "like": like}
    undivided: list[Op] = [_tensor(), Constant((0,), name="num_local_patches")]
    if is_unlimited:
        undivided.append(Constant((1, 1), name="patches_grid"))
    if is_unlimited and not splits and whole <= fields.length("maximum_pad_value", MAX_SIDE):
        return Made([Resize(height=whole, width=whole, **how)], undivided)
    geometry: list[Op] = [
        ResizeByRule(rule="longer_even", size=whole, **how),
        Pad(height=whole, width=whole, fill=tuple(colour)),
    ]
    if not splits:
        return Made(geometry, undivided)
    most = fields.length("max_patches", MAX_TILES)
    fewest = fields.length("min_patches", most)
    if fewest < 2:
        fields.refuse("min_patches", "must be at least 2 for this class")
    resize = ResizeToTiles(tile_size=tile, min_tiles=fewest, max_tiles=most, keep_small=True, **how)
    numbers: list[Op] = [
        Tiles(tile_size=tile, omit_one=True, name="pixel_values_local"),
        TileCount(tile_size=tile, omit_one=True, name="num_local_patches"),
    ]
    if is_unlimited:
        numbers.append(PatchGrid(tile, order="wh", name="patches_grid"))
    return Made(geometry, [_tensor()], (Branch(PHOTO, [resize], numbers),))


_DIVISOR = {"size_divisor": 32}
_MASKS = class_fields((1, 1), BILINEAR, IMAGENET, default_to_square=False, do_reduce_labels=False) | {
    "size": {"shortest_edge": 800, "longest_edge": 1333},
    "num_labels": None,
    "ignore_index": None,
}
_JANUS = class_fields((384, 384), BICUBIC, CLIP, do_pad=True, min_size=14)
_DEEPSEEK_OCR = class_fields((1024, 1024), BICUBIC, HALF, do_convert_rgb=True, background_color=[127, 127, 127]) | {
    "crop_to_patches": True,
    "min_patches": 2,
    "max_patches": 6,
    "tile_size": 768,
}
_PADDLE = class_fields((800, 800), BICUBIC, ((0, 0, 0), (1, 1, 1)))
_TEXT = class_fields((48, 320), BILINEAR, HALF, do_convert_rgb=True, do_pad=True, max_image_width=3200) | {
    "pad_size": {"height": 48, "width": 320},
    "character_list": [],
}
_IDEFICS = class_fields((1, 1), LANCZOS, HALF, do_convert_rgb=True, do_pad=True, do_image_splitting=True) | {
    "size": {"longest_edge": 4 * 364},
    "max_image_size": {"longest_edge": 364},
    "return_row_col_info": False,
}
_NOUGAT = {"default_to_square": True, "do_pad": True} | {
    "do_crop_margin": True,
    "do_thumbnail": True,
    "do_align_long_axis": False,
}
_ONEVISION = [[384 * rows, 384 * columns] for rows in range(1, 7) for columns in range(1, 7)]
_NEXT = [[336, 672], [672, 336], [672, 672], [1008, 336], [336, 1008]]

SIZED: dict[str, Sized] = {
    "AriaImageProcessor": Sized(
        class_fields((1, 1), BICUBIC, HALF, do_convert_rgb=True, do_resize=None)
        | {"size": None, "split_image": False, "split_resolutions": None, "max_image_size": 980, "min_image_size": 336},
        _aria,
        is_flagged=False,
    ),
    "BridgeTowerImageProcessor": Sized(
        class_fields((288,), BICUBIC, CLIP, do_center_crop=True, do_pad=True)
        | {"crop_size": {"shortest_edge": 288}, **_DIVISOR},
        _bridgetower,
        crops=True,
    ),
    "Cohere2VisionImageProcessor": Sized(
        class_fields((512, 512), BICUBIC, CLIP, do_convert_rgb=True) | TILES | {"crop_to_patches": True},
        partial(_tiled, family="cohere"),
    ),
    "DINOv3ViTImageProcessor": Sized(class_fields((224, 224), BILINEAR, IMAGENET), _dinov3, first="rescale"),
    "DeepseekOcr2ImageProcessor": Sized(_DEEPSEEK_OCR, partial(_deepseek_ocr, is_unlimited=False)),
    "DeepseekVLHybridImageProcessor": Sized(
        _JANUS
        | {"high_res_size": {"height": 1024, "width": 1024}, "high_res_resample": BICUBIC}
        | {"high_res_image_mean": CLIP[0], "high_res_image_std": CLIP[1]},
        _janus_hybrid,
    ),
    "DeepseekVLImageProcessor": Sized(_JANUS, _janus),
    "DepthProImageProcessor": Sized(class_fields((1536, 1536), BILINEAR, HALF), _depth_pro, first="normalize"),
    "DonutImageProcessor": Sized(
        class_fields((2560, 1920), BILINEAR, HALF, do_pad=True, do_thumbnail=True, do_align_long_axis=False), _donut
    ),
    **dict.fromkeys(
        PAIRS,
        Sized(
            class_fields((480, 640), BILINEAR, NONE, default_to_square=False, do_normalize=None, do_grayscale=True),
            _pair,
        ),
    ),
    "EomtImageProcessor": Sized(
        _MASKS
        | {"size": {"shortest_edge": 640, "longest_edge": 640}, "do_split_image": False, "do_pad": False}
        | {"do_reduce_labels": None},
        _maskformer,
    ),
    "Emu3ImageProcessor": Sized(
        class_fields((1, 1), BICUBIC, CLIP, do_convert_rgb=True, spatial_factor=8)
        | {"size": {"min_pixels": 512 * 512, "max_pixels": 1024 * 1024}}
        | {"min_pixels": 512 * 512, "max_pixels": 1024 * 1024, "ratio": None, "image_area": None},
        _emu3,
    ),
    "FuyuImageProcessor": Sized(
        class_fields((1080, 1920), BILINEAR, NONE, do_pad=True, padding_value=1.0, padding_mode="constant")
        | {"patch_size": {"height": 30, "width": 30}, "image_mean": 0.5, "image_std": 0.5},
        _fuyu,
    ),
    "GLPNImageProcessor": Sized(
        class_fields((1, 1), BILINEAR, NONE, do_normalize=None) | {"size": None, **_DIVISOR}, _glpn
    ),
    "GotOcr2ImageProcessor": Sized(
        class_fields((384, 384), BICUBIC, CLIP, do_convert_rgb=True) | TILES, partial(_tiled, family="got")
    ),
    "GraniteDoclingImageProcessor": Sized(
        class_fields((512, 512), BICUBIC, CLIP, do_convert_rgb=True)
        | {"crop_to_patches": True, "min_patches": 1, "max_patches": 32, "fine_route": False}
        | {"dense_max_patches": 0, "dense_max_scale": 0.0, "dense_min_aspect": 0.0, "dense_max_aspect": 0.0},
        partial(_tiled, family="granite"),
    ),
    "Idefics2ImageProcessor": Sized(
        class_fields((1,), BILINEAR, HALF, do_convert_rgb=True, do_pad=True, do_image_splitting=False)
        | {"size": {"shortest_edge": 378, "longest_edge": 980}},
        _idefics2,
    ),
    "Idefics3ImageProcessor": Sized(_IDEFICS, _idefics3),
    "ImageGPTImageProcessor": Sized(
        class_fields((256, 256), BILINEAR, HALF, do_color_quantize=True) | {"clusters": None}, _image_gpt
    ),
    "InklingImageProcessor": Sized(
        class_fields((40, 40), LANCZOS, CLIP, do_convert_rgb=True, default_to_square=False, do_resize=None)
        | {"rescale_image_frac": None, "rescale_image_max_upscaled_long_edge": 2048},
        _inkling,
        is_flagged=False,
    ),
    "JanusImageProcessor": Sized(_JANUS, _janus),
    "Llama4ImageProcessor": Sized(
        class_fields((336, 336), BILINEAR, HALF, do_convert_rgb=True, max_patches=16, resize_to_max_canvas=False),
        _llama4,
        is_bfloat16=True,
    ),
    "LlavaNextImageProcessor": Sized(
        class_fields((224,), BICUBIC, CLIP, 224, do_convert_rgb=True, do_pad=True, image_grid_pinpoints=_NEXT),
        _llava,
        crops=True,
    ),
    "LlavaOnevisionImageProcessor": Sized(
        class_fields((384, 384), BICUBIC, CLIP, do_convert_rgb=True, do_pad=True, default_to_square=False)
        | {"image_grid_pinpoints": _ONEVISION},
        _llava,
        crops=True,
    ),
    "Mask2FormerImageProcessor": Sized(_MASKS | _DIVISOR, _maskformer),
    "MaskFormerImageProcessor": Sized(_MASKS | _DIVISOR, _maskformer),
    "MllamaImageProcessor": Sized(
        class_fields((224, 224), BILINEAR, HALF, do_convert_rgb=True, do_pad=True, max_image_tiles=4), _mllama
    ),
    "NougatImageProcessor": Sized(class_fields((896, 672), BILINEAR, IMAGENET) | _NOUGAT, _nougat),
    "OneFormerImageProcessor": Sized(
        _MASKS
        | {"do_convert_rgb": True, "repo_path": "shi-labs/oneformer_demo", "class_info_file": None, "num_text": None},
        _maskformer,
    ),
    "Ovis2ImageProcessor": Sized(
        class_fields((384, 384), BICUBIC, CLIP, do_convert_rgb=True, use_covering_area_grid=True) | TILES,
        partial(_tiled, family="ovis"),
    ),
    "PI0ImageProcessor": Sized(
        class_fields((1, 1), BICUBIC, HALF, do_convert_rgb=True, do_pad=True, default_to_square=False)
        | {"size": {"max_height": 224, "max_width": 224}, "pad_size": {"height": 224, "width": 224}},
        _inside,
    ),
    "PPLCNetImageProcessor": Sized(
        class_fields((256, 256), BILINEAR, ((0.406, 0.456, 0.485), (0.225, 0.224, 0.229)), do_center_crop=True)
        | {"crop_size": 224, "resize_short": 256, "size_divisor": 1},
        _lcnet,
        crops=True,
    ),
    "PPFormulaNetImageProcessor": Sized(
        class_fields((768, 768), BILINEAR, ((0.7931,) * 3, (0.1738,) * 3)) | _NOUGAT, _nougat
    ),
    "PPDocLayoutV2ImageProcessor": Sized(_PADDLE, _paddle),
    "PPDocLayoutV3ImageProcessor": Sized(_PADDLE, _paddle),
    "PPDocLayoutV4ImageProcessor": Sized(_PADDLE, _layout_v4, first="rescale"),
    "PPOCRV5ServerDetImageProcessor": Sized(
        class_fields((960, 960), BILINEAR, ((0.406, 0.456, 0.485), (0.225, 0.224, 0.229)), limit_side_len=960)
        | {"limit_type": "max", "max_side_limit": 4000},
        _text_detector,
    ),
    "PPOCRV5ServerRecImageProcessor": Sized(_TEXT, partial(_recognizer, is_float=True)),
    "PPOCRV6SmallRecImageProcessor": Sized(_TEXT, partial(_recognizer, is_float=False)),
    "PerceiverImageProcessor": Sized(class_fields((224, 224), BICUBIC, IMAGENET, 256), _perceiver, crops=True),
    "PerceptionLMImageProcessor": Sized(
        class_fields((448, 448), BICUBIC, HALF, do_convert_rgb=True)
        | {"vision_input_type": "thumb+tile", "tile_size": 448, "max_num_tiles": 36},
        _perception,
    ),
    "Phi4MultimodalImageProcessor": Sized(
        class_fields((448, 448), BICUBIC, HALF, do_convert_rgb=True, do_resize=None, patch_size=14, dynamic_hd=36),
        _phi4,
        is_flagged=False,
    ),
    "PixtralImageProcessor": Sized(
        class_fields((1, 1), BICUBIC, CLIP, do_convert_rgb=True, do_pad=True)
        | {"size": {"longest_edge": 1024}, "patch_size": {"height": 16, "width": 16}},
        _pixtral,
    ),
    "RfDetrImageProcessor": Sized(
        class_fields((1, 1), BILINEAR, IMAGENET, default_to_square=False, do_pad=True, max_size=None)
        | {"size": {"shortest_edge": 800, "longest_edge": 1333}},
        _rf_detr,
        first="rescale",
    ),
    "SLANeXtImageProcessor": Sized(
        class_fields((512, 512), BILINEAR, IMAGENET, do_convert_rgb=True, do_pad=True)
        | {"pad_size": {"height": 512, "width": 512}},
        _slanext,
    ),
    "SmolVLMImageProcessor": Sized(_IDEFICS, _idefics3),
    "Swin2SRImageProcessor": Sized(
        class_fields((1, 1), BILINEAR, NONE, do_resize=None, do_normalize=None, do_pad=True, size_divisor=8)
        | {"size": None, "resample": None, "default_to_square": True},
        _swin2sr,
        is_flagged=False,
    ),
    "TextNetImageProcessor": Sized(
        class_fields((640,), BILINEAR, IMAGENET, 224, do_center_crop=False, do_convert_rgb=True, **_DIVISOR), _textnet
    ),
    "TvpImageProcessor": Sized(
        class_fields((1,), BILINEAR, HALF, 448, do_pad=True, constant_values=0, pad_mode="constant")
        | {"size": {"longest_edge": 448}, "pad_size": {"height": 448, "width": 448}, "do_flip_channel_order": True},
        _tvp,
        crops=True,
    ),
    "UVDocImageProcessor": Sized(
        class_fields((712, 488), BILINEAR, NONE, do_normalize=None), _uvdoc, first="normalize"
    ),
    "UltraVBertImageProcessor": Sized(
        _IDEFICS | {"size": {"longest_edge": 3072}, "max_image_size": {"longest_edge": 512}, "max_image_tiles": 27},
        _idefics3,
    ),
    "UnlimitedOcrImageProcessor": Sized(
        _DEEPSEEK_OCR | {"max_patches": 32, "tile_size": 640, "maximum_pad_value": 640},
        partial(_deepseek_ocr, is_unlimited=True),
    ),
    "VideoLlavaImageProcessor": Sized(
        class_fields((224,), BICUBIC, CLIP, 224, do_convert_rgb=True, default_to_square=True), _video_llava, crops=True
    ),
    "VivitImageProcessor": Sized(
        class_fields((256,), BILINEAR, HALF, 224, rescale_factor=1 / 127.5, offset=True, do_convert_rgb=None)
        | {"default_to_square": True},
        partial(_video_llava, name="pixel_values"),
        crops=True,
    ),
    "Owlv2ImageProcessor": Sized(
        class_fields((960, 960), BILINEAR, CLIP, do_convert_rgb=True, do_pad=True), _owlv2, first="rescale"
    ),
    "ViltImageProcessor": Sized(class_fields((384,), BICUBIC, HALF, do_pad=True, **_DIVISOR), _vilt),
    "ZoeDepthImageProcessor": Sized(
        class_fields((384, 512), BILINEAR, HALF, do_pad=True, keep_aspect_ratio=True, ensure_multiple_of=1 / 32),
        _zoedepth,
        first="rescale",
    ),
}
"""Supported classes, by name."""
VIDEO_SIZED = {
    "SmolVLMVideoProcessor": Sized(
        class_fields((1, 1), LANCZOS, HALF, do_pad=True, default_to_square=True, **VIDEO)
        | {"size": {"longest_edge": 4 * 364}, "max_image_size": {"longest_edge": 364}},
        _smolvlm_clip,
    ),
}
"""Supported video processors that resize frames by a formula, by name."""


def sized(fields: Fields, processor: str, filter_: Filter, like: Like) -> Made:
    """Return the ops that are equivalent to a configuration of a class in ``SIZED``.

    Args:
        fields: Fields of the configuration, with the defaults of the class for omitted fields.
        processor: Name of the class.
        filter_: Filter of the resize.
        like: Library whose resize the class calls.

    Raises:
        PipelineError: A field is not supported.
    """
    row = (SIZED | VIDEO_SIZED)[processor]
    if row.is_flagged and not fields.flag("do_resize"):
        fields.refuse("do_resize", f"is not supported for {processor}")
    if row.defaults["size"] is not None and not fields.has("size"):
        fields.refuse("size", "must be set")
    if not row.crops:
        fields.expect_false("do_center_crop")
    return row.make(fields, filter_, like)


def is_float(fields: Fields, processor: str, like: Like) -> bool:
    """Return whether a class in ``SIZED`` returns float32 even if it neither rescales nor normalizes.

    This is the case if it copies the pixel values to an array of zeros, which pads the images of a batch.

    Args:
        fields: Fields of the configuration, with the defaults of the class for omitted fields.
        processor: Name of the class.
        like: Library whose resize the class calls.
    """
    resizes_floats = ("DINOv3ViTImageProcessor", "PPOCRV5ServerDetImageProcessor", "PPOCRV5ServerRecImageProcessor")
    if processor in ("InklingImageProcessor", "MllamaImageProcessor", "PPDocLayoutV4ImageProcessor", *resizes_floats):
        return True
    if processor == "GraniteDoclingImageProcessor":
        return like == "pillow"
    is_copied = processor in (
        *("Idefics2ImageProcessor", "Idefics3ImageProcessor", "SmolVLMImageProcessor", "UltraVBertImageProcessor"),
    )
    return is_copied and like == "torchvision" and fields.flag("do_pad")


def center_crop(height: int, width: int, like: Like) -> CenterCrop:
    """Return the centre crop of a backend.

    Both backends round the offset of the crop down. If the image is smaller than the crop, the image is padded. The
    torchvision backend rounds the padding at the top and on the left down, but the PIL backend rounds it up.
    """
    return CenterCrop(height, width, rounding="down", padding_rounding="up" if like == "pillow" else None)


def _tensor(max_size: int | None = None) -> Tensor:
    return Tensor(name="pixel_values", max_size=max_size)


def _edges(fields: Fields, field: str, *spellings: tuple[str, ...], is_square: bool = False) -> tuple[int, ...]:
    """Return the edge lengths of a size in the configuration.

    Args:
        fields: Fields of the configuration.
        field: Name of the field that contains the size.
        spellings: Accepted sets of keys. The lengths are returned in the order of the keys.
        is_square: Whether the field may be a single number for a height and a width that are equal.

    Raises:
        PipelineError: The field does not have one of these sets of keys, or a length is invalid.
    """
    value = fields.take(field)
    if is_square and type(value) is int:
        value = {"height": value, "width": value}
    if isinstance(value, dict):
        edges = {key: side for key, side in value.items() if side is not None}
        for keys in spellings:
            if edges.keys() == {*keys} and (found := sides([edges[key] for key in keys])):
                return found
    words = ", or ".join(" and ".join(keys) for keys in spellings)
    fields.refuse(field, f"must have {words}, from 1 to {MAX_SIDE} pixels")
    raise AssertionError


def _mean_colour(fields: Fields, prefix: str = "") -> tuple[int, ...]:
    """Return the fill color of the padding, which is the mean in pixel values, truncated to integers."""
    field = f"{prefix}image_mean"
    if not fields.has(field):
        return (127, 127, 127)
    mean = fields.numbers(field)
    levels = tuple(int(value * 255) for value in mean) if isinstance(mean, tuple) else ()
    if len(levels) != 3 or not all(0 <= level <= 255 for level in levels):
        fields.refuse(field, "must be three numbers from 0 to 1, because it is also the padding color")
    return levels
