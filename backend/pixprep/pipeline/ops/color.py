"""Ops that change the 8-bit pixel values of the cropped and resized image.

``like`` selects the library whose rounding an op reproduces. ``pillow`` is Pillow's ImageEnhance and ImageOps, which
torchvision uses for PIL images. ``torchvision`` is torchvision v2 for uint8 tensors on a CPU. ``opencv`` is
Albumentations, which uses lookup tables and OpenCV 4 or 5, on a processor with AVX2.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

import numpy as np

from pixprep.errors import PipelineError
from pixprep.pipeline.ops.limits import Within, shown
from pixprep.pipeline.ops.op import ColorOp, LevelsOp
from pixprep.pipeline.ops.ranged import Ranged
from pixprep.plan.draws.philox import Words, between
from pixprep.plan.lowered import Lowered
from pixprep.plan.profiles import COLOURS
from pixprep.plan.steps import curves, levels
from pixprep.plan.steps.levels import LevelStep
from pixprep.spec import BlendLike, Color, ColorLike, ImageSpec

MAX_FACTOR = 1000.0
Factor = Annotated[float, Within(0, MAX_FACTOR)]
Level = Within(0, 255)


class BlendOp(ColorOp, frozen=True):
    """Base class of the ops that blend the image with a degenerate image, as Pillow's ImageEnhance does."""

    factor: Factor
    like: BlendLike = "pillow"


class Brightness(BlendOp, frozen=True, tag="brightness"):
    """Multiplies the pixel values by a factor.

    The op reproduces torchvision v2's ``adjust_brightness``.

    Args:
        factor: Brightness factor, 0 or more: 0 yields black, and 1 does not change the image.
        like: Library whose rounding the op reproduces.

    Example:
        {"op": "brightness", "factor": 1.2}
    """

    def step(self) -> LevelStep:
        return curves.brightness(self.factor, self.like)


class Contrast(BlendOp, frozen=True, tag="contrast"):
    """Changes the contrast by moving the pixel values away from the mean luma of the image, or towards it.

    The op reproduces torchvision v2's ``adjust_contrast``.

    Args:
        factor: Contrast factor, 0 or more: 0 yields uniform gray, and 1 does not change the image.
        like: Library whose rounding the op reproduces.

    Example:
        {"op": "contrast", "factor": 1.2}
    """

    def step(self) -> LevelStep:
        return levels.Blend("mean", self.factor, self.like)


class Saturation(BlendOp, frozen=True, tag="saturation"):
    """Changes the saturation by moving the colors away from gray, or towards gray.

    The op reproduces torchvision v2's ``adjust_saturation``.

    Args:
        factor: Saturation factor, 0 or more: 0 yields a grayscale image, and 1 does not change the image.
        like: Library whose rounding the op reproduces.

    Example:
        {"op": "saturation", "factor": 1.2}
    """

    def step(self) -> LevelStep:
        return levels.Blend("own", self.factor, self.like)


class Hue(ColorOp, frozen=True, tag="hue"):
    """Shifts the hue of every pixel.

    The op reproduces torchvision v2's ``adjust_hue``. A factor of 0 still changes some pixels, because values are
    rounded in the conversion to HSV and back. A gray image does not change.

    Args:
        factor: Shift of the hue as a fraction of the full circle, -0.5 to 0.5.
        like: Library whose rounding the op reproduces. Pillow represents the hue with 256 values, and its results
            differ from those of torchvision by up to 18. OpenCV represents the hue with 180 values, and rounds the last
            columns of an image differently (see ``hue_saturation_value``).

    Example:
        {"op": "hue", "factor": 0.05}
    """

    factor: Annotated[float, Within(-0.5, 0.5)]
    like: BlendLike = "pillow"

    def step(self) -> LevelStep:
        has_kernel = COLOURS[self.like].turn is not None
        return levels.Hue(self.factor, self.like) if has_kernel else curves.shifted_hsv(180 * self.factor, 0, 0)


class HueSaturationValue(ColorOp, frozen=True, tag="hue_saturation_value"):
    """Shifts the hue, the saturation and the value of every pixel, in OpenCV's 8-bit HSV.

    The op reproduces Albumentations' ``shift_hsv``. Gray pixels stay gray. Because the conversion to HSV rounds, values
    change even if a shift is small; if all three fields are 0, the image does not change. As in OpenCV with AVX2, the
    conversion back to RGB truncates values, except in the last columns of the image, which do not fill a vector of 32
    pixels and are rounded. Therefore this op does not commute with a crop or a flip.

    Args:
        hue: Shift of the hue in units of two degrees, -180 to 180.
        saturation, value: Shift of the saturation and of the value, -255 to 255, truncated to an integer.

    Example:
        {"op": "hue_saturation_value", "hue": 10, "saturation": 20}
    """

    requires_rgb: ClassVar[bool] = True

    hue: Annotated[float, Within(-180, 180)] = 0.0
    saturation: Annotated[float, Within(-255, 255)] = 0.0
    value: Annotated[float, Within(-255, 255)] = 0.0

    def step(self) -> LevelStep:
        if (self.hue, self.saturation, self.value) == (0, 0, 0):
            return curves.scaled_and_shifted(1, 0)
        return curves.shifted_hsv(self.hue, self.saturation, self.value)


