"""Applies torchvision's own transforms with the random parameters that pixprep has recorded for a sample."""

from collections import Counter
from copy import copy

import numpy as np
import torch
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional as F  # noqa: N812

from pixprep.engine.kernels.elastic import displacement
from pixprep.engine.kernels.kernel import noise as drawn_noise
from pixprep.plan.draws.motions import coefficients
from pixprep.plan.steps.warps import Elastic

KINDS = ("brightness", "contrast", "saturation", "hue")
CHOICES = {"RandomApply": "random_apply", "RandomChoice": "random_choice", "RandomOrder": "random_order"}


def jitter(_, words, *__):
    order = [KINDS.index(kind) for kind in words]
    order += [index for index, kind in enumerate(KINDS) if kind not in words]
    return {"fn_idx": torch.tensor(order)} | {f"{kind}_factor": words.get(kind) for kind in KINDS}


def distortion(_, words, *__):
    order, channels = list(words), words.get("channels")
    later = [order.index(kind) for kind in ("saturation", "hue") if kind in words]
    early = "contrast" in words and order.index("contrast") < min(later, default=9)
    return {f"{kind}_factor": words.get(kind) for kind in KINDS} | {
        "contrast_before": early,
        "channel_permutation": None if channels is None else torch.tensor(channels),
    }


def margins(_, words, size, __):
    left, top = -words["left"], -words["top"]
    return {"padding": [left, top, words["width"] - size[1] - left, words["height"] - size[0] - top]}


def cut(_, words, size, kept):
    if size == [words["height"], words["width"]]:
        return {}
    return words | {"is_within_crop_area": torch.from_numpy(kept)}


def window(transform, words, size, _):
    params = transform.make_params([torch.zeros(1, *size)])
    left, top = params["padding"][:2]
    return params | {"top": top + words["top"], "left": left + words["left"]}


def rectangle(transform, words, *_):
    ((top, left, height, width),) = words["rectangles"]
    value = transform.value
    if value is None:  # the noise has one value for each channel and pixel
        value = torch.from_numpy(drawn_noise((*words["noise"], 0), (3, height, width)))
    else:
        value = torch.tensor(value)[:, None, None]
    return {"i": top, "j": left, "h": height, "w": width, "v": value}


def field(transform, words, size, _):
    found = displacement(Elastic(tuple(transform.alpha), tuple(transform.sigma), words["seed"]), *size)
    return {"displacement": torch.from_numpy(np.moveaxis(found, 0, -1).copy())[None]}


def tilt(_, words, size, __):
    found = coefficients(*size, words["corners"])
    return {"coefficients": [1, 0, 0, 0, 1, 0, 0, 0] if found is None else list(found)}  # the corners are on one line


def as_recorded(_, words, *__):
    return words


REPLAYED = {
    "AugMix": ("aug_mix", None),
    "AutoAugment": ("auto_augment", None),
    "ColorJitter": ("color_jitter", jitter),
    "ElasticTransform": ("elastic", field),
    "GaussianBlur": ("random_gaussian_blur", as_recorded),
    "RandAugment": ("rand_augment", None),
    "RandomAdjustSharpness": ("random_sharpness", None),
    "RandomAffine": ("random_affine", as_recorded),
    "RandomAutocontrast": ("random_autocontrast", None),
    "RandomCrop": ("random_crop", window),
    "RandomEqualize": ("random_equalize", None),
    "RandomErasing": ("random_erasing", rectangle),
    "RandomGrayscale": ("random_gray", None),
    "RandomHorizontalFlip": ("random_flip", None),
    "RandomInvert": ("random_invert", None),
    "RandomIoUCrop": ("random_iou_crop", cut),
    "RandomPerspective": ("random_perspective", tilt),
    "RandomPhotometricDistort": ("random_photometric_distort", distortion),
    "RandomPosterize": ("random_posterize", None),
    "RandomResize": ("random_resize", lambda _, words, *__: {"size": [words["size"]]}),
    "RandomResizedCrop": ("random_resized_crop", as_recorded),
    "RandomRotation": ("random_rotate", as_recorded),
    "RandomShortestSize": (
        "random_shortest_size",
        lambda transform, words, size, _: v2.RandomShortestSize([words["size"]], transform.max_size).make_params(
            [torch.zeros(1, *size)]
        ),
    ),
    "RandomSolarize": ("random_solarize", None),
    "RandomVerticalFlip": ("random_flip", None),
    "RandomZoomOut": ("random_zoom_out", margins),
    "ScaleJitter": ("scale_jitter", lambda _, words, *__: {"size": [words["height"], words["width"]]}),
    "TrivialAugmentWide": ("trivial_augment", None),
}
"""By class, the name of pixprep's op, and a function that converts its parameters to those of ``make_params``. None
means that only the decision whether the transform is applied is random, or that the transform is a policy.
"""
POLICIES = {"AugMix", "AutoAugment", "RandAugment", "TrivialAugmentWide"}


