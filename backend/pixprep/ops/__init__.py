"""Every operator, as frozen data: its fields, its checks, and the spec of its result. No arrays, no devices.

An operator is added by its class, its member in one of the unions below, and its lowering in ``compiler``; ``mypy`` and
the tests name the places that still lack it.
"""

from __future__ import annotations

from typing import get_args

from pixprep.ops.color import (
    Autocontrast,
    Brightness,
    ColorJitter,
    Contrast,
    Equalize,
    Gamma,
    Grayscale,
    Hue,
    Invert,
    Posterize,
    RandomAutocontrast,
    RandomEqualize,
    RandomGray,
    RandomInvert,
    RandomPosterize,
    RandomSolarize,
    Saturation,
    Solarize,
)
from pixprep.ops.decode import Decode, DecodeVideo, Pixels
from pixprep.ops.erasing import RandomErasing
from pixprep.ops.extern import Extern
from pixprep.ops.filters import GaussianBlur, RandomGaussianBlur, RandomSharpness, Sharpness
from pixprep.ops.geometry import Anchor, CenterCrop, Crop, Flip, Letterbox, Pad, Resize
from pixprep.ops.levels import Arithmetic, Normalize
from pixprep.ops.op import MAX_SIDE, Fill, Levels, Op, Reals, as_tuple, changed, is_on, op_name
from pixprep.ops.outputs import Boxes, OpticalFlow, OriginalSize, Points, Tensor, TensorDType, Transform
from pixprep.ops.policies import RandAugment, TrivialAugment
from pixprep.ops.random import RandomCrop, RandomFlip, RandomIouCrop, RandomResizedCrop, RandomZoomOut
from pixprep.ops.warp import Affine, RandomAffine, RandomRotate, Rotate

WarpOp = Rotate | RandomRotate | Affine | RandomAffine
FilterOp = Sharpness | RandomSharpness | GaussianBlur | RandomGaussianBlur
RandomOp = RandomResizedCrop | RandomCrop | RandomFlip | RandomZoomOut | RandomIouCrop
ColorOp = (
    Brightness
    | Contrast
    | Saturation
    | Hue
    | Grayscale
    | Gamma
    | Posterize
    | Solarize
    | Autocontrast
    | Equalize
    | Invert
)
RandomColorOp = RandomGray | RandomPosterize | RandomSolarize | RandomAutocontrast | RandomEqualize | RandomInvert
PolicyOp = RandAugment | TrivialAugment
SteadyOp = ColorOp | Rotate | Affine | Sharpness | GaussianBlur
"""What is done to the levels of every image alike: no number is drawn."""
LevelsOp = ColorOp | RandomColorOp | ColorJitter | WarpOp | FilterOp | RandomErasing | PolicyOp
ImageOp = Resize | CenterCrop | Crop | Pad | Letterbox | Flip | RandomOp | LevelsOp | Extern | Normalize
OutputOp = Tensor | OriginalSize | Transform | OpticalFlow
AnnotationOp = Boxes | Points
FirstOp = Decode | DecodeVideo | Pixels
AnyOp = FirstOp | ImageOp | OutputOp | AnnotationOp
OPS: dict[str, type[Op]] = {str(cls.__struct_config__.tag): cls for cls in get_args(AnyOp)}
"""The class of each operator, by its name in the file."""

__all__ = [
    "MAX_SIDE",
    "OPS",
    "Affine",
    "Anchor",
    "AnnotationOp",
    "AnyOp",
    "Arithmetic",
    "Autocontrast",
    "Boxes",
    "Brightness",
    "CenterCrop",
    "ColorJitter",
    "ColorOp",
    "Contrast",
    "Crop",
    "Decode",
    "DecodeVideo",
    "Equalize",
    "Extern",
    "Fill",
    "FilterOp",
    "FirstOp",
    "Flip",
    "Gamma",
    "GaussianBlur",
    "Grayscale",
    "Hue",
    "ImageOp",
    "Invert",
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
    "PolicyOp",
    "Posterize",
    "RandAugment",
    "RandomAffine",
    "RandomAutocontrast",
    "RandomColorOp",
    "RandomCrop",
    "RandomEqualize",
    "RandomErasing",
    "RandomFlip",
    "RandomGaussianBlur",
    "RandomGray",
    "RandomInvert",
    "RandomIouCrop",
    "RandomOp",
    "RandomPosterize",
    "RandomResizedCrop",
    "RandomRotate",
    "RandomSharpness",
    "RandomSolarize",
    "RandomZoomOut",
    "Reals",
    "Resize",
    "Rotate",
    "Saturation",
    "Sharpness",
    "Solarize",
    "SteadyOp",
    "Tensor",
    "TensorDType",
    "Transform",
    "TrivialAugment",
    "WarpOp",
    "as_tuple",
    "changed",
    "is_on",
    "op_name",
]
