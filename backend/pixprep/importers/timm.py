"""timm's evaluation transform, as a pipeline: from a model's name, a ``pretrained_cfg``, or a hub's ``config.json``.

The rules are those of ``timm.data.resolve_data_config`` and ``create_transform``, on PIL images: sides are enlarged to
``floor(side / crop_pct)``, resized by Pillow, and the middle is cut out. A configuration says all of that by itself;
timm is needed for names only.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from importlib import import_module
from math import floor
from pathlib import Path
from typing import Any

from pixprep.errors import PipelineError, SetupError
from pixprep.importers.fields import Fields, installed_version, read_json
from pixprep.ops import MAX_SIDE, CenterCrop, Decode, Normalize, Op, Pad, Resize, Tensor
from pixprep.pipeline import Pipeline
from pixprep.pipeline_file import Source
from pixprep.presets import IMAGENET_MEAN, IMAGENET_STD
from pixprep.spec import Filter

FILTERS: dict[str, Filter] = {
    "nearest": "nearest",
    "box": "box",
    "bilinear": "bilinear",
    "hamming": "hamming",
    "bicubic": "bicubic",
    "lanczos": "lanczos",
}
NO_PIXEL = (
    *("url", "file", "state_dict", "hf_hub_id", "hf_hub_filename", "source", "architecture", "tag", "custom_load"),
    *("fixed_input_size", "min_input_size", "pool_size", "test_pool_size", "first_conv", "classifier", "global_pool"),
    *("num_features", "num_classes", "label_offset", "label_names", "label_descriptions", "labels"),
    *("license", "description", "origin_url", "paper_name", "paper_ids", "notes"),
)
"""The fields of a ``pretrained_cfg`` that say where weights lie and what a model is made of."""
TEST_SIZE = " (use_test_size)"
"""What follows the name of the model in ``source`` where its ``test_input_size`` and ``test_crop_pct`` were taken."""


def load(source: str, *, use_test_size: bool = False) -> Pipeline:
    """The pipeline of a file, if ``source`` ends in ``.json``, else of a model; see ``from_timm``.

    Raises:
        PipelineError: also where the file cannot be read.
    """
    if not source.endswith(".json"):
        return from_timm(source, use_test_size=use_test_size)
    path = Path(source)
    return _pipeline(read_json(path), path.name, use_test_size=use_test_size)


def from_timm(config: Mapping[str, Any] | str, *, use_test_size: bool = False, name: str | None = None) -> Pipeline:
    """The pipeline of ``create_transform(**resolve_data_config({}, pretrained_cfg=config))``, bit for bit.

    Of a hub's ``config.json`` only ``pretrained_cfg``, ``architecture`` and ``model_args`` are looked at, as by timm.

    Args:
        config: the name of a model, such as ``resnet50.a1_in1k``; a ``pretrained_cfg``; or the contents of the
            ``config.json`` of a timm model of a hub, which has a ``pretrained_cfg`` inside.
        use_test_size: take ``test_input_size`` and ``test_crop_pct`` where the configuration has them.
        name: of the model, for errors and the pipeline's source; default: what the configuration says.

    Raises:
        PipelineError: a field is not understood, or its value is not; there is no such model.
        SetupError: a name needs timm.
    """
    if isinstance(config, str):
        name = name or config
        config = _pretrained_cfg(config)
    return _pipeline(config, name or "pretrained_cfg", name, use_test_size=use_test_size)


def _pipeline(config: Mapping[str, Any], where: str, name: str | None = None, *, use_test_size: bool) -> Pipeline:
    outer = Fields(config, where)
    inner = dict(outer.take("pretrained_cfg", Mapping, default=config))
    if "input_size" not in inner:
        raise PipelineError(f'{where}: has no "input_size": it is not the configuration of a timm model')
    parts = (outer.take("architecture", str) or inner.get("architecture"), inner.get("tag"))
    name = name or ".".join(part for part in parts if isinstance(part, str) and part) or where
    _override(inner, outer.take("model_args", Mapping, default={}), where)
    ops = _ops(Fields(inner, where), use_test_size=use_test_size)
    name = name[:180] + TEST_SIZE if use_test_size else name[:200]
    source = Source(library="timm", version=installed_version("timm"), name=name, profile="pillow")
    return Pipeline([Decode(apply_exif_orientation=False), *ops, Tensor()], source=source)


def _pretrained_cfg(name: str) -> Mapping[str, Any]:
    try:
        models = import_module("timm.models")
    except (ImportError, RuntimeError) as error:  # RuntimeError: of torchvision, beside a PyTorch of another build
        raise SetupError(
            f'"{name}" is the name of a model, which needs timm ({error}): pip install timm, '
            "or give the config.json of the model"
        ) from None
    try:
        found = models.get_pretrained_cfg(name)
    except RuntimeError:  # the model has no such tag
        found = None
    if found is None:
        raise PipelineError(f'timm has no model "{name}"; timm.list_pretrained() gives their names')
    config: Mapping[str, Any] = found.to_dict()
    return config


def _override(inner: dict[str, Any], arguments: Mapping[str, Any], where: str) -> None:
    """What the arguments that a saved model was made with say of its input, as timm's hub loader reads them."""
    fields = Fields(arguments, f"{where}: model_args")
    if fields.take("in_chans", int, default=3) != 3:
        fields.refuse("in_chans", "is not 3: pixprep decodes to RGB")
    size = fields.take("img_size", (int, list, tuple))
    is_free = arguments.get("dynamic_img_size") or arguments.get("strict_img_size") is False
    if size is not None and inner.get("fixed_input_size") and not is_free and not arguments.get("use_naflex"):
        inner["input_size"] = (3, *((size, size) if isinstance(size, int) else size))


