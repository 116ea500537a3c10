"""What the first bytes of an encoded image say, read without decoding or allocating anything."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from pixprep.errors import ImageError

Format = Literal["jpeg", "png", "webp", "bmp", "tiff", "gif"]

# Start-of-frame markers: every C0..CF that is not DHT (C4), JPG (C8) or DAC (CC); ITU-T T.81, table B.1.
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
# The next marker that a length follows, or the end of the image. Before it may stand fill bytes FF, markers without a
# length (TEM, RSTn, SOI) and junk, all of which libjpeg skips. A search in C: a loop takes seconds over 20 MB of zeros.
_MARKER = re.compile(rb"\xff[\x02-\xcf\xd9-\xfe]")
_MAX_SEGMENTS = 4096  # an ICC profile takes at most 255 of them
_START_OF_SCAN, _END_OF_IMAGE, _APP1 = 0xDA, 0xD9, 0xE1
_ORIENTATION_TAG, _SHORT = 0x0112, 3


@dataclass(frozen=True, kw_only=True)
class JpegHeader:
    """A JPEG file up to its first scan.

    Attributes:
        height, width: as stored, before any orientation.
        components: 1 gray, 3 colour, 4 CMYK or YCCK.
        precision: bits a sample.
        frame: the start-of-frame marker's last byte: 0xC0 baseline, 0xC1 extended, 0xC2 progressive, 0xC3 lossless,
            0xC9 and above arithmetic coding.
        orientation: EXIF, 1 to 8; 1 where nothing is said.
        scan: where the first scan begins, in bytes.
    """

    height: int
    width: int
    components: int
    precision: int
    frame: int
    orientation: int
    scan: int


def sniff(encoded: bytes | memoryview) -> Format | None:
    """The format that the first bytes announce; None for anything that pixprep does not read."""
    head = bytes(encoded[:12])
    if head.startswith(b"\xff\xd8\xff"):
        return "jpeg"
    if head.startswith(b"\x89PNG\r\n\x1a\n"):
        return "png"
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "webp"
    if head.startswith((b"GIF87a", b"GIF89a")):
        return "gif"
    if head.startswith((b"II*\0", b"MM\0*")):
        return "tiff"
    return "bmp" if head.startswith(b"BM") else None


def read_jpeg_header(encoded: bytes | memoryview) -> JpegHeader:
    """Walk the segments of a JPEG up to the start of its first scan (ITU-T T.81, annex B).

    Raises:
        ImageError: TRUNCATED or CORRUPT.
    """
    data = memoryview(encoded)
    frame: tuple[int, int, int, int, int] | None = None
    orientation = 1
    position = 2
    for _ in range(_MAX_SEGMENTS):
        found = _MARKER.search(data, position)
        if found is None:
            raise _cut_off(data)
        position = found.end()
        marker = data[position - 1]
        if marker == _END_OF_IMAGE:
            raise ImageError("CORRUPT", "the JPEG ends before its first scan")
        if position + 2 > len(data):
            raise _cut_off(data)
        length = int.from_bytes(data[position : position + 2], "big")
        segment = data[position + 2 : position + length]
        if length < 2:
            raise ImageError("CORRUPT", f"a JPEG segment of {length} bytes at byte {position:,}")
        if len(segment) < length - 2:
            raise _cut_off(data)
        if marker in _FRAMES and len(segment) >= 6:
            precision, components = segment[0], segment[5]
            height, width = (int.from_bytes(segment[i : i + 2], "big") for i in (1, 3))
            frame = (height, width, components, precision, marker)
        elif marker == _APP1 and orientation == 1:
            orientation = _exif_orientation(bytes(segment))
        elif marker == _START_OF_SCAN:
            if frame is None:
                raise ImageError("CORRUPT", "the JPEG has a scan but no frame header")
            height, width, components, precision, kind = frame
            return JpegHeader(
                height=height,
                width=width,
                components=components,
                precision=precision,
                frame=kind,
                orientation=orientation,
                scan=position,
            )
        position += length
    raise ImageError("CORRUPT", f"over {_MAX_SEGMENTS:,} JPEG segments before the first scan")


def _cut_off(data: memoryview) -> ImageError:
    return ImageError("TRUNCATED", f"the JPEG ends after {len(data):,} bytes, inside its header")


def _exif_orientation(segment: bytes) -> int:
    """Tag 0x0112 of the first directory of an EXIF segment (TIFF 6.0, section 2); 1 where there is none."""
    if not segment.startswith(b"Exif\0\0"):
        return 1
    tiff = segment[6:]
    order: Literal["little", "big"] = "little" if tiff[:2] == b"II" else "big"

    def number(at: int, size: int) -> int:
        return int.from_bytes(tiff[at : at + size], order)

    directory = number(4, 4)
    for index in range(min(number(directory, 2), 512)):
        entry = directory + 2 + 12 * index
        if number(entry, 2) == _ORIENTATION_TAG and number(entry + 2, 2) == _SHORT:
            value = number(entry + 8, 2)
            return value if 1 <= value <= 8 else 1
    return 1
