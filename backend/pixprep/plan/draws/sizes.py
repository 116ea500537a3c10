"""Size that the random numbers of a sample make of a random resize, by torchvision v2's formulas."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pixprep.plan.draws.philox import F64, Numbers, Words, span_words

_SHOWN = 3


@dataclass(frozen=True, kw_only=True)
class Size:
    """The size of one side, out of several, each as likely as another.

    Attributes:
        key: names its numbers.
        sizes: in pixels.
    """

    key: str
    sizes: Sequence[int]
    blocks: ClassVar[int] = 1  # which

    def words(self, height: int, width: int, numbers: Numbers, boxes: F64 | None = None) -> Words:
        """Draw one of the sizes."""
        del height, width, boxes
        return {"size": self.sizes[int(numbers.blocks(self.key, 0, 1)[0, 0] * len(self.sizes))]}

    def __str__(self) -> str:
        some = f"{', '.join(map(str, self.sizes[:_SHOWN]))}, ..., {self.sizes[-1]}"
        return f"one of {some if len(self.sizes) > _SHOWN + 1 else ', '.join(map(str, self.sizes))}"


@dataclass(frozen=True, kw_only=True)
class Jitter:
    """The size of torchvision's ``ScaleJitter``.

    Attributes:
        key: names its numbers.
        height, width: of what an image just fits into at a scale of 1.
        scale: from and to.
    """

    key: str
    height: int
    width: int
    scale: tuple[float, float]
    blocks: ClassVar[int] = 1  # scale

    def words(self, height: int, width: int, numbers: Numbers, boxes: F64 | None = None) -> Words:
        """The sides in float32, operation by operation as PyTorch computes them, cut to whole pixels, 1 at least."""
        del boxes
        uniform = np.float32(numbers.blocks(self.key, 0, 1)[0, 0])
        scale = np.float32(self.scale[0]) + uniform * np.float32(self.scale[1] - self.scale[0])
        factor = np.float32(min(self.height / height, self.width / width)) * scale
        return {name: max(1, int(np.float32(side) * factor)) for name, side in (("height", height), ("width", width))}

    def __str__(self) -> str:
        return f"{span_words(self.scale)} times what fits into {self.height} x {self.width}"


RandomSize = Size | Jitter
