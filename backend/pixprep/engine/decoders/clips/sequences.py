"""Read the sequence headers of a packet, and determine whether decoding may begin with the packet or skip it.

Decoders do not report this information. A sequence header specifies the size, the colors and the interlacing of the
following frames. Packets of H.264 and H.265 must be in the byte stream format of Annex B.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from pixprep.engine.decoders.clips.bitstreams import Bits, leb128

_START = re.compile(b"\0\0\1")
_VP9_KEY, _VP9_HIDDEN = 0x80, 0x84  # first byte of a frame of profile 0, without its last two bits
_SEQUENCE_HEADER = 1  # OBU type of AV1
_WITH_CHROMA = (100, 110, 122, 244, 44, 83, 86, 118, 128, 138, 139, 134, 135)
"""Profiles whose sequence parameter set contains the chroma format (H.264, 7.3.2.1.1)."""


class Sequences(NamedTuple):
    """Functions that read the headers of a codec. Each raises ValueError or IndexError if the data are damaged.

    Attributes:
        headers: Function that returns the set of different sequence headers in a packet. If all packets of a clip
            contain the same header, all its frames have the same format.
        begins: Function that returns whether decoding may begin with a packet that the container marks as a key frame.
            This requires that no frame shown after it refers to a frame before it.
        is_plain: Function that returns whether a sequence header specifies neither interlaced frames nor film grain.
    """

    headers: Callable[[bytes], set[bytes]]
    begins: Callable[[bytes], bool]
    is_plain: Callable[[bytes], bool]


def _units(packet: bytes) -> Iterator[bytes]:
    return (unit.rstrip(b"\0") for unit in _START.split(packet)[1:])


def _h264_headers(packet: bytes) -> set[bytes]:
    return {unit for unit in _units(packet) if unit and unit[0] & 31 == 7}


def _h264_begins(packet: bytes) -> bool:
    """Return whether a packet contains an IDR picture. After other key frames, pictures may refer to earlier ones."""
    return any(unit and unit[0] & 31 == 5 for unit in _units(packet))


def _is_h264_plain(header: bytes) -> bool:
    """Return ``frame_mbs_only_flag`` (H.264, 7.3.2.1.1). Return False if scaling lists precede the flag."""
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
    """Return whether a packet contains a BLA, IDR or CRA picture (H.265, 7.4.2.2).

    Pictures that are shown after such a picture do not refer to pictures before it.
    """
    return any(unit and 16 <= unit[0] >> 1 & 63 <= 21 for unit in _units(packet))


def _is_hevc_plain(header: bytes) -> bool:
    """Return whether ``general_interlaced_source_flag`` is not set (H.265, 7.3.3)."""
    return not header.replace(b"\0\0\3", b"\0\0")[8] & 0x40


def _vp9_headers(packet: bytes) -> set[bytes]:
    """Return the color configuration and the size of a key frame (VP9 Bitstream & Decoding Process Specification, 6.2).

    A hidden intra-only frame may specify different colors. It therefore counts as a different header.
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
    """Return whether ``film_grain_params_present`` is not set.

    It is the last bit of the header, and is followed by a bit that is set and by bits that are not set.
    """
    number = int.from_bytes(header, "big")
    if not number:
        raise ValueError("a sequence header without a trailing bit")
    return not number >> (number & -number).bit_length() & 1


SEQUENCES = {
    "h264": Sequences(_h264_headers, _h264_begins, _is_h264_plain),
    "hevc": Sequences(_hevc_headers, _hevc_begins, _is_hevc_plain),
    "vp9": Sequences(_vp9_headers, _vp9_begins, lambda _: True),
    "av1": Sequences(_av1_headers, lambda packet: bool(_av1_headers(packet)), _is_av1_plain),
}
"""Functions for each codec, by FFmpeg's name of the codec."""


_VOP = b"\0\0\1\xb6"  # start code of an MPEG-4 picture; the next two bits are its type, and 0 is an intra picture
_IDR = 5  # H.264, table 7-1: nal_unit_type of a slice of an IDR picture; slices of other pictures have lower values
_VP8_SHOWN = 0x10  # show_frame bit in the first byte of a VP8 frame (RFC 6386, 9.1)
_MAX_UNITS = 16  # maximum number of NAL units that are searched for the first slice
_SLICES = 32  # H.265: NAL units of lower types are slices, others are parameter sets and metadata
_UNUSED = {0, 2, 4, 6, 8}  # H.265, table 7-1: sub-layer non-reference pictures


