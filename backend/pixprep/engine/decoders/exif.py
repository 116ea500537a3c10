"""Directories of tags in EXIF data and TIFF files, the orientation in EXIF data, and its application to pixels."""

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
"""First bytes of EXIF data in a JPEG."""
_EXIF_START = re.compile(rb"\A(?:Exif\0\0){1,2}")
_ORIENTATION_TAG = 0x0112
_MAX_PLAIN_TAGS = 256
# TIFF 6.0, section 2, and LONG8 of BigTIFF, which Pillow reads in any TIFF.
TYPE_BYTES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 1, 7: 1, 8: 2, 9: 4, 10: 8, 11: 4, 12: 8, 13: 4, 16: 8}
# How a number of a type is packed; a rational is two. The other types are text and bytes.
NUMBERS = {3: "H", 4: "I", 5: "II", 6: "b", 8: "h", 9: "i", 10: "ii", 11: "f", 12: "d", 13: "I", 16: "Q"}


def exif_orientation(exif: bytes) -> int:
    """Return tag 0x0112 of the first directory of EXIF data (TIFF 6.0, section 2), as Pillow 13 reads it.

    A number of any type from 2 to 8 is accepted. The first entry of a tag with a value is used. An entry whose value
    begins after the end of the data ends the directory. An entry with which all values together would exceed the data
    is skipped.

    Args:
        exif: EXIF data with or without the prefix ``Exif``. If a JPEG has several EXIF segments, their contents joined.

    Returns:
        Orientation, 1 to 8; 1 if it is missing, or Pillow rejects the data.
    """
    tiff = _EXIF_START.sub(b"", exif)
    if tiff[:4] not in (b"II*\0", b"II\0*", b"MM\0*", b"MM*\0"):
        return 1
    order = byte_order(tiff)
    known: set[int] = set()
    claimed = 0
    for tag, type_, count, value in entries(tiff, number(tiff[4:8], order), order):
        size = TYPE_BYTES.get(type_, 0) * count
        if size == 0 or tag in known:
            continue
        if size > len(value):
            claimed += size
            if claimed > len(tiff):
                continue
            where = number(value, order)
            if where + size > len(tiff):
                break
            value = tiff[where : where + 8]  # noqa: PLW2901  (the longest number)
        if tag == _ORIENTATION_TAG:
            return _turn(value, type_, order)
        known.add(tag)
    return 1


def is_plain_exif(exif: bytes) -> bool:
    """Tell whether every decoder finds the same orientation: one number of 16 bits, and nothing odd before it."""
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
    """Return a JPEG whose EXIF data contain only the orientation, in the simplest encoding, for a different decoder.

    Decoders interpret unusual EXIF data differently. Pillow before 13 also copies as much as the tags declare, up to
    20 GB.
    """
    directory = struct.pack(">H HHI HH I", 1, _ORIENTATION_TAG, 3, 1, orientation, 0, 0)
    exif = NAME + b"MM\0*\0\0\0\x08" + directory
    head = bytes(encoded[2:scan]).replace(NAME, b"exif\0\0")
    return b"".join([b"\xff\xd8\xff\xe1", struct.pack(">H", 2 + len(exif)), exif, head, encoded[scan:]])


def byte_order(tiff: bytes | memoryview) -> Order:
    """Return the byte order of a TIFF structure, as in ``struct``."""
    return "<" if tiff[:2] == b"II" else ">"


def entries(tiff: bytes | memoryview, directory: int, order: Order) -> Iterator[tuple[int, int, int, bytes]]:
    """Return (tag, type, count, value or its offset) of each complete entry of a directory."""
    entry, first = struct.Struct(f"{order}HHI4s"), directory + 2
    count = min(number(tiff[directory:first], order), max(0, len(tiff) - first) // entry.size)
    return entry.iter_unpack(tiff[first : first + entry.size * count])


def number(packed: bytes | memoryview, order: Order) -> int:
    """Unpack an unsigned integer of any number of bytes."""
    return int.from_bytes(packed, "little" if order == "<" else "big")


def _turn(value: bytes, type_: int, order: Order) -> int:
    """Return the first number of a value if it is an orientation, else 1."""
    if type_ not in NUMBERS:
        return 1
    number, *divisor = struct.unpack_from(order + NUMBERS[type_], value)
    if divisor:
        number = number / divisor[0] if divisor[0] else 1
    return int(number) if number in range(2, 9) else 1


def turned(pixels: U8, orientation: int, part: Part | None = None) -> U8:
    """Apply the EXIF orientation to an image, as a copy (EXIF 2.32, tag Orientation: position of row 0 and column 0).

    With ``part``, only that region of the upright image is returned.
    """
    height, width, channels = pixels.shape
    # A pixel as one number, so that a transpose moves whole pixels: four times faster than bytes.
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


def stored(part: Part, orientation: int, height: int, width: int) -> Part:
    """Convert a region of the upright image, which has this size, to a region of the stored image."""
    top, left, bottom, right = part
    if orientation in (3, 4, 7, 8):
        top, bottom = height - bottom, height - top
    if orientation in (2, 3, 6, 7):
        left, right = width - right, width - left
    return (left, top, right, bottom) if orientation >= 5 else (top, left, bottom, right)


def reduced(denominator: int, orientation: int, height: int, width: int) -> Reduction:
    """Reduction of an upright image of this size; a turn may have brought its end to the beginning."""
    is_backwards = (orientation in (3, 4, 7, 8), orientation in (2, 3, 6, 7))
    sides = zip(is_backwards, (height, width), strict=True)
    y, x = (-(-side // denominator) - side / denominator if backwards else 0.0 for backwards, side in sides)
    return Reduction(denominator, (y, x))
