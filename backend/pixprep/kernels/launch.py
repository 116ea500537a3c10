"""What the CUDA kernels are made of and launched with: source, windows, structs, grids. NumPy only: it runs anywhere.

``fused.cu`` is fast, and does what nearly every plan asks for; ``profiles.cu`` does every kind of ``profiles.taps``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import get_args

import numpy as np
import numpy.typing as npt

from pixprep.plan import Affine, Placement, TensorPlan
from pixprep.profiles import pillow, resampling
from pixprep.profiles.taps import Kind, Taps

TILE = (64, 4)  # threads a block, (x, y): TILE_WIDTH, TILE_HEIGHT of canvas.cu
TILE_ROWS = 16
ALIGNMENT = 256  # bytes: of each image's part of the middle buffer
VALUES = {1: "unsigned char", 2: "unsigned short", 4: "unsigned int"}
KINDS: tuple[Kind, ...] = get_args(Kind)
STEPS = ("affine", "subtract", "multiply", "divide")

_POINTER = np.uint64
AXIS = np.dtype(
    [("first", _POINTER), ("count", _POINTER), ("weights", _POINTER), ("size", np.int32), ("bits", np.int32)]
)
IMAGE = np.dtype(
    [
        ("source", _POINTER),
        ("middle", _POINTER),
        ("tensor", _POINTER),
        ("rows", AXIS),
        ("columns", AXIS),
        ("pitch", np.int64),
        *((name, np.int32) for name in ("step", "height", "width", "vertical_first")),
        *((name, np.int32) for name in ("middle_top", "middle_height", "middle_width")),
        *((name, np.int32) for name in ("top", "left", "flip_y", "flip_x", "kind")),
        ("factor", np.float32),
        ("unused", np.int32),
    ]
)
STEP = np.dtype([("scale", np.float64, 3), ("offset", np.float64, 3), ("kind", np.int32), ("unused", np.int32)])
PLAN = np.dtype(
    [
        ("tables", _POINTER),
        ("steps", _POINTER),
        ("step_count", np.int32),
        ("canvas_height", np.int32),
        ("canvas_width", np.int32),
        ("channel", np.int32, 3),
        ("fill", np.int32, 3),
        ("unused", np.int32),
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
    """The windows of one axis of one region, tap-major, in one array: first | count | weights, 32 bits each.

    Attributes:
        size: how many windows.
        begin, end: the input positions that they read.
        bits: of the weights, if they are fixed-point.
    """

    packed: Int32
    size: int
    begin: int
    end: int
    bits: int


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


def is_fast(plan: TensorPlan) -> bool:
    """Whether fused.cu will do: the resize is ``fixed`` for every image, and no window leaves the image."""
    resize = plan.geometry.resize
    return resize is None or resize.like == "pillow" or (resize.like == "torchvision" and resize.antialias)


def source(plan: TensorPlan) -> str:
    """The CUDA source of the plan's kernels."""
    constants = [("KIND", KINDS), ("STEP", STEPS)]
    lines = [f"#define {name}_{each.upper()} {i}\n" for name, names in constants for i, each in enumerate(names)]
    files = ("canvas.cu", "fused.cu" if is_fast(plan) else "profiles.cu")
    return "".join([*lines, *(Path(__file__).with_name(name).read_text(encoding="utf-8") for name in files)])


def options(plan: TensorPlan) -> list[str]:
    """The compiler's -D options for a plan."""
    value = VALUES[np.dtype(plan.spec.dtype).itemsize]
    options = [
        f"-DCHANNELS={len(plan.channels)}",
        f"-DLAYOUT_CHW={int(plan.spec.layout == 'chw')}",
        f"-DVALUE={value}",
    ]
    if not is_fast(plan):
        return [*options, f"-DREAL_VALUES={int(plan.is_real)}"]
    resize = plan.geometry.resize
    is_pillow = resize is None or resize.like == "pillow"
    return [*options, f"-DBITS={pillow.PRECISION_BITS if is_pillow else 'axis.bits'}"]


