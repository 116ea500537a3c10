"""Draw the pictures of docs/operators.md on the documentation site: a photo before and after each op.

The site's build runs this program: ``python tools/site/pictures.py FOLDER`` writes ``FOLDER/OP.jpg`` and prints the
caption of each picture as JSON. The pictures are not committed.
"""

import json
import sys
from collections.abc import Iterator, Mapping
from io import BytesIO
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from PIL import Image

import pixprep as pp
from pixprep.pipeline.ops import OPS, AnnotationOp, FirstOp, OutputOp

PHOTO = Path(__file__).parents[2] / "client_examples" / "images" / "flower.jpg"
HEIGHT, WIDTH = 144, 216
SAMPLES = 3
"""Number of results in the picture of a random op."""
GAP = 8
BOX = (50, 20, 150, 120)
"""Box around the flower (left, top, right, bottom), for ops that use boxes."""
NOT_DRAWN = {
    "extern": "calls the user's function",
    "normalize": "changes the values of the tensor and not the image",
}
"""Ops on images that do not have a picture, and the reason."""
FIELDS: Mapping[str, dict[str, Any]] = {
    "resize": {"size": 72},
    "resize_to_pixels": {"multiple": 28, "max_pixels": 9000},
    "resize_to_patches": {"patch_size": 16, "max_patches": 40},
    "resize_by_rule": {"rule": "shrink", "size": 160, "multiple": 16},
    "center_crop": {"height": 112},
    "trim": {"threshold": 8},
    "crop": {"top": 20, "left": 50, "height": 100, "width": 100},
    "pad": {"height": 176, "width": 248, "fill": 114},
    "letterbox": {"height": 160, "width": 160},
    "flip": {},
    "random_resized_crop": {"height": 112},
    "random_sized_crop": {"height": 112, "heights": [40, 140]},
    "random_crop": {"height": 112},
    "random_size_crop": {"min_size": 60, "max_size": 140},
    "random_flip": {},
    "random_zoom_out": {"fill": 114, "side_range": [1.0, 2.0], "p": 1.0},
    "random_iou_crop": {},
    "random_shortest_size": {"min_size": [60, 90, 120]},
    "random_resize": {"min_size": 60, "max_size": 140},
    "scale_jitter": {"height": 144, "scale_range": [0.3, 1.0]},
    "brightness": {"factor": 1.5},
    "contrast": {"factor": 1.8},
    "saturation": {"factor": 2.0},
    "hue": {"factor": 0.3},
    "hue_saturation_value": {"hue": 60, "saturation": 40, "value": 20},
    "brightness_contrast": {"contrast": 1.5, "brightness": 0.1},
    "color_matrix": {"matrix": [[0.4, 0.8, 0.2, 0], [0.3, 0.7, 0.2, 0], [0.3, 0.5, 0.1, 0]]},
    "permute_channels": {"permutation": [2, 1, 0]},
    "grayscale": {},
    "gamma": {"gamma": 2.2},
    "posterize": {"bits": 2},
    "solarize": {"threshold": 128},
    "solarize_add": {"add": 60},
    "autocontrast": {},
    "equalize": {},
    "invert": {},
    "random_gray": {},
    "random_posterize": {"bits": 2},
    "random_solarize": {"threshold": 128},
    "random_autocontrast": {},
    "random_equalize": {},
    "random_invert": {},
    "color_jitter": {"brightness": 0.5, "contrast": 0.5, "saturation": 0.5, "hue": 0.2},
    "random_photometric_distort": {"p": 1.0},
    "random_hue_saturation_value": {"hue": 60, "saturation": 60, "value": 40, "p": 1.0},
    "random_brightness_contrast": {"brightness": 0.4, "contrast": 0.4, "p": 1.0},
    "rotate": {"angle": 30, "filter": "bilinear"},
    "random_rotate": {"degrees": 45, "filter": "bilinear"},
    "affine": {"angle": 15, "translate": [20, 0], "scale": 0.8, "shear": 15, "filter": "bilinear"},
    "random_affine": {"degrees": 30, "translate": [0.2, 0.2], "scale": [0.6, 1.1], "filter": "bilinear"},
    "perspective": {"corners": [[0, 0], [215, 40], [215, 110], [0, 143]]},
    "random_perspective": {"p": 1.0},
    "warp": {"matrix": [[0.9, 0.3, 0], [-0.2, 0.9, 30]], "height": 144, "width": 216},
    "random_warp": {"degrees": 30, "scale": [0.7, 1.2, 0.7, 1.2]},
    "random_warp_perspective": {"scale": [0.1, 0.2]},
    "random_box_warp": {"height": 144, "width": 108},
    "sharpness": {"factor": 8.0},
    "random_sharpness": {"factor": 8.0},
    "gaussian_blur": {"kernel_size": 9, "sigma": 3.0},
    "random_gaussian_blur": {"kernel_size": 9, "sigma": [0.1, 5.0]},
    "elastic": {"alpha": 120},
    "box_blur": {"kernel": [3, 15]},
    "median_blur": {"kernel": 9},
    "motion_blur": {"kernel": 15, "angle": [0, 360]},
    "sharpen": {"alpha": 0.5, "lightness": 1.0},
    "clahe": {"clip_limit": 4.0},
    "grid_distortion": {"limit": 0.4},
    "optical_distortion": {"k": 0.8},
    "elastic_distortion": {"alpha": 120, "sigma": 6},
    "gauss_noise": {"std": [0.05, 0.3]},
    "compression": {"quality": [5, 30]},
    "downscale": {"scale": 0.25},
    "tone_curve": {"std": 0.3},
    "erase": {"top": 40, "left": 70, "height": 60, "width": 60},
    "coarse_dropout": {"count": [2, 6], "p": 1.0},
    "grid_dropout": {"cells": [5, 7], "p": 1.0},
    "random_erasing": {"p": 1.0},
    "rand_augment": {"magnitude": 15},
    "trivial_augment": {},
    "auto_augment": {},
    "aug_mix": {"severity": 8},
    "timm_rand_augment": {"magnitude": 9, "magnitude_std": 0.5, "increasing": True, "p": 1.0},
    "random_choice": {"ops": [{"op": "invert"}, {"op": "grayscale"}, {"op": "rotate", "angle": 30}]},
    "random_apply": {"ops": [{"op": "gaussian_blur", "kernel_size": 9}]},
    "random_order": {"ops": [{"op": "solarize", "threshold": 128}, {"op": "contrast", "factor": 3.0}]},
    "resize_to_tiles": {"tile_size": 64, "max_tiles": 6},
    "resize_to_slices": {"rule": "minicpm", "slice_size": 64, "multiple": 8, "max_slices": 6},
}
"""Fields with which each op is drawn. If ``p`` is the only field of a random op, it is below 1, so that some samples do
not change.
"""


