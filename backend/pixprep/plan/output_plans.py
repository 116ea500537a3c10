"""Plans of the outputs: tensors and their arithmetic, sizes and scales, optical flow, boxes, points and masks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from pixprep.errors import PipelineError
from pixprep.patch_layout import PatchLayout
from pixprep.plan.draws.philox import F64
from pixprep.plan.folding import Geometry
from pixprep.plan.geometry_steps import traits
from pixprep.plan.placement import Placement
from pixprep.plan.steps.operators import Extern
from pixprep.spec import BoxFormat, MaskDType, Own, Preset, TensorSpec


@dataclass(frozen=True)
class Affine:
    """Computes ``value * scale + offset`` per channel in float64."""

    scale: tuple[float, ...]
    offset: tuple[float, ...]


@dataclass(frozen=True)
class Float32:
    """Computes ``value - x``, ``value * x`` or ``value / x`` per channel, where value, x and the result are float32."""

    operation: Literal["subtract", "multiply", "divide"]
    by: tuple[float, ...]


@dataclass(frozen=True)
class ByOwn:
    """Computes ``(level / own - mean) / std`` per channel in float64; ``own`` is a statistic of the image itself.

    Attributes:
        number: Statistic: the maximum pixel value of all channels, or the mean of all; 1 replaces 0.
    """

    number: Own
    mean: tuple[float, ...]
    std: tuple[float, ...]


ArithmeticStep = Affine | Float32 | ByOwn


_FLOAT32_OPERATIONS: dict[str, Any] = {"subtract": np.subtract, "multiply": np.multiply, "divide": np.divide}


@dataclass(frozen=True, kw_only=True)
class TensorPlan:
    """Plan of one tensor of an image, or the plan of one frame's part of a tensor.

    Attributes:
        spec: Spec of the tensor.
        geometry: Geometry, which determines where each pixel samples the image.
        fill: Pixel value of each channel of the padding, in the order of ``channels``.
        channels: Decoded channel of each channel of the tensor: (0, 1, 2) RGB, (2, 1, 0) BGR, (0,) gray.
        arithmetic: Steps that compute the value, in this order.
        calls: Operators that then receive the tensor in order; ``spec`` is that of the tensor for the first operator.
        is_real: Whether the resize returns float32 instead of uint8, so that the arithmetic applies to every value.
    """

    spec: TensorSpec
    geometry: Geometry
    fill: tuple[int, ...]
    channels: tuple[int, ...]
    arithmetic: tuple[ArithmeticStep, ...]
    calls: tuple[Extern, ...] = ()

    def __post_init__(self) -> None:
        """Reject arithmetic that overflows, or maps all pixel values to one.

        Every step is monotonic, so a check of black and white is sufficient.

        Raises:
            PipelineError: A step leaves the range of its type.
        """
        ends: npt.NDArray[Any] = np.tile(np.array([0, 255], np.float32), (len(self.channels), 1))
        for index, step in enumerate(self.arithmetic, 1):
            dtype = self.spec.dtype if index == len(self.arithmetic) else "float32"
            with np.errstate(all="ignore"):
                ends = _done(step, ends.astype(np.float32), 255.0).astype(dtype)
            if not np.isfinite(ends).all():
                raise PipelineError(f"normalize: a step of its arithmetic leaves the range of {dtype}")
            difference = abs(np.subtract(*ends.T.astype(np.float64))).min()
            if difference < np.finfo(dtype).tiny:
                raise PipelineError(
                    f"normalize: black and white differ by {difference:.2g} in {dtype}, so that every pixel would "
                    'become the same value: choose a larger "scale", or a smaller "mean" or "std"'
                )

    @property
    def operators(self) -> tuple[Extern, ...]:
        """All uses of an operator in order."""
        return (*(step for step in self.geometry.levels if isinstance(step, Extern)), *self.calls)

    @property
    def is_hosts(self) -> bool:
        """Tell whether the host runs the plan because of an operator, or a step for which the GPU lacks a kernel."""
        is_any = any(each.is_hosts for each in traits(*self.geometry.levels))
        return is_any or bool(self.operators or self.geometry.photo or self.spec.patches)

    @property
    def frame(self) -> TensorPlan:
        """The plan of one frame; for an image, the plan itself."""
        lengths = self.spec.lengths
        if "t" not in lengths:
            return self
        layout = "".join(axis for axis in lengths if axis not in "t1")
        shape = tuple(lengths[axis] for axis in layout)
        return replace(self, spec=replace(self.spec, shape=shape, layout=layout))

    @property
    def is_real(self) -> bool:
        """Tell whether the resize returns float32 values."""
        return self.geometry.resize is not None and self.geometry.resize.is_real

    @property
    def own(self) -> Own | None:
        """The statistic of the image's own pixel values that the tensor depends on."""
        return next((step.number for step in self.arithmetic if isinstance(step, ByOwn)), None)

    @property
    def has_canvas(self) -> bool:
        """Tell whether a whole image is made first, because steps change or measure its pixel values."""
        return bool(self.geometry.levels or self.own)

    @property
    def table(self) -> npt.NDArray[np.generic]:
        """Table (channels, 256) of the tensor's value for each pixel value, in the tensor's dtype.

        It applies to an image with the statistic 255.
        """
        return self.table_of(255.0)

    def table_of(self, own: float) -> npt.NDArray[np.generic]:
        """Return the same table for an image with this statistic."""
        return self.values(np.tile(np.arange(256, dtype=np.float32), (len(self.channels), 1)), own)

    @property
    def lines(self) -> npt.NDArray[np.float64]:
        """Scale and offset of the last ``Affine`` per channel, (channels, 2).

        They define the table if it is the only step.
        """
        count = len(self.channels)
        none = Affine((1.0,) * count, (0.0,) * count)
        *_, last = [none, *(step for step in self.arithmetic if isinstance(step, Affine))]
        return np.stack([last.scale, last.offset], axis=1)

    def values(self, levels: npt.NDArray[np.float32], own: float = 255.0) -> npt.NDArray[np.generic]:
        """Return the tensor's values in its dtype.

        Args:
            levels: Pixel values, float32 (channels, ...), 0 to 255, in the order of the tensor's channels.
            own: Statistic of the image's own pixel values.

        Every step but the last rounds to float32; the last result is rounded to the dtype.
        """
        values: npt.NDArray[Any] = levels
        for step in self.arithmetic:
            values = _done(step, values.astype(np.float32), own)
        result: npt.NDArray[np.generic] = values.astype(self.spec.dtype)
        return result


