"""Decode JPEGs with libjpeg-turbo: complete images with simplejpeg, and regions with the library that Pillow includes.

simplejpeg cannot decode a region, and does not export the functions of its libjpeg-turbo. Pillow's library exports
them, and the process has already loaded it. ``engine/kernels/jpeg_region.c`` calls these functions if they have the
expected interface and produce the same pixels as simplejpeg. If not, or if Pillow includes a different libjpeg, every
JPEG is decoded completely.
"""

from __future__ import annotations

import ctypes
import os
from ctypes import c_void_p
from functools import cache
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import simplejpeg
from PIL import _imaging

from pixprep.engine.decoders import Encoded
from pixprep.engine.kernels.layout import packer
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
"""Version of the interface that libjpeg.h declares. The libraries in Pillow's wheels have this interface, which is that
of libjpeg 6b."""
TESTED = frozenset(
    ("2.1.5", "2.1.5.1", *(f"3.0.{n}" for n in range(5)), *(f"3.1.{n}" for n in range(4)), "3.1.4.1", "3.2.0")
)
"""Versions of libjpeg-turbo whose ``jpeg_entropy_decoder`` is declared in engine/kernels/libjpeg.h.

This struct is internal to libjpeg-turbo, whose size and version checks do not cover it. Add a version after
``make pillow-versions`` has passed with a Pillow that includes it.
"""
SETTING = "PIXPREP_HUFFMAN"
"""Environment variable that disables ``engine/kernels/huffman.c`` if its value is ``library``."""
_REGION = packer(STRUCTS["jpeg_region"])
_SAMPLES = ("444", "422", "420", "440", "411", "gray")


class Options(NamedTuple):
    """Options for decoding a JPEG.

    Attributes:
        is_gray: Whether to decode to one channel instead of RGB.
        is_fast_idct: Whether ``idct`` of the op ``decode`` is ``fast``.
        is_fast_chroma: Whether ``chroma`` of the op ``decode`` is ``fast``.
    """

    is_gray: bool
    is_fast_idct: bool = False
    is_fast_chroma: bool = False


def decode(encoded: Encoded, buffer: U8, options: Options, *, is_strict: bool) -> U8:
    """Decode a JPEG into ``buffer``, uint8 (rows, columns, 4 or 1), at the largest scale that fits into it.

    Raises:
        ValueError: TurboJPEG does not support this kind of JPEG, or ``is_strict`` is True and libjpeg-turbo warns. The
            error contains TurboJPEG's message.
    """
    pixels: U8 = simplejpeg.decode_jpeg(
        encoded,
        "GRAY" if options.is_gray else "RGBX",
        fastdct=options.is_fast_idct,
        fastupsample=options.is_fast_chroma,
        min_height=buffer.shape[0],
        min_width=buffer.shape[1],
        buffer=buffer,
        strict=is_strict,
    )
    return pixels


def decode_part(encoded: Encoded, buffer: U8, part: Part, options: Options) -> bool:
    """Decode a region of an image, or the complete image, into a buffer for the complete image.

    If libjpeg-turbo warns anywhere in the file, the region counts as not decoded.

    Args:
        encoded: A JPEG with 1 or 3 components.
        buffer: Array of uint8 (height, width, 4 or 1) for the complete image. Pixels outside the region are undefined
            afterwards.
        part: Region of the stored image. It must not be empty.
        options: Options of the decode. With ``is_fast_chroma``, only the complete image is supported.

    Returns:
        Whether the region was decoded. If not, decoding the complete image may succeed, or report the error.
    """
    is_unsupported = options.is_fast_chroma and part != (0, 0, *buffer.shape[:2])
    functions = None if is_unsupported else _pillow_functions()
    return functions is not None and is_decoded(functions, encoded, buffer, part, options)


def is_decoded(functions: Any, encoded: Encoded, buffer: U8, part: Part, options: Options, *, abi: int = ABI) -> bool:
    """Decode like ``decode_part`` with the functions of a given library, which rejects every ``abi`` except its own."""
    data = np.frombuffer(encoded, np.uint8)
    height, width, channels = buffer.shape
    arguments = _REGION.pack(
        ctypes.addressof(functions), abi, _address(data), len(data), _address(buffer), width * channels, channels,
        height, width, *part, options.is_fast_idct, options.is_fast_chroma, has_own_huffman(),
    )  # fmt: skip
    is_written: bool = library().decode_jpeg_part(arguments) == 0
    return is_written


