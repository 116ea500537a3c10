"""What the CUDA kernels are made of and launched with: code, windows, structs, grids. No CUDA: it runs anywhere.

``fast.cu`` does the profiles that have a formula, which nearly every plan asks for; ``plain.cu`` does every arithmetic
of ``profiles.windows``. Where a function has ``plain``, it is for plain.cu, also if fast.cu would do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, get_args

import numpy as np
import numpy.typing as npt

from pixprep.kernels.resampling import machine_code, resampling
from pixprep.plan import Affine, Placement, TensorPlan
from pixprep.profiles import PROFILES
from pixprep.profiles.windows import IDENTITY_BITS, Passes, Windows

TILE = (64, 4)  # threads a block, (x, y): TILE_WIDTH, TILE_HEIGHT of canvas.cu
TILE_ROWS = 32
PIXELS = 4  # of a row, that one thread of the second pass makes: PIXELS of fast.cu
TAPS = 4  # of a group, which one instruction weighs: TAPS of fast.cu
DIGITS = 3  # signed bytes of a weight
ALIGNMENT = 256  # bytes: of each image's part of the middle buffer
VALUES = {1: "unsigned char", 2: "unsigned short", 4: "unsigned int"}
PASSES: tuple[Passes, ...] = get_args(Passes)
STEPS = ("affine", "subtract", "multiply", "divide")

_POINTER = np.uint64
WINDOWS = np.dtype(
    [("first", _POINTER), ("count", _POINTER), ("weights", _POINTER), ("size", np.int32), ("bits", np.int32)]
)
IMAGE = np.dtype(
    [
        ("pixels", _POINTER),
        ("middle", _POINTER),
        ("tensor", _POINTER),
        ("begin", _POINTER),
        ("end", _POINTER),
        ("rows", WINDOWS),
        ("columns", WINDOWS),
        ("pitch", np.int64),
        *((name, np.int32) for name in ("stride", "height", "width", "vertical_first")),
        *((name, np.int32) for name in ("middle_top", "middle_height", "middle_width")),
        *((name, np.int32) for name in ("top", "left", "passes")),
        ("factor", np.float32),
        ("unused", np.int32),
    ]
)
STEP = np.dtype([("scale", np.float64, 3), ("offset", np.float64, 3), ("operation", np.int32), ("unused", np.int32)])
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


class PixelBuffer(NamedTuple):
    """Decoded pixels in the kernels' memory: uint8 (height, width, channels), rows ``pitch`` bytes apart."""

    address: int
    height: int
    width: int
    pitch: int


class PackedWindows(NamedTuple):
    """The windows of one axis of one region, in one array: first | count | weights, 32 bits each, 16 bytes aligned.

    For plain.cu ``count`` says how many taps, and the weights are tap-major. For fast.cu it says how many groups of
    four taps, and the weights are group-major, 16 bytes a window: three words of four signed bytes, one byte a tap, so
    that ``weight = d[0] + 256 d[1] + 65536 d[2]``, and a word that is 0.

    Attributes:
        size: how many windows.
        begin, end: the input positions that they read.
        bits: of the weights, if they are fixed-point.
    """

    array: Int32
    size: int
    begin: int
    end: int
    bits: int

    @property
    def weights(self) -> int:
        """Where in the array the weights begin."""
        return _aligned(2 * self.size)


@dataclass(frozen=True)
class Launch:
    """Everything that two launches need.

    Attributes:
        images: (n,) of ``IMAGE``; the addresses of windows and in ``middle`` are offsets: see ``place``.
        windows: of all images, one after the other; equal ones once.
        middle_bytes: size of the buffer between the passes.
        first_grid, second_grid: (x, y, z) blocks of ``TILE`` threads.
    """

    images: npt.NDArray[np.void]
    windows: Int32
    middle_bytes: int
    first_grid: tuple[int, int, int]
    second_grid: tuple[int, int, int]

    def place(self, *, windows: int, middle: int) -> None:
        """Say, once, where the kernels find the windows, and have the buffer between the passes."""
        self.images["middle"] += np.uint64(middle)
        for axis in ("rows", "columns"):
            for name in ("first", "count", "weights"):
                self.images[axis][name] += np.uint64(windows)


def is_fast(plan: TensorPlan) -> bool:
    """Whether fast.cu will do: the resize is ``fixed`` for every image, and no window leaves the image."""
    resize = plan.geometry.resize
    return resize is None or PROFILES[resize.like].formula is not None