class BrightnessContrast(ColorOp, frozen=True, tag="brightness_contrast"):
    """Computes ``value * contrast + brightness`` for every pixel value, in float32, and truncates the result.

    The op reproduces Albumentations' ``RandomBrightnessContrast``, whose ``alpha`` and ``beta`` are ``contrast`` and
    ``brightness``.

    Args:
        contrast: Factor by which the pixel values are multiplied, 0 to 1000.
        brightness: Value added to the pixel values, -1000 to 1000.

    Example:
        {"op": "brightness_contrast", "contrast": 1.2, "brightness": -10}
    """

    contrast: Factor = 1.0
    brightness: Annotated[float, Within(-MAX_FACTOR, MAX_FACTOR)] = 0.0

    def step(self) -> LevelStep:
        return curves.scaled_and_shifted(self.contrast, self.brightness)


class ColorMatrix(ColorOp, frozen=True, tag="color_matrix"):
    """Mixes the channels linearly, for example to change brightness, contrast, saturation and hue as DALI does.

    The result is ``clip(factors @ [red, green, blue] + offset)``, computed in float32 and rounded half up, as in
    Pillow's ``convert`` with a matrix. DALI's ``brightness``, ``contrast``, ``hue``, ``saturation``, ``hsv`` and
    ``color_twist`` can be written as such matrices. Up to 30 values per million then differ from DALI's by one.

    Args:
        matrix: Three rows, which compute red, green and blue. This order does not depend on the channel order of the
            image. Each row contains the factors of red, green and blue, and the offset. A gray image is treated as an
            image with equal red, green and blue, and only the first row is used.

    Example:
        {"op": "color_matrix", "matrix": [[1.2, 0, 0, 0], [0, 1, 0, 0], [0, 0, 0.8, 0]]}
    """

    matrix: tuple[tuple[float, ...], ...]

    def check(self) -> None:
        if [len(row) for row in self.matrix] != [4, 4, 4]:
            raise PipelineError('"matrix" must contain 3 rows of 4 numbers')
        if not all(abs(number) <= MAX_FACTOR for row in self.matrix for number in row):
            raise PipelineError(f'the numbers of "matrix" must be between -{MAX_FACTOR:g} and {MAX_FACTOR:g}')

    def step(self) -> LevelStep:
        return levels.ColorMatrix(tuple(float(np.float32(number)) for row in self.matrix for number in row))


class PermuteChannels(ColorOp, frozen=True, tag="permute_channels"):
    """Reorders the channels.

    The op reproduces torchvision v2's ``permute_channels``. Channel 0 is always red, 1 is green and 2 is blue, even if
    the image is in BGR order.

    Args:
        permutation: Index of the source channel for red, green and blue: [2, 1, 0] swaps red and blue.

    Example:
        {"op": "permute_channels", "permutation": [2, 1, 0]}
    """

    requires_rgb: ClassVar[bool] = True

    permutation: tuple[int, ...]

    def check(self) -> None:
        if sorted(self.permutation) != [0, 1, 2]:
            raise PipelineError(f'"permutation" must contain 0, 1 and 2 in any order, not {shown(self.permutation)}')

    def step(self) -> LevelStep:
        return levels.Permute(self.permutation)


class Grayscale(ColorOp, frozen=True, tag="grayscale"):
    """Converts every pixel to gray; the number of channels does not change.

    The op reproduces torchvision v2's ``rgb_to_grayscale`` with the number of channels of the image as
    ``num_output_channels``. Before a resize, the op converts the whole photo. To keep only one channel, set
    ``"channels": 1`` in ``tensor``. The option ``"color": "gray"`` of ``decode`` yields different values, because it
    decodes only the luma plane of a JPEG. docs/levels.md lists the grayscale conversion of each library.

    Args:
        like: Library whose luma the op reproduces. Pillow and OpenCV round it, and torchvision truncates it.

    Example:
        {"op": "grayscale"}
    """

    like: BlendLike = "pillow"

    def step(self) -> LevelStep:
        return levels.Blend("own", 0.0, self.like)


