"""Pipelines whose serialized files are pinned byte for byte in tests/golden."""

import json
from pathlib import Path
from typing import get_args

from msgspec import convert

import pixprep as pp
from pixprep.pipeline.file import settings
from pixprep.pipeline.ops import OPS
from pixprep.spec import Like

GOLDEN = Path(__file__).parents[1] / "golden"
SCHEMA = Path(__file__).parents[2] / "docs" / "pipeline.schema.json"
CANONICAL = {
    "imagenet": pp.presets.imagenet(),
    "clip": pp.presets.clip(),
    "efficientnet_lite0": pp.presets.efficientnet_lite0(),
    "letterbox": pp.presets.letterbox(),
    "sides": pp.Pipeline(
        [
            pp.decode(),
            pp.random_zoom_out(fill=(123, 117, 104), name="canvas"),
            pp.random_iou_crop(sampler_options=(0.0, 0.5, 1.0)),
            pp.random_resized_crop(176, scale=(0.35, 1.0), filter="bicubic"),
            pp.random_flip("vertical", p=0.25),
            pp.boxes(format="cxcywh", normalized=True, min_visible=0.25, pad=100),
            pp.points(name="corners"),
            pp.resize(256, only="serving"),
            pp.center_crop(224, name="middle", only="serving"),
            pp.tensor(),
        ]
    ),
    "branches": pp.Pipeline(
        [
            pp.decode(name="decoded", color="bgr", apply_exif_orientation=False),
            pp.original_size(),
            pp.letterbox(64, 96, fill=(1, 2, 3), anchor="top_left", name="boxed"),
            pp.transform(name="boxes"),
            pp.tensor(dtype="uint8", layout="hwc", name="pixels"),
            pp.crop(1, 2, 30, 40, from_="decoded"),
            pp.flip("vertical"),
            pp.resize(height=16, width=16, filter="lanczos", antialias=False),
            pp.pad(20, 24, fill=7),
            pp.normalize(mean=(0.1, 0.2, 0.3), std=0.5, scale=1),
            pp.tensor(dtype="float16"),
        ]
    ),
}

DEFAULTS = GOLDEN / "defaults.json"


