"""Importer of Hugging Face transformers, which reads an image processor's configuration as transformers 5 applies it.

It does not need the library. The defaults of fields that a configuration omits are in ``transformers_classes``; a
parity test compares them with the classes themselves. As in transformers, the arithmetic depends on the backend:
``torchvision`` is the choice of ``AutoImageProcessor``, and ``pil`` is used by the classes named ``...Pil``. The two
differ by one level in a few values per thousand.

If ``do_convert_rgb`` is true, a transparent image is composited on white, as the processor does with a PIL image. If it
is false, the processor keeps the channels of the image and fails for most images that are not RGB; ``decode`` always
returns three channels, like ``load_image`` of transformers.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pixprep.errors import PipelineError
from pixprep.importers.assembly import assembled, resize
from pixprep.importers.fields import PILLOW_FILTERS, Fields, read_json, reading, sides
from pixprep.importers.transformers_classes import (
    COMMON,
    DEFAULTS,
    DETRS,
    FIXED,
    HARMLESS,
    NEEDED,
    UNUSED,
    VIDEO_DEFAULTS,
    WITHOUT_PIL,
)
from pixprep.importers.transformers_patches import PATCHED, patched
from pixprep.pipeline.ops import (
    MAX_SIDE,
    CenterCrop,
    Decode,
    DecodeVideo,
    Normalize,
    Op,
    Pad,
    Patches,
    Reals,
    Resize,
    Tensor,
    changed,
)
from pixprep.pipeline.pipeline import Pipeline
from pixprep.spec import Filter, Layout, Like, TensorDType

log = logging.getLogger(__name__)

Backend = Literal["torchvision", "pil"]
Sides = tuple[int, ...]

LIKE: dict[Backend, Like] = {"torchvision": "torchvision", "pil": "pillow"}
KNOWN = DEFAULTS | {name: each.defaults for name, each in PATCHED.items()}
"""Supported image processors, each with the values of all fields that its configuration may omit."""
SIZE = f"must be a height and a width, a shortest_edge, or a number, from 1 to {MAX_SIDE} pixels each"
SPELLINGS = (
    *({"height", "width"}, {"shortest_edge"}, {"shortest_edge", "longest_edge"}, {"longest_edge"}),
    *({"max_height", "max_width"}, {"min_pixels", "max_pixels"}),
)
"""Supported sets of keys of a size. transformers raises for any other."""


def from_transformers(
    config: Mapping[str, Any] | str | Path,
    *,
    backend: Backend = "torchvision",
    apply_exif_orientation: bool = True,
    frames: int | None = None,
    name: str | None = None,
) -> Pipeline:
    """Create the pipeline of an image processor or a video processor of transformers 5.

    Args:
        config: The content of a ``preprocessor_config.json`` or ``processor_config.json``, the path of such a file, or
            a folder that contains it.
        backend: Implementation of the processor: ``torchvision`` (on the CPU), the default of ``AutoImageProcessor``,
            or ``pil``.
        apply_exif_orientation: Whether to apply the EXIF orientation, as ``load_image`` of transformers does. False: as
            for a processor that receives an image of ``PIL.Image.open``.
        frames: Number of evenly spaced frames of a clip, for a video processor: ``num_frames`` in the ``config.json``
            of the model (VideoMAE 16, ViViT 32, TimeSformer 8). The processor itself accepts any number of frames.
        name: Name of the model, for the origin of the pipeline. Default: the name of the folder or of the class.

    Raises:
        PipelineError: A field is not supported, or the file cannot be read.
    """
    with reading({"backend": backend}, "options") as options:
        backend = options.choice("backend", {name: name for name in LIKE})
    values, where, folder = _read(config)
    processor = _processor(values, where)
    unused = UNUSED.get(processor, ())
    is_video = processor in VIDEO_DEFAULTS
    is_patched = processor in PATCHED
    defaults = VIDEO_DEFAULTS[processor] if is_video else KNOWN[processor]
    if is_video and frames is None:
        raise PipelineError(
            f"{where}: {processor} does not specify the number of frames: set the option frames, such as frames=16 "
            "(num_frames in the model's config.json)"
        )
    if is_video and backend == "pil":
        raise PipelineError(f'{where}: {processor} does not have the backend "pil": use "torchvision"')
    if frames is not None and not is_video:
        raise PipelineError(f"{where}: the option frames applies only to video processors, not to {processor}")
    settings = Fields(defaults | dict(values), where)
    if backend == "pil" and processor in WITHOUT_PIL:
        raise PipelineError(f"{where}: transformers has no PIL backend of {processor}: use backend=torchvision")
    for field, value in FIXED.get(processor, {}).items():
        if settings.has(field) and settings.take(field) != value:
            settings.refuse(field, f"is not supported for this class unless it is {str(value).lower()}")
    for field in ("size", "crop_size", "pad_size"):
        _check_spelling(settings, field)
    for field, flag in NEEDED.items():
        if field in unused and settings.flag(flag) and not settings.has(field):
            settings.refuse(field, f'must be set unless "{flag}" is false: transformers raises an error without it')
    with reading(defaults | {key: values[key] for key in values if key not in unused}, where) as fields:
        fields.ignore(*defaults, *COMMON, *HARMLESS, *(key for key in values if values[key] is None))
        fields.finish()  # before the code below reads fields of a different class
        pads = _pads(fields, processor)
        outputs: list[Op] = []
        if is_patched:
            geometry, outputs = patched(fields, processor, LIKE[backend])
        else:
            geometry = _geometry(fields, processor, backend)
        arithmetic = _arithmetic(fields, processor, backend)
        why = 'is not supported: remove it, and set "layout": "hwc" in the op tensor of the pipeline'
        fields.expect("data_format", "channels_first", why=why)
        canvas = _canvas(fields, processor, geometry) if not pads and fields.flag("do_pad") and not is_patched else ()
        if is_video:
            fields.expect_false("do_sample_frames")
        decode = Decode(
            color="bgr" if fields.flag("do_flip_channel_order") else "rgb",
            apply_exif_orientation=apply_exif_orientation,
            alpha="white" if fields.flag("do_convert_rgb") else "drop",
        )
        version = fields.text("transformers_version", "")
    if processor in DETRS and settings.flag("do_pad"):
        log.warning(
            "%s: the pipeline does not output pixel_mask. A batch is padded on the bottom and the right, as with "
            "do_pad: "
            "add the op image_size before tensor to output the size of each image without the padding",
            where,
        )
    first: Op = decode
    layout: Layout = "chw"
    if is_video:
        assert frames is not None
        first, layout = DecodeVideo(frames=frames), "tchw"
    tensor = Tensor(dtype="float32" if arithmetic else "uint8", layout=layout)
    if canvas:
        tensor = changed(tensor, min_height=canvas[0], min_width=canvas[1])
    if is_patched:
        is_float = (
            backend == "pil" and "max_num_patches" not in defaults
        )  # this backend converts pixel values to floats
        dtype: TensorDType = "float32" if is_float else tensor.dtype
        outputs = [changed(op, dtype=dtype) if isinstance(op, Patches) else op for op in outputs]
    return assembled(
        [first, *pads, *geometry, *arithmetic, *(outputs or [tensor])],
        library="transformers",
        version=version,
        name=name or folder or processor,
        where=where,
        like=LIKE[backend],
    )


def _read(config: Mapping[str, Any] | str | Path) -> tuple[Mapping[str, Any], str, str]:
    """Return the processor's fields, the prefix of error messages, and the name of the folder.

    Without a folder, the name is ``""``.
    """
    if isinstance(config, Mapping):
        return _inner(config), "image processor", ""
    path = Path(config)
    folder = (path if path.is_dir() else path.parent).resolve()
    if path.suffix != ".json" and not path.exists():
        raise PipelineError(
            f"{config} does not exist: for a model on the Hugging Face Hub, download its preprocessor_config.json and "
            "pass that file"
        )
    if not path.is_dir():
        return _inner(read_json(path)), path.name, folder.name
    nested, plain = path / "processor_config.json", path / "preprocessor_config.json"
    if nested.exists() and "image_processor" in (values := read_json(nested)):
        return _inner(values), nested.name, folder.name
    if not plain.exists():
        raise PipelineError(
            f'{folder.name}: the folder contains neither {plain.name} nor a {nested.name} with an "image_processor"'
        )
    return read_json(plain), plain.name, folder.name


def _inner(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the configuration of the image processor inside that of a multimodal processor."""
    inner = values.get("image_processor")
    return inner if isinstance(inner, Mapping) else values