_OWN = {"max": "the image's greatest level", "mean": "the mean of the image's levels"}
_SIGNS = {"subtract": "-", "multiply": "*", "divide": "/"}


def formula(arithmetic: Sequence[ArithmeticStep], channel: int) -> str:
    """Return the formula of a value as text, such as ``(level / 255 - 0.485) / 0.229, in float32``."""
    text, is_sum = "level", False
    for step in arithmetic:
        if is_sum and not (isinstance(step, Float32) and step.operation == "subtract"):
            text = f"({text})"
        if isinstance(step, Affine):
            scale, offset = step.scale[channel], step.offset[channel]
            text += f" * {scale:.6g}" if scale != 1 else ""
            text += f" {'+' if offset > 0 else '-'} {abs(offset):.6g}" if offset else ""
        elif isinstance(step, ByOwn):
            mean, std = step.mean[channel], step.std[channel]
            text += f" / {_OWN[step.number]}" + (f" - {mean:.6g}" if mean else "")
            text = (f"({text})" if mean else text) + f" / {std:.6g}" if std != 1 else text
        else:
            text += f" {_SIGNS[step.operation]} {step.by[channel]:.6g}"
        is_sum = isinstance(step, Affine) or (isinstance(step, Float32) and step.operation == "subtract")
    return text + (", in float32" if any(isinstance(step, Float32) for step in arithmetic) else "")


def _done(step: ArithmeticStep, values: npt.NDArray[Any], own: float) -> npt.NDArray[Any]:
    """Apply a step to float32 values with the channels in the first axis.

    ``Float32`` returns float32, and the other steps return float64.
    """
    shape = (-1,) + (1,) * (values.ndim - 1)
    if isinstance(step, Affine):
        scale, offset = (np.array(x).reshape(shape) for x in (step.scale, step.offset))
        values = values.astype(np.float64) * scale + offset
    elif isinstance(step, ByOwn):
        mean, std = (np.array(x).reshape(shape) for x in (step.mean, step.std))
        values = (values.astype(np.float64) / own - mean) / std
    else:
        by = np.array(step.by, np.float32).reshape(shape)
        values = _FLOAT32_OPERATIONS[step.operation](values, by)
    return values


_MEANINGS = {
    "original_size": "of the decoded image",
    "image_size": "of the image here",
    "scale_factor": "here = decoded * scale",
    "transform": "here = decoded * scale + offset",
    "patch_grid": "number of patches along each axis",
    "patch_mask": "1 for each patch of the image, 0 for padding",
    "patch_positions": "position in the grid of patches, -1 for padding",
    "token_count": "number of image tokens, one per merge window",
    "tile_count": "number of tiles, with the thumbnail",
}
PatchKind = Literal["patch_grid", "patch_mask", "patch_positions", "token_count", "tile_count"]
NumbersKind = Literal["original_size", "image_size", "scale_factor", "transform"] | PatchKind


