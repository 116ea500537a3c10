"""Training recipes of well-known papers and libraries as pixprep pipelines.

    python recipes.py                  list the recipes and their numbers of ops
    python recipes.py simclr           print one recipe as a pipeline file

docs/training-recipes.md describes the recipes and the differences from the originals. A recipe has only the training
side: append ``resize``, ``center_crop``, ``normalize`` and ``tensor`` with ``only="serving"`` to serve the model.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import pixprep as pp
from pixprep.pipeline.ops import Op

CLIP_MEAN, CLIP_STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
SIDES = tuple(range(480, 801, 32))


class Recipe(NamedTuple):
    """Training recipe.

    Attributes:
        ops: Ops after ``first``.
        loader: Arguments of the Loader.
        first: First op of the pipeline, which decodes the image.
    """

    ops: list[Op]
    loader: Mapping[str, Any] = MappingProxyType({})
    first: Op = pp.decode(name="photo")

    def pipeline(self) -> pp.Pipeline:
        """Return the training pipeline."""
        return pp.Pipeline([self.first, *self.ops])


def tensor(**fields: Any) -> list[Op]:
    """Return the normalization with ImageNet's mean and standard deviation, followed by the op ``tensor``."""
    return [pp.normalize(), pp.tensor(only="training", **fields)]


def timm(policy: Op, *, erasing: float) -> list[Op]:
    """Return the ops of timm's training transform with an augmentation policy."""
    crop = pp.random_resized_crop(224, filter="bicubic")
    erase = [pp.random_erasing(erasing, value="random")] if erasing else []
    return [crop, pp.random_flip(), policy, *tensor(), *erase]


def contrast(size: int, jitter: Op, *, blur: float, solarize: float = 0.0, scale: tuple[float, float]) -> list[Op]:
    """Return the ops of one view of a contrastive method: crop, flip, color jitter, gray, blur and solarization."""
    kernel = size // 20 * 2 + 1
    ops = [
        pp.random_resized_crop(size, scale=scale, filter="bicubic"),
        pp.random_flip(),
        pp.random_apply([jitter], p=0.8),
        pp.random_gray(p=0.2),
        pp.random_gaussian_blur(kernel, p=blur),
    ]
    return [*ops, *([pp.random_solarize(128, p=solarize)] if solarize else []), *tensor()]


def detection(*ops: Op, **boxes: Any) -> list[Op]:
    """Return the given ops, followed by the boxes and the tensor of a detector."""
    return [*ops, pp.boxes(only="training", **boxes), *tensor()]


def fit(which: str) -> Op:
    """Return the resize before a mosaic, which scales the longer side to 640 pixels.

    With ``longer``, the other side is rounded up.
    """
    if which == "longer":
        return pp.resize(640, side="longer", rounding="up", like="opencv")
    return pp.resize(height=640, width=640, mode="fit", like="opencv")


def after_mosaic(like: str, degrees: float, scale: tuple[float, float], shear: Any = None) -> Op:
    """Return the affine transform that follows a mosaic."""
    moved = (-0.1, 0.1, -0.1, 0.1)
    sizes = {"keep_ratio": True, "height": 640, "width": 640, "like": like, "fill": 114}
    return pp.random_warp(degrees, moved, scale * 2, shear, **sizes)


def randaugment(num_ops: int, magnitude: int) -> Op:
    """Return timm's RandAugment ``rand-m{magnitude}-n{num_ops}-mstd0.5-inc1``."""
    return pp.timm_rand_augment(
        num_ops=num_ops, magnitude=magnitude, magnitude_std=0.5, increasing=True, fill=(124, 116, 104)
    )


FLIP = pp.random_flip()
CROP = pp.random_crop(640, pad_if_needed=True, fill=114)
YOLO_WARP = after_mosaic("ultralytics", 0, (0.5, 1.5))
SIMCLR = pp.color_jitter(0.8, 0.8, 0.8, 0.2, like="torchvision")
BYOL = pp.color_jitter(0.4, 0.4, 0.2, 0.1, like="torchvision")
BY_SIDES = pp.random_shortest_size(SIDES, max_size=1333)

