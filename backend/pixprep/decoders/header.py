"""What the first bytes of an encoded image say, read without decoding or allocating anything."""

from __future__ import annotations

import re
import struct
from typing import Literal, NamedTuple

from pixprep.decoders import Encoded, Format, Limits
from pixprep.errors import ImageError

# Start-of-frame markers: every C0..CF that is not DHT (C4), JPG (C8) or DAC (CC); ITU-T T.81, table B.1.
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
# The next marker that a length follows, or the end of the image. Before it may stand fill bytes FF, markers without a
# length (TEM, RSTn, SOI) and junk, all of which libjpeg skips. A search in C: a loop takes seconds over 20 MB of zeros.
_MARKER = re.compile(rb"\xff[\x02-\xcf\xd9-\xfe]")
_MAX_SEGMENTS = 4096  # an ICC profile takes at most 255 of them
_SEQUENTIAL = frozenset({0xC0, 0xC1, 0xC3, 0xC9, 0xCB})
# The fewest bits that the first scan spends on a block of 8 x 8 values: a Huffman code for its mean, and unless others
# follow, one for "nothing else". Arithmetic coding has no such bound.
_BITS_A_BLOCK = {0xC0: 2, 0xC1: 2, 0xC2: 1}
_START_OF_SCAN, _END_OF_IMAGE, _APP1, _LOSSLESS = 0xDA, 0xD9, 0xE1, 0xC3
_EXIF = b"Exif\0\0"
_EXIF_START = re.compile(rb"\A(?:Exif\0\0){1,2}")
_ORIENTATION_TAG = 0x0112
_DIRECTORIES, _MAX_DIRECTORIES = (34665, 34853, 40965), 8  # EXIF, GPS, interoperability
# TIFF 6.0, section 2, and LONG8 of BigTIFF, which Pillow reads in any TIFF.
_TYPE_BYTES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 1, 7: 1, 8: 2, 9: 4, 10: 8, 11: 4, 12: 8, 13: 4, 16: 8}
# How a number of a type is packed; a rational is two. The other types are text and bytes.
_NUMBERS = {3: "H", 4: "I", 5: "II", 6: "b", 8: "h", 9: "i", 10: "ii", 11: "f", 12: "d", 13: "I", 16: "Q"}


class JpegHeader(NamedTuple):
    """A JPEG file up to its first scan.

    Attributes:
        height, width: as stored, before any orientation.
        components: 1 gray, 3 colour, 4 CMYK or YCCK.
        precision: bits a sample.
        frame: the start-of-frame marker's last byte: 0xC0 baseline, 0xC1 extended, 0xC2 progressive, 0xC3 lossless,
            0xC9 and above arithmetic coding.
        orientation: EXIF, 1 to 8; 1 where nothing is said.
        scan: where the first scan begins, in bytes.
        least: the bytes that the first scan has at least, if it is whole; 0 where that is not known.
    """

    height: int
    width: int
    components: int
    precision: int
    frame: int
    orientation: int
    scan: int
    least: int

    def size(self, *, is_upright: bool) -> tuple[int, int]:
        """(height, width), as stored or turned upright."""
        return (self.width, self.height) if is_upright and self.orientation >= 5 else (self.height, self.width)


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


def read_header(encoded: memoryview, limits: Limits, *, is_strict: bool) -> tuple[Format, JpegHeader | None]:
    """The format of an image and, of a JPEG, its header: everything that is refused before the decoders see it.

    The size of the other formats is left to whoever reads their headers.

    Args:
        encoded: the bytes.
        limits: see there.
        is_strict: refuse a JPEG that ends before the first scan of its frame can.

    Raises:
        ImageError: any but DOES_NOT_FIT.
    """
    limits.check_bytes(len(encoded))
    name = sniff(encoded)
    if name is None:
        raise ImageError("UNKNOWN_FORMAT", "not a JPEG, PNG, WebP, BMP, TIFF or GIF file")
    limits.check_format(name)
    if name != "jpeg":
        return name, None
    header = read_jpeg_header(encoded, max_scans=limits.max_scans)
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
            f"{header.scan + header.least:,}",
        )
    return name, header


