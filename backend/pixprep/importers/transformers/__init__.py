"""Imports the configuration of an image processor or a video processor of Hugging Face transformers 5.

The library need not be installed. The module ``classes`` contains the defaults of fields that a
configuration omits; a parity test compares these defaults with the library. As in transformers, the arithmetic depends
on the backend: ``torchvision`` is the default of ``AutoImageProcessor``, and ``pil`` is used by the classes named
``...Pil``. Between the backends, a few pixel values per thousand differ by 1.

If ``do_convert_rgb`` is true, transparent images are composited on white, as the processor does with PIL images. If
this flag is false, the processor does not convert the image, and fails for most images that are not RGB. Like
``load_image`` of transformers, the op ``decode`` always returns three channels.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from pixprep.errors import PipelineError
from pixprep.importers.assembly import assembled, resize
from pixprep.importers.fields import PILLOW_FILTERS, Fields, read_json, reading, shortened, sides
from pixprep.importers.timm import from_timm
from pixprep.importers.transformers.classes import (
    BGR,
    COMMON,
    DEFAULTS,
    DETRS,
    DPTS,
    FIXED,
    FLIPPED,
    FRAMES,
    HARMLESS,
    NEEDED,
    ONLY_PIL,
    PAIRS,
    PERSONS,
    REASONS,
    UNUSED,
    VIDEO_OUTPUTS,
    WITHOUT_PIL,
    WITHOUT_TORCHVISION,
)
from pixprep.importers.transformers.further import further_outputs
from pixprep.importers.transformers.patches import PATCHED, VIDEO_PATCHED, patched
from pixprep.importers.transformers.sizes import (
    MAX_OPEN_SIDE,
    PHOTO,
    SIZED,
    VIDEO_SIZED,
    Branch,
    center_crop,
    is_float,
    sized,
)
from pixprep.importers.transformers.videos import VIDEOS, clip_of, frames_as_tiles, sampling_fields
from pixprep.pipeline.ops import (
    MAX_SIDE,
    Decode,
    Normalize,
    Op,
    Pad,
    Patches,
    Reals,
    Resize,
    ResizeByRule,
    SlicePatches,
    Tensor,
    Tiles,
    Warp,
    changed,
)
from pixprep.pipeline.ops.faults import quoted
from pixprep.pipeline.pipeline import Pipeline
from pixprep.spec import Alpha, Filter, Layout, Like, TensorDType

log = logging.getLogger(__name__)

Backend = Literal["torchvision", "pil"]
Sides = tuple[int, ...]

LIKE: dict[Backend, Like] = {"torchvision": "torchvision", "pil": "pillow"}
CLASSES = DEFAULTS | {name: row.defaults for table in (PATCHED, SIZED) for name, row in table.items()}
"""Supported image processors, with the default values of their fields."""
INVALID_SIZE = f"must be a height and a width, a shortest_edge, or a number, from 1 to {MAX_SIDE} pixels each"
NO_PIL_CROP = ("DPTImageProcessor", "LayoutLMv3ImageProcessor")
"""Classes whose PIL backend does not support ``do_center_crop``."""
SIZE_KEYS = (
    *({"height", "width"}, {"shortest_edge"}, {"shortest_edge", "longest_edge"}, {"longest_edge"}),
    *({"max_height", "max_width"}, {"min_pixels", "max_pixels"}),
)
"""Sets of keys that a size may have. transformers raises an error for all other sets."""


def from_transformers(
    config: Mapping[str, Any] | str | Path,
    *,
    backend: Backend = "torchvision",
    apply_exif_orientation: bool = True,
    frames: int | None = None,
    fps: float | None = None,
    video: bool = False,
    name: str | None = None,
) -> Pipeline:
    """Convert the configuration of an image processor or a video processor into a pipeline.

    Args:
        config: Content of a ``preprocessor_config.json`` or ``processor_config.json``, the path of such a file, or the
            path of a folder that contains one.
        backend: Backend of the processor that the pipeline reproduces: ``torchvision`` on the CPU, which is the default
            of ``AutoImageProcessor``, or ``pil``.
        apply_exif_orientation: Whether to apply the EXIF orientation, as ``load_image`` of transformers does. Pass
            False if the images were opened with ``PIL.Image.open`` instead.
        frames: Number of frames that a video processor receives. It is ``num_frames`` in the model's ``config.json``,
            such as 16 for VideoMAE, 32 for ViViT and 8 for TimeSformer. Default: ``num_frames`` of the configuration,
            if its ``do_sample_frames`` is true; the frames are then selected as the class does. Otherwise required;
            the frames are then evenly spaced from the first to the last. If the configuration or the option ``fps``
            specifies a number of frames per second, ``frames`` is the maximum number of frames.
        fps: Number of frames per second that a video processor selects, as with ``do_sample_frames=True, fps=...`` in
            a call of the class. Default: ``fps`` of the configuration, if its ``do_sample_frames`` is true.
        video: Whether to import the video processor, if the folder or the file also contains an image processor. The
            options ``frames`` and ``fps`` imply it.
        name: Name of the model to record in the pipeline. Default: the folder's name, or the processor's class name.

    Raises:
        PipelineError: A field is not supported, or the file cannot be read.
    """
    with reading({"backend": backend}, "options") as options:
        backend = options.choice("backend", {name: name for name in LIKE})
    video = video or frames is not None or fps is not None
    values, where, folder = read_processor(config, video)
    if values.get("image_processor_type") == "TimmWrapperImageProcessor":
        pipeline = from_timm(values, name=name)
        decode = changed(pipeline.ops[0], apply_exif_orientation=apply_exif_orientation)
        return Pipeline([decode, *pipeline.ops[1:]], origin=pipeline.origin)
    processor = processor_of(values, where, is_clip=video)
    unused = UNUSED.get(processor, ())
    backend = "pil" if processor in ONLY_PIL else backend
    is_video = processor in VIDEOS
    is_patched, is_sized = processor in PATCHED | VIDEO_PATCHED, processor in SIZED | VIDEO_SIZED
    defaults = (VIDEOS if is_video else CLASSES)[processor]
    if is_video and backend == "pil":
        raise PipelineError(f'{where}: {processor} does not have the backend "pil": use "torchvision"')
    if video and not is_video:
        option = "frames" if frames is not None else "fps" if fps is not None else "video"
        raise PipelineError(f"{where}: the option {option} applies only to video processors, not to {processor}")
    if is_video:
        values = sampling_fields(values, fps)
    if processor == "VJEPA2VideoProcessor":  # the class ignores the field "size"
        crop = values.get("crop_size") or defaults["crop_size"]
        crop = crop.get("height") if isinstance(crop, Mapping) else crop
        if isinstance(crop, int):
            values = {**values, "size": {"shortest_edge": int(crop * 256 / 224)}}
    settings = Fields(defaults | dict(values), where)
    if backend == "pil" and processor in WITHOUT_PIL:
        raise PipelineError(
            f"{where}: {processor} does not have a PIL backend in transformers: omit the option backend"
        )
    if backend == "torchvision" and (reason := WITHOUT_TORCHVISION.get(processor)):
        raise PipelineError(
            f"{where}: the torchvision backend of {processor} is not supported: {reason}; the PIL backend is "
            'supported: pass --option backend=pil, or backend="pil" in Python'
        )
    for field, value in FIXED.get(processor, {}).items():
        if (value or settings.has(field)) and settings.take(field) != value:
            settings.refuse(field, f"is not supported for this class unless it is {str(value).lower()}")
    for field in ("size", "crop_size", "pad_size"):
        _check_size_keys(settings, field)
    for field, flag in NEEDED.items():
        if field in unused and settings.flag(flag) and not settings.has(field):
            settings.refuse(field, f'must be set unless "{flag}" is false: transformers raises an error without it')
    known = defaults | {key: values[key] for key in values if key not in unused}
    with reading(known, where) as fields, _naming_fields(fields, known):
        fields.ignore(*defaults, *COMMON, *HARMLESS, *(key for key in values if values[key] is None))
        fields.finish()  # reject fields of other classes, before the code below reads them
        pads = _square_padding(fields, processor)
        outputs: list[Op] = []
        branches: tuple[Branch, ...]
        if is_patched or is_sized:
            make = patched if is_patched else sized
            filter_ = _filter(fields, backend, is_optional=defaults["resample"] is None)
            geometry, outputs, branches = make(fields, processor, filter_, LIKE[backend])
        else:
            geometry, branches = _geometry(fields, processor, backend), ()
        is_standardized = processor in PATCHED and PATCHED[processor].is_standardized
        arithmetic = [] if is_standardized else _arithmetic(fields, processor, backend)
        further = [(branch, _arithmetic(fields, processor, backend, branch.prefix)) for branch in branches]
        begins_with = SIZED[processor].first if processor in SIZED else None
        if begins_with is not None:  # the class resizes float32 values
            count = len(arithmetic) if begins_with == "normalize" else int(fields.flag("do_rescale"))
            at = sum(isinstance(op, Pad) for op in geometry[:1])  # padding before the resize
            geometry = [*geometry[:at], *arithmetic[:count], *geometry[at:], *arithmetic[count:]]
            arithmetic = []
        why = 'is not supported: remove it, and set "layout": "hwc" in the op tensor of the pipeline'
        fields.expect("data_format", "channels_first", why=why)
        tail: list[Op] = []
        if processor in DPTS and fields.flag("do_pad"):
            tail = [Pad(multiple=fields.length("size_divisor", MAX_SIDE), value=0.0)]
        is_padded = fields.flag("do_pad") and not (pads or outputs or tail)
        padded_size = _padded_size(fields, processor, geometry) if is_padded else ()
        clip = clip_of(fields, processor, frames) if is_video else None
        alpha: Alpha = "checkerboard" if processor == "Inkling2ImageProcessor" else "white"
        decode = Decode(
            color="bgr" if processor in BGR or fields.flag("do_flip_channel_order") else "rgb",
            apply_exif_orientation=apply_exif_orientation,
            alpha=alpha if fields.flag("do_convert_rgb") and "do_convert_rgb" not in unused else "drop",
        )
        version = fields.text("transformers_version", "")
        numbers = further_outputs(fields, processor)
    if processor in FRAMES:
        log.warning(
            "%s: each image is treated as a frame; for clips, set the option frames, for example frames=16", where
        )
    first: Op = decode
    layout: Layout = "chw"
    output = None
    if clip:
        first, layout = clip, "tchw"
        output = VIDEO_OUTPUTS.get(processor, "pixel_values_videos")
        if clip.rate is not None and not outputs:
            outputs = frames_as_tiles(geometry, output or "pixel_values_videos", where)
    more: list[Op] = []
    for branch, steps in further:
        following = [*branch.geometry, *steps, *branch.outputs]
        more += [changed(following[0], from_=branch.source), *following[1:]]
        first = changed(first, name=PHOTO) if branch.source == PHOTO else first
    has_floats = any(isinstance(op, Normalize) for op in (*geometry, *arithmetic))
    tensor = Tensor(dtype="float32" if has_floats else "uint8", layout=layout, name=output)
    max_size = None if clip else _max_size(geometry)
    if max_size is not None:
        tensor = changed(tensor, max_size=max_size)
        outputs = [changed(op, max_size=op.max_size or max_size) if isinstance(op, Tensor) else op for op in outputs]
        log.warning(
            '%s: the pipeline limits each side to %d pixels with "max_size" in tensor, because the size of a tensor '
            "must be bounded; transformers does not limit it",
            *(where, max_size),
        )
    if padded_size:
        tensor = changed(tensor, min_height=padded_size[0], min_width=padded_size[1])
    if outputs:
        is_copied = is_float(settings, processor, LIKE[backend])
        if processor in PATCHED:
            row = PATCHED[processor]
            is_copied = is_copied or (row.is_float if backend == "pil" else row.is_always_float)
        dtype: TensorDType = "float32" if is_copied else tensor.dtype
        if any(isinstance(op, Normalize) and op.arithmetic == "bfloat16" for op in arithmetic):
            dtype = "bfloat16"
        outputs, more = (
            [changed(op, dtype=dtype) if isinstance(op, Tensor | Patches | SlicePatches | Tiles) else op for op in ops]
            for ops in (outputs, more)
        )
    with _naming_fields(settings, known):
        return assembled(
            [first, *pads, *geometry, *arithmetic, *tail, *(outputs or [tensor]), *numbers, *more],
            library="transformers",
            version=version,
            name=name or folder or processor,
            where=where,
            like=LIKE[backend],
        )


def read_processor(
    config: Mapping[str, Any] | str | Path, is_video: bool = False
) -> tuple[Mapping[str, Any], str, str]:
    """Return the fields of the processor, the prefix of error messages, and the name of the folder.

    The name of the folder is an empty string if ``config`` is a mapping. If the configuration describes both an image
    processor and a video processor, ``is_video`` selects the latter.
    """
    if isinstance(config, Mapping):
        return _inner(config, is_video), "image processor", ""
    path = Path(config)
    folder = (path if path.is_dir() else path.parent).resolve()
    if path.suffix != ".json" and not path.exists():
        raise PipelineError(
            f"{config} does not exist: for a model on the Hugging Face Hub, download its preprocessor_config.json and "
            "pass that file"
        )
    if not path.is_dir():
        return _inner(read_json(path), is_video), path.name, folder.name
    nested, plain = path / "processor_config.json", path / "preprocessor_config.json"
    if nested.exists() and (_nested(values := read_json(nested), is_video)):
        return _inner(values, is_video), nested.name, folder.name
    video = path / "video_preprocessor_config.json"
    if video.exists() and (is_video or not plain.exists()):
        return read_json(video), video.name, folder.name
    if not plain.exists():
        raise PipelineError(
            f'{folder.name}: the folder contains neither {plain.name} nor a {nested.name} with an "image_processor"'
        )
    return read_json(plain), plain.name, folder.name


def _nested(values: Mapping[str, Any], is_video: bool) -> str | None:
    """Return the field that contains the processor in the configuration of a multimodal processor, or None."""
    keys = ("video_processor", "image_processor") if is_video else ("image_processor",)
    return next((key for key in keys if key in values), None)


def _inner(values: Mapping[str, Any], is_video: bool) -> Mapping[str, Any]:
    """Return the configuration of the processor, which may be nested in that of a multimodal processor."""
    inner = values.get(_nested(values, is_video) or "")
    return inner if isinstance(inner, Mapping) else values


def processor_of(values: Mapping[str, Any], where: str, *, is_clip: bool = False) -> str:
    """Return the name of the processor's class in transformers 5, without the suffix of the backend.

    If ``is_clip`` is true, an image processor is replaced by the corresponding video processor, if there is one.
    """
    fields = Fields(values, where)
    code = fields.mapping("auto_map")
    if "AutoImageProcessor" in code or "AutoFeatureExtractor" in code:
        fields.refuse("auto_map", "refers to the model's own Python code, which is not supported")
    type_fields = ("image_processor_type", "video_processor_type", "feature_extractor_type")
    field = next(filter(fields.has, type_fields), type_fields[0])
    name = fields.text(field).removesuffix("Fast").removesuffix("Pil")
    if name.endswith("FeatureExtractor"):
        name = name.removesuffix("FeatureExtractor") + "ImageProcessor"
    video = name.removesuffix("ImageProcessor") + "VideoProcessor"  # older files name an image processor
    name = video if video in VIDEOS and (is_clip or name not in CLASSES) else name
    if name not in CLASSES and name not in VIDEOS:
        why = REASONS.get(name, f"supported classes: {', '.join([*CLASSES, *VIDEOS])}")
        fields.refuse(field, f"is not supported; {why}")
    return name


@contextmanager
def _naming_fields(fields: Fields, known: Collection[str]) -> Iterator[None]:
    """Append a field of the configuration to the error of an op that was computed from it.

    Errors that contain the name of a known field are not changed.
    """
    try:
        yield
    except PipelineError as error:
        text = str(error)
        is_named = any(quoted(field) in text for field in known)
        sources = {"height": "size", "tile_size": "size", "filter": "resample", "center_crop": "crop_size"}
        source = next((field for name, field in sources.items() if quoted(name) in text), None)
        if is_named or source is None or source not in known:
            raise
        value = shortened(repr(fields.take(source)))
        raise PipelineError(
            f"{text}; this value is computed from {quoted(source)}: {value}", limit=error.limit
        ) from None


def _square_padding(fields: Fields, processor: str) -> list[Op]:
    """Return LLaVA's padding, which makes the image square before the resize.

    The fill colour is the image mean times 255, truncated to integers.
    """
    if processor != "LlavaImageProcessor" or not fields.flag("do_pad"):
        return []
    mean = fields.numbers("image_mean") if fields.has("image_mean") else ()
    levels = tuple(int(value * 255) for value in mean) if isinstance(mean, tuple) else ()
    if len(levels) != 3 or not all(0 <= level <= 255 for level in levels):
        fields.refuse("image_mean", "must be three numbers from 0 to 1, because it is also the padding color")
    return [Pad(square=True, fill=levels)]


def _padded_size(fields: Fields, processor: str, geometry: Sequence[Op]) -> Sides:
    """Return the height and width of SAM's images after they are padded with zeros, which follows ``normalize``.

    Return an empty tuple for processors that pad only the images of a batch to a common size.
    """
    if not fields.has("pad_size"):
        return ()
    if processor != "SamImageProcessor":
        fields.refuse("do_pad", "is not supported together with pad_size")
    size = _sides(fields, "pad_size", is_square=True)
    longest = geometry[0].size if geometry and isinstance(geometry[0], ResizeByRule) else None
    if len(size) == 1 or not isinstance(longest, int) or longest > min(size):
        fields.refuse("pad_size", "must have a height and a width, neither smaller than the longest_edge of size")
    return size


def _geometry(fields: Fields, processor: str, backend: Backend) -> list[Op]:
    """Return the ops for the resize and the centre crop of an image processor, or for its warp of boxes."""
    ops: list[Op] = []
    if processor == PERSONS:
        height, width = (*_sides(fields, "size", is_square=fields.flag("default_to_square")), 1)[:2]
        if min(height, width) < 2:
            fields.refuse("size", "must have a height and a width of at least 2 pixels")
        return [Warp(box="boxes", box_format="xywh64", align_corners=True, height=height, width=width, like="scipy")]
    is_without_crop = processor == "SamImageProcessor" or (processor in NO_PIL_CROP and backend == "pil")
    if is_without_crop and fields.flag("do_center_crop"):
        fields.refuse(
            "do_center_crop", "is not supported for this class, whose PIL backend ignores it or raises an error"
        )
    if fields.flag("do_resize"):
        own_crop: Sides = ()
        how: dict[str, Any] = {}
        if processor in DETRS:
            size, how = _detr_size(fields, processor)
        elif processor == "SamImageProcessor":
            (longest,) = _longer_side(fields)
            how = {"filter": _filter(fields, backend), "like": LIKE[backend]}
            return [ResizeByRule(rule="longer_half_up", size=longest, **how)]
        elif processor in DPTS:
            size, how = _dpt_size(fields)
        else:
            size, own_crop = _size(fields, processor)
        ops.append(resize(size, filter=_filter(fields, backend), like=LIKE[backend], **how))
        if own_crop:
            ops.append(center_crop(own_crop[0], own_crop[1], LIKE[backend]))
    elif processor in DETRS:  # their mask also requires an upper bound
        ops.append(ResizeByRule(rule="keep", size=MAX_OPEN_SIDE, filter="bilinear", like=LIKE[backend]))
    if fields.flag("do_center_crop"):
        window = _sides(fields, "crop_size", is_square=True)
        if len(window) == 1:
            fields.refuse("crop_size", "must have a height and a width")
        ops.append(center_crop(window[0], window[1], LIKE[backend]))
    return ops


def _max_size(geometry: Sequence[Op]) -> int | None:
    """Return a maximum height and width for the tensor, or None if the ops already limit the size of the image."""
    last = geometry[-1] if geometry else None
    if isinstance(last, Resize) and last.height is None and last.max_size is None:
        return max(MAX_OPEN_SIDE, last.size) if isinstance(last.size, int) else None
    return MAX_OPEN_SIDE if last is None else None


def _filter(fields: Fields, backend: Backend, *, is_optional: bool = False) -> Filter:
    """Return the filter of the resize, which depends on ``resample`` and on the backend.

    If ``is_optional`` is true, the class does not resize, and ``resample`` may be null.
    """
    if is_optional and not fields.has("resample"):
        return "bilinear"
    filter_: Filter = fields.choice("resample", PILLOW_FILTERS)
    return "nearest_exact" if filter_ == "nearest" and backend == "torchvision" else filter_


def _size(fields: Fields, processor: str) -> tuple[Sides, Sides]:
    """Return the size of the resize, and the size of the crop that is part of ConvNeXt's ``do_resize``.

    The size of the resize is (height, width) or only the shorter side. Without a crop, the size of the crop is ``()``.
    """
    if fields.flag("use_square_size"):  # a field of CLIP that overrides the size; Kosmos-2 uses it
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
        return _divided_by_crop_pct(fields, size), size * 2
    if processor == "PoolFormerImageProcessor" and fields.has("crop_pct"):
        return _divided_by_crop_pct(fields, size[:1] if size[0] == size[-1] else size), ()
    return size, ()


def _detr_size(fields: Fields, processor: str) -> tuple[Sides, dict[str, Any]]:
    """Return DETR's height and width, or its shorter side with the other fields of the resize op."""
    size = fields.take("size")
    if isinstance(size, Mapping):
        edges = {key: side for key, side in size.items() if side is not None}
        if edges.keys() == {"height", "width"}:
            return _sides(fields, "size", is_square=False), {}
        found = sides([edges.get("shortest_edge"), edges.get("longest_edge")]) if len(edges) == 2 else ()
    else:  # format of transformers 3 and 4, which did not yet support RT-DETR
        found = sides([size, fields.take("max_size", 1333)]) if "max_size" in DETRS[processor] else ()
    if not found:
        fields.refuse(
            "size",
            f"must have shortest_edge and longest_edge, or height and width, from 1 to {MAX_SIDE} pixels each",
        )
    multiple = 16 if processor == "YolosImageProcessor" else None
    return found[:1], {"max_size": found[1], "multiple": multiple, "rounding": "detr"}


