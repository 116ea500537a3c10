"""Ops that change the levels of some of the images, or of each by numbers of its own: in training only."""

from __future__ import annotations

from math import isfinite
from typing import ClassVar

from pixprep.errors import PipelineError
from pixprep.pipeline.ops.color import (
    MAX_FACTOR,
    Autocontrast,
    Brightness,
    Contrast,
    Equalize,
    Grayscale,
    Hue,
    Invert,
    PermuteChannels,
    Posterize,
    Saturation,
    Solarize,
    need_colours,
)
from pixprep.pipeline.ops.limits import Share, shown
from pixprep.pipeline.ops.op import Drawn, LevelsOp, Op, Sometimes
from pixprep.plan.draws import colors
from pixprep.plan.draws.philox import Words
from pixprep.plan.lowered import Lowered
from pixprep.spec import ColorLike, ImageSpec, as_tuple

Strength = float | tuple[float, float] | None


class RandomGray(Sometimes, Grayscale, frozen=True, tag="random_gray"):
    """Make some of the images gray.

    torchvision v2's ``RandomGrayscale``.

    Args:
        p: how often.
        like: as in ``grayscale``.
    """

    p: Share = 0.1


class RandomPosterize(Sometimes, Posterize, frozen=True, tag="random_posterize"):
    """Keep the upper bits of each level in some of the images.

    torchvision v2's ``RandomPosterize``.

    Args:
        bits: as in ``posterize``.
        p: how often.
    """

    p: Share = 0.5


class RandomSolarize(Sometimes, Solarize, frozen=True, tag="random_solarize"):
    """Invert the levels from a threshold on in some of the images.

    torchvision v2's ``RandomSolarize``.

    Args:
        threshold: as in ``solarize``.
        p: how often.
    """

    p: Share = 0.5


class RandomAutocontrast(Sometimes, Autocontrast, frozen=True, tag="random_autocontrast"):
    """Stretch the levels of each channel in some of the images.

    torchvision v2's ``RandomAutocontrast``.

    Args:
        p: how often.
        like: as in ``autocontrast``.
    """

    p: Share = 0.5


class RandomEqualize(Sometimes, Equalize, frozen=True, tag="random_equalize"):
    """Spread the levels of each channel in some of the images.

    torchvision v2's ``RandomEqualize``.

    Args:
        p: how often.
    """

    p: Share = 0.5


class RandomInvert(Sometimes, Invert, frozen=True, tag="random_invert"):
    """Invert some of the images.

    torchvision v2's ``RandomInvert``.

    Args:
        p: how often.
    """

    p: Share = 0.5


class ColorJitter(Drawn, LevelsOp, frozen=True, tag="color_jitter"):
    """Change brightness, contrast, saturation and hue at random, in random order.

    torchvision v2's ``ColorJitter``: each factor uniform in ``[max(0, 1 - x), 1 + x]``, the hue in ``[-x, x]``.

    Args:
        brightness, contrast, saturation: how much, or from and to; None: not at all.
        hue: how much of a whole turn, at most 0.5, or from and to; None: not at all.
        like: whose rounding.
        p: how often; torchvision's has it by ``RandomApply``.
    """

    drawing: ClassVar[type[colors.Jitter]] = colors.Jitter

    brightness: Strength = None
    contrast: Strength = None
    saturation: Strength = None
    hue: Strength = None
    like: ColorLike = "pillow"
    p: Share = 1.0

    def check(self) -> None:
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

    def lower(self, before: Lowered, image: ImageSpec, key: str) -> Lowered:
        return before.do(self.drawing(key=key, like=self.like, p=self.p, **self.spans))

    def fixed(self, words: Words) -> list[Op]:
        kinds = {"brightness": Brightness, "contrast": Contrast, "saturation": Saturation, "hue": Hue}
        return [
            PermuteChannels(tuple(factor)) if kind == "channels" else kinds[kind](factor=factor, like=self.like)
            for kind, factor in words.items()
        ]


class RandomPhotometricDistort(ColorJitter, frozen=True, tag="random_photometric_distort"):
    """Change brightness, contrast, saturation, hue and the order of the channels, each in some of the images.

    torchvision v2's ``RandomPhotometricDistort``, of SSD: the contrast comes behind the brightness or last, either as
    often; the channels are in any order.

    Args:
        brightness, contrast, saturation, hue: from and to; or as in ``color_jitter``.
        like: whose rounding.
        p: how often, of each.
    """

    drawing: ClassVar[type[colors.Jitter]] = colors.Distort

    brightness: Strength = (0.875, 1.125)
    contrast: Strength = (0.5, 1.5)
    saturation: Strength = (0.5, 1.5)
    hue: Strength = (-0.05, 0.05)
    like: ColorLike = "pillow"
    p: Share = 0.5

    def infer(self, image: ImageSpec) -> ImageSpec:
        """The spec does not change; refuses an image of one channel, and values that are no levels."""
        need_colours(image)
        return super().infer(image)


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