def _ops(fields: Fields, *, use_test_size: bool) -> list[Op]:
    """What stands between ``decode`` and ``tensor``."""
    height, width = _size(fields, use_test_size=use_test_size)
    scaled = _scaled(fields, height, width, use_test_size=use_test_size)
    mean, std = _three(fields, "mean", IMAGENET_MEAN), _three(fields, "std", IMAGENET_STD)
    if min(std) <= 0:
        fields.refuse("std", "must be over 0")
    interpolation = fields.take("interpolation", str) or "bicubic"
    if interpolation not in FILTERS:
        fields.refuse("interpolation", f"is none of {', '.join(FILTERS)}")
    mode = fields.take("crop_mode", str) or "center"
    if mode not in ("center", "squash", "border"):
        fields.refuse("crop_mode", "is none of center, squash, border")
    fields.ignore(*NO_PIXEL)
    fields.finish()

    resize = partial(Resize, filter=FILTERS[interpolation], like="pillow")
    ops: list[Op]
    if mode == "border":
        fill = tuple(round(255 * value) for value in mean)
        if not all(0 <= level <= 255 for level in fill):
            fields.refuse("mean", 'is not the colour of a margin, which "crop_mode": "border" makes of it')
        if scaled != (height, width):
            fields.refuse("crop_pct", 'must be 1 with "crop_mode": "border"')
        fit = resize(height=height, width=width, mode="fit", rounding="half_even")
        ops = [fit, Pad(height=height, width=width, fill=fill)]
    elif mode == "squash":
        ops = [resize(height=scaled[0], width=scaled[1]), CenterCrop(height=height, width=width)]
    elif scaled[0] == scaled[1]:
        ops = [resize(scaled[0]), CenterCrop(height=height, width=width)]
    else:
        cover = resize(height=scaled[0], width=scaled[1], mode="cover", rounding="half_even")
        ops = [cover, CenterCrop(height=height, width=width)]
    return [*ops, Normalize(mean=mean, std=std, arithmetic="divide")]


def _size(fields: Fields, *, use_test_size: bool) -> tuple[int, int]:
    """The height and width of the tensor."""
    name = "input_size"
    size, tested = (fields.take(key, (list, tuple)) for key in (name, "test_input_size"))
    if use_test_size and tested is not None:
        name, size = "test_input_size", tested
    if size is None or len(size) != 3 or not all(type(side) is int and 1 <= side <= MAX_SIDE for side in size):
        fields.refuse(name, f"must be channels, height and width, each of 1 to {MAX_SIDE}")
    if size[0] != 3:
        fields.refuse(name, "has not 3 channels: pixprep decodes to RGB")
    return size[1], size[2]


def _scaled(fields: Fields, height: int, width: int, *, use_test_size: bool) -> tuple[int, int]:
    """What the sides are resized to before the crop."""
    name = "crop_pct"
    share, tested = (fields.take(key, (int, float)) for key in (name, "test_crop_pct"))
    if use_test_size and tested:
        name, share = "test_crop_pct", tested
    share = share or 0.875
    if not all(share > 0 and 1 <= side / share <= MAX_SIDE for side in (height, width)):
        fields.refuse(name, f"must make 1 to {MAX_SIDE} pixels of each side of {height} x {width}")
    return floor(height / share), floor(width / share)


def _three(fields: Fields, name: str, default: tuple[float, ...]) -> tuple[float, ...]:
    values = fields.take(name, (list, tuple)) or default
    if len(values) != 3 or not all(type(value) in (int, float) and abs(value) < 1e30 for value in values):
        fields.refuse(name, "must be three numbers of a sensible size")
    return tuple(float(value) for value in values)
