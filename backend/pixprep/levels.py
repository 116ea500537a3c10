"""What is done to an image after its geometry, uint8 to uint8: the third small vocabulary of a plan.

Each step is frozen data, for an image of known size: a ``Curve`` looks levels up, a ``Blend`` mixes with gray, a
``Hue`` turns colours, a ``Tone`` is a curve by the image's own histogram, a ``Filter`` looks at neighbours, a ``Warp``
looks elsewhere, a ``Take`` crops, pads or mirrors, an ``Erase`` fills a rectangle. Two curves are one (``folded``);
nothing else is. ``like`` says whose rounding it is: torchvision's tensors and Pillow differ by up to 18 levels in hue,
and 127 in rotation.

Levels are those of the decoded channels, RGB or gray, whatever order the tensor has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from pixprep.spec import ColorLike

U8 = npt.NDArray[np.uint8]


class Curve(NamedTuple):
    """Each level looked up.

    Attributes:
        table: 256 levels, for every channel the same.
        factor: where the table is each level times this number of float32, cut off: what may be quicker to compute.
    """

    table: bytes
    factor: float | None = None

    def __str__(self) -> str:
        if self.factor is not None:
            return f"multiply the levels by {self.factor:.4g}"
        return f"look levels up: 0, 128, 255 become {self.table[0]}, {self.table[128]}, {self.table[255]}"

    def of(self, levels: U8) -> U8:
        """The levels after it."""
        return np.frombuffer(self.table, np.uint8)[levels]


class Blend(NamedTuple):
    """``gray + factor * (level - gray)``, rounded and clipped as ``like`` does it.

    Attributes:
        gray: ``own``: the luma of the pixel itself (saturation); ``mean``: the mean luma of the whole image (contrast).
        factor: 0: gray alone; 1: no change; may be over 1.
    """

    gray: Literal["own", "mean"]
    factor: float
    like: ColorLike

    def __str__(self) -> str:
        gray = "the gray of each pixel" if self.gray == "own" else "the mean gray of the image"
        return f"blend with {gray}, factor {self.factor:.4g} ({self.like}'s rounding)"


class Hue(NamedTuple):
    """The hue turned, through HSV and back; by 0 it is no identity either, for both round on the way.

    Attributes:
        shift: -0.5 to 0.5 of a whole turn.
    """

    shift: float
    like: ColorLike

    def __str__(self) -> str:
        return f"turn the hue by {self.shift:.4g} of the circle ({self.like}'s rounding)"


class Tone(NamedTuple):
    """A curve for each channel that its own histogram makes.

    Attributes:
        kind: ``autocontrast``: lowest and highest level to 0 and 255. ``equalize``: each level as often.
    """

    kind: Literal["autocontrast", "equalize"]
    like: ColorLike

    def __str__(self) -> str:
        what = (
            "stretch each channel to 0 to 255" if self.kind == "autocontrast" else "equalize each channel's histogram"
        )
        return f"{what} ({self.like}'s rounding)"


class Filter(NamedTuple):
    """A small convolution.

    Attributes:
        kind: ``sharpness``: a blend, by ``factor``, of the image with its smoothed self; ``blur``: by ``rows`` and
            ``columns``, whose weights add up to 1, reflected at the edge.
    """

    kind: Literal["sharpness", "blur"]
    like: ColorLike
    factor: float = 1.0
    rows: tuple[float, ...] = ()
    columns: tuple[float, ...] = ()


class Warp(NamedTuple):
    """Each pixel looks at ``matrix`` times its own place in the image, in ``like``'s own coordinates and rounding.

    Attributes:
        matrix: (a, b, c, d, e, f): ``x = a x' + b y' + c``, ``y = d x' + e y' + f``, from output (x', y') to input.
        height, width: of the output.
        fill: the level of each decoded channel where it looks outside.
        filter: nearest or bilinear.
    """

    matrix: tuple[float, float, float, float, float, float]
    height: int
    width: int
    fill: tuple[int, ...]
    filter: Literal["nearest", "bilinear"]
    like: ColorLike


class Take(NamedTuple):
    """A window of the image, (top, left, height, width), padded with ``fill`` where it is outside, then mirrored."""

    top: int
    left: int
    height: int
    width: int
    flips: tuple[bool, bool]
    fill: tuple[int, ...]


class Erase(NamedTuple):
    """A rectangle of one value a channel; ``values`` are levels."""

    top: int
    left: int
    height: int
    width: int
    values: tuple[int, ...]


_REAL = np.arange(256, dtype=np.float32)


def brightness(factor: float, like: ColorLike) -> Curve:
    """Levels times ``factor``, in float32 and cut off, as both libraries do it."""
    del like
    levels = np.minimum(_REAL * np.float32(factor), 255)
    return Curve(levels.astype(np.uint8).tobytes(), factor)


def grayscale(like: ColorLike) -> Blend:
    """The luma of each pixel in all channels."""
    return Blend("own", 0.0, like)


def gamma(exponent: float, gain: float, like: ColorLike) -> Curve:
    """``255.999 * gain * (level / 255) ** exponent``, cut off.

    Pillow's is of float64. torchvision's is of float32, step by step: ``level * (1 / 255)``, its power, times the gain,
    clipped to 1, times 255.999; only its power, of float32 with an error of up to 1 ulp, is here a rounded float64.
    """
    if like == "pillow":
        whole = 255 + 1 - 1e-3
        return _curve(lambda levels: np.trunc(whole * gain * (levels / 255.0) ** exponent).clip(0, 255))

    def of(levels: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
        values = levels.astype(np.float32) * np.float32(1 / 255)
        values = (values.astype(np.float64) ** exponent).astype(np.float32)
        if gain != 1:
            values = (values * np.float32(gain)).clip(0, 1)
        return (values * np.float32(255.999)).clip(0, 255)

    return _curve(of)


def posterize(bits: int) -> Curve:
    """The upper ``bits`` of each level, 0 to 8."""
    return _curve(lambda levels: levels & (0xFF << (8 - bits) & 0xFF))


def solarize(threshold: float) -> Curve:
    """Levels of at least ``threshold`` inverted."""
    return _curve(lambda levels: np.where(levels >= threshold, 255 - levels, levels))


def inverted() -> Curve:
    """Each level's complement."""
    return _curve(lambda levels: 255 - levels)


