"""Reads the header of an encoded image without decoding it or allocating memory for pixels."""

from __future__ import annotations

import re
import struct
from functools import lru_cache
from typing import NamedTuple

from pixprep.engine.decoders import KINDS, NAMES, Format, Limits, called, foreign, text
from pixprep.engine.decoders.exif import NAME, exif_orientation, is_plain_exif
from pixprep.engine.decoders.structure import ADOBE, END_OF_IMAGE, EXIF, FRAMES, JFIF, KEPT, START_OF_SCAN, Structure
from pixprep.errors import ImageError
from pixprep.plan.plan import RECENT_SIZES

# The next marker with a length, or the end-of-image marker. It may follow fill bytes FF, markers without a length (TEM,
# RSTn, SOI) and junk; libjpeg skips all of these. A regular expression, because a Python loop over 20 MB of zeros takes
# seconds.
_MARKER = re.compile(rb"\xff[\x02-\xcf\xd9-\xfe]")
_MAX_REMEMBERED = 64  # maximum bytes of the frame and scan headers in the cache; three components take 29
_MAX_SEGMENTS = 4096  # an ICC profile has at most 255 segments
_SEQUENTIAL = frozenset({0xC0, 0xC1, 0xC3, 0xC9, 0xCB})
# Minimum number of bits of a block of 8 x 8 values in the first scan: one Huffman code for the DC coefficient and, in a
# sequential JPEG, one for the end of the block (EOB). Arithmetic coding has no such bound.
_BITS_A_BLOCK = {0xC0: 2, 0xC1: 2, 0xC2: 1}
_LOSSLESS = 0xC3
_MAX_BRANDS = 256  # bytes
_MAX_BEFORE = 8  # junk before an image: a length field, a byte order mark, line breaks
_CERTAIN = frozenset({"jpeg", "png", "webp", "gif", "tiff"})  # formats whose signature does not occur by chance
_FIELDS = struct.Struct(">BHHB")  # start of a frame header: precision, height, width, number of components
_JFIF, _ADOBE = b"JFIF\0", b"Adobe"
_JFIF_BYTES, _ADOBE_BYTES = 14, 12  # minimum sizes without the length field; libjpeg ignores shorter ones


class JpegHeader(NamedTuple):
    """Contents of a JPEG file up to its first scan.

    Attributes:
        height, width: Stored size in pixels, before the EXIF orientation is applied.
        components: Number of components: 1 for gray, 3 for color, 4 for CMYK or YCCK.
        precision: Bits per sample.
        frame: Last byte of the start-of-frame marker: 0xC0 baseline, 0xC1 extended, 0xC2 progressive, 0xC3 lossless,
            0xC9 and above arithmetic coding.
        orientation: EXIF orientation, 1 to 8; 1 if the file does not specify one.
        scan: Offset of the first scan in bytes.
        least: Minimum number of bytes of a complete first scan; 0 if unknown.
        is_rgb: Whether the three components are red, green and blue instead of YCbCr.
        samplings: One byte per component: the horizontal sampling factor in the upper half, the vertical in the lower.
    """

    height: int
    width: int
    components: int
    precision: int
    frame: int
    orientation: int
    scan: int
    least: int
    is_rgb: bool
    samplings: bytes

    def size(self, *, is_upright: bool) -> tuple[int, int]:
        """Return (height, width) as stored, or after applying the EXIF orientation if ``is_upright``."""
        return (self.width, self.height) if is_upright and self.orientation >= 5 else (self.height, self.width)


