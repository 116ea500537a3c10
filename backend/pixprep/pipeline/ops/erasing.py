"""The op that fills random rectangles."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Literal

from pixprep.errors import PipelineError
from pixprep.pipeline.ops.limits import Ratio, Rising, Share, need_channels, shown
from pixprep.pipeline.ops.op import Drawn, ImageOp, Op
from pixprep.plan.draws.erasing import Erasing
from pixprep.plan.draws.philox import Words
from pixprep.plan.lowered import Lowered
from pixprep.spec import ImageSpec, Reals, as_tuple

MAX_RECTANGLES = 64


class RandomErasing(Drawn, ImageOp, frozen=True, tag="random_erasing"):
    """Fill a random rectangle of some of the images with one value, or with noise.

    torchvision v2's ``RandomErasing``: of ten tries the first that fits, each of the area ``H * W * U(scale)`` and of
    the ratio ``exp(U(log(ratio)))``, with both sides rounded and every place as likely; else none. After ``normalize``
    it is done to the tensor, in its values, and must be the last; before, to the levels.

    timm's ``RandomErasing`` is ``p`` its probability, ``scale`` its areas, ``ratio`` its aspects and ``count`` its
    counts; its mode ``const`` is the value 0, ``pixel`` is ``"random"``, and ``rand``, a colour for each rectangle, is
    not there.

    Args:
        p: how often, 0 to 1.
        scale: of the filled area to the image's, from and to.
        ratio: of the height to the width, from and to.
        value: of the tensor after ``normalize``, a level of 0 to 255 before: one number, or one a channel; or
            ``random``, after ``normalize``: every value is drawn, of a normal distribution of mean 0 and deviation 1.
        count: rectangles, or from and to; they share the area.
    """

    p: Share = 0.5
    scale: Annotated[tuple[float, float], Rising(0, 1)] = (0.02, 0.33)
    ratio: Ratio = (0.3, 3.3)
    value: Reals | Literal["random"] = 0.0
    count: int | tuple[int, int] = 1

    def check(self) -> None:
        least, most = self.counts
        if len(as_tuple(self.count)) > 2 or not 1 <= least <= most <= MAX_RECTANGLES:
            raise PipelineError(f'"count" must be 1 to {MAX_RECTANGLES}, or rise, not {shown(self.count)}')

    @property
    def counts(self) -> tuple[int, int]:
        """From and to."""
        values = as_tuple(self.count)
        return int(values[0]), int(values[-1])

    def infer(self, image: ImageSpec) -> ImageSpec:
        """The spec does not change; refuses a value that the tensor would not have."""
        if isinstance(self.value, str):
            if image.values != "normalized":
                raise PipelineError('"value": "random" is noise of the tensor, and must come after normalize')
            return image
        need_channels("value", self.value, image)
        for value in as_tuple(self.value):
            if image.values == "levels" and (value != int(value) or not 0 <= value <= 255):
                raise PipelineError(
                    f'"value" must be a level, 0 to 255, not {value:g}: after normalize it is one of the tensor'
                )
            if not image.low <= value <= image.high:
                raise PipelineError(f'"value" {value:g} is outside the tensor\'s {image.low:g} to {image.high:g}')
        return image

    def lower(self, before: Lowered, image: ImageSpec, key: str) -> Lowered:
        is_levels = image.values == "levels"
        those: tuple[float, ...] | None = None
        if not isinstance(self.value, str):
            values = as_tuple(self.value)
            whole = values * (image.channels if len(values) == 1 else 1)
            those = before.colour(tuple(map(int, values))) if is_levels else whole
        step = Erasing(key=key, p=self.p, scale=self.scale, ratio=self.ratio, count=self.counts, values=those)
        return before.do(step) if is_levels else replace(before, erasures=(*before.erasures, step))

    def fixed(self, words: Words) -> list[Op]:
        return []  # left out on both sides
