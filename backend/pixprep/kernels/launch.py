"""Code, windows, structs and grids of the CUDA kernels. No CUDA: it runs anywhere.

``fast.cu`` does the profiles that have a formula, which nearly every plan asks for; ``plain.cu`` does every arithmetic
of ``profiles.windows``. Where a function has ``plain``, it is for plain.cu, also if fast.cu would do. ``levels.cu``
comes after either, where a plan has levels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol, get_args

import numpy as np
import numpy.typing as npt

from pixprep.kernels import native
from pixprep.kernels.canvases import KINDS, LIKES, MODES, Canvases, canvas_plan, needs_canvases
from pixprep.kernels.filling import fill
from pixprep.kernels.packing import Shelf
from pixprep.kernels.resampling import resampling
from pixprep.kernels.structs import (
    ALIGNMENT,
    CANVAS,
    IMAGE,
    PIXELS,
    STEPS,
    TAPS,
    TILE,
    TILE_ROWS,
)
from pixprep.plan.output_plans import TensorPlan
from pixprep.plan.placement import Placement
from pixprep.profiles import PROFILES
from pixprep.profiles.formula import Formula
from pixprep.profiles.windows import IDENTITY_BITS, Passes

VALUES = {1: "unsigned char", 2: "unsigned short", 4: "unsigned int"}
PASSES: tuple[Passes, ...] = get_args(Passes)

U8 = npt.NDArray[np.uint8]


class PixelBuffer(NamedTuple):
    """Decoded pixels in the kernels' memory: uint8 (height, width, channels), rows ``pitch`` bytes apart."""

    address: int
    height: int
    width: int
    pitch: int


class Room(Protocol):
    """Room for the data of a launch; a piece is valid until the next one of its kind is asked for."""

    def upload(self, n_bytes: int) -> tuple[U8, int]:
        """Host memory to fill, and the address where the kernels will find its bytes: a multiple of 16."""

    def middle(self, n_bytes: int) -> int:
        """The address of memory between the passes, and for canvases, a multiple of ``ALIGNMENT``."""


class Part(NamedTuple):
    """Images that are launched together, from ``first`` up to ``last``.

    Attributes:
        first_grid, second_grid: (x, y, z) blocks of ``TILE`` threads.
        canvases: where in the memory the ``CANVAS`` structs of these images begin; None: levels.cu has nothing to do.
    """

    first: int
    last: int
    first_grid: tuple[int, int, int]
    second_grid: tuple[int, int, int]
    canvases: int | None = None

    @property
    def levels_grid(self) -> tuple[int, int, int]:
        """Blocks of ``LEVEL_THREADS``."""
        return self.last - self.first, 1, 1


class Launch(NamedTuple):
    """Everything that the launches of a chunk need.

    Attributes:
        memory: to be uploaded: a struct for each image, and the windows, of equal placements once; for levels.cu the
            canvases' structs and the steps.
        images: the structs, a view: (n,) of ``IMAGE``.
        parts: one after the other, as they use the same memory between the passes.
    """

    memory: U8
    images: npt.NDArray[np.void]
    parts: list[Part]


def is_fast(plan: TensorPlan) -> bool:
    """Tell whether fast.cu will do: the resize is always ``fixed``, no window leaves it, and margins are alike."""
    resize = plan.geometry.resize
    if plan.geometry.fill is not None:
        return False
    return resize is None or (PROFILES[resize.like].formula is not None and not plan.geometry.is_padded)


def code(plan: TensorPlan, *, plain: bool = False) -> str:
    """The CUDA code of the plan's two passes."""
    return _code("fast.cu" if is_fast(plan) and not plain else "plain.cu", PASSES=PASSES, STEP=STEPS)


def levels_code() -> str:
    """The CUDA code of what changes levels."""
    return _code("formulas.h", "levels.cu", LEVEL=KINDS, LIKE=LIKES, PADDING=MODES)


def surface_code() -> str:
    """The CUDA code of what makes RGB of a video decoder's frames."""
    tile = f"#define TILE_WIDTH {TILE[0]}\n#define TILE_HEIGHT {TILE[1]}\n"
    return tile + Path(__file__).with_name("surface.cu").read_text(encoding="utf-8")


def _code(*names: str, **constants: Sequence[str]) -> str:
    numbered = ((f"{kind}_{one}".upper(), i) for kind, names in constants.items() for i, one in enumerate(names))
    lines = [f"#define {one} {i}\n" for one, i in numbered]
    files = (Path(__file__).with_name(each).read_text(encoding="utf-8") for each in ("structs.h", "canvas.cu", *names))
    return "".join([*lines, *files])


