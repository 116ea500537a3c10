"""Imports image processors of transformers that return patches, which vision-language models require.

``PATCHED`` describes each supported class by the defaults of its fields, its rule for the size of an image, and the
layout of its patches.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import sqrt
from typing import Any

from pixprep.importers.fields import Fields
from pixprep.importers.transformers.classes import BICUBIC, BILINEAR, CLIP, HALF, LANCZOS, VIDEO, class_fields
from pixprep.importers.transformers.sizes import MAX_OPEN_SIDE, Made, float_filter
from pixprep.pipeline.ops import (
    MAX_SIDE,
    ImageSize,
    Normalize,
    Op,
    Pad,
    Patches,
    PatchGrid,
    PatchMask,
    PatchPositions,
    ResizeByRule,
    ResizeToPatches,
    ResizeToPixels,
    ResizeToSlices,
    SliceCount,
    SliceGrids,
    SliceMask,
    SlicePatches,
    TokenCount,
)
from pixprep.pipeline.ops.tiles import MAX_TILES
from pixprep.plan.folding import MAX_RESIZED_PIXELS
from pixprep.plan.sizes import Small
from pixprep.spec import Filter, Like

MAX_PATCH, MAX_COUNT = 1024, 1 << 20
SOFT_TOKENS = (70, 140, 280, 560, 1120)
"""Numbers of image tokens that Gemma 4 supports."""


@dataclass(frozen=True)
class Patched:
    """Description of a class that returns patches.

    Attributes:
        defaults: Values of the fields that a configuration may omit.
        small: Rule for small images, as in the op ``resize_to_pixels``.
        counts_frames: Whether the limits apply to the total number of pixels in the frames of a patch or clip, instead
            of to each frame.
        is_merged: Whether the patches of a merge window are adjacent in the output.
        layout: Order of the values within a patch, as in the op ``patches``.
        is_flat: Whether the values of a patch form a single axis of the output.
        filter: Filter that the class uses instead of the field ``resample``. None means that the class uses
            ``resample``.
        max_ratio: Maximum ratio of the longer to the shorter side of an image.
        is_float: Whether the PIL backend converts pixel values to float32 even without a normalization.
        is_halved: Whether the size is computed by the rule ``half`` of ``resize_by_rule``, as in GLM-Image.
        overrides_size: Whether the fields ``min_pixels`` and ``max_pixels`` replace the numbers in ``size``.
        has_resize: Whether the resize is the only op before the patches. Such a resize is omitted if ``do_resize`` is
            false.
        is_always_float: Whether the torchvision backend returns float32 even without a normalization.
        patch_field: Field with the edge length of a patch, or with the equal height and width of a patch.
        is_standardized: Whether the class normalizes an image by its own mean and standard deviation before the resize.
    """

    defaults: dict[str, Any]
    small: Small = "keep"
    counts_frames: bool = False
    is_merged: bool = True
    layout: Any = "chw"
    is_flat: bool = True
    filter: Any = None
    max_ratio: float = 200.0
    is_float: bool = True
    is_halved: bool = False
    overrides_size: bool = True
    has_resize: bool = True
    is_always_float: bool = False
    patch_field: str = "patch_size"
    is_standardized: bool = False


def _qwen(
    mean_std: Any = CLIP,
    *,
    least: int = 56 * 56,
    most: int = 28 * 28 * 1280,
    patch: int = 14,
    frames: int = 2,
    merge: int = 2,
    has_pixels: bool = False,
    **others: Any,
) -> dict[str, Any]:
    """Return the default fields of a class that limits the number of pixels of an image.

    Args:
        mean_std: Mean and standard deviation of each channel.
        least: Minimum number of pixels of a resized image.
        most: Maximum number of pixels of a resized image.
        patch: Edge length of a patch in pixels.
        frames: Number of frames in a patch.
        merge: Edge length of a merge window in patches.
        has_pixels: Whether the class has the fields ``min_pixels`` and ``max_pixels``.
        others: Default values of further fields.
    """
    pixels = dict.fromkeys(("min_pixels", "max_pixels"))
    return class_fields((1, 1), BICUBIC, mean_std, default_to_square=False, do_convert_rgb=True) | {
        "size": {"shortest_edge": least, "longest_edge": most},
        "patch_size": patch,
        "temporal_patch_size": frames,
        "merge_size": merge,
        **(pixels if has_pixels else {}),
        **others,
    }


_GEMMA = class_fields((1, 1), BICUBIC, ((0.0,) * 3, (1.0,) * 3), do_convert_rgb=True, do_normalize=False) | {
    "size": None,
    "patch_size": 16,
    "max_soft_tokens": 280,
    "pooling_kernel_size": 3,
}
_MINICPM = class_fields((1, 1), BICUBIC, HALF, do_convert_rgb=True, patch_size=14, max_slice_nums=9) | {
    "size": None,
    "scale_resolution": 448,
    "slice_mode": True,
    "downsample_mode": "16x",
    "use_image_id": True,
}
_PIX2STRUCT = {
    **dict.fromkeys(class_fields((1,), BILINEAR, HALF)),
    "do_convert_rgb": True,
    "do_normalize": True,
    "default_to_square": True,
    "patch_size": {"height": 16, "width": 16},
    "max_patches": 2048,
}
_GLM = _qwen(least=112 * 112, most=28 * 28 * 15000)
PATCHED: dict[str, Patched] = {
    "CohereCompassImageProcessor": Patched(_qwen(has_pixels=True)),
    "Cosmos3EdgeImageProcessor": Patched(
        _qwen(HALF, least=256 * 256, most=4096 * 4096, patch=16, frames=1),
        small="truncate",
        counts_frames=True,
        layout="hwc",
        overrides_size=False,
    ),
    "Ernie4_5_VLMoeImageProcessor": Patched(_qwen(most=28 * 28 * 6177, frames=1), overrides_size=False),
    "Glm46VImageProcessor": Patched(_GLM, small="truncate", counts_frames=True, overrides_size=False),
    "Glm4vImageProcessor": Patched(_GLM, small="truncate", counts_frames=True, overrides_size=False),
    "GlmgaImageProcessor": Patched(
        _GLM | {"patch_expand_factor": 1}, small="truncate", counts_frames=True, overrides_size=False
    ),
    "HunYuanVLImageProcessor": Patched(
        _qwen(least=512 * 512, most=2048 * 2048, patch=16, frames=1, spatial_patch_size=1, has_pixels=True),
        is_merged=False,
        filter="bicubic",
    ),
    "Gemma4ImageProcessor": Patched(_GEMMA, layout="hwc", is_float=False, is_merged=False),
    "Gemma4UnifiedImageProcessor": Patched(_GEMMA, layout="hwc", is_float=False),
    "Glm5NextImageProcessor": Patched(
        _qwen(patch_expand_factor=1, min_image_tokens=16, max_image_tokens=8000) | {"size": {"longest_edge": 1}}
    ),
    "GlmImageImageProcessor": Patched(_qwen(has_pixels=True), is_halved=True),
    "Inkling2ImageProcessor": Patched(
        class_fields((40, 40), BICUBIC, HALF, do_convert_rgb=True) | dict.fromkeys(("do_resize", "resample")),
        layout="hwc",
        is_flat=False,
        has_resize=False,
        is_always_float=True,
        patch_field="size",
    ),
    "Kimi_K25ImageProcessor": Patched(
        class_fields((1, 1), BICUBIC, HALF, do_convert_rgb=True, patch_size=14, merge_size=2, max_patches=16384)
        | {"size": {"max_height": 512, "max_width": 512}},
        is_flat=False,
    ),
    "Kosmos2_5ImageProcessor": Patched(
        _PIX2STRUCT | {"max_patches": 4096}, layout="hwc", has_resize=False, is_standardized=True
    ),
    "Pix2StructImageProcessor": Patched(
        _PIX2STRUCT | {"is_vqa": False}, layout="hwc", has_resize=False, is_standardized=True
    ),
    "Lfm2VlImageProcessor": Patched(
        class_fields((512, 512), BILINEAR, HALF, do_pad=True, return_row_col_info=False, do_image_splitting=True)
        | {"downsample_factor": 2, "min_tiles": 2, "max_tiles": 10, "use_thumbnail": True, "tile_size": 512}
        | {"min_image_tokens": 64, "max_image_tokens": 256, "encoder_patch_size": 16, "max_pixels_tolerance": 2.0}
        | {"default_to_square": True},
        layout="hwc",
        has_resize=False,
        patch_field="encoder_patch_size",
    ),
    "MiniCPMOcrImageProcessor": Patched(
        _MINICPM | {"downsample_mode": "4x", "small_image_upsize": "always"}, has_resize=False, is_always_float=True
    ),
    "MiniCPMV4_6ImageProcessor": Patched(_MINICPM, has_resize=False, is_always_float=True, is_float=False),
    "MiniMaxM3VLImageProcessor": Patched(_qwen(least=4 * 28 * 28, most=451584, has_pixels=True)),
    "MuseGlimmerImageProcessor": Patched(
        _qwen(HALF, max_image_tokens=4096) | {"size": None, "resample": LANCZOS}, layout="tchw"
    ),
    "NeoMMEImageProcessor": Patched(
        class_fields((1, 1), BILINEAR, HALF, do_convert_rgb=True) | {"size": None, "patch_size": 32, "max_side": None},
        layout="hwc",
        is_float=False,
        has_resize=False,
    ),
    "NemotronH_Omni_Reasoning_V3ImageProcessor": Patched(
        class_fields((1, 1), BICUBIC, CLIP, do_convert_rgb=True, do_resize=None, patch_size=16, downsample_ratio=0.5)
        | {"size": None, "min_num_patches": 1024, "max_num_patches": 13312, "max_model_len": 16384},
        is_merged=False,
        has_resize=False,
        is_always_float=True,
    ),
    "PaddleOCRVLImageProcessor": Patched(
        _qwen(least=384 * 384, most=1536 * 1536, frames=1, has_pixels=True),
        small="round",
        is_merged=False,
        is_flat=False,
    ),
    "Qwen2VLImageProcessor": Patched(_qwen(has_pixels=True)),
    "Siglip2ImageProcessor": Patched(
        class_fields((1, 1), BILINEAR, HALF, default_to_square=True)
        | {"size": None, "patch_size": 16, "max_num_patches": 256},
        layout="hwc",
        is_float=False,
    ),
    "VideoLlama3ImageProcessor": Patched(_qwen(HALF, frames=1, merge=1, has_pixels=True)),
}
"""Supported classes that return patches, by name."""

_QWEN_VIDEO = VIDEO | {"min_frames": 4, "max_frames": 768, "cap_pixels_per_frame": None, "default_to_square": True}
VIDEO_PATCHED: dict[str, Patched] = {
    "Qwen2VLVideoProcessor": Patched(
        _qwen(least=128 * 28 * 28, most=28 * 28 * 768, has_pixels=True, **_QWEN_VIDEO) | {"max_video_tokens": 128000}
    ),
    "Qwen3VLVideoProcessor": Patched(
        _qwen(HALF, least=128 * 32 * 32, most=32 * 32 * 768, patch=16, **_QWEN_VIDEO)
        | {"do_sample_frames": True, "fps": 2, "max_video_tokens": 768},
        small="truncate",
        counts_frames=True,
        overrides_size=False,
    ),
}
"""Supported video processors that return patches, by name."""


def patched(fields: Fields, processor: str, filter_: Filter, like: Like) -> Made:
    """Return the resize ops and the output ops of a class that returns patches.

    Args:
        fields: Fields of the configuration, with the defaults of the class for omitted fields.
        processor: Name of the class.
        filter_: Filter of the resize.
        like: Library whose resize the class calls.

    Raises:
        PipelineError: A field is not supported.
    """
    row = (PATCHED | VIDEO_PATCHED)[processor]
    sides = fields.take(row.patch_field)
    if isinstance(sides, Mapping):
        patch = Fields(sides, fields.where).length("height", MAX_PATCH)
        if sides != {"height": patch, "width": patch}:
            fields.refuse(row.patch_field, "must have equal height and width")
    else:
        patch = fields.length(row.patch_field, MAX_PATCH)
    made = _FAMILIES.get(processor, _by_pixels)(fields, row, patch, row.filter or filter_, like)
    return made if fields.flag("do_resize") or not row.has_resize else made._replace(geometry=[])


def _siglip(fields: Fields, row: Patched, patch: int, filter_: Filter, like: Like) -> Made:
    count = fields.length("max_num_patches", MAX_COUNT)
    outputs: list[Op] = [
        Patches(patch, max_patches=count, layout=row.layout, name="pixel_values"),
        PatchMask(patch, max_patches=count, name="pixel_attention_mask"),
        PatchGrid(patch, max_patches=count, name="spatial_shapes"),
    ]
    return Made([ResizeToPatches(patch_size=patch, max_patches=count, filter=filter_, like=like)], outputs)


def _gemma(fields: Fields, row: Patched, patch: int, filter_: Filter, like: Like) -> Made:
    merge, tokens = fields.length("pooling_kernel_size", 64), fields.choice("max_soft_tokens", SOFT_TOKENS)
    count = tokens * merge**2
    if filter_ == "nearest_exact":  # the class calls torchvision's resize itself, without the mapping of transformers
        filter_ = "nearest"
    resize = ResizeToPatches(
        rule="gemma", patch_size=patch, merge_size=merge, max_patches=count, filter=filter_, like=like
    )
    if row.is_merged:  # the patches of a merge window form one larger patch
        patch, merge, count = patch * merge, 1, tokens
    outputs: list[Op] = [
        Patches(patch, max_patches=count, layout=row.layout, name="pixel_values"),
        PatchPositions(patch, max_patches=count, name="image_position_ids"),
        TokenCount(patch, merge, max_patches=count, name="num_soft_tokens_per_image"),
    ]
    return Made([resize], outputs)


def _kimi(fields: Fields, row: Patched, patch: int, filter_: Filter, like: Like) -> Made:
    merge, count = fields.length("merge_size", 64), fields.length("max_patches", MAX_COUNT)
    most = fields.mapping("size").get("max_height")
    if type(most) is not int or not 1 <= most <= MAX_SIDE:
        fields.refuse("size", f"must have max_height, the maximum number of patches of a side, from 1 to {MAX_SIDE}")
    resize = ResizeToPatches(rule="kimi", patch_size=patch, max_patches=count, max_side=most, filter=filter_, like=like)
    outputs: list[Op] = [
        Patches(patch, flat=row.is_flat, name="pixel_values"),
        PatchGrid(patch, order="thw", name="image_grid_thw"),
    ]
    return Made([resize, Pad(multiple=patch * merge, anchor="top_left")], outputs)


def _muse(fields: Fields, row: Patched, patch: int, filter_: Filter, like: Like) -> Made:
    merge, frames = fields.length("merge_size", 64), fields.length("temporal_patch_size", 64)
    count = fields.length("max_image_tokens", MAX_COUNT // merge**2) * merge**2
    resize = ResizeToPatches(
        rule="muse", patch_size=patch, merge_size=merge, max_patches=count, filter=filter_, like=like
    )
    outputs: list[Op] = [
        Patches(patch, temporal_patch_size=frames, layout=row.layout, name="pixel_values"),
        PatchGrid(patch, order="thw", name="image_grid_thw"),
    ]
    return Made([resize], outputs)


def _neomme(fields: Fields, row: Patched, patch: int, filter_: Filter, like: Like) -> Made:
    for field in ("size", "max_side"):
        fields.expect(field, None, why="is not supported unless it is null")
    size = ResizeByRule(rule="keep", size=MAX_OPEN_SIDE, filter=filter_, like=like)
    return Made(
        [size, Pad(multiple=patch, anchor="top_left")],
        [Patches(patch, layout=row.layout, name="pixel_values"), PatchGrid(patch, name="image_grid_hw")],
    )


def _nemotron(fields: Fields, row: Patched, patch: int, filter_: Filter, like: Like) -> Made:
    del like
    merge = _rounded_inverse(fields, "downsample_ratio")
    least, most = fields.length("min_num_patches", MAX_COUNT), fields.length("max_num_patches", MAX_COUNT)
    if (fields.length("max_model_len", 1 << 30) - 4) * merge**2 < most:
        fields.refuse("max_model_len", "must be large enough that only max_num_patches limits the number of patches")
    size = ResizeToPatches(
        rule="nemotron",
        patch_size=patch,
        merge_size=merge,
        min_patches=least,
        max_patches=max(least, most),
        filter=float_filter(fields, filter_),
        like="torch_float",
    )
    return Made(
        [size], [Patches(patch, layout=row.layout, name="pixel_values"), PatchGrid(patch, name="image_grid_hw")]
    )


def _rounded_inverse(fields: Fields, field: str) -> int:
    """Return the inverse of a field, rounded to an integer. It is the edge length of a merge window in patches."""
    ratio = fields.number(field)
    if not 1 / 64 <= ratio <= 1:
        fields.refuse(field, "must be a number from 1/64 to 1")
    return round(1 / ratio)


def _glm5(fields: Fields, row: Patched, patch: int, filter_: Filter, like: Like) -> Made:
    merge, frames = fields.length("merge_size", 64), fields.length("temporal_patch_size", 64)
    window = merge
    if like == "torchvision":  # the PIL backend ignores this field
        window *= fields.length("patch_expand_factor", 64 // merge)
    least, most = (fields.length(f"{end}_image_tokens", MAX_COUNT // window**2) * window**2 for end in ("min", "max"))
    resize = ResizeToPatches(
        rule="glm5",
        patch_size=patch,
        merge_size=window,
        min_patches=least,
        max_patches=most,
        filter=filter_,
        like=like,
    )
    outputs: list[Op] = [
        Patches(patch, merge, temporal_patch_size=frames, layout=row.layout, name="pixel_values"),
        PatchGrid(patch, merge, order="thw", name="image_grid_thw"),
    ]
    return Made([resize], outputs)


def _inkling2(fields: Fields, row: Patched, patch: int, filter_: Filter, like: Like) -> Made:
    del fields
    size = ResizeByRule(rule="keep", size=MAX_OPEN_SIDE, filter=filter_, like=like)
    outputs: list[Op] = [
        Patches(patch, layout=row.layout, flat=row.is_flat, name="pixel_values"),
        PatchGrid(patch, order="thw", name="image_grid_thw"),
    ]
    return Made([size, Pad(multiple=patch, anchor="top_left", value=-1.0)], outputs)


def _minicpm(fields: Fields, row: Patched, patch: int, filter_: Filter, like: Like) -> Made:
    del row
    _check_resized(fields)
    upsize = fields.take("small_image_upsize", "always")
    if upsize not in ("always", "never"):
        fields.refuse("small_image_upsize", 'must be "always" or "never"')
    slices = fields.length("max_slice_nums", MAX_TILES) if fields.flag("slice_mode") else 1
    resize = ResizeToSlices(
        rule="minicpm",
        slice_size=fields.length("scale_resolution", MAX_SIDE),
        multiple=patch * (2 if fields.take("downsample_mode") == "4x" else 4),
        max_slices=slices,
        enlarge=upsize == "always",
        filter=filter_,
        like=like,
    )
    outputs: list[Op] = [
        SlicePatches(patch, name="pixel_values"),
        SliceGrids(patch, dtype="int32", name="target_sizes"),
        SliceCount(patch, order="hw", name="grids"),
        SliceCount(patch, name="num_patches_per_image"),
    ]
    return Made([resize], outputs)


def _lfm2(fields: Fields, row: Patched, patch: int, filter_: Filter, like: Like) -> Made:
    if not fields.flag("do_pad"):
        fields.refuse("do_pad", "must be true")
    factor, tile = fields.length("downsample_factor", 64), fields.length("tile_size", MAX_SIDE)
    window, splits = patch * factor, fields.flag("do_image_splitting")
    most = fields.length("max_tiles", MAX_TILES) if splits else 1
    fewest = fields.length("min_tiles", most) if splits else 1
    least, largest = (fields.length(f"{end}_image_tokens", MAX_COUNT // factor**2) for end in ("min", "max"))
    if least > largest:
        fields.refuse("min_image_tokens", "must not exceed max_image_tokens")
    if splits and tile % patch:
        fields.refuse("tile_size", f"must be a multiple of encoder_patch_size, {patch}")
    count = max(largest * factor**2, (tile // patch) ** 2 if splits else 0)
    resize = ResizeToSlices(
        rule="lfm2",
        slice_size=tile if most > 1 else window,
        multiple=window,
        max_slices=most,
        min_slices=fewest,
        min_pixels=least * window**2,
        max_pixels=largest * window**2,
        tolerance=fields.number("max_pixels_tolerance", positive=True),
        patch_size=patch,
        whole=fields.flag("use_thumbnail"),
        filter=filter_,
        like=like,
    )
    outputs: list[Op] = [
        SlicePatches(patch, max_patches=count, layout=row.layout, name="pixel_values"),
        SliceMask(patch, max_patches=count, name="pixel_attention_mask"),
        SliceGrids(patch, name="spatial_shapes"),
    ]
    return Made([resize], outputs)


def _pix2struct(fields: Fields, row: Patched, patch: int, filter_: Filter, like: Like) -> Made:
    """Return the ops of Pix2Struct and Kosmos-2.5, which call PyTorch's ``interpolate`` with both backends."""
    del filter_, like
    count = fields.length("max_patches", MAX_COUNT)
    is_kosmos, is_normalized = "is_vqa" not in row.defaults, fields.flag("do_normalize")
    if is_kosmos and not is_normalized:
        fields.refuse(
            "do_normalize", "must be true, because the class itself raises an error for images that are not normalized"
        )
    ops: list[Op] = [Normalize(scale="standardize")] if is_normalized else []
    ops.append(ResizeToPatches(rule="pix2struct", patch_size=patch, max_patches=count, like="torch_float"))
    outputs: list[Op] = [
        Patches(patch, max_patches=count, layout=row.layout, numbered=True, name="flattened_patches"),
        PatchMask(patch, max_patches=count, dtype="float32", name="attention_mask"),
    ]
    if is_kosmos:
        outputs += [
            ImageSize(dtype="int64", order="w", name="width"),
            ImageSize(dtype="int64", order="h", name="height"),
            PatchGrid(patch, order="h", name="rows"),
            PatchGrid(patch, order="w", name="cols"),
        ]
    return Made(ops, outputs)


