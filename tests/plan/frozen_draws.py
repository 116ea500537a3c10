"""Freezes the random parameters that each op and a Loader derive from a seed, an epoch and a sample, in tests/golden.

Each case has a few readable samples and a digest of many more. In some cases, the random numbers come from ``philox``.
In others, they cycle through 0, 1/4, 1/2, 3/4 and the largest number below 1, which test the ends of ranges and ties in
comparisons.
"""

import json
from hashlib import sha256
from itertools import product
from pathlib import Path

import numpy as np
from msgspec import convert

import pixprep as pp
from pixprep.engine.kernels.elastic import displacement
from pixprep.pipeline.ops import OPS
from pixprep.plan.draws.augments import Seen
from pixprep.plan.draws.philox import Numbers
from pixprep.plan.steps.warps import Elastic
from pixprep.training.order import Order

FROZEN = Path(__file__).parents[1] / "golden" / "draws.json"
SIZES = ((48, 160), (64, 64), (331, 97), (1, 1))
SHOWN = 3
EDGES = np.array([0.0, 0.25, 0.5, 0.75, 1 - 2.0**-32])
SAMPLES = [*product((1, 2**32 - 1), (0, 90), (0, 1, 2**33), (0, 128))]
"""Samples as (seed, epoch, index, attempt)."""
BOXES = np.array([[0.25, 0.25, 0.75, 0.75], [0, 0, 0.5, 0.5], [0.625, 0.125, 1, 0.5], [0.1, 0.7, 0.3, 0.9]])
"""Boxes in an image whose sides have the length 1."""


class Edges(Numbers):
    """Generator of random numbers at the ends of the range, in a different order for each index."""

    def __init__(self, index):
        super().__init__(0, 0, index, 0, {})

    def blocks(self, key, begin, count):  # noqa: ARG002
        bits = np.random.Philox(counter=[begin, 0, 0, 0], key=[self.index, 0]).random_raw(4 * count)
        return EDGES[(bits >> np.uint64(32)) % np.uint64(len(EDGES))].reshape(count, 4)