def is_applied(words):
    """Return whether the recorded parameters change the image."""
    decisions = ("apply", "flip", "sigma", "seed", "corners", "rectangles")
    return all(words.get(name, True) not in (None, False, []) for name in decisions)


def replayed(transform, draws, kept=None, scope="", counts=None):
    """Return a transform with the recorded parameters of one sample.

    ``draws`` and ``kept`` are recorded by pixprep under keys that contain the name of an op and its number among equal
    names. ``scope`` is the beginning of the keys of a choice.
    """
    counts = Counter() if counts is None else counts
    name = type(transform).__name__
    if name == "Compose":
        return v2.Compose([replayed(each, draws, kept, scope, counts) for each in transform.transforms])
    parts = getattr(transform, "transforms", [])
    if name == "RandomApply" and len(parts) == 1 and type(parts[0]).__name__ in REPLAYED:
        return replayed(parts[0], draws, kept, scope, counts)  # pixprep has one op with a probability
    if name not in {*CHOICES, *REPLAYED}:
        return transform
    op, params = (CHOICES[name], None) if name in CHOICES else REPLAYED[name]
    key = f"{scope}{op}#{counts[op]}"
    is_recorded = key in draws or f"{key}.p" in draws
    counts[op] += is_recorded
    if not is_recorded:  # it has a single outcome
        return transform
    if name in CHOICES:
        groups = [parts] if name == "RandomApply" else [[part] for part in parts]
        chosen = [replayed(v2.Compose(groups[index]), draws, kept, f"{key}.{index}.") for index in draws[key]["chosen"]]
        return v2.Compose(chosen or [v2.Identity()])
    if draws.get(f"{key}.p", {}).get("chosen") == [] or not is_applied(draws[key]):
        return v2.Identity()
    words, made = draws[key], copy(transform)
    made.p = 1.0
    if name == "AugMix":
        replay_mix(made, words)
    elif name in POLICIES:
        made.forward = lambda sample: {"image": with_steps(made, sample["image"], words["ops"])}
    elif params:
        made.make_params = lambda inputs: params(transform, words, F.get_size(inputs[0]), (kept or {}).get(key))
    return made


def with_steps(policy, image, steps):
    """Return the image after a policy's own function for each recorded step."""
    for each in steps:
        image = policy._apply_image_or_video_transform(
            image, each["op"], each.get("magnitude", 0.0), policy.interpolation, policy._fill
        )
    return image


def replay_mix(mix, words):
    """Give an ``AugMix`` the recorded weights and steps. Shorter chains end with steps that have no effect."""
    mix.severity = 1  # the index of the magnitude, which the function below returns alone
    mix.mixture_width, mix.chain_depth = len(words["chains"]), max(map(len, words["chains"]))
    own, *weights = words["weights"]
    shares = iter([[own, 1.0], weights])
    nothing = {"op": "Identity"}
    steps = iter([step for chain in words["chains"] for step in [*chain, *[nothing] * (mix.chain_depth - len(chain))]])

    def chosen(_):
        each = next(steps)
        size = torch.tensor([each["magnitude"]], dtype=torch.float64) if "magnitude" in each else None
        return each["op"], (lambda *_: size, False)

    mix._sample_dirichlet, mix._get_random_item = lambda _: torch.tensor([next(shares)]), chosen
