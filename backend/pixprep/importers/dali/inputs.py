"""Converts the inputs of a DALI graph, and the decoders of images and clips.

The content of an ``external_source`` depends on its use in the graph. The input of a decoder is an encoded image or
clip, an argument of an operator consists of numbers, and the input of any other operator on images is a frame, which is
already decoded.

The selected frames of a clip are the same as in DALI. Their pixel values are similar, but not equal: pixprep and DALI
both use FFmpeg, but DALI requests a different colour conversion. For a VP9 clip of 160 x 96 pixels, the mean absolute
difference is 1.2, and the maximum difference is 19.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from math import ceil
from typing import Any, Literal

from pixprep.errors import PipelineError
from pixprep.importers.dali.geometry import cropped, sliced
from pixprep.importers.dali.graph import Operator
from pixprep.importers.dali.numbers import subscripts
from pixprep.importers.dali.values import COLOR_TYPES, TYPES, Encoded, Image, Value
from pixprep.importers.fields import Fields
from pixprep.pipeline.ops import Decode, DecodeVideo, Op, Pixels, TensorDType, changed
from pixprep.pipeline.ops.faults import quoted
from pixprep.spec import FrameLayout, Layout

_CROP_ARGUMENTS = ("crop", "crop_h", "crop_w", "crop_pos_x", "crop_pos_y")
_SLICE_ARGUMENTS = ("start", "shape", "rel_start", "rel_shape")
_REQUEST_ARGUMENTS: Mapping[str, Sequence[str]] = {
    "Crop": _CROP_ARGUMENTS,
    "CropMirrorNormalize": (*_CROP_ARGUMENTS, "mirror"),
    "decoders__ImageCrop": _CROP_ARGUMENTS,
    "Slice": _SLICE_ARGUMENTS,
    "decoders__ImageSlice": _SLICE_ARGUMENTS,
    "Resize": ("size", "resize_x", "resize_y", "resize_shorter", "resize_longer", "roi_start", "roi_end"),
    "Flip": ("horizontal", "vertical"),
    "Rotate": ("angle",),
    "WarpAffine": ("matrix",),
}
"""Names of the arguments that can be inputs of the request, by the name of the operator."""
_FRAME_LAYOUTS: dict[str, tuple[FrameLayout, Layout]] = {
    "": ("hwc", "hwc"),
    "HWC": ("hwc", "hwc"),
    "CHW": ("chw", "chw"),
}
_FRAME_DTYPES: dict[str, TensorDType] = {"uint8": "uint8", "float32": "float32"}


def source_of(operator: Operator, dtypes: Mapping[str, str]) -> Encoded:
    """Return the input that an ``external_source`` provides.

    Args:
        operator: Operator ``external_source`` of the graph.
        dtypes: Dtypes of inputs whose dtype is not specified in the graph, by the name of the input.
    """
    name = operator.outputs[0]
    layout = operator.arguments.get("layout", "")
    dtype = dtype_of(operator) or dtypes.get(name)
    return Encoded(name, layout if isinstance(layout, str) else "?", dtype)


def dtype_of(operator: Operator) -> str | None:
    """Return the dtype of an input, or None if the graph does not specify it."""
    dtype: Any = operator.arguments.get("dtype")
    return TYPES.get(dtype) if isinstance(dtype, int) else None


def check_arguments(operator: Operator, values: Mapping[str, Value]) -> None:
    """Raise PipelineError if the request sets an argument of an operator that must be constant."""
    for argument, name in operator.computed.items():
        value = values.get(name)
        if isinstance(value, Image) and isinstance(value.chain[0], Pixels):
            raise PipelineError(
                f"its argument {quoted(argument)} is computed from the input {quoted(value.encoded)} of the request, "
                "which is not supported: add an input for the argument itself"
            )
        if isinstance(value, Encoded) and argument not in _REQUEST_ARGUMENTS.get(operator.name, ()):
            raise PipelineError(
                f"its argument {quoted(argument)} is an input of the request, which is not supported: use a constant"
            )


def is_number(operator: Operator) -> bool:
    """Return whether an operator only casts, copies or indexes the numbers of the request's input that it receives."""
    is_vector = operator.arguments.get("num_subscripts") == 1
    return operator.name in ("Cast", "Copy") or (operator.name == "TensorSubscript" and is_vector)


def converted_input(name: str, source: Encoded, fields: Fields) -> Encoded:
    """Return an input after an operator that casts it, copies it, or selects one of its numbers."""
    if name == "TensorSubscript":
        (index,) = subscripts(fields)
        if source.index is not None or not isinstance(index, int) or index < 0:
            raise PipelineError(
                "is supported only for a single number of an input with a non-negative index, such as roi[0]"
            )
        return replace(source, index=index)
    return replace(source, cast=fields.choice("dtype", TYPES)) if name == "Cast" else source


def frame_of(source: Encoded) -> Image:
    """Return the image for an input that contains pixels and need not be decoded.

    Raises:
        PipelineError: The layout or the dtype of the input is not supported.
    """
    if source.layout not in _FRAME_LAYOUTS or source.index is not None:
        raise PipelineError(
            f"the input {quoted(source.name)} has the layout {quoted(source.layout)}: only HWC and CHW are supported"
        )
    layout, image_layout = _FRAME_LAYOUTS[source.layout]
    stored, after_cast = source.dtype or "uint8", source.cast or source.dtype or "uint8"
    for dtype in (stored, after_cast):
        if dtype not in _FRAME_DTYPES:
            raise PipelineError(
                f"the input {quoted(source.name)} has the type {dtype}: only uint8 and float32 are supported for frames"
            )
    pixels = Pixels(dtype="uint8" if stored == "uint8" else "float32", layout=layout)
    return Image(source.name, (pixels,), layout=image_layout, dtype=_FRAME_DTYPES[after_cast])


