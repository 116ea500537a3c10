"""The op ``normalize``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import isfinite, sqrt

import numpy as np

from pixprep.bfloat16 import to_bfloat16
from pixprep.errors import PipelineError
from pixprep.pipeline.ops.limits import MAX_SIDE, need_8bit_values, need_channels, shown
from pixprep.pipeline.ops.op import ImageOp, changed
from pixprep.plan.lowered import Lowered
from pixprep.plan.steps.arithmetic import (
    Affine,
    ArithmeticStep,
    ByOwn,
    Clip,
    Float32,
    Rounded,
    Standardize,
    formula,
)
from pixprep.spec import Arithmetic, ImageSpec, Luma, Own, Reals, as_tuple

_FLOAT32 = np.finfo(np.float32)


class Normalize(ImageOp, frozen=True, tag="normalize"):
    """Normalizes each channel: ``(value * scale - mean) / std``.

    The op combines torchvision's ``ToTensor``, which corresponds to the default ``scale`` of 1/255, and ``Normalize``.
    By default, the op computes in float64 and rounds only the result, to the dtype of the tensor. Most training code
    rounds to float32 after each operation. ``arithmetic`` selects a formula that reproduces such code bit for bit.

    Args:
        mean: Mean: one number, or one per channel in the order of the channels.
        std: Standard deviation: one number, or one per channel in the order of the channels.
        scale: Factor by which the pixel values 0 to 255 are multiplied first. With ``max`` or ``mean``, the pixel
            values are instead divided by the maximum or the mean of all pixel values of the image, over all channels
            together, as in rembg's U2-Net. For a black image, the divisor is 1. With ``max`` or ``mean``, only a flip
            or a ``tensor`` may follow, and ``arithmetic`` must be ``float64`` or ``divide``. With ``standardize``, the
            mean of all pixel values of the image is subtracted, and the difference is divided by their standard
            deviation, or by ``1 / sqrt(n)`` for n values if the standard deviation is smaller. ``mean``, ``std`` and
            ``arithmetic`` must have their defaults. All operations are those of NumPy 2.3 and newer in float32, as for
            Pix2Struct and Kosmos-2.5 with their Pillow backends; older versions of NumPy add large images in a
            different order. A resize of float32 values may follow. A GPU engine computes the tensor on the CPU.
        arithmetic: Formula and precision. ``float64`` rounds only the result. All other formulas compute in float32,
            and round each constant and each operation: ``divide`` is ``(value / (1 / scale) - mean) / std``
            (torchvision's ToTensor and Normalize, timm, Keras), ``multiply`` is ``(value * scale - mean) / std``
            (torchvision v2's ToDtype and Normalize), ``fused`` is ``(value - mean * (1 / scale)) / (std * (1 /
            scale))`` (Hugging Face), and ``fused_multiply`` is ``(value - mean / scale) * (scale / std)`` (DALI).
            ``bfloat16`` is ``multiply``, with each result, ``mean`` and ``std`` rounded to bfloat16 (Llama 4).

        clip: Whether the values are first clipped to the range of the pixel values before the resize (PP-DocLayoutV4).
            The result of ``bicubic`` may exceed this range if it is not rounded to uint8.
        luma: Library whose arithmetic converts the normalized image to gray, as in transformers' processors of
            LightGlue and SuperGlue. All three channels become ``0.2989 * red + 0.587 * green + 0.114 * blue`` in
            float32, unless the channels are equal in every pixel of the image. ``torchvision`` uses fused
            multiply-adds, and ``numpy`` rounds each operation. Only a flip and outputs may follow. A GPU engine
            computes the tensor on the CPU. By default, the image is not converted.

    Example:
        {"op": "normalize", "mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}
    """

    mean: Reals = 0.0
    std: Reals = 1.0
    scale: float | Own = 1 / 255
    arithmetic: Arithmetic = "float64"
    clip: bool = False
    luma: Luma | None = None

    def check(self) -> None:
        is_own, scale = isinstance(self.scale, str), 1.0 if isinstance(self.scale, str) else self.scale
        for name, values in (("mean", self.mean), ("std", self.std), ("scale", scale)):
            if not all(isfinite(value) for value in as_tuple(values)):
                raise PipelineError(f'"{name}" must be finite, not {shown(values)}')
        if any(value <= 0 for value in as_tuple(self.std)):
            raise PipelineError(f'"std" must be greater than 0, not {shown(self.std)}')
        if scale == 0:
            raise PipelineError('"scale" must not be 0: every pixel would become the same value')
        if self.scale == "standardize" and (self.mean, self.std, self.arithmetic) != (0.0, 1.0, "float64"):
            raise PipelineError('"scale": "standardize" does not support "mean", "std" and "arithmetic": remove them')
        if is_own and self.arithmetic not in ("float64", "divide"):
            raise PipelineError(f'"scale": "{self.scale}" requires "arithmetic": "float64" or "divide"')

    def infer(self, image: ImageSpec) -> ImageSpec:
        """Return the spec with the range of the normalized values."""
        need_channels("mean", self.mean, image.channels)
        need_channels("std", self.std, image.channels)
        if self.luma is not None and (image.channels != 3 or image.values == "real"):
            raise PipelineError('"luma" requires an image with three channels and integer values')
        low, high = image.low, image.high
        if self.scale == "standardize":  # the limit is sqrt(n), which a single value unlike all others nearly reaches
            need_8bit_values(image)
            sides = image.max_height or MAX_SIDE, image.max_width or MAX_SIDE
            high = sqrt(image.channels * sides[0] * sides[1])
            return replace(image, low=-high, high=high, values="normalized")
        if isinstance(self.scale, str):
            need_8bit_values(image)
            if image.max_height is None or image.max_width is None:
                raise PipelineError(
                    f'"scale": "{self.scale}" requires an image of limited size: add a resize or a crop before it'
                )
            low, high = 0.0, 1.0 if self.scale == "max" else float(image.channels * image.max_height * image.max_width)
        ends = [end * a + b for a, b in self.coefficients(image.channels) for end in (low, high)]
        return replace(
            image, low=min(ends) + 0.0, high=max(ends) + 0.0, values="normalized"
        )  # + 0.0 converts -0.0 to 0.0

    def coefficients(self, channels: int) -> list[tuple[float, float]]:
        """Return the equivalent (factor, offset) of each channel.

        If ``scale`` is ``max`` or ``mean``, the values are assumed to be divided by it already.
        """
        means, stds = _per_channel(self.mean, channels), _per_channel(self.std, channels)
        scale = 1.0 if isinstance(self.scale, str) else self.scale
        return [(scale / std, -mean / std) for mean, std in zip(means, stds, strict=True)]

    def described(self, image: ImageSpec, before: Lowered) -> str:
        steps = self.lower(before, image, "").arithmetic
        return "; ".join(dict.fromkeys(formula(steps, channel) for channel in range(image.channels)))

    def lower(self, before: Lowered, image: ImageSpec, key: str) -> Lowered:
        if before.fill_value is not None and (before.fill_after or isinstance(self.scale, str)):
            raise PipelineError('must come before a pad with a "value"')
        if before.luma is not None:
            raise PipelineError('must come before a normalize with "luma"')
        if self.luma is not None:
            return replace(changed(self, luma=None).lower(before, image, key), luma=self.luma)
        if before.erasures:
            raise PipelineError("must come before random_erasing, which fills rectangles with normalized values")
        steps, count = before.arithmetic, image.channels
        if self.clip:
            steps = (*steps, Clip((image.low,) * count, (image.high,) * count))
        if self.scale == "standardize":
            return replace(before, arithmetic=(*steps, Standardize()))
        if isinstance(self.scale, str):
            return replace(before, arithmetic=(*steps, *_steps_by_statistic(self, self.scale, count)))
        if self.arithmetic != "float64":
            return replace(before, arithmetic=(*steps, *_float32_steps(self, count)))
        last = Affine((1.0,) * count, (0.0,) * count)
        if steps and isinstance(steps[-1], Affine):  # consecutive ops in float64 are merged into one
            last, steps = steps[-1], steps[:-1]
        pairs = list(zip(self.coefficients(count), last.scale, last.offset, strict=True))
        folded = Affine(tuple(s * a for (a, _), s, _ in pairs), tuple(o * a + b for (a, b), _, o in pairs))
        return replace(before, arithmetic=(*steps, folded))


def _per_channel(value: Reals, channels: int) -> tuple[float, ...]:
    """Return one number per channel for a field with one number, or with one per channel."""
    values = as_tuple(value)
    return values * channels if len(values) == 1 else values


def _steps_by_statistic(op: Normalize, number: Own, count: int) -> list[ArithmeticStep]:
    """Return the arithmetic steps of a ``normalize`` whose scale is a statistic of the image.

    Args:
        op: Op.
        number: Statistic of the image by which the pixel values are divided, ``max`` or ``mean``.
        count: Number of channels.
    """
    mean, std, zeros, ones = _per_channel(op.mean, count), _per_channel(op.std, count), (0.0,) * count, (1.0,) * count
    if op.arithmetic == "float64":
        return [ByOwn(number, mean, std)]
    _check_float32(op, (*mean, *std))
    return [ByOwn(number, zeros, ones), *_effective([Float32("subtract", mean), Float32("divide", std)])]


def _float32_steps(op: Normalize, count: int) -> list[ArithmeticStep]:
    """Return the float32 operations of a ``normalize``, without operations that have no effect."""
    assert not isinstance(op.scale, str)
    mean, std, scale = _per_channel(op.mean, count), _per_channel(op.std, count), _per_channel(op.scale, count)
    steps = {
        "divide": (
            Float32("divide", _per_channel(1 / op.scale, count)),
            Float32("subtract", mean),
            Float32("divide", std),
        ),
        "multiply": (Float32("multiply", scale), Float32("subtract", mean), Float32("divide", std)),
        "fused": (
            Float32("subtract", _float32_product(mean, 1 / op.scale)),
            Float32("divide", _float32_product(std, 1 / op.scale)),
        ),
        "bfloat16": (
            Float32("multiply", scale),
            Float32("subtract", _bfloat16(mean)),
            Float32("divide", _bfloat16(std)),
        ),
        "fused_multiply": (
            Float32("subtract", tuple(m / s for m, s in zip(mean, scale, strict=True))),
            Float32("multiply", tuple(s / d for d, s in zip(std, scale, strict=True))),
        ),
    }[op.arithmetic]
    factors = (1 / op.scale, *mean, *std) if op.arithmetic == "fused" else ()
    _check_float32(op, [*factors, *(constant for step in steps for constant in step.by)])
    effective = _effective(steps)
    if op.arithmetic == "bfloat16":
        return [each for step in effective for each in (step, Rounded())]
    return [*effective]


def _bfloat16(values: Sequence[float]) -> tuple[float, ...]:
    """Round constants to bfloat16."""
    return tuple(to_bfloat16(np.array(values)).tolist())


def _effective(steps: Iterable[Float32]) -> list[Float32]:
    """Return the steps without those that have no effect, such as a division by 1."""
    neutral = {"subtract": 0.0, "multiply": 1.0, "divide": 1.0}
    return [step for step in steps if any(x != neutral[step.operation] for x in step.by)]


def _check_float32(op: Normalize, constants: Sequence[float]) -> None:
    """Raise PipelineError if a constant overflows, underflows or is subnormal in float32."""
    for constant in constants:
        with np.errstate(all="ignore"):
            magnitude = abs(np.float32(constant))
        if constant != 0 and not _FLOAT32.tiny <= magnitude <= _FLOAT32.max:
            raise PipelineError(
                f'"arithmetic": "{op.arithmetic}" requires the constant {constant:.3g}, which is outside the range of '
                'float32: use values of "scale", "mean" and "std" that are nearer to 1, or remove "arithmetic"'
            )


def _float32_product(values: Sequence[float], factor: float) -> tuple[float, ...]:
    """Return the products as PyTorch computes them in float32. They may differ from the quotients in the last bit."""
    with np.errstate(all="ignore"):  # _check_float32 rejects results that are not finite
        return tuple(float(np.float32(value) * np.float32(factor)) for value in values)
