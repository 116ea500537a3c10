"""Structure of a JPEG by its markers, in microseconds: nothing is decoded.

A JPEG is **whole** here if it is one image, as encoders write it: segments of the lengths that they state with nothing
between them; one frame; scans in whose data every marker is a restart marker in its turn; an end. That finds what is
cut off, joined or shifted. It does not find a changed value within the data of a scan.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from ctypes import c_int64, c_void_p
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pixprep.kernels import native

U8 = npt.NDArray[np.uint8]

MOST_KEPT = 16
"""Segments that are kept; files with more are left to whoever reads segment by segment, as are odd ones."""
MOST_SEGMENTS = 4096
"""See ``MOST_KEPT``; an ICC profile takes at most 255."""
FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
"""Start-of-frame markers: every C0..CF that is not DHT (C4), JPG (C8) or DAC (CC); ITU-T T.81, table B.1."""
START_OF_SCAN, END_OF_IMAGE, RESTART_INTERVAL = 0xDA, 0xD9, 0xDD
JFIF, EXIF, ADOBE = 0xE0, 0xE1, 0xEE
"""The application segments that a reader of headers asks for."""
KEPT = FRAMES | {JFIF, EXIF, ADOBE, START_OF_SCAN}
PLAIN = frozenset({0xC0, 0xC1, 0xC2, 0xC4, START_OF_SCAN, 0xDB, RESTART_INTERVAL, *range(0xE0, 0xF0), 0xFE})
"""What a whole JPEG has segments of: lossy frames with Huffman codes, tables, scans, and what applications say."""
_FILL = re.compile(rb"\xff*")
_NOT_DATA = re.compile(rb"\xff[^\0\xff]")  # a byte FF of data is followed by 0; any number of them fills up


ROW = ("data", "size", "is_whole", "kept", "scans", "interval", "restarts")
"""``struct jpeg`` of kernels/arguments.h; the segments that are kept follow."""


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


def structure(encoded: bytes | memoryview) -> Structure | None:
    """The segments of a JPEG, or None where it is not whole, or has more of them than are kept."""
    data = memoryview(encoded)
    at, size = 2, len(data)
    segments: list[int] = []
    frames = scans = total = interval = restarts = first_interval = 0
    while True:
        fill = _FILL.match(data, at)
        assert fill is not None
        at = fill.end() - 1
        if at < fill.start() or at + 2 > size:
            return None
        marker = data[at + 1]
        if marker == END_OF_IMAGE:
            is_whole = scans and frames == 1
            return Structure(segments, scans, first_interval, restarts) if is_whole else None
        length = int.from_bytes(data[at + 2 : at + 4], "big")
        total += 1
        if marker not in PLAIN or length < 2 or at + 2 + length > size or total > MOST_SEGMENTS:
            return None
        if marker in KEPT and not scans:
            if len(segments) == MOST_KEPT:
                return None
            segments.append(marker | at + 2 << 8)
        frames += marker in FRAMES
        if marker == RESTART_INTERVAL:
            if length != 4:
                return None
            interval = int.from_bytes(data[at + 4 : at + 6], "big")
        at += 2 + length
        if marker != START_OF_SCAN:
            continue
        scans += 1
        if scans == 1:
            first_interval = interval
        turn = 0
        while found := _NOT_DATA.search(data, at):
            at = found.start()
            marker = data[at + 1]
            if marker != 0xD0 + turn or not interval:
                break
            at += 2
            turn = (turn + 1) % 8
            restarts += scans == 1
        else:
            return None


def structures(images: Sequence[U8]) -> list[Structure | None]:
    """``structure`` of JPEGs, each an array of its bytes, in C: other threads run meanwhile."""
    rows = np.empty((len(images), len(ROW) + MOST_KEPT), np.int64)
    rows[:, 0] = [image.__array_interface__["data"][0] for image in images]
    rows[:, 1] = [len(image) for image in images]
    native.library().walk_jpegs(c_void_p(rows.ctypes.data), c_int64(len(rows)))
    return [
        Structure(segments[:kept], scans, interval, restarts) if is_whole else None
        for _, _, is_whole, kept, scans, interval, restarts, *segments in rows.tolist()
    ]
