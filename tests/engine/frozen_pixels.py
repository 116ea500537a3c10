"""Freezes digests of tensors: the results of hundreds of lists of ops for six images that are defined by integer
formulas.

``FROZEN`` has one line per list. A line contains the ops, written as in a pipeline file. For each image, it also
contains either the digest of the tensors of all epochs or the reason for the error. The lists are read from this file,
so a line stays valid when ``cases`` changes. No image file is decoded. The digests are the same on the x86-64 levels up
to v3, with NumPy 1.26 and 2.4, and with the vector code of NumPy and of glibc disabled.
"""

import itertools
import json
from collections.abc import Iterator
from hashlib import sha256
from typing import get_args

import msgspec
import numpy as np

import pixprep as pp
from pixprep.pipeline.file import to_dict
from pixprep.pipeline.ops import OPS
from pixprep.pipeline.ops.op import Drawn
from pixprep.plan.profiles import PROFILES, WARPS
from pixprep.spec import Arithmetic, ColorLike, PaddingMode
from support.canonical import GOLDEN

FROZEN = GOLDEN / "pixels.jsonl"
EPOCHS = 3
"""Number of samples that each random op draws for each image."""


def image(height, width, channels=3):
    """Return an image of gradients, an edge, a stripe of one colour, a texture of lines, and grain from the middle bits
    of a hash.
    """
    y, x, c = np.indices((height, width, channels), dtype=np.uint64)
    levels = 255 * (x * (3 - c) + y * (c + 1)) // (3 * width + 3 * height)
    levels = np.where(x * 5 > y * 3 + 40, levels, 255 - levels)
    levels = np.where((y // 3) % 5 == 2, 255 * ((x + c) % 2), levels)
    grain = (((y * 65537 + x * 257 + c * 17 + 1) * 2654435761) >> np.uint64(11)) % 64
    levels = np.where((x + 2 * y) % 41 < 3, 200 - 60 * c, levels + grain)
    return np.minimum(levels, 255).astype(np.uint8)


IMAGES = [
    image(67, 91), image(140, 41) // 2 + 40, image(33, 150), image(7, 9), image(64, 48, 1) // 3 + 9, image(192, 144),
]  # fmt: skip
"""Sizes of the images: two are larger or smaller than most sizes below; the others are tall, wide, tiny or gray.

The sides of the last two are 4 and 12 times those of a 16 x 12 image. Two images have little contrast.
"""
LARGE = [
    ("torchvision", "bicubic"),
    ("opencv", "bilinear"),
    ("opencv", "bicubic"),
    ("torch", "bilinear"),
    ("dali", "bicubic"),
]
"""Resizes whose result has more values than ``resample`` processes at a time."""
RULES = {
    "shrink": {"size": 60, "width": 50, "multiple": 8},
    "contain": {"size": 60, "width": 50},
    "longer": {"size": 70, "min_size": 30},
    "longer_even": {"size": 70, "min_size": 30},
    "bounded": {"size": 70, "min_size": 30},
    "multiple": {"multiple": 6},
    "shorter_up": {"size": 30, "multiple": 8},
    "shorter_even": {"size": 30, "multiple": 8},
    "shorter_down": {"size": 48, "multiple": 8},
    "detr": {"size": 48, "max_size": 90, "multiple": 8},
    "half": {"size": 40, "max_size": 120, "multiple": 8},
    "idefics3": {"size": 70},
    "up": {"multiple": 24},
    "thumbnail": {"size": 60, "width": 50},
}
"""Fields of each formula of ``resize_by_rule``."""
FITS = {"resolution": "center", "scale": "top_left"}
"""Fit of some criteria of ``resize_to_tiles``."""
BOXES = [
    [[1, 1, 5, 4], [width // 2, height // 3, width - 1, height]] for height, width in (i.shape[:2] for i in IMAGES)
]


def cases() -> Iterator[list]:
    """Return every list of ops to freeze."""
    yield from _methods()
    yield from _sizes()
    yield from _places()
    yield from _values()
    yield from _levels()
    yield from _random()


def _methods():
    """Return lists with every filter of every profile that reduce and enlarge, by integer factors and to a single
    column.
    """
    for like, profile in PROFILES.items():
        for method in profile.methods:
            how = {"filter": method.filter, "antialias": method.antialias, "like": like}
            for height, width in ((48, 56), (16, 12), (128, 96), (40, 1)):
                yield [pp.resize(height=height, width=width, **how)]
            yield [pp.resize(51, **how), pp.center_crop(44, 63), pp.flip()]  # regions and padding
            turned = pp.crop(1, 2, 6, 5), pp.flip("vertical")
            yield [*turned, pp.resize(height=23, width=40, **how), pp.crop(3, 7, 20, 9)]
    for like, filter_name in LARGE:
        yield [pp.resize(height=420, width=520, like=like, filter=filter_name), pp.crop(1, 0, 419, 519)]


def _sizes():
    for like, rounding in itertools.product(("pillow", "dali"), ("down", "half_even", "half_away", "up")):
        for mode in ("fit", "cover"):
            yield [pp.resize(height=40, width=30, mode=mode, rounding=rounding, like=like)]
    for filter_name in PROFILES["dali"].filters:
        for subpixel in (False, True):
            how = {"like": "dali", "subpixel": subpixel, "filter": filter_name}
            yield [pp.resize(37, **how), pp.center_crop(32, rounding="half_away")]
            yield [pp.resize(61, side="longer", **how)]
            yield [pp.resize(height=45, width=60, mode="cover", **how)]
    for rounding in ("down", "half_even", "half_away", "up"):
        yield [pp.resize(29, rounding=rounding)]
        yield [pp.resize(53, side="longer", rounding=rounding)]
        yield [pp.resize(height=31, rounding=rounding)]
        yield [pp.resize(width=31, multiple=8, max_size=64, rounding=rounding)]
        yield [pp.resize(50, mode="scale", multiple=4, rounding=rounding)]
    yield [pp.resize(40, max_size=60)]
    for like, small in itertools.product(("pillow", "torchvision"), ("keep", "truncate", "round")):
        how = {"like": like, "filter": "bicubic", "small": small}
        yield [pp.resize_to_pixels(multiple=14, min_pixels=1000, max_pixels=3000, **how)]
        yield [pp.resize_to_pixels(multiple=100, max_pixels=30_000, frames=2, **how)]
    yield [pp.resize_to_patches(patch_size=8, max_patches=64, like="torchvision")]
    for patch_rule in ("gemma", "muse"):
        yield [pp.resize_to_patches(patch_size=4, merge_size=2, max_patches=200, rule=patch_rule)]
    yield [pp.resize_to_patches(patch_size=4, max_patches=99, max_side=12, rule="kimi"), pp.pad(multiple=8)]
    for rule, fields in RULES.items():
        yield [pp.resize_by_rule(rule=rule, **fields, filter="bicubic", like="torchvision")]
    yield [pp.resize_by_rule(rule="idefics3", size=90), pp.resize_by_rule(rule="up", multiple=24, again=True)]
    for choose in ("aspect_ratio", "scale", "resolution", "coverage", "canvas"):
        yield [pp.resize_to_tiles(tile_size=24, max_tiles=6, choose=choose, fit=FITS.get(choose, "stretch"))]
    yield [pp.resize(40, max_size=60, rounding="detr")]
    yield [pp.resize(40, max_size=60, multiple=8, rounding="detr")]
    yield [pp.resize(80, mode="scale", shrink=False)]
    yield [pp.resize(80, mode="scale", side="longer", enlarge=False)]
    yield [pp.resize(height=48, max_size=320, up_to=32, like="opencv", rounding="up")]


def _places():
    for like in PROFILES:
        yield [pp.letterbox(56, 64, like=like)]
        yield [pp.letterbox(61, 40, fill=(1, 2, 3), anchor="top_left", enlarge=False, rounding="down", like=like)]
        if like != "tensorflow":
            yield [pp.pad(square=True, fill=9), pp.resize(height=45, width=45, like=like, filter="bicubic")]
            yield [pp.pad(200, 170, fill=(5, 6, 7), anchor="top_left"), pp.flip(), pp.resize(41, like=like)]
        yield [pp.center_crop(fraction=0.7), pp.resize(height=36, width=50, like=like)]
    for rounding in ("half_even", "down", "half_away"):
        yield [pp.center_crop(38, 45, rounding=rounding)]
        yield [pp.resize(50), pp.center_crop(55, 39, rounding=rounding)]
        yield [pp.resize(50), pp.center_crop(50, 60, rounding=rounding, smaller="refuse")]
    for mode in get_args(PaddingMode):
        yield [pp.pad(196, 155, padding_mode=mode)]
        yield [pp.resize(40), pp.random_crop(44, padding=(3, 2), pad_if_needed=True, padding_mode=mode)]
    yield [pp.flip()]
    yield [pp.flip("vertical"), pp.crop(0, 1, 7, 8)]


def _values():
    """Return lists that test value arithmetic with and without rounding to pixel values, and dtypes, layouts and
    channels.
    """
    per_channel = {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}
    for arithmetic in get_args(Arithmetic):
        for like in ("pillow", "tensorflow"):
            for dtype, layout in (("float32", "chw"), ("float16", "hwc")):
                first = [pp.pixels(), pp.resize(height=30, width=33, like=like)]
                yield [
                    *first,
                    pp.normalize(arithmetic=arithmetic, **per_channel),
                    pp.tensor(dtype=dtype, layout=layout),
                ]
    for color in ("rgb", "bgr"):
        yield [pp.pixels(color=color), pp.resize(height=30, width=33), pp.tensor(dtype="uint8")]
        yield [pp.pixels(color=color, given="bgr"), pp.resize(20), pp.center_crop(20), pp.normalize(), pp.tensor()]
    yield [pp.pixels(color="gray"), pp.resize(height=30, width=33), pp.normalize(mean=0.5, std=0.25), pp.tensor()]


def _levels():
    """Return lists with ops on pixel values, both alone and between a resize and a crop."""
    ops = []
    for like in get_args(ColorLike):
        for factor in (0.0, 0.4, 1.7):
            makers = (pp.brightness, pp.contrast, pp.saturation, pp.sharpness)
            ops += [maker(factor, like=like) for maker in makers]
        ops += [pp.hue(shift, like=like) for shift in (-0.5, -0.21, 0.08, 0.37)]
        ops += [pp.autocontrast(like=like), pp.grayscale(like=like)]
        ops += [pp.gamma(power, like=like) for power in (0.6, 2.2)]
        for way in WARPS[like].filters:
            how = {"filter": way, "like": like, "fill": 77}
            ops += [pp.rotate(33, **how), pp.rotate(-110.5, expand=True, **how), pp.rotate(90, **how)]
            ops += [pp.affine(12, translate=(3, -2), scale=1.3, shear=(8, -5), **how)]
            ops += [pp.affine(-75, scale=0.6, center=(5, 4), **how)]
            ops += [pp.perspective(((1, 0), (30, 3), (28, 25), (-2, 21)), **how)]
    ops += [pp.posterize(bits) for bits in (1, 3)] + [
        pp.solarize(99.5),
        pp.solarize_add(60),
        pp.invert(),
        pp.equalize(),
    ]
    ops += [pp.permute_channels((2, 0, 1))]
    ops += [make(factor, "opencv") for make in (pp.contrast, pp.saturation) for factor in (0.0, 0.4, 1.7)]
    ops += [pp.grayscale("opencv"), pp.hue(-0.21, "opencv"), pp.hue_saturation_value(33.5, -40, 17)]
    ops += [pp.brightness_contrast(1.25, -20.5)]
    ops += [pp.gaussian_blur(5), pp.gaussian_blur((3, 9), sigma=(0.7, 2.5))]
    ops += [pp.color_matrix(((1.1, 0.2, -0.3, 9.5), (0.4, 0.5, 0.1, -20), (-0.2, 0.6, 0.7, 3)))]
    ops += [pp.erase(2, 3, 5, 9, fill=(9, 99, 199))]
    for op in ops:
        yield [op]
    for like in get_args(ColorLike):
        yield [pp.rotate(33, center=(5, 4), filter="bilinear", like=like)]
    for way in ("bilinear", "bicubic", "nearest"):
        yield [pp.warp(quad=((1, 0), (30, 3), (28, 25), (-2, 21)), filter=way)]
        yield [
            pp.warp(matrix=((1.2, -0.4, 3), (0.3, 0.9, -5)), height=33, width=40, padding_mode="reflect", filter=way)
        ]
    for like, op in zip(itertools.cycle(PROFILES), ops, strict=False):
        if like != "tensorflow":
            yield [pp.resize(34, like=like), op, pp.center_crop(30, 37), pp.flip()]
    yield [pp.brightness(1.4), pp.contrast(0.7), pp.hue(0.1), pp.saturation(1.3), pp.rotate(5), pp.posterize(4)]


def _random():
    """Return lists with random ops."""
    for like in get_args(ColorLike):
        yield [pp.color_jitter(0.4, 0.5, 0.6, 0.2, like=like)]
        yield [pp.random_photometric_distort(like=like)]
        yield [pp.random_affine(25, translate=(0.1, 0.2), scale=(0.7, 1.4), shear=9, filter="bilinear", like=like)]
        yield [pp.random_rotate(40, filter="bilinear", expand=True, like=like)]
        yield [pp.random_perspective(0.4, p=1.0, filter="bilinear", like=like)]
        yield [pp.rand_augment(num_ops=3, magnitude=20, filter="bilinear", like=like)]
        yield [pp.trivial_augment(like=like)]
        yield [pp.auto_augment(like=like)]
    for like in PROFILES:
        yield [pp.random_resized_crop(30, 44, like=like), pp.random_flip()]
        yield [pp.random_shortest_size((24, 37, 50), max_size=70, like=like)]
        yield [
            pp.scale_jitter(40, 50, scale_range=(0.5, 1.5), like=like),
            pp.random_crop(32, pad_if_needed=True, fill=3),
        ]
        yield [pp.random_resize(24, 51, like=like)]
    for policy in ("cifar10", "svhn", "original", "v0r"):
        yield [pp.auto_augment(policy=policy)]
    yield [pp.aug_mix()]
    yield [pp.timm_rand_augment(magnitude=9, magnitude_std=0.5, increasing=True, p=1.0)]
    yield [pp.timm_rand_augment(magnitude=9, increasing=True, p=1.0, filter="random")]
    yield [pp.random_zoom_out(fill=(123, 117, 104), p=0.8), pp.random_iou_crop(), pp.resize(height=40, width=40)]
    yield [pp.random_crop(7, 6), pp.random_flip("vertical", p=0.3)]
    yield [pp.coarse_dropout((3, 5), fill=(9, 120, 250), p=1.0)]
    yield [pp.random_warp(40, (-0.1, 0.2, 0, 0.1), (0.7, 1.4, 0.9, 1.1), 9, fill=(9, 120, 250))]
    yield [pp.random_warp_perspective((0.1, 0.3), padding_mode="reflect", filter="bicubic")]
    yield [pp.random_brightness_contrast(p=1.0), pp.random_hue_saturation_value(p=1.0)]
    yield [pp.random_gray(p=0.5), pp.random_posterize(3), pp.random_solarize(100), pp.random_invert(p=0.3)]
    yield [pp.random_autocontrast(), pp.random_equalize(), pp.random_sharpness(1.8)]
    yield [pp.random_gaussian_blur(5)]
    yield [pp.gaussian_blur(0, (2.0, 4.3), "opencv"), pp.gaussian_blur((9, 3), 1.2, "opencv")]
    yield [pp.scale_jitter(scale_range=(0.5, 1.5), like="opencv"), pp.random_crop(32, pad_if_needed=True)]
    yield [pp.elastic(alpha=60.0, sigma=1.5)]
    yield [pp.random_choice([pp.flip(), [pp.invert(), pp.hue(0.3)]], weights=[1, 2])]
    yield [pp.random_size_crop(5, 20), pp.random_size_crop(2, 6, p=0.5)]
    yield [pp.random_apply([pp.brightness(1.4), pp.random_crop(7, 6)], p=0.5)]
    yield [pp.random_order([pp.brightness(1.4), pp.solarize(100), pp.posterize(3)])]
    yield [pp.random_erasing(p=1.0, value=(9, 99, 199), count=(1, 3))]
    for value in ("random", "random_color"):
        erasing = pp.random_erasing(p=1.0, value=value)
        yield [pp.resize(height=30, width=40), pp.normalize(mean=0.5, std=0.25), erasing, pp.tensor()]


def text(ops):
    """Return the ops on one line, in the format of a pipeline file."""
    return json.dumps([to_dict(op) for op in ops])


def digests(ops_text):
    """Return the digest of the tensors for each image, or the reason for the error."""
    ops = [msgspec.convert(entry, OPS[entry["op"]]) for entry in json.loads(ops_text)]
    return " ".join(_digest(ops, index) for index in range(len(IMAGES)))


def _digest(ops, index):
    state = sha256()
    is_random = any(isinstance(op, Drawn) for op in ops)
    boxes = BOXES[index] if any(isinstance(op, pp.ops.RandomIouCrop) for op in ops) else None
    for epoch in range(EPOCHS if is_random else 1):
        try:
            tensor = pp.apply(ops, IMAGES[index], seed=7, epoch=epoch, index=index, boxes=boxes)
        except pp.ImageError as error:
            return error.reason
        except pp.PipelineError:
            return "channels"
        state.update(f"{tensor.dtype} {tensor.shape} ".encode() + np.ascontiguousarray(tensor).tobytes())
    return state.hexdigest()[:8]


def frozen():
    """Return the contents of ``FROZEN`` as a mapping from each list of ops, as text, to its digests."""
    if not FROZEN.exists():
        return {}
    with FROZEN.open(encoding="utf-8") as lines:
        return {json.dumps(line["ops"]): line["digests"] for line in map(json.loads, lines)}


def changed(now):
    """Return a message that names the lines of ``FROZEN`` whose tensors have changed, or an empty string."""
    lines = [f"{ops}\n  frozen {was}\n  now    {now[ops]}" for ops, was in frozen().items() if now[ops] != was]
    return "\n".join(
        [f"{len(lines)} of {len(now)} lists of ops give other tensors than they did:", *lines[:20]] * bool(lines)
    )


def write(*, accepts_changes):
    """Add the lines of ``cases`` that ``FROZEN`` lacks. If other lines have changed, either rewrite them or list them
    and stop.
    """
    now = {ops: digests(ops) for ops in frozen()}
    if (moved := changed(now)) and not accepts_changes:
        return moved
    now |= {ops: digests(ops) for ops in map(text, cases()) if ops not in now}
    lines = [f'{{"ops": {ops}, "digests": "{words}"}}\n' for ops, words in now.items()]
    FROZEN.write_text("".join(lines), encoding="utf-8")
    return ""
