"""Every operator, as frozen data: its fields, its checks, and the spec of its result. No arrays, no devices.

An operator is added by its class, its member in one of the unions below, and its lowering in ``compiler``; ``mypy`` and
the tests name the places that still lack it.
"""

from __future__ import annotations

from typing import get_args

from pixprep.ops.color import Brightness, ColorJitter, Contrast, Saturation
from pixprep.ops.decode import Decode, DecodeVideo, Pixels
from pixprep.ops.geometry import Anchor, CenterCrop, Crop, Flip, Letterbox, Pad, Resize
from pixprep.ops.levels import Arithmetic, Normalize
from pixprep.ops.op import MAX_SIDE, Levels, Op, Reals, as_tuple, changed, in_words, is_on, op_name
from pixprep.ops.outputs import Boxes, OpticalFlow, OriginalSize, Points, Tensor, TensorDType, Transform
from pixprep.ops.random import RandomCrop, RandomFlip, RandomIouCrop, RandomResizedCrop, RandomZoomOut

RandomOp = RandomResizedCrop | RandomCrop | RandomFlip | RandomZoomOut | RandomIouCrop
LevelsOp = Brightness | Contrast | Saturation | ColorJitter
ImageOp = Resize | CenterCrop | Crop | Pad | Letterbox | Flip | RandomOp | LevelsOp | Normalize
OutputOp = Tensor | OriginalSize | Transform | OpticalFlow
AnnotationOp = Boxes | Points
FirstOp = Decode | DecodeVideo | Pixels
AnyOp = FirstOp | ImageOp | OutputOp | AnnotationOp
OPS: dict[str, type[Op]] = {str(cls.__struct_config__.tag): cls for cls in get_args(AnyOp)}
"""The class of each operator, by its name in the file."""

__all__ = [
    "MAX_SIDE",
    "OPS",
    "Anchor",
    "AnnotationOp",
    "AnyOp",
    "Arithmetic",
    "Boxes",
    "Brightness",
    "CenterCrop",
    "ColorJitter",
    "Contrast",
    "Crop",
    "Decode",
    "DecodeVideo",
    "FirstOp",
    "Flip",
    "ImageOp",
    "Letterbox",
    "Levels",
    "LevelsOp",
    "Normalize",
    "Op",
    "OpticalFlow",
    "OriginalSize",
    "OutputOp",
    "Pad",
    "Pixels",
    "Points",
    "RandomCrop",
    "RandomFlip",
    "RandomIouCrop",
    "RandomOp",
    "RandomResizedCrop",
    "RandomZoomOut",
    "Reals",
    "Resize",
    "Saturation",
    "Tensor",
    "TensorDType",
    "Transform",
    "as_tuple",
    "changed",
    "in_words",
    "is_on",
    "op_name",
]