def sniff(encoded: bytes | memoryview) -> Format | None:
    """Return the format according to the first bytes; None if pixprep does not support the file."""
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
    """Return the format of an image and, for a JPEG, its header. Reject what can be rejected before decoding.

    The decoders of the other formats check the size of the image themselves.

    Args:
        encoded: Bytes of the file.
        limits: Limits of the engine; see ``Limits``.
        is_strict: Whether to reject a JPEG whose data are shorter than the minimum size of its first scan.

    Raises:
        ImageError: Any reason except DOES_NOT_FIT.
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


def said_pixels(encoded: memoryview, name: Format) -> int | None:
    """Return the unverified height x width in the header of a PNG, GIF, BMP or WebP; None for other formats."""
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
    """Return the error for an unsupported file, with its kind if known, and a hint."""
    if words := text.described(encoded) or _after_others(encoded):
        return ImageError("UNKNOWN_FORMAT", words)
    *others, last = (NAMES[each] for each in limits.formats)
    found = foreign.described(encoded)
    if found is None:
        names = f"{', '.join(others)} or {last}" if others else last
        return ImageError("UNKNOWN_FORMAT", f"not a {names} file")
    what, remedy = found
    names = f"{', '.join(others)} and {last}" if others else last
    return ImageError("UNKNOWN_FORMAT", f"{what}; pixprep reads {names} here: {remedy}")


def _after_others(encoded: memoryview) -> str | None:
    """Words for an image that begins after a few other bytes; None where none does."""
    for count in range(1, _MAX_BEFORE + 1):
        name = sniff(encoded[count:])
        if name not in _CERTAIN:
            continue
        before, rest = bytes(encoded[:count]), len(encoded) - count
        if not before.strip(b"\r\n"):
            what = "a line break"
        elif rest in (int.from_bytes(before, "little"), int.from_bytes(before, "big")):
            what = f"its length, a number of {count} bytes"
        else:
            what = f"{count} other byte{'s' * (count > 1)}"
        return f"{called(name)} after {what}: send the bytes of the file alone, from the first one on"
    return None


def check_header(header: JpegHeader, encoded: memoryview, limits: Limits, *, is_strict: bool) -> None:
    """Reject a JPEG because of its header. See ``read_header`` for the arguments and errors."""
    limits.check_size(header.height, header.width, len(encoded))
    if header.precision != 8 or header.frame == _LOSSLESS:
        what = "a lossless JPEG" if header.frame == _LOSSLESS else f"a JPEG of {header.precision} bits a sample"
        raise ImageError("UNSUPPORTED", f"{what}; pixprep reads lossy ones of 8 bits a sample")
    if header.components not in (1, 3, 4):
        raise ImageError("UNSUPPORTED", f"a JPEG of {header.components} components; pixprep reads 1, 3 and 4")
    if is_strict and len(encoded) - header.scan < header.least:
        raise ImageError(
            "TRUNCATED",
            f"the JPEG ends after {len(encoded):,} bytes: its {header.height} x {header.width} pixels take at least "
            f"{header.scan + header.least:,} (parameter damage)",
        )


def read_jpeg_header(encoded: bytes | memoryview, *, max_scans: int = Limits.max_scans) -> JpegHeader:
    """Walk the segments of a JPEG up to the start of its first scan (ITU-T T.81, annex B), and count its scans.

    Raises:
        ImageError: TRUNCATED, CORRUPT or TOO_MANY_SCANS.
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
            raise _cut_off(data)
        position = found.end()
        marker = data[position - 1]
        if marker == END_OF_IMAGE:
            raise ImageError("CORRUPT", "the JPEG ends before its first scan")
        if position + 2 > end:
            raise _cut_off(data)
        length = data[position] << 8 | data[position + 1]
        if length < 2:
            raise ImageError("CORRUPT", f"a JPEG segment of {length} bytes at byte {position:,}")
        if position + length > end:
            raise _cut_off(data)
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
                if not is_one_scan and _has_many_scans(data, position, max_scans):
                    raise ImageError("TOO_MANY_SCANS", f"a JPEG of over {max_scans} scans (parameter max_scans)")
                is_rgb = _is_rgb(fields, has_jfif=has_jfif, transform=transform)
                orientation = exif_orientation(b"".join(exif)) if exif else 1
                return _header(process, fields, segment, orientation, position + length, is_rgb=is_rgb)
        position += length
    raise ImageError("CORRUPT", f"over {_MAX_SEGMENTS:,} JPEG segments before the first scan")


def is_plain(header: JpegHeader) -> bool:
    """Tell whether a JPEG has Huffman codes, and is gray or one of 4:4:4, 4:2:2, 4:2:0, 4:1:1 and 4:4:0."""
    is_named = header.samplings[1:] == b"\x11\x11" and header.samplings[0] in (0x11, 0x21, 0x22, 0x41, 0x12)
    return header.frame in (0xC0, 0xC1, 0xC2) and (header.components == 1 or is_named)


