"""Ops that resize each sample to a random size, for training."""

from __future__ import annotations

from typing import Annotated

import numpy as np

from pixprep.errors import PipelineError
from pixprep.pipeline.ops.geometry import Resize, check_like, resize_step, resized
from pixprep.pipeline.ops.limits import MAX_SIDE, Fraction, Length, OrderedPair, Within
from pixprep.pipeline.ops.op import ImageOp, Op, Whether, as_kind, bare, settle
from pixprep.pipeline.ops.random import MAX_ZOOM
from pixprep.plan import geometry_steps
from pixprep.plan.draws.augments import RandomStep, Uniforms
from pixprep.plan.draws.philox import Words, between, span_words
from pixprep.plan.lowered import Lowered
from pixprep.spec import Filter, ImageSpec, Like

MAX_SIZES = 1000
"""Maximum number of sizes to choose from."""
_NUM_SHOWN = 3
"""Number of sizes that a description shows before it abbreviates a long list."""


class _RandomSize(Whether, ImageOp, frozen=True, kw_only=True):
    """Base of the random resizes."""

    filter: Filter = "bilinear"
    antialias: bool | None = None
    like: Like = "pillow"

    def infer(self, image: ImageSpec) -> ImageSpec:
        """Return the spec of the result, with the upper bounds of its size; reject normalized values."""
        return resized(self, image).within((1, 1), self._size_bounds)

    def lower(self, before: Lowered, image: ImageSpec, key: str) -> Lowered:
        return before.resized(self._step(RandomStep(key, bare(self))))

    @property
    def _size_bounds(self) -> tuple[int | None, int | None]:
        """Maximum (height, width) of the result; None: it depends on the image."""
        return None, None

    def _step(self, random_step: RandomStep) -> geometry_steps.Resize:
        """Return the resize step of the plan.

        Args:
            random_step: Step that samples the size.
        """
        raise NotImplementedError


class RandomShortestSize(_RandomSize, frozen=True, tag="random_shortest_size"):
    """Resizes the shorter side to one of several lengths, chosen at random, and keeps the aspect ratio.

    The op reproduces torchvision v2's ``RandomShortestSize``, which torchvision uses to train detectors. Both sides are
    multiplied by the same scale, as with ``"mode": "scale"`` of ``resize``. Each side has at least one pixel;
    torchvision raises an error instead.

    Args:
        min_size: Length of the shorter side in pixels: one number, or a list of equally likely numbers.
        max_size: Maximum length of the longer side in pixels. If the longer side would exceed this maximum, the scale
            is reduced.
        p: Probability that the op is applied, 0 to 1.
        filter, antialias, like: as in ``resize``.

    Example:
        {"op": "random_shortest_size", "min_size": [480, 512, 544], "max_size": 1333}
    """

    min_size: int | tuple[int, ...]
    max_size: Length | None = None
    p: Fraction = 1.0

    def check(self) -> None:
        check_like(self)
        if not 1 <= len(self._sizes) <= MAX_SIZES:
            raise PipelineError(f'"min_size" must contain 1 to {MAX_SIZES} sizes, not {len(self._sizes):,}')
        for size in self._sizes:
            Within(1, MAX_SIDE, " pixels").check("min_size", size)

    def draw(self, height: int, width: int, uniforms: Uniforms) -> Words:
        """Choose one of the sizes."""
        sizes = self._sizes
        return {"size": sizes[int(uniforms(0, 1)[0, 0] * len(sizes))]}

    def in_words(self) -> str:
        sizes = [str(size) for size in self._sizes]
        shown = sizes if len(sizes) <= _NUM_SHOWN + 1 else [*sizes[:_NUM_SHOWN], "...", sizes[-1]]
        return f"one of {', '.join(shown)}"

    def fixed_ops(self, words: Words) -> list[Op]:
        return [as_kind(Resize, self, size=words["size"], mode="scale", rounding="down")]

    @property
    def _sizes(self) -> tuple[int, ...]:
        return (self.min_size,) if isinstance(self.min_size, int) else self.min_size

    @property
    def _size_bounds(self) -> tuple[int | None, int | None]:
        return self.max_size, self.max_size

    def _step(self, random_step: RandomStep) -> geometry_steps.Resize:
        side = max(self._sizes)
        return resize_step(self, "shorter", side, side, most=self.max_size, scales=(True, True), drawn=random_step)


