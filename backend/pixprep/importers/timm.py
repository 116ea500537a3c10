"""Imports timm's transforms from the name of a model, a ``pretrained_cfg``, or the ``config.json`` of a model on a hub.

The pipeline follows ``timm.data.resolve_data_config`` and ``create_transform`` for PIL images: Pillow resizes the image
to ``floor(side / crop_pct)``, and a centre crop of the input size follows. The arguments of ``create_transform``
determine the training transform. timm must be installed only for looking up a model by its name, because a
configuration contains all required values.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from math import floor
from pathlib import Path
from typing import Any, Literal, get_args

from pixprep.errors import PipelineError
from pixprep.importers.assembly import assembled, library_module
from pixprep.importers.fields import PILLOW_FILTERS, Fields, finite, opened, reading, sides
from pixprep.pipeline import ops
from pixprep.pipeline.ops import MAX_SIDE, Op, as_tuple
from pixprep.pipeline.pipeline import Pipeline
from pixprep.pipeline.presets import IMAGENET_MEAN, IMAGENET_STD
from pixprep.plan.draws.policies import TimmPolicy
from pixprep.plan.profiles import WARPS
from pixprep.spec import Filter

IGNORED = (
    *("url", "file", "state_dict", "hf_hub_id", "hf_hub_filename", "source", "architecture", "tag", "custom_load"),
    *("fixed_input_size", "min_input_size", "pool_size", "test_pool_size", "first_conv", "classifier", "global_pool"),
    *("num_features", "num_classes", "label_offset", "label_names", "label_descriptions", "labels"),
    *("license", "description", "origin_url", "paper_name", "paper_ids", "notes"),
)
"""Fields of a ``pretrained_cfg`` that do not affect the pixels, such as the location of the weights."""
REQUIRED_VALUES: dict[str, tuple[Any, ...]] = {
    "is_training": (True,),
    "train_crop_mode": ("rrc",),
    "normalize": (True,),
    **dict.fromkeys(("use_prefetcher", "separate", "naflex", "patchify", "tf_preprocessing"), (False,)),
}
"""Arguments of ``create_transform`` for which only these values are supported."""
EVALUATION_ONLY = (
    *("crop_pct", "crop_mode", "crop_border_pixels"),
    *("patch_size", "max_seq_len", "patchify_channels_last", "patchify_flatten"),
)
"""Arguments of ``create_transform`` that only the evaluation transform uses."""
TRAIN_PY_NAMES = {
    "aa": "auto_augment",
    "reprob": "re_prob",
    "remode": "re_mode",
    "recount": "re_count",
    "train_interpolation": "interpolation",
}
"""Names of the arguments of ``create_transform`` for options of timm's ``train.py`` that have different names."""
TRAIN_PY_DEFAULTS = {"re_mode": "pixel", "interpolation": "random"}
"""Defaults of ``train.py`` that differ from those of ``create_transform``."""
FLIPS: tuple[tuple[str, Literal["horizontal", "vertical"], float], ...] = (
    ("hflip", "horizontal", 0.5),
    ("vflip", "vertical", 0.0),
)
POLICY_KEYS: dict[str, Callable[[str], float]] = {
    "m": int,
    "n": int,
    "p": float,
    "mstd": float,
    "mmax": int,
    "inc": int,
}
POLICY_KEYS["tweights"] = len  # an option of timm without a number
"""Keys in a string such as ``rand-m9-mstd0.5`` that timm's ``RandAugment`` supports, and the types of their numbers."""
_CALL_TIMM = "remove auto_augment, and add the operator from docs/own-operators.md#timm, which calls timm"
UNSUPPORTED_POLICIES = {
    **dict.fromkeys(("3a", "3aw"), f"is not supported, because no op equals Pillow's GaussianBlur: {_CALL_TIMM}"),
    "augmix": "is not supported, because the op aug_mix implements torchvision's AugMix, whose pixels differ from "
    f"timm's: {_CALL_TIMM}",
}
"""Policies that are rejected, with the error messages."""
LOADER_OPTIONS = {
    **dict.fromkeys(("mixup", "cutmix"), "applies to batches: use Loader(mix=pp.Mix(classes, mixup=..., cutmix=...))"),
    "aug_repeats": "applies to the order of the samples: use Loader(repeats=...)",
}
"""Options of ``train.py`` for which pixprep has an argument of the ``Loader``, with the error messages."""
ERASING_VALUES: dict[str, float | Literal["random", "random_color"]] = {
    "const": 0.0,
    "rand": "random_color",
    "pixel": "random",
}
"""Values of the op ``random_erasing``, by timm's ``re_mode``."""
EMPTY_IS_ABSENT = ("crop_mode", "crop_pct", "interpolation", "mean", "std", "test_crop_pct")
"""Fields that timm treats as absent if they are empty or zero."""
_FILTERS = {filter_: filter_ for filter_ in PILLOW_FILTERS.values()}
TEST_SIZE = " (use_test_size)"
"""Suffix of the recorded model name if ``test_input_size`` and ``test_crop_pct`` were used."""


