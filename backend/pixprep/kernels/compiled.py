"""Resizes of ``fixed`` in machine code: windows, both passes and the look-up, as ``resample`` does them in NumPy.

A window is a dot product of levels and weights, and 16 of its products are one vector: of a row of four channels those
of 4 pixels, whose sums are folded at the end; of a column those of 16 neighbours, whose sums stay apart. Four windows
at a time share the weights. So the windows of a row come in groups of 4 pixels (16 of gray ones): positions that fill
up a group weigh 0. Other threads run during every call.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import accumulate
from math import ceil
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pixprep.kernels.colours import rest_of, turn_of
from pixprep.kernels.llvm import (
    ADDRESSES,
    COLOUR,
    CURVES,
    FILL,
    FUNCTIONS,
    LANES,
    LOOK_UP,
    PACK,
    PASS,
    PLACED,
    RESIZE,
    WINDOWS,
)
from pixprep.kernels.margins import Margins, surrounded
from pixprep.kernels.resampling import RECENT
from pixprep.kernels.structs import IMAGE
from pixprep.plan.placement import Placement, Resize
from pixprep.plan.plan import TensorPlan
from pixprep.profiles import PROFILES
from pixprep.profiles.formula import RADIUS, Formula
from pixprep.profiles.profile import never_vertical_first
from pixprep.profiles.windows import Axis
from pixprep.spec import ColorLike

U8 = npt.NDArray[np.uint8]
Int32 = npt.NDArray[np.int32]


class Grouped(NamedTuple):
    """The windows of an axis, in groups of neighbours.

    Attributes:
        memory: int32: the first position of each window, its count of groups, and its row of ``taps`` weights.
        size: how many windows.
        taps: the most positions of a window, in whole groups.
        bits: of the weights.
        begin, end: the input positions that they read; a group that reaches further begins at ``begin``.
    """

    memory: Int32
    size: int
    taps: int
    bits: int
    begin: int
    end: int


class _Fill(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_int64 if i else ctypes.c_double) for i, name in enumerate(FILL))


class _Colour(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_double if 2 <= i < 6 else ctypes.c_int64) for i, name in enumerate(COLOUR))


_Pass, _LookUp, _Curves = (ctypes.c_int64 * len(names) for names in (PASS, LOOK_UP, CURVES))
_PLACED = struct.Struct(f"=2d{len(PLACED) - 2}q")
_WINDOWS = struct.Struct(f"=4d{len(WINDOWS) - 4}q")
_TOLD = struct.Struct(f"={len(RESIZE)}q" + 2 * _WINDOWS.format[1:] + f"{2 * len(PASS) + len(LOOK_UP)}q")
"""All that a whole resize and what it calls are told."""
_IS_DONE = 8 * RESIZE.index("is_done")
_PARTS = tuple(8 * words for words in accumulate(map(len, (RESIZE, WINDOWS, WINDOWS, PASS, PASS))))
"""Where in these begins what is told to the makers of the rows' and columns' windows, both passes and the finish."""


@lru_cache(RECENT)
def grouped(formula: Formula, axis: Axis, group: int) -> Grouped:
    """The windows of one axis that changes its length, of which something is wanted, in groups of 1, 4 or 16."""
    taps = most_taps(formula, axis, group)
    size = axis.end - axis.begin
    memory = np.zeros((2 + taps) * size, np.int32)
    scratch = np.empty(max(taps, 4))
    begin, end, bits = make(formula, axis, group, taps, memory=memory.ctypes.data, scratch=scratch.ctypes.data)
    return Grouped(memory, size, taps, bits, begin, end)


def make(formula: Formula, axis: Axis, group: int, taps: int, *, memory: int, scratch: int) -> tuple[int, int, int]:
    """The windows of an axis, made in the memory of a ``Grouped``: its begin, end and bits.

    Args:
        formula: see ``grouped``.
        axis: see ``grouped``.
        group: see ``grouped``.
        taps: see ``most_taps``.
        memory: the address of int32 ((2 + taps) * (axis.end - axis.begin)).
        scratch: that of float64 (max(taps, 4)).
    """
    told = bytearray(_WINDOWS.pack(*_windows(formula, axis, group, taps, memory=memory, scratch=scratch)))
    FUNCTIONS["windows"]((ctypes.c_char * len(told)).from_buffer(told))
    *_, begin, end, bits = _WINDOWS.unpack(told)
    return begin, end, bits


def most_taps(formula: Formula, axis: Axis, group: int) -> int:
    """The most positions of a window, in whole groups."""
    support = RADIUS[formula.curve] * (max(axis.ratio, 1.0) if formula.is_widened else 1.0)
    return -(-min(2 * ceil(support) + 1, axis.length) // group) * group


def _windows(formula: Formula, axis: Axis, group: int, taps: int, *, memory: int, scratch: int) -> tuple[float, ...]:
    """``WINDOWS``: what makes the windows of an axis in the memory of a ``Grouped``."""
    stretch = max(axis.ratio, 1.0) if formula.is_widened else 1.0
    size = axis.end - axis.begin
    return (
        axis.ratio, axis.offset, RADIUS[formula.curve] * stretch, 1 / stretch,
        ADDRESSES[f"window_{formula.curve}"], memory, memory + 4 * size, memory + 8 * size, scratch,
        taps, group, axis.length, axis.out_length, axis.begin, axis.end, formula.bits or 0,
    )  # fmt: skip


def forget() -> None:
    """Give the memory of the remembered windows back."""
    grouped.cache_clear()


def fill(
    formula: Formula,
    plan: TensorPlan,
    *,
    pixels: Sequence[tuple[int, int, int, int]],
    placements: Sequence[Placement],
    tensors: Sequence[int],
    which: Sequence[int],
    upload: Callable[[int], tuple[U8, int]],
) -> tuple[U8, int, tuple[int, int]]:
    """``launch._fill`` for fast.cu, of a plan whose windows are made by a formula: all in one call."""
    order = _order(plan.geometry.resize)
    records = b"".join([
        _PLACED.pack(
            *p.ratio, *p.box, *p.resized, *p.region, *p.at, *p.mirrors, *p.flips,
            like == index and order(p), like, *one, tensor,
        )
        for index, (p, like, one, tensor) in enumerate(zip(placements, which, pixels, tensors, strict=True))
    ])  # fmt: skip
    told = _Fill(
        radius=RADIUS[formula.curve], images=np.frombuffer(records, np.uint8).ctypes.data, channels=len(plan.channels),
        curve=ADDRESSES[f"window_{formula.curve}"], is_widened=formula.is_widened, bits=formula.bits or 0,
    )  # fmt: skip
    axis = (ctypes.c_int64 * (len(WINDOWS) + len(PACK)))()
    told.windows = ctypes.addressof(axis)
    told.pack = told.windows + 8 * len(WINDOWS)
    measured = np.empty(IMAGE.itemsize * len(which), np.uint8)
    told.structs, told.used = measured.ctypes.data, len(which)
    FUNCTIONS["fill"](ctypes.byref(told))  # it has no capacity yet, and says how much it needs
    memory, told.address = upload(told.used)
    scratch = np.empty(told.scratch_used, np.uint8)
    told.structs, told.capacity = memory.ctypes.data, told.used
    told.scratch, told.scratch_capacity = scratch.ctypes.data, told.scratch_used
    told.used, told.middle, told.wide, told.high = len(which), 0, 0, 0
    FUNCTIONS["fill"](ctypes.byref(told))
    return memory, told.middle, (told.wide, told.high)


def _order(resize: Resize | None) -> Callable[[Placement], bool]:
    """Whether the first pass of a placement is from row to row."""
    if resize is None or (profile := PROFILES[resize.like]).is_vertical_first is never_vertical_first:
        return lambda _: False
    method = resize.method

    def axis(p: Placement, axis: int) -> Axis:
        return Axis(p.box[axis + 2] - p.box[axis], p.resized[axis], p.ratio[axis], p.region[axis], p.region[axis + 2])

    return lambda p: profile.is_vertical_first(method, axis(p, 0), axis(p, 1))


def resample(
    pixels: U8, formula: Formula, rows: Axis, columns: Axis, *, vertical_first: bool, around: Margins | None = None
) -> U8:
    """The wanted region, (rows, columns, channels), perhaps a view of the pixels.

    Args:
        pixels: uint8 (height, width, channels), any strides, 1 to 4 channels.
        formula: of the windows of an axis that changes its length; one that keeps it has no pass.
        rows: with ``columns`` the two axes; something is wanted of both.
        columns: see above.
        vertical_first: the first pass is from row to row.
        around: the margin of the pixels; None: there is none. It is laid beside them as late as it can be: before the
            pass along its axis. The pass before leaves a margin its colour.
    """
    made: list[Grouped | None] = []
    missing = [(0, 0), (0, 0)]
    for number, axis in enumerate((rows, columns)):
        if axis.length == axis.out_length:
            made.append(None)
            begin, end = axis.begin, axis.end
        else:
            these = grouped(formula, axis, neighbours(pixels.shape[2]) if number else 1)
            made.append(these)
            begin, end = these.begin, these.end
        if around:
            before, length = around.before[number], pixels.shape[number]
            wanted, (begin, end) = (begin, end), (min(max(edge - before, 0), length) for edge in (begin, end))
            if begin == end:  # nothing but margin is seen
                shape = (rows.end - rows.begin, columns.end - columns.begin, pixels.shape[2])
                return np.full(shape, around.fill, np.uint8)
            missing[number] = (begin - (wanted[0] - before), wanted[1] - before - end)
        pixels = pixels[:, begin:end] if number else pixels[begin:end]
    if missing[0] == (0, 0) and made[0] and not vertical_first and not formula.is_widened:
        pixels, made[0] = _read(pixels, made[0])
    channels = pixels.shape[2]
    if channels == 3:  # vectors hold whole pixels
        pixels = _with_fourth(pixels)
        around = around and around._replace(fill=np.append(around.fill, around.fill[:1]))
    for number in (0, 1) if vertical_first else (1, 0):
        windows = made[number]
        if around:
            pixels = surrounded(pixels, number, missing[number], around.fill)
        if windows:
            pixels = along(number, pixels, windows)
    return pixels[:, :, :channels]


def _read(pixels: U8, windows: Grouped) -> tuple[U8, Grouped]:
    """The rows that any window reads, where many are left out, and the windows within them; else both as they are."""
    first, count = windows.memory[: 2 * windows.size].reshape(2, -1)
    taps = int(count.max())
    if 2 * windows.size * taps >= len(pixels):
        return pixels, windows
    positions = np.minimum((first - windows.begin)[:, None] + np.arange(taps), len(pixels) - 1).ravel()
    memory = windows.memory.copy()
    memory[: windows.size] = np.arange(0, len(positions), taps)
    return pixels[positions], windows._replace(memory=memory, begin=0, end=len(positions))


def neighbours(channels: int) -> int:
    """How many pixels of a row are one group."""
    return LANES if channels == 1 else LANES // 4


def along(axis: int, values: U8, windows: Grouped) -> U8:
    """One pass along an axis: 0 from row to row, 1 from column to column.

    Args:
        axis: which.
        values: uint8 (height, width, channels), any strides, 1 to 4 channels: of this axis the positions from
            ``begin`` to ``end`` of the windows.
        windows: at least one; along axis 1 in groups of ``neighbours(channels)``.

    Returns:
        (out, width, channels) or (height, out, channels).
    """
    return _from_row_to_row(values, windows) if axis == 0 else _from_column_to_column(values, windows)


def _from_row_to_row(values: U8, windows: Grouped) -> U8:
    _, width, channels = values.shape
    length = width * channels
    if length < LANES:
        wide = _widened(values.reshape(len(values), length, 1), LANES, 1)
        return _from_row_to_row(wide, windows)[:, :length].reshape(-1, width, channels)
    values = _mapped(values)
    out = np.empty((windows.size, width, channels), np.uint8)
    pitch, last = values.strides[0], length - LANES
    places = -(-length // LANES), LANES, LANES, last, last
    _pass(LANES, values, out, windows, places=places, apart=(pitch, length, pitch))
    return out


def _from_column_to_column(values: U8, windows: Grouped) -> U8:
    height, width, channels = values.shape
    if channels not in (1, 4):
        return _from_column_to_column(_widened(values, width, 4), windows)[:, :, :channels]
    if width < windows.taps:
        return _from_column_to_column(_widened(values, windows.taps, channels), windows)
    values = _mapped(values)
    out = np.empty((height, windows.size, channels), np.uint8)
    pitch, out_pitch = values.strides[0], windows.size * channels
    places = height, pitch, out_pitch, (height - 1) * pitch, (height - 1) * out_pitch
    _pass(channels, values, out, windows, places=places, apart=(channels, channels, LANES))
    return out


def _pass(
    sums: int, values: U8, out: U8, windows: Grouped, *, places: tuple[int, ...], apart: tuple[int, int, int]
) -> None:
    """Call a pass: ``places`` and the four numbers behind it, ``levels_window``, ``out_window`` and ``stride``."""
    position, window, stride = apart
    first: int = windows.memory.ctypes.data
    size = windows.size
    levels = values.ctypes.data - windows.begin * position
    rows = size, first, first + 4 * size, first + 8 * size, position, window, 4 * windows.taps
    FUNCTIONS[f"pass_{sums}"](_Pass(levels, out.ctypes.data, *places, *rows, stride, windows.bits))


def look_up(levels: U8, table: npt.NDArray[Any], out: npt.NDArray[Any]) -> None:
    """``out[c, y, x] = table[c, levels[y, x, c]]``.

    Args:
        levels: uint8 (rows, columns, planes), any strides; at least one of each.
        table: (planes, 256), C-contiguous.
        out: (planes, rows, columns) of the same dtype, any strides.
    """
    (rows, columns, planes), (row, column, plane) = levels.shape, levels.strides
    numbers = (planes, rows, columns, plane, row, column, *out.strides)
    told = _LookUp(levels.ctypes.data, out.ctypes.data, table.ctypes.data, *numbers)
    FUNCTIONS[f"look_up_{8 * table.itemsize}"](told)


class Words:
    """``levels.Planes`` in machine code, of images of three channels: a copy, of four bytes a pixel."""

    def __init__(self, image: U8) -> None:
        height, width, _ = image.shape
        self.count = height * width
        self._memory = np.empty(-(-self.count // LANES) * LANES, np.uint32)
        self._address = self._memory.ctypes.data
        self._pixels = self._memory[: self.count].reshape(height, width)
        self._bytes = self._pixels.view(np.uint8).reshape(height, width, 4)[:, :, :3]
        row, column, channel = image.strides
        self._directions = slice(None, None, -1 if row < 0 else 1), slice(None, None, -1 if column < 0 else 1)
        image = image[self._directions]
        if abs(column) == 4 and channel == 1 and row % 4 == 0 and image.ctypes.data % 4 == 0:
            words = np.lib.stride_tricks.as_strided(image, (height, width, 4))
            self._pixels[...] = words.view(np.uint32)[:, :, 0]
        else:
            self._bytes[...] = image

    @property
    def image(self) -> U8:
        """See ``levels.Planes``."""
        return self._bytes[self._directions]

    def look_up(self, tables: U8) -> None:
        """See ``levels.Planes``."""
        FUNCTIONS["curves"](_Curves(self._address, self.count, *_addresses(tables)))

    def histograms(self) -> npt.NDArray[np.uint32]:
        """See ``levels.Planes``."""
        counts = np.zeros((3, 256), np.uint32)
        FUNCTIONS["histograms"](_Curves(self._address, self.count, *_addresses(counts)))
        return counts

    def total(self, like: ColorLike) -> int:
        """See ``levels.Planes``."""
        self._memory[self.count :] = 0
        return int(self._run(f"sum_{like}").total)

    def fade(self, gray: float, factor: float, like: ColorLike) -> None:
        """See ``levels.Planes``."""
        self._run(f"fade_{like}", gray=gray, factor=factor, rest=rest_of(factor))

    def blend(self, factor: float, like: ColorLike) -> None:
        """See ``levels.Planes``."""
        self._run(f"blend_{like}", factor=factor, rest=rest_of(factor))

    def turn(self, shift: float, like: ColorLike) -> None:
        """See ``levels.Planes``."""
        self._run(f"turn_{like}", turn=turn_of(shift, like))

    def _run(self, name: str, **told: float) -> _Colour:
        colour = _Colour(pixels=self._address, groups=len(self._memory) // LANES, **told)
        FUNCTIONS[name](ctypes.byref(colour))
        return colour


def _addresses(rows: npt.NDArray[Any]) -> list[int]:
    """Of each row."""
    return [rows.ctypes.data + row * rows.strides[0] for row in range(len(rows))]


class Finish(NamedTuple):
    """What makes the values of a tensor of its levels: made by ``finish``.

    Attributes:
        look_up: addresses of a function and its table.
        line: the same of what gives the same values faster; None: nothing does.
        first, step: the channel of the first plane, and from plane to plane.
        arrays: keeps the tables.
    """

    look_up: tuple[int, int]
    line: tuple[int, int] | None
    first: int
    step: int
    arrays: tuple[npt.NDArray[Any], ...]


def finish(table: npt.NDArray[Any], channels: Sequence[int], lines: npt.NDArray[np.float64]) -> Finish:
    """How levels become values.

    Args:
        table: (planes, 256), C-contiguous: the value of each level.
        channels: of the pixels, one a plane: in order, or backwards.
        lines: (planes, 2): a scale and an offset. Where ``float32(level * scale + offset)`` is the value of each level,
            in float64, no level need be looked up.
    """
    levels = np.arange(256, dtype=np.float64)
    line = None
    if table.dtype == np.float32 and np.array_equal((levels * lines[:, :1] + lines[:, 1:]).astype(np.float32), table):
        line = ADDRESSES["line"], lines.ctypes.data
    look_up = ADDRESSES[f"look_up_{8 * table.itemsize}"], table.ctypes.data
    return Finish(look_up, line, channels[0], 1 if channels[-1] >= channels[0] else -1, (table, lines))


def write(
    pixels: U8,
    formula: Formula,
    rows: Axis,
    columns: Axis,
    *,
    finish: Finish,
    out: npt.NDArray[Any],
    vertical_first: bool,
    flips: tuple[bool, bool],
    remembers: bool,
) -> bool:
    """Resize, flip and look up in one call: what ``resample`` and ``look_up`` do in several.

    Args:
        pixels: uint8 (height, width, 1 or 4), no gap between the pixels of a row.
        formula: of the windows of both axes.
        rows: with ``columns`` the two axes, which both change their lengths; something is wanted of both.
        columns: see above.
        finish: of the levels.
        out: (planes, rows, columns), any strides.
        vertical_first: the first pass is from row to row.
        flips: (vertical, horizontal), of the result.
        remembers: keep the windows for the next image, which may have the same size.

    Returns:
        Whether it was done: it is not if only a few columns are wanted, or read.
    """
    height, width, channels = pixels.shape
    high, wide = rows.end - rows.begin, columns.end - columns.begin
    length = wide * channels
    if length < LANES:
        return False
    pitch = pixels.strides[0]
    middle_pitch = width * channels if vertical_first else length
    group = neighbours(channels)
    taps_down, taps_across = most_taps(formula, rows, 1), most_taps(formula, columns, group)
    kept = [grouped(formula, rows, 1), grouped(formula, columns, group)] if remembers else []
    made = 0 if remembers else 4  # bytes of a number of the windows that are made here
    sizes = (
        _TOLD.size, 8 * max(taps_down, taps_across, 4), made * (2 + taps_down) * high, made * (2 + taps_across) * wide,
        middle_pitch * (high if vertical_first else height), high * length + 4,  # a line reads 2 bytes more
    )  # fmt: skip
    memory = np.empty(sum(sizes), np.uint8)
    told, scratch, first_down, first_across, middle, levels, _ = accumulate(sizes, initial=memory.ctypes.data)
    if kept:
        first_down, first_across = (each.memory.ctypes.data for each in kept)
        windows: list[tuple[float, ...]] = [
            (0.0, 0.0, 0.0, 0.0, 0, 0, 0, 0, 0, each.taps, 0, 0, 0, each.begin, each.end, each.bits) for each in kept
        ]
    else:
        windows = [
            _windows(formula, rows, 1, taps_down, memory=first_down, scratch=scratch),
            _windows(formula, columns, group, taps_across, memory=first_across, scratch=scratch),
        ]
    told_rows, told_columns, told_across, told_down, told_finish = (told + offset for offset in _PARTS)

    # A flip is a pass that writes its windows backwards.
    down, across = (middle, levels) if vertical_first else (levels, middle)
    down_window = middle_pitch if vertical_first else length
    across_window = channels
    across_places = (middle_pitch, length) if vertical_first else (pitch, middle_pitch)
    if flips[0]:
        down, down_window = down + (high - 1) * down_window, -down_window
    if flips[1]:
        across, across_window = across + (wide - 1) * channels, -channels

    is_line = finish.line is not None and channels == LANES // 4 and wide >= LANES and out.strides[2] == 4
    function, table = finish.line if is_line and finish.line else finish.look_up
    last = length - LANES
    _TOLD.pack_into(
        memory.data, 0,
        told_rows, told_columns, told_across, told_down, function, told_finish, vertical_first,
        pixels.ctypes.data, pitch, middle, middle_pitch, channels, 0,
        *windows[0], *windows[1],
        0, across, high, *across_places, *((high - 1) * place for place in across_places),
        wide, first_across, first_across + 4 * wide, first_across + 8 * wide,
        channels, across_window, 4 * taps_across, LANES, 0,
        0, down, -(-length // LANES), LANES, LANES, last, last,
        high, first_down, first_down + 4 * high, first_down + 8 * high,
        pitch if vertical_first else middle_pitch, down_window, 4 * taps_down,
        pitch if vertical_first else middle_pitch, 0,
        levels + finish.first, out.ctypes.data, table, len(out), high, wide,
        finish.step, length, channels, *out.strides,
    )  # fmt: skip
    FUNCTIONS[f"resize_{channels}"](told)
    return bool(memory[_IS_DONE])


def _mapped(values: U8) -> U8:
    """With no gap between the pixels of a row; rows may lie any number of bytes apart."""
    is_mapped = values.strides[1:] == (values.shape[2], 1) and values.strides[0] >= 0
    return values if is_mapped else values.copy()  # ``ascontiguousarray`` leaves a single row its stride


def _with_fourth(pixels: U8) -> U8:
    """A copy, (height, width, 4), of pixels with three channels and any strides; the fourth byte has no meaning.

    A pixel and the byte behind it are copied as one number, which but for the last of a row is inside the row: 0.6 ms
    for 1920 x 1080, where NumPy takes 7.8 to copy by threes, and 1.7 by planes, as here for other strides.
    """
    height, width, _ = pixels.shape
    wide = np.empty((height, width, 4), np.uint8)
    by_planes = pixels
    at: U8 = wide
    if pixels.strides[1:] == (3, 1) and width > 1:
        told = dict(pixels.__array_interface__)
        told |= {"typestr": "<u4", "shape": (height, width - 1), "strides": (pixels.strides[0], 3)}
        wide.view("<u4")[:, :-1, 0] = np.asarray(_Told(told, pixels))
        by_planes, at = pixels[:, -1:], wide[:, -1:]
    for plane in range(3):
        at[:, :, plane] = by_planes[:, :, plane]
    return wide


class _Told:
    """Memory as ``__array_interface__`` tells it, and what it belongs to."""

    def __init__(self, told: dict[str, Any], owner: U8) -> None:
        self.__array_interface__ = told
        self.owner = owner


def _widened(values: U8, width: int, channels: int) -> U8:
    wide = np.zeros((len(values), width, channels), np.uint8)
    wide[:, : values.shape[1], : values.shape[2]] = values
    return wide
