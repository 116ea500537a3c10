"""Pictures of a clip that no other needs, and pictures that need another, by the first bits of their packets."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from pixprep.engine.decoders.clips.sequences import SEQUENCES

_VOP = b"\0\0\1\xb6"  # begins a picture of MPEG-4; the next two bits say of which kind, and 0 needs no other one
_IDR = 5  # of H.264: the kind of a slice of a picture that needs no other; of others it is less (its table 7-1)
_VP8_SHOWN = 0x10  # of the first byte of a VP8 frame (RFC 6386, 9.1)
_MAX_UNITS = 16  # before the first slice
_SLICES = 32  # of H.265: kinds of units below are slices, others are parameters and remarks
_UNUSED = {0, 2, 4, 6, 8}  # of H.265: pictures that none of their temporal layer needs (its table 7-1)


def spare(extradata: bytes | None, packets: Sequence[Any]) -> frozenset[int]:
    """The positions of pictures of H.265 that no other needs: libavcodec does not skip them by itself.

    They say that none of their temporal layer needs them, and there is no higher one.
    """
    if not extradata or extradata[0] != 1 or len(extradata) < 22:  # no hvcC (ISO/IEC 14496-15, 8.3.2): no lengths
        return frozenset()
    found = [_slice(memoryview(packet), (extradata[21] & 3) + 1) for packet in packets]
    highest = max((layer for _, layer in filter(None, found)), default=0)
    spare = {(kind, highest) for kind in _UNUSED}
    return frozenset(place for place, picture in enumerate(found) if picture in spare)


def _slice(data: memoryview, n_bytes: int) -> tuple[int, int] | None:
    """Kind and temporal layer of a picture of H.265, whose slices have the same; ``n_bytes`` give a unit's length."""
    heads = ((first >> 1 & 63, second & 7) for first, second in _unit_heads(data, n_bytes))
    return next((head for head in heads if head[0] < _SLICES), None)


def _unit_heads(data: memoryview, n_bytes: int) -> Iterator[tuple[int, int]]:
    """The first two bytes of each of the first units."""
    at = 0
    for _ in range(_MAX_UNITS):
        if at + n_bytes + 2 > len(data):
            return
        yield data[at + n_bytes], data[at + n_bytes + 1]
        at += n_bytes + int.from_bytes(data[at : at + n_bytes], "big")


def is_shown(packet: Any, codec: Any) -> bool:
    """Tell whether a packet is a frame that is shown: an edit list may leave it out, or others only refer to it."""
    is_hidden = codec.name == "vp8" and not bytes(packet)[0] & _VP8_SHOWN
    return not packet.is_discard and not is_hidden


def is_key(packet: Any, codec: Any) -> bool:
    """Tell whether a packet is a key frame: of MPEG-4, FFmpeg does not say that a container is wrong."""
    return packet.is_keyframe and not (codec.name == "mpeg4" and needs_another(packet))


def may_begin(packet: Any, codec: Any) -> bool:
    """Return whether a packet may be a key frame. FFmpeg does not mark damaged ones of H.264 and AV1."""
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
    """Return whether the first slice of an H.264 packet does not indicate that its picture depends on another."""
    if extradata and extradata[0] == 1 and len(extradata) > 4:  # an avcC (ISO/IEC 14496-15, 5.3.3): lengths
        kinds = [first & 31 for first, _ in _unit_heads(memoryview(data), (extradata[4] & 3) + 1)]
    else:
        kinds = [unit[0] & 31 for unit in re.findall(b"\0\0\1(.)", data, re.DOTALL)]
    return next((kind for kind in kinds if 1 <= kind <= _IDR), _IDR) == _IDR


def _has_sequence_header(data: bytes) -> bool:
    """Tell whether a packet of AV1 has one, or is damaged: without it none is a key frame."""
    try:
        return bool(SEQUENCES["av1"].headers(data))
    except (ValueError, IndexError):
        return True


def needs_another(packet: Any) -> bool:
    """Tell whether a packet of MPEG-4 begins with a picture that needs another."""
    _, _, picture = bytes(packet).partition(_VOP)
    return bool(picture) and picture[0] >> 6 != 0
