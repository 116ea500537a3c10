"""Ops that resize the image to a computed size, as vision-language models require."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Literal

from pixprep.errors import ImageError, PipelineError
from pixprep.pipeline.ops.geometry import check_like, resize_step, resized
from pixprep.pipeline.ops.limits import MAX_SIDE, Length, Within
from pixprep.pipeline.ops.op import ImageOp
from pixprep.plan.folding import MAX_RESIZED_PIXELS
from pixprep.plan.lowered import Lowered
from pixprep.plan.placement import ReducingGap
from pixprep.plan.sizes import PatchBudget, PatchRule, PixelBudget, Size, Sizer, Small
from pixprep.spec import Filter, ImageSpec, Like

Few = Annotated[int, Within(1, 64)]
Pixels = Annotated[int, Within(1, MAX_RESIZED_PIXELS, " pixels")]
Count = Annotated[int, Within(1, 1 << 20, " patches")]


class BySize(ImageOp, frozen=True, kw_only=True):
    """Base class of the ops that resize to a size that ``sizer`` computes. ``Resize`` describes the fields."""

    filter: Filter = "bilinear"
    antialias: bool | None = None
    like: Like = "pillow"

    def check(self) -> None:
        check_like(self)

    @property
    def sizer(self) -> Sizer:
        """Rule that computes the size of the result."""
        raise NotImplementedError

    @property
    def gap(self) -> ReducingGap | None:
        """Reduction of the decoded image before the resize, or None."""
        return None

    def infer(self, image: ImageSpec) -> ImageSpec:
        """Return the spec of the resized image, with the factors of its height and width."""
        image, bounds = resized(self, image), self.sizer.bounds
        if image.height is not None and image.width is not None:
            try:
                return replace(image.sized(*self.size_of(image.height, image.width)), multiples=bounds.multiples)
            except ImageError as error:
                raise PipelineError(error.detail) from None
        image = image.within(bounds.multiples, bounds.max_sides)
        return replace(image, multiples=bounds.multiples, max_pixels=bounds.max_pixels)

    def size_of(self, height: int, width: int) -> Size:
        """Return the size of the result, including its padding, for an image of this size."""
        return self.sizer.window(height, width)[2:]

    def lower(self, before: Lowered, image: ImageSpec, key: str) -> Lowered:
        sizer = self.sizer
        lowered = before.resized(resize_step(self, "both", 1, 1, sizer=sizer, gap=self.gap))
        if not sizer.pads:
            return lowered
        fill, color = (sizer.fill,), sizer.color
        if lowered.fill not in (None, fill):
            raise PipelineError(f"pads with {color}, but an earlier op pads with a different color: use {color} there")
        return replace(lowered, fill=fill)


class ResizeToPixels(BySize, frozen=True, kw_only=True, tag="resize_to_pixels"):
    """Resizes the image to a height and width that are multiples of a number, with a limited total number of pixels.

    The size equals that of ``smart_resize`` in Hugging Face transformers, in the processors of Qwen2-VL and related
    models. Each side is rounded to the nearest multiple, with ties to even. If the result has more than ``max_pixels``,
    both sides are scaled down by the same factor and rounded down. If it has fewer than ``min_pixels``, both sides are
    scaled up by the same factor and rounded up. An image whose longer side is more than ``max_ratio`` times as long as
    its shorter side is rejected.

    Args:
        multiple: Divisor of the height and the width of the result. It is the product of the model's patch size and
            merge size.
        min_pixels: Minimum number of pixels of the result.
        max_pixels: Maximum number of pixels of the result.
        frames: Number of identical frames as which the model processes an image, as in GLM-4.1V. ``min_pixels`` and
            ``max_pixels`` limit the total number of pixels of these frames. ``clip`` is the number of frames of the
            clip, as for Qwen3-VL.
        temporal_patch_size: Number of frames per patch, for ``"frames": "clip"``. To compare the number of pixels with
            the limits, the number of frames is rounded to a multiple of this number, with ties to even. Clips with
            fewer frames are rejected.
        small: Treatment of an image with a side shorter than ``multiple``. ``keep`` treats such an image like any other
            image. ``truncate`` (GLM-4.1V) and ``round`` (PaddleOCR-VL) first enlarge it so that both sides have at
            least ``multiple`` pixels, and truncate or round the length of the longer side.
        max_ratio: Maximum ratio of the longer side to the shorter side of an image.
        filter, antialias, like: as in ``resize``.

    Example:
        {"op": "resize_to_pixels", "multiple": 28, "min_pixels": 3136, "max_pixels": 1003520, "filter": "bicubic"}
    """

    multiple: Length
    min_pixels: Pixels = 1
    max_pixels: Pixels
    frames: Annotated[int, Within(1, 4096)] | Literal["clip"] = 1
    temporal_patch_size: Few = 1
    small: Small = "keep"
    max_ratio: Annotated[float, Within(1, MAX_SIDE)] = 200.0

    def check(self) -> None:
        super().check()
        if self.min_pixels > self.max_pixels:
            raise PipelineError(f'"min_pixels" {self.min_pixels} must not exceed "max_pixels" {self.max_pixels}')
        if self.temporal_patch_size > 1 and self.frames != "clip":
            raise PipelineError('"temporal_patch_size" requires "frames": "clip"')

    def infer(self, image: ImageSpec) -> ImageSpec:
        if self.frames != "clip":
            return super().infer(image)
        if image.frames is None:
            raise PipelineError('"frames": "clip" requires decode_video')
        image = super().infer(replace(image, height=None, width=None))  # the size depends on the number of frames
        return replace(image, max_clip_pixels=self.sizer.max_clip_pixels(image.frames or 1))

    @property
    def sizer(self) -> PixelBudget:
        frames = 0 if self.frames == "clip" else self.frames
        sizes = self.multiple, self.min_pixels, self.max_pixels, frames, self.small
        return PixelBudget(*sizes, self.max_ratio, self.temporal_patch_size)


class ResizeToPatches(BySize, frozen=True, kw_only=True, tag="resize_to_patches"):
    """Resizes the image to the largest size with a limited number of patches, keeping the aspect ratio.

    ``rule`` selects the formula of a family of models in Hugging Face transformers. All formulas scale both sides by
    the same factor:

    - ``naflex``: the factor is at most 100, and both sides are rounded up to multiples of the patch size (SigLIP 2).
    - ``gemma``: both sides are rounded down to multiples of a merge window (Gemma 4).
    - ``muse``: an image is never enlarged. Each side is rounded to the multiple of a merge window with which the
      aspect ratio changes least (Muse Glimmer).
    - ``kimi``: an image is never enlarged, and both sides are rounded down to integers. A ``pad`` to a multiple must
      follow (Kimi K2.5).
    - ``nemotron``: the number of patches is also at least ``min_patches``. Both sides are rounded to multiples of a
      merge window, up if the budget allows it, and the aspect ratio may change slightly (Nemotron 3 Omni).
    - ``glm5``: the number of patches is also at least ``min_patches``. The aspect ratio is kept exactly, and the image
      is padded with black pixels at the bottom and on the right to multiples of a merge window (GLM-5).
    - ``pix2struct``: both sides are rounded down to multiples of the patch size, and have at least one patch
      (Pix2Struct, Kosmos-2.5).

    Args:
        patch_size: Height and width of a patch in pixels.
        max_patches: Maximum number of patches.
        merge_size: Height and width of a merge window in patches. Not supported by ``naflex`` and ``pix2struct``.
        max_side: Maximum number of patches along each side. Required by ``kimi``, and not supported by other rules.
        min_patches: Minimum number of patches, for ``nemotron`` and ``glm5``.
        rule: Formula; see above.
        filter, antialias, like: as in ``resize``.

    Example:
        {"op": "resize_to_patches", "patch_size": 16, "max_patches": 256}
    """

    patch_size: Length
    max_patches: Count
    merge_size: Few = 1
    max_side: Count | None = None
    min_patches: Count | None = None
    rule: PatchRule = "naflex"

    def check(self) -> None:
        super().check()
        if self.rule in ("naflex", "pix2struct") and self.merge_size > 1:
            raise PipelineError(f'"merge_size" has no effect with "rule": "{self.rule}": remove it')
        if (self.rule == "kimi") != (self.max_side is not None):
            raise PipelineError('"max_side" is required with "rule": "kimi", and not supported with any other rule')
        if self.min_patches is not None and self.rule not in ("nemotron", "glm5"):
            raise PipelineError(f'"min_patches" has no effect with "rule": "{self.rule}": remove it')
        if self.max_patches < self.merge_size**2:
            raise PipelineError(f'"max_patches" must be at least {self.merge_size**2}, the patches of a merge window')

    @property
    def sizer(self) -> PatchBudget:
        return PatchBudget(
            self.patch_size, self.max_patches, self.rule, self.merge_size, self.max_side, self.min_patches or 1
        )