def read_jpeg_header(encoded: bytes | memoryview, *, max_scans: int = Limits.max_scans) -> JpegHeader:
    """Walk the segments of a JPEG up to the start of its first scan (ITU-T T.81, annex B), and count its scans.

    Raises:
        ImageError: TRUNCATED, CORRUPT or TOO_MANY_SCANS.
    """
    data = memoryview(encoded)
    frame: tuple[int, memoryview] | None = None
    exif: list[memoryview] = []
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
            frame = (marker, segment)
        elif marker == _APP1 and segment[:6] == _EXIF:
            exif.append(segment[6:] if exif else segment)
        elif marker == _START_OF_SCAN:
            if frame is None:
                raise ImageError("CORRUPT", "the JPEG has a scan but no frame header")
            process, fields = frame
            components = fields[5]
            is_one_scan = process in _SEQUENTIAL and len(segment) > 0 and segment[0] == components
            if not is_one_scan and _has_many_scans(data, position, max_scans):
                raise ImageError("TOO_MANY_SCANS", f"a JPEG of over {max_scans} scans (parameter max_scans)")
            return JpegHeader(
                height=int.from_bytes(fields[1:3], "big"),
                width=int.from_bytes(fields[3:5], "big"),
                components=components,
                precision=fields[0],
                frame=process,
                orientation=exif_orientation(b"".join(exif)),
                scan=position + length,
                least=(_blocks(fields, segment) * _BITS_A_BLOCK.get(process, 0) + 7) // 8,
            )
        position += length
    raise ImageError("CORRUPT", f"over {_MAX_SEGMENTS:,} JPEG segments before the first scan")


def _cut_off(data: memoryview) -> ImageError:
    return ImageError("TRUNCATED", f"the JPEG ends after {len(data):,} bytes, inside its header")