@dataclass(frozen=True, kw_only=True)
class NumbersPlan:
    """An output of a few numbers that the placement of an image determines.

    Attributes:
        kind: Numbers of the output: the size of the decoded image, the current size, or the scale or the whole
            transform between the two.
        geometry: Geometry of the current image; None: The output describes the decoded image.
        is_x_first: Whether the width, or the scale of x, comes first.
        channels: Number of channels as the last number; 0: The output does not contain it.
        patches: Layout of the patches, for numbers of a grid of patches.
    """

    spec: TensorSpec
    kind: NumbersKind
    geometry: Geometry | None = None
    is_x_first: bool = False
    channels: int = 0
    patches: PatchLayout | None = None

    @property
    def words(self) -> tuple[str, ...]:
        """The name of each number."""
        if self.kind == "patch_grid":
            return ("frames", "rows", "columns")[-self.spec.shape[0] :]
        if self.kind == "patch_positions":
            return ("column", "row")[:: 1 if self.is_x_first else -1]
        if self.kind in ("patch_mask", "token_count", "tile_count"):
            return (self.kind.removeprefix("patch_").replace("_", " "),)
        if self.spec.shape == (3, 3):
            return tuple(f"row {row + 1}" for row in range(3))
        if self.kind == "transform":
            return "scale_y", "scale_x", "offset_y", "offset_x"
        words = ("scale_y", "scale_x") if self.kind == "scale_factor" else ("height", "width")
        words = words[::-1] if self.is_x_first else words
        return (*words, "channels") if self.channels else words

    @property
    def meaning(self) -> str:
        """Description of the numbers."""
        return f"{', '.join(self.words)}: {_MEANINGS[self.kind]}"

    def numbers(self, height: int, width: int, placement: Placement | None) -> tuple[float, ...] | F64:
        """Return the numbers of an image of this size; ``placement`` is its position in the geometry."""
        numbers: tuple[float, ...] = (height, width)
        if placement is not None and self.patches is not None:
            return self._of_patches(self.patches, *placement.size)
        if placement is not None and self.spec.shape == (3, 3):
            return placement.matrix
        if placement is not None:
            (scale_x, _, offset_x), (_, scale_y, offset_y), _ = placement.matrix.tolist()
            whole = (scale_y, scale_x, offset_y, offset_x)
            numbers = placement.size if self.kind == "image_size" else whole[: len(self.words)]
        numbers = numbers[::-1] if self.is_x_first else numbers
        return (*numbers, self.channels) if self.channels else numbers

    def _of_patches(self, patches: PatchLayout, height: int, width: int) -> tuple[float, ...] | F64:
        """Return the numbers of a grid of patches, for an image of this size."""
        if self.kind == "patch_grid":
            return (1, *patches.grid(height, width))[-self.spec.shape[0] :]
        if self.kind == "tile_count":
            return (patches.total(height, width),)
        count = patches.count(height, width)
        if self.kind == "token_count":
            return (count // patches.merge**2,)
        if self.kind == "patch_positions":
            rows, columns = np.indices(patches.grid(height, width)).reshape(2, -1)
            positions = np.full(self.spec.shape, -1.0)
            positions[:count] = np.stack((columns, rows) if self.is_x_first else (rows, columns), axis=1)
            return positions
        return (1,) * count + (0,) * (self.spec.shape[0] - count)


@dataclass(frozen=True, kw_only=True)
class FlowPlan:
    """An output that is the optical flow between the frames of a clip.

    Attributes:
        frames: Plan of the frames' tensor: uint8, thwc.
        preset: Preset of OpenCV's DIS.
    """

    spec: TensorSpec
    frames: TensorPlan
    preset: Preset

    @property
    def geometry(self) -> Geometry:
        """Geometry of the frames."""
        return self.frames.geometry


OutputPlan = TensorPlan | NumbersPlan | FlowPlan


OF_EACH_BOX = ("labels", "ids", "area", "iscrowd", "difficult", "truncated", "visible", "points")
"""Fields of a sample that have one value per box. Fields whose names begin with ``box_`` have one as well."""


@dataclass(frozen=True, kw_only=True)
class BoxesPlan:
    """An output of a sample's boxes; the fields are those of the op ``boxes``."""

    field: ClassVar[str] = "boxes"
    geometry: Geometry
    format: BoxFormat
    normalized: bool
    clip: bool
    min_size: float
    min_visible: float
    min_area: float = 0.0
    pad: int | None
    follow: tuple[str, ...] = ()

    def takes_along(self, name: str) -> bool:
        """Tell whether a field of a sample has one value per box, which is kept or dropped with the box."""
        return name in OF_EACH_BOX or name.startswith("box_") or name in self.follow


@dataclass(frozen=True, kw_only=True)
class PointsPlan:
    """An output of a sample's points; the fields are those of the op ``points``."""

    field: ClassVar[str] = "points"
    geometry: Geometry
    flip_pairs: tuple[tuple[int, int], ...] = ()
    normalized: bool
    clip: bool
    pad: int | None


@dataclass(frozen=True, kw_only=True)
class MaskPlan:
    """An output of a sample's segmentation map or its object masks.

    Attributes:
        geometry: Geometry of the current image.
        field: Field of the sample: ``mask`` (height, width), or ``masks`` (n, height, width), which are kept with the
            boxes.
        ignore: Label of the padding.
        dtype: Type of the result.
        is_one_size: Whether all images have the same size here.
    """

    geometry: Geometry
    field: Literal["mask", "masks"]
    ignore: int
    dtype: MaskDType
    is_one_size: bool


AnnotationPlan = BoxesPlan | PointsPlan | MaskPlan
"""An output that is made of a sample's annotation instead of by the engine."""
