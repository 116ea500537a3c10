"""Operators of DALI that decode clips with a fixed number of frames.

The frames are those that DALI selects. Their pixel values are close to DALI's: both use FFmpeg, but DALI requests a
different color conversion. For a VP9 clip of 160 x 96, they differ by 1.2 levels on average, and by at most 19.
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

_WHY_DALI = (
    "returns one response for each sequence of a clip, but pixprep returns a single response: serve the graph with "
    "DALI, "
    "or import only the first sequence with --option clip=first"
)
OPERATORS = (
    *("Resize", "Crop", "CropMirrorNormalize", "Normalize", "Flip", "Transpose", "Cast", "Copy"),
    "ArithmeticGenericOp",
)
"""Operators that are supported for clips."""
_SHORT: dict[str, Literal["refuse", "repeat"]] = {"none": "refuse", "edge": "repeat"}


def check_clip(name: str, image: Image) -> None:
    """Reject an operator on clips that is supported only for images."""
    if isinstance(image.chain[0], DecodeVideo) and name not in OPERATORS:
        raise PipelineError(f"is not supported for clips; supported operators: {', '.join(OPERATORS)}")


def _decode_video(encoded: Encoded, fields: Fields) -> Image:
    """Read ``decoders.video``: ``sequence_length`` frames from the first on, or the frames before ``end_frame``."""
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
            'without "sequence_length", the number of frames depends on the file, but a tensor has a fixed size: set '
            '"sequence_length"'
        )
    short = fields.choice("pad_mode", _SHORT, "none")
    return Image(encoded.name, (DecodeVideo(frames=count, sample="first", short=short),), layout="thwc", stride=stride)


def strided(ops: list[Op], values: Iterable[Value]) -> list[Op]:
    """Return the ops with the frame stride of the clips among the values set in the first op."""
    stride = max((value.stride for value in values if isinstance(value, Image)), default=1)
    return [changed(ops[0], sample={"step": stride}), *ops[1:]] if stride > 1 else ops


def stream_of(operator: Operator, fields: Fields, clip: str | None) -> Image:
    """Read ``inputs.video``. Only its first sequence is imported, and only if ``clip`` is ``first``."""
    if clip != "first":
        raise PipelineError(_WHY_DALI)
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
"""Operator that is an input of clips in sequences."""
