"""Decode WebP with the libwebp that Pillow has loaded.

Pillow itself takes up to twice as long, because it copies the pixels.
"""

from __future__ import annotations

import ctypes
import re
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import WebPImagePlugin  # noqa: F401  (loads the library)

U8 = npt.NDArray[np.uint8]
_ALPHA, _ANIMATION = 0x10, 0x02


@cache
def library() -> ctypes.CDLL | None:
    """Return the libwebp (ABI 7) of Pillow's wheel or of the system that this process has loaded, or None."""
    try:
        maps = Path("/proc/self/maps").read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return None
    found = re.search(r"/.*/libwebp(?:-[0-9a-f]+)?\.so\.7(?:\.\d+)*$", maps, re.MULTILINE)
    if found is None:
        return None
    libwebp = ctypes.CDLL(found[0])
    data, size = ctypes.c_void_p, ctypes.c_size_t
    libwebp.WebPGetInfo.argtypes = [data, size, ctypes.POINTER(ctypes.c_int), ctypes.POINTER(ctypes.c_int)]
    libwebp.WebPDecodeRGBAInto.argtypes = [data, size, ctypes.c_void_p, size, ctypes.c_int]
    libwebp.WebPDecodeRGBAInto.restype = ctypes.c_void_p
    return libwebp


def decoded(encoded: bytes | bytearray | memoryview, out: U8) -> U8 | None:
    """Decode a still WebP without an alpha channel to the pixels of Pillow's ``convert("RGB")``.

    Args:
        encoded: Bytes of the file.
        out: Array of uint8 (height, width, 4) for the pixels, with the size that Pillow reports.

    Returns:
        ``out``, or None if Pillow must decode the file, or report what is wrong with it.
    """
    libwebp, data = library(), np.frombuffer(encoded, np.uint8)
    span = _bitstream(memoryview(encoded).cast("B"))
    if libwebp is None or span is None:
        return None
    # Pass only the bytes of the image, because libwebp reads beyond the end of a damaged image.
    where, n_bytes = data.ctypes.data + span.start, span.stop - span.start
    width, height = ctypes.c_int(), ctypes.c_int()
    is_known = libwebp.WebPGetInfo(where, n_bytes, ctypes.byref(width), ctypes.byref(height))
    if (
        not is_known or (height.value, width.value) != out.shape[:2]
    ):  # some pixels of `out` would remain those of a different image
        return None
    return out if libwebp.WebPDecodeRGBAInto(where, n_bytes, out.ctypes.data, out.nbytes, out.strides[0]) else None


def _bitstream(encoded: memoryview) -> range | None:
    """Return the byte range of the image in a RIFF container, or None for animations and images with alpha."""
    start = 12
    while start + 8 <= len(encoded):
        tag, size = bytes(encoded[start : start + 4]), int.from_bytes(encoded[start + 4 : start + 8], "little")
        if start + 8 + size > len(encoded):
            return None
        if tag in (b"VP8 ", b"VP8L"):
            return range(start + 8, start + 8 + size)
        if tag == b"ALPH" or (tag == b"VP8X" and (size == 0 or encoded[start + 8] & (_ALPHA | _ANIMATION))):
            return None
        start += 8 + size + size % 2
    return None