ALL = {"brightness": 0.4, "contrast": 0.5, "saturation": (0.5, 2.0), "hue": 0.1}
OPTIONS = {
    "decode_video": [
        {"frames": 10, "sample": "random", "only": "training"},
        {"frames": 4, "sample": {"fps": 5}, "start": "random", "only": "training"},
    ],
    "random_resized_crop": [
        {"height": 8},
        {"height": 8, "scale": (0.25, 1.0), "ratio": (1.0, 1.0)},
        {"height": 8, "scale": (0.5, 1.0), "ratio": (0.5, 4.0)},
        {"height": 8, "scale": (1.0, 1.0), "ratio": (2.0, 3.0)},
    ],
    "random_crop": [
        {"height": 1},
        {"height": 40, "width": 30},
        {"height": 64, "width": 64, "padding": (1, 2, 3, 4)},
        {"height": 101, "width": 70, "pad_if_needed": True, "padding": (0, 3, 5, 0)},
        {"height": 40, "width": 30, "around": "box", "around_p": 0.75},
        {"height": 40, "width": 30, "around": "point", "pad_if_needed": True, "centered": True},
        {"height": 20, "around": "mask", "by_label": True},
        {"height": 20, "width": 40, "max_label": 0.5, "ignore": (3,)},
    ],
    "random_size_crop": [{"min_size": 1, "max_size": 50}, {"min_size": 40, "max_size": 40}],
    "random_resize": [{"min_size": 32, "max_size": 33}, {"min_size": 32, "max_size": 81}],
    "random_shortest_size": [{"min_size": 64}, {"min_size": (32, 48, 64, 80), "max_size": 96}],
    "scale_jitter": [
        {"height": 100},
        {"height": 64, "width": 80, "scale_range": (0.5, 1.5)},
        {"scale_range": (0.5, 1.5)},
    ],
    "random_flip": [{}, {"p": 0.0}, {"p": 0.25, "axis": "vertical"}, {"p": 1.0}],
    "random_zoom_out": [{}, {"p": 1.0, "side_range": (1.0, 2.0)}, {"p": 0.25, "side_range": (2.0, 2.0)}],
    "random_iou_crop": [
        {},
        {"sampler_options": (0.0, 0.25, 0.5), "trials": 5, "min_scale": 0.5},
        {"sampler_options": (0.25, 1.0), "min_scale": 0.1, "min_aspect_ratio": 1.0, "max_aspect_ratio": 1.0},
    ],
    "random_choice": [
        {"ops": [{"op": "invert"}, {"op": "grayscale"}, []]},
        {"ops": [{"op": "flip"}, [{"op": "invert"}, {"op": "equalize"}]], "weights": [1, 3], "p": 0.75},
        {"ops": [{"op": "invert"}, {"op": "equalize"}, []], "weights": [1, 3, 0]},
    ],
    "random_apply": [{"ops": [{"op": "invert"}]}, {"ops": [{"op": "flip"}, {"op": "invert"}], "p": 0.25}],
    "random_order": [{"ops": [{"op": "invert"}, {"op": "equalize"}, {"op": "grayscale"}, {"op": "autocontrast"}, []]}],
    "random_gray": [{}, {"p": 0.25}],
    "random_posterize": [{"bits": 4}],
    "random_solarize": [{"threshold": 128.0}],
    "random_autocontrast": [{}],
    "random_equalize": [{}],
    "random_invert": [{}],
    "color_jitter": [{}, ALL, {**ALL, "p": 0.5}, {"contrast": (0.25, 4.0), "hue": (0.0, 0.5), "p": 0.25}],
    "random_hue_saturation_value": [{}, {"p": 0.25, "hue": (-180, 0), "saturation": 5, "value": (0, 255)}],
    "random_brightness_contrast": [{}, {"p": 1.0, "brightness": (-0.5, 0.25), "contrast": (0, 3)}],
    "random_photometric_distort": [{}, {"p": 1.0}, {"p": 0.25, **ALL}],
    "random_rotate": [{"degrees": 15}, {"degrees": (-90, 180)}],
    "random_affine": [
        {"degrees": 15},
        {"degrees": (0, 90), "translate": (0.25, 0.5), "scale": (0.5, 1.5), "shear": (-10, 10, 0, 20)},
    ],
    "random_perspective": [{}, {"p": 1.0, "distortion_scale": 1.0}, {"p": 0.25, "distortion_scale": 0.3}],
    "random_warp": [
        {"degrees": 15},
        {"degrees": (0, 90), "translate": (-0.25, 0.5, 0, 1), "scale": (0.5, 1.5, 1, 2), "shear": (-10, 10, 0, 20)},
        {"degrees": 0, "scale": (0.5, 2, 0.5, 2), "keep_ratio": True},
        {
            "degrees": 10,
            "scale": (0.5, 2) * 2,
            "keep_ratio": True,
            "like": "yolox",
            "height": 24,
            "width": 32,
            "shear": 2,
        },
        {"degrees": 0, "translate": (-0.1, 0.1) * 2, "keep_ratio": True, "like": "ultralytics", "shear": 9},
    ],
    "random_box_warp": [
        {"height": 64, "width": 48},
        {
            "height": 48,
            "width": 64,
            "half_body_p": 0.75,
            "upper_body": (0, 1, 2, 3),
            "lower_body": (8, 9, 10, 11),
        },
    ],
    "random_warp_perspective": [{}, {"scale": (0.5, 1.0)}],
    "elastic": [{}, {"p": 0.5}],
    "gamma": [{"gamma": (0.8, 1.2), "like": "opencv"}],
    "grid_distortion": [{}, {"cells": 3, "limit": (-0.1, 0.5), "normalized": False, "p": 0.5}],
    "optical_distortion": [{}, {"k": (-0.5, 0.5), "model": "fisheye", "p": 0.5}],
    "elastic_distortion": [{"alpha": 20.0, "sigma": 3.0}, {"alpha": 9.0, "sigma": 2.0, "same": True, "p": 0.5}],
    "box_blur": [{}, {"kernel": (3, 5), "p": 0.5}],
    "median_blur": [{}, {"kernel": (5, 9), "p": 0.5}],
    "motion_blur": [
        {"angle": (0.0, 360.0)},
        {"direction": (-1.0, 1.0), "shift_x": (-1.0, 1.0), "shift_y": (-1.0, 1.0)},
    ],
    "sharpen": [{}, {"alpha": (0.1, 0.9), "lightness": 1.0, "p": 0.5}],
    "clahe": [{"clip_limit": (1.0, 4.0)}, {"clip_limit": (2.0, 3.0), "grid": (2, 3), "p": 0.5}],
    "gauss_noise": [{}, {"std": 0.1, "mean": (-0.2, 0.2), "per_channel": False, "p": 0.5}],
    "compression": [{"quality": (50, 90)}, {"quality": (1, 100), "format": "webp", "p": 0.5}],
    "downscale": [{"scale": (0.25, 0.75)}, {"scale": (0.25, 0.5), "down": "area", "up": "bilinear", "p": 0.5}],
    "tone_curve": [{}, {"low": 0.5, "std": 0.9, "p": 0.5}],
    "grid_dropout": [
        {},
        {"cells": (2, 3), "shift": (1, 2), "random_offset": False, "p": 1.0},
        {"unit": (9, 17), "ratio": 0.3},
    ],
    "random_sized_crop": [{"height": 8, "heights": (1, 60)}, {"height": 8, "heights": (9, 200), "ratio": 1.5}],
    "random_sharpness": [{"factor": 2}],
    "random_gaussian_blur": [
        {"kernel_size": 5},
        {"kernel_size": (3, 7), "sigma": (0.5, 1.5), "p": 0.25},
        {"kernel_size": 0, "sigma": (0.5, 3), "like": "opencv"},
    ],
    "coarse_dropout": [{}, {"p": 1.0, "count": (2, 5), "hole_height": (1, 40), "hole_width": (3, 3)}],
    "random_erasing": [
        {},
        {"p": 1.0, "value": 7, "scale": (0.25, 1.0), "ratio": (1.0, 1.0)},
        {"p": 0.25, "value": "random", "count": (1, 4), "scale": (0.1, 0.5)},
        {"value": "random_color", "count": (1, 3), "scale": (0.1, 0.5)},
    ],
    "rand_augment": [{}, {"num_ops": 5, "magnitude": 20}, {"num_ops": 0}, {"magnitude": 0, "num_magnitude_bins": 10}],
    "trivial_augment": [{}, {"num_magnitude_bins": 4}],
    "auto_augment": [
        {"policy": name} for name in ("imagenet", "cifar10", "svhn", "original", "originalr", "v0", "v0r")
    ],
    "aug_mix": [
        {},
        {"mixture_width": 2, "chain_depth": 4, "alpha": 0.5, "all_ops": False},
        {"severity": 10, "all_ops": False},
    ],
    "timm_rand_augment": [
        {},
        {"magnitude": 9.0, "magnitude_std": 0.5, "increasing": True, "p": 0.75},
        {"magnitude": 7.0, "magnitude_std": "uniform", "weighted": True, "num_ops": 4, "p": 1.0},
        {"magnitude": 9.0, "num_ops": 5, "filter": "random"},
        {"magnitude": 9.0, "magnitude_std": 2.0, "magnitude_max": 9.5},
    ],
}
"""Fields with which each random op is tested."""
ORDERS = {
    "shuffle": {},
    "blocks": {"shuffle": "blocks", "samples": 5000},
    "weights": {"weights": np.arange(40.0)},
    "shares": {"parts_of": (30, 10), "shares": (0.25, 0.75)},
    "repeats": {"repeats": 3},
    "epoch_samples": {"epoch_samples": 100},
    "groups": {"groups": np.arange(40) % 3, "last": "pad"},
    "all": {"parts_of": (30, 10), "shares": (0.25, 0.75), "repeats": 3, "epoch_samples": 92},
}
MIXES = [{"mixup": 0.2}, {"cutmix": 1.0}, {"mixup": 0.8, "cutmix": 1.0, "p": 0.75}]


