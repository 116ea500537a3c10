"""Ops that sharpen or blur the cropped and resized image."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

import numpy as np

from pixprep.errors import ImageError, PipelineError
from pixprep.pipeline.ops.color import Factor
from pixprep.pipeline.ops.limits import Fraction, Within, ends, shown
from pixprep.pipeline.ops.op import ColorOp, Drawn, LevelsOp, Op, RandomlyApplied, SteadyOp, as_kind
from pixprep.plan.draws.augments import Uniforms
from pixprep.plan.draws.philox import Words, between, span_words
from pixprep.plan.profiles import BLURS, Blur
from pixprep.plan.steps.levels import Filter, LevelStep
from pixprep.spec import BlurLike, Color, ColorLike, ImageSpec, as_tuple

MAX_TAPS = 255
MIN_SIGMA, MAX_SIGMA = 0.01, 1000.0
_SIGMA = Within(MIN_SIGMA, MAX_SIGMA, lengths=(1, 2))
_SIGMA_WITHOUT_SIZE = Within(MIN_SIGMA, 36.0, lengths=(1, 2))
"""Limits of ``sigma`` if it determines the size of the kernel, which is limited to ``MAX_TAPS``."""


class Sharpness(ColorOp, frozen=True, tag="sharpness"):
    """Changes the sharpness by blending the image with a smoothed copy, or by moving it away from that copy.

    The op reproduces torchvision v2's ``adjust_sharpness``. The pixels at the edge of the image do not change.

    Args:
        factor: Sharpness factor, 0 or more: 0 yields the smoothed image, 1 does not change the image, and 2 sharpens
            it.
        like: Library whose rounding the op reproduces.

    Example:
        {"op": "sharpness", "factor": 1.5}
    """

    factor: Factor
    like: ColorLike = "pillow"

    def step(self) -> LevelStep:
        return Filter("sharpness", self.like, self.factor)


class RandomSharpness(RandomlyApplied, Sharpness, frozen=True, tag="random_sharpness"):
    """Changes the sharpness with probability ``p``, like torchvision v2's ``RandomAdjustSharpness``."""

    p: Fraction = 0.5


class _Blur(LevelsOp, frozen=True):
    """Base class of the Gaussian blurs."""

    may_add_color: ClassVar[bool] = False
    profiles: ClassVar[Mapping[Any, Any]] = BLURS

    kernel_size: int | tuple[int, int]

    def check(self) -> None:
        if self.profile.sigma is None and getattr(self, "sigma", None) is None:
            like = self.like  # type: ignore[attr-defined]  # a field of the subclasses
            raise PipelineError(f'"sigma" is required with "like": "{like}"')
        if self.profile.taps is not None and self.kernel_size == 0:
            _SIGMA_WITHOUT_SIZE.check("sigma", getattr(self, "sigma", None))
            return
        sizes = as_tuple(self.kernel_size)
        if len(sizes) not in (1, 2) or not all(1 <= size <= MAX_TAPS and size % 2 for size in sizes):
            raise PipelineError(
                f'"kernel_size" must be one or two odd numbers between 1 and {MAX_TAPS}, not {shown(self.kernel_size)}'
            )

    @property
    def profile(self) -> Blur:
        """Properties of the blur of the library that ``like`` selects."""
        return BLURS[self.like]  # type: ignore[attr-defined]  # a field of the subclasses

    @property
    def taps(self) -> tuple[int, int]:
        """Number of rows and of columns of the kernel. 0 means that it is computed from ``sigma``."""
        width, height = ends(self.kernel_size)
        return int(height), int(width)

    def infer(self, image: ImageSpec) -> ImageSpec:
        """Return the spec unchanged. Reject images without 8-bit values, or smaller than the kernel requires."""
        image = super().infer(image)
        if self.profile.is_mirrored_again:
            return image
        for name, side, taps in (("height", image.height, self.taps[0]), ("width", image.width, self.taps[1])):
            if side is not None and taps // 2 >= side:
                raise PipelineError(
                    f'"kernel_size" {taps} requires a {name} of at least {taps // 2 + 1} pixels, '
                    f"but the image has {side}"
                )
        return image

    @property
    def _kernel(self) -> str:
        """Size of the kernel, as part of a description."""
        return f"a {self.taps[0]} x {self.taps[1]} kernel, " if self.kernel_size else ""


def weights(taps: int, sigma: float) -> tuple[float, ...]:
    """Return the coefficients of a Gaussian kernel in float32, normalized to a sum of 1; ``taps`` is odd."""
    offsets = np.arange(taps) - taps // 2
    curve = np.exp(-0.5 * (offsets / sigma) ** 2)
    return tuple((curve / curve.sum()).astype(np.float32).tolist())


