"""The op that displaces pixels by smooth noise."""

from __future__ import annotations

from typing import Annotated, Literal

from pixprep.errors import PipelineError
from pixprep.pipeline.ops.filters import LEAST_SIGMA, MAX_SIGMA
from pixprep.pipeline.ops.limits import Margin, Share, Within, shown
from pixprep.pipeline.ops.op import Drawn, LevelsOp, Op
from pixprep.plan.draws.elastic import ElasticMap
from pixprep.plan.draws.philox import Words
from pixprep.plan.lowered import Lowered
from pixprep.plan.steps.warps import Elastic as Displacement
from pixprep.spec import ImageSpec, as_tuple

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

    def lower(self, before: Lowered, image: ImageSpec, key: str) -> Lowered:
        alpha, sigma, fill = _pair(self.alpha), _pair(self.sigma), before.colour(self.fill)
        return before.do(ElasticMap(key=key, alpha=alpha, sigma=sigma, p=self.p, fill=fill, filter=self.filter))

    def fixed(self, words: Words) -> list[Op]:
        if words["seed"] is None:
            return []
        raise PipelineError("elastic: no fixed op has such a field: verify the pipeline without it")


def _pair(value: float | Pair) -> Pair:
    """Numbers of x and of y."""
    values = as_tuple(value)
    return values * 2 if len(values) == 1 else values  # type: ignore[return-value]
