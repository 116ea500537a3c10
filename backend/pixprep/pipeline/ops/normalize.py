"""Ops that change values, not places."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import isfinite

import numpy as np

from pixprep.errors import PipelineError
from pixprep.pipeline.ops.limits import need_channels, shown
from pixprep.pipeline.ops.op import ImageOp
from pixprep.plan.lowered import Lowered
from pixprep.plan.output_plans import Affine, Float32
from pixprep.spec import Arithmetic, ImageSpec, Reals, as_tuple

_FLOAT32 = np.finfo(np.float32)


class Normalize(ImageOp, frozen=True, tag="normalize"):
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
        means, stds = _each(self.mean, channels), _each(self.std, channels)
        return [(self.scale / std, -mean / std) for mean, std in zip(means, stds, strict=True)]

    def lower(self, before: Lowered, image: ImageSpec, key: str) -> Lowered:
        if before.erasures:
            raise PipelineError("must come before random_erasing, which is done to its values")
        steps, count = before.arithmetic, image.channels
        if self.arithmetic != "float64":
            return replace(before, arithmetic=(*steps, *_float32_steps(self, count)))
        last = Affine((1.0,) * count, (0.0,) * count)
        if steps and isinstance(steps[-1], Affine):  # what is done in float64 folds into one
            last, steps = steps[-1], steps[:-1]
        pairs = list(zip(self.coefficients(count), last.scale, last.offset, strict=True))
        folded = Affine(tuple(s * a for (a, _), s, _ in pairs), tuple(o * a + b for (a, b), _, o in pairs))
        return replace(before, arithmetic=(*steps, folded))


def _each(value: Reals, channels: int) -> tuple[float, ...]:
    """A number for each channel."""
    values = as_tuple(value)
    return values * channels if len(values) == 1 else values


def _float32_steps(op: Normalize, count: int) -> list[Float32]:
    """One ``normalize`` in the order of operations that it names; a step that changes nothing is left out."""
    mean, std, scale = _each(op.mean, count), _each(op.std, count), _each(op.scale, count)
    steps = {
        "divide": (Float32("divide", _each(1 / op.scale, count)), Float32("subtract", mean), Float32("divide", std)),
        "multiply": (Float32("multiply", scale), Float32("subtract", mean), Float32("divide", std)),
        "fused": (
            Float32("subtract", _float32_product(mean, 1 / op.scale)),
            Float32("divide", _float32_product(std, 1 / op.scale)),
        ),
        "fused_multiply": (
            Float32("subtract", tuple(m / s for m, s in zip(mean, scale, strict=True))),
            Float32("multiply", tuple(s / d for d, s in zip(std, scale, strict=True))),
        ),
    }[op.arithmetic]
    factors = (1 / op.scale, *mean, *std) if op.arithmetic == "fused" else ()
    _check_float32(op, [*factors, *(constant for step in steps for constant in step.by)])
    neutral = {"subtract": 0.0, "multiply": 1.0, "divide": 1.0}
    return [step for step in steps if any(x != neutral[step.operation] for x in step.by)]


def _check_float32(op: Normalize, constants: Sequence[float]) -> None:
    """Refuse a constant that is infinite in float32, or 0, or has fewer digits than others."""
    for constant in constants:
        with np.errstate(all="ignore"):
            magnitude = abs(np.float32(constant))
        if constant != 0 and not _FLOAT32.tiny <= magnitude <= _FLOAT32.max:
            raise PipelineError(
                f'"arithmetic": "{op.arithmetic}" needs the number {constant:.3g}, which is none of float32: '
                'bring "scale", "mean" and "std" nearer to 1, or leave "arithmetic" out'
            )


def _float32_product(values: Sequence[float], factor: float) -> tuple[float, ...]:
    """The product as PyTorch forms it, of two float32: it may end in another bit than the rounded quotient."""
    with np.errstate(all="ignore"):  # what is not finite is refused later
        return tuple(float(np.float32(value) * np.float32(factor)) for value in values)
