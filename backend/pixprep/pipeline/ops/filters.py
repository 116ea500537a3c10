"""Ops that sharpen and blur an image after its resize: each pixel of the result looks at its neighbours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

import numpy as np

from pixprep.errors import ImageError, PipelineError
from pixprep.pipeline.ops.color import Factor
from pixprep.pipeline.ops.limits import Share, Within, shown
from pixprep.pipeline.ops.op import ColorOp, Drawn, LevelsOp, Op, Sometimes, SteadyOp, as_kind
from pixprep.plan.draws.augments import Uniforms
from pixprep.plan.draws.philox import Words, between, span_words
from pixprep.plan.profiles import BLURS, Blur
from pixprep.plan.steps.levels import Filter, LevelStep
from pixprep.spec import BlurLike, Color, ColorLike, ImageSpec, as_tuple

MAX_TAPS = 255
LEAST_SIGMA, MAX_SIGMA = 0.01, 1000.0
_SIGMA = Within(LEAST_SIGMA, MAX_SIGMA, counts=(1, 2))
_REACHING = Within(LEAST_SIGMA, 36.0, counts=(1, 2))
"""Limits of deviations that the size of the kernel follows: the largest that ``MAX_TAPS`` has room for."""


class Sharpness(ColorOp, frozen=True, tag="sharpness"):
    """Blends the image with a smoothed copy of itself, or sharpens it.

    The op equals torchvision v2's ``adjust_sharpness``. The outermost pixels do not change.

    Args:
        factor: Factor: 0 smooths, 1 changes nothing, and 2 sharpens.
        like: Library whose rounding the op reproduces.

    Example:
        {"op": "sharpness", "factor": 1.5}
    """

    factor: Factor
    like: ColorLike = "pillow"

    def step(self) -> LevelStep:
        return Filter("sharpness", self.like, self.factor)


class RandomSharpness(Sometimes, Sharpness, frozen=True, tag="random_sharpness"):
    """Sharpens or smooths some of the images.

    The op equals torchvision v2's ``RandomAdjustSharpness``.

    Args:
        p: Probability that the op is applied, 0 to 1.
        factor, like: as in ``sharpness``.

    Example:
        {"op": "random_sharpness", "factor": 2}
    """

    p: Share = 0.5


class _Blur(LevelsOp, frozen=True):
    may_colour: ClassVar[bool] = False
    profiles: ClassVar[Mapping[Any, Any]] = BLURS

    kernel_size: int | tuple[int, int]

    def check(self) -> None:
        if self.profile.sigma is None and getattr(self, "sigma", None) is None:
            raise PipelineError('"sigma" is missing: by this "like" it does not follow from "kernel_size"')
        if self.profile.taps is not None and self.kernel_size == 0:
            _REACHING.check("sigma", getattr(self, "sigma", None))
            return
        sizes = as_tuple(self.kernel_size)
        if len(sizes) not in (1, 2) or not all(1 <= size <= MAX_TAPS and size % 2 for size in sizes):
            raise PipelineError(
                f'"kernel_size" must be an odd number of 1 to {MAX_TAPS}, or two, not {shown(self.kernel_size)}'
            )

    @property
    def profile(self) -> Blur:
        """Blur of the library that ``like`` names."""
        return BLURS[self.like]  # type: ignore[attr-defined]  # the field follows others of the subclasses

    @property
    def taps(self) -> tuple[int, int]:
        """Numbers of rows and columns that the kernel sees; 0: as the deviation asks."""
        width, height = (int(size) for size in (*as_tuple(self.kernel_size), *as_tuple(self.kernel_size))[:2])
        return (width, width) if len(as_tuple(self.kernel_size)) == 1 else (height, width)

    def infer(self, image: ImageSpec) -> ImageSpec:
        """The spec does not change; refuses values that are no levels, and a side that the kernel reaches across."""
        image = super().infer(image)
        if self.profile.is_mirrored_again:
            return image
        for name, side, taps in (("height", image.height, self.taps[0]), ("width", image.width, self.taps[1])):
            if side is not None and taps // 2 >= side:
                raise PipelineError(f'"kernel_size" {taps} needs a {name} of {taps // 2 + 1}, but the image has {side}')
        return image

    @property
    def _seen(self) -> str:
        return f"by {self.taps[0]} x {self.taps[1]} pixels, " if self.kernel_size else ""


def weights(taps: int, sigma: float) -> tuple[float, ...]:
    """Weights of a bell curve: an odd number of float32, whose sum is 1."""
    places = np.arange(taps) - taps // 2
    curve = np.exp(-0.5 * (places / sigma) ** 2)
    return tuple((curve / curve.sum()).astype(np.float32).tolist())


class GaussianBlur(_Blur, SteadyOp, frozen=True, tag="gaussian_blur"):
    """Blurs the image with a Gaussian kernel; outside its edge, the image is mirrored.

    The op equals torchvision v2's ``gaussian_blur``, which treats tensors and PIL images alike. About 10 of a million
    values differ by one, because the order of the sums differs. An image is rejected if the kernel extends beyond its
    mirror image.

    With ``"like": "opencv"``, the pixels are those of Albumentations' ``GaussianBlur``, which calls OpenCV's
    ``sepFilter2D``. They equal OpenCV 4.9 to 4.12 bit for bit on a processor with AVX2. Since OpenCV 4.13, the last ``3
    * width % 32`` values of a row are computed without fused multiply-add, and fewer than one of a million values
    differs by one. The image is mirrored repeatedly if the kernel extends beyond it. A GPU engine runs this op on the
    host.

    Args:
        kernel_size: Odd size of the kernel in pixels: one number, or [width, height]. With ``"like": "opencv"``, 0
            stands for ``2 * int(3.5 * sigma) + 1``.
        sigma: Standard deviation of the kernel in pixels: one number, or those of x and y. Default, except with
            ``"like": "opencv"``: ``0.15 * kernel_size + 0.35``.
        like: Library whose sums the op reproduces.

    Example:
        {"op": "gaussian_blur", "kernel_size": 5, "sigma": 1.0}
    """

    sigma: Annotated[float | tuple[float, float] | None, _SIGMA] = None
    like: BlurLike = "torchvision"

    @property
    def sigmas(self) -> tuple[float, float]:
        """Values of y and of x."""
        if self.sigma is None:
            of_y, of_x = map(self.profile.sigma or float, self.taps)
            return of_y, of_x
        values = as_tuple(self.sigma)
        return values[-1], values[0]

    def in_words(self) -> str:
        spans = dict.fromkeys(span_words((sigma, sigma)) for sigma in self.sigmas)
        return f"blur {self._seen}sigma {' and '.join(spans)}"

    def steps(self, words: Words, height: int, width: int, color: Color) -> tuple[LevelStep, ...]:
        (of_y, of_x), blur = self.sigmas, self.profile
        rows, columns = self.taps if self.kernel_size else map(blur.taps or int, self.sigmas)
        if not blur.is_mirrored_again and (rows // 2 >= height or columns // 2 >= width):
            raise ImageError("DOES_NOT_FIT", f"{height} x {width} pixels are too few for a blur by {rows} x {columns}")
        return (Filter("blur", self.like, rows=weights(rows, of_y), columns=weights(columns, of_x)),)


class RandomGaussianBlur(Drawn, _Blur, frozen=True, tag="random_gaussian_blur"):
    """Blurs each image, or some of them, with a random standard deviation.

    The op equals torchvision v2's ``GaussianBlur`` and Albumentations': sigma is uniform, and the same for x and y.

    Args:
        kernel_size: as in ``gaussian_blur``.
        sigma: Minimum and maximum standard deviation in pixels, or one number.
        p: Probability that the op is applied, 0 to 1. torchvision expresses it by ``RandomApply``.
        like: as in ``gaussian_blur``.

    Example:
        {"op": "random_gaussian_blur", "kernel_size": 5}
    """

    blocks: ClassVar[int] = 1  # whether, sigma

    sigma: Annotated[float | tuple[float, float], _SIGMA] = (0.1, 2.0)
    p: Share = 1.0
    like: BlurLike = "torchvision"

    def check(self) -> None:
        super().check()
        if self.span[0] > self.span[1]:
            raise PipelineError(f'"sigma" must be (low, high) with low <= high, not {shown(self.sigma)}')

    @property
    def span(self) -> tuple[float, float]:
        """Sigma, from and to."""
        values = as_tuple(self.sigma)
        return values[0], values[-1]

    def draw(self, height: int, width: int, uniforms: Uniforms) -> Words:
        """``{"sigma": [1.2, 1.2]}``, or ``{"sigma": null}``: not this one."""
        whether, uniform, *_ = uniforms(0, 1)[0].tolist()
        return {"sigma": [between(self.span, uniform)] * 2 if whether < self.p else None}

    def in_words(self) -> str:
        some = "" if self.p == 1 else f"{self.p:g} of the images "
        return f"blur {some}{self._seen}sigma {span_words(self.span)}"

    def fixed(self, words: Words) -> list[Op]:
        return [as_kind(GaussianBlur, self, sigma=words["sigma"][0])] if words["sigma"] else []