def _longer_side(fields: Fields) -> Sides:
    """Return the length of the longer side after SAM's resize."""
    size = fields.mapping("size")
    found = sides([size["longest_edge"]]) if size.keys() == {"longest_edge"} else ()
    return found or fields.refuse("size", f"must have only a longest_edge, from 1 to {MAX_SIDE} pixels")


def _dpt_size(fields: Fields) -> tuple[Sides, dict[str, Any]]:
    """Return DPT's height and width, or only one side and the other fields of the resize op.

    A single side is returned for configurations that keep the aspect ratio; their height and width must be equal.
    """
    size = _sides(fields, "size", is_square=fields.flag("default_to_square"))
    multiple = fields.take("ensure_multiple_of")
    if type(multiple) is not int or not 1 <= multiple <= min(size):
        fields.refuse("ensure_multiple_of", "must be an integer from 1 to the smallest side of size")
    if len(size) == 1:
        fields.refuse("size", "must have a height and a width")
    if not fields.flag("keep_aspect_ratio"):
        if any(
            side % multiple * 2 == multiple for side in size
        ):  # the class rounds a product that depends on the image
            fields.refuse("size", "must not be halfway between two multiples of ensure_multiple_of")
        return tuple(round(side / multiple) * multiple for side in size), {}
    if size[0] != size[1]:
        fields.refuse("size", 'must be square if "keep_aspect_ratio" is true')
    rounded = {"multiple": multiple} if multiple > 1 else {}
    return size[:1], {"side": "nearer", "rounding": "half_even", **rounded}