def code(plan: TensorPlan, *, plain: bool = False) -> str:
    """The CUDA code of the plan's kernels."""
    constants = [("PASSES", PASSES), ("STEP", STEPS)]
    lines = [f"#define {name}_{each.upper()} {i}\n" for name, names in constants for i, each in enumerate(names)]
    files = ("canvas.cu", "fast.cu" if is_fast(plan) and not plain else "plain.cu")
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
    find = PROFILES[resize.like].formula if resize else None
    formula = find(resize.method) if resize and find else None
    bits = formula.bits if formula else IDENTITY_BITS
    return [*options, f"-DBITS={bits or 'windows.bits'}"]


def constants(plan: TensorPlan) -> npt.NDArray[np.uint8]:
    """What the kernels read beside the images: the plan's table, then its steps, as bytes."""
    steps = np.zeros(len(plan.arithmetic), STEP)
    for struct, step in zip(steps, plan.arithmetic, strict=True):
        count = len(plan.channels)
        if isinstance(step, Affine):
            struct["scale"][:count], struct["offset"][:count] = step.scale, step.offset
        else:
            struct["scale"][:count], struct["operation"] = step.by, STEPS.index(step.operation)
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
    pixels: Sequence[PixelBuffer],
    placements: Sequence[Placement],
    tensors: Sequence[int],
    *,
    plain: bool = False,
) -> Launch:
    """The structs and grids of one batch.

    Args:
        plan: which tensor.
        pixels: the decoded images.
        placements: the plan's geometry at each image's size.
        tensors: the address of each image's output.
        plain: see above.
    """
    fast = is_fast(plan) and not plain
    alike: dict[tuple[Any, ...], int] = {}  # images of one size and placement differ in addresses alone
    shelf = _Shelf()
    structs: list[tuple[Any, ...]] = []
    extents: list[tuple[int, int]] = []
    which = []
    for one, placement in zip(pixels, placements, strict=True):
        which.append(alike.setdefault((placement, *one[1:]), len(alike)))
        if len(structs) < len(alike):
            struct, extent = _image(plan, one, placement, shelf, fast=fast)
            structs.append(struct)
            extents.append(extent)
    images = np.array(structs, IMAGE).take(which)
    addresses = np.array([one.address for one in pixels], np.uint64)
    for name in ("pixels", "begin", "end"):
        images[name] += addresses
    images["tensor"] = tensors
    n_bytes = 4 * len(plan.channels) * images["middle_height"].astype(np.int64) * images["middle_width"]
    ends = np.cumsum(-(-n_bytes // ALIGNMENT) * ALIGNMENT)
    images["middle"][1:] = ends[:-1]
    height, width = plan.spec.shape[1:] if plan.spec.layout == "chw" else plan.spec.shape[:2]
    tile = (TILE[0] * PIXELS, TILE[1]) if fast else TILE
    widest, highest = (max(sizes) for sizes in zip(*extents, strict=True))
    return Launch(
        images,
        np.concatenate(shelf.arrays),
        int(ends[-1]),
        (_tiles(widest, TILE[0]), _tiles(highest, TILE_ROWS), len(pixels)),
        (_tiles(width, tile[0]), _tiles(height, tile[1]), len(pixels)),
    )


class _Shelf:
    """The windows of a batch. Equal ones are the same object for as long as ``resampling`` remembers them."""

    def __init__(self) -> None:
        self.arrays: list[Int32] = []
        self._packed: dict[tuple[Any, ...], tuple[Windows, PackedWindows, int]] = {}
        self._size = 0

    def put(self, windows: Windows, length: int, **options: Any) -> tuple[PackedWindows, int]:
        """``pack`` them; the second number is where the array begins among all of them, in bytes."""
        key = (id(windows), length, *options.values())
        if key not in self._packed:  # the windows are kept beside it, so that their id is not given to others
            packed = pack(windows, length, **options)
            self._packed[key] = windows, packed, 4 * self._size
            self.arrays.append(packed.array)
            self._size += len(packed.array)
        return self._packed[key][1:]


def _tiles(size: int, tile: int) -> int:
    return max(1, -(-size // tile))


def _image(
    plan: TensorPlan, pixels: PixelBuffer, placement: Placement, shelf: _Shelf, *, fast: bool
) -> tuple[tuple[Any, ...], tuple[int, int]]:
    """An ``IMAGE`` but for addresses, and the extent of the first pass in threads of x and rows."""
    channels = len(plan.channels)
    how = resampling(plan.geometry.resize, placement, compiled=machine_code() if fast else None)
    top, left, bottom, right = placement.read
    height, width = bottom - top, right - left
    mirror_y, mirror_x = placement.mirrors
    flip_y, flip_x = placement.flips
    is_down = how.vertical_first
    if fast:  # sums of integers, in any order: so a mirror turns the windows round and not the image
        rows, row_bytes = shelf.put(how.rows, height, align=1 if is_down else TAPS, flip=flip_y)
        columns, column_bytes = shelf.put(
            how.columns, width, align=TAPS if is_down else 1, flip=flip_x, mirror=mirror_x
        )
        mirror_x = False
    else:
        rows, row_bytes = shelf.put(how.rows, height, flip=flip_y)
        columns, column_bytes = shelf.put(how.columns, width, flip=flip_x)
    first_row, first_column = (bottom - 1 if mirror_y else top), (right - 1 if mirror_x else left)
    middle_top = columns.begin if is_down else rows.begin
    middle_height = rows.size if is_down else rows.end - rows.begin
    middle_width = columns.end - columns.begin if is_down else columns.size
    extent = middle_width, middle_height
    if fast:  # words of TAPS neighbours
        middle_top -= middle_top % TAPS
        if is_down:
            middle_width = -(-(columns.end - middle_top) // TAPS)
            extent = middle_width * TAPS, middle_height
        else:
            middle_height = -(-(rows.end - middle_top) // TAPS)
            middle_width = -(-(middle_width + placement.at[1] % PIXELS) // PIXELS) * PIXELS
            extent = columns.size, middle_height * TAPS
    struct = (
        first_row * pixels.pitch + first_column * channels,
        0,
        0,
        0,
        (pixels.height - 1) * pixels.pitch + pixels.width * channels,
        _windows_struct(rows, row_bytes),
        _windows_struct(columns, column_bytes),
        -pixels.pitch if mirror_y else pixels.pitch,
        -channels if mirror_x else channels,
        height,
        width,
        is_down,
        middle_top,
        middle_height,
        middle_width,
        *placement.at,
        PASSES.index(how.passes),
        how.factor,
        0,
    )
    return struct, extent


def _windows_struct(packed: PackedWindows, begin: int) -> tuple[int, ...]:
    return begin, begin + 4 * packed.size, begin + 4 * packed.weights, packed.size, packed.bits


def pack(
    windows: Windows, length: int, *, align: int = 0, flip: bool = False, mirror: bool = False, compiled: bool = True
) -> PackedWindows:
    """The windows of one axis of ``length`` input positions, as a kernel reads them.

    Args:
        windows: as their profile made them.
        length: of the axis.
        align: for fast.cu: groups of taps, of which the first begins at a multiple of this; 0: for plain.cu.
        flip: the last window first.
        mirror: position 0 is the last one.
        compiled: for fast.cu in machine code, where there is any.
    """
    size = len(windows.first)
    if size == 0:
        return PackedWindows(np.zeros(0, np.int32), 0, 0, 0, windows.bits)
    code = machine_code() if align and compiled else None
    if code:
        array, begin, end = code.pack(windows, length, align=align, flip=flip, mirror=mirror)
        return PackedWindows(array, size, begin, end, windows.bits)
    first, count, weights = windows.first, windows.count, windows.weights
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
    gap, behind = (np.zeros(_aligned(n) - n, np.int32) for n in (2 * size, weights.size))
    return PackedWindows(
        np.concatenate([first, count, gap, weights.reshape(-1), behind]), size, begin, end, windows.bits
    )


def _aligned(count: int) -> int:
    """A number of 32-bit values, rounded up to whole 16 bytes."""
    return -(-count // 4) * 4


def _grouped(first: Int32, count: Int32, weights: Int32, align: int) -> tuple[Int32, Int32, Int32]:
    """First positions, counts of groups, and (group, window, 4) words: see ``PackedWindows``."""
    for differences in (np.diff(first), np.diff(first + count)):
        assert (differences >= 0).all() or (differences <= 0).all(), (
            "windows go back and forth: fast.cu reads what lies between two"
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
