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
from pixprep.pipeline.ops.limits import Fraction, Spread, shown, spans
from pixprep.pipeline.ops.op import ColorOp, Drawn, LevelsOp, Op, RandomlyApplied, drawn
from pixprep.plan.draws.augments import Uniforms
from pixprep.plan.draws.philox import Span, Words, between, span_words
from pixprep.plan.profiles import COLOURS
from pixprep.spec import BlendLike, ColorLike, as_tuple

Strength = float | tuple[float, float] | None
"""Maximum deviation of a factor from its neutral value, or the minimum and maximum of the factor; None: no change."""


class RandomGray(RandomlyApplied, Grayscale, frozen=True, tag="random_gray"):
    """Converts the image to grayscale with probability ``p``, like torchvision v2's ``RandomGrayscale``."""

    p: Fraction = 0.1


class RandomPosterize(RandomlyApplied, Posterize, frozen=True, tag="random_posterize"):
    """Keeps only the upper bits of pixel values with probability ``p``, like torchvision v2's ``RandomPosterize``."""

    p: Fraction = 0.5


class RandomSolarize(RandomlyApplied, Solarize, frozen=True, tag="random_solarize"):
    """Inverts pixel values at or above a threshold with probability ``p``, like torchvision v2's ``RandomSolarize``."""

    p: Fraction = 0.5


class RandomAutocontrast(RandomlyApplied, Autocontrast, frozen=True, tag="random_autocontrast"):
    """Stretches each channel to the full range with probability ``p``, like torchvision v2's ``RandomAutocontrast``."""

    p: Fraction = 0.5


class RandomEqualize(RandomlyApplied, Equalize, frozen=True, tag="random_equalize"):
    """Equalizes the histogram of each channel with probability ``p``, like torchvision v2's ``RandomEqualize``."""

    p: Fraction = 0.5


class RandomInvert(RandomlyApplied, Invert, frozen=True, tag="random_invert"):
    """Inverts the pixel values with probability ``p``, like torchvision v2's ``RandomInvert``."""

    p: Fraction = 0.5


class ColorJitter(Drawn, LevelsOp, frozen=True, tag="color_jitter"):
    """Changes the brightness, contrast, saturation and hue by random factors, in random order.

    The op reproduces torchvision v2's ``ColorJitter``. If a field is one number ``x``, the factor is uniformly
    distributed in ``[max(0, 1 - x), 1 + x]``, and the hue shift in ``[-x, x]``.

    Args:
        brightness, contrast, saturation: Maximum deviation of the factor from 1, or the minimum and maximum factor.
            With null, the property does not change.
        hue: Maximum rotation of the hue as a fraction of a full circle, at most 0.5, or the minimum and maximum
            rotation. With null, the hue does not change.
        like: Library whose rounding the op reproduces.
        p: Probability that the op is applied, 0 to 1, as with torchvision's ``RandomApply``.

    Example:
        {"op": "color_jitter", "brightness": 0.4, "contrast": 0.4, "saturation": 0.4, "hue": 0.1}
    """

    brightness: Strength = None
    contrast: Strength = None
    saturation: Strength = None
    hue: Strength = None
    like: BlendLike = "pillow"
    p: Fraction = 1.0

    def check(self) -> None:
        for name, span in self.spans.items():
            lowest, highest, neutral = (-0.5, 0.5, 0.0) if name == "hue" else (0.0, MAX_FACTOR, 1.0)
            if span is None:
                continue
            if not all(map(isfinite, span)) or not lowest <= span[0] <= span[1] <= highest:
                given = shown(as_tuple(getattr(self, name)))
                raise PipelineError(
                    f'"{name}" must be 0 to {highest - neutral:g}, or (low, high) with {lowest:g} <= low <= high <= '
                    f"{highest:g}, not {given}"
                )

    @property
    def spans(self) -> dict[str, Span | None]:
        """Range of each factor and of the hue; None: no change."""
        return {
            "brightness": _span(self.brightness, 1.0),
            "contrast": _span(self.contrast, 1.0),
            "saturation": _span(self.saturation, 1.0),
            "hue": _span(self.hue, 0.0),
        }

    @property
    def keeps_places(self) -> bool:
        """Return whether the op commutes with a flip.

        OpenCV's hue does not, because it rounds the last columns of a row differently.
        """
        return self.spans["hue"] is None or COLOURS[self.like].turn is not None

    @property
    def is_pointwise(self) -> bool:
        """Return whether each pixel of the result depends only on the same pixel of the image.

        A change of the contrast depends on the mean luma of the whole image.
        """
        return self.spans["contrast"] is None and self.keeps_places

    @property
    def blocks(self) -> int:
        """Number of blocks of four random numbers.

        The first contains the numbers for the factors, and the second those for their order. If ``p`` is below 1, the
        third determines whether the op is applied.
        """
        return 2 if self.p == 1 else 3

    def draw(self, height: int, width: int, uniforms: Uniforms) -> Words:
        """Sample the factors in random order: ``{"hue": 0.02, "brightness": 1.1}``; empty if the op is not applied."""
        u_factors, u_ranks, *u_apply = uniforms(0, self.blocks).tolist()
        if u_apply and u_apply[0][0] >= self.p:
            return {}
        order = sorted(zip(u_ranks, _spans(self).items(), u_factors, strict=True), key=lambda each: each[0])
        return {kind: between(span, u) for _, (kind, span), u in order if span is not None}

    def in_words(self) -> str:
        some = "" if self.p == 1 else f"{self.p:g} of the images "
        factors = ", ".join(self._span_words) or "nothing"
        return f"change {some}by random factors, in random order: {factors} ({self.like}'s rounding)"

    @property
    def _span_words(self) -> list[str]:
        return [f"{kind} {span_words(span)}" for kind, span in self.spans.items() if span is not None]

    def fixed_ops(self, words: Words) -> list[Op]:
        neutral_ops = _neutral_ops(self.like)
        return [
            PermuteChannels(tuple(factor)) if kind == "channels" else drawn(neutral_ops[kind], factor=factor)
            for kind, factor in words.items()
            if kind != "hue"
            or factor != 0
            or COLOURS[self.like].turn is not None  # Albumentations does not convert to HSV if the hue is 0
        ]


