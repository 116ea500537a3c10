"""Specs of images and tensors, known before any image has been seen."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import Literal

import numpy as np

Color = Literal["rgb", "bgr", "gray"]
DType = Literal["float32", "float16", "uint8", "int32", "int64"]
Layout = Literal["chw", "hwc", "tchw", "thwc", "cthw"]
Chroma = Literal["fancy", "fast"]
Idct = Literal["accurate", "fast"]
Alpha = Literal["drop", "white"]
Like = Literal["pillow", "pillow12", "torchvision", "torch", "opencv", "tensorflow", "dali"]
ColorLike = Literal["pillow", "torchvision"]
Filter = Literal["nearest", "nearest_exact", "box", "bilinear", "hamming", "bicubic", "lanczos", "lanczos4", "area"]
Rounding = Literal["down", "half_even", "half_away"]
Values = Literal["levels", "real", "normalized"]
TensorDType = Literal["float32", "float16", "uint8"]
MaskDType = Literal["uint8", "int64"]
SizeDType = Literal["int32", "int64", "float32"]
SizeOrder = Literal["hw", "wh"]
ScaleOrder = Literal["yx", "xy"]
Anchor = Literal["center", "top_left"]
Arithmetic = Literal["float64", "divide", "multiply", "fused", "fused_multiply"]
Preset = Literal["ultrafast", "fast", "medium"]
BoxFormat = Literal["xyxy", "xywh", "cxcywh"]
Side = Literal["training", "serving"]
Levels = int | tuple[int, ...]
Reals = float | tuple[float, ...]
Fill = Levels | str
"""A colour, or the name of the input that says it."""

BYTES_PER_VALUE: dict[DType, int] = {"float32": 4, "float16": 2, "uint8": 1, "int32": 4, "int64": 8}


def as_tuple(value: Reals) -> tuple[float, ...]:
    """One number as a tuple of one; Python callers may also give a list."""
    return tuple(value) if isinstance(value, tuple | list) else (value,)


def rounded(value: float, rounding: Rounding) -> int:
    """A value of at least 0 as a whole number: cut off, or to the nearest with ties to even, or to the nearest."""
    if rounding == "half_even":
        return round(value)
    return int(value if rounding == "down" else value + 0.5)


def keep_aspect(
    size: int, side: Literal["shorter", "longer"], height: int, width: int, rounding: Rounding = "down"
) -> tuple[int, int]:
    """The (height, width) when one side becomes ``size``: the other is ``size * other / side`` rounded, at least 1."""
    if (height <= width) == (side == "shorter"):
        return size, max(1, rounded(scaled(width, size, height, rounding), rounding))
    return max(1, rounded(scaled(height, size, width, rounding), rounding)), size


def scaled(length: int, size: int, side: int, rounding: Rounding) -> float:
    """``length * size / side``, not rounded yet; for ``half_away`` as DALI does it, with float32 scales and sides."""
    if rounding == "half_away":
        return float(np.float32(length * float(np.float32(size / side))))
    return size * length / side


@dataclass(frozen=True, kw_only=True)
class ImageSpec:
    """An image between two ops: ``channels`` planes of ``height`` x ``width`` values.

    Attributes:
        frames: of a clip, which all have this size; None: an image.
        height, width: in pixels; None where they differ from image to image.
        min_height, min_width: what every image has at least.
        color: the order of the channels.
        low, high: the range of the values.
        values: ``levels``: uint8, of the decoder or the resize; ``real``: float32 in the same range, of a resize that
            does not round; ``normalized``: whatever ``normalize`` made of them.
    """

    frames: int | None = None
    height: int | None = None
    width: int | None = None
    min_height: int = 1
    min_width: int = 1
    color: Color = "rgb"
    low: float = 0.0
    high: float = 255.0
    values: Values = "levels"

    @property
    def channels(self) -> int:
        """1 for gray, else 3."""
        return 1 if self.color == "gray" else 3

    def sized(self, height: int, width: int) -> ImageSpec:
        """The same image with every side known."""
        return replace(self, height=height, width=width, min_height=height, min_width=width)

    def __str__(self) -> str:
        size = f"{f'{self.frames} x ' if self.frames else ''}{self.height or '?'} x {self.width or '?'}"
        values = f"{self.low:g}..{self.high:g}" if self.values == "levels" else f"{self.low:.4g}..{self.high:.4g}"
        return f"{size} {self.color}, {'uint8' if self.values == 'levels' else 'real'} {values}"


LARGEST = 16384
"""Of an example: the right and lower edge of a box, which ends where the image does."""
InputKind = Literal["box", "flag", "color", "number"]


@dataclass(frozen=True, kw_only=True)
class InputSpec:
    """Numbers that a pipeline takes beside an image: for each tensor a row of ``count``.

    Attributes:
        name: as in Triton.
        kind: ``box``: left, top, right, bottom in pixels of the decoded image; each gives a tensor. ``flag``: whether.
            ``color``: a level for each channel, in their order. ``number``.
        count: in a row.
    """

    name: str
    kind: InputKind
    count: int = 1

    @property
    def dtype(self) -> Literal["float32", "bool", "uint8"]:
        """Type of the numbers."""
        return "bool" if self.kind == "flag" else "uint8" if self.kind == "color" else "float32"

    @property
    def example(self) -> list[float]:
        """A row to try the pipeline with: a box of all that there is, or zeros."""
        if self.kind == "box":
            return [0, 0, LARGEST, LARGEST]
        return [False if self.kind == "flag" else 0] * self.count

    def __str__(self) -> str:
        names = {"box": " (left, top, right, bottom)", "color": " (a level for each channel)"}
        return f"{self.dtype} [n, {self.count}]{names.get(self.kind, '')}"


@dataclass(frozen=True, kw_only=True)
class TensorSpec:
    """One output of a pipeline, for one image (no batch dimension).

    Attributes:
        shape: every dimension is known: the tensors of a batch are stacked.
        layout: of the image dimensions; None for outputs that are not images.
        low, high: the range of the values.
    """

    shape: tuple[int, ...]
    dtype: DType
    layout: Layout | None = None
    low: float
    high: float

    @property
    def n_bytes(self) -> int:
        """Size of the tensor of one image."""
        return prod(self.shape) * BYTES_PER_VALUE[self.dtype]

    def __str__(self) -> str:
        image = f" {self.layout}, values {self.low:.4g}..{self.high:.4g}" if self.layout else ""
        return f"{self.dtype} {list(self.shape)}{image}"