def _processor(values: Mapping[str, Any], where: str) -> str:
    """Return the name of the class without the suffixes of its backends and of transformers 3 and 4."""
    fields = Fields(values, where)
    code = fields.mapping("auto_map")
    if "AutoImageProcessor" in code or "AutoFeatureExtractor" in code:
        fields.refuse("auto_map", "refers to the model's own Python code, which is not supported")
    known_as = ("image_processor_type", "video_processor_type", "feature_extractor_type")
    field = next(filter(fields.has, known_as), known_as[0])
    name = fields.text(field).removesuffix("Fast").removesuffix("Pil")
    if name.endswith("FeatureExtractor"):
        name = name.removesuffix("FeatureExtractor") + "ImageProcessor"
    video = name.removesuffix("ImageProcessor") + "VideoProcessor"  # also reads older files
    name = video if video in VIDEO_DEFAULTS else name
    if name not in KNOWN and name not in VIDEO_DEFAULTS:
        fields.refuse(field, f"is not supported; supported classes: {', '.join([*KNOWN, *VIDEO_DEFAULTS])}")
    return name


def _pads(fields: Fields, processor: str) -> list[Op]:
    """Return LLaVA's padding to a square of the longer side before the resize, filled with the truncated mean color."""
    if processor != "LlavaImageProcessor" or not fields.flag("do_pad"):
        return []
    mean = fields.numbers("image_mean") if fields.has("image_mean") else ()
    levels = tuple(int(value * 255) for value in mean) if isinstance(mean, tuple) else ()
    if len(levels) != 3 or not all(0 <= level <= 255 for level in levels):
        fields.refuse("image_mean", "must be three numbers from 0 to 1, because it is also the padding color")
    return [Pad(square=True, fill=levels)]