class RandomResize(_RandomSize, frozen=True, tag="random_resize"):
    """Resizes the shorter side to a random length, and keeps the aspect ratio.

    The op reproduces torchvision v2's ``RandomResize``, from its segmentation references. The longer side becomes
    ``int(size * longer / shorter)``, as with ``size`` of ``resize``. To produce a fixed size, add ``pad`` with
    ``"larger": "keep"`` and then ``random_crop``.

    Args:
        min_size: Minimum length of the shorter side in pixels.
        max_size: Exclusive upper bound of the shorter side in pixels; all lengths are equally likely.
        p: Probability that the op is applied, 0 to 1.
        filter, antialias, like: as in ``resize``.

    Example:
        {"op": "random_resize", "min_size": 256, "max_size": 513}
    """

    min_size: Length
    max_size: Length
    p: Fraction = 1.0

    def check(self) -> None:
        check_like(self)
        if self.min_size >= self.max_size:
            raise PipelineError(f'"max_size" must be greater than "min_size", {self.min_size}, not {self.max_size}')

    def draw(self, height: int, width: int, uniforms: Uniforms) -> Words:
        """Sample the length of the shorter side."""
        return {"size": self.min_size + int(uniforms(0, 1)[0, 0] * (self.max_size - self.min_size))}

    def in_words(self) -> str:
        return f"{self.min_size} to {self.max_size - 1}"

    def fixed_ops(self, words: Words) -> list[Op]:
        return [as_kind(Resize, self, size=words["size"], max_size=None)]

    def _step(self, random_step: RandomStep) -> geometry_steps.Resize:
        return resize_step(self, "shorter", self.max_size - 1, self.max_size - 1, drawn=random_step)


class ScaleJitter(_RandomSize, frozen=True, tag="scale_jitter"):
    """Resizes the image by a random scale, as in large-scale jittering.

    The op reproduces torchvision v2's ``ScaleJitter``: a scale of 1 yields the largest size with the image's aspect
    ratio that fits inside ``height`` x ``width``. Both sides are computed in float32 and truncated, as in torchvision.
    Each side has at least one pixel; torchvision raises an error instead. Without ``height``, the scale is relative to
    the image's own size, and both sides are computed in float64, as in Albumentations' ``RandomScale``. To produce a
    fixed size, add ``random_crop`` with ``pad_if_needed``.

    Args:
        height: Maximum height in pixels at a scale of 1, torchvision's ``target_size[1]``. Default: the height of the
            image.
        width: Maximum width in pixels at a scale of 1, torchvision's ``target_size[0]``; default: ``height``.
        scale_range: Minimum and maximum scale, greater than 0 and at most 16.
        p: Probability that the op is applied, 0 to 1.
        filter, antialias, like: as in ``resize``.

    Example:
        {"op": "scale_jitter", "height": 1024}
    """

    height: Length | None = None
    width: Length | None = None
    scale_range: Annotated[tuple[float, float], OrderedPair(0, MAX_ZOOM, is_over=True)] = (0.1, 2.0)
    p: Fraction = 1.0

    def check(self) -> None:
        check_like(self)
        settle(self, "width", self.height)
        if self.height is None and self.width is not None:
            raise PipelineError('"width" requires "height"')

    def draw(self, height: int, width: int, uniforms: Uniforms) -> Words:
        """Sample the size of the result.

        With ``height``, the operations in float32 are those of PyTorch. Both sides are truncated to integers, and are
        at least 1.
        """
        scale_range, uniform = self.scale_range, uniforms(0, 1)[0, 0]
        if self.height is None or self.width is None:
            scale64 = between(scale_range, float(uniform))
            return {"height": max(1, int(height * scale64)), "width": max(1, int(width * scale64))}
        scale32 = np.float32(scale_range[0]) + np.float32(uniform) * np.float32(scale_range[1] - scale_range[0])
        factor = np.float32(min(self.height / height, self.width / width)) * scale32
        return {name: max(1, int(np.float32(side) * factor)) for name, side in (("height", height), ("width", width))}

    def in_words(self) -> str:
        size = "its own size" if self.height is None else f"the largest size inside {self.height} x {self.width}"
        return f"{span_words(self.scale_range)} times {size}"

    def fixed_ops(self, words: Words) -> list[Op]:
        return [as_kind(Resize, self, height=words["height"], width=words["width"])]

    @property
    def _size_bounds(self) -> tuple[int | None, int | None]:
        if self.height is None or self.width is None:
            return None, None
        # float32 arithmetic may round up by a pixel
        height, width = (int(side * self.scale_range[1]) + 1 for side in (self.height, self.width))
        return height, width

    def _step(self, random_step: RandomStep) -> geometry_steps.Resize:
        return resize_step(self, "both", self.height or 1, self.width or 1, drawn=random_step)
