"""Decoding on the CPU: JPEG by libjpeg-turbo (simplejpeg), everything else by Pillow.

Pillow also reads the few JPEGs that simplejpeg does not, but cannot choose their IDCT: with ``"idct": "fast"`` they are
refused.

A JPEG is damaged if libjpeg-turbo warns: its data ends early, or does not fit. ``strict`` refuses it; ``lenient`` takes
what libjpeg-turbo makes of it, which is what Pillow, OpenCV and browsers show.
"""

from __future__ import annotations

import io
import threading
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import simplejpeg
from PIL import Image

from pixprep.decoders import NAMES, Decoded, Encoded, Format, Limits
from pixprep.decoders.header import JpegHeader, check_tags, exif_orientation, read_header
from pixprep.errors import ImageError, PixprepError
from pixprep.plan import Plan, Reduction

U8 = npt.NDArray[np.uint8]

_TILE_WIDTH, _TILE_LENGTH = 322, 323  # TIFF 6.0, section 15
_END_OF_IMAGE = b"\xff\xd9"
KEPT_BYTES = 64 << 20
"""A thread keeps its pixel buffer for the next image up to this size: a fresh 36 MB costs 10 % of the decode."""


class CpuDecoder:
    """See ``Decoder``. Pixels are upright if the plan says so."""

    fallbacks = 0

    def __init__(self, plan: Plan, limits: Limits) -> None:
        self.recovered = 0
        self._is_gray = plan.is_gray
        self._is_upright = plan.apply_exif_orientation
        self._is_fast = plan.chroma == "fast"
        self._is_fast_idct = plan.idct == "fast"
        self._is_on_white = plan.alpha == "white"
        self._is_lenient = plan.damage == "lenient"
        self._denominator = lru_cache(maxsize=4096)(plan.denominator)
        self._limits = limits
        self._local = threading.local()
        self._kept = threading.local()
        self._lock = threading.Lock()
        self._budget = _Budget(limits.max_pixels_in_flight)

    def decode(self, encoded: Sequence[Encoded]) -> list[Decoded | ImageError]:
        """See ``Decoder.decode``; the buffer is one a thread, so only one image a call keeps its pixels valid."""
        results: list[Decoded | ImageError] = []
        for image in encoded:
            self.release()
            try:
                results.append(self._decode(image))
            except ImageError as error:
                results.append(error.as_value())
        return results

    def release(self) -> None:
        """See ``Decoder``: other threads may have as many pixels in flight."""
        self._budget.give(getattr(self._local, "pixels", 0))
        self._local.pixels = 0

    def trim(self) -> None:
        """Give memory back that the threads keep for their next images; any thread may ask for it."""
        self._kept = threading.local()  # who decodes at the moment still holds its buffer

    def _take(self, pixels: int) -> None:
        """Wait until so many pixels may be in memory, before they are."""
        self._budget.take(pixels)
        self._local.pixels = pixels

    def _decode(self, encoded: Encoded) -> Decoded:
        data = memoryview(encoded).cast("B")
        kind, header = read_header(data, self._limits, is_strict=not self._is_lenient)
        if header is None:
            if kind == "tiff":
                check_tags(data)
            return Decoded.whole(self._pillow(encoded, kind))
        self._take(header.height * header.width)
        if header.components in (1, 3):
            decoded = self._turbo(encoded, header)
            if decoded is not None:
                return decoded
        return Decoded.whole(self._rare(encoded, header))

    def _turbo(self, encoded: Encoded, header: JpegHeader) -> Decoded | None:
        """libjpeg-turbo through simplejpeg; None for the rare kinds that its TurboJPEG layer cannot describe."""
        turn = header.orientation if self._is_upright else 1
        size = (header.width, header.height) if turn >= 5 else (header.height, header.width)
        denominator = self._denominator(*size)
        rows, columns = -(-header.height // denominator), -(-header.width // denominator)
        buffer = self._buffer(rows * columns * (1 if self._is_gray else 4)).reshape(rows, columns, -1)
        try:
            pixels = self._turbojpeg(encoded, buffer, is_strict=True)
        except ValueError as error:
            message = str(error)
            if _is_rare(message):
                return None
            damage = _jpeg_error(message, len(encoded))
            if not self._is_lenient:
                raise damage from None
            try:
                pixels = self._remains(encoded, buffer)
            except ValueError:
                return Decoded.whole(self._recovered(encoded, header, damage))
            self._count_recovered()
        if turn != 1:
            pixels = _turned(pixels, turn)
        return Decoded(pixels, *size, None if denominator == 1 else _reduction(denominator, turn, *size))

    def _turbojpeg(self, encoded: Encoded, buffer: U8, *, is_strict: bool) -> U8:
        """The image at the largest scale that is not larger than ``buffer``, (rows, columns, channels)."""
        pixels: U8 = simplejpeg.decode_jpeg(
            encoded,
            "GRAY" if self._is_gray else "RGBX",
            fastdct=self._is_fast_idct,
            fastupsample=self._is_fast,
            min_height=buffer.shape[0],
            min_width=buffer.shape[1],
            buffer=buffer,
            strict=is_strict,
        )
        return pixels

    def _remains(self, encoded: Encoded, buffer: U8) -> U8:
        """What libjpeg-turbo makes of a damaged JPEG.

        It reports an error that follows a warning as a warning, and simplejpeg then gives the buffer back as it was:
        another client's image. So the last byte has to change, at the latest from another value.

        Raises:
            ValueError: it gave up.
        """
        for level in (0, 255):
            buffer[-1, -1, -1] = level
            pixels = self._turbojpeg(encoded, buffer, is_strict=False)
            if buffer[-1, -1, -1] != level:
                return pixels
        raise ValueError("the last row was not written")

    def _rare(self, encoded: Encoded, header: JpegHeader) -> U8:
        """A JPEG that only Pillow reads; the damage of CMYK is found by libjpeg-turbo, and that of others by Pillow."""
        if self._is_fast_idct:
            raise ImageError("UNSUPPORTED", 'a rare kind of JPEG, such as CMYK, which "idct": "fast" does not read')
        warning = _warning(encoded, "CMYK") if header.components == 4 else None
        if warning is None or _is_rare(warning):
            try:
                return self._pillow(encoded, "jpeg", header.orientation)
            except ImageError as error:
                damage = error.as_value()
        else:
            damage = _jpeg_error(warning, len(encoded))
        if not self._is_lenient or damage.reason not in ("TRUNCATED", "CORRUPT"):
            raise damage
        return self._recovered(encoded, header, damage)

    def _recovered(self, encoded: Encoded, header: JpegHeader, damage: ImageError) -> U8:
        """A damaged JPEG by Pillow: it refuses data that ends early, but at a marker libjpeg-turbo goes on."""
        if self._is_fast or self._is_fast_idct:  # Pillow has neither
            raise damage
        try:
            pixels = self._pillow(bytes(encoded) + _END_OF_IMAGE, "jpeg", header.orientation)
        except ImageError:
            raise damage from None
        self._count_recovered()
        return pixels

    def _count_recovered(self) -> None:
        with self._lock:  # every thread counts
            self.recovered += 1

    def _buffer(self, n_bytes: int) -> U8:
        kept = self._kept
        buffer: U8 | None = getattr(kept, "buffer", None)
        if buffer is None or len(buffer) < n_bytes:
            buffer = np.empty(n_bytes, np.uint8)
            kept.buffer = buffer if n_bytes <= KEPT_BYTES else None
        return buffer[:n_bytes]

    def _pillow(self, encoded: Encoded, kind: Format, turn: int = 1) -> U8:
        # It joins the segments of a JPEG, and before 13 copies what their tags claim: unchecked, up to 20 GB.
        if kind == "jpeg" and bytes(encoded).count(b"Exif\0\0") > 1:
            raise ImageError("UNSUPPORTED", "EXIF data in several segments of a rare kind of JPEG")
        try:
            with Image.open(io.BytesIO(encoded), formats=[kind.upper()]) as image:
                self._limits.check_size(image.height, image.width, len(encoded))
                if kind == "tiff":  # a tile is decoded whole, however little of it the image shows
                    tags = image.tag_v2  # type: ignore[attr-defined]
                    self._limits.check_size(tags.get(_TILE_LENGTH, 1), tags.get(_TILE_WIDTH, 1))
                if kind == "jpeg":
                    if self._is_gray:
                        image.draft("L", None)
                else:
                    self._take(image.height * image.width)
                    self._check_frames(encoded, kind)
                pixels = _array(image, is_gray=self._is_gray, is_on_white=self._is_on_white)
                if kind in ("png", "webp"):  # a PNG may say it after its pixels; a TIFF has been turned by Pillow
                    turn = exif_orientation(_exif(image))
                return _turned(pixels, turn) if self._is_upright and turn in range(2, 9) else pixels
        except PixprepError:
            raise
        except (Image.DecompressionBombError, Image.DecompressionBombWarning):
            raise ImageError("TOO_MANY_PIXELS", "more than Pillow decodes (PIL.Image.MAX_IMAGE_PIXELS)") from None
        except Exception as error:  # noqa: BLE001  (Pillow's plugins raise almost any type on damaged bytes)
            if "truncated" in str(error).lower():
                raise ImageError("TRUNCATED", f"the {NAMES[kind]} ends after {len(encoded):,} bytes") from None
            raise ImageError("CORRUPT", f"a damaged {NAMES[kind]}, or a kind that Pillow does not read") from None

    def _check_frames(self, encoded: Encoded, kind: Format) -> None:
        """Refuse an animation, if there is a limit; a second object, for to seek is to decode."""
        if not self._limits.max_frames:
            return
        with Image.open(io.BytesIO(encoded), formats=[kind.upper()]) as image:
            try:
                image.seek(self._limits.max_frames)
            except EOFError:
                return
        raise ImageError("UNSUPPORTED", f"over {self._limits.max_frames} frames (parameter max_frames)")


class _Budget:
    """So many pixels may be in memory at once; an image that is larger alone."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._used = 0
        self._changed = threading.Condition()

    def take(self, pixels: int) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._used == 0 or self._used + pixels <= self._limit)
            self._used += pixels

    def give(self, pixels: int) -> None:
        if pixels:
            with self._changed:
                self._used -= pixels
                self._changed.notify_all()


def is_whole(encoded: Encoded) -> bool:
    """Whether libjpeg-turbo decodes a JPEG of 1 or 3 components without a warning.

    By its decode to an eighth of the size, in gray: the same warnings, at 0.6 of the cost of all its pixels (0.9 of a
    progressive one's).
    """
    return _warning(encoded, "GRAY") is None


def _warning(encoded: Encoded, space: Literal["GRAY", "CMYK"]) -> str | None:
    """The first warning or error of libjpeg-turbo, if there is one."""
    try:
        simplejpeg.decode_jpeg(encoded, space, min_height=1, min_width=1)
    except ValueError as error:
        return str(error)
    return None


def _is_rare(message: str) -> bool:
    """Whether TurboJPEG says that it cannot describe the JPEG, whatever its data."""
    return "subsampling" in message or "color conversion" in message


def sample_jpeg(height: int, width: int) -> bytes:
    """A JPEG to try a decoder with, 4:2:0: each channel rises another way, under some noise."""
    down, right = np.mgrid[0 : 1 : height * 1j, 0 : 1 : width * 1j]
    ramps = 223 * np.stack([right, down, 1 - right], axis=-1)
    pixels = (ramps + np.random.default_rng(0).integers(0, 33, ramps.shape)).astype(np.uint8)
    return bytes(simplejpeg.encode_jpeg(pixels, quality=90, colorspace="RGB", colorsubsampling="420"))


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


def _exif(image: Image.Image) -> bytes:
    """EXIF data where the format has a place for it, or as ImageMagick writes it into a PNG, in hexadecimal text."""
    exif: bytes | None = image.info.get("exif")
    if exif is None:
        lines = str(image.info.get("Raw profile type exif", "")).split("\n")
        try:
            exif = bytes.fromhex("".join(lines[3:]))  # after an empty line, the name and the length
        except ValueError:
            exif = b""
    return exif


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


def _reduction(denominator: int, orientation: int, height: int, width: int) -> Reduction:
    """Of an image of this size, upright: the end, which may lie inside a pixel, may have become the beginning."""
    is_backwards = (orientation in (3, 4, 7, 8), orientation in (2, 3, 6, 7))
    sides = zip(is_backwards, (height, width), strict=True)
    y, x = (-(-side // denominator) - side / denominator if backwards else 0.0 for backwards, side in sides)
    return Reduction(denominator, (y, x))


def _jpeg_error(message: str, n_bytes: int) -> ImageError:
    """libjpeg-turbo's words as one of our reasons; warnings count, since they mean that pixels were invented."""
    if message.startswith("Premature end of JPEG file"):
        return ImageError("TRUNCATED", f"the JPEG ends after {n_bytes:,} bytes, before its last row")
    if message.startswith("Unsupported") and "marker" not in message:
        return ImageError("UNSUPPORTED", f"libjpeg-turbo: {message}")
    return ImageError("CORRUPT", f"libjpeg-turbo: {message.removeprefix('Corrupt JPEG data: ')}")
