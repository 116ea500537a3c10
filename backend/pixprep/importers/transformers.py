"""Hugging Face transformers: an image processor's configuration, as transformers 5 would apply it to a PIL image.

Read without the library: what a configuration leaves out is in ``DEFAULTS``, which a parity test compares with the
classes themselves. The arithmetic depends on the backend, as there: ``torchvision`` is what ``AutoImageProcessor``
takes, ``pil`` the classes named ``...Pil``. The two differ by one level in a few values of a thousand.

The colours: where ``do_convert_rgb`` is true, a transparent image is laid on white, as the processor does with a PIL
image. Where it is not, the processor takes the channels as they come and fails for most images that are not RGB;
``decode`` always gives three, like ``load_image`` of transformers.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf, isfinite
from pathlib import Path
from typing import Any, Literal

from pixprep.errors import PipelineError
from pixprep.importers.fields import Fields, installed_version, read_json
from pixprep.ops import FILTERS, MAX_SIDE, CenterCrop, Decode, Normalize, Op, Reals, Resize, Tensor, as_tuple
from pixprep.pipeline import Pipeline
from pixprep.pipeline_file import Source
from pixprep.presets import CLIP_MEAN, CLIP_STD, IMAGENET_MEAN, IMAGENET_STD
from pixprep.spec import Filter

Backend = Literal["torchvision", "pil"]
Size = tuple[int, int]

NEAREST, LANCZOS, BILINEAR, BICUBIC, BOX, HAMMING = range(6)
FILTER_OF: dict[Backend, dict[int, Filter]] = {
    "torchvision": {NEAREST: "nearest_exact", LANCZOS: "lanczos", BILINEAR: "bilinear", BICUBIC: "bicubic"},
    "pil": {
        NEAREST: "nearest",
        LANCZOS: "lanczos",
        BILINEAR: "bilinear",
        BICUBIC: "bicubic",
        BOX: "box",
        HAMMING: "hamming",
    },
}
"""What Pillow's numbers mean. Of uint8 tensors torchvision has no ``box`` and no ``hamming``."""

HALF = ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
ONE = ((1.0, 1.0, 1.0), (1.0, 1.0, 1.0))
IMAGENET = (IMAGENET_MEAN, IMAGENET_STD)
CLIP = (CLIP_MEAN, CLIP_STD)


def _square(side: int) -> dict[str, int]:
    return {"height": side, "width": side}


def _shorter(side: int) -> dict[str, int]:
    return {"shortest_edge": side}


def _class(
    size: dict[str, int],
    resample: int,
    mean_std: tuple[tuple[float, ...], tuple[float, ...]],
    crop: int | None = None,
    **others: Any,
) -> dict[str, Any]:
    common = {
        "do_convert_rgb": None,
        "do_resize": True,
        "size": size,
        "default_to_square": "height" in size,
        "resample": resample,
        "do_center_crop": True if crop else None,
        "crop_size": _square(crop) if crop else None,
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": mean_std[0],
        "image_std": mean_std[1],
    }
    return common | others


# DINOv3 is not here: it resizes float32 values, which differ by up to 0.96 levels from a resize of uint8.
DEFAULTS: dict[str, dict[str, Any]] = {
    "BeitImageProcessor": _class(_square(224), BICUBIC, HALF, 224, do_center_crop=False),
    "BitImageProcessor": _class(_shorter(224), BICUBIC, CLIP, 224, do_convert_rgb=True),
    "BlipImageProcessor": _class(_square(384), BICUBIC, CLIP, do_convert_rgb=True),
    "CLIPImageProcessor": _class(_shorter(224), BICUBIC, CLIP, 224, do_convert_rgb=True, use_square_size=None),
    "ChameleonImageProcessor": _class(_shorter(512), LANCZOS, ONE, 512, do_convert_rgb=True, rescale_factor=0.0078),
    "ChineseCLIPImageProcessor": _class(_shorter(224), BICUBIC, CLIP, 224, do_convert_rgb=True),
    "ConvNextImageProcessor": _class(_shorter(384), BICUBIC, HALF, crop_pct=224 / 256),
    "DeiTImageProcessor": _class(_square(256), BICUBIC, HALF, 224),
    "EfficientNetImageProcessor": _class(
        _square(346), BICUBIC, HALF, 289, do_center_crop=False, rescale_offset=False, include_top=True
    ),
    "LevitImageProcessor": _class(_shorter(224), BICUBIC, IMAGENET, 224),
    "MobileNetV1ImageProcessor": _class(_shorter(256), BILINEAR, HALF, 224),
    "MobileNetV2ImageProcessor": _class(_shorter(256), BILINEAR, HALF, 224),
    "MobileViTImageProcessor": _class(_shorter(224), BICUBIC, HALF, 256, do_normalize=None, do_flip_channel_order=True),
    "OwlViTImageProcessor": _class(_square(768), BICUBIC, CLIP, 768, do_center_crop=False, do_convert_rgb=True),
    "PoolFormerImageProcessor": _class(_shorter(224), BICUBIC, IMAGENET, 224, crop_pct=0.9),
    "PvtImageProcessor": _class(_square(224), BICUBIC, IMAGENET),
    "SegformerImageProcessor": _class(_square(512), BILINEAR, IMAGENET),
    "SiglipImageProcessor": _class(_square(224), BICUBIC, HALF, do_convert_rgb=True, default_to_square=False),
    "ViTImageProcessor": _class(_square(224), BILINEAR, HALF),
}
"""The processors that are understood, each with the value of every field that its configuration may leave out."""

