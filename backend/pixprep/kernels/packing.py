"""Windows as the CUDA kernels read them, in arrays of 32 bits."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pixprep.kernels.structs import DIGITS, TAPS
from pixprep.profiles.windows import Windows

U8 = npt.NDArray[np.uint8]
Int32 = npt.NDArray[np.int32]


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

    def struct(self, begin: int) -> tuple[int, ...]:
        """The ``WINDOWS`` of an array at this address."""
        weights = _aligned(2 * self.size)
        return begin, begin + 4 * self.size, begin + 4 * weights, self.size, self.bits


class Shelf:
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

    ``fill.c`` makes and packs those of a formula.

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
