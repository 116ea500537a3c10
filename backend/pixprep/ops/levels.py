"""Ops that change values, not places."""

from __future__ import annotations

from dataclasses import replace
from math import isfinite
from typing import Literal

from pixprep.errors import PipelineError
from pixprep.ops.op import Op, Reals, as_tuple, need_channels, shown
from pixprep.spec import ImageSpec

Arithmetic = Literal["float64", "divide", "multiply", "fused", "fused_multiply"]


class Normalize(Op, frozen=True, tag="normalize"):
    """Per channel ``(value * scale - mean) / std``.

    Like torchvision's ``Normalize`` after ``ToTensor`` (which is the default ``scale`` of 1/255). By default it is
    computed in float64 and rounded once, to the tensor's dtype; training code rounds to float32 at each step, which
    ``arithmetic`` repeats to the last bit.

    Args:
        mean, std: one number, or one a channel in the order of the channels.
        scale: multiplies the levels 0 to 255 first.
        arithmetic: ``float64``; or in float32, each constant and each step rounded: ``divide``
            ``(value / (1 / scale) - mean) / std`` (torchvision's ToTensor and Normalize, timm, Keras), ``multiply``
            ``(value * scale - mean) / std`` (torchvision v2's ToDtype and Normalize), ``fused``
            ``(value - mean * (1 / scale)) / (std * (1 / scale))`` (Hugging Face), ``fused_multiply``
            ``(value - mean / scale) * (scale / std)`` (DALI).
    """

    mean: Reals = 0.0
    std: Reals = 1.0
    scale: float = 1 / 255
    arithmetic: Arithmetic = "float64"

    def check(self) -> None:
        """See ``Op.check``."""
        for name, values in (("mean", self.mean), ("std", self.std), ("scale", self.scale)):
            if not all(isfinite(value) for value in as_tuple(values)):
                raise PipelineError(f'"{name}" must be finite, not {shown(values)}')
        if any(value <= 0 for value in as_tuple(self.std)):
            raise PipelineError(f'"std" must be over 0, not {shown(self.std)}')
        if self.scale == 0:
            raise PipelineError('"scale" must not be 0: every pixel would become the same value')

    def infer(self, image: ImageSpec) -> ImageSpec:
        """The spec with the new range of values."""
        need_channels("mean", self.mean, image)
        need_channels("std", self.std, image)
        ends = [
            image_end * a + b for a, b in self.coefficients(image.channels) for image_end in (image.low, image.high)
        ]
        return replace(image, low=min(ends) + 0.0, high=max(ends) + 0.0, values="normalized")  # + 0.0: no -0

    def coefficients(self, channels: int) -> list[tuple[float, float]]:
        """For each channel the factor and the offset that this op amounts to."""
        means, stds = (as_tuple(v) * (channels if len(as_tuple(v)) == 1 else 1) for v in (self.mean, self.std))
        return [(self.scale / std, -mean / std) for mean, std in zip(means, stds, strict=True)]
