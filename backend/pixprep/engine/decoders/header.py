"""Read the header of an encoded image without decoding it or allocating memory for its pixels."""

from __future__ import annotations

import re
import struct
from functools import lru_cache
from typing import NamedTuple

from pixprep.engine.decoders import KINDS, NAMES, Format, Limits, called, foreign, text
from pixprep.engine.decoders.exif import NAME, exif_orientation, is_plain_exif
from pixprep.engine.decoders.structure import (
    ADOBE,
    END_OF_IMAGE,
    EXIF,
    FRAMES,
    JFIF,
    KEPT,
    START_OF_SCAN,
    Structure,
    has_many_scans,
)
from pixprep.errors import ImageError
from pixprep.plan.plan import RECENT_SIZES

# Matches the next marker with a length, or the end-of-image marker. Like libjpeg, the search skips fill bytes FF,
# markers without a length (TEM, RSTn, SOI) and junk. A regular expression is used because a Python loop over 20 MB of
# zeros would take seconds.
_MARKER = re.compile(rb"\xff[\x02-\xcf\xd9-\xfe]")
_MAX_CACHED = 64  # maximum total bytes of frame and scan header for the cache; they take 29 for three components
_MAX_SEGMENTS = 4096  # more than enough: an ICC profile has at most 255 segments
_SEQUENTIAL = frozenset({0xC0, 0xC1, 0xC3, 0xC9, 0xCB})
# Minimum number of bits of an 8 x 8 block in the first scan: one Huffman code of at least one bit for the DC
# coefficient and, in a sequential JPEG, one for the end of the block (EOB). Arithmetic coding does not have a minimum.
_MIN_BLOCK_BITS = {0xC0: 2, 0xC1: 2, 0xC2: 1}
_LOSSLESS = 0xC3
_MAX_BRANDS = 256  # maximum number of bytes of a file that are searched for brands
_MAX_PREFIX = 8  # maximum bytes of junk before an image: a length field, a byte order mark, line breaks
_CERTAIN = frozenset({"jpeg", "png", "webp", "gif", "tiff"})  # formats whose signature does not occur by chance
_FIELDS = struct.Struct(">BHHB")  # start of a frame header: precision, height, width, number of components
_JFIF, _ADOBE = b"JFIF\0", b"Adobe"
_JFIF_BYTES, _ADOBE_BYTES = 14, 12  # minimum sizes without the length field; libjpeg ignores shorter segments


class JpegHeader(NamedTuple):
    """Header of a JPEG file, up to the data of its first scan.

    Attributes:
        height, width: Stored size in pixels, before the EXIF orientation is applied.
        components: Number of components: 1 for gray, 3 for color, 4 for CMYK or YCCK.
        precision: Bits per sample.
        frame: Last byte of the start-of-frame marker: 0xC0 baseline, 0xC1 extended, 0xC2 progressive, 0xC3 lossless,
            0xC9 and above arithmetic coding.
        orientation: EXIF orientation, 1 to 8; 1 if the file does not specify one.
        scan: Offset in bytes of the entropy-coded data of the first scan.
        min_scan_bytes: Minimum number of bytes of a complete first scan; 0 if unknown.
        is_rgb: Whether the three components are red, green and blue instead of YCbCr.
        samplings: Sampling factors, one byte per component: the horizontal factor in the upper four bits, the vertical
            factor in the lower four bits.
    """

    height: int
    width: int
    components: int
    precision: int
    frame: int
    orientation: int
    scan: int
    min_scan_bytes: int
    is_rgb: bool
    samplings: bytes

    def size(self, *, is_upright: bool) -> tuple[int, int]:
        """Return (height, width) as stored, or with the EXIF orientation applied if ``is_upright``."""
        return (self.width, self.height) if is_upright and self.orientation >= 5 else (self.height, self.width)


def sniff(encoded: bytes | memoryview) -> Format | None:
    """Return the format of a file according to its first bytes, or None if pixprep does not support the format."""
    head = bytes(encoded[:12])
    for name, kind in KINDS.items():
        if kind.begins is not None and kind.begins.match(head):
            return name
    if head[4:8] != b"ftyp":
        return None
    brands = bytes(encoded[8 : min(int.from_bytes(head[:4], "big"), _MAX_BRANDS)])
    named = {brands[at : at + 4] for at in range(0, len(brands), 4)}
    return next((name for name, kind in KINDS.items() if kind.brands & named), None)