def _canvas(fields: Fields, processor: str, geometry: Sequence[Op]) -> Sides:
    """Return the height and width of SAM's zero padding after ``normalize``. Empty if only batches are padded."""
    if processor == "DPTImageProcessor":
        fields.refuse("do_pad", "is not supported: it pads all four sides, to a multiple of size_divisor")
    if not fields.has("pad_size"):
        return ()
    if processor != "SamImageProcessor":
        fields.refuse("do_pad", "is not supported together with pad_size")
    size = _sides(fields, "pad_size", is_square=True)
    most = geometry[0].size if geometry and isinstance(geometry[0], Resize) else None
    if len(size) == 1 or not isinstance(most, int) or most > min(size):
        fields.refuse("pad_size", "must have a height and a width, both at least the longest_edge of size")
    return size


def _geometry(fields: Fields, processor: str, backend: Backend) -> list[Op]:
    """Return the resize and center crop. ``now`` is the known size: both sides, the shorter side, or empty."""
    ops: list[Op] = []
    now: Sides = ()
    if fields.flag("do_resize"):
        own_crop: Sides = ()
        how: dict[str, Any] = {}
        if processor in DETRS:
            now, how = _detr_size(fields, processor)
        elif processor == "SamImageProcessor":
            now, how = _longest(fields), {"side": "longer", "rounding": "half_away"}
        elif processor == "DPTImageProcessor":
            now, how = _dpt_size(fields)
        else:
            now, own_crop = _size(fields, processor)
        filter_: Filter = fields.choice("resample", PILLOW_FILTERS)
        if filter_ == "nearest" and backend == "torchvision":
            filter_ = "nearest_exact"
        ops.append(resize(now, filter=filter_, like=LIKE[backend], **how))
        if own_crop:
            ops.append(_center_crop(fields, "crop_pct", own_crop, now, backend))
            now = own_crop
    if fields.flag("do_center_crop"):
        if processor == "SamImageProcessor" or (processor == "DPTImageProcessor" and backend == "pil"):
            fields.refuse("do_center_crop", "is not supported for this class, whose PIL backend ignores it")
        window = _sides(fields, "crop_size", is_square=True)
        if len(window) == 1:
            fields.refuse("crop_size", "must have a height and a width")
        ops.append(_center_crop(fields, "crop_size", window, now, backend))
    return ops