class RandomPhotometricDistort(ColorJitter, frozen=True, tag="random_photometric_distort"):
    """Randomly changes the brightness, contrast, saturation, hue and channel order, each with probability ``p``.

    The op reproduces torchvision v2's ``RandomPhotometricDistort``, from SSD. The contrast is changed either directly
    after the brightness, or after the hue, with equal probability. The new order of the channels is chosen at random.

    Args:
        brightness: Minimum and maximum of the factor, or one number as in ``color_jitter``.
        contrast, saturation: Minimum and maximum of the factor, or one number as in ``color_jitter``.
        hue: Minimum and maximum rotation of the hue, or one number as in ``color_jitter``.
        like: Library whose rounding the op reproduces.
        p: Probability of each of the changes, 0 to 1.

    Example:
        {"op": "random_photometric_distort"}
    """

    requires_rgb: ClassVar[bool] = True
    is_pointwise: ClassVar[bool] = False
    blocks: ClassVar[int] = 4  # random numbers: p of each change, factors, position of the contrast, channel order

    brightness: Strength = (0.875, 1.125)
    contrast: Strength = (0.5, 1.5)
    saturation: Strength = (0.5, 1.5)
    hue: Strength = (-0.05, 0.05)
    like: ColorLike = "pillow"
    p: Fraction = 0.5

    def draw(self, height: int, width: int, uniforms: Uniforms) -> Words:
        """Sample the changes, in the order in which they are applied.

        Returns:
            Factors, and the order of the channels: ``{"brightness": 1.1, "hue": 0.02, "channels": [2, 0, 1]}``.
        """
        u_apply, u_factors, (u_order, u_permute, *_), (*u_ranks, _) = uniforms(0, self.blocks).tolist()
        changes: dict[str, Any] = {
            kind: between(span, u_factor)
            for u, (kind, span), u_factor in zip(u_apply, _spans(self).items(), u_factors, strict=True)
            if span is not None and u < self.p
        }
        if "contrast" in changes and u_order >= 0.5:
            changes["contrast"] = changes.pop("contrast")
        if u_permute < self.p:
            changes["channels"] = sorted(range(3), key=u_ranks.__getitem__)
        return changes

    def in_words(self) -> str:
        changes = ", ".join([*self._span_words, "permute channels"])
        return f"apply each of these to {self.p:g} of the images: {changes} ({self.like}'s rounding)"


