"""What the CUDA kernels of fused.cu are launched with: windows, structs, grids. NumPy only, so it runs anywhere."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from pixprep.kernels import coefficients
from pixprep.plan import Placement, Resize, TensorPlan

TILE = (64, 4)  # threads a block, (x, y): TILE_WIDTH, TILE_HEIGHT of fused.cu
TILE_ROWS = 16
ALIGNMENT = 256  # bytes: of each image's part of the middle buffer
VALUES = {1: "unsigned char", 2: "unsigned short", 4: "unsigned int"}

_POINTER = np.uint64
AXIS = np.dtype(
    [("first", _POINTER), ("count", _POINTER), ("weights", _POINTER), ("size", np.int32), ("unused", np.int32)]
)
IMAGE = np.dtype(
    [
        ("source", _POINTER),
        ("middle", _POINTER),
        ("tensor", _POINTER),
        ("rows", AXIS),
        ("columns", AXIS),
        ("pitch", np.int64),
        *((name, np.int32) for name in ("step", "vertical_first", "middle_top", "middle_height", "middle_width")),
        *((name, np.int32) for name in ("top", "left", "flip_y", "flip_x", "unused")),
    ]
)
PLAN = np.dtype(
    [
        ("tables", _POINTER),
        ("canvas_height", np.int32),
        ("canvas_width", np.int32),
        ("channel", np.int32, 3),
        ("fill", np.int32, 3),
    ]
)

Int32 = npt.NDArray[np.int32]
Upload = Callable[[Int32], int]
"""Puts an array where the kernels can read it, for as long as the launches may need it; gives its address."""


@dataclass(frozen=True)
class Source:
    """Decoded pixels in the kernels' memory: uint8 (height, width, channels), rows ``pitch`` bytes apart."""

    address: int
    height: int
    width: int
    pitch: int


@dataclass(frozen=True)
class Axis:
    """The windows of one axis of one region, tap-major, in one array: first | count | weights."""

    packed: Int32
    size: int
    begin: int
    end: int


@dataclass(frozen=True)
class Launch:
    """Everything that two launches need.

    Attributes:
        images: (n,) of ``IMAGE``; the addresses in ``middle`` are offsets until the buffer is there.
        middle_bytes: size of the buffer between the passes.
        first_grid, second_grid: (x, y, z) blocks of ``TILE`` threads.
    """

    images: npt.NDArray[np.void]
    middle_bytes: int
    first_grid: tuple[int, int, int]
    second_grid: tuple[int, int, int]


def options(plan: TensorPlan) -> list[str]:
    """The compiler's -D options for a plan."""
    value = VALUES[plan.table.dtype.itemsize]
    return [
        f"-DCHANNELS={len(plan.channels)}",
        f"-DLAYOUT_CHW={int(plan.spec.layout == 'chw')}",
        f"-DVALUE={value}",
    ]


def plan_struct(plan: TensorPlan, tables: int) -> npt.NDArray[np.void]:
    """The ``Plan`` of fused.cu, (1,) of ``PLAN``; ``tables`` is the address of ``plan.table``."""
    struct = np.zeros(1, PLAN)
    height, width = plan.spec.shape[1:] if plan.spec.layout == "chw" else plan.spec.shape[:2]
    count = len(plan.channels)
    struct["tables"], struct["canvas_height"], struct["canvas_width"] = tables, height, width
    struct["channel"][0, :count], struct["fill"][0, :count] = plan.channels, plan.fill
    return struct


def prepare(
    plan: TensorPlan,
    sources: Sequence[Source],
    placements: Sequence[Placement],
    tensors: Sequence[int],
    *,
    upload: Upload,
) -> Launch:
    """The structs and grids of one batch.

    Args:
        plan: which tensor.
        sources: the decoded images.
        placements: the plan's geometry at each image's size.
        tensors: the address of each image's output.
        upload: called for the windows of each axis; equal windows come as the same array object, to be kept.
    """
    channels = len(plan.channels)
    images = np.zeros(len(sources), IMAGE)
    offset = 0
    for image, source, placement, tensor in zip(images, sources, placements, tensors, strict=True):
        top, left, bottom, right = placement.source
        height, width = bottom - top, right - left
        region = placement.region
        rows = axis(height, placement.resized[0], region[0], region[2], plan.geometry.resize)
        columns = axis(width, placement.resized[1], region[1], region[3], plan.geometry.resize)
        mirror_y, mirror_x = placement.mirrors
        first_row, first_column = (bottom - 1 if mirror_y else top), (right - 1 if mirror_x else left)
        vertical_first = coefficients.is_vertical_first((height, width), placement.resized)
        image["source"] = source.address + first_row * source.pitch + first_column * channels
        image["middle"], image["tensor"] = offset, tensor
        for name, windows in (("rows", rows), ("columns", columns)):
            address = upload(windows.packed)
            image[name]["first"], image[name]["count"] = address, address + 4 * windows.size
            image[name]["weights"], image[name]["size"] = address + 8 * windows.size, windows.size
        image["pitch"] = -source.pitch if mirror_y else source.pitch
        image["step"] = -channels if mirror_x else channels
        image["vertical_first"] = vertical_first
        image["middle_top"] = columns.begin if vertical_first else rows.begin
        image["middle_height"] = rows.size if vertical_first else rows.end - rows.begin
        image["middle_width"] = columns.end - columns.begin if vertical_first else columns.size
        image["top"], image["left"] = placement.at
        image["flip_y"], image["flip_x"] = placement.flips
        used = int(image["middle_height"]) * int(image["middle_width"]) * channels
        offset += -(-used // ALIGNMENT) * ALIGNMENT
    height, width = plan.spec.shape[1:] if plan.spec.layout == "chw" else plan.spec.shape[:2]
    count = len(sources)
    first = (_tiles(images["middle_width"], TILE[0]), _tiles(images["middle_height"], TILE_ROWS), count)
    return Launch(images, offset, first, (-(-width // TILE[0]), -(-height // TILE[1]), count))


def _tiles(sizes: npt.NDArray[np.int32], tile: int) -> int:
    return max(1, -(-int(sizes.max(initial=0)) // tile))


@lru_cache(maxsize=4096)
def axis(length: int, out_length: int, begin: int, end: int, resize: Resize | None) -> Axis:
    """The windows of output positions ``begin`` to ``end``; cached, so that equal ones are the same object."""
    if begin == end:
        return Axis(np.zeros(0, np.int32), 0, 0, 0)
    if out_length == length or resize is None or resize.filter == "nearest":
        positions = np.arange(begin, end)
        if out_length != length:
            positions = coefficients.nearest(length, out_length, begin=begin, end=end)
        ones = np.ones(end - begin, np.int32)
        table = coefficients.Windows(positions.astype(np.int32), ones, ones[:, None] << coefficients.PRECISION_BITS)
    else:
        table = coefficients.windows(
            length, out_length, resize.filter, antialias=resize.antialias, begin=begin, end=end
        )
    packed = np.concatenate([table.first, table.count, table.weights.T.reshape(-1)]).astype(np.int32)
    last = int((table.first + table.count).max())
    return Axis(packed, end - begin, int(table.first.min()), last)