def _divided_by_crop_pct(fields: Fields, size: Sides) -> Sides:
    fraction = fields.number("crop_pct")
    for side in size:
        if not fraction > 0 or not 1 <= side / fraction <= MAX_SIDE:
            fields.refuse(
                "crop_pct", f"must be greater than 0, and {side} / crop_pct must be from 1 to {MAX_SIDE} pixels"
            )
    return tuple(int(side / fraction) for side in size)


def _sides(fields: Fields, field: str, *, is_square: bool) -> Sides:
    """Return a size, which can be a number, a list or a mapping, as (height, width) or only the shorter side.

    Args:
        fields: Fields of the configuration.
        field: Name of the field with the size.
        is_square: Whether a single number is the side of a square. If false, it is the shorter side.
    """
    value = fields.take(field)
    if isinstance(value, Mapping):
        edges = {key: side for key, side in value.items() if side is not None}
        key_sets = (("height", "width"), ("shortest_edge",))
        found = sides([edges[key] for keys in key_sets if edges.keys() == set(keys) for key in keys])
    else:
        found = sides(value) * (2 if is_square and isinstance(value, int) else 1)
    return found or fields.refuse(field, INVALID_SIZE)


def _check_size_keys(fields: Fields, field: str) -> None:
    """Reject a size with unknown keys, even if the size is not used, because transformers also raises an error."""
    value = fields.take(field)
    if isinstance(value, Mapping):
        is_known = {*value} in SIZE_KEYS
    else:
        is_known = value is None or type(value) is int or (isinstance(value, list | tuple) and len(value) == 2)
    if not is_known:
        fields.refuse(field, INVALID_SIZE)