def _curve(of: Callable[[npt.NDArray[np.int64]], npt.NDArray[np.generic]]) -> Curve:
    return Curve(of(np.arange(256)).astype(np.uint8).tobytes())


LevelStep = Curve | Blend | Hue | Tone | Filter | Warp | Take | Erase


def folded(steps: Iterable[LevelStep]) -> tuple[LevelStep, ...]:
    """The same steps; neighbouring curves are one, and a step that changes nothing is none.

    Nothing else is exact: each step rounds. Of two hues, two blends, or a curve and what is no curve, both are done.
    """
    made: list[LevelStep] = []
    for step in steps:
        if isinstance(step, Blend) and step.factor == 1:
            continue
        if isinstance(step, Curve) and made and isinstance(made[-1], Curve):
            made[-1] = Curve(step.of(np.frombuffer(made[-1].table, np.uint8)).tobytes())
        else:
            made.append(step)
    return tuple(step for step in made if not (isinstance(step, Curve) and step.table == _SAME))


_SAME = bytes(range(256))


def is_pointwise(step: LevelStep) -> bool:
    """Whether each pixel of the result depends on the same pixel alone."""
    return isinstance(step, Curve | Hue) or (isinstance(step, Blend) and step.gray == "own")


def keeps_places(step: LevelStep) -> bool:
    """Whether a pixel stays where it is, so that a mirror may come before or after."""
    return not isinstance(step, Warp | Take | Erase)


def size_after(steps: Iterable[LevelStep], height: int, width: int) -> tuple[int, int]:
    """(height, width) of an image after steps."""
    for step in steps:
        if isinstance(step, Warp | Take):
            height, width = step.height, step.width
    return height, width
