"""Classify the pictures of a clip by the first bits of their packets: key frames, and pictures that can be skipped."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from pixprep.engine.decoders.clips.sequences import SEQUENCES

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
    ):  # without an hvcC (ISO/IEC 14496-15, 8.3.2), NAL units have no lengths
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
