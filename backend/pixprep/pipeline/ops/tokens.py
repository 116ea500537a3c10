"""Outputs that a language model needs with the patches of an image: their positions and the number of image tokens."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from pixprep.errors import PipelineError
from pixprep.patch_layout import PatchLayout
from pixprep.pipeline.ops.outputs import NumbersOp
from pixprep.pipeline.ops.patches import PatchOp
from pixprep.pipeline.ops.sizes import Few
from pixprep.plan.lowered import Lowered
from pixprep.spec import ImageSpec, TensorSpec


class PatchPositions(PatchOp, NumbersOp, frozen=True, tag="patch_positions"):
    """Defines an output: the position of each patch in the grid, ``[max_patches, 2]``, and -1 for padding.

    The output corresponds to ``image_position_ids`` of Gemma 4.

    Args:
        patch_size, merge_size: as in ``patches``.
        max_patches: Fixed number of patches per tensor, as in ``patches``. This field is required.
        order: Order of the numbers: ``xy`` is ``[column, row]``, and ``yx`` is ``[row, column]``.
        dtype: Dtype of the output.

    Example:
        {"op": "patch_positions", "patch_size": 16, "max_patches": 2520}
    """

    order: Literal["xy", "yx"] = "xy"
    dtype: Literal["int64", "int32"] = "int64"

    def check(self) -> None:
        if self.max_patches is None:
            raise PipelineError('needs "max_patches", the number of patches of every tensor')

    def infer(self, image: ImageSpec) -> TensorSpec:
        layout = self.layout_of(image)
        assert layout.fixed is not None
        return TensorSpec(shape=(layout.fixed, 2), dtype=self.dtype, low=-1, high=65535)


class TokenCount(PatchOp, NumbersOp, frozen=True, tag="token_count"):
    """Defines an output: the number of image tokens, which is the number of merge windows of the image, ``[1]``.

    A prompt contains this number of placeholders for the image. For Gemma 4, the output corresponds to
    ``num_soft_tokens_per_image``.

    Args:
        patch_size, merge_size, max_patches, temporal_patch_size: as in ``patches``.
        dtype: Dtype of the output.

    Example:
        {"op": "token_count", "patch_size": 14, "merge_size": 2}
    """

    dtype: Literal["int64", "int32"] = "int64"
    temporal_patch_size: Few = 1

    def grid_of(self, before: Lowered) -> PatchLayout:
        return replace(super().grid_of(before), frames=self.temporal_patch_size)

    def infer(self, image: ImageSpec) -> TensorSpec:
        self.layout_of(image)
        return TensorSpec(shape=(1,), dtype=self.dtype, low=1, high=2**31 - 1)
