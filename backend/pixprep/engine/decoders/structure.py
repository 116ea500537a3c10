"""Reads the structure of a JPEG from its markers, in microseconds and without decoding.

A JPEG is **whole** if it is one image as encoders write it: segments with the stated lengths and nothing between them,
one frame, scans that contain only restart markers in the right order, and an end-of-image marker. This check detects
truncated, concatenated and shifted files. It does not detect a changed value within the data of a scan.
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
"""Maximum number of segments to return. Files with more, and unusual files, are read segment by segment instead."""
FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
"""Start-of-frame markers: every C0..CF that is not DHT (C4), JPG (C8) or DAC (CC); ITU-T T.81, table B.1."""
START_OF_SCAN, END_OF_IMAGE = 0xDA, 0xD9
JFIF, EXIF, ADOBE = 0xE0, 0xE1, 0xEE
"""Application segments that the reader of headers needs."""
KEPT = FRAMES | {JFIF, EXIF, ADOBE, START_OF_SCAN}
ROW = ("data", "size", "is_complete", "segment_count", "scans", "restart_interval", "restart_markers")
"""Fields of ``struct jpeg`` in engine/kernels/arguments.h, before the array of segments."""


class Structure(NamedTuple):
    """The segments of a whole JPEG.

    Attributes:
        segments: Segments of the types in ``KEPT`` up to the first scan. Each is the last byte of the marker plus 256
            times the offset of the length field in bytes.
        scans: Number of scans.
        interval: Restart interval of the first scan in MCUs; 0 without restart markers.
        restarts: Number of restart markers in the first scan.
    """

    segments: Sequence[int]
    scans: int
    interval: int
    restarts: int


def structures(images: Sequence[U8]) -> list[Structure | None]:
    """Return the structures of JPEGs, each given as an array of its bytes.

    The result is None for a JPEG that is not whole, or has more than ``MAX_KEPT`` segments. The call releases the GIL.
    """
    rows = np.empty((len(images), len(ROW) + MAX_KEPT), np.int64)
    rows[:, 0] = [image.__array_interface__["data"][0] for image in images]
    rows[:, 1] = [len(image) for image in images]
    native.library().walk_jpegs(c_void_p(rows.ctypes.data), c_int64(len(rows)))
    return [
        Structure(segments[:kept], scans, interval, restarts) if is_whole else None
        for _, _, is_whole, kept, scans, interval, restarts, *segments in rows.tolist()
    ]