def _size(fields: Fields, processor: str) -> tuple[Sides, Sides]:
    """Return the size of the resize (both sides or the shorter one), and the crop that belongs to ConvNeXt's resize."""
    if fields.flag("use_square_size"):  # CLIP's field, used by Kosmos-2; overrides the size
        return (224, 224), ()
    size = _sides(fields, "size", is_square=fields.flag("default_to_square"))
    is_shorter = len(size) == 1
    if processor == "LevitImageProcessor" and is_shorter:
        return (int((256 / 224) * size[0]),), ()
    if processor == "ConvNextImageProcessor":
        if not is_shorter:
            fields.refuse("size", "must have only a shortest_edge for this class")
        if size[0] >= 384:
            return size * 2, ()
        return _enlarged(fields, size), size * 2
    if processor == "PoolFormerImageProcessor" and fields.has("crop_pct"):
        return _enlarged(fields, size[:1] if size[0] == size[-1] else size), ()
    return size, ()


def _detr_size(fields: Fields, processor: str) -> tuple[Sides, dict[str, Any]]:
    """Return the height and width, or the shorter side, with the fields of its resize."""
    size = fields.take("size")
    if isinstance(size, Mapping):
        edges = {key: side for key, side in size.items() if side is not None}
        if edges.keys() == {"height", "width"}:
            return _sides(fields, "size", is_square=False), {}
        found = sides([edges.get("shortest_edge"), edges.get("longest_edge")]) if len(edges) == 2 else ()
    else:  # format of transformers 3 and 4, which RT-DETR never used
        found = sides([size, fields.take("max_size", 1333)]) if "max_size" in DETRS[processor] else ()
    if not found:
        fields.refuse(
            "size",
            f"must have shortest_edge and longest_edge, or height and width, from 1 to {MAX_SIDE} pixels each",
        )
    multiple = 16 if processor == "YolosImageProcessor" else None
    return found[:1], {"max_size": found[1], "multiple": multiple, "rounding": "detr"}


def _longest(fields: Fields) -> Sides:
    """Return SAM's longer side."""
    size = fields.mapping("size")
    found = sides([size["longest_edge"]]) if size.keys() == {"longest_edge"} else ()
    return found or fields.refuse("size", f"must have only a longest_edge, from 1 to {MAX_SIDE} pixels")


def _dpt_size(fields: Fields) -> tuple[Sides, dict[str, Any]]:
    """Return the height and width as multiples, or one side of a square if the aspect ratio is kept."""
    size = _sides(fields, "size", is_square=fields.flag("default_to_square"))
    multiple = fields.take("ensure_multiple_of")
    if type(multiple) is not int or not 1 <= multiple <= min(size):
        fields.refuse("ensure_multiple_of", "must be an integer from 1 to the smallest side of size")
    if len(size) == 1:
        fields.refuse("size", "must have a height and a width")
    if not fields.flag("keep_aspect_ratio"):
        return tuple(round(side / multiple) * multiple for side in size), {}
    if size[0] != size[1]:
        fields.refuse("size", 'must be square if "keep_aspect_ratio" is true')
    most = min(MAX_SIDE, 4 * size[0])
    log.warning(
        '%s: the pipeline limits each side to %d pixels with "max_size" in resize, because tensors require an upper '
        "bound; transformers does not limit them",
        fields.where,
        most,
    )
    whole = {"multiple": multiple} if multiple > 1 else {}
    return size[:1], {"side": "nearer", "max_size": most, "rounding": "half_even", **whole}