class RandomHueSaturationValue(Drawn, LevelsOp, frozen=True, tag="random_hue_saturation_value"):
    """Shifts the hue, saturation and value by random amounts, with probability ``p``.

    The op reproduces Albumentations' ``HueSaturationValue``. Each shift is uniformly distributed.

    Args:
        hue: Maximum shift in either direction, or the minimum and maximum shift, in units of two degrees.
        saturation: Maximum shift in either direction, or the minimum and maximum shift.
        value: Maximum shift in either direction, or the minimum and maximum shift.
        p: Probability that the op is applied, 0 to 1.

    Example:
        {"op": "random_hue_saturation_value", "hue": 10}
    """

    requires_rgb: ClassVar[bool] = True
    hue: Annotated[float | tuple[float, float], Spread(-180, 180)] = 20.0
    saturation: Annotated[float | tuple[float, float], Spread(-255, 255)] = 30.0
    value: Annotated[float | tuple[float, float], Spread(-255, 255)] = 20.0
    p: Fraction = 0.5

    @property
    def _spans(self) -> dict[str, Span]:
        return {name: spans(getattr(self, name))[0] for name in ("hue", "saturation", "value")}

    def draw(self, height: int, width: int, uniforms: Uniforms) -> Words:
        """Sample the shifts: ``{"hue": 3.5, "saturation": -8.25, "value": 0.5}``; empty if the op is not applied."""
        u_apply, *u_shifts = uniforms(0, 1)[0].tolist()
        if u_apply >= self.p:
            return {}
        return {name: between(span, u) for (name, span), u in zip(self._spans.items(), u_shifts, strict=True)}

    def in_words(self) -> str:
        shifts = ", ".join(f"{name} {span_words(span)}" for name, span in self._spans.items())
        return f"in {self.p:g} of the images, add random numbers: {shifts}"

    def fixed_ops(self, words: Words) -> list[Op]:
        return [HueSaturationValue(**words)] if words else []


class RandomBrightnessContrast(Drawn, LevelsOp, frozen=True, tag="random_brightness_contrast"):
    """Multiplies pixel values by a random factor and adds a random offset, with probability ``p``.

    The op reproduces Albumentations' ``RandomBrightnessContrast``. Factor and offset are uniformly distributed.

    Args:
        brightness: Maximum offset in either direction, or the minimum and maximum offset, as fractions of 255.
        contrast: Maximum deviation of the factor from 1, or the minimum and maximum of the deviation.
        p: Probability that the op is applied, 0 to 1.

    Example:
        {"op": "random_brightness_contrast"}
    """

    keeps_places: ClassVar[bool] = True
    is_pointwise: ClassVar[bool] = True
    brightness: Annotated[float | tuple[float, float], Spread(-3, 3)] = 0.2
    contrast: Annotated[float | tuple[float, float], Spread(-1, MAX_FACTOR - 1)] = 0.2
    p: Fraction = 0.5

    def draw(self, height: int, width: int, uniforms: Uniforms) -> Words:
        """Sample factor and offset: ``{"contrast": 1.125, "brightness": -12.75}``; empty if the op is not applied."""
        u_apply, u_contrast, u_brightness, _ = uniforms(0, 1)[0].tolist()
        if u_apply >= self.p:
            return {}
        (brightness,), (contrast,) = spans(self.brightness), spans(self.contrast)
        factor = 1.0 + between(contrast, u_contrast)
        return {"contrast": factor, "brightness": between(brightness, u_brightness) * 255}

    def in_words(self) -> str:
        brightness, contrast = (span_words(spans(each)[0]) for each in (self.brightness, self.contrast))
        return (
            f"in {self.p:g} of the images, multiply pixel values by 1 + ({contrast}), and add 255 times ({brightness})"
        )

    def fixed_ops(self, words: Words) -> list[Op]:
        return [BrightnessContrast(**words)] if words else []


@cache
def _neutral_ops(like: BlendLike) -> dict[str, ColorOp]:
    """Return an op without effect for each kind of change; ``drawn`` makes copies with sampled factors."""
    kinds = {"brightness": Brightness, "contrast": Contrast, "saturation": Saturation}
    return {name: kind(factor=1.0, like=like) for name, kind in kinds.items()} | {"hue": Hue(factor=0.0, like=like)}


@lru_cache
def _spans(op: ColorJitter) -> dict[str, Span | None]:
    """Return ``ColorJitter.spans``, cached per op."""
    return op.spans


def _span(strength: Strength, neutral: float) -> tuple[float, float] | None:
    """Return the minimum and maximum of a factor; None if it is always ``neutral``.

    Args:
        strength: Value of the field.
        neutral: Factor that does not change the image: 0 for the hue, and 1 for the others.
    """
    if strength is None:
        return None
    if isinstance(strength, tuple | list):
        span = float(strength[0]), float(strength[1])
    else:
        low = -strength if neutral == 0 else max(0.0, neutral - strength)
        span = low, neutral + strength
    return None if span == (neutral, neutral) else span