RECIPES = {
    # classification
    "torchvision": Recipe([pp.random_resized_crop(224), FLIP, *tensor()]),
    "torchvision-v2": Recipe(
        [pp.random_resized_crop(176), FLIP, pp.trivial_augment(filter="bilinear"), *tensor(), pp.random_erasing(0.1)],
        {"mix": pp.Mix(classes=1000, mixup=0.2, cutmix=1.0), "repeats": 4},
    ),
    "timm-a1": Recipe(timm(randaugment(2, 7), erasing=0.0), {"mix": pp.Mix(classes=1000, mixup=0.2, cutmix=1.0)}),
    "deit": Recipe(
        timm(randaugment(2, 9), erasing=0.25), {"mix": pp.Mix(classes=1000, mixup=0.8, cutmix=1.0), "repeats": 3}
    ),
    "efficientnet": Recipe(timm(pp.auto_augment("original", fill=(124, 116, 104)), erasing=0.0)),
    "augmix": Recipe([pp.random_resized_crop(224), FLIP, pp.aug_mix(), *tensor()]),
    "cifar-10": Recipe([pp.random_crop(32, padding=4), FLIP, *tensor()]),
    "fine-tune": Recipe([pp.resize(256), pp.random_rotate(20), pp.random_crop(224), FLIP, *tensor()]),
    # metric learning and text
    "re-identification": Recipe(
        [
            pp.resize(height=256, width=128),
            FLIP,
            pp.random_crop(256, 128, padding=10),
            *tensor(),
            pp.random_erasing(0.5),
        ],
    ),
    "open-clip": Recipe(
        [
            pp.random_resized_crop(224, scale=(0.9, 1.0), filter="bicubic"),
            pp.normalize(mean=CLIP_MEAN, std=CLIP_STD),
            pp.tensor(only="training"),
        ]
    ),
    # self-supervised and semi-supervised learning
    "simclr": Recipe(pp.views("view", 2, contrast(224, SIMCLR, blur=0.5, scale=(0.08, 1.0)))),
    "moco-v2": Recipe(
        pp.views("view", 2, contrast(224, pp.color_jitter(0.4, 0.4, 0.4, 0.1), blur=0.5, scale=(0.2, 1.0)))
    ),
    "byol": Recipe(
        [
            *pp.views("online", 1, contrast(224, BYOL, blur=1.0, scale=(0.08, 1.0))),
            *pp.views("target", 1, contrast(224, BYOL, blur=0.1, solarize=0.2, scale=(0.08, 1.0))),
        ]
    ),
    "dino": Recipe(
        [
            *pp.views("teacher", 1, contrast(224, BYOL, blur=1.0, scale=(0.4, 1.0))),
            *pp.views("student", 1, contrast(224, BYOL, blur=0.1, solarize=0.2, scale=(0.4, 1.0))),
            *pp.views("local", 6, contrast(96, BYOL, blur=0.5, scale=(0.05, 0.4))),
        ]
    ),
    "mae": Recipe([pp.random_resized_crop(224, scale=(0.2, 1.0), filter="bicubic"), FLIP, *tensor()]),
    "fixmatch": Recipe(
        [
            *pp.views("weak", 1, [FLIP, pp.random_crop(32, padding=4, padding_mode="reflect"), *tensor()]),
            *pp.views(
                "strong",
                1,
                [
                    FLIP,
                    pp.random_crop(32, padding=4, padding_mode="reflect"),
                    pp.rand_augment(2, 10),
                    *tensor(),
                    pp.random_erasing(1.0, scale=(0.25, 0.25), ratio=(1, 1)),
                ],
            ),
        ],
        {"shares": (1, 7)},
    ),
    # detection and instance segmentation
    "ssd": Recipe(
        detection(
            pp.random_photometric_distort(),
            pp.random_zoom_out(fill=(123, 117, 104)),
            pp.random_iou_crop(),
            FLIP,
            pp.resize(height=300, width=300),
        )
    ),
    "retinanet": Recipe(detection(FLIP, pp.resize(800, max_size=1333)), {"group_by": "aspect"}),
    "detr": Recipe(
        detection(
            FLIP,
            pp.random_choice(
                [BY_SIDES, [pp.random_shortest_size((400, 500, 600)), pp.random_size_crop(384, 600), BY_SIDES]]
            ),
        )
    ),
    "detectron2": Recipe(
        [FLIP, pp.random_shortest_size((640, 672, 704, 736, 768, 800), max_size=1333), *detection(), pp.masks()],
        {"group_by": "aspect"},
    ),
    "large-scale-jitter": Recipe(
        [pp.center_crop(1024), pp.boxes(only="training", pad=100), pp.masks(), *tensor()],
        {"mix": [pp.scale_jitter(1024, 1024), pp.random_crop(1024, pad_if_needed=True), FLIP, pp.CopyPaste(p=0.5)]},
    ),
    "yolox": Recipe(
        detection(FLIP, pp.letterbox(640, 640, like="opencv")),
        {
            "mix": pp.Chain(
                [
                    fit("fit"),
                    pp.Mosaic(height=640),
                    after_mosaic("yolox", 10, (0.1, 2.0), (-2, 2, -2, 2)),
                    pp.MixUp(
                        partner=[
                            [fit("fit"), pp.pad(640, 640, fill=114, anchor="top_left")],
                            [
                                pp.scale_jitter(scale_range=(0.5, 1.5), like="opencv"),
                                FLIP,
                                pp.pad(640, 640, anchor="top_left", larger="keep"),
                                pp.random_crop(640),
                            ],
                        ]
                    ),
                ],
                until=285,
            )
        },
    ),
    "ultralytics": Recipe(
        detection(pp.random_hue_saturation_value(3, 178, 102, 1.0), FLIP, pp.center_crop(640)),
        {
            "mix": pp.Chain(
                [
                    fit("longer"),
                    pp.Mosaic(height=640),
                    YOLO_WARP,
                    pp.MixUp(p=0.1, alpha=32),
                ],
                until=90,
                then=[pp.letterbox(640, 640, like="opencv"), YOLO_WARP],
            )
        },
    ),
    "rtmdet": Recipe(
        detection(pp.center_crop(640)),
        {
            "mix": pp.Chain(
                [
                    fit("fit"),
                    pp.Mosaic(height=640, recent=40),
                    pp.scale_jitter(1280, 1280, scale_range=(0.1, 2.0), like="opencv"),
                    CROP,
                    FLIP,
                    pp.MixUp(recent=20),
                ],
                until=280,
                then=[pp.scale_jitter(640, 640, like="opencv"), CROP, FLIP],
            )
        },
    ),
    # semantic segmentation, depth and restoration
    "deeplab": Recipe(
        [pp.random_resize(260, 1040), FLIP, pp.random_crop(480, pad_if_needed=True), pp.mask(), *tensor()]
    ),
    "mmsegmentation": Recipe(
        [
            pp.scale_jitter(512, 1024, scale_range=(0.5, 2.0), like="opencv"),
            pp.random_crop(512, 1024, max_label=0.75, pad_if_needed=True),
            FLIP,
            pp.random_photometric_distort(),
            pp.mask(),
            *tensor(),
        ]
    ),
    "unet": Recipe(
        [
            pp.resize(height=256, width=256, like="opencv"),
            pp.random_flip("vertical"),
            pp.random_affine(45, (0.06, 0.06), (0.9, 1.1), like="opencv", filter="bilinear"),
            pp.random_choice([pp.elastic_distortion(120, 6), pp.grid_distortion(), pp.optical_distortion()], p=0.8),
            pp.clahe(p=0.5),
            pp.random_brightness_contrast(),
            pp.mask(),
            *tensor(),
        ]
    ),
    "nnunet-2d": Recipe(
        [
            pp.random_crop(512, around="mask", by_label=True, centered=True, pad_if_needed=True, around_p=0.33),
            pp.random_affine(180, scale=(0.7, 1.4), p=0.2, filter="bilinear", like="opencv"),
            FLIP,
            pp.random_flip("vertical"),
            pp.random_gaussian_blur(7, (0.5, 1.0), p=0.2),
            pp.gamma((0.7, 1.5), p=0.3),
            pp.mask(),
            *tensor(),
        ]
    ),
    "depth": Recipe(
        [
            pp.random_rotate(2.5, filter="bilinear"),
            pp.random_crop(416, 544, pad_if_needed=True),
            FLIP,
            pp.color_jitter(0.1, 0.1, 0.1),
            pp.target("depth", filter="nearest"),
            *tensor(),
        ]
    ),
    "super-resolution": Recipe(
        [
            pp.random_crop(64),
            FLIP,
            pp.random_flip("vertical"),
            pp.target("high", dtype="uint8", zoom=4),
            pp.tensor(only="training"),
        ]
    ),
    # keypoints and clips
    "hrnet": Recipe(
        [pp.random_box_warp(256, 192, degrees=45), FLIP, pp.boxes(), pp.points(flip_pairs=((0, 1),)), *tensor()]
    ),
    "kinetics": Recipe(
        [pp.random_shortest_size(tuple(range(256, 321))), pp.random_crop(224), FLIP, *tensor(layout="cthw")],
        first=pp.decode_video(frames=8, sample={"step": 8}, start="random", only="training"),
    ),
    "video-mae": Recipe(
        [pp.random_resized_crop(224, scale=(0.5, 1.0)), *tensor(layout="cthw")],
        first=pp.decode_video(frames=16, sample={"step": 4}, start="random", only="training"),
    ),
}


def main() -> None:
    """Print the table of recipes, or one pipeline file."""
    if len(sys.argv) > 1:
        print(RECIPES[sys.argv[1]].pipeline().to_json())
        return
    for name, recipe in RECIPES.items():
        print(f"{name:20} {len(recipe.ops):2} ops {', '.join(recipe.loader)}")


if __name__ == "__main__":
    main()