def constants(plan: TensorPlan) -> npt.NDArray[np.uint8]:
    """What the kernels read beside the images: the plan's table, then its steps, as bytes."""
    steps = np.zeros(len(plan.arithmetic), STEP)
    for struct, step in zip(steps, plan.arithmetic, strict=True):
        count = len(plan.channels)
        if isinstance(step, Affine):
            struct["scale"][:count], struct["offset"][:count] = step.scale, step.offset
        else:
            struct["scale"][:count], struct["kind"] = step.by, STEPS.index(step.kind)
    return np.concatenate([plan.table.reshape(-1).view(np.uint8), steps.view(np.uint8)])


def plan_struct(plan: TensorPlan, address: int) -> npt.NDArray[np.void]:
    """The ``Plan`` of canvas.cu, (1,) of ``PLAN``; the ``constants`` lie at ``address``."""
    struct = np.zeros(1, PLAN)
    height, width = plan.spec.shape[1:] if plan.spec.layout == "chw" else plan.spec.shape[:2]
    count = len(plan.channels)
    struct["tables"], struct["steps"] = address, address + plan.table.nbytes
    struct["step_count"], struct["canvas_height"], struct["canvas_width"] = len(plan.arithmetic), height, width
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
    value_bytes = channels if is_fast(plan) else 4 * channels
    images = np.zeros(len(sources), IMAGE)
    offset = 0
    for image, source, placement, tensor in zip(images, sources, placements, tensors, strict=True):
        top, left, bottom, right = placement.source
        how = resampling(plan.geometry.resize, placement)
        height, width = bottom - top, right - left
        rows, columns = axis(how.rows, height), axis(how.columns, width)
        mirror_y, mirror_x = placement.mirrors
        first_row, first_column = (bottom - 1 if mirror_y else top), (right - 1 if mirror_x else left)
        image["source"] = source.address + first_row * source.pitch + first_column * channels
        image["middle"], image["tensor"] = offset, tensor
        for name, windows in (("rows", rows), ("columns", columns)):
            address = upload(windows.packed)
            image[name]["first"], image[name]["count"] = address, address + 4 * windows.size
            image[name]["weights"], image[name]["size"] = address + 8 * windows.size, windows.size
            image[name]["bits"] = windows.bits
        image["pitch"] = -source.pitch if mirror_y else source.pitch
        image["step"] = -channels if mirror_x else channels
        image["height"], image["width"] = height, width
        image["kind"], image["factor"], image["vertical_first"] = KINDS.index(how.kind), how.factor, how.vertical_first
        image["middle_top"] = columns.begin if how.vertical_first else rows.begin
        image["middle_height"] = rows.size if how.vertical_first else rows.end - rows.begin
        image["middle_width"] = columns.end - columns.begin if how.vertical_first else columns.size
        image["top"], image["left"] = placement.at
        image["flip_y"], image["flip_x"] = placement.flips
        used = int(image["middle_height"]) * int(image["middle_width"]) * value_bytes
        offset += -(-used // ALIGNMENT) * ALIGNMENT
    height, width = plan.spec.shape[1:] if plan.spec.layout == "chw" else plan.spec.shape[:2]
    count = len(sources)
    first = (_tiles(images["middle_width"], TILE[0]), _tiles(images["middle_height"], TILE_ROWS), count)
    return Launch(images, offset, first, (-(-width // TILE[0]), -(-height // TILE[1]), count))


def _tiles(sizes: npt.NDArray[np.int32], tile: int) -> int:
    return max(1, -(-int(sizes.max(initial=0)) // tile))


@lru_cache(maxsize=512)
def axis(taps: Taps, length: int) -> Axis:
    """The windows of one axis of ``length`` input positions; cached, so that equal ones are the same object."""
    size = len(taps.first)
    if size == 0:
        return Axis(np.zeros(0, np.int32), 0, 0, 0, taps.bits)
    assert taps.first.dtype == taps.count.dtype == np.int32
    assert taps.weights.dtype in (np.int32, np.float32)
    weights = np.ascontiguousarray(taps.weights.T).reshape(-1).view(np.int32)
    first, last = int(taps.first.min()), int((taps.first + taps.count).max())
    begin, end = min(max(first, 0), length - 1), max(min(last, length), 1)
    return Axis(np.concatenate([taps.first, taps.count, weights]), size, begin, end, taps.bits)