UNUSED = {
    "MobileViTImageProcessor": ("do_normalize", "image_mean", "image_std"),
    "SegformerImageProcessor": ("do_center_crop", "crop_size"),
}
"""Fields that a class accepts and does not look at."""

COMMON = ("data_format", "do_pad", "pad_size")
"""Fields of every class that are off by default."""

HARMLESS = (
    "image_processor_type",
    "feature_extractor_type",
    "processor_class",
    "auto_map",
    "transformers_version",
    "model_input_names",
    "use_fast",
    "return_tensors",
    "input_data_format",
    "device",
    "disable_grouping",
    "image_seq_length",
    "do_reduce_labels",
    "reduce_labels",
    "do_resize_and_center_crop",
    "_valid_processor_keys",
    "_valid_kwargs_names",
)
"""Fields of any configuration that change no pixel of an image, only those of segmentation maps, or nothing at all."""


def from_transformers(
    config: Mapping[str, Any] | str | Path,
    *,
    backend: Backend = "torchvision",
    apply_exif_orientation: bool = True,
    name: str | None = None,
) -> Pipeline:
    """The pipeline that an image processor of transformers 5 is.

    Args:
        config: what stands in a ``preprocessor_config.json`` or ``processor_config.json``, or such a file, or a
            folder with either.
        backend: which of the two implementations: ``torchvision`` (on a CPU), as ``AutoImageProcessor`` takes, or
            ``pil``.
        apply_exif_orientation: turn images upright, as ``load_image`` of transformers does; False: as a processor
            that is given the image of ``PIL.Image.open``.
        name: of the model, for ``source``; default: the folder's, or the class's.

    Raises:
        PipelineError: a field that is not understood, by its name; or a file that cannot be read.
    """
    if backend not in FILTER_OF:
        raise PipelineError(f'backend must be "torchvision" or "pil", not {backend!r}')
    values, where, folder = _read(config)
    processor = _processor(values, where)
    unused = UNUSED.get(processor, ())
    fields = Fields(DEFAULTS[processor] | {key: values[key] for key in values if key not in unused}, where)
    fields.ignore(*DEFAULTS[processor], *COMMON, *HARMLESS, *(key for key in values if values[key] is None))
    fields.finish()
    geometry = _geometry(fields, processor, backend)
    arithmetic = _arithmetic(fields, backend)
    if fields.take("data_format", str, default="channels_first") != "channels_first":
        fields.refuse("data_format", 'is not supported; remove it, and give the pipeline\'s tensor "layout": "hwc"')
    if fields.take("do_pad", bool) and fields.take("pad_size", (int, list, Mapping)) is not None:
        fields.refuse("do_pad", "with a pad_size is not supported: it adds zeros to normalized values")
    decode = Decode(
        color="bgr" if fields.take("do_flip_channel_order", bool) else "rgb",
        apply_exif_orientation=apply_exif_orientation,
        alpha="white" if fields.take("do_convert_rgb", bool) else "drop",
    )
    tensor = Tensor(dtype="float32" if arithmetic else "uint8")
    source = Source(
        library="transformers",
        version=fields.take("transformers_version", str) or installed_version("transformers"),
        name=(name or folder or processor)[:200],
        profile="torchvision" if backend == "torchvision" else "pillow",
    )
    return Pipeline([decode, *geometry, *arithmetic, tensor], source=source)


