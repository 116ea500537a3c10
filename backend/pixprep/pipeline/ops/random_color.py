"""Random ops on pixel values, for training only."""

from __future__ import annotations

from functools import cache, lru_cache
from math import isfinite
from typing import Annotated, Any, ClassVar

from pixprep.errors import PipelineError
from pixprep.pipeline.ops.color import (
    MAX_FACTOR,
    Autocontrast,
    Brightness,
    BrightnessContrast,
    Contrast,
    Equalize,
    Grayscale,
    Hue,
    HueSaturationValue,
    Invert,
    PermuteChannels,
    Posterize,
    Saturation,
    Solarize,
)
from pixprep.pipeline.ops.limits import Share, Spread, shown, spans
from pixprep.pipeline.ops.op import ColorOp, Drawn, LevelsOp, Op, Sometimes, drawn
from pixprep.plan.draws.augments import Uniforms
from pixprep.plan.draws.philox import Span, Words, between, span_words
from pixprep.plan.profiles import COLOURS
from pixprep.spec import BlendLike, ColorLike, as_tuple

Strength = float | tuple[float, float] | None


class RandomGray(Sometimes, Grayscale, frozen=True, tag="random_gray"):
    """Converts some of the images to gray.

    The op equals torchvision v2's ``RandomGrayscale``.

    Args:
        p: Probability that the op is applied, 0 to 1.
        like: as in ``grayscale``.

    Example:
        {"op": "random_gray"}
    """

    p: Share = 0.1


class RandomPosterize(Sometimes, Posterize, frozen=True, tag="random_posterize"):
    """Keeps only the upper bits of each pixel value in some of the images.

    The op equals torchvision v2's ``RandomPosterize``.

    Args:
        bits: as in ``posterize``.
        p: Probability that the op is applied, 0 to 1.

    Example:
        {"op": "random_posterize", "bits": 4}
    """

    p: Share = 0.5


class RandomSolarize(Sometimes, Solarize, frozen=True, tag="random_solarize"):
    """Inverts the pixel values from a threshold upwards in some of the images.

    The op equals torchvision v2's ``RandomSolarize``.

    Args:
        threshold: as in ``solarize``.
        p: Probability that the op is applied, 0 to 1.

    Example:
        {"op": "random_solarize", "threshold": 128}
    """

    p: Share = 0.5


class RandomAutocontrast(Sometimes, Autocontrast, frozen=True, tag="random_autocontrast"):
    """Stretches the pixel values of each channel in some of the images.

    The op equals torchvision v2's ``RandomAutocontrast``.

    Args:
        p: Probability that the op is applied, 0 to 1.
        like: as in ``autocontrast``.

    Example:
        {"op": "random_autocontrast"}
    """

    p: Share = 0.5


class RandomEqualize(Sometimes, Equalize, frozen=True, tag="random_equalize"):
    """Equalizes the histogram of each channel in some of the images.

    The op equals torchvision v2's ``RandomEqualize``.

    Args:
        p: Probability that the op is applied, 0 to 1.

    Example:
        {"op": "random_equalize"}
    """

    p: Share = 0.5


class RandomInvert(Sometimes, Invert, frozen=True, tag="random_invert"):
    """Inverts some of the images.

    The op equals torchvision v2's ``RandomInvert``.

    Args:
        p: Probability that the op is applied, 0 to 1.

    Example:
        {"op": "random_invert"}
    """

    p: Share = 0.5


