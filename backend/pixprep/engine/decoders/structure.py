"""Read the structure of a JPEG from its markers, in microseconds and without decoding it.

A JPEG is **complete** if it has the structure that encoders write: segments of the declared lengths without bytes
between them, one frame, scans in which only restart markers occur, in the right order, and an end-of-image marker. This
check detects truncated, concatenated and shifted files. It does not detect changed values within the data of a scan.
"""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import c_int64, c_void_p
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pixprep.engine.kernels import native

U8 = npt.NDArray[np.uint8]

MAX_KEPT = 16
"""Maximum number of segments to return. A file with more segments must be parsed with ``read_jpeg_header``."""
FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
"""Start-of-frame markers: C0 to CF except DHT (C4), JPG (C8) and DAC (CC); ITU-T T.81, table B.1."""
START_OF_SCAN, END_OF_IMAGE = 0xDA, 0xD9
JFIF, EXIF, ADOBE = 0xE0, 0xE1, 0xEE
"""Application segments from which the header is read."""
KEPT = FRAMES | {JFIF, EXIF, ADOBE, START_OF_SCAN}
ROW = ("data", "size", "is_complete", "segment_count", "scans", "restart_interval", "restart_markers")
"""Fields of ``struct jpeg`` in engine/kernels/arguments.h, before the array of segments."""


class Structure(NamedTuple):
    """The segments of a complete JPEG.

    Attributes:
        segments: Segments of the types in ``KEPT`` up to the first scan. Each segment is encoded as the last byte of
            its marker plus 256 times the offset of its length field in bytes.
        scans: Number of scans.
        interval: Restart interval of the first scan in MCUs; 0 without restart markers.
        restarts: Number of restart markers in the first scan.
    """

    segments: Sequence[int]
    scans: int
    interval: int
    restarts: int


def has_many_scans(jpeg: memoryview, position: int, max_scans: int, max_segments: int) -> bool:
    """Return whether a JPEG has more scans or segments than the limits. The call releases the GIL.

    ``position`` is the offset of the length field of the first scan header. Data after the end of the image is ignored.
    """
    data = np.frombuffer(jpeg, np.uint8)
    arguments = (c_int64(each) for each in (len(data), position, max_scans, max_segments))
    address = c_void_p(data.__array_interface__["data"][0])
    return bool(native.library().has_many_scans(address, *arguments))


def structures(images: Sequence[U8]) -> list[Structure | None]:
    """Return the structure of each JPEG, given as an array of its bytes. The call releases the GIL.

    The structure is None if the JPEG is not complete, or has more than ``MAX_KEPT`` segments.
    """
    rows = np.empty((len(images), len(ROW) + MAX_KEPT), np.int64)
    rows[:, 0] = [image.__array_interface__["data"][0] for image in images]
    rows[:, 1] = [len(image) for image in images]
    native.library().walk_jpegs(c_void_p(rows.ctypes.data), c_int64(len(rows)))
    return [
        Structure(segments[:kept], scans, interval, restarts) if is_complete else None
        for _, _, is_complete, kept, scans, interval, restarts, *segments in rows.tolist()
    ]