def _enlarged(fields: Fields, size: Sides) -> Sides:
    share = fields.number("crop_pct")
    for side in size:
        if not share > 0 or not 1 <= side / share <= MAX_SIDE:
            fields.refuse(
                "crop_pct", f"must be greater than 0 and result in {side} / crop_pct from 1 to {MAX_SIDE} pixels"
            )
    return tuple(int(side / share) for side in size)


def _sides(fields: Fields, field: str, *, is_square: bool) -> Sides:
    """Return a size in any of its spellings: (height, width), or only the shorter side."""
    value = fields.take(field)
    if isinstance(value, Mapping):
        edges = {key: side for key, side in value.items() if side is not None}
        spellings = (("height", "width"), ("shortest_edge",))
        found = sides([edges[key] for keys in spellings if edges.keys() == set(keys) for key in keys])
    else:
        found = sides(value) * (2 if is_square and isinstance(value, int) else 1)
    return found or fields.refuse(field, SIZE)


def _check_spelling(fields: Fields, field: str) -> None:
    """Reject an unknown spelling, even if the size is not used, because transformers also raises."""
    value = fields.take(field)
    if isinstance(value, Mapping):
        is_known = {*value} in SPELLINGS
    else:
        is_known = value is None or type(value) is int or (isinstance(value, list | tuple) and len(value) == 2)
    if not is_known:
        fields.refuse(field, SIZE)


def _center_crop(fields: Fields, field: str, window: Sides, now: Sides, backend: Backend) -> CenterCrop:
    """Return the crop, whose offset is rounded down.

    When it pads, the top padding is rounded down in torchvision and up in PIL.
    """
    if backend == "pil":
        missing = [max(0, out - side) for out, side in zip(window, (now * 2 or (0, 0))[:2], strict=True)]
        is_sure = len(now) == 2 and all(gap % 2 == 0 for gap in missing)
        if any(missing) and not is_sure:
            fields.refuse(
                field,
                "may pad the image, which is not supported for the PIL backend, because it centers images differently",
            )
    return CenterCrop(window[0], window[1], rounding="down")


def _arithmetic(fields: Fields, processor: str, backend: Backend) -> list[Op]:
    """Return the rescaling and normalization, step by step as in the backend.

    Empty if the pixel values do not change.
    """
    ops: list[Op] = []
    is_rescaled, is_normalized = fields.flag("do_rescale"), fields.flag("do_normalize")
    has_offset = fields.flag("rescale_offset") or processor == "VivitVideoProcessor"
    has_top = fields.flag("include_top")
    if has_top and not is_rescaled and not is_normalized and backend == "torchvision":
        fields.refuse(
            "include_top", 'requires "do_rescale" or "do_normalize": transformers raises an error without them'
        )
    scale = fields.number("rescale_factor", positive=True) if is_rescaled else 1.0
    mean: Reals = fields.numbers("image_mean") if is_normalized else 0.0
    std: Reals = fields.numbers("image_std", positive=True) if is_normalized or has_top else 1.0
    if is_rescaled and is_normalized and backend == "torchvision" and not has_offset:
        ops.append(Normalize(mean, std, scale, arithmetic="fused"))
    else:
        if is_rescaled:  # the PIL backend rescales in float64 and rounds the result
            ops.append(Normalize(scale=scale, arithmetic="multiply" if backend == "torchvision" else "float64"))
            if has_offset:
                ops.append(Normalize(mean=1.0, scale=1.0, arithmetic="divide"))
        if is_normalized:
            ops.append(Normalize(mean, std, 1.0, arithmetic="divide"))
    if has_top:
        ops.append(Normalize(std=std, scale=1.0, arithmetic="divide"))
    return ops