class GaussianBlur(_Blur, SteadyOp, frozen=True, tag="gaussian_blur"):
    """Blurs the image with a Gaussian kernel. The image is mirrored at its edges (reflect padding).

    The op reproduces torchvision v2's ``gaussian_blur``, which has the same result for tensors and PIL images. About 10
    values per million differ by one, because the order of the additions differs. An image is rejected if its height or
    width is not greater than half the kernel size, because reflect padding does not repeat the reflection.

    With ``"like": "opencv"``, the op reproduces Albumentations' ``GaussianBlur``, which calls OpenCV's ``sepFilter2D``.
    The pixels equal those of OpenCV 4.9 to 4.12 bit for bit on a processor with AVX2. Since OpenCV 4.13, the last ``3 *
    width % 32`` values of a row are computed without fused multiply-add, and less than one value per million differs by
    one. If the kernel is larger than the image, the image is mirrored repeatedly.

    Args:
        kernel_size: Size of the kernel in pixels: one odd number, or [width, height]. With ``"like": "opencv"``, 0
            means ``2 * int(3.5 * sigma) + 1``.
        sigma: Standard deviation of the kernel in pixels: one number, or [x, y]. Default: ``0.15 * kernel_size +
            0.35``. Required with ``"like": "opencv"``.
        like: Library whose arithmetic the op reproduces.

    Example:
        {"op": "gaussian_blur", "kernel_size": 5, "sigma": 1.0}
    """

    sigma: Annotated[float | tuple[float, float] | None, _SIGMA] = None
    like: BlurLike = "torchvision"

    @property
    def sigmas(self) -> tuple[float, float]:
        """Standard deviations (y, x)."""
        if self.sigma is None:
            sigma_y, sigma_x = map(self.profile.sigma or float, self.taps)
            return sigma_y, sigma_x
        return ends(self.sigma)[::-1]

    def in_words(self) -> str:
        spans = dict.fromkeys(span_words((sigma, sigma)) for sigma in self.sigmas)
        return f"blur with {self._kernel}sigma {' and '.join(spans)}"

    def steps(self, words: Words, height: int, width: int, color: Color) -> tuple[LevelStep, ...]:
        (sigma_y, sigma_x), blur = self.sigmas, self.profile
        rows, columns = self.taps if self.kernel_size else map(blur.taps or int, self.sigmas)
        if not blur.is_mirrored_again and (rows // 2 >= height or columns // 2 >= width):
            raise ImageError(
                "DOES_NOT_FIT",
                f"an image of {height} x {width} pixels is too small for a blur kernel of {rows} x {columns}",
            )
        return (Filter("blur", self.like, rows=weights(rows, sigma_y), columns=weights(columns, sigma_x)),)


class RandomGaussianBlur(Drawn, _Blur, frozen=True, tag="random_gaussian_blur"):
    """Blurs images, with probability ``p``, with a Gaussian kernel of random standard deviation.

    The op reproduces torchvision v2's and Albumentations' ``GaussianBlur``: sigma is uniformly distributed, and is the
    same for x and y.

    Args:
        kernel_size: as in ``gaussian_blur``.
        sigma: Minimum and maximum standard deviation in pixels, or one number.
        p: Probability that the op is applied, 0 to 1. In torchvision, ``RandomApply`` adds such a probability.
        like: as in ``gaussian_blur``.

    Example:
        {"op": "random_gaussian_blur", "kernel_size": 5}
    """

    sigma: Annotated[float | tuple[float, float], _SIGMA] = (0.1, 2.0)
    p: Fraction = 1.0
    like: BlurLike = "torchvision"

    def check(self) -> None:
        super().check()
        if self.span[0] > self.span[1]:
            raise PipelineError(f'"sigma" must be (low, high) with low <= high, not {shown(self.sigma)}')

    @property
    def span(self) -> tuple[float, float]:
        """Minimum and maximum of sigma."""
        return ends(self.sigma)

    def draw(self, height: int, width: int, uniforms: Uniforms) -> Words:
        """Return sigma, ``{"sigma": [1.2, 1.2]}``, or ``{"sigma": null}`` if the op is not applied."""
        whether, uniform, *_ = uniforms(0, 1)[0].tolist()
        return {"sigma": [between(self.span, uniform)] * 2 if whether < self.p else None}

    def in_words(self) -> str:
        some = "" if self.p == 1 else f" {self.p:g} of the images"
        return f"blur{some} with {self._kernel}sigma {span_words(self.span)}"

    def fixed_ops(self, words: Words) -> list[Op]:
        return [as_kind(GaussianBlur, self, sigma=words["sigma"][0])] if words["sigma"] else []
