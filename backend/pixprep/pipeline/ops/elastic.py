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
    """Displaces the pixels of each image, or of some, by smooth random noise; the size does not change.

    The op equals torchvision v2's ``ElasticTransform``, which treats tensors and PIL images alike. For the same
    displacement field, the pixels equal torchvision's. For the same noise, torchvision's field differs by less than
    1e-6 of half the image, because PyTorch sums in a different order; here the result does not depend on the order.
    Masks follow the image. Boxes and points after this op are rejected, because no formula determines their position;
    torchvision returns a nearby whole pixel. An image is rejected if the blur, which reads ``4 * sigma`` pixels in each
    direction, extends beyond its mirror image.

    Args:
        alpha: Strength of the displacement: one number, or those of x and y. A pixel moves by half of ``alpha`` times
            the blurred noise, which is at most 1.
        sigma: Standard deviation of the blur in pixels: one number, or those of x and y; 0 for both: no blur.
        filter: Interpolation filter: ``nearest`` or ``bilinear``, not antialiased.
        fill: Color outside the image, 0 to 255: one number, or one per channel.
        p: Probability that the op is applied, 0 to 1. torchvision expresses it by ``RandomApply``.

    Example:
        {"op": "elastic", "alpha": 50}
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
