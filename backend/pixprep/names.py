"""Suggests pixprep's names for names from PyTorch, torchvision, timm and Albumentations in error messages."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from math import ceil
from operator import ne
from typing import Any, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])

OWN = "pixprep does not include it, but a custom operator can implement it: see docs/own-operators.md"
OPS: Mapping[str, str] = {
    **dict.fromkeys(("compose", "sequential", "transforms"), "Pipeline"),
    **dict.fromkeys(("data_loader", "dataloader"), "Loader"),
    **dict.fromkeys(("dataset", "datasets", "image_folder", "data"), "read"),
    **dict.fromkeys(("random_horizontal_flip", "horizontal_flip"), "random_flip"),
    **dict.fromkeys(("random_vertical_flip", "vertical_flip"), 'random_flip(axis="vertical")'),
    **dict.fromkeys(("random_shear", "random_translate", "random_translation"), "random_affine"),
    **dict.fromkeys(("shear", "translate"), "affine"),
    **dict.fromkeys(("to_gray", "random_grayscale"), "random_gray"),
    **dict.fromkeys(("to_tensor", "to_tensor_v2", "pil_to_tensor", "to_image", "to_dtype"), "tensor"),
    "convert_image_dtype": "tensor",
    **dict.fromkeys(("random_brightness_contrast", "hue_saturation_value"), "color_jitter"),
    **dict.fromkeys(("random_brightness", "random_contrast", "random_saturation", "random_hue"), "color_jitter"),
    "photometric_distort": "random_photometric_distort",
    **dict.fromkeys(("channel_shuffle", "random_channel_permutation"), "random_photometric_distort"),
    "random_erasure": "random_erasing",
    "random_scale": "scale_jitter",
    **dict.fromkeys(("coarse_dropout", "cutout", "cut_out", "random_cutout"), "random_erasing"),
    **dict.fromkeys(("mixup", "mix_up", "cutmix", "cut_mix"), "Mix, an argument of the Loader"),
    **dict.fromkeys(("mosaic", "random_mosaic"), "Mosaic, an argument of the Loader"),
    **dict.fromkeys(("copy_paste", "simple_copy_paste"), "CopyPaste, an argument of the Loader"),
    "longest_max_size": 'resize(..., side="longer")',
    "smallest_max_size": "resize",
    "pad_if_needed": "pad",
    "shift_scale_rotate": "random_warp",
    **dict.fromkeys(("random_sized_bbox_safe_crop", "bbox_safe_random_crop"), "random_iou_crop"),
    **dict.fromkeys(("bbox", "bbox_params", "sanitize_bounding_boxes"), "boxes"),
    "keypoint_params": "points",
    **dict.fromkeys(("elastic_transform", "random_elastic_transform"), "elastic"),
    **dict.fromkeys(("warp_affine", "warp_perspective", "four_point_transform"), "warp"),
    **dict.fromkeys(("align", "align_face", "face_align", "norm_crop"), "warp"),
    "gaussian_noise": "gauss_noise",
    **dict.fromkeys(("image_compression", "jpeg_compression"), "compression"),
    **dict.fromkeys(("channel_shuffle", "shuffle_channels"), "permute_channels"),
    "transpose": OWN,
}
"""Names in ``pixprep``, or hints, by the names in other libraries, which are converted by ``snake``."""

FIELDS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("interpolation", "resample"), ("filter",)),
    "size": ("height", "width"),
    **dict.fromkeys(("prob", "probability", "always_apply"), ("p",)),
    **dict.fromkeys(("limit", "angle"), ("degrees",)),
    **dict.fromkeys(("fill_value", "background", "value", "border_value"), ("fill",)),
    **dict.fromkeys(("border", "border_mode"), ("padding_mode",)),
    **dict.fromkeys(("landmarks", "keypoints"), ("points",)),
    **dict.fromkeys(("size_divisor", "divisor"), ("multiple",)),
    "blur_limit": ("kernel_size",),
    "max_pixel_value": ("scale",),
    "direction": ("axis",),
    **dict.fromkeys(("mode", "color_mode"), ("color",)),
    **dict.fromkeys(("channels_last", "data_format"), ("layout",)),
    "x": ("left",),
    "y": ("top",),
}
"""Fields of ops, by their names in other libraries. A suggestion is made only if the op has these fields."""

STATISTICS: Mapping[str, str] = {
    "imagenet": "mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225)",
    "clip": "mean=(0.48145466, 0.4578275, 0.40821073), std=(0.26862954, 0.26130258, 0.27577711)",
    **dict.fromkeys(("inception", "half"), "mean=0.5, std=0.5"),
    "arcface": "[[38.2946, 51.6963], [73.5318, 51.5014], [56.0252, 71.7366], [41.5493, 92.3655], [70.7299, 92.2041]]",
}
"""Common names of values: ``mean`` and ``std`` of ``normalize``, and ``template`` of ``warp``."""

CHOICES: Mapping[str, str] = {
    **dict.fromkeys(("replicate", "border"), "edge"),
    "reflect_101": "reflect",
    "zeros": "constant",
}
"""Values of fields, by their names in other libraries. A suggestion is made only if the field supports the value."""

SOURCES: Mapping[str, str] = {
    **dict.fromkeys(("image_folder", "folder", "images", "imagefolder"), "files"),
    "csv": "table",
    **dict.fromkeys(("webdataset", "web_dataset", "wds"), "tar"),
    **dict.fromkeys(("hf", "huggingface", "dataset", "load_dataset", "list"), "rows"),
    "coco_detection": "coco",
    **dict.fromkeys(("pascal_voc", "voc_detection"), "voc"),
}

LOADER: Mapping[str, str] = {
    "dataset": "pass the source as the first argument",
    **dict.fromkeys(("transform", "transforms"), "pass the pipeline as the second argument"),
    **dict.fromkeys(
        ("num_workers", "persistent_workers"), "the Loader uses threads instead of worker processes; set threads"
    ),
    "worker_init_fn": "the Loader uses threads, and seed determines the random parameters",
    "drop_last": 'use last="drop", "short" or "pad"',
    "pin_memory": 'use batch.torch(..., device="cuda", non_blocking=True)',
    **dict.fromkeys(
        ("sampler", "batch_sampler"),
        "use weights, shares, repeats or group_by, or pass pixprep.read.subset as source",
    ),
    "collate_fn": "batches are already collated; select their contents with loader.torch, loader.tf or loader.tuples",
    "prefetch_factor": "use prefetch",
    "generator": "use seed",
}

MIX: Mapping[str, str] = {"num_classes": "use classes", "alpha": "mixup and cutmix have separate alphas; set both"}
COMBINED: Mapping[str, str] = {"prob": "use p", "max_cached_images": "use recent"}
MOSAIC: Mapping[str, str] = {**COMBINED, **dict.fromkeys(("img_scale", "imgsz"), "use height and width")}
CHAIN: Mapping[str, str] = dict.fromkeys(
    ("no_aug_epochs", "close_mosaic"), "use until, the number of all epochs minus this number"
)


def snake(name: str) -> str:
    """Convert a class name to a function name: ``RandomFlip`` becomes ``random_flip``."""
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name).lstrip("_")


def meant(word: str, known: Iterable[str], elsewhere: Mapping[str, str] | None = None) -> str:
    """Return the known name that was probably meant by ``word``.

    Args:
        word: Unknown name.
        known: Valid names.
        elsewhere: pixprep's names by the names of other libraries.

    Returns:
        pixprep's name for a name of another library, else the most similar name; empty if no name is similar.
    """
    from difflib import get_close_matches  # noqa: PLC0415  (for a message only)

    for spelling in (word, snake(word), word.lower()):
        if elsewhere and spelling in elsewhere:
            return elsewhere[spelling]
    names = [*known]
    near = get_close_matches(snake(word), names, n=len(names) or 1)
    return next((name for name in near if _is_near(snake(word).split("_"), name.split("_"))), "")


def _is_near(words: list[str], others: list[str]) -> bool:
    """Return whether each word of the shorter name, or a similar word, occurs in the longer name."""
    fewer, more = sorted((words, others), key=len)
    is_joined = len(fewer) < len(more) and "".join(fewer) == "".join(more)  # such as randomcrop
    return is_joined or all(any(_is_alike(word, other) for other in more) for word in fewer)


def _is_alike(word: str, other: str) -> bool:
    """Return whether two words are similar: one is a misspelling of the other, or they have the same stem."""
    from difflib import SequenceMatcher  # noqa: PLC0415  (for a message only)

    matcher = SequenceMatcher(None, word, other)
    is_misspelled = matcher.quick_ratio() > 0.75 and matcher.ratio() > 0.65
    has_one_wrong = len(word) == len(other) and sum(map(ne, word, other)) == 1  # such as sise for size
    stem = ceil(0.7 * min(len(word), len(other)))
    return is_misspelled or has_one_wrong or word[:stem] == other[:stem]


def hint(near: str, quote: str = '"') -> str:
    """Return the end of a message that suggests the name from ``meant``, or an empty string."""
    if not near or near == OWN:
        return f"; {near}" if near else ""
    return f"; did you mean {near}?" if {*near} & {*" ("} else f"; did you mean {quote}{near}{quote}?"


def field_hint(field: str, known: Iterable[str]) -> str:
    """Return the end of a message about an unknown field: the field in pixprep, or all fields of the op."""
    fields = [*known]
    suggested = FIELDS.get(field, ())
    if not suggested or not {*suggested} <= {*fields}:
        near = meant(field, fields)
        suggested = (near,) if near else ()
    if not suggested:
        return f"; valid fields: {', '.join(fields)}"
    return f"; did you mean {' and '.join(chr(34) + each + chr(34) for each in suggested)}?"


def explained(elsewhere: Mapping[str, str], positional: str) -> Callable[[F], F]:
    """Return a decorator of a class or its ``__init__`` that adds hints to the errors of calls with wrong arguments.

    Args:
        elsewhere: Hints, by the names of arguments in other libraries.
        positional: Hint for a call with too many positional arguments.
    """

    def around(function: F) -> F:
        if isinstance(function, type):
            function.__init__ = around(function.__init__)  # type: ignore[misc]
            return function
        signature = inspect.signature(function)
        class_name, parameters = function.__qualname__.partition(".")[0], [*signature.parameters.values()][1:]
        required = [each for each in parameters if each.default is each.empty]
        shown = ", ".join(each.name + "=..." * (each.kind is each.KEYWORD_ONLY) for each in required)

        @wraps(function)
        def call(*args: Any, **named: Any) -> Any:
            for name in named:
                if name not in signature.parameters:
                    known = [each.name for each in parameters]
                    near = meant(name, known)
                    fix = elsewhere.get(name) or (f"use {near}" if near else f"the arguments are {', '.join(known)}")
                    raise TypeError(f'{class_name}: no argument "{name}": {fix}')
            try:
                signature.bind(*args, **named)
            except TypeError as error:
                fix = positional if "positional" in str(error) else f"write {class_name}({shown})"
                raise TypeError(f"{class_name}: {error}: {fix}") from None
            return function(*args, **named)

        return cast("F", call)

    return around
