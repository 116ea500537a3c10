"""Parse the directories of EXIF data and TIFF files, read the EXIF orientation, and apply it to pixels."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from pixprep.engine.decoders import Encoded
from pixprep.plan.placement import Part, Reduction

U8 = npt.NDArray[np.uint8]
Order = Literal["<", ">"]  # byte order of numbers, in the notation of ``struct``
NAME = b"Exif\0\0"
"""Prefix of EXIF data in a JPEG."""
_EXIF_START = re.compile(rb"\A(?:Exif\0\0){1,2}")
_ORIENTATION_TAG = 0x0112
_MAX_PLAIN_TAGS = 256
# Bytes per value of each type: TIFF 6.0, section 2, and LONG8 of BigTIFF, which Pillow reads in any TIFF.
TYPE_BYTES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 1, 7: 1, 8: 2, 9: 4, 10: 8, 11: 4, 12: 8, 13: 4, 16: 8}
# Formats of the numeric types for ``struct``. A rational consists of two numbers. The other types are text and bytes.
NUMBERS = {3: "H", 4: "I", 5: "II", 6: "b", 8: "h", 9: "i", 10: "ii", 11: "f", 12: "d", 13: "I", 16: "Q"}


def exif_orientation(exif: bytes) -> int:
    """Return tag 0x0112 of the first directory of EXIF data (TIFF 6.0, section 2), as Pillow 13 reads it.

    A value from 2 to 8 is accepted in any numeric type. If a tag occurs several times, its first entry with a value
    counts. Parsing stops at an entry whose value extends beyond the end of the data. An entry is skipped if the total
    size of all values would exceed the data.

    Args:
        exif: EXIF data with or without the prefix ``Exif``. If a JPEG has several EXIF segments, pass their
            concatenated contents.

    Returns:
        The orientation, 1 to 8. It is 1 if the data do not contain an orientation, or if Pillow rejects the data.
    """
    tiff = _EXIF_START.sub(b"", exif)
    if tiff[:4] not in (b"II*\0", b"II\0*", b"MM\0*", b"MM*\0"):
        return 1
    order = byte_order(tiff)
    known: set[int] = set()
    declared = 0
    for tag, type_, count, value in entries(tiff, number(tiff[4:8], order), order):
        size = TYPE_BYTES.get(type_, 0) * count
        if size == 0 or tag in known:
            continue
        if size > len(value):
            declared += size
            if declared > len(tiff):
                continue
            where = number(value, order)
            if where + size > len(tiff):
                break
            value = tiff[where : where + 8]  # noqa: PLW2901  (no number is longer than 8 bytes)
        if tag == _ORIENTATION_TAG:
            return _orientation_of(value, type_, order)
        known.add(tag)
    return 1


def is_plain_exif(exif: bytes) -> bool:
    """Return whether every decoder finds the same orientation in the data.

    This is the case if the data contain a single orientation of 16 bits, and no unusual entries before it.
    """
    tiff = exif[len(NAME) :]
    if tiff[:4] not in (b"II*\0", b"MM\0*"):
        return False
    order = byte_order(tiff)
    directory = number(tiff[4:8], order)
    count = number(tiff[directory : directory + 2], order)
    if directory < 8 or count > _MAX_PLAIN_TAGS:
        return False
    found = list(entries(tiff, directory, order))
    if len(found) < count or [tag for tag, *_ in found].count(_ORIENTATION_TAG) > 1:
        return False
    for tag, type_, length, value in found:
        if tag == _ORIENTATION_TAG:
            return (type_, length) == (3, 1)
        size = TYPE_BYTES.get(type_, 0) * length
        if size == 0 or (size > 4 and number(value, order) + size > len(tiff)):
            return False
    return True


def with_plain_exif(encoded: Encoded, *, orientation: int, scan: int) -> bytes:
    """Return a JPEG whose EXIF data contain only the orientation, in the simplest encoding.

    Decoders interpret unusual EXIF data differently. Moreover, Pillow before 13 copies as many bytes as the tags
    declare, which may be up to 20 GB.

    Args:
        encoded: A JPEG.
        orientation: EXIF orientation to write.
        scan: Offset in bytes of the data of the first scan.
    """
    directory = struct.pack(">H HHI HH I", 1, _ORIENTATION_TAG, 3, 1, orientation, 0, 0)
    exif = NAME + b"MM\0*\0\0\0\x08" + directory
    head = bytes(encoded[2:scan]).replace(NAME, b"exif\0\0")
    return b"".join([b"\xff\xd8\xff\xe1", struct.pack(">H", 2 + len(exif)), exif, head, encoded[scan:]])


def byte_order(tiff: bytes | memoryview) -> Order:
    """Return the byte order of a TIFF structure in the notation of ``struct``."""
    return "<" if tiff[:2] == b"II" else ">"


def entries(tiff: bytes | memoryview, directory: int, order: Order) -> Iterator[tuple[int, int, int, bytes]]:
    """Iterate over the complete entries of a directory as (tag, type, count, value or offset of the value)."""
    entry, first = struct.Struct(f"{order}HHI4s"), directory + 2
    count = min(number(tiff[directory:first], order), max(0, len(tiff) - first) // entry.size)
    return entry.iter_unpack(tiff[first : first + entry.size * count])


def number(packed: bytes | memoryview, order: Order) -> int:
    """Unpack an unsigned integer of any number of bytes."""
    return int.from_bytes(packed, "little" if order == "<" else "big")


def _orientation_of(value: bytes, type_: int, order: Order) -> int:
    """Return the first number of a value if it is a valid orientation from 2 to 8; otherwise return 1."""
    if type_ not in NUMBERS:
        return 1
    number, *divisor = struct.unpack_from(order + NUMBERS[type_], value)
    if divisor:
        number = number / divisor[0] if divisor[0] else 1
    return int(number) if number in range(2, 9) else 1


def oriented(pixels: U8, orientation: int, part: Part | None = None) -> U8:
    """Return a copy of an image with the EXIF orientation applied (EXIF 2.32, tag Orientation).

    Args:
        pixels: Stored image, uint8, (height, width, channels).
        orientation: EXIF orientation, 1 to 8.
        part: Region of the result to fill; the other pixels are undefined. Default: the whole image.
    """
    height, width, channels = pixels.shape
    # View each pixel as one number, so that a transpose moves complete pixels, four times faster than single bytes.
    grid: npt.NDArray[Any] = pixels.view(np.uint32 if channels == 4 else np.uint8).reshape(height, width)
    if orientation >= 5:
        grid = grid.T
    if orientation in (3, 4, 7, 8):
        grid = grid[::-1]
    if orientation in (2, 3, 6, 7):
        grid = grid[:, ::-1]
    upright = np.empty(grid.shape, grid.dtype)
    top, left, bottom, right = part or (0, 0, *grid.shape)
    upright[top:bottom, left:right] = grid[top:bottom, left:right]
    return upright.view(np.uint8).reshape(*grid.shape, channels)


def stored_region(part: Part, orientation: int, height: int, width: int) -> Part:
    """Convert a region of the oriented image, whose size is ``height`` x ``width``, to a region of the stored image."""
    top, left, bottom, right = part
    if orientation in (3, 4, 7, 8):
        top, bottom = height - bottom, height - top
    if orientation in (2, 3, 6, 7):
        left, right = width - right, width - left
    return (left, top, right, bottom) if orientation >= 5 else (top, left, bottom, right)


def reduction_of(denominator: int, orientation: int, height: int, width: int) -> Reduction:
    """Return the reduction of an oriented image, whose full size is ``height`` x ``width``.

    The last row and column of a reduced JPEG may cover fewer than ``denominator`` pixels. If the orientation reverses
    an axis, they become the first ones, and the reduction has an offset.
    """
    is_backwards = (orientation in (3, 4, 7, 8), orientation in (2, 3, 6, 7))
    sides = zip(is_backwards, (height, width), strict=True)
    y, x = (-(-side // denominator) - side / denominator if backwards else 0.0 for backwards, side in sides)
    return Reduction(denominator, (y, x))
