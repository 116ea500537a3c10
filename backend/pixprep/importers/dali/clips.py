"""Converts DALI's video decoders, for clips with a fixed number of frames.

The selected frames are the same as in DALI. Their pixel values are similar, but not equal: pixprep and DALI both use
FFmpeg, but DALI requests a different colour conversion. For a VP9 clip of 160 x 96 pixels, the mean absolute difference
is 1.2, and the maximum difference is 19.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import ceil
from typing import Literal

from pixprep.errors import PipelineError
from pixprep.importers.dali.graph import Operator
from pixprep.importers.dali.values import Encoded, Image, Value
from pixprep.importers.fields import Fields
from pixprep.pipeline.ops import DecodeVideo, Op, changed

_SEVERAL_RESPONSES = (
    "returns one response for each sequence of a clip, but pixprep returns a single response: serve the graph with "
    "DALI, or import only the first sequence with --option clip=first"
)
OPERATORS = (
    *("Resize", "Crop", "CropMirrorNormalize", "Normalize", "Flip", "Transpose", "Cast", "Copy"),
    "ArithmeticGenericOp",
)
"""Operators that are supported for clips."""
_PAD_MODES: dict[str, Literal["refuse", "repeat"]] = {"none": "refuse", "edge": "repeat"}


def check_supports_clips(name: str, image: Image) -> None:
    """Raise PipelineError if an operator is not supported for clips and its input is a clip."""
    if isinstance(image.chain[0], DecodeVideo) and name not in OPERATORS:
        raise PipelineError(f"is not supported for clips; supported operators: {', '.join(OPERATORS)}")


def _decode_video(encoded: Encoded, fields: Fields) -> Image:
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


CLIPS: dict[str, Callable[[Encoded, Fields], Image]] = {
    "decoders__Video": _decode_video,
}
"""Operators that decode an encoded clip."""
STREAM = "inputs__Video"
"""Name of the operator ``inputs.video``, an input that splits clips into sequences."""
