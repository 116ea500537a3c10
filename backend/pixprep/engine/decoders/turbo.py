"""Decodes JPEGs with libjpeg-turbo: completely with simplejpeg, or a region with the library that Pillow includes.

simplejpeg cannot decode a region, and does not export the functions of its libjpeg-turbo. Pillow's library exports
them, and the process has already loaded it. ``engine/kernels/jpeg_region.c`` calls its functions if they have the
expected interface and produce simplejpeg's pixels. If not, or if Pillow includes a different libjpeg, every JPEG is
decoded completely.
"""

from __future__ import annotations

import ctypes
import os
from ctypes import byref, c_void_p
from functools import cache
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import simplejpeg
from PIL import _imaging

from pixprep.engine.decoders import Encoded
from pixprep.engine.kernels.native import STRUCTS, library
from pixprep.errors import SetupError
from pixprep.plan.placement import Part

U8 = npt.NDArray[np.uint8]

FUNCTIONS = (
    *("jpeg_std_error", "jpeg_CreateDecompress", "jpeg_mem_src", "jpeg_read_header", "jpeg_start_decompress"),
    *("jpeg_crop_scanline", "jpeg_skip_scanlines", "jpeg_read_scanlines", "jpeg_finish_decompress"),
    "jpeg_destroy_decompress",
)
"""Functions of libjpeg, in the order of ``struct libjpeg`` in engine/kernels/libjpeg.h."""
ABI = 62
"""Version of the interface that libjpeg.h declares: that of libjpeg 6b, which the libraries in Pillow's wheels use."""
TESTED = frozenset(
    ("2.1.5", "2.1.5.1", *(f"3.0.{n}" for n in range(5)), *(f"3.1.{n}" for n in range(4)), "3.1.4.1", "3.2.0")
)
"""Versions of libjpeg-turbo whose ``jpeg_entropy_decoder`` is the one that engine/kernels/libjpeg.h declares.

That struct is internal to libjpeg-turbo, and no size or version check of the library covers it. A version is added
after ``make pillow-versions`` has passed with the Pillow that has it.
"""
SETTING = "PIXPREP_HUFFMAN"
"""Name of the environment variable that turns off ``engine/kernels/huffman.c`` by the value ``library``."""
_SAMPLES = ("444", "422", "420", "440", "411", "gray")


class Way(NamedTuple):
    """Options of a decode.

    Attributes:
        is_gray: Whether to decode to one channel instead of RGB.
        is_fast_idct, is_fast_chroma: Whether ``idct`` and ``chroma`` of the op ``decode`` are ``fast``.
    """

    is_gray: bool
    is_fast_idct: bool = False
    is_fast_chroma: bool = False


def decode(encoded: Encoded, buffer: U8, way: Way, *, is_strict: bool) -> U8:
    """Decode a JPEG into ``buffer``, uint8 (rows, columns, 4 or 1), at the largest scale that fits into it.

    Raises:
        ValueError: TurboJPEG does not support this kind of JPEG, or libjpeg-turbo warns and ``is_strict`` is set. The
            text is TurboJPEG's message.
    """
    pixels: U8 = simplejpeg.decode_jpeg(
        encoded,
        "GRAY" if way.is_gray else "RGBX",
        fastdct=way.is_fast_idct,
        fastupsample=way.is_fast_chroma,
        min_height=buffer.shape[0],
        min_width=buffer.shape[1],
        buffer=buffer,
        strict=is_strict,
    )
    return pixels


def decode_part(encoded: Encoded, buffer: U8, part: Part, way: Way) -> bool:
    """Decode a region of an image, or all of it, to its position in a buffer, unless libjpeg-turbo warns anywhere.

    Args:
        encoded: JPEG with 1 or 3 components.
        buffer: Array of uint8 (height, width, 4 or 1) for the complete image. Pixels outside of the region are
            undefined afterwards.
        part: Region of the stored image; not empty.
        way: Options of the decode. With ``is_fast_chroma``, only the complete image is supported.

    Returns:
        Whether the region was decoded. If not, a complete decode may succeed, or report what is wrong.
    """
    is_left_out = way.is_fast_chroma and part != (0, 0, *buffer.shape[:2])
    functions = None if is_left_out else _pillows()
    return functions is not None and is_decoded(functions, encoded, buffer, part, way)