def from_timm(
    config: Mapping[str, Any] | str | Path,
    *,
    training: Mapping[str, Any] | str | Path | None = None,
    use_test_size: bool = False,
    name: str | None = None,
    **options: Any,
) -> Pipeline:
    """Convert timm's transforms into a pipeline whose tensors are bit-identical to timm's.

    The transform is ``create_transform(**resolve_data_config({}, pretrained_cfg=config))``.

    Args:
        config: Name of a model, such as ``resnet50.a1_in1k``; a ``pretrained_cfg``; or the ``config.json`` of a timm
            model on a hub, as a file or a mapping. As in timm, only the fields ``pretrained_cfg``, ``architecture`` and
            ``model_args`` of a ``config.json`` are used.
        training: Arguments of ``create_transform`` for training, in addition to the data config of the model and
            ``is_training=True``. They can be a mapping or a JSON file. ``{}`` selects timm's defaults. Options of
            ``train.py``, such as ``aa``, ``reprob`` or ``color-jitter``, are also accepted. If one of these options
            does not exist in ``create_transform`` under the same name, the defaults of ``train.py`` apply: ``remode``
            is ``pixel``, and ``train_interpolation`` is ``random``. Default: training uses the same transform as
            serving.
        use_test_size: Whether to use ``test_input_size`` and ``test_crop_pct`` if the configuration contains them.
        name: Name of the model, for error messages and for the origin of the pipeline. Default: the name in the
            configuration.
        options: Further entries of ``training``, such as ``aa="rand-m9-mstd0.5-inc1"`` and ``reprob=0.25``.

    Raises:
        PipelineError: A field or its value is not supported, or the model or file does not exist.
        SetupError: timm, which is required to look up the name of a model, is not installed.
    """
    where = name or "pretrained_cfg"
    if isinstance(config, str) and not config.endswith(".json"):
        name = where = name or config
        config = _pretrained_cfg(config)
    config, where = opened(config, where)
    outer = Fields(config, where)
    inner = dict(outer.mapping("pretrained_cfg") or config)
    if "input_size" not in inner:
        raise PipelineError(f'{where}: is not the configuration of a timm model, because "input_size" is missing')
    parts = (outer.text("architecture", "") or inner.get("architecture"), inner.get("tag"))
    name = name or ".".join(part for part in parts if isinstance(part, str) and part) or where
    _apply_model_args(inner, outer.mapping("model_args"), where)
    with reading(
        {field: inner[field] for field in inner if inner[field] or field not in EMPTY_IS_ABSENT}, where
    ) as fields:
        fields.ignore("input_size", "crop_pct", *IGNORED)
        chain = _with_decode(_ops(fields, use_test_size=use_test_size))
    trained = _training_ops(training, options, inner) if options or training is not None else None
    name = name[:180] + TEST_SIZE if use_test_size else name
    return assembled(chain, training=trained, library="timm", name=name, where=where)


def _with_decode(chain: Sequence[Op]) -> list[Op]:
    return [ops.Decode(apply_exif_orientation=False), *chain, ops.Tensor()]