def frozen():
    """Return a few samples and a digest of all samples for each case, in the format of the file."""
    found = {}
    for name, several in OPTIONS.items():
        for fields in several:
            found[f"{name}({called(fields)})"] = op_draws({"op": name, **fields})
    for name, fields in ORDERS.items():
        found[f"order of samples, {name}"] = order_draws({"samples": 40, "batch_size": 8, "shuffle": True, **fields})
    for fields in MIXES:
        mix = pp.Mix(10, **fields)
        found[f"Mix({called(fields)})"] = packed(
            [
                mix.draw((seed, epoch, end, rank), 48, 64)
                for seed, epoch, end, rank in product((1, 7), (0, 3), (8, 960), (0, 5))
            ]
        )
    fields = [displacement(Elastic((50.0, 30.0), (5.0, 2.0), seed), 23, 37) for seed in (0, 2**64 - 1)]
    found["elastic noise"] = packed([each[:, 9, 3:6].tolist() for each in fields], *(each.tobytes() for each in fields))
    return found


def op_draws(entry):
    """Return the random parameters of one op."""
    op, cut, tensor = convert(entry, OPS[entry["op"]]), pp.center_crop(1), pp.tensor(only="training")
    ops = [pp.decode(), op, cut, tensor]
    if entry["op"] == "decode_video":
        ops = [op, cut, pp.tensor(layout="tchw", only="training")]
    elif isinstance(entry.get("value"), str):
        ops = [pp.decode(), cut, pp.normalize(), op, tensor]
    plan = pp.Pipeline(ops).for_training().plan
    (step,) = plan.random_steps
    those = [plan.draw(seed=s, epoch=e, indices=[index], attempts=a)[0] for s, e, index, a in SAMPLES]
    those += [Edges(index) for index in range(48)]
    return packed([words(step, *size, each) for size in SIZES for each in those])


