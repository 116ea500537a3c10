"""Structure of a JPEG by its markers, in microseconds: nothing is decoded.

A JPEG is **whole** here if it is one image, as encoders write it: segments of the lengths that they state with nothing
between them; one frame; scans in whose data every marker is a restart marker in its turn; an end. That finds what is
cut off, joined or shifted. It does not find a changed value within the data of a scan.
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
"""Segments that are kept; files with more are left to whoever reads segment by segment, as are odd ones."""
FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
"""Start-of-frame markers: every C0..CF that is not DHT (C4), JPG (C8) or DAC (CC); ITU-T T.81, table B.1."""
START_OF_SCAN, END_OF_IMAGE = 0xDA, 0xD9
JFIF, EXIF, ADOBE = 0xE0, 0xE1, 0xEE
"""The application segments that a reader of headers asks for."""
KEPT = FRAMES | {JFIF, EXIF, ADOBE, START_OF_SCAN}
ROW = ("data", "size", "is_whole", "kept", "scans", "interval", "restarts")
"""``struct jpeg`` of engine/kernels/arguments.h; the segments that are kept follow."""


class Structure(NamedTuple):
    """The segments of a whole JPEG.

    Attributes:
        segments: up to the first scan, of the kinds in ``KEPT``: the marker's last byte, and 256 times where the length
            stands, in bytes.
        scans: how many.
        interval: units of the first scan from restart marker to restart marker; 0: there are none.
        restarts: how many restart markers the first scan has.
    """

    segments: Sequence[int]
    scans: int
    interval: int
    restarts: int


def structures(images: Sequence[U8]) -> list[Structure | None]:
    """The segments of JPEGs, each an array of its bytes; None of one that is not whole, or has more than are kept.

    Other threads run meanwhile.
    """
    rows = np.empty((len(images), len(ROW) + MAX_KEPT), np.int64)
    rows[:, 0] = [image.__array_interface__["data"][0] for image in images]
    rows[:, 1] = [len(image) for image in images]
    native.library().walk_jpegs(c_void_p(rows.ctypes.data), c_int64(len(rows)))
    return [
        Structure(segments[:kept], scans, interval, restarts) if is_whole else None
        for _, _, is_whole, kept, scans, interval, restarts, *segments in rows.tolist()
    ]
