"""Elastic deformation: the op that displaces pixels by smooth random noise."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pixprep.errors import ImageError, PipelineError
from pixprep.pipeline.ops.filters import MAX_SIGMA, MIN_SIGMA
from pixprep.pipeline.ops.limits import FillColor, Fraction, Within, ends, shown
from pixprep.pipeline.ops.op import Drawn, LevelsOp, Op
from pixprep.plan.draws.augments import Uniforms
from pixprep.plan.draws.philox import Words
from pixprep.plan.lowered import colour
from pixprep.plan.steps.levels import LevelStep
from pixprep.plan.steps.warps import Elastic as Displacement
from pixprep.plan.steps.warps import Warp
from pixprep.spec import Color, ImageSpec

MAX_ALPHA = 100_000.0
NO_MATRIX = (
    "an op before it displaces each pixel separately, so that no matrix describes the transform: use boxes, points or "
    "mask"
)
Pair = tuple[float, float]
"""Numbers for x and y."""


class Elastic(Drawn, LevelsOp, frozen=True, tag="elastic"):
    """Displaces pixels by smooth random noise; the size does not change.

    The op reproduces torchvision v2's ``ElasticTransform``, which processes tensors and PIL images in the same way.
    With the same displacement field, the pixels equal those of torchvision. A field that is computed from the same
    noise differs from torchvision's field by less than 1e-6 of half the image size, because PyTorch's floating-point
    sums depend on the order of summation and pixprep's do not. Masks are transformed like the image. A box becomes the
    bounding box of the pixels that show it, and a point moves with the nearest pixel. Images are rejected if they are
    too small for the blur, which reads ``4 * sigma`` pixels in each direction and reflects the image once at its
    border.

    Args:
        alpha: Strength of the displacement: one number, or one number each for x and y. A pixel moves by ``alpha / 2``
            times the blurred noise, whose absolute value is at most 1.
        sigma: Standard deviation of the blur in pixels: one number, or one number each for x and y. 0 for both axes
            disables the blur.
        filter: Interpolation filter without antialiasing: ``nearest`` or ``bilinear``.
        fill: Color outside the image, 0 to 255: one number, or one per channel.
        p: Probability that the op is applied, 0 to 1, as with torchvision's ``RandomApply``.

    Example:
        {"op": "elastic", "alpha": 50}
    """

    moves: ClassVar[bool] = True
    may_add_color: ClassVar[bool] = False
    is_hosts: ClassVar[bool] = True
    no_matrix: ClassVar[str] = NO_MATRIX
    alpha: Annotated[float | Pair, Within(0, MAX_ALPHA, lengths=(1, 2))] = 50.0
    sigma: Annotated[float | Pair, Within(0, MAX_SIGMA, lengths=(1, 2))] = 5.0
    filter: Literal["nearest", "bilinear"] = "bilinear"
    fill: FillColor = 0
    p: Fraction = 1.0

    def check(self) -> None:
        if any(ends(self.sigma)) and min(ends(self.sigma)) < MIN_SIGMA:
            raise PipelineError(f'"sigma" must be 0 for both axes, or at least {MIN_SIGMA}, not {shown(self.sigma)}')

    def infer(self, image: ImageSpec) -> ImageSpec:
        """Return the spec unchanged; reject values other than 8-bit pixel values, and images too small for the blur."""
        image = super().infer(image)
        radius = Displacement(ends(self.alpha), ends(self.sigma), 0).reach
        for name, side in (("height", image.height), ("width", image.width)):
            if side is not None and radius >= side:
                raise PipelineError(
                    f'"sigma" requires a {name} of at least {radius + 1} pixels, but the image has a {name} of {side}'
                )
        return image

    def draw(self, height: int, width: int, uniforms: Uniforms) -> Words:
        """Sample the seed of the noise.

        Returns:
            ``{"seed": 81985529216486895}``, below 2^64, or ``{"seed": null}`` if the op is not applied.
        """
        u_apply, u_high, u_low, _ = uniforms(0, 1)[0].tolist()
        return {"seed": int(u_high * 2**32) << 32 | int(u_low * 2**32) if u_apply < self.p else None}

    def in_words(self) -> str:
        alpha, sigma = (
            " and ".join(f"{each:.4g}" for each in dict.fromkeys(ends(pair))) for pair in (self.alpha, self.sigma)
        )
        some = "" if self.p == 1 else f" of {self.p:g} of the images"
        return f"displace the pixels{some} by smooth noise, alpha {alpha}, sigma {sigma} ({self.filter})"

    def steps(self, words: Words, height: int, width: int, color: Color) -> tuple[LevelStep, ...]:
        """Return the step for an image of this size; see ``LevelsOp.steps``.

        The step is also returned if the op is not applied to the image, because a GPU's plan is split at this op.
        """
        displacement = Displacement((0.0, 0.0), (0.0, 0.0), 0)
        if words["seed"] is not None:
            displacement = Displacement(ends(self.alpha), ends(self.sigma), words["seed"])
            if displacement.reach >= min(height, width):
                raise ImageError(
                    "DOES_NOT_FIT",
                    f"{height} x {width} pixels are too small for elastic, whose sigma requires sides of at least "
                    f"{displacement.reach + 1} pixels",
                )
        identity, size = (1.0, 0.0, 0.0, 0.0, 1.0, 0.0), (height, width)
        fill = colour(self.fill, color)
        return (Warp(identity, size, 0, 0, *size, fill, self.filter, "torchvision", displacement),)

    def fixed_ops(self, words: Words) -> list[Op]:
        if words["seed"] is None:
            return []
        raise PipelineError("elastic: no op with fixed parameters is equivalent: verify the pipeline without it")