def read_whole_header(encoded: memoryview, structure: Structure) -> JpegHeader | None:
    """Return the header of a JPEG with a complete marker structure; None if its segments are inconsistent.

    The result is also None if EXIF data are split into several segments or unusual, because decoders interpret such
    data differently. Otherwise ``read_jpeg_header`` returns the same header. The caller checks ``structure.scans``.
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
    if structure.interval and structure.restarts != (_units(fields, scan) - 1) // structure.interval:
        return None
    is_rgb = _is_rgb(fields, has_jfif=has_jfif, transform=transform)
    orientation = exif_orientation(exif) if exif else 1
    return _header(process, fields, scan, orientation, end, is_rgb=is_rgb)


def _header(
    process: int, fields: bytes | memoryview, scan: bytes | memoryview, orientation: int, begin: int, *, is_rgb: bool
) -> JpegHeader:
    """Build the header from the frame and scan segments; the data of the scan begin at ``begin``."""
    precision, height, width, components = _FIELDS.unpack_from(fields)
    is_short = len(fields) + len(scan) <= _MAX_REMEMBERED
    blocks = (_recent_blocks if is_short else _blocks)(bytes(fields), bytes(scan))
    return JpegHeader(
        height=height,
        width=width,
        components=components,
        precision=precision,
        frame=process,
        orientation=orientation,
        scan=begin,
        least=(blocks * _BITS_A_BLOCK.get(process, 0) + 7) // 8,
        is_rgb=is_rgb,
        samplings=bytes(fields[7::3]),
    )


def _is_jfif(segment: memoryview) -> bool:
    return len(segment) >= _JFIF_BYTES and segment[:5] == _JFIF


def _adobe_transform(segment: memoryview, known: int | None) -> int | None:
    """The colour transform that Adobe's segment states, the last one if there are several."""
    return segment[11] if len(segment) >= _ADOBE_BYTES and segment[:5] == _ADOBE else known


def _is_rgb(frame: bytes | memoryview, *, has_jfif: bool, transform: int | None) -> bool:
    """Tell whether three components are red, green and blue, by libjpeg's rule (``default_decompress_parms``)."""
    if frame[5] != 3 or has_jfif:
        return False
    return transform == 0 if transform is not None else bytes(frame[6:13:3]) == b"RGB"


def _cut_off(data: memoryview) -> ImageError:
    return ImageError("TRUNCATED", f"the JPEG ends after {len(data):,} bytes, inside its header")


def _blocks(frame: bytes, scan: bytes) -> int:
    """Return the number of 8 x 8 blocks in a scan, without padding; 0 if the headers are invalid.

    A scan with several components contains more blocks, because its last row and column of MCUs are padded.
    """
    names, across, down = _samplings(frame)
    count = scan[0] if scan else 0
    starts_with_mean = len(scan) == 4 + 2 * count and scan[-3] == 0
    if not starts_with_mean or not names or 0 in across or 0 in down:
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
"""Cached version of ``_blocks``, because images of one size have equal frame and scan headers."""


def _units(frame: bytes, scan: bytes) -> int:
    """Return the number of MCUs in a scan: single blocks for one component, groups of blocks for several."""
    if scan[0] == 1:
        return _blocks(frame, scan)
    _, across, down = _samplings(frame)
    _, height, width, _ = _FIELDS.unpack_from(frame)
    units: int = -(-width // (8 * max(across) or 1)) * -(-height // (8 * max(down) or 1))
    return units


def _samplings(frame: bytes) -> tuple[bytes, list[int], list[int]]:
    """Return the ids of a frame's components, and their horizontal and vertical sampling factors."""
    samplings = frame[7 : len(frame) - 1 : 3]
    names = bytes(frame[6 : 6 + 3 * len(samplings) : 3])
    return names, [each >> 4 for each in samplings], [each & 15 for each in samplings]


def _has_many_scans(data: memoryview, position: int, max_scans: int) -> bool:
    """Return whether a file exceeds the limit of scans or segments, from the first scan's length at ``position``."""
    scans = 1
    for _ in range(max(_MAX_SEGMENTS, 8 * max_scans)):
        position += int.from_bytes(data[position : position + 2], "big")
        found = _MARKER.search(data, position)
        if found is None or data[found.end() - 1] == END_OF_IMAGE:
            return False
        position = found.end()
        scans += data[position - 1] == START_OF_SCAN
        if scans > max_scans:
            break
    return True