def read_header(encoded: memoryview, limits: Limits, *, is_strict: bool) -> tuple[Format, JpegHeader | None]:
    """Return the format of an image and, for a JPEG, its header. Check both against the limits.

    For other formats, only the format and the number of bytes are checked; their decoders check the size of the image.

    Args:
        encoded: Bytes of the file.
        limits: Limits of the engine.
        is_strict: Whether to reject a JPEG whose data are shorter than the minimum size of its first scan.

    Raises:
        ImageError: The image is invalid or exceeds a limit.
    """
    limits.check_bytes(len(encoded))
    name = sniff(encoded)
    if name is None:
        raise _unknown(encoded, limits)
    limits.check_format(name)
    if name != "jpeg":
        return name, None
    try:
        header = read_jpeg_header(encoded, max_scans=limits.max_scans)
    except ImageError:
        if words := text.described(encoded):
            raise ImageError("CORRUPT", words) from None
        raise
    check_header(header, encoded, limits, is_strict=is_strict)
    return name, header


def declared_pixels(encoded: memoryview, name: Format) -> int | None:
    """Return height x width as declared in the header of a PNG, GIF, BMP or WebP, without verifying it.

    Return None for other formats.
    """
    head = bytes(encoded[:30])
    height: int
    width: int
    if len(head) < 30:
        return None
    if name == "png":
        height, width = struct.unpack_from(">II", head, 16)
    elif name == "gif":
        height, width = struct.unpack_from("<HH", head, 6)
    elif name == "bmp":
        height, width = map(abs, struct.unpack_from("<ii", head, 18))
    elif name == "webp" and head[12:16] == b"VP8X":
        height, width = (1 + int.from_bytes(head[at : at + 3], "little") for at in (24, 27))
    elif name == "webp" and head[12:16] == b"VP8L":
        bits = int.from_bytes(head[21:25], "little")
        height, width = 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    elif name == "webp" and head[12:16] == b"VP8 ":
        height, width = (side & 0x3FFF for side in struct.unpack_from("<HH", head, 26))
    else:
        return None
    return height * width


def _unknown(encoded: memoryview, limits: Limits) -> ImageError:
    """Return the error for a file in an unknown format, with the kind of file, if known, and a hint."""
    if words := text.described(encoded) or _with_prefix(encoded):
        return ImageError("UNKNOWN_FORMAT", words)
    *others, last = (NAMES[each] for each in limits.formats)
    found = foreign.described(encoded)
    if found is None:
        names = f"{', '.join(others)} or {last}" if others else last
        return ImageError("UNKNOWN_FORMAT", f"not a {names} file")
    what, hint = found
    names = f"{', '.join(others)} and {last}" if others else last
    return ImageError("UNKNOWN_FORMAT", f"{what}; the accepted formats are {names}: {hint}")


def _with_prefix(encoded: memoryview) -> str | None:
    """Return a message if an image begins after a few other bytes, or None if no image does."""
    for count in range(1, _MAX_PREFIX + 1):
        name = sniff(encoded[count:])
        if name not in _CERTAIN:
            continue
        before, rest = bytes(encoded[:count]), len(encoded) - count
        if not before.strip(b"\r\n"):
            what = "a line break"
        elif rest in (int.from_bytes(before, "little"), int.from_bytes(before, "big")):
            what = f"its length in {count} bytes"
        else:
            what = f"{count} other byte{'s' * (count > 1)}"
        return f"{called(name)} preceded by {what}: send only the bytes of the file"
    return None


def check_header(header: JpegHeader, encoded: memoryview, limits: Limits, *, is_strict: bool) -> None:
    """Check the header of a JPEG against the limits; see ``read_header`` for the arguments and errors."""
    limits.check_size(header.height, header.width, len(encoded))
    if header.precision != 8 or header.frame == _LOSSLESS:
        what = "a lossless JPEG" if header.frame == _LOSSLESS else f"a JPEG with {header.precision} bits per sample"
        raise ImageError("UNSUPPORTED", f"{what}; only lossy JPEGs with 8 bits per sample are supported")
    if header.components not in (1, 3, 4):
        raise ImageError("UNSUPPORTED", f"a JPEG with {header.components} components; only 1, 3 and 4 are supported")
    if is_strict and len(encoded) - header.scan < header.min_scan_bytes:
        raise ImageError(
            "TRUNCATED",
            f"the JPEG ends after {len(encoded):,} bytes: its {header.height} x {header.width} pixels require at "
            f"least {header.scan + header.min_scan_bytes:,} (parameter damage)",
        )