def _training_ops(
    given: Mapping[str, Any] | str | Path | None, options: Mapping[str, Any], config: Mapping[str, Any]
) -> list[Op]:
    """Return all ops of the training transform, from ``decode`` to ``tensor``.

    Args:
        given: Arguments of ``create_transform``, or a JSON file that contains them.
        options: Further arguments of ``create_transform`` or options of ``train.py``.
        config: ``pretrained_cfg`` of the model, from which timm takes the input size, filter, mean and std.
    """
    where = "training" if given is not None else "options of train.py and create_transform"
    if not isinstance(given, Mapping | str | Path | None):
        raise PipelineError(
            f"{where}: must be an object with arguments of create_transform, or a JSON file with such an object"
        )
    given, where = opened({} if given is None else given, where)
    arguments = _create_transform_names([*given.items(), *options.items()], where)
    shared = {field: config[field] for field in ("input_size", "interpolation", "mean", "std") if config.get(field)}
    with reading({"interpolation": "bicubic", "color_jitter": 0.4, **shared, **arguments}, where) as fields:
        for name, supported in REQUIRED_VALUES.items():
            fields.expect(name, *supported)
        for name in (name for name in LOADER_OPTIONS if fields.has(name)):
            fields.refuse(name, LOADER_OPTIONS[name])
        fields.ignore(*EVALUATION_ONLY)
        size, mean = _size(fields, use_test_size=False), fields.numbers("mean", IMAGENET_MEAN)
        normalize = ops.Normalize(
            mean=mean, std=fields.numbers("std", IMAGENET_STD, positive=True), arithmetic="divide"
        )
        named: dict[str, tuple[Filter, ...]] = {name: (filter_,) for name, filter_ in _FILTERS.items()}
        filters = fields.choice("interpolation", {**named, "random": ("bilinear", "bicubic")})
        if fields.flag("no_aug"):
            fields.ignore("color_jitter", *arguments)
            return _with_decode(
                [ops.Resize(height=size[0], width=size[1], filter=filters[0]), ops.CenterCrop(*size), normalize]
            )
        return _with_decode([*_augmentation(fields, size, filters), normalize, *_random_erasing(fields)])


def _create_transform_names(arguments: Iterable[tuple[str, Any]], where: str) -> dict[str, Any]:
    """Rename options of ``train.py`` to the arguments of ``create_transform``, and add the defaults of ``train.py``.

    The defaults are added only if an argument was renamed.
    """
    found: dict[str, Any] = {}
    has_train_py_name = False
    for spelling, value in arguments:
        plain = spelling.removeprefix("--").replace("-", "_")
        name = TRAIN_PY_NAMES.get(plain, plain)
        if name in found:
            raise PipelineError(f"{where}: {name} is given twice, once as {spelling!r}")
        found[name] = value
        has_train_py_name |= spelling != name
    defaults = dict(TRAIN_PY_DEFAULTS) if has_train_py_name else {}
    if found.get("no_aug"):
        defaults.pop("interpolation", None)  # then timm uses the interpolation of the model
    return defaults | found


def _augmentation(fields: Fields, size: tuple[int, int], filters: Sequence[Filter]) -> list[Op]:
    """Return the ops of ``transforms_imagenet_train`` before the normalization.

    If there are several filters, each image is resized with one of them at random.
    """
    scale, ratio = fields.span("scale", (0.08, 1.0)), fields.span("ratio", (3 / 4, 4 / 3))
    crops = [ops.RandomResizedCrop(*size, scale=scale, ratio=ratio, filter=filter_) for filter_ in filters]
    chain: list[Op] = [ops.RandomChoice(tuple((crop,) for crop in crops))] if crops[1:] else [*crops]
    for name, axis, default in FLIPS:
        p = fields.number(name, default)
        chain += [ops.RandomFlip(axis, p)] * (p > 0)
    if fields.take("auto_augment"):
        fields.ignore("color_jitter", "color_jitter_prob")
        chain.append(_policy(fields, "random" if filters[1:] else filters[0]))
    else:
        chain += _color_jitter(fields)
    gray, blur = fields.number("grayscale_prob", 0.0), fields.number("gaussian_blur_prob", 0.0)
    return [
        *chain,
        *[ops.RandomGray(p=gray)] * (gray > 0),
        *[ops.RandomGaussianBlur(23, p=blur)] * (blur > 0),
    ]


