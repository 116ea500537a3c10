"""libjpeg-turbo: a JPEG whole by simplejpeg, or a part of one by the library that Pillow brings.

simplejpeg has no function for a part, and exports nothing of its library. Pillow's exports all, and is in the process
already. Its functions are called in C (``engine/kernels/jpeg_part.c``), where they have the expected interface and give
simplejpeg's pixels. Where they do not, or Pillow has another library, every JPEG is decoded whole.
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
"""The interface that is declared there: libjpeg 6b's, which the libraries of Pillow's wheels have."""
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
    """Choices of a decode.

    Attributes:
        is_gray: to one channel; else to RGB.
        is_fast_idct, is_fast_chroma: as ``idct`` and ``chroma`` of the op ``decode`` say.
    """

    is_gray: bool
    is_fast_idct: bool = False
    is_fast_chroma: bool = False


def decode(encoded: Encoded, buffer: U8, way: Way, *, is_strict: bool) -> U8:
    """The image at the largest scale that is not larger than ``buffer``, uint8 (rows, columns, 4 or 1), written there.

    Raises:
        ValueError: TurboJPEG's words: it does not know this kind of JPEG; or ``is_strict``, and libjpeg-turbo warns.
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
    """Write a part of an image, or all, to where it lies, if libjpeg-turbo warns of nothing in all the data.

    Args:
        encoded: a JPEG of 1 or 3 components.
        buffer: uint8 (height, width, 4 or 1), of the whole image; what is outside of the part has no meaning after.
        part: of the image as stored; not empty.
        way: of the decode; with ``is_fast_chroma`` only all is decoded.

    Returns:
        Whether it is written; else the whole decode may succeed, or say what is wrong.
    """
    is_left_out = way.is_fast_chroma and part != (0, 0, *buffer.shape[:2])
    functions = None if is_left_out else _pillows()
    return functions is not None and is_decoded(functions, encoded, buffer, part, way)


def is_decoded(functions: Any, encoded: Encoded, buffer: U8, part: Part, way: Way, *, abi: int = ABI) -> bool:
    """Decode as ``decode_part`` does, by the functions of a library, which rejects every ``abi`` except its own."""
    data = np.frombuffer(encoded, np.uint8)
    height, width, channels = buffer.shape
    struct = STRUCTS["jpeg_part"](
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
    """Tell whether ``engine/kernels/huffman.c`` decodes the entropy-coded data, in place of libjpeg-turbo's own loop.

    It does if Pillow reports a version of libjpeg-turbo in ``TESTED``, unless ``PIXPREP_HUFFMAN=library`` turns it off.
    The pixels are the same.

    Raises:
        SetupError: the environment variable has another value.
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
    """Tell whether a part can be decoded."""
    return _pillows() is not None


@cache
def _pillows() -> Any:
    """Functions of Pillow's library; None where they are not such as are wanted."""
    functions = functions_of(str(_imaging.__file__))
    return functions if functions and all(is_equal(functions, sampling) for sampling in _SAMPLES) else None


def functions_of(path: str) -> Any:
    """Addresses of ``FUNCTIONS`` in a shared library, or in one that it is linked with; None where it has not all."""
    try:
        linked = ctypes.CDLL(path)
        return (c_void_p * len(FUNCTIONS))(*(ctypes.cast(linked[name], c_void_p) for name in FUNCTIONS))
    except (OSError, AttributeError):
        return None


def is_equal(functions: Any, sampling: str) -> bool:
    """Tell whether a library gives simplejpeg's pixels for a sample, for a part and for all of it."""
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
    """The first warning or error of libjpeg-turbo, if there is one: at an eighth of the size."""
    try:
        simplejpeg.decode_jpeg(encoded, space, min_height=1, min_width=1)
    except ValueError as error:
        return str(error)
    return None


def sample_jpeg(height: int, width: int, sampling: str = "420") -> bytes:
    """A JPEG to try a decoder with: each channel rises another way, under some noise."""
    down, right = np.mgrid[0 : 1 : height * 1j, 0 : 1 : width * 1j]
    ramps = 223 * np.stack([right, down, 1 - right], axis=-1)
    noise = (np.arange(ramps.size) * 2654435761 >> 16) % 33  # NumPy 2.3 imports np.random at its first use
    return jpeg_of((ramps + noise.reshape(ramps.shape)).astype(np.uint8), sampling)


def jpeg_of(pixels: npt.NDArray[np.uint8], sampling: str = "420") -> bytes:
    """RGB pixels as a JPEG of quality 90."""
    return bytes(simplejpeg.encode_jpeg(pixels, quality=90, colorspace="RGB", colorsubsampling=sampling))
