"""Defines the plans of a pipeline's outputs: tensors, sizes and scales, optical flow, boxes, points and masks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Literal, cast

import numpy as np
import numpy.typing as npt

from pixprep.bfloat16 import MIN_BFLOAT16, to_bfloat16
from pixprep.errors import PipelineError
from pixprep.patch_layout import PatchLayout, ViewLayout
from pixprep.plan.draws.philox import F64
from pixprep.plan.folding import Geometry
from pixprep.plan.geometry_steps import Resize, traits
from pixprep.plan.placement import Placement
from pixprep.plan.profiles import PROFILES
from pixprep.plan.steps.arithmetic import EXAMPLE, Affine, ArithmeticStep, Statistic, formula, statistic_of
from pixprep.plan.steps.operators import Extern
from pixprep.plan.steps.step import Traits
from pixprep.plan.tile_grids import TileGrid
from pixprep.spec import NO_PADDING, BoxFormat, Luma, MaskDType, Own, Preset, TargetDType, TensorSpec


@dataclass(frozen=True, kw_only=True)
class TensorPlan:
    """Plan of a tensor. For a clip, ``frame`` is the plan of the slice of the tensor that contains a single frame.

    Attributes:
        spec: Spec of the tensor. If there are ``calls``, it is the spec of the input of the first call.
        geometry: Geometry, which determines the position in the image that each pixel of the tensor samples.
        fill: Pixel value of the padding per channel, in the order of ``channels``.
        channels: Index of the decoded channel for each channel of the tensor: (0, 1, 2) for RGB, (2, 1, 0) for BGR,
            (0,) for gray, (0, 1, 2, 3) for RGB with alpha.
        arithmetic: Steps that convert pixel values to tensor values, in this order.
        fill_value: Tensor value of the padding per channel, instead of ``fill``, or None.
        luma: Library whose arithmetic converts the values to gray after ``arithmetic``, or None.
        calls: Calls of custom operators that are applied to the tensor after the arithmetic, in this order.
    """

    spec: TensorSpec
    geometry: Geometry
    fill: tuple[int, ...]
    channels: tuple[int, ...]
    arithmetic: tuple[ArithmeticStep, ...]
    fill_value: tuple[float, ...] | None = None
    luma: Luma | None = None
    calls: tuple[Extern, ...] = ()

    def __post_init__(self) -> None:
        """Check that the arithmetic neither overflows nor maps all pixel values to the same value.

        Every step is monotonic, so it is sufficient to check the pixel values 0 and 255.

        Raises:
            PipelineError: A result is out of the range of its dtype, or 0 and 255 are mapped to nearly the same value.
        """
        if self.luma is not None and self.spec.dtype != "float32":
            raise PipelineError('normalize: "luma" requires a tensor with "dtype": "float32"')
        if self.spec.dtype == "bfloat16" and (self.own or self.calls or self.geometry.erasures):
            raise PipelineError(
                'a tensor with "dtype": "bfloat16" does not support random_erasing, operators on tensors, or '
                'normalize with "scale": "max" or "mean": use "float32" or "float16"'
            )
        ends: npt.NDArray[Any] = np.tile(np.array([0, 255], np.float32), (len(self.channels), 1))
        for index, step in enumerate(self.arithmetic, 1):
            dtype = self.spec.dtype if index == len(self.arithmetic) else "float32"
            with np.errstate(all="ignore"):
                ends = step.of(ends.astype(np.float32), EXAMPLE)
                ends = to_bfloat16(ends) if dtype == "bfloat16" else ends.astype(dtype)
            if not np.isfinite(ends).all():
                raise PipelineError(f"normalize: an intermediate result exceeds the range of {dtype}")
            difference = abs(np.subtract(*ends.T.astype(np.float64))).min()
            if difference < (MIN_BFLOAT16 if dtype == "bfloat16" else np.finfo(dtype).tiny):
                raise PipelineError(
                    f"normalize: black and white differ by only {difference:.2g} in {dtype}, so all pixels would have "
                    'the same value: choose a larger "scale", or a smaller "mean" or "std"'
                )

    @property
    def operators(self) -> tuple[Extern, ...]:
        """All calls of custom operators in order: first the calls on pixel values, then the calls on the tensor."""
        return (*cast("list[Extern]", [step for step in self.geometry.levels if step.is_call]), *self.calls)

    @property
    def unsupported_by_cuda(self) -> tuple[str, ...]:
        """Names of the parts of the plan that have no CUDA kernel.

        If there are any, the CPU decodes the images and computes all tensors, even if the device is a GPU.
        """
        thumbnail = self.geometry.thumbnail
        steps = [*self.geometry.photo, *self.geometry.levels, *(thumbnail.levels if thumbnail else ())]
        steps = [step for step in steps if not isinstance(step, Resize)]  # a resize runs in separate kernels
        found = [_name(each) for each in traits(*steps) if each.is_hosts]
        resize = self.geometry.resize
        found += [f'"like": "{resize.like}"'] if resize is not None and PROFILES[resize.like].reads_all else []
        found += ["standardize"] * ("standardize" in (self.own, resize and statistic_of(resize.arithmetic)))
        found += ["numbered patches"] * (self.spec.patches is not None and self.spec.patches.is_numbered)
        found += ["luma"] * (self.luma is not None)
        found += ["alpha"] * (3 in self.channels)
        last = thumbnail.levels[-1] if thumbnail and thumbnail.levels else None
        found += ["thumbnail of values"] * (isinstance(last, Resize) and PROFILES[last.like].takes_real)
        is_rounded = self.spec.dtype == "bfloat16" or any(step.operation == "bfloat16" for step in self.arithmetic)
        found += ["bfloat16"] * (is_rounded and self.is_real)
        found += ["reducing_gap"] * (resize is not None and resize.gap is not None)
        found += [f"the operator {each.operator}" for each in self.operators]
        return tuple(dict.fromkeys(found))

    @property
    def frame(self) -> TensorPlan:
        """Plan of a single frame of a clip. For an image, this property is the plan itself."""
        lengths = self.spec.lengths
        if "t" not in lengths:
            return self
        layout = "".join(axis for axis in lengths if axis not in "nt1")
        shape = tuple(lengths[axis] for axis in layout)
        return replace(self, spec=replace(self.spec, shape=shape, layout=layout))

    @property
    def is_real(self) -> bool:
        """Whether the resize returns float32 instead of uint8, so that the arithmetic must be applied to each value."""
        return self.geometry.resize is not None and self.geometry.resize.is_real

    @cached_property
    def resized_values(self) -> npt.NDArray[np.float32] | None:
        """Look-up table from pixel values to the values that the resize receives, float32 (4, 256).

        A row belongs to a decoded channel. Rows of channels that the tensor does not have are 0. None means that the
        resize receives the pixel values. If the values depend on a statistic of the image, the table is that of the
        statistic ``EXAMPLE``.
        """
        return self.resized_values_of(EXAMPLE)

    def resized_values_of(self, own: Statistic) -> npt.NDArray[np.float32] | None:
        """Return ``resized_values`` for an image whose statistic is ``own``."""
        resize = self.geometry.resize
        if resize is None or not PROFILES[resize.like].takes_real:
            return None
        values = np.tile(np.arange(256, dtype=np.float32), (len(self.channels), 1))
        for step in resize.arithmetic:
            values = step.of(values, own).astype(np.float32)
        table = np.zeros((4, 256), np.float32)
        table[list(self.channels)] = values
        return table

    @property
    def is_premultiplied(self) -> bool:
        """Whether the colors are multiplied by alpha during the resize."""
        resize = self.geometry.resize
        is_rgba = 3 in self.channels and resize is not None and resize.filter != "nearest"
        return is_rgba and resize is not None and PROFILES[resize.like].alpha == "premultiplied"

    @property
    def own(self) -> Own | None:
        """Statistic of the image that the arithmetic uses, or None if it does not use a statistic."""
        return statistic_of(self.arithmetic)

    @property
    def has_canvas(self) -> bool:
        """Whether the canvas is first computed as a uint8 image, because later steps change or measure the canvas."""
        return bool(self.geometry.levels or self.own)

    @property
    def table(self) -> npt.NDArray[np.generic]:
        """Look-up table from pixel values to tensor values, (channels, 256), in the ``array_dtype`` of the tensor.

        If the arithmetic uses a statistic of the image, the table is that of the statistic ``EXAMPLE``.
        """
        return self.table_of(EXAMPLE)

    def table_of(self, own: Statistic) -> npt.NDArray[np.generic]:
        """Return the look-up table for an image whose statistic is ``own``."""
        return self.spec.cast(self.values(np.tile(np.arange(256, dtype=np.float32), (len(self.channels), 1)), own))

    @property
    def lines(self) -> npt.NDArray[np.float64]:
        """Scale and offset of the last ``Affine`` step for each channel, (channels, 2).

        If the arithmetic has no other steps, these numbers define the whole look-up table.
        """
        count = len(self.channels)
        none: ArithmeticStep = Affine((1.0,) * count, (0.0,) * count)
        *_, last = [none, *(step for step in self.arithmetic if step.operation == "affine")]
        return np.stack(last.operands, axis=1)

    def values(self, levels: npt.NDArray[np.float32], own: Statistic = EXAMPLE) -> npt.NDArray[np.generic]:
        """Convert pixel values to tensor values, in the dtype of the tensor, or in float32 instead of bfloat16.

        The result of the last step is rounded to the tensor's dtype, and the results of all other steps to float32.

        Args:
            levels: Pixel values, float32 (channels, ...), 0 to 255, in the order of the tensor's channels.
            own: Statistic of the image, for the steps that use it.
        """
        values: npt.NDArray[Any] = levels
        for step in self.arithmetic:
            values = step.of(values.astype(np.float32), own)
        return to_bfloat16(values) if self.spec.dtype == "bfloat16" else values.astype(self.spec.dtype)

    def described(self) -> Iterator[str]:
        """Yield lines that describe the values of the output."""
        spec = self.spec
        for index, channel in enumerate(self.channels[: spec.channels]):
            name = "gray" if spec.channels == 1 else ("red", "green", "blue", "alpha")[channel]
            yield f"{name}: {formula(self.arithmetic, index)}"
        if spec.fourth is not None:
            yield f"fourth channel: {spec.fourth:g}"
        if spec.patches is not None:
            yield "patches of all images of a request in one tensor" if spec.is_open else "padded with patches of 0"
        elif spec.is_open or spec.padding != NO_PADDING:
            batch = ", and in a batch to its largest image" if spec.is_open else ""
            yield f"padded with {', '.join(f'{value:g}' for value in spec.padding.value)} below and on the right{batch}"
        yield from map(str, self.calls)


def _name(step: Traits) -> str:
    """Return the name that a pipeline file uses for a step that is an op, or else its class name in lowercase."""
    config = getattr(step, "__struct_config__", None)
    return str((config and config.tag) or type(step).__name__.lower())


_MEANINGS = {
    "original_size": "size of the decoded image",
    "image_size": "size of the image at this op",
    "pixel_mask": "1 for each pixel of the image, 0 for padding",
    "constant": "the same for every image",
    "scale_factor": "image at this op = decoded image * scale",
    "transform": "image at this op = decoded image * scale + offset",
    "patch_grid": "number of patches along each axis",
    "patch_mask": "1 for each patch of the image, 0 for padding",
    "patch_positions": "position of each patch in the grid, -1 for padding",
    "token_count": "number of image tokens, one per merge window",
    "seconds_per_patch": "seconds of the clip per patch along the time axis",
    "tile_count": "number of tiles, including the thumbnail",
    "tile_grid_id": "number of the grid of tiles, from 1",
    "tile_mask": "1 for each pixel or patch of a tile",
    "tile_token_count": "number of image tokens of all tiles",
    "slice_grids": "numbers of rows and columns of patches of each view",
    "slice_mask": "1 for each patch of a view, 0 for padding",
    "slice_count": "number of views, or of rows and columns of slices",
}
SliceKind = Literal["slice_grids", "slice_mask", "slice_count"]
PatchKind = Literal["patch_grid", "patch_mask", "patch_positions", "token_count", "seconds_per_patch"]
TileKind = Literal["tile_count", "tile_grid_id", "tile_mask", "tile_token_count"]
SizeKind = Literal["original_size", "image_size", "scale_factor", "transform", "pixel_mask", "constant"]
NumbersKind = SizeKind | PatchKind | TileKind | SliceKind


@dataclass(frozen=True, kw_only=True)
class NumbersPlan:
    """Plan of an output that contains sizes, scales, a coordinate transform, a mask or constants instead of pixels.

    Attributes:
        spec: Spec of the output.
        kind: Kind of the numbers in the output. ``original_size`` is the size of the decoded image, and ``image_size``
            is the size of the image at this op. ``scale_factor`` and ``transform`` map coordinates of the decoded image
            to the image at this op. The other kinds describe the patches or tiles of the image.
        geometry: Geometry of the image at this op. None means that the output describes the decoded image.
        is_x_first: Whether the order is (width, height), (scale_x, scale_y) or (column, row) instead of the reverse.
        channels: Number of channels, which is appended to the size. 0 means that it is not appended.
        patches: Layout of the patches or tiles, for the kinds that describe them.
        tiles: Rule that chooses the grid of tiles, for ``tile_grid_id``.
        values: For ``constant``, the numbers of the output. For ``seconds_per_patch``, the number of frames per patch.
        is_full: Whether the whole canvas counts as the image, for ``pixel_mask``.
    """

    spec: TensorSpec
    kind: NumbersKind
    geometry: Geometry | None = None
    is_x_first: bool = False
    channels: int = 0
    patches: PatchLayout | None = None
    tiles: TileGrid | None = None
    values: tuple[float, ...] = ()
    is_full: bool = False

    @property
    def words(self) -> tuple[str, ...]:
        """Names of the numbers in the output, such as ``("height", "width")``."""
        if self.kind == "patch_grid" and self.spec.shape == (3,):
            return "frames", "rows", "columns"
        if self.kind in ("slice_grids", "slice_count"):
            return ("views",) if self.spec.shape == (1,) else ("rows", "columns")
        if self.kind == "patch_positions":
            return ("column", "row")[:: 1 if self.is_x_first else -1]
        if self.kind == "constant":
            return ("constant",) * len(self.values)
        if self.kind.endswith(("_mask", "_count", "_patch")) or self.kind == "tile_grid_id":
            return (self.kind.removeprefix("patch_").replace("_", " "),)
        if self.spec.shape == (3, 3):
            return tuple(f"row {row + 1}" for row in range(3))
        if self.kind == "transform":
            return "scale_y", "scale_x", "offset_y", "offset_x"
        pairs = {"scale_factor": ("scale_y", "scale_x"), "patch_grid": ("rows", "columns")}
        words = pairs.get(self.kind, ("height", "width"))
        words = words[::-1] if self.is_x_first else words
        return (*words, "channels") if self.channels else words[: self.spec.shape[0]]

    @property
    def meaning(self) -> str:
        """Text with the names of the numbers in the output, and with their meaning."""
        return f"{', '.join(self.words)}: {_MEANINGS[self.kind]}"

    def described(self) -> Iterator[str]:
        """See ``TensorPlan``."""
        yield self.meaning

    def numbers(self, height: int, width: int, placement: Placement | None) -> tuple[float, ...] | npt.NDArray[Any]:
        """Return the numbers that the output contains for one image.

        Args:
            height: Height of the decoded image in pixels.
            width: Width of the decoded image in pixels.
            placement: Placement that ``geometry`` returned for the image, or None if ``geometry`` is None.
        """
        numbers: tuple[float, ...] = self.values or (height, width)
        if placement is not None and self.kind == "seconds_per_patch":
            return (numbers[0] / placement.rate,)
        if placement is not None and self.kind == "pixel_mask":
            return self._mask(placement)
        if placement is not None and self.tiles is not None:
            rows, columns = (side // self.tiles.tile for side in placement.size)
            return (self.tiles.grids.index((rows, columns)) + 1,)
        if placement is not None and isinstance(self.patches, ViewLayout):
            return self._of_views(self.patches, placement)
        if placement is not None and self.patches is not None and self.kind in ("tile_mask", "tile_token_count"):
            mask = self._tile_mask(self.patches, placement)
            columns = placement.size[1] // self.patches.size[1]
            return mask if self.kind == "tile_mask" else (_tokens(mask, columns),)
        if placement is not None and self.patches is not None:
            return self._of_patches(self.patches, *placement.size, placement.frames)
        if placement is not None and self.spec.shape == (3, 3):
            return placement.matrix
        if placement is not None:
            (scale_x, _, offset_x), (_, scale_y, offset_y), _ = placement.matrix.tolist()
            whole = (scale_y, scale_x, offset_y, offset_x)
            numbers = placement.size if self.kind == "image_size" else whole[: len(self.words)]
        numbers = numbers[::-1] if self.is_x_first else numbers
        return (*numbers, self.channels) if self.channels else numbers[: self.spec.shape[0]]

    def _mask(self, placement: Placement) -> npt.NDArray[Any]:
        """Return a mask that is 1 where the canvas contains the image."""
        mask = np.zeros(self.spec.shape_of(*placement.size), self.spec.dtype)
        (top, left), (begin, first, end, last) = placement.at, placement.region
        if self.is_full:
            top, left, begin, first, end, last = 0, 0, 0, 0, *placement.size
        mask[top : top + end - begin, left : left + last - first] = 1
        return mask

    def _tile_mask(self, patches: PatchLayout, placement: Placement) -> npt.NDArray[Any]:
        """Return a mask that is 1 for each cell of each tile, or 0 if the cell contains only padding."""
        (height, width), cell = placement.size, patches.cells
        mask = np.ones(patches.shape_of(height, width, placement.frames), self.spec.dtype)
        if cell > 1:
            top, left, bottom, right = placement.region
            canvas = np.ones((height // cell, width // cell))
            canvas[canvas.shape[0] - (height - (bottom - top)) // cell :] = 0
            canvas[:, canvas.shape[1] - (width - (right - left)) // cell :] = 0
            (rows, columns), side = patches.grid(height, width), patches.size[0] // cell
            tiles = canvas.reshape(rows, side, columns, side).transpose(0, 2, 1, 3).reshape(-1, side, side)
            begin = len(mask) - len(tiles) if patches.thumbnail == "first" else 0
            mask[begin : begin + len(tiles)] = tiles
        return mask

    def _of_views(self, layout: ViewLayout, placement: Placement) -> tuple[float, ...] | F64:
        """Return the numbers that describe the slices of an image."""
        views = layout.views(*placement.views)
        if self.kind == "slice_grids":
            return np.array(views, np.float64)
        if self.kind == "slice_count":
            is_cut = placement.cuts != (1, 1)
            return (placement.cuts if is_cut else (0, 0)) if self.spec.shape == (2,) else (len(views),)
        mask = np.zeros((len(views), self.spec.shape[1]))
        for row, (rows, columns) in zip(mask, views, strict=True):
            row[: rows * columns] = 1
        return mask

    def _of_patches(
        self, patches: PatchLayout, height: int, width: int, frames: int
    ) -> tuple[float, ...] | npt.NDArray[Any]:
        """Return the numbers that describe the patches or tiles of an image or clip."""
        groups = patches.groups(frames)
        if self.kind == "patch_grid":
            grid = patches.grid(height, width)
            if self.spec.shape == (3,):
                return groups, *grid
            return grid[:: -1 if self.is_x_first else 1][: self.spec.shape[0]]
        if self.kind == "tile_count":
            return (groups * patches.total(height, width),)
        count = groups * patches.count(height, width)
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
    """Plan of an output that contains the optical flow between consecutive frames of a clip.

    Attributes:
        spec: Spec of the output.
        frames: Plan of the tensor with the frames between which the flow is computed. It is uint8 in the layout thwc.
        preset: Preset of OpenCV's DIS optical flow.
    """

    spec: TensorSpec
    frames: TensorPlan
    preset: Preset

    @property
    def geometry(self) -> Geometry:
        """Geometry of the frames."""
        return self.frames.geometry

    def described(self) -> Iterator[str]:
        """See ``TensorPlan``. Optical flow has no such lines."""
        yield from ()


def _tokens(mask: npt.NDArray[Any], columns: int) -> int:
    """Return the number of image tokens that transformers' Phi-4 computes.

    A token represents 2 x 2 patches of a tile, and one more token is added at the end of each row of tokens. The
    thumbnail has 16 rows of 16 tokens, and one token separates it from the other tiles.

    Args:
        mask: Mask of the patches of all tiles. The first tile is the thumbnail.
        columns: Number of columns of tiles.
    """
    tokens = mask[1:, ::2, ::2]
    return int(256 + 1 + tokens.sum() + tokens[::columns, :, 0].sum() + 16)


OutputPlan = TensorPlan | NumbersPlan | FlowPlan


NO_ROW = -1
"""Value of the rows with which boxes, labels and points are padded."""
_OF_EACH_BOX = ("labels", "ids", "area", "iscrowd", "difficult", "truncated", "visible", "points")
"""Fields of a sample that contain one value per box, in addition to fields with the prefix ``box_``."""


def is_of_each_box(name: str) -> bool:
    """Return whether a field of a sample contains one value per box, according to its name."""
    return name in _OF_EACH_BOX or name.startswith("box_")


@dataclass(frozen=True, kw_only=True)
class RowsPlan:
    """Base class of the plans of boxes and points, which have one row per object."""

    is_mask: ClassVar[bool] = False
    margin: ClassVar[int] = NO_ROW
    geometry: Geometry
    normalized: bool
    clip: bool
    pad: int | None

    @property
    def kind(self) -> str:
        """Name of the rows in descriptions."""
        return "points, x before y,"

    def missing(self, pad: int | None) -> int | None:
        """See ``MaskPlan``."""
        del pad
        return None if self.pad is None else NO_ROW

    @property
    def meaning(self) -> str:
        """Description of the values."""
        unit = "fractions of the sides" if self.normalized else "pixels"
        rows = "one array per image" if self.pad is None else f"{self.pad} rows per image, padded with -1"
        return f"{self.kind} in {unit} of the image at this op, {rows}"


@dataclass(frozen=True, kw_only=True)
class BoxesPlan(RowsPlan):
    """Plan of an output that contains the boxes of a sample. Its attributes are the fields of the op ``boxes``."""

    field: ClassVar[str] = "boxes"
    format: BoxFormat
    min_size: float
    min_visible: float
    min_area: float = 0.0
    follow: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        """See ``RowsPlan``."""
        return f"{self.format} boxes"

    def takes_along(self, name: str) -> bool:
        """Return whether a field of a sample contains one value per box. A value is dropped together with its box."""
        return is_of_each_box(name) or name in self.follow


@dataclass(frozen=True, kw_only=True)
class PointsPlan(RowsPlan):
    """Plan of an output that contains the points of a sample. Its attributes are the fields of the op ``points``."""

    field: ClassVar[str] = "points"
    flip_pairs: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, kw_only=True)
class MaskPlan:
    """Plan of an output that contains a segmentation map or the instance masks of a sample.

    Attributes:
        geometry: Geometry of the image at this op.
        field: Field of the sample: ``mask``, a segmentation map (height, width), or ``masks``, instance masks
            (n, height, width). An instance mask is dropped together with its box.
        ignore: Label of the padding.
        dtype: Dtype of the output.
        is_one_size: Whether the output has the same size for all images.
    """

    is_mask: ClassVar[bool] = True
    zoom: ClassVar[int] = 1
    geometry: Geometry
    field: Literal["mask", "masks"]
    ignore: int
    dtype: MaskDType
    is_one_size: bool

    @property
    def margin(self) -> int:
        """Value of the padding if a batch is padded."""
        return self.ignore

    def missing(self, pad: int | None) -> int | None:
        """Return the value that fills the rows of images without a result, or None if a batch is a list of arrays.

        Args:
            pad: The ``pad`` of the pipeline's boxes.
        """
        return self.ignore if self.is_one_size and (self.field == "mask" or pad is not None) else None

    @property
    def meaning(self) -> str:
        """Description of the values."""
        what = "label of each pixel" if self.field == "mask" else "mask of each object"
        return f"{what}, resized by nearest neighbor, {self.dtype}, {self.ignore} outside of the image"


@dataclass(frozen=True, kw_only=True)
class TargetPlan:
    """Plan of an output that contains an image-like target of a sample. Its attributes are the fields of ``target``.

    Attributes:
        geometry: Geometry of the image at this op.
        is_one_size: Whether the output has the same size for all images.
    """

    is_mask: ClassVar[bool] = True
    geometry: Geometry
    is_one_size: bool
    field: str
    filter: Literal["nearest", "bilinear"]
    dtype: TargetDType
    ignore: float
    kind: Literal["values", "alpha", "flow", "normals"]
    zoom: int

    @property
    def margin(self) -> float:
        """Value of the padding if a batch is padded."""
        return self.ignore

    def missing(self, pad: int | None) -> float | None:
        """Return the value that fills the rows of images without a result, or None if a batch is a list of arrays."""
        del pad
        return self.ignore if self.is_one_size else None

    @property
    def meaning(self) -> str:
        """Description of the values."""
        what = self.kind if self.kind in ("values", "alpha") else f"{self.kind}, which move with the image"
        return f'{what} of "{self.field}", {self.filter}, {self.dtype}, {self.ignore:g} outside of the image'


AnnotationPlan = BoxesPlan | PointsPlan | MaskPlan | TargetPlan
"""Plan of an output that is computed from a sample's annotation instead of the pixels."""
