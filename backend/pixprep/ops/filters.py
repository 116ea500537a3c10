"""Ops that sharpen and blur an image after its resize: each pixel of the result looks at its neighbours."""

from __future__ import annotations

from typing import Any, ClassVar

from pixprep.draws.blurring import Blur
from pixprep.draws.philox import Words
from pixprep.errors import PipelineError
from pixprep.ops.op import ColorOp, ImageOp, Op, Sometimes, SteadyOp, check_range, need_whole_levels, shown
from pixprep.plan.lowered import Lowered
from pixprep.spec import ColorLike, ImageSpec, Side, as_tuple
from pixprep.steps.levels import Filter, LevelStep

MAX_FACTOR = 1000.0
MAX_TAPS = 255
LEAST_SIGMA, MAX_SIGMA = 0.01, 1000.0


class Sharpness(ColorOp, frozen=True, tag="sharpness"):
    """Blend the image with its smoothed self, or move it away from that.

    torchvision v2's ``adjust_sharpness``. The outermost pixels stay.

    Args:
        factor: 0 smooths, 1 changes nothing, 2 sharpens.
        like: whose rounding.
    """

    factor: float
    like: ColorLike = "pillow"

    def check(self) -> None:
        """See ``Op.check``."""
        check_range("factor", self.factor, 0, MAX_FACTOR)

    def step(self) -> LevelStep:
        """See ``ColorOp.step``."""
        return Filter("sharpness", self.like, self.factor)

    def twin(self, image: Any, library: Any) -> Any:
        """See ``SteadyOp.twin``."""
        if self.like == "pillow":
            return library.ImageEnhance.Sharpness(image).enhance(self.factor)
        return library.adjust_sharpness(image, self.factor)


class RandomSharpness(Sometimes, Sharpness, frozen=True, tag="random_sharpness"):
    """Sharpen or smooth some of the images.

    torchvision v2's ``RandomAdjustSharpness``.

    Args:
        factor, like: as in ``sharpness``.
        p: how often.
    """

    p: float = 0.5


class _Blur(ImageOp, frozen=True):
    kernel_size: int | tuple[int, int]

    def check(self) -> None:
        """See ``Op.check``."""
        sizes = as_tuple(self.kernel_size)
        if len(sizes) not in (1, 2) or not all(1 <= size <= MAX_TAPS and size % 2 for size in sizes):
            raise PipelineError(
                f'"kernel_size" must be an odd number of 1 to {MAX_TAPS}, or two, not {shown(self.kernel_size)}'
            )

    @property
    def taps(self) -> tuple[int, int]:
        """Numbers of rows and columns that a tap sees."""
        width, height = (int(size) for size in (*as_tuple(self.kernel_size), *as_tuple(self.kernel_size))[:2])
        return (width, width) if len(as_tuple(self.kernel_size)) == 1 else (height, width)

    def infer(self, image: ImageSpec) -> ImageSpec:
        """The spec does not change; refuses values that are no levels, and a side that the kernel reaches across."""
        need_whole_levels(image)
        for name, side, taps in (("height", image.height, self.taps[0]), ("width", image.width, self.taps[1])):
            if side is not None and taps // 2 >= side:
                raise PipelineError(f'"kernel_size" {taps} needs a {name} of {taps // 2 + 1}, but the image has {side}')
        return image


class GaussianBlur(_Blur, SteadyOp, frozen=True, tag="gaussian_blur"):
    """Blur the image; beyond its edge lies its mirror image.

    torchvision v2's ``gaussian_blur``, which does the same to tensors and to PIL images. Some 10 of a million values
    differ from it by one level: it adds up in an order of its own. An image is refused whose mirror image the kernel
    reaches across.

    Args:
        kernel_size: pixels that are seen, odd: one number, or [width, height].
        sigma: of the bell curve, in pixels: one number, or of x and of y; default: ``0.15 * kernel_size + 0.35``.
    """

    sigma: float | tuple[float, float] | None = None

    def check(self) -> None:
        """See ``Op.check``."""
        super().check()
        if self.sigma is not None:
            _check_sigma(self.sigma)

    @property
    def sigmas(self) -> tuple[float, float]:
        """Values of y and of x."""
        if self.sigma is None:
            return self.taps[0] * 0.15 + 0.35, self.taps[1] * 0.15 + 0.35
        values = as_tuple(self.sigma)
        return values[-1], values[0]

    def lower(self, before: Lowered, image: ImageSpec, key: str) -> Lowered:
        """See ``ImageOp.lower``."""
        del image, key
        of_y, of_x = self.sigmas
        return before.do(Blur(key="", taps=self.taps, sigma=((of_y, of_y), (of_x, of_x))))

    @property
    def library(self) -> str:
        """Pillow has another one."""
        return "torchvision"

    def twin(self, image: Any, library: Any) -> Any:
        """See ``SteadyOp.twin``."""
        sigma = None if self.sigma is None else [float(x) for x in as_tuple(self.sigma)]
        return library.gaussian_blur(image, kernel_size=list(self.taps[::-1]), sigma=sigma)


class RandomGaussianBlur(_Blur, frozen=True, tag="random_gaussian_blur"):
    """Blur each image, or some, by a random width.

    torchvision v2's ``GaussianBlur``: sigma is uniform, the same for x and y.

    Args:
        kernel_size: as in ``gaussian_blur``.
        sigma: from and to, or one number.
        p: how often; torchvision's has it by ``RandomApply``.
    """

    home: ClassVar[Side | None] = "training"

    sigma: float | tuple[float, float] = (0.1, 2.0)
    p: float = 1.0

    def check(self) -> None:
        """See ``Op.check``."""
        super().check()
        _check_sigma(self.sigma)
        if self.span[0] > self.span[1]:
            raise PipelineError(f'"sigma" must rise, not {shown(self.sigma)}')
        check_range("p", self.p, 0, 1)

    @property
    def span(self) -> tuple[float, float]:
        """Sigma, from and to."""
        values = as_tuple(self.sigma)
        return values[0], values[-1]

    def lower(self, before: Lowered, image: ImageSpec, key: str) -> Lowered:
        """See ``ImageOp.lower``."""
        del image
        return before.do(Blur(key=key, p=self.p, taps=self.taps, sigma=(self.span, self.span)))

    def fixed(self, words: Words) -> list[Op]:
        """See ``Op.fixed``."""
        return [GaussianBlur(self.kernel_size, words["sigma"][0])] if words["sigma"] else []


def _check_sigma(sigma: float | tuple[float, float]) -> None:
    if len(as_tuple(sigma)) not in (1, 2):
        raise PipelineError(f'"sigma" is one number, or two, not {shown(sigma)}')
    for value in as_tuple(sigma):
        check_range("sigma", value, LEAST_SIGMA, MAX_SIGMA)
