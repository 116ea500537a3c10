"""Ops that change the levels of an image, uint8 to uint8, after its geometry.

``like`` says whose rounding it is. ``pillow``: Pillow's ImageEnhance and ImageOps, which torchvision uses on PIL
images. ``torchvision``: torchvision v2's on uint8 tensors on a CPU. ``opencv``: Albumentations', which computes with
OpenCV 4 and 5 and with tables, on a processor with AVX2.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

import numpy as np

from pixprep.errors import PipelineError
from pixprep.pipeline.ops.limits import Within, shown
from pixprep.pipeline.ops.op import ColorOp
from pixprep.plan.profiles import COLOURS
from pixprep.plan.steps import curves, hsv, levels
from pixprep.plan.steps.levels import LevelStep
from pixprep.spec import BlendLike, ColorLike

MAX_FACTOR = 1000.0
Factor = Annotated[float, Within(0, MAX_FACTOR)]
Level = Within(0, 255)


class Blending(ColorOp, frozen=True):
    """Base of the ops that are an enhancer of Pillow, and a function of torchvision and of Albumentations."""

    factor: Factor
    like: BlendLike = "pillow"


class Brightness(Blending, frozen=True, tag="brightness"):
    """Multiply the levels.

    torchvision v2's ``adjust_brightness``.

    Args:
        factor: 0 gives black, 1 changes nothing.
        like: whose rounding.
    """

    def step(self) -> LevelStep:
        return curves.brightness(self.factor, self.like)


class Contrast(Blending, frozen=True, tag="contrast"):
    """Move the levels away from the mean luma of the image, or towards it.

    torchvision v2's ``adjust_contrast``.

    Args:
        factor: 0 gives gray, 1 changes nothing.
        like: whose rounding.
    """

    def step(self) -> LevelStep:
        return levels.Blend("mean", self.factor, self.like)


class Saturation(Blending, frozen=True, tag="saturation"):
    """Move the colours away from gray, or towards it.

    torchvision v2's ``adjust_saturation``.

    Args:
        factor: 0 gives gray, 1 changes nothing.
        like: whose rounding.
    """

    def step(self) -> LevelStep:
        return levels.Blend("own", self.factor, self.like)


class Hue(ColorOp, frozen=True, tag="hue"):
    """Turn the hue of every pixel.

    torchvision v2's ``adjust_hue``. Factor 0 is no identity: levels are rounded on the way through HSV. A gray image
    stays what it is.

    Args:
        factor: how much of a whole turn, -0.5 to 0.5.
        like: whose rounding; Pillow's has 256 hues, and differs from torchvision's by up to 18 levels; OpenCV's has
            180, and rounds the last columns of an image otherwise (``hue_saturation_value``).
    """

    factor: Annotated[float, Within(-0.5, 0.5)]
    like: BlendLike = "pillow"

    def step(self) -> LevelStep:
        has_kernel = COLOURS[self.like].turn is not None
        return levels.Hue(self.factor, self.like) if has_kernel else hsv.shifted(180 * self.factor, 0, 0)


class HueSaturationValue(ColorOp, frozen=True, tag="hue_saturation_value"):
    """Add to the hue, the saturation and the value of every pixel, in OpenCV's HSV of uint8.

    Albumentations' ``shift_hsv``. What has no colour gets none. Levels are rounded on the way, unless all is 0. As
    OpenCV does it with AVX2, levels are cut off on the way back, and in the last columns, which fill no vector of 32,
    rounded: so a crop or a mirror does not change places with it.

    Args:
        hue: in half degrees, -180 to 180.
        saturation, value: -255 to 255; cut off to integers.
    """

    has_colours: ClassVar[bool] = True

    hue: Annotated[float, Within(-180, 180)] = 0.0
    saturation: Annotated[float, Within(-255, 255)] = 0.0
    value: Annotated[float, Within(-255, 255)] = 0.0

    def step(self) -> LevelStep:
        if (self.hue, self.saturation, self.value) == (0, 0, 0):
            return curves.scaled_and_shifted(1, 0)
        return hsv.shifted(self.hue, self.saturation, self.value)


class BrightnessContrast(ColorOp, frozen=True, tag="brightness_contrast"):
    """Change the levels to ``level * contrast + brightness``, in float32, cut off.

    Albumentations' ``RandomBrightnessContrast``, with ``alpha`` and ``beta`` as ``contrast`` and ``brightness``.

    Args:
        contrast: a factor.
        brightness: in levels, -1000 to 1000.
    """

    contrast: Factor = 1.0
    brightness: Annotated[float, Within(-MAX_FACTOR, MAX_FACTOR)] = 0.0

    def step(self) -> LevelStep:
        return curves.scaled_and_shifted(self.contrast, self.brightness)


class ColorMatrix(ColorOp, frozen=True, tag="color_matrix"):
    """Mix the channels linearly: brightness, contrast, saturation, hue and others as DALI computes them.

    ``clip(factors @ [red, green, blue] + offset)``, in float32, rounded half up, as Pillow's ``convert`` by
    a matrix. DALI's ``brightness``, ``contrast``,
    ``hue``, ``saturation``, ``hsv`` and ``color_twist`` are such a matrix; of a million values 0 to 30 differ from
    DALI's by one level.

    Args:
        matrix: for red, green and blue, whatever order ``decode`` gives them: the factors of red, green and blue, and
            the offset. A gray image counts as red, green and blue that are alike, and takes the first row.
    """

    matrix: tuple[tuple[float, ...], ...]

    def check(self) -> None:
        if [len(row) for row in self.matrix] != [4, 4, 4]:
            raise PipelineError('"matrix" must be 3 rows of 4 numbers')
        if not all(abs(number) <= MAX_FACTOR for row in self.matrix for number in row):
            raise PipelineError(f'"matrix" must hold numbers of -{MAX_FACTOR:g} to {MAX_FACTOR:g}')

    def step(self) -> LevelStep:
        return levels.ColorMatrix(tuple(float(np.float32(number)) for row in self.matrix for number in row))


class PermuteChannels(ColorOp, frozen=True, tag="permute_channels"):
    """Take the channels in another order.

    torchvision v2's ``permute_channels``, of red, green and blue, whatever order ``decode`` gives them.

    Args:
        permutation: for red, green and blue which of them each becomes: [2, 1, 0] exchanges red and blue.
    """

    has_colours: ClassVar[bool] = True

    permutation: tuple[int, ...]

    def check(self) -> None:
        if sorted(self.permutation) != [0, 1, 2]:
            raise PipelineError(f'"permutation" must be 0, 1 and 2 in some order, not {shown(self.permutation)}')

    def step(self) -> LevelStep:
        return levels.Permute(self.permutation)


class Grayscale(ColorOp, frozen=True, tag="grayscale"):
    """Make every pixel gray; the image keeps its channels.

    torchvision v2's ``rgb_to_grayscale`` to as many channels as there are. It may come before the resize, and is then
    done to the whole photo, as by code that converts first. ``"channels": 1`` of ``tensor`` makes one channel of them.
    ``"color": "gray"`` of decode is not the same: it takes the luma plane of a JPEG, without its colours.
    docs/levels.md has the gray of each library, also that of ``cv2.imread`` for a PNG.

    Args:
        like: whose luma: Pillow and OpenCV round it, torchvision cuts it off.
    """

    like: BlendLike = "pillow"

    def step(self) -> LevelStep:
        return levels.Blend("own", 0.0, self.like)


class Gamma(ColorOp, frozen=True, tag="gamma"):
    """Change the levels by a power: ``255.999 * gain * (level / 255) ** gamma``, cut off.

    torchvision v2's ``adjust_gamma``.

    Args:
        gamma: over 1 makes shadows darker, below 1 lighter.
        gain: a factor.
        like: whose rounding.
    """

    gamma: Factor
    gain: Factor = 1.0
    like: ColorLike = "pillow"

    def step(self) -> LevelStep:
        return curves.gamma(self.gamma, self.gain, self.like)


class Posterize(ColorOp, frozen=True, tag="posterize"):
    """Keep the upper bits of each level.

    torchvision v2's ``posterize``, and Pillow's.

    Args:
        bits: 1 to 8; 8 changes nothing.
    """

    bits: Annotated[int, Within(1, 8)]

    def step(self) -> LevelStep:
        return curves.posterize(self.bits)


class Solarize(ColorOp, frozen=True, tag="solarize"):
    """Invert the levels from a threshold on.

    torchvision v2's ``solarize``, and Pillow's.

    Args:
        threshold: 0 to 255, the least level that is inverted.
    """

    threshold: Annotated[float, Level]

    def step(self) -> LevelStep:
        return curves.solarize(self.threshold)


class SolarizeAdd(ColorOp, frozen=True, tag="solarize_add"):
    """Add to the levels below a threshold, to 255 at most.

    timm's ``solarize_add``.

    Args:
        add: 0 to 255, what is added.
        threshold: 0 to 255, the least level that stays what it is.
    """

    add: Annotated[int, Level]
    threshold: Annotated[float, Level] = 128.0

    def step(self) -> LevelStep:
        return curves.solarize_add(self.add, self.threshold)


class Autocontrast(ColorOp, frozen=True, tag="autocontrast"):
    """Stretch the levels of each channel of the image, so that its lowest becomes 0 and its highest 255.

    torchvision v2's ``autocontrast``. A channel of one level keeps it.

    Args:
        like: whose rounding; they differ by 1 level.
    """

    like: ColorLike = "pillow"

    def step(self) -> LevelStep:
        return levels.Tone("autocontrast", self.like)


class Equalize(ColorOp, frozen=True, tag="equalize"):
    """Spread the levels of each channel of the image, so that each is about as often there.

    torchvision v2's ``equalize``, and Pillow's.
    """

    def step(self) -> LevelStep:
        return levels.Tone("equalize", "pillow")


class Invert(ColorOp, frozen=True, tag="invert"):
    """Replace each level by what it lacks to 255.

    torchvision v2's ``invert``, and Pillow's.
    """

    def step(self) -> LevelStep:
        return curves.inverted()
