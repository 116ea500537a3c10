"""Flaws in the header of a JPEG that cost no pixel, though libjpeg-turbo warns of them.

libjpeg-turbo tells its first warning alone. So the flaws are taken out, and what is left has to decode without any.
"""

from __future__ import annotations

import re

from pixprep.engine.decoders import Encoded, turbo
from pixprep.engine.decoders.header import JpegHeader

_MARKER = re.compile(rb"\xff([\x02-\xcf\xd9-\xfe])")
_APP0, _APP2, _APP14, _START_OF_SCAN = 0xE0, 0xE2, 0xEE, 0xDA
_SEQUENTIAL, _PROGRESSIVE = (0xC0, 0xC1), 0xC2  # by Huffman codes
END = b"\xff\xd9"
_LEAST_TABLE = 21
"""Minimum number of bytes of a segment with a Huffman table; one with a quantization table has 69."""


def mended(encoded: Encoded, header: JpegHeader) -> bytes | None:
    """Return a JPEG without its harmless flaws; None if a flaw may have changed pixels or colors.

    ==========================  ================================  =====================================================
    libjpeg-turbo warns of      what goes                         why it costs nothing
    ==========================  ================================  =====================================================
    bad ICC marker              the colour profile                nothing is converted by it
    unknown JFIF revision       the number, which becomes 1       nothing depends on it
    invalid SOS parameters      three zeros, for 0, 63 and 0      only progressive JPEGs have scans of a few frequencies
    extraneous bytes before     up to 20 bytes between segments   see below
    marker
    premature end of file       nothing: the end marker is added  ``ended`` adds it where no block lacks
    ==========================  ================================  =====================================================

    Bytes between segments may be the end of the previous segment, which must then be a segment that does not affect
    pixels. They may also be the remains of a lost segment. A segment with a table would be longer. A segment that
    specifies the color space would be Adobe's or JFIF's. Therefore the file must still contain a JFIF segment, which
    alone determines the color space, or an Adobe segment that agrees with JFIF.
    Nonzero numbers in the header of a scan, or a scan that begins with a zero, may be damage that extends into the
    scan. All other warnings of libjpeg-turbo (docs/decisions-decoding.md) may mean changed pixels.

    Args:
        encoded: JPEG with 1 or 3 components.
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
            if len(junk) >= _LEAST_TABLE or before < _APP0:
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
    return bytes(ended(b"".join([*parts, encoded[header.scan :]]), header, scan=sum(map(len, parts))))


def has_end(encoded: Encoded, scan: int) -> bool:
    """Return whether an end-of-image marker follows the first scan, which begins at the offset ``scan``."""
    return END in bytes(encoded[scan:])


def ended(encoded: Encoded, header: JpegHeader, *, scan: int) -> Encoded:
    """Add a missing end-of-image marker to a JPEG, if its only scan ends with the last block.

    libjpeg-turbo then warns if any bit of a block is missing. After several scans, a missing marker may hide a missing
    scan, about which libjpeg-turbo would not warn.

    Lost data may have been replaced by zeros, as in a file whose space was reserved before its download. Zeros are
    valid Huffman codes, so libjpeg-turbo may not warn. Therefore the marker is added only if blocks need the last byte,
    and it is not zero, except for the stuffed zero after a byte of 255.

    Args:
        encoded: JPEG without flaws other than a missing end-of-image marker.
        header: Header of the JPEG, read from a file that may have had other flaws.
        scan: Offset of the first scan in bytes.
    """
    at = scan - 2 * header.components - 4  # offset of the number of components in the scan header
    is_one_scan = header.frame in _SEQUENTIAL and encoded[at] == header.components
    if not is_one_scan or has_end(encoded, scan):
        return encoded
    data = bytes(encoded).rstrip(b"\xff")
    is_stuffed = data.endswith(b"\xff\0")
    if data.endswith(b"\0") and not is_stuffed:
        return encoded
    shorter = data[: -2 if is_stuffed else -1] + END
    is_needed = turbo.warning(shorter, "CMYK" if header.components == 4 else "GRAY") is not None
    return bytes(encoded) + END if is_needed else encoded