class Picture(NamedTuple):
    """Picture of an op.

    Attributes:
        op: Name of the op.
        caption: One line of Markdown below the picture.
        images: Arrays of uint8, (height, width, 3 or 1): the photo, and its results.
    """

    op: str
    caption: str
    images: list[npt.NDArray[np.uint8]]


def drawn_ops() -> list[str]:
    """Return the names of the ops that have a picture: all ops that change the image, except those in NOT_DRAWN."""
    without = FirstOp | OutputOp | AnnotationOp
    return [name for name, cls in OPS.items() if not issubclass(cls, without) and name not in NOT_DRAWN]


def pictures() -> Iterator[Picture]:
    """Run each op on the photo. A random op runs once per sample.

    Raises:
        SystemExit: The ops in ``FIELDS`` and in ``drawn_ops`` differ.
    """
    if list(FIELDS) != (names := drawn_ops()):
        raise SystemExit(f"tools/site/pictures.py: FIELDS does not match the ops: {', '.join({*FIELDS} ^ {*names})}")
    with Image.open(PHOTO) as photo:
        before = np.asarray(photo.convert("RGB").resize((WIDTH, HEIGHT), Image.Resampling.LANCZOS))
    for name in names:
        entry = {"op": name, **FIELDS[name]}
        op = op_of(entry)
        is_random = op.home == "training"
        boxes = np.array([BOX], np.float32) if "boxes" in getattr(op, "sees", ()) else None
        after = samples_of(op, before, boxes) if is_random else [pp.apply(op, before)]
        shown = f"`{json.dumps(entry)}`"
        caption = f"The photo, and {SAMPLES} samples of {shown}" if is_random else f"The photo before and after {shown}"
        yield Picture(name, caption, [before, *after])


def samples_of(op: Any, before: npt.NDArray[np.uint8], boxes: Any) -> list[npt.NDArray[np.uint8]]:
    """Return the results of the first consecutive samples that are not all equal."""
    for start in count():
        after = [pp.apply(op, before, index=start + number, boxes=boxes) for number in range(SAMPLES)]
        if any(not np.array_equal(each, after[0]) for each in after):
            return after
    raise AssertionError


def op_of(entry: dict[str, Any]) -> Any:
    """Return the op for an entry of a pipeline file."""
    fields = {name: value for name, value in entry.items() if name != "op"}
    if "ops" in fields:
        fields["ops"] = [op_of(each) for each in fields["ops"]]
    return OPS[entry["op"]](**fields)


def side_by_side(images: list[npt.NDArray[np.uint8]]) -> Image.Image:
    """Return the images side by side on white, aligned at the top."""
    height, width = max(len(each) for each in images), sum(each.shape[1] + GAP for each in images) - GAP
    picture, left = Image.new("RGB", (width, height), "white"), 0
    for each in images:
        picture.paste(Image.fromarray(each.squeeze()), (left, 0))
        left += each.shape[1] + GAP
    return picture


def encoded(picture: Picture) -> bytes:
    """Encode a picture as a JPEG."""
    file = BytesIO()
    side_by_side(picture.images).save(file, "JPEG", quality=88, subsampling=0)
    return file.getvalue()


if __name__ == "__main__":
    FOLDER = Path(sys.argv[1])
    FOLDER.mkdir(parents=True, exist_ok=True)
    CAPTIONS = {}
    for PICTURE in pictures():
        (FOLDER / f"{PICTURE.op}.jpg").write_bytes(encoded(PICTURE))
        CAPTIONS[PICTURE.op] = PICTURE.caption
    print(json.dumps(CAPTIONS))  # noqa: T201  (tools/site/hooks.py reads it)
