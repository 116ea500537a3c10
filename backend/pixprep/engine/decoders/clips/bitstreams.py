"""Read the picture size, for which a decoder would allocate memory, from the headers of AV1 and HEVC bitstreams."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

MAX_UNITS = 1024
"""Maximum number of OBUs (AV1) or NAL units (HEVC) of a picture. HEVC allows 600 slices, AV1 a few tile groups."""
MAX_CONFIGURED = 16
"""Maximum number of parameter sets in an ``hvcC`` box."""
MAX_LAYERS = 4
"""Maximum number of frames of one AV1 picture; each frame refines the previous one."""
_SEQUENCE_HEADER, _FRAME_HEADERS = 1, (3, 6)  # AV1 Bitstream & Decoding Process Specification, section 6.2.2
_SPS, _FIRST_PARAMETERS = 33, 32  # ITU-T H.265, table 7-1


class Coded(NamedTuple):
    """Size of a picture according to its headers.

    Attributes:
        height, width: Size in pixels. For HEVC, the size of the conformance window.
        max_pixels: Maximum number of pixels that may be decoded. It is larger than the size because HEVC codes complete
            blocks, and because an AV1 frame may specify its own size.
        units: Number of OBUs or NAL units that were read.
    """

    height: int
    width: int
    max_pixels: int
    units: int = 0


def av1(data: memoryview) -> Coded:
    """Return the largest size in the sequence headers of an AV1 picture (sections 5.3 and 5.5 of the specification).

    Raises:
        ValueError: The data violate the specification, or contain more OBUs or frames than a picture may have.
        IndexError: The data end early.
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
            raise ValueError("an OBU extends beyond the data of its picture")
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
        configuration: Contents of the ``hvcC`` box.
        data: NAL units, each preceded by its length.

    Raises:
        ValueError: The data violate the specification, or contain more than one picture or too many NAL units.
        IndexError: The data end early.
    """
    units = [*_configured(configuration), *_units(data, 1 + (configuration[21] & 3))]
    kinds = [unit[0] >> 1 & 63 for unit in units]
    pictures = sum(kind < _FIRST_PARAMETERS and unit[2] >> 7 for kind, unit in zip(kinds, units, strict=True))
    found = [_sps(unit) for kind, unit in zip(kinds, units, strict=True) if kind == _SPS]
    if pictures != 1 or not found:
        raise ValueError("not the data of one picture")
    return _largest(found, len(units))


def _largest(found: Sequence[Coded], units: int) -> Coded:
    height, width, max_pixels = (max(sizes) for sizes in zip(*(each[:3] for each in found), strict=True))
    return Coded(height, width, max_pixels, units)


class Bits:
    """Reader of the bits of a byte string, with the most significant bit first."""

    def __init__(self, data: bytes | memoryview) -> None:
        self._number = int.from_bytes(data, "big")
        self._left = 8 * len(data)

    def take(self, count: int) -> int:
        """Return the next ``count`` bits as an unsigned integer."""
        self._left -= count
        if self._left < 0:
            raise ValueError("a header ends early")
        return self._number >> self._left & (1 << count) - 1

    def exponential(self) -> int:
        """Return the next Exp-Golomb code, ``ue(v)`` or ``uvlc()``, of a number with at most 32 bits."""
        zeros = 0
        while not self.take(1):
            zeros += 1
        if zeros > 31:
            raise ValueError("a number has more than 32 bits")
        return (1 << zeros) - 1 + self.take(zeros)


def leb128(data: memoryview, position: int) -> tuple[int, int]:
    """Return the LEB128 number at a position, which is stored in groups of seven bits, and the position after it."""
    number = 0
    for index in range(8):
        byte = data[position + index]
        number |= (byte & 127) << 7 * index
        if not byte >> 7:
            return number, position + index + 1
    raise ValueError("a number with more than 56 bits")


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
    """Iterate over the NAL units of an ``hvcC`` box."""
    position, total = 23, 0
    for _ in range(configuration[22]):
        count = int.from_bytes(configuration[position + 1 : position + 3], "big")
        position += 3
        total += count
        if total > MAX_CONFIGURED:
            raise ValueError(f"more than {MAX_CONFIGURED} parameter sets")
        for _ in range(count):
            end = position + 2 + int.from_bytes(configuration[position : position + 2], "big")
            if end > len(configuration) or end < position + 5:
                raise ValueError("a NAL unit extends beyond its configuration, or is empty")
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
            raise ValueError("a NAL unit extends beyond its picture, or is empty")
        yield data[begin:position]
    raise ValueError(f"more than {MAX_UNITS} NAL units")


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
    max_pixels = height * width
    if bits.take(1):  # conformance window (table 6-1: chroma format 1 is halved on both axes, 2 horizontally)
        left, right, top, bottom = (bits.exponential() for _ in range(4))
        width -= (left + right) * (2 if chroma in (1, 2) else 1)
        height -= (top + bottom) * (2 if chroma == 1 else 1)
    return Coded(height, width, max_pixels)