def _read(config: Mapping[str, Any] | str | Path) -> tuple[Mapping[str, Any], str, str]:
    """The processor's fields, what errors begin with, and the name of the folder, ``""`` if there is none."""
    if isinstance(config, Mapping):
        return _inner(config), "image processor", ""
    path = Path(config)
    folder = (path if path.is_dir() else path.parent).resolve()
    if not path.is_dir():
        return _inner(read_json(path)), path.name, folder.name
    nested, plain = path / "processor_config.json", path / "preprocessor_config.json"
    if nested.exists() and "image_processor" in (values := read_json(nested)):
        return _inner(values), nested.name, folder.name
    if not plain.exists():
        raise PipelineError(
            f'{folder.name}: neither a {plain.name} nor a {nested.name} with an "image_processor" is there'
        )
    return read_json(plain), plain.name, folder.name


def _inner(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """The image processor's part of the configuration of a processor of images and text."""
    inner = values.get("image_processor")
    return inner if isinstance(inner, Mapping) else values


def _processor(values: Mapping[str, Any], where: str) -> str:
    """The name of the class, without the suffixes of its backends and of transformers 3 and 4."""
    fields = Fields(values, where)
    code = fields.take("auto_map", Mapping, default={})
    if "AutoImageProcessor" in code or "AutoFeatureExtractor" in code:
        fields.refuse("auto_map", "names code of the model's own, which pixprep cannot read")
    field = "image_processor_type" if values.get("image_processor_type") else "feature_extractor_type"
    given = fields.take(field, str)
    if given is None:
        raise PipelineError(
            f'{where}: "image_processor_type" is missing, and old files leave it to the model\'s class: '
            f'add it, such as "image_processor_type": "ViTImageProcessor"'
        )
    name = str(given).removesuffix("Fast").removesuffix("Pil")
    if name.endswith("FeatureExtractor"):
        name = name.removesuffix("FeatureExtractor") + "ImageProcessor"
    if name == "DINOv3ViTImageProcessor":
        fields.refuse(field, "is not supported: it resizes float32 values, not the 256 levels")
    if name not in DEFAULTS:
        fields.refuse(field, f"is not supported; {', '.join(DEFAULTS)} are")
    return name


def _geometry(fields: Fields, processor: str, backend: Backend) -> list[Op]:
    """Resize and centre crop. ``now`` is what is known of the size: both sides, the shorter one, or nothing."""
    ops: list[Op] = []
    now: Size | int | None = None
    if fields.take("do_resize", bool):
        now, own_crop = _size(fields, processor)
        like: Literal["torchvision", "pillow"] = "torchvision" if backend == "torchvision" else "pillow"
        filter_ = FILTER_OF[backend].get(fields.take("resample", int))
        if filter_ is None or filter_ not in FILTERS[like, True]:
            fields.refuse("resample", f"is not supported with the {backend} backend")
        how: dict[str, Any] = {"filter": filter_, "like": like}
        ops.append(Resize(now, **how) if isinstance(now, int) else Resize(height=now[0], width=now[1], **how))
        if own_crop is not None:
            ops.append(_center_crop(fields, "crop_pct", own_crop, now, backend))
            now = own_crop
    if fields.take("do_center_crop", bool):
        window = _sides(fields, "crop_size", is_square=True)
        if isinstance(window, int):
            fields.refuse("crop_size", "must have a height and a width")
        ops.append(_center_crop(fields, "crop_size", window, now, backend))
        now = window
    if not isinstance(now, tuple):
        field = "do_resize" if now is None else "size"
        fields.refuse(field, "without a centre crop gives tensors of different sizes, which make no batch")
    return ops


def _size(fields: Fields, processor: str) -> tuple[Size | int, Size | None]:
    """What the image is resized to, both sides or the shorter one; and the crop that belongs to ConvNeXt's resize."""
    if fields.take("use_square_size", bool):  # CLIP's, for Kosmos-2: whatever the size says
        return (224, 224), None
    size = _sides(fields, "size", is_square=bool(fields.take("default_to_square", bool)))
    if processor == "LevitImageProcessor" and isinstance(size, int):
        return int((256 / 224) * size), None
    crop_pct = fields.take("crop_pct", (int, float))
    if processor == "ConvNextImageProcessor":
        if not isinstance(size, int):
            fields.refuse("size", "must be a shortest_edge for this class")
        if size >= 384:
            return (size, size), None
        if crop_pct is None:
            fields.refuse("crop_pct", "must be a number")
        return _enlarged(fields, size, crop_pct), (size, size)
    if processor == "PoolFormerImageProcessor" and crop_pct is not None:
        if isinstance(size, tuple) and size[0] != size[1]:
            return (_enlarged(fields, size[0], crop_pct), _enlarged(fields, size[1], crop_pct)), None
        return _enlarged(fields, size if isinstance(size, int) else size[0], crop_pct), None
    return size, None


def _enlarged(fields: Fields, side: int, crop_pct: float) -> int:
    if not crop_pct > 0 or not 1 <= side / crop_pct <= MAX_SIDE:
        fields.refuse("crop_pct", f"makes a side of {side} smaller than 1 or larger than {MAX_SIDE} pixels")
    return int(side / crop_pct)


def _sides(fields: Fields, field: str, *, is_square: bool) -> Size | int:
    """A size in any of its spellings: (height, width), or the shorter side."""
    value = fields.take(field, (int, list, Mapping))
    sides: list[Any] | None = None
    if isinstance(value, Mapping):
        known = {key: side for key, side in value.items() if side is not None}
        for keys in (("height", "width"), ("shortest_edge",)):
            if set(known) == set(keys):
                sides = [known[key] for key in keys]
    elif isinstance(value, int):
        sides = [value, value] if is_square else [value]
    elif isinstance(value, list) and len(value) == 2:
        sides = value
    if sides is None:
        fields.refuse(field, "is not understood; height and width, or shortest_edge, or a number are")
    if not all(type(side) is int and 1 <= side <= MAX_SIDE for side in sides):
        fields.refuse(field, f"must be 1 to {MAX_SIDE} pixels")
    return sides[0] if len(sides) == 1 else (sides[0], sides[1])


def _center_crop(fields: Fields, field: str, window: Size, now: Size | int | None, backend: Backend) -> CenterCrop:
    """The crop rounds down. Where it pads, the margin above does so with torchvision, and rounds up with PIL."""
    if backend == "pil":
        sides = now if isinstance(now, tuple) else (now or 0, now or 0)
        missing = [max(0, out - side) for out, side in zip(window, sides, strict=True)]
        is_sure = isinstance(now, tuple) and all(gap % 2 == 0 for gap in missing)
        if any(missing) and not is_sure:
            fields.refuse(field, "may pad the image, which the PIL backend does with another margin than pixprep")
    return CenterCrop(window[0], window[1], rounding="down")


def _arithmetic(fields: Fields, backend: Backend) -> list[Op]:
    """Rescale and normalize, step by step as the backend does them; nothing if the levels stay what they are."""
    ops: list[Op] = []
    is_rescaled, is_normalized = fields.take("do_rescale", bool), fields.take("do_normalize", bool)
    has_offset, has_top = fields.take("rescale_offset", bool), fields.take("include_top", bool)
    scale = fields.take("rescale_factor", (int, float))
    if is_rescaled and (scale is None or not 0 < scale < inf):
        fields.refuse("rescale_factor", "must be a number over 0")
    mean: Reals = _reals(fields, "image_mean") if is_normalized else 0.0
    std: Reals = _reals(fields, "image_std") if is_normalized or has_top else 1.0
    if any(value <= 0 for value in as_tuple(std)):
        fields.refuse("image_std", "must be over 0")
    if is_rescaled and is_normalized and backend == "torchvision" and not has_offset:
        ops.append(Normalize(mean, std, scale, arithmetic="fused"))
    else:
        if is_rescaled:  # by PIL's backend in float64, and rounded
            ops.append(Normalize(scale=scale, arithmetic="multiply" if backend == "torchvision" else "float64"))
            if has_offset:
                ops.append(Normalize(mean=1.0, scale=1.0, arithmetic="divide"))
        if is_normalized:
            ops.append(Normalize(mean, std, 1.0, arithmetic="divide"))
    if has_top:
        if not ops and backend == "torchvision":
            fields.refuse("include_top", "cannot divide whole levels: the processor itself fails")
        ops.append(Normalize(std=std, scale=1.0, arithmetic="divide"))
    return ops


def _reals(fields: Fields, field: str) -> Reals:
    """A number, or three."""
    value = fields.take(field, (int, float, list, tuple))
    values = value if isinstance(value, list | tuple) else [value]
    if len(values) not in (1, 3) or not all(type(x) in (int, float) and isfinite(x) for x in values):
        fields.refuse(field, "must be a number or three")
    return tuple(float(x) for x in values) if len(values) == 3 else float(values[0])


load = from_transformers
