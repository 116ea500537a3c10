"""Ops that change the levels of an image, uint8 to uint8, after its geometry.

``like`` says whose rounding it is. ``pillow``: Pillow's ImageEnhance and ImageOps, which torchvision uses on PIL
images. ``torchvision``: torchvision v2's on uint8 tensors on a CPU.
"""

from __future__ import annotations

from math import isfinite
from typing import ClassVar

from pixprep.errors import PipelineError
from pixprep.ops.op import Op, as_tuple, need_whole_levels, shown
from pixprep.spec import ColorLike, ImageSpec, Side

MAX_FACTOR = 1000.0
Strength = float | tuple[float, float] | None


class _Factor(Op, frozen=True):
    factor: float
    like: ColorLike = "pillow"

    def check(self) -> None:
        """See ``Op.check``."""
        if not 0 <= self.factor <= MAX_FACTOR:
            raise PipelineError(f'"factor" must be 0 to {MAX_FACTOR:g}, not {self.factor:g}')

    def infer(self, image: ImageSpec) -> ImageSpec:
        """The spec does not change; refuses values that are no levels."""
        need_whole_levels(image)
        return image


class Brightness(_Factor, frozen=True, tag="brightness"):
    """Multiply the levels.

    torchvision v2's ``adjust_brightness``.

    Args:
        factor: 0 gives black, 1 changes nothing.
        like: whose rounding.
    """


class Contrast(_Factor, frozen=True, tag="contrast"):
    """Move the levels away from the mean luma of the image, or towards it.

    torchvision v2's ``adjust_contrast``.

    Args:
        factor: 0 gives gray, 1 changes nothing.
        like: whose rounding.
    """


class Saturation(_Factor, frozen=True, tag="saturation"):
    """Move the colours away from gray, or towards it.

    torchvision v2's ``adjust_saturation``.

    Args:
        factor: 0 gives gray, 1 changes nothing.
        like: whose rounding.
    """


class ColorJitter(Op, frozen=True, tag="color_jitter"):
    """Change brightness, contrast, saturation and hue at random, in random order.

    torchvision v2's ``ColorJitter``: each factor uniform in ``[max(0, 1 - x), 1 + x]``, the hue in ``[-x, x]``.

    Args:
        brightness, contrast, saturation: how much, or from and to; None: not at all.
        hue: how much of a whole turn, at most 0.5, or from and to; None: not at all.
        like: whose rounding.
    """

    home: ClassVar[Side | None] = "training"

    brightness: Strength = None
    contrast: Strength = None
    saturation: Strength = None
    hue: Strength = None
    like: ColorLike = "pillow"

    def check(self) -> None:
        """See ``Op.check``."""
        for name, span in self.spans.items():
            lowest, highest = (-0.5, 0.5) if name == "hue" else (0.0, MAX_FACTOR)
            if span is None:
                continue
            if not all(map(isfinite, span)) or not lowest <= span[0] <= span[1] <= highest:
                given = shown(as_tuple(getattr(self, name)))
                raise PipelineError(f'"{name}" must be inside {lowest:g} to {highest:g}, not {given}')

    @property
    def spans(self) -> dict[str, tuple[float, float] | None]:
        """From and to of each."""
        return {
            "brightness": _span(self.brightness, 1.0),
            "contrast": _span(self.contrast, 1.0),
            "saturation": _span(self.saturation, 1.0),
            "hue": _span(self.hue, 0.0),
        }

    def infer(self, image: ImageSpec) -> ImageSpec:
        """The spec does not change; refuses values that are no levels."""
        need_whole_levels(image)
        return image


def _span(strength: Strength, middle: float) -> tuple[float, float] | None:
    """From and to; None where nothing would change."""
    if strength is None:
        return None
    if isinstance(strength, tuple | list):
        span = float(strength[0]), float(strength[1])
    else:
        least = -strength if middle == 0 else max(0.0, middle - strength)
        span = least, middle + strength
    return None if span == (middle, middle) else span