def _check_resized(fields: Fields) -> None:
    if not fields.flag("do_resize"):
        fields.refuse("do_resize", "must be true")


def _by_pixels(fields: Fields, row: Patched, patch: int, filter_: Filter, like: Like) -> Made:
    """Return the resize and the outputs of Qwen2-VL's class and of similar classes."""
    merge, frames = fields.length("merge_size", MAX_PATCH), fields.length("temporal_patch_size", MAX_PATCH)
    if frames > 1 and row.layout == "hwc":
        fields.refuse("temporal_patch_size", "is not supported for this class unless it is 1")
    own_merge = merge if row.is_merged else 1
    is_video = "max_frames" in row.defaults
    if (expand := fields.take("patch_expand_factor", 1)) != 1:
        merge *= fields.length("patch_expand_factor", MAX_PATCH) if expand is not None else 1
    least, most = _pixels(fields, row)
    resize: Op
    if row.is_halved:
        shorter, longer = round(sqrt(least)), round(sqrt(most))
        resize = ResizeByRule(
            rule="half", size=shorter, max_size=longer, multiple=patch * merge, filter=filter_, like=like
        )
    else:
        resize = ResizeToPixels(
            multiple=patch * merge,
            min_pixels=least,
            max_pixels=most,
            frames=1 if not row.counts_frames else "clip" if is_video else frames,
            temporal_patch_size=frames if is_video and row.counts_frames else 1,
            small=row.small,
            max_ratio=row.max_ratio,
            filter=filter_,
            like=like,
        )
    values, grid = ("pixel_values_videos", "video_grid_thw") if is_video else ("pixel_values", "image_grid_thw")
    outputs: list[Op] = [
        Patches(patch, own_merge, temporal_patch_size=frames, layout=row.layout, flat=row.is_flat, name=values),
        PatchGrid(patch, own_merge, order="thw", temporal_patch_size=frames if is_video else 1, name=grid),
    ]
    return Made([resize], outputs)