def spare(extradata: bytes | None, packets: Sequence[Any]) -> frozenset[int]:
    """Return the indices of the packets of H.265 pictures that no other picture refers to.

    These are the sub-layer non-reference pictures of the highest temporal layer. libavcodec does not skip them itself.
    """
    if (
        not extradata or extradata[0] != 1 or len(extradata) < 22
    ):  # without an hvcC (ISO/IEC 14496-15, 8.3.2), NAL units are not length-prefixed
        return frozenset()
    found = [_slice(memoryview(packet), (extradata[21] & 3) + 1) for packet in packets]
    highest = max((layer for _, layer in filter(None, found)), default=0)
    spare = {(kind, highest) for kind in _UNUSED}
    return frozenset(index for index, picture in enumerate(found) if picture in spare)


def _slice(data: memoryview, n_bytes: int) -> tuple[int, int] | None:
    """Return the type and the temporal layer of the first slice of an H.265 picture.

    All slices of a picture have the same type and layer. ``n_bytes`` is the size of the length fields.
    """
    heads = ((first >> 1 & 63, second & 7) for first, second in _unit_heads(data, n_bytes))
    return next((head for head in heads if head[0] < _SLICES), None)


def _unit_heads(data: memoryview, n_bytes: int) -> Iterator[tuple[int, int]]:
    """Yield the two header bytes of each NAL unit, for at most ``_MAX_UNITS`` units."""
    at = 0
    for _ in range(_MAX_UNITS):
        if at + n_bytes + 2 > len(data):
            return
        yield data[at + n_bytes], data[at + n_bytes + 1]
        at += n_bytes + int.from_bytes(data[at : at + n_bytes], "big")


def is_shown(packet: Any, codec: Any) -> bool:
    """Return whether the frame of a packet is shown.

    An edit list may exclude a frame, and some frames of VP8 are only referred to by others.
    """
    is_hidden = codec.name == "vp8" and not bytes(packet)[0] & _VP8_SHOWN
    return not packet.is_discard and not is_hidden


def is_key(packet: Any, codec: Any) -> bool:
    """Return whether a packet is a key frame.

    For MPEG-4, the picture type is checked, because FFmpeg does not report a wrong flag in the container.
    """
    return packet.is_keyframe and not (codec.name == "mpeg4" and needs_another(packet))


def may_begin(packet: Any, codec: Any) -> bool:
    """Return whether a packet may be a key frame. FFmpeg does not flag damaged key frames of H.264 and AV1."""
    if packet.is_keyframe:
        return True
    match codec.name:
        case "h264":
            return _may_be_idr(bytes(packet), codec.extradata)
        case "libdav1d" | "av1":
            return _has_sequence_header(bytes(packet))
        case _:
            return False


def _may_be_idr(data: bytes, extradata: bytes | None) -> bool:
    """Return whether the first slice of an H.264 packet may belong to an IDR picture."""
    if (
        extradata and extradata[0] == 1 and len(extradata) > 4
    ):  # with an avcC (ISO/IEC 14496-15, 5.3.3), NAL units have lengths
        kinds = [first & 31 for first, _ in _unit_heads(memoryview(data), (extradata[4] & 3) + 1)]
    else:
        kinds = [unit[0] & 31 for unit in re.findall(b"\0\0\1(.)", data, re.DOTALL)]
    return next((kind for kind in kinds if 1 <= kind <= _IDR), _IDR) == _IDR


def _has_sequence_header(data: bytes) -> bool:
    """Return whether an AV1 packet contains a sequence header, as every key frame does, or is damaged."""
    try:
        return bool(SEQUENCES["av1"].headers(data))
    except (ValueError, IndexError):
        return True


def needs_another(packet: Any) -> bool:
    """Return whether an MPEG-4 packet begins with a picture that refers to a different picture."""
    _, _, picture = bytes(packet).partition(_VOP)
    return bool(picture) and picture[0] >> 6 != 0