def _arithmetic(fields: Fields, processor: str, backend: Backend, prefix: str = "") -> list[Op]:
    """Return the ops that rescale and normalize. They compute in the same steps as the backend.

    The list is empty if the pixel values do not change. ``prefix`` is the prefix of the fields with the mean and the
    standard deviation.
    """
    ops: list[Op] = []
    is_normalized = fields.flag("do_normalize")
    is_rescaled = fields.flag("do_rescale")
    has_offset = fields.flag("rescale_offset") or fields.flag("offset") or processor == "VivitVideoProcessor"
    if has_offset and processor == "VivitImageProcessor" and not is_rescaled:
        fields.refuse("offset", 'requires "do_rescale": transformers raises an error without it')
    includes_top = fields.flag("include_top")
    if includes_top and not is_rescaled and not is_normalized and backend == "torchvision":
        fields.refuse(
            "include_top", 'requires "do_rescale" or "do_normalize": transformers raises an error without them'
        )
    scale = fields.number("rescale_factor", positive=True) if is_rescaled else 1.0
    if is_rescaled and not is_normalized and backend == "torchvision" and type(fields.take("rescale_factor")) is int:
        fields.refuse(
            "rescale_factor",
            "is an integer, so the class computes in uint8, which may overflow: write it with a decimal point, such as "
            "1.0",
        )
    mean: Reals = fields.numbers(f"{prefix}image_mean") if is_normalized else 0.0
    std: Reals = fields.numbers(f"{prefix}image_std", positive=True) if is_normalized or includes_top else 1.0
    is_flipped = processor == "TvpImageProcessor" and fields.flag("do_flip_channel_order")
    if is_flipped or processor in FLIPPED:  # reverses the channels of the normalized tensor
        mean, std = (each[::-1] if isinstance(each, tuple) else each for each in (mean, std))
    is_separate = has_offset or (processor in SIZED and SIZED[processor].first == "rescale")
    if is_rescaled and is_normalized and backend == "torchvision" and not is_separate:
        is_bfloat16 = processor in SIZED and SIZED[processor].is_bfloat16
        ops.append(Normalize(mean, std, scale, arithmetic="bfloat16" if is_bfloat16 else "fused"))
    else:
        if is_rescaled:  # the PIL backend rescales in float64 and rounds the result
            ops.append(Normalize(scale=scale, arithmetic="multiply" if backend == "torchvision" else "float64"))
            if has_offset:
                ops.append(Normalize(mean=1.0, scale=1.0, arithmetic="divide"))
        if is_normalized:
            ops.append(Normalize(mean, std, 1.0, arithmetic="divide"))
    if processor in PAIRS and fields.flag("do_grayscale"):
        ops[-1] = changed(ops[-1], luma="torchvision" if backend == "torchvision" else "numpy")
    if includes_top:
        ops.append(Normalize(std=std, scale=1.0, arithmetic="divide"))
    return ops
