"""Recognize the container of a clip, and find its end and its number of samples, without decoding anything."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from pixprep.errors import ImageError

Container = Literal["mp4", "mkv", "avi"]
MAX_PARTS = 10_000
"""Maximum number of consecutive boxes, elements or chunks."""
_SEGMENT = b"\x18\x53\x80\x67"


def container(encoded: memoryview) -> Container:
    """Return the container according to the first bytes of a file.

    Raises:
        ImageError: UNKNOWN_FORMAT: The container is not supported.
    """
    head = bytes(encoded[:12])
    if head[4:8] == b"ftyp":
        return "mp4"
    if head[:4] == b"\x1aE\xdf\xa3":
        return "mkv"
    if head[:4] == b"RIFF" and head[8:12] == b"AVI ":
        return "avi"
    raise ImageError("UNKNOWN_FORMAT", "not an MP4, MOV, Matroska, WebM or AVI file")


def check_whole(kind: Container, data: memoryview) -> None:
    """Reject a file that is shorter than its container specifies.

    A container that does not specify a size, as in a live stream, is accepted.

    Raises:
        ImageError: TRUNCATED: The file is too short.
        ValueError: The container has more than ``MAX_PARTS`` parts.
    """
    end = {"mp4": _end_of_boxes, "mkv": _end_of_segment, "avi": _end_of_riff}[kind](data)
    if end > len(data):
        raise ImageError("TRUNCATED", f"the clip ends after {len(data):,} bytes, but its container specifies {end:,}")


def boxes(data: memoryview, begin: int, end: int) -> Iterator[tuple[bytes, int, int]]:
    """Iterate over consecutive boxes (ISO/IEC 14496-12, 4.2) as (type, start of the contents, end).

    Iteration stops after a box with an invalid size. The end of this box is before its contents.

    Raises:
        ValueError: There are more than ``MAX_PARTS`` boxes.
    """
    for _ in range(MAX_PARTS):
        if begin + 8 > end:
            return
        size, inner = int.from_bytes(data[begin : begin + 4], "big"), begin + 8
        kind = bytes(data[begin + 4 : inner])
        if size == 1:
            size, inner = int.from_bytes(data[begin + 8 : begin + 16], "big"), begin + 16
        begin = begin + size if size else end
        yield kind, inner, begin
        if begin < inner:
            return
    raise ValueError(f"more than {MAX_PARTS:,} consecutive boxes")


def _end_of_boxes(data: memoryview) -> int:
    """Return the end of the last box of an MP4 or MOV. Bytes after a complete movie are ignored."""
    end = 0
    found: set[bytes] = set()
    for kind, inner, last in boxes(data, 0, len(data)):
        if last < inner or (kind not in _TOP and {b"moov", b"mdat"} <= found):
            return len(data)
        found.add(kind)
        end = last
    return end


_TOP = {
    *(b"ftyp", b"styp", b"moov", b"moof", b"mdat", b"free", b"skip", b"wide", b"uuid", b"meta", b"sidx", b"ssix"),
    *(b"mfra", b"udta", b"prft", b"emsg", b"pdin", b"pnot"),
}
_NESTED = {b"moov", b"trak", b"mdia", b"minf", b"stbl", b"moof", b"traf"}


def count_samples(data: memoryview, begin: int, end: int, depth: int = 0) -> int:
    """Count the samples that the tables of an MP4 declare.

    A few bytes may declare millions of samples, for each of which FFmpeg allocates an entry.
    """
    count = 0
    for kind, inner, last in boxes(data, begin, end):
        if kind in _NESTED and depth < len(_NESTED):
            count += count_samples(data, inner, min(last, end), depth + 1)
        elif kind in (b"stsz", b"stz2"):  # version and flags, size, count
            count += int.from_bytes(data[inner + 8 : inner + 12], "big")
        elif kind == b"trun":  # version and flags, count
            count += int.from_bytes(data[inner + 4 : inner + 8], "big")
    return count


def _end_of_segment(data: memoryview) -> int:
    """Return the end of the segment of a Matroska file (RFC 8794, 4 to 6; RFC 9559, 5.1)."""
    at = 0
    for _ in range(MAX_PARTS):
        if at >= len(data):
            return at
        _, begin = _vint(data, at)
        size, begin = _vint(data, begin)
        if size is None:  # unknown size, as in a recording that is still in progress
            return at
        if bytes(data[at : at + 4]) == _SEGMENT:
            return begin + size
        at = begin + size
    raise ValueError(f"more than {MAX_PARTS:,} elements before the segment")


def _vint(data: memoryview, at: int) -> tuple[int | None, int]:
    """Return a variable-length integer, or None if all its bits are set, and the offset of its end."""
    length = 9 - data[at].bit_length() if at < len(data) else 9
    if length > 8:
        return None, at
    value = int.from_bytes(data[at : at + length], "big") & ((1 << 7 * length) - 1)
    return None if value == (1 << 7 * length) - 1 else value, at + length


def _end_of_riff(data: memoryview) -> int:
    """Return the end of the last RIFF chunk of an AVI."""
    at = 0
    for _ in range(MAX_PARTS):
        if at + 8 > len(data) or bytes(data[at : at + 4]) != b"RIFF":
            return at
        size = int.from_bytes(data[at + 4 : at + 8], "little")
        at += 8 + size + size % 2
    raise ValueError(f"more than {MAX_PARTS:,} consecutive chunks")