def options(plan: TensorPlan, *, plain: bool = False) -> list[str]:
    """The compiler's -D options for the two passes of a plan."""
    options = [*_tensor_options(canvas_plan(plan)), f"-DCANVASES={int(bool(plan.geometry.levels))}"]
    if plain or not is_fast(plan):
        return [*options, f"-DREAL_VALUES={int(plan.is_real)}"]
    formula = _formula(plan)
    bits = formula.bits if formula else IDENTITY_BITS
    return [*options, f"-DBITS={bits or 'windows.bits'}"]


def levels_options(plan: TensorPlan) -> list[str]:
    """The compiler's -D options for levels.cu, of a plan."""
    return [*_tensor_options(plan), "-DCANVASES=0"]


def _tensor_options(plan: TensorPlan) -> list[str]:
    return [
        f"-DCHANNELS={len(plan.channels)}",
        f"-DLAYOUT_CHW={int(plan.spec.layout == 'chw')}",
        f"-DVALUE={VALUES[np.dtype(plan.spec.dtype).itemsize]}",
    ]


def prepare(
    plan: TensorPlan,
    pixels: Sequence[PixelBuffer],
    placements: Sequence[Placement],
    tensors: Sequence[int],
    *,
    room: Room,
    middle_bytes: int = 1 << 62,
    plain: bool = False,
    in_c: bool = True,
) -> Launch:
    """The structs, windows and grids of one chunk.

    Args:
        plan: which tensor.
        pixels: the decoded images, at least one.
        placements: the plan's geometry at each image's size; one object, where images are alike, is one's work.
        tensors: the address of each image's output.
        room: see above.
        middle_bytes: between the passes and for canvases, unless one image alone needs more.
        plain: see above.
        in_c: by the kernels in C, where they do the plan: as here, number for number.
    """
    is_ours = is_fast(plan) and not plain
    alike: dict[int, int] = {}  # images of one size and placement differ in addresses alone
    which = [alike.setdefault(id(placement), index) for index, placement in enumerate(placements)]
    canvases = Canvases(plan, placements) if needs_canvases(plan) else None
    uploads = _Uploads(room, canvases.n_bytes if canvases else 0)
    what: dict[str, Any] = {
        "pixels": pixels, "placements": placements, "tensors": tensors, "which": which, "upload": uploads.take
    }  # fmt: skip
    formula = _formula(plan) if is_ours and in_c else None
    made = fill(formula, plan, **what) if formula and native.library() else _fill(plan, **what, fast=is_ours)
    memory, middle_end, (wide, high) = made
    images = memory[: IMAGE.itemsize * len(pixels)].view(IMAGE)
    middles = images["middle"]
    scratch = np.zeros(len(pixels), np.uint64)
    if canvases:  # what levels.cu works on lies behind what the passes do
        scratch += np.diff(middles, append=np.uint64(middle_end))
        ends = canvases.scratch.sum(axis=1).cumsum().astype(np.uint64)
        middles[1:] += ends[:-1]
        middle_end += int(ends[-1])
    parts, most = _parts(middles, middle_end, middle_bytes)
    middles += np.uint64(room.middle(most))
    if canvases:
        scratch += middles
        canvases.write(uploads.memory[uploads.end :], uploads.address + uploads.end, scratch=scratch, tensors=tensors)
    if plan.geometry.levels:
        images["tensor"] = scratch
    height, width = (max(sides) for sides in zip(*(placement.canvas for placement in placements), strict=True))
    middle = _tiles(wide, TILE[0]), _tiles(high, TILE_ROWS)
    canvas = _tiles(width, TILE[0] * (PIXELS if is_ours else 1)), _tiles(height, TILE[1])
    cut = [
        Part(
            first,
            last,
            (*middle, last - first),
            (*canvas, last - first),
            uploads.end + first * CANVAS.itemsize if canvases else None,
        )
        for first, last in parts
    ]
    return Launch(uploads.memory, images, cut)


