"""Remove harmless flaws from a JPEG or PNG.

Such flaws do not affect the pixels, but the decoder warns about them or rejects the file. libjpeg-turbo reports only
its first warning. The flaws are therefore removed, and the rest of the file must decode without any warning.
"""

from __future__ import annotations

import re
import zlib

from pixprep.engine.decoders import Encoded, turbo
from pixprep.engine.decoders.header import JpegHeader
from pixprep.errors import ImageError

_MARKER = re.compile(rb"\xff([\x02-\xcf\xd9-\xfe])")
_APP0, _APP2, _APP14, _START_OF_SCAN = 0xE0, 0xE2, 0xEE, 0xDA
_SEQUENTIAL, _PROGRESSIVE = (0xC0, 0xC1), 0xC2  # frame types with Huffman coding
END = b"\xff\xd9"
_MIN_TABLE = 21
"""Minimum number of bytes of a segment with a Huffman table. A segment with a quantization table has 69 bytes."""


def without_flaws(encoded: Encoded, header: JpegHeader) -> bytes | None:
    """Return a JPEG without its harmless flaws; None if a flaw may have changed pixels or colors.

    ==========================  ==============================  =====================================================
    warning of libjpeg-turbo    change to the file              why pixels do not change
    ==========================  ==============================  =====================================================
    bad ICC marker              remove the color profile        colors are not converted with the profile
    unknown JFIF revision       set the major version to 1      decoding does not depend on the version
    invalid SOS parameters      replace three zeros: 0, 63, 0   sequential scans always contain all coefficients
    extraneous bytes before     remove up to 20 bytes between   see below
    marker                      segments
    premature end of file       add the end-of-image marker     it is only added if no block is missing
    ==========================  ==============================  =====================================================

    Bytes between segments may be the end of the previous segment, which must then be a segment that does not affect
    pixels. They may also be the rest of a lost segment. A segment with a table would be longer. A segment that
    specifies the color space would be an Adobe or a JFIF segment. Therefore the file must still contain a JFIF segment,
    which alone determines the color space, or an Adobe segment that agrees with JFIF.

    Other invalid parameters in a scan header, or scan data that begin with a zero, may be damage that extends into the
    scan. All other warnings of libjpeg-turbo (docs/decisions-decoding.md) may mean that pixels changed.

    Args:
        encoded: A JPEG with 1 or 3 components.
        header: Header of the JPEG.
    """
    if header.frame not in (*_SEQUENTIAL, _PROGRESSIVE):
        return None
    data = bytes(encoded[: header.scan])
    parts = [data[:2]]
    before, position = 0, 2
    has_junk = has_jfif = has_adobe = False
    while position < header.scan:
        found = _MARKER.search(data, position)
        assert found, "the header has been read"
        junk = data[position : found.start()].rstrip(b"\xff")
        if junk:
            if len(junk) >= _MIN_TABLE or before < _APP0:
                return None
            has_junk, has_adobe = True, has_adobe and before != _APP14
        before, position = found[1][0], found.end()
        end = position + int.from_bytes(data[position : position + 2], "big")
        segment = data[position:end]
        position = end
        if before == _APP0 and segment[2:7] == b"JFIF\0" and len(segment) >= 16:
            has_jfif = True
            segment = segment[:7] + b"\1" + segment[8:]
        elif before == _APP14 and segment[2:7] == b"Adobe" and len(segment) >= 14:
            has_adobe = segment[13] == 1
        elif before == _APP2 and segment[2:14] == b"ICC_PROFILE\0":
            continue
        elif before == _START_OF_SCAN and header.frame in _SEQUENTIAL and segment.endswith(bytes(3)):
            if not any(encoded[header.scan : header.scan + 1]):
                return None
            segment = segment[:-3] + b"\0\x3f\0"
        parts += [found[0], segment]
    if has_junk and not (has_jfif or has_adobe or header.components == 1):
        return None
    return bytes(with_end_marker(b"".join([*parts, encoded[header.scan :]]), header, scan=sum(map(len, parts))))


def has_end_marker(encoded: Encoded, scan: int) -> bool:
    """Return whether an end-of-image marker follows the first scan, which begins at the offset ``scan``."""
    return END in bytes(encoded[scan:])


