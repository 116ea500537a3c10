"""Decoding on the CPU: JPEG by libjpeg-turbo (simplejpeg), everything else by Pillow.

Pillow also reads the few JPEGs that simplejpeg does not, but cannot choose their IDCT: with ``"idct": "fast"`` they are
refused.
"""

from __future__ import annotations

import io
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import simplejpeg
from PIL import Image

from pixprep.decoders import Encoded, Limits
from pixprep.decoders.header import JpegHeader, check_tags, exif_orientation, read_jpeg_header, sniff
from pixprep.errors import ImageError, PixprepError
from pixprep.plan import Plan

U8 = npt.NDArray[np.uint8]

PILLOW_FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "TIFF", "GIF")
_TILE_WIDTH, _TILE_LENGTH = 322, 323  # TIFF 6.0, section 15
KEPT_BYTES = 64 << 20
"""A thread keeps its pixel buffer for the next image up to this size: a fresh 36 MB costs 10 % of the decode."""


class CpuDecoder:
    """See ``Decoder``. Pixels are upright if the plan says so."""

    fallbacks = 0

    def __init__(self, plan: Plan, limits: Limits) -> None:
        self._is_gray = plan.is_gray
        self._is_upright = plan.apply_exif_orientation
        self._is_fast = plan.chroma == "fast"
        self._is_fast_idct = plan.idct == "fast"
        self._is_on_white = plan.alpha == "white"
        self._limits = limits
        self._local = threading.local()

    def decode(self, encoded: Sequence[Encoded]) -> list[U8 | ImageError]:
        """See ``Decoder.decode``; the buffer is one a thread, so only one image a call keeps its pixels valid."""
        results: list[U8 | ImageError] = []
        for image in encoded:
            try:
                results.append(self._decode(image))
            except ImageError as error:
                results.append(error)
        return results

    def _decode(self, encoded: Encoded) -> U8:
        data = memoryview(encoded).cast("B")
        self._limits.check_bytes(len(data))
        kind = sniff(data)
        if kind is None:
            raise ImageError("UNKNOWN_FORMAT", "not a JPEG, PNG, WebP, BMP, TIFF or GIF file")
        turn = 1
        if kind == "jpeg":
            header = read_jpeg_header(data)
            self._limits.check_size(header.height, header.width)
            if header.precision != 8 or header.frame == 0xC3:
                what = "a lossless JPEG" if header.frame == 0xC3 else f"a JPEG of {header.precision} bits a sample"
                raise ImageError("UNSUPPORTED", f"{what}; pixprep reads lossy ones of 8 bits a sample")
            if header.components in (1, 3):
                pixels = self._turbo(encoded, header)
                if pixels is not None:
                    return pixels
            if self._is_fast_idct:
                raise ImageError("UNSUPPORTED", 'a rare kind of JPEG, such as CMYK, which "idct": "fast" does not read')
            turn = header.orientation
            # Pillow joins the segments, and before 13 copies what their tags claim: unchecked, up to 20 GB.
            if bytes(data).count(b"Exif\0\0") > 1:
                raise ImageError("UNSUPPORTED", "EXIF data in several segments of a rare kind of JPEG")
        elif kind == "tiff":
            check_tags(data)
        return self._pillow(encoded, kind, turn)

    def _turbo(self, encoded: Encoded, header: JpegHeader) -> U8 | None:
        """libjpeg-turbo through simplejpeg; None for the rare kinds that its TurboJPEG layer cannot describe."""
        channels = 1 if self._is_gray else 4
        turn = header.orientation if self._is_upright else 1
        try:
            pixels: U8 = simplejpeg.decode_jpeg(
                encoded,
                "GRAY" if self._is_gray else "RGBX",
                fastdct=self._is_fast_idct,
                fastupsample=self._is_fast,
                buffer=self._buffer(header.height * header.width * channels),
            )
        except ValueError as error:
            message = str(error)
            if "subsampling" in message or "color conversion" in message:
                return None
            raise _jpeg_error(message, len(encoded)) from None
        return pixels if turn == 1 else _turned(pixels, turn)

    def _buffer(self, n_bytes: int) -> U8:
        buffer: U8 | None = getattr(self._local, "buffer", None)
        if buffer is None or len(buffer) < n_bytes:
            buffer = np.empty(n_bytes, np.uint8)
            self._local.buffer = buffer if n_bytes <= KEPT_BYTES else None
        return buffer

    def _pillow(self, encoded: Encoded, kind: str, turn: int) -> U8:
        name = {"jpeg": "JPEG", "webp": "WebP"}.get(kind, kind.upper())
        try:
            with Image.open(io.BytesIO(encoded), formats=PILLOW_FORMATS) as image:
                self._limits.check_size(image.height, image.width)
                if kind == "tiff":  # a tile is decoded whole, however little of it the image shows
                    tags = image.tag_v2  # type: ignore[attr-defined]
                    self._limits.check_size(tags.get(_TILE_LENGTH, 1), tags.get(_TILE_WIDTH, 1))
                if self._is_gray and kind == "jpeg":
                    image.draft("L", None)
                pixels = _array(image, is_gray=self._is_gray, is_on_white=self._is_on_white)
                if kind in ("png", "webp"):  # a PNG may say it after its pixels; a TIFF has been turned by Pillow
                    turn = exif_orientation(image.info.get("exif", b""))
                return _turned(pixels, turn) if self._is_upright and turn in range(2, 9) else pixels
        except PixprepError:
            raise
        except (Image.DecompressionBombError, Image.DecompressionBombWarning):
            raise ImageError("TOO_MANY_PIXELS", f"the limit is {self._limits.max_pixels:,}") from None
        except Exception as error:  # noqa: BLE001  (Pillow's plugins raise almost any type on damaged bytes)
            if "truncated" in str(error).lower():
                raise ImageError("TRUNCATED", f"the {name} ends after {len(encoded):,} bytes") from None
            raise ImageError("CORRUPT", f"a damaged {name}, or a kind that Pillow does not read") from None