def _policy(fields: Fields, filter_: Filter | Literal["random"]) -> ops.AutoAugment | ops.TimmRandAugment:
    """Convert ``auto_augment``, such as ``rand-m9-mstd0.5-inc1``, which is a policy followed by keys with numbers."""
    text, policies = fields.text("auto_augment"), get_args(TimmPolicy)
    name, *parts = text.split("-")
    known = POLICY_KEYS if name == "rand" else {"mstd": float}
    if name not in ("rand", *policies):
        fields.refuse(
            "auto_augment", UNSUPPORTED_POLICIES.get(name, f"must begin with one of rand, {', '.join(policies)}")
        )
    if filter_ not in ("random", *WARPS["pillow"].filters):
        fields.refuse(
            "interpolation",
            "is not supported with auto_augment, because Pillow cannot rotate with it: use bilinear, bicubic or "
            "nearest",
        )
    fill = tuple(min(255, round(255 * value)) for value in as_tuple(fields.numbers("mean", IMAGENET_MEAN)))
    if min(fill) < 0:
        fields.refuse("mean", "must not be negative with auto_augment, which uses it as the fill color")
    how: dict[str, Any] = {"filter": filter_, "fill": fill if len(fill) > 1 else fill[0]}
    numbers: dict[str, float] = {}
    for part in parts:
        key, number = re.fullmatch(r"(t.*|[^0-9]*)(.*)", part, re.DOTALL).groups()  # type: ignore[union-attr]
        try:
            value = known[key](number)
        except (KeyError, ValueError):
            why = UNSUPPORTED_POLICIES.get(part[1:], f"is not supported: use {', '.join(known)}, each with a number")
            fields.refuse("auto_augment", f"contains {part!r}, which {why}")
        if key in numbers:
            fields.refuse("auto_augment", f"contains {key} twice")
        numbers[key] = value
    std = numbers.get("mstd", 0.0)
    if name != "rand":
        return ops.AutoAugment(policy=name, magnitude_std=std, **how)  # type: ignore[arg-type]
    return ops.TimmRandAugment(
        num_ops=int(numbers.get("n", 2)),
        magnitude=numbers.get("m", 10.0),
        magnitude_std="uniform" if std > 100 else std,
        magnitude_max=numbers.get("mmax") or 10.0,
        p=numbers.get("p", 0.5),
        increasing=bool(numbers.get("inc")),
        weighted="tweights" in numbers,
        **how,
    )


def _color_jitter(fields: Fields) -> list[Op]:
    """Convert ``color_jitter``, which is one number, or separate numbers for brightness, contrast and saturation."""
    p = fields.number("color_jitter_prob", 1.0)
    if not fields.has("color_jitter"):
        return []
    strengths = finite(fields.take("color_jitter"))
    if len(strengths) not in (1, 3, 4) or min(strengths) < 0:
        fields.refuse(
            "color_jitter", "must be one number, or 3 or 4 numbers: brightness, contrast, saturation and optionally hue"
        )
    strengths = strengths * 3 if len(strengths) == 1 else strengths
    names = ("brightness", "contrast", "saturation", "hue")
    jitter: dict[str, Any] = dict(zip(names, strengths, strict=False))
    return [ops.ColorJitter(**jitter, p=p)] if any(strengths) and p > 0 else []


def _random_erasing(fields: Fields) -> list[Op]:
    """Convert ``re_prob`` and related arguments to a ``random_erasing`` op, which follows the normalization."""
    value = fields.choice("re_mode", ERASING_VALUES, "const")
    fields.expect(
        "re_num_splits", 0, 1, why="is not supported, because parameters are sampled for each image separately: use 0"
    )
    p = fields.number("re_prob", 0.0)
    count = 1, max(1, fields.integer("re_count") if fields.has("re_count") else 1)
    return [ops.RandomErasing(p, scale=(0.02, 1 / 3), ratio=(0.3, 1 / 0.3), value=value, count=count)] * (p > 0)