def _blocks(frame: memoryview, scan: memoryview) -> int:
    """How many blocks of 8 x 8 values the components of a scan have; 0 where the headers make no sense.

    A scan has more if it holds several components: it then fills its last row and column of units up.
    """
    sampling = {frame[at]: (frame[at + 1] >> 4, frame[at + 1] & 15) for at in range(6, len(frame) - 2, 3)}
    named = {*scan[1 : 2 * (scan[0] if scan else 0) : 2]}
    across, down = [s[0] for s in sampling.values()], [s[1] for s in sampling.values()]
    starts_with_mean = len(scan) == 4 + 2 * (scan[0] if scan else 0) and scan[-3] == 0
    if not starts_with_mean or not named <= sampling.keys() or 0 in across or 0 in down:
        return 0
    height, width = int.from_bytes(frame[1:3], "big"), int.from_bytes(frame[3:5], "big")
    most_across, most_down = 8 * max(across), 8 * max(down)
    blocks = 0
    for name in named:
        columns, rows = sampling[name]
        blocks += -(-width * columns // most_across) * -(-height * rows // most_down)
    return blocks


def _has_many_scans(data: memoryview, position: int, max_scans: int) -> bool:
    """Whether more scans or segments follow than may; the first scan's length stands at ``position``."""
    scans = 1
    for _ in range(max(_MAX_SEGMENTS, 8 * max_scans)):
        position += int.from_bytes(data[position : position + 2], "big")
        found = _MARKER.search(data, position)
        if found is None or data[found.end() - 1] == _END_OF_IMAGE:
            return False
        position = found.end()
        scans += data[position - 1] == _START_OF_SCAN
        if scans > max_scans:
            break
    return True


def check_tags(tiff: bytes | memoryview) -> None:
    """Refuse a TIFF whose tags claim more than the file holds.

    Values may lie on top of each other, and Pillow before 13 reads a copy for each: 10 MB became 2 GB.

    Raises:
        ImageError: CORRUPT.
    """
    order: Literal["little", "big"] = "little" if tiff[:2] == b"II" else "big"
    fields = struct.Struct("<HHII" if order == "little" else ">HHII")
    claimed = 0
    directories = [int.from_bytes(tiff[4:8], order)]
    for directory in directories:  # which grows on the way
        first = directory + 2
        entries = tiff[first : first + fields.size * int.from_bytes(tiff[directory:first], order)]
        for tag, type_, count, value in fields.iter_unpack(entries[: len(entries) // fields.size * fields.size]):
            claimed += _TYPE_BYTES.get(type_, 0) * count
            if tag in _DIRECTORIES and value not in directories:
                directories.append(value)
            if len(directories) > _MAX_DIRECTORIES:
                raise ImageError("CORRUPT", f"over {_MAX_DIRECTORIES} directories of tags in the TIFF")
    if claimed > len(tiff):
        raise ImageError("CORRUPT", f"the tags of the TIFF claim {claimed:,} bytes of a file of {len(tiff):,}")


def exif_orientation(exif: bytes) -> int:
    """Tag 0x0112 of the first directory of EXIF data (TIFF 6.0, section 2), as Pillow 13 reads it.

    A number of any type counts, if it is 2 to 8. The first entry of a tag counts, unless it has no value. An entry
    whose value lies behind the end of the data ends the directory; one that makes the values longer than the data is
    skipped.

    Args:
        exif: with or without its name; of a JPEG with several segments, what they hold together.

    Returns:
        1 to 8; 1 where nothing is said, and where Pillow refuses the data.
    """
    tiff = _EXIF_START.sub(b"", exif)
    if tiff[:4] not in (b"II*\0", b"II\0*", b"MM\0*", b"MM*\0"):
        return 1
    order: Literal["<", ">"] = "<" if tiff[:2] == b"II" else ">"
    entry = struct.Struct(f"{order}HHI4s")
    directory = _number(tiff[4:8], order)
    count_of_entries = _number(tiff[directory : directory + 2], order)
    entries = tiff[directory + 2 : directory + 2 + entry.size * count_of_entries]
    known: set[int] = set()
    claimed = 0
    for tag, type_, count, value in entry.iter_unpack(entries[: len(entries) // entry.size * entry.size]):
        size = _TYPE_BYTES.get(type_, 0) * count
        if size == 0 or tag in known:
            continue
        if size > len(value):
            claimed += size
            if claimed > len(tiff):
                continue
            where = _number(value, order)
            if where + size > len(tiff):
                break
            value = tiff[where : where + 8]  # noqa: PLW2901  (the longest number)
        if tag == _ORIENTATION_TAG:
            return _turn(value, type_, order)
        known.add(tag)
    return 1


def with_plain_exif(encoded: Encoded, header: JpegHeader) -> bytes:
    """The same JPEG for another decoder, whose EXIF data says the orientation in the plainest way, and nothing else.

    Others read odd EXIF data in ways of their own, and Pillow before 13 copied what its tags claim, up to 20 GB.
    """
    directory = struct.pack(">H HHI HH I", 1, _ORIENTATION_TAG, 3, 1, header.orientation, 0, 0)
    exif = _EXIF + b"MM\0*\0\0\0\x08" + directory
    head = bytes(encoded[2 : header.scan]).replace(_EXIF, b"exif\0\0")
    return b"".join([b"\xff\xd8\xff\xe1", struct.pack(">H", 2 + len(exif)), exif, head, encoded[header.scan :]])


def _number(packed: bytes, order: Literal["<", ">"]) -> int:
    return int.from_bytes(packed, "little" if order == "<" else "big")


def _turn(value: bytes, type_: int, order: Literal["<", ">"]) -> int:
    """The first number of a value, if it is an orientation, else 1."""
    if type_ not in _NUMBERS:
        return 1
    number, *divisor = struct.unpack_from(order + _NUMBERS[type_], value)
    if divisor:
        number = number / divisor[0] if divisor[0] else 1
    return int(number) if number in range(2, 9) else 1
