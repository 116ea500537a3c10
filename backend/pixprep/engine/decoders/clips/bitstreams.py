"""Sizes of the pictures of an AV1 or HEVC bitstream, from its headers: a decoder would make room for these."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

MAX_UNITS = 1024
"""Units of one picture: the levels of HEVC allow 600 slices, and AV1 a few groups of tiles."""
MAX_CONFIGURED = 16
MAX_LAYERS = 4
"""Maximum number of frames of one AV1 picture; each frame refines the previous one."""
_SEQUENCE_HEADER, _FRAME_HEADERS = 1, (3, 6)  # AV1 Bitstream & Decoding Process Specification, section 6.2.2
_SPS, _FIRST_PARAMETERS = 33, 32  # ITU-T H.265, table 7-1


class Coded(NamedTuple):
    """The size of a picture.

    Attributes:
        height, width: as its headers say: of HEVC, of the window that is shown.
        most: pixels that may be decoded for it: HEVC codes whole blocks, and AV1 lets a frame have a size of its own.
        units: that were looked at.
    """

    height: int
    width: int
    most: int
    units: int = 0


def av1(data: memoryview) -> Coded:
    """Return the largest size in the sequence headers of an AV1 picture (sections 5.3 and 5.5 of the specification).

    Raises:
        ValueError: the data contradict the specification, or have more units or frames than one picture may.
        IndexError: they end early.
    """
    found: list[Coded] = []
    position = frames = units = 0
    for _ in range(MAX_UNITS):
        if position == len(data):
            break
        units += 1
        header = data[position]
        kind, has_extension, has_size = header >> 3 & 15, header >> 2 & 1, header >> 1 & 1
        position += 1 + has_extension
        size, position = leb128(data, position) if has_size else (len(data) - position, position)
        if header >> 7 or position + size > len(data):
            raise ValueError("a unit is longer than its picture")
        if kind == _SEQUENCE_HEADER:
            found.append(_sequence_header(data[position : position + size]))
        frames += kind in _FRAME_HEADERS
        position += size
    if position < len(data) or frames > MAX_LAYERS or not found:
        raise ValueError("not the data of one picture")
    return _largest(found, units)


def hevc(configuration: memoryview, data: memoryview) -> Coded:
    """Return the largest size in the parameter sets of an HEVC picture (ISO/IEC 14496-15, 8.3.2; H.265, 7.3.2.2).

    Args:
        configuration: the contents of the box ``hvcC``.
        data: units, each with its length before it.

    Raises:
        ValueError: both contradict their specification, or have more units or pictures than one picture may.
        IndexError: they end early.
    """
    units = [*_configured(configuration), *_units(data, 1 + (configuration[21] & 3))]
    kinds = [unit[0] >> 1 & 63 for unit in units]
    pictures = sum(kind < _FIRST_PARAMETERS and unit[2] >> 7 for kind, unit in zip(kinds, units, strict=True))
    found = [_sps(unit) for kind, unit in zip(kinds, units, strict=True) if kind == _SPS]
    if pictures != 1 or not found:
        raise ValueError("not the data of one picture")
    return _largest(found, len(units))


def _largest(found: Sequence[Coded], units: int) -> Coded:
    height, width, most = (max(sizes) for sizes in zip(*(each[:3] for each in found), strict=True))
    return Coded(height, width, most, units)


class Bits:
    """The bits of some bytes, the highest first."""

    def __init__(self, data: bytes | memoryview) -> None:
        self._number = int.from_bytes(data, "big")
        self._left = 8 * len(data)

    def take(self, count: int) -> int:
        """The next bits as a number."""
        self._left -= count
        if self._left < 0:
            raise ValueError("a header ends early")
        return self._number >> self._left & (1 << count) - 1

    def exponential(self) -> int:
        """An Exp-Golomb code of at most 32 bits, ``ue(v)`` or ``uvlc()``."""
        zeros = 0
        while not self.take(1):
            zeros += 1
        if zeros > 31:
            raise ValueError("a number of over 32 bits")
        return (1 << zeros) - 1 + self.take(zeros)


def leb128(data: memoryview, position: int) -> tuple[int, int]:
    """Return a number in groups of seven bits, and the position after it."""
    number = 0
    for index in range(8):
        byte = data[position + index]
        number |= (byte & 127) << 7 * index
        if not byte >> 7:
            return number, position + index + 1
    raise ValueError("a number of over 56 bits")


def _sequence_header(unit: memoryview) -> Coded:
    bits = Bits(unit[:512])
    bits.take(3 + 1)
    is_reduced = bits.take(1)
    if is_reduced:
        bits.take(5)
    else:
        _operating_points(bits)
    across, down = bits.take(4) + 1, bits.take(4) + 1
    width, height = bits.take(across) + 1, bits.take(down) + 1
    return Coded(height, width, height * width if is_reduced else 1 << across + down)


def _operating_points(bits: Bits) -> None:
    delay = 0
    if bits.take(1):  # timing info
        bits.take(32 + 32)
        if bits.take(1):
            bits.exponential()
        if bits.take(1):  # decoder model info
            delay = bits.take(5) + 1
            bits.take(32 + 5 + 5)
    has_display_delay = bits.take(1)
    for _ in range(bits.take(5) + 1):
        bits.take(12)
        if bits.take(5) > 7:
            bits.take(1)
        if delay and bits.take(1):
            bits.take(2 * delay + 1)
        if has_display_delay and bits.take(1):
            bits.take(4)


def _configured(configuration: memoryview) -> Iterator[memoryview]:
    """The units of an ``hvcC``."""
    position, total = 23, 0
    for _ in range(configuration[22]):
        count = int.from_bytes(configuration[position + 1 : position + 3], "big")
        position += 3
        total += count
        if total > MAX_CONFIGURED:
            raise ValueError(f"over {MAX_CONFIGURED} parameter sets")
        for _ in range(count):
            end = position + 2 + int.from_bytes(configuration[position : position + 2], "big")
            if end > len(configuration) or end < position + 5:
                raise ValueError("a unit is longer than its configuration, or has no data")
            yield configuration[position + 2 : end]
            position = end


def _units(data: memoryview, length_bytes: int) -> Iterator[memoryview]:
    position = 0
    for _ in range(MAX_UNITS):
        if position == len(data):
            return
        begin = position + length_bytes
        position = begin + int.from_bytes(data[position:begin], "big")
        if position > len(data) or position < begin + 3:
            raise ValueError("a unit is longer than its picture, or has no data")
        yield data[begin:position]
    raise ValueError(f"over {MAX_UNITS} units")


def _sps(unit: memoryview) -> Coded:
    bits = Bits(bytes(unit[2:1024]).replace(b"\0\0\3", b"\0\0"))
    bits.take(4)
    layers = bits.take(3)
    bits.take(1 + 88 + 8)
    present = [(bits.take(1), bits.take(1)) for _ in range(layers)]
    if layers:
        bits.take(2 * (8 - layers))
    for has_profile, has_level in present:
        bits.take(88 * has_profile + 8 * has_level)
    bits.exponential()
    chroma = bits.exponential()
    if chroma == 3:
        bits.take(1)
    width, height = bits.exponential(), bits.exponential()
    most = height * width
    if bits.take(1):  # what is shown of it (table 6-1: chroma 1 is halved on both axes, 2 across)
        left, right, top, bottom = (bits.exponential() for _ in range(4))
        width -= (left + right) * (2 if chroma in (1, 2) else 1)
        height -= (top + bottom) * (2 if chroma == 1 else 1)
    return Coded(height, width, most)