def _pretrained_cfg(name: str) -> Mapping[str, Any]:
    otherwise = ", or pass the model's config.json"
    models = library_module("timm.models", f'"{name}" is the name of a model', otherwise=otherwise)
    try:
        found = models.get_pretrained_cfg(name)
    except RuntimeError:  # timm does not have weights with this tag for the model
        found = None
    if found is None:
        raise PipelineError(f'timm does not have a pretrained model "{name}": see timm.list_pretrained() for all names')
    config: Mapping[str, Any] = found.to_dict()
    return config


def _apply_model_args(inner: dict[str, Any], arguments: Mapping[str, Any], where: str) -> None:
    """Apply ``img_size`` in the ``model_args`` of a ``config.json`` to the input size, as timm's hub loader does."""
    fields = Fields(arguments, f"{where}: model_args")
    fields.expect("in_chans", 3, why="must be 3: pixprep decodes images to RGB")
    is_variable = arguments.get("dynamic_img_size") or arguments.get("strict_img_size") is False
    if fields.has("img_size") and inner.get("fixed_input_size") and not is_variable and not arguments.get("use_naflex"):
        inner["input_size"] = (3, *fields.pair("img_size"))


def _ops(fields: Fields, *, use_test_size: bool) -> list[Op]:
    """Return the ops of the evaluation transform between ``decode`` and ``tensor``."""
    size = _size(fields, use_test_size=use_test_size)
    scaled = _resize_size(fields, size, use_test_size=use_test_size)
    mean, std = fields.numbers("mean", IMAGENET_MEAN), fields.numbers("std", IMAGENET_STD, positive=True)
    filter_ = fields.choice("interpolation", _FILTERS, "bicubic")
    mode = fields.choice("crop_mode", ("center", "squash", "border"), "center")
    resize = partial(ops.Resize, filter=filter_, like="pillow")
    chain: list[Op]
    if mode == "border":
        fill = tuple(round(255 * value) for value in as_tuple(mean))
        if not all(0 <= level <= 255 for level in fill):
            fields.refuse("mean", 'must be from 0 to 1 with "crop_mode": "border", which uses it as the padding color')
        if scaled != size:
            fields.refuse("crop_pct", 'must be 1 with "crop_mode": "border"')
        fit = resize(height=size[0], width=size[1], mode="fit", rounding="half_even")
        chain = [fit, ops.Pad(*size, fill=fill)]
    elif mode == "squash":
        chain = [resize(height=scaled[0], width=scaled[1]), ops.CenterCrop(*size)]
    elif scaled[0] == scaled[1]:
        chain = [resize(scaled[0]), ops.CenterCrop(*size)]
    else:
        cover = resize(height=scaled[0], width=scaled[1], mode="cover", rounding="half_even")
        chain = [cover, ops.CenterCrop(*size)]
    return [*chain, ops.Normalize(mean=mean, std=std, arithmetic="divide")]


def _size(fields: Fields, *, use_test_size: bool) -> tuple[int, int]:
    """Return the height and width of the tensor in pixels."""
    name = "test_input_size" if fields.has("test_input_size") and use_test_size else "input_size"
    size = fields.take(name)
    found = sides(size[1:]) if isinstance(size, list | tuple) and len(size) == 3 else ()
    if not found:
        fields.refuse(name, f"must be [channels, height, width], with sides from 1 to {MAX_SIDE} pixels")
    if size[0] != 3:
        fields.refuse(name, "must have 3 channels: pixprep decodes images to RGB")
    return found[0], found[1]


def _resize_size(fields: Fields, size: tuple[int, int], *, use_test_size: bool) -> tuple[int, int]:
    """Return the height and width of the resize before the crop, in pixels."""
    name = "test_crop_pct" if fields.has("test_crop_pct") and use_test_size else "crop_pct"
    fraction = fields.number(name, 0.875)
    if not all(fraction > 0 and 1 <= side / fraction <= MAX_SIDE for side in size):
        fields.refuse(
            name,
            f"must be greater than 0, and {size[0]} x {size[1]} divided by it must have sides from 1 to {MAX_SIDE} "
            "pixels",
        )
    return floor(size[0] / fraction), floor(size[1] / fraction)