def smallest():
    """Return every op with as few fields as possible, and with each group of fields that determines the defaults of
    other fields.
    """
    yield from (
        {"op": "decode"},
        {"op": "decode_video", "frames": 16},
        {"op": "pixels"},
        {"op": "resize", "height": 224, "width": 224, "mode": "fit"},
        {"op": "resize", "height": 224, "width": 224, "mode": "cover"},
        {"op": "center_crop", "height": 224},
        {"op": "center_crop", "fraction": 0.875},
        {"op": "crop", "top": 1, "left": 2, "height": 3, "width": 4},
        {"op": "trim"},
        {"op": "color_ids", "colors": ((0, 0, 0), (255, 255, 255))},
        {"op": "pad", "height": 3, "width": 4},
        {"op": "pad", "square": True},
        {"op": "flip"},
        {"op": "random_resized_crop", "height": 224},
        {"op": "random_crop", "height": 224},
        {"op": "random_size_crop", "min_size": 384, "max_size": 600},
        {"op": "random_shortest_size", "min_size": 800},
        {"op": "random_resize", "min_size": 260, "max_size": 1040},
        {"op": "scale_jitter", "height": 1024},
        {"op": "random_flip"},
        {"op": "random_zoom_out"},
        {"op": "random_iou_crop"},
        {"op": "extern", "operator": "acme.denoise", "version": 1},
        {"op": "random_choice", "ops": ({"op": "flip"}, ({"op": "invert"}, {"op": "hue", "factor": 0.5}))},
        {"op": "random_apply", "ops": ({"op": "invert"},)},
        {"op": "random_order", "ops": ({"op": "invert"}, {"op": "grayscale"})},
        {"op": "brightness", "factor": 0.5},
        {"op": "contrast", "factor": 0.5},
        {"op": "saturation", "factor": 0.5},
        {"op": "hue", "factor": 0.5},
        {"op": "grayscale"},
        {"op": "gamma", "gamma": 2.0},
        {"op": "posterize", "bits": 4},
        {"op": "solarize", "threshold": 128.0},
        {"op": "solarize_add", "add": 60},
        {"op": "autocontrast"},
        {"op": "equalize"},
        {"op": "invert"},
        {"op": "random_gray"},
        {"op": "random_posterize", "bits": 4},
        {"op": "random_solarize", "threshold": 128.0},
        {"op": "random_autocontrast"},
        {"op": "random_equalize"},
        {"op": "random_invert"},
        {"op": "color_jitter"},
        {"op": "hue_saturation_value"},
        {"op": "brightness_contrast"},
        {"op": "random_hue_saturation_value"},
        {"op": "random_brightness_contrast"},
        {"op": "permute_channels", "permutation": (2, 0, 1)},
        {"op": "color_matrix", "matrix": ((1.5, 0, 0, -64), (0, 1.5, 0, -64), (0, 0, 1.5, -64))},
        {"op": "erase", "top": 1, "left": 2, "height": 3, "width": 4},
        {"op": "random_photometric_distort"},
        {"op": "random_photometric_distort", "hue": None},
        {"op": "rotate", "angle": 90},
        {"op": "random_rotate", "degrees": 15},
        {"op": "affine"},
        {"op": "random_affine", "degrees": 15},
        {"op": "perspective", "corners": ((1, 0), (9, 2), (8, 9), (0, 7))},
        {"op": "random_perspective"},
        {"op": "warp", "quad": "quads"},
        {"op": "warp", "matrix": ((1, 0, 3), (0, 1, 5)), "height": 48, "width": 100},
        {"op": "random_warp", "degrees": 15},
        {"op": "random_box_warp", "height": 256, "width": 192},
        {"op": "random_warp_perspective"},
        {"op": "elastic"},
        {"op": "grid_distortion"},
        {"op": "optical_distortion"},
        {"op": "elastic_distortion"},
        {"op": "box_blur"},
        {"op": "median_blur"},
        {"op": "motion_blur"},
        {"op": "sharpen"},
        {"op": "clahe"},
        {"op": "gauss_noise"},
        {"op": "compression"},
        {"op": "downscale"},
        {"op": "tone_curve"},
        {"op": "grid_dropout"},
        {"op": "random_sized_crop", "height": 224, "heights": (180, 360)},
        {"op": "sharpness", "factor": 2},
        {"op": "random_sharpness", "factor": 2},
        {"op": "gaussian_blur", "kernel_size": 5},
        {"op": "random_gaussian_blur", "kernel_size": 5},
        {"op": "random_erasing"},
        {"op": "coarse_dropout"},
        {"op": "rand_augment"},
        {"op": "trivial_augment"},
        {"op": "auto_augment"},
        {"op": "aug_mix"},
        {"op": "timm_rand_augment"},
        {"op": "timm_rand_augment", "fill": None},
        {"op": "normalize"},
        {"op": "tensor"},
        {"op": "original_size"},
        {"op": "image_size"},
        {"op": "scale_factor"},
        {"op": "optical_flow"},
        {"op": "transform"},
        {"op": "boxes"},
        {"op": "points"},
        {"op": "mask"},
        {"op": "masks"},
        {"op": "target"},
        {"op": "resize_to_pixels", "multiple": 28, "max_pixels": 1003520},
        {"op": "resize_to_patches", "patch_size": 16, "max_patches": 256},
        {"op": "patches", "patch_size": 14},
        {"op": "patch_grid", "patch_size": 14},
        {"op": "patch_mask", "patch_size": 16, "max_patches": 256},
        {"op": "patch_positions", "patch_size": 16, "max_patches": 256},
        {"op": "token_count", "patch_size": 14},
        {"op": "seconds_per_patch"},
        {"op": "resize_by_rule", "rule": "shrink", "size": 1024},
        {"op": "resize_to_tiles", "tile_size": 448, "max_tiles": 12},
        {"op": "tiles", "tile_size": 448},
        {"op": "tile_count", "tile_size": 448},
        {"op": "tile_grid_id"},
        {"op": "tile_mask", "tile_size": 364},
        {"op": "tile_token_count", "tile_size": 448, "patch_size": 14},
        {"op": "pixel_mask"},
        {"op": "constant", "values": (1,)},
        {"op": "resize_to_slices", "rule": "minicpm", "slice_size": 448, "multiple": 56, "max_slices": 9},
        {"op": "slice_patches", "patch_size": 14},
        {"op": "slice_grids", "patch_size": 14},
        {"op": "slice_mask", "patch_size": 16, "max_patches": 1024},
        {"op": "slice_count", "patch_size": 14},
    )
    for like in get_args(Like):
        yield {"op": "resize", "size": 256, "like": like}
        yield {"op": "resize", "height": 224, "width": 224, "like": like}
        yield {"op": "letterbox", "height": 640, "width": 640, "like": like}
        yield {"op": "random_resized_crop", "height": 224, "like": like}


def defaults():
    """Return the text of ``DEFAULTS``, which has one line per op with every field of the op's canonical form."""
    lines = ",\n".join(json.dumps(settings(convert(entry, OPS[entry["op"]]))) for entry in smallest())
    return f"[\n{lines}\n]\n"