def sample_jpeg(height: int, width: int) -> bytes:
    """A JPEG of noise, 4:2:0, to try a decoder with."""
    noise = np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return bytes(simplejpeg.encode_jpeg(noise, quality=90, colorspace="RGB", colorsubsampling="420"))


def _array(image: Image.Image, *, is_gray: bool, is_on_white: bool) -> U8:
    if image.mode.startswith("I;16"):
        high = (np.asarray(image) >> 8).astype(np.uint8)
        image = Image.fromarray(high)
    if image.mode in ("I", "F"):
        raise ImageError("UNSUPPORTED", "32 bits a sample; pixprep reads 8 and 16")
    # What transformers' convert_to_rgb takes for transparent: a channel, or a colour or palette entries that are.
    if is_on_white and ("A" in image.getbands() or image.info.get("transparency") is not None):
        white = Image.new("RGBA", image.size, "white")
        image = Image.alpha_composite(white, image.convert("RGBA")).convert("RGB")
    if image.mode == "P":  # by way of RGBA: Pillow warns when a palette with alpha becomes anything else
        image = image.convert("RGBA")
    if is_gray:
        return np.asarray(image.convert("L"))[:, :, None]
    if image.mode != "RGB":
        image = image.convert("RGB")
    # Pillow's RGB has a fourth byte in memory: asked for with it, 50 megapixels need 400 MB less than by way of RGBX.
    pixels = np.frombuffer(image.tobytes("raw", "RGBX"), np.uint8)
    return pixels.reshape(image.height, image.width, 4)


def _turned(pixels: U8, orientation: int) -> U8:
    """The upright image, in memory of its own (EXIF 2.32, tag Orientation: where row 0 and column 0 are seen)."""
    height, width, channels = pixels.shape
    # A pixel as one number, so that a transpose moves whole pixels: four times faster than bytes.
    grid: npt.NDArray[Any] = pixels.view(np.uint32 if channels == 4 else np.uint8).reshape(height, width)
    if orientation >= 5:
        grid = grid.T
    if orientation in (3, 4, 7, 8):
        grid = grid[::-1]
    if orientation in (2, 3, 6, 7):
        grid = grid[:, ::-1]
    upright = grid.copy(order="C")
    return upright.view(np.uint8).reshape(*grid.shape, channels)


def _jpeg_error(message: str, n_bytes: int) -> ImageError:
    """libjpeg-turbo's words as one of our reasons; warnings count, since they mean that pixels were invented."""
    if message.startswith("Premature end of JPEG file"):
        return ImageError("TRUNCATED", f"the JPEG ends after {n_bytes:,} bytes, before its last row")
    if message.startswith("Unsupported"):
        return ImageError("UNSUPPORTED", f"libjpeg-turbo: {message}")
    return ImageError("CORRUPT", f"libjpeg-turbo: {message.removeprefix('Corrupt JPEG data: ')}")
