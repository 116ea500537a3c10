"""The op that displaces pixels by smooth noise."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pixprep.errors import ImageError, PipelineError
from pixprep.pipeline.ops.filters import LEAST_SIGMA, MAX_SIGMA
from pixprep.pipeline.ops.limits import Margin, Share, Within, shown
from pixprep.pipeline.ops.op import Drawn, LevelsOp, Op
from pixprep.plan.draws.augments import Uniforms
from pixprep.plan.draws.philox import Words
from pixprep.plan.lowered import colour
from pixprep.plan.steps.levels import LevelStep
from pixprep.plan.steps.warps import Elastic as Displacement
from pixprep.plan.steps.warps import Warp
from pixprep.spec import Color, ImageSpec, as_tuple

MAX_ALPHA = 100_000.0
Pair = tuple[float, float]


class Elastic(Drawn, LevelsOp, frozen=True, tag="elastic"):
    """Displace the pixels of each image, or of some, by smooth noise, as if one saw it through water; the size stays.

    torchvision v2's ``ElasticTransform``, which does the same to tensors and to PIL images. Given the field, the pixels
    are torchvision's. Its field of the same noise differs by less than 1e-6 of half the image: PyTorch adds it up in an
    order of its own, and here each order gives the same. Masks go along. Boxes and points are refused behind it: no
    formula says where one goes, and torchvision gives a whole pixel near by. An image is refused whose mirror image the
    blur, which sees ``4 * sigma`` pixels to each side, reaches across.

    Args:
        alpha: how far: one number, or of x and of y. A pixel moves by the blurred noise, at most 1, times half of it.
        sigma: of the blur, in pixels: one number, or of x and of y; 0: none, of both.
        filter: ``nearest`` or ``bilinear``; not antialiased.
        fill: the colour where no image is, 0 to 255: one number, or one a channel.
        p: how often; torchvision's has it by ``RandomApply``.
    """

    moves: ClassVar[bool] = True
    may_colour: ClassVar[bool] = False
    is_hosts: ClassVar[bool] = True
    no_boxes: ClassVar[str] = "no formula says where elastic moves boxes or points: leave them or it out"
    blocks: ClassVar[int] = 1  # whether, two words of the seed

    alpha: Annotated[float | Pair, Within(0, MAX_ALPHA, counts=(1, 2))] = 50.0
    sigma: Annotated[float | Pair, Within(0, MAX_SIGMA, counts=(1, 2))] = 5.0
    filter: Literal["nearest", "bilinear"] = "bilinear"
    fill: Margin = 0
    p: Share = 1.0

    def check(self) -> None:
        if any(_pair(self.sigma)) and min(_pair(self.sigma)) < LEAST_SIGMA:
            raise PipelineError(f'"sigma" is 0 of both, or {LEAST_SIGMA} or more of each, not {shown(self.sigma)}')

    def infer(self, image: ImageSpec) -> ImageSpec:
        """The spec does not change; refuses values that are no levels, and a side that the blur reaches across."""
        image = super().infer(image)
        reach = Displacement(_pair(self.alpha), _pair(self.sigma), 0).reach
        for name, side in (("height", image.height), ("width", image.width)):
            if side is not None and reach >= side:
                raise PipelineError(f'"sigma" needs a {name} of {reach + 1}, but the image has {side}')
        return image

    def draw(self, height: int, width: int, uniforms: Uniforms) -> Words:
        """``{"seed": 81985529216486895}``, below 2^64, or ``{"seed": null}``: not this one."""
        whether, high, low, _ = uniforms(0, 1)[0].tolist()
        return {"seed": int(high * 2**32) << 32 | int(low * 2**32) if whether < self.p else None}

    def in_words(self) -> str:
        alpha, sigma = (
            " and ".join(f"{each:.4g}" for each in dict.fromkeys(_pair(pair))) for pair in (self.alpha, self.sigma)
        )
        some = "" if self.p == 1 else f" of {self.p:g} of the images"
        return f"displace the pixels{some} by noise, alpha {alpha}, sigma {sigma} ({self.filter})"

    def steps(self, words: Words, height: int, width: int, color: Color) -> tuple[LevelStep, ...]:
        """One step, always: a GPU's plan is cut there. See ``LevelsOp.steps``."""
        elastic = Displacement((0.0, 0.0), (0.0, 0.0), 0)
        if words["seed"] is not None:
            elastic = Displacement(_pair(self.alpha), _pair(self.sigma), words["seed"])
            if elastic.reach >= min(height, width):
                least = f"sigma of an elastic displacement needs sides of {elastic.reach + 1}"
                raise ImageError("DOES_NOT_FIT", f"{height} x {width} pixels are too few: {least}")
        same, size = (1.0, 0.0, 0.0, 0.0, 1.0, 0.0), (height, width)
        fill = colour(self.fill, color)
        return (Warp(same, size, 0, 0, *size, fill, self.filter, "torchvision", elastic),)

    def fixed(self, words: Words) -> list[Op]:
        if words["seed"] is None:
            return []
        raise PipelineError("elastic: no fixed op has such a field: verify the pipeline without it")


def _pair(value: float | Pair) -> Pair:
    """Numbers of x and of y."""
    values = as_tuple(value)
    return values * 2 if len(values) == 1 else values  # type: ignore[return-value]
