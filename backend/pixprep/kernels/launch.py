"""What the CUDA kernels are made of and launched with: source, windows, structs, grids. NumPy only: it runs anywhere.

``fused.cu`` is fast, and does what nearly every plan asks for; ``profiles.cu`` is plain, and does every kind of
``profiles.taps``. Where a function has ``plain``, it is for profiles.cu, also if fused.cu would do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, get_args

import numpy as np
import numpy.typing as npt

from pixprep.plan import Affine, Placement, TensorPlan
from pixprep.profiles import pillow, resampling
from pixprep.profiles.taps import Kind, Taps

TILE = (64, 4)  # threads a block, (x, y): TILE_WIDTH, TILE_HEIGHT of canvas.cu
TILE_ROWS = 32
PIXELS = 4  # of a row, that one thread of the second pass makes: PIXELS of fused.cu
TAPS = 4  # of a group, which one instruction weighs: TAPS of fused.cu
DIGITS = 3  # signed bytes of a weight
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
        ("begin", _POINTER),
        ("end", _POINTER),
        ("rows", AXIS),
        ("columns", AXIS),
        ("pitch", np.int64),
        *((name, np.int32) for name in ("step", "height", "width", "vertical_first")),
        *((name, np.int32) for name in ("middle_top", "middle_height", "middle_width")),
        *((name, np.int32) for name in ("top", "left", "kind")),
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


class Source(NamedTuple):
    """Decoded pixels in the kernels' memory: uint8 (height, width, channels), rows ``pitch`` bytes apart."""

    address: int
    height: int
    width: int
    pitch: int


@dataclass(frozen=True)
class Axis:
    """The windows of one axis of one region, in one array: weights | first | count, 32 bits each.

    For profiles.cu ``count`` says how many taps, and the weights are tap-major. For fused.cu it says how many groups of
    four taps, and the weights are group-major, 16 bytes a window: three words of four signed bytes, one byte a tap, so
    that ``weight = d[0] + 256 d[1] + 65536 d[2]``, and a word that is 0.

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


def source(plan: TensorPlan, *, plain: bool = False) -> str:
    """The CUDA source of the plan's kernels."""
    constants = [("KIND", KINDS), ("STEP", STEPS)]
    lines = [f"#define {name}_{each.upper()} {i}\n" for name, names in constants for i, each in enumerate(names)]
    files = ("canvas.cu", "fused.cu" if is_fast(plan) and not plain else "profiles.cu")
    return "".join([*lines, *(Path(__file__).with_name(name).read_text(encoding="utf-8") for name in files)])