def read_jpeg_header(encoded: bytes | memoryview, *, max_scans: int = Limits.max_scans) -> JpegHeader:
    """Parse the segments of a JPEG up to its first scan (ITU-T T.81, annex B), and check its number of scans.

    Raises:
        ImageError: TRUNCATED, CORRUPT or TOO_MANY_SCANS: The header is incomplete or invalid, or there are too many
            scans.
    """
    data = memoryview(encoded)
    end = len(data)
    frame: tuple[int, memoryview] | None = None
    exif: list[memoryview] = []
    has_jfif, transform = False, None
    position = 2
    for _ in range(_MAX_SEGMENTS):
        found = _MARKER.search(data, position)
        if found is None:
            raise _truncated(data)
        position = found.end()
        marker = data[position - 1]
        if marker == END_OF_IMAGE:
            raise ImageError("CORRUPT", "the JPEG ends before its first scan")
        if position + 2 > end:
            raise _truncated(data)
        length = data[position] << 8 | data[position + 1]
        if length < 2:
            raise ImageError("CORRUPT", f"the JPEG segment at byte {position:,} has the invalid length {length}")
        if position + length > end:
            raise _truncated(data)
        if marker in KEPT:
            segment = data[position + 2 : position + length]
            if marker in FRAMES:
                frame = (marker, segment) if len(segment) >= 6 else frame
            elif marker == EXIF:
                if segment[:6] == NAME:
                    exif.append(segment[6:] if exif else segment)
            elif marker == JFIF:
                has_jfif |= _is_jfif(segment)
            elif marker == ADOBE:
                transform = _adobe_transform(segment, transform)
            else:
                if frame is None:
                    raise ImageError("CORRUPT", "the JPEG has a scan but no frame header")
                process, fields = frame
                is_one_scan = process in _SEQUENTIAL and len(segment) > 0 and segment[0] == fields[5]
                if not is_one_scan and has_many_scans(data, position, max_scans, max(_MAX_SEGMENTS, 8 * max_scans)):
                    raise ImageError("TOO_MANY_SCANS", f"a JPEG with more than {max_scans} scans (parameter max_scans)")
                is_rgb = _is_rgb(fields, has_jfif=has_jfif, transform=transform)
                orientation = exif_orientation(b"".join(exif)) if exif else 1
                return _header(process, fields, segment, orientation, position + length, is_rgb=is_rgb)
        position += length
    raise ImageError("CORRUPT", f"more than {_MAX_SEGMENTS:,} JPEG segments before the first scan")


def is_plain(header: JpegHeader) -> bool:
    """Return whether a JPEG is Huffman-coded, and gray or subsampled as 4:4:4, 4:2:2, 4:2:0, 4:1:1 or 4:4:0."""
    is_named = header.samplings[1:] == b"\x11\x11" and header.samplings[0] in (0x11, 0x21, 0x22, 0x41, 0x12)
    return header.frame in (0xC0, 0xC1, 0xC2) and (header.components == 1 or is_named)


def read_whole_header(encoded: memoryview, structure: Structure) -> JpegHeader | None:
    """Return the header of a JPEG with a complete marker structure; None if its segments are inconsistent.

    The result is also None if the EXIF data are unusual or split into several segments, because decoders interpret such
    data differently. If the result is not None, it equals that of ``read_jpeg_header``. The number of scans is not
    checked.
    """
    exif = b""
    has_jfif, transform = False, None
    process, fields, begin, end = 0, b"", 0, 0
    for kept in structure.segments:
        marker, begin = kept & 255, (kept >> 8) + 2
        end = begin - 2 + (encoded[begin - 2] << 8 | encoded[begin - 1])
        if marker == JFIF:
            has_jfif |= _is_jfif(encoded[begin:end])
        elif marker == EXIF:
            if encoded[begin : begin + 6] == NAME:
                if exif:
                    return None
                exif = bytes(encoded[begin:end])
                if not is_plain_exif(exif):
                    return None
        elif marker == ADOBE:
            transform = _adobe_transform(encoded[begin:end], transform)
        elif marker != START_OF_SCAN:
            process, fields = marker, bytes(encoded[begin:end])
    scan = bytes(encoded[begin:end])
    if len(fields) < 9 or len(fields) != 6 + 3 * fields[5]:
        return None
    if not scan or not 1 <= scan[0] <= fields[5] or len(scan) != 4 + 2 * scan[0]:
        return None
    if structure.interval and structure.restarts != (_mcus(fields, scan) - 1) // structure.interval:
        return None
    is_rgb = _is_rgb(fields, has_jfif=has_jfif, transform=transform)
    orientation = exif_orientation(exif) if exif else 1
    return _header(process, fields, scan, orientation, end, is_rgb=is_rgb)