def words(step, height, width, numbers):
    """Return the random parameters, with the boxes that are kept, or the error."""
    boxes = BOXES * (width, height, width, height)
    points = np.stack(np.meshgrid(np.arange(4), np.arange(3)), -1).reshape(12, 2) / 4
    points = boxes[:, None, :2] + points * (boxes[:, None, 2:] - boxes[:, None, :2])
    visible = np.arange(48).reshape(4, 12) % 5 > 0
    labels = np.add.outer(np.arange(height) // 16, np.arange(width) // 16) % 4
    try:
        drawn = step.words(height, width, numbers, Seen(boxes, points, visible, lambda: labels) if step.sees else None)
    except pp.ImageError as error:
        return str(error)
    kept = step.op.keeps(drawn, boxes) if step.sees else None
    return drawn if kept is None else [drawn, kept.tolist()]


def order_draws(fields):
    """Return the samples of each batch in some epochs, and the samples that replace broken ones."""
    order = Order(**fields, seed=5)
    first = [part.indices.tolist() for part in order.parts(2)]
    rest = [part.indices.tolist() for epoch in range(7) for part in order.parts(epoch)]
    others = [
        order.replacement(epoch, index, attempt) for epoch, index, attempt in product((0, 3), (0, 39), (1, 2, 129))
    ]
    return packed([*first, *rest, others])


def called(fields):
    return ", ".join(f"{name}={value!r}" for name, value in fields.items())


def packed(draws, *more):
    """Return the first samples, for readers, and a digest of all samples."""
    text = json.dumps(draws).encode()
    return {"draws": draws[:SHOWN], "digest": sha256(b"".join([text, *more])).hexdigest()[:16]}


def remade(old, new, meant=()):
    """Return the new cases. Exit if an old case has changed but is not listed in ``meant``."""
    changed = [name for name in old if json.dumps(new.get(name)) != json.dumps(old[name]) and name not in meant]
    if changed:
        raise SystemExit("nothing was written, because these draws would change: " + "; ".join(changed))
    return new