_FAMILIES = {
    "Kosmos2_5ImageProcessor": _pix2struct,
    "Pix2StructImageProcessor": _pix2struct,
    "Gemma4ImageProcessor": _gemma,
    "Gemma4UnifiedImageProcessor": _gemma,
    "Glm5NextImageProcessor": _glm5,
    "NemotronH_Omni_Reasoning_V3ImageProcessor": _nemotron,
    "Inkling2ImageProcessor": _inkling2,
    "Lfm2VlImageProcessor": _lfm2,
    "MiniCPMOcrImageProcessor": _minicpm,
    "MiniCPMV4_6ImageProcessor": _minicpm,
    "NeoMMEImageProcessor": _neomme,
    "Kimi_K25ImageProcessor": _kimi,
    "MuseGlimmerImageProcessor": _muse,
    "Siglip2ImageProcessor": _siglip,
}


def _pixels(fields: Fields, row: Patched) -> tuple[int, int]:
    """Return the minimum and the maximum number of pixels that a configuration specifies for a resized image."""
    size = fields.mapping("size")
    found = [size.get("shortest_edge"), size.get("longest_edge")]
    if row.overrides_size:
        given = fields.take("min_pixels", None), fields.take("max_pixels", None)
        found = [old if new is None else new for old, new in zip(found, given, strict=True)]
    least, most = found
    if type(least) is not int or type(most) is not int or not 1 <= least <= most <= MAX_RESIZED_PIXELS:
        fields.refuse(
            "size", "must be shortest_edge and longest_edge, the minimum and the maximum number of pixels, up to 2^28"
        )
    return least, most