def with_end_marker(encoded: Encoded, header: JpegHeader, *, scan: int) -> Encoded:
    """Add a missing end-of-image marker to a JPEG if its only scan contains all blocks.

    libjpeg-turbo then warns if any bit of a block is missing. After several scans, a missing marker may hide a missing
    scan, about which libjpeg-turbo would not warn.

    Lost data may have been replaced by zeros, as in a file whose space was reserved before an interrupted download.
    Zeros may be valid Huffman codes, about which libjpeg-turbo does not warn. Therefore the marker is added only if
    decoding needs the last byte of the file, and if this byte is not zero. A stuffed zero after a byte of 255 is
    allowed.

    Args:
        encoded: A JPEG without any flaw other than a missing end-of-image marker.
        header: Header of the JPEG. It may have been read before other flaws were removed.
        scan: Offset in bytes of the data of the first scan.
    """
    at = scan - 2 * header.components - 4  # offset of the number of components in the scan header
    is_one_scan = header.frame in _SEQUENTIAL and encoded[at] == header.components
    if not is_one_scan or has_end_marker(encoded, scan):
        return encoded
    data = bytes(encoded).rstrip(b"\xff")
    is_stuffed = data.endswith(b"\xff\0")
    if data.endswith(b"\0") and not is_stuffed:
        return encoded
    shorter = data[: -2 if is_stuffed else -1] + END
    is_needed = turbo.warning(shorter, "CMYK" if header.components == 4 else "GRAY") is not None
    return bytes(encoded) + END if is_needed else encoded


_SIGNATURE, _END = 8, b"IEND"
_CRITICAL = {b"IHDR", b"PLTE", b"IDAT", b"IEND"}
_USES = {b"tRNS": ", which specifies its transparency", b"eXIf": ", which specifies its orientation"}
_UNUSED = set(b"bKGD cHRM cICP cLLI gAMA hIST iCCP iTXt mDCV pHYs sBIT sPLT sRGB tEXt tIME zTXt iDOT caBX".split())
"""Names of the chunks that do not affect pixels: those of PNG's third edition, of Apple and of C2PA. If a chunk with a
different name has a wrong checksum, the name itself may be damaged."""
_FRAMES = {b"acTL", b"fcTL", b"fdAT"}
_EXIF_TEXT = b"Raw profile type exif\0"
_IS_ANCILLARY = 0x20  # bit of the first character of a chunk's name


def repaired_png(png: memoryview, *, is_lenient: bool) -> tuple[bytes, bool] | None:
    """Return a PNG without the ancillary chunks that do not affect its pixels or their orientation.

    Thus text, times, color profiles and similar chunks may have any size and any checksum.

    Args:
        png: A PNG that Pillow rejects.
        is_lenient: Whether to remove every ancillary chunk with a wrong checksum, as libpng does.

    Returns:
        The PNG, and whether a removed chunk may have affected the pixels or their orientation. None if no chunk was
        removed.

    Raises:
        ImageError: CORRUPT: A chunk that may affect the pixels or their orientation has a wrong checksum.
    """
    parts, position, is_changed, is_damaged = [png[:_SIGNATURE]], _SIGNATURE, False, False
    while position + 12 <= len(png):
        body, end = position + 8, position + 12 + int.from_bytes(png[position : position + 4], "big")
        name, chunk = bytes(png[position + 4 : body]), png[position:end]
        position = end
        if name[0] & _IS_ANCILLARY and name not in _FRAMES and name.upper() not in _CRITICAL:
            use = _USES.get(name) or _USES[b"eXIf"] * (chunk[8 : 8 + len(_EXIF_TEXT)] == _EXIF_TEXT)
            is_right = zlib.crc32(chunk[4:-4]) == int.from_bytes(chunk[-4:], "big")
            is_damage = not is_right and (use != "" or name not in _UNUSED)
            if is_damage and not is_lenient:
                found = name.decode("ascii", "replace")
                raise ImageError("CORRUPT", f"wrong checksum of the PNG's {found} chunk{use}")
            if is_damage or not use:
                is_changed, is_damaged = True, is_damaged or is_damage
                continue
        parts.append(chunk)
        if name == _END:
            break
    return (b"".join(parts), is_damaged) if is_changed else None