def is_decoded(functions: Any, encoded: Encoded, buffer: U8, part: Part, way: Way, *, abi: int = ABI) -> bool:
    """Decode as ``decode_part`` does, by the functions of a library, which rejects every ``abi`` except its own."""
    data = np.frombuffer(encoded, np.uint8)
    height, width, channels = buffer.shape
    struct = STRUCTS["jpeg_region"](
        ctypes.addressof(functions), abi, _address(data), len(data), _address(buffer), width * channels, channels,
        height, width, *part, way.is_fast_idct, way.is_fast_chroma, has_own_huffman(),
    )  # fmt: skip
    is_written: bool = library().decode_jpeg_part(byref(struct)) == 0
    return is_written


def _address(array: U8) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


@cache
def has_own_huffman() -> bool:
    """Return whether ``engine/kernels/huffman.c`` decodes the entropy-coded data, in place of libjpeg-turbo's own loop.

    It does if Pillow reports a version of libjpeg-turbo in ``TESTED``, unless ``PIXPREP_HUFFMAN=library`` turns it off.
    The pixels are the same.

    Raises:
        SetupError: The value of the environment variable is not supported.
    """
    if (choice := os.environ.get(SETTING)) not in (None, "", "library"):
        raise SetupError(f"{SETTING}={choice} is not supported: set it to library, or unset it")
    return not choice and _version() in TESTED


def why_not_own() -> str:
    """Explain to an operator why libjpeg-turbo's own Huffman loop decodes."""
    if os.environ.get(SETTING):
        return f"unset {SETTING}"
    return f"pixprep has not been tested with libjpeg-turbo {_version()}; install a Pillow that pixprep was tested with"


def _version() -> str | None:
    """Return the version of libjpeg-turbo as Pillow reports it; None if Pillow has another libjpeg."""
    version: str | None = getattr(_imaging, "libjpeg_turbo_version", None)
    return version


def has_parts() -> bool:
    """Return whether a region of a JPEG can be decoded."""
    return _pillows() is not None


@cache
def _pillows() -> Any:
    """Return the functions of Pillow's libjpeg-turbo; None if their interface or their pixels differ."""
    functions = functions_of(str(_imaging.__file__))
    return functions if functions and all(is_equal(functions, sampling) for sampling in _SAMPLES) else None


def functions_of(path: str) -> Any:
    """Return the addresses of ``FUNCTIONS`` in a shared library or its dependencies; None if any is missing."""
    try:
        linked = ctypes.CDLL(path)
        return (c_void_p * len(FUNCTIONS))(*(ctypes.cast(linked[name], c_void_p) for name in FUNCTIONS))
    except (OSError, AttributeError):
        return None


def is_equal(functions: Any, sampling: str) -> bool:
    """Return whether a library produces simplejpeg's pixels for a region and for all of a sample JPEG."""
    encoded, (whole, buffer) = sample_jpeg(75, 90, sampling), np.empty((2, 75, 90, 4), np.uint8)
    for is_fast, (top, left, bottom, right) in ((False, (19, 23, 40, 61)), (True, (0, 0, 75, 90))):
        way = Way(is_gray=False, is_fast_chroma=is_fast)
        decode(encoded, whole, way, is_strict=True)
        if not is_decoded(functions, encoded, buffer, (top, left, bottom, right), way):
            return False
        if not np.array_equal(buffer[top:bottom, left:right, :3], whole[top:bottom, left:right, :3]):
            return False
    return True


def warning(encoded: Encoded, space: Literal["GRAY", "CMYK"]) -> str | None:
    """Decode at an eighth of the size, and return the first warning or error of libjpeg-turbo, if any."""
    try:
        simplejpeg.decode_jpeg(encoded, space, min_height=1, min_width=1)
    except ValueError as error:
        return str(error)
    return None


def sample_jpeg(height: int, width: int, sampling: str = "420") -> bytes:
    """Return a JPEG for testing a decoder: a ramp per channel in a different direction, plus some noise."""
    down, right = np.mgrid[0 : 1 : height * 1j, 0 : 1 : width * 1j]
    ramps = 223 * np.stack([right, down, 1 - right], axis=-1)
    noise = (np.arange(ramps.size) * 2654435761 >> 16) % 33  # NumPy 2.3 imports np.random at its first use
    return jpeg_of((ramps + noise.reshape(ramps.shape)).astype(np.uint8), sampling)


def jpeg_of(pixels: npt.NDArray[np.uint8], sampling: str = "420") -> bytes:
    """Encode RGB pixels as a JPEG of quality 90."""
    return bytes(simplejpeg.encode_jpeg(pixels, quality=90, colorspace="RGB", colorsubsampling=sampling))