class ColorJitter(Drawn, LevelsOp, frozen=True, tag="color_jitter"):
    """Changes brightness, contrast, saturation and hue by random factors, in random order.

    The op equals torchvision v2's ``ColorJitter``. Each factor is uniform in ``[max(0, 1 - x), 1 + x]``, and the hue in
    ``[-x, x]``.

    Args:
        brightness, contrast, saturation: Maximum change of the factor, or its minimum and maximum; null: no change.
        hue: Maximum rotation as a fraction of a full turn, at most 0.5, or its minimum and maximum; null: no change.
        like: Library whose rounding the op reproduces.
        p: Probability that the op is applied, 0 to 1. torchvision expresses it by ``RandomApply``.

    Example:
        {"op": "color_jitter", "brightness": 0.4, "contrast": 0.4, "saturation": 0.4, "hue": 0.1}
    """

    brightness: Strength = None
    contrast: Strength = None
    saturation: Strength = None
    hue: Strength = None
    like: BlendLike = "pillow"
    p: Share = 1.0

    def check(self) -> None:
        for name, span in self.spans.items():
            lowest, highest = (-0.5, 0.5) if name == "hue" else (0.0, MAX_FACTOR)
            if span is None:
                continue
            if not all(map(isfinite, span)) or not lowest <= span[0] <= span[1] <= highest:
                interval = shown(as_tuple(getattr(self, name)))
                raise PipelineError(f'"{name}" must be inside {lowest:g} to {highest:g}, not {interval}')

    @property
    def spans(self) -> dict[str, Span | None]:
        """Limits of each change of colours."""
        return {
            "brightness": _span(self.brightness, 1.0),
            "contrast": _span(self.contrast, 1.0),
            "saturation": _span(self.saturation, 1.0),
            "hue": _span(self.hue, 0.0),
        }

    @property
    def keeps_places(self) -> bool:
        """OpenCV's hue rounds the last columns otherwise."""
        return self.spans["hue"] is None or COLOURS[self.like].turn is not None

    @property
    def is_pointwise(self) -> bool:
        """The mean luma of the contrast is the whole image's."""
        return self.spans["contrast"] is None and self.keeps_places

    @property
    def blocks(self) -> int:
        """Four factors; four ranks of the order; whether, unless it is done to all."""
        return 2 if self.p == 1 else 3

    def draw(self, height: int, width: int, uniforms: Uniforms) -> Words:
        """The factors in their order: ``{"hue": 0.02, "brightness": 1.1}``; none where nothing is done."""
        factors, ranks, *more = uniforms(0, self.blocks).tolist()
        if more and more[0][0] >= self.p:
            return {}
        order = sorted(zip(ranks, _spans(self).items(), factors, strict=True), key=lambda each: each[0])
        return {kind: between(span, u) for _, (kind, span), u in order if span is not None}

    def in_words(self) -> str:
        some = "" if self.p == 1 else f"{self.p:g} of the images "
        shown = ", ".join(self._shown) or "nothing"
        return f"change {some}at random, in random order, {shown} ({self.like}'s rounding)"

    @property
    def _shown(self) -> list[str]:
        return [f"{kind} {span_words(span)}" for kind, span in self.spans.items() if span is not None]

    def fixed(self, words: Words) -> list[Op]:
        kinds = _kinds(self.like)
        return [
            PermuteChannels(tuple(factor)) if kind == "channels" else drawn(kinds[kind], factor=factor)
            for kind, factor in words.items()
            if kind != "hue" or factor != 0 or COLOURS[self.like].turn is not None  # Albumentations leaves this one
        ]


class RandomPhotometricDistort(ColorJitter, frozen=True, tag="random_photometric_distort"):
    """Changes brightness, contrast, saturation, hue and the order of the channels, each in some of the images.

    The op equals torchvision v2's ``RandomPhotometricDistort``, from SSD. The contrast follows the brightness or comes
    last, with equal probability. The channels are in random order.

    Args:
        brightness: Minimum and maximum of the factor, or one number as in ``color_jitter``.
        contrast, saturation: Minimum and maximum of the factor, or one number as in ``color_jitter``.
        hue: Minimum and maximum of the rotation, or one number as in ``color_jitter``.
        like: Library whose rounding the op reproduces.
        p: Probability of each of the changes, 0 to 1.

    Example:
        {"op": "random_photometric_distort"}
    """

    has_colours: ClassVar[bool] = True
    is_pointwise: ClassVar[bool] = False
    blocks: ClassVar[int] = 4  # whether of each kind; four factors; contrast first, whether to permute; three ranks

    brightness: Strength = (0.875, 1.125)
    contrast: Strength = (0.5, 1.5)
    saturation: Strength = (0.5, 1.5)
    hue: Strength = (-0.05, 0.05)
    like: ColorLike = "pillow"
    p: Share = 0.5

    def draw(self, height: int, width: int, uniforms: Uniforms) -> Words:
        """The factors in their order, and the channels: ``{"brightness": 1.1, "hue": 0.02, "channels": [2, 0, 1]}``."""
        applied, factors, (early, permuted, *_), (*ranks, _) = uniforms(0, self.blocks).tolist()
        found: dict[str, Any] = {
            kind: between(span, u)
            for whether, (kind, span), u in zip(applied, _spans(self).items(), factors, strict=True)
            if span is not None and whether < self.p
        }
        if "contrast" in found and early >= 0.5:
            found["contrast"] = found.pop("contrast")
        if permuted < self.p:
            found["channels"] = sorted(range(3), key=ranks.__getitem__)
        return found

    def in_words(self) -> str:
        shown = ", ".join([*self._shown, "permute channels"])
        return f"to {self.p:g} of the images each: {shown} ({self.like}'s rounding)"