def _header(
    process: int, fields: bytes | memoryview, scan: bytes | memoryview, orientation: int, begin: int, *, is_rgb: bool
) -> JpegHeader:
    """Build the header from the frame header and the scan header; the data of the scan begin at offset ``begin``."""
    precision, height, width, components = _FIELDS.unpack_from(fields)
    is_short = len(fields) + len(scan) <= _MAX_CACHED
    blocks = (_recent_blocks if is_short else _blocks)(bytes(fields), bytes(scan))
    return JpegHeader(
        height=height,
        width=width,
        components=components,
        precision=precision,
        frame=process,
        orientation=orientation,
        scan=begin,
        min_scan_bytes=(blocks * _MIN_BLOCK_BITS.get(process, 0) + 7) // 8,
        is_rgb=is_rgb,
        samplings=bytes(fields[7::3]),
    )


def _is_jfif(segment: memoryview) -> bool:
    return len(segment) >= _JFIF_BYTES and segment[:5] == _JFIF


def _adobe_transform(segment: memoryview, known: int | None) -> int | None:
    """Return the color transform of an Adobe segment, or ``known`` if the segment is not valid."""
    return segment[11] if len(segment) >= _ADOBE_BYTES and segment[:5] == _ADOBE else known


def _is_rgb(frame: bytes | memoryview, *, has_jfif: bool, transform: int | None) -> bool:
    """Return whether three components are red, green and blue, as libjpeg decides (``default_decompress_parms``)."""
    if frame[5] != 3 or has_jfif:
        return False
    return transform == 0 if transform is not None else bytes(frame[6:13:3]) == b"RGB"


def _truncated(data: memoryview) -> ImageError:
    return ImageError("TRUNCATED", f"the JPEG ends after {len(data):,} bytes, inside its header")


def _blocks(frame: bytes, scan: bytes) -> int:
    """Return the minimum number of 8 x 8 blocks in a scan; 0 if the headers are invalid.

    A scan with several components may contain more blocks, because its last row and column of MCUs are padded.
    """
    names, across, down = _samplings(frame)
    count = scan[0] if scan else 0
    starts_with_dc = len(scan) == 4 + 2 * count and scan[-3] == 0
    if not starts_with_dc or not names or 0 in across or 0 in down:
        return 0
    _, height, width, _ = _FIELDS.unpack_from(frame)
    max_across, max_down = 8 * max(across), 8 * max(down)
    blocks = 0
    for name in {*scan[1 : 2 * count : 2]}:
        at = names.rfind(name)
        if at < 0:
            return 0
        blocks += -(-width * across[at] // max_across) * -(-height * down[at] // max_down)
    return blocks


_recent_blocks = lru_cache(RECENT_SIZES)(_blocks)
"""Cached version of ``_blocks``, because images of the same size usually have equal frame and scan headers."""


def _mcus(frame: bytes, scan: bytes) -> int:
    """Return the number of MCUs in a scan. If the scan has one component, an MCU is a single block."""
    if scan[0] == 1:
        return _blocks(frame, scan)
    _, across, down = _samplings(frame)
    _, height, width, _ = _FIELDS.unpack_from(frame)
    mcus: int = -(-width // (8 * max(across) or 1)) * -(-height // (8 * max(down) or 1))
    return mcus


def _samplings(frame: bytes) -> tuple[bytes, list[int], list[int]]:
    """Return the IDs of a frame's components, and their horizontal and vertical sampling factors."""
    samplings = frame[7 : len(frame) - 1 : 3]
    names = bytes(frame[6 : 6 + 3 * len(samplings) : 3])
    return names, [each >> 4 for each in samplings], [each & 15 for each in samplings]
