"""Outputs for vision transformers: the patches of the image, the size of their grid, and the mask of patches."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from pixprep.errors import PipelineError
from pixprep.patch_layout import PatchLayout, PatchOrder
from pixprep.pipeline.ops.limits import Length
from pixprep.pipeline.ops.op import OutputOp
from pixprep.pipeline.ops.outputs import MAX_VALUES, NumbersOp
from pixprep.pipeline.ops.sizes import Count, Few
from pixprep.plan.lowered import Lowered
from pixprep.plan.output_plans import TensorPlan
from pixprep.spec import ImageSpec, Padding, TensorDType, TensorSpec


class PatchOp(OutputOp, frozen=True):
    """Base class of the outputs that depend on a grid of patches."""

    patch_size: Length
    merge_size: Few = 1
    max_patches: Count | None = None

    def grid_of(self, before: Lowered) -> PatchLayout:
        """Return the layout of the patches without checking the size of the image."""
        size = (self.patch_size, self.patch_size)
        return PatchLayout(size, len(before.channels), self.merge_size, fixed=self.max_patches)

    def layout_of(self, image: ImageSpec) -> PatchLayout:
        """Return the layout of the patches of an image.

        Raises:
            PipelineError: The image does not consist of complete patches, or has more than ``max_patches``.
        """
        if image.clips is not None:
            raise PipelineError('is not supported with "clips" of decode_video: add "clip" to select one of the clips')
        is_clip = image.frames is not None
        layout = PatchLayout((self.patch_size, self.patch_size), image.channels, self.merge_size, is_clip=is_clip)
        for side, multiple, name in zip(image.multiples, layout.multiples, ("height", "width"), strict=True):
            fixed = getattr(image, name)
            if (fixed or side) % multiple:
                actual = f"it is {fixed}" if fixed else f"it is only known to be a multiple of {side}"
                raise PipelineError(
                    f"the {name} of the image must be a multiple of patch_size * merge_size, {multiple}, but {actual}: "
                    "add resize_to_pixels or resize_to_patches, or a resize or pad to such a size"
                )
        if self.max_patches is not None and image.frames is not None:
            raise PipelineError('"max_patches" supports images, not clips: remove it')
        if self.max_patches is not None and self.max_count(image, layout) > self.max_patches:
            raise PipelineError(
                f'"max_patches" is {self.max_patches:,}, but an image may have {self.max_count(image, layout):,} '
                "patches: add resize_to_patches, or use a smaller size"
            )
        return replace(layout, fixed=self.max_patches)

    def max_count(self, image: ImageSpec, layout: PatchLayout) -> int:
        """Return the maximum number of patches of an image or clip.

        Raises:
            PipelineError: The number of patches does not have an upper bound.
        """
        if image.max_height is None or image.max_width is None:
            raise PipelineError("the number of patches has no upper bound: add resize_to_pixels or resize_to_patches")
        pixels = image.max_height * image.max_width
        pixels = pixels if image.max_pixels is None else min(pixels, image.max_pixels)
        count, area = layout.groups(image.frames or 1), layout.size[0] * layout.size[1]
        if image.max_clip_pixels is not None:
            return min(count * (pixels // area), image.max_clip_pixels // (area * layout.frames))
        return count * (pixels // area)


class Patches(PatchOp, frozen=True, tag="patches"):
    """Defines an output: the patches of the image, for vision transformers with a variable resolution.

    The shape is ``[patches, values]``, where the number of patches depends on the image, and a patch has ``3 *
    temporal_patch_size * patch_size * patch_size`` values. Both sides of the image must be multiples of ``patch_size *
    merge_size``. The resize writes its result directly into the tensor, without an additional copy.

    Args:
        patch_size: Height and width of a patch in pixels.
        merge_size: Height and width of a merge window in patches. The patches of a window are consecutive in the
            tensor, as the patch merger of Qwen2-VL requires. Windows, and patches within a window, are in row-major
            order.
        temporal_patch_size: Number of frames per patch. An image is repeated for each frame. The patches of a clip
            contain its frames in order. If necessary, the last frame is repeated to complete the last patches.
        max_patches: Fixed number of patches per tensor. If an image has fewer patches, its tensor is padded with zeros.
            Default: no padding.
        layout: Order of the values within a patch: ``chw`` (channel, frame, row, column), ``tchw`` (frame, channel,
            row, column) or ``hwc`` (frame, row, column, channel).
        flat: Whether the values of a patch form a single axis of the tensor. If false, the shape is ``[patches, 3 *
            temporal_patch_size, patch_size, patch_size]``, as PaddleOCR-VL expects. With ``hwc``, it is ``[patches,
            temporal_patch_size, patch_size, patch_size, 3]``; the second axis is omitted if its size is 1, as Inkling
            expects.
        numbered: Whether the row and the column of a patch, counted from 1, precede its values, as Pix2Struct expects.
            A patch then has two more values. This requires the dtype ``float32``, and an image instead of a clip. A GPU
            engine computes the tensor on the CPU.
        dtype: Dtype of the tensor. ``uint8`` does not support normalized images.

    Example:
        {"op": "patches", "patch_size": 14, "merge_size": 2, "temporal_patch_size": 2}
    """

    temporal_patch_size: Few = 1
    layout: PatchOrder = "chw"
    flat: bool = True
    numbered: bool = False
    dtype: TensorDType = "float32"

    def infer(self, image: ImageSpec) -> TensorSpec:
        if self.layout == "tchw" and not self.flat:
            raise PipelineError('"flat": false requires "layout": "chw" or "hwc"')
        if self.numbered and (not self.flat or self.merge_size > 1 or self.temporal_patch_size > 1):
            raise PipelineError('"numbered" requires "flat": true, "merge_size": 1 and "temporal_patch_size": 1')
        if self.numbered and (self.dtype != "float32" or image.frames is not None):
            raise PipelineError('"numbered" requires "dtype": "float32", and an image instead of a clip')
        if self.dtype == "uint8" and image.values != "levels":
            raise PipelineError("uint8 cannot represent normalized values: use float32 or float16, or remove normalize")
        largest = max(abs(image.low), abs(image.high))
        if largest > MAX_VALUES[self.dtype]:
            raise PipelineError(f"values up to {largest:g} exceed the range of {self.dtype}")
        layout = replace(self.layout_of(image), frames=self.temporal_patch_size, layout=self.layout, is_flat=self.flat)
        layout = replace(layout, is_numbered=self.numbered)
        max_patches = layout.fixed or self.max_count(image, layout)
        high = max(image.high, float(max_patches)) if self.numbered else image.high
        is_fixed = layout.fixed or not (image.height is None or image.width is None or image.is_frames_open)
        return TensorSpec(
            shape=(max_patches if is_fixed else -1, *layout.shape),
            most=() if is_fixed else (max_patches, *layout.shape),
            dtype=self.dtype,
            low=image.low,
            high=high,
            padding=Padding((0.0,)),
            patches=layout,
        )

    def lower(self, before: Lowered, spec: TensorSpec) -> TensorPlan:
        return before.tensor(spec)

    def described(self, image: ImageSpec, before: Lowered) -> str:
        return f"output the image as {self.dtype} {self.infer(image).patches}"


class PatchGrid(PatchOp, NumbersOp, frozen=True, tag="patch_grid"):
    """Defines an output: the number of patches of the image along each axis, without padding.

    With ``"order": "thw"``, the output corresponds to ``image_grid_thw`` and ``video_grid_thw`` of Qwen2-VL and related
    models. With ``hw``, the output corresponds to ``spatial_shapes`` of SigLIP 2.

    Args:
        patch_size, merge_size, max_patches, temporal_patch_size: as in ``patches``.
        order: Order of the numbers: ``hw`` is ``[rows, columns]``, ``wh`` is ``[columns, rows]``, ``h`` is
            ``[rows]``, ``w`` is ``[columns]``, and ``thw`` is ``[patches along the time axis, rows, columns]``. The
            first number of ``thw`` is 1 for an image.
        dtype: Dtype of the output.

    Example:
        {"op": "patch_grid", "patch_size": 14, "merge_size": 2, "order": "thw"}
    """

    order: Literal["hw", "wh", "h", "w", "thw"] = "hw"
    dtype: Literal["int64", "int32"] = "int64"
    temporal_patch_size: Few = 1

    def grid_of(self, before: Lowered) -> PatchLayout:
        return replace(super().grid_of(before), frames=self.temporal_patch_size)

    def infer(self, image: ImageSpec) -> TensorSpec:
        self.layout_of(image)
        return TensorSpec(shape=(len(self.order),), dtype=self.dtype, low=1, high=65535)


class PatchMask(PatchOp, NumbersOp, frozen=True, tag="patch_mask"):
    """Defines an output: a mask that is 1 for each patch of the image, and 0 for each patch of padding.

    The output corresponds to ``pixel_attention_mask`` of SigLIP 2.

    Args:
        patch_size, merge_size: as in ``patches``.
        max_patches: Fixed number of patches per tensor, as in ``patches``. This field is required.
        dtype: Dtype of the output.

    Example:
        {"op": "patch_mask", "patch_size": 16, "max_patches": 256}
    """

    dtype: Literal["int64", "int32", "float32"] = "int32"

    def check(self) -> None:
        if self.max_patches is None:
            raise PipelineError('requires "max_patches", the number of patches of every tensor')

    def infer(self, image: ImageSpec) -> TensorSpec:
        layout = self.layout_of(image)
        assert layout.fixed is not None
        return TensorSpec(shape=(layout.fixed,), dtype=self.dtype, low=0, high=1)
