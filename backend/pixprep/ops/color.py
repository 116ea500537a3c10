"""Ops that change the levels of an image, uint8 to uint8, after its geometry.

``like`` says whose rounding it is. ``pillow``: Pillow's ImageEnhance and ImageOps, which torchvision uses on PIL
images. ``torchvision``: torchvision v2's on uint8 tensors on a CPU.
"""

from __future__ import annotations

from math import isfinite
from typing import ClassVar

from pixprep.errors import PipelineError
from pixprep.ops.op import Op, Sometimes, as_tuple, check_range, need_whole_levels, shown
from pixprep.spec import ColorLike, ImageSpec, Side

MAX_FACTOR = 1000.0
Strength = float | tuple[float, float] | None


class _Levels(Op, frozen=True):
    def infer(self, image: ImageSpec) -> ImageSpec:
        """The spec does not change; refuses values that are no levels."""
        need_whole_levels(image)
        return image


class _Factor(_Levels, frozen=True):
    factor: float
    like: ColorLike = "pillow"

    def check(self) -> None:
        """See ``Op.check``."""
        check_range("factor", self.factor, 0, MAX_FACTOR)


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


class Hue(_Levels, frozen=True, tag="hue"):
    """Turn the hue of every pixel.

    torchvision v2's ``adjust_hue``. Factor 0 is no identity: levels are rounded on the way through HSV. A gray image
    stays what it is.

    Args:
        factor: how much of a whole turn, -0.5 to 0.5.
        like: whose rounding; Pillow's has 256 hues, and differs from torchvision's by up to 18 levels.
    """

    factor: float
    like: ColorLike = "pillow"

    def check(self) -> None:
        """See ``Op.check``."""
        check_range("factor", self.factor, -0.5, 0.5)


class Grayscale(_Levels, frozen=True, tag="grayscale"):
    """Make every pixel gray; the image keeps its channels.

    torchvision v2's ``rgb_to_grayscale`` to as many channels as there are. A tensor of one channel is made by
    ``"color": "gray"`` of decode.

    Args:
        like: whose luma: Pillow rounds it, torchvision cuts it off.
    """

    like: ColorLike = "pillow"


class Gamma(_Levels, frozen=True, tag="gamma"):
    """Change the levels by a power: ``255.999 * gain * (level / 255) ** gamma``, cut off.

    torchvision v2's ``adjust_gamma``.

    Args:
        gamma: over 1 makes shadows darker, below 1 lighter.
        gain: a factor.
        like: whose rounding.
    """

    gamma: float
    gain: float = 1.0
    like: ColorLike = "pillow"

    def check(self) -> None:
        """See ``Op.check``."""
        check_range("gamma", self.gamma, 0, MAX_FACTOR)
        check_range("gain", self.gain, 0, MAX_FACTOR)


class Posterize(_Levels, frozen=True, tag="posterize"):
    """Keep the upper bits of each level.

    torchvision v2's ``posterize``, and Pillow's.

    Args:
        bits: 1 to 8; 8 changes nothing.
    """

    bits: int

    def check(self) -> None:
        """See ``Op.check``."""
        check_range("bits", self.bits, 1, 8)


class Solarize(_Levels, frozen=True, tag="solarize"):
    """Invert the levels from a threshold on.

    torchvision v2's ``solarize``, and Pillow's.

    Args:
        threshold: 0 to 255, the least level that is inverted.
    """

    threshold: float

    def check(self) -> None:
        """See ``Op.check``."""
        check_range("threshold", self.threshold, 0, 255)


class Autocontrast(_Levels, frozen=True, tag="autocontrast"):
    """Stretch the levels of each channel of the image, so that its lowest becomes 0 and its highest 255.

    torchvision v2's ``autocontrast``. A channel of one level keeps it.

    Args:
        like: whose rounding; they differ by 1 level.
    """

    like: ColorLike = "pillow"


class Equalize(_Levels, frozen=True, tag="equalize"):
    """Spread the levels of each channel of the image, so that each is about as often there.

    torchvision v2's ``equalize``, and Pillow's.
    """


class Invert(_Levels, frozen=True, tag="invert"):
    """Replace each level by what it lacks to 255.

    torchvision v2's ``invert``, and Pillow's.
    """


class RandomGray(Sometimes, Grayscale, frozen=True, tag="random_gray"):
    """Make some of the images gray.

    torchvision v2's ``RandomGrayscale``.

    Args:
        p: how often.
        like: as of ``grayscale``.
    """

    p: float = 0.1


class RandomPosterize(Sometimes, Posterize, frozen=True, tag="random_posterize"):
    """Keep the upper bits of each level in some of the images.

    torchvision v2's ``RandomPosterize``.

    Args:
        bits: as of ``posterize``.
        p: how often.
    """

    p: float = 0.5


class RandomSolarize(Sometimes, Solarize, frozen=True, tag="random_solarize"):
    """Invert the levels from a threshold on in some of the images.

    torchvision v2's ``RandomSolarize``.

    Args:
        threshold: as of ``solarize``.
        p: how often.
    """

    p: float = 0.5


class RandomAutocontrast(Sometimes, Autocontrast, frozen=True, tag="random_autocontrast"):
    """Stretch the levels of each channel in some of the images.

    torchvision v2's ``RandomAutocontrast``.

    Args:
        p: how often.
        like: as of ``autocontrast``.
    """

    p: float = 0.5


class RandomEqualize(Sometimes, Equalize, frozen=True, tag="random_equalize"):
    """Spread the levels of each channel in some of the images.

    torchvision v2's ``RandomEqualize``.

    Args:
        p: how often.
    """

    p: float = 0.5


class RandomInvert(Sometimes, Invert, frozen=True, tag="random_invert"):
    """Invert some of the images.

    torchvision v2's ``RandomInvert``.

    Args:
        p: how often.
    """

    p: float = 0.5


class ColorJitter(_Levels, frozen=True, tag="color_jitter"):
    """Change brightness, contrast, saturation and hue at random, in random order.

    torchvision v2's ``ColorJitter``: each factor uniform in ``[max(0, 1 - x), 1 + x]``, the hue in ``[-x, x]``.

    Args:
        brightness, contrast, saturation: how much, or from and to; None: not at all.
        hue: how much of a whole turn, at most 0.5, or from and to; None: not at all.
        like: whose rounding.
        p: how often; torchvision's has it by ``RandomApply``.
    """

    home: ClassVar[Side | None] = "training"

    brightness: Strength = None
    contrast: Strength = None
    saturation: Strength = None
    hue: Strength = None
    like: ColorLike = "pillow"
    p: float = 1.0

    def check(self) -> None:
        """See ``Op.check``."""
        check_range("p", self.p, 0, 1)
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