class _Uploads:
    """Uploads of a room: the data asked for, and ``more`` bytes behind it, from ``end`` on, a multiple of 16."""

    def __init__(self, room: Room, more: int) -> None:
        self._room, self._more = room, more
        self.end = 0

    def take(self, n_bytes: int) -> tuple[U8, int]:
        """See ``Room.upload``."""
        self.end = -(-n_bytes // 16) * 16 if self._more else n_bytes
        self.memory, self.address = self._room.upload(self.end + self._more)
        return self.memory[:n_bytes], self.address


def _fill(
    plan: TensorPlan,
    *,
    pixels: Sequence[PixelBuffer],
    placements: Sequence[Placement],
    tensors: Sequence[int],
    which: Sequence[int],
    upload: Callable[[int], tuple[U8, int]],
    fast: bool,
) -> tuple[U8, int, tuple[int, int]]:
    """Structs and windows; ``middle`` is where an image's part begins, if all lie one after the other.

    Args:
        plan: see ``prepare``, as are ``pixels``, ``placements`` and ``tensors``.
        pixels: see above.
        placements: see above.
        tensors: see above.
        which: for each image the first one of the same placement.
        upload: see ``Room``.
        fast: for fast.cu.

    Returns:
        The memory; the bytes between the passes; the largest extent of the first pass in threads of x, and in rows.
    """
    channels, shelf, middle = len(plan.channels), Shelf(), 0
    made: dict[int, _Placed] = {}
    structs: list[tuple[Any, ...]] = []
    for one, placement, tensor, first in zip(pixels, placements, tensors, which, strict=True):
        if first not in made:
            made[first] = _placed(plan, placement, shelf, fast=fast)
        placed = made[first]
        row, column = placed.corner
        begin = one.address
        end = begin + (one.height - 1) * one.pitch + one.width * channels
        pitch = -one.pitch if placement.mirrors[0] else one.pitch
        corner = begin + row * one.pitch + column * channels
        structs.append((corner, middle, tensor, begin, end, placed.rows, placed.columns, pitch, *placed.numbers))
        middle += -(-placed.middle_bytes // ALIGNMENT) * ALIGNMENT
    images = np.array(structs, IMAGE)
    memory, address = upload(images.nbytes + shelf.n_bytes)
    for axis in ("rows", "columns"):
        for name in ("first", "count", "weights"):
            images[axis][name] += np.uint64(address + images.nbytes)
    memory[: images.nbytes] = images.view(np.uint8)
    shelf.write(memory[images.nbytes :])
    wide, high = zip(*(placed.extent for placed in made.values()), strict=True)
    return memory, middle, (max(wide), max(high))


class _Placed(NamedTuple):
    """Fields of an ``IMAGE`` that its placement decides.

    Attributes:
        rows, columns: ``WINDOWS``, with addresses among all windows.
        numbers: from the stride on.
        corner: (row, column) of the first pixel that the resize sees.
        middle_bytes: between the passes.
        extent: of the first pass, in threads of x and in rows.
    """

    rows: tuple[int, ...]
    columns: tuple[int, ...]
    numbers: tuple[Any, ...]
    corner: tuple[int, int]
    middle_bytes: int
    extent: tuple[int, int]


def _placed(plan: TensorPlan, placement: Placement, shelf: Shelf, *, fast: bool) -> _Placed:
    channels, fill = len(plan.channels), placement.fill or plan.fill
    how = resampling(plan.geometry.resize, placement)
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
        rows, row_bytes = shelf.put(how.rows, placement.laid[0], flip=flip_y)
        columns, column_bytes = shelf.put(how.columns, placement.laid[1], flip=flip_x)
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
    numbers = (
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
        *placement.margins,
        0 if fast else sum(level << 8 * channel for channel, level in zip(plan.channels, fill, strict=True)),
    )
    return _Placed(
        rows.struct(row_bytes),
        columns.struct(column_bytes),
        numbers,
        ((bottom - 1 if mirror_y else top), (right - 1 if mirror_x else left)),
        4 * channels * middle_height * middle_width,
        extent,
    )


def _formula(plan: TensorPlan) -> Formula | None:
    """By which the windows of a plan are made; None: of each axis alone, by its profile."""
    resize = plan.geometry.resize
    if resize is None:  # no axis changes its length: any will do
        return Formula("box", is_widened=False, bits=IDENTITY_BITS)
    find = PROFILES[resize.like].formula
    return find(resize.method) if find else None


def _parts(begins: npt.NDArray[np.uint64], end: int, most: int) -> tuple[list[tuple[int, int]], int]:
    """Neighbours whose parts of the middle buffer have room together; ``begins`` becomes relative to them.

    Args:
        begins: where each image's part begins, if all lie one after the other.
        end: where the last one ends.
        most: bytes, unless one image alone needs more.

    Returns:
        (first, last) of each, and the bytes of the largest.
    """
    if end <= most or len(begins) == 1:
        return [(0, len(begins))], end
    ends = [*begins[1:].tolist(), end]
    parts: list[tuple[int, int]] = []
    first = used = largest = 0
    for last in range(1, len(ends) + 1):
        if last == len(ends) or ends[last] - used > most:
            parts.append((first, last))
            begins[first:last] -= np.uint64(used)
            largest = max(largest, ends[last - 1] - used)
            first, used = last, ends[last - 1]
    return parts, largest


def _tiles(size: int, tile: int) -> int:
    return max(1, -(-size // tile))
