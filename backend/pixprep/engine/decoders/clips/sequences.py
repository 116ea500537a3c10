"""Headers in a packet that bind size, colours and fields of the whole clip, and whether one may begin there.

It serves decoders that do not report these facts. Packets of H.264 and H.265 have the form of their Annex B.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from pixprep.engine.decoders.clips.bitstreams import Bits, leb128

_START = re.compile(b"\0\0\1")
_VP9_KEY, _VP9_HIDDEN = 0x80, 0x84  # the first byte: a frame of profile 0, but for its last two bits
_SEQUENCE_HEADER = 1  # of the units of AV1
_WITH_CHROMA = (100, 110, 122, 244, 44, 83, 86, 118, 128, 138, 139, 134, 135)  # profiles (H.264, 7.3.2.1.1)


class Sequences(NamedTuple):
    """Reader of a codec's headers.

    Attributes:
        headers: the distinct headers in a packet; where a clip has one alone, all its frames are alike.
        begins: whether a decoder may begin with a packet that its container calls a key frame: no frame that is shown
            after it needs one from before it.
        is_plain: of a header, whether frames are neither interlaced nor made with a film's grain.

    Each raises ValueError or IndexError on damage.
    """

    headers: Callable[[bytes], set[bytes]]
    begins: Callable[[bytes], bool]
    is_plain: Callable[[bytes], bool]


def _units(packet: bytes) -> Iterator[bytes]:
    return (unit.rstrip(b"\0") for unit in _START.split(packet)[1:])


def _h264_headers(packet: bytes) -> set[bytes]:
    return {unit for unit in _units(packet) if unit and unit[0] & 31 == 7}


def _h264_begins(packet: bytes) -> bool:
    """An IDR picture. Other key frames may refer to earlier pictures."""
    return any(unit and unit[0] & 31 == 5 for unit in _units(packet))


def _is_h264_plain(header: bytes) -> bool:
    """``frame_mbs_only_flag`` (H.264, 7.3.2.1.1); False if scaling lists precede it."""
    bits = Bits(header[1:].replace(b"\0\0\3", b"\0\0"))
    profile = bits.take(8)
    bits.take(16)
    bits.exponential()
    if profile in _WITH_CHROMA:
        bits.take(bits.exponential() == 3)
        bits.exponential()
        bits.exponential()
        bits.take(1)
        if bits.take(1):
            return False
    bits.exponential()
    order = bits.exponential()
    if order == 0:
        bits.exponential()
    elif order == 1:
        bits.take(1)
        for _ in range(2):
            bits.exponential()
        for _ in range(bits.exponential()):
            bits.exponential()
    bits.exponential()
    bits.take(1)
    bits.exponential()
    bits.exponential()
    return bool(bits.take(1))


def _hevc_headers(packet: bytes) -> set[bytes]:
    return {unit for unit in _units(packet) if unit and unit[0] >> 1 & 63 == 33}


def _hevc_begins(packet: bytes) -> bool:
    """BLA, IDR and CRA: pictures that are shown later need nothing from before (H.265, 7.4.2.2)."""
    return any(unit and 16 <= unit[0] >> 1 & 63 <= 21 for unit in _units(packet))


def _is_hevc_plain(header: bytes) -> bool:
    """``general_interlaced_source_flag`` is not set (H.265, 7.3.3)."""
    return not header.replace(b"\0\0\3", b"\0\0")[8] & 0x40


def _vp9_headers(packet: bytes) -> set[bytes]:
    """Colours and size of a key frame (VP9 Bitstream & Decoding Process Specification, 6.2).

    A hidden frame that is coded by itself may bring colours of its own: it counts as another header.
    """
    if packet[0] & 0xFC == _VP9_KEY:
        return {(int.from_bytes(packet[1:9], "big") >> 4).to_bytes(8, "big")}
    return {b"by itself"} if packet[0] & 0xFE == _VP9_HIDDEN and packet[1] >> 7 else set()


def _vp9_begins(packet: bytes) -> bool:
    return packet[0] & 0xFC == _VP9_KEY


def _av1_headers(packet: bytes) -> set[bytes]:
    found, position = set(), 0
    while position < len(packet):
        head = packet[position]
        position += 1 + (head >> 2 & 1)
        size = len(packet) - position
        if head >> 1 & 1:
            size, position = leb128(memoryview(packet), position)
        if head >> 3 & 15 == _SEQUENCE_HEADER:
            found.add(packet[position : position + size])
        position += size
    return found


def _is_av1_plain(header: bytes) -> bool:
    """``film_grain_params_present`` is not set: it comes last, before a bit that is set and others that are not."""
    number = int.from_bytes(header, "big")
    if not number:
        raise ValueError("a sequence header without a last bit")
    return not number >> (number & -number).bit_length() & 1


SEQUENCES = {
    "h264": Sequences(_h264_headers, _h264_begins, _is_h264_plain),
    "hevc": Sequences(_hevc_headers, _hevc_begins, _is_hevc_plain),
    "vp9": Sequences(_vp9_headers, _vp9_begins, lambda _: True),
    "av1": Sequences(_av1_headers, lambda packet: bool(_av1_headers(packet)), _is_av1_plain),
}
"""Readers by FFmpeg's names of the codecs."""