class Gamma(Ranged, ColorOp, frozen=True, tag="gamma"):
    """Applies gamma correction: each pixel value becomes ``255.999 * gain * (value / 255) ** gamma``, truncated.

    The op reproduces torchvision v2's ``adjust_gamma``. With ``"like": "opencv"``, it reproduces Albumentations'
    ``RandomGamma``, which multiplies by 255 instead.

    Args:
        gamma: Exponent: one number, or the minimum and maximum of a random exponent. Values greater than 1 make the
            shadows darker, and values below 1 make them brighter.
        gain: Constant multiplier; 1 with ``"like": "opencv"``.
        like: Library whose rounding the op reproduces.
        p: Probability that the op is applied, 0 to 1.

    Example:
        {"op": "gamma", "gamma": 2.2}
    """

    ranges: ClassVar[Any] = {"gamma": between}
    phrase: ClassVar[str] = "gamma correction with the exponent {gamma}"
    is_pointwise: ClassVar[bool] = True
    keeps_places: ClassVar[bool] = True
    is_hosts: ClassVar[bool] = False
    gamma: Annotated[float | tuple[float, float], Within(0, MAX_FACTOR, lengths=(1, 2))]
    gain: Factor = 1.0
    like: BlendLike = "pillow"

    def check(self) -> None:
        super().check()
        if self.like == "opencv" and self.gain != 1:
            raise PipelineError(f'"gain" must be 1 with "like": "opencv", not {shown(self.gain)}')

    def lower(self, before: Lowered, image: ImageSpec, key: str) -> Lowered:
        return LevelsOp.lower(self, before, image, key) if self.is_random else ColorOp.lower(self, before, image, key)

    def step(self) -> LevelStep:
        return curves.gamma(self.gamma, self.gain, self.like)  # type: ignore[arg-type]  # one number

    def fixed_steps(self, words: Words, height: int, width: int, color: Color) -> tuple[LevelStep, ...]:
        return (self.step(),)


class Posterize(ColorOp, frozen=True, tag="posterize"):
    """Keeps only the upper bits of each pixel value.

    The op reproduces torchvision v2's ``posterize`` and Pillow's ``ImageOps.posterize``.

    Args:
        bits: Number of bits to keep, 1 to 8. With 8, the image does not change.

    Example:
        {"op": "posterize", "bits": 4}
    """

    bits: Annotated[int, Within(1, 8)]

    def step(self) -> LevelStep:
        return curves.posterize(self.bits)


class Solarize(ColorOp, frozen=True, tag="solarize"):
    """Inverts the pixel values at or above a threshold.

    The op reproduces torchvision v2's ``solarize`` and Pillow's ``ImageOps.solarize``.

    Args:
        threshold: Minimum pixel value that is inverted, 0 to 255.

    Example:
        {"op": "solarize", "threshold": 128}
    """

    threshold: Annotated[float, Level]

    def step(self) -> LevelStep:
        return curves.solarize(self.threshold)


class SolarizeAdd(ColorOp, frozen=True, tag="solarize_add"):
    """Adds a number to the pixel values below a threshold; the result is at most 255.

    The op reproduces timm's ``solarize_add``.

    Args:
        add: Value to add, 0 to 255.
        threshold: Minimum pixel value that does not change, 0 to 255.

    Example:
        {"op": "solarize_add", "add": 40}
    """

    add: Annotated[int, Level]
    threshold: Annotated[float, Level] = 128.0

    def step(self) -> LevelStep:
        return curves.solarize_add(self.add, self.threshold)


class Autocontrast(ColorOp, frozen=True, tag="autocontrast"):
    """Stretches the pixel values of each channel, so that the minimum becomes 0 and the maximum 255.

    The op reproduces torchvision v2's ``autocontrast``. A channel with a single value does not change.

    Args:
        like: Library whose rounding the op reproduces. The results of the libraries differ by at most 1.

    Example:
        {"op": "autocontrast"}
    """

    like: ColorLike = "pillow"

    def step(self) -> LevelStep:
        return levels.Tone("autocontrast", self.like)


class Equalize(ColorOp, frozen=True, tag="equalize"):
    """Equalizes the histogram of each channel.

    The op reproduces torchvision v2's ``equalize`` and Pillow's ``ImageOps.equalize``.

    Example:
        {"op": "equalize"}
    """

    def step(self) -> LevelStep:
        return levels.Tone("equalize", "pillow")


class Invert(ColorOp, frozen=True, tag="invert"):
    """Inverts the pixel values: each value becomes 255 minus itself.

    The op reproduces torchvision v2's ``invert`` and Pillow's ``ImageOps.invert``.

    Example:
        {"op": "invert"}
    """

    def step(self) -> LevelStep:
        return curves.inverted()