def options(plan: TensorPlan, *, plain: bool = False) -> list[str]:
    """The compiler's -D options for a plan."""
    value = VALUES[np.dtype(plan.spec.dtype).itemsize]
    options = [
        f"-DCHANNELS={len(plan.channels)}",
        f"-DLAYOUT_CHW={int(plan.spec.layout == 'chw')}",
        f"-DVALUE={value}",
    ]
    if plain or not is_fast(plan):
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
    plain: bool = False,
) -> Launch:
    """The structs and grids of one batch.

    Args:
        plan: which tensor.
        sources: the decoded images.
        placements: the plan's geometry at each image's size.
        tensors: the address of each image's output.
        upload: called for the windows of each axis; equal windows come as the same array object, to be kept.
        plain: see above.
    """
    is_fused = is_fast(plan) and not plain
    kinds: dict[tuple[Any, ...], int] = {}  # images of one size and placement differ in addresses alone
    structs: list[tuple[Any, ...]] = []
    extents: list[tuple[int, int]] = []
    which = []
    for source, placement in zip(sources, placements, strict=True):
        which.append(kinds.setdefault((placement, *source[1:]), len(kinds)))
        if len(structs) < len(kinds):
            struct, extent = _image(plan, source, placement, upload, is_fused=is_fused)
            structs.append(struct)
            extents.append(extent)
    images = np.array(structs, IMAGE).take(which)
    addresses = np.array([source.address for source in sources], np.uint64)
    for name in ("source", "begin", "end"):
        images[name] += addresses
    images["tensor"] = tensors
    n_bytes = 4 * len(plan.channels) * images["middle_height"].astype(np.int64) * images["middle_width"]
    ends = np.cumsum(-(-n_bytes // ALIGNMENT) * ALIGNMENT)
    images["middle"][1:] = ends[:-1]
    height, width = plan.spec.shape[1:] if plan.spec.layout == "chw" else plan.spec.shape[:2]
    tile = (TILE[0] * PIXELS, TILE[1]) if is_fused else TILE
    widest, highest = (max(sizes) for sizes in zip(*extents, strict=True))
    return Launch(
        images,
        int(ends[-1]),
        (_tiles(widest, TILE[0]), _tiles(highest, TILE_ROWS), len(sources)),
        (_tiles(width, tile[0]), _tiles(height, tile[1]), len(sources)),
    )


def _tiles(size: int, tile: int) -> int:
    return max(1, -(-size // tile))


def _image(
    plan: TensorPlan, source: Source, placement: Placement, upload: Upload, *, is_fused: bool
) -> tuple[tuple[Any, ...], tuple[int, int]]:
    """The fields of ``IMAGE``, addresses from 0, and the columns and rows that ``first_pass`` works on."""
    channels = len(plan.channels)
    top, left, bottom, right = placement.source
    how = resampling(plan.geometry.resize, placement)
    height, width = bottom - top, right - left
    mirror_y, mirror_x = placement.mirrors
    flip_y, flip_x = placement.flips
    is_down = how.vertical_first
    if is_fused:  # sums of integers, in any order: so a mirror turns the windows round and not the source
        rows = axis(how.rows, height, align=1 if is_down else TAPS, flip=flip_y)
        columns = axis(how.columns, width, align=TAPS if is_down else 1, flip=flip_x, mirror=mirror_x)
        mirror_x = False
    else:
        rows, columns = axis(how.rows, height, flip=flip_y), axis(how.columns, width, flip=flip_x)
    first_row, first_column = (bottom - 1 if mirror_y else top), (right - 1 if mirror_x else left)
    middle_top = columns.begin if is_down else rows.begin
    middle_height = rows.size if is_down else rows.end - rows.begin
    middle_width = columns.end - columns.begin if is_down else columns.size
    extent = middle_width, middle_height
    if is_fused:  # words of TAPS neighbours
        middle_top -= middle_top % TAPS
        if is_down:
            middle_width = -(-(columns.end - middle_top) // TAPS)
            extent = middle_width * TAPS, middle_height
        else:
            middle_height = -(-(rows.end - middle_top) // TAPS)
            middle_width = -(-(middle_width + placement.at[1] % PIXELS) // PIXELS) * PIXELS
            extent = columns.size, middle_height * TAPS
    struct = (
        first_row * source.pitch + first_column * channels,
        0,
        0,
        0,
        (source.height - 1) * source.pitch + source.width * channels,
        _axis_struct(rows, upload),
        _axis_struct(columns, upload),
        -source.pitch if mirror_y else source.pitch,
        -channels if mirror_x else channels,
        height,
        width,
        is_down,
        middle_top,
        middle_height,
        middle_width,
        *placement.at,
        KINDS.index(how.kind),
        how.factor,
        0,
    )
    return struct, extent


def _axis_struct(axis: Axis, upload: Upload) -> tuple[int, ...]:
    address = upload(axis.packed)
    end = address + axis.packed.nbytes
    return end - 8 * axis.size, end - 4 * axis.size, address, axis.size, axis.bits


@lru_cache(maxsize=512)
def axis(taps: Taps, length: int, *, align: int = 0, flip: bool = False, mirror: bool = False) -> Axis:
    """The windows of one axis of ``length`` input positions; cached, so that equal ones are the same object.

    Args:
        taps: the windows, as their profile made them.
        length: of the axis.
        align: for fused.cu: groups of taps, of which the first begins at a multiple of this; 0: for profiles.cu.
        flip: the last window first.
        mirror: position 0 is the last one.
    """
    size = len(taps.first)
    if size == 0:
        return Axis(np.zeros(0, np.int32), 0, 0, 0, taps.bits)
    first, count, weights = taps.first, taps.count, taps.weights
    assert first.dtype == count.dtype == np.int32
    assert weights.dtype in (np.int32, np.float32)
    if mirror:
        first = length - first - count
        backwards = count[:, None] - 1 - np.arange(weights.shape[1])
        weights = np.where(backwards >= 0, np.take_along_axis(weights, np.maximum(backwards, 0), axis=1), 0)
    if flip:
        first, count, weights = first[::-1], count[::-1], weights[::-1]
    begin = min(max(int(first.min()), 0), length - 1)
    end = max(min(int((first + count).max()), length), 1)
    if align:
        first, count, weights = _grouped(first, count, weights, align)
    else:
        weights = np.ascontiguousarray(weights.T).view(np.int32)
    return Axis(np.concatenate([weights.reshape(-1), first, count]), size, begin, end, taps.bits)


def _grouped(first: Int32, count: Int32, weights: Int32, align: int) -> tuple[Int32, Int32, Int32]:
    """First positions, counts of groups, and (group, window, 4) words: see ``Axis``."""
    for steps in (np.diff(first), np.diff(first + count)):
        assert (steps >= 0).all() or (steps <= 0).all(), (
            "windows go back and forth: fused.cu reads what lies between two"
        )
    shift = first % align
    groups = -(-(shift + count) // TAPS)
    taps = TAPS * int(groups.max())
    padded = np.zeros((len(first), taps + weights.shape[1]), np.int32)
    np.put_along_axis(padded, shift[:, None] + np.arange(weights.shape[1]), weights, axis=1)
    digits = []
    for _ in range(DIGITS):
        digits.append(padded.astype(np.int8))  # the last 8 bits, signed
        padded = padded - digits[-1] >> 8
    assert not padded.any(), "a weight has more than three digits"
    words = np.zeros((taps // TAPS, len(first), 4, TAPS), np.int8)
    for index, digit in enumerate(digits):
        words[:, :, index] = digit[:, :taps].reshape(len(first), -1, TAPS).transpose(1, 0, 2)
    return first - shift, groups, words.view(np.int32)