class RandomHueSaturationValue(Drawn, LevelsOp, frozen=True, tag="random_hue_saturation_value"):
    """Adds random numbers to hue, saturation and value of some of the images.

    The op equals Albumentations' ``HueSaturationValue``: each number is uniform.

    Args:
        hue: Maximum addition in half degrees, in either direction, or its minimum and maximum.
        saturation: Maximum addition in either direction, or its minimum and maximum.
        value: Maximum addition in either direction, or its minimum and maximum.
        p: Probability that the op is applied, 0 to 1.

    Example:
        {"op": "random_hue_saturation_value", "hue": 10}
    """

    has_colours: ClassVar[bool] = True
    blocks: ClassVar[int] = 1  # whether, three numbers

    hue: Annotated[float | tuple[float, float], Spread(-180, 180)] = 20.0
    saturation: Annotated[float | tuple[float, float], Spread(-255, 255)] = 30.0
    value: Annotated[float | tuple[float, float], Spread(-255, 255)] = 20.0
    p: Share = 0.5

    @property
    def _spans(self) -> dict[str, Span]:
        return {name: spans(getattr(self, name))[0] for name in ("hue", "saturation", "value")}

    def draw(self, height: int, width: int, uniforms: Uniforms) -> Words:
        """``{"hue": 3.5, "saturation": -8.25, "value": 0.5}``; none where nothing is done."""
        whether, *numbers = uniforms(0, 1)[0].tolist()
        if whether >= self.p:
            return {}
        return {name: between(span, u) for (name, span), u in zip(self._spans.items(), numbers, strict=True)}

    def in_words(self) -> str:
        shown = ", ".join(f"{name} {span_words(span)}" for name, span in self._spans.items())
        return f"in {self.p:g} of the images, add at random to {shown}"

    def fixed(self, words: Words) -> list[Op]:
        return [HueSaturationValue(**words)] if words else []


class RandomBrightnessContrast(Drawn, LevelsOp, frozen=True, tag="random_brightness_contrast"):
    """Multiplies the pixel values of some of the images by a random factor and adds a random number.

    The op equals Albumentations' ``RandomBrightnessContrast``: both numbers are uniform.

    Args:
        brightness: Maximum addition in either direction, as a fraction of 255, or its minimum and maximum.
        contrast: Maximum deviation of the factor from 1, or the minimum and maximum of the deviation.
        p: Probability that the op is applied, 0 to 1.

    Example:
        {"op": "random_brightness_contrast"}
    """

    keeps_places: ClassVar[bool] = True
    is_pointwise: ClassVar[bool] = True
    blocks: ClassVar[int] = 1  # whether, two numbers

    brightness: Annotated[float | tuple[float, float], Spread(-3, 3)] = 0.2
    contrast: Annotated[float | tuple[float, float], Spread(-1, MAX_FACTOR - 1)] = 0.2
    p: Share = 0.5

    def draw(self, height: int, width: int, uniforms: Uniforms) -> Words:
        """``{"contrast": 1.125, "brightness": -12.75}``; none where nothing is done."""
        whether, of_contrast, of_brightness, _ = uniforms(0, 1)[0].tolist()
        if whether >= self.p:
            return {}
        (brightness,), (contrast,) = spans(self.brightness), spans(self.contrast)
        factor = 1.0 + between(contrast, of_contrast)
        return {"contrast": factor, "brightness": between(brightness, of_brightness) * 255}

    def in_words(self) -> str:
        brightness, contrast = (span_words(spans(each)[0]) for each in (self.brightness, self.contrast))
        return f"in {self.p:g} of the images, multiply the levels by 1 and {contrast}, add {brightness} of 255"

    def fixed(self, words: Words) -> list[Op]:
        return [BrightnessContrast(**words)] if words else []


@cache
def _kinds(like: BlendLike) -> dict[str, ColorOp]:
    """The op of each kind, which changes nothing."""
    kinds = {"brightness": Brightness, "contrast": Contrast, "saturation": Saturation}
    return {name: kind(factor=1.0, like=like) for name, kind in kinds.items()} | {"hue": Hue(factor=0.0, like=like)}


@lru_cache
def _spans(op: ColorJitter) -> dict[str, Span | None]:
    """Spans of an op that draws, worked out once."""
    return op.spans


def _span(strength: Strength, middle: float) -> tuple[float, float] | None:
    """Limits; None where nothing would change."""
    if strength is None:
        return None
    if isinstance(strength, tuple | list):
        span = float(strength[0]), float(strength[1])
    else:
        least = -strength if middle == 0 else max(0.0, middle - strength)
        span = least, middle + strength
    return None if span == (middle, middle) else span
