"""Indices of a PNG with a palette, by zlib alone: Pillow unpacks and copies each row, a third of its time.

Most encoders leave such rows unfiltered, as the PNG specification recommends (section 12.7).
"""

from __future__ import annotations

from struct import Struct
from zlib import crc32, decompressobj, error

import numpy as np
import numpy.typing as npt

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_LENGTH_AND_KIND = Struct(">I4s")
_SIZE = Struct(">II")
_INDEXED = bytes([8, 3, 0, 0, 0])
"""IHDR behind the size: 8 bits a pixel, a palette, and no interlace."""
_KINDS = {b"gAMA", b"pHYs", b"PLTE", b"tRNS", b"IDAT", b"IEND"}
"""Chunks behind the header that are known here."""


def size(encoded: memoryview) -> tuple[int, int] | None:
    """(height, width) of a PNG with a palette of 8 bits; None of anything else."""
    if encoded[:8] != _SIGNATURE or encoded[24:29] != _INDEXED:
        return None
    width, height = _SIZE.unpack_from(encoded, 16)
    return height, width


def indices(encoded: memoryview, height: int, width: int) -> npt.NDArray[np.uint8] | None:
    """The indices of a PNG of which ``size`` has said the size.

    Returns:
        uint8 (height, width), read-only; None: its rows are filtered, or it has other chunks, or is damaged.
    """
    at, kinds, parts = len(_SIGNATURE), list[bytes](), list[memoryview]()
    while at + 12 <= len(encoded) and kinds[-1:] != [b"IEND"]:
        length, kind = _LENGTH_AND_KIND.unpack_from(encoded, at)
        body, end = encoded[at + 4 : at + 8 + length], at + 8 + length
        is_known = kind in _KINDS if kinds else kind == b"IHDR"
        if not is_known or crc32(body) != int.from_bytes(encoded[end : end + 4], "big"):
            return None
        kinds.append(kind)
        parts += [body[4:]] * (kind == b"IDAT")
        at = end + 4
    if kinds[-1 - len(parts) :] != [b"IDAT"] * len(parts) + [b"IEND"]:
        return None
    expected, stream = height * (width + 1), decompressobj()
    try:
        raw = stream.decompress(b"".join(parts), expected + 1)
    except error:
        return None
    if len(raw) != expected or not stream.eof:
        return None
    rows = np.frombuffer(raw, np.uint8).reshape(height, width + 1)
    return None if rows[:, 0].any() else rows[:, 1:]
