"""Decode PNGs with one sample per pixel, such as masks."""

from __future__ import annotations

import struct
from collections.abc import Callable
from ctypes import byref
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from pixprep.engine.kernels.native import STRUCTS, library

if TYPE_CHECKING:
    import zlib
else:
    try:  # several times as fast as zlib for masks
        from zlib_ng import zlib_ng as zlib
    except ImportError:
        import zlib

_SIGNATURE, _END = 8, b"IEND"
_HEADER = b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR"
_GRAY, _PALETTE = 0, 3  # color types with one sample per pixel
_LENGTHS = {b"gAMA": 4, b"sRGB": 1, b"cHRM": 32, b"pHYs": 9, b"tIME": 7}
"""Lengths of the ancillary chunks that ``samples`` skips. Pillow reads all others, and may reject them."""
_MAX_SAMPLES = 1 << 26


def samples(png: memoryview, check_size: Callable[[tuple[int, ...]], None]) -> npt.NDArray[np.uint8] | None:
    """Decode a well-formed grayscale or palette PNG with up to 8 bits per pixel and without interlacing.

    Args:
        png: The PNG.
        check_size: Function that is called with the (height, width) of the PNG before the samples are decompressed.

    Returns:
        The gray values or the indices of the palette as stored, not scaled to 0 to 255, (height, width). None for any
        other PNG, and for a damaged PNG. Pillow then decodes the file; it rejects a damaged PNG or decodes it as far as
        possible.
    """
    if bytes(png[:16]) != _HEADER or len(png) < 33:
        return None
    width, height, depth, color, *methods = struct.unpack(">IIBBBBB", png[16:29])
    if (
        color not in (_GRAY, _PALETTE)
        or depth not in (1, 2, 4, 8)
        or any(methods)
        or not 0 < width * height <= _MAX_SAMPLES
    ):
        return None
    if (data := _data(png, needs_palette=color == _PALETTE)) is None:
        return None
    check_size((height, width))
    row_bytes = -(-width * depth // 8)
    n_bytes = height * (1 + row_bytes)
    stream = zlib.decompressobj()
    try:
        filtered = stream.decompress(data, n_bytes)
    except zlib.error:
        return None
    out = np.empty((height, row_bytes), np.uint8)
    if len(filtered) != n_bytes or not stream.eof or _unfilter(filtered, out):
        return None
    if depth == 1:
        return np.unpackbits(out, axis=1, count=width)
    if depth < 8:
        shifts = np.arange(8 - depth, -1, -depth, dtype=np.uint8)
        out = (out[:, :, None] >> shifts & (1 << depth) - 1).reshape(height, -1)[:, :width]
    return out


def _data(png: memoryview, *, needs_palette: bool) -> bytes | None:
    """Return the compressed samples of a PNG, or None if Pillow might reject one of its chunks."""
    position, parts, has_palette, was_data = _SIGNATURE, list[memoryview](), False, False
    while position + 12 <= len(png):
        length = int.from_bytes(png[position : position + 4], "big")
        body, end = position + 8, position + 8 + length
        name = bytes(png[position + 4 : body])
        if zlib.crc32(png[position + 4 : end]) != int.from_bytes(png[end : end + 4], "big"):
            return None
        if name == b"IDAT":
            if (parts and not was_data) or (needs_palette and not has_palette):
                return None
            parts.append(png[body:end])
        elif name == b"PLTE":
            has_palette = 0 < length <= 768 and length % 3 == 0 and not parts
            if not has_palette:
                return None
        elif name == _END:
            return b"".join(parts)
        elif _LENGTHS.get(name) != length and position != _SIGNATURE:
            return None
        position, was_data = end + 4, name == b"IDAT"
    return None


def _unfilter(filtered: bytes, out: npt.NDArray[np.uint8]) -> int:
    """Reverse the filter of each row of samples. Return a value other than 0 if a filter is unknown."""
    given, target = (each.__array_interface__["data"][0] for each in (np.frombuffer(filtered, np.uint8), out))
    return int(library().unfilter_png(byref(STRUCTS["png_rows"](given, target, *out.shape))))
