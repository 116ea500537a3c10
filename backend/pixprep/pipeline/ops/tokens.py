"""Outputs that a language model needs with the patches of an image: their positions and the number of image tokens."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from pixprep.errors import PipelineError
from pixprep.patch_layout import PatchLayout
from pixprep.pipeline.ops.op import OutputOp
from pixprep.pipeline.ops.outputs import NumbersOp
from pixprep.pipeline.ops.patches import PatchOp
from pixprep.pipeline.ops.sizes import Few
from pixprep.plan.lowered import Lowered
from pixprep.plan.output_plans import NumbersPlan, TensorPlan
from pixprep.plan.profiles.windows import multiply_add
from pixprep.plan.steps.operators import Operator, operator
from pixprep.spec import ImageSpec, TensorSpec

MAX_COLOR = 1e6
MAX_COLORS = 1 << 12
_PIXELS_AT_ONCE = 1 << 10
"""Number of pixels for which the distances to all colors are computed at once, to limit the memory use."""


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


class SecondsPerPatch(NumbersOp, frozen=True, tag="seconds_per_patch"):
    """Defines an output: the duration in seconds of a patch of a clip, float32 ``[1]``.

    It is ``temporal_patch_size`` divided by the number of selected frames per second of the clip, as in
    ``second_per_grid_ts`` of Qwen2.5-VL. The length of the clip is the number of its frames, divided by the frame rate
    that its container specifies.

    Args:
        temporal_patch_size: Number of frames per patch, as in ``patches``.

    Example:
        {"op": "seconds_per_patch", "temporal_patch_size": 2, "name": "second_per_grid_ts"}
    """

    temporal_patch_size: Few = 1

    def infer(self, image: ImageSpec) -> TensorSpec:
        if image.frames is None or image.clips is not None:
            raise PipelineError('requires decode_video without "clips"')
        return TensorSpec(shape=(1,), dtype="float32", low=0, high=float(2**31))

    def lower(self, before: Lowered, spec: TensorSpec) -> NumbersPlan:
        return replace(super().lower(before, spec), values=(self.temporal_patch_size,))


class TokenCount(PatchOp, NumbersOp, frozen=True, tag="token_count"):
    """Defines an output: the number of image tokens, ``[1]``, which equals the number of merge windows of the image.

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


class ColorIds(OutputOp, frozen=True, tag="color_ids"):
    """Defines an output: the index of the nearest color of a palette for each pixel, int64 ``[height * width]``.

    The pixels are in row-major order, and the distance is Euclidean. If several colors have the same distance, the
    first one is chosen. The op reproduces ``input_ids`` of the image processor of ImageGPT in transformers. The size of
    the image must be fixed. A GPU engine computes this output on the CPU.

    Args:
        colors: Colors of the palette, 1 to 4096 lists with one number per channel, in the units and in the channel
            order of the image at this op. After ``normalize``, they are normalized values.
        arithmetic: Arithmetic of the squared distance ``|a|^2 - 2 a b + |b|^2``. ``float32`` reproduces PyTorch on
            processors with AVX-512, where ``a b`` is computed by fused multiply-adds. ``float64`` reproduces NumPy.

    Example:
        {"op": "color_ids", "colors": [[0, 0, 0], [255, 255, 255], [255, 0, 0]]}
    """

    description = "output the index of the nearest of the given colors for each pixel"

    colors: tuple[tuple[float, float, float], ...]
    arithmetic: Literal["float32", "float64"] = "float32"

    def check(self) -> None:
        if not 1 <= len(self.colors) <= MAX_COLORS:
            raise PipelineError(f'"colors" must have 1 to {MAX_COLORS} colors, not {len(self.colors)}')
        if not all(len(color) == 3 and all(abs(each) <= MAX_COLOR for each in color) for color in self.colors):
            raise PipelineError(
                f'every color in "colors" must consist of three numbers from {-MAX_COLOR:g} to {MAX_COLOR:g}'
            )

    def infer(self, image: ImageSpec) -> TensorSpec:
        """Return the spec of the tensor from which the indices are computed."""
        if image.height is None or image.width is None or image.frames is not None or image.channels != 3:
            raise PipelineError("requires an image of a fixed size with three channels, such as after a resize")
        shape = (3, image.height, image.width)
        return TensorSpec(shape=shape, dtype="float32", layout="chw", low=image.low, high=image.high)

    def lower(self, before: Lowered, spec: TensorSpec) -> TensorPlan:
        _, height, width = spec.shape
        call = _operator(self.colors, height * width, self.arithmetic == "float32").use({})
        return replace(before.tensor(spec), calls=(call,))


@dataclass(frozen=True, eq=False)
class _Palette(Operator):
    """Built-in operator on a tensor, which returns the indices of the nearest colors.

    Attributes:
        arguments: Arguments with which ``_operator`` is called again when the operator is unpickled.
    """

    arguments: tuple[Any, ...] = ()

    def __reduce__(self) -> tuple[Any, Any]:
        return _operator, self.arguments


@lru_cache(16)
def _operator(colors: tuple[tuple[float, ...], ...], pixels: int, is_single: bool) -> Operator:
    """Return the operator for a tensor with this number of pixels, cached so that plans compare equal."""

    @operator("pixprep.color_ids", version=1, place="tensor", shape=(pixels,), dtype="int64")
    def color_ids(values: npt.NDArray[np.float32]) -> npt.NDArray[np.int64]:
        return nearest_colors(values, colors=colors, is_single=is_single)

    return _Palette(**vars(color_ids), arguments=(colors, pixels, is_single))


def nearest_colors(
    values: npt.NDArray[np.float32], *, colors: tuple[tuple[float, ...], ...], is_single: bool
) -> npt.NDArray[np.int64]:
    """Return the index of the nearest color for each pixel, int64 (height * width,).

    Args:
        values: Image, float32 (3, height, width).
        colors: Colors with one number per channel.
        is_single: Whether to compute in float32, as PyTorch does, instead of float64.
    """
    palette: npt.NDArray[Any] = np.array(colors, np.float32 if is_single else np.float64)
    pixels = values.reshape(3, -1).T
    norms = [(each[:, 0] ** 2 + each[:, 1] ** 2) + each[:, 2] ** 2 for each in (pixels, palette)]
    ids = np.empty(len(pixels), np.int64)
    for begin in range(0, len(pixels), _PIXELS_AT_ONCE):
        part = slice(begin, begin + _PIXELS_AT_ONCE)
        products = _fused_products(pixels[part], palette) if is_single else pixels[part].astype(np.float64) @ palette.T
        ids[part] = (norms[0][part, None] - 2 * products + norms[1]).argmin(axis=1)
    return ids


def _fused_products(pixels: npt.NDArray[np.float32], palette: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Return the scalar products of pixels and colors, (pixels, colors), with fused multiply-adds."""
    products: npt.NDArray[np.float32] = pixels[:, :1] * palette[:, 0]
    for channel in (1, 2):
        products = multiply_add(pixels[:, channel, None], palette[:, channel], products)
    return products
