"""What the CUDA kernels are made of and launched with: code, windows, structs, grids. No CUDA: it runs anywhere.

``fast.cu`` does the profiles that have a formula, which nearly every plan asks for; ``plain.cu`` does every arithmetic
of ``profiles.windows``. Where a function has ``plain``, it is for plain.cu, also if fast.cu would do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol, get_args

import numpy as np
import numpy.typing as npt

from pixprep.kernels.resampling import machine_code, resampling
from pixprep.plan import Affine, Placement, TensorPlan
from pixprep.profiles import PROFILES
from pixprep.profiles.formula import Formula
from pixprep.profiles.windows import IDENTITY_BITS, Axes, Passes, Windows

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

U8 = npt.NDArray[np.uint8]
Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]


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


class Room(Protocol):
    """Where a launch puts what it needs; a piece is valid until the next one of its kind is asked for."""

    def upload(self, n_bytes: int) -> tuple[U8, int]:
        """Host memory to fill, and the address where the kernels will find its bytes: a multiple of 16."""

    def middle(self, n_bytes: int) -> int:
        """The address of memory between the passes, a multiple of ``ALIGNMENT``."""


class Part(NamedTuple):
    """Images that are launched together, from ``first`` up to ``last``.

    Attributes:
        first_grid, second_grid: (x, y, z) blocks of ``TILE`` threads.
    """

    first: int
    last: int
    first_grid: tuple[int, int, int]
    second_grid: tuple[int, int, int]


class Launch(NamedTuple):
    """Everything that the launches of a chunk need.

    Attributes:
        memory: to be uploaded: a struct for each image, and the windows, of equal placements once.
        images: the structs, a view: (n,) of ``IMAGE``.
        parts: one after the other, as they use the same memory between the passes.
    """

    memory: U8
    images: npt.NDArray[np.void]
    parts: list[Part]


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
    formula = _formula(plan)
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
    height, width = _canvas(plan)
    count = len(plan.channels)
    struct["tables"], struct["steps"] = address, address + plan.table.nbytes
    struct["step_count"], struct["canvas_height"], struct["canvas_width"] = len(plan.arithmetic), height, width
    struct["channel"][0, :count], struct["fill"][0, :count] = plan.channels, plan.fill
    return struct


def prepare(
    plan: TensorPlan,
    pixels: Sequence[PixelBuffer],
    placements: Sequence[Placement],
    tensors: Int64,
    *,
    room: Room,
    middle_bytes: int = 1 << 62,
    plain: bool = False,
) -> Launch:
    """The structs, windows and grids of one chunk: all images at once, so that an image costs Python little.

    Args:
        plan: which tensor.
        pixels: the decoded images, at least one.
        placements: the plan's geometry at each image's size; one object, where images are alike, is one's work.
        tensors: the address of each image's output.
        room: see above.
        middle_bytes: between the passes, unless one image alone needs more.
        plain: see above.
    """
    is_ours = is_fast(plan) and not plain
    alike = {id(placement): placement for placement in placements}
    geometry = _geometry([*alike.values()])
    which: Any = slice(None)  # one for all, or each its own
    if 1 < len(alike) < len(pixels):
        places = {key: index for index, key in enumerate(alike)}
        which = np.array([places[id(placement)] for placement in placements])
    structs_bytes = IMAGE.itemsize * len(pixels)
    memory, address = np.empty(0, np.uint8), 0

    def take(n_bytes: int) -> U8:
        nonlocal memory, address
        memory, address = room.upload(structs_bytes + n_bytes)
        return memory[structs_bytes:]

    formula = _formula(plan) if is_ours else None
    code = machine_code() if formula else None
    if formula and code:
        windows = _by_formula(plan, formula, code, geometry, take)
    else:
        windows = _one_by_one(plan, [*alike.values()], take, fast=is_ours)
    images = memory[:structs_bytes].view(IMAGE)
    wide, high = _fill(plan, images, pixels, geometry, windows, address + structs_bytes, which, fast=is_ours)
    images["tensor"] = tensors
    n_bytes = 4 * len(plan.channels) * images["middle_height"].astype(np.int64) * images["middle_width"]
    ends = (-(-n_bytes // ALIGNMENT) * ALIGNMENT).cumsum()
    parts, begins, most = _parts(ends, middle_bytes)
    images["middle"][1:] = ends[:-1]
    images["middle"][0] = 0
    images["middle"] += (room.middle(most) - begins).astype(np.uint64)
    wide, high = (np.broadcast_to(extent[which], len(pixels)) for extent in (wide, high))
    height, width = _canvas(plan)
    canvas = _tiles(width, TILE[0] * (PIXELS if is_ours else 1)), _tiles(height, TILE[1])
    launched = []
    for first, last in parts:
        middle = _tiles(int(wide[first:last].max()), TILE[0]), _tiles(int(high[first:last].max()), TILE_ROWS)
        launched.append(Part(first, last, (*middle, last - first), (*canvas, last - first)))
    return Launch(memory, images, launched)


def _canvas(plan: TensorPlan) -> tuple[int, int]:
    """(height, width)."""
    height, width = plan.spec.shape[1:] if plan.spec.layout == "chw" else plan.spec.shape[:2]
    return height, width


class _Geometry(NamedTuple):
    """Placements as arrays, (n, 2) of int64, rows before columns; see ``Placement``."""

    begin: Int64
    end: Int64
    resized: Int64
    first: Int64
    last: Int64
    at: Int64
    mirrors: Int64
    flips: Int64
    ratio: npt.NDArray[np.float64]


def _geometry(placements: Sequence[Placement]) -> _Geometry:
    assert all(placement.reduction is None for placement in placements), "a GPU decodes whole"
    rows = [(*p.box, *p.resized, *p.region, *p.at, *p.mirrors, *p.flips) for p in placements]
    pairs = np.array(rows, np.int64).reshape(len(rows), -1, 2).transpose(1, 0, 2)
    return _Geometry._make([*pairs, np.array([placement.ratio for placement in placements])])


class _Windows(NamedTuple):
    """The windows of both axes of images, (n, 2) of int64, rows before columns.

    Attributes:
        place: where they begin among all of them, in bytes.
        size, begin, end, bits: see ``PackedWindows``.
        vertical_first, passes, factor: see ``Resampling``; (n,), or one for all.
    """

    place: Int64
    size: Int64
    begin: Int64
    end: Int64
    bits: Int64
    vertical_first: Any
    passes: Any
    factor: Any


def _formula(plan: TensorPlan) -> Formula | None:
    """By which the windows of a plan are made; None: of each axis alone, by its profile."""
    resize = plan.geometry.resize
    if resize is None:  # no axis changes its length: any will do
        return Formula("box", is_widened=False, bits=IDENTITY_BITS)
    find = PROFILES[resize.like].formula
    return find(resize.method) if find else None


def _by_formula(
    plan: TensorPlan, formula: Formula, code: Any, geometry: _Geometry, take: Callable[[int], U8]
) -> _Windows:
    """All windows in one call of machine code, for fast.cu: a mirror of the columns turns the windows round."""
    resize = plan.geometry.resize
    lengths: Int64 = geometry.end - geometry.begin
    numbers: tuple[npt.NDArray[Any], ...] = (
        lengths, geometry.resized, geometry.ratio, geometry.first, geometry.last
    )  # fmt: skip
    is_down: Any = False
    if resize is not None:
        sides = (Axes._make(each[:, axis] for each in numbers) for axis in (0, 1))
        is_down = PROFILES[resize.like].is_vertical_first(resize.method, *sides)
    count = len(geometry.ratio)
    align, mirror = np.empty((count, 2), np.int64), np.zeros((count, 2), np.int64)
    align[:, 0], align[:, 1] = np.where(is_down, 1, TAPS), np.where(is_down, TAPS, 1)
    mirror[:, 1] = geometry.mirrors[:, 1]
    made = code.packed(
        formula,
        Axes._make(each.reshape(-1) for each in numbers),
        align=align.reshape(-1),
        flip=geometry.flips.reshape(-1),
        mirror=mirror.reshape(-1),
        take=take,
    )
    place, begin, end, bits = (each.reshape(-1, 2) for each in made)
    size = geometry.last - geometry.first
    return _Windows(place, size, begin, end, bits, is_down, PASSES.index("fixed"), 1.0)


def _one_by_one(
    plan: TensorPlan, placements: Sequence[Placement], take: Callable[[int], U8], *, fast: bool
) -> _Windows:
    """The windows of each axis by its profile, in NumPy; those of equal axes once."""
    resize, shelf, rows = plan.geometry.resize, _Shelf(), []
    for placement in placements:
        how = resampling(resize, placement)
        top, left, bottom, right = placement.read
        is_down = how.vertical_first
        options: tuple[dict[str, Any], ...] = ({"flip": placement.flips[0]}, {"flip": placement.flips[1]})
        if fast:
            options[0].update(align=1 if is_down else TAPS)
            options[1].update(align=TAPS if is_down else 1, mirror=placement.mirrors[1])
        both = [
            shelf.put(windows, length, **option)
            for windows, length, option in zip(
                (how.rows, how.columns), (bottom - top, right - left), options, strict=True
            )
        ]
        numbers = [(place, packed.size, packed.begin, packed.end, packed.bits) for packed, place in both]
        rows.append((numbers, is_down, PASSES.index(how.passes), how.factor))
    pairs, *others = (np.array(column) for column in zip(*rows, strict=True))
    shelf.write(take(shelf.n_bytes))
    return _Windows._make([*pairs.transpose(2, 0, 1), *others])


def _fill(
    plan: TensorPlan,
    images: npt.NDArray[np.void],
    pixels: Sequence[PixelBuffer],
    geometry: _Geometry,
    windows: _Windows,
    address: int,
    which: Any,
    *,
    fast: bool,
) -> tuple[Int64, Int64]:
    """Fill the structs but for ``middle`` and ``tensor``: the extent of the first pass in threads of x, and in rows.

    What a placement decides is an array with a number for each; ``which`` is that of each image. The extents are such.
    """
    channels = len(plan.channels)
    is_down = windows.vertical_first
    place = windows.place + address
    (row_begin, column_begin), (row_end, column_end) = windows.begin.T, windows.end.T
    row_size, column_size = windows.size.T
    top = np.where(is_down, column_begin, row_begin)
    if fast:  # words of TAPS neighbours
        top -= top % TAPS
        groups = -(-(np.where(is_down, column_end, row_end) - top) // TAPS)
        words = -(-(column_size + geometry.at[:, 1] % PIXELS) // PIXELS) * PIXELS
        middle_height, middle_width = np.where(is_down, row_size, groups), np.where(is_down, groups, words)
        wide = np.where(is_down, middle_width * TAPS, column_size)
        high = np.where(is_down, middle_height, middle_height * TAPS)
    else:
        middle_height = high = np.where(is_down, row_size, row_end - row_begin)
        middle_width = wide = np.where(is_down, column_end - column_begin, column_size)
    for axis, name in enumerate(("rows", "columns")):
        struct = images[name]
        size = windows.size[:, axis]
        first = place[:, axis]
        struct["first"] = first[which]
        struct["count"] = (first + 4 * size)[which]
        struct["weights"] = (first + -(-2 * size // 4) * 16)[which]
        struct["size"] = size[which]
        struct["bits"] = windows.bits[:, axis][which]
    numbers = {
        "height": geometry.end[:, 0] - geometry.begin[:, 0],
        "width": geometry.end[:, 1] - geometry.begin[:, 1],
        "middle_top": top,
        "middle_height": middle_height,
        "middle_width": middle_width,
        "top": geometry.at[:, 0],
        "left": geometry.at[:, 1],
    }
    for name, number in numbers.items():
        images[name] = number[which]
    for name, number in (("vertical_first", is_down), ("passes", windows.passes), ("factor", windows.factor)):
        images[name] = number[which] if isinstance(number, np.ndarray) else number
    begins, heights, widths, pitches = np.array(pixels, np.int64).T
    # In fast.cu sums are of integers, in any order: so a mirror of the columns turns the windows round, not the image.
    is_up, is_left = geometry.mirrors.T != 0
    if fast:
        is_left = np.zeros_like(is_left)
    row = np.where(is_up, geometry.end[:, 0] - 1, geometry.begin[:, 0])
    column = np.where(is_left, geometry.end[:, 1] - 1, geometry.begin[:, 1])
    images["pixels"] = begins + row[which] * pitches + (column * channels)[which]
    images["begin"], images["end"] = begins, begins + (heights - 1) * pitches + widths * channels
    images["pitch"] = np.where(is_up, -1, 1)[which] * pitches
    images["stride"] = np.where(is_left, -channels, channels)[which]
    return wide, high


def _parts(ends: Int64, most: int) -> tuple[list[tuple[int, int]], Int64, int]:
    """Images that have room between the passes together: (first, last) of each part, where it begins in bytes, and the
    bytes of the largest. ``ends`` says where the room of each image ends, if all lay one after the other."""
    if ends[-1] <= most or len(ends) == 1:
        return [(0, len(ends))], np.zeros(1, np.int64), int(ends[-1])
    parts: list[tuple[int, int]] = []
    begins, used, largest = np.empty_like(ends), 0, 0
    while not parts or parts[-1][1] < len(ends):
        first = parts[-1][1] if parts else 0
        last = max(first + 1, int(np.searchsorted(ends, used + most, "right")))
        parts.append((first, last))
        begins[first:last] = used
        largest, used = max(largest, int(ends[last - 1]) - used), int(ends[last - 1])
    return parts, begins, largest


def _tiles(size: int, tile: int) -> int:
    return max(1, -(-size // tile))


class _Shelf:
    """The windows of a chunk. Equal ones are the same object for as long as ``resampling`` remembers them."""

    def __init__(self) -> None:
        self.n_bytes = 0
        self._packed: dict[tuple[Any, ...], tuple[Windows, PackedWindows, int]] = {}

    def put(self, windows: Windows, length: int, **options: Any) -> tuple[PackedWindows, int]:
        """``pack`` them; the second number is where the array begins among all of them, in bytes."""
        key = (id(windows), length, *sorted(options.items()))
        if key not in self._packed:  # the windows are kept beside it, so that their id is not given to others
            packed = pack(windows, length, **options)
            self._packed[key] = windows, packed, self.n_bytes
            self.n_bytes += packed.array.nbytes
        return self._packed[key][1:]

    def write(self, memory: U8) -> None:
        """Put all of them into memory of ``n_bytes``."""
        for _, packed, place in self._packed.values():
            memory[place : place + packed.array.nbytes] = packed.array.view(np.uint8)


def pack(windows: Windows, length: int, *, align: int = 0, flip: bool = False, mirror: bool = False) -> PackedWindows:
    """The windows of one axis of ``length`` input positions, as a kernel reads them.

    ``compiled.packed`` makes and packs those of a formula.

    Args:
        windows: as their profile made them.
        length: of the axis.
        align: for fast.cu: groups of taps, of which the first begins at a multiple of this; 0: for plain.cu.
        flip: the last window first.
        mirror: position 0 is the last one.
    """
    size = len(windows.first)
    if size == 0:
        return PackedWindows(np.zeros(0, np.int32), 0, 0, 0, windows.bits)
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