def _address(array: U8) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


@cache
def has_own_huffman() -> bool:
    """Return whether ``engine/kernels/huffman.c`` decodes the entropy-coded data instead of libjpeg-turbo.

    This is the case if Pillow reports a version of libjpeg-turbo in ``TESTED``, unless ``PIXPREP_HUFFMAN=library``
    disables it. The pixels are the same.

    Raises:
        SetupError: The value of the environment variable is not supported.
    """
    if (choice := os.environ.get(SETTING)) not in (None, "", "library"):
        raise SetupError(f"{SETTING}={choice} is not supported: set it to library, or unset it")
    return not choice and _version() in TESTED


def why_not_own() -> str:
    """Return how to make ``has_own_huffman`` true, as a hint for the operator of a server."""
    if os.environ.get(SETTING):
        return f"unset {SETTING}"
    return f"pixprep was not tested with libjpeg-turbo {_version()}: install a Pillow with which it was tested"


def _version() -> str | None:
    """Return the version of libjpeg-turbo that Pillow reports, or None if Pillow uses a different libjpeg."""
    version: str | None = getattr(_imaging, "libjpeg_turbo_version", None)
    return version


def has_parts() -> bool:
    """Return whether regions of JPEGs can be decoded."""
    return _pillow_functions() is not None


@cache
def _pillow_functions() -> Any:
    """Return the functions of Pillow's libjpeg-turbo, or None if their interface or their pixels differ."""
    functions = functions_of(str(_imaging.__file__))
    return functions if functions and all(is_equal(functions, sampling) for sampling in _SAMPLES) else None


def functions_of(path: str) -> Any:
    """Return the addresses of ``FUNCTIONS`` in a shared library or its dependencies, or None if one is missing."""
    try:
        linked = ctypes.CDLL(path)
        return (c_void_p * len(FUNCTIONS))(*(ctypes.cast(linked[name], c_void_p) for name in FUNCTIONS))
    except (OSError, AttributeError):
        return None


def is_equal(functions: Any, sampling: str) -> bool:
    """Return whether a library decodes a sample JPEG, and a region of it, to the same pixels as simplejpeg."""
    encoded, (whole, buffer) = sample_jpeg(75, 90, sampling), np.empty((2, 75, 90, 4), np.uint8)
    for is_fast, (top, left, bottom, right) in ((False, (19, 23, 40, 61)), (True, (0, 0, 75, 90))):
        options = Options(is_gray=False, is_fast_chroma=is_fast)
        decode(encoded, whole, options, is_strict=True)
        if not is_decoded(functions, encoded, buffer, (top, left, bottom, right), options):
            return False
        if not np.array_equal(buffer[top:bottom, left:right, :3], whole[top:bottom, left:right, :3]):
            return False
    return True


def warning(encoded: Encoded, space: Literal["GRAY", "CMYK"]) -> str | None:
    """Decode a JPEG at an eighth of its size, and return the first warning or error of libjpeg-turbo, or None."""
    try:
        simplejpeg.decode_jpeg(encoded, space, min_height=1, min_width=1)
    except ValueError as error:
        return str(error)
    return None


def sample_jpeg(height: int, width: int, sampling: str = "420") -> bytes:
    """Return a JPEG for testing decoders. Each channel is a ramp in a different direction, with some noise."""
    down, right = np.mgrid[0 : 1 : height * 1j, 0 : 1 : width * 1j]
    ramps = 223 * np.stack([right, down, 1 - right], axis=-1)
    noise = (np.arange(ramps.size) * 2654435761 >> 16) % 33  # without np.random, which NumPy 2.3 imports on first use
    return jpeg_of((ramps + noise.reshape(ramps.shape)).astype(np.uint8), sampling)


def jpeg_of(pixels: npt.NDArray[np.uint8], sampling: str = "420") -> bytes:
    """Encode RGB pixels as a JPEG of quality 90."""
    return bytes(simplejpeg.encode_jpeg(pixels, quality=90, colorspace="RGB", colorsubsampling=sampling))