# Decoders


_IGNORED_BY_DECODERS = (
    *("affine", "cache_batch_copy", "cache_debug", "cache_size", "cache_threshold", "cache_type", "memory_stats"),
    *("device_memory_padding", "device_memory_padding_jpeg2k", "host_memory_padding", "host_memory_padding_jpeg2k"),
    *("hw_decoder_load", "hybrid_huffman_threshold", "preallocate_height_hint", "preallocate_width_hint"),
    *("split_stages", "use_chunk_allocator"),
)
"""Arguments of decoders that do not affect the pixels."""


def _decode(encoded: Encoded, fields: Fields) -> Image:
    """Convert ``decoders.image``.

    With the device ``cpu``, DALI decodes with libjpeg-turbo. With the device ``mixed``, DALI uses fancy upsampling only
    if the graph requests fancy upsampling.
    """
    fields.ignore(*_IGNORED_BY_DECODERS)
    fields.expect("dtype", 0, why="must be 0 (uint8), because images are decoded to uint8")
    on_cpu = fields.text("device", "cpu") == "cpu"
    is_fancy, is_fast = fields.flag("jpeg_fancy_upsampling"), fields.flag("use_fast_idct")
    applies_exif = fields.flag("adjust_orientation", default=True)
    if is_fast and not on_cpu:
        fields.refuse(
            "use_fast_idct", 'is not supported with device "mixed", which applies it only to some images: remove it'
        )
    if is_fast and applies_exif:
        fields.refuse(
            "use_fast_idct",
            "is ignored by DALI for images with an EXIF orientation, which is not supported: set "
            "adjust_orientation=False",
        )
    decode = Decode(
        color=fields.choice("output_type", COLOR_TYPES, 0),
        apply_exif_orientation=applies_exif,
        chroma="fancy" if on_cpu or is_fancy else "fast",
        idct="fast" if is_fast else "accurate",
    )
    return Image(encoded.name, (decode,))


_SEVERAL_RESPONSES = (
    "returns one response for each sequence of a clip, but pixprep returns a single response: serve the graph with "
    "DALI, or import only the first sequence with --option clip=first"
)
CLIP_OPERATORS = (
    *("Resize", "Crop", "CropMirrorNormalize", "Normalize", "Flip", "Transpose", "Cast", "Copy"),
    "ArithmeticGenericOp",
)
"""Operators that are supported for clips."""
_PAD_MODES: dict[str, Literal["refuse", "repeat"]] = {"none": "refuse", "edge": "repeat"}


def check_supports_clips(name: str, image: Image) -> None:
    """Raise PipelineError if an operator is not supported for clips and its input is a clip."""
    if isinstance(image.chain[0], DecodeVideo) and name not in CLIP_OPERATORS:
        raise PipelineError(f"is not supported for clips; supported operators: {', '.join(CLIP_OPERATORS)}")


def decode_video(encoded: Encoded, fields: Fields) -> Image:
    """Convert ``decoders.video``, which decodes ``sequence_length`` frames, or all frames before ``end_frame``."""
    fields.ignore("fill_value", "affine", "build_index")
    fields.expect("start_frame", 0, why="must be 0: a clip always begins with its first frame")
    stride = fields.side("stride") if fields.has("stride") else 1
    if fields.has("frames"):
        fields.refuse("frames", "is not supported: use sequence_length and stride")
    if fields.has("sequence_length"):
        count = fields.side("sequence_length")
    elif fields.has("end_frame"):
        count = ceil(fields.side("end_frame") / stride)
    else:
        raise PipelineError(
            'without "sequence_length", the number of frames depends on the file, which is not supported: set '
            '"sequence_length"'
        )
    short = fields.choice("pad_mode", _PAD_MODES, "none")
    return Image(encoded.name, (DecodeVideo(frames=count, sample="first", short=short),), layout="thwc", stride=stride)


def strided(ops: list[Op], values: Iterable[Value]) -> list[Op]:
    """Return the ops, with the frame stride of the clips among ``values`` set in the op ``decode_video``."""
    stride = max((value.stride for value in values if isinstance(value, Image)), default=1)
    return [changed(ops[0], sample={"step": stride}), *ops[1:]] if stride > 1 else ops


def sequences_of(operator: Operator, fields: Fields, clip: str | None) -> Image:
    """Convert ``inputs.video``, which splits a clip into sequences. Only the first sequence is imported.

    Raises:
        PipelineError: ``clip`` is not ``first``.
    """
    if clip != "first":
        raise PipelineError(_SEVERAL_RESPONSES)
    fields.expect("last_sequence_policy", "partial", "pad")
    fields.ignore("blocking", "no_copy", "affine", "feature_names")
    return Image(
        operator.outputs[0], (DecodeVideo(frames=fields.side("sequence_length"), sample="first"),), layout="thwc"
    )


DECODERS: dict[str, Callable[..., Image]] = {
    "decoders__Image": _decode,
    "decoders__ImageCrop": lambda encoded, fields: cropped(_decode(encoded, fields), fields),
    "decoders__ImageSlice": lambda encoded, fields, *window: sliced([_decode(encoded, fields), *window], fields),
}
"""Functions that convert operators on an encoded image. ``decoders.image_slice`` has up to two further inputs."""
VIDEO, STREAM = "decoders__Video", "inputs__Video"
"""Operators ``decoders.video``, which decodes a clip, and ``inputs.video``, which splits a clip into sequences."""
