"""What is known of an image or a tensor before any image has been seen."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Literal

Color = Literal["rgb", "bgr", "gray"]
DType = Literal["float32", "float16", "uint8", "int32"]
Layout = Literal["chw", "hwc"]
Chroma = Literal["fancy", "fast"]
Codec = Literal["consistent", "fastest", "cpu"]

BYTES_PER_VALUE: dict[DType, int] = {"float32": 4, "float16": 2, "uint8": 1, "int32": 4}


def keep_aspect(size: int, side: Literal["shorter", "longer"], height: int, width: int) -> tuple[int, int]:
    """The (height, width) when one side becomes ``size``: torchvision's ``int(size * other / side)``, at least 1."""
    if (height <= width) == (side == "shorter"):
        return size, max(1, int(size * width / height))
    return max(1, int(size * height / width)), size


@dataclass(frozen=True, kw_only=True)
class ImageSpec:
    """An image between two ops: ``channels`` planes of ``height`` x ``width`` values.

    Attributes:
        height, width: in pixels; None where they differ from image to image.
        min_height, min_width: what every image has at least.
        color: the order of the channels.
        low, high: the range of the values.
        is_integer: True while the values are the uint8 levels of the decoder or the resize; False once normalized.
    """

    height: int | None = None
    width: int | None = None
    min_height: int = 1
    min_width: int = 1
    color: Color = "rgb"
    low: float = 0.0
    high: float = 255.0
    is_integer: bool = True

    @property
    def channels(self) -> int:
        """1 for gray, else 3."""
        return 1 if self.color == "gray" else 3

    def sized(self, height: int, width: int) -> ImageSpec:
        """The same image with every side known."""
        return ImageSpec(
            height=height,
            width=width,
            min_height=height,
            min_width=width,
            color=self.color,
            low=self.low,
            high=self.high,
            is_integer=self.is_integer,
        )

    def __str__(self) -> str:
        size = f"{self.height or '?'} x {self.width or '?'}"
        values = f"{self.low:g}..{self.high:g}" if self.is_integer else f"{self.low:.4g}..{self.high:.4g}"
        return f"{size} {self.color}, {'uint8' if self.is_integer else 'real'} {values}"


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
